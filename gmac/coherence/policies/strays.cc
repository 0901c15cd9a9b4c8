// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/strays.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "gmac/base/keeping_error.h"
#include "gmac/base/log.h"
#include "gmac/coherence/policies/migration.h"
#include "gmac/observe/stats.h"

namespace gmac {

using Way = GatheringPolicy::Way;

Object* Strays::find(const Spilling::Candidate& candidate) {
  Object* const object = index_.findAllocation(candidate.address);
  return object != nullptr && object->number == candidate.number && !object->closing ? object
                                                                                     : nullptr;
}

// (A small object takes as long as its mappings.)
LoneWorker::Nanoseconds Strays::timeOf(const Object& object) const {
  constexpr LoneWorker::Nanoseconds kLeast = 200'000;
  return std::max(kLeast, policy_.timeOf(object.bytes()));
}

// (Nothing is allocated under the lock. No object comes to be meanwhile. Every device reaches a
// page with one copy.)
std::vector<Spilling::Candidate> Strays::objectsIn(std::span<const coherence::DeviceRange> used) {
  std::vector<Spilling::Candidate> all;
  const auto visit = [&](auto function) {
    const Lock lock(mutex_);
    for (const coherence::DeviceRange& range : used) {
      if (range.bytes == 0) {
        if (const Object* const object = index_.findAllocation(range.address)) {
          function(*object);
        }
        continue;
      }
      index_.forEachIn(range.address, range.bytes,
                       [&](const Object& object, const auto*, const auto*) {
                         if (object.whole == nullptr) {
                           function(object);
                         }
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

Way Strays::wayOf(const Spilling::Candidate& candidate, int device) {
  const Lock lock(mutex_);
  Object* const object = find(candidate);
  if (object == nullptr || object->isZeroCopy()) {
    return Way::kStay;
  }
  const Group to = groups_.of(device);
  const Group from = DeviceGroups::of(*object);
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

Status Strays::bring(int device, std::span<const coherence::DeviceRange> used) {
  for (const Spilling::Candidate& object : objectsIn(used)) {
    if (const Way way = wayOf(object, device); way != Way::kStay) {
      GMAC_TRY(move(object, way, device));
    }
  }
  return {};
}

Status Strays::move(const Spilling::Candidate& candidate, Way way, int device) {
  if (way == Way::kToCpu) {
    return toCpu(candidate);
  }
  Status moved = groups_.roomFor(candidate.bytes, device);
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

Status Strays::moveTo(const Spilling::Candidate& candidate, std::optional<int> device) {
  const Group group = device ? groups_.of(*device) : std::nullopt;
  const bool alone = group != policy_.place();
  const Spilling::Place place{DeviceGroups::homeOf(group), device.value_or(-1), alone};
  const auto begun = ledger_.times().now();
  GMAC_TRY(spilling_.gatherOne(candidate, place));
  const auto now = ledger_.times().now();
  // (What small objects take tells nothing of large ones.)
  constexpr std::size_t kLarge = std::size_t{8} << 20;
  if (candidate.bytes >= kLarge) {
    policy_.moved(candidate.bytes, now - begun);
  }
  if (alone && !any_) {
    worker_.leaves(now);
    any_ = true;
  }
  return {};
}

Status Strays::toCpu(const Spilling::Candidate& candidate) {
  GMAC_TRY(moveTo(candidate, std::nullopt));
  const Lock lock(mutex_);
  if (Object* const object = find(candidate)) {
    GatheringPolicy::went(object->loneWorker, Way::kToCpu, ledger_.times().now());
  }
  return {};
}

Status Strays::goTo(const Spilling::Candidate& candidate, int device, bool* copied) {
  {
    const Lock lock(mutex_);
    Object* const object = find(candidate);
    if (object == nullptr) {
      return {};
    }
    // Under the lock, so that nothing is copied there meanwhile.
    if (migration_.unused(*object)) {
      const Group group = groups_.of(device);
      const accel::Home home = DeviceGroups::homeOf(group);
      GMAC_TRY(memory_->moveAlone(object->device, object->bytes(), home, device, /*holds=*/false));
      freed_.moves(*object, home);
      object->homeDevice = devices_->homeOf(object->device);
      object->apartOn = home == accel::Home::kApart ? device : -1;
      object->alone = group != policy_.place();
      object->relocated = true;  // (it is not kept for the next object)
      any_ |= object->alone;
      log(LogLevel::kInfo, "object {} ({} bytes) is in device {}'s memory now",
          shown(object->address()), object->bytes(), device);
      return {};
    }
  }
  *copied = true;
  return moveTo(candidate, device);
}

Strays::Found Strays::all(const Group& reached) {
  Found found;
  std::size_t count = 0;
  {
    const Lock lock(mutex_);
    count = index_.count();
  }
  found.away.reserve(count);
  const Lock lock(mutex_);
  for (const Object& object : index_.all()) {
    if (!object.alone || object.closing) {
      continue;
    }
    found.bytes += object.bytes();
    if (const Group at = DeviceGroups::of(object); at && at != reached) {
      found.away.push_back({object.address(), object.bytes(), object.number});
    }
  }
  return found;
}

bool Strays::quiet() {
  const Lock lock(mutex_);
  return ledger_.quiet();
}

Status Strays::gatherAll(int device) {
  const Group group = groups_.of(device);
  const Found found = all(group);
  any_ = found.bytes != 0;
  for (const Spilling::Candidate& object : found.away) {
    GMAC_TRY(toCpu(object));
  }
  // The device works with every object, and those that have left its memory are in the CPU's now.
  const auto now = ledger_.times().now();
  if (!any_ || group != policy_.place() ||
      !worker_.works(*group, policy_.timeOf(found.bytes), now) || !quiet()) {
    return {};
  }
  Status back = groups_.roomFor(found.bytes, device);
  if (back.ok()) {
    back = spilling_.gather({DeviceGroups::homeOf(group), device});
  }
  if (!back.ok()) {
    log(LogLevel::kInfo, "shared objects do not all lie in the memory of device {}: {}", device,
        lastErrorText());
    worker_.stays(now);
    return {};
  }
  any_ = false;
  worker_.comes(ledger_.times().now());
  return {};
}

Status Strays::migrate(const void* address, int device) {
  const Group to = groups_.of(device);
  Group from;
  Spilling::Candidate candidate;
  {
    const Lock lock(mutex_);
    const Object* const object = index_.findAllocation(address);
    if (object == nullptr || object->closing || object->isZeroCopy()) {
      return {};
    }
    from = DeviceGroups::of(*object);
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
      if (!moveTo(candidate, from == GatheringPolicy::kOwn ? groups_.own() : from).ok()) {
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

bool Strays::leaveApart() {
  bool left = false;
  if (any_) {
    for (const Spilling::Candidate& object : all(GatheringPolicy::kOwn).away) {
      left |= toCpu(object).ok();
    }
  }
  return left;
}

}  // namespace gmac
