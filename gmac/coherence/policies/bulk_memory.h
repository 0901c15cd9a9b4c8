// SPDX-License-Identifier: Apache-2.0
//
// memmove and memset where shared objects are involved, without a fault per block.
#ifndef GMAC_COHERENCE_POLICIES_BULK_MEMORY_H_
#define GMAC_COHERENCE_POLICIES_BULK_MEMORY_H_

#include <cstddef>

#include "gmac/accel/accelerator.h"
#include "gmac/coherence/cpu_access.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/residency.h"
#include "gmac/coherence/waits.h"

namespace gmac {

class Blocks;
class Coarsening;
class Ledger;

// See copy() and fill() in memory_port.h. Thread-safe; fault path: nothing is allocated.
class BulkMemory {
 public:
  BulkMemory(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Waits& waits,
             ObjectIndex& index, Residency& residency, Blocks& blocks, Coarsening& coarsening,
             CpuAccess& access)
      : mutex_(mutex),
        accelerator_(accelerator),
        ledger_(ledger),
        waits_(waits),
        index_(index),
        residency_(residency),
        blocks_(blocks),
        coarsening_(coarsening),
        access_(access) {}
  BulkMemory(const BulkMemory&) = delete;
  BulkMemory& operator=(const BulkMemory&) = delete;

  void copy(void* to, const void* from, std::size_t bytes, coherence::MoveFunction move) noexcept;
  void fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept;
  // Makes bytes of one object zero that nobody uses, nor work that is under way: so it waits for no
  // kernel, where devices do not have the object in parts.
  void clearUnused(std::byte* at, std::size_t bytes) noexcept;

 private:
  struct Bulk;
  struct Part;

  void doBulk(Bulk bulk) noexcept;
  std::size_t sameOwner(const std::byte* edge, std::size_t most, bool backward, Object** owner);
  void planPart(const Bulk& bulk, Part* part);
  bool betterOnAccelerator(const Bulk& bulk, const Part& part);
  Result<Step> openForReading(Lock& lock, Object& object, ByteRange bytes);
  Result<Step> openForWriting(Lock& lock, const Part& part);
  Result<Step> clearPart(Lock& lock, Object& object, ByteRange bytes);
  Result<Step> doOnAccelerator(Lock& lock, const Bulk& bulk, const Part& part);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
  Residency& residency_;
  Blocks& blocks_;
  Coarsening& coarsening_;
  CpuAccess& access_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_BULK_MEMORY_H_
