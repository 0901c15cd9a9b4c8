// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/tables.h"

namespace gmac::datatype {

using accel::Ticket;

Tables::~Tables() {
  while (!tables_.empty()) {
    drop(tables_.begin());
  }
  if (buffers_[0].memory != nullptr) {
    for (const Buffer& buffer : buffers_) {
      (void)device_.accelerator().wait(buffer.reader);
    }
    device_.accelerator().freePinned(buffers_[0].memory, kBuffers * kBufferBytes);
  }
}

std::size_t Tables::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void Tables::waitForUsers(const Table& table) noexcept {
  (void)device_.accelerator().wait(table.filled);
  (void)device_.accelerator().wait(table.lastUse);
  // A ticket for each use would make every use as expensive as this rare wait.
  if (table.usedByStreams) {
    (void)device_.waitForStreams();
  }
}

void Tables::giveBack(const Table& table) noexcept {
  arena_.free(table.address, table.bytes);
  bytes_ -= table.bytes;
}

void Tables::drop(std::unordered_map<std::uint64_t, Table>::iterator table) {
  waitForUsers(table->second);
  giveBack(table->second);
  tables_.erase(table);
}

void Tables::release(const Table& table) noexcept {
  waitForUsers(table);
  const std::lock_guard lock(mutex_);
  giveBack(table);
}

void Tables::makeRoom(std::size_t bytes) {
  while (bytes_ + bytes > limitBytes_) {
    auto oldest = tables_.end();
    for (auto it = tables_.begin(); it != tables_.end(); ++it) {
      if (it->second.pins == 0 &&
          (oldest == tables_.end() || it->second.turn < oldest->second.turn)) {
        oldest = it;
      }
    }
    if (oldest == tables_.end()) {
      return;  // tables in use may exceed the limit
    }
    drop(oldest);
  }
}

Result<Tables::Table> Tables::place(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  makeRoom(bytes);
  auto address = arena_.allocate(bytes);
  if (!address.ok()) {
    makeRoom(limitBytes_);  // evicts everything that is not in use
    arena_.trim();
    address = arena_.allocate(bytes);
    if (!address.ok()) {
      return address.status();
    }
  }
  bytes_ += bytes;
  Table table;
  table.address = *address;
  table.bytes = bytes;
  return table;
}

void Tables::add(const DevicePlan& plan, const Table& table) {
  const std::lock_guard lock(mutex_);
  tables_.emplace(plan.identity(), table).first->second.turn = ++turn_;
}

Result<Tables::Buffer*> Tables::nextBuffer() {
  if (buffers_[0].memory == nullptr) {
    auto memory = device_.accelerator().allocatePinned(kBuffers * kBufferBytes);
    if (!memory.ok()) {
      return memory.status();
    }
    for (std::size_t i = 0; i < kBuffers; ++i) {
      buffers_[i].memory = static_cast<std::byte*>(*memory) + i * kBufferBytes;
    }
  }
  Buffer& buffer = buffers_[buffer_];
  buffer_ = (buffer_ + 1) % kBuffers;
  GMAC_TRY(device_.accelerator().wait(buffer.reader));
  return &buffer;
}

Result<std::uint64_t> Tables::pin(std::uint64_t plan, std::optional<accel::NativeStream> stream) {
  const std::lock_guard lock(mutex_);
  const auto found = tables_.find(plan);
  if (found == tables_.end()) [[unlikely]] {
    return std::uint64_t{0};
  }
  Table& table = found->second;
  // The kernel queue waits for all copies in anyway.
  if (stream && !device_.accelerator().done(table.filled)) {
    GMAC_TRY(device_.follow(*stream, table.filled));
  }
  ++table.pins;
  table.usedByStreams = table.usedByStreams || stream.has_value();
  table.turn = ++turn_;
  return table.address;
}

void Tables::unpin(std::uint64_t plan, Ticket lastUse) noexcept {
  const std::lock_guard lock(mutex_);
  Table& table = tables_.find(plan)->second;
  --table.pins;
  if (lastUse.value != 0) {
    table.lastUse = lastUse;
  }
}

}  // namespace gmac::datatype
