// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/coherence.h"
#include "gmac/datatype/cpu_engine.h"
#include "gmac/datatype/division.h"
#include "gmac/datatype/plain_copy.h"
#include "gmac/datatype/touched.h"

namespace gmac::datatype {
namespace {

using accel::Ticket;
using coherence::CpuHold;
using coherence::Current;
using coherence::DeviceRange;
using coherence::HoldFor;

constexpr auto kSlotBytes = static_cast<std::int64_t>(Staging::kSlotBytes);
// What is nearer than this in memory is released together; the least block that large objects have.
constexpr std::int64_t kGap = std::int64_t{64} << 10;
// Fewer packed bytes are not divided between the CPU and the accelerator.
constexpr std::int64_t kLeastPortion = std::int64_t{4} << 10;

CpuOptions cpuOptions() {
  static const std::size_t threads =
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 8);
  return {.threads = threads, .copy = &plainCopy};
}

std::uint64_t addressOf(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

// Role: the commands of a part, as a function. For the stack.
template <typename Function>
class Commands final : public DeviceWork {
 public:
  explicit Commands(Function function) : function_(std::move(function)) {}
  Status run(DeviceQueue& queue) override { return function_(queue); }

 private:
  Function function_;
};

}  // namespace

// Role: one operation on its way. For the stack.
class Engine::Run {
 public:
  Run(Engine& engine, const Operation& operation)
      : engine_(engine),
        device_(*engine.device_),
        op_(operation),
        layout_(operation.prepared->layout()),
        pack_(operation.direction == Direction::kPack) {}

  Result<Outcome> run() {
    GMAC_TRY(look());
    GMAC_TRY(check());
    for (const Portion& portion : portions_) {
      GMAC_TRY(onDevice(portion) ? doOnDevice(portion) : doOnCpu(portion));
    }
    GMAC_TRY(drain(0));
    outcome_.report.bytes = op_.bytes;
    outcome_.report.method = 2 * outcome_.report.bytesOnCpu > op_.bytes ? adsmMethodCpu : method_;
    if (op_.stream && !op_.wait) {
      auto ticket = device_.accelerator().mark(*op_.stream);
      if (!ticket.ok()) {
        return ticket.status();
      }
      outcome_.ticket = *ticket;
    }
    // In the order of a stream of its own the application waits itself.
    if (op_.wait && reachesCpu_ && !op_.stream) {
      GMAC_TRY(device_.accelerator().wait(outcome_.ticket));
      GMAC_TRY(coherence::acquireReadMostly());
      outcome_.ticket = {};
    }
    return outcome_;
  }

 private:
  enum class Side { kDevice, kPinned, kPageable };

  // ---- Where things are

  Status look() {
    const Bounds bounds = layout_.boundsOf(op_.offset, op_.bytes);
    const std::byte* const first = op_.strided + bounds.first;
    const auto length = static_cast<std::size_t>(bounds.last - bounds.first);
    stridedShared_ =
        coherence::mayBeShared(first, length) && coherence::touchesShared(first, length);
    packedShared_ = coherence::mayBeShared(op_.packed, static_cast<std::size_t>(op_.bytes)) &&
                    coherence::touchesShared(op_.packed, static_cast<std::size_t>(op_.bytes));
    if (stridedShared_) {
      stridedDistance_ = coherence::deviceDistance(first);
      portions_ = divide(layout_, op_.strided, op_.offset, op_.bytes, kLeastPortion);
    } else {
      portions_ = {{op_.offset, op_.bytes, Current::kNotShared}};
      stridedOnDevice_ = device_.memoryOf(first) == Memory::kDevice;
    }
    if (!packedShared_) {
      switch (device_.memoryOf(op_.packed)) {
        case Memory::kDevice:
          packedAt_ = Side::kDevice;
          break;
        case Memory::kPinned:
          packedAt_ = device_.kernelsReachPinned() ? Side::kPinned : Side::kPageable;
          break;
        case Memory::kPageable:
          packedAt_ = Side::kPageable;
          break;
      }
      return {};
    }
    packedDistance_ = coherence::deviceDistance(op_.packed);
    packedAt_ = sharedPackedOnDevice() ? Side::kDevice : Side::kPageable;
    return {};
  }

