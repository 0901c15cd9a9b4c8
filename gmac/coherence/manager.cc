// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/manager.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmac/base/cancellation.h"
#include "gmac/base/fork_mark.h"
#include "gmac/base/log.h"
#include "gmac/coherence/acquire.h"
#include "gmac/coherence/allocation.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/cpu_access.h"
#include "gmac/coherence/device_loans.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/kernels.h"
#include "gmac/coherence/launches.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/listing_policy.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/lookup.h"
#include "gmac/coherence/mapping_use.h"
#include "gmac/coherence/moved_pages.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/bulk_memory.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/coherence/policies/early_copies.h"
#include "gmac/coherence/policies/exit_fetch.h"
#include "gmac/coherence/policies/gathering.h"
#include "gmac/coherence/policies/migration.h"
#include "gmac/coherence/policies/moved_pieces.h"
#include "gmac/coherence/policies/placement.h"
#include "gmac/coherence/policies/read_backs.h"
#include "gmac/coherence/policies/scheduling.h"
#include "gmac/coherence/policies/spilling.h"
#include "gmac/coherence/policies/splitting.h"
#include "gmac/coherence/policies/zero_copy.h"
#include "gmac/coherence/promises.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/repeated_launches.h"
#include "gmac/coherence/residency.h"
#include "gmac/coherence/shared_ranges.h"
#include "gmac/coherence/waits.h"
#include "gmac/os/mirror.h"
#include "gmac/protocols/protocol.h"

namespace gmac {
namespace {

// Whether launches may list their objects: where reads leave blocks writable each launch would have
// to be waited for, and where there are several devices any object may have to move.
bool mayList(accel::Accelerator& accelerator, const Blocks& blocks) {
  return accelerator.nativeStreams() != nullptr && accel::deviceCount(accelerator) == 1 &&
         !blocks.readsLeaveWritable();
}

}  // namespace

struct Manager::Parts {
  Parts(accel::Accelerator& accelerator, std::unique_ptr<Protocol> ofBlocks,
        const ManagerOptions& options, std::unique_ptr<os::FileArena> arena)
      : protocol(std::move(ofBlocks)),
        ledger(accelerator, options.clock),
        waits(accelerator, ledger, options.waitLimitSeconds),
        mappings(options.mappingLimit, options.movedPages),
        // Where new objects are Dirty their bytes count on the CPU's side, which nobody has
        // cleared.
        freed(mutex, accelerator, ledger, waits,
              protocol->initial() == State::kReadOnly ? options.keptBytes : 0, options.managed),
        residency(mutex, accelerator, index, mappings, freed),
        blocks(mutex, accelerator, *protocol, ledger, waits, index, mappings, residency,
               {.readAheadBytes = options.readAheadBytes,
                .windowBytes = options.windowBytes != 0 && options.movedPages
                                   ? std::max(options.windowBytes, kMovedGranularity)
                                   : options.windowBytes,
                .mostClearedBytes = options.mostClearedBytes,
                .opensNeighbours = options.opensNeighbours,
                .opensPages = options.opensPages,
                .splitAfter = options.splitAfter}),
        coarsening(index, ledger, mappings, freed, blocks),
        concurrent(options.zeroCopy.limits),
        concurrentObjects(ledger, blocks, concurrent, options.managed),
        allocation(mutex, accelerator, ledger, loans, waits, index, freed, residency, blocks,
                   coarsening, concurrentObjects, std::move(arena),
                   {.blockBytes = options.blockBytes,
                    .chunkBytes = options.chunkBytes,
                    .movedPages = options.movedPages,
                    .mostWhole = options.zeroCopy.allowed ? options.zeroCopy.mostBytes : SIZE_MAX,
                    .pageBytes = options.zeroCopy.pageBytes}),
        listing(mayList(accelerator, blocks), options.listingWorth),
        access(mutex, index, loans, residency, blocks, coarsening, concurrentObjects, ledger,
               listing),
        exitFetch(mutex, ledger, index, blocks, access),
        deviceLoans(mutex, accelerator, ledger, loans, waits, index, blocks),
        bulk(mutex, accelerator, ledger, waits, index, residency, blocks, coarsening, access),
        early(mutex, ledger, index, residency, blocks, options.readAheadBytes,
              options.fetchInBackground),
        kernels(mutex, accelerator, ledger, waits, index),
        promptWaits(options.zeroCopy.prompt),
        repeated(mutex, accelerator, ledger, loans, blocks, promptWaits, concurrent),
        launches(mutex, accelerator, ledger, loans, waits, index, blocks, coarsening, allocation,
                 kernels, promptWaits, concurrent, repeated, listing, options.managed),
        migration(mutex, accelerator, ledger, waits, index, freed, blocks, launches,
                  options.spill.allowed),
        placement(mutex, accelerator, ledger, index, freed, launches),
        spilling(mutex, accelerator, ledger, waits, index, freed, allocation, launches,
                 options.spill),
        gathering(mutex, accelerator, ledger, index, freed, migration, spilling),
        scheduling(mutex, accelerator, ledger, index, migration, options.scheduling),
        zeroCopy(mutex, accelerator, ledger, waits, index, residency, blocks, launches, promptWaits,
                 concurrent, concurrentObjects, options.managed, options.zeroCopy),
        readBacks(accelerator, ledger, blocks, zeroCopy),
        splitting(accelerator, ledger, blocks),
        acquire(mutex, accelerator, ledger, waits, index, blocks, coarsening, splitting, readBacks,
                repeated),
        movedPieces(mutex, index),
        lookup(mutex, ledger, index, allocation, options.managed),
        promises(mutex, ledger, waits, index) {
    if (options.managed) {
      allocation.clearBy([this](std::byte* at, std::size_t bytes) { bulk.clearUnused(at, bytes); });
    }
  }

