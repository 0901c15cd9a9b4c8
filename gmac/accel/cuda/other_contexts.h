// SPDX-License-Identifier: Apache-2.0
//
// The application's other contexts, on this device or another one: what their streams hold gets
// tickets, too.
#ifndef GMAC_ACCEL_CUDA_OTHER_CONTEXTS_H_
#define GMAC_ACCEL_CUDA_OTHER_CONTEXTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/cuda/queues.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

// The bits of a NativeStream that are the stream's own number (Linux addresses have no more); above
// them is the number of its context, 0 for the accelerator's.
inline constexpr unsigned kStreamBits = 48;

// The application's stream by its own number. CUDA's two default streams are small numbers, which
// the hooks have told apart already.
inline Stream streamOf(NativeStream stream) noexcept {
  constexpr std::uintptr_t kMask = (std::uintptr_t{1} << kStreamBits) - 1;
  return reinterpret_cast<Stream>(static_cast<std::uintptr_t>(stream) & kMask);
}
inline std::size_t contextOf(NativeStream stream) noexcept {
  return static_cast<std::uintptr_t>(stream) >> kStreamBits;
}

// Numbers contexts from 1. Each has a ring of events of its own, since an event and the stream that
// it is recorded in belong to one context. Thread-safe; part of a StreamAccelerator. The fault
// handler may call calls() and ring().
class OtherContexts {
 public:
  static constexpr std::size_t kFirstQueue = kOwnQueues + kMostOtherDevices;
  static constexpr std::size_t kMost = (std::size_t{1} << kQueueBits) - kFirstQueue;

  // `home`: the accelerator's own layer.
  explicit OtherContexts(DeviceCalls& home) : home_(home) {}
  OtherContexts(const OtherContexts&) = delete;
  OtherContexts& operator=(const OtherContexts&) = delete;

  // 0: not known.
  std::size_t find(std::uintptr_t context) const noexcept;
  // Makes it known, if it is not; `admit`, for its device, succeeds first. 0 where there are too
  // many.
  Result<std::size_t> add(std::uintptr_t context, const std::function<Status(int device)>& admit);
  bool any() const noexcept { return known_.load(std::memory_order_relaxed) != 0; }
  // The work on its streams is complete: forgets it, or all. The contexts still live.
  void remove(std::uintptr_t context) noexcept;
  void removeAll() noexcept;

  // Of a context that is or was known by this number.
  DeviceCalls& calls(std::size_t number) const noexcept { return *at(number).calls; }
  Queue& ring(std::size_t number) const noexcept { return *at(number).ring; }

 private:
  struct Context {
    Context(std::unique_ptr<DeviceCalls> layer, QueueId id)
        : calls(std::move(layer)), ring(std::make_unique<Queue>(*calls, id, /*ordered=*/false)) {}
    const std::unique_ptr<DeviceCalls> calls;
    const std::unique_ptr<Queue> ring;
    std::atomic<std::uintptr_t> context{0};  // 0: free
  };

  Context& at(std::size_t number) const noexcept {
    return *contexts_[number - 1].load(std::memory_order_acquire);
  }
  static void close(Context& context) noexcept;

  DeviceCalls& home_;
  std::mutex mutex_;  // one thread adds or removes
  std::array<std::unique_ptr<Context>, kMost> owned_;
  std::array<std::atomic<Context*>, kMost> contexts_{};  // filled from the front, never emptied
  std::atomic<std::size_t> known_{0};
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_OTHER_CONTEXTS_H_
