// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/scheduling.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "gmac/accel/movable_memory.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/gathering_policy.h"
#include "gmac/coherence/policies/migration.h"
#include "gmac/observe/stats.h"

namespace gmac {
namespace {

static_assert(Stats::kMaxDevices == accel::kMaxDevices);

template <typename Rank>
std::size_t least(std::span<const DeviceOffer> offers, Rank rank) {
  return std::min_element(
             offers.begin(), offers.end(),
             [&](const DeviceOffer& a, const DeviceOffer& b) { return rank(a) < rank(b); })
      ->device;
}

// More is better; so the least of what they lack.
auto byData(const DeviceOffer& offer) {
  return std::tuple(~offer.currentBytes, ~offer.homeBytes, offer.inFlight, offer.device);
}

// The bytes of an object that a call uses.
struct Used {
  const Object* object;
  ByteRange bytes;
};

// The bytes that a call uses, none of them twice. (It will complain itself of a use that is in no
// object.) `used` has room for them: nothing is allocated under the lock.
void findUsed(ObjectIndex& index, std::span<const adsmRangeUse_t> uses, std::vector<Used>& used) {
  for (const adsmRangeUse_t& use : uses) {
    if (const Object* const object = index.find(use.address)) {
      const auto begin =
          static_cast<std::size_t>(static_cast<const std::byte*>(use.address) - object->address());
      const std::size_t most = object->bytes() - begin;
      used.push_back({object, use.bytes == 0
                                  ? ByteRange{0, object->bytes()}
                                  : ByteRange{begin, begin + std::min(use.bytes, most)}});
    }
  }
  std::sort(used.begin(), used.end(), [](const Used& a, const Used& b) {
    return std::tuple(a.object, a.bytes.begin, a.bytes.end) <
           std::tuple(b.object, b.bytes.begin, b.bytes.end);
  });
  for (std::size_t i = 1; i < used.size(); ++i) {
    if (used[i].object == used[i - 1].object) {
      used[i].bytes.begin = std::max(used[i].bytes.begin, used[i - 1].bytes.end);
      used[i].bytes.end = std::max(used[i].bytes.begin, used[i].bytes.end);
    }
  }
}

// Adds the call's part of one object to a device's offer. `current` bytes of it are current on the
// accelerators, and no call uses them there from `leaves` on.
void addTo(DeviceOffer& offer, const Object& object, ByteRange part, std::size_t current,
           CallTimes::Nanoseconds leaves) {
  if (object.spread()) {
    std::size_t lacking = 0;
    object.forEachLacking(object.covering(object.address() + part.begin, part.length()),
                          offer.device,
                          [&](ByteRange bytes, std::size_t) { lacking += bytes.length(); });
    lacking = std::min(lacking, current);
    offer.currentBytes += current - lacking;
    offer.homeBytes += current - lacking;
    offer.moveBytes += lacking;
    offer.free = lacking != 0 ? std::max(offer.free, leaves) : offer.free;
  } else if (!object.homes.empty()) {
    std::size_t there = 0;
    for (std::size_t at = part.begin; at < part.end;) {
      const std::size_t page = at / Object::kHomePage;
      const std::size_t end = std::min(part.end, (page + 1) * Object::kHomePage);
      there += object.homes[page] == offer.device ? end - at : 0;
      at = end;
    }
    const std::size_t currentThere = std::min(there, current);
    offer.currentBytes += currentThere;
    offer.homeBytes += there;
    offer.moveBytes += current - currentThere;
  } else if (offer.device == object.homeDevice) {
    offer.currentBytes += current;
    offer.homeBytes += part.length();
  } else {
    offer.moveBytes += current;
    offer.free = std::max(offer.free, leaves);
  }
}

}  // namespace

std::size_t bestByData(std::span<const DeviceOffer> offers) { return least(offers, byData); }

std::size_t bestByHistory(std::span<const DeviceOffer> offers) {
  return least(offers, [](const DeviceOffer& offer) {
    return std::tuple(offer.free + offer.moveTakes + offer.callTakes.value_or(0), offer.moveBytes,
                      offer.inFlight, ~offer.homeBytes, offer.device);
  });
}

Scheduling::Scheduling(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                       ObjectIndex& index, Migration& migration, SchedulingRule rule)
    : mutex_(mutex),
      devices_(accelerator.devices()),
      memory_(accelerator.movableMemory()),
      ledger_(ledger),
      index_(index),
      migration_(migration),
      rule_(devices_ != nullptr ? rule : SchedulingRule::kCurrent) {
  if (rule_ != SchedulingRule::kCurrent) {
    ledger_.times().start(devices_->count());
  }
}

// (What lies in the CPU's memory is near to whose calls have listed it last.)
bool Scheduling::reaches(std::size_t device, const Object& object) const {
  if (devices_->together() == devices_->count() || object.isZeroCopy()) {
    return true;
  }
  const bool own = device < devices_->together();
  // As the loneWorker's devices are numbered (GatheringPolicy::Place).
  const int group = own ? GatheringPolicy::kOwn : memory_->numberOf(device);
  return group == (object.home == accel::Home::kApart ? object.apartOn
                   : object.home == accel::Home::kCpu
                       ? object.loneWorker.worker().value_or(GatheringPolicy::kOwn)
                       : GatheringPolicy::kOwn);
}

std::optional<std::size_t> Scheduling::choose(adsmKernel_t kernel,
                                              std::span<const adsmRangeUse_t> uses,
                                              const DeviceSet& unfit) {
  std::vector<DeviceOffer> offers;
  offers.reserve(devices_->count());
  for (std::size_t device = 0; device < devices_->count(); ++device) {
    if (!unfit.test(device) && devices_->usable(device).ok()) {
      offers.push_back({.device = device});
    }
  }
  if (offers.empty()) {
    return std::nullopt;
  }
  std::vector<Used> used;
  used.reserve(uses.size());
  const Lock lock(mutex_);
  findUsed(index_, uses, used);
  CallTimes& times = ledger_.times();
  const CallTimes::Nanoseconds now = times.now();
  for (DeviceOffer& offer : offers) {
    offer.inFlight = times.inFlight(offer.device);
    if (rule_ == SchedulingRule::kHistory) {
      offer.free = times.endOf(offer.device, now);
      offer.callTakes = times.of(kernel, offer.device);
    }
  }
  for (const Used& each : used) {
    const Object* const object = each.object;
    const ByteRange part = each.bytes;
    if (migration_.unused(*object) || object->striped || part.empty()) {
      continue;  // it goes anywhere
    }
    std::size_t current = part.length();
    object->forEachOnlyOnCpu([&](ByteRange bytes) {
      const std::size_t begin = std::max(bytes.begin, part.begin);
      const std::size_t end = std::min(bytes.end, part.end);
      current -= begin < end ? end - begin : 0;
    });
    CallTimes::Nanoseconds leaves = 0;  // when nothing there uses it any more
    if (rule_ == SchedulingRule::kHistory) {
      for (const accel::Ticket call : ledger_.callsWith(*object, part)) {
        leaves = std::max(leaves, times.endOf(call, now));
      }
    }
    for (DeviceOffer& offer : offers) {
      addTo(offer, *object, part, current, leaves);
      offer.farBytes += reaches(offer.device, *object) ? 0 : part.length();
    }
  }
  const auto isFarther = [](const DeviceOffer& a, const DeviceOffer& b) {
    return a.farBytes < b.farBytes;
  };
  const std::size_t nearest = std::min_element(offers.begin(), offers.end(), isFarther)->farBytes;
  std::erase_if(offers, [&](const DeviceOffer& offer) { return offer.farBytes != nearest; });
  if (rule_ == SchedulingRule::kData) {
    return bestByData(offers);
  }
  for (DeviceOffer& offer : offers) {
    offer.moveTakes = times.ofMove(offer.moveBytes);
  }
  return bestByHistory(offers);
}

}  // namespace gmac
