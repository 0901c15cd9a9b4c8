// SPDX-License-Identifier: Apache-2.0
//
// The CUDA layer that StreamAccelerator stands on: the Driver API (`cuda`) or the application's
// CUDA runtime (`cudart`). Both name streams and events by the same types and failures by the same
// numbers, so one accelerator serves both.
#ifndef GMAC_ACCEL_CUDA_DEVICE_CALLS_H_
#define GMAC_ACCEL_CUDA_DEVICE_CALLS_H_

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/cuda/reentry.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/base/ample_stack.h"
#include "gmac/base/status.h"

// CUDA's own opaque types, declared so that only the two layers include its headers.
struct CUstream_st;
struct CUevent_st;

namespace gmac::accel::cuda {

using Stream = CUstream_st*;
using Event = CUevent_st*;

// The numbers that CUresult and cudaError_t share and the runtime acts upon.
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaOutOfMemory = 2;
inline constexpr int kCudaDeinitialized = 4;  // the process is exiting and CUDA has gone first
inline constexpr int kCudaNotReady = 600;
inline constexpr int kCudaNotSupported = 801;

// Whether a device still works, and the one place where CUDA's failures become ours. A kernel that
// crashes takes its context with it: the first to see it gets adsmErrorKernel, everyone after that
// adsmErrorAcceleratorLost. Thread-safe; owned by its DeviceCalls; the fault handler may call it.
class DeviceHealth {
 public:
  bool lost() const noexcept { return state_.load(std::memory_order_acquire) != kHealthy; }
  // Whether it is lost because the process exits and CUDA has ended before the caller, which took
  // all memory, streams and registrations with it. Static destructors free objects that late.
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  // The application has ended the context: for good, or so that the next one is a healthy one.
  void end(std::string_view text) noexcept { static_cast<void>(die(0, text)); }
  // A call of the application's own has failed: of a kernel that crashed the runtime learns so.
  void learn(int code, const char* words) noexcept;
  void recover() noexcept { state_.store(kHealthy, std::memory_order_release); }
  // Records adsmErrorAcceleratorLost with the text, and the layer's number, of what the device died
  // of.
  Status lostStatus() const noexcept;
  // Records the failure `code` of `call`, whose arguments and error text are given. `otherwise` is
  // the code for failures that say nothing about the device's health.
  Status fail(int code, adsmError_t otherwise, std::string_view call, std::string_view arguments,
              const char* words) noexcept;

 private:
  enum State : int { kHealthy, kDying, kLost };
  bool die(int code, std::string_view text) noexcept;

  std::atomic<int> state_{kHealthy};
  std::atomic<bool> ended_{false};
  // Written before state_ becomes kLost.
  int code_ = 0;  // 0: the layer has none
  char cause_[256] = {};
};

// A function of a CUDA layer with the name that messages give it. Called like it; in the fault
// handler on a stack with room, since CUDA takes some 16 KiB.
template <typename Function>
struct Entry;

template <typename Return, typename... Params>
struct Entry<Return(Params...)> {
  const char* name = nullptr;
  Return (*function)(Params...) = nullptr;

  Return operator()(Params... params) const noexcept {
    return withAmpleStack([&] { return function(params...); });
  }
};

// A text made without allocating; what does not fit is cut off.
class ShortText {
 public:
  template <typename... Args>
  explicit ShortText(fmt::format_string<Args...> format, Args&&... args) noexcept {
    used_ = fmt::format_to_n(text_, sizeof text_, format, std::forward<Args>(args)...).size;
  }
  std::string_view view() const { return {text_, std::min(used_, sizeof text_)}; }

 private:
  char text_[256];
  std::size_t used_;
};

// A call's arguments as text, in a buffer of its own: failures are described without allocating.
class ArgumentText {
 public:
  template <typename... Args>
  explicit ArgumentText(const Args&... args) {
    (append(printable(args)), ...);
  }
  std::string_view view() const { return {text_, used_}; }

 private:
  template <typename T>
  static auto printable(const T& value) {
    if constexpr (std::is_pointer_v<T>) {
      return reinterpret_cast<const void*>(value);
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<long long>(value);
    } else {
      return value;
    }
  }
  template <typename T>
  void append(const T& value) {
    const std::size_t room = sizeof text_ - used_;
    const auto end = fmt::format_to_n(text_ + used_, room, "{}{}", used_ == 0 ? "" : ", ", value);
    used_ += end.size < room ? end.size : room;
  }

  char text_[256];
  std::size_t used_ = 0;
};

// One CUDA layer bound to one device. Thread-safe. Every method but enter() and leave() is called
// between them. Methods that the fault path uses (copies, events) allocate no memory of ours and
// take no lock of ours. Owned by a StreamAccelerator.
class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;

