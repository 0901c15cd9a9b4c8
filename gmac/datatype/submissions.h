// SPDX-License-Identifier: Apache-2.0
//
// What an operation submits to its device: each submission between the release of what it uses of
// shared objects and the ticket that they are given.
#ifndef GMAC_DATATYPE_SUBMISSIONS_H_
#define GMAC_DATATYPE_SUBMISSIONS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/coherence/port.h"
#include "gmac/datatype/device.h"
#include "gmac/datatype/issue_rate.h"
#include "gmac/datatype/operation.h"
#include "gmac/datatype/placement.h"
#include "gmac/datatype/staging.h"
#include "gmac/datatype/tables.h"

namespace gmac::datatype {

// Role: the device's commands of one operation, on its stream or the kernel queue. For the stack of
// one operation, which outlives it, and one thread. What is under way is in the outcome's ticket.
class Submissions {
 public:
  Submissions(Device& device, Tables& tables, const Operation& operation,
              const Placement& placement, Outcome& outcome, KeptLaunch& kept)
      : device_(device),
        tables_(tables),
        op_(operation),
        placement_(placement),
        outcome_(outcome),
        kept_(kept) {}
  Submissions(const Submissions&) = delete;
  Submissions& operator=(const Submissions&) = delete;

  Device& device() const { return device_; }

  // Kernels read short rows at this rate from now on; `rate` outlives the operation.
  void setIssueRate(const IssueRate& rate) { rate_ = &rate; }
  // A part, in one submission, between the strided side and the packed side.
  Status atOnce(const Portion& portion, adsmMethod_t method);
  // The kernels of a part, whose packed bytes are device memory (or pinned) at `packed`. The ticket
  // of them; of streams of the application's: none.
  Result<accel::Ticket> launch(std::int64_t offset, std::int64_t bytes, std::uint64_t packed);
  // A copy between a slot's pinned memory and as many packed bytes on the device, in the
  // operation's direction.
  Status copySlot(StagingSlot& slot, std::int64_t offset, std::int64_t bytes);

  // Keeps a slot in use until the work of its step is over; what runs on a stream of the
  // application's has a ticket only if one is asked for.
  Status noteUse(StagingSlot& slot, accel::Ticket ticket);

  // What bytes [offset, offset + bytes) of packed order touch of the strided side.
  std::vector<Bounds> touchedBy(std::int64_t offset, std::int64_t bytes) const;

 private:
  using Ranges = std::vector<coherence::DeviceRange>;

  Result<accel::Ticket> launchUsing(std::int64_t offset, std::int64_t bytes, std::uint64_t packed,
                                    const Ranges& ranges);
  // The first use of a plan's table: each launch as soon as the entries that it needs are on their
  // way, while the CPU writes the next ones.
  Result<accel::Ticket> launchFilling(const DeviceJob& job, const Ranges& ranges);
  Result<accel::Ticket> submitLaunches(const DeviceJob& job, const Ranges& ranges);
  Status copy2d(DeviceQueue& queue, std::uint64_t packed);
  Status copyPieces(DeviceQueue& queue, const Portion& portion, std::uint64_t packed);
  void addStrided(std::int64_t offset, std::int64_t bytes, Ranges& ranges) const;
  Ranges packedRange(std::int64_t offset, std::int64_t bytes) const;
  // `function(DeviceQueue&)` submits; the ticket is of that. Without ranges nothing is released.
  template <typename Function>
  Result<accel::Ticket> submit(const Ranges& ranges, Function function);

  Device& device_;
  Tables& tables_;
  const Operation& op_;
  const Placement& placement_;
  Outcome& outcome_;
  const IssueRate* rate_ = nullptr;
  KeptLaunch& kept_;  // where launches and strided copies are made
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_SUBMISSIONS_H_
