// SPDX-License-Identifier: Apache-2.0
//
// Contexts, streams and modules that the application ends while the runtime uses them.
#include <cuda.h>

#include "gmac/coherence/port.h"
#include "interpose/cuda/arguments.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/managed_objects.h"

// cuda.h shows the newest signature under this name; CUDA's runtime asks for the older symbol.
#undef cuDevicePrimaryCtxReset
extern "C" {
CUresult cuDevicePrimaryCtxReset(CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
}

#define GMAC_CUDA_PLAIN_CALLS(X)                                                     \
  X(cuModuleUnload, cuModuleUnload, 0, INT_MAX, Unload)                              \
  X(cuLibraryUnload, cuLibraryUnload, 12000, INT_MAX, Unload)                        \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, INT_MAX, Unload) \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000, INT_MAX, DestroyStream)               \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000, INT_MAX, DestroyContext)                    \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 11000, ResetDevice)      \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, INT_MAX, ResetDevice)

namespace gmac::interpose {
namespace {

GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

GMAC_CUDA_HELPER(cuCtxPushCurrent, cuCtxPushCurrent_v2)
GMAC_CUDA_HELPER(cuCtxPopCurrent, cuCtxPopCurrent_v2)
GMAC_CUDA_HELPER(cuCtxSynchronize, cuCtxSynchronize)

CUcontext home() noexcept { return reinterpret_cast<CUcontext>(coherence::port().nativeContext()); }

// Waits for all work of the objects' context. False when that fails or cannot be asked.
bool finishHome() noexcept {
  const auto push = realOf<Call_cuCtxPushCurrent_v2>();
  const auto pop = realOf<Call_cuCtxPopCurrent_v2>();
  const auto synchronize = realOf<Call_cuCtxSynchronize>();
  const Reentry inside;
  if (home() == nullptr || push == nullptr || pop == nullptr || synchronize == nullptr ||
      push(home()) != CUDA_SUCCESS) {
    return false;
  }
  const bool finished = synchronize() == CUDA_SUCCESS;
  CUcontext popped = nullptr;
  (void)pop(&popped);
  return finished;
}

// Objects end with their context, as all CUDA memory does, and the runtime leaves the context.
void endHome() noexcept {
  const bool finished = finishHome();
  (void)ManagedObjects::get().removeAll();
  coherence::port().endContext(finished);
}

// Kernels end with the module that they were loaded from.
struct Unload {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    forgetKernels();
    return direct(real, args...);
  }
};

struct DestroyStream {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream) {
    const CUresult result = direct(real, stream);
    if (result == CUDA_SUCCESS) coherence::port().streamDestroyed(nativeStream(Zero, stream));
    return result;
  }
};

// A primary context cannot be destroyed.
struct DestroyContext {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUcontext context) {
    forgetKernels();
    if (context != nullptr && context == home() && coherence::port().primaryDevice() < 0) endHome();
    return direct(real, context);
  }
};

// A context that the application made on that device lives on.
struct ResetDevice {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdevice device) {
    forgetKernels();
    if (device >= 0 && device == coherence::port().primaryDevice()) endHome();
    return direct(real, device);
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaContexts, GMAC_CUDA_NONE, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
