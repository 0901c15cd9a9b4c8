// SPDX-License-Identifier: Apache-2.0
//
// Memory of other processes that this one reaches in place.
#ifndef GMAC_EXCHANGE_IMPORTS_H_
#define GMAC_EXCHANGE_IMPORTS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/exports.h"
#include "exchange/peer.h"
#include "exchange/shared_file.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/status.h"

namespace gmac::exchange::internal {

// The imports of this process, each with the number of its users. One without a user stays, for the
// next time, until its export is revoked, its process is gone or it is the one that has been unused
// for longest when there are too many; one that is used stays whatever happens. Thread-safe: one
// lock, which is held while memory is imported or given back.
class Imports : public std::enable_shared_from_this<Imports> {
 public:
  struct Entry;
  // `device` may be NULL. `most`: imports at a time.
  Imports(int rank, const DeviceFunctions* device, std::size_t most);
  ~Imports();
  int rank() const { return rank_; }

  // adsmErrorInvalidValue: there is no such export (any more); adsmErrorHostMemory: as many as
  // there may be are in use; adsmErrorNotSupported: it is not reached from here.
  Result<Entry*> use(const std::shared_ptr<Peer>& peer, int owner, ExportId id);
  void unuse(Entry* entry);
  // Of kPinned, before the device copies from there.
  void pin(Entry* entry);
  // Gives back what nobody uses and whose export is revoked, or whose process is gone. A load for
  // each process if there is nothing; every 100 ms a look whether those live that something is of.
  void sweep();
  // Gives back all that nobody uses; what is in use goes when its last user does.
  void close();

  struct Counts {
    std::size_t imported = 0;  // now
    std::uint64_t opened = 0;
    std::uint64_t evicted = 0;
  };
  Counts counts() const;

 private:
  using Key = std::pair<int, std::uint64_t>;  // owner, id
  struct Handed {
    Descriptor file;
    FilePart part;
  };
  using Files = std::map<Key, std::vector<Handed>>;

  // All under the lock.
  Status open(Entry& entry);
  void tellWhetherLocal(const Entry& entry) const;
  Status openFile(Entry& entry, ExportRecord& record);
  Status openDevice(Entry& entry, const ExportRecord& record);
  Status openDeviceFiles(Entry& entry, ExportRecord& record);
  // The descriptors that have come for that export; NULL: none.
  Result<const std::vector<Handed>*> filesOf(const Entry& entry, ExportRecord& record);
  bool giveBack(Entry& entry);
  void giveBackStuck();
  void drop(std::map<Key, std::unique_ptr<Entry>>::iterator found);
  bool evictOne();
  void sweepLocked();
  void takeFiles(Peer& peer, int owner);
  bool hasAnyOf(int owner) const;

  const int rank_;
  const DeviceFunctions* const device_;
  const std::size_t most_;
  mutable std::mutex lock_;  // guards what follows
  std::map<Key, std::unique_ptr<Entry>> entries_;
  // That the device has not given back yet.
  std::vector<std::unique_ptr<Entry>> stuck_;
  std::list<Entry*> idle_;                                               // unused for longest first
  Files files_;                                                          // that have arrived
  std::map<int, std::pair<std::shared_ptr<Peer>, std::uint64_t>> seen_;  // owner: revocations
  Counts counts_;
  std::chrono::steady_clock::time_point askedForEnded_{};
  bool closed_ = false;
};

struct Imports::Entry {
  std::shared_ptr<Peer> peer;
  int owner = 0;
  std::uint64_t id = 0;
  ExportKind kind = ExportKind::kFile;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  Mapping mapping;        // of a file
  bool isPinned = false;  // of kPinned
  std::size_t users = 0;
  std::list<Entry*>::iterator idle;  // where it is in idle_ if there are no users

  // Whether the owner has taken the export back. A load.
  bool revoked() const {
    return peer->met().file.exportRecord(id % FileLayout::kExports).live.load() != id;
  }
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_IMPORTS_H_
