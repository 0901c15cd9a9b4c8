// SPDX-License-Identifier: Apache-2.0
#include "exchange/exports.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace gmac::exchange::internal {

Exports::Exports(const SharedFile& file, int ranks)
    : file_(file), ranks_(ranks), entries_(FileLayout::kExports) {}

std::size_t Exports::count() const {
  const std::lock_guard guard(lock_);
  return live_;
}

// Records of files that were revoked while others had them mapped. (Device memory with a handle
// stays its owner's until it has asked again.)
void Exports::sweepRevoked() {
  for (std::size_t record = 0; record < entries_.size(); ++record) {
    Entry& entry = entries_[record];
    if (entry.id == 0 || !entry.revoked || entry.files.empty()) {
      continue;
    }
    bool any = false;
    for (std::size_t word = 0; word < file_.importerWords(); ++word) {
      any = any || file_.importers(record, word).load() != 0;
    }
    if (!any) {
      entry = Entry();
    }
  }
}

Result<std::size_t> Exports::freeRecord() {
  for (int round = 0; round < 2; ++round) {
    for (std::size_t step = 0; step < entries_.size(); ++step) {
      const std::size_t record = (next_ + step) % entries_.size();
      if (entries_[record].id == 0) {
        next_ = record + 1;
        return record;
      }
    }
    sweepRevoked();
  }
  return fail(adsmErrorHostMemory,
              "exchange: {} exports, of which {} are not revoked, are as many as there can be",
              entries_.size(), live_);
}

ExportId Exports::publish(std::size_t record, Entry entry, const DeviceHandle& handle,
                          ExportKind kind, std::size_t bytes) {
  entry.id = ++ids_ * FileLayout::kExports + record;
  entry.handed.resize(static_cast<std::size_t>(ranks_));
  ExportRecord& shared = file_.exportRecord(record);
  shared.bytes = bytes;
  shared.kind = static_cast<std::uint32_t>(kind);
  shared.handle = handle;
  const std::uint64_t id = entry.id;
  entries_[record] = std::move(entry);
  ++live_;
  shared.live.store(id);
  return ExportId{id};
}

Result<ExportId> Exports::addFile(int file, std::int64_t offset, std::size_t bytes,
                                  ExportKind kind) {
  constexpr std::int64_t kPage = 4096;
  struct stat status {};
  if (::fstat(file, &status) != 0) {
    return fail(adsmErrorInvalidValue, "exchange: {} is no memory file: {}", file,
                std::strerror(errno));
  }
  if (offset < 0 || offset % kPage != 0 || bytes == 0 || offset > status.st_size ||
      bytes > static_cast<std::size_t>(status.st_size - offset)) {
    return fail(adsmErrorInvalidValue,
                "exchange: {} bytes at offset {} are no whole pages of a file of {} bytes", bytes,
                offset, status.st_size);
  }
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 ||
      ((seals & F_SEAL_SHRINK) == 0 && ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
    return fail(adsmErrorNotSupported,
                "exchange: a file that its owner may shorten is not exported, because readers "
                "would die of it: {}",
                seals < 0 ? "it takes no seals" : std::strerror(errno));
  }
  Result<Descriptor> own = duplicate(file);
  GMAC_TRY(own.status());
  Entry entry;
  entry.files.push_back(std::move(*own));
  entry.parts.push_back({offset, bytes});
  const std::lock_guard guard(lock_);
  const Result<std::size_t> record = freeRecord();
  GMAC_TRY(record.status());
  return publish(*record, std::move(entry), {}, kind, bytes);
}

