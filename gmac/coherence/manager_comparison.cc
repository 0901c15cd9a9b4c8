// SPDX-License-Identifier: Apache-2.0
//
// Comparing instead of copying, for objects that kernels seldom write (managed memory's read-mostly
// hint). A call does not take such an object from the CPU, which goes on reading what it had while
// the kernel runs. But no kernel can be trusted not to write it: the accelerator digests its blocks
// before the kernel begins, an acquire closes them, and when the CPU wants them back the
// accelerator digests them again. What has not changed need not be copied: the CPU's pages still
// hold it.
//
// A block is described while the object's Comparison has the digest of what the CPU's pages of the
// block hold, whatever the block's state. It stops being that when the CPU may write it (Dirty) and
// when it is fetched. All that can go wrong leaves a block that is not described, or that is copied
// although it has not changed.
//
// From a call to the next acquire the described blocks are unverified: open for reading, and for
// nothing else. Whoever wants more than to read closes them first and goes the way of Invalid
// blocks, which waits for the kernels and compares. Whatever shows the CPU what a kernel has
// written is an acquire, every fetch included: no thread sees a kernel's result and then reads from
// before that kernel. Closing too early is always right. They are never busy and never held, so
// closing waits for nobody.
#include <algorithm>

#include "gmac/accel/digest/digest.h"
#include "gmac/base/log.h"
#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

using accel::digest::Launch;
using accel::digest::Sums;

// What arrives at once.
constexpr std::size_t kArrivalBytes = std::size_t{64} << 10;
constexpr std::size_t kArrivalBlocks = kArrivalBytes / sizeof(Sums);
// So many comparisons in a row that find the most part changed, and the hint was wrong.
constexpr unsigned kMostSurprises = 4;

// Where the digest, or the difference, of a block lies.
accel::DeviceAddress digestOf(const Comparison& comparison, BlockIndex index) {
  return accel::DeviceAddress{static_cast<std::uintptr_t>(comparison.sums) +
                              static_cast<std::size_t>(index) * sizeof(Sums)};
}
accel::DeviceAddress differencesOf(const Comparison& comparison) {
  return digestOf(comparison, BlockIndex{comparison.blocks});
}

}  // namespace

// Role: what one comparison found, in blocks. For the stack.
struct Manager::Compared {
  std::size_t blocks = 0;
  std::size_t changed = 0;
};

void Manager::setReadMostly(const void* address, bool readMostly) {
  if (forked()) {
    return;
  }
  const std::lock_guard advice(advice_);
  Lock lock(*this);
  Object* const object = index_.find(address);
  if (object == nullptr || object->closing || object->sharedBySmallObjects) {
    return;
  }
  if (options_.trustHints) {
    object->onlyRead = readMostly;
    return;
  }
  if (readMostly && !object->comparison) {
    ++object->busy;  // its blocks stay as many as they are
    auto made = [&] {
      const FreeForWork free(lock);
      return makeComparison(*object);
    }();
    --object->busy;
    changed();
    if (!made.ok()) {
      log(LogLevel::kInfo, "the object at {} is fetched without comparing: {}",
          fmt::ptr(object->address()), lastErrorText());
      return;
    }
    object->comparison = *made;
  }
  if (object->comparison) {
    object->comparison->wanted = readMostly;
    object->comparison->surprises = 0;
  }
  if (!readMostly) {
    // What cannot be closed now is closed by the next acquire.
    (void)closeUnverified(*object, object->all());
  }
}

Result<Comparison> Manager::makeComparison(const Object& object) {
  if (!Launch::possible(object.bytes(), object.blockBytes)) {
    return fail(adsmErrorNotSupported, "{} bytes have too many blocks of {}", object.bytes(),
                object.blockBytes);
  }
  if (!digest_) {
    auto loaded = accelerator_.load(accel::digest::kernel());
    if (!loaded.ok()) {
      return loaded.status();
    }
    digest_ = std::move(*loaded);
  }
  if (!differences_) {
    auto mirror = os::makeFileMirror(
        {nullptr, kArrivalBytes, os::kHugePageBytes, os::Access::kNone}, *arena_, *this);
    if (!mirror.ok()) {
      return mirror.status();
    }
    GMAC_TRY((*mirror)->prepare(0));
    differences_ = std::move(*mirror);
  }
  Comparison made;
  made.blocks = object.blockCount;
  made.bytes = os::roundUp(2 * made.blocks * sizeof(Sums), os::pageBytes());
  auto sums = accelerator_.allocate(made.bytes, os::pageBytes(), accel::Placement::kAnywhere);
  if (!sums.ok()) {
    return sums.status();
  }
  made.sums = *sums;
  return made;
}

// ---- The release

