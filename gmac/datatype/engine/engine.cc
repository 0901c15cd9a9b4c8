// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "gmac/base/cores.h"
#include "gmac/base/log.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/datatype/cpu/cpu_engine.h"
#include "gmac/datatype/cpu/streaming_copy.h"
#include "gmac/datatype/engine/device_constants.h"
#include "gmac/datatype/engine/link_costs.h"
#include "gmac/datatype/engine/placement.h"
#include "gmac/datatype/engine/plain_copy.h"
#include "gmac/datatype/engine/staged_steps.h"
#include "gmac/datatype/engine/submissions.h"

namespace gmac::datatype {
namespace {

using coherence::CpuHold;
using coherence::HoldFor;

// How much device memory the tables of long datatypes may take; the longest unused ones go first. A
// table has 4 to 16 bytes a piece: types of 16 Mi pieces fit, and beside a GPU's memory it is
// little.
constexpr std::size_t kTableBytes = std::size_t{256} << 20;

// What a copy takes does not depend on its length up to here.
constexpr std::int64_t kShortBytes = std::int64_t{16} << 10;

// Of an operation of so many bytes.
CpuOptions cpuOptions(std::int64_t bytes) {
  constexpr unsigned kMaxThreads = 8;
  return {.threads = std::min(usableCores(), kMaxThreads), .copy = copyOf<&plainCopy>(bytes)};
}

}  // namespace

// One operation while it runs. For the stack.
class Engine::Run {
 public:
  Run(Engine& engine, const Operation& operation, CachedLaunch& cached)
      : engine_(engine),
        device_(engine.device_),
        op_(operation),
        layout_(operation.layout()),
        cached_(cached),
        placement_(device_, operation),
        submissions_(device_, engine.tables_, operation, placement_, outcome_, cached),
        steps_(engine.staging_, operation, placement_, submissions_, outcome_) {}

  Result<Outcome> run() {
    cached_.valid = false;
    GMAC_TRY(placement_.checkMethod());
    for (const Portion& portion : placement_.portions()) {
      GMAC_TRY(placement_.onDevice(portion) && !cpuShouldHave(portion) ? doOnDevice(portion)
                                                                       : doOnCpu(portion));
    }
    GMAC_TRY(steps_.finish());
    outcome_.report.bytes = op_.bytes;
    outcome_.report.method = 2 * outcome_.report.bytesOnCpu > op_.bytes ? adsmMethodCpu : method_;
    keep();
    if (op_.stream && !op_.wait) {
      auto ticket = device_.mark(*op_.stream);
      if (!ticket.ok()) {
        return ticket.status();
      }
      outcome_.ticket = *ticket;
    }
    // On a stream of its own the application waits itself.
    if (op_.wait && reachesCpu_ && !op_.stream) {
      GMAC_TRY(device_.accelerator().wait(outcome_.ticket));
      outcome_.ticket = {};
    }
    return outcome_;
  }

 private:
  // Caches the operation's launch or strided copy if that was all: nothing was released for it, and
  // the operation does not wait for it.
  void keep() {
    const bool waitsHere = reachesCpu_ && !op_.stream;
    if (outcome_.report.launches != 1 ||
        (method_ != adsmMethodKernel && method_ != adsmMethodCopy2d) || waitsHere ||
        !placement_.stridedPlain() || placement_.packedShared() ||
        placement_.packedAt() == Placement::Packed::kPageable) {
      return;
    }
    cached_.valid = true;
    cached_.usesTable = method_ == adsmMethodKernel && op_.prepared->plan().table().bytes != 0;
    cached_.packedMemory =
        placement_.packedOnDevice() ? accel::Memory::kDevice : accel::Memory::kPinned;
    cached_.strided = op_.strided + op_.bounds.first;
    cached_.stridedBytes = static_cast<std::size_t>(op_.bounds.last - op_.bounds.first);
    cached_.packed = op_.packed;
    cached_.packedBytes = static_cast<std::size_t>(op_.bytes);
    cached_.plan = op_.prepared->plan().identity();
    cached_.report = outcome_.report;
  }

  // Whether it is one of so many pieces between a block and the CPU's memory that the CPU opens the
  // block, and moves it.
  bool cpuShouldHave(const Portion& portion) const {
    if (op_.method != adsmMethodAny || op_.stream || !op_.wait || !placement_.stridedShared() ||
        placement_.packedShared() || placement_.packedOnDevice()) {
      return false;
    }
    const Bounds bounds = layout_.boundsOf(portion.offset, portion.bytes);
    return coherence::memory().prefersCpu(op_.strided + bounds.first,
                                          static_cast<std::size_t>(bounds.last - bounds.first));
  }

  // ---- The CPU's part

