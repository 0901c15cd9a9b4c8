// SPDX-License-Identifier: Apache-2.0
//
// Questions about addresses: what is shared there, which addresses it has, where its bytes are
// current.
#ifndef GMAC_COHERENCE_LOOKUP_H_
#define GMAC_COHERENCE_LOOKUP_H_

#include <cstddef>
#include <cstdint>

#include "gmac/coherence/lock.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/object.h"

namespace gmac {

class Allocation;
class Ledger;

// See memory_port.h. `unordered`: kernels of the program's may still use what is concurrent.
// Thread-safe; changes nothing; allocates nothing.
class Lookup {
 public:
  Lookup(ObjectMutex& mutex, Ledger& ledger, ObjectIndex& index, const Allocation& allocation,
         bool unordered)
      : mutex_(mutex),
        ledger_(ledger),
        index_(index),
        allocation_(allocation),
        unordered_(unordered) {}

  bool touchesShared(const void* address, std::size_t bytes) noexcept;
  std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept;
  std::size_t ofOneKind(const void* address, std::size_t bytes) noexcept;
  coherence::Place placeOf(const void* address, std::size_t bytes) noexcept;
  std::ptrdiff_t deviceDistance(const void* address) noexcept;
  std::uintptr_t cpuAddress(std::uintptr_t device) noexcept;

 private:
  ObjectMutex& mutex_;
  Ledger& ledger_;
  ObjectIndex& index_;
  const Allocation& allocation_;
  const bool unordered_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_LOOKUP_H_