  // A shared packed side is used where the other one is, or where it is current itself.
  bool sharedPackedOnDevice() const {
    if (op_.method != adsmMethodAny) {
      return op_.method != adsmMethodCpu;
    }
    const bool anyOnDevice =
        stridedOnDevice_ || std::any_of(portions_.begin(), portions_.end(), [](const Portion& p) {
          return p.current == Current::kAccelerator;
        });
    const bool anyOnCpu = (!stridedShared_ && !stridedOnDevice_) ||
                          std::any_of(portions_.begin(), portions_.end(), [](const Portion& p) {
                            return p.current == Current::kCpu || p.current == Current::kNotShared;
                          });
    bool accelerator = false;
    bool cpu = false;
    const std::byte* at = op_.packed;
    for (auto left = static_cast<std::size_t>(op_.bytes); left > 0;) {
      Current current{};
      const std::size_t length = coherence::currentPrefix(at, left, &current);
      accelerator |= current == Current::kAccelerator;
      cpu |= current == Current::kCpu || current == Current::kNotShared;
      at += length;
      left -= length;
    }
    if (pack_) {
      return anyOnDevice || (!anyOnCpu && !cpu);
    }
    return accelerator || (!cpu && !(anyOnCpu && !anyOnDevice));
  }

  bool packedOnDevice() const { return packedAt_ == Side::kDevice; }

  bool onDevice(const Portion& portion) const {
    if (op_.method != adsmMethodAny) {
      return op_.method != adsmMethodCpu;
    }
    switch (portion.current) {
      case Current::kAccelerator:
        return true;
      case Current::kCpu:
        // What a device unpacks over them is flushed first, as the next call would do.
        return !pack_ && packedOnDevice();
      case Current::kBoth:
        // Unpacked on the CPU, whole blocks would have to follow the packed bytes to the device.
        return !pack_ || packedOnDevice();
      case Current::kNotShared:
        return stridedOnDevice_;
    }
    __builtin_unreachable();
  }

  // A forced method that cannot be had is refused before anything is done.
  Status check() {
    const char* const name = adsmMethodName(op_.method);
    const char* const function = pack_ ? "adsmPackWith" : "adsmUnpackWith";
    std::int64_t rows = 0;
    switch (op_.method) {
      case adsmMethodAny:
        break;
      case adsmMethodCpu:
        if ((!stridedShared_ && stridedOnDevice_) || (!packedShared_ && packedOnDevice())) {
          return fail(adsmErrorNotSupported, "{}: method {}: the CPU does not reach {}", function,
                      name, fmt::ptr(stridedOnDevice_ ? op_.strided : op_.packed));
        }
        break;
      case adsmMethodKernel:
      case adsmMethodCopy2d:
      case adsmMethodCopy:
      case adsmMethodStaged:
        if (!stridedShared_ && !stridedOnDevice_) {
          return fail(adsmErrorNotSupported, "{}: method {}: {} is the CPU's memory", function,
                      name, fmt::ptr(op_.strided));
        }
        if (op_.method == adsmMethodKernel && packedAt_ == Side::kPageable) {
          return fail(adsmErrorNotSupported,
                      "{}: method {}: kernels do not reach {}, which is not pinned", function, name,
                      fmt::ptr(op_.packed));
        }
        if (op_.method == adsmMethodCopy2d &&
            !fitsCopy2d(layout_, op_.offset == 0 && op_.bytes == layout_.bytes(), &rows)) {
          return fail(adsmErrorNotSupported,
                      "{}: method {}: the layout is {}; whole strided layouts of at most three "
                      "dimensions fit",
                      function, name, layout_.describe());
        }
        if ((op_.method == adsmMethodCopy2d || op_.method == adsmMethodCopy) &&
            packedAt_ == Side::kPageable && !device_.kernelsReachPinned()) {
          return fail(adsmErrorNotSupported, "{}: method {}: the {} accelerator does not reach {}",
                      function, name, device_.accelerator().name(), fmt::ptr(op_.packed));
        }
        if (op_.method == adsmMethodStaged && packedOnDevice()) {
          return fail(adsmErrorNotSupported, "{}: method {}: {} is the device's memory", function,
                      name, fmt::ptr(op_.packed));
        }
        break;
    }
    return {};
  }

