// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/submissions.h"

#include <algorithm>
#include <utility>

#include "gmac/datatype/engine/strided_copy.h"
#include "gmac/datatype/engine/submit_using.h"
#include "gmac/datatype/engine/table_filling.h"
#include "gmac/datatype/layout/touched.h"

namespace gmac::datatype {
using accel::Ticket;

Status Submissions::atOnce(const Portion& portion, adsmMethod_t method) {
  Ranges ranges = packedRange(portion.offset, portion.bytes);
  addStrided(portion.offset, portion.bytes, ranges);
  const std::uint64_t packed = placement_.devicePacked(portion.offset);
  // (What one strided copy goes over must be of one kind; kernels reach both.)
  if (method == adsmMethodKernel ||
      (method == adsmMethodCopy2d &&
       !isOfOneKind(placement_.deviceStrided(),
                    op_.layout().boundsOf(portion.offset, portion.bytes)))) {
    return launchUsing(portion.offset, portion.bytes, packed, std::move(ranges)).status();
  }
  auto ticket = submitUsing(device_, op_.stream, ranges, [&](accel::Commands& commands) {
    return method == adsmMethodCopy2d ? copy2d(commands, packed)
                                      : copyPieces(commands, portion, packed);
  });
  if (ticket.ok()) {
    outcome_.ticket = *ticket;
  }
  return ticket.status();
}

Result<Ticket> Submissions::launch(std::int64_t offset, std::int64_t bytes, std::uint64_t packed) {
  Ranges ranges;
  addStrided(offset, bytes, ranges);
  return launchUsing(offset, bytes, packed, std::move(ranges));
}

Result<Ticket> Submissions::launchUsing(std::int64_t offset, std::int64_t bytes,
                                        std::uint64_t packed, Ranges ranges) {
  std::for_each(ranges.begin(), ranges.end(),
                [](coherence::DeviceRange& range) { range.inParts = true; });
  const DevicePlan& plan = op_.prepared->plan();
  DeviceJob job;
  job.direction = op_.direction;
  job.strided = placement_.deviceStrided();
  job.packed = packed;
  job.offset = offset;
  job.bytes = bytes;
  job.maxBlocks = op_.blocks;
  job.issueRate = rate_;
  const bool needsTable = plan.table().bytes != 0;
  if (needsTable) {
    auto table = tables_.pin(plan.identity(), op_.stream);
    if (!table.ok()) {
      return table.status();
    }
    if (*table == 0) [[unlikely]] {
      return launchFilling(job, ranges);
    }
    job.table = *table;
  }
  auto ticket = submitLaunches(job, ranges);
  if (needsTable) {
    tables_.unpin(plan.identity(), ticket.ok() ? *ticket : Ticket{});
  }
  return ticket;
}

Result<Ticket> Submissions::launchFilling(const DeviceJob& job, const Ranges& ranges) {
  const DevicePlan& plan = op_.prepared->plan();
  TableFilling filling(tables_, plan);
  // The filling that this thread has waited for may have been of the same table.
  auto table = tables_.pin(plan.identity(), op_.stream);
  if (!table.ok()) {
    return table.status();
  }
  DeviceJob step = job;
  if (*table != 0) {
    step.table = *table;
    auto ticket = submitLaunches(step, ranges);
    tables_.unpin(plan.identity(), ticket.ok() ? *ticket : Ticket{});
    return ticket;
  }
  GMAC_TRY(filling.begin());
  step.table = filling.address();
  step.operationBytes = job.bytes;
  // The first entries suffice for the beginning of the pass over the list that the part begins in.
  // Later passes need the whole table.
  const std::int64_t passBytes = plan.layout().listBytes();
  const std::int64_t pass = job.offset / passBytes * passBytes;
  const std::int64_t end = job.offset + job.bytes;
  Ticket last;
  while (!filling.complete()) {
    auto served = filling.step();
    if (!served.ok()) {
      return served.status();
    }
    const std::int64_t upTo = filling.complete() ? end : std::min(end, pass + *served);
    if (upTo <= step.offset) {
      continue;
    }
    if (op_.stream) {
      GMAC_TRY(device_.follow(*op_.stream, filling.filled()));
      filling.usedByStreams();
    }
    step.bytes = upTo - step.offset;
    auto ticket = submitLaunches(step, ranges);
    if (!ticket.ok()) {
      return ticket;
    }
    last = *ticket;
    filling.usedBy(last);
    step.packed += static_cast<std::uint64_t>(step.bytes);
    step.offset = upTo;
  }
  filling.keep();
  return last;
}

Result<Ticket> Submissions::submitLaunches(const DeviceJob& job, const Ranges& ranges) {
  auto ticket = submitUsing(device_, op_.stream, ranges, [&](accel::Commands& commands) {
    cached_.table = job.table;
    return op_.prepared->plan().launches(job, cached_.launch, [&](const DeviceLaunch& launch) {
      ++outcome_.report.launches;
      return device_.launch(commands, launch);
    });
  });
  if (ticket.ok()) {
    outcome_.ticket = *ticket;
  }
  return ticket;
}

Status Submissions::copySlot(StagingSlot& slot, std::int64_t offset, std::int64_t bytes) {
  auto ticket =
      submitUsing(device_, op_.stream, packedRange(offset, bytes), [&](accel::Commands& commands) {
        ++outcome_.report.launches;
        const auto length = static_cast<std::size_t>(bytes);
        const std::uint64_t packed = placement_.devicePacked(offset);
        return op_.packs() ? commands.copyIn(packed, slot.pinned(), length)
                           : commands.copyOut(slot.pinned(), packed, length);
      });
  return ticket.ok() ? noteUse(slot, *ticket) : ticket.status();
}

Status Submissions::copyPiece(StagingSlot& slot, const Portion& portion) {
  Ranges ranges;
  addStrided(portion.offset, portion.bytes, ranges);
  auto ticket = submitUsing(device_, op_.stream, ranges, [&](accel::Commands& commands) {
    ++outcome_.report.launches;
    const auto length = static_cast<std::size_t>(portion.bytes);
    const std::uint64_t there =
        placement_.deviceStrided() +
        static_cast<std::uint64_t>(op_.layout().boundsOf(portion.offset, portion.bytes).first);
    return op_.packs() ? commands.copyOut(slot.pinned(), there, length)
                       : commands.copyIn(there, slot.pinned(), length);
  });
  return ticket.ok() ? noteUse(slot, *ticket) : ticket.status();
}

Status Submissions::copy2d(accel::Commands& commands, std::uint64_t packed) {
  const Layout& layout = op_.layout();
  const auto line = Layout::make({}, {{0, op_.bytes}});
  GMAC_TRY(line.status());
  accel::StridedCopy& copy = cached_.copy;
  copy = op_.packs() ? *stridedCopy(*line, layout) : *stridedCopy(layout, *line);
  accel::StridedCopy::Side& contiguous = op_.packs() ? copy.target : copy.source;
  accel::StridedCopy::Side& strided = op_.packs() ? copy.source : copy.target;
  contiguous.address += packed;
  contiguous.onCpu = !placement_.packedOnDevice();
  strided.address += placement_.deviceStrided();
  ++outcome_.report.launches;
  return commands.copyStrided(copy);
}

Status Submissions::copyPieces(accel::Commands& commands, const Portion& portion,
                               std::uint64_t packed) {
  Status status;
  op_.layout().forEach(
      portion.offset, portion.bytes, [&](std::int64_t at, std::int64_t in, std::int64_t bytes) {
        if (!status.ok()) {
          return;
        }
        ++outcome_.report.launches;
        const std::uint64_t strided = placement_.deviceStrided() + static_cast<std::uint64_t>(at);
        const std::uint64_t there = packed + static_cast<std::uint64_t>(in - portion.offset);
        const auto length = static_cast<std::size_t>(bytes);
        if (placement_.packedOnDevice()) {
          status = op_.packs() ? commands.copyWithin(there, strided, length)
                               : commands.copyWithin(strided, there, length);
        } else if (op_.packs()) {
          status = commands.copyOut(reinterpret_cast<void*>(there), strided, length);
        } else {
          status = commands.copyIn(strided, reinterpret_cast<void*>(there), length);
        }
      });
  return status;
}

Status Submissions::noteUse(StagingSlot& slot, Ticket ticket) {
  if (op_.stream) {
    auto mark = device_.mark(*op_.stream);
    if (!mark.ok()) {
      return mark.status();
    }
    ticket = *mark;
  }
  slot.usedUntil(ticket);
  outcome_.ticket = ticket;
  return {};
}

std::vector<Bounds> Submissions::touchedBy(std::int64_t offset, std::int64_t bytes) const {
  const Layout& layout = op_.layout();
  return offset == 0 && bytes == layout.bytes() ? op_.prepared->allTouched(kReleaseGap)
                                                : touched(layout, offset, bytes, kReleaseGap);
}

void Submissions::addStrided(std::int64_t offset, std::int64_t bytes, Ranges& ranges) const {
  if (!placement_.stridedShared()) {
    return;
  }
  for (const Bounds& range : touchedBy(offset, bytes)) {
    ranges.push_back({op_.strided + range.first, static_cast<std::size_t>(range.last - range.first),
                      !op_.packs()});
  }
}

Submissions::Ranges Submissions::packedRange(std::int64_t offset, std::int64_t bytes) const {
  Ranges ranges;
  if (placement_.packedShared() && placement_.packedOnDevice()) {
    ranges.push_back({op_.packedAt(offset), static_cast<std::size_t>(bytes), op_.packs()});
  }
  return ranges;
}

}  // namespace gmac::datatype
