// SPDX-License-Identifier: Apache-2.0
//
// CUDA's launches, waits, copies and sets, made coherent. Each hook says which shared bytes the
// call reads and writes on the accelerator, lets the runtime release them, makes the call, and has
// the runtime remember what to wait for.
//
// A hook is a body, written once per shape of function, and a line in the tables below. A call from
// inside the runtime, and every call while nothing is shared, goes straight to the driver.
#if GMAC_HAVE_CUDA

#include <cuda.h>
#include <cudaTypedefs.h>

#include <array>
#include <climits>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/real_dlsym.h"
#include "gmac/accel/cuda/reentry.h"
#include "gmac/adsm.h"
#include "gmac/coherence.h"
#include "gmac/status.h"
#include "interpose/cuda_extent.h"
#include "interpose/cuda_hooks.h"

// cuda.h shows the newest signature under these names; the symbols are the older ones.
#undef cuGetProcAddress
#undef cuMemcpyBatchAsync
#undef cuMemcpy3DBatchAsync
extern "C" {
CUresult cuGetProcAddress(const char*, void**, int, cuuint64_t);
CUresult cuMemcpyBatchAsync(CUdeviceptr*, CUdeviceptr*, size_t*, size_t, CUmemcpyAttributes*,
                            size_t*, size_t, size_t*, CUstream);
CUresult cuMemcpy3DBatchAsync(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*, unsigned long long,
                              CUstream);
}

// Functions that work on a stream, or on stream 0, and so exist once for the legacy stream 0 and
// once for the thread's own: X(name, symbol, suffix of the thread's variant, first version, version
// after the last, body).
#define GMAC_CUDA_STREAM_CALLS(X)                                                      \
  X(cuLaunchKernel, cuLaunchKernel, _ptsz, 0, INT_MAX, Launch)                         \
  X(cuLaunchKernelEx, cuLaunchKernelEx, _ptsz, 0, INT_MAX, Launch)                     \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, _ptsz, 0, INT_MAX, Launch)   \
  X(cuGraphLaunch, cuGraphLaunch, _ptsz, 0, INT_MAX, Launch)                           \
  X(cuStreamSynchronize, cuStreamSynchronize, _ptsz, 0, INT_MAX, Wait)                 \
  X(cuStreamQuery, cuStreamQuery, _ptsz, 0, INT_MAX, Wait)                             \
  X(cuMemcpy, cuMemcpy, _ptds, 0, INT_MAX, Copy)                                       \
  X(cuMemcpyAsync, cuMemcpyAsync, _ptsz, 0, INT_MAX, Copy)                             \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, _ptds, 3020, INT_MAX, Copy)                         \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, _ptsz, 3020, INT_MAX, Copy)               \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, _ptds, 3020, INT_MAX, Copy)                         \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, _ptsz, 3020, INT_MAX, Copy)               \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, _ptds, 3020, INT_MAX, Copy)                         \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, _ptsz, 3020, INT_MAX, Copy)               \
  X(cuMemcpyPeer, cuMemcpyPeer, _ptds, 0, INT_MAX, Copy)                               \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, _ptsz, 0, INT_MAX, Copy)                     \
  X(cuMemcpy2D, cuMemcpy2D_v2, _ptds, 3020, INT_MAX, BlockCopy)                        \
  X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, _ptds, 3020, INT_MAX, BlockCopy)      \
  X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, _ptsz, 3020, INT_MAX, BlockCopy)              \
  X(cuMemcpy3D, cuMemcpy3D_v2, _ptds, 3020, INT_MAX, BlockCopy)                        \
  X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, _ptsz, 3020, INT_MAX, BlockCopy)              \
  X(cuMemcpy3DPeer, cuMemcpy3DPeer, _ptds, 0, INT_MAX, BlockCopy)                      \
  X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, _ptsz, 0, INT_MAX, BlockCopy)            \
  X(cuMemsetD8, cuMemsetD8_v2, _ptds, 3020, INT_MAX, Set)                              \
  X(cuMemsetD16, cuMemsetD16_v2, _ptds, 3020, INT_MAX, Set)                            \
  X(cuMemsetD32, cuMemsetD32_v2, _ptds, 3020, INT_MAX, Set)                            \
  X(cuMemsetD8Async, cuMemsetD8Async, _ptsz, 0, INT_MAX, Set)                          \
  X(cuMemsetD16Async, cuMemsetD16Async, _ptsz, 0, INT_MAX, Set)                        \
  X(cuMemsetD32Async, cuMemsetD32Async, _ptsz, 0, INT_MAX, Set)                        \
  X(cuMemsetD2D8, cuMemsetD2D8_v2, _ptds, 3020, INT_MAX, Set)                          \
  X(cuMemsetD2D16, cuMemsetD2D16_v2, _ptds, 3020, INT_MAX, Set)                        \
  X(cuMemsetD2D32, cuMemsetD2D32_v2, _ptds, 3020, INT_MAX, Set)                        \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async, _ptsz, 0, INT_MAX, Set)                      \
  X(cuMemsetD2D16Async, cuMemsetD2D16Async, _ptsz, 0, INT_MAX, Set)                    \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async, _ptsz, 0, INT_MAX, Set)                    \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, _ptsz, 12080, 13000, RefuseBatch)          \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, _ptsz, 13000, INT_MAX, RefuseBatch)     \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, _ptsz, 12080, 13000, RefuseBatch)      \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2, _ptsz, 13000, INT_MAX, RefuseBatch) \
  X(cuMemFreeAsync, cuMemFreeAsync, _ptsz, 0, INT_MAX, RefuseFree)

