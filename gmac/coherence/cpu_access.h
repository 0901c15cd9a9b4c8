// SPDX-License-Identifier: Apache-2.0
//
// Accesses of the CPU: faults, and holds for system calls.
#ifndef GMAC_COHERENCE_CPU_ACCESS_H_
#define GMAC_COHERENCE_CPU_ACCESS_H_

#include <cstddef>
#include <cstdint>

#include "gmac/base/status.h"
#include "gmac/coherence/loans.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/residency.h"

namespace gmac {

class Blocks;
class Coarsening;
class ConcurrentObjects;
class Ledger;
class ListingPolicy;
class PromptWaits;

// Thread-safe. Fault path.
class CpuAccess {
 public:
  CpuAccess(ObjectMutex& mutex, ObjectIndex& index, Loans& loans, Residency& residency,
            Blocks& blocks, Coarsening& coarsening, ConcurrentObjects& concurrent,
            PromptWaits& promptWaits, Ledger& ledger, ListingPolicy& listing)
      : mutex_(mutex),
        index_(index),
        loans_(loans),
        residency_(residency),
        blocks_(blocks),
        coarsening_(coarsening),
        concurrent_(concurrent),
        promptWaits_(promptWaits),
        ledger_(ledger),
        listing_(listing) {}
  CpuAccess(const CpuAccess&) = delete;
  CpuAccess& operator=(const CpuAccess&) = delete;

  // Makes a faulting access possible; false when the address is no object's. What fails in here
  // ends the process.
  bool onFault(void* address, bool write) noexcept;
  // Reports an access of a child of fork to a shared object, which the child does not have.
  void tellOfFaultInChild(void* address) noexcept;

  // See CpuHold (memory_port.h).
  Status hold(const void* address, std::size_t bytes, coherence::HoldFor purpose);
  void unhold(const void* address, std::size_t bytes);
  // See coherence::Loan. False: not all of the bytes are one object's in a memory file, and current
  // on the CPU. Waits for nothing.
  bool lend(const void* address, std::size_t bytes, coherence::Loan* loan);
  void giveBack(const void* address, std::size_t bytes);

  // Blocks::open, with the kernel's limit of mappings lifted by coarsening before it is met, or
  // where it is.
  Result<Step> open(Lock& lock, Object& object, ByteRange bytes, Intent intent);

 private:
  // What ListingPolicy learns of an access: when it has found its object, and when it ends.
  struct Fault {
    std::uint64_t begun = 0;
    bool counts = false;  // the device may have used the object
    bool beside = false;  // kernels were running
  };
  void found(Fault& fault, Object& object, Intent intent);
  void ends(const Fault& fault);
  Result<Step> openForOverwriting(Lock& lock, Object& object, BlockIndex index);

  ObjectMutex& mutex_;
  ObjectIndex& index_;
  Loans& loans_;
  Residency& residency_;
  Blocks& blocks_;
  Coarsening& coarsening_;
  ConcurrentObjects& concurrent_;
  PromptWaits& promptWaits_;
  Ledger& ledger_;
  ListingPolicy& listing_;
};

// Ends the process with the thread's last error, because an access cannot return one.
[[noreturn]] void endFailedAccess(const Object& object, BlockIndex index,
                                  const char* operation) noexcept;

}  // namespace gmac

#endif  // GMAC_COHERENCE_CPU_ACCESS_H_
