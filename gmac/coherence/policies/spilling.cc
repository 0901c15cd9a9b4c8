// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/spilling.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "gmac/base/log.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

// What stays free when an object comes back: the application allocates, too.
constexpr std::size_t kLeftFree = std::size_t{64} << 20;

}  // namespace

Spilling::Spilling(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                   Waits& waits, ObjectIndex& index, FreedMemory& freed, Allocation& allocation,
                   Launches& launches, const SpillOptions& options)
    : mutex_(mutex),
      accelerator_(accelerator),
      ledger_(ledger),
      waits_(waits),
      index_(index),
      freed_(freed),
      allocation_(allocation),
      launches_(launches),
      leastBytes_(options.leastBytes),
      memory_(options.allowed ? accelerator.movableMemory() : nullptr) {}

bool Spilling::movable(const Object& object, accel::Home home) const {
  return object.home == home && !object.closing && object.bytes() >= leastBytes_;
}

Spilling::Candidate Spilling::leastLatelyUsed(std::uint64_t before) {
  const Lock lock(mutex_);
  Candidate found;
  std::uint64_t oldest = before;
  for (const Object& object : index_.all()) {
    const std::uint64_t used = ledger_.newestWorkWith(object);
    if (movable(object, accel::Home::kDevice) && used < oldest) {
      oldest = used;
      found = {object.address(), object.bytes(), object.number};
    }
  }
  return found;
}

bool Spilling::sufficient(std::size_t bytes, std::uint64_t before) {
  const Result<accel::MemoryRoom> available = accelerator_.memoryRoom();
  const Lock lock(mutex_);
  std::size_t room = available.ok() ? available->free : 0;
  for (const Object& object : index_.all()) {
    if (movable(object, accel::Home::kDevice) && ledger_.newestWorkWith(object) < before) {
      room += object.bytes();
    }
  }
  return room >= bytes;
}

Spilling::Candidate Spilling::lastUsed(std::size_t bytes) {
  const Lock lock(mutex_);
  Candidate found;
  std::uint64_t newest = 0;
  for (const Object& object : index_.all()) {
    const std::uint64_t used = ledger_.newestWorkWith(object);
    if (movable(object, accel::Home::kCpu) && object.bytes() <= bytes && used > newest) {
      newest = used;
      found = {object.address(), object.bytes(), object.number};
    }
  }
  return found;
}

Result<void*> Spilling::allocate(std::size_t size, accel::Placement placement) {
  Result<void*> address = allocation_.allocate(size, placement, accel::Home::kDevice);
  if (address.ok() || memory_ == nullptr || address.status().code() != adsmErrorAcceleratorMemory) {
    return address;
  }
  const std::string full = lastErrorText();
  const std::lock_guard one(moving_);
  const auto isFull = [&] {
    return !address.ok() && address.status().code() == adsmErrorAcceleratorMemory;
  };
  // What the newest work uses, and what no work has used yet, is as likely to be used next as the
  // new object: that goes to the CPU's memory then, which takes no copy.
  const std::uint64_t newest = [&] {
    const Lock lock(mutex_);
    return ledger_.newestWork();
  }();
  if (sufficient(size, newest)) {
    for (;;) {
      const Candidate oldest = leastLatelyUsed(newest);
      if (oldest.address == nullptr || !move(oldest, accel::Home::kCpu).ok()) {
        break;
      }
      address = allocation_.allocate(size, placement, accel::Home::kDevice);
      if (!isFull()) {
        return address;
      }
    }
  }
  address = allocation_.allocate(size, placement, accel::Home::kCpu);
  if (address.ok()) {
    const Lock lock(mutex_);
    if (const Object* const object = index_.find(*address)) {
      tell(*object);
    }
    return address;
  }
  if (address.status().code() == adsmErrorNotSupported) {
    recordError(adsmErrorAcceleratorMemory, full);
    return Status(adsmErrorAcceleratorMemory);
  }
  const std::string there = lastErrorText();
  return fail(adsmErrorAcceleratorMemory, "{}; in the CPU's memory instead: {}", full, there);
}

Status Spilling::free(void* address) {
  const Status freed = allocation_.free(address);
  if (freed_.onCpu() != 0) {
    roomMayBe_ = true;
  }
  return freed;
}

