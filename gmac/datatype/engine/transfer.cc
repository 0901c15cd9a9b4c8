// SPDX-License-Identifier: Apache-2.0
//
// Copies between two layouts wherever the bytes are current.
#include "gmac/datatype/cpu/transfer.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/datatype/engine/division.h"
#include "gmac/datatype/engine/engine.h"
#include "gmac/datatype/engine/link_costs.h"
#include "gmac/datatype/engine/plain_copy.h"
#include "gmac/datatype/engine/strided_copy.h"
#include "gmac/datatype/engine/submit_using.h"
#include "gmac/datatype/engine/table_filling.h"
#include "gmac/datatype/layout/touched.h"
#include "gmac/datatype/plan/transfer_plan.h"

namespace gmac::datatype {
namespace {

using accel::Ticket;
using coherence::CpuHold;
using coherence::Current;
using coherence::HoldFor;

// Bytes that are packed and unpacked at a time, where the two sides' bytes are at different places.
constexpr std::int64_t kMostThroughCpu = std::int64_t{4} << 20;

std::vector<Bounds> touchedBy(const Transfer& op, const Transfer::Side& side) {
  return op.offset == 0 && op.bytes == side.layout().bytes()
             ? side.prepared->allTouched(kReleaseGap)
             : touched(side.layout(), op.offset, op.bytes, kReleaseGap);
}

// Where a side's bytes are current.
struct Where {
  bool shared = false;
  bool device = false;  // plain device memory
  bool any[4] = {};     // by Current: whether some bytes of an object are there

  bool onlyAt(Current where) const {
    for (std::size_t i = 0; i < std::size(any); ++i) {
      if (any[i] && i != static_cast<std::size_t>(where) &&
          i != static_cast<std::size_t>(Current::kBoth)) {
        return false;
      }
    }
    return true;
  }
  // Whether a device may access all of it once what the CPU has is flushed; the CPU, once what it
  // lacks is fetched.
  bool reachedByDevice() const {
    return device || (shared && !any[static_cast<std::size_t>(Current::kNotShared)]);
  }
  bool reachedByCpu() const { return !device; }
  bool currentOnDevice() const { return device || (shared && onlyAt(Current::kAccelerator)); }
  bool currentOnCpu() const { return !device && (!shared || onlyAt(Current::kCpu)); }
};

Where whereIs(Device& device, const Transfer& op, const Transfer::Side& side) {
  Where where;
  where.shared = coherence::mayBeShared(side.first(), side.span()) &&
                 coherence::touchesShared(side.first(), side.span());
  if (!where.shared) {
    where.device = device.accelerator().memoryOf(side.first()) == accel::Memory::kDevice;
    return where;
  }
  constexpr std::int64_t kExact = 1;
  for (const Portion& portion : divide(side.layout(), side.base, op.offset, op.bytes, kExact)) {
    where.any[static_cast<std::size_t>(portion.current)] = true;
  }
  return where;
}

std::uint64_t deviceAddress(const Transfer::Side& side, const Where& where) {
  const std::ptrdiff_t distance =
      where.shared ? coherence::memory().deviceDistance(side.first()) : std::ptrdiff_t{0};
  return reinterpret_cast<std::uint64_t>(side.base) + static_cast<std::uint64_t>(distance);
}

bool contiguous(const Layout& layout) {
  return layout.dims().empty() && layout.blocks().size() == 1;
}

// A plan's table on the device, if it needs one: filled by the first use, and there until the end
// of this. For the stack of one thread.
class PinnedTable {
 public:
  PinnedTable(Tables& tables, const DevicePlan& plan, const Device::Stream& stream)
      : tables_(tables), plan_(plan), stream_(stream) {}
  PinnedTable(const PinnedTable&) = delete;
  PinnedTable& operator=(const PinnedTable&) = delete;
  ~PinnedTable() {
    if (address_ != 0) {
      tables_.unpin(plan_.identity(), lastUse_);
    }
  }

  Status pin() {
    while (plan_.table().bytes != 0 && address_ == 0) {
      auto table = tables_.pin(plan_.identity(), stream_);
      if (!table.ok()) {
        return table.status();
      }
      address_ = *table;
      if (address_ == 0) {
        GMAC_TRY(fill());
      }
    }
    return {};
  }
  std::uint64_t address() const { return address_; }
  void usedBy(Ticket ticket) { lastUse_ = ticket; }

