// SPDX-License-Identifier: Apache-2.0
//
// Calls that write results to addresses that the application gives. The addresses may be shared,
// such as a pointer inside a managed structure. They are held open, because the driver may hold its
// own locks when it writes and must not fault on a closed page.
#include <cuda.h>

#include <optional>
#include <tuple>
#include <type_traits>

#include "gmac/accel/cuda/deferred_frees.h"
#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/cuda/call.h"

// cuda.h shows the newest signature under this name; the symbol is the older one.
#undef cuEventElapsedTime
extern "C" CUresult cuEventElapsedTime(float*, CUevent, CUevent);

#define GMAC_CUDA_STREAM_CALLS(X)                                    \
  X(cuMemAllocAsync, cuMemAllocAsync, _ptsz, 0, INT_MAX, Allocation) \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, _ptsz, 0, INT_MAX, Allocation)

#define GMAC_CUDA_PLAIN_CALLS(X)                                                    \
  X(cuMemAlloc, cuMemAlloc_v2, 3020, INT_MAX, Allocation)                           \
  X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, INT_MAX, Allocation)                 \
  X(cuMemHostAlloc, cuMemHostAlloc, 0, INT_MAX, Output)                             \
  X(cuMemAllocHost, cuMemAllocHost_v2, 3020, INT_MAX, Output)                       \
  X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, INT_MAX, Output) \
  X(cuMemGetInfo, cuMemGetInfo_v2, 3020, INT_MAX, FreeMemory)                       \
  X(cuArrayCreate, cuArrayCreate_v2, 3020, INT_MAX, Allocation)                     \
  X(cuArray3DCreate, cuArray3DCreate_v2, 3020, INT_MAX, Allocation)                 \
  X(cuTexObjectCreate, cuTexObjectCreate, 0, INT_MAX, Output)                       \
  X(cuSurfObjectCreate, cuSurfObjectCreate, 0, INT_MAX, Output)                     \
  X(cuStreamCreate, cuStreamCreate, 0, INT_MAX, Output)                             \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 0, INT_MAX, Output)     \
  X(cuEventCreate, cuEventCreate, 0, INT_MAX, Output)                               \
  X(cuEventElapsedTime, cuEventElapsedTime, 0, 12080, ElapsedTime)                  \
  X(cuEventElapsedTime, cuEventElapsedTime_v2, 12080, INT_MAX, ElapsedTime)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

struct Output {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    std::tuple<Held<Args>...> held(args...);
    Status status;
    std::apply([&](const auto&... one) { ((status = one.ok(status)), ...); }, held);
    if (!status.ok()) return resultOf(status);
    return direct(real, args...);
  }

 private:
  // An argument that receives no result.
  template <typename Argument>
  struct Held {
    explicit Held(Argument) {}
    Status ok(Status others) const { return others; }
  };

  // The place of a result, or of a description that is read.
  template <typename Value>
  requires requires { sizeof(Value); }
  struct Held<Value*> {
    explicit Held(Value* answer) {
      const auto* const address = static_cast<const void*>(answer);
      if (answer != nullptr && shared(cpuAddressOf(address), sizeof *answer))
        hold.emplace(address, sizeof *answer, !std::is_const_v<Value>);
    }
    Status ok(Status others) const {
      return others.ok() && hold.has_value() ? hold->status() : others;
    }
    std::optional<coherence::CpuHold> hold;
  };
};

// Allocates device memory beside shared objects. Before it fails for want of memory, the runtime
// gives back the memory that it keeps of freed objects, and moves objects to the CPU's memory, as
// CUDA does with managed memory. Such memory is kept also when no object lives.
struct Allocation {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    for (;;) {
      const CUresult result = Output::run<Zero>(real, args...);
      if (result != CUDA_ERROR_OUT_OF_MEMORY ||
          !(coherence::deviceMemory().makeRoom() || accel::cuda::waitForDeferred())) {
        return result;
      }
    }
  }
};

// The kept memory counts as free.
struct FreeMemory {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, std::size_t* available, std::size_t* total) {
    const CUresult result = Output::run<Zero>(real, available, total);
    if (result == CUDA_SUCCESS && available != nullptr && !inForeignContext()) {
      *available += coherence::deviceMemory().keptBytes();
    }
    return result;
  }
};

// A result tells that both events have come. Who times each kernel has waited for it already.
struct ElapsedTime {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    const CUresult result = Output::run<Zero>(real, args...);
    return coherence::work().fetchesAtWaits() ? acquire(result) : noteFailure(result);
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaOutputs, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
