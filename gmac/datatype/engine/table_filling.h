// SPDX-License-Identifier: Apache-2.0
//
// The first use of a table: kernels run while it is filled.
#ifndef GMAC_DATATYPE_ENGINE_TABLE_FILLING_H_
#define GMAC_DATATYPE_ENGINE_TABLE_FILLING_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "gmac/base/status.h"
#include "gmac/datatype/engine/tables.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// Fills one plan's table in steps, so that a kernel can move the bytes of the first entries while
// the next ones are written. The table is private to the filling until keep(); without keep() it is
// freed with the filling. There is one filling at a time: the constructor waits for another one,
// after which the table may exist. For the stack of one thread; it takes no slot of the staging,
// and holds no lock that a pin() of another table needs. Not for the fault handler.
class TableFilling {
 public:
  TableFilling(Tables& tables, const DevicePlan& plan);
  ~TableFilling();
  TableFilling(const TableFilling&) = delete;
  TableFilling& operator=(const TableFilling&) = delete;

  // Allocates the table. Call once, before anything else.
  Status begin();
  std::uint64_t address() const { return table_.address; }

  // Starts to copy more entries in. Returns the packed bytes of one pass over the list, from the
  // first on, that need no other entries than those so far. A launch that is submitted to the
  // kernel queue from now on runs after the copies, as does one on a stream that follows filled().
  // The first step is small, later ones are larger. After an error the filling is of no use.
  Result<std::int64_t> step();
  // True if the copies of all entries have been started.
  bool complete() const { return pieces_ == plan_.table().pieces; }
  accel::Ticket filled() const { return table_.filled; }

  // Notes a launch that uses the entries so far: its ticket, or that it is on a stream of the
  // application's.
  void usedBy(accel::Ticket ticket) { table_.lastUse = ticket; }
  void usedByStreams() { table_.usedByStreams = true; }

  // Publishes the complete table for pin(). Nothing else may be called afterwards.
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

#endif  // GMAC_DATATYPE_ENGINE_TABLE_FILLING_H_
