// SPDX-License-Identifier: Apache-2.0
//
// CUDA's launches, waits, copies and fills, made coherent. Each hook says which shared bytes the
// call reads and writes on the accelerator, lets the runtime release them, makes the call, and has
// the runtime remember what to wait for.
#include <cuda.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "gmac/coherence/device_memory_port.h"
#include "interpose/cuda/arguments.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/host_functions.h"
#include "interpose/cuda/launch_uses.h"
#include "interpose/cuda/parts.h"

// cuda.h shows the newest signature under this name; the symbol is the older one.
#undef cuGetProcAddress
extern "C" CUresult cuGetProcAddress(const char*, void**, int, cuuint64_t);

#define GMAC_CUDA_STREAM_CALLS(X)                                                          \
  X(cuLaunchKernel, cuLaunchKernel, _ptsz, 0, INT_MAX, KernelLaunch)                       \
  X(cuLaunchKernelEx, cuLaunchKernelEx, _ptsz, 0, INT_MAX, KernelLaunch)                   \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, _ptsz, 0, INT_MAX, KernelLaunch) \
  X(cuGraphLaunch, cuGraphLaunch, _ptsz, 0, INT_MAX, Launch)                               \
  X(cuStreamSynchronize, cuStreamSynchronize, _ptsz, 0, INT_MAX, Wait)                     \
  X(cuStreamQuery, cuStreamQuery, _ptsz, 0, INT_MAX, Question)                             \
  X(cuMemcpy, cuMemcpy, _ptds, 0, INT_MAX, Copy)                                           \
  X(cuMemcpyAsync, cuMemcpyAsync, _ptsz, 0, INT_MAX, Copy)                                 \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, _ptds, 3020, INT_MAX, Copy)                             \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, _ptsz, 3020, INT_MAX, Copy)                   \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, _ptds, 3020, INT_MAX, Copy)                             \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, _ptsz, 3020, INT_MAX, Copy)                   \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, _ptds, 3020, INT_MAX, Copy)                             \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, _ptsz, 3020, INT_MAX, Copy)                   \
  X(cuMemcpyPeer, cuMemcpyPeer, _ptds, 0, INT_MAX, Copy)                                   \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, _ptsz, 0, INT_MAX, Copy)                         \
  X(cuMemcpy2D, cuMemcpy2D_v2, _ptds, 3020, INT_MAX, BlockCopy)                            \
  X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, _ptds, 3020, INT_MAX, BlockCopy)          \
  X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, _ptsz, 3020, INT_MAX, BlockCopy)                  \
  X(cuMemcpy3D, cuMemcpy3D_v2, _ptds, 3020, INT_MAX, BlockCopy)                            \
  X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, _ptsz, 3020, INT_MAX, BlockCopy)                  \
  X(cuMemcpy3DPeer, cuMemcpy3DPeer, _ptds, 0, INT_MAX, BlockCopy)                          \
  X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, _ptsz, 0, INT_MAX, BlockCopy)                \
  X(cuMemsetD8, cuMemsetD8_v2, _ptds, 3020, INT_MAX, Set)                                  \
  X(cuMemsetD16, cuMemsetD16_v2, _ptds, 3020, INT_MAX, Set)                                \
  X(cuMemsetD32, cuMemsetD32_v2, _ptds, 3020, INT_MAX, Set)                                \
  X(cuMemsetD8Async, cuMemsetD8Async, _ptsz, 0, INT_MAX, Set)                              \
  X(cuMemsetD16Async, cuMemsetD16Async, _ptsz, 0, INT_MAX, Set)                            \
  X(cuMemsetD32Async, cuMemsetD32Async, _ptsz, 0, INT_MAX, Set)                            \
  X(cuMemsetD2D8, cuMemsetD2D8_v2, _ptds, 3020, INT_MAX, Set)                              \
  X(cuMemsetD2D16, cuMemsetD2D16_v2, _ptds, 3020, INT_MAX, Set)                            \
  X(cuMemsetD2D32, cuMemsetD2D32_v2, _ptds, 3020, INT_MAX, Set)                            \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async, _ptsz, 0, INT_MAX, Set)                          \
  X(cuMemsetD2D16Async, cuMemsetD2D16Async, _ptsz, 0, INT_MAX, Set)                        \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async, _ptsz, 0, INT_MAX, Set)