// Functions without such a variant.
#define GMAC_CUDA_PLAIN_CALLS(X)                                                           \
  X(cuGetProcAddress, cuGetProcAddress, 0, 12000, FindEntry)                               \
  X(cuGetProcAddress, cuGetProcAddress_v2, 12000, INT_MAX, FindEntry)                      \
  X(cuCtxSynchronize, cuCtxSynchronize, 0, 13000, Wait)                                    \
  X(cuCtxSynchronize, cuCtxSynchronize_v2, 13000, INT_MAX, Wait)                           \
  X(cuEventSynchronize, cuEventSynchronize, 0, INT_MAX, Wait)                              \
  X(cuEventQuery, cuEventQuery, 0, INT_MAX, Wait)                                          \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 0, INT_MAX, GraphCopy)                     \
  X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 0, INT_MAX, GraphCopy)         \
  X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 0, INT_MAX, GraphCopy) \
  X(cuMemHostRegister, cuMemHostRegister_v2, 6050, INT_MAX, RefuseRegister)                \
  X(cuMemFree, cuMemFree_v2, 3020, INT_MAX, RefuseFree)                                    \
  X(cuMemFreeHost, cuMemFreeHost, 0, INT_MAX, RefuseFree)

namespace gmac::interpose {

namespace {

using accel::NativeStream;
using accel::cuda::Reentry;
using coherence::DeviceRange;

// What stream 0 means to the caller.
enum class ZeroStream { kLegacy, kPerThread };

NativeStream nativeStream(ZeroStream zero, CUstream stream) noexcept {
  if (stream == nullptr)
    stream = zero == ZeroStream::kLegacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
  return NativeStream(reinterpret_cast<std::uintptr_t>(stream));
}

bool anythingShared() noexcept { return coherence::touchesShared(nullptr, SIZE_MAX); }

bool shared(std::uintptr_t address, std::size_t bytes) noexcept {
  return bytes != 0 && coherence::touchesShared(reinterpret_cast<const void*>(address), bytes);
}

// The address in the accelerator's memory of the first byte of a range that is shared; the same
// number but for objects of adsmSafeAlloc().
CUdeviceptr onDevice(std::uintptr_t address) noexcept {
  void* const device = adsmSafe(reinterpret_cast<const void*>(address));
  return device != nullptr ? reinterpret_cast<CUdeviceptr>(device) : address;
}

// What the application's CUDA call returns when the runtime could not make it coherent;
// adsmLastErrorString() says why.
CUresult resultOf(Status status) noexcept {
  switch (status.code()) {
    case adsmSuccess:
      return CUDA_SUCCESS;
    case adsmErrorInvalidValue:
    case adsmErrorInvalidPointer:
      return CUDA_ERROR_INVALID_VALUE;
    case adsmErrorHostMemory:
    case adsmErrorAcceleratorMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case adsmErrorKernel:
      return CUDA_ERROR_LAUNCH_FAILED;
    case adsmErrorAcceleratorLost:
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    case adsmErrorNotSupported:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

// Every driver function that a hook calls, found by the symbol when no request has brought it.
void* findReal(std::atomic<void*>& slot, const char* symbol) noexcept {
  void* real = slot.load(std::memory_order_acquire);
  if (real != nullptr) return real;
  void* const library = accel::cuda::driverLibrary();
  if (library == nullptr) return nullptr;
  real = accel::cuda::realDlsym()(library, symbol);
  if (real != nullptr) slot.store(real, std::memory_order_release);
  return real;
}

// A hooked function: a type per line of the tables.
#define GMAC_CUDA_CALL(symbolName)                            \
  struct Call_##symbolName {                                  \
    using Function = decltype(::symbolName);                  \
    static constexpr const char* kSymbol = #symbolName;       \
    static inline constinit std::atomic<void*> real{nullptr}; \
  };
#define GMAC_CUDA_STREAM_CALL(name, symbolName, suffix, since, until, body) \
  GMAC_CUDA_CALL(symbolName)                                                \
  struct Call_##symbolName##suffix {                                        \
    using Function = decltype(::symbolName);                                \
    static constexpr const char* kSymbol = #symbolName #suffix;             \
    static inline constinit std::atomic<void*> real{nullptr};               \
  };
#define GMAC_CUDA_PLAIN_CALL(name, symbolName, since, until, body) GMAC_CUDA_CALL(symbolName)
GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_CALL)
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_CALL)
#undef GMAC_CUDA_STREAM_CALL
#undef GMAC_CUDA_PLAIN_CALL
#undef GMAC_CUDA_CALL

