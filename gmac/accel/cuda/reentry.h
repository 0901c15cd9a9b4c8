// SPDX-License-Identifier: Apache-2.0
//
// Tells the CUDA call hooks that a call comes from the runtime itself.
//
// The `cudart` accelerator works through the application's CUDA runtime, whose driver entries may
// be our hooks. While a thread is inside an accelerator method its driver calls are the runtime's
// own and pass through the hooks untouched.
#ifndef GMAC_ACCEL_CUDA_REENTRY_H_
#define GMAC_ACCEL_CUDA_REENTRY_H_

namespace gmac::accel::cuda {

// Marks the calling thread as inside the runtime while it lives. Nests. Costs one thread-local
// increment; the fault handler may use it: the initial-exec model needs no allocation at first use.
class Reentry {
 public:
  Reentry() noexcept { ++depth(); }
  ~Reentry() { --depth(); }
  Reentry(const Reentry&) = delete;
  Reentry& operator=(const Reentry&) = delete;

  static bool inside() noexcept { return depth() != 0; }

 private:
  static int& depth() noexcept;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_REENTRY_H_
