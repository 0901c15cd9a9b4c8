// SPDX-License-Identifier: Apache-2.0
#include "exchange/imports.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "gmac/base/log.h"

namespace gmac::exchange::internal {
namespace {

constexpr std::chrono::milliseconds kAskForEnded{100};

bool isMemoryFile(ExportKind kind) {
  return kind == ExportKind::kFile || kind == ExportKind::kPinned;
}

}  // namespace

Imports::Imports(int rank, const DeviceFunctions* device, std::size_t most)
    : rank_(rank), device_(device), most_(most) {}

Imports::~Imports() = default;

// Keeps what the owner has sent over the channel.
void Imports::takeFiles(Peer& peer, int owner) {
  while (true) {
    HandedFiles text{};
    std::array<int, kMaxDeviceFiles> passed{};
    iovec part{&text, sizeof text};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof passed)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const Result<int> channel = peer.met().channel.use("the channel to another process");
    if (!channel.ok()) {
      return;
    }
    const ssize_t received = ::recvmsg(*channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) {
      continue;
    }
    if (received <= 0) {
      return;
    }
    std::vector<Descriptor> files;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        const std::size_t bytes =
            std::min<std::size_t>(header->cmsg_len - CMSG_LEN(0), sizeof passed);
        std::memcpy(passed.data(), CMSG_DATA(header), bytes);
        for (std::size_t i = 0; i < bytes / sizeof(int); ++i) {
          Descriptor file(passed[i]);
          if (file) {
            files.push_back(std::move(file));
          }
        }
      }
    }
    // (With too few descriptors left, some have not come.)
    if (received != sizeof text || text.magic != HandedFiles::kMagic || files.empty() ||
        text.count != files.size()) {
      continue;
    }
    std::vector<Handed>& handed = files_[{owner, text.id}];
    handed.clear();
    for (std::size_t i = 0; i < files.size(); ++i) {
      handed.push_back({std::move(files[i]), text.parts[i]});
    }
  }
}

Result<const std::vector<Imports::Handed>*> Imports::filesOf(const Entry& entry,
                                                             ExportRecord& record) {
  const Key key{entry.owner, entry.id};
  auto found = files_.find(key);
  if (found == files_.end()) {
    takeFiles(*entry.peer, entry.owner);
    found = files_.find(key);
  }
  if (found == files_.end()) {
    record.lost.fetch_add(1);  // the next offer() hands it again
    return fail(adsmErrorNotSupported, "exchange: the file of export {} has not come from rank {}",
                entry.id, entry.owner);
  }
  return &found->second;
}

Status Imports::openFile(Entry& entry, ExportRecord& record) {
  const auto handed = filesOf(entry, record);
  GMAC_TRY(handed.status());
  const Handed& first = (*handed)->front();
  const std::int64_t offset = first.part.offset;
  const Result<int> file = first.file.use("another process's file");
  GMAC_TRY(file.status());
  struct stat status {};
  const int seals = ::fcntl(*file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(*file, &status) != 0 || offset < 0 ||
      offset > status.st_size || record.bytes > static_cast<std::size_t>(status.st_size - offset)) {
    return fail(adsmErrorInvalidValue,
                "exchange: export {} of rank {} is no file of {} bytes that cannot shrink",
                entry.id, entry.owner, record.bytes);
  }
  // (What cannot be written is not pinned.)
  Result<Mapping> mapping = Mapping::make(*file, static_cast<std::size_t>(offset), record.bytes,
                                          entry.kind == ExportKind::kPinned);
  GMAC_TRY(mapping.status());
  entry.mapping = std::move(*mapping);
  entry.data = entry.mapping.data();
  return {};
}

Status Imports::openDevice(Entry& entry, const ExportRecord& record) {
  std::size_t bytes = 0;
  if (device_ == nullptr || device_->releaseImport == nullptr) {
    return fail(adsmErrorNotSupported, "exchange: this process imports no device memory");
  }
  // Its first piece is what proves that this device reaches its device.
  entry.peer->importPieces(rank_, *device_);
  if (entry.peer->piece(0, &bytes) == nullptr) {
    return fail(adsmErrorNotSupported,
                "exchange: this process has not proved that it reaches the device of rank {}",
                entry.owner);
  }
  void* address = nullptr;
  if (const adsmError_t code = device_->importMemory(record.handle.data(), &address);
      code != adsmSuccess) {
    return fail(code, "exchange: device memory of rank {}, export {}, is not imported: {}",
                entry.owner, entry.id, device_->causeOf(code));
  }
  entry.data = static_cast<const std::byte*>(address);
  return {};
}

