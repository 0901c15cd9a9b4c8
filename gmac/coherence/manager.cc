// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/manager.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmac/base/cancellation.h"
#include "gmac/base/log.h"
#include "gmac/coherence/moved_pages.h"
#include "gmac/coherence/shared_ranges.h"

namespace gmac {

Manager::Manager(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
                 const ManagerOptions& options, std::unique_ptr<os::FileArena> arena)
    : Port(accelerator.nativeStreams()),
      accelerator_(accelerator),
      protocol_(std::move(protocol)),
      options_(options),
      ledger_(accelerator, options.clock),
      waits_(accelerator, ledger_, options.waitLimitSeconds),
      mappings_(options.mappingLimit, options.movedPages),
      // Where new objects are Dirty their bytes count on the CPU's side, which nobody has cleared.
      freed_(mutex_, accelerator, ledger_, waits_,
             protocol_->initial() == State::kReadOnly ? options.keptBytes : 0),
      residency_(mutex_, accelerator, index_, mappings_, freed_),
      blocks_(mutex_, accelerator, *protocol_, ledger_, waits_, index_, mappings_, residency_,
              {.readAheadBytes = options.readAheadBytes,
               .windowBytes = options.windowBytes != 0 && options.movedPages
                                  ? std::max(options.windowBytes, kMovedGranularity)
                                  : options.windowBytes}),
      coarsening_(index_, ledger_, mappings_, freed_, blocks_),
      allocation_(mutex_, accelerator, ledger_, loans_, waits_, index_, freed_, residency_, blocks_,
                  coarsening_, std::move(arena),
                  {.blockBytes = options.blockBytes,
                   .chunkBytes = options.chunkBytes,
                   .movedPages = options.movedPages}),
      access_(mutex_, index_, loans_, residency_, blocks_, coarsening_),
      exitFetch_(mutex_, ledger_, index_, blocks_, access_),
      deviceLoans_(mutex_, accelerator, ledger_, loans_, waits_, index_, blocks_),
      bulk_(mutex_, accelerator, ledger_, waits_, index_, residency_, blocks_, coarsening_,
            access_),
      early_(mutex_, ledger_, index_, residency_, blocks_, options.readAheadBytes,
             options.fetchInBackground),
      kernels_(mutex_, accelerator, ledger_, waits_, index_),
      promptWaits_(options.zeroCopy.prompt),
      launches_(mutex_, accelerator, ledger_, loans_, waits_, index_, blocks_, coarsening_,
                allocation_, kernels_, promptWaits_, options.zeroCopy.limits),
      migration_(mutex_, accelerator, ledger_, waits_, index_, freed_, blocks_, launches_),
      placement_(mutex_, accelerator, ledger_, index_, freed_, launches_),
      scheduling_(mutex_, accelerator, ledger_, index_, migration_, options.scheduling),
      spilling_(mutex_, accelerator, ledger_, waits_, index_, freed_, allocation_, launches_,
                options.spill),
      zeroCopy_(mutex_, accelerator, ledger_, waits_, index_, blocks_, launches_, promptWaits_,
                options.zeroCopy),
      readBacks_(accelerator, ledger_, blocks_, zeroCopy_),
      acquire_(mutex_, accelerator, ledger_, waits_, index_, blocks_, coarsening_, readBacks_),
      lookup_(mutex_, index_, allocation_),
      promises_(mutex_, ledger_, waits_, index_) {}

Result<std::unique_ptr<Manager>> Manager::make(accel::Accelerator& accelerator,
                                               std::unique_ptr<Protocol> protocol,
                                               const ManagerOptions& options) {
  auto arena = os::FileArena::make();
  if (!arena.ok()) {
    return arena.status();
  }
  std::unique_ptr<Manager> manager(
      new Manager(accelerator, std::move(protocol), options, std::move(*arena)));
  GMAC_TRY(manager->forkMark_.make());
  if (options.movedPages) {
    if (!accelerator.copiesReachMovedPages()) {
      return fail(adsmErrorNotSupported, "the {} accelerator cannot copy moved pages",
                  accelerator.name());
    }
    if (!manager->protocol_->wholeObjects() && options.blockBytes < kMovedGranularity) {
      return fail(adsmErrorNotSupported, "moved pages need blocks of at least {} bytes, not {}",
                  kMovedGranularity, options.blockBytes);
    }
    GMAC_TRY(proveMovedPages(accelerator, manager->residency_));
    if (options.populateAhead) {
      manager->residency_.start();
    }
  }
  return manager;
}

Manager::~Manager() { stopBackground(); }

bool Manager::lockIsHeldHere() noexcept { return Lock::isHeldHere(); }

void Manager::stopBackground() {
  // A child of fork has no such threads, whatever the handles say.
  if (forked()) {
    return;
  }
  early_.stop();
  residency_.stop();
}

void Manager::exits() {
  stopBackground();
  if (options_.managed && !forked()) {
    exitFetch_.run();
  }
}

// Signals are blocked as under Lock: a handler that faulted between the two would wait for its own
// thread.
void Manager::beforeFork() {
  auto lock = std::make_unique<Lock>(mutex_);
  forking_ = std::move(lock);
}

void Manager::afterFork() { const std::unique_ptr<Lock> lock = std::move(forking_); }

// ---- adsm.h

Result<void*> Manager::allocate(std::size_t size, accel::Placement placement) {
  if (forked()) {
    return fail(adsmErrorForked, "{} in a child of fork",
                placement == accel::Placement::kSameAddress ? "adsmAlloc" : "adsmSafeAlloc");
  }
  return spilling_.allocate(size, placement);
}

Result<void*> Manager::allocateStriped(std::size_t size, std::span<const std::size_t> devices) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmAllocStriped in a child of fork");
  }
  if (const Status proved = proveStripes(devices); !proved.ok()) {
    log(LogLevel::kInfo, "adsmAllocStriped: {} bytes are not striped: {}", size, lastErrorText());
    return spilling_.allocate(size, accel::Placement::kSameAddress);
  }
  return spilling_.allocateStriped(size, devices);
}

