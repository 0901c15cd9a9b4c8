// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/small_heap.h"

#include <algorithm>
#include <bit>
#include <new>

namespace gmac {

// The slot size of each class, and the class of each number of 256-byte units.
struct SmallHeap::SizeClasses {
  std::array<std::size_t, kClassCount> slotBytes{};
  std::array<std::uint8_t, kLargestObject / kAlignment + 1> ofUnits{};

  constexpr SizeClasses() {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < kClassCount; ++i) {
      // Steps of a quarter of the power of two below, and of one unit where that is less.
      const std::size_t quarter = std::bit_floor(bytes) / 4;
      bytes += quarter > kAlignment ? quarter : kAlignment;
      slotBytes[i] = bytes;
    }
    std::uint8_t sizeClass = 0;
    for (std::size_t units = 0; units < ofUnits.size(); ++units) {
      while (slotBytes[sizeClass] < units * kAlignment) ++sizeClass;
      ofUnits[units] = sizeClass;
    }
  }

  constexpr std::uint8_t of(std::size_t bytes) const {
    return ofUnits[(bytes + kAlignment - 1) / kAlignment];
  }
  constexpr std::size_t slots(std::uint8_t sizeClass) const {
    return kSlabBytes / slotBytes[sizeClass];
  }
  constexpr std::size_t kind(std::uint8_t sizeClass) const {
    return slotBytes[sizeClass] <= kLargestTiny ? 0 : 1;
  }
};

constexpr SmallHeap::SizeClasses SmallHeap::kClasses;

SmallHeap::SmallHeap(RegionSource& source) : source_(source) {
  static_assert(kClasses.slotBytes.back() == kLargestObject);
}

SmallHeap::~SmallHeap() {
  for (SlabList& list : withRoom_) list.clear();
  for (SlabList& list : empty_) list.clear();
  regions_.clear_and_dispose([](Region* region) { delete region; });
}

std::uintptr_t SmallHeap::startOf(const Slab& slab) {
  const auto index = static_cast<std::size_t>(&slab - slab.region->slabs.data());
  return slab.region->start + index * kSlabBytes;
}

std::optional<SmallHeap::Slot> SmallHeap::slotOf(std::uintptr_t address) const {
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return std::nullopt;
  Region& region = *--after;
  const std::size_t offset = address - region.start;
  if (offset >= kRegionBytes) return std::nullopt;
  Slab& slab = region.slabs[offset / kSlabBytes];
  if (slab.sizeClass == kNoClass) return std::nullopt;
  const std::size_t slotBytes = kClasses.slotBytes[slab.sizeClass];
  const std::size_t index = offset % kSlabBytes / slotBytes;
  if (index >= kClasses.slots(slab.sizeClass)) return std::nullopt;  // the slab's unused end
  return Slot{&slab, index, startOf(slab) + index * slotBytes};
}

Status SmallHeap::addRegion(std::size_t kind) {
  // Memory first: giving a region back could fail.
  std::unique_ptr<Region> region(new (std::nothrow) Region);
  if (region == nullptr) {
    return fail(adsmErrorHostMemory, "no memory for the bookkeeping of {} bytes of small objects",
                kRegionBytes);
  }
  auto memory = source_.acquire(kRegionBytes);
  if (!memory.ok()) return memory.status();
  region->start = reinterpret_cast<std::uintptr_t>(*memory);
  region->kind = kind;
  for (Slab& slab : region->slabs) {
    slab.region = region.get();
    empty_[kind].push_back(slab);
  }
  regions_.insert(*region.release());
  ++emptyRegions_[kind];
  return Status();
}

Status SmallHeap::releaseRegion(Region& region) {
  const Status released = source_.release(reinterpret_cast<void*>(region.start));
  for (Slab& slab : region.slabs) {
    if (slab.is_linked()) slab.unlink();
  }
  regions_.erase_and_dispose(regions_.iterator_to(region), [](Region* gone) { delete gone; });
  return released;
}

