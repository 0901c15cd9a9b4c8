// SPDX-License-Identifier: Apache-2.0
//
// The first use of a table: kernels run while it is filled.
#ifndef GMAC_DATATYPE_TABLE_FILLING_H_
#define GMAC_DATATYPE_TABLE_FILLING_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "gmac/base/status.h"
#include "gmac/datatype/device_plan.h"
#include "gmac/datatype/tables.h"

namespace gmac::datatype {

// Role: fills one plan's table in steps, so that a kernel can move what the first entries serve
// while the next are written. The table belongs to the filling, which nobody else sees, until
// keep(); without it, the table is gone with the filling. There is one filling at a time: the
// constructor waits for the other, behind which the table may be there. For the stack of one
// thread; it takes no slot of the staging, and holds no lock that a pin() of another table needs.
// Not for the fault handler.
class TableFilling {
 public:
  TableFilling(Tables& tables, const DevicePlan& plan);
  ~TableFilling();
  TableFilling(const TableFilling&) = delete;
  TableFilling& operator=(const TableFilling&) = delete;

  // Finds a place for the table. Before anything else, once.
  Status begin();
  std::uint64_t address() const { return table_.address; }

  // Begins to copy more entries in; how many packed bytes of one pass over the list, from the first
  // on, need none but those so far. A launch submitted to the kernel queue from now on is behind
  // the copies, as one on a stream that follows filled(). The first step is small, later ones are
  // larger. An error leaves the filling without any use.
  Result<std::int64_t> step();
  // Whether all entries are on their way.
  bool complete() const { return pieces_ == plan_.table().pieces; }
  accel::Ticket filled() const { return table_.filled; }

  // A launch has been submitted that uses the entries so far: its ticket, or none, on a stream of
  // the application's.
  void usedBy(accel::Ticket ticket) { table_.lastUse = ticket; }
  void usedByStreams() { table_.usedByStreams = true; }

  // Gives the complete table to those who pin it; nothing of the filling is used any more.
  void keep();

 private:
  // Copies entries [from, to) of the array that begins at `at`; `write` makes them.
  template <typename Write>
  Status copy(std::uint64_t from, std::uint64_t to, std::size_t entryBytes, std::uint64_t at,
              const Write& write);

  Tables& tables_;
  const DevicePlan& plan_;
  const std::lock_guard<std::mutex> alone_;
  Tables::Table table_;
  std::uint64_t units_ = 0;   // entries so far, of the first array
  std::uint64_t pieces_ = 0;  // and of the second
  std::uint64_t stepBytes_;   // of the next step
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_TABLE_FILLING_H_
