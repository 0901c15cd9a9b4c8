// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/allocation.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gmac/accel/devices.h"
#include "gmac/base/round_up.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/moved_pages.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/coherence/shared_ranges.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"

namespace gmac {
namespace {

// Blocks of regions that small objects share: finer than those of large objects, because unrelated
// objects meet there.
constexpr std::size_t kSmallBlockBytes = std::size_t{64} << 10;

// Of the API, for messages.
const char* functionOf(accel::Placement placement) {
  return placement == accel::Placement::kSameAddress ? "adsmAlloc" : "adsmSafeAlloc";
}

}  // namespace

Allocation::~Allocation() {
  Lock lock(mutex_);
  freed_.keepNothing();
  while (!index_.all().empty()) {
    (void)destroy(lock, *index_.all().begin());
  }
  (void)freed_.giveBackAll(lock);
}

Result<void*> Allocation::allocate(std::size_t size, accel::Placement placement,
                                   const NewHome& home) {
  const Timed timed(Phase::kMalloc);
  const char* const function = functionOf(placement);
  constexpr std::size_t kMost = std::size_t{1} << 46;
  if (size == 0 || size > kMost) {
    return fail(adsmErrorInvalidValue, "{}: size is {}; allowed are 1 to {} bytes", function, size,
                kMost);
  }
  Result<void*> address(nullptr);
  // A slot in a region that is there needs nothing of the accelerator, and could not be touched
  // without it.
  GMAC_TRY(accelerator_.usable());
  // (Regions of small objects are in the memory of the device here.)
  if (size <= SmallHeap::kLargestObject && placement == accel::Placement::kSameAddress &&
      home.isUsual()) {
    address = small_.allocate(size);
  } else {
    auto object = makeObject({size, options_.blockBytes, placement, false, home});
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

Result<Object*> Allocation::makeObject(const Wanted& wanted) {
  // A handler that faulted in the middle of this would need the accelerator, too.
  const os::SignalsBlocked blocked;
  const auto leaveMappings = [&] {
    Lock lock(mutex_);
    return coarsening_.leaveMappingsForObject(lock);
  };
  if (const Status left = leaveMappings(); !left.ok() && !freed_.giveBackAll()) {
    return left;
  }
  const NewHome& home = wanted.home;
  const std::size_t bytes =
      roundUp(wanted.size, options_.movedPages ? kMovedGranularity : os::pageBytes());
  if (const auto kept =
          home.isUsual() ? freed_.reuse({.bytes = bytes,
                                         .placement = wanted.placement,
                                         .blockBytes = isOneBlock(wanted) ? 0 : wanted.blockBytes})
                         : nullptr) {
    auto object = reuse(*kept, wanted);
    if (!object.ok()) {
      return object.status();
    }
    stats().reusedAllocations.add();
    return addObject(std::move(*object), kept.get());
  }
  const accel::MovableMemory* const memory = accelerator_.movableMemory();
  const int here = home.device != NewHome::kHere ? home.device
                   : memory == nullptr           ? 0
                                                 : memory->deviceHere();
  const auto device = makeRoomAndAllocate(wanted, bytes);
  GMAC_TRY(device.status());
  auto object = mirror(wanted, *device, bytes);
  if (object.status().code() == adsmErrorHostMemory && freed_.giveBackAll()) {
    object = mirror(wanted, *device, bytes);
  }
  if (!object.ok()) {
    (void)accelerator_.free(*device, bytes);
    return object.status();
  }
  (*object)->pagesOn = here;
  return addObject(std::move(*object));
}

// An object over new memory of the accelerator.
Result<std::unique_ptr<Object>> Allocation::mirror(const Wanted& wanted,
                                                   accel::DeviceAddress device, std::size_t bytes) {
  const NewHome& home = wanted.home;
  const Protocol& protocol = blocks_.protocol();
  const bool sameAddress = wanted.placement == accel::Placement::kSameAddress;
  const os::MirrorPlace place{
      sameAddress ? reinterpret_cast<void*>(static_cast<std::uintptr_t>(device)) : nullptr, bytes,
      options_.chunkBytes, accessOf(protocol.initial())};
  try {
    auto pages = options_.movedPages ? os::makeMovedMirror(place, residency_)
                                     : os::makeFileMirror(place, *arena_, residency_);
    GMAC_TRY(pages.status());
    auto object = std::make_unique<Object>(
        std::move(*pages), device,
        isOneBlock(wanted) ? roundUp(bytes, os::pageBytes()) : wanted.blockBytes,
        protocol.initial());
    object->sharedBySmallObjects = wanted.sharedBySmallObjects;
    object->sameAddress = sameAddress;
    const accel::MovableMemory* const memory = accelerator_.movableMemory();
    object->home =
        home.home == accel::Home::kDevice && memory != nullptr ? memory->gatheredIn() : home.home;
    object->apartOn = object->home == accel::Home::kApart ? memory->gatheredOn() : -1;
    object->spilledFrom = home.spilledFrom;
    // (It is not kept for the next object.)
    object->striped = object->placed = object->advised = object->relocated = !home.stripes.empty();
    object->homeDevice =
        accelerator_.devices() == nullptr ? 0 : accelerator_.devices()->homeOf(device);
    object->requestedBytes = wanted.size;
    watchPages(*object);
    // Dirty blocks are flushed without a fault before, so their pages must be there from the start.
    if (protocol.initial() == State::kDirty) {
      GMAC_TRY(residency_.populateAll(*object));
    }
    return object;
  } catch (const std::bad_alloc&) {
    return fail(adsmErrorHostMemory, "{}: no memory for the blocks of {} bytes",
                functionOf(wanted.placement), wanted.size);
  }
}

Result<accel::DeviceAddress> Allocation::makeRoomAndAllocate(const Wanted& wanted,
                                                             std::size_t bytes) {
  auto device = allocateDevice(bytes, wanted.placement, wanted.home);
  // Of either kind: what is kept takes memory, and addresses.
  if (!device.ok() && device.status().code() != adsmErrorAcceleratorLost && freed_.giveBackAll()) {
    device = allocateDevice(bytes, wanted.placement, wanted.home);
  }
  if (!device.ok() && device.status().code() == adsmErrorAddressConflict) {
    // The text is being replaced, so keep its words.
    const std::string words = lastErrorText();
    return fail(
        adsmErrorAddressConflict,
        "adsmAlloc: no address is free on both sides for {} bytes ({}); adsmSafeAlloc() gives an "
        "object whose address is valid on the CPU only",
        wanted.size, words);
  }
  return device;
}

Result<accel::DeviceAddress> Allocation::allocateDevice(std::size_t bytes,
                                                        accel::Placement placement,
                                                        const NewHome& home) {
  const Timed timed(Phase::kCudaMalloc);
  // Where neighbours touch, there is no gap that takes a mapping.
  const std::size_t alignment = options_.movedPages ? os::kHugePageBytes : os::pageBytes();
  if (!home.stripes.empty()) {
    return accelerator_.devices()->allocateStriped(bytes, alignment, placement, home.stripes);
  }
  accel::MovableMemory* const memory = accelerator_.movableMemory();
  if (home.home == accel::Home::kCpu) {
    return memory->allocateOnCpu(bytes, alignment, placement);
  }
  if (memory == nullptr || !memory->severalDevices()) {
    return accelerator_.allocate(bytes, alignment, placement);
  }
  // On no other one, if that is full: who spills decides.
  return memory->allocateOn(bytes, alignment, placement,
                            home.device == NewHome::kHere ? memory->deviceHere() : home.device);
}

void Allocation::watchPages(Object& object) const {
  if (object.bytes() > options_.mostWhole) {
    object.pageRounds = std::make_unique<PageRounds>(object.bytes(), options_.pageBytes);
  }
}

// Whether all of an object is one block.
bool Allocation::isOneBlock(const Wanted& wanted) const {
  return blocks_.protocol().wholeObjects() && !wanted.sharedBySmallObjects;
}

// An object in kept memory. Its bytes are zero on the accelerator and of any age on the CPU, so all
// of it is Invalid, but for what is still open. What is known of the CPU's rounds holds on: where
// objects come and go, each is used as the one before.
Result<std::unique_ptr<Object>> Allocation::reuse(Object& kept, const Wanted& wanted) {
  const accel::DeviceAddress device = kept.device;
  const std::size_t bytes = kept.bytes();
  const bool again = freed_.comesAndGoes(kept);
  try {
    auto object =
        std::make_unique<Object>(std::move(kept.mirror), kept.device,
                                 isOneBlock(wanted) ? bytes : wanted.blockBytes, State::kInvalid);
    object->open = {};
    object->chunks = std::move(kept.chunks);
    object->stalePages.reserve(object->chunks.size());
    for (const Object::Chunk chunk : object->chunks) {
      object->stalePages.push_back(chunk != Object::Chunk::kEmpty);
    }
    object->zeroSince.emplace();  // until it is added
    object->pieces = kept.pieces;
    object->sharedBySmallObjects = wanted.sharedBySmallObjects;
    object->sameAddress = kept.sameAddress;
    object->home = kept.home;
    object->homeDevice = kept.homeDevice;
    object->pagesOn = kept.pagesOn;
    object->requestedBytes = wanted.size;
    watchPages(*object);
    if (again) {
      const std::uint64_t thread = threadNumber();
      object->zeroCopy = kept.zeroCopy.forNext(kept.comers.newest() == thread);
      if (kept.comers.newest() != 0) {
        object->comers.comes(thread);
      }
      object->readBack = kept.blockBytes == object->blockBytes
                             ? kept.readBack.forNext(kept.keptOpen)
                         : kept.isZeroCopy() ? ReadBackPlaces::ofOneCopy()
                                             : ReadBackPlaces();
    }
    return object;
  } catch (const std::bad_alloc&) {
    if (kept.isZeroCopy()) {
      (void)accelerator_.movableMemory()->move(device, bytes, accel::Home::kDevice);
    }
    kept.mirror.reset();
    (void)accelerator_.free(device, bytes);
    return fail(adsmErrorHostMemory, "{}: no memory for the blocks of {} bytes",
                functionOf(wanted.placement), wanted.size);
  }
}

// Everybody finds the object from now on. `before`: the one whose memory it has.
Object* Allocation::addObject(std::unique_ptr<Object> object, const Object* before) {
  Lock lock(mutex_);
  Object* result = object.release();
  ledger_.allocated(*result);
  if (result->zeroSince) {
    result->zeroSince = ledger_.newestWriters(*result);
  }
  freed_.born(*result);
  blocks_.add(*result, before);
  if (result->isZeroCopy() && before->keptOpen) {
    (void)concurrent_.joinAsBefore(lock, *result);  // (all of it is open: that cannot fail)
  }
  safeObjects_ += result->sameAddress ? 0 : 1;
  const auto begin = reinterpret_cast<std::uintptr_t>(result->address());
  shared_ranges::add(begin, begin + result->bytes());
  if (before != nullptr && before->keptOpen) {
    (void)blocks_.evictExcess(lock);  // (the next fault tries again)
  }
  return result;
}

Status Allocation::free(void* address) {
  const Timed timed(Phase::kFree);
  residency_.served();
  if (address == nullptr) {
    return {};
  }
  const bool waits = !waitsForNobody(address);
  if (waits) {
    Lock lock(mutex_);
    Object* object = index_.findAllocation(address);
    while (object != nullptr && object->address() == address && !object->closing &&
           !object->lent.empty()) {
      // Asked back before the object closes: it is still read for that.
      loans_.awaitReturn(lock, coherence::Lent::kOnDevice);
      object = index_.findAllocation(address);
    }
    if (object == nullptr || object->closing) {
      return fail(adsmErrorInvalidPointer,
                  "adsmFree({}): no shared object is there (never allocated, or freed already)",
                  address);
    }
    if (!object->sharedBySmallObjects) {
      if (object->address() != address) {
        return fail(adsmErrorInvalidPointer,
                    "adsmFree({}): inside the object that starts at {}, not its start", address,
                    shown(object->address()));
      }
      GMAC_TRY(destroy(lock, *object));
      stats().frees.add();
      return {};
    }
  }
  if (waits) {
    awaitStreams(address);
  }
  const Status freed = small_.free(address);
  // (An error of the accelerator leaves the object freed.)
  stats().frees.add(freed.code() == adsmErrorInvalidPointer ? 0 : 1);
  return freed;
}

// Whether a small object is there whose end waits for nothing. Programs free these in numbers: it
// takes the lock once, and where the program handles no signals no system call.
bool Allocation::waitsForNobody(const void* address) {
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  const Object* const region = index_.findAllocation(address);
  return region != nullptr && region->sharedBySmallObjects && !region->closing &&
         region->lent.empty() && ledger_.runningStreamWork().value == 0;
}

// The bytes of a small object may be the next one's at once, and no work on another stream follows
// what the program has launched with the older one.
void Allocation::awaitStreams(void* small) {
  if (const auto found = small_.find(small); !found || found->start != small) {
    return;  // small_.free() says why
  }
  Lock lock(mutex_);
  for (bool waited = true; waited && ledger_.runningStreamWork().value != 0;) {
    waited = false;
    const Object* const region = index_.find(small);
    if (region == nullptr) {
      return;
    }
    (void)waits_.forWriters(lock, *region, &waited);
    if (!waited) {
      (void)waits_.forWork(lock, ledger_.runningReader(*region), &waited);
    }
  }
}

// Takes an object out of use and gives its memory back on both sides. Lets the lock go; leaves it
// held.
Status Allocation::destroy(Lock& lock, Object& object) {
  // Nothing new begins on it, and a second free finds nothing.
  object.withPages([](Object& part) { part.closing = true; });
  // Kernels that may use it, and copies that name its pages. An accelerator that is lost has no
  // such work any more; a kernel's error stays for adsmSync to tell. The lock is let go meanwhile,
  // and another thread may evict what is dirty: that is waited for, too.
  const auto settle = [&] {
    for (;;) {
      bool busy = ledger_.submissionUnderWay();
      bool held = false;
      object.withPages([&](const Object& part) {
        held = held || part.held();
        busy = busy || held || part.inTransit() || part.preparing > 0;
      });
      if (!busy) {
        return blocks_.flushesOf(object, object.all());
      }
      if (!held || !loans_.reclaim(lock, coherence::Lent::kOnCpu)) {
        lock.waitForChange();
      }
    }
  };
  NewestCalls awaited;
  bool waited = false;
  do {
    awaited = settle();
    (void)waits_.forWriters(lock, object, &waited);
    for (const std::unique_ptr<Object>& page : object.pages) {
      if (const Tickets calls = ledger_.callsWith(*page); !calls.empty()) {
        waits_.forCalls(lock, calls);
        waited = true;
      }
    }
    const Tickets readers = ledger_.callsWith(object);
    const bool flushed = std::any_of(awaited.begin(), awaited.end(),
                                     [](accel::Ticket flush) { return flush.value != 0; });
    if (!waited && readers.empty() && !flushed) {
      break;
    }
    const Free free(lock);
    for (const accel::Ticket reader : readers) {
      (void)waits_.await(free, reader);
    }
    for (const accel::Ticket flush : awaited) {
      (void)waits_.await(free, flush);
    }
  } while (settle() != awaited);
  if (!blocks_.isZero(object, object.all())) {
    object.zeroSince.reset();
  }
  object.keptOpen = freed_.mayStayOpen(object);
  object.withPages([&](Object& part) {
    blocks_.remove(part);
    ledger_.forget(part);
    residency_.forget(part);
  });
  freed_.died(object);
  forgetAddresses(object);
  safeObjects_ -= object.sameAddress ? 0 : 1;
  ++leaving_;
  lock.changed();
  const Status status = freed_.take(lock, object);
  --leaving_;
  lock.changed();
  return status;
}

void Allocation::forgetAddresses(const Object& object) {
  constexpr std::uintptr_t kGranule = shared_ranges::kGranuleBytes;
  auto begin = reinterpret_cast<std::uintptr_t>(object.address()) / kGranule * kGranule;
  std::uintptr_t end = roundUp(reinterpret_cast<std::uintptr_t>(object.end()), kGranule);
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

Result<void*> Allocation::acquire(std::size_t bytes) {
  // What is kept open or with one copy serves large objects alone.
  static_assert(SmallHeap::kRegionBytes >= FreedMemory::kLeastClosed);
  // Moved pages are never copied in less than their granularity, whatever blocks large objects
  // have.
  const std::size_t least = options_.movedPages ? kMovedGranularity : os::pageBytes();
  auto object = makeObject({bytes, std::clamp(options_.blockBytes, least, kSmallBlockBytes),
                            accel::Placement::kSameAddress, true, NewHome()});
  if (!object.ok()) {
    return object.status();
  }
  return static_cast<void*>((*object)->address());
}

Status Allocation::release(void* region) {
  Lock lock(mutex_);
  return destroy(lock, *index_.findAllocation(region));
}

// (The heap's lock comes before that of all objects.)
Status Allocation::checkSmall(const char* function, const void* address, std::size_t bytes) {
  {
    Lock lock(mutex_);
    const Object* object = index_.find(address);
    if (object == nullptr || !object->sharedBySmallObjects) {
      return {};
    }
  }
  const auto found = small_.find(address);
  if (!found) {
    return fail(adsmErrorInvalidPointer,
                "{}: {} is in no shared object (never allocated, or freed)", function, address);
  }
  const auto begin = static_cast<std::size_t>(static_cast<const std::byte*>(address) -
                                              static_cast<const std::byte*>(found->start));
  if (bytes > found->bytes - begin) {
    return fail(adsmErrorInvalidValue,
                "{}: {} bytes at {} leave their object, which has {} bytes at {}", function, bytes,
                address, found->bytes, found->start);
  }
  return {};
}

Result<void*> Allocation::deviceAddress(const void* address) {
  GMAC_TRY(checkSmall("adsmSafe", address));
  Lock lock(mutex_);
  Object* object = index_.find(address);
  if (object == nullptr || object->closing) {
    return fail(adsmErrorInvalidPointer, "adsmSafe({}): no shared object is there", address);
  }
  const auto offset =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - object->address());
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(object->deviceAt(offset)));
}

void Allocation::endContext(bool workFinished) {
  accel::NativeStreams* const native = accelerator_.nativeStreams();
  if (native == nullptr) {
    return;  // it has no contexts
  }
  native->contextEnds();
  // Where a kernel has failed they never run.
  if (!workFinished) {
    ledger_.hostFunctionsDropped();
  }
  small_.releaseAll();
  {
    Lock lock(mutex_);
    freed_.keepNothing();
    while (!index_.all().empty()) {
      Object& object = *index_.all().begin();
      if (object.closing) {
        lock.waitForChange();  // another thread frees it
      } else {
        // The memory goes in any case: an error of the accelerator would change nothing.
        (void)destroy(lock, object);
      }
    }
    while (leaving_ > 0) {
      lock.waitForChange();
    }
    // Memory of freed objects is kept, and pages of others are still pinned.
    (void)freed_.giveBackAll(lock);
    freed_.keepAgain();
    ledger_.contextEnded();
    ++coherence::internal::contextsEnded;
  }
  native->leaveContext();
}

}  // namespace gmac
