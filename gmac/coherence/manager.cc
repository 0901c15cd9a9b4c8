// SPDX-License-Identifier: Apache-2.0
//
// The manager's start and end, and its objects.
#include "gmac/coherence/manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"

namespace gmac {
namespace {

// Blocks of regions that small objects share: finer than those of large objects, because unrelated
// objects meet there.
constexpr std::size_t kSmallBlockBytes = std::size_t{64} << 10;
// The least that a copy of moved pages may have (the driver copies less through the CPU address,
// which is gone).
constexpr std::size_t kMovedGranularity = std::size_t{64} << 10;

// What the accelerator said when the calling thread last released a region of small objects.
thread_local Status regionReleased __attribute__((tls_model("initial-exec")));

}  // namespace

Manager::Manager(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
                 const ManagerOptions& options)
    : accelerator_(accelerator),
      protocol_(std::move(protocol)),
      options_(options),
      small_(static_cast<RegionSource&>(*this)),
      ledger_(accelerator),
      budget_(options.mappingLimit),
      pool_(options.keptBytes) {}

Result<std::unique_ptr<Manager>> Manager::make(accel::Accelerator& accelerator,
                                               std::unique_ptr<Protocol> protocol,
                                               const ManagerOptions& options) {
  auto arena = os::FileArena::make();
  if (!arena.ok()) {
    return arena.status();
  }
  std::unique_ptr<Manager> manager(new Manager(accelerator, std::move(protocol), options));
  manager->arena_ = std::move(*arena);
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
    GMAC_TRY(manager->proveMovedPages());
    if (options.populateAhead) {
      const os::SignalsBlocked blocked;  // inherited: the application's handlers never run there
      manager->populator_ = std::thread([m = manager.get()] { m->workBehind(); });
    }
  }
  return manager;
}

bool Manager::lockIsHeldHere() noexcept { return Lock::isHeldHere(); }

void Manager::stopBackground() {
  // A child of fork has no such threads, whatever the handles say.
  if (forked()) {
    return;
  }
  stopping_ = true;
  std::thread fetcher;
  {
    Lock lock(*this);
    fetcher.swap(fetcher_);
  }
  earlyGeneration_.fetch_add(1);
  earlyGeneration_.notify_all();
  if (fetcher.joinable()) {
    fetcher.join();
  }
  aheadGeneration_.fetch_add(1);
  aheadGeneration_.notify_all();
  if (populator_.joinable()) {
    populator_.join();
  }
}

Manager::~Manager() {
  stopBackground();
  {
    Lock lock(*this);
    keepsFreed_ = false;
    while (!index_.all().empty()) {
      (void)destroy(lock, *index_.all().begin());
    }
    while (Object* object = pool_.takeOldest()) {
      (void)giveBack(lock, *object);
    }
  }
  retired_.clear_and_dispose([](Object* object) { delete object; });
}

// Whether this kernel and driver copy to and from pages that moved away: shown with real pages
// before any object depends on it.
Status Manager::proveMovedPages() {
  constexpr std::size_t kBytes = os::kHugePageBytes;
  class Open final : public os::AccessMap {
    os::AccessRun at(std::size_t) const override { return {kBytes, os::Access::kReadWrite}; }
  };
  auto device = accelerator_.allocate(kBytes, os::kHugePageBytes, accel::Placement::kAnywhere);
  if (!device.ok()) {
    return device.status();
  }
  const Status proof = [&]() -> Status {
    auto mirror = os::makeMovedMirror({nullptr, kBytes, kBytes, os::Access::kNone}, *this);
    if (!mirror.ok()) {
      return mirror.status();
    }
    os::Mirror& pages = **mirror;
    GMAC_TRY(pages.prepare(0));
    GMAC_TRY(pages.install(0, Open()));
    // Word by word: this is part of every program's start.
    auto* const words = reinterpret_cast<std::uint64_t*>(pages.address());
    constexpr std::size_t kWords = kBytes / sizeof *words;
    const auto pattern = [](std::size_t i) { return i * 0x9E3779B97F4A7C15U + (i >> 9); };
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = pattern(i);
    }
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kNone));
    auto in = accelerator_.copyIn(*device, pages.copyAddress(0), kBytes, kDone);
    if (!in.ok()) {
      return in.status();
    }
    GMAC_TRY(accelerator_.wait(*in));
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kReadWrite));
    std::fill_n(pages.address(), kBytes, std::byte{0});
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kNone));
    for (std::size_t offset = 0; offset < kBytes; offset += kMovedGranularity) {
      auto out =
          accelerator_.copyOut(pages.copyAddress(offset),
                               accel::DeviceAddress{static_cast<std::uintptr_t>(*device) + offset},
                               kMovedGranularity, kDone);
      if (!out.ok()) {
        return out.status();
      }
      GMAC_TRY(accelerator_.wait(*out));
    }
    GMAC_TRY(pages.protect(0, kBytes, os::Access::kRead));
    for (std::size_t i = 0; i < kWords; ++i) {
      if (words[i] != pattern(i)) {
        return fail(adsmErrorNotSupported,
                    "copies do not reach moved pages (word {} of {} differs)", i, kWords);
      }
    }
    return {};
  }();
  const Status freed = accelerator_.free(*device, kBytes);
  return proof.ok() ? freed : proof;
}