  const std::unique_ptr<Protocol> protocol;
  ForkMark forkMark;

  // Each stands on those before it.
  ObjectMutex mutex;
  ObjectIndex index;
  Ledger ledger;
  Loans loans;
  Waits waits;
  MappingUse mappings;
  FreedMemory freed;
  Residency residency;
  Blocks blocks;
  Coarsening coarsening;
  ConcurrentUse concurrent;
  ConcurrentObjects concurrentObjects;
  Allocation allocation;
  ListingPolicy listing;
  CpuAccess access;
  ExitFetch exitFetch;
  DeviceLoans deviceLoans;
  BulkMemory bulk;
  EarlyCopies early;
  Kernels kernels;
  PromptWaits promptWaits;
  RepeatedLaunches repeated;
  Launches launches;
  Migration migration;
  Placement placement;
  Spilling spilling;
  Gathering gathering;
  Scheduling scheduling;
  ZeroCopy zeroCopy;
  ReadBacks readBacks;
  Splitting splitting;
  Acquire acquire;
  MovedPieces movedPieces;
  Lookup lookup;
  Promises promises;

  std::mutex proofs;              // one thread at a time proves
  unsigned provedDevices = 0;     // bit i: device i's copies reach moved pages; under proofs
  std::unique_ptr<Lock> forking;  // held from beforeFork to afterFork
};

Manager::Manager(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
                 const ManagerOptions& options, std::unique_ptr<os::FileArena> arena)
    : Port(accelerator.nativeStreams()),
      accelerator_(accelerator),
      options_(options),
      parts_(
          std::make_unique<Parts>(accelerator, std::move(protocol), options_, std::move(arena))) {}

Result<std::unique_ptr<Manager>> Manager::make(accel::Accelerator& accelerator,
                                               std::unique_ptr<Protocol> protocol,
                                               const ManagerOptions& options) {
  auto arena = os::FileArena::make();
  if (!arena.ok()) {
    return arena.status();
  }
  std::unique_ptr<Manager> manager(
      new Manager(accelerator, std::move(protocol), options, std::move(*arena)));
  GMAC_TRY(manager->parts_->forkMark.make());
  if (options.movedPages) {
    if (!accelerator.copiesReachMovedPages()) {
      return fail(adsmErrorNotSupported, "the {} accelerator cannot copy moved pages",
                  accelerator.name());
    }
    if (!manager->parts_->protocol->wholeObjects() && options.blockBytes < kMovedGranularity) {
      return fail(adsmErrorNotSupported, "moved pages need blocks of at least {} bytes, not {}",
                  kMovedGranularity, options.blockBytes);
    }
    GMAC_TRY(proveMovedPages(accelerator, manager->parts_->residency));
    if (options.populateAhead) {
      manager->parts_->residency.start();
    }
  }
  return manager;
}

Manager::~Manager() {
  coherence::letLaunchesList(false);
  stopBackground();
}

bool Manager::worksHere() const noexcept { return Lock::worksHere(); }

bool Manager::forked() const noexcept { return parts_->forkMark.inChild(); }

const Protocol& Manager::protocol() const { return *parts_->protocol; }

bool Manager::lockIsHeldHere() noexcept { return Lock::isHeldHere(); }

void Manager::stopBackground() {
  // A child of fork has no such threads, whatever the handles say.
  if (forked()) {
    return;
  }
  parts_->early.stop();
  parts_->residency.stop();
}

void Manager::exits() {
  stopBackground();
  if (options_.managed && !forked()) {
    parts_->exitFetch.run();
  }
}

// Signals are blocked as under Lock: a handler that faulted between the two would wait for its own
// thread.
void Manager::beforeFork() {
  auto lock = std::make_unique<Lock>(parts_->mutex);
  parts_->forking = std::move(lock);
}

void Manager::afterFork() { const std::unique_ptr<Lock> lock = std::move(parts_->forking); }

// ---- adsm.h

Result<void*> Manager::allocate(std::size_t size, accel::Placement placement) {
  if (forked()) {
    return fail(adsmErrorForked, "{} in a child of fork",
                placement == accel::Placement::kSameAddress ? "adsmAlloc" : "adsmSafeAlloc");
  }
  return parts_->gathering.still([&] { return parts_->spilling.allocate(size, placement); });
}

Result<void*> Manager::allocateStriped(std::size_t size, std::span<const std::size_t> devices) {
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
Status Manager::proveStripes(std::span<const std::size_t> devices) {
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

Status Manager::free(void* address) {
  return forked() ? fail(adsmErrorForked, "adsmFree({}) in a child of fork", address)
                  : parts_->spilling.free(address);
}

Result<void*> Manager::deviceAddress(const void* address) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSafe({}) in a child of fork", address);
  }
  return parts_->allocation.deviceAddress(address);
}

Status Manager::call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
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

Status Manager::callRanges(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                           std::span<const adsmRangeUse_t> uses,
                           std::optional<std::size_t> device) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmCallRanges({}) in a child of fork", kernel->name);
  }
  const std::vector<adsmRangeUse_t> list(uses.begin(), uses.end());
  return callUsing(kernel, shape, args,
                   CallUses{.function = "adsmCallRanges", .parts = true, .list = list}, device);
}

