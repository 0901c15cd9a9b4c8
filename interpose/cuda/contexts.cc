// SPDX-License-Identifier: Apache-2.0
//
// Contexts, streams and modules that the application ends while the runtime uses them.
#include <cuda.h>

#include <tuple>
#include <type_traits>

#include "gmac/coherence/work_port.h"
#include "interpose/cuda/arguments.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/host_functions.h"
#include "interpose/cuda/kernel_code.h"
#include "interpose/cuda/managed_objects.h"
#include "interpose/cuda/managed_variables.h"

// cuda.h shows the newest signature under this name; CUDA's runtime asks for the older symbol.
#undef cuDevicePrimaryCtxReset
extern "C" {
CUresult cuDevicePrimaryCtxReset(CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
}

#define GMAC_CUDA_PLAIN_CALLS(X)                                                             \
  X(cuModuleUnload, cuModuleUnload, 0, INT_MAX, Unload)                                      \
  X(cuLibraryUnload, cuLibraryUnload, 12000, INT_MAX, Unload)                                \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, INT_MAX, ReleasePrimary) \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000, INT_MAX, DestroyStream)                       \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000, INT_MAX, DestroyContext)                            \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 11000, ResetDevice)              \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, INT_MAX, ResetDevice)

namespace gmac::interpose {
namespace {

GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

GMAC_CUDA_HELPER(cuCtxPushCurrent, cuCtxPushCurrent_v2)
GMAC_CUDA_HELPER(cuCtxPopCurrent, cuCtxPopCurrent_v2)
GMAC_CUDA_HELPER(cuCtxSynchronize, cuCtxSynchronize)
GMAC_CUDA_HELPER(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState)
GMAC_CUDA_HELPER(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)

CUcontext home() noexcept { return reinterpret_cast<CUcontext>(coherence::work().nativeContext()); }

// Waits for all work of a context. False when that fails or cannot be asked.
bool finish(CUcontext context) noexcept {
  const auto push = realOf<Call_cuCtxPushCurrent_v2>();
  const auto pop = realOf<Call_cuCtxPopCurrent_v2>();
  const auto synchronize = realOf<Call_cuCtxSynchronize>();
  const Reentry inside;
  if (context == nullptr || push == nullptr || pop == nullptr || synchronize == nullptr ||
      push(context) != CUDA_SUCCESS) {
    return false;
  }
  const bool finished = synchronize() == CUDA_SUCCESS;
  CUcontext popped = nullptr;
  (void)pop(&popped);
  return finished;
}

// Objects end with their context, as all CUDA memory does, and the runtime leaves the context.
void endHome() noexcept {
  const bool finished = finish(home());
  if (!finished) dropHostFunctions();
  (void)ManagedObjects::get().removeAll();
  coherence::work().endContext(finished);
}

// A context without objects: they live on.
void endOther(CUcontext context) noexcept {
  if (!coherence::work().knowsOtherContexts()) return;
  (void)finish(context);
  coherence::work().otherContextEnds(reinterpret_cast<std::uintptr_t>(context));
}

// The primary context of a device; NULL: it has none now.
CUcontext primaryContextOf(CUdevice device) noexcept {
  const auto getState = realOf<Call_cuDevicePrimaryCtxGetState>();
  const auto retain = realOf<Call_cuDevicePrimaryCtxRetain>();
  const auto release = realOf<Call_cuDevicePrimaryCtxRelease_v2>();
  const Reentry inside;
  unsigned flags = 0;
  int active = 0;
  CUcontext context = nullptr;
  if (getState == nullptr || retain == nullptr || release == nullptr ||
      getState(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      retain(&context, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  (void)release(device);
  return context;
}

// Kernels end with the module that they were loaded from.
struct Unload {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    forgetKernels();
    forgetCode(args...);
    if constexpr (std::is_same_v<std::tuple<Args...>, std::tuple<CUlibrary>>) {
      forgetVariables(args...);
    }
    return direct(real, args...);
  }
};

struct DestroyStream {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream) {
    const NativeStream number = alreadyKnown(nativeStream(Zero, stream));
    coherence::work().noneRepeats();
    // (Before: from then on other threads may not name it to the driver. Should the driver refuse
    // to destroy it, it is known anew with its next launch.)
    coherence::work().streamDestroyed(number);
    return direct(real, stream);
  }
};

// A primary context cannot be destroyed.
struct DestroyContext {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUcontext context) {
    forgetKernels();
    forgetAllCode();
    if (context != nullptr && context == home() && coherence::work().primaryDevice() < 0) {
      endHome();
    } else if (context != nullptr) {
      endOther(context);
    }
    return direct(real, context);
  }
};

// The last release ends a primary context. The runtime holds its own one.
struct ReleasePrimary {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdevice device) {
    forgetKernels();
    if (device != coherence::work().primaryDevice()) forgetAllCode();
    if (device != coherence::work().primaryDevice() && coherence::work().knowsOtherContexts()) {
      endOther(primaryContextOf(device));
    }
    return direct(real, device);
  }
};

// A context that the application made on that device lives on.
struct ResetDevice {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdevice device) {
    forgetKernels();
    forgetAllCode();
    if (device >= 0 && device == coherence::work().primaryDevice()) {
      endHome();
    } else if (coherence::work().knowsOtherContexts()) {
      endOther(primaryContextOf(device));
    }
    return direct(real, device);
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaContexts, GMAC_CUDA_NONE, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