#define GMAC_CUDA_PLAIN_CALLS(X)                                      \
  X(cuGetProcAddress, cuGetProcAddress, 0, 12000, FindEntry)          \
  X(cuGetProcAddress, cuGetProcAddress_v2, 12000, INT_MAX, FindEntry) \
  X(cuCtxSynchronize, cuCtxSynchronize, 0, 13000, Wait)               \
  X(cuCtxSynchronize, cuCtxSynchronize_v2, 13000, INT_MAX, Wait)      \
  X(cuEventSynchronize, cuEventSynchronize, 0, INT_MAX, EventWait)    \
  X(cuEventQuery, cuEventQuery, 0, INT_MAX, Question)                 \
  X(cuLaunch, cuLaunch, 0, INT_MAX, Launch)                           \
  X(cuLaunchGrid, cuLaunchGrid, 0, INT_MAX, Launch)                   \
  X(cuLaunchGridAsync, cuLaunchGridAsync, 0, INT_MAX, Launch)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)
// Programs may call deprecated functions.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)
#pragma GCC diagnostic pop

// A graph's kernels may use every object, and so may a kernel whose code does not say less.
struct Launch {
  // Of graphs. These do not repeat: their copies may touch objects while the driver submits them,
  // and whoever waits for that launch with the lock would wait for ever.
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    return anew(nativeStream(Zero, streamAmong(args...)), [&] { return real(args...); });
  }
  // Of a kernel.
  template <ZeroStream Zero, typename Submit>
  static CUresult launch(const LaunchArguments& arguments, CUstream stream, Submit&& submit) {
    const NativeStream native = nativeStream(Zero, stream);
    if (coherence::launchesList() && !coherence::captureUnderWay() && !inForeignContext()) {
      const LaunchUses uses(arguments);
      if (uses.known()) return coherently(native, uses.ranges(), Returns::kAtOnce, submit);
    }
    if (const auto result = repeatedly(native, false, submit)) return *result;
    return anew(native, submit);
  }

 private:
  template <typename Submit>
  static CUresult anew(NativeStream stream, Submit&& submit) {
    Ranges ranges;
    ranges.everything();
    return coherently(stream, ranges.all(), Returns::kAtOnce, submit);
  }
};

// Launches with arguments, which may lie in shared memory themselves.
struct KernelLaunch {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUfunction function, unsigned gridX, unsigned gridY,
                      unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ,
                      unsigned sharedBytes, CUstream stream, void** params, void** extra) {
    const LaunchArguments arguments(function, params, extra);
    if (arguments.result() != CUDA_SUCCESS) return arguments.result();
    arguments.name();
    return Launch::launch<Zero>(arguments, stream, [&] {
      return real(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream,
                  arguments.params(), arguments.extra());
    });
  }

  // Cooperative ones.
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUfunction function, unsigned gridX, unsigned gridY,
                      unsigned gridZ, unsigned blockX, unsigned blockY, unsigned blockZ,
                      unsigned sharedBytes, CUstream stream, void** params) {
    const LaunchArguments arguments(function, params, nullptr);
    if (arguments.result() != CUDA_SUCCESS) return arguments.result();
    arguments.name();
    return Launch::launch<Zero>(arguments, stream, [&] {
      return real(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream,
                  arguments.params());
    });
  }

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, const CUlaunchConfig* config, CUfunction function, void** params,
                      void** extra) {
    const LaunchArguments arguments(function, params, extra);
    const LaunchConfiguration configuration(config);
    if (arguments.result() != CUDA_SUCCESS) return arguments.result();
    if (configuration.result() != CUDA_SUCCESS) return configuration.result();
    arguments.name();
    CUstream const stream = config != nullptr ? configuration.get()->hStream : nullptr;
    return Launch::launch<Zero>(arguments, stream, [&] {
      return real(configuration.get(), function, arguments.params(), arguments.extra());
    });
  }
};

