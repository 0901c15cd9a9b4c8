// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/tables.h"

#include <algorithm>

namespace gmac::datatype {

using accel::Ticket;

Tables::~Tables() {
  while (!tables_.empty()) {
    drop(tables_.begin());
  }
}

void Tables::drop(std::unordered_map<std::uint64_t, Table>::iterator table) {
  (void)device_.accelerator().wait(table->second.filled);
  (void)device_.accelerator().wait(table->second.lastUse);
  // Asking each time for a ticket would cost every use what this costs the rare end.
  if (table->second.usedByStreams) {
    (void)device_.waitForStreams();
  }
  arena_.free(table->second.address, table->second.bytes);
  bytes_ -= table->second.bytes;
  tables_.erase(table);
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
      return;  // what is in use may exceed the limit
    }
    drop(oldest);
  }
}

// Entries are written piece by piece into pinned memory and copied from there.
Status Tables::fill(const DevicePlan& plan, Table& table) {
  const DevicePlan::Table& shape = plan.table();
  const auto copy = [&](std::uint64_t entries, std::size_t entryBytes, std::uint64_t at,
                        auto write) -> Status {
    const std::uint64_t most = Staging::kSlotBytes / entryBytes;
    for (std::uint64_t from = 0; from < entries; from += most) {
      const std::uint64_t to = std::min(entries, from + most);
      auto slot = staging_.take();
      if (!slot.ok()) {
        return slot.status();
      }
      write(from, to, slot->pinned());
      auto ticket =
          device_.accelerator().copyIn(accel::DeviceAddress{table.address + at + from * entryBytes},
                                       slot->pinned(), (to - from) * entryBytes, {});
      if (!ticket.ok()) {
        return ticket.status();
      }
      slot->usedUntil(*ticket);
      table.filled = *ticket;
    }
    return {};
  };
  GMAC_TRY(copy(
      shape.units, sizeof(std::uint32_t), 0,
      [&](std::uint64_t from, std::uint64_t to, void* out) { plan.writeUnits(from, to, out); }));
  return copy(
      shape.pieces, shape.pieceBytes, shape.piecesAt,
      [&](std::uint64_t from, std::uint64_t to, void* out) { plan.writePieces(from, to, out); });
}

Result<std::uint64_t> Tables::pin(const DevicePlan& plan,
                                  std::optional<accel::NativeStream> stream) {
  const std::lock_guard lock(mutex_);
  auto found = tables_.find(plan.identity());
  if (found == tables_.end()) {
    const std::size_t bytes = plan.table().bytes;
    makeRoom(bytes);
    auto address = arena_.allocate(bytes);
    if (!address.ok()) {
      makeRoom(limitBytes_);  // gives up everything that is not in use
      arena_.trim();
      address = arena_.allocate(bytes);
      if (!address.ok()) {
        return address.status();
      }
    }
    found = tables_.emplace(plan.identity(), Table()).first;
    found->second.address = *address;
    found->second.bytes = bytes;
    bytes_ += bytes;
    if (const Status filled = fill(plan, found->second); !filled.ok()) {
      drop(found);
      return filled;
    }
  }
  Table& table = found->second;
  // The kernel queue is behind all copies in already.
  if (stream && !device_.accelerator().done(table.filled)) {
    GMAC_TRY(device_.follow(stream, table.filled));
  }
  ++table.pins;
  table.usedByStreams = table.usedByStreams || stream.has_value();
  table.turn = ++turn_;
  return table.address;
}

void Tables::unpin(const DevicePlan& plan, Ticket lastUse) noexcept {
  const std::lock_guard lock(mutex_);
  Table& table = tables_.find(plan.identity())->second;
  --table.pins;
  if (lastUse.value != 0) {
    table.lastUse = lastUse;
  }
}

}  // namespace gmac::datatype
