// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string>

#include "gmac/accel/devices.h"
#include "gmac/base/log.h"
#include "gmac/coherence/launches.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

Placement::Placement(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                     ObjectIndex& index, FreedMemory& freed, Launches& launches)
    : mutex_(mutex),
      accelerator_(accelerator),
      memory_(accelerator.movableMemory()),
      ledger_(ledger),
      index_(index),
      freed_(freed),
      launches_(launches) {}

bool Placement::contradicts(const Wish& wish) const {
  return std::any_of(wishes_.begin(), wishes_.end(), [&](const Wish& old) {
    return old.number == wish.number && old.address < wish.address + wish.bytes &&
           wish.address < old.address + old.bytes;
  });
}

// A newer wish takes the place of those whose bytes it has.
void Placement::remember(const Wish& wish) {
  std::erase_if(wishes_, [&](const Wish& old) {
    return old.number == wish.number && old.address >= wish.address &&
           old.address + old.bytes <= wish.address + wish.bytes;
  });
  if (wishes_.size() == kMostWishes) {
    wishes_.erase(wishes_.begin());
  }
  wishes_.push_back(wish);
  waiting_.store(true, std::memory_order_relaxed);
}

bool Placement::isAtHomeOn(int device, const Object& object, const std::byte* first,
                           std::size_t bytes) const {
  return object.isZeroCopy()
             ? object.allocation().deviceNumber(*memory_) == device
             : memory_->liesOn(object.deviceAt(static_cast<std::size_t>(first - object.address())),
                               bytes, device);
}

bool Placement::hasOneCopy(const Wish& wish) {
  const Object* const object = index_.find(wish.address);
  return object != nullptr && object->isZeroCopy() && wish.address + wish.bytes <= object->end();
}

Status Placement::prefer(const void* address, std::size_t bytes, int device, bool forGood) {
  if (!chooses() || bytes == 0) {
    return {};
  }
  {
    const Lock lock(mutex_);
    index_.forEachIn(address, bytes, [&](Object& object, const auto* first, const auto* last) {
      const auto length = static_cast<std::size_t>(last - first);
      const Wish wish{first, length, object.allocation().number, device};
      const bool chosen =
          forGood || !isAtHomeOn(device, object, first, length) || contradicts(wish);
      for (Object* const each : {&object, &object.allocation()}) {
        each->placed = each->advised = true;
        each->sent |= chosen;
      }
      if (chosen && !object.sharedBySmallObjects) {
        remember(wish);
      }
      return true;
    });
  }
  return fulfil();
}

Status Placement::namedBy(const void* address, int device) {
  {
    const Lock lock(mutex_);
    Object* const object = index_.findAllocation(address);
    if (object == nullptr || object->closing || object->sharedBySmallObjects) {
      return {};
    }
    const bool alone = object->placed;
    if (alone && !worksAlone(*object, device)) {
      return {};
    }
    object->placed = true;
    remember({object->address(), object->bytes(), object->number, device, alone});
  }
  return fulfil();
}

bool Placement::worksAlone(Object& object, int device) {
  const bool stays = object.advised || object.striped || !object.homes.empty() ||
                     object.home != accel::Home::kDevice || object.spilled();
  if (stays || object.pagesOn == device) {
    object.loneWorker.othersWork();
    if (waiting_.load(std::memory_order_relaxed)) {
      std::erase_if(wishes_,
                    [&](const Wish& wish) { return wish.alone && wish.number == object.number; });
      waiting_.store(!wishes_.empty(), std::memory_order_relaxed);
    }
    return false;
  }
  const double move = static_cast<double>(object.bytes()) / bytesPerNanosecond_;
  return object.loneWorker.works(device, static_cast<LoneWorker::Nanoseconds>(move),
                                 ledger_.times().now());
}

