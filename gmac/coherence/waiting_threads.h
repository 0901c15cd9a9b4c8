// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_COHERENCE_WAITING_THREADS_H_
#define GMAC_COHERENCE_WAITING_THREADS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "gmac/coherence/comers.h"

namespace gmac {

// The threads of the program that waited for device work lately, by their numbers
// (thread_number.h): within the last kLately waits of all threads. What one of them looks at after
// its own waits is no business of another thread's waits: where each has a stream of its own, the
// kernels that it looks at the results of have not ended then. Guarded by the lock of all objects.
// Constant time, allocates nothing.
class WaitingThreads {
 public:
  static constexpr std::size_t kMost = 32;
  static constexpr std::uint64_t kLately = 256;

  void waits(std::uint64_t thread) {
    ++waits_;
    Waiting* place = find(thread);
    if (place == nullptr) {
      place = &*std::min_element(
          threads_.begin(), threads_.end(),
          [](const Waiting& a, const Waiting& b) { return a.newest < b.newest; });
    }
    *place = {thread, waits_, place->thread == thread ? place->newest : waits_};
  }
  // Once in so many waits.
  bool now(std::uint64_t waits) const { return waits_ % waits == 0; }
  // Whether others than a thread wait, too.
  bool others(std::uint64_t thread) const {
    return std::any_of(threads_.begin(), threads_.end(), [&](const Waiting& one) {
      return one.thread != 0 && one.thread != thread && waits_ - one.newest <= kLately;
    });
  }
  // How many of them have waited since the wait before a thread's newest one.
  std::size_t beside(std::uint64_t thread) {
    const Waiting* const own = find(thread);
    const auto count = std::count_if(threads_.begin(), threads_.end(), [&](const Waiting& one) {
      return own != nullptr && one.thread != 0 && one.thread != thread && one.newest > own->before;
    });
    return static_cast<std::size_t>(count);
  }
  // Whether the end of a thread's wait may be what `user`, the thread that came for an object last
  // (0: none has), waits for.
  bool concerns(std::uint64_t thread, std::uint64_t user) {
    const Waiting* const waiting = user == 0 || user == thread ? nullptr : find(user);
    return waiting == nullptr || waits_ - waiting->newest > kLately;
  }
  // The same where several threads come for the object.
  bool concerns(std::uint64_t thread, const Comers& comers) {
    return comers.has(thread) || concerns(thread, comers.newest());
  }

 private:
  struct Waiting {
    std::uint64_t thread = 0;
    std::uint64_t newest = 0;  // waits_ by its newest wait
    std::uint64_t before = 0;  // and by the one before, if there was one
  };
  Waiting* find(std::uint64_t thread) {
    const auto found = std::find_if(threads_.begin(), threads_.end(),
                                    [&](const Waiting& one) { return one.thread == thread; });
    return found == threads_.end() ? nullptr : &*found;
  }

  std::array<Waiting, kMost> threads_{};
  std::uint64_t waits_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_WAITING_THREADS_H_
