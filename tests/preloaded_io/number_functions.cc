// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
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
      {"SYS_gettid", [](Attempt& a) { a.make([&] { return ::syscall(SYS_gettid) > 0; }); }},
      {"SYS_unknown", [](Attempt& a) { a.make([&] { return ::syscall(511, 1, 2, 3); }); }},
  };
  return all;
}

}  // namespace gmac::testing
