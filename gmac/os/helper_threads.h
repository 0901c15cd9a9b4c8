// SPDX-License-Identifier: Apache-2.0
//
// The helper threads of a process: they join divisible work of other threads.
#ifndef GMAC_OS_HELPER_THREADS_H_
#define GMAC_OS_HELPER_THREADS_H_

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <functional>

namespace gmac::os {

// Work that several threads do together: each of them calls run(), which returns when there is
// nothing left for the thread, and must not throw.
class SharedWork {
 public:
  virtual void run() = 0;

 protected:
  ~SharedWork() = default;
};

class HelperThreads;

// Offers work to at most `count` helper threads while it lives. They may come late or not at all
// (no thread can be started, or the process ends), so the offering thread does the work too. The
// destructor withdraws the offer and waits for the helpers that have begun. For the stack of one
// thread; threads may make offers at the same time. Not for the fault handler.
//
// The threads are started when they are first wanted, with all signals blocked, and serve the whole
// process. They end before the exit handlers that were registered before them. A child of fork
// starts its own.
class Helpers {
 public:
  Helpers(SharedWork& work, std::size_t count);
  ~Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

 private:
  friend class HelperThreads;
  boost::intrusive::list_member_hook<> hook_;
  SharedWork& work_;
  const std::size_t wanted_;
  std::size_t running_ = 0;
  HelperThreads* threads_ = nullptr;  // that the offer was made to
};

// Calls body(0) to body(parts - 1), each once, on at most `threads` threads including the caller's,
// and returns when all have returned. The caller begins at once; helpers join when they wake.
// `body` must not throw. Thread-safe.
void shareOut(std::size_t threads, std::size_t parts, const std::function<void(std::size_t)>& body);

}  // namespace gmac::os

#endif  // GMAC_OS_HELPER_THREADS_H_