// What the CPU has had is described on the way: behind the flushes and in front of the kernel. What
// is described stays open, where the protocol has a state for that.
Status Manager::releaseToKernel(Object& object, Event event, bool closes,
                                accel::Ticket* stillOpen) {
  const BlockRange open = object.open;
  if (event != Event::kCall || !object.compares() || open.empty()) {
    return releaseBlocks(object, object.all(), event, stillOpen);
  }
  closes = closes || protocol_->on(State::kDirty, Event::kCallRead).next != State::kReadOnly;
  if (!closes && object.settled) {
    return {};
  }
  for (BlockIndex i = open.begin; i < open.end; i = i + 1) {
    object[i].toDescribe = object[i].state != State::kInvalid && !object[i].described;
  }
  const Status released =
      releaseBlocks(object, object.all(), closes ? Event::kCall : Event::kCallRead, stillOpen);
  Status described = released;
  for (BlockIndex i = open.begin; i < open.end;) {
    BlockIndex end = i;
    while (end < open.end && object[end].toDescribe) {
      object[end].toDescribe = false;
      end = end + 1;
    }
    if (i < end && described.ok()) {
      described = describe(object, {i, end});
    }
    i = end + 1;
  }
  if (released.ok() && !described.ok()) {
    log(LogLevel::kInfo, "blocks of the object at {} will be fetched without comparing: {}",
        fmt::ptr(object.address()), lastErrorText());
  }
  return closes || !released.ok() ? released : leaveUnverified(object, open, stillOpen);
}

// Of the blocks that a call has not closed, those that are described stay open, unverified.
Status Manager::leaveUnverified(Object& object, BlockRange range, accel::Ticket* stillOpen) {
  const auto closes = [&](BlockIndex i) {
    return object[i].state != State::kInvalid && !object[i].described;
  };
  for (BlockIndex i = range.begin; i < range.end;) {
    if (!closes(i)) {
      setUnverified(object, object[i], object[i].state != State::kInvalid);
      i = i + 1;
      continue;
    }
    BlockIndex end = i + 1;
    while (end < range.end && closes(end)) {
      end = end + 1;
    }
    GMAC_TRY(releaseBlocks(object, {i, end}, Event::kCall, stillOpen));
    i = end;
  }
  object.settled = true;
  return {};
}

void Manager::setUnverified(Object& object, Block& block, bool unverified) {
  if (block.unverified == unverified) {
    return;
  }
  block.unverified = unverified;
  if (unverified && object.unverified++ == 0) {
    unverified_.push_back(object);
  } else if (!unverified && --object.unverified == 0) {
    unverified_.erase(unverified_.iterator_to(object));
  }
  anyUnverified_ = !unverified_.empty();
}

Status Manager::describe(Object& object, BlockRange range) {
  const Comparison& comparison = *object.comparison;
  const std::size_t bytes = (range.end - range.begin) * sizeof(Sums);
  auto queued = accelerator_.fill(digestOf(comparison, range.begin), std::byte{0}, bytes);
  if (queued.ok()) {
    Launch launch(object.device, object.bytes(), object.blockBytes,
                  static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end),
                  comparison.sums, Launch::Do::kAdd);
    queued = accelerator_.launch(*digest_, launch.shape(), launch.args());
  }
  if (!queued.ok()) {
    return queued.status();
  }
  // To later flushes, and to whoever frees the object, this was a call that reads it.
  object.lastRead = lastDescription_ = queued->value;
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object[i].described = true;
  }
  return {};
}

// ---- The acquire

// Closes the unverified blocks of a range, which stay described.
Status Manager::closeUnverified(Object& object, BlockRange range) {
  for (BlockIndex i = range.begin; object.unverified > 0 && i < range.end;) {
    if (!object[i].unverified) {
      i = i + 1;
      continue;
    }
    BlockIndex end = i + 1;
    while (end < range.end && object[end].unverified) {
      end = end + 1;
    }
    Status closed = protect(object, {i, end}, os::Access::kNone);
    if (!closed.ok()) {
      object.strict = true;
      if (outOfMappings(closed) && object.holds == 0) {
        // Closing the whole object never splits a mapping.
        closed = protect(object, object.all(), os::Access::kNone);
      }
      GMAC_TRY(closed);
    }
    // They were not among what has been compared so far.
    object.comparison->madeAt = 0;
    for (; i < end; i = i + 1) {
      setState(object, object[i], State::kInvalid);
    }
  }
  // (A fetch under way is found by calls among the open objects.)
  if (object.settled && object.unverified == 0 && object.busy == 0) {
    setOpen(object, {});
  }
  return {};
}

Status Manager::closeUnverified() {
  while (!unverified_.empty()) {
    Object& object = unverified_.front();
    GMAC_TRY(closeUnverified(object, object.all()));
  }
  return {};
}

// For whoever wants more of a range than to read it: the range is as after an acquire when it is
// looked at again.
Result<Manager::Step> Manager::closeUnverifiedFirst(Lock& lock, Object& object, BlockRange range) {
  if (const Status closed = closeUnverified(object, range); !closed.ok()) {
    return retryIfOutOfMappings(lock, closed);
  }
  return Step::kRetry;
}

Status Manager::acquireReadMostly() {
  if (forked() || !anyUnverified_) {
    return {};
  }
  const Walk walk(*this);
  Lock lock(*this);
  return acquireUnverified(lock);
}