// Other devices' copies, too, must reach pages that have moved.
Status Manager::proveStripes(std::span<const std::size_t> devices) {
  const accel::Devices* const all = accelerator_.devices();
  if (!options_.movedPages || devices.size() < 2 || all == nullptr || !all->reachEachOther()) {
    return {};
  }
  unsigned wanted = 0;
  for (const std::size_t device : devices) {
    wanted |= 1U << device;
  }
  const std::lock_guard one(proofs_);
  if ((wanted & ~provedDevices_) != 0) {
    GMAC_TRY(proveMovedPages(accelerator_, residency_, devices));
    provedDevices_ |= wanted;
  }
  return {};
}

Status Manager::free(void* address) {
  return forked() ? fail(adsmErrorForked, "adsmFree({}) in a child of fork", address)
                  : spilling_.free(address);
}

Result<void*> Manager::deviceAddress(const void* address) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSafe({}) in a child of fork", address);
  }
  return allocation_.deviceAddress(address);
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
  spilling_.beforeWork();
  return scheduling_.call(kernel, shape, args,
                          uses ? std::optional(CallUses{.list = list}) : std::nullopt, device);
}

Status Manager::callRanges(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                           std::span<const adsmRangeUse_t> uses,
                           std::optional<std::size_t> device) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmCallRanges({}) in a child of fork", kernel->name);
  }
  const std::vector<adsmRangeUse_t> list(uses.begin(), uses.end());
  spilling_.beforeWork();
  return scheduling_.call(kernel, shape, args,
                          CallUses{.function = "adsmCallRanges", .parts = true, .list = list},
                          device);
}

Status Manager::migrate(const void* address, std::size_t bytes, std::size_t device) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmMigrate({}) in a child of fork", address);
  }
  zeroCopy_.leave(address);
  return migration_.migrate(address, bytes, device);
}

Status Manager::bind(const void* object, adsmKernel_t kernel, adsmAccess_t access) {
  return forked() ? fail(adsmErrorForked, "adsmBind({}) in a child of fork", object)
                  : kernels_.bind(object, kernel, access);
}

Status Manager::forget(adsmKernel_t kernel) {
  return forked() ? fail(adsmErrorForked, "adsmKernelDestroy({}) in a child of fork", kernel->name)
                  : kernels_.forget(kernel);
}

Status Manager::setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                            std::size_t bytes) {
  return forked() ? fail(adsmErrorForked, "adsmSetConstant({}) in a child of fork", kernel->name)
                  : kernels_.setConstant(kernel, constant, data, bytes);
}

Status Manager::sync() {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSync in a child of fork");
  }
  GMAC_TRY(acquire_.sync());
  zeroCopy_.afterWait();
  return {};
}

// ---- Accesses of the CPU

bool Manager::onFault(void* address, bool write) noexcept {
  if (!shared_ranges::mayBeShared(address, 1)) {
    return false;
  }
  if (forked()) {
    access_.tellOfFaultInChild(address);
    return false;
  }
  return access_.onFault(address, write);
}

Status Manager::hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) {
  return forked() ? Status() : access_.hold(address, bytes, purpose);
}

void Manager::unhold(const void* address, std::size_t bytes) {
  if (!forked()) {
    access_.unhold(address, bytes);
  }
}

void Manager::copy(void* to, const void* from, std::size_t bytes,
                   coherence::MoveFunction move) noexcept {
  forked() ? (void)move(to, from, bytes) : bulk_.copy(to, from, bytes, move);
}

