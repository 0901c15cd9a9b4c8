// SPDX-License-Identifier: Apache-2.0
//
// Pages of large objects that have one copy, in the CPU's pages (zero_copy.h).
//
// A program may keep all its small arrays in one large allocation, a pool. To give all of that one
// copy would be wrong, but a page of 2 MiB in which the CPU and kernels take turns is worth what a
// small object is. Such a page becomes an object of its own, with the policies and lists of one,
// until it is no longer used like that. The rest of its allocation goes on as before.
#ifndef GMAC_COHERENCE_POLICIES_HOT_PAGES_H_
#define GMAC_COHERENCE_POLICIES_HOT_PAGES_H_

#include <cstddef>
#include <memory>

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/residency.h"

namespace gmac {

// These objects, apart from their memory. Functions are called under the lock of all objects.
class HotPages {
 public:
  // Of one object. Each is a few mappings more, and an object more for calls and waits to look at.
  static constexpr std::size_t kMostPages = 64;

  HotPages(Ledger& ledger, Residency& residency, Blocks& blocks, std::size_t pageBytes)
      : ledger_(ledger), residency_(residency), blocks_(blocks), pageBytes_(pageBytes) {}
  HotPages(const HotPages&) = delete;
  HotPages& operator=(const HotPages&) = delete;

  std::byte* at(const Object& object, std::size_t number) const {
    return object.address() + number * pageBytes_;
  }
  // Of a page that has left its object.
  std::size_t numberOf(const Object& page) const {
    return static_cast<std::size_t>(page.address() - page.whole->address()) / pageBytes_;
  }
  // Whether a page may leave its object.
  bool mayLeave(const Object& object, const std::byte* page) const;

  // Makes the object that is to stand for a page, all of whose blocks are closed. Throws
  // std::bad_alloc.
  std::unique_ptr<Object> make(Object& object, const std::byte* page) const;
  // Everybody finds it from now on. No work uses its bytes.
  Object& leaves(std::unique_ptr<Object> page);
  // It has not got away, as there was no room beside it.
  void comesBack(const Object& page) const;
  // It does not leave.
  void drop(std::unique_ptr<Object> page) { ledger_.forget(*page); }
  // Everybody finds its allocation again, as which it lies on the accelerator. No work uses it, and
  // nothing of it is open, in transit, or held.
  void joins(Object& page);

 private:
  Ledger& ledger_;
  Residency& residency_;
  Blocks& blocks_;
  const std::size_t pageBytes_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_HOT_PAGES_H_
