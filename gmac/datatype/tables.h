// SPDX-License-Identifier: Apache-2.0
//
// Tables of long lists in device memory.
#ifndef GMAC_DATATYPE_TABLES_H_
#define GMAC_DATATYPE_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "gmac/datatype/device.h"
#include "gmac/datatype/device_arena.h"
#include "gmac/datatype/device_plan.h"
#include "gmac/datatype/staging.h"
#include "gmac/status.h"

namespace gmac::datatype {

// Role: keeps the tables of plans, the longest unused ones going first where they become more than
// a limit. Thread-safe; owned by the engine.
class Tables {
 public:
  Tables(Device& device, Staging& staging, std::size_t limitBytes)
      : device_(device), staging_(staging), limitBytes_(limitBytes), arena_(device) {}
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  // The address of a plan's table, which what is submitted to the stream (nothing: the kernel
  // queue) from now on finds there. It stays until unpin(), which is told the ticket of the last
  // work that uses it.
  Result<std::uint64_t> pin(const DevicePlan& plan, std::optional<accel::NativeStream> stream);
  void unpin(const DevicePlan& plan, accel::Ticket lastUse) noexcept;

 private:
  struct Table {
    std::uint64_t address = 0;
    std::size_t bytes = 0;
    std::uint64_t turn = 0;  // of its last use
    std::size_t pins = 0;
    accel::Ticket filled;
    accel::Ticket lastUse;       // on the kernel queue
    bool usedByStreams = false;  // of the application's
  };
  Status fill(const DevicePlan& plan, Table& table);
  void makeRoom(std::size_t bytes);
  void drop(std::unordered_map<std::uint64_t, Table>::iterator table);

  Device& device_;
  Staging& staging_;
  const std::size_t limitBytes_;
  std::mutex mutex_;  // guards all below
  DeviceArena arena_;
  std::unordered_map<std::uint64_t, Table> tables_;  // by the plan's identity
  std::size_t bytes_ = 0;
  std::uint64_t turn_ = 0;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_TABLES_H_