  virtual std::string_view name() const noexcept = 0;
  virtual std::string_view deviceName() const noexcept = 0;
  // Whether device addresses and CPU addresses are one space. Constant.
  virtual bool unifiedAddresses() const noexcept = 0;
  // The context that streams belong to; 0 where the layer does not know it, or has none.
  virtual std::uintptr_t nativeContext() const noexcept { return 0; }
  // The device whose primary context that is; -1: another one, or none.
  virtual int primaryDevice() const noexcept = 0;

  // Whether the layer can let go of its context and take another. Constant. close: outside of
  // enter() and leave(); everything made in the context is gone or to be forgotten, kernels are to
  // be loaded again. open: of a closed layer, by the rules that a fresh one has.
  virtual bool reopens() const noexcept { return false; }
  virtual void close() noexcept {}
  virtual Status open() = 0;
  // A layer of the same kind for another context, which bind() says and nobody else keeps alive;
  // NULL where the layer knows of no contexts. Outside of enter() and leave(), both.
  virtual std::unique_ptr<DeviceCalls> another() const { return nullptr; }
  virtual Status bind(std::uintptr_t context) {
    return gmac::fail(adsmErrorNotSupported, "{} works in one context, and not in {:#x}", name(),
                      context);
  }
  // Of a closed layer: in the primary context of a device, by the driver's number.
  virtual Status openPrimary(int device) {
    return gmac::fail(adsmErrorNotSupported, "{} works on one device, and not on {}", name(),
                      device);
  }
  // Whether somebody in the process keeps that context alive.
  virtual bool primaryIsActive(int device) const noexcept {
    (void)device;
    return false;
  }
  // A device's own words for itself, and its memory; takes its primary context meanwhile.
  virtual Result<std::string> nameOf(int device) const {
    return gmac::fail(adsmErrorNotSupported, "{} cannot describe device {}", name(), device);
  }
  virtual Result<MemoryRoom> roomOf(int device) {
    return gmac::fail(adsmErrorNotSupported, "{} cannot describe device {}", name(), device);
  }
  virtual std::string busAddressOf(int device) const {
    (void)device;
    return {};
  }
  // The device of the context, by the driver's number.
  virtual int deviceNumber() const noexcept = 0;
  // Whether `device` is one of those that share memory with this device: kernels of each of them
  // reach the memory of all others. Where devices are linked in some other way, those count that
  // come first in the driver's order.
  virtual bool reachedFrom(int device) const noexcept {
    (void)device;
    return false;
  }
  // How many devices the process sees; the one that the calling thread works with, -1 where it has
  // no context.
  virtual int visibleDevices() const noexcept { return 1; }
  virtual int currentDevice() const noexcept { return -1; }

  // Makes the device current in the calling thread; `leave` gets what `enter` returned and puts the
  // thread back.
  virtual std::uintptr_t enter() noexcept = 0;
  virtual void leave(std::uintptr_t token) noexcept = 0;

  virtual Result<std::uintptr_t> allocate(std::size_t bytes) = 0;
  virtual Status release(std::uintptr_t address) = 0;
  // By which another process imports the allocation that starts there, and where what another one
  // has is from here. adsmErrorNotSupported.
  virtual Status exportMemory(std::uintptr_t address, MemoryHandle* handle) {
    (void)address, (void)handle;
    return gmac::fail(adsmErrorNotSupported, "{} exports no memory to other processes", name());
  }
  virtual Result<std::uintptr_t> importMemory(const MemoryHandle& handle) {
    (void)handle;
    return gmac::fail(adsmErrorNotSupported, "{} imports no memory of other processes", name());
  }
  virtual Status releaseImport(std::uintptr_t address) {
    return gmac::fail(adsmErrorNotSupported, "{} has not imported {:#x}", name(), address);
  }
  // Where the allocation of an address starts, whoever has made it. adsmErrorInvalidValue: it is in
  // none.
  virtual Result<std::uintptr_t> startOfAllocation(std::uintptr_t address) {
    return gmac::fail(adsmErrorNotSupported, "{} does not know where {:#x} lies", name(), address);
  }
  // Pinned CPU memory of the layer's own.
  virtual Result<void*> allocateHost(std::size_t bytes) = 0;
  virtual Status releaseHost(void* address) = 0;
  // `everywhere`: copies of other devices' contexts reach it, too.
  virtual Status registerHost(void* address, std::size_t bytes, bool everywhere) = 0;
  virtual Status unregisterHost(void* address) = 0;

