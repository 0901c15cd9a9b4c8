// SPDX-License-Identifier: Apache-2.0
//
// Tables of long lists in device memory.
#ifndef GMAC_DATATYPE_ENGINE_TABLES_H_
#define GMAC_DATATYPE_ENGINE_TABLES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "gmac/base/status.h"
#include "gmac/datatype/engine/device.h"
#include "gmac/datatype/engine/device_arena.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// A cache of the tables of plans with a limit in bytes; the least recently used tables are evicted
// first. Thread-safe; owned by the engine. Not for the fault handler.
class Tables {
 public:
  Tables(Device& device, std::size_t limitBytes)
      : device_(device), limitBytes_(limitBytes), arena_(device) {}
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  // The address of the plan's table, for work that is submitted to the stream (std::nullopt: the
  // kernel queue) from now on; 0: there is none yet, and a TableFilling makes it. An address is
  // valid until unpin(), which takes the ticket of the last work that uses it.
  Result<std::uint64_t> pin(std::uint64_t plan, std::optional<accel::NativeStream> stream);
  void unpin(std::uint64_t plan, accel::Ticket lastUse) noexcept;

  // Bytes of all tables, including those that are being filled.
  std::size_t bytes() const;

 private:
  friend class TableFilling;
  struct Table {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::uint64_t turn = 0;  // of its last use
    std::size_t pins = 0;
    accel::Ticket filled;
    accel::Ticket lastUse;       // on the kernel queue
    bool usedByStreams = false;  // of the application's
  };
  // Pinned memory for entries in transit. Not slots of the staging: a thread that fills a table may
  // hold slots that others wait for, and so must not wait for one.
  static constexpr std::size_t kBufferBytes = std::size_t{256} << 10;
  static constexpr std::size_t kBuffers = 4;
  struct Buffer {
    std::byte* memory = nullptr;
    accel::Ticket reader;
  };

  // Memory for a table that does not belong to a plan yet.
  Result<Table> place(std::size_t bytes);
  void add(const DevicePlan& plan, const Table& table);
  // Waits for work that uses the table, and frees its memory.
  void release(const Table& table) noexcept;
  // A buffer that nothing reads any more. The caller holds filling_.
  Result<Buffer*> nextBuffer();

  void makeRoom(std::size_t bytes);
  void drop(std::unordered_map<std::uint64_t, Table>::iterator table);
  void waitForUsers(const Table& table) noexcept;
  void giveBack(const Table& table) noexcept;

  Device& device_;
  const std::size_t limitBytes_;
  std::mutex filling_;  // held by the filling under way; taken before mutex_; guards the two below
  std::array<Buffer, kBuffers> buffers_;
  std::size_t buffer_ = 0;
  mutable std::mutex mutex_;  // guards all below
  DeviceArena arena_;
  std::unordered_map<std::uint64_t, Table> tables_;  // by the plan's identity
  std::size_t bytes_ = 0;
  std::uint64_t turn_ = 0;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_TABLES_H_
