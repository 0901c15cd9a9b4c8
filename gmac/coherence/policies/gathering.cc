// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/gathering.h"

#include <fmt/core.h>

#include <string>

#include "gmac/base/log.h"
#include "gmac/coherence/policies/spilling.h"

namespace gmac {

using Advice = GatheringPolicy::Advice;

Gathering::Gathering(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                     FreedMemory& freed, Spilling& spilling)
    : mutex_(mutex),
      memory_(accelerator.movableMemory()),
      native_(accelerator.nativeStreams()),
      ledger_(ledger),
      freed_(freed),
      spilling_(spilling),
      separate_(memory_ != nullptr && native_ != nullptr && memory_->separateDevices()) {}

std::size_t Gathering::bytes() {
  const Lock lock(mutex_);
  return freed_.livingBytes();
}

bool Gathering::quiet() {
  const Lock lock(mutex_);
  return ledger_.quiet();
}

Status Gathering::gatherFor(int device) {
  const int group = memory_->reachesOwn(device) ? GatheringPolicy::kOwn : device;
  due_ = false;
  switch (policy_.works(group, policy_.place() ? 0 : bytes(), ledger_.times().now())) {
    case Advice::kToCpu: {
      const auto before = policy_.place();
      GMAC_TRY(toCpu());
      log(LogLevel::kInfo,
          "device {} does not reach the memory of {}: shared objects lie in the CPU's memory now",
          device,
          *before == GatheringPolicy::kOwn ? fmt::format("device {}", accelDevice())
                                           : fmt::format("device {}", *before));
      break;
    }
    case Advice::kToDevice:
      // Nobody waits for a kernel, which might itself wait for what the program does next.
      if (quiet()) {
        toDevice(device);
      } else {
        dueDevice_ = device;
        due_ = true;
      }
      break;
    case Advice::kStay:
      break;
  }
  return {};
}

Status Gathering::toCpu() {
  const std::size_t all = bytes();
  const auto begun = ledger_.times().now();
  GMAC_TRY(spilling_.gather({accel::Home::kCpu, -1}));
  const auto now = ledger_.times().now();
  policy_.movedToCpu(all, now - begun, now);
  return {};
}

void Gathering::toDevice(int device) {
  const bool own = memory_->reachesOwn(device);
  const std::size_t all = bytes();
  const auto begun = ledger_.times().now();
  const Result<accel::MemoryRoom> room = memory_->roomOn(device);
  Status moved = room.status();
  if (room.ok() && (room->free < Spilling::kLeftFree || room->free - Spilling::kLeftFree < all)) {
    moved = fail(adsmErrorAcceleratorMemory, "it has {} bytes free, and objects have {}",
                 room->free, all);
  }
  if (moved.ok()) {
    moved = spilling_.gather({own ? accel::Home::kDevice : accel::Home::kApart, device});
  }
  const auto now = ledger_.times().now();
  if (!moved.ok()) {
    log(LogLevel::kInfo, "shared objects stay in the CPU's memory, not that of device {}: {}",
        device, lastErrorText());
    // The device reaches what it has of them, and the rest: a failure here loses nothing.
    if (memory_->gatheredIn() == accel::Home::kCpu ||
        spilling_.gather({accel::Home::kCpu, -1}).ok()) {
      policy_.stays(now);
      return;
    }
  }
  policy_.movedTo(own ? GatheringPolicy::kOwn : device, all, now - begun, now);
  log(LogLevel::kInfo, "shared objects lie in the memory of device {} now, which works alone",
      device);
}

void Gathering::moveDue() {
  const std::unique_lock one(moving_, std::try_to_lock);
  if (one.owns_lock() && due_ && quiet()) {
    due_ = false;
    toDevice(dueDevice_);
  }
}

bool Gathering::leaveApart() {
  if (!separate_) {
    return false;
  }
  const std::lock_guard one(moving_);
  due_ = false;
  return memory_->gatheredIn() == accel::Home::kApart && toCpu().ok();
}

void Gathering::contextEnds() {
  if (separate_) {
    const std::lock_guard one(moving_);
    policy_ = GatheringPolicy();
    due_ = false;
  }
}

}  // namespace gmac