 private:
  Status fill() {
    TableFilling filling(tables_, plan_);
    // The filling that this thread has waited for may have been of the same table.
    auto table = tables_.pin(plan_.identity(), stream_);
    if (!table.ok() || *table != 0) {
      address_ = table.ok() ? *table : 0;
      return table.status();
    }
    GMAC_TRY(filling.begin());
    while (!filling.complete()) {
      auto served = filling.step();
      if (!served.ok()) {
        return served.status();
      }
    }
    filling.keep();
    return {};
  }

  Tables& tables_;
  const DevicePlan& plan_;
  const Device::Stream& stream_;
  std::uint64_t address_ = 0;
  Ticket lastUse_;
};

}  // namespace

// One transfer while it runs. For the stack.
class Engine::TransferRun {
 public:
  TransferRun(Engine& engine, const Transfer& transfer)
      : engine_(engine),
        op_(transfer),
        target_(whereIs(engine.device_, transfer, transfer.target)),
        source_(whereIs(engine.device_, transfer, transfer.source)) {}

  Result<Outcome> run() {
    adsmMethod_t method = op_.method;
    GMAC_TRY(checkMethod());
    const bool line = contiguous(op_.target.layout()) || contiguous(op_.source.layout());
    if (line &&
        (method == adsmMethodAny || method == adsmMethodKernel || method == adsmMethodCopy2d)) {
      GMAC_TRY(packOrUnpack());
      return outcome_;
    }
    if (method == adsmMethodAny) {
      method = choose();
    }
    if (method != adsmMethodKernel && method != adsmMethodCopy2d && op_.stream) {
      return fail(adsmErrorNotSupported,
                  "{}: options.stream: target {} and source {} are not both the device's, and the "
                  "CPU waits for no stream",
                  op_.function, shown(op_.target.base), shown(op_.source.base));
    }
    outcome_.report.method = method;
    outcome_.report.bytes = op_.bytes;
    switch (method) {
      case adsmMethodKernel:
        GMAC_TRY(onDevice());
        break;
      case adsmMethodCopy2d: {
        // (What one strided copy goes over must be of one kind; kernels reach both.)
        const bool one = isOfOneKind(op_.target, target_) && isOfOneKind(op_.source, source_);
        const Status done = one ? byCopy2d() : Status(adsmErrorNotSupported);
        // The copy engine has limits that only the driver knows.
        if (done.code() == adsmErrorNotSupported && (!one || op_.method == adsmMethodAny)) {
          outcome_.report.method = adsmMethodKernel;
          GMAC_TRY(onDevice());
        } else {
          GMAC_TRY(done);
        }
        break;
      }
      case adsmMethodCpu:
        GMAC_TRY(onCpu());
        break;
      default:
        GMAC_TRY(throughCpu());
    }
    return outcome_;
  }

 private:
  // The device copies its own bytes, unless the CPU has the other side.
  adsmMethod_t choose() const {
    if (source_.currentOnCpu() && target_.currentOnCpu() &&
        !(source_.currentOnDevice() && target_.currentOnDevice())) {
      return adsmMethodCpu;
    }
    // An object's blocks that the CPU has are flushed before a device writes beside them, as they
    // are for an unpack.
    return !source_.currentOnDevice() || !target_.reachedByDevice() ? adsmMethodStaged
           : overLink()
               ? methodOverLink(op_.target.layout(), op_.source.layout(), op_.offset, op_.bytes)
               : adsmMethodKernel;
  }

  bool overLink() const {
    return source_.device && engine_.device_.reachesOverLink(op_.source.first());
  }

