// SPDX-License-Identifier: Apache-2.0
//
// Threads that help with a transfer while it is made.
#ifndef GMAC_INTERPOSE_HELPERS_H_
#define GMAC_INTERPOSE_HELPERS_H_

#include <boost/intrusive/list.hpp>
#include <cstddef>

namespace gmac::interpose {

// Work that several threads do together: run() is called by each of them, returns when there is
// nothing left for the thread, and must not throw.
class SharedWork {
 public:
  virtual void run() = 0;

 protected:
  ~SharedWork() = default;
};

// Offers work to helper threads while it lives. They may come late or not at all (no thread
// can be had, the process ends, a child of fork), so whoever offers the work does it too. The end
// takes the offer back and waits for the helpers that have begun. For the stack of the thread that
// makes the transfer; thread-safe beside others, and never inside the fault handler.
//
// The threads are started when they are first wanted, with all signals blocked, serve the whole
// process, and leave before the exit handlers of what the process used before them.
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
  std::size_t wanted_;
  std::size_t running_ = 0;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_HELPERS_H_