  std::byte* packedAt(std::int64_t offset) const { return op_.packed + (offset - op_.offset); }
  // As the device knows them.
  std::uint64_t devicePacked(std::int64_t offset) const {
    return addressOf(packedAt(offset)) +
           (packedOnDevice() ? static_cast<std::uint64_t>(packedDistance_) : 0);
  }
  std::uint64_t deviceStrided() const {
    return addressOf(op_.strided) + static_cast<std::uint64_t>(stridedDistance_);
  }

  // ---- The CPU's part

  Status doOnCpu(const Portion& portion) {
    outcome_.report.bytesOnCpu += portion.bytes;
    if (!packedOnDevice()) {
      return copyOnCpu(portion.offset, portion.bytes, packedAt(portion.offset), packedShared_);
    }
    outcome_.report.bytesAcross += portion.bytes;
    for (std::int64_t done = 0; done < portion.bytes; done += kSlotBytes) {
      const std::int64_t offset = portion.offset + done;
      const std::int64_t bytes = std::min(kSlotBytes, portion.bytes - done);
      auto slot = engine_.staging_.take();
      if (!slot.ok()) {
        return slot.status();
      }
      std::byte* const packed = packedAt(offset);
      if (pack_) {
        GMAC_TRY(copyOnCpu(offset, bytes, slot->pinned(), false));
      }
      auto ticket = submit(packedRange(packed, bytes), [&](DeviceQueue& queue) {
        ++outcome_.report.launches;
        const auto length = static_cast<std::size_t>(bytes);
        return pack_ ? queue.copyIn(devicePacked(offset), slot->pinned(), length)
                     : queue.copyOut(slot->pinned(), devicePacked(offset), length);
      });
      if (!ticket.ok()) {
        return ticket.status();
      }
      GMAC_TRY(noteUse(*slot, *ticket));
      if (!pack_) {
        GMAC_TRY(device_.accelerator().wait(slot->ticket()));
        GMAC_TRY(copyOnCpu(offset, bytes, slot->pinned(), false));
      }
    }
    return {};
  }

  // Both sides on the CPU; what is shared is held meanwhile.
  Status copyOnCpu(std::int64_t offset, std::int64_t bytes, std::byte* packed,
                   bool packedIsShared) {
    std::deque<CpuHold> holds;
    const auto hold = [&](const std::byte* first, std::int64_t length, HoldFor purpose) {
      holds.emplace_back(first, static_cast<std::size_t>(length), purpose);
      return holds.back().status();
    };
    if (stridedShared_) {
      for (const Bounds& range : touchedBy(offset, bytes)) {
        GMAC_TRY(hold(op_.strided + range.first, range.last - range.first,
                      pack_ ? HoldFor::kRead : HoldFor::kWrite));
      }
    }
    if (packedIsShared) {
      GMAC_TRY(hold(packed, bytes, pack_ ? HoldFor::kOverwrite : HoldFor::kRead));
    }
    if (pack_) {
      pack(layout_, packed, op_.strided, offset, bytes, cpuOptions());
    } else {
      unpack(layout_, op_.strided, packed, offset, bytes, cpuOptions());
    }
    return {};
  }

  // ---- The device's part

  Status doOnDevice(const Portion& portion) {
    if (packedOnDevice()) {
      method_ = op_.method == adsmMethodAny ? adsmMethodKernel : op_.method;
      return doAtOnce(portion, method_);
    }
    reachesCpu_ = true;
    outcome_.report.bytesAcross += portion.bytes;
    method_ = op_.method;
    if (method_ == adsmMethodAny) {
      method_ = engine_.costs().choose({.layout = &layout_,
                                        .bytes = portion.bytes,
                                        .whole = portion.bytes == layout_.bytes(),
                                        .pinned = packedAt_ == Side::kPinned,
                                        .direction = op_.direction});
      if (method_ == adsmMethodCopy2d && !device_.kernelsReachPinned()) {
        method_ = adsmMethodStaged;  // no strided copies there
      }
    }
    if (method_ == adsmMethodStaged || (packedAt_ == Side::kPageable && packedShared_)) {
      method_ = adsmMethodStaged;
      return doStaged(portion);
    }
    return doAtOnce(portion, method_);
  }

