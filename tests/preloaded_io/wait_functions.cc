// SPDX-License-Identifier: Apache-2.0
#include <aio.h>
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

#include <atomic>
#include <cerrno>
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
      {"aio",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor file(::open("there", O_RDWR));
         auto* const got = a.room<char>(20);
         auto* const sent = a.text("others");
         const auto requestOf = [&](char* bytes, std::size_t length, off_t offset) {
           aiocb request = {};
           request.aio_fildes = file;
           request.aio_buf = bytes;
           request.aio_nbytes = length;
           request.aio_offset = offset;
           request.aio_sigevent.sigev_notify = SIGEV_NONE;
           return request;
         };
         const auto finish = [&](aiocb* request) {
           const aiocb* const list[] = {request};
           while (::aio_error(request) == EINPROGRESS) {
             closeAllBlocks();
             (void)::aio_suspend(list, 1, nullptr);
           }
           a.make([&] { return ::aio_error(request); });
           a.make([&] { return ::aio_return(request); });
         };
         aiocb own = requestOf(got, 20, 0);
         a.make([&] { return ::aio_read(&own); });
         finish(&own);
         a.noteBytes(got, 20);
         auto* const shared = a.put(requestOf(got, 4, 3));
         a.make([&] { return ::aio_read(shared); });
         finish(shared);
         a.noteBytes(got, 20);
         own = requestOf(sent, 6, 1);
         a.make([&] { return ::aio_write(&own); });
         finish(&own);
         a.make([&] { return ::aio_fsync(O_SYNC, shared); });
         finish(shared);
         char now[20] = {};
         a.note(::pread(file, now, sizeof now, 0));
         a.note(now);
         a.make([&] { return ::aio_cancel(file, shared); });
         own = requestOf(got, 5, -1);
         a.make([&] { return ::aio_read(&own); });
         finish(&own);
         own = requestOf(got, 5, 0);
         own.aio_fildes = -1;
         a.make([&] { return ::aio_read(&own); });
         finish(&own);
       }},
      {"aio_notification",
       [](Attempt& a) {
         static std::atomic<int> told;
         told = 0;
         makeFile("there");
         const Descriptor file(::open("there", O_RDONLY));
         auto* const got = a.room<char>(8);
         aiocb wanted = {};
         wanted.aio_fildes = file;
         wanted.aio_buf = got;
         wanted.aio_nbytes = 8;
         wanted.aio_sigevent.sigev_notify = SIGEV_THREAD;
         wanted.aio_sigevent.sigev_value.sival_ptr = got;
         // The bytes are there when it is told.
         wanted.aio_sigevent.sigev_notify_function = [](sigval value) {
           told = *static_cast<char*>(value.sival_ptr);
         };
         auto* const request = a.put(wanted);
         a.make([&] { return ::aio_read(request); });
         while (told == 0) ::usleep(100);
         a.note(told.load());
         a.make([&] { return ::aio_return(request); });
         sigset_t one;
         ::sigemptyset(&one);
         ::sigaddset(&one, SIGUSR1);
         ::sigprocmask(SIG_BLOCK, &one, nullptr);
         wanted.aio_sigevent = {};
         wanted.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
         wanted.aio_sigevent.sigev_signo = SIGUSR1;
         wanted.aio_sigevent.sigev_value.sival_int = 42;
         std::memset(got, 0, 8);
         *request = wanted;
         a.make([&] { return ::aio_read(request); });
         siginfo_t info = {};
         a.note(::sigwaitinfo(&one, &info));
         a.note(info.si_code == SI_ASYNCIO);
         a.note(info.si_value.sival_int);
         a.noteBytes(got, 8);
         a.make([&] { return ::aio_return(request); });
         ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
       }},
      {"lio_listio",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor file(::open("there", O_RDWR));
         auto* const got = a.room<char>(8);
         auto* const sent = a.text("ab");
         aiocb wanted = {};
         wanted.aio_fildes = file;
         wanted.aio_buf = got;
         wanted.aio_nbytes = 8;
         wanted.aio_lio_opcode = LIO_READ;
         wanted.aio_sigevent.sigev_notify = SIGEV_NONE;
         auto* const reads = a.put(wanted);
         aiocb writes = wanted;
         writes.aio_buf = sent;
         writes.aio_nbytes = 2;
         writes.aio_offset = 8;
         writes.aio_lio_opcode = LIO_WRITE;
         aiocb* const both[] = {reads, nullptr, &writes};
         auto* const list = a.put(both, 3);
         a.make([&] { return ::lio_listio(LIO_WAIT, list, 3, nullptr); });
         a.noteBytes(got, 8);
         a.make([&] { return ::aio_return(reads); });
         a.make([&] { return ::aio_return(&writes); });
         auto* const event = a.put(wanted.aio_sigevent);
         a.make([&] { return ::lio_listio(LIO_NOWAIT, list, 3, event); });
         for (aiocb* const request : {reads, &writes}) {
           while (::aio_error(request) == EINPROGRESS) ::usleep(100);
           a.make([&] { return ::aio_return(request); });
         }
         char now[20] = {};
         a.note(::pread(file, now, sizeof now, 0));
         a.note(now);
         a.make([&] { return ::lio_listio(77, list, 3, nullptr); });
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
