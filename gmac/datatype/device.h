// SPDX-License-Identifier: Apache-2.0
//
// The interface of the datatype engine to a device: kinds of memory, and commands in order. It
// exists beside accel::Accelerator, which knows neither our kernels nor the application's streams.
#ifndef GMAC_DATATYPE_DEVICE_H_
#define GMAC_DATATYPE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/datatype/device_plan.h"

namespace gmac::datatype {

// The kind of memory that an address outside of shared objects points to.
enum class Memory : std::uint8_t {
  kPageable,  // CPU memory that the device cannot access, or unknown memory
  kPinned,    // CPU memory that kernels and copies access, by the same address
  kDevice,    // the device's own memory (or managed memory)
};

// Attributes of a device that the cost of packing follows from. 0: not known, or there is none.
struct DeviceTraits {
  std::uint32_t multiprocessors = 0;
  double cyclesPerMicrosecond = 0;  // of a multiprocessor
  double memoryRate = 0;            // peak bandwidth of its memory, bytes per microsecond
  double linkRate = 0;              // of its link to the CPU, each way, bytes per microsecond
};

// `rows` rows of `rowBytes`, `pitch` bytes apart, in `slices` slices, `slicePitch` apart.
struct StridedCopy {
  std::uint64_t strided = 0;
  std::uint64_t packed = 0;
  std::int64_t rowBytes = 0;
  std::int64_t rows = 1;
  std::int64_t pitch = 0;
  std::int64_t slices = 1;
  std::int64_t slicePitch = 0;
  Direction direction = Direction::kPack;
  bool packedOnCpu = false;
};

// Commands that run one after another on a device. A view for the duration of one
// Device::submit(); for one thread. Asynchronous; addresses are device addresses or those of pinned
// memory, and stay valid until the work is over.
class DeviceQueue {
 public:
  virtual Status launch(const DeviceLaunch& launch) = 0;
  virtual Status copyIn(std::uint64_t to, const void* pinned, std::size_t bytes) = 0;
  virtual Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) = 0;
  virtual Status copyWithin(std::uint64_t to, std::uint64_t from, std::size_t bytes) = 0;
  // adsmErrorNotSupported where the device has no such engine, or it has limits that this exceeds.
  virtual Status copyStrided(const StridedCopy& copy) = 0;

 protected:
  ~DeviceQueue() = default;
};

// The engine's callback, which gets a queue. Not owned; for the duration of one call.
class DeviceWork {
 public:
  virtual Status run(DeviceQueue& queue) = 0;

 protected:
  ~DeviceWork() = default;
};

// A function as work: `function(queue)` submits commands and returns a Status. For the stack of one
// thread; may be submitted any number of times.
template <typename Function>
class Commands final : public DeviceWork {
 public:
  explicit Commands(Function function) : function_(std::move(function)) {}
  Status run(DeviceQueue& queue) override { return function_(queue); }

 private:
  Function function_;
};

// One device of one accelerator. Thread-safe; made once per runtime and never destroyed.
class Device {
 public:
  static Result<std::unique_ptr<Device>> make(accel::Accelerator& accelerator);
  virtual ~Device() = default;

  accel::Accelerator& accelerator() const { return accelerator_; }
  // The kind of memory at an address outside of shared objects. Asks the driver; some hundred
  // nanoseconds.
  virtual Memory memoryOf(const void* address) const noexcept = 0;
  // True if kernels can read and write pinned CPU memory.
  virtual bool kernelsReachPinned() const noexcept = 0;
  // Asks the driver and the operating system; up to a millisecond.
  virtual DeviceTraits traits() const noexcept = 0;

  // Calls `work` once with a queue: the accelerator's kernel queue, ordered as a launch is, or a
  // stream of the application's. The ticket completes with the work. An error of `work` is
  // returned; commands that it had submitted before may run.
  virtual Result<accel::Ticket> submit(std::optional<accel::NativeStream> stream,
                                       DeviceWork& work) = 0;
  // Submits that one launch.
  virtual Result<accel::Ticket> launch(std::optional<accel::NativeStream> stream,
                                       const DeviceLaunch& launch);
  // Submits that one copy; errors as of DeviceQueue's.
  Result<accel::Ticket> copyStrided(std::optional<accel::NativeStream> stream,
                                    const StridedCopy& copy);
  // Waits for everything that has been submitted to any stream of the application's. Blocks.
  virtual Status waitForStreams() = 0;
  // Work that is submitted to the stream (or the kernel queue) from now on runs after the ticket's.
  virtual Status follow(std::optional<accel::NativeStream> stream, accel::Ticket ticket) = 0;

  // Memory for the engine: of the device, and pinned CPU memory.
  Result<std::uint64_t> allocate(std::size_t bytes);
  void free(std::uint64_t address, std::size_t bytes) noexcept;
  virtual Result<void*> allocatePinned(std::size_t bytes) = 0;
  virtual void freePinned(void* address, std::size_t bytes) noexcept = 0;

  // adsmErrorInvalidValue if it is not a stream, adsmErrorNotSupported if the device has no
  // streams. Some hundred nanoseconds.
  virtual Status checkStream(accel::NativeStream) const { return {}; }

 protected:
  explicit Device(accel::Accelerator& accelerator) : accelerator_(accelerator) {}

 private:
  accel::Accelerator& accelerator_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_DEVICE_H_
