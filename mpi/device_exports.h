// SPDX-License-Identifier: Apache-2.0
//
// The application's device memory that other processes may import: each allocation is exported
// once, when a message of it is first sent to a process that could copy it by its device. Knows no
// mpi.h.
#ifndef GMAC_MPI_DEVICE_EXPORTS_H_
#define GMAC_MPI_DEVICE_EXPORTS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "exchange/exchange.h"

namespace gmac::mpi {

// Thread-safe. No lock is held while memory is exported for long: the driver's call for it takes
// some microseconds, the first one of the process as long as an allocation.
class DeviceExports {
 public:
  // An allocation that is exported. Messages keep it.
  struct Memory {
    exchange::ExportId id;
    std::byte* start;
    std::size_t bytes;
    std::uint64_t allocation;  // as gmacAllocationOf() numbers it
  };
  using MemoryPtr = std::shared_ptr<const Memory>;

  // `most`: allocations that are exported at a time, and known to have no handle. Of more, the one
  // that was not asked for for longest is given up, unless a message keeps it.
  explicit DeviceExports(exchange::Exchange& exchange, std::size_t most = 256)
      : exchange_(exchange), most_(most) {}
  DeviceExports(const DeviceExports&) = delete;
  DeviceExports& operator=(const DeviceExports&) = delete;

  // Of the allocation that all of these bytes are in. NULL: they are in none, or it has no handle
  // (managed, mapped and a pool's memory, and that of other devices than the runtime's), which is
  // remembered as long as it lives.
  MemoryPtr find(const std::byte* first, std::size_t bytes);

  // Somebody is about to free what starts there: from now on it is found no more. What it was;
  // kNoExport: nothing.
  exchange::ExportId take(const void* start);
  // Whether nobody has any more what starts there; true also for what was never exported. Nobody
  // imports it any more as soon as no message keeps it: a receiver whose message's export is
  // revoked takes the message for lost.
  bool mayBeFreed(const void* start);
  // Tries again to end exports that were given up while others had them.
  void sweep();

  std::size_t count() const;

 private:
  struct Entry {
    MemoryPtr memory;  // NULL: it has no handle
    std::uint64_t allocation;
    std::list<std::byte*>::iterator use;
  };
  using Entries = std::map<std::byte*, Entry>;

  // All under the lock.
  void giveUp(Entries::iterator entry);
  void makeRoom();
  void sweepLocked();

  exchange::Exchange& exchange_;
  const std::size_t most_;
  mutable std::mutex lock_;                      // guards what follows
  Entries entries_;                              // by their starts
  std::list<std::byte*> uses_;                   // unused for longest first
  std::multimap<const void*, MemoryPtr> ended_;  // that somebody has still, by starts
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_DEVICE_EXPORTS_H_
