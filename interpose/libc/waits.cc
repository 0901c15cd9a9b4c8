// SPDX-License-Identifier: Apache-2.0
//
// Waits whose arguments are in shared memory: for descriptors, connections, children, messages,
// semaphores and time. These stand in for libc's functions in a program that is linked with the
// library or preloads it. Private memory waits in the place of shared memory, so that no launch
// waits for them, and no event is lost. (Waits that have a signal mask: process/signals.cc.)

#undef _FORTIFY_SOURCE

#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>

#include "interpose/base/served_call.h"

extern "C" [[noreturn]] void __chk_fail();
extern "C" int __poll_chk(pollfd* descriptors, nfds_t count, int timeout, size_t room);

namespace gmac::interpose {
namespace {

constexpr When kAfterFault = When::kAfterFault;
constexpr When kBefore = When::kBefore;

// A message is a number and its bytes.
template <typename Rule>
struct Message {
  static constexpr std::size_t kParameter = Rule::kParameter;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    const std::size_t text = Rule::bytes(given);
    return text <= SSIZE_MAX - sizeof(long) ? text + sizeof(long) : 0;
  }
};

}  // namespace

// ---- Descriptors

GMAC_SERVE_CALL(3, kBefore, poll, Array<0, 1>);
GMAC_SERVE_CALL(5, kBefore, select, Descriptors<1, 0>, Descriptors<2, 0>, Descriptors<3, 0>,
                Values<4>);
GMAC_SERVE_CALL(4, kBefore, epoll_wait, Array<1, 2>);
GMAC_SERVE_CALL(4, kAfterFault, epoll_ctl, Values<3>);
GMAC_SERVE_CALL(3, kBefore, accept, Sized<1, 2>, Values<2>);
GMAC_SERVE_CALL(4, kBefore, accept4, Sized<1, 2>, Values<2>);
GMAC_SERVE(2, kBefore, eventfd_read, Values<1>);

extern "C" GMAC_INTERPOSED int __poll_chk(pollfd* descriptors, nfds_t count, int timeout,
                                          size_t room) {
  if (room / sizeof(pollfd) < count) __chk_fail();
  return poll(descriptors, count, timeout);
}

// ---- Children

GMAC_SERVE(1, kBefore, wait, Values<0>);
GMAC_SERVE(3, kBefore, waitpid, Values<1>);
GMAC_SERVE(3, kBefore, wait3, Values<0>, Values<2>);
GMAC_SERVE_CALL(4, kBefore, wait4, Values<1>, Values<3>);
GMAC_SERVE(4, kBefore, waitid, Values<2>);  // the system call has one argument more

// ---- Time

GMAC_SERVE_CALL(2, kBefore, nanosleep, Values<0>, Values<1>);
GMAC_SERVE_ERRORS(4, kBefore, Errors::kReturned, clock_nanosleep, Values<2>, Values<3>);
GMAC_SERVE_NUMBER(kBefore, clock_nanosleep, Values<2>, Values<3>);
GMAC_SERVE(2, kBefore, thrd_sleep, Values<0>, Values<1>);

// ---- Messages and semaphores

GMAC_SERVE_CALL(4, kBefore, msgsnd, Message<Array<1, 2>>);
GMAC_SERVE_CALL(5, kBefore, msgrcv, Message<Array<1, 2>>);
GMAC_SERVE_CALL(3, kBefore, semop, Array<1, 2>);
GMAC_SERVE_CALL(4, kBefore, semtimedop, Array<1, 2>, Values<3>);
GMAC_SERVE(4, kBefore, mq_send, Array<1, 2>);
GMAC_SERVE_CALL(5, kBefore, mq_timedsend, Array<1, 2>, Values<4>);
GMAC_SERVE(4, kBefore, mq_receive, Array<1, 2>, Values<3>);
GMAC_SERVE_CALL(5, kBefore, mq_timedreceive, Array<1, 2>, Values<3>, Values<4>);

}  // namespace gmac::interpose