  // In one submission, between the strided side and where the packed bytes shall be.
  Status doAtOnce(const Portion& portion, adsmMethod_t method) {
    std::vector<DeviceRange> ranges = packedRange(packedAt(portion.offset), portion.bytes);
    addStridedRanges(portion.offset, portion.bytes, ranges);
    const std::uint64_t packed = devicePacked(portion.offset);
    if (method == adsmMethodKernel) {
      return launch(portion.offset, portion.bytes, packed, std::move(ranges)).status();
    }
    auto ticket = submit(std::move(ranges), [&](DeviceQueue& queue) {
      return method == adsmMethodCopy2d ? copy2d(queue, packed)
                                        : copyPieces(queue, portion, packed);
    });
    if (ticket.ok()) {
      outcome_.ticket = *ticket;
    }
    return ticket.status();
  }

  // Submits the kernels of a part; the ticket of them (of streams of the application's: none).
  Result<Ticket> launch(std::int64_t offset, std::int64_t bytes, std::uint64_t packed,
                        std::vector<DeviceRange> ranges) {
    const DevicePlan& plan = op_.prepared->plan();
    DeviceJob job;
    job.direction = op_.direction;
    job.strided = deviceStrided();
    job.packed = packed;
    job.offset = offset;
    job.bytes = bytes;
    job.maxBlocks = op_.blocks;
    const bool needsTable = plan.table().bytes != 0;
    if (needsTable) {
      auto table = engine_.tables_.pin(plan, op_.stream);
      if (!table.ok()) {
        return table.status();
      }
      job.table = *table;
    }
    auto ticket = submit(std::move(ranges), [&](DeviceQueue& queue) {
      return plan.launches(job, [&](const DeviceLaunch& launch) {
        ++outcome_.report.launches;
        return queue.launch(launch);
      });
    });
    if (needsTable) {
      engine_.tables_.unpin(plan, ticket.ok() ? *ticket : Ticket{});
    }
    if (ticket.ok()) {
      outcome_.ticket = *ticket;
    }
    return ticket;
  }

  Status copy2d(DeviceQueue& queue, std::uint64_t packed) {
    const std::vector<Dim>& dims = layout_.dims();
    StridedCopy copy;
    copy.strided = deviceStrided() + static_cast<std::uint64_t>(layout_.blocks()[0].offset);
    copy.packed = packed;
    copy.rowBytes = layout_.blocks()[0].bytes;
    if (!dims.empty()) {
      copy.rows = dims.back().count;
      copy.pitch = dims.back().stride;
    } else {
      copy.pitch = copy.rowBytes;
    }
    copy.slicePitch = copy.rows * copy.pitch;
    if (dims.size() == 2) {
      copy.slices = dims[0].count;
      copy.slicePitch = dims[0].stride;
    }
    copy.direction = op_.direction;
    copy.packedOnCpu = !packedOnDevice();
    ++outcome_.report.launches;
    return queue.copyStrided(copy);
  }

  Status copyPieces(DeviceQueue& queue, const Portion& portion, std::uint64_t packed) {
    Status status;
    layout_.forEach(
        portion.offset, portion.bytes, [&](std::int64_t at, std::int64_t in, std::int64_t bytes) {
          if (!status.ok()) {
            return;
          }
          ++outcome_.report.launches;
          const std::uint64_t strided = deviceStrided() + static_cast<std::uint64_t>(at);
          const std::uint64_t there = packed + static_cast<std::uint64_t>(in - portion.offset);
          const auto length = static_cast<std::size_t>(bytes);
          if (packedOnDevice()) {
            status = pack_ ? queue.copyWithin(there, strided, length)
                           : queue.copyWithin(strided, there, length);
          } else if (pack_) {
            status = queue.copyOut(reinterpret_cast<void*>(there), strided, length);
          } else {
            status = queue.copyIn(strided, reinterpret_cast<void*>(there), length);
          }
        });
    return status;
  }

  // Through device memory, in steps: while one is copied across, the next is packed.
  Status doStaged(const Portion& portion) {
    for (std::int64_t done = 0; done < portion.bytes; done += kSlotBytes) {
      GMAC_TRY(drain(Staging::kSlotsEach - 1));
      const std::int64_t bytes = std::min(kSlotBytes, portion.bytes - done);
      auto slot = engine_.staging_.take();
      if (!slot.ok()) {
        return slot.status();
      }
      GMAC_TRY(pack_ ? packStep(std::move(*slot), portion.offset + done, bytes)
                     : unpackStep(std::move(*slot), portion.offset + done, bytes));
    }
    // The copies come one after the other: behind the last, all are over. (Sooner, the next step's
    // kernel would wait for this one's copy.)
    if (pack_ && op_.stream && packedAt_ == Side::kPinned) {
      return device_.follow(op_.stream, outcome_.ticket);
    }
    return {};
  }

