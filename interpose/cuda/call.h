// SPDX-License-Identifier: Apache-2.0
//
// The frame of the CUDA hooks: how a hook is made from a body and a line in a table, and how a body
// makes a call coherent.
//
// A table is a pair of X-macros. Functions that work on a stream, or on stream 0, exist once for
// the legacy stream 0 and once for the thread's own: X(name, symbol, suffix of the thread's
// variant, first version, version after the last, body). Functions without such a variant: X(name,
// symbol, first version, version after the last, body). A body is a struct with
//   template <ZeroStream Zero, typename Real, typename... Args>
//   static CUresult run(Real real, Args... args);
// A call from inside the runtime, and every call while nothing is shared, goes straight to the
// driver, unless the body says otherwise (kEvenUnshared, kAlways).
#ifndef GMAC_INTERPOSE_CUDA_CALL_H_
#define GMAC_INTERPOSE_CUDA_CALL_H_

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/cuda/reentry.h"
#include "gmac/base/cancellation.h"
#include "gmac/base/status.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/os/signal_mask.h"
#include "interpose/cuda/extent.h"
#include "interpose/cuda/hooks.h"

namespace gmac::interpose {

using accel::NativeStream;
using accel::cuda::Reentry;
using coherence::DeviceRange;

// The meaning of stream 0 for the caller.
enum class ZeroStream { kLegacy, kPerThread };

inline CUstream streamMeant(ZeroStream zero, CUstream stream) noexcept {
  if (stream != nullptr) return stream;
  return zero == ZeroStream::kLegacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

inline NativeStream nativeStream(ZeroStream zero, CUstream stream) noexcept {
  return NativeStream(reinterpret_cast<std::uintptr_t>(streamMeant(zero, stream)));
}

using coherence::anythingShared;

inline bool shared(std::uintptr_t address, std::size_t bytes) noexcept {
  return bytes != 0 && coherence::touchesShared(reinterpret_cast<const void*>(address), bytes);
}

// The caller's address as a number. A device address becomes the CPU's address of the same byte,
// because ranges use CPU addresses.
inline std::uintptr_t cpuAddressOf(CUdeviceptr address) noexcept {
  return coherence::memory().cpuAddress(address);
}
inline std::uintptr_t cpuAddressOf(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

// The address in the accelerator's memory of the first byte of a shared range. It is the same
// number except for objects of adsmSafeAlloc().
CUdeviceptr onDevice(std::uintptr_t address) noexcept;

// The result of the application's CUDA call when the runtime could not make it coherent;
// adsmLastErrorString() says why.
CUresult resultOf(Status status) noexcept;

// Records why a call with a shared address is refused; returns the application's result.
CUresult refuse(adsmError_t code, const char* call, std::uintptr_t address,
                const char* instead) noexcept;

// The driver function that a hook calls; looked up by its symbol when no request has supplied it.
void* findReal(std::atomic<void*>& slot, const char* symbol) noexcept;

// Declares a driver function that hooks call but do not replace.
#define GMAC_CUDA_HELPER(function, symbolName)                \
  struct Call_##symbolName {                                  \
    using Function = decltype(::function);                    \
    static constexpr const char* kSymbol = #symbolName;       \
    static inline constinit std::atomic<void*> real{nullptr}; \
  };

template <typename Call>
typename Call::Function* realOf() noexcept {
  return reinterpret_cast<typename Call::Function*>(findReal(Call::real, Call::kSymbol));
}

// Whether the stream is capturing. Its work is only recorded, and becomes coherent when its graph
// is launched.
bool capturing(NativeStream stream) noexcept;

// Whether the calling thread's context is not the runtime's.
bool inForeignContext() noexcept;

// The number by which the runtime knows a stream, which may be another context's;
// accel::kForeignStream where it does not know that.
Result<NativeStream> known(NativeStream stream) noexcept;

// The same, but makes no context known: accel::kForeignStream for the streams of one that is not.
NativeStream alreadyKnown(NativeStream stream) noexcept;

// Whether the calling thread's device has an attribute, according to the driver.
bool deviceHas(CUdevice_attribute attribute) noexcept;

// The device of the calling thread's context; -1: it has none.
int currentDevice() noexcept;

// A CUmemorytype; 0: the driver does not know the address, as of pages that are not pinned.
unsigned memoryType(CUdeviceptr address) noexcept;

// False: the driver has said that it does not know the address.
bool driverKnows(CUdeviceptr address) noexcept;

// Whether attaching memory to a stream or to the CPU promises that no other kernel uses it: CUDA's
// own rule for devices that cannot use managed memory while the CPU does, or GMAC_MANAGED=trust.
bool attachmentIsPromise() noexcept;

// Waits for all work of the calling thread's context on a stream.
CUresult waitForStream(NativeStream stream) noexcept;

// The ranges that one call uses; at most three.
class Ranges {
 public:
  void everything() { ranges_[count_++] = {nullptr, 0, true}; }
  void reads(std::uintptr_t address, std::size_t bytes) { add(address, bytes, false); }
  void reads(const Extent& extent) {
    if (extent.bytes != 0) add(extent.first, extent.bytes, false);
  }
  void writes(const Extent& extent) {
    if (extent.bytes == 0) return;
    // The bytes between the rows keep the CPU's values, so they must be flushed first.
    if (extent.gaps) add(extent.first, extent.bytes, false);
    add(extent.first, extent.bytes, true);
  }
  // The driver gets them in parts (parts.h).
  void inParts() {
    std::for_each_n(ranges_.begin(), count_, [](DeviceRange& range) { range.inParts = true; });
  }
  std::span<const DeviceRange> all() const { return {ranges_.data(), count_}; }

 private:
  void add(std::uintptr_t address, std::size_t bytes, bool write) {
    ranges_[count_++] = {reinterpret_cast<const void*>(address), bytes, write};
  }
  std::array<DeviceRange, 3> ranges_;
  std::size_t count_ = 0;
};

// The two sides of a copy of rows and layers, as the CPU's addresses.
struct NamedCopy {
  bool shared() const { return fromShared || toShared; }
  Extent from, to;
  bool fromShared, toShared;
};

// Finds the shared memory in a copy's description and replaces its addresses by those of the
// accelerator's copy, whatever form they had.
template <typename Description>
NamedCopy nameDevice(Description& copy) noexcept {
  // The CPU's extent of one side; and the base address that the driver needs to reach it.
  const auto named = [&copy](const CopySide& side, bool* isShared, CUdeviceptr* base) {
    Extent extent = extentOf(side, copy);
    const std::uintptr_t before = extent.first - side.base;
    if (*side.type != CU_MEMORYTYPE_HOST) extent.first = cpuAddressOf(CUdeviceptr{extent.first});
    *isShared = gmac::interpose::shared(extent.first, extent.bytes);
    if (*isShared) *base = onDevice(extent.first) - before;
    return extent;
  };
  NamedCopy result{};
  CUdeviceptr base = 0;
  result.from = named(sourceOf(copy), &result.fromShared, &base);
  if (result.fromShared) {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = base;
  }
  result.to = named(destinationOf(copy), &result.toShared, &base);
  if (result.toShared) {
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = base;
  }
  return result;
}

// Tells the runtime of a failure of the application's call, if it is one; returns it.
CUresult noteFailure(CUresult result) noexcept;

// Acquires after a wait of the application, if the wait succeeded. `wait`: what
// beforeDeviceWait() has returned.
CUresult acquire(CUresult result, const coherence::DeviceWait& wait = {}) noexcept;

// How the submission of a call's work has ended.
struct Submitted {
  Submitted(CUresult ended)  // NOLINT: what submits in one call returns that
      : result(ended), any(ended == CUDA_SUCCESS) {}
  Submitted(CUresult ended, bool some) : result(ended), any(some) {}
  CUresult result;
  bool any;  // some of the work was submitted, although the rest may have failed
};

// Waits for the work of a call without a stream. Where that lies in a device's memory the driver
// only queues it, and a program for managed memory relies on its being done.
CUresult finishOwn(NativeStream stream) noexcept;

// How a call returns: while its work is queued; once the driver has waited for it, as it does for
// copies to memory that is not pinned; or with the work done, which the driver may only have
// queued.
enum class Returns : std::uint8_t { kAtOnce, kAfterTheDriver, kDone };

// Makes `submit`, a CUresult() or Submitted() that submits to `stream`, coherent.
template <typename Submit>
CUresult coherently(NativeStream stream, std::span<const DeviceRange> ranges, Returns returns,
                    Submit&& submit) noexcept {
  if (returns == Returns::kAtOnce && capturing(stream)) {
    const bool names = std::any_of(ranges.begin(), ranges.end(), [](const DeviceRange& range) {
      return range.address != nullptr;
    });
    const Reentry inside;
    const Submitted done = submit();
    if (names && done.any) coherence::noteRecorded();
    return done.result;
  }
  const Result<NativeStream> number = known(stream);
  if (!number.ok()) return resultOf(number.status());
  if (const Status begun = coherence::work().beginDeviceWork(*number, ranges); !begun.ok()) {
    return resultOf(begun);
  }
  const auto [result, any] = [&]() -> Submitted {
    const Reentry inside;
    const Submitted done = submit();
    // No later call can wait for such work, so this one waits here.
    if (*number != accel::kForeignStream || !done.any) return done;
    const CUresult waited = waitForStream(stream);
    return {done.result != CUDA_SUCCESS ? done.result : waited, true};
  }();
  const Status ended = coherence::work().endDeviceWork(*number, any);
  if (result != CUDA_SUCCESS) return noteFailure(result);
  if (!ended.ok()) return resultOf(ended);
  if (returns == Returns::kAtOnce) return result;
  const CUresult finished = returns == Returns::kDone ? finishOwn(stream) : result;
  return acquire(finished, {.ofOwn = true, .stream = *number});
}

// The stream among a call's arguments.
template <typename... Args>
CUstream streamAmong(Args... args) noexcept {
  CUstream stream = nullptr;
  [[maybe_unused]] const auto look = [&stream](auto value) {
    if constexpr (std::is_same_v<decltype(value), CUstream>) stream = value;
  };
  (look(args), ...);
  return stream;
}

template <typename... Args>
inline constexpr bool kTakesStream = (std::is_same_v<Args, CUstream> || ...);

// How a copy or a fill with such arguments returns.
template <typename... Args>
inline constexpr Returns kReturns = kTakesStream<Args...> ? Returns::kAtOnce : Returns::kDone;

// Submits work that repeats the launch before it on the stream, and does not wait; nothing where it
// does not repeat. `names`: it is a copy or fill in a device's memory, or to or from there.
template <typename Submit>
std::optional<CUresult> repeatedly(NativeStream stream, bool names, Submit&& submit) noexcept {
  if (coherence::captureUnderWay() || !coherence::work().mayRepeat(names)) return std::nullopt;
  const Result<NativeStream> number = known(stream);
  const os::SignalsBlocked blocked(os::SignalsBlocked::When::kWhereHandled);
  if (!number.ok() || !coherence::work().beginRepeated(*number, names)) return std::nullopt;
  // A capture that has begun meanwhile waits for the end, if it was not seen.
  if (coherence::captureUnderWay()) {
    coherence::work().endRepeated(*number, false);
    return std::nullopt;
  }
  const Submitted done = [&]() -> Submitted {
    const Reentry inside;
    return submit();
  }();
  coherence::work().endRepeated(*number, done.any);
  return noteFailure(done.result);
}

// Calls the driver with the application's own arguments.
template <typename Real, typename... Args>
CUresult passed(Real real, Args... args) noexcept {
  const Reentry inside;
  return real(args...);
}

// The same for what may put work into a stream: an access of the CPU must not wait for it with the
// launches before.
template <typename Real, typename... Args>
CUresult direct(Real real, Args... args) noexcept {
  if constexpr (kTakesStream<Args...>) coherence::work().markRepeated();
  return passed(real, args...);
}

// ---- From a driver function's signature to its hook ----

// The body is also used for calls from inside the runtime.
template <typename Body>
concept Always = requires {
  Body::kAlways;
};
// The body is also used while nothing is shared.
template <typename Body>
concept EvenUnshared = requires {
  Body::kEvenUnshared;
};

template <typename Call, typename Body, ZeroStream Zero,
          typename Function = typename Call::Function>
struct Hook;

template <typename Call, typename Body, ZeroStream Zero, typename... Args>
struct Hook<Call, Body, Zero, CUresult(Args...)> {
  static CUresult entry(Args... args) {
    const auto real = realOf<Call>();
    if (real == nullptr) return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    if constexpr (!Always<Body>) {
      if (Reentry::inside()) return real(args...);
      if constexpr (!EvenUnshared<Body>) {
        if (!anythingShared()) return real(args...);
      }
    }
    // The driver's calls may be cancellation points, and come while the runtime's records are
    // incomplete.
    return uncancelled([&] { return Body::template run<Zero>(real, args...); });
  }
};

}  // namespace gmac::interpose

// ---- The tables' macros ----

// A hooked function: a type per line.
#define GMAC_CUDA_TYPE(symbolName)                            \
  struct Call_##symbolName {                                  \
    using Function = decltype(::symbolName);                  \
    static constexpr const char* kSymbol = #symbolName;       \
    static inline constinit std::atomic<void*> real{nullptr}; \
  };