// Signals are blocked as under Lock: a handler that faulted between the two would wait for its own
// thread.
void Manager::beforeFork() {
  auto* lock = new Lock(*this);
  forking_ = lock;
}

void Manager::afterFork() { const std::unique_ptr<Lock> lock(std::exchange(forking_, nullptr)); }

// ---- Objects

namespace {

// Of the API, for messages.
const char* functionOf(accel::Placement placement) {
  return placement == accel::Placement::kSameAddress ? "adsmAlloc" : "adsmSafeAlloc";
}

}  // namespace

Result<void*> Manager::allocate(std::size_t size, accel::Placement placement) {
  const Timed timed(Phase::kMalloc);
  const char* const function = functionOf(placement);
  if (forked()) {
    return fail(adsmErrorForked, "{} in a child of fork", function);
  }
  constexpr std::size_t kMost = std::size_t{1} << 46;
  if (size == 0 || size > kMost) {
    return fail(adsmErrorInvalidValue, "{}: size is {}; allowed are 1 to {} bytes", function, size,
                kMost);
  }
  Result<void*> address(nullptr);
  // A slot in a region that is there needs nothing of the accelerator, and could not be touched
  // without it.
  GMAC_TRY(accelerator_.usable());
  if (size <= SmallHeap::kLargestObject && placement == accel::Placement::kSameAddress) {
    address = small_.allocate(size);
  } else {
    auto object = makeObject(size, options_.blockBytes, placement, false);
    if (!object.ok()) {
      return object.status();
    }
    address = static_cast<void*>((*object)->address());
  }
  if (address.ok()) {
    stats().allocations.add();
  }
  return address;
}

Result<Object*> Manager::makeObject(std::size_t size, std::size_t blockBytes,
                                    accel::Placement placement, bool sharedBySmallObjects) {
  // A handler that faulted in the middle of this would need the accelerator, too.
  const os::SignalsBlocked blocked;
  if (const Status left = leaveMappingsForObject(); !left.ok() && !giveBackKept()) {
    return left;
  }
  const bool moved = options_.movedPages;
  const std::size_t bytes = os::roundUp(size, moved ? kMovedGranularity : os::pageBytes());
  if (auto kept = takeKept(bytes, placement)) {
    auto object = reuse(std::move(kept), size, blockBytes, sharedBySmallObjects);
    if (!object.ok()) {
      return object.status();
    }
    stats().reusedAllocations.add();
    return addObject(std::move(*object));
  }
  const auto allocate = [&] {
    const Timed timed(Phase::kCudaMalloc);
    // Where neighbours touch, there is no gap that takes a mapping.
    return accelerator_.allocate(bytes, moved ? os::kHugePageBytes : os::pageBytes(), placement);
  };
  auto device = allocate();
  // Of either kind: what is kept takes memory, and addresses.
  if (!device.ok() && device.status().code() != adsmErrorAcceleratorLost && giveBackKept()) {
    device = allocate();
  }
  if (!device.ok() && device.status().code() == adsmErrorAddressConflict) {
    // The text is being replaced, so keep its words.
    const std::string words = lastErrorText();
    return fail(
        adsmErrorAddressConflict,
        "adsmAlloc: no address is free on both sides for {} bytes ({}); adsmSafeAlloc() gives an "
        "object whose address is valid on the CPU only",
        size, words);
  }
  if (!device.ok()) {
    return device.status();
  }
  const bool sameAddress = placement == accel::Placement::kSameAddress;
  const os::MirrorPlace place{
      sameAddress ? reinterpret_cast<void*>(static_cast<std::uintptr_t>(*device)) : nullptr, bytes,
      options_.chunkBytes, accessOf(protocol_->initial())};
  std::unique_ptr<Object> object;
  const auto make = [&]() -> Status {
    try {
      auto mirror =
          moved ? os::makeMovedMirror(place, *this) : os::makeFileMirror(place, *arena_, *this);
      if (!mirror.ok()) {
        return mirror.status();
      }
      object = std::make_unique<Object>(std::move(*mirror), *device,
                                        protocol_->wholeObjects() && !sharedBySmallObjects
                                            ? os::roundUp(bytes, os::pageBytes())
                                            : blockBytes,
                                        protocol_->initial());
      object->sharedBySmallObjects = sharedBySmallObjects;
      object->sameAddress = sameAddress;
      object->requestedBytes = size;
      // Dirty blocks are flushed without a fault before, so their pages must be there from the
      // start.
      if (protocol_->initial() == State::kDirty) {
        for (std::size_t chunk = 0; chunk < object->chunks.size(); ++chunk) {
          GMAC_TRY(object->mirror->prepare(chunk));
          GMAC_TRY(object->mirror->install(chunk, BlockAccess(*object)));
          object->chunks[chunk] = Object::Chunk::kReady;
        }
      }
      return {};
    } catch (const std::bad_alloc&) {
      return fail(adsmErrorHostMemory, "{}: no memory for the blocks of {} bytes",
                  functionOf(placement), size);
    }
  };
  Status made = make();
  if (made.code() == adsmErrorHostMemory && giveBackKept()) {
    object.reset();
    made = make();
  }
  if (!made.ok()) {
    object.reset();
    (void)accelerator_.free(*device, bytes);
    return made;
  }
  return addObject(std::move(object));
}