Status Manager::callUsing(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                          const std::optional<CallUses>& uses, std::optional<std::size_t> device) {
  parts_->movedPieces.workBegins();
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

Status Manager::migrate(const void* address, std::size_t bytes, std::size_t device) {
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

Status Manager::bind(const void* object, adsmKernel_t kernel, adsmAccess_t access) {
  return forked() ? fail(adsmErrorForked, "adsmBind({}) in a child of fork", object)
                  : parts_->kernels.bind(object, kernel, access);
}

Status Manager::forget(adsmKernel_t kernel) {
  return forked() ? fail(adsmErrorForked, "adsmKernelDestroy({}) in a child of fork", kernel->name)
                  : parts_->kernels.forget(kernel);
}

Status Manager::setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                            std::size_t bytes) {
  return forked() ? fail(adsmErrorForked, "adsmSetConstant({}) in a child of fork", kernel->name)
                  : parts_->kernels.setConstant(kernel, constant, data, bytes);
}

Status Manager::sync() {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSync in a child of fork");
  }
  GMAC_TRY(parts_->acquire.sync());
  afterWait();
  return {};
}

// ---- Accesses of the CPU

bool Manager::onFault(void* address, bool write) noexcept {
  if (!shared_ranges::mayBeShared(address, 1)) {
    return false;
  }
  if (forked()) {
    parts_->access.tellOfFaultInChild(address);
    return false;
  }
  return parts_->access.onFault(address, write);
}

