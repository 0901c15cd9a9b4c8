// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/coherent_memory.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/base/log.h"
#include "gmac/coherence/call_uses.h"
#include "gmac/coherence/device_memory_door.h"
#include "gmac/coherence/kernel.h"
#include "gmac/coherence/memory_door.h"
#include "gmac/coherence/moved_pages.h"
#include "gmac/coherence/parts.h"
#include "gmac/coherence/shared_ranges.h"
#include "gmac/coherence/work_door.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

// The ways to the parts, for each kind of consumer.
struct CoherentMemory::Doors {
  Doors(Parts& parts, accel::Accelerator& accelerator, const CoherenceOptions& options)
      : memory(parts, options),
        work(parts, accelerator),
        deviceMemory(parts, accelerator, options) {}

  MemoryDoor memory;
  WorkDoor work;
  DeviceMemoryDoor deviceMemory;
  const coherence::Ports ports{memory, work, deviceMemory};
};

CoherentMemory::CoherentMemory(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
                               const CoherenceOptions& options,
                               std::unique_ptr<os::FileArena> arena)
    : accelerator_(accelerator),
      options_(options),
      parts_(std::make_unique<Parts>(accelerator, std::move(protocol), options_, std::move(arena))),
      doors_(std::make_unique<Doors>(*parts_, accelerator, options_)) {}

Result<std::unique_ptr<CoherentMemory>> CoherentMemory::make(accel::Accelerator& accelerator,
                                                             std::unique_ptr<Protocol> protocol,
                                                             const CoherenceOptions& options) {
  auto arena = os::FileArena::make();
  if (!arena.ok()) {
    return arena.status();
  }
  std::unique_ptr<CoherentMemory> made(
      new CoherentMemory(accelerator, std::move(protocol), options, std::move(*arena)));
  GMAC_TRY(made->parts_->forkMark.make());
  if (options.movedPages) {
    if (!accelerator.copiesReachMovedPages()) {
      return fail(adsmErrorNotSupported, "the {} accelerator cannot copy moved pages",
                  accelerator.name());
    }
    if (!made->parts_->protocol->wholeObjects() && options.blockBytes < kMovedGranularity) {
      return fail(adsmErrorNotSupported, "moved pages need blocks of at least {} bytes, not {}",
                  kMovedGranularity, options.blockBytes);
    }
    GMAC_TRY(proveMovedPages(accelerator, made->parts_->residency));
    if (options.populateAhead) {
      made->parts_->residency.start();
    }
  }
  return made;
}

CoherentMemory::~CoherentMemory() {
  coherence::letLaunchesList(false);
  stopBackground();
}

bool CoherentMemory::forked() const noexcept { return parts_->forkMark.inChild(); }

const coherence::Ports& CoherentMemory::ports() const noexcept { return doors_->ports; }

const Protocol& CoherentMemory::protocol() const { return *parts_->protocol; }

bool CoherentMemory::lockIsHeldHere() noexcept { return Lock::isHeldHere(); }

void CoherentMemory::stopBackground() {
  // A child of fork has no such threads, whatever the handles say.
  if (forked()) {
    return;
  }
  parts_->early.stop();
  parts_->residency.stop();
}

void CoherentMemory::exits() {
  stopBackground();
  if (options_.managed && !forked()) {
    parts_->exitFetch.run();
  }
}

// Signals are blocked as under Lock: a handler that faulted between the two would wait for its own
// thread.
void CoherentMemory::beforeFork() {
  auto lock = std::make_unique<Lock>(parts_->mutex);
  parts_->forking = std::move(lock);
}

void CoherentMemory::afterFork() { const std::unique_ptr<Lock> lock = std::move(parts_->forking); }

// ---- adsm.h

Result<void*> CoherentMemory::allocate(std::size_t size, accel::Placement placement) {
  if (forked()) {
    return fail(adsmErrorForked, "{} in a child of fork",
                placement == accel::Placement::kSameAddress ? "adsmAlloc" : "adsmSafeAlloc");
  }
  return parts_->gathering.still([&] { return parts_->spilling.allocate(size, placement); });
}

Result<void*> CoherentMemory::allocateStriped(std::size_t size,
                                              std::span<const std::size_t> devices) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmAllocStriped in a child of fork");
  }
  if (const Status proved = proveStripes(devices); !proved.ok()) {
    log(LogLevel::kInfo, "adsmAllocStriped: {} bytes are not striped: {}", size, lastErrorText());
    return allocate(size, accel::Placement::kSameAddress);
  }
  return parts_->gathering.still([&] { return parts_->spilling.allocateStriped(size, devices); });
}

// Other devices' copies, too, must reach pages that have moved.
Status CoherentMemory::proveStripes(std::span<const std::size_t> devices) {
  const accel::Devices* const all = accelerator_.devices();
  if (!options_.movedPages || devices.size() < 2 || all == nullptr || !all->reachEachOther() ||
      *std::max_element(devices.begin(), devices.end()) >= all->together()) {
    return {};
  }
  unsigned wanted = 0;
  for (const std::size_t device : devices) {
    wanted |= 1U << device;
  }
  const std::lock_guard one(parts_->proofs);
  if ((wanted & ~parts_->provedDevices) != 0) {
    GMAC_TRY(proveMovedPages(accelerator_, parts_->residency, devices));
    parts_->provedDevices |= wanted;
  }
  return {};
}

