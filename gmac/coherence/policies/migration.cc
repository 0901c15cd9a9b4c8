// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/migration.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gmac/base/log.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

Status Migration::call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                       const std::optional<CallUses>& uses, std::size_t device, bool makesRoom) {
  std::unique_lock moving(moving_, std::defer_lock);
  for (;;) {
    Away away;
    GMAC_TRY(launches_.call(kernel, shape, args, uses, device, &away));
    if (away.address == nullptr) {
      return {};
    }
    if (!moving.owns_lock()) {
      moving.lock();
      continue;  // perhaps another thread has moved it meanwhile
    }
    const UsedObjects used(index_, ledger_, devices_, kernel, uses, device);
    const auto isUsed = [&](const Object& object) {
      return used.any([&](const Object& one, BlockRange, unsigned) { return &one == &object; });
    };
    const Status moved = makesRoom ? moveInPlaceOfOthers(away, device, isUsed) : move(away, device);
    if (!moved.ok()) {
      if (!devices_->reachEachOther()) {
        return moved;
      }
      stay(away);
    }
  }
}

// The device reaches it where it is.
void Migration::stay(const Away& away) {
  const std::string words = lastErrorText();
  log(LogLevel::kInfo, "object {} ({} bytes) stays where it is: {}", shown(away.address),
      away.bytes, words);
  const Lock lock(mutex_);
  Object* const object = index_.findAllocation(away.address);
  if (object != nullptr && object->number == away.number) {
    object->placed = true;
  }
}

Away Migration::awayFrom(std::size_t device, std::span<const coherence::DeviceRange> ranges,
                         accel::NativeStream stream) {
  const Lock lock(mutex_);
  Away away;
  const auto look = [&](const Object& object) {
    if ((object.homeDevice != device || object.spread() || object.striped ||
         !object.homes.empty()) &&
        !object.closing) {
      away = {object.address(), object.bytes(), object.number};
    }
    return away.address == nullptr;
  };
  for (const coherence::DeviceRange& range : ranges) {
    if (range.address != nullptr) {
      index_.forEachIn(range.address, range.bytes, [&](Object& object, const auto*, const auto*) {
        return look(object.allocation());
      });
      continue;
    }
    for (const Object& object : index_.all()) {
      if (object.usedBy(stream) && !look(object)) {
        break;
      }
    }
  }
  return away;
}

Status Migration::advise(const void* address, std::size_t bytes) {
  const Lock lock(mutex_);
  Object* const object = index_.findAllocation(address);
  if (object == nullptr || object->closing) {
    return fail(adsmErrorInvalidPointer, "adsmMigrate: {} is in no shared object", address);
  }
  const auto rest =
      static_cast<std::size_t>(object->end() - static_cast<const std::byte*>(address));
  if (bytes == 0 || bytes > rest) {
    return fail(adsmErrorInvalidValue,
                "adsmMigrate({}): {} bytes; allowed are 1 to {}, which end with the object",
                address, bytes, rest);
  }
  object->advised = object->sent = true;
  return {};
}

Status Migration::migrate(const void* address, std::size_t bytes, std::size_t device) {
  {
    const Lock lock(mutex_);
    const Object* const object = index_.findAllocation(address);
    if (object != nullptr && object->home == accel::Home::kCpu) {
      return fail(
          adsmErrorAcceleratorMemory,
          "adsmMigrate({}): the object lies in the CPU's memory, as the devices' is full, or "
          "not reached by another one that works",
          address);
    }
  }
  if (devices_ == nullptr) {
    return {};
  }
  const coherence::DeviceRange range{address, bytes, true};
  const std::lock_guard moving(moving_);
  const Away away = awayFrom(device, {&range, 1});
  return away.address == nullptr ? Status() : move(away, device);
}

template <typename Begin>
Status Migration::beginOnFirst(std::span<const coherence::DeviceRange> ranges,
                               accel::NativeStream stream, Begin begin) {
  if (devices_ == nullptr || devices_->reachEachOther()) {
    return begin();
  }
  const std::lock_guard moving(moving_);
  const auto isUsed = [&](const Object& object) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const coherence::DeviceRange& range) {
      const auto* const begin = static_cast<const std::byte*>(range.address);
      return begin == nullptr ? object.usedBy(stream)
                              : begin < object.end() && begin + range.bytes > object.address();
    });
  };
  for (Away away = awayFrom(0, ranges, stream); away.address != nullptr;
       away = awayFrom(0, ranges, stream)) {
    GMAC_TRY(moveInPlaceOfOthers(away, 0, isUsed));
  }
  // Nothing moves but under the mutex: it is where it was until the work is noted.
  return begin();
}

Status Migration::beginOwnWork(std::span<const coherence::DeviceRange> ranges) {
  return beginOnFirst(ranges, {}, [&] { return launches_.beginOwnWork(ranges); });
}

Status Migration::beginDeviceWork(accel::NativeStream stream,
                                  std::span<const coherence::DeviceRange> ranges) {
  return beginOnFirst(ranges, stream, [&] { return launches_.beginDeviceWork(stream, ranges); });
}