// (That the descriptors come from the owner proves what they are of.)
Status Imports::openDeviceFiles(Entry& entry, ExportRecord& record) {
  if (device_ == nullptr || device_->importFiles == nullptr) {
    return fail(adsmErrorNotSupported, "exchange: this process imports no device memory by files");
  }
  const auto handed = filesOf(entry, record);
  GMAC_TRY(handed.status());
  std::array<DeviceFile, kMaxDeviceFiles> files{};
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  for (const Handed& one : **handed) {
    const Result<int> file = one.file.use("another process's device memory");
    GMAC_TRY(file.status());
    files[count++] = {*file, one.part.offset, one.part.bytes};
    bytes += one.part.bytes;
  }
  if (bytes != record.bytes) {
    return fail(adsmErrorInvalidValue, "exchange: export {} of rank {} has {} bytes, its files {}",
                entry.id, entry.owner, record.bytes, bytes);
  }
  void* address = nullptr;
  if (const adsmError_t code =
          device_->importFiles(files.data(), static_cast<int>(count), &address);
      code != adsmSuccess) {
    return fail(code, "exchange: device memory of rank {}, export {}, is not imported: {}",
                entry.owner, entry.id, device_->causeOf(code));
  }
  entry.data = static_cast<const std::byte*>(address);
  return {};
}

Status Imports::open(Entry& entry) {
  const SharedFile& file = entry.peer->met().file;
  const std::size_t index = entry.id % FileLayout::kExports;
  std::atomic<std::uint64_t>& bits = file.importers(index, static_cast<std::size_t>(rank_) / 64);
  const std::uint64_t bit = std::uint64_t{1} << rank_ % 64;
  // (An earlier export in the same record is given back before its bit is: see giveBack().)
  const bool before = (bits.fetch_or(bit) & bit) != 0;
  ExportRecord& record = file.exportRecord(index);
  Status status;
  if (record.live.load() != entry.id) {
    status = fail(adsmErrorInvalidValue, "exchange: export {} of rank {} is revoked, or never was",
                  entry.id, entry.owner);
  } else {
    entry.kind = static_cast<ExportKind>(record.kind);
    entry.bytes = record.bytes;
    status = isMemoryFile(entry.kind)                 ? openFile(entry, record)
             : entry.kind == ExportKind::kDeviceFiles ? openDeviceFiles(entry, record)
                                                      : openDevice(entry, record);
    if (!isMemoryFile(entry.kind)) {
      file.proof(rank_, FileLayout::kImports)
          .store(status.ok() ? Proof::kProved : Proof::kRefused, std::memory_order_release);
    }
  }
  if (!status.ok() && !before) {
    bits.fetch_and(~bit);
  }
  if (status.ok() && !isMemoryFile(entry.kind)) {
    tellWhetherLocal(entry);
  }
  return status;
}

void Imports::tellWhetherLocal(const Entry& entry) const {
  if (device_->identity == nullptr || device_->importIsLocal == nullptr) {
    return;
  }
  const std::uint64_t there = entry.peer->met().file.device().load(std::memory_order_acquire);
  if (there != 0 && there == device_->identity()) {
    device_->importIsLocal(const_cast<std::byte*>(entry.data));
  }
}

// False: the device has it still, so its owner must not free it: the bit stays.
bool Imports::giveBack(Entry& entry) {
  if (isMemoryFile(entry.kind)) {
    if (std::exchange(entry.isPinned, false)) {
      (void)device_->unpin(entry.mapping.data(), entry.bytes);
    }
    entry.mapping = Mapping();
  } else if (const adsmError_t code = device_->releaseImport(const_cast<std::byte*>(entry.data));
             code != adsmSuccess) {
    log(LogLevel::kInfo, "exchange: export {} of rank {} is not given back yet: {}", entry.id,
        entry.owner, device_->causeOf(code));
    return false;
  }
  entry.peer->met()
      .file.importers(entry.id % FileLayout::kExports, static_cast<std::size_t>(rank_) / 64)
      .fetch_and(~(std::uint64_t{1} << rank_ % 64));
  return true;
}

void Imports::giveBackStuck() {
  std::erase_if(stuck_, [this](const auto& entry) { return giveBack(*entry); });
}

