// SPDX-License-Identifier: Apache-2.0
//
// Objects come and go: large ones with memory of their own on both sides, small ones in regions
// that are such objects.
#ifndef GMAC_COHERENCE_ALLOCATION_H_
#define GMAC_COHERENCE_ALLOCATION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/coherence/concurrent_objects.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/loans.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/residency.h"
#include "gmac/coherence/small_heap.h"
#include "gmac/coherence/waits.h"
#include "gmac/os/mirror.h"

namespace gmac {

class Blocks;
class Coarsening;
class Ledger;

struct AllocationOptions {
  std::size_t blockBytes = 0;  // a power of two, at least a page
  std::size_t chunkBytes = 0;  // pages are populated and pinned in such pieces
  bool movedPages = false;     // mirrors of moved pages instead of memory files
  // Of objects of more than so many bytes, pages may get one copy (page_rounds.h): of that size.
  std::size_t mostWhole = SIZE_MAX;
  std::size_t pageBytes = 0;
};

// Which memory a new object gets for the accelerator's copy.
struct NewHome {
  static constexpr int kHere = -1;  // MovableMemory::deviceHere
  accel::Home home = accel::Home::kDevice;
  int device = kHere;                      // of kDevice: the driver's number
  int spilledFrom = -1;                    // Object::spilledFrom
  std::span<const std::size_t> stripes{};  // two devices or more, by number: pages on each in turn
  bool isUsual() const {
    return home == accel::Home::kDevice && device == kHere && stripes.empty();
  }
};

// Thread-safe. Not for the fault handler, nor in a child of fork.
class Allocation final : private RegionSource {
 public:
  Allocation(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Loans& loans,
             Waits& waits, ObjectIndex& index, FreedMemory& freed, Residency& residency,
             Blocks& blocks, Coarsening& coarsening, ConcurrentObjects& concurrent,
             std::unique_ptr<os::FileArena> arena, const AllocationOptions& options)
      : mutex_(mutex),
        accelerator_(accelerator),
        ledger_(ledger),
        loans_(loans),
        waits_(waits),
        index_(index),
        freed_(freed),
        residency_(residency),
        blocks_(blocks),
        coarsening_(coarsening),
        concurrent_(concurrent),
        options_(options),
        arena_(std::move(arena)),
        small_(static_cast<RegionSource&>(*this)) {}
  // Frees all objects, and all memory that is kept of freed ones.
  ~Allocation() override;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  // How bytes that nobody uses become zero for the program, wherever they are current; without it
  // they are what they are. Before the first allocation.
  void clearBy(std::function<void(std::byte* at, std::size_t bytes)> clear) {
    clear_ = std::move(clear);
  }
  // See adsm.h.
  Result<void*> allocate(std::size_t size, accel::Placement placement, const NewHome& home);
  Status free(void* address);
  Result<void*> deviceAddress(const void* address);
  // An address inside a region of small objects must be in one that lives. `function`: of the API.
  // `bytes`: from there on; none after the object's end.
  Status checkSmall(const char* function, const void* address, std::size_t bytes = 0);

  // The application's context ends: frees every object, as CUDA frees its own memory.
  // `workFinished`: the work in the context has finished with success.
  void endContext(bool workFinished);

  // How many objects have another address on the accelerator (adsmSafeAlloc). A load.
  std::size_t safeObjects() const noexcept { return safeObjects_.load(std::memory_order_relaxed); }

 private:
  // RegionSource
  Result<void*> acquire(std::size_t bytes) override;
  Status release(void* region) override;
  void clear(void* at, std::size_t bytes) override {
    if (clear_) {
      clear_(static_cast<std::byte*>(at), bytes);
    }
  }

  struct Wanted {
    std::size_t size;
    std::size_t blockBytes;
    accel::Placement placement;
    bool sharedBySmallObjects;
    const NewHome& home;
  };
  Result<Object*> makeObject(const Wanted& wanted);
  Result<std::unique_ptr<Object>> mirror(const Wanted& wanted, accel::DeviceAddress device,
                                         std::size_t bytes);
  // What is kept of freed objects makes room where there is none.
  Result<accel::DeviceAddress> makeRoomAndAllocate(const Wanted& wanted, std::size_t bytes);
  Result<accel::DeviceAddress> allocateDevice(std::size_t bytes, accel::Placement placement,
                                              const NewHome& home);
  Result<std::unique_ptr<Object>> reuse(Object& kept, const Wanted& wanted);
  bool isOneBlock(const Wanted& wanted) const;
  // Throws std::bad_alloc.
  void watchPages(Object& object) const;
  Object* addObject(std::unique_ptr<Object> object, const Object* before = nullptr);
  bool waitsForNobody(const void* address);
  void awaitStreams(void* small);
  Status destroy(Lock& lock, Object& object);
  // Tells shared_ranges of an object that is out of the index.
  void forgetAddresses(const Object& object);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Loans& loans_;
  Waits& waits_;
  ObjectIndex& index_;
  FreedMemory& freed_;
  Residency& residency_;
  Blocks& blocks_;
  Coarsening& coarsening_;
  ConcurrentObjects& concurrent_;
  const AllocationOptions options_;
  const std::unique_ptr<os::FileArena> arena_;
  SmallHeap small_;
  std::function<void(std::byte* at, std::size_t bytes)> clear_;
  std::size_t leaving_ = 0;  // objects out of the index whose memory is neither kept nor given back
                             // yet
  std::atomic<std::size_t> safeObjects_{0};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ALLOCATION_H_