Status Manager::hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) {
  if (forked()) {
    return {};
  }
  GMAC_TRY(parts_->launches.order(address, bytes, true));
  return parts_->access.hold(address, bytes, purpose);
}

void Manager::unhold(const void* address, std::size_t bytes) {
  if (!forked()) {
    parts_->access.unhold(address, bytes);
  }
}

void Manager::copy(void* to, const void* from, std::size_t bytes,
                   coherence::MoveFunction move) noexcept {
  if (forked()) {
    (void)move(to, from, bytes);
    return;
  }
  // (An error that keeps an object open comes back where it is to be closed next.)
  (void)parts_->launches.order(to, bytes, false);
  (void)parts_->launches.order(from, bytes, false);
  parts_->bulk.copy(to, from, bytes, move);
}

void Manager::fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept {
  if (forked()) {
    (void)set(to, value, bytes);
    return;
  }
  (void)parts_->launches.order(to, bytes, false);
  parts_->bulk.fill(to, value, bytes, set);
}

bool Manager::lend(const void* address, std::size_t bytes, coherence::Loan* loan) {
  return !forked() && parts_->launches.order(address, bytes, true).ok() &&
         parts_->access.lend(address, bytes, loan);
}

void Manager::giveBack(const void* address, std::size_t bytes) {
  if (!forked()) {
    parts_->access.giveBack(address, bytes);
  }
}

Result<bool> Manager::lendOnDevice(const void* address, std::size_t bytes,
                                   coherence::DeviceLoan* loan) {
  return forked() ? Result<bool>(false) : parts_->deviceLoans.lend(address, bytes, loan);
}

void Manager::giveBackOnDevice(const void* address, std::size_t bytes,
                               const coherence::DeviceLoan& loan) {
  if (!forked()) {
    parts_->deviceLoans.giveBack(address, bytes, loan);
  }
}

std::size_t Manager::pieceBytes() const noexcept {
  return std::max(Port::pieceBytes(), options_.blockBytes);
}

Status Manager::startFlush(const void* address, std::size_t bytes) {
  return forked() ? Status() : parts_->early.startFlush(address, bytes);
}

Status Manager::startFetch(const void* address, std::size_t bytes) {
  return forked() ? Status() : parts_->early.startFetch(address, bytes);
}

void Manager::fetchIfQuiet(const void* address, std::size_t bytes) noexcept {
  if (!forked() && parts_->early.startFetch(address, bytes).ok()) {
    (void)parts_->early.fetchNext();
  }
}

EarlyStep Manager::fetchNext() { return forked() ? EarlyStep::kIdle : parts_->early.fetchNext(); }

// ---- Device work

Status Manager::beginDeviceWork(accel::NativeStream stream,
                                std::span<const coherence::DeviceRange> ranges) {
  if (forked()) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  // (What a launch lists is for kernels, which reach memory of all kinds.)
  const auto named = !ranges.empty() && ranges.front().listed ? ranges.first(1) : ranges;
  for (;;) {
    const bool whole = joined(named);
    parts_->movedPieces.workBegins();
    GMAC_TRY(parts_->gathering.reaching(stream, ranges, [&] {
      parts_->spilling.beforeWork();
      return parts_->migration.beginDeviceWork(stream, ranges);
    }));
    // (Another thread's wait may have moved a page meanwhile. Where one cannot move back, the
    // driver says so.)
    if (!whole || parts_->zeroCopy.areWhole(named)) {
      return {};
    }
    GMAC_TRY(parts_->launches.endDeviceWork(stream, false));
  }
}