  Status doOnCpu(const Portion& portion) {
    outcome_.report.bytesOnCpu += portion.bytes;
    if (!placement_.packedOnDevice()) {
      return copyOnCpu(portion.offset, portion.bytes, op_.packedAt(portion.offset),
                       placement_.packedShared());
    }
    outcome_.report.bytesAcross += portion.bytes;
    constexpr auto kSlotBytes = static_cast<std::int64_t>(Staging::kSlotBytes);
    for (std::int64_t done = 0; done < portion.bytes; done += kSlotBytes) {
      const std::int64_t offset = portion.offset + done;
      const std::int64_t bytes = std::min(kSlotBytes, portion.bytes - done);
      auto slot = engine_.staging_.take();
      if (!slot.ok()) {
        return slot.status();
      }
      if (op_.packs()) {
        GMAC_TRY(copyOnCpu(offset, bytes, slot->pinned(), false));
        GMAC_TRY(submissions_.copySlot(*slot, offset, bytes));
      } else {
        GMAC_TRY(submissions_.copySlot(*slot, offset, bytes));
        GMAC_TRY(device_.accelerator().wait(slot->ticket()));
        GMAC_TRY(copyOnCpu(offset, bytes, slot->pinned(), false));
      }
    }
    return {};
  }

  // Both sides are on the CPU; shared ranges are held meanwhile.
  Status copyOnCpu(std::int64_t offset, std::int64_t bytes, std::byte* packed,
                   bool packedIsShared) {
    std::deque<CpuHold> holds;
    const auto hold = [&](const std::byte* first, std::int64_t length, HoldFor purpose) {
      holds.emplace_back(first, static_cast<std::size_t>(length), purpose);
      return holds.back().status();
    };
    if (placement_.stridedShared()) {
      for (const Bounds& range : submissions_.touchedBy(offset, bytes)) {
        GMAC_TRY(hold(op_.strided + range.first, range.last - range.first,
                      op_.packs() ? HoldFor::kRead : HoldFor::kWrite));
      }
    }
    if (packedIsShared) {
      GMAC_TRY(hold(packed, bytes, op_.packs() ? HoldFor::kOverwrite : HoldFor::kRead));
    }
    if (op_.packs()) {
      pack(layout_, packed, op_.strided, offset, bytes, cpuOptions(op_.bytes));
    } else {
      unpack(layout_, op_.strided, packed, offset, bytes, cpuOptions(op_.bytes));
    }
    return {};
  }

  // ---- The device's part

  Status doOnDevice(const Portion& portion) {
    if (placement_.packedOnDevice()) {
      method_ = op_.method == adsmMethodAny ? methodWithin(portion) : op_.method;
      submissions_.setIssueRate(engine_.issueRate_);
      Status done = submissions_.atOnce(portion, method_);
      // The copy engine has limits that only the driver knows.
      if (done.code() == adsmErrorNotSupported && op_.method == adsmMethodAny &&
          method_ != adsmMethodKernel) {
        method_ = adsmMethodKernel;
        done = submissions_.atOnce(portion, method_);
      }
      return done;
    }
    outcome_.report.bytesAcross += portion.bytes;
    if (isShortPiece(portion)) {
      return moveShortPiece(portion);
    }
    reachesCpu_ = true;
    const Placement::Packed packedAt = placement_.packedAt();
    method_ = op_.method;
    if (method_ == adsmMethodAny) {
      method_ = engine_.costs_.choose({.layout = &layout_,
                                       .bytes = portion.bytes,
                                       .whole = portion.bytes == layout_.bytes(),
                                       .pinned = packedAt == Placement::Packed::kPinned,
                                       .direction = op_.direction});
      if (method_ == adsmMethodCopy2d && !device_.accelerator().kernelsReachPinned()) {
        method_ = adsmMethodStaged;  // no strided copies there
      }
    }
    if (packedAt == Placement::Packed::kPageable && placement_.packedShared()) {
      method_ = adsmMethodStaged;
    }
    return method_ == adsmMethodStaged ? steps_.run(portion)
                                       : submissions_.atOnce(portion, method_);
  }

  // Whether it is few bytes in one piece, of an object, and the CPU's memory is not pinned.
  bool isShortPiece(const Portion& portion) const {
    return portion.bytes <= kShortBytes && layout_.dims().empty() && layout_.blocks().size() == 1 &&
           op_.method == adsmMethodAny && !op_.stream && op_.wait && placement_.stridedShared() &&
           placement_.packedAt() == Placement::Packed::kPageable && !placement_.packedShared();
  }

  // By a copy from or to pinned memory, which spares the driver's own. What is written to an object
  // is not waited for: the CPU has its memory back, and whoever uses those bytes of the object
  // comes after the copy. Each such write may have memory of its own; a program that makes many,
  // and waits for nothing, takes a few slots, and waits for the oldest.
  Status moveShortPiece(const Portion& portion) {
    auto slot = engine_.staging_.take(Staging::kSlotsEach);
    if (!slot.ok()) {
      return slot.status();
    }
    method_ = adsmMethodCopy;
    const auto bytes = static_cast<std::size_t>(portion.bytes);
    std::byte* const packed = op_.packedAt(portion.offset);
    if (!op_.packs()) {
      plainCopy(slot->pinned(), packed, bytes);
    }
    GMAC_TRY(submissions_.copyPiece(*slot, portion));
    if (op_.packs()) {
      GMAC_TRY(device_.accelerator().wait(slot->ticket()));
      outcome_.ticket = {};
      plainCopy(packed, slot->pinned(), bytes);
    }
    return {};
  }

