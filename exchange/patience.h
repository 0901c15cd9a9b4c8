// SPDX-License-Identifier: Apache-2.0
//
// When a process that waits for another one asks whether that one still lives, which is a system
// call.
#ifndef GMAC_EXCHANGE_PATIENCE_H_
#define GMAC_EXCHANGE_PATIENCE_H_

#include <chrono>

namespace gmac::exchange::internal {

// Of one wait. Not thread-safe.
class Patience {
 public:
  static constexpr std::chrono::milliseconds kInterval{5};

  // True: it is time to ask.
  bool passed() {
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < kInterval) {
      return false;
    }
    asked_ = now;
    return true;
  }

 private:
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_PATIENCE_H_
