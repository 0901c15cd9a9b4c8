// SPDX-License-Identifier: Apache-2.0
#include "mpi/device_exports.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/base/status.h"
#include "gmac/session/device_memory.h"

namespace gmac::mpi {

DeviceExports::MemoryPtr DeviceExports::find(const std::byte* first, std::size_t bytes) {
  gmacAllocation allocation{};
  if (gmacAllocationOf(first, &allocation) != adsmSuccess) {
    return nullptr;
  }
  auto* const start = static_cast<std::byte*>(allocation.start);
  if (bytes > allocation.bytes - static_cast<std::size_t>(first - start)) {
    return nullptr;
  }
  return find(start, allocation.bytes, Owner::kApplication, allocation.id,
              [&]() -> Result<Exported> {
                const auto id = exchange_.exportDevice(start, allocation.bytes);
                return id.ok() ? Result<Exported>({*id, 0}) : id.status();
              });
}

DeviceExports::MemoryPtr DeviceExports::find(const gmacDeviceLoan& loan) {
  return find(static_cast<std::byte*>(loan.start), loan.bytes, Owner::kRuntime, loan.number,
              [&] { return exportFiles(loan); });
}

Result<DeviceExports::Exported> DeviceExports::exportFiles(const gmacDeviceLoan& loan) {
  std::array<gmacMemoryFile, GMAC_MEMORY_FILES> files{};
  int count = 0;
  if (const adsmError_t code =
          gmacFilesOfDeviceMemory(loan.start, loan.bytes, loan.number, files.data(), &count);
      code != adsmSuccess) {
    return Status(code);
  }
  std::array<exchange::DeviceFile, GMAC_MEMORY_FILES> parts{};
  for (int i = 0; i < count; ++i) {
    const gmacMemoryFile& file = files[static_cast<std::size_t>(i)];
    parts[static_cast<std::size_t>(i)] = {file.file, file.offset, file.bytes};
  }
  const auto all = static_cast<std::size_t>(count);
  const auto id = exchange_.exportDeviceFiles(std::span(parts).first(all));
  for (const gmacMemoryFile& file : std::span(files).first(all)) {
    (void)::close(file.file);
  }
  return id.ok() ? Result<Exported>({*id, all}) : id.status();
}

template <typename Export>
DeviceExports::MemoryPtr DeviceExports::find(std::byte* start, std::size_t bytes, Owner owner,
                                             std::uint64_t allocation, Export exportIt) {
  const std::lock_guard guard(lock_);
  sweepLocked();
  auto found = entries_.find(start);
  if (found != entries_.end() &&
      (found->second.allocation != allocation || found->second.owner != owner)) {
    giveUp(found);  // it was freed where nobody has seen it
    found = entries_.end();
  }
  if (found != entries_.end()) {
    uses_.splice(uses_.end(), uses_, found->second.use);
    if (found->second.memory != nullptr || !found->second.attempts.mayTry()) {
      return found->second.memory;
    }
  }
  makeRoom(start);
  const Result<Exported> exported = exportIt();
  if (!exported.ok()) {
    log(LogLevel::kInfo, "mpi: messages from an allocation of {} bytes of a device are packed: {}",
        bytes, lastErrorText());
    if (exported.status().code() == adsmErrorHostMemory && found == entries_.end()) {
      return nullptr;  // there are too many exports now
    }
  }
  if (found == entries_.end()) {
    const auto use = uses_.insert(uses_.end(), start);
    found = entries_.emplace(start, Entry{nullptr, owner, allocation, use, {}}).first;
  }
  if (!exported.ok()) {
    found->second.attempts.failed();
    return nullptr;
  }
  found->second.memory = std::make_shared<const Memory>(
      Memory{exported->id, start, bytes, owner, allocation, exported->files});
  files_ += exported->files;
  return found->second.memory;
}

void DeviceExports::ended(std::uint64_t number) {
  const std::lock_guard guard(lock_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.owner == Owner::kRuntime && entry.second.allocation == number;
  });
  if (found != entries_.end()) {
    giveUp(found);
  }
  sweepLocked();
}

void DeviceExports::giveUp(Entries::iterator entry) {
  if (const MemoryPtr& memory = entry->second.memory) {
    files_ -= memory->files;
    ended_.emplace(memory->start, memory);
  }
  uses_.erase(entry->second.use);
  entries_.erase(entry);
}

void DeviceExports::makeRoom(std::byte* start) {
  const std::size_t most = most_ + (entries_.contains(start) ? 1 : 0);
  const auto full = [&] { return entries_.size() >= most || files_ >= mostFiles_; };
  for (auto use = uses_.begin(); full() && use != uses_.end();) {
    const auto entry = entries_.find(*use++);
    if (entry->first == start) continue;
    const MemoryPtr& memory = entry->second.memory;
    const bool helps = entries_.size() >= most || (memory != nullptr && memory->files > 0);
    if (helps && (memory == nullptr || memory.use_count() == 1)) {
      giveUp(entry);
    }
  }
  sweepLocked();
}

void DeviceExports::sweepLocked() {
  std::erase_if(ended_, [&](const auto& one) {
    if (one.second.use_count() > 1) {
      return false;  // a message keeps it
    }
    const Result<bool> done = exchange_.revoke(one.second->id);
    return !done.ok() || *done;
  });
}

exchange::ExportId DeviceExports::take(const void* start) {
  const std::lock_guard guard(lock_);
  const auto found = entries_.find(static_cast<std::byte*>(const_cast<void*>(start)));
  if (found == entries_.end()) {
    return exchange::kNoExport;
  }
  const auto id = found->second.memory != nullptr ? found->second.memory->id : exchange::kNoExport;
  giveUp(found);
  return id;
}

bool DeviceExports::mayBeFreed(const void* start) {
  const std::lock_guard guard(lock_);
  sweepLocked();
  return !ended_.contains(start);
}

void DeviceExports::sweep() {
  const std::lock_guard guard(lock_);
  sweepLocked();
}

std::size_t DeviceExports::count() const {
  const std::lock_guard guard(lock_);
  std::size_t count = 0;
  for (const auto& [start, entry] : entries_) {
    count += entry.memory != nullptr ? 1 : 0;
  }
  return count;
}

}  // namespace gmac::mpi
