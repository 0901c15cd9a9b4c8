// SPDX-License-Identifier: Apache-2.0
//
// Objects that the CPU can still read after the accelerator's driver has ended.
#ifndef GMAC_COHERENCE_POLICIES_EXIT_FETCH_H_
#define GMAC_COHERENCE_POLICIES_EXIT_FETCH_H_

#include <cstddef>

#include "gmac/coherence/cpu_access.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"

namespace gmac {

class Blocks;
class Ledger;

// A driver ends in an exit handler, and takes what lies in its device's memory along. Static
// destructors of the program run after that, and may look at managed memory once more. So before
// it, objects come to the CPU: those that the CPU has used and no kernel may still write, up to
// kMost bytes together, in the order of their addresses. The others are gone then.
//
// The bound: kMost bytes over the bus at a process's exit, which is 1 ms or so. No kernel is waited
// for, as one may never end.
//
// Thread-safe. Not for the fault handler, nor in a child of fork.
class ExitFetch {
 public:
  static constexpr std::size_t kMost = std::size_t{64} << 20;

  ExitFetch(ObjectMutex& mutex, Ledger& ledger, ObjectIndex& index, Blocks& blocks,
            CpuAccess& access)
      : mutex_(mutex), ledger_(ledger), index_(index), blocks_(blocks), access_(access) {}
  ExitFetch(const ExitFetch&) = delete;
  ExitFetch& operator=(const ExitFetch&) = delete;

  // The process exits. What fails stays where it is.
  void run() noexcept;

 private:
  ObjectMutex& mutex_;
  Ledger& ledger_;
  ObjectIndex& index_;
  Blocks& blocks_;
  CpuAccess& access_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_EXIT_FETCH_H_
