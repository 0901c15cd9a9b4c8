// SPDX-License-Identifier: Apache-2.0
//
// Submits an operation's work to its device: releases the shared objects that it uses before, and
// gives them its ticket afterwards.
#ifndef GMAC_DATATYPE_ENGINE_SUBMISSIONS_H_
#define GMAC_DATATYPE_ENGINE_SUBMISSIONS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmac/accel/commands.h"
#include "gmac/base/status.h"
#include "gmac/coherence/work_port.h"
#include "gmac/datatype/engine/device.h"
#include "gmac/datatype/engine/operation.h"
#include "gmac/datatype/engine/placement.h"
#include "gmac/datatype/engine/staging.h"
#include "gmac/datatype/engine/tables.h"
#include "gmac/datatype/plan/issue_rate.h"

namespace gmac::datatype {

// The device commands of one operation, on its stream or the kernel queue. For the stack of one
// operation, which outlives it, and one thread. The outcome's ticket covers what is under way.
class Submissions {
 public:
  Submissions(Device& device, Tables& tables, const Operation& operation,
              const Placement& placement, Outcome& outcome, CachedLaunch& cached)
      : device_(device),
        tables_(tables),
        op_(operation),
        placement_(placement),
        outcome_(outcome),
        cached_(cached) {}
  Submissions(const Submissions&) = delete;
  Submissions& operator=(const Submissions&) = delete;

  Device& device() const { return device_; }

  // Kernels read short rows at this rate from now on; `rate` outlives the operation.
  void setIssueRate(const IssueRate& rate) { rate_ = &rate; }
  // Copies a part between the strided side and the packed side in one submission.
  Status atOnce(const Portion& portion, adsmMethod_t method);
  // Launches the kernels of a part, whose packed bytes are device or pinned memory at `packed`.
  // Their ticket; empty on a stream of the application's.
  Result<accel::Ticket> launch(std::int64_t offset, std::int64_t bytes, std::uint64_t packed);
  // Copies between a slot's pinned memory and as many packed bytes on the device, in the
  // operation's direction.
  Status copySlot(StagingSlot& slot, std::int64_t offset, std::int64_t bytes);

  // The same between a slot and the one piece that a part is of the strided side.
  Status copyPiece(StagingSlot& slot, const Portion& portion);

  // Keeps a slot in use until the work of its step is over. Work on a stream of the application's
  // has no ticket yet; this makes one.
  Status noteUse(StagingSlot& slot, accel::Ticket ticket);

  // The ranges of the strided side of bytes [offset, offset + bytes) in packed order.
  std::vector<Bounds> touchedBy(std::int64_t offset, std::int64_t bytes) const;

 private:
  using Ranges = std::vector<coherence::DeviceRange>;

  Result<accel::Ticket> launchUsing(std::int64_t offset, std::int64_t bytes, std::uint64_t packed,
                                    Ranges ranges);
  // The first use of a plan's table: each launch is submitted as soon as the copies of its entries
  // are, while the CPU writes the next ones.
  Result<accel::Ticket> launchFilling(const DeviceJob& job, const Ranges& ranges);
  Result<accel::Ticket> submitLaunches(const DeviceJob& job, const Ranges& ranges);
  Status copy2d(accel::Commands& commands, std::uint64_t packed);
  Status copyPieces(accel::Commands& commands, const Portion& portion, std::uint64_t packed);
  void addStrided(std::int64_t offset, std::int64_t bytes, Ranges& ranges) const;
  Ranges packedRange(std::int64_t offset, std::int64_t bytes) const;

  Device& device_;
  Tables& tables_;
  const Operation& op_;
  const Placement& placement_;
  Outcome& outcome_;
  const IssueRate* rate_ = nullptr;
  CachedLaunch& cached_;  // launches and strided copies are built in it
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_SUBMISSIONS_H_