// Helpers that hooks need of the driver besides what they stand in for.
struct CallStreamIsCapturing {
  using Function = decltype(::cuStreamIsCapturing);
  static constexpr const char* kSymbol = "cuStreamIsCapturing";
  static inline constinit std::atomic<void*> real{nullptr};
};

template <typename Call>
typename Call::Function* realOf() noexcept {
  return reinterpret_cast<typename Call::Function*>(findReal(Call::real, Call::kSymbol));
}

// Work on a capturing stream is recorded, not done: it becomes coherent when its graph is launched.
bool capturing(NativeStream stream) noexcept {
  const auto isCapturing = realOf<CallStreamIsCapturing>();
  if (isCapturing == nullptr) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result =
      isCapturing(reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(stream)), &status);
  // The legacy stream cannot be asked while another captures; what is submitted to it then fails in
  // the driver.
  return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// A few ranges that a call uses.
class Ranges {
 public:
  void everything() { ranges_[count_++] = {nullptr, 0, true}; }
  void reads(std::uintptr_t address, std::size_t bytes) { add(address, bytes, false); }
  void writes(const Extent& extent) {
    // The bytes between the rows keep the CPU's values, so those must arrive first.
    if (extent.gaps) add(extent.first, extent.bytes, false);
    add(extent.first, extent.bytes, true);
  }
  const DeviceRange* data() const { return ranges_.data(); }
  std::size_t count() const { return count_; }

 private:
  void add(std::uintptr_t address, std::size_t bytes, bool write) {
    ranges_[count_++] = {reinterpret_cast<const void*>(address), bytes, write};
  }
  std::array<DeviceRange, 3> ranges_;
  std::size_t count_ = 0;
};

