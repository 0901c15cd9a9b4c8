// SPDX-License-Identifier: Apache-2.0
//
// Structures and arrays in shared memory that the kernel fills in or reads at once: times, limits,
// identities, addresses, offsets. These stand in for libc's functions in a program that is linked
// with the library or preloads it. Of a function that changes something and tells what was before,
// the memory is looked at first: a second call would tell the new value.

#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <mqueue.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <csignal>

#include "interpose/base/served_call.h"

extern "C" {

[[noreturn]] void __chk_fail();

int __getgroups_chk(int count, gid_t* groups, size_t room) noexcept;
// No header declares them.
int capget(cap_user_header_t header, cap_user_data_t data) noexcept;
int capset(cap_user_header_t header, const cap_user_data_t data) noexcept;

}  // extern "C"

namespace gmac::interpose {
namespace {

constexpr When kAfterFault = When::kAfterFault;
constexpr When kBefore = When::kBefore;

// The capabilities come in one or two structures, as the version in the header says.
constexpr std::size_t kMostCapabilities = _LINUX_CAPABILITY_U32S_3;

// The length of an option counts bytes, and that of a filter its instructions.
std::size_t optionBytes(int, int level, int option, const void*, const socklen_t* length) noexcept {
  if (length == nullptr || !readable(length, sizeof *length)) return 0;
  const bool filter = level == SOL_SOCKET && option == SO_GET_FILTER;
  return *length * (filter ? sizeof(sock_filter) : 1);
}

}  // namespace

// ---- Time

GMAC_SERVE_CALL(2, kAfterFault, clock_gettime, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, clock_getres, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, clock_settime, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, gettimeofday, Values<0>, Values<1, sizeof(struct timezone)>);
// (libc turns an error of the kernel's into a time.)
GMAC_SERVE_CALL(1, kBefore, times, Values<0>);
GMAC_SERVE_CALL(2, kAfterFault, getitimer, Values<1>);
GMAC_SERVE_CALL(3, kBefore, setitimer, Values<1>, Values<2>);
GMAC_SERVE_CALL(2, kAfterFault, timer_gettime, Values<1>);
GMAC_SERVE_CALL(4, kBefore, timer_settime, Values<2>, Values<3>);
GMAC_SERVE_CALL(2, kAfterFault, timerfd_gettime, Values<1>);
GMAC_SERVE_CALL(4, kBefore, timerfd_settime, Values<2>, Values<3>);
GMAC_SERVE_CALL(1, kBefore, adjtimex, Values<0>);
GMAC_SERVE(1, kBefore, ntp_adjtime, Values<0>);
GMAC_SERVE_CALL(2, kBefore, clock_adjtime, Values<1>);

// ---- The machine and the process

GMAC_SERVE_CALL(1, kAfterFault, uname, Values<0>);
GMAC_SERVE_CALL(1, kAfterFault, sysinfo, Values<0>);
GMAC_SERVE_CALL(2, kAfterFault, sethostname, Array<0, 1>);
GMAC_SERVE_CALL(2, kAfterFault, setdomainname, Array<0, 1>);
GMAC_SERVE(3, kBefore, klogctl, Array<1, 2>);
GMAC_SERVE_CALL(2, kAfterFault, getrlimit, Values<1>);
GMAC_SERVE(2, kAfterFault, getrlimit64, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, setrlimit, Values<1>);
GMAC_SERVE(2, kAfterFault, setrlimit64, Values<1>);
GMAC_SERVE(4, kBefore, prlimit, Values<2>, Values<3>);
GMAC_SERVE_CALL(4, kBefore, prlimit64, Values<2>, Values<3>);
GMAC_SERVE_CALL(2, kAfterFault, getrusage, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, getgroups, Array<1, 0>);
GMAC_SERVE_CALL(2, kAfterFault, setgroups, Array<1, 0>);
GMAC_SERVE_CALL(3, kAfterFault, getresuid, Values<0>, Values<1>, Values<2>);
GMAC_SERVE_CALL(3, kAfterFault, getresgid, Values<0>, Values<1>, Values<2>);
GMAC_SERVE_CALL(2, kAfterFault, capget, Values<0>, Values<1, kMostCapabilities>);
GMAC_SERVE_CALL(2, kAfterFault, capset, Values<0>, Values<1, kMostCapabilities>);
GMAC_SERVE_CALL(2, kAfterFault, getcpu, Values<0>, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, sched_getparam, Values<1>);
GMAC_SERVE_CALL(2, kAfterFault, sched_setparam, Values<1>);
GMAC_SERVE_CALL(3, kAfterFault, sched_setscheduler, Values<2>);
GMAC_SERVE_CALL(2, kAfterFault, sched_rr_get_interval, Values<1>);
GMAC_SERVE_CALL(3, kAfterFault, sched_getaffinity, Bytes<2, 1>);
GMAC_SERVE_CALL(3, kAfterFault, sched_setaffinity, Bytes<2, 1>);
GMAC_SERVE_ERRORS(3, kAfterFault, Errors::kReturned, pthread_getaffinity_np, Bytes<2, 1>);
GMAC_SERVE_ERRORS(3, kAfterFault, Errors::kReturned, pthread_setaffinity_np, Bytes<2, 1>);
GMAC_SERVE_ERRORS(3, kAfterFault, Errors::kReturned, pthread_getname_np, Array<1, 2>);
GMAC_SERVE_ERRORS(2, kAfterFault, Errors::kReturned, pthread_setname_np, Text<1>);
GMAC_SERVE_ERRORS(3, kAfterFault, Errors::kReturned, pthread_setschedparam, Values<2>);

extern "C" GMAC_INTERPOSED int __getgroups_chk(int count, gid_t* groups, size_t room) noexcept {
  if (count >= 0 && static_cast<size_t>(count) * sizeof *groups > room) __chk_fail();
  return getgroups(count, groups);
}

// ---- Queues and shared memory segments

GMAC_SERVE_CALL(3, kAfterFault, msgctl, Values<2>);
GMAC_SERVE_CALL(3, kAfterFault, shmctl, Values<2>);
GMAC_SERVE_CALL(1, kAfterFault, mq_unlink, Text<0>);
GMAC_SERVE(2, kAfterFault, mq_getattr, Values<1>);
GMAC_SERVE(3, kBefore, mq_setattr, Values<1>, Values<2>);

// ---- Descriptors

GMAC_SERVE_CALL(1, kBefore, pipe, Values<0, 2>);
GMAC_SERVE_CALL(2, kBefore, pipe2, Values<0, 2>);
GMAC_SERVE_CALL(4, kBefore, socketpair, Values<3, 2>);
GMAC_SERVE(5, kBefore, openpty, Values<3>, Values<4>);
GMAC_SERVE(4, kBefore, forkpty, Values<2>, Values<3>);
GMAC_SERVE_CALL(3, kAfterFault, bind, Array<1, 2>);
GMAC_SERVE_CALL(3, kAfterFault, connect, Array<1, 2>);
GMAC_SERVE_CALL(3, kAfterFault, getsockname, Sized<1, 2>, Values<2>);
GMAC_SERVE_CALL(3, kAfterFault, getpeername, Sized<1, 2>, Values<2>);
GMAC_SERVE_CALL(5, kBefore, getsockopt, Computed<3, &optionBytes>, Values<4>);
GMAC_SERVE_CALL(5, kAfterFault, setsockopt, Array<3, 4>);
// These move bytes between descriptors; only the offsets that they read and update are in memory.
GMAC_SERVE_CALL(4, kBefore, sendfile, Values<2>);
GMAC_SERVE(4, kBefore, sendfile64, Values<2>);
GMAC_SERVE_CALL(6, kBefore, copy_file_range, Values<1>, Values<3>);
GMAC_SERVE_CALL(6, kBefore, splice, Values<1>, Values<3>);

}  // namespace gmac::interpose
