// SPDX-License-Identifier: Apache-2.0
//
// Memory of this process that others reach in place.
#ifndef GMAC_EXCHANGE_EXPORTS_H_
#define GMAC_EXCHANGE_EXPORTS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/peer.h"
#include "exchange/shared_file.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/status.h"

namespace gmac::exchange::internal {

// An export's place in the table, which its id names; an id is never given twice.
constexpr std::size_t recordOf(ExportId id) {
  return static_cast<std::uint64_t>(id) % FileLayout::kExports;
}

// The exported part of a file.
struct FilePart {
  std::int64_t offset;
  std::uint64_t bytes;
};

// The exports of this process. Thread-safe.
//
// A record of the shared table goes through: free, exported (`live` is the id), revoked (`live` is
// 0 and somebody has it imported still), free. An importer sets its bit before it looks at `live`,
// and the owner clears `live` before it looks at the bits: so either the importer sees that the
// export is revoked, or the owner sees the importer. A record is used again only when no bit is
// set.
class Exports {
 public:
  Exports(const SharedFile& file, int ranks);

  // The file is duplicated; it must not be able to shrink (F_SEAL_SHRINK), or be such that it can
  // be told so.
  // `kind`: kFile, or kPinned.
  Result<ExportId> addFile(int file, std::int64_t offset, std::size_t bytes,
                           ExportKind kind = ExportKind::kFile);
  // The files are duplicated.
  Result<ExportId> addDeviceFiles(std::span<const DeviceFile> files);
  Result<ExportId> addDevice(const DeviceHandle& handle, std::size_t bytes);

  // Gives the process of that rank what it needs to import it, once, or again where that was lost.
  // Never blocks. adsmErrorSystem: its queue is full now, or it is gone.
  Status hand(ExportId id, int rank, const Peer& peer);

  // From now on nobody imports it. True: no process that lives has it, and the id is forgotten.
  Result<bool> revoke(ExportId id, const std::vector<std::shared_ptr<Peer>>& peers);

  // Whether the process of that rank has it imported. Takes no lock.
  bool isImportedBy(ExportId id, int rank) const;

  // So many are not revoked.
  std::size_t count() const;

 private:
  struct Entry {
    std::uint64_t id = 0;  // 0: the record is free
    bool revoked = false;
    std::vector<Descriptor> files;  // empty: it has a handle
    std::vector<FilePart> parts;    // of them
    // By rank: 0, it was not handed; else 1 and the record's `lost` at that time.
    std::vector<std::uint32_t> handed;
  };

  Result<std::size_t> freeRecord();
  Result<Entry*> find(ExportId id);
  ExportId publish(std::size_t record, Entry entry, const DeviceHandle& handle, ExportKind kind,
                   std::size_t bytes);
  // Whether a process that lives has the record's memory imported.
  bool imported(std::size_t record, const std::vector<std::shared_ptr<Peer>>& peers);
  void sweepRevoked();
  static Result<Descriptor> duplicate(int file);

  const SharedFile& file_;
  const int ranks_;
  mutable std::mutex lock_;  // guards what follows
  std::vector<Entry> entries_;
  std::uint64_t ids_ = 0;
  std::size_t next_ = 0;  // where a free record is looked for first
  std::size_t live_ = 0;
};

// The message on a pair's channel that goes with the files' descriptors.
struct HandedFiles {
  static constexpr std::uint64_t kMagic = 0x32656c69666d6167;
  std::uint64_t magic;
  std::uint64_t id;
  std::uint64_t count;
  std::array<FilePart, kMaxDeviceFiles> parts;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_EXPORTS_H_
