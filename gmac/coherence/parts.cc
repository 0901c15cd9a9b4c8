// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/parts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "gmac/accel/devices.h"
#include "gmac/coherence/moved_pages.h"

namespace gmac {
namespace {

// Whether launches may list their objects: where reads leave blocks writable each launch would have
// to be waited for, and where there are several devices any object may have to move.
bool mayList(accel::Accelerator& accelerator, const Blocks& blocks) {
  return accelerator.nativeStreams() != nullptr && accel::deviceCount(accelerator) == 1 &&
         !blocks.readsLeaveWritable();
}

}  // namespace

Parts::Parts(accel::Accelerator& accelerator, std::unique_ptr<Protocol> ofBlocks,
             const CoherenceOptions& options, std::unique_ptr<os::FileArena> arena)
    : protocol(std::move(ofBlocks)),
      ledger(accelerator, options.clock),
      waits(accelerator, ledger, options.waitLimitSeconds),
      mappings(options.mappingLimit, options.movedPages),
      // Where new objects are Dirty their bytes count on the CPU's side, which nobody has
      // cleared.
      freed(mutex, accelerator, ledger, waits,
            protocol->initial() == State::kReadOnly ? options.keptBytes : 0, options.managed),
      residency(mutex, accelerator, index, mappings, freed),
      blocks(mutex, accelerator, *protocol, ledger, waits, index, mappings, residency,
             {.readAheadBytes = options.readAheadBytes,
              .windowBytes = options.windowBytes != 0 && options.movedPages
                                 ? std::max(options.windowBytes, kMovedGranularity)
                                 : options.windowBytes,
              .mostClearedBytes = options.mostClearedBytes,
              .opensNeighbours = options.opensNeighbours,
              .opensPages = options.opensPages,
              .splitAfter = options.splitAfter}),
      coarsening(index, ledger, mappings, freed, blocks),
      concurrent(options.zeroCopy.limits),
      concurrentObjects(ledger, blocks, concurrent, options.managed),
      allocation(mutex, accelerator, ledger, loans, waits, index, freed, residency, blocks,
                 coarsening, concurrentObjects, std::move(arena),
                 {.blockBytes = options.blockBytes,
                  .chunkBytes = options.chunkBytes,
                  .movedPages = options.movedPages,
                  .mostWhole = options.zeroCopy.allowed ? options.zeroCopy.mostBytes : SIZE_MAX,
                  .pageBytes = options.zeroCopy.pageBytes}),
      listing(mayList(accelerator, blocks), options.listingWorth),
      promptWaits(options.zeroCopy.prompt),
      unwaited(options.zeroCopy.limits.moves / 2),
      access(mutex, index, loans, residency, blocks, coarsening, concurrentObjects, promptWaits,
             ledger, listing),
      exitFetch(mutex, ledger, index, blocks, access),
      deviceLoans(mutex, accelerator, ledger, loans, waits, index, blocks),
      bulk(mutex, accelerator, ledger, waits, index, residency, blocks, coarsening, access),
      early(mutex, ledger, index, residency, blocks, options.readAheadBytes,
            options.fetchInBackground),
      kernels(mutex, accelerator, ledger, waits, index),
      repeated(mutex, accelerator, ledger, loans, blocks, promptWaits, unwaited, concurrent),
      launches(mutex, accelerator, ledger, loans, waits, index, blocks, coarsening, allocation,
               kernels, promptWaits, unwaited, concurrent, repeated, listing, options.managed),
      migration(mutex, accelerator, ledger, waits, index, freed, blocks, launches,
                options.spill.allowed),
      placement(mutex, accelerator, ledger, index, freed, launches),
      spilling(mutex, accelerator, ledger, waits, index, freed, allocation, launches,
               options.spill),
      gathering(mutex, accelerator, ledger, index, freed, migration, spilling),
      scheduling(mutex, accelerator, ledger, index, migration, options.scheduling),
      zeroCopy(mutex, accelerator, ledger, waits, index, residency, blocks, launches, promptWaits,
               unwaited, concurrent, concurrentObjects, options.managed, options.zeroCopy),
      readBacks(accelerator, ledger, blocks, zeroCopy, listing),
      splitting(accelerator, ledger, blocks),
      acquire(mutex, accelerator, ledger, waits, index, blocks, coarsening, splitting, readBacks,
              repeated),
      movedPieces(mutex, index),
      lookup(mutex, ledger, index, allocation, options.managed),
      promises(mutex, ledger, waits, index) {
  if (options.managed) {
    allocation.clearBy([this](std::byte* at, std::size_t bytes) { bulk.clearUnused(at, bytes); });
  }
}

bool Parts::makeRoomForOwnWork() {
  return !forked() &&
         (freed.giveBackAll() || spilling.makeRoom(spilling.first()) || migration.makeRoom());
}

void Parts::beforeWork() {
  if (zeroCopy.lookIsDue()) [[unlikely]] {
    gathering.still([&] { zeroCopy.look(); });
  }
}

void Parts::afterWait() {
  gathering.still([&] { zeroCopy.afterWait(); });
  gathering.afterWait();
}

}  // namespace gmac