void SmallHeap::clear(Region& region) {
  for (Slab& slab : region.slabs) {
    if (slab.usedBytes != 0) {
      source_.clear(reinterpret_cast<void*>(startOf(slab)), slab.usedBytes);
      slab.usedBytes = 0;
    }
  }
}

Result<SmallHeap::Slab*> SmallHeap::slabWithRoom(std::uint8_t sizeClass) {
  SlabList& list = withRoom_[sizeClass];
  if (!list.empty()) return &list.front();
  const std::size_t kind = kClasses.kind(sizeClass);
  SlabList& empty = empty_[kind];
  if (empty.empty()) GMAC_TRY(addRegion(kind));
  // The front of the list emptied last; regions that emptied earlier get a chance to stay empty.
  Slab& slab = empty.front();
  empty.pop_front();
  if (slab.sizeClass != sizeClass) {
    slab.sizeClass = sizeClass;
    slab.bytes.fill(0);
  }
  if (slab.region->emptySlabs-- == kSlabsPerRegion) {
    --emptyRegions_[kind];
    clear(*slab.region);
  }
  list.push_front(slab);
  return &slab;
}

Result<void*> SmallHeap::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > kLargestObject) {
    return fail(adsmErrorInvalidValue, "a small object of {} bytes; allowed: 1 to {}", bytes,
                kLargestObject);
  }
  const std::uint8_t sizeClass = kClasses.of(bytes);
  const std::lock_guard lock(mutex_);
  auto found = slabWithRoom(sizeClass);
  if (!found.ok()) return found.status();
  Slab& slab = **found;
  std::size_t word = 0;
  while (slab.taken[word] == ~std::uint64_t{0}) ++word;
  const std::size_t index = word * 64 + static_cast<std::size_t>(std::countr_one(slab.taken[word]));
  slab.taken[word] |= std::uint64_t{1} << (index % 64);
  slab.bytes[index] = static_cast<std::uint16_t>(bytes);
  const std::size_t slotBytes = kClasses.slotBytes[sizeClass];
  slab.usedBytes = std::max(slab.usedBytes, (index + 1) * slotBytes);
  ++slab.live;
  ++liveObjects_;
  if (slab.live == kClasses.slots(sizeClass)) slab.unlink();
  return reinterpret_cast<void*>(startOf(slab) + index * slotBytes);
}

Status SmallHeap::free(void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  const auto slot = slotOf(wanted);
  const std::size_t bytes = slot ? slot->slab->bytes[slot->index] : 0;
  if (bytes == 0 || wanted - slot->start >= bytes) {
    return fail(adsmErrorInvalidPointer, "{} is no shared object's address, or no longer", address);
  }
  if (wanted != slot->start) {
    if (!slot->live()) {
      return fail(adsmErrorInvalidPointer, "{} lies inside an object that was freed already",
                  address);
    }
    return fail(adsmErrorInvalidPointer,
                "{} lies {} bytes inside an object of {} bytes; free it by its start, {}", address,
                wanted - slot->start, bytes, reinterpret_cast<void*>(slot->start));
  }
  if (!slot->live()) {
    return fail(adsmErrorInvalidPointer, "{} was freed already (a double free)", address);
  }
  Slab& slab = *slot->slab;
  Region& region = *slab.region;
  std::size_t& emptyRegions = emptyRegions_[region.kind];
  if (slab.live == 1 && region.emptySlabs + 1 == kSlabsPerRegion && emptyRegions > 0) {
    --liveObjects_;  // the region goes, and the object with it
    return releaseRegion(region);
  }
  SlabList& list = withRoom_[slab.sizeClass];
  if (slab.live == kClasses.slots(slab.sizeClass)) list.push_front(slab);
  slab.taken[slot->index / 64] &= ~(std::uint64_t{1} << (slot->index % 64));
  --slab.live;
  --liveObjects_;
  if (slab.live == 0) {
    slab.unlink();
    empty_[region.kind].push_front(slab);
    if (++region.emptySlabs == kSlabsPerRegion) ++emptyRegions;
  }
  return Status();
}

