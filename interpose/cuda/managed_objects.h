// SPDX-License-Identifier: Apache-2.0
//
// Records behind CUDA's managed-memory calls: the allocations that stand in for managed memory, and
// the hints given for ranges of them.
#ifndef GMAC_INTERPOSE_CUDA_MANAGED_OBJECTS_H_
#define GMAC_INTERPOSE_CUDA_MANAGED_OBJECTS_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace gmac::interpose {

// The hints for the bytes of one range.
struct Hints {
  bool readMostly = false;
  CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, 0};
  CUmemLocation prefetched{CU_MEM_LOCATION_TYPE_INVALID, 0};
  std::vector<int> accessedBy;  // device ordinals, CU_DEVICE_CPU; sorted
};

// One allocation of cuMemAllocManaged.
struct ManagedObject {
  std::uintptr_t address;
  std::size_t bytes;  // as asked for
  std::uint64_t id;   // never given twice
};

// The process's allocations of managed memory. Thread-safe; one instance, never destroyed;
// not for the fault handler. Nothing of an application's memory is touched under its lock.
class ManagedObjects {
 public:
  static ManagedObjects& get();

  void add(std::uintptr_t address, std::size_t bytes);
  // Forgets the allocation that starts at `address`; false when none does.
  bool remove(std::uintptr_t address);
  // Forgets all; returns them.
  std::vector<ManagedObject> removeAll();
  // The allocation that contains an address.
  std::optional<ManagedObject> find(std::uintptr_t address) const;
  // Whether every byte of a range belongs to an allocation. False for 0 bytes.
  bool covers(std::uintptr_t address, std::size_t bytes) const;
  // The allocations that a range touches.
  std::vector<ManagedObject> touched(std::uintptr_t address, std::size_t bytes) const;

  // Changes the hints of a range, widened to whole pages inside its allocations as the driver does.
  // Calls `change` with the hints of each part.
  template <typename Change>
  void change(std::uintptr_t address, std::size_t bytes, Change&& change) {
    const std::lock_guard lock(mutex_);
    forEachTouched(objects_, address, bytes, [&](Entry& entry) {
      const auto [first, last] = within(entry, address, bytes);
      splitAt(entry, first);
      splitAt(entry, last);
      for (auto at = entry.hints.find(first); at != entry.hints.end() && at->first < last; ++at) {
        change(at->second);
      }
    });
  }

  // The hints of a range, part by part.
  std::vector<Hints> hints(std::uintptr_t address, std::size_t bytes) const;

  // Whether every byte of an allocation is advised read-mostly.
  bool readMostly(const ManagedObject& object) const;

 private:
  struct Entry {
    ManagedObject object;
    std::map<std::uintptr_t, Hints> hints;  // each from its address to the next key or the end
  };
  using Objects = std::map<std::uintptr_t, Entry>;

  // The first allocation that ends after an address: the one that contains it, or the next.
  template <typename Map>
  static auto firstFrom(Map& objects, std::uintptr_t address) {
    const auto after = objects.upper_bound(address);
    if (after == objects.begin()) return after;
    const auto before = std::prev(after);
    return address - before->first < before->second.object.bytes ? before : after;
  }
  // The allocation that contains an address, or the end.
  Objects::const_iterator holding(std::uintptr_t address) const;
  // Visits the allocations that a range touches, and no others.
  template <typename Map, typename Visit>
  static void forEachTouched(Map& objects, std::uintptr_t address, std::size_t bytes, Visit visit) {
    for (auto at = firstFrom(objects, address); at != objects.end() && at->first < address + bytes;
         ++at) {
      visit(at->second);
    }
  }
  // The part of a range in the entry's allocation, which it touches, in whole pages.
  static std::pair<std::uintptr_t, std::uintptr_t> within(const Entry& entry,
                                                          std::uintptr_t address,
                                                          std::size_t bytes);
  static void splitAt(Entry& entry, std::uintptr_t address);

  mutable std::mutex mutex_;
  Objects objects_;
  std::uint64_t nextId_ = 0;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_MANAGED_OBJECTS_H_