// The application waits for a stream, or for its context.
struct Wait {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    const auto pass = [&] { return passed(real, args...); };
    // No copy may be queued after a function that has yet to run, as it may touch the same bytes.
    if (hostFunctionsPending()) {
      if (const CUresult result = pass(); result != CUDA_SUCCESS) return noteFailure(result);
    }
    if constexpr (kTakesStream<Args...>) {
      return forStream(nativeStream(Zero, streamAmong(args...)), pass);
    } else {
      const auto wait = coherence::work().beforeDeviceWait(
          isElsewhere(args...) ? std::optional(accel::kForeignStream) : std::nullopt);
      return acquire(pass(), wait);
    }
  }

  template <typename Pass>
  static CUresult forStream(NativeStream stream, Pass pass) {
    const auto wait = coherence::work().beforeDeviceWait(alreadyKnown(stream));
    return acquire(pass(), wait);
  }

 private:
  // Whether a wait for that context, or for the thread's own, is none for the runtime's.
  static bool isElsewhere(CUcontext context = nullptr) {
    return context == nullptr
               ? inForeignContext()
               : reinterpret_cast<std::uintptr_t>(context) != coherence::work().nativeContext();
  }
};

// The application waits for an event. (Nobody says where it was recorded.)
struct EventWait {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUevent event) {
    const auto wait =
        coherence::work().beforeDeviceWait(accel::kForeignStream, hostFunctionsPending());
    return acquire(passed(real, event), wait);
  }
};

// Work has finished where this succeeds: to have asked tells the same as to have waited.
struct Question {
  template <ZeroStream Zero, typename Real, typename Handle>
  static CUresult run(Real real, Handle handle) {
    NativeStream stream = accel::kForeignStream;
    if constexpr (kTakesStream<Handle>) stream = alreadyKnown(nativeStream(Zero, handle));
    const auto wait = coherence::work().beforeDeviceWait(stream, true);
    return acquire(passed(real, handle), wait);
  }
};

// Copies of one range. A parameter's type tells on which side the caller expects it.
struct Copy {
  template <ZeroStream Zero, typename Real, typename To, typename From, typename... Rest>
  static CUresult run(Real real, To to, From from, std::size_t bytes, Rest... rest) {
    const End target(to, bytes);
    const End source(from, bytes);
    if (!target.isShared && !source.isShared) {
      // A copy to the CPU returns when its stream has come to it: programs wait by it.
      if constexpr (std::is_pointer_v<To> && !kTakesStream<Rest...>) {
        if (bytes == 0) return passed(real, to, from, bytes, rest...);
        return Wait::forStream(nativeStream(Zero, nullptr),
                               [&] { return passed(real, to, from, bytes, rest...); });
      }
      return direct(real, to, from, bytes, rest...);
    }
    const bool asHost =
        (target.isShared && std::is_pointer_v<To>) || (source.isShared && std::is_pointer_v<From>);
    return submit<Zero>(
        target, source, bytes,
        [&](std::size_t at, std::size_t part) {
          // The CPU's copy of a shared range must not be touched now: use the accelerator's copy.
          if (asHost) return unified<Zero>(target.device + at, source.device + at, part, rest...);
          return real(target.as(to, at), source.as(from, at), part, rest...);
        },
        rest...);
  }