bool Spilling::makeRoom() {
  if (memory_ == nullptr) {
    return false;
  }
  const std::lock_guard one(moving_);
  const Candidate oldest = leastLatelyUsed(UINT64_MAX);
  return oldest.address != nullptr && move(oldest, accel::Home::kCpu).ok();
}

Spilling::Candidate Spilling::anyOnDevice() {
  const Lock lock(mutex_);
  for (const Object& object : index_.all()) {
    if (object.home == accel::Home::kDevice && !object.closing) {
      return {object.address(), object.bytes(), object.number};
    }
  }
  return {};
}

Status Spilling::keepOnCpu() {
  accel::MovableMemory* const memory = accelerator_.movableMemory();
  if (memory == nullptr) {
    return fail(adsmErrorNotSupported, "the {} accelerator's memory cannot move",
                accelerator_.name());
  }
  const std::lock_guard one(moving_);
  GMAC_TRY(memory->keepOnCpu());
  (void)freed_.giveBackAll();
  for (Candidate next = anyOnDevice(); next.address != nullptr; next = anyOnDevice()) {
    GMAC_TRY(move(next, accel::Home::kCpu));
  }
  return {};
}

// Waits for what still uses an object. Nothing else can be submitted meanwhile. `object` becomes
// NULL where it has been freed.
Status Spilling::waitForUsers(const Candidate& candidate, Object** object) {
  Lock lock(mutex_);
  *object = index_.find(candidate.address);
  if (*object == nullptr || (*object)->number != candidate.number || (*object)->closing) {
    *object = nullptr;
    return {};
  }
  const Ledger::Tickets calls = ledger_.everything();
  const accel::Ticket flushes = ledger_.lastFlush();
  const Free free(lock);
  // A kernel's error is for adsmSync to tell; the accelerator that is lost says so when the pages
  // move.
  for (const accel::Ticket call : calls) {
    (void)waits_.await(free, call);
  }
  (void)waits_.await(free, flushes);
  return {};
}

// To everybody else a move is device work that writes the object: blocks are closed, accesses of
// the CPU wait for its end, and so do calls and the object's end.
Status Spilling::move(const Candidate& candidate, accel::Home home) {
  const TraceSpan span("memory", home == accel::Home::kCpu ? "spill" : "bring back",
                       {"bytes", candidate.bytes});
  const coherence::DeviceRange range{candidate.address, candidate.bytes, true};
  const std::span<const coherence::DeviceRange> ranges(&range, 1);
  GMAC_TRY(launches_.beginOwnWork(ranges));
  Object* object = nullptr;
  Status moved = waitForUsers(candidate, &object);
  if (moved.ok() && object != nullptr) {
    moved = accelerator_.movableMemory()->move(object->device, object->bytes(), home);
  }
  if (moved.ok() && object != nullptr) {
    const Lock lock(mutex_);
    freed_.moves(*object, home);
    tell(*object);
  }
  const std::string words = moved.ok() ? "" : lastErrorText();
  const Status ended = launches_.endOwnWork(ranges, accel::Ticket{});
  if (!moved.ok()) {
    log(LogLevel::kInfo, "object {} ({} bytes) stays where it is: {}", fmt::ptr(candidate.address),
        candidate.bytes, words);
    recordError(moved.code(), words);
    return moved;
  }
  return ended;
}

void Spilling::tell(const Object& object) {
  const bool onCpu = object.home == accel::Home::kCpu;
  if (onCpu) {
    stats().spills.add();
    stats().spilledBytes.add(object.bytes());
  } else {
    stats().broughtBack.add();
  }
  log(LogLevel::kInfo, "object {} ({} bytes) is in {} memory now", fmt::ptr(object.address()),
      object.bytes(), onCpu ? "the CPU's" : "the accelerator's");
}

void Spilling::bringBack() {
  const std::unique_lock one(moving_, std::try_to_lock);
  if (!one.owns_lock()) {
    return;  // another thread makes room, or brings back
  }
  roomMayBe_ = false;
  (void)freed_.giveBackAll();
  for (;;) {
    const Result<accel::MemoryRoom> available = accelerator_.memoryRoom();
    if (!available.ok() || available->free < kLeftFree) {
      return;
    }
    const Candidate last = lastUsed(available->free - kLeftFree);
    if (last.address == nullptr || !move(last, accel::Home::kDevice).ok()) {
      return;
    }
  }
}

}  // namespace gmac