  // Between memory that the device reaches.
  adsmMethod_t methodWithin(const Portion& portion) const {
    const bool isPlain = op_.packs() ? placement_.stridedPlain() : !placement_.packedShared();
    const std::byte* const source = op_.packs() ? op_.strided + op_.bounds.first : op_.packed;
    if (!isPlain || !device_.reachesOverLink(source)) {
      return adsmMethodKernel;
    }
    const auto line = Layout::make({}, {{0, layout_.bytes()}});
    return !line.ok()    ? adsmMethodKernel
           : op_.packs() ? methodOverLink(*line, layout_, portion.offset, portion.bytes)
                         : methodOverLink(layout_, *line, portion.offset, portion.bytes);
  }

  Engine& engine_;
  Device& device_;
  const Operation& op_;
  const Layout& layout_;
  CachedLaunch& cached_;
  bool reachesCpu_ = false;  // a device reads or writes CPU memory for it
  adsmMethod_t method_ = adsmMethodCpu;
  Outcome outcome_;
  const Placement placement_;
  Submissions submissions_;
  StagedSteps steps_;
};

Engine::Engine(accel::Accelerator& accelerator, std::size_t tableBytes)
    : context_(coherence::contextsEnded()),
      device_(accelerator),
      staging_(device_),
      traits_(accelerator.traits()),
      costs_(costsOf(traits_)),
      issueRate_(issueRateOf(accelerator.deviceName(), traits_)),
      tables_(device_, tableBytes),
      arrivals_(device_, traits_.multiprocessors) {
  log(LogLevel::kDebug,
      "packing on {}: {} multiprocessors, memory {:.0f} GB/s, link {:.1f} GB/s; short rows every "
      "{:.3f} cycles",
      accelerator.deviceName(), traits_.multiprocessors, traits_.memoryRate / 1000,
      traits_.linkRate / 1000, issueRate_.cyclesPerRow);
}

Result<Outcome> Engine::run(const Operation& operation, CachedLaunch& cached) {
  return Run(*this, operation, cached).run();
}

Result<bool> Engine::relaunch(const CachedLaunch& cached, std::optional<accel::NativeStream> stream,
                              accel::Ticket* ticket) {
  const accel::Accelerator& accelerator = device_.accelerator();
  if (coherence::mayBeShared(cached.strided, cached.stridedBytes) ||
      coherence::mayBeShared(cached.packed, cached.packedBytes) ||
      accelerator.memoryOf(cached.strided) != accel::Memory::kDevice ||
      accelerator.memoryOf(cached.packed) != cached.packedMemory) [[unlikely]] {
    return false;
  }
  if (cached.usesTable) {
    auto table = tables_.pin(cached.plan, stream);
    if (!table.ok()) {
      return table.status();
    }
    if (*table != cached.table) [[unlikely]] {
      if (*table != 0) {
        tables_.unpin(cached.plan, {});
      }
      return false;
    }
  }
  accel::WorkOf copies(
      [&](accel::Commands& commands) { return commands.copyStrided(cached.copy); });
  auto submitted = cached.report.method == adsmMethodCopy2d ? device_.submit(stream, copies)
                                                            : device_.launch(stream, cached.launch);
  if (cached.usesTable) {
    tables_.unpin(cached.plan, submitted.ok() ? *submitted : accel::Ticket{});
  }
  if (!submitted.ok()) [[unlikely]] {
    return submitted.status();
  }
  *ticket = *submitted;
  return true;
}

Result<Engine*> Engine::get() {
  static std::mutex mutex;
  if (Engine* made = current(); made != nullptr) [[likely]] {
    return made;
  }
  const std::lock_guard lock(mutex);
  if (Engine* made = current(); made != nullptr) {
    return made;
  }
  auto accelerator = coherence::work().ensureAccelerator();
  if (!accelerator.ok()) {
    return accelerator.status();
  }
  // Never destroyed: at process exit the driver may be gone before us.
  auto* const made = new Engine(**accelerator, kTableBytes);
  made->before_ = made_.load();
  made_.store(made, std::memory_order_release);
  return made;
}

Outcome runOnCpu(const Operation& operation) {
  const Layout& layout = operation.prepared->layout();
  if (operation.direction == Direction::kPack) {
    pack(layout, operation.packed, operation.strided, operation.offset, operation.bytes,
         cpuOptions(operation.bytes));
  } else {
    unpack(layout, operation.strided, operation.packed, operation.offset, operation.bytes,
           cpuOptions(operation.bytes));
  }
  Outcome outcome;
  outcome.report.method = adsmMethodCpu;
  outcome.report.bytes = operation.bytes;
  outcome.report.bytesOnCpu = operation.bytes;
  return outcome;
}

}  // namespace gmac::datatype