Status Manager::acquireUnverified(Lock& lock) {
  for (;;) {
    const Status closed = closeUnverified();
    if (closed.ok() || !outOfMappings(closed)) {
      return closed;
    }
    GMAC_TRY(coarsen(lock));
  }
}

// Whether no kernel runs that the digest might have to wait for; copies would not.
bool Manager::acceleratorIsIdle() noexcept {
  bool idle = accelerator_.done({lastCall_});
  for (std::size_t i = 0; idle && i < streamCount_; ++i) {
    idle = accelerator_.done(streams_[i].ticket);
  }
  return idle;
}

// Finds out which blocks of a range the accelerator has changed: those that are still described
// afterwards are the same on both sides. The range is Invalid, and the caller's (busy); what may
// write the object has finished. The object's other blocks are compared on the way. Lets the lock
// go.
void Manager::compare(Lock& lock, Object& object, BlockRange range) {
  const auto described = [&] {
    bool any = false;
    for (BlockIndex i = range.begin; !any && i < range.end; i = i + 1) {
      any = object[i].described;
    }
    return any;
  };
  if (!described()) {
    return;
  }
  const Lock::Quiet quiet(lock);
  bool waited = false;
  while (comparing_) {
    waited = true;
    waitForChange(lock);
  }
  Status status;
  const bool compared = object.compares() && object.comparison->madeAt == works_;
  // Whoever compared while this thread waited has left out the blocks that were this thread's.
  if (compared && !waited) {
    return;
  }
  const bool possible = object.compares() && acceleratorIsIdle();
  if (possible) {
    const TraceSpan span("copy", "compare", {"bytes", object.bytes()});
    const Timed timed(Phase::kCopy);
    const std::uint64_t works = works_;
    comparing_ = true;
    Compared found;
    status = compareOnAccelerator(lock, object, range, /*ownOnly=*/compared, &found);
    comparing_ = false;
    changed();
    Comparison& comparison = *object.comparison;
    if (status.ok()) {
      comparison.madeAt = works;
    }
    const bool surprised = !status.ok() || 2 * found.changed > found.blocks;
    if (!compared) {
      comparison.surprises = surprised ? comparison.surprises + 1 : 0;
    }
    comparison.wanted = comparison.wanted && comparison.surprises < kMostSurprises;
  }
  if (!possible || !status.ok()) {
    // An error that is more than the comparison's own is met again by the copies.
    for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
      object[i].described = false;
    }
  }
}

// The digests that were kept, less those of now: all zero where nothing has changed.
Status Manager::compareOnAccelerator(Lock& lock, Object& object, BlockRange own, bool ownOnly,
                                     Compared* found) {
  // Blocks in other threads' hands are theirs.
  const auto wanted = [&](BlockIndex i) {
    const Block& block = object[i];
    return block.state == State::kInvalid && block.described &&
           ((i >= own.begin && i < own.end) || (!ownOnly && !block.busy));
  };
  BlockRange range{object.all().end, object.all().begin};
  for (BlockIndex i = object.all().begin; i < object.all().end; i = i + 1) {
    if (wanted(i)) {
      range = {std::min(range.begin, i), i + 1};
    }
  }
  const Comparison& comparison = *object.comparison;
  const std::size_t bytes = (range.end - range.begin) * sizeof(Sums);
  auto queued = accelerator_.copyWithin(
      accel::DeviceAddress{static_cast<std::uintptr_t>(differencesOf(comparison)) +
                           static_cast<std::size_t>(range.begin) * sizeof(Sums)},
      digestOf(comparison, range.begin), bytes);
  if (queued.ok()) {
    Launch launch(object.device, object.bytes(), object.blockBytes,
                  static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.end),
                  differencesOf(comparison), Launch::Do::kSubtract);
    queued = accelerator_.launch(*digest_, launch.shape(), launch.args());
  }
  if (!queued.ok()) {
    return queued.status();
  }
  object.lastRead = queued->value;
  const auto* const differences = static_cast<const Sums*>(differences_->copyAddress(0));
  for (BlockIndex first = range.begin; first < range.end;) {
    const BlockIndex end = std::min(first + kArrivalBlocks, range.end);
    GMAC_TRY([&]() -> Status {
      const FreeForWork free(lock);
      // The wait is for the copy alone: a kernel's error is not this one's to take.
      auto copied = accelerator_.copyOut(
          differences_->copyAddress(0),
          accel::DeviceAddress{static_cast<std::uintptr_t>(differencesOf(comparison)) +
                               static_cast<std::size_t>(first) * sizeof(Sums)},
          (end - first) * sizeof(Sums), *queued);
      return copied.ok() ? await(free, *copied) : copied.status();
    }());
    for (BlockIndex i = first; i < end; i = i + 1) {
      if (!wanted(i)) {
        continue;
      }
      const Sums& difference = differences[i - first];
      const bool changed = difference.low != 0 || difference.high != 0;
      object[i].described = !changed;
      ++found->blocks;
      found->changed += changed ? 1 : 0;
    }
    first = end;
  }
  return {};
}

}  // namespace gmac