Status Manager::endDeviceWork(accel::NativeStream stream, bool submitted) {
  return parts_->launches.endDeviceWork(stream, submitted);
}

Status Manager::beginOwnWork(std::span<const coherence::DeviceRange> ranges) {
  if (forked()) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  for (;;) {
    const bool whole = joined(ranges);
    GMAC_TRY(parts_->gathering.reachingOn(0, ranges,
                                          [&] { return parts_->migration.beginOwnWork(ranges); }));
    if (!whole || parts_->zeroCopy.areWhole(ranges)) {
      return {};
    }
    GMAC_TRY(parts_->launches.endOwnWork(ranges, accel::Ticket{}));
  }
}

Status Manager::endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) {
  return parts_->launches.endOwnWork(ranges, ticket);
}

bool Manager::mayRepeat() const noexcept { return parts_->repeated.may(); }

bool Manager::beginRepeated(accel::NativeStream stream) noexcept {
  if (forked() || parts_->gathering.separate() || parts_->spilling.isDue() ||
      !parts_->repeated.begin(stream)) {
    return false;
  }
  parts_->movedPieces.workBegins();
  return true;
}

void Manager::endRepeated(accel::NativeStream stream, bool submitted) noexcept {
  parts_->repeated.end(stream, submitted);
}

void Manager::markRepeated() noexcept {
  if (!forked() && parts_->repeated.anyToMark()) {
    parts_->repeated.note();
  }
}

void Manager::noneRepeats() noexcept {
  if (!forked()) {
    parts_->repeated.note();
  }
}

void Manager::keepWhole() noexcept {
  if (!forked() && !parts_->zeroCopy.keepWhole() && makeRoomForOwnWork()) {
    (void)parts_->zeroCopy.keepWhole();
  }
}

void Manager::keepWhole(std::span<const coherence::DeviceRange> ranges) noexcept {
  if (!forked()) {
    parts_->zeroCopy.endMoves();
    (void)joined(ranges);
  }
}

// ZeroCopy::joinIn(), for which there may have to be room on the device.
bool Manager::joined(std::span<const coherence::DeviceRange> ranges) {
  return parts_->zeroCopy.joinIn(ranges) ||
         (makeRoomForOwnWork() && parts_->zeroCopy.joinIn(ranges));
}

coherence::DeviceWait Manager::beforeDeviceWait(std::optional<accel::NativeStream> stream,
                                                bool asks) {
  if (forked()) {
    return {};
  }
  // (A wait for a context is not one for the others' streams.)
  const bool whole = !stream && knowsOtherContexts();
  coherence::DeviceWait wait = parts_->repeated.waitBegins(whole ? accel::kForeignStream : stream);
  if (wait.skipped) {
    return wait;
  }
  if (wait.launches == 0 && parts_->repeated.anyToMark()) {
    parts_->repeated.note();
  }
  if (asks) {
    wait.asks = true;
    wait.stream = stream;
  } else {
    parts_->acquire.beforeDeviceWait(stream, wait);
  }
  return wait;
}

Status Manager::afterDeviceWait(const coherence::DeviceWait& wait) {
  if (forked() || parts_->repeated.waitEnded(wait)) {
    return {};
  }
  coherence::DeviceWait ended = wait;
  if (wait.asks) {
    parts_->acquire.beforeDeviceWait(wait.stream, ended);
  }
  parts_->listing.waited();
  GMAC_TRY(parts_->placement.afterWait());
  GMAC_TRY(parts_->acquire.afterDeviceWait(ended));
  afterWait();
  return {};
}

void Manager::afterWait() {
  parts_->gathering.still([&] { parts_->zeroCopy.afterWait(); });
  parts_->gathering.afterWait();
}