  Status packStep(StagingSlot slot, std::int64_t offset, std::int64_t bytes) {
    std::vector<DeviceRange> ranges;
    addStridedRanges(offset, bytes, ranges);
    auto packed = launch(offset, bytes, slot.device(), std::move(ranges));
    if (!packed.ok()) {
      return packed.status();
    }
    GMAC_TRY(noteUse(slot, *packed));
    const bool direct = packedAt_ == Side::kPinned;
    auto copied = device_.accelerator().copyOut(direct ? packedAt(offset) : slot.pinned(),
                                                accel::DeviceAddress{slot.device()},
                                                static_cast<std::size_t>(bytes), slot.ticket());
    if (!copied.ok()) {
      return copied.status();
    }
    ++outcome_.report.launches;
    slot.usedUntil(*copied);
    if (direct) {
      outcome_.ticket = *copied;
      return {};
    }
    steps_.push_back({std::move(slot), offset, bytes});
    return {};
  }

  Status unpackStep(StagingSlot slot, std::int64_t offset, std::int64_t bytes) {
    const std::byte* from = packedAt(offset);
    if (packedAt_ == Side::kPageable) {
      std::optional<CpuHold> hold;
      if (packedShared_) {
        hold.emplace(from, static_cast<std::size_t>(bytes), HoldFor::kRead);
        GMAC_TRY(hold->status());
      }
      plainCopy(slot.pinned(), from, static_cast<std::size_t>(bytes));
      from = slot.pinned();
    }
    auto copied = device_.accelerator().copyIn(accel::DeviceAddress{slot.device()}, from,
                                               static_cast<std::size_t>(bytes), {});
    if (!copied.ok()) {
      return copied.status();
    }
    ++outcome_.report.launches;
    slot.usedUntil(*copied);
    if (op_.stream) {
      GMAC_TRY(device_.follow(op_.stream, *copied));
    }
    std::vector<DeviceRange> ranges;
    addStridedRanges(offset, bytes, ranges);
    auto unpacked = launch(offset, bytes, slot.device(), std::move(ranges));
    if (!unpacked.ok()) {
      return unpacked.status();
    }
    return noteUse(slot, *unpacked);
  }

  // Finishes steps until at most `left` are under way.
  Status drain(std::size_t left) {
    while (steps_.size() > left) {
      Step step = std::move(steps_.front());
      steps_.pop_front();
      GMAC_TRY(device_.accelerator().wait(step.slot.ticket()));
      GMAC_TRY(coherence::acquireReadMostly());
      std::byte* const to = packedAt(step.offset);
      std::optional<CpuHold> hold;
      if (packedShared_) {
        hold.emplace(to, static_cast<std::size_t>(step.bytes), HoldFor::kOverwrite);
        GMAC_TRY(hold->status());
      }
      plainCopy(to, step.slot.pinned(), static_cast<std::size_t>(step.bytes));
    }
    return {};
  }

  // ---- Coherence

  std::vector<Bounds> touchedBy(std::int64_t offset, std::int64_t bytes) const {
    return offset == 0 && bytes == layout_.bytes() ? op_.prepared->allTouched(kGap)
                                                   : touched(layout_, offset, bytes, kGap);
  }

  void addStridedRanges(std::int64_t offset, std::int64_t bytes, std::vector<DeviceRange>& ranges) {
    if (!stridedShared_) {
      return;
    }
    for (const Bounds& range : touchedBy(offset, bytes)) {
      ranges.push_back(
          {op_.strided + range.first, static_cast<std::size_t>(range.last - range.first), !pack_});
    }
  }

  std::vector<DeviceRange> packedRange(const std::byte* packed, std::int64_t bytes) const {
    std::vector<DeviceRange> ranges;
    if (packedShared_ && packedOnDevice()) {
      ranges.push_back({packed, static_cast<std::size_t>(bytes), pack_});
    }
    return ranges;
  }