// An object in kept memory. Its bytes are zero on the accelerator and of any age on the CPU, so all
// of it is Invalid.
Result<std::unique_ptr<Object>> Manager::reuse(std::unique_ptr<Object> kept, std::size_t size,
                                               std::size_t blockBytes, bool sharedBySmallObjects) {
  const accel::DeviceAddress device = kept->device;
  const std::size_t bytes = kept->bytes();
  try {
    const bool whole = protocol_->wholeObjects() && !sharedBySmallObjects;
    auto object = std::make_unique<Object>(std::move(kept->mirror), kept->device,
                                           whole ? bytes : blockBytes, State::kInvalid);
    object->open = {};
    object->chunks = std::move(kept->chunks);
    object->pieces = kept->pieces;
    object->sharedBySmallObjects = sharedBySmallObjects;
    object->sameAddress = kept->sameAddress;
    object->requestedBytes = size;
    return object;
  } catch (const std::bad_alloc&) {
    kept.reset();
    (void)accelerator_.free(device, bytes);
    return fail(adsmErrorHostMemory, "adsmAlloc: no memory for the blocks of {} bytes", size);
  }
}

// Everybody finds the object from now on.
Object* Manager::addObject(std::unique_ptr<Object> object) {
  Lock lock(*this);
  Object* result = object.release();
  if (options_.windowBytes != 0) {
    result->windowBytes =
        std::max(options_.windowBytes, options_.movedPages ? kMovedGranularity : 0);
    result->windows = WindowPolicy(&firstWindows_);
  }
  result->number = ++allocations_;
  ledger_.allocated(*result);
  livingBytes_ += result->bytes();
  index_.insert(*result);
  pieces_ += result->pieces;
  safeObjects_ += result->sameAddress ? 0 : 1;
  if (!result->open.empty()) {
    open_.push_back(*result);
  }
  protocol_->allocated();
  if (result->blocks[0].state == State::kDirty) {
    for (std::size_t i = 0; i < result->blockCount; ++i) {
      protocol_->becameDirty(result->blocks[i]);
    }
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(result->address());
  shared_ranges::add(begin, begin + result->bytes());
  return result;
}

Status Manager::free(void* address) {
  const Timed timed(Phase::kFree);
  idle_.used();
  if (forked()) {
    return fail(adsmErrorForked, "adsmFree({}) in a child of fork", address);
  }
  if (address == nullptr) {
    return {};
  }
  {
    Lock lock(*this);
    Object* object = index_.find(address);
    if (object == nullptr || object->closing) {
      return fail(adsmErrorInvalidPointer,
                  "adsmFree({}): no shared object is there (never allocated, or freed already)",
                  address);
    }
    if (!object->sharedBySmallObjects) {
      if (object->address() != address) {
        return fail(adsmErrorInvalidPointer,
                    "adsmFree({}): inside the object that starts at {}, not its start", address,
                    fmt::ptr(object->address()));
      }
      GMAC_TRY(destroy(lock, *object));
      stats().frees.add();
      return {};
    }
  }
  regionReleased = {};
  GMAC_TRY(small_.free(address));
  stats().frees.add();
  return regionReleased;
}

// Takes an object out of use and gives its memory back on both sides. Lets the lock go; leaves it
// held.
Status Manager::destroy(Lock& lock, Object& object) {
  object.closing = true;  // nothing new begins on it, and a second free finds nothing
  while (object.busy > 0 || object.preparing > 0 || object.holds > 0 || deviceWork_) {
    waitForChange(lock);
  }
  // Kernels that may use it, and copies that name its pages. An accelerator that is lost has no
  // such work any more; a kernel's error stays for adsmSync to tell.
  accel::Ticket flushed;
  object.blocks.forEachMade(
      [&](const Block& block) { flushed.value = std::max(flushed.value, block.flushed); });
  bool waited = false;
  (void)waitForWriters(lock, object, &waited);
  const accel::Ticket read{object.lastRead};
  {
    const Free free(lock);
    (void)await(free, read);
    (void)await(free, flushed);
  }

  object.blocks.forEachMade([&](Block& block) {
    if (block.evicted || isDirty(block.state)) {
      protocol_->dropped(block);
    }
    if (isDirty(block.state)) {
      protocol_->leftDirty(block);
    }
  });
  protocol_->freed();
  if (!object.open.empty()) {
    open_.erase(open_.iterator_to(object));
  }
  noteEdges(object, 0);
  pieces_ -= object.pieces;
  std::erase(bound_, &object);
  if (lastTouched_ == &object) {
    lastTouched_ = nullptr;
  }
  for (std::size_t chunk = 0; chunk < object.chunks.size(); ++chunk) {
    noteUse(object, chunk, Object::Use::kNone);
  }
  index_.erase(object);
  livingBytes_ -= object.bytes();
  forgetAddresses(object);
  safeObjects_ -= object.sameAddress ? 0 : 1;
  ++leaving_;
  changed();

  const Status status = keep(lock, object) ? Status() : giveBack(lock, object);
  // With less that lives less is kept.
  while (Object* excess = pool_.takeExcess(livingBytes_)) {
    (void)giveBack(lock, *excess);
  }
  --leaving_;
  changed();
  return status;
}

void Manager::forgetAddresses(const Object& object) {
  constexpr std::uintptr_t kGranule = shared_ranges::kGranuleBytes;
  auto begin = reinterpret_cast<std::uintptr_t>(object.address()) / kGranule * kGranule;
  std::uintptr_t end = os::roundUp(reinterpret_cast<std::uintptr_t>(object.end()), kGranule);
  // Neighbours may live in the first and in the last granule.
  const auto lives = [&](std::uintptr_t granule) {
    const Object* other = index_.firstEndingAfter(reinterpret_cast<const void*>(granule));
    return other != nullptr &&
           reinterpret_cast<std::uintptr_t>(other->address()) < granule + kGranule;
  };
  if (lives(begin)) {
    begin += kGranule;
  }
  if (begin < end && lives(end - kGranule)) {
    end -= kGranule;
  }
  shared_ranges::remove(begin, end);
}

Result<void*> Manager::acquire(std::size_t bytes) {
  // Moved pages are never copied in less than their granularity, whatever blocks large objects
  // have.
  const std::size_t least = options_.movedPages ? kMovedGranularity : os::pageBytes();
  auto object = makeObject(bytes, std::clamp(options_.blockBytes, least, kSmallBlockBytes),
                           accel::Placement::kSameAddress, true);
  if (!object.ok()) {
    return object.status();
  }
  return static_cast<void*>((*object)->address());
}

// The region is gone whatever the accelerator says to it, and the heap must know; free() tells the
// error.
Status Manager::release(void* region) {
  Lock lock(*this);
  regionReleased = destroy(lock, *index_.find(region));
  return {};
}

// An address inside a region of small objects must be in one that lives. (The heap's lock comes
// before the manager's.)
Status Manager::checkSmall(const char* function, const void* address) {
  {
    Lock lock(*this);
    const Object* object = index_.find(address);
    if (object == nullptr || !object->sharedBySmallObjects) {
      return {};
    }
  }
  if (!small_.find(address)) {
    return fail(adsmErrorInvalidPointer,
                "{}: {} is in no shared object (never allocated, or freed)", function, address);
  }
  return {};
}

Result<void*> Manager::deviceAddress(const void* address) {
  if (forked()) {
    return fail(adsmErrorForked, "adsmSafe({}) in a child of fork", address);
  }
  GMAC_TRY(checkSmall("adsmSafe", address));
  Lock lock(*this);
  Object* object = index_.find(address);
  if (object == nullptr || object->closing) {
    return fail(adsmErrorInvalidPointer, "adsmSafe({}): no shared object is there", address);
  }
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - object->address());
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(object->deviceAt(offset)));
}

}  // namespace gmac
