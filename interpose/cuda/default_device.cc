// SPDX-License-Identifier: Apache-2.0
//
// The device of a program that chooses none. CUDA's runtime takes the context that is current in a
// thread, if there is one, and else the first device; and it initialises the driver before it
// looks.
#include "gmac/accel/cuda/default_device.h"

#include <cuda.h>

#include <atomic>

#include "gmac/base/log.h"
#include "interpose/cuda/call.h"

#define GMAC_CUDA_PLAIN_CALLS(X) X(cuInit, cuInit, 2000, INT_MAX, Initialise)

namespace gmac::interpose {
namespace {

GMAC_CUDA_HELPER(cuDeviceGetCount, cuDeviceGetCount)
GMAC_CUDA_HELPER(cuCtxGetCurrent, cuCtxGetCurrent)
GMAC_CUDA_HELPER(cuCtxPushCurrent, cuCtxPushCurrent_v2)
GMAC_CUDA_HELPER(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)

// The primary context of the default device becomes the thread's, unless it has one, and unless
// that device is the first: for good, as CUDA's runtime keeps it. Once per process.
void makeCurrent() noexcept {
  static std::atomic<bool> made{false};
  if (!accel::cuda::hasDefaultDevice() || made.exchange(true)) return;
  const auto count = realOf<Call_cuDeviceGetCount>();
  const auto current = realOf<Call_cuCtxGetCurrent>();
  const auto push = realOf<Call_cuCtxPushCurrent_v2>();
  const auto retain = realOf<Call_cuDevicePrimaryCtxRetain>();
  const Reentry inside;
  int visible = 0;
  CUcontext context = nullptr;
  if (count == nullptr || current == nullptr || push == nullptr || retain == nullptr ||
      count(&visible) != CUDA_SUCCESS || visible == 0 || current(&context) != CUDA_SUCCESS ||
      context != nullptr) {
    return;
  }
  const Result<int> device = accel::cuda::defaultDevice(visible);
  if (!device.ok()) {
    // The program may never start the runtime, which would refuse it.
    writeLogLine(lastErrorText());
  } else if (*device != 0 && retain(&context, *device) == CUDA_SUCCESS) {
    (void)push(context);
  }
}

struct Initialise {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, unsigned flags) {
    const CUresult result = direct(real, flags);
    if (result == CUDA_SUCCESS) makeCurrent();
    return result;
  }
};

GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

}  // namespace

GMAC_CUDA_TABLE(cudaDefaultDevice, GMAC_CUDA_NONE, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