Status Migration::move(const Away& away, std::size_t device) {
  const Status moved = moveOnce(away, device);
  return moved.code() == adsmErrorAcceleratorMemory && freed_.giveBackAll() ? moveOnce(away, device)
                                                                            : moved;
}

template <typename Uses>
Status Migration::moveInPlaceOfOthers(const Away& away, std::size_t device, Uses uses) {
  Status moved = move(away, device);
  const auto isFull = [&] { return moved.code() == adsmErrorAcceleratorMemory; };
  if (!isFull() || devices_->reachEachOther()) {
    return moved;
  }
  const std::string words = lastErrorText();
  for (const Away& other : room_.leaving(device, uses)) {
    if (letLeave(other, device)) {
      moved = moveOnce(away, device);
      if (!isFull()) {
        return moved;
      }
    }
  }
  recordError(adsmErrorAcceleratorMemory, words);
  return moved;
}

bool Migration::makeRoom() {
  if (devices_ == nullptr || devices_->reachEachOther()) {
    return false;
  }
  const std::lock_guard moving(moving_);
  const std::vector<Away> objects = room_.leaving(0, [](const Object&) { return false; });
  return std::any_of(objects.begin(), objects.end(),
                     [&](const Away& object) { return letLeave(object, 0); });
}

bool Migration::letLeave(const Away& object, std::size_t device) {
  const std::vector<std::size_t> places = room_.placesFor(object.bytes, device);
  const bool left = std::any_of(places.begin(), places.end(),
                                [&](std::size_t place) { return moveOnce(object, place).ok(); });
  if (left) {
    stats().peerSpills.add();
    stats().peerSpilledBytes.add(object.bytes);
    log(LogLevel::kInfo, "object {} ({} bytes) has left device {}, whose memory is full",
        shown(object.address), object.bytes, device);
  }
  return left;
}

// Under the lock, so that nothing is copied there meanwhile.
Result<bool> Migration::place(const Away& away, std::size_t device) {
  const Lock lock(mutex_);
  Object* const object = index_.findAllocation(away.address);
  if (object == nullptr || object->number != away.number || object->closing || !unused(*object)) {
    return false;
  }
  GMAC_TRY(devices_->place(object->device, object->bytes(), device));
  blocks_.moved(*object, device);
  tell(*object);
  return true;
}

void Migration::tell(const Object& object) {
  stats().migrations.add();
  log(LogLevel::kInfo, "object {} ({} bytes) is on device {} now", shown(object.address()),
      object.bytes(), object.homeDevice);
}

// While one is under way the thread submits device work, as far as others know: calls wait for its
// end, and so do accesses of the CPU that need the device's copy, and the object's end. What the
// CPU has open stays open: blocks keep their states, and what is current on the CPU alone goes to
// the new home when a call needs it there.
Status Migration::moveOnce(const Away& away, std::size_t device) {
  if (!devices_->reachEachOther() && away.part.empty()) {
    const auto placed = place(away, device);
    if (!placed.ok() || *placed) {
      return placed.status();
    }
  }
  const bool part = !away.part.empty();
  const TraceSpan span("memory", part ? "gather" : "migrate",
                       {"bytes", part ? away.part.length() : away.bytes});
  GMAC_TRY(launches_.beginOwnWork({}, away.address));
  const Status moved = !part                        ? relocate(away, device)
                       : devices_->reachEachOther() ? settlePart(away, device)
                                                    : gather(away, device);
  const std::string words = moved.ok() ? "" : lastErrorText();
  const Status ended = launches_.endOwnWork({}, accel::Ticket{});
  if (!moved.ok()) {
    recordError(moved.code(), words);
    return moved;
  }
  return ended;
}

template <typename Calls>
Object* Migration::settled(Lock& lock, const Away& away, Calls calls) {
  const auto find = [&]() -> Object* {
    Object* const object = index_.findAllocation(away.address);
    return object == nullptr || object->number != away.number || object->closing ? nullptr : object;
  };
  Object* object = find();
  if (object == nullptr) {
    return nullptr;
  }
  // A device that is lost says so when the pages move.
  waits_.forCalls(lock, calls(*object));
  for (NewestCalls awaited; (object = find()) != nullptr;) {
    if (object->inTransit()) {
      lock.waitForTransit();
    } else if (const auto flushed = blocks_.flushesOf(*object, object->all()); flushed != awaited) {
      const Free free(lock);
      for (const accel::Ticket flush : flushed) {
        (void)waits_.await(free, flush);
      }
      awaited = flushed;
    } else {
      break;
    }
  }
  return object;
}

// Copies what a device lacks of some blocks, which no copy names, nor any kernel that writes them
// or uses them there.
Status Migration::complete(Lock& lock, Object& object, BlockRange range, std::size_t device) {
  std::vector<accel::PlacedPart> parts;
  std::size_t carried = 0;
  object.forEachLacking(range, device, [&](ByteRange bytes, std::size_t source) {
    parts.push_back({{bytes.begin, bytes.length()}, source});
    carried += bytes.length();
  });
  const CallTimes::Nanoseconds begun = ledger_.times().now();
  object.moving = true;
  const Status copied = [&] {
    const FreeForWork free(lock);
    return devices_->addCopy(object.device, object.bytes(), device, parts);
  }();
  object.moving = false;
  lock.changed();
  GMAC_TRY(copied);
  if (carried != 0) {
    ledger_.times().moved(carried, ledger_.times().now() - begun);
  }
  Blocks::added(object, range, device);
  stats().migratedBytes.add(carried);
  return {};
}

