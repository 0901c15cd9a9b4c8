// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_COHERENCE_COMERS_H_
#define GMAC_COHERENCE_COMERS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gmac {

// The threads of the program whose accesses fetched bytes of an object, or of a page of it, lately:
// by their numbers (thread_number.h), of which none is 0. Guarded like the object. Constant time,
// allocates nothing.
class Comers {
 public:
  static constexpr std::size_t kMost = 4;
  static constexpr std::uint64_t kLately = 16;  // of all threads' fetches

  void comes(std::uint64_t thread) {
    const auto last = threads_.end() - 1;
    const auto place =
        std::find_if(threads_.begin(), last, [&](const One& one) { return one.thread == thread; });
    *place = {thread, ++count_};
    std::rotate(threads_.begin(), place, place + 1);
  }
  // 0: nobody has come.
  std::uint64_t newest() const { return threads_.front().thread; }
  bool has(std::uint64_t thread) const {
    return std::any_of(threads_.begin(), threads_.end(), [&](const One& one) {
      return one.thread == thread && count_ - one.newest < kLately;
    });
  }

 private:
  struct One {
    std::uint64_t thread = 0;
    std::uint64_t newest = 0;  // count_ by then
  };
  std::array<One, kMost> threads_{};  // the newest first
  std::uint64_t count_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_COMERS_H_