void Manager::otherContextEnds(std::uintptr_t context) noexcept {
  if (!forked()) {
    parts_->repeated.note();
    (void)parts_->gathering.leaveApart();
  }
  Port::otherContextEnds(context);
}

bool Manager::placesMemory() const noexcept { return parts_->placement.chooses(); }

Status Manager::prefer(const void* address, std::size_t bytes, int device) {
  if (forked()) {
    return {};
  }
  // (What has one copy moves at a wait, unless calls pass over it.)
  GMAC_TRY(parts_->launches.order(address, bytes, true));
  return parts_->placement.prefer(address, bytes, device);
}

Status Manager::namedBy(const void* address, int device) {
  return forked() ? Status() : parts_->placement.namedBy(address, device);
}

void Manager::hostFunctionQueued() { parts_->ledger.hostFunctionQueued(); }

void Manager::hostFunctionEnded() { parts_->ledger.hostFunctionEnded(); }

Status Manager::setUsers(const void* object, coherence::Users users, accel::NativeStream stream) {
  return forked() ? fail(adsmErrorForked, "attaching {} to a stream in a child of fork", object)
                  : parts_->promises.setUsers(object, users, stream);
}

void Manager::setReadMostly(const void* object, bool readMostly) {
  if (!forked() && options_.trustHints) {
    parts_->promises.setReadMostly(object, readMostly);
  }
}

void Manager::streamDestroyed(accel::NativeStream stream) {
  if (!forked()) {
    parts_->promises.streamDestroyed(stream);
    parts_->zeroCopy.streamDestroyed(stream);
  }
}

void Manager::endContext(bool workFinished) {
  if (!forked()) {
    parts_->allocation.endContext(workFinished);
    parts_->gathering.contextEnds();
  }
}

// ---- Questions

// The interposed functions ask these two before they turn cancellation off.
bool Manager::touchesShared(const void* address, std::size_t bytes) noexcept {
  return uncancelled([&]() noexcept { return parts_->lookup.touchesShared(address, bytes); });
}

std::size_t Manager::sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept {
  return uncancelled(
      [&]() noexcept { return parts_->lookup.sharedPrefix(address, bytes, shared); });
}

coherence::Place Manager::placeOf(const void* address, std::size_t bytes) noexcept {
  return uncancelled([&]() noexcept { return parts_->lookup.placeOf(address, bytes); });
}

bool Manager::prefersCpu(const void* address, std::size_t bytes) noexcept {
  return !forked() && parts_->movedPieces.prefersCpu(address, bytes);
}

std::ptrdiff_t Manager::deviceDistance(const void* address) noexcept {
  return parts_->lookup.deviceDistance(address);
}

std::uintptr_t Manager::cpuAddress(std::uintptr_t device) noexcept {
  return parts_->lookup.cpuAddress(device);
}

Status Manager::verify() { return parts_->blocks.verify(); }

// ---- Memory

bool Manager::populateNext() { return parts_->residency.populateNext(); }

bool Manager::disposeNext() { return parts_->freed.disposeNext(); }

bool Manager::makeRoom() {
  return !forked() &&
         (parts_->freed.giveBackAll() || parts_->spilling.makeRoom(parts_->spilling.here()) ||
          parts_->gathering.leaveApart());
}

bool Manager::makeRoomForOwnWork() {
  return !forked() &&
         (parts_->freed.giveBackAll() || parts_->spilling.makeRoom(parts_->spilling.first()) ||
          parts_->migration.makeRoom());
}

bool Manager::fitsNowhere(std::size_t bytes) {
  return !forked() && parts_->spilling.fitsNowhere(bytes);
}

bool Manager::isKept(std::uintptr_t device) { return !forked() && parts_->freed.isKept(device); }

std::size_t Manager::keptBytes() const noexcept { return parts_->freed.keptBytes(); }

std::size_t Manager::ofOneKind(const void* address, std::size_t bytes) noexcept {
  return parts_->lookup.ofOneKind(address, bytes);
}

}  // namespace gmac