// A device gets a part of the object, as current as the others have it, and may have less of the
// rest. What other devices only read of it they go on reading: their copies stay.
Status Migration::gather(const Away& away, std::size_t device) {
  const Walk walk(blocks_);
  Lock lock(mutex_);
  Object* const object = settled(lock, away, [&](const Object& found) {
    Tickets calls = ledger_.writersOf(found, away.part);
    calls.add(ledger_.readersOf(found, away.part)[device]);
    return calls;
  });
  if (object == nullptr) {
    return {};
  }
  if (!object->spread()) {
    Blocks::spread(*object, unused(*object));
    object->relocated = true;  // (it is not kept for the next object)
  }
  const BlockRange range{BlockIndex{away.part.begin / object->blockBytes},
                         object->indexAt(away.part.end)};
  return complete(lock, *object, range, device);
}

// Pages of an object get their home, for good. (Pages beside them may be made anew for that, so all
// calls that use the object are waited for.)
Status Migration::settlePart(const Away& away, std::size_t device) {
  const Walk walk(blocks_);
  Lock lock(mutex_);
  Object* const object =
      settled(lock, away, [&](const Object& found) { return ledger_.callsWith(found); });
  if (object == nullptr) {
    return {};
  }
  if (object->homes.empty()) {
    object->homes.assign((object->bytes() + Object::kHomePage - 1) / Object::kHomePage,
                         Object::kNotChosen);
  }
  // Runs of pages without a home: others may lie between them.
  for (std::size_t at = away.part.begin; at < away.part.end;) {
    const auto chosen = [&](std::size_t page) {
      return object->homes[page / Object::kHomePage] != Object::kNotChosen;
    };
    if (chosen(at)) {
      at += Object::kHomePage;
      continue;
    }
    std::size_t end = at;
    while (end < away.part.end && !chosen(end)) {
      end += Object::kHomePage;
    }
    const std::size_t length = std::min(end, away.part.end) - at;
    object->moving = true;
    const Status moved = [&] {
      const FreeForWork free(lock);
      return devices_->move(object->deviceAt(at), length, device, {});
    }();
    object->moving = false;
    lock.changed();
    GMAC_TRY(moved);
    for (std::size_t page = at; page < at + length; page += Object::kHomePage) {
      object->homes[page / Object::kHomePage] = static_cast<std::uint8_t>(device);
    }
    object->relocated = true;
    stats().migrations.add();
    stats().migratedBytes.add(length);
    log(LogLevel::kInfo, "{} bytes at {} are on device {} now", length,
        shown(object->address() + at), device);
    at += length;
  }
  object->homeDevice = devices_->homeOf(object->device);
  freed_.moves(*object, object->home);
  return {};
}

// All of it goes to one device, and the other copies go.
Status Migration::unite(Lock& lock, Object& object, std::size_t device) {
  GMAC_TRY(complete(lock, object, object.all(), device));
  devices_->dropOtherCopies(object.device, device);
  Blocks::moved(object, device);
  object.hasMoved = true;
  tell(object);
  return {};
}

Status Migration::relocate(const Away& away, std::size_t device) {
  const Walk walk(blocks_);
  Lock lock(mutex_);
  Object* const object =
      settled(lock, away, [&](const Object& found) { return ledger_.callsWith(found); });
  if (object == nullptr) {
    return {};
  }
  if (object->spread()) {
    return unite(lock, *object, device);
  }
  std::vector<accel::Part> parts;
  std::size_t carried = 0;
  const auto add = [&](std::size_t begin, std::size_t end) {
    if (begin < end) {
      parts.push_back({begin, end - begin});
      carried += end - begin;
    }
  };
  std::size_t begin = 0;
  object->forEachOnlyOnCpu([&](ByteRange bytes) {
    add(begin, bytes.begin);
    begin = bytes.end;
  });
  add(begin, object->bytes());
  const CallTimes::Nanoseconds begun = ledger_.times().now();
  object->moving = true;
  const Status moved = [&] {
    const FreeForWork free(lock);
    return devices_->move(object->device, object->bytes(), device, parts);
  }();
  object->moving = false;
  lock.changed();
  GMAC_TRY(moved);
  if (carried != 0) {
    ledger_.times().moved(carried, ledger_.times().now() - begun);
  }
  blocks_.moved(*object, device);
  object->hasMoved = true;
  // (What lies elsewhere than new memory does is not kept for the next object.)
  object->relocated = devices_->reachEachOther();
  object->striped = false;
  object->homes.clear();
  freed_.moves(*object, object->home);
  stats().migratedBytes.add(carried);
  tell(*object);
  return {};
}

}  // namespace gmac