Status CoherentMemory::free(void* address) {
  return forked() ? fail(adsmErrorForked, "adsmFree({}) in a child of fork", address)
                  : parts_->spilling.free(address);
}

Result<void*> CoherentMemory::deviceAddress(const void* address) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSafe({}) in a child of fork", address);
  }
  return parts_->allocation.deviceAddress(address);
}

Status CoherentMemory::call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                            std::optional<std::span<const adsmUse_t>> uses,
                            std::optional<std::size_t> device) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmCall({}) in a child of fork", kernel->name);
  }
  // They may lie in shared objects, which must not be touched under the lock.
  std::vector<adsmRangeUse_t> list;
  if (uses) {
    list.reserve(uses->size());
    for (const adsmUse_t& use : *uses) {
      list.push_back({use.object, 0, use.access});
    }
  }
  return callUsing(kernel, shape, args, uses ? std::optional(CallUses{.list = list}) : std::nullopt,
                   device);
}

Status CoherentMemory::callRanges(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                                  std::span<const adsmRangeUse_t> uses,
                                  std::optional<std::size_t> device) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmCallRanges({}) in a child of fork", kernel->name);
  }
  const std::vector<adsmRangeUse_t> list(uses.begin(), uses.end());
  return callUsing(kernel, shape, args,
                   CallUses{.function = "adsmCallRanges", .parts = true, .list = list}, device);
}

Status CoherentMemory::callUsing(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                                 const std::optional<CallUses>& uses,
                                 std::optional<std::size_t> device) {
  parts_->movedPieces.workBegins();
  parts_->beforeWork();
  // (Only devices that do not reach each other's memory ask.)
  std::vector<coherence::DeviceRange> used;
  if (uses && parts_->gathering.separate()) {
    for (const adsmRangeUse_t& use : uses->list) {
      used.push_back({use.address, use.bytes, (use.access & adsmWrite) != 0});
    }
  }
  return parts_->scheduling.call(kernel, uses, device, [&](std::size_t chosen, bool makesRoom) {
    return parts_->gathering.reachingOn(
        chosen, uses ? std::optional(std::span(std::as_const(used))) : std::nullopt, [&] {
          parts_->spilling.beforeWork();
          return parts_->migration.call(kernel, shape, args, uses, chosen, makesRoom);
        });
  });
}

Status CoherentMemory::migrate(const void* address, std::size_t bytes, std::size_t device) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmMigrate({}) in a child of fork", address);
  }
  return parts_->gathering.migrating(
      address, device,
      [&] {
        GMAC_TRY(parts_->migration.advise(address, bytes));
        parts_->zeroCopy.leave(address);
        return Status();
      },
      [&] {
        return device < accel::devicesTogether(accelerator_)
                   ? parts_->migration.migrate(address, bytes, device)
                   : Status();
      });
}

Status CoherentMemory::bind(const void* object, adsmKernel_t kernel, adsmAccess_t access) {
  return forked() ? fail(adsmErrorForked, "adsmBind({}) in a child of fork", object)
                  : parts_->kernels.bind(object, kernel, access);
}

Status CoherentMemory::forget(adsmKernel_t kernel) {
  return forked() ? fail(adsmErrorForked, "adsmKernelDestroy({}) in a child of fork", kernel->name)
                  : parts_->kernels.forget(kernel);
}

Status CoherentMemory::setConstant(adsmKernel_t kernel, const adsmConstant_t& constant,
                                   const void* data, std::size_t bytes) {
  return forked() ? fail(adsmErrorForked, "adsmSetConstant({}) in a child of fork", kernel->name)
                  : parts_->kernels.setConstant(kernel, constant, data, bytes);
}

Status CoherentMemory::sync() {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSync in a child of fork");
  }
  GMAC_TRY(parts_->acquire.sync());
  parts_->afterWait();
  return {};
}

// ---- Accesses of the CPU

bool CoherentMemory::onFault(void* address, bool write) noexcept {
  if (!shared_ranges::mayBeShared(address, 1)) {
    return false;
  }
  if (forked()) {
    parts_->access.tellOfFaultInChild(address);
    return false;
  }
  return parts_->access.onFault(address, write);
}

// ---- Steps of the background threads, and the walker

bool CoherentMemory::populateNext() { return parts_->residency.populateNext(); }

EarlyStep CoherentMemory::fetchNext() {
  return forked() ? EarlyStep::kIdle : parts_->early.fetchNext();
}

bool CoherentMemory::disposeNext() { return parts_->freed.disposeNext(); }

Status CoherentMemory::verify() { return parts_->blocks.verify(); }

}  // namespace gmac
