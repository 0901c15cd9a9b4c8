// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/gathering.h"

#include <fmt/core.h>

#include "gmac/base/log.h"
#include "gmac/observe/stats.h"

namespace gmac {

using Advice = GatheringPolicy::Advice;

Gathering::Gathering(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                     ObjectIndex& index, FreedMemory& freed, Migration& migration,
                     Spilling& spilling)
    : mutex_(mutex),
      memory_(accelerator.movableMemory()),
      native_(accelerator.nativeStreams()),
      groups_(memory_),
      ledger_(ledger),
      freed_(freed),
      spilling_(spilling),
      strays_(mutex, accelerator, ledger, index, freed, migration, spilling, policy_),
      separate_(accelerator.devices() != nullptr && memory_ != nullptr && native_ != nullptr &&
                memory_->separateDevices()) {}

std::size_t Gathering::bytes() {
  const Lock lock(mutex_);
  return freed_.livingBytes();
}

bool Gathering::quiet() {
  const Lock lock(mutex_);
  return ledger_.quiet();
}

Status Gathering::gatherFor(int device) {
  due_ = false;
  switch (
      policy_.works(*groups_.of(device), policy_.place() ? 0 : bytes(), ledger_.times().now())) {
    case Advice::kToCpu: {
      const auto before = policy_.place();
      GMAC_TRY(toCpu());
      log(LogLevel::kInfo,
          "device {} does not reach the memory of {}: shared objects lie in the CPU's memory now",
          device,
          *before == GatheringPolicy::kOwn ? fmt::format("device {}", groups_.own())
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
  return strays_.gather(device);
}

Status Gathering::toCpu() {
  const std::size_t all = bytes();
  const auto begun = ledger_.times().now();
  GMAC_TRY(spilling_.gather({accel::Home::kCpu, -1}));
  strays_.gathered();
  const auto now = ledger_.times().now();
  policy_.movedToCpu(all, now - begun, now);
  return {};
}

void Gathering::toDevice(int device) {
  const std::size_t all = bytes();
  const auto begun = ledger_.times().now();
  Status moved = groups_.roomFor(all, device);
  if (moved.ok()) {
    moved = spilling_.gather({DeviceGroups::homeOf(groups_.of(device)), device});
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
  strays_.gathered();
  policy_.movedTo(*groups_.of(device), all, now - begun, now);
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
  const bool all = memory_->gatheredIn() == accel::Home::kApart && toCpu().ok();
  const bool some = strays_.leaveApart();
  return all || some;
}

void Gathering::contextEnds() {
  if (separate_) {
    const std::lock_guard one(moving_);
    policy_ = GatheringPolicy();
    strays_.forget();
    due_ = false;
  }
}

}  // namespace gmac