  Status checkMethod() const {
    const auto refuse = [&](const char* who, const Transfer::Side& side) {
      return fail(adsmErrorNotSupported, "{}: method {}: {} not reach {}", op_.function,
                  adsmMethodName(op_.method), who, shown(side.base));
    };
    switch (op_.method) {
      case adsmMethodKernel:
        if (!target_.reachedByDevice()) return refuse("kernels of transfers do", op_.target);
        if (!source_.reachedByDevice()) return refuse("kernels of transfers do", op_.source);
        return {};
      case adsmMethodCpu:
        if (!target_.reachedByCpu()) return refuse("the CPU does", op_.target);
        if (!source_.reachedByCpu()) return refuse("the CPU does", op_.source);
        return {};
      case adsmMethodCopy2d:
        if (!target_.reachedByDevice()) return refuse("strided copies do", op_.target);
        if (!source_.reachedByDevice()) return refuse("strided copies do", op_.source);
        if (!isWhole() || !stridedCopy(op_.target.layout(), op_.source.layout())) {
          return fail(adsmErrorNotSupported,
                      "{}: method {}: the target's layout is {}, the source's {}; whole strided "
                      "layouts of at most three dimensions and equal rows fit",
                      op_.function, adsmMethodName(op_.method), op_.target.layout().describe(),
                      op_.source.layout().describe());
        }
        return {};
      case adsmMethodCopy:
        return fail(adsmErrorNotSupported,
                    "{}: method {}: transfers have any, kernel, copy2d, staged and cpu",
                    op_.function, adsmMethodName(op_.method));
      case adsmMethodAny:
      case adsmMethodStaged:
        break;
    }
    return {};
  }

  bool isWhole() const {
    return op_.offset == 0 && op_.bytes == op_.target.layout().bytes() &&
           op_.bytes == op_.source.layout().bytes();
  }

  // One side is contiguous.
  Status packOrUnpack() {
    Operation pack = half();
    pack.wait = op_.wait;
    const bool packs = contiguous(op_.target.layout());
    const Transfer::Side& strided = packs ? op_.source : op_.target;
    const Transfer::Side& packed = packs ? op_.target : op_.source;
    pack.direction = packs ? Direction::kPack : Direction::kUnpack;
    pack.prepared = strided.prepared;
    pack.strided = strided.base;
    pack.packed = packed.first();
    pack.bounds = strided.bounds;
    pack.offset = op_.offset;
    pack.bytes = op_.bytes;
    pack.method = op_.method;
    outcome_.report.bytes = op_.bytes;
    auto ran = run(pack);
    if (!ran.ok()) {
      return ran.status();
    }
    outcome_.report.method = *ran;
    return {};
  }

  // ---- Both sides are the device's

  Status onDevice() {
    PinnedTable targetTable(engine_.tables_, op_.target.prepared->plan(), op_.stream);
    PinnedTable sourceTable(engine_.tables_, op_.source.prepared->plan(), op_.stream);
    GMAC_TRY(targetTable.pin());
    GMAC_TRY(sourceTable.pin());
    TransferJob job;
    job.target = {&op_.target.prepared->plan(), deviceAddress(op_.target, target_),
                  targetTable.address()};
    job.source = {&op_.source.prepared->plan(), deviceAddress(op_.source, source_),
                  sourceTable.address()};
    job.offset = op_.offset;
    job.bytes = op_.bytes;
    job.maxBlocks = op_.blocks;
    job.overLink = overLink();
    const auto ticket = submit(/*inParts=*/true, [&](accel::Commands& commands) {
      return transferLaunches(job, [&](const TransferLaunch& launch) {
        ++outcome_.report.launches;
        return engine_.device_.launch(commands, launch);
      });
    });
    GMAC_TRY(ticket.status());
    targetTable.usedBy(*ticket);
    sourceTable.usedBy(*ticket);
    return {};
  }

  static bool isOfOneKind(const Transfer::Side& side, const Where& where) {
    return datatype::isOfOneKind(deviceAddress(side, where),
                                 side.layout().boundsOf(0, side.layout().bytes()));
  }

  Status byCopy2d() {
    accel::StridedCopy copy = *stridedCopy(op_.target.layout(), op_.source.layout());
    copy.target.address += deviceAddress(op_.target, target_);
    copy.source.address += deviceAddress(op_.source, source_);
    return submit(/*inParts=*/false,
                  [&](accel::Commands& commands) {
                    ++outcome_.report.launches;
                    return commands.copyStrided(copy);
                  })
        .status();
  }

