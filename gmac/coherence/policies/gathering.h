// SPDX-License-Identifier: Apache-2.0
//
// Devices that do not reach each other's memory: objects lie where the device that works reaches
// them.
//
// Work that may use every object, as a program's own kernels may, needs them all in one place
// (gathering_policy.h). A call that lists what it uses needs those alone, which may lie elsewhere
// than the others (strays.h).
#ifndef GMAC_COHERENCE_POLICIES_GATHERING_H_
#define GMAC_COHERENCE_POLICIES_GATHERING_H_

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/device_groups.h"
#include "gmac/coherence/policies/gathering_policy.h"
#include "gmac/coherence/policies/spilling.h"
#include "gmac/coherence/policies/strays.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

class Migration;

// Thread-safe. Not for the fault handler, nor in a child of fork. On machines without such devices
// every function is a load. Elsewhere one thread at a time begins work or allocates.
class Gathering {
 public:
  Gathering(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, ObjectIndex& index,
            FreedMemory& freed, Migration& migration, Spilling& spilling);
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  // Calls `begin()`, a Status() that begins work on a stream, when that stream's device reaches all
  // objects, and none moves before it returns. A move waits for all device work that has begun.
  // adsmErrorHostMemory: the CPU has no room for them.
  template <typename Begin>
  Status reaching(accel::NativeStream stream, std::span<const coherence::DeviceRange> ranges,
                  Begin begin) {
    if (!separate_) [[likely]]
      return begin();
    const std::lock_guard one(moving_);
    if (!ranges.empty()) GMAC_TRY(gatherFor(deviceOf(stream)));
    return begin();
  }
  // The same for a device, by its number in devices.h, that uses objects in these ranges alone; no
  // list: all.
  template <typename Begin>
  Status reachingOn(std::size_t device, std::optional<std::span<const coherence::DeviceRange>> used,
                    Begin begin) {
    if (!separate_) [[likely]]
      return begin();
    const std::lock_guard one(moving_);
    const int number = memory_->numberOf(device);
    GMAC_TRY(used ? strays_.bring(number, *used) : gatherFor(number));
    return begin();
  }
  // Whether there are such devices. Constant.
  bool separate() const noexcept { return separate_; }
  // The object at the address goes to a device because the program says so, between two steps.
  template <typename First, typename Then>
  Status migrating(const void* address, std::size_t device, First first, Then then) {
    std::unique_lock one(moving_, std::defer_lock);
    if (separate_) [[unlikely]] {
      one.lock();
    }
    GMAC_TRY(first());
    if (separate_) [[unlikely]] {
      GMAC_TRY(strays_.migrate(address, memory_->numberOf(device)));
    }
    return then();
  }
  // Calls `work()` while no object moves because of another device.
  template <typename Work>
  auto still(Work work) {
    if (!separate_) [[likely]]
      return work();
    const std::lock_guard one(moving_);
    return work();
  }
  // The program has waited for device work: objects may move to the device that works alone.
  void afterWait() {
    if (due_.load(std::memory_order_relaxed)) [[unlikely]]
      moveDue();
  }
  // Objects leave a device apart, whose context ends, or whose memory is asked for by the
  // application. False: none lies there, or it failed.
  bool leaveApart();
  // The context ends, and all objects have been freed.
  void contextEnds();

 private:
  int deviceOf(accel::NativeStream stream) const {
    return stream == accel::kForeignStream ? groups_.own() : native_->deviceOf(stream);
  }
  // The rest with moving_ held.
  Status gatherFor(int device);
  Status toCpu();
  void toDevice(int device);
  [[gnu::cold, gnu::noinline]] void moveDue();
  std::size_t bytes();
  bool quiet();

  ObjectMutex& mutex_;
  accel::MovableMemory* const memory_;
  accel::NativeStreams* const native_;
  const DeviceGroups groups_;
  Ledger& ledger_;
  FreedMemory& freed_;
  Spilling& spilling_;
  std::mutex moving_;
  GatheringPolicy policy_;  // under moving_
  Strays strays_;           // under moving_
  const bool separate_;
  std::atomic<bool> due_{false};  // objects should move to the device below; written under moving_
  int dueDevice_ = 0;             // under moving_
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_GATHERING_H_
