// SPDX-License-Identifier: Apache-2.0
//
// The composition: the parts that coherent objects are made of. For CoherentMemory and the doors
// (memory_door.h, work_door.h, device_memory_door.h), each of which says what a request asks of
// which part.
#ifndef GMAC_COHERENCE_PARTS_H_
#define GMAC_COHERENCE_PARTS_H_

#include <memory>
#include <mutex>

#include "gmac/accel/accelerator.h"
#include "gmac/base/fork_mark.h"
#include "gmac/coherence/acquire.h"
#include "gmac/coherence/allocation.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/cpu_access.h"
#include "gmac/coherence/device_loans.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/kernels.h"
#include "gmac/coherence/launches.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/listing_policy.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/lookup.h"
#include "gmac/coherence/mapping_use.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/bulk_memory.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/coherence/policies/early_copies.h"
#include "gmac/coherence/policies/exit_fetch.h"
#include "gmac/coherence/policies/gathering.h"
#include "gmac/coherence/policies/migration.h"
#include "gmac/coherence/policies/moved_pieces.h"
#include "gmac/coherence/policies/placement.h"
#include "gmac/coherence/policies/read_backs.h"
#include "gmac/coherence/policies/scheduling.h"
#include "gmac/coherence/policies/spilling.h"
#include "gmac/coherence/policies/splitting.h"
#include "gmac/coherence/policies/zero_copy.h"
#include "gmac/coherence/promises.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/repeated_launches.h"
#include "gmac/coherence/residency.h"
#include "gmac/coherence/unwaited_calls.h"
#include "gmac/coherence/waits.h"
#include "gmac/os/mirror.h"
#include "gmac/protocols/protocol.h"

namespace gmac {

struct Parts {
  Parts(accel::Accelerator& accelerator, std::unique_ptr<Protocol> ofBlocks,
        const CoherenceOptions& options, std::unique_ptr<os::FileArena> arena);

  // Whether this process is a child of fork: its objects are gone, which is known without them.
  bool forked() const noexcept { return forkMark.inChild(); }
  // See DeviceMemoryPort.
  bool makeRoomForOwnWork();
  // The program is about to submit work.
  void beforeWork();
  // The program has waited for device work: what may move or change its kind does so now.
  void afterWait();

  const std::unique_ptr<Protocol> protocol;
  ForkMark forkMark;

  // Each stands on those before it.
  ObjectMutex mutex;
  ObjectIndex index;
  Ledger ledger;
  Loans loans;
  Waits waits;
  MappingUse mappings;
  FreedMemory freed;
  Residency residency;
  Blocks blocks;
  Coarsening coarsening;
  ConcurrentUse concurrent;
  ConcurrentObjects concurrentObjects;
  Allocation allocation;
  ListingPolicy listing;
  PromptWaits promptWaits;
  UnwaitedCalls unwaited;
  CpuAccess access;
  ExitFetch exitFetch;
  DeviceLoans deviceLoans;
  BulkMemory bulk;
  EarlyCopies early;
  Kernels kernels;
  RepeatedLaunches repeated;
  Launches launches;
  Migration migration;
  Placement placement;
  Spilling spilling;
  Gathering gathering;
  Scheduling scheduling;
  ZeroCopy zeroCopy;
  ReadBacks readBacks;
  Splitting splitting;
  Acquire acquire;
  MovedPieces movedPieces;
  Lookup lookup;
  Promises promises;

  std::mutex proofs;              // one thread at a time proves
  unsigned provedDevices = 0;     // bit i: device i's copies reach moved pages; under proofs
  std::unique_ptr<Lock> forking;  // held from beforeFork to afterFork
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_PARTS_H_