  // Submits between the release of the ranges and their ticket; without any, alone.
  template <typename Function>
  Result<Ticket> submit(std::vector<DeviceRange> ranges, Function function) {
    Commands work(std::move(function));
    if (ranges.empty()) {
      return device_.submit(op_.stream, work);
    }
    if (op_.stream) {
      GMAC_TRY(coherence::beginDeviceWork(*op_.stream, ranges.data(), ranges.size()));
      auto ticket = device_.submit(op_.stream, work);
      const Status ended = coherence::endDeviceWork(*op_.stream, ticket.ok());
      return ticket.ok() && !ended.ok() ? Result<Ticket>(ended) : ticket;
    }
    GMAC_TRY(coherence::beginOwnWork(ranges.data(), ranges.size()));
    auto ticket = device_.submit(op_.stream, work);
    const Status ended =
        coherence::endOwnWork(ranges.data(), ranges.size(), ticket.ok() ? *ticket : Ticket{});
    return ticket.ok() && !ended.ok() ? Result<Ticket>(ended) : ticket;
  }

  // A slot is in use until the work of its step is over; what runs on a stream of the application's
  // has a ticket only if one is asked for.
  Status noteUse(StagingSlot& slot, Ticket ticket) {
    if (op_.stream) {
      auto mark = device_.accelerator().mark(*op_.stream);
      if (!mark.ok()) {
        return mark.status();
      }
      ticket = *mark;
    }
    slot.usedUntil(ticket);
    outcome_.ticket = ticket;
    return {};
  }

  struct Step {
    StagingSlot slot;
    std::int64_t offset;
    std::int64_t bytes;
  };

  Engine& engine_;
  Device& device_;
  const Operation& op_;
  const Layout& layout_;
  const bool pack_;
  bool stridedShared_ = false;
  bool stridedOnDevice_ = false;  // and not shared
  bool packedShared_ = false;
  std::ptrdiff_t stridedDistance_ = 0;  // from an address of the CPU's to the device's
  std::ptrdiff_t packedDistance_ = 0;
  Side packedAt_ = Side::kPageable;
  bool reachesCpu_ = false;  // a device reads or writes CPU memory for it
  std::vector<Portion> portions_;
  std::list<Step> steps_;  // nothing is allocated for most operations
  adsmMethod_t method_ = adsmMethodCpu;
  Outcome outcome_;
};

Engine::Engine(std::unique_ptr<Device> device, std::size_t tableBytes)
    : context_(coherence::contextsEnded()),
      device_(std::move(device)),
      staging_(*device_),
      tables_(*device_, staging_, tableBytes) {}

const Costs& Engine::costs() {
  std::call_once(costed_, [&] { costs_ = costsOf(*device_, staging_); });
  return costs_;
}

Result<Outcome> Engine::run(const Operation& operation) { return Run(*this, operation).run(); }

Result<Engine*> Engine::get() {
  static std::mutex mutex;
  static std::atomic<Engine*> engine{nullptr};
  // One whose context has ended has lost its memory with it, and is left behind.
  const auto lives = [](const Engine* made) {
    return made != nullptr && made->context_ == coherence::contextsEnded();
  };
  if (Engine* made = engine.load(std::memory_order_acquire); lives(made)) [[likely]] {
    return made;
  }
  const std::lock_guard lock(mutex);
  if (Engine* made = engine.load(); lives(made)) {
    return made;
  }
  auto accelerator = coherence::accelerator();
  if (!accelerator.ok()) {
    return accelerator.status();
  }
  auto device = Device::make(**accelerator);
  if (!device.ok()) {
    return device.status();
  }
  // Never destroyed: at process exit the driver may be gone before us.
  engine.store(new Engine(std::move(*device), coherence::packTableBytes()),
               std::memory_order_release);
  return engine.load();
}

Outcome runOnCpu(const Operation& operation) {
  const Layout& layout = operation.prepared->layout();
  if (operation.direction == Direction::kPack) {
    pack(layout, operation.packed, operation.strided, operation.offset, operation.bytes,
         cpuOptions());
  } else {
    unpack(layout, operation.strided, operation.packed, operation.offset, operation.bytes,
           cpuOptions());
  }
  Outcome outcome;
  outcome.report.method = adsmMethodCpu;
  outcome.report.bytes = operation.bytes;
  outcome.report.bytesOnCpu = operation.bytes;
  return outcome;
}

}  // namespace gmac::datatype