  // cuMemcpyPeer: both sides are device addresses of their contexts.
  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUdeviceptr to, CUcontext toContext, CUdeviceptr from,
                      CUcontext fromContext, std::size_t bytes, Rest... rest) {
    const End target(to, bytes);
    const End source(from, bytes);
    if (!target.isShared && !source.isShared) {
      return direct(real, to, toContext, from, fromContext, bytes, rest...);
    }
    return submit<Zero>(
        target, source, bytes,
        [&](std::size_t at, std::size_t part) {
          return real(target.device + at, toContext, source.device + at, fromContext, part,
                      rest...);
        },
        rest...);
  }

 private:
  // One end of a copy.
  struct End {
    template <typename Address>
    End(Address address, std::size_t bytes)
        : cpu(cpuAddressOf(address)),
          isShared(shared(cpu, bytes)),
          device(isShared ? onDevice(cpu) : (CUdeviceptr)address) {}
    // The form that the driver's function takes.
    CUdeviceptr as(CUdeviceptr, std::size_t offset) const { return device + offset; }
    template <typename Pointer>
    Pointer* as(Pointer* given, std::size_t offset) const {
      return reinterpret_cast<Pointer*>(reinterpret_cast<std::uintptr_t>(given) + offset);
    }
    std::uintptr_t cpu;
    bool isShared;
    CUdeviceptr device;
  };

  template <ZeroStream Zero, typename Submit, typename... Rest>
  static CUresult submit(const End& target, const End& source, std::size_t bytes, Submit&& work,
                         Rest... rest) {
    Ranges ranges;
    ranges.reads(source.cpu, bytes);
    ranges.writes({target.cpu, bytes, false});
    ranges.inParts();
    const NativeStream stream = nativeStream(Zero, streamAmong(rest...));
    const auto inAll = [&] { return inParts(target.cpu, source.cpu, bytes, work); };
    if constexpr (kTakesStream<Rest...>) {
      if (coherence::work().mayRepeat(true) && isDevices(target, source)) {
        if (const auto result = repeatedly(stream, true, inAll)) return *result;
      }
    } else if (!target.isShared && isUnknown(target.device)) {
      return coherently(stream, ranges.all(), Returns::kAfterTheDriver, inAll);
    }
    return coherently(stream, ranges.all(), kReturns<Rest...>, inAll);
  }

  // Whether the program is one for managed memory, and the driver says that it does not know the
  // address: such memory it reaches by the CPU alone.
  static bool isUnknown(CUdeviceptr address) {
    return coherence::deviceMemory().managedMode() && !driverKnows(address);
  }

  // Whether the driver copies without the CPU, and without a wait: memory of a device's is at one
  // end, and such memory, or pinned memory, at the other.
  static bool isDevices(const End& target, const End& source) {
    const unsigned from = memoryType(source.device);
    const unsigned to = from != 0 ? memoryType(target.device) : 0;
    return to != 0 && (from == CU_MEMORYTYPE_DEVICE || to == CU_MEMORYTYPE_DEVICE);
  }

  template <ZeroStream Zero, typename... Rest>
  static CUresult unified(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Rest... rest) {
    using Synchronous =
        std::conditional_t<Zero == ZeroStream::kLegacy, Call_cuMemcpy, Call_cuMemcpy_ptds>;
    using Asynchronous = std::conditional_t<Zero == ZeroStream::kLegacy, Call_cuMemcpyAsync,
                                            Call_cuMemcpyAsync_ptsz>;
    const auto copy =
        realOf<std::conditional_t<kTakesStream<Rest...>, Asynchronous, Synchronous>>();
    return copy == nullptr ? CUDA_ERROR_NOT_FOUND : copy(to, from, bytes, rest...);
  }
};

// Fills of one range or of rows, in parts of whole elements. The driver refuses elements that do
// not lie at multiples of their size.
struct Set {
  template <ZeroStream Zero, typename Real, typename Value, typename... Rest>
  static CUresult run(Real real, CUdeviceptr to, Value value, std::size_t count, Rest... rest) {
    const Extent extent = spanOf(cpuAddressOf(to), count * sizeof value, 1, 1, 0, 0);
    if (!hasSize<Value>(count) || !shared(extent.first, extent.bytes)) {
      return direct(real, to, value, count, rest...);
    }
    return fill<Zero>(
        extent, {.width = extent.bytes}, 0, extent.first % sizeof value == 0,
        [&](CUdeviceptr first, const Box& part) {
          return real(first, value, part.width / sizeof value, rest...);
        },
        rest...);
  }