CUresult acquire(CUresult result) noexcept {
  if (result != CUDA_SUCCESS) return result;
  return resultOf(coherence::afterDeviceWait());
}

// Makes `submit`, a CUresult() that submits to `stream`, coherent. `waits`: it returns when the
// work is done.
template <typename Submit>
CUresult coherently(NativeStream stream, const Ranges& ranges, bool waits,
                    Submit&& submit) noexcept {
  if (!waits && capturing(stream)) {
    const Reentry inside;
    return submit();
  }
  if (const Status begun = coherence::beginDeviceWork(stream, ranges.data(), ranges.count());
      !begun.ok()) {
    return resultOf(begun);
  }
  CUresult result = CUDA_SUCCESS;
  {
    const Reentry inside;
    result = submit();
  }
  const Status ended = coherence::endDeviceWork(stream, result == CUDA_SUCCESS);
  if (result != CUDA_SUCCESS) return result;
  if (!ended.ok()) return resultOf(ended);
  return waits ? acquire(result) : result;
}

// The stream among a call's arguments: a CUstream, or what a launch configuration names.
template <typename... Args>
CUstream streamAmong(Args... args) noexcept {
  CUstream stream = nullptr;
  [[maybe_unused]] const auto look = [&stream](auto value) {
    if constexpr (std::is_same_v<decltype(value), CUstream>) stream = value;
    if constexpr (std::is_same_v<decltype(value), const CUlaunchConfig*>) stream = value->hStream;
  };
  (look(args), ...);
  return stream;
}

template <typename... Args>
constexpr bool kTakesStream = (std::is_same_v<Args, CUstream> || ...);

// ---- Bodies: one per shape of function ----

// Kernels may use every object. A graph does as the kernels in it do.
struct Launch {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    Ranges ranges;
    ranges.everything();
    return coherently(nativeStream(Zero, streamAmong(args...)), ranges, false,
                      [&] { return real(args...); });
  }
};

// The application has waited; a query that succeeds says the same as a wait.
struct Wait {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    CUresult result = CUDA_SUCCESS;
    {
      const Reentry inside;
      result = real(args...);
    }
    return acquire(result);
  }
};

// Copies of one range. A parameter's type says on which side the caller thinks that it lies.
struct Copy {
  template <ZeroStream Zero, typename Real, typename To, typename From, typename... Rest>
  static CUresult run(Real real, To to, From from, std::size_t bytes, Rest... rest) {
    const std::uintptr_t first = numberOf(to);
    const std::uintptr_t source = numberOf(from);
    const bool toShared = shared(first, bytes);
    const bool fromShared = shared(source, bytes);
    if (!toShared && !fromShared) return direct(real, to, from, bytes, rest...);
    const bool toHost = toShared && std::is_pointer_v<To>;
    const bool fromHost = fromShared && std::is_pointer_v<From>;
    return submit<Zero>(
        {first, source, bytes},
        [&] {
          if (!toHost && !fromHost) return real(to, from, bytes, rest...);
          // As CPU memory a shared range must not be touched now: copy the accelerator's copy of
          // it.
          return unified<Zero>(toHost ? onDevice(first) : CUdeviceptr{first},
                               fromHost ? onDevice(source) : CUdeviceptr{source}, bytes, rest...);
        },
        rest...);
  }

