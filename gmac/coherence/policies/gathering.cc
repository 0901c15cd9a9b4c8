// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/gathering.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "gmac/base/keeping_error.h"
#include "gmac/base/log.h"
#include "gmac/coherence/policies/migration.h"
#include "gmac/observe/stats.h"

namespace gmac {

using Advice = GatheringPolicy::Advice;
using Way = GatheringPolicy::Way;

Gathering::Gathering(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                     ObjectIndex& index, FreedMemory& freed, Migration& migration,
                     Spilling& spilling)
    : mutex_(mutex),
      devices_(accelerator.devices()),
      memory_(accelerator.movableMemory()),
      native_(accelerator.nativeStreams()),
      ledger_(ledger),
      index_(index),
      freed_(freed),
      migration_(migration),
      spilling_(spilling),
      separate_(devices_ != nullptr && memory_ != nullptr && native_ != nullptr &&
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
  switch (policy_.works(*groupOf(device), policy_.place() ? 0 : bytes(), ledger_.times().now())) {
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
  return strays_ ? gatherStrays(device) : Status();
}

Status Gathering::toCpu() {
  const std::size_t all = bytes();
  const auto begun = ledger_.times().now();
  GMAC_TRY(spilling_.gather({accel::Home::kCpu, -1}));
  strays_ = false;
  const auto now = ledger_.times().now();
  policy_.movedToCpu(all, now - begun, now);
  return {};
}

void Gathering::toDevice(int device) {
  const std::size_t all = bytes();
  const auto begun = ledger_.times().now();
  Status moved = roomFor(all, device);
  if (moved.ok()) {
    moved = spilling_.gather({homeOf(groupOf(device)), device});
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
  strays_ = false;
  policy_.movedTo(*groupOf(device), all, now - begun, now);
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

// ---- One by one

Object* Gathering::find(const Spilling::Candidate& candidate) {
  Object* const object = index_.find(candidate.address);
  return object != nullptr && object->number == candidate.number && !object->closing ? object
                                                                                     : nullptr;
}

// (A small object takes as long as its mappings.)
LoneWorker::Nanoseconds Gathering::timeOf(const Object& object) const {
  constexpr LoneWorker::Nanoseconds kLeast = 200'000;
  return std::max(kLeast, policy_.timeOf(object.bytes()));
}

// Of a device that has no context yet nobody knows; the move itself fails then.
Status Gathering::roomFor(std::size_t bytes, int device) const {
  const Result<accel::MemoryRoom> room = memory_->roomOn(device);
  return room.ok() && (room->free < Spilling::kLeftFree || room->free - Spilling::kLeftFree < bytes)
             ? fail(adsmErrorAcceleratorMemory, "it has {} bytes free, and {} are to go there",
                    room->free, bytes)
             : Status();
}

// (Nothing is allocated under the lock. No object comes to be meanwhile.)
std::vector<Spilling::Candidate> Gathering::objectsIn(
    std::span<const coherence::DeviceRange> used) {
  std::vector<Spilling::Candidate> all;
  const auto visit = [&](auto function) {
    const Lock lock(mutex_);
    for (const coherence::DeviceRange& range : used) {
      index_.forEachIn(range.address, std::max<std::size_t>(range.bytes, 1),
                       [&](const Object& object, const auto*, const auto*) {
                         function(object);
                         return true;
                       });
    }
  };
  std::size_t count = 0;
  visit([&](const Object&) { ++count; });
  all.reserve(count);
  visit([&](const Object& object) {
    all.push_back({object.address(), object.bytes(), object.number});
  });
  const auto byNumber = [](const auto& a, const auto& b) { return a.number < b.number; };
  std::sort(all.begin(), all.end(), byNumber);
  all.erase(std::unique(all.begin(), all.end(),
                        [](const auto& a, const auto& b) { return a.number == b.number; }),
            all.end());
  return all;
}

Way Gathering::wayOf(const Spilling::Candidate& candidate, int device) {
  const Lock lock(mutex_);
  Object* const object = find(candidate);
  if (object == nullptr || object->isZeroCopy()) {
    return Way::kStay;
  }
  const Group to = groupOf(device);
  const Group from = groupOf(*object);
  // (What has left a full device comes back as room is made.)
  if (!from && to == policy_.place() && !object->alone) {
    return Way::kStay;
  }
  // (No work has used it, whatever the CPU has written back.)
  if (from != to && ledger_.newestWorkWith(*object) == object->born) {
    return Way::kChange;
  }
  if (!from) {
    policy_.listedWork();
  }
  return GatheringPolicy::wayOf(object->loneWorker, from, *to, timeOf(*object),
                                ledger_.times().now());
}

Status Gathering::bring(int device, std::span<const coherence::DeviceRange> used) {
  for (const Spilling::Candidate& object : objectsIn(used)) {
    if (const Way way = wayOf(object, device); way != Way::kStay) {
      GMAC_TRY(move(object, way, device));
    }
  }
  return {};
}

Status Gathering::move(const Spilling::Candidate& candidate, Way way, int device) {
  if (way == Way::kToCpu) {
    return toCpu(candidate);
  }
  Status moved = roomFor(candidate.bytes, device);
  bool copied = false;
  if (moved.ok()) {
    moved = goTo(candidate, device, &copied);
  }
  if (!moved.ok()) {
    log(LogLevel::kInfo, "object {} ({} bytes) does not go to device {}: {}",
        shown(candidate.address), candidate.bytes, device, lastErrorText());
  }
  {
    const Lock lock(mutex_);
    if (Object* const object = find(candidate)) {
      const auto now = ledger_.times().now();
      moved.ok() ? GatheringPolicy::went(object->loneWorker, way, now)
                 : object->loneWorker.stays(now);
    }
  }
  if (!moved.ok()) {
    // Where every device reaches it, whatever part of it has moved.
    const std::string words = lastErrorText();
    if (toCpu(candidate).ok()) {
      return {};
    }
    recordError(moved.code(), words);
    return moved;
  }
  stats().migrations.add();
  stats().migratedBytes.add(copied ? candidate.bytes : 0);
  return {};
}

Status Gathering::moveTo(const Spilling::Candidate& candidate, std::optional<int> device) {
  const Group group = device ? groupOf(*device) : std::nullopt;
  const bool alone = group != policy_.place();
  const Spilling::Place place{homeOf(group), device.value_or(-1), alone};
  const auto begun = ledger_.times().now();
  GMAC_TRY(spilling_.gatherOne(candidate, place));
  const auto now = ledger_.times().now();
  // (What small objects take tells nothing of large ones.)
  constexpr std::size_t kLarge = std::size_t{8} << 20;
  if (candidate.bytes >= kLarge) {
    policy_.moved(candidate.bytes, now - begun);
  }
  if (alone && !strays_) {
    strayWorker_.leaves(now);
    strays_ = true;
  }
  return {};
}

Status Gathering::toCpu(const Spilling::Candidate& candidate) {
  GMAC_TRY(moveTo(candidate, std::nullopt));
  const Lock lock(mutex_);
  if (Object* const object = find(candidate)) {
    GatheringPolicy::went(object->loneWorker, Way::kToCpu, ledger_.times().now());
  }
  return {};
}

Status Gathering::goTo(const Spilling::Candidate& candidate, int device, bool* copied) {
  {
    const Lock lock(mutex_);
    Object* const object = find(candidate);
    if (object == nullptr) {
      return {};
    }
    // Under the lock, so that nothing is copied there meanwhile.
    if (migration_.unused(*object)) {
      const Group group = groupOf(device);
      const accel::Home home = homeOf(group);
      GMAC_TRY(memory_->moveAlone(object->device, object->bytes(), home, device, /*holds=*/false));
      freed_.moves(*object, home);
      object->homeDevice = devices_->homeOf(object->device);
      object->apartOn = home == accel::Home::kApart ? device : -1;
      object->alone = group != policy_.place();
      object->relocated = true;  // (it is not kept for the next object)
      strays_ |= object->alone;
      log(LogLevel::kInfo, "object {} ({} bytes) is in device {}'s memory now",
          shown(object->address()), object->bytes(), device);
      return {};
    }
  }
  *copied = true;
  return moveTo(candidate, device);
}

Gathering::Strays Gathering::strays(const Group& reached) {
  Strays all;
  std::size_t count = 0;
  {
    const Lock lock(mutex_);
    count = index_.count();
  }
  all.away.reserve(count);
  const Lock lock(mutex_);
  for (const Object& object : index_.all()) {
    if (!object.alone || object.closing) {
      continue;
    }
    all.bytes += object.bytes();
    if (const Group at = groupOf(object); at && at != reached) {
      all.away.push_back({object.address(), object.bytes(), object.number});
    }
  }
  return all;
}

Status Gathering::gatherStrays(int device) {
  const Group group = groupOf(device);
  const Strays all = strays(group);
  strays_ = all.bytes != 0;
  for (const Spilling::Candidate& object : all.away) {
    GMAC_TRY(toCpu(object));
  }
  // The device works with every object, and those that have left its memory are in the CPU's now.
  const auto now = ledger_.times().now();
  if (!strays_ || group != policy_.place() ||
      !strayWorker_.works(*group, policy_.timeOf(all.bytes), now) || !quiet()) {
    return {};
  }
  Status back = roomFor(all.bytes, device);
  if (back.ok()) {
    back = spilling_.gather({homeOf(group), device});
  }
  if (!back.ok()) {
    log(LogLevel::kInfo, "shared objects do not all lie in the memory of device {}: {}", device,
        lastErrorText());
    strayWorker_.stays(now);
    return {};
  }
  strays_ = false;
  strayWorker_.comes(ledger_.times().now());
  return {};
}

Status Gathering::migrate(const void* address, int device) {
  const Group to = groupOf(device);
  Group from;
  Spilling::Candidate candidate;
  {
    const Lock lock(mutex_);
    const Object* const object = index_.find(address);
    if (object == nullptr || object->closing || object->isZeroCopy()) {
      return {};
    }
    from = groupOf(*object);
    // (What has left a full device comes back as room is made.)
    if (from == to || (!from && to == policy_.place() && !object->alone)) {
      return {};
    }
    candidate = {object->address(), object->bytes(), object->number};
  }
  bool copied = false;
  const Status moved = goTo(candidate, device, &copied);
  if (!moved.ok()) {
    return keepingError(moved, [&] {
      // Where every device reaches it, whatever part of it has moved.
      if (!moveTo(candidate, from == GatheringPolicy::kOwn ? accelDevice() : from).ok()) {
        (void)toCpu(candidate);
      }
    });
  }
  {
    const Lock lock(mutex_);
    if (Object* const object = find(candidate)) {
      GatheringPolicy::went(object->loneWorker, Way::kChange, ledger_.times().now());
    }
  }
  stats().migrations.add();
  stats().migratedBytes.add(copied ? candidate.bytes : 0);
  return {};
}

bool Gathering::leaveApart() {
  if (!separate_) {
    return false;
  }
  const std::lock_guard one(moving_);
  due_ = false;
  bool left = memory_->gatheredIn() == accel::Home::kApart && toCpu().ok();
  if (strays_) {
    for (const Spilling::Candidate& object : strays(GatheringPolicy::kOwn).away) {
      left |= toCpu(object).ok();
    }
  }
  return left;
}

void Gathering::contextEnds() {
  if (separate_) {
    const std::lock_guard one(moving_);
    policy_ = GatheringPolicy();
    strayWorker_ = LoneWorker();
    strays_ = due_ = false;
  }
}

}  // namespace gmac