Result<Descriptor> Exports::duplicate(int file) {
  Descriptor own(::fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return own ? Result<Descriptor>(std::move(own))
             : fail(adsmErrorSystem, "exchange: a descriptor of an exported file: {}",
                    std::strerror(errno));
}

Result<ExportId> Exports::addDeviceFiles(std::span<const DeviceFile> files) {
  if (files.empty() || files.size() > kMaxDeviceFiles) {
    return fail(adsmErrorInvalidValue, "exchange: device memory of {} files; allowed are 1 to {}",
                files.size(), kMaxDeviceFiles);
  }
  Entry entry;
  std::size_t bytes = 0;
  for (const DeviceFile& one : files) {
    Result<Descriptor> own = duplicate(one.file);
    GMAC_TRY(own.status());
    entry.files.push_back(std::move(*own));
    entry.parts.push_back({one.offset, one.bytes});
    bytes += one.bytes;
  }
  const std::lock_guard guard(lock_);
  const Result<std::size_t> record = freeRecord();
  GMAC_TRY(record.status());
  return publish(*record, std::move(entry), {}, ExportKind::kDeviceFiles, bytes);
}

Result<ExportId> Exports::addDevice(const DeviceHandle& handle, std::size_t bytes) {
  const std::lock_guard guard(lock_);
  const Result<std::size_t> record = freeRecord();
  GMAC_TRY(record.status());
  return publish(*record, Entry(), handle, ExportKind::kDevice, bytes);
}

Result<Exports::Entry*> Exports::find(ExportId id) {
  Entry& entry = entries_[recordOf(id)];
  if (id == kNoExport || entry.id != static_cast<std::uint64_t>(id)) {
    return fail(adsmErrorInvalidValue, "exchange: {} is no export of this process",
                static_cast<std::uint64_t>(id));
  }
  return &entry;
}

Status Exports::hand(ExportId id, int rank, const Peer& peer) {
  const std::lock_guard guard(lock_);
  const Result<Entry*> found = find(id);
  GMAC_TRY(found.status());
  Entry& entry = **found;
  if (entry.revoked) {
    return fail(adsmErrorInvalidValue, "exchange: export {} is revoked",
                static_cast<std::uint64_t>(id));
  }
  // (Another rank's loss hands it to this one as well.)
  std::uint32_t& handed = entry.handed[static_cast<std::size_t>(rank)];
  const std::uint32_t now = file_.exportRecord(recordOf(id)).lost.load() + 1;
  if (entry.files.empty() || handed == now) {
    return {};
  }
  HandedFiles text{HandedFiles::kMagic, entry.id, entry.files.size(), {}};
  std::array<int, kMaxDeviceFiles> files{};
  for (std::size_t i = 0; i < entry.files.size(); ++i) {
    const Result<int> file = entry.files[i].use("an exported file");
    GMAC_TRY(file.status());
    files[i] = *file;
    text.parts[i] = entry.parts[i];
  }
  const Result<int> channel = peer.met().channel.use("the channel to another process");
  GMAC_TRY(channel.status());
  iovec part{&text, sizeof text};
  const std::size_t descriptorBytes = entry.files.size() * sizeof(int);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof files)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptorBytes);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptorBytes);
  std::memcpy(CMSG_DATA(header), files.data(), descriptorBytes);
  if (::sendmsg(*channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return fail(adsmErrorSystem, "exchange: the descriptors of export {} for rank {}: {}", entry.id,
                rank, std::strerror(errno));
  }
  handed = now;
  return {};
}

bool Exports::isImportedBy(ExportId id, int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  return file_.exportRecord(recordOf(id)).live.load() == static_cast<std::uint64_t>(id) &&
         (file_.importers(recordOf(id), at / 64).load() >> at % 64 & 1) != 0;
}

bool Exports::imported(std::size_t record, const std::vector<std::shared_ptr<Peer>>& peers) {
  bool any = false;
  for (std::size_t word = 0; word < file_.importerWords(); ++word) {
    std::uint64_t bits = file_.importers(record, word).load();
    for (; bits != 0; bits &= bits - 1) {
      const std::size_t rank = word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits));
      if (rank < peers.size() && peers[rank] != nullptr && peers[rank]->lives()) {
        any = true;
      } else {
        // A process that ends gives its imports back.
        file_.importers(record, word).fetch_and(~(std::uint64_t{1} << rank % 64));
      }
    }
  }
  return any;
}

Result<bool> Exports::revoke(ExportId id, const std::vector<std::shared_ptr<Peer>>& peers) {
  const std::lock_guard guard(lock_);
  const Result<Entry*> found = find(id);
  GMAC_TRY(found.status());
  Entry& entry = **found;
  if (!entry.revoked) {
    entry.revoked = true;
    --live_;
    file_.exportRecord(recordOf(id)).live.store(0);
    file_.revocations().fetch_add(1);
  }
  if (imported(recordOf(id), peers)) {
    return false;
  }
  entry = Entry();
  return true;
}

}  // namespace gmac::exchange::internal
