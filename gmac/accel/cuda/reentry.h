// SPDX-License-Identifier: Apache-2.0
//
// Tells the CUDA call hooks that a call comes from the runtime itself.
//
// The `cudart` accelerator works through the application's CUDA runtime, whose driver entries may
// be our hooks. While a thread is inside an accelerator method its driver calls are the runtime's
// own and pass through the hooks untouched. So do the driver's changes of mappings meanwhile.
#ifndef GMAC_ACCEL_CUDA_REENTRY_H_
#define GMAC_ACCEL_CUDA_REENTRY_H_

#include "gmac/base/own_mappings.h"

namespace gmac::accel::cuda {

namespace internal {
// The initial-exec model needs no allocation at first use; constinit, and no call.
extern __attribute__((tls_model("initial-exec"))) thread_local constinit int insideDepth;
}  // namespace internal

// Marks the calling thread as inside the runtime while it lives. Nests. Costs two thread-local
// increments; the fault handler may use it.
class Reentry {
 public:
  Reentry() noexcept { ++internal::insideDepth; }
  ~Reentry() { --internal::insideDepth; }
  Reentry(const Reentry&) = delete;
  Reentry& operator=(const Reentry&) = delete;

  static bool inside() noexcept { return internal::insideDepth != 0; }

 private:
  const own_mappings::Change mappings_;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_REENTRY_H_