  // cuMemcpyPeer: both sides are device addresses of their contexts.
  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUdeviceptr to, CUcontext toContext, CUdeviceptr from,
                      CUcontext fromContext, std::size_t bytes, Rest... rest) {
    if (!shared(to, bytes) && !shared(from, bytes))
      return direct(real, to, toContext, from, fromContext, bytes, rest...);
    return submit<Zero>(
        {to, from, bytes}, [&] { return real(to, toContext, from, fromContext, bytes, rest...); },
        rest...);
  }

 private:
  struct Move {
    std::uintptr_t to, from;
    std::size_t bytes;
  };

  static std::uintptr_t numberOf(CUdeviceptr address) { return address; }
  static std::uintptr_t numberOf(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
  }

  template <typename Real, typename... Args>
  static CUresult direct(Real real, Args... args) {
    const Reentry inside;
    return real(args...);
  }

  template <ZeroStream Zero, typename Submit, typename... Rest>
  static CUresult submit(Move move, Submit&& work, Rest... rest) {
    Ranges ranges;
    ranges.reads(move.from, move.bytes);
    ranges.writes({move.to, move.bytes, false});
    return coherently(nativeStream(Zero, streamAmong(rest...)), ranges, !kTakesStream<Rest...>,
                      work);
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

// Fills of one range or of rows.
struct Set {
  template <ZeroStream Zero, typename Real, typename Value, typename... Rest>
  static CUresult run(Real real, CUdeviceptr to, Value value, std::size_t count, Rest... rest) {
    return fill<Zero>(
        {to, count * sizeof value, false}, [&] { return real(to, value, count, rest...); },
        rest...);
  }

  template <ZeroStream Zero, typename Real, typename Value, typename... Rest>
  static CUresult run(Real real, CUdeviceptr to, std::size_t pitch, Value value, std::size_t width,
                      std::size_t height, Rest... rest) {
    return fill<Zero>(
        spanOf(to, width * sizeof value, height, 1, pitch, 0),
        [&] { return real(to, pitch, value, width, height, rest...); }, rest...);
  }

 private:
  template <ZeroStream Zero, typename Submit, typename... Rest>
  static CUresult fill(const Extent& extent, Submit&& submit, Rest... rest) {
    if (!shared(extent.first, extent.bytes)) {
      const Reentry inside;
      return submit();
    }
    Ranges ranges;
    ranges.writes(extent);
    return coherently(nativeStream(Zero, streamAmong(rest...)), ranges, !kTakesStream<Rest...>,
                      submit);
  }
};

// Where a copy's description names shared memory as the CPU's, makes it name the accelerator's.
template <typename Description>
void nameDevice(Description& copy, const Extent& from, const Extent& to) noexcept {
  if (copy.srcMemoryType == CU_MEMORYTYPE_HOST && shared(from.first, from.bytes)) {
    const auto before = from.first - reinterpret_cast<std::uintptr_t>(copy.srcHost);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = onDevice(from.first) - before;
  }
  if (copy.dstMemoryType == CU_MEMORYTYPE_HOST && shared(to.first, to.bytes)) {
    const auto before = to.first - reinterpret_cast<std::uintptr_t>(copy.dstHost);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = onDevice(to.first) - before;
  }
}

// Copies of rows and layers.
struct BlockCopy {
  template <ZeroStream Zero, typename Real, typename Description, typename... Rest>
  static CUresult run(Real real, const Description* description, Rest... rest) {
    Description copy = *description;
    const Extent from = extentOf(sourceOf(copy), copy);
    const Extent to = extentOf(destinationOf(copy), copy);
    if (!shared(from.first, from.bytes) && !shared(to.first, to.bytes)) {
      const Reentry inside;
      return real(description, rest...);
    }
    nameDevice(copy, from, to);
    Ranges ranges;
    if (from.bytes != 0) ranges.reads(from.first, from.bytes);
    if (to.bytes != 0) ranges.writes(to);
    return coherently(nativeStream(Zero, streamAmong(rest...)), ranges, !kTakesStream<Rest...>,
                      [&] { return real(&copy, rest...); });
  }
};

// Copies in a graph happen when it is launched, which releases and acquires every object; they must
// name the accelerator's copy, because then nothing else may be touched.
struct GraphCopy {
  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    CUDA_MEMCPY3D copy;
    const auto prepared = [&copy](auto argument) {
      if constexpr (std::is_same_v<decltype(argument), const CUDA_MEMCPY3D*>) {
        copy = *argument;
        nameDevice(copy, extentOf(sourceOf(copy), copy), extentOf(destinationOf(copy), copy));
        return static_cast<const CUDA_MEMCPY3D*>(&copy);
      } else {
        return argument;
      }
    };
    const Reentry inside;
    return real(prepared(args)...);
  }
};