void Imports::drop(std::map<Key, std::unique_ptr<Entry>>::iterator found) {
  Entry& entry = *found->second;
  idle_.erase(entry.idle);
  if (entry.revoked()) {
    files_.erase(found->first);
  }
  if (!giveBack(entry)) {
    stuck_.push_back(std::move(found->second));
  }
  entries_.erase(found);
}

bool Imports::evictOne() {
  if (idle_.empty()) {
    return false;
  }
  const Entry& oldest = *idle_.front();
  drop(entries_.find({oldest.owner, oldest.id}));
  ++counts_.evicted;
  return true;
}

bool Imports::hasAnyOf(int owner) const {
  const auto entry = entries_.lower_bound({owner, 0});
  const auto file = files_.lower_bound({owner, 0});
  return (entry != entries_.end() && entry->first.first == owner) ||
         (file != files_.end() && file->first.first == owner);
}

void Imports::sweepLocked() {
  giveBackStuck();
  const auto time = std::chrono::steady_clock::now();
  const bool ask = time - askedForEnded_ >= kAskForEnded;
  askedForEnded_ = ask ? time : askedForEnded_;
  for (auto& [owner, seen] : seen_) {
    const bool ended = ask && hasAnyOf(owner) && !seen.first->lives();
    const std::uint64_t now = seen.first->met().file.revocations().load();
    if (now == seen.second && !ended) {
      continue;
    }
    seen.second = now;
    for (auto next = entries_.lower_bound({owner, 0});
         next != entries_.end() && next->first.first == owner;) {
      const auto found = next++;
      // (Messages may have been left in pinned memory.)
      if (found->second->users == 0 &&
          (found->second->revoked() || (ended && found->second->kind != ExportKind::kPinned))) {
        drop(found);
      }
    }
    std::erase_if(files_, [&, owner = owner, &peer = *seen.first](const auto& file) {
      const std::uint64_t id = file.first.second;
      return file.first.first == owner &&
             (ended || peer.met().file.exportRecord(id % FileLayout::kExports).live.load() != id);
    });
  }
}

void Imports::sweep() {
  const std::lock_guard guard(lock_);
  sweepLocked();
}

Result<Imports::Entry*> Imports::use(const std::shared_ptr<Peer>& peer, int owner, ExportId id) {
  const std::lock_guard guard(lock_);
  seen_.try_emplace(owner, peer, 0);
  sweepLocked();
  const Key key{owner, static_cast<std::uint64_t>(id)};
  if (const auto found = entries_.find(key); found != entries_.end()) {
    Entry& entry = *found->second;
    if (entry.revoked()) {
      return fail(adsmErrorInvalidValue, "exchange: export {} of rank {} is revoked", key.second,
                  owner);
    }
    if (entry.users++ == 0) {
      idle_.erase(entry.idle);
    }
    return &entry;
  }
  if (id == kNoExport) {
    return fail(adsmErrorInvalidValue, "exchange: 0 is no export");
  }
  for (const auto& entry : stuck_) {
    if (entry->owner == owner && entry->id == key.second) {
      return fail(adsmErrorNotSupported, "exchange: export {} of rank {} is being given back",
                  key.second, owner);
    }
  }
  if (entries_.size() >= most_ && !evictOne()) {
    return fail(adsmErrorHostMemory, "exchange: {} imports are in use, as many as there may be",
                most_);
  }
  auto entry = std::make_unique<Entry>();
  entry->peer = peer;
  entry->owner = owner;
  entry->id = key.second;
  GMAC_TRY(open(*entry));
  entry->users = 1;
  ++counts_.opened;
  return entries_.emplace(key, std::move(entry)).first->second.get();
}

void Imports::unuse(Entry* entry) {
  const std::lock_guard guard(lock_);
  if (--entry->users > 0) {
    return;
  }
  entry->idle = idle_.insert(idle_.end(), entry);
  if (closed_ || entry->revoked()) {
    drop(entries_.find({entry->owner, entry->id}));
  }
}

void Imports::pin(Entry* entry) {
  const std::lock_guard guard(lock_);
  if (!entry->isPinned && device_ != nullptr) {
    entry->isPinned = device_->pins(entry->mapping.data(), entry->bytes);
  }
}

void Imports::close() {
  const std::lock_guard guard(lock_);
  closed_ = true;
  while (evictOne()) {
  }
  files_.clear();
  seen_.clear();
}

Imports::Counts Imports::counts() const {
  const std::lock_guard guard(lock_);
  Counts counts = counts_;
  counts.imported = entries_.size() + stuck_.size();
  return counts;
}

}  // namespace gmac::exchange::internal
