// SPDX-License-Identifier: Apache-2.0
//
// Small objects share regions of shared memory. This is the bookkeeping of who has which bytes; it
// lies in memory of its own and never touches the shared memory itself.
#ifndef GMAC_COHERENCE_SMALL_HEAP_H_
#define GMAC_COHERENCE_SMALL_HEAP_H_

#include <array>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "gmac/base/status.h"

namespace gmac {

// Where regions come from. Called with the heap's lock held: it must not call the heap back.
class RegionSource {
 public:
  virtual ~RegionSource() = default;
  // `bytes` bytes aligned to 256 (or more), overlapping nothing handed out and not released.
  // After an error nothing has changed.
  virtual Result<void*> acquire(std::size_t bytes) = 0;
  // Takes a region back in any case; an error tells what went wrong with it.
  virtual Status release(void* region) = 0;
  // Makes bytes of a region zero, which nobody uses.
  virtual void clear(void* at, std::size_t bytes) = 0;
};

// Allocates objects of 1 byte to 32 KiB in regions of 2 MiB.
//
// A region is cut into slabs of 128 KiB, a slab into slots of one size class. Classes are multiples
// of 256 bytes, four to a doubling, so that at most a fifth of a slot is lost to rounding (apart
// from the rounding up to 256 bytes). Objects of at most 1 KiB have regions of their own: they are
// flags, counters and structures, which the CPU and kernels use in turns, and a region has one copy
// or two as a whole (policies/zero_copy.h). An empty slab goes to the next class that wants one;
// one empty region of each kind is kept, so that a program that allocates and frees at a region's
// edge does not acquire and release it each time, and the others are released. What was used of a
// kept one is cleared before the next object comes: an object reads as zero that is allocated while
// no other one lives, as with CUDA's managed memory, whose driver gives pages back that nobody
// uses. (One that is allocated beside others may have an older one's bytes, there as here.)
//
// Thread-safe, by one mutex. Finding an address takes O(log regions); allocating and freeing
// allocate no memory except with a new region. Not for the fault handler. Owned by
// Allocation; the source outlives the heap. The destructor leaves the regions that still are
// acquired to their source.
class SmallHeap {
 public:
  static constexpr std::size_t kLargestObject = 32 * 1024;
  static constexpr std::size_t kLargestTiny = 1024;
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kRegionBytes = std::size_t{2} << 20;
  static constexpr std::size_t kSlabBytes = std::size_t{128} << 10;

  // An object: where it starts, and the size that was asked for.
  struct Object {
    void* start;
    std::size_t bytes;
  };

  explicit SmallHeap(RegionSource& source);
  ~SmallHeap();
  SmallHeap(const SmallHeap&) = delete;
  SmallHeap& operator=(const SmallHeap&) = delete;

  // `bytes` from 1 to kLargestObject, aligned to kAlignment. adsmErrorInvalidValue,
  // adsmErrorHostMemory (for the bookkeeping), or the source's error. After an error everything is
  // as it was.
  Result<void*> allocate(std::size_t bytes);

  // Frees the object that starts at `address`. adsmErrorInvalidPointer says whether the address is
  // no object's, lies inside one, or was freed before. An error of the source, which takes a region
  // back, is returned, too: the object is freed then.
  Status free(void* address);

  // The live object that contains `address`, if there is one. The bytes between an object's size
  // and its slot's are no object's.
  std::optional<Object> find(const void* address) const;

  // Releases the regions that are kept empty; the source's error.
  Status trim();

  // Releases all regions with what lives in them, whatever the source says.
  void releaseAll();

  // For statistics and tests.
  std::size_t liveObjects() const;
  std::size_t regionCount() const;
  std::size_t bookkeepingBytes() const;
  // Walks everything; false when lists, counts and bitmaps do not agree.
  bool isConsistent() const;

 private:
  struct Region;

  static constexpr std::size_t kSlabsPerRegion = kRegionBytes / kSlabBytes;
  static constexpr std::size_t kMaxSlots = kSlabBytes / kAlignment;
  static constexpr std::size_t kClassCount = 24;
  static constexpr std::uint8_t kNoClass = 0xff;
  static constexpr std::size_t kKinds = 2;  // of regions: for tiny objects, and for others

  struct SizeClasses;
  static const SizeClasses kClasses;

  // Auto-unlink, so that a slab leaves its list without asking which one it is in.
  using SlabHook =
      boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

  struct Slab : SlabHook {
    Region* region = nullptr;
    std::uint8_t sizeClass = kNoClass;  // kept when empty, so that a double free is still told
    std::uint16_t live = 0;
    std::array<std::uint64_t, kMaxSlots / 64> taken{};
    std::size_t usedBytes = 0;  // from its start on, since its region was last clear
    // The size asked for; 0 in a slot that was never used in this class.
    std::array<std::uint16_t, kMaxSlots> bytes{};
  };
  using SlabList = boost::intrusive::list<Slab, boost::intrusive::constant_time_size<false>>;

  struct Region : boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>> {
    std::uintptr_t start = 0;
    std::size_t kind = 0;
    std::size_t emptySlabs = kSlabsPerRegion;
    std::array<Slab, kSlabsPerRegion> slabs;
  };
  struct RegionStart {
    using type = std::uintptr_t;
    type operator()(const Region& region) const { return region.start; }
  };
  using RegionSet = boost::intrusive::set<Region, boost::intrusive::key_of_value<RegionStart>>;

  // A slot of some slab, live or not.
  struct Slot {
    Slab* slab;
    std::size_t index;
    std::uintptr_t start;
    bool live() const { return (slab->taken[index / 64] >> (index % 64) & 1) != 0; }
  };

  std::optional<Slot> slotOf(std::uintptr_t address) const;
  Status addRegion(std::size_t kind);
  Status releaseRegion(Region& region);
  void clear(Region& region);
  Result<Slab*> slabWithRoom(std::uint8_t sizeClass);
  static std::uintptr_t startOf(const Slab& slab);

  RegionSource& source_;
  mutable std::mutex mutex_;
  mutable RegionSet regions_;
  std::array<SlabList, kClassCount>
      withRoom_;                        // slabs of the class that are neither empty nor full
  std::array<SlabList, kKinds> empty_;  // by the kind of their regions, as the next ones
  std::array<std::size_t, kKinds> emptyRegions_{};
  std::size_t liveObjects_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_SMALL_HEAP_H_
