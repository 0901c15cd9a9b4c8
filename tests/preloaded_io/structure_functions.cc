// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <mqueue.h>
#include <net/if.h>
#include <netdb.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/preloaded_io/functions.h"

// No header declares it.
extern "C" int capget(cap_user_header_t header, cap_user_data_t data) noexcept;

namespace gmac::testing {

namespace {

sockaddr_un socketAddress(const char* path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  return address;
}

// A socket that listens at "socket".
int listening() {
  const sockaddr_un address = socketAddress("socket");
  const int made = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(made, 4) != 0) {
    std::abort();
  }
  return made;
}
int connected() {
  const sockaddr_un address = socketAddress("socket");
  const int made = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    std::abort();
  }
  return made;
}

}  // namespace

const std::vector<Function>& structureFunctions() {
  static const std::vector<Function> all = {
      {"posix_spawn",
       [](Attempt& a) {
         auto* const actions = a.room<posix_spawn_file_actions_t>();
         a.make([&] { return ::posix_spawn_file_actions_init(actions); });
         a.make([&] { return ::posix_spawn_file_actions_addclose(actions, 99); });
         auto* const attributes = a.room<posix_spawnattr_t>();
         a.make([&] { return ::posix_spawnattr_init(attributes); });
         a.make([&] { return ::posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP); });
         auto* const child = a.room<pid_t>();
         char* const words[] = {a.text("sh"), a.text("-c"), a.text("exit 5"), nullptr};
         auto* const arguments = a.put(words, 4);
         auto* const path = a.text("/bin/sh");
         a.make(
             [&] { return ::posix_spawn(child, path, actions, attributes, arguments, environ); });
         auto* const status = a.room<int>();
         a.make([&] { return ::waitpid(*child, status, 0) == *child; });
         a.note(*status);
         a.make([&] { return ::posix_spawn_file_actions_destroy(actions); });
       }},
      {"clock_gettime",
       [](Attempt& a) {
         auto* const time = a.room<timespec>();
         for (const clockid_t clock : {CLOCK_REALTIME, CLOCK_PROCESS_CPUTIME_ID, CLOCK_TAI}) {
           a.make([&] { return ::clock_gettime(clock, time); });
           a.noteTold(time);
         }
         a.make([&] { return ::clock_getres(CLOCK_THREAD_CPUTIME_ID, time); });
         a.note(time->tv_nsec);
         a.make([&] { return ::clock_settime(CLOCK_MONOTONIC, time); });
         a.make([&] { return ::timespec_get(time, TIME_UTC); });
       }},
      {"gettimeofday",
       [](Attempt& a) {
         auto* const time = a.room<timeval>();
         a.make([&] { return ::gettimeofday(time, nullptr); });
         a.noteTold(time);
         auto* const seconds = a.room<time_t>();
         a.makeDescriptor([&] { return ::time(seconds) > 0 ? 0 : -1; });
         a.noteTold(seconds);
       }},
      {"times",
       [](Attempt& a) {
         auto* const time = a.room<tms>();
         a.makeDescriptor([&] { return ::times(time) == -1 ? -1 : 0; });
         a.noteTold(time);
       }},
      {"setitimer",
       [](Attempt& a) {
         auto* const wanted = a.put(itimerval{{0, 0}, {1000, 0}});
         auto* const none = a.put(itimerval{});
         auto* const before = a.room<itimerval>();
         a.make([&] { return ::setitimer(ITIMER_REAL, wanted, nullptr); });
         a.make([&] { return ::getitimer(ITIMER_REAL, before); });
         a.note(before->it_value.tv_sec >= 999);
         a.make([&] { return ::setitimer(ITIMER_REAL, none, before); });
         a.note(before->it_value.tv_sec >= 999);
       }},
      {"timer_create",
       [](Attempt& a) {
         sigevent quiet = {};
         quiet.sigev_notify = SIGEV_NONE;
         auto* const event = a.put(quiet);
         auto* const timer = a.room<timer_t>();
         auto* const wanted = a.put(itimerspec{{0, 0}, {1000, 0}});
         auto* const before = a.room<itimerspec>();
         a.make([&] { return ::timer_create(CLOCK_MONOTONIC, event, timer); });
         a.make([&] { return ::timer_settime(*timer, 0, wanted, before); });
         a.note(before->it_value.tv_sec);
         a.make([&] { return ::timer_settime(*timer, 0, wanted, before); });
         a.note(before->it_value.tv_sec >= 999);
         a.make([&] { return ::timer_gettime(*timer, before); });
         a.note(before->it_value.tv_sec >= 999);
         a.note(::timer_delete(*timer));
       }},
      {"timerfd_settime",
       [](Attempt& a) {
         const Descriptor timer(::timerfd_create(CLOCK_MONOTONIC, 0));
         auto* const wanted = a.put(itimerspec{{0, 0}, {0, 1000}});
         auto* const before = a.room<itimerspec>();
         auto* const count = a.room<std::uint64_t>();
         a.make([&] { return ::timerfd_settime(timer, 0, wanted, before); });
         a.note(before->it_value.tv_sec);
         a.make([&] { return ::read(timer, count, sizeof *count); });
         a.note(*count);
         a.make([&] { return ::timerfd_gettime(timer, before); });
         a.note(before->it_value.tv_sec);
       }},
      {"adjtimex",
       [](Attempt& a) {
         auto* const state = a.put(timex{});
         a.make([&] { return ::adjtimex(state) >= 0 ? 0 : -1; });
         a.note(state->tick);
         a.make([&] { return ::clock_adjtime(CLOCK_REALTIME, state) >= 0 ? 0 : -1; });
         a.make([&] { return ::ntp_adjtime(state) >= 0 ? 0 : -1; });
       }},
      {"uname",
       [](Attempt& a) {
         auto* const name = a.room<utsname>();
         a.make([&] { return ::uname(name); });
         a.note(name->sysname);
         auto* const host = a.room<char>(100);
         a.make([&] { return ::gethostname(host, 100); });
         a.note(host);
         a.make([&] { return ::getdomainname(host, 100); });
       }},
      {"sysinfo",
       [](Attempt& a) {
         auto* const info = a.room<struct sysinfo>();
         a.make([&] { return ::sysinfo(info); });
         a.note(info->mem_unit);
         auto* const loads = a.room<double>(3);
         a.make([&] { return ::getloadavg(loads, 3); });
       }},
      {"getrlimit",
       [](Attempt& a) {
         auto* const limit = a.room<rlimit>();
         a.make([&] { return ::getrlimit(RLIMIT_CORE, limit); });
         a.make([&] { return ::setrlimit(RLIMIT_CORE, limit); });
         a.note(limit->rlim_max);
         auto* const before = a.room<rlimit>();
         a.make([&] { return ::prlimit(0, RLIMIT_CORE, limit, before); });
         a.note(before->rlim_max);
       }},
      {"getrusage",
       [](Attempt& a) {
         auto* const usage = a.room<rusage>();
         a.make([&] { return ::getrusage(RUSAGE_SELF, usage); });
         a.note(usage->ru_maxrss > 0);
       }},
      {"getgroups",
       [](Attempt& a) {
         auto* const groups = a.room<gid_t>(100);
         const long count = a.make([&] { return ::getgroups(100, groups); });
         a.noteBytes(groups, 100);
         if (::getuid() == 0 && count >= 0) {
           a.make([&] { return ::setgroups(static_cast<std::size_t>(count), groups); });
         }
       }},
      {"getresuid",
       [](Attempt& a) {
         auto* const one = a.room<uid_t>();
         auto* const two = a.room<uid_t>();
         auto* const three = a.room<uid_t>();
         a.make([&] { return ::getresuid(one, two, three); });
         a.note(*one + *two + *three);
         a.make([&] { return ::getresgid(one, two, three); });
         a.note(*one + *two + *three);
       }},
      {"capget",
       [](Attempt& a) {
         auto* const header = a.put(__user_cap_header_struct{_LINUX_CAPABILITY_VERSION_3, 0});
         auto* const data = a.room<__user_cap_data_struct>(2);
         a.make([&] { return ::capget(header, data); });
         a.noteBytes(data, 2);
       }},
      {"getcpu",
       [](Attempt& a) {
         auto* const cpu = a.room<unsigned>();
         auto* const node = a.room<unsigned>();
         a.make([&] { return ::getcpu(cpu, node); });
         a.noteTold(cpu);
       }},
      {"sched",
       [](Attempt& a) {
         auto* const set = a.room<cpu_set_t>();
         auto* const parameter = a.room<sched_param>();
         auto* const interval = a.room<timespec>();
         a.make([&] { return ::sched_getaffinity(0, sizeof *set, set); });
         a.noteBytes(set);
         a.make([&] { return ::sched_setaffinity(0, sizeof *set, set); });
         a.make([&] { return ::sched_getparam(0, parameter); });
         a.make([&] { return ::sched_setparam(0, parameter); });
         a.make([&] { return ::sched_setscheduler(0, SCHED_OTHER, parameter); });
         a.make([&] { return ::sched_rr_get_interval(0, interval); });
       }},
      {"pthread",
       [](Attempt& a) {
         auto* const set = a.room<cpu_set_t>();
         auto* const name = a.text("a name");
         auto* const told = a.room<char>(16);
         auto* const policy = a.room<int>();
         auto* const parameter = a.room<sched_param>();
         const pthread_t self = ::pthread_self();
         a.make([&] { return ::pthread_getaffinity_np(self, sizeof *set, set); });
         a.noteBytes(set);
         a.make([&] { return ::pthread_setaffinity_np(self, sizeof *set, set); });
         a.make([&] { return ::pthread_setname_np(self, name); });
         a.make([&] { return ::pthread_getname_np(self, told, 16); });
         a.note(told);
         a.make([&] { return ::pthread_getschedparam(self, policy, parameter); });
         a.make([&] { return ::pthread_setschedparam(self, *policy, parameter); });
       }},
      {"prctl",
       [](Attempt& a) {
         auto* const name = a.text("another");
         auto* const told = a.room<char>(16);
         auto* const signal = a.room<int>();
         a.make([&] { return ::prctl(PR_SET_NAME, name); });
         a.make([&] { return ::prctl(PR_GET_NAME, told); });
         a.note(told);
         a.make([&] { return ::prctl(PR_GET_PDEATHSIG, signal); });
         a.note(*signal);
       }},
      {"sigaltstack",
       [](Attempt& a) {
         auto* const before = a.room<stack_t>();
         auto* const now = a.room<stack_t>();
         a.make([&] { return ::sigaltstack(nullptr, before); });
         a.make([&] { return ::sigaltstack(before, now); });
         a.note(now->ss_size == before->ss_size);
       }},
      {"sigaction",
       [](Attempt& a) {
         struct sigaction ignoring = {};
         ignoring.sa_handler = SIG_IGN;
         auto* const wanted = a.put(ignoring);
         auto* const before = a.room<struct sigaction>();
         a.make([&] { return ::sigaction(SIGUSR2, wanted, before); });
         a.make([&] { return ::sigaction(SIGUSR2, before, wanted); });
         a.note(wanted->sa_handler == SIG_IGN);
         auto* const mask = a.put(sigset_t{});
         auto* const old = a.room<sigset_t>();
         a.make([&] { return ::sigprocmask(SIG_BLOCK, mask, old); });
         a.make([&] { return ::pthread_sigmask(SIG_BLOCK, mask, old); });
         a.make([&] { return ::sigpending(old); });
         const Descriptor signals(a.makeDescriptor([&] { return ::signalfd(-1, mask, 0); }));
       }},
      {"swapcontext",
       [](Attempt& a) {
         static ucontext_t* back;
         static int reached;
         reached = 0;
         auto* const here = a.room<ucontext_t>();
         auto* const there = a.room<ucontext_t>();
         std::vector<char> stack(64 << 10);
         back = here;
         a.make([&] { return ::getcontext(there); });
         there->uc_stack.ss_sp = stack.data();
         there->uc_stack.ss_size = stack.size();
         there->uc_link = nullptr;
         ::makecontext(
             there,
             +[] {
               ++reached;
               const int error = errno;  // no part of the call
               closeAllBlocks();
               errno = error;
               ::setcontext(back);
               std::abort();
             },
             0);
         a.make([&] { return ::swapcontext(here, there); });
         a.note(reached);
       }},
      {"mincore",
       [](Attempt& a) {
         auto* const states = a.room<unsigned char>(4);
         std::vector<char> own(5 * 4096);
         void* const page = reinterpret_cast<void*>(
             (reinterpret_cast<std::uintptr_t>(own.data()) + 4095) / 4096 * 4096);
         a.make([&] { return ::mincore(page, 4 * 4096, states); });
         a.note(states[0] & 1);
       }},
      {"terminal",
       [](Attempt& a) {
         auto* const master = a.room<int>();
         auto* const other = a.room<int>();
         auto* const size = a.put(winsize{25, 80, 0, 0});
         auto* const settings = a.room<termios>();
         auto* const name = a.room<char>(100);
         auto* const count = a.room<int>();
         a.make([&] { return ::openpty(master, other, nullptr, nullptr, size); });
         std::memset(size, 0, sizeof *size);
         a.make([&] { return ::ioctl(*master, TIOCGWINSZ, size); });
         a.note(size->ws_row);
         a.make([&] { return ::ioctl(*master, TIOCSWINSZ, size); });
         a.make([&] { return ::ioctl(*master, FIONREAD, count); });
         a.note(*count);
         a.make([&] { return ::tcgetattr(*other, settings); });
         a.make([&] { return ::tcsetattr(*other, TCSANOW, settings); });
         a.make([&] { return ::ttyname_r(*other, name, 100); });
         a.note(std::string(name, 8));
         a.make([&] { return ::ptsname_r(*master, name, 100); });
         ::close(*master);
         ::close(*other);
       }},
      {"fcntl",
       [](Attempt& a) {
         makeFile("there");
         const Descriptor file(::open("there", O_RDWR));
         struct flock whole = {};
         whole.l_type = F_WRLCK;
         auto* const lock = a.put(whole);
         auto* const owner = a.room<f_owner_ex>();
         a.make([&] { return ::fcntl(file, F_SETLK, lock); });
         a.make([&] { return ::fcntl(file, F_GETLK, lock); });
         a.note(lock->l_type);
         a.make([&] { return ::fcntl(file, F_OFD_GETLK, lock); });
         a.make([&] { return ::fcntl(file, F_GETOWN_EX, owner); });
       }},
      {"pipe",
       [](Attempt& a) {
         auto* const ends = a.room<int>(2);
         a.make([&] { return ::pipe(ends); });
         a.note(::close(ends[0]) + ::close(ends[1]));
         a.make([&] { return ::pipe2(ends, O_CLOEXEC); });
         a.note(::close(ends[0]) + ::close(ends[1]));
         a.make([&] { return ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends); });
         a.note(::close(ends[0]) + ::close(ends[1]));
       }},
      {"sockets",
       [](Attempt& a) {
         const sockaddr_un path = socketAddress("named");
         auto* const address = a.put(path);
         const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
         const Descriptor other(::socket(AF_UNIX, SOCK_STREAM, 0));
         a.make([&] { return ::bind(socket, reinterpret_cast<sockaddr*>(address), sizeof path); });
         a.note(::listen(socket, 1));
         a.make(
             [&] { return ::connect(other, reinterpret_cast<sockaddr*>(address), sizeof path); });
         auto* const told = a.room<sockaddr_un>();
         auto* const length = a.put(static_cast<socklen_t>(sizeof(sockaddr_un)));
         a.make([&] { return ::getsockname(socket, reinterpret_cast<sockaddr*>(told), length); });
         a.note(told->sun_path);
         a.note(*length);
         *length = 4;
         a.make([&] { return ::getpeername(other, reinterpret_cast<sockaddr*>(told), length); });
         a.note(*length);
         auto* const value = a.put(65536);
         *length = sizeof *value;
         a.make([&] { return ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, value, sizeof *value); });
         a.make([&] { return ::getsockopt(socket, SOL_SOCKET, SO_RCVBUF, value, length); });
         a.note(*value);
       }},
      {"filter",
       [](Attempt& a) {
         const Descriptor socket(::socket(AF_INET, SOCK_DGRAM, 0));
         const sock_filter accepting = {BPF_RET | BPF_K, 0, 0, 0xffff};
         auto* const filter = a.put(accepting);
         const sock_fprog own = {1, filter};
         auto* const program = a.put(own);
         const auto attach = [&](const sock_fprog* given) {
           a.make([&] {
             return ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, given, sizeof *given);
           });
         };
         attach(program);
         attach(&own);
         auto* const told = a.room<sock_filter>();
         auto* const count = a.put(socklen_t{1});
         a.make([&] { return ::getsockopt(socket, SOL_SOCKET, SO_GET_FILTER, told, count); });
         a.noteBytes(told);
       }},
      {"interfaces",
       [](Attempt& a) {
         const Descriptor socket(::socket(AF_INET, SOCK_DGRAM, 0));
         auto* const told = a.room<ifreq>(20);
         ifconf wanted = {};
         wanted.ifc_len = 20 * sizeof(ifreq);
         wanted.ifc_req = told;
         auto* const list = a.put(wanted);
         a.make([&] { return ::ioctl(socket, SIOCGIFCONF, list); });
         a.note(list->ifc_len);
         a.note(static_cast<const char*>(told->ifr_name));
         a.make([&] { return ::ioctl(socket, SIOCGIFCONF, &wanted); });
         a.note(wanted.ifc_len);
       }},
      {"clone",
       [](Attempt& a) {
         auto* const told = a.room<pid_t>();
         std::vector<char> stack(64 << 10);
         pid_t child = 0;
         a.makeDescriptor([&] {
           child = ::clone([](void*) -> int { ::_exit(5); }, stack.data() + stack.size(),
                           CLONE_PARENT_SETTID | SIGCHLD, nullptr, told);
           return child;
         });
         a.note(*told == child);
         int status = 0;
         a.note(::waitpid(child, &status, 0) == child);
         a.note(status);
       }},
      {"accept",
       [](Attempt& a) {
         const Descriptor listener(listening());
         const Descriptor one(connected());
         const Descriptor two(connected());
         auto* const address = a.room<sockaddr_un>();
         auto* const length = a.put(static_cast<socklen_t>(sizeof(sockaddr_un)));
         const Descriptor first(a.makeDescriptor(
             [&] { return ::accept(listener, reinterpret_cast<sockaddr*>(address), length); }));
         a.note(*length);
         a.note(address->sun_family);
         const Descriptor second(a.makeDescriptor(
             [&] { return ::accept4(listener, reinterpret_cast<sockaddr*>(address), length, 0); }));
       }},
      {"messages",
       [](Attempt& a) {
         struct Text {
           long type;
           char bytes[24];
         };
         const int queue = ::msgget(IPC_PRIVATE, 0600);
         auto* const sent = a.put(Text{7, "a message"});
         auto* const got = a.room<Text>();
         auto* const status = a.room<msqid_ds>();
         a.make([&] { return ::msgsnd(queue, sent, sizeof sent->bytes, 0); });
         a.make([&] { return ::msgctl(queue, IPC_STAT, status); });
         a.note(status->msg_qnum);
         a.make([&] { return ::msgrcv(queue, got, sizeof got->bytes, 0, 0); });
         a.note(got->bytes);
         ::msgctl(queue, IPC_RMID, nullptr);
       }},
      {"semaphores",
       [](Attempt& a) {
         const int set = ::semget(IPC_PRIVATE, 2, 0600);
         const sembuf both[] = {{0, 2, 0}, {1, 3, 0}};
         auto* const operations = a.put(both, 2);
         auto* const values = a.room<unsigned short>(2);
         auto* const status = a.room<semid_ds>();
         auto* const limit = a.put(timespec{1, 0});
         a.make([&] { return ::semop(set, operations, 2); });
         a.make([&] { return ::semtimedop(set, operations, 2, limit); });
         a.make([&] { return ::semctl(set, 0, GETALL, values); });
         a.noteBytes(values, 2);
         a.make([&] { return ::semctl(set, 0, IPC_STAT, status); });
         a.note(status->sem_nsems);
         ::semctl(set, 0, IPC_RMID);
       }},
      {"shmctl",
       [](Attempt& a) {
         const int segment = ::shmget(IPC_PRIVATE, 4096, 0600);
         auto* const status = a.room<shmid_ds>();
         a.make([&] { return ::shmctl(segment, IPC_STAT, status); });
         a.note(status->shm_segsz);
         ::shmctl(segment, IPC_RMID, nullptr);
       }},
      {"mq",
       [](Attempt& a) {
         auto* const name = a.text(("/gmac-arguments-" + std::to_string(::getpid())).c_str());
         mq_attr small = {};
         small.mq_maxmsg = 2;
         small.mq_msgsize = 32;
         auto* const attributes = a.put(small);
         const mqd_t queue =
             a.makeDescriptor([&] { return ::mq_open(name, O_RDWR | O_CREAT, 0600, attributes); });
         auto* const message = a.text("a message");
         auto* const got = a.room<char>(32);
         auto* const priority = a.room<unsigned>();
         auto* const limit = a.put(timespec{1, 0});
         auto* const before = a.room<mq_attr>();
         a.make([&] { return ::mq_send(queue, message, 10, 3); });
         a.make([&] { return ::mq_timedsend(queue, message, 10, 4, limit); });
         a.make([&] { return ::mq_receive(queue, got, 32, priority); });
         a.note(*priority);
         a.note(got);
         a.make([&] { return ::mq_timedreceive(queue, got, 32, priority, limit); });
         a.make([&] { return ::mq_timedreceive(queue, got, 32, priority, limit); });
         a.make([&] { return ::mq_getattr(queue, before); });
         a.note(before->mq_msgsize);
         a.make([&] { return ::mq_setattr(queue, attributes, before); });
         ::mq_close(queue);
         a.make([&] { return ::mq_unlink(name); });
       }},
      {"getaddrinfo",
       [](Attempt& a) {
         auto* const host = a.text("127.0.0.1");
         auto* const result = a.room<addrinfo*>();
         if (a.make([&] { return ::getaddrinfo(host, nullptr, nullptr, result); }) == 0) {
           ::freeaddrinfo(*result);
         }
         auto* const interface = a.text("lo");
         a.makeDescriptor([&] { return ::if_nametoindex(interface) > 0 ? 0 : -1; });
       }},
  };
  return all;
}

}  // namespace gmac::testing
