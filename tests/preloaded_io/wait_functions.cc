// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "tests/preloaded_io/functions.h"

namespace gmac::testing {

namespace {

const timespec kSoon = {0, 1000};

}  // namespace

const std::vector<Function>& waitFunctions() {
  static const std::vector<Function> all = {
      {"epoll",
       [](Attempt& a) {
         const Pipe pipe;
         const Descriptor set(::epoll_create1(0));
         epoll_event wanted = {};
         wanted.events = EPOLLIN | EPOLLET;  // an event that is lost does not come again
         wanted.data.u64 = 42;
         auto* const event = a.put(wanted);
         auto* const events = a.room<epoll_event>(8);
         a.make([&] { return ::epoll_ctl(set, EPOLL_CTL_ADD, pipe.ends[0], event); });
         pipe.send();
         a.make([&] { return ::epoll_wait(set, events, 8, 1000); });
         a.note(events[0].data.u64);
         a.noteBytes(events, 8);
         pipe.send();
         a.make([&] { return ::epoll_pwait(set, events, 8, 1000, nullptr); });
         pipe.send();
         auto* const limit = a.put(timespec{1, 0});
         a.make([&] { return ::epoll_pwait2(set, events, 8, limit, nullptr); });
         a.make([&] { return ::epoll_wait(set, events, 8, 0); });
         a.make([&] { return ::epoll_wait(set, events, -1, 0); });
       }},
      {"poll",
       [](Attempt& a) {
         const Pipe pipe;
         const pollfd both[] = {{pipe.ends[0], POLLIN, 0}, {pipe.ends[1], POLLIN, 0}};
         auto* const descriptors = a.put(both, 2);
         auto* const limit = a.put(timespec{1, 0});
         auto* const mask = a.put(sigset_t{});
         pipe.send();
         a.make([&] { return ::poll(descriptors, 2, 1000); });
         a.note(descriptors[0].revents);
         descriptors[0].revents = 0;
         a.make([&] { return ::ppoll(descriptors, 2, limit, mask); });
         a.note(descriptors[0].revents);
       }},
      {"select",
       [](Attempt& a) {
         const Pipe pipe;
         fd_set read;
         FD_ZERO(&read);
         FD_SET(pipe.ends[0], &read);
         auto* const reads = a.put(read);
         auto* const writes = a.put(read);
         auto* const limit = a.put(timeval{1, 0});
         auto* const finer = a.put(timespec{1, 0});
         auto* const mask = a.put(sigset_t{});
         pipe.send();
         a.make([&] { return ::select(pipe.ends[0] + 1, reads, writes, nullptr, limit); });
         a.note(FD_ISSET(pipe.ends[0], reads));
         a.note(FD_ISSET(pipe.ends[0], writes));
         a.make([&] { return ::pselect(pipe.ends[0] + 1, reads, nullptr, nullptr, finer, mask); });
         a.note(FD_ISSET(pipe.ends[0], reads));
       }},
      {"eventfd",
       [](Attempt& a) {
         const Descriptor event(::eventfd(5, 0));
         auto* const value = a.room<eventfd_t>();
         a.make([&] { return ::eventfd_read(event, value); });
         a.note(*value);
       }},
      {"wait",
       [](Attempt& a) {
         auto* const status = a.room<int>();
         auto* const usage = a.room<rusage>();
         auto* const info = a.room<siginfo_t>();
         childThatExits(1);
         a.makeDescriptor([&] { return ::wait(status); });
         a.note(*status);
         const pid_t second = childThatExits(2);
         a.makeDescriptor([&] { return ::waitpid(second, status, 0); });
         a.note(*status);
         childThatExits(3);
         a.makeDescriptor([&] { return ::wait3(status, 0, usage); });
         a.note(*status);
         const pid_t fourth = childThatExits(4);
         a.makeDescriptor([&] { return ::wait4(fourth, status, 0, usage); });
         a.note(*status);
         a.noteTold(usage);
         const pid_t fifth = childThatExits(5);
         a.make([&] { return ::waitid(P_PID, static_cast<id_t>(fifth), info, WEXITED); });
         a.note(info->si_status);
       }},
      {"nanosleep",
       [](Attempt& a) {
         auto* const time = a.put(kSoon);
         auto* const left = a.room<timespec>();
         a.make([&] { return ::nanosleep(time, left); });
         a.make([&] { return ::clock_nanosleep(CLOCK_MONOTONIC, 0, time, left); });
         a.make([&] { return ::thrd_sleep(time, left); });
         auto* const wrong = a.put(timespec{0, -1});
         a.make([&] { return ::nanosleep(wrong, nullptr); });
         a.make([&] { return ::clock_nanosleep(CLOCK_MONOTONIC, 0, wrong, nullptr); });
       }},
      {"sigtimedwait",
       [](Attempt& a) {
         sigset_t one;
         ::sigemptyset(&one);
         ::sigaddset(&one, SIGUSR1);
         auto* const set = a.put(one);
         auto* const info = a.room<siginfo_t>();
         auto* const limit = a.put(timespec{1, 0});
         auto* const signal = a.room<int>();
         a.make([&] { return ::sigprocmask(SIG_BLOCK, set, nullptr); });
         ::raise(SIGUSR1);
         a.make([&] { return ::sigtimedwait(set, info, limit); });
         a.note(info->si_signo);
         ::raise(SIGUSR1);
         a.make([&] { return ::sigwaitinfo(set, info); });
         ::raise(SIGUSR1);
         a.make([&] { return ::sigwait(set, signal); });
         a.note(*signal);
         a.make([&] { return ::sigprocmask(SIG_UNBLOCK, set, nullptr); });
       }},
      {"vmsplice",
       [](Attempt& a) {
         const Pipe pipe;
         auto* const bytes = a.text("some bytes");
         auto* const part = a.put(iovec{bytes, 10});
         a.make([&] { return ::vmsplice(pipe.ends[1], part, 1, 0); });
         const auto arrived = [&] {
           char got[32] = {};
           ::fcntl(pipe.ends[0], F_SETFL, O_NONBLOCK);
           a.note(::read(pipe.ends[0], got, sizeof got));
           a.note(got);
         };
         arrived();
         auto* const whole = a.text("others, of which the pipe has some");
         *part = {whole, 6};
         a.make([&] { return ::vmsplice(pipe.ends[1], part, 1, SPLICE_F_NONBLOCK); });
         auto* const got = a.room<char>(32);
         *part = {got, 32};
         a.make([&] { return ::vmsplice(pipe.ends[0], part, 1, SPLICE_F_NONBLOCK); });
         a.note(got);
       }},
  };
  return all;
}

}  // namespace gmac::testing
