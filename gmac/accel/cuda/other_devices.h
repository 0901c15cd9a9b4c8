// SPDX-License-Identifier: Apache-2.0
//
// The process's other devices, whose kernels use the accelerator's memory as its own do: a kernel
// queue on each.
#ifndef GMAC_ACCEL_CUDA_OTHER_DEVICES_H_
#define GMAC_ACCEL_CUDA_OTHER_DEVICES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/cuda/queues.h"
#include "gmac/accel/cuda/stripes.h"
#include "gmac/accel/devices.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

// One of them, in its primary context, which is taken when a kernel first runs there.
struct OtherDevice {
  OtherDevice(std::unique_ptr<DeviceCalls> layer, int device, QueueId id)
      : number(device),
        calls(std::move(layer)),
        queue(*calls, id, /*ordered=*/true),
        lanes(*calls) {}

  std::atomic<int> number;  // the driver's own
  const std::unique_ptr<DeviceCalls> calls;
  Queue queue;
  CopyLanes lanes;  // open once allocations are striped over it
  // For pages that move there, while the device is open; one thread uses or ends them.
  std::mutex moving;
  Stream moveStream = nullptr;
  Event moveEvent = nullptr;
  std::atomic<bool> open{false};
  std::atomic<std::uint64_t> contexts{0};  // left so far
  std::uint64_t waitedFor = 0;             // the newest copy in; under the queue's lock
  std::string name;                        // once it has been described
};

// Numbers them from 1; 0 is the accelerator's own. First come those that share memory with it
// (DeviceCalls::reachedFrom()), then those apart from them. Thread-safe; part of a
// StreamAccelerator. The fault handler may call device() of what a ticket names.
class OtherDevices {
 public:
  // Whether there are any. `home`: the accelerator's own layer, which is open.
  static bool any(const DeviceCalls& home);
  explicit OtherDevices(DeviceCalls& home);
  OtherDevices(const OtherDevices&) = delete;
  OtherDevices& operator=(const OtherDevices&) = delete;

  // How many share memory; how many there are. Constant.
  std::size_t count() const noexcept { return sharing_; }
  std::size_t all() const noexcept { return devices_.size(); }
  OtherDevice& device(std::size_t number) const noexcept { return *devices_[number - 1]; }
  // The number of one that has the driver's own; 0: none of them. Of all; of those that share
  // memory.
  std::size_t find(int device) const noexcept;
  std::size_t findSharing(int device) const noexcept {
    const std::size_t number = find(device);
    return number <= count() ? number : 0;
  }
  // After the accelerator has taken another context, perhaps on another device.
  void homeMoved();

  // Makes sure that kernels can be submitted there; `admit`, for the device, succeeds first.
  Status open(std::size_t number, const std::function<Status(int device)>& admit);
  // Opens it, too, where its primary context is there already, which takes no memory. A failure
  // leaves it as it was.
  void openIfActive(std::size_t number, const std::function<Status(int device)>& admit);
  bool anyOpen() const noexcept { return open_.load(std::memory_order_relaxed) != 0; }
  // The end of a context, with all that was submitted there; of all of them.
  void contextEnds(std::uintptr_t context) noexcept;
  void closeAll() noexcept;

  Result<DeviceDescription> describe(std::size_t number);

 private:
  static Status make(OtherDevice& device);
  void close(OtherDevice& device) noexcept;

  DeviceCalls& home_;
  std::mutex mutex_;  // one thread opens, closes or describes
  std::vector<std::unique_ptr<OtherDevice>> devices_;
  std::size_t sharing_ = 0;
  std::atomic<std::size_t> open_{0};
};

// The constants that the application has set, by the image whose kernels share them, so that a
// device which loads an image later has them, too. Thread-safe.
class SetConstants {
 public:
  void note(const void* image, const char* name, const void* data, std::size_t bytes);
  // Of an image, each with its value.
  using Values = std::map<std::string, std::vector<std::byte>>;
  Values of(const void* image) const;

 private:
  mutable std::mutex mutex_;
  std::map<const void*, Values> values_;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_OTHER_DEVICES_H_
