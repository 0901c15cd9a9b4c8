// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_MPI_SPINNING_H_
#define GMAC_MPI_SPINNING_H_

#include <sched.h>

#include <chrono>
#include <cstdint>

namespace gmac::mpi {

// Between two polls of something that another process is to do: nothing for as long as that takes
// if it has a core, then lets other threads have this one. (On a busy machine who gets it keeps it
// for milliseconds, where a message takes microseconds. Where processes have no core of their own,
// each wait costs at most that time.) A local variable of one thread.
class Spinning {
 public:
  // `bytes`: how many the other process copies meanwhile.
  explicit Spinning(std::int64_t bytes = 0) : bytes_(bytes) {}
  void turn() {
    const auto now = std::chrono::steady_clock::now();
    if (until_ == std::chrono::steady_clock::time_point()) {
      until_ = now + kAtLeast + std::chrono::microseconds(bytes_ / kBytesPerMicrosecond);
    }
    if (now >= until_) ::sched_yield();
  }

 private:
  static constexpr std::chrono::microseconds kAtLeast{20};
  static constexpr std::int64_t kBytesPerMicrosecond = 8000;

  const std::int64_t bytes_;
  std::chrono::steady_clock::time_point until_{};
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_SPINNING_H_
