// SPDX-License-Identifier: Apache-2.0
//
// timer_create() and mq_notify() with a function for a thread of its own (SIGEV_THREAD): these
// stand in for libc's functions in a program that is linked with the library or preloads it. libc
// makes such threads by calls of its own that nobody sees, those of timers with every signal
// blocked, and the kernel ends a process that faults while SIGSEGV is blocked. So the program's
// function runs after one that changes the mask to the form that threads of this process have
// (gmac/os/signal_mask.h).
#include <mqueue.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <new>

#include "interpose/base/served_call.h"

namespace gmac::interpose {
namespace {

// What such a thread does for the program. It may begin when its timer has been deleted already, so
// this is never freed: events with the same function and value share it. At worst a program keeps
// 24 bytes for each value that it has ever given to an event.
struct Notification {
  void (*function)(sigval);
  sigval value;
  const Notification* next;
};

// By a hash of the value, the newest first. Without a lock, which a child of fork might find taken.
constinit std::array<std::atomic<const Notification*>, 256> notifications{};

// NULL: no memory.
const Notification* notificationOf(const sigevent& event) noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(event.sigev_value.sival_ptr);
  auto& newest = notifications[(bits ^ bits >> 4 ^ bits >> 12) % notifications.size()];
  Notification* made = nullptr;
  const Notification* first = newest.load(std::memory_order_acquire);
  for (;;) {
    for (const Notification* one = first; one != nullptr; one = one->next) {
      if (one->function == event.sigev_notify_function &&
          one->value.sival_ptr == event.sigev_value.sival_ptr) {
        delete made;
        return one;
      }
    }
    if (made == nullptr) {
      made =
          new (std::nothrow) Notification{event.sigev_notify_function, event.sigev_value, nullptr};
      if (made == nullptr) return nullptr;
    }
    made->next = first;
    if (newest.compare_exchange_weak(first, made, std::memory_order_acq_rel)) return made;
  }
}

void runNotification(sigval value) {
  const auto& notification = *static_cast<const Notification*>(value.sival_ptr);
  // As the program sees it, it stays the same.
  sigset_t mask;
  (void)::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  (void)::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  notification.function(notification.value);
}

// The event to give to libc in place of the program's: `own`, where that one has a function. NULL
// and errno: no memory.
const sigevent* openFor(const sigevent& event, sigevent& own) noexcept {
  if (event.sigev_notify != SIGEV_THREAD) return &event;
  const Notification* const notification = notificationOf(event);
  if (notification == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  own = event;
  own.sigev_notify_function = &runNotification;
  own.sigev_value.sival_ptr = const_cast<Notification*>(notification);
  return &own;
}

int createTimer(clockid_t clock, sigevent* event, timer_t* timer) noexcept {
  return serveFunction<"timer_create", decltype(::timer_create), When::kBefore, Errors::kErrno,
                       Values<1>, Values<2>>(clock, event, timer);
}

int notifyOf(mqd_t queue, const sigevent* event) noexcept {
  return serveFunction<"mq_notify", decltype(::mq_notify), When::kAfterFault, Errors::kErrno,
                       Values<1>>(queue, event);
}

}  // namespace

GMAC_SERVE_NUMBER(When::kBefore, timer_create, Values<1>, Values<2>);
GMAC_SERVE_NUMBER(When::kAfterFault, mq_notify, Values<1>);

}  // namespace gmac::interpose

namespace notifications = gmac::interpose;

extern "C" {

GMAC_INTERPOSED int timer_create(clockid_t clock, sigevent* event, timer_t* timer) noexcept {
  if (event == nullptr) return notifications::createTimer(clock, event, timer);
  sigevent own;
  const sigevent* const given = notifications::openFor(*event, own);
  return given == nullptr ? -1
                          : notifications::createTimer(clock, const_cast<sigevent*>(given), timer);
}

GMAC_INTERPOSED int mq_notify(mqd_t queue, const sigevent* event) noexcept {
  if (event == nullptr) return notifications::notifyOf(queue, event);
  sigevent own;
  const sigevent* const given = notifications::openFor(*event, own);
  return given == nullptr ? -1 : notifications::notifyOf(queue, given);
}

}  // extern "C"