void Manager::fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept {
  forked() ? (void)set(to, value, bytes) : bulk_.fill(to, value, bytes, set);
}

Status Manager::startFlush(const void* address, std::size_t bytes) {
  return forked() ? Status() : early_.startFlush(address, bytes);
}

Status Manager::startFetch(const void* address, std::size_t bytes) {
  return forked() ? Status() : early_.startFetch(address, bytes);
}

Manager::EarlyStep Manager::fetchNext() { return forked() ? EarlyStep::kIdle : early_.fetchNext(); }

// ---- Device work

Status Manager::beginDeviceWork(accel::NativeStream stream,
                                std::span<const coherence::DeviceRange> ranges) {
  if (forked()) {
    return fail(adsmErrorForked, "device work in a child of fork");
  }
  spilling_.beforeWork();
  return migration_.beginDeviceWork(stream, ranges);
}

Status Manager::endDeviceWork(accel::NativeStream stream, bool submitted) {
  return launches_.endDeviceWork(stream, submitted);
}

Status Manager::beginOwnWork(std::span<const coherence::DeviceRange> ranges) {
  return forked() ? fail(adsmErrorForked, "device work in a child of fork")
                  : migration_.beginOwnWork(ranges);
}

Status Manager::endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) {
  return launches_.endOwnWork(ranges, ticket);
}

void Manager::beforeDeviceWait(std::optional<accel::NativeStream> stream) {
  if (!forked()) {
    acquire_.beforeDeviceWait(stream);
  }
}

Status Manager::afterDeviceWait() {
  if (forked()) {
    return {};
  }
  GMAC_TRY(placement_.afterWait());
  GMAC_TRY(acquire_.afterDeviceWait());
  zeroCopy_.afterWait();
  return {};
}

// A device that does not reach the objects where they lie reaches them in the CPU's memory.
Result<accel::NativeStream> Manager::streamOf(std::uintptr_t context, accel::NativeStream stream) {
  auto number = Port::streamOf(context, stream);
  if (number.ok() || number.status().code() != adsmErrorNotSupported || forked()) {
    return number;
  }
  const std::string reason = lastErrorText();
  if (const Status kept = spilling_.keepOnCpu(); !kept.ok()) {
    const std::string words = lastErrorText();
    return fail(kept.code(), "{}; nor can they lie in the CPU's memory: {}", reason, words);
  }
  log(LogLevel::kInfo, "{}: objects lie in the CPU's memory from now on", reason);
  return Port::streamOf(context, stream);
}

Status Manager::prefer(const void* address, std::size_t bytes, int device) {
  return forked() ? Status() : placement_.prefer(address, bytes, device);
}

Status Manager::namedBy(const void* address, int device) {
  return forked() ? Status() : placement_.namedBy(address, device);
}

void Manager::hostFunctionQueued() { ledger_.hostFunctionQueued(); }

void Manager::hostFunctionEnded() { ledger_.hostFunctionEnded(); }

Status Manager::setUsers(const void* object, coherence::Users users, accel::NativeStream stream) {
  return forked() ? fail(adsmErrorForked, "attaching {} to a stream in a child of fork", object)
                  : promises_.setUsers(object, users, stream);
}

void Manager::setReadMostly(const void* object, bool readMostly) {
  if (!forked() && options_.trustHints) {
    promises_.setReadMostly(object, readMostly);
  }
}

void Manager::streamDestroyed(accel::NativeStream stream) { promises_.streamDestroyed(stream); }

void Manager::endContext(bool workFinished) {
  if (!forked()) {
    allocation_.endContext(workFinished);
  }
}

// ---- Questions

// The interposed functions ask these two before they turn cancellation off.
bool Manager::touchesShared(const void* address, std::size_t bytes) noexcept {
  return uncancelled([&]() noexcept { return lookup_.touchesShared(address, bytes); });
}

std::size_t Manager::sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept {
  return uncancelled([&]() noexcept { return lookup_.sharedPrefix(address, bytes, shared); });
}

coherence::Place Manager::placeOf(const void* address, std::size_t bytes) noexcept {
  return uncancelled([&]() noexcept { return lookup_.placeOf(address, bytes); });
}

std::ptrdiff_t Manager::deviceDistance(const void* address) noexcept {
  return lookup_.deviceDistance(address);
}

std::uintptr_t Manager::cpuAddress(std::uintptr_t device) noexcept {
  return lookup_.cpuAddress(device);
}

Status Manager::verify() { return blocks_.verify(); }

// ---- Memory

bool Manager::populateNext() { return residency_.populateNext(); }

bool Manager::disposeNext() { return freed_.disposeNext(); }

bool Manager::makeRoom() { return !forked() && (freed_.giveBackAll() || spilling_.makeRoom()); }

bool Manager::isKept(std::uintptr_t device) { return !forked() && freed_.isKept(device); }

}  // namespace gmac