  // Streams do not synchronise with the legacy default stream; events carry no time.
  virtual Result<Stream> createStream() = 0;
  virtual Status destroyStream(Stream stream) = 0;
  virtual Result<Event> createEvent() = 0;
  virtual Status destroyEvent(Event event) = 0;

  virtual Status copyIn(std::uintptr_t to, const void* from, std::size_t bytes, Stream stream) = 0;
  virtual Status copyOut(void* to, std::uintptr_t from, std::size_t bytes, Stream stream) = 0;
  virtual Status copyWithin(std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                            Stream stream) = 0;
  virtual Status fill(std::uintptr_t to, unsigned char value, std::size_t bytes, Stream stream) = 0;

  virtual Status record(Event event, Stream stream) = 0;
  // The same; CUDA's own number, as query() has it.
  virtual int tryRecord(Event event, Stream stream) noexcept = 0;
  virtual Status streamWait(Stream stream, Event event) = 0;
  // Whether the device writes words of registered memory as work of a stream. Constant while the
  // layer is open.
  virtual bool writesWords() noexcept { return false; }
  // The device's address of registered memory.
  virtual Result<std::uintptr_t> deviceAddressOf(void* registered) {
    return gmac::fail(adsmErrorNotSupported, "{} does not tell the device's address of {}", name(),
                      shown(registered));
  }
  // Writes eight bytes there after all that the stream holds, and what that has written. CUDA's own
  // number.
  virtual int writeWord(std::uintptr_t address, std::uint64_t value, Stream stream) noexcept {
    (void)address;
    (void)value;
    (void)stream;
    return kCudaNotSupported;
  }
  // Whether the stream records what is submitted to it, or may do so.
  virtual bool capturing(Stream stream) noexcept {
    (void)stream;
    return true;
  }
  // CUDA's own number: kCudaSuccess, kCudaNotReady, or a failure, which queryFailed() turns into a
  // Status.
  virtual int query(Event event) noexcept = 0;
  virtual Status queryFailed(int code, Event event) noexcept = 0;

  virtual Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) = 0;
  virtual Status launch(LoadedKernel& kernel, const LaunchShape& shape, void** args,
                        Stream stream) = 0;
  // The device address of a constant that holds at least `bytes` bytes.
  virtual Result<std::uintptr_t> constantAddress(LoadedKernel& kernel,
                                                 const adsmConstant_t& constant,
                                                 std::size_t bytes) = 0;

  void learn(int code) noexcept { health_.learn(code, words(code)); }
  const DeviceHealth& health() const noexcept { return health_; }
  DeviceHealth& health() noexcept { return health_; }

  // The one checked call: records the call's name, its arguments and the layer's words. `otherwise`
  // is the code for failures that say nothing about the device's health.
  template <typename Function, typename... Args>
  Status checkAs(adsmError_t otherwise, const Entry<Function>& entry, Args... args) noexcept {
    const int code = static_cast<int>(entry(args...));
    if (code == kCudaSuccess) return Status();
    return failAs(otherwise, code, entry.name, ArgumentText(args...).view());
  }
  template <typename Function, typename... Args>
  Status check(const Entry<Function>& entry, Args... args) noexcept {
    return checkAs(adsmErrorSystem, entry, args...);
  }
  // The same for a call that was made by hand, with a description of what it was about.
  Status failAs(adsmError_t otherwise, int code, std::string_view call,
                std::string_view about) noexcept {
    return health_.fail(code, otherwise, call, about, words(code));
  }

 protected:
  // The layer's text for a code; never NULL.
  virtual const char* words(int code) const noexcept = 0;

  DeviceHealth health_;
};

// The calling thread works on the device, and its driver calls are the runtime's own, while this
// lives.
class DeviceScope {
 public:
  explicit DeviceScope(DeviceCalls& calls) : calls_(calls), token_(calls.enter()) {}
  ~DeviceScope() { calls_.leave(token_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Reentry reentry_;
  DeviceCalls& calls_;
  std::uintptr_t token_;
};

// Refuses a kernel that lacks what this layer needs: adsmErrorNoImplementation naming the kernel
// and the missing field.
Status missingImplementation(const adsmKernelDesc_t& desc, std::string_view field,
                             std::string_view accelerator);

// Refuses a value that is larger than its constant: adsmErrorInvalidValue.
Status constantTooSmall(const adsmKernelDesc_t& desc, const adsmConstant_t& constant,
                        std::size_t holds, std::size_t bytes);

// The kernel and shape of a failed launch.
ShortText describeLaunch(const adsmKernelDesc_t& desc, const LaunchShape& shape) noexcept;

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_DEVICE_CALLS_H_