CUresult refuse(adsmError_t code, const char* call, const void* address,
                const char* instead) noexcept {
  return resultOf(gmac::fail(code, "{} of shared memory at {}: {}", call, address, instead));
}

// Batches name many ranges with attributes of their own.
struct RefuseBatch {
  static constexpr const char* kInstead =
      "batched copies cannot use shared objects; copy them one by one";

  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                      std::size_t count, Rest... rest) {
    for (std::size_t i = 0; i < count; ++i) {
      for (const CUdeviceptr address : {to[i], from[i]}) {
        if (shared(address, bytes[i])) return refused("cuMemcpyBatchAsync", address);
      }
    }
    const Reentry inside;
    return real(to, from, bytes, count, rest...);
  }

  template <ZeroStream Zero, typename Real, typename... Rest>
  static CUresult run(Real real, std::size_t count, CUDA_MEMCPY3D_BATCH_OP* operations,
                      Rest... rest) {
    for (std::size_t i = 0; i < count; ++i) {
      for (const CUmemcpy3DOperand& operand : {operations[i].src, operations[i].dst}) {
        if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) continue;
        const CUextent3D& size = operations[i].extent;
        const std::size_t pitch =
            operand.op.ptr.rowLength != 0 ? operand.op.ptr.rowLength : size.width;
        const std::size_t rows =
            operand.op.ptr.layerHeight != 0 ? operand.op.ptr.layerHeight : size.height;
        const Extent extent =
            spanOf(operand.op.ptr.ptr, size.width, size.height, size.depth, pitch, pitch * rows);
        if (shared(extent.first, extent.bytes))
          return refused("cuMemcpy3DBatchAsync", extent.first);
      }
    }
    const Reentry inside;
    return real(count, operations, rest...);
  }

 private:
  static CUresult refused(const char* call, std::uintptr_t address) {
    return refuse(adsmErrorNotSupported, call, reinterpret_cast<const void*>(address), kInstead);
  }
};

struct RefuseRegister {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, void* address, std::size_t bytes, unsigned flags) {
    if (shared(reinterpret_cast<std::uintptr_t>(address), bytes)) {
      return refuse(adsmErrorNotSupported, "cuMemHostRegister", address,
                    "it is reached by copies already");
    }
    const Reentry inside;
    return real(address, bytes, flags);
  }
};

struct RefuseFree {
  template <ZeroStream Zero, typename Real, typename Address, typename... Rest>
  static CUresult run(Real real, Address address, Rest... rest) {
    const auto number = (std::uintptr_t)address;  // a CUdeviceptr or a pointer
    if (shared(number, 1)) {
      return refuse(adsmErrorInvalidPointer, "freeing", reinterpret_cast<const void*>(number),
                    "adsmFree() does that");
    }
    const Reentry inside;
    return real(address, rest...);
  }
};

// Hands out hooks for the functions that have one. Always, also from inside the runtime: the
// application's CUDA runtime may fill its table during a call of ours.
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

// ---- From a driver function's signature to its hook ----

template <typename Body>
constexpr bool kAlways = requires {
  Body::kAlways;
};

template <typename Call, typename Body, ZeroStream Zero,
          typename Function = typename Call::Function>
struct Hook;

template <typename Call, typename Body, ZeroStream Zero, typename... Args>
struct Hook<Call, Body, Zero, CUresult(Args...)> {
  static CUresult entry(Args... args) {
    const auto real = realOf<Call>();
    if (real == nullptr) return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    if constexpr (!kAlways<Body>) {
      if (Reentry::inside() || !anythingShared()) return real(args...);
    }
    return Body::template run<Zero>(real, args...);
  }
};

}  // namespace

