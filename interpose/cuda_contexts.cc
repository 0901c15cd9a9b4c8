// SPDX-License-Identifier: Apache-2.0
//
// Contexts and streams that the application ends while the runtime uses them.
#if GMAC_HAVE_CUDA

#include <cuda.h>

#include "gmac/adsm.h"
#include "interpose/cuda_call.h"
#include "interpose/managed_objects.h"

#define GMAC_CUDA_PLAIN_CALLS(X)                                       \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000, INT_MAX, DestroyStream) \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000, INT_MAX, DestroyContext)      \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, INT_MAX, ResetContext)

namespace gmac::interpose {
namespace {

GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

GMAC_CUDA_HELPER(cuCtxGetCurrent, cuCtxGetCurrent)
GMAC_CUDA_HELPER(cuCtxGetDevice, cuCtxGetDevice)
GMAC_CUDA_HELPER(cuCtxPushCurrent, cuCtxPushCurrent_v2)
GMAC_CUDA_HELPER(cuCtxPopCurrent, cuCtxPopCurrent_v2)
GMAC_CUDA_HELPER(cuCtxSynchronize, cuCtxSynchronize)

CUcontext home() noexcept { return reinterpret_cast<CUcontext>(coherence::nativeContext()); }

// What ends with a context: its managed memory, when its work is done. The runtime's own streams
// and pinned pages stay, so the context does.
CUresult endHome() noexcept {
  const auto push = realOf<Call_cuCtxPushCurrent_v2>();
  const auto pop = realOf<Call_cuCtxPopCurrent_v2>();
  const auto synchronize = realOf<Call_cuCtxSynchronize>();
  if (push == nullptr || pop == nullptr || synchronize == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Reentry inside;
  if (const CUresult result = push(home()); result != CUDA_SUCCESS) return result;
  const CUresult result = synchronize();
  CUcontext popped = nullptr;
  (void)pop(&popped);
  for (const ManagedObject& object : ManagedObjects::get().removeAll())
    (void)adsmFree(reinterpret_cast<void*>(object.address));
  return result;
}

struct DestroyStream {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream) {
    const CUresult result = direct(real, stream);
    if (result == CUDA_SUCCESS) coherence::streamDestroyed(nativeStream(Zero, stream));
    return result;
  }
};

struct DestroyContext {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUcontext context) {
    if (context == nullptr || context != home()) return direct(real, context);
    const CUresult result = endHome();
    CUcontext current = nullptr;
    const auto getCurrent = realOf<Call_cuCtxGetCurrent>();
    if (getCurrent != nullptr && getCurrent(&current) == CUDA_SUCCESS && current == context) {
      CUcontext popped = nullptr;
      (void)realOf<Call_cuCtxPopCurrent_v2>()(&popped);
    }
    return result;
  }
};

struct ResetContext {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdevice device) {
    return isHome(device) ? endHome() : direct(real, device);
  }

 private:
  static bool isHome(CUdevice device) noexcept {
    const auto push = realOf<Call_cuCtxPushCurrent_v2>();
    const auto pop = realOf<Call_cuCtxPopCurrent_v2>();
    const auto getDevice = realOf<Call_cuCtxGetDevice>();
    if (home() == nullptr || push == nullptr || pop == nullptr || getDevice == nullptr ||
        push(home()) != CUDA_SUCCESS) {
      return false;
    }
    CUdevice homeDevice = -1;
    (void)getDevice(&homeDevice);
    CUcontext popped = nullptr;
    (void)pop(&popped);
    return homeDevice == device;
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaContexts, GMAC_CUDA_NONE, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose

#endif  // GMAC_HAVE_CUDA