std::optional<SmallHeap::Object> SmallHeap::find(const void* address) const {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  const auto slot = slotOf(wanted);
  if (!slot || !slot->live()) return std::nullopt;
  const std::size_t bytes = slot->slab->bytes[slot->index];
  if (wanted - slot->start >= bytes) return std::nullopt;
  return Object{reinterpret_cast<void*>(slot->start), bytes};
}

Status SmallHeap::trim() {
  const std::lock_guard lock(mutex_);
  Status status;
  for (auto next = regions_.begin(); next != regions_.end();) {
    Region& region = *next++;
    if (region.emptySlabs != kSlabsPerRegion) continue;
    --emptyRegions_[region.kind];
    if (const Status released = releaseRegion(region); status.ok()) {
      status = released;
    }
  }
  return status;
}

void SmallHeap::releaseAll() {
  const std::lock_guard lock(mutex_);
  for (SlabList& list : withRoom_) list.clear();
  for (SlabList& list : empty_) list.clear();
  regions_.clear_and_dispose([this](Region* gone) {
    (void)source_.release(reinterpret_cast<void*>(gone->start));
    delete gone;
  });
  emptyRegions_ = {};
  liveObjects_ = 0;
}

std::size_t SmallHeap::liveObjects() const {
  const std::lock_guard lock(mutex_);
  return liveObjects_;
}

std::size_t SmallHeap::regionCount() const {
  const std::lock_guard lock(mutex_);
  return regions_.size();
}

std::size_t SmallHeap::bookkeepingBytes() const {
  const std::lock_guard lock(mutex_);
  return sizeof *this + regions_.size() * sizeof(Region);
}

bool SmallHeap::isConsistent() const {
  const std::lock_guard lock(mutex_);
  std::size_t live = 0;
  std::array<std::size_t, kKinds> emptyRegions{};
  std::array<std::size_t, kKinds> emptySlabs{};
  std::array<std::size_t, kClassCount> withRoom{};
  std::uintptr_t freeFrom = 0;
  for (const Region& region : regions_) {
    if (region.start < freeFrom) return false;
    freeFrom = region.start + kRegionBytes;
    std::size_t emptyHere = 0;
    for (const Slab& slab : region.slabs) {
      if (slab.region != &region) return false;
      if (slab.sizeClass != kNoClass && kClasses.kind(slab.sizeClass) != region.kind) return false;
      std::size_t taken = 0;
      for (std::size_t index = 0; index < kMaxSlots; ++index) {
        if ((slab.taken[index / 64] >> (index % 64) & 1) == 0) continue;
        ++taken;
        if (slab.sizeClass == kNoClass || index >= kClasses.slots(slab.sizeClass)) return false;
        const std::size_t bytes = slab.bytes[index];
        if (bytes == 0 || kClasses.of(bytes) != slab.sizeClass) return false;
      }
      if (taken != slab.live) return false;
      live += taken;
      const bool full = slab.live != 0 && slab.live == kClasses.slots(slab.sizeClass);
      if (slab.is_linked() == full) return false;
      if (slab.live == 0) ++emptyHere;
      if (slab.live != 0 && !full) ++withRoom[slab.sizeClass];
    }
    if (emptyHere != region.emptySlabs) return false;
    emptySlabs[region.kind] += emptyHere;
    if (emptyHere == kSlabsPerRegion) ++emptyRegions[region.kind];
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    if (emptySlabs[kind] != empty_[kind].size() || emptyRegions[kind] > 1) return false;
    for (const Slab& slab : empty_[kind]) {
      if (slab.live != 0 || slab.region->kind != kind) return false;
    }
  }
  for (std::size_t sizeClass = 0; sizeClass < kClassCount; ++sizeClass) {
    if (withRoom_[sizeClass].size() != withRoom[sizeClass]) return false;
    for (const Slab& slab : withRoom_[sizeClass]) {
      if (slab.sizeClass != sizeClass || slab.live == 0) return false;
    }
  }
  return live == liveObjects_ && emptyRegions == emptyRegions_;
}

}  // namespace gmac
