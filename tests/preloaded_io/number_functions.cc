// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "tests/preloaded_io/functions.h"

namespace gmac::testing {

const std::vector<Function>& numberFunctions() {
  static const std::vector<Function> all = {
      {"SYS_read",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor file(::open("there", O_RDWR));
         auto* const bytes = a.room<char>(100);
         a.make([&] { return ::syscall(SYS_read, static_cast<int>(file), bytes, 100); });
         a.noteBytes(bytes, 100);
         a.make([&] { return ::syscall(SYS_pwrite64, static_cast<int>(file), bytes, 5, 3L); });
         a.make([&] { return ::syscall(SYS_pread64, static_cast<int>(file), bytes, 100, 1L); });
         a.noteBytes(bytes, 100);
         auto* const part = a.put(iovec{bytes, 4});
         a.make([&] { return ::syscall(SYS_writev, static_cast<int>(file), part, 1); });
         a.make([&] { return ::syscall(SYS_preadv2, static_cast<int>(file), part, 1, 0L, 0L, 0); });
         a.noteBytes(bytes, 100);
       }},
      {"SYS_read_partly_closed",
       [](Attempt& a) {
         // The first bytes are open, and more blocks follow: no call may end where they do.
         constexpr long kLength = 100000;
         const Descriptor file(::memfd_create("there", 0));
         auto* const bytes = a.room<char>(kLength);
         auto* const part = a.put(iovec{bytes, kLength});
         const auto make = [&](const auto& call) {
           a.make([&] {
             bytes[0] = 'x';
             part->iov_len = kLength;
             return call();
           });
           a.noteBytes(bytes, 1);
           a.note(bytes[kLength - 1]);
         };
         const int number = file;
         make([&] { return ::syscall(SYS_write, number, bytes, kLength); });
         make([&] { return ::syscall(SYS_pread64, number, bytes, kLength, 0L); });
         make([&] { return ::syscall(SYS_pwrite64, number, bytes, kLength, 5L); });
         make([&] { return ::syscall(SYS_writev, number, part, 1); });
         make([&] { return ::syscall(SYS_preadv, number, part, 1, 3L, 0L); });
         make([&] { return ::syscall(SYS_lseek, number, 7L, SEEK_SET); });
         make([&] { return ::syscall(SYS_readv, number, part, 1); });
         make([&] { return ::syscall(SYS_getrandom, bytes + 1, kLength - 2, 0); });
       }},
      {"SYS_process_vm_readv",
       [](Attempt& a) {
         constexpr long kLength = 100000;
         auto* const from = a.room<char>(kLength);
         auto* const to = a.room<char>(kLength);
         auto* const local = a.put(iovec{to, kLength});
         auto* const remote = a.put(iovec{from, kLength});
         const long self = ::getpid();
         const auto make = [&](long number) {
           a.make([&] {
             from[0] = 'x';
             return ::syscall(number, self, local, 1L, remote, 1L, 0L);
           });
           a.note(from[0]);
           a.note(to[0]);
           a.note(to[kLength - 1]);
         };
         make(SYS_process_vm_readv);
         to[kLength - 1] = 'y';
         make(SYS_process_vm_writev);
         a.note(from[kLength - 1]);
         a.make([&] { return ::syscall(SYS_process_vm_readv, self, nullptr, 1L, remote, 1L, 0L); });
       }},
      {"SYS_sendmsg",
       [](Attempt& a) {
         int ends[2];
         if (::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) std::abort();
         const Descriptor one(ends[0]);
         const Descriptor other(ends[1]);
         auto* const bytes = a.room<char>(100);
         auto* const part = a.put(iovec{bytes, 100});
         msghdr wanted = {};
         wanted.msg_iov = part;
         wanted.msg_iovlen = 1;
         auto* const header = a.put(wanted);
         a.make([&] { return ::syscall(SYS_sendmsg, ends[0], header, 0); });
         a.make([&] { return ::syscall(SYS_recvmsg, ends[1], header, MSG_DONTWAIT); });
         a.noteBytes(bytes, 100);
         a.make([&] { return ::syscall(SYS_recvmsg, ends[1], header, MSG_DONTWAIT); });
       }},
      {"SYS_rt_sigprocmask",
       [](Attempt& a) {
         auto* const all = a.put(~0UL);
         auto* const before = a.put(~0UL);
         const auto noteFaults = [&](unsigned long mask) { a.note(mask >> (SIGSEGV - 1) & 1); };
         a.make([&] { return ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, all, before, 8L); });
         noteFaults(*before);
         a.make([&] { return *all == ~0UL; });  // an access while all is blocked
         sigset_t byName;
         a.make([&] { return ::sigprocmask(SIG_SETMASK, nullptr, &byName); });
         a.note(::sigismember(&byName, SIGSEGV));
         a.make([&] { return ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, before, all, 8L); });
         noteFaults(*all);
         a.make([&] { return ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, all, 8L); });
         noteFaults(*all);
         a.make([&] { return ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, 8L, nullptr, 8L); });
         a.make([&] { return ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, all, nullptr, 4L); });
         a.make([&] { return ::syscall(SYS_rt_sigprocmask, 77, all, nullptr, 8L); });
       }},
      {"SYS_rt_sigaction",
       [](Attempt& a) {
         struct Action {
           void (*handler)(int);
           unsigned long flags;
           void (*restorer)();
           unsigned long mask;
         };
         for (const int signal : {SIGSEGV, SIGUSR2}) {
           auto* const own = a.put(Action{[](int) {}, SA_NODEFER, nullptr, 1UL << (SIGSEGV - 1)});
           auto* const before = a.room<Action>();
           auto* const now = a.room<Action>();
           a.make([&] { return ::syscall(SYS_rt_sigaction, signal, own, before, 8L); });
           a.make([&] { return own->flags; });  // an access that the action is not to see
           a.make([&] { return ::syscall(SYS_rt_sigaction, signal, nullptr, now, 8L); });
           a.note(now->handler == own->handler);
           a.note(now->flags & SA_NODEFER);
           a.note(now->mask);
           struct sigaction byName = {};
           a.make([&] { return ::sigaction(signal, nullptr, &byName); });
           a.note(byName.sa_handler == own->handler);
           a.note(::sigismember(&byName.sa_mask, SIGSEGV));
           a.make([&] { return ::syscall(SYS_rt_sigaction, signal, before, now, 8L); });
           a.note(now->handler == own->handler);
           a.make([&] { return ::syscall(SYS_rt_sigaction, signal, 8L, nullptr, 8L); });
           a.make([&] { return ::syscall(SYS_rt_sigaction, signal, nullptr, now, 4L); });
         }
         a.make([&] { return ::syscall(SYS_rt_sigaction, SIGKILL, nullptr, nullptr, 8L); });
       }},
      {"SYS_openat",
       [](Attempt& a) {
         auto* const name = a.text("new");
         const Descriptor file(a.makeDescriptor(
             [&] { return ::syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_RDWR, 0600); }));
         auto* const status = a.room<struct stat>();
         a.make([&] { return ::syscall(SYS_newfstatat, AT_FDCWD, name, status, 0); });
         a.note(status->st_mode);
         a.make([&] { return ::syscall(SYS_unlink, name); });
       }},
      {"SYS_getcwd",
       [](Attempt& a) {
         auto* const path = a.room<char>(PATH_MAX);
         a.makeDescriptor([&] { return ::syscall(SYS_getcwd, path, PATH_MAX); });
         a.note(path[0]);
         a.make([&] { return ::syscall(SYS_getcwd, path, 1); });
       }},
      {"SYS_epoll_wait",
       [](Attempt& a) {
         const Pipe pipe;
         const Descriptor set(::epoll_create1(0));
         epoll_event wanted = {};
         wanted.events = EPOLLIN | EPOLLET;
         auto* const event = a.put(wanted);
         auto* const events = a.room<epoll_event>(8);
         const int number = set;
         a.make(
             [&] { return ::syscall(SYS_epoll_ctl, number, EPOLL_CTL_ADD, pipe.ends[0], event); });
         pipe.send();
         a.make([&] { return ::syscall(SYS_epoll_wait, number, events, 8, 1000); });
         a.note(events[0].events);
         pipe.send();
         a.make([&] { return ::syscall(SYS_epoll_pwait, number, events, 8, 1000, nullptr, 8L); });
       }},
      {"SYS_waitid",
       [](Attempt& a) {
         auto* const info = a.room<siginfo_t>();
         auto* const usage = a.room<rusage>();
         const pid_t child = childThatExits(5);
         a.make([&] { return ::syscall(SYS_waitid, P_PID, child, info, WEXITED, nullptr); });
         a.note(info->si_status);
         const pid_t other = childThatExits(6);
         a.make([&] { return ::syscall(SYS_waitid, P_PID, other, info, WEXITED, usage); });
         a.note(info->si_status);
       }},
      {"SYS_ppoll",
       [](Attempt& a) {
         const Pipe pipe;
         auto* const descriptor = a.put(pollfd{pipe.ends[0], POLLIN, 0});
         auto* const limit = a.put(timespec{1, 0});
         pipe.send();
         a.make([&] { return ::syscall(SYS_ppoll, descriptor, 1L, limit, nullptr, 8L); });
         a.note(descriptor->revents);
         a.note(limit->tv_sec);
       }},
      {"SYS_futex",
       [](Attempt& a) {
         auto* const word = a.put(7U);
         auto* const limit = a.put(timespec{0, 1000});
         a.make([&] { return ::syscall(SYS_futex, word, FUTEX_WAIT, 7, limit, nullptr, 0); });
         const unsigned own = 7;  // the limit alone is in shared memory
         a.make([&] { return ::syscall(SYS_futex, &own, FUTEX_WAIT, 7, limit, nullptr, 0); });
         a.make([&] { return ::syscall(SYS_futex, word, FUTEX_WAIT, 8, limit, nullptr, 0); });
         a.make([&] { return ::syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0); });
       }},
      {"SYS_getrandom",
       [](Attempt& a) {
         auto* const bytes = a.room<long>(4);
         a.make([&] { return ::syscall(SYS_getrandom, bytes, 32L, 0); });
         a.noteTold(bytes);
       }},
      {"SYS_sched_getattr",
       [](Attempt& a) {
         struct Attributes {
           unsigned size, policy;
           unsigned long flags;
           int nice;
           unsigned priority;
           unsigned long more[4];
         };
         auto* const told = a.put(Attributes{});
         a.make([&] { return ::syscall(SYS_sched_getattr, 0, told, sizeof *told, 0); });
         a.note(told->size);
         a.make([&] { return ::syscall(SYS_sched_setattr, 0, told, 0); });
       }},
      {"SYS_rt_sigpending",
       [](Attempt& a) {
         auto* const set = a.room<unsigned long>();
         a.make([&] { return ::syscall(SYS_rt_sigpending, set, sizeof *set); });
         a.note(*set);
       }},
      {"SYS_gettimeofday",
       [](Attempt& a) {
         auto* const time = a.room<timeval>();
         auto* const zone = a.room<struct timezone>();
         a.make([&] { return ::syscall(SYS_gettimeofday, time, zone); });
         a.noteTold(time);
         a.noteBytes(zone);
       }},
      // Structures that hold pointers.
      {"SYS_pselect6",
       [](Attempt& a) {
         struct Mask {
           unsigned long* set;
           std::size_t bytes;
         };
         const Pipe pipe;
         fd_set read;
         FD_ZERO(&read);
         FD_SET(pipe.ends[0], &read);
         auto* const reads = a.put(read);
         auto* const limit = a.put(timespec{1, 0});
         auto* const mask = a.put(Mask{a.put(0UL), sizeof(unsigned long)});
         pipe.send();
         const int end = pipe.ends[0] + 1;
         a.make([&] { return ::syscall(SYS_pselect6, end, reads, nullptr, nullptr, limit, mask); });
         a.note(FD_ISSET(pipe.ends[0], reads));
         const Mask own = *mask;
         a.make([&] { return ::syscall(SYS_pselect6, end, reads, nullptr, nullptr, limit, &own); });
       }},
      {"SYS_futex_waitv",
       [](Attempt& a) {
         constexpr long kNumber = 449;
         struct Waiter {
           unsigned long value;
           unsigned* word;
           unsigned flags, reserved;
         };
         const Waiter both[] = {{7, a.put(7U), 2, 0}, {9, a.put(8U), 2, 0}};
         auto* const waiters = a.put(both, 2);
         auto* const limit = a.put(timespec{0, 1});
         a.make([&] {
           return ::syscall(kNumber, waiters, 2, 0, limit, static_cast<long>(CLOCK_MONOTONIC));
         });
         a.make([&] {
           return ::syscall(kNumber, &both, 2, 0, limit, static_cast<long>(CLOCK_MONOTONIC));
         });
       }},
      {"SYS_clone",
       [](Attempt& a) {
         auto* const told = a.room<pid_t>();
         pid_t child = 0;
         a.makeDescriptor([&] {
           child = static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT_SETTID | SIGCHLD, nullptr,
                                                told, nullptr, nullptr));
           if (child == 0) ::_exit(3);
           return child;
         });
         a.note(*told == child);
         int status = 0;
         a.note(::waitpid(child, &status, 0) == child);
         a.note(status);
       }},
      {"SYS_clone3",
       [](Attempt& a) {
         auto* const told = a.room<pid_t>();
         auto* const descriptor = a.room<int>();
         clone_args wanted = {};
         wanted.flags = CLONE_PARENT_SETTID | CLONE_PIDFD;
         wanted.exit_signal = SIGCHLD;
         wanted.parent_tid = reinterpret_cast<std::uintptr_t>(told);
         wanted.pidfd = reinterpret_cast<std::uintptr_t>(descriptor);
         auto* const arguments = a.put(wanted);
         pid_t child = 0;
         a.makeDescriptor([&] {
           child = static_cast<pid_t>(::syscall(SYS_clone3, arguments, sizeof *arguments));
           if (child == 0) ::_exit(4);
           return child;
         });
         a.note(*told == child);
         a.note(::close(*descriptor));
         int status = 0;
         a.note(::waitpid(child, &status, 0) == child);
         a.note(status);
       }},
      {"SYS_gettid", [](Attempt& a) { a.make([&] { return ::syscall(SYS_gettid) > 0; }); }},
      {"SYS_unknown", [](Attempt& a) { a.make([&] { return ::syscall(511, 1, 2, 3); }); }},
  };
  return all;
}

}  // namespace gmac::testing
