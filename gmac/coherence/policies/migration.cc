// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/migration.h"

#include <fmt/format.h>

#include <string>

#include "gmac/base/log.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

Status Migration::call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                       std::optional<std::span<const adsmUse_t>> uses, std::size_t device) {
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
    GMAC_TRY(move(away, device));
  }
}

Away Migration::awayFrom(std::size_t device, std::span<const coherence::DeviceRange> ranges) {
  const Lock lock(mutex_);
  Away away;
  for (const coherence::DeviceRange& range : ranges) {
    index_.forEachIn(range.address, range.bytes, [&](Object& object, const auto*, const auto*) {
      if (object.homeDevice != device && !object.closing) {
        away = {object.address(), object.bytes(), object.number};
      }
      return away.address == nullptr;
    });
  }
  return away;
}

Status Migration::migrate(const void* address, std::size_t bytes, std::size_t device) {
  {
    const Lock lock(mutex_);
    const Object* const object = index_.find(address);
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
  }
  if (devices_ == nullptr) {
    return {};
  }
  const coherence::DeviceRange range{address, bytes, true};
  const std::lock_guard moving(moving_);
  const Away away = awayFrom(device, {&range, 1});
  return away.address == nullptr ? Status() : move(away, device);
}

Status Migration::beginOwnWork(std::span<const coherence::DeviceRange> ranges) {
  if (devices_ == nullptr) {
    return launches_.beginOwnWork(ranges);
  }
  const std::lock_guard moving(moving_);
  for (Away away = awayFrom(0, ranges); away.address != nullptr; away = awayFrom(0, ranges)) {
    GMAC_TRY(move(away, 0));
  }
  // Nothing moves but under the mutex: it is where it was until the work is noted.
  return launches_.beginOwnWork(ranges);
}

Status Migration::move(const Away& away, std::size_t device) {
  const Status moved = moveOnce(away, device);
  return moved.code() == adsmErrorAcceleratorMemory && freed_.giveBackAll() ? moveOnce(away, device)
                                                                            : moved;
}

// Under the lock, so that nothing is copied there meanwhile.
Result<bool> Migration::place(const Away& away, std::size_t device) {
  const Lock lock(mutex_);
  Object* const object = index_.find(away.address);
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
  log(LogLevel::kInfo, "object {} ({} bytes) is on device {} now", fmt::ptr(object.address()),
      object.bytes(), object.homeDevice);
}

// To everybody else a move is device work that writes the object: blocks are closed, accesses of
// the CPU wait for its end, and so do calls and the object's end.
Status Migration::moveOnce(const Away& away, std::size_t device) {
  const auto placed = place(away, device);
  if (!placed.ok() || *placed) {
    return placed.status();
  }
  const TraceSpan span("memory", "migrate", {"bytes", away.bytes});
  const coherence::DeviceRange range{away.address, away.bytes, true};
  const std::span<const coherence::DeviceRange> ranges(&range, 1);
  GMAC_TRY(launches_.beginOwnWork(ranges));
  const auto moved = [&]() -> Status {
    Object* object = nullptr;
    {
      Lock lock(mutex_);
      object = index_.find(away.address);
      if (object == nullptr || object->number != away.number || object->closing) {
        return {};  // it has been freed
      }
      const accel::Ticket flushes = object->flushed(object->all());
      // A device that is lost says so when the pages move.
      waits_.forCalls(lock, ledger_.callsWith(*object));
      const Free free(lock);
      (void)waits_.await(free, flushes);
    }
    const CallTimes::Nanoseconds begun = ledger_.times().now();
    GMAC_TRY(devices_->move(object->device, object->bytes(), device));
    const Lock lock(mutex_);
    ledger_.times().moved(away.bytes, ledger_.times().now() - begun);
    blocks_.moved(*object, device);
    object->hasMoved = true;
    stats().migratedBytes.add(away.bytes);
    tell(*object);
    return {};
  }();
  const std::string words = moved.ok() ? "" : lastErrorText();
  const Status ended = launches_.endOwnWork(ranges, accel::Ticket{});
  if (!moved.ok()) {
    recordError(moved.code(), words);
    return moved;
  }
  return ended;
}

}  // namespace gmac