  // Submits work that uses both sides, whose ticket becomes the outcome's; that of the work.
  // `inParts`: as DeviceRange has it.
  template <typename Function>
  Result<Ticket> submit(bool inParts, Function work) {
    std::vector<coherence::DeviceRange> ranges;
    addRanges(op_.source, source_, false, ranges);
    addRanges(op_.target, target_, true, ranges);
    for (coherence::DeviceRange& range : ranges) {
      range.inParts = inParts;
    }
    auto ticket = submitUsing(engine_.device_, op_.stream, ranges, std::move(work));
    GMAC_TRY(ticket.status());
    outcome_.ticket = *ticket;
    if (op_.stream && !op_.wait) {
      auto mark = engine_.device_.mark(*op_.stream);
      GMAC_TRY(mark.status());
      outcome_.ticket = *mark;
    }
    return ticket;
  }

  void addRanges(const Transfer::Side& side, const Where& where, bool write,
                 std::vector<coherence::DeviceRange>& ranges) const {
    if (!where.shared) {
      return;
    }
    for (const Bounds& range : touchedBy(op_, side)) {
      ranges.push_back(
          {side.base + range.first, static_cast<std::size_t>(range.last - range.first), write});
    }
  }

  // ---- Both are the CPU's

  Status onCpu() {
    std::deque<CpuHold> holds;
    const auto hold = [&](const Transfer::Side& side, const Where& where, HoldFor purpose) {
      if (!where.shared) {
        return Status();
      }
      for (const Bounds& range : touchedBy(op_, side)) {
        holds.emplace_back(side.base + range.first,
                           static_cast<std::size_t>(range.last - range.first), purpose);
        GMAC_TRY(holds.back().status());
      }
      return Status();
    };
    GMAC_TRY(hold(op_.source, source_, HoldFor::kRead));
    GMAC_TRY(hold(op_.target, target_, HoldFor::kWrite));
    outcome_ = transferOnCpu(op_);
    return {};
  }

  // ---- Neither

  Status throughCpu() {
    const auto room = static_cast<std::size_t>(std::min(op_.bytes, kMostThroughCpu));
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(room);
    for (std::int64_t done = 0; done < op_.bytes; done += kMostThroughCpu) {
      Operation pack = half();
      pack.offset = op_.offset + done;
      pack.bytes = std::min(kMostThroughCpu, op_.bytes - done);
      pack.packed = buffer.get();
      Operation unpack = pack;
      pack.prepared = op_.source.prepared;
      pack.strided = op_.source.base;
      pack.bounds = op_.source.layout().boundsOf(pack.offset, pack.bytes);
      GMAC_TRY(run(pack).status());
      unpack.direction = Direction::kUnpack;
      unpack.prepared = op_.target.prepared;
      unpack.strided = op_.target.base;
      unpack.bounds = op_.target.layout().boundsOf(pack.offset, pack.bytes);
      GMAC_TRY(run(unpack).status());
    }
    return {};
  }

  Operation half() const {
    Operation operation;
    operation.blocks = op_.blocks;
    operation.stream = op_.stream;
    return operation;
  }
  // Adds what it did to the report; its method.
  Result<adsmMethod_t> run(const Operation& operation) {
    const auto cached = std::make_unique<CachedLaunch>();
    auto ran = engine_.run(operation, *cached);
    if (!ran.ok()) {
      return ran.status();
    }
    outcome_.report.bytesOnCpu += ran->report.bytesOnCpu;
    outcome_.report.bytesAcross += ran->report.bytesAcross;
    outcome_.report.launches += ran->report.launches;
    outcome_.ticket = ran->ticket;
    return ran->report.method;
  }

  Engine& engine_;
  const Transfer& op_;
  const Where target_;
  const Where source_;
  Outcome outcome_;
};

Result<Outcome> Engine::transfer(const Transfer& transfer) {
  return TransferRun(*this, transfer).run();
}

Outcome transferOnCpu(const Transfer& transfer) {
  datatype::transfer(transfer.target.layout(), transfer.target.base, transfer.source.layout(),
                     transfer.source.base, transfer.offset, transfer.bytes, &plainCopy);
  Outcome outcome;
  outcome.report.method = adsmMethodCpu;
  outcome.report.bytes = transfer.bytes;
  outcome.report.bytesOnCpu = transfer.bytes;
  return outcome;
}

}  // namespace gmac::datatype