// The exported symbols. Each jumps to its hook: the hooks' parameter lists come from cuda.h and are
// written nowhere.
#if !defined(__x86_64__)
#error "the CUDA hooks' exported symbols are written for x86-64"
#endif
#define GMAC_CUDA_EXPORT(callName, body, zero)                                                \
  __attribute__((used)) static void* const gmacCudaHook_##callName asm(                       \
      "gmacCudaHook_" #callName) =                                                            \
      reinterpret_cast<void*>(&Hook<Call_##callName, body, ZeroStream::zero>::entry);         \
  extern "C"                                                                                  \
      __attribute__((visibility("default"))) void gmacCudaExport_##callName() asm(#callName); \
  asm(".pushsection .text\n.globl " #callName "\n.type " #callName ", @function\n" #callName  \
      ":\n.cfi_startproc\nendbr64\njmp *gmacCudaHook_" #callName                              \
      "(%rip)\n.cfi_endproc\n.size " #callName ", .-" #callName "\n.popsection\n");
#define GMAC_CUDA_STREAM_EXPORT(name, symbolName, suffix, since, until, body) \
  GMAC_CUDA_EXPORT(symbolName, body, kLegacy)                                 \
  GMAC_CUDA_EXPORT(symbolName##suffix, body, kPerThread)
#define GMAC_CUDA_PLAIN_EXPORT(name, symbolName, since, until, body) \
  GMAC_CUDA_EXPORT(symbolName, body, kLegacy)
GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_EXPORT)
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_EXPORT)
#undef GMAC_CUDA_STREAM_EXPORT
#undef GMAC_CUDA_PLAIN_EXPORT
#undef GMAC_CUDA_EXPORT

namespace {

#define GMAC_CUDA_ENTRY(name, callName, perThread, since, until, body, zero)                \
  HookEntry{name,                                                                           \
            #callName,                                                                      \
            perThread,                                                                      \
            since,                                                                          \
            until,                                                                          \
            reinterpret_cast<void*>(&Hook<Call_##callName, body, ZeroStream::zero>::entry), \
            reinterpret_cast<void*>(&gmacCudaExport_##callName),                            \
            &Call_##callName::real},
#define GMAC_CUDA_STREAM_ENTRY(name, symbolName, suffix, since, until, body) \
  GMAC_CUDA_ENTRY(#name, symbolName, false, since, until, body, kLegacy)     \
  GMAC_CUDA_ENTRY(#name, symbolName##suffix, true, since, until, body, kPerThread)
#define GMAC_CUDA_PLAIN_ENTRY(name, symbolName, since, until, body) \
  GMAC_CUDA_ENTRY(#name, symbolName, false, since, until, body, kLegacy)

const HookEntry kEntries[] = {GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_ENTRY)
                                  GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_ENTRY)};

#undef GMAC_CUDA_STREAM_ENTRY
#undef GMAC_CUDA_PLAIN_ENTRY
#undef GMAC_CUDA_ENTRY

}  // namespace

const HookEntry* hookOfSymbol(const char* symbol) noexcept {
  for (const HookEntry& entry : kEntries) {
    if (std::strcmp(entry.symbol, symbol) == 0) return &entry;
  }
  return nullptr;
}

const HookEntry* hookOfRequest(const char* name, int version, cuuint64_t flags) noexcept {
  const bool perThread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const HookEntry* found = nullptr;
  for (const HookEntry& entry : kEntries) {
    if (std::strcmp(entry.name, name) != 0 || version < entry.since || version >= entry.until)
      continue;
    // Functions without a variant for the thread's stream serve both kinds of callers.
    if (found == nullptr || entry.perThread == perThread) found = &entry;
  }
  return found;
}

void* substitute(const HookEntry& entry, void* real) noexcept {
  // Our own exports can come back to us when somebody asks for the process's global symbols.
  if (real == entry.exported || real == entry.hook) return real;
  void* none = nullptr;
  entry.real->compare_exchange_strong(none, real, std::memory_order_acq_rel);
  return entry.hook;
}

}  // namespace gmac::interpose

#endif  // GMAC_HAVE_CUDA