void Placement::tell(Object& object, const Wish& wish, bool moved, LoneWorker::Nanoseconds took) {
  const auto now = ledger_.times().now();
  if (!moved) {
    object.loneWorker.stays(now);
    return;
  }
  if (took != 0) {
    bytesPerNanosecond_ = static_cast<double>(wish.bytes) / static_cast<double>(took);
  }
  if (wish.alone) {
    object.loneWorker.leaves(now);
    object.loneWorker.comes(now);
  }
  if (wish.bytes == object.bytes()) {
    object.pagesOn = wish.device;
  }
}

Object* Placement::objectOf(const Wish& wish) {
  Object* const object = index_.findAllocation(wish.address);
  return object != nullptr && object->number == wish.number && !object->closing ? object : nullptr;
}

Status Placement::fulfil() {
  for (;;) {
    Wish wish{};
    {
      const Lock lock(mutex_);
      const auto next = std::find_if(wishes_.begin(), wishes_.end(), [&](const Wish& each) {
        return objectOf(each) == nullptr || !hasOneCopy(each);
      });
      if (next == wishes_.end() || !ledger_.quiet()) {
        return {};
      }
      wish = *next;
      wishes_.erase(next);
      waiting_.store(!wishes_.empty(), std::memory_order_relaxed);
    }
    GMAC_TRY(move(wish));
  }
}

// To everybody else a move is device work that writes the object: blocks are closed, accesses of
// the CPU wait for its end, and so do calls and the object's end.
Status Placement::move(const Wish& wish) {
  accel::DeviceAddress device{};
  {
    const Lock lock(mutex_);
    Object* const object = objectOf(wish);
    if (object == nullptr) {
      return {};
    }
    if (object->home != accel::Home::kDevice) {
      // It goes there once there is room.
      freed_.moves(*object, object->home, wish.device);
      return {};
    }
    device = object->deviceAt(static_cast<std::size_t>(wish.address - object->address()));
    if (memory_->liesOn(device, wish.bytes, wish.device)) {
      tell(*object, wish, true, 0);
      return {};
    }
  }
  const TraceSpan span("memory", "place", {"bytes", wish.bytes});
  const coherence::DeviceRange range{wish.address, wish.bytes, true};
  const std::span<const coherence::DeviceRange> ranges(&range, 1);
  GMAC_TRY(launches_.beginOwnWork(ranges, wish.address));
  Status moved;
  LoneWorker::Nanoseconds took = 0;
  accel::Ticket flushes;
  {
    const Lock lock(mutex_);
    const Object* const object = objectOf(wish);
    flushes = object == nullptr ? accel::Ticket() : object->flushed(object->all());
    moved = object == nullptr ? fail(adsmErrorInvalidPointer, "it has been freed") : Status();
  }
  if (moved.ok()) {
    // An error of a copy is told to whoever needs its bytes.
    (void)accelerator_.wait(flushes);
    const auto begun = ledger_.times().now();
    moved = memory_->moveTo(device, wish.bytes, wish.device);
    took = ledger_.times().now() - begun;
  }
  const std::string words = moved.ok() ? "" : lastErrorText();
  {
    const Lock lock(mutex_);
    if (Object* const object = objectOf(wish)) {
      tell(*object, wish, moved.ok(), took);
    }
  }
  if (moved.ok()) {
    {
      const Lock lock(mutex_);
      if (Object* const object = index_.findAllocation(wish.address)) {
        object->relocated = true;
        freed_.moves(*object, object->home);
        if (accel::Devices* const devices = accelerator_.devices()) {
          object->homeDevice = devices->homeOf(object->device);
        }
      }
    }
    stats().migrations.add();
    stats().migratedBytes.add(wish.bytes);
    log(LogLevel::kInfo, "{} bytes at {} are on device {} now", wish.bytes, shown(wish.address),
        wish.device);
  } else {
    // The device reaches them where they are.
    log(LogLevel::kInfo, "{} bytes at {} stay where they are: {}", wish.bytes, shown(wish.address),
        words);
  }
  return launches_.endOwnWork(ranges, accel::Ticket{});
}

}  // namespace gmac
