// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_THREAD_NUMBER_H_
#define GMAC_BASE_THREAD_NUMBER_H_

#include <atomic>
#include <cstdint>

namespace gmac {

// The calling thread's number, from 1 on, which no other thread gets. (A std::thread::id is used
// again.) Async-signal-safe.
inline std::uint64_t threadNumber() noexcept {
  static constinit std::atomic<std::uint64_t> newest{0};
  constinit static thread_local std::uint64_t number __attribute__((tls_model("initial-exec"))) = 0;
  if (number == 0) {
    number = ++newest;
  }
  return number;
}

}  // namespace gmac

#endif  // GMAC_BASE_THREAD_NUMBER_H_