  template <ZeroStream Zero, typename Real, typename Value, typename... Rest>
  static CUresult run(Real real, CUdeviceptr to, std::size_t pitch, Value value, std::size_t width,
                      std::size_t height, Rest... rest) {
    const Box whole{.width = width * sizeof value, .rows = height};
    const Extent extent = spanOf(cpuAddressOf(to), whole.width, height, 1, pitch, 0);
    if (!hasSize<Value>(width) || !shared(extent.first, extent.bytes)) {
      return direct(real, to, pitch, value, width, height, rest...);
    }
    const bool mayBeSplit = areApart(whole, 0, 0, pitch, 0) && extent.first % sizeof value == 0 &&
                            (height <= 1 || pitch % sizeof value == 0);
    return fill<Zero>(
        extent, whole, pitch, mayBeSplit,
        [&](CUdeviceptr first, const Box& part) {
          return real(first, pitch, value, part.width / sizeof value, part.rows, rest...);
        },
        rest...);
  }

 private:
  // Whether that many elements have a size. The driver refuses more.
  template <typename Value>
  static bool hasSize(std::size_t count) {
    return count <= SIZE_MAX / sizeof(Value);
  }

  template <ZeroStream Zero, typename Submit, typename... Rest>
  static CUresult fill(const Extent& extent, const Box& whole, std::size_t pitch, bool mayBeSplit,
                       Submit&& submit, Rest... rest) {
    Ranges ranges;
    ranges.writes(extent);
    if (mayBeSplit) ranges.inParts();
    const CUdeviceptr first = onDevice(extent.first);
    const Rows rows{extent.first, pitch};
    const NativeStream stream = nativeStream(Zero, streamAmong(rest...));
    const auto inAll = [&]() -> Submitted {
      if (!mayBeSplit) return submit(first, whole);
      return inParts(whole, {&rows, 1}, [&](const Box& part) {
        return submit(first + part.y * pitch + part.x, part);
      });
    };
    if constexpr (kTakesStream<Rest...>) {
      if (coherence::work().mayRepeat(true) && memoryType(first) == CU_MEMORYTYPE_DEVICE) {
        if (const auto result = repeatedly(stream, true, inAll)) return *result;
      }
    }
    return coherently(stream, ranges.all(), kReturns<Rest...>, inAll);
  }
};

// Copies of rows and layers.
struct BlockCopy {
  template <ZeroStream Zero, typename Real, typename Description, typename... Rest>
  static CUresult run(Real real, const Description* description, Rest... rest) {
    if (description == nullptr) return direct(real, description, rest...);
    Description copy = *description;
    const NamedCopy named = nameDevice(copy);
    if (!named.shared()) return direct(real, description, rest...);
    const Ends ends = endsOf(copy, named);
    const bool split = mayBeSplit(copy, ends);
    Ranges ranges;
    ranges.reads(named.from);
    ranges.writes(named.to);
    if (split) ranges.inParts();
    const auto submit = [&](const Description& part) { return real(&part, rest...); };
    return coherently(nativeStream(Zero, streamAmong(rest...)), ranges.all(), kReturns<Rest...>,
                      [&]() -> Submitted {
                        if (!split) return submit(copy);
                        return inParts(boxOf(copy), ends.all(),
                                       [&](const Box& part) { return submit(partOf(copy, part)); });
                      });
  }
};

// Returns hooks for the functions that have one. Always, also from inside the runtime: the
// application's CUDA runtime may fill its table during one of our calls.
struct FindEntry {
  static constexpr bool kAlways = true;

  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, const char* name, void** function, int version, cuuint64_t flags,
                      Rest... rest) {
    const CUresult result = real(name, function, version, flags, rest...);
    if (result != CUDA_SUCCESS || function == nullptr || *function == nullptr) return result;
    if (const HookEntry* entry = hookOfRequest(name, version, flags); entry != nullptr) {
      *function = substitute(*entry, *function);
    }
    return result;
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaCalls, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