#define GMAC_CUDA_STREAM_TYPE(name, symbolName, suffix, since, until, body) \
  GMAC_CUDA_TYPE(symbolName)                                                \
  struct Call_##symbolName##suffix {                                        \
    using Function = decltype(::symbolName);                                \
    static constexpr const char* kSymbol = #symbolName #suffix;             \
    static inline constinit std::atomic<void*> real{nullptr};               \
  };
#define GMAC_CUDA_PLAIN_TYPE(name, symbolName, since, until, body) GMAC_CUDA_TYPE(symbolName)

// The exported symbol. It jumps to its hook: the hooks' parameter lists come from cuda.h and are
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

// A table that has no functions of one kind.
#define GMAC_CUDA_NONE(X)

// Makes the hooks of a table, exports their symbols, and defines the function `table`, which
// hooks.cc lists.
#define GMAC_CUDA_TABLE(table, STREAM_CALLS, PLAIN_CALLS)                        \
  STREAM_CALLS(GMAC_CUDA_STREAM_EXPORT)                                          \
  PLAIN_CALLS(GMAC_CUDA_PLAIN_EXPORT)                                            \
  std::span<const HookEntry> table() noexcept {                                  \
    static const HookEntry entries[] = {STREAM_CALLS(GMAC_CUDA_STREAM_ENTRY)     \
                                            PLAIN_CALLS(GMAC_CUDA_PLAIN_ENTRY)}; \
    return entries;                                                              \
  }

#endif  // GMAC_INTERPOSE_CUDA_CALL_H_
