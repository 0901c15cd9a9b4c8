// SPDX-License-Identifier: Apache-2.0
//
// Device memory that other processes may import, the application's own and that of shared objects:
// each allocation is exported once, when a message of it is first sent to a process that could copy
// it by its device. Knows no mpi.h.
#ifndef GMAC_MPI_DEVICE_EXPORTS_H_
#define GMAC_MPI_DEVICE_EXPORTS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "exchange/attempts.h"
#include "exchange/exchange.h"
#include "gmac/base/status.h"
#include "gmac/coherence/shared_memory.h"

namespace gmac::mpi {

// Thread-safe. No lock is held while memory is exported for long: the driver's call for it takes
// some microseconds, the first one of the process as long as an allocation.
class DeviceExports {
 public:
  // Who has made it, and numbers it: the application (gmacAllocationOf), the runtime for objects
  // (gmacLendOnDevice).
  enum class Owner { kApplication, kRuntime };
  // An allocation that is exported. Messages keep it.
  struct Memory {
    exchange::ExportId id;
    std::byte* start;
    std::size_t bytes;
    Owner owner;
    std::uint64_t allocation;  // its number
    std::size_t files;         // descriptors that it keeps open
  };
  using MemoryPtr = std::shared_ptr<const Memory>;

  // `most`: allocations that are exported at a time, and known to have no handle; `mostFiles`: when
  // these have so many descriptors open, which are the program's, too. Of more, the one that was
  // not asked for for longest is given up, unless a message keeps it.
  explicit DeviceExports(exchange::Exchange& exchange, std::size_t most = 256,
                         std::size_t mostFiles = 256)
      : exchange_(exchange), most_(most), mostFiles_(mostFiles) {}
  DeviceExports(const DeviceExports&) = delete;
  DeviceExports& operator=(const DeviceExports&) = delete;

  // Of the allocation that all of these bytes are in. NULL: they are in none, or it has no handle
  // (managed, mapped and a pool's memory, and that of other devices than the runtime's; or the
  // system has refused it), which is asked less and less often (exchange/attempts.h).
  MemoryPtr find(const std::byte* first, std::size_t bytes);
  // Of the allocation of lent bytes. NULL: it has no files, likewise.
  MemoryPtr find(const gmacDeviceLoan& loan);

  // Somebody is about to free what starts there: from now on it is found no more. What it was;
  // kNoExport: nothing.
  exchange::ExportId take(const void* start);
  // The pages with that number cease to be an object's: they are found no more, and freed when the
  // last importer lets go of them.
  void ended(std::uint64_t number);
  // Whether nobody has any more what starts there; true also for what was never exported. Nobody
  // imports it any more as soon as no message keeps it: a receiver whose message's export is
  // revoked takes the message for lost.
  bool mayBeFreed(const void* start);
  // Tries again to end exports that were given up while others had them.
  void sweep();

  std::size_t count() const;

 private:
  struct Entry {
    MemoryPtr memory;  // NULL: it has no handle, or files
    Owner owner;
    std::uint64_t allocation;
    std::list<std::byte*>::iterator use;
    exchange::Attempts attempts;  // of what has no handle
  };
  using Entries = std::map<std::byte*, Entry>;
  struct Exported {
    exchange::ExportId id;
    std::size_t files;
  };

  // An allocation, and what exports it.
  template <typename Export>
  MemoryPtr find(std::byte* start, std::size_t bytes, Owner owner, std::uint64_t allocation,
                 Export exportIt);
  Result<Exported> exportFiles(const gmacDeviceLoan& loan);
  // All under the lock.
  void giveUp(Entries::iterator entry);
  // For one that starts there.
  void makeRoom(std::byte* start);
  void sweepLocked();

  exchange::Exchange& exchange_;
  const std::size_t most_;
  const std::size_t mostFiles_;
  mutable std::mutex lock_;                      // guards what follows
  Entries entries_;                              // by their starts
  std::size_t files_ = 0;                        // of all of them
  std::list<std::byte*> uses_;                   // unused for longest first
  std::multimap<const void*, MemoryPtr> ended_;  // that somebody has still, by starts
};

}  // namespace gmac::mpi

#endif  // GMAC_MPI_DEVICE_EXPORTS_H_
