// SPDX-License-Identifier: Apache-2.0
//
// Blocks: their transitions, the copies and protection changes that these take, and the faults that
// ask for them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/coherence/access_scope.h"
#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

// Whether the calling thread's last protection change was refused for want of mappings.
thread_local bool mappingsRefused __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

void Manager::waitForChange(Lock& lock) {
  const std::uint32_t seen = generation_.load();
  const Free free(lock);
  generation_.wait(seen);
}

// A transit ends by itself, so signals stay blocked: a handler of this thread that faulted would
// wait for the thread.
void Manager::waitForTransit(Lock& lock) {
  ++callsWaiting_;
  const std::uint32_t seen = generation_.load();
  {
    const FreeForWork free(lock);
    generation_.wait(seen);
  }
  if (--callsWaiting_ == 0) {
    changed();
  }
}

void Manager::changed() {
  generation_.fetch_add(1);
  generation_.notify_all();
}

// Waits for every kernel that may write the object. Kernel errors come out here.
Status Manager::waitForWriters(Lock& lock, Object& object, bool* waited) {
  const Ledger::Tickets writers = ledger_.writersOf(object);
  *waited = !writers.empty();
  if (writers.empty()) {
    return {};
  }
  const Free free(lock);
  const Timed timed(Phase::kGpu);
  for (const accel::Ticket ticket : writers) {
    GMAC_TRY(awaitWithinLimit(free, ticket));
  }
  return {};
}

// Waits for one piece of work, unless it has finished.
Status Manager::waitFor(Lock& lock, accel::Ticket ticket, bool* waited) {
  if (accelerator_.done(ticket)) {
    return {};
  }
  *waited = true;
  const Free free(lock);
  const Timed timed(Phase::kGpu);
  return awaitWithinLimit(free, ticket);
}

Status Manager::waitForArrival(Lock& lock, accel::Ticket ticket) {
  if (ticket.value == 0) {
    return {};
  }
  const Free free(lock);
  return await(free, ticket);
}

// Waits for all calls and all device work made so far.
Status Manager::waitForPending(Lock& lock) {
  const Ledger::Tickets pending = ledger_.everything();
  const Free free(lock);
  const Timed timed(Phase::kGpu);
  Status status;
  for (const accel::Ticket ticket : pending) {
    if (const Status one = await(free, ticket); status.ok()) {
      status = one;
    }
  }
  return status;
}

// ---- Transitions

void Manager::setState(Object& object, Block& block, State next) {
  if (block.state == next) {
    return;
  }
  if (isDirty(block.state) && !isDirty(next)) {
    protocol_->leftDirty(block);
  }
  const BlockIndex index = object.indexOf(block);
  const std::size_t edges = object.edgesAt(index);
  const State before = std::exchange(block.state, next);
  object.blocks.changed(block, before);
  noteEdges(object, object.edges - edges + object.edgesAt(index));
  if (isDirty(next) && !isDirty(before)) {
    stats().evictionsWasted.add(block.evicted ? 1 : 0);
    protocol_->becameDirty(block);
  }
  if (isPart(next) && !isPart(before)) {
    stats().windows.add();
    object.windows.opened(index);
  } else if (isPart(before) && next == State::kInvalid) {
    object.windows.wasEnough(index);
  } else if (isPart(before) && !isPart(next)) {
    stats().windowsOutgrown.add();
    object.windows.outgrown(index);
  }
  if (next != State::kInvalid) {
    if (object.open.empty()) {
      open_.push_back(object);
    }
    object.widenOpen({index, index + 1});
  }
}

void Manager::setOpen(Object& object, BlockRange range) {
  if (object.open.empty() && !range.empty()) {
    open_.push_back(object);
  } else if (!object.open.empty() && range.empty()) {
    open_.erase(open_.iterator_to(object));
    object.windows.closed();
  }
  object.open = range;
  // Nothing is open, and what closed it has succeeded.
  object.strict = object.strict && !range.empty();
}

Status Manager::protect(Object& object, ByteRange bytes, os::Access access) {
  const Status status = object.mirror->protect(bytes.begin, bytes.length(), access);
  mappingsRefused = status.code() == adsmErrorHostMemory;
  // Some of the range may have its new protection.
  object.strict = object.strict || !status.ok();
  return status;
}

Status Manager::protectAs(Object& object, BlockIndex index, State state) {
  return protect(object, isPart(state) ? object.windowOf(index) : object.bytesOf(index),
                 accessOf(state));
}

// Closes all that is open of a range. Where that is a few windows, closing those alone costs less
// than going over all pages of the range. After a failure pages may be open of which no state
// tells.
Status Manager::close(Object& object, BlockRange range) {
  constexpr std::size_t kFewWindows = 4;
  std::array<BlockIndex, kFewWindows> found;
  std::size_t count = 0;
  bool windowsOnly = !object.strict;
  for (BlockIndex i = range.begin; i < range.end && windowsOnly;) {
    if (object.groupClosed(i)) {
      i = object.groupEnd(i);
      continue;
    }
    const State state = object.made(i) ? object[i].state : object.rest(i);
    if (isPart(state) && count < kFewWindows) {
      found[count++] = i;
    } else {
      windowsOnly = state == State::kInvalid;
    }
    i = i + 1;
  }
  if (!windowsOnly) {
    return protect(object, range, os::Access::kNone);
  }
  for (std::size_t i = 0; i < count; ++i) {
    GMAC_TRY(protect(object, object.windowOf(found[i]), os::Access::kNone));
  }
  return {};
}

// Whether an error is the kernel's limit of mappings, which coarsening lifts; the driver's want of
// memory is not.
bool Manager::outOfMappings(Status status) const {
  return status.code() == adsmErrorHostMemory && mappingsRefused;
}

// Queues copies of dirty blocks to the accelerator, one per chunk, and notes their tickets in the
// blocks. A block that is dirty in part comes alone: its window is copied.
Status Manager::flush(Object& object, BlockRange range, accel::Ticket after) {
  const ByteRange bytes =
      isPart(object[range.begin].state) ? object.windowOf(range.begin) : object.bytesOf(range);
  const std::size_t end = bytes.end;
  accel::Ticket ticket;
  Status status;
  for (std::size_t offset = bytes.begin; offset < end;) {
    const std::size_t chunkBytes = object.mirror->chunkBytes();
    const std::size_t stop = std::min(end, (offset / chunkBytes + 1) * chunkBytes);
    auto copied = accelerator_.copyIn(object.deviceAt(offset), object.mirror->copyAddress(offset),
                                      stop - offset, after);
    if (!copied.ok()) {
      status = copied.status();
      break;
    }
    ticket = *copied;
    ledger_.flushed(ticket);
    stats().flushes.add();
    stats().bytesToAccelerator.add(stop - offset);
    offset = stop;
  }
  // Also after a failure: chunks before it are in flight.
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object[i].flushed = std::max(object[i].flushed, ticket.value);
  }
  return status;
}

// Copies bytes from the accelerator, and waits for that. Their blocks are busy.
Status Manager::copyOut(const Free& free, Object& object, ByteRange bytes, accel::Ticket after) {
  const Timed timed(Phase::kCopy);
  const TraceSpan span("copy", "fetch", {"bytes", bytes.length()});
  accel::Ticket ticket;
  const Status queued = queueFetch(object, bytes, after, &ticket);
  // Also after a failure: the copies before it are in flight to pages that the caller may give up.
  const Status copied = await(free, ticket);
  return queued.ok() ? copied : queued;
}

// Queues copies of bytes from the accelerator, one per chunk; `last` becomes the ticket of the last
// that was queued. Their blocks are busy.
Status Manager::queueFetch(Object& object, ByteRange bytes, accel::Ticket after,
                           accel::Ticket* last) {
  const std::size_t end = bytes.end;
  for (std::size_t offset = bytes.begin; offset < end;) {
    const std::size_t chunkBytes = object.mirror->chunkBytes();
    const std::size_t stop = std::min(end, (offset / chunkBytes + 1) * chunkBytes);
    auto copied = accelerator_.copyOut(object.mirror->copyAddress(offset), object.deviceAt(offset),
                                       stop - offset, after);
    if (!copied.ok()) {
      return copied.status();
    }
    *last = *copied;
    stats().fetches.add();
    stats().bytesToHost.add(stop - offset);
    offset = stop;
  }
  return {};
}

// Copies from the accelerator, which must have finished with them, what blocks lack for `next`, and
// opens them so: Invalid ones as a whole, one Invalid block's window, or all but the window of one
// that is open in part. That one's window stays open meanwhile, and what the CPU writes there
// stays.
Status Manager::fetch(Lock& lock, Object& object, BlockRange range, State next) {
  const BlockIndex first = range.begin;
  const ByteRange window = object.windowOf(first);
  std::array<ByteRange, 2> missing{object.bytesOf(range), ByteRange{}};
  if (isPart(next)) {
    missing[0] = window;
  } else if (isPart(object[first].state)) {
    missing = {ByteRange{object.offsetOf(first), window.begin},
               ByteRange{window.end, object.offsetOf(first + 1)}};
  }
  // Usually a kernel has run since the blocks were flushed; not if its launch failed.
  accel::Ticket after;
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object[i].busy = true;
    after.value = std::max(after.value, object[i].flushed);
  }
  object.busy += static_cast<std::uint32_t>(range.end - range.begin);
  // Calls look for busy objects among the open ones only: a call made during the copy must wait for
  // it.
  if (object.open.empty()) {
    open_.push_back(object);
  }
  object.widenOpen(range);
  const Status status = [&]() -> Status {
    const FreeForWork free(lock);
    for (const ByteRange bytes : missing) {
      if (!bytes.empty()) {
        GMAC_TRY(copyOut(free, object, bytes, after));
      }
    }
    return {};
  }();
  const Status opened = !status.ok()   ? status
                        : isPart(next) ? protect(object, window, accessOf(next))
                                       : protect(object, range, accessOf(next));
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object[i].busy = false;
    if (opened.ok()) {
      setState(object, object[i], next);
    }
  }
  object.busy -= static_cast<std::uint32_t>(range.end - range.begin);
  changed();
  return opened;
}

// Whether a fetch of neighbours can take the block, too.
bool Manager::fetchable(Object& object, BlockIndex index) {
  return object[index].state == State::kInvalid && !object[index].busy && object.pagesReady(index);
}

// The blocks that one read fault fetches: the faulting one alone, unless it continues what an
// earlier fault has fetched, after its end or before its beginning. Then twice as much as that, up
// to the limit, so that a reader of n blocks in order faults about log2(n) times. Some readers of
// an object at a time are told apart.
//
// The worst case is a reader that stops: it has fetched as much again as it has read, and no more
// than the limit. A reader that leaves out blocks between those it reads fetches nothing ahead.
BlockRange Manager::readAhead(Object& object, BlockIndex index) {
  auto& runs = object.readRuns;
  auto run = std::find_if(runs.begin(), runs.end(), [&](const BlockRange& r) {
    return !r.empty() && (index == r.end || index + 1 == r.begin);
  });
  const bool sequential = run != runs.end();
  const bool backward = sequential && index + 1 == run->begin;
  const std::size_t wanted = sequential ? std::min(2 * (run->end - run->begin) * object.blockBytes,
                                                   options_.readAheadBytes)
                                        : 0;
  const std::size_t most = std::max<std::size_t>(1, wanted / object.blockBytes);
  BlockRange range{index, index + 1};
  while (range.end - range.begin < most) {
    if (backward && range.begin > object.all().begin && fetchable(object, range.begin - 1)) {
      range.begin = range.begin - 1;
    } else if (!backward && range.end < object.all().end && fetchable(object, range.end)) {
      range.end = range.end + 1;
    } else {
      break;
    }
  }
  if (!sequential) {
    run = runs.begin() + object.oldestReadRun;
    object.oldestReadRun = (object.oldestReadRun + 1) % runs.size();
  }
  *run = range;
  return range;
}

// A reader in order has been served at a block without read-ahead: the next block continues the
// run.
void Manager::noteRead(Object& object, BlockIndex index) {
  auto& runs = object.readRuns;
  for (BlockRange& run : runs) {
    if (!run.empty() && index == run.end) {
      run.end = index + 1;
      return;
    }
    if (!run.empty() && index + 1 == run.begin) {
      run.begin = index;
      return;
    }
  }
  runs[object.oldestReadRun] = {index, index + 1};
  object.oldestReadRun = (object.oldestReadRun + 1) % runs.size();
}

Status Manager::evictExcess() {
  while (Block* block = protocol_->excess()) {
    Object& object = *block->owner;
    const BlockIndex index = object.indexOf(*block);
    const BlockRange range{index, index + 1};
    const Transition transition = protocol_->on(block->state, Event::kEvict);
    GMAC_TRY(protectAs(object, index, transition.next));
    // A call that only reads the object may still be running: its copy must not change under it.
    if (const Status flushed = flush(object, range, accel::Ticket{object.lastRead});
        !flushed.ok()) {
      object.strict = true;
      return flushed;
    }
    setState(object, *block, transition.next);
    protocol_->evicted(*block);
    stats().evictions.add();
  }
  return {};
}

// The block that was just opened must not go: whoever faulted would fault again for ever, and a
// hold would be closed.
Status Manager::evictExcessBut(Block& block) {
  ++block.holds;
  const Status status = evictExcess();
  --block.holds;
  return status;
}

// Makes one chunk's pages exist where the accelerator and the CPU reach them. Lets the lock go.
Status Manager::makeReady(Lock& lock, Object& object, std::size_t chunk) {
  if (object.chunks[chunk] == Object::Chunk::kPreparing) {
    waitForChange(lock);
    return {};
  }
  object.chunks[chunk] = Object::Chunk::kPreparing;
  ++object.preparing;
  const auto prepare = [&] {
    const FreeForWork free(lock);
    return object.mirror->prepare(chunk);
  };
  Status status = prepare();
  if (status.code() == adsmErrorHostMemory && giveBackKept(lock)) {
    status = prepare();
  }
  mappingsRefused = false;
  if (status.ok()) {
    status = object.mirror->install(chunk, BlockAccess(object));
    mappingsRefused = status.code() == adsmErrorHostMemory;
  }
  object.chunks[chunk] = status.ok() ? Object::Chunk::kReady : Object::Chunk::kEmpty;
  if (status.ok() && options_.movedPages) {
    object.pieces += kMappingsOfAMovedChunk;
    pieces_ += kMappingsOfAMovedChunk;
  }
  --object.preparing;
  changed();
  return status;
}

// The CPU is about to use a block: its pages are there when this is done.
Result<Manager::Step> Manager::makePagesReady(Lock& lock, Object& object, BlockIndex index) {
  const std::size_t lastChunk = object.chunkOf(object.offsetOf(index + 1) - 1);
  for (std::size_t chunk = object.chunkOf(object.offsetOf(index)); chunk <= lastChunk; ++chunk) {
    if (object.uses[chunk] != Object::Use::kTouched) {
      noteUse(object, chunk, Object::Use::kTouched);
      lastTouched_ = &object;
      if (populator_.joinable()) {
        aheadGeneration_.fetch_add(1);
        aheadGeneration_.notify_one();
      }
    }
    if (object.chunks[chunk] != Object::Chunk::kReady) {
      GMAC_TRY(makeReady(lock, object, chunk));
      return Step::kRetry;
    }
  }
  return Step::kDone;
}

// Whether the CPU gets only a window of an Invalid block, if the protocol opens any. Not where
// mappings are scarce: a window takes as many as two more than its block.
bool Manager::wantsWindow(const Object& object, ByteRange bytes) {
  return object.fitWindow(bytes) &&
         object.windows.wants(BlockIndex{bytes.begin / object.blockBytes}) &&
         (edges_ < kFewEdges || budget_.allows(mappings(), kMappingsOfAChange));
}

Event Manager::eventOf(const Object& object, ByteRange bytes, bool write) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  const State state = object.blocks[static_cast<std::size_t>(index)].state;
  const bool part = isPart(state)              ? object.windowOf(index).contains(bytes)
                    : state == State::kInvalid ? wantsWindow(object, bytes)
                                               : false;
  return part ? (write ? Event::kWritePart : Event::kReadPart)
              : (write ? Event::kWrite : Event::kRead);
}

Result<Manager::Step> Manager::openBlockOnce(Lock& lock, Object& object, ByteRange bytes,
                                             bool write) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  Block& block = object[index];
  if (block.busy) {
    waitForChange(lock);
    return Step::kRetry;
  }
  if (deviceWorkElsewhere() && !object.currentOf(index).contains(bytes)) {
    waitForDeviceWork(lock);
    return Step::kRetry;
  }
  auto ready = makePagesReady(lock, object, index);
  if (!ready.ok() || *ready == Step::kRetry) {
    return ready;
  }
  const Transition transition = protocol_->on(block.state, eventOf(object, bytes, write));
  if (transition.move == Move::kFetch) {
    bool waited = false;
    GMAC_TRY(waitForWriters(lock, object, &waited));
    if (waited) {
      return Step::kRetry;
    }
    if (callsWaiting_ > 0) {
      waitForChange(lock);
      return Step::kRetry;
    }
    BlockRange range{index, index + 1};
    if (isPart(transition.next)) {
      block.window =
          static_cast<std::uint32_t>((bytes.begin - object.offsetOf(index)) / object.windowBytes);
    } else if (isPart(block.state)) {
      if (!write) {
        noteRead(object, index);
      }
    } else {
      if (transition.next == State::kReadOnly) {
        range = readAhead(object, index);
      }
      object.windows.openedWhole(range, index);
    }
    GMAC_TRY(fetch(lock, object, range, transition.next));
    if (isDirty(transition.next)) {
      GMAC_TRY(evictExcessBut(block));
    }
    return Step::kRetry;
  }
  // A write waits for what reads the old bytes: the copy of its own eviction, and device work of
  // the application's own, which later flushes would not wait for as they do for calls.
  accel::Ticket ticket;
  if (isDirty(transition.next) && !isDirty(block.state)) {
    if (!accelerator_.done({block.flushed})) {
      ticket.value = block.flushed;
    }
    if (ticket.value == 0) {
      ticket = ledger_.runningReader();
    }
  }
  if (ticket.value != 0) {
    if (callsWaiting_ > 0) {
      waitForChange(lock);
      return Step::kRetry;
    }
    block.busy = true;
    ++object.busy;
    const Status status = [&] {
      const FreeForWork free(lock);
      const Timed timed(Phase::kCopy);
      return awaitWithinLimit(free, ticket);
    }();
    block.busy = false;
    --object.busy;
    changed();
    GMAC_TRY(status);
    return Step::kRetry;
  }
  // Also when nothing changes: another thread may have been faster, or a protection may have been
  // left stricter than the state by a failure.
  GMAC_TRY(protectAs(object, index, transition.next));
  if (block.state != transition.next) {
    setState(object, block, transition.next);
    GMAC_TRY(evictExcessBut(block));
  }
  return Step::kDone;
}

// openBlockOnce, with the kernel's limit of mappings lifted by coarsening before it is met, or
// where it is.
Result<Manager::Step> Manager::openBlock(Lock& lock, Object& object, ByteRange bytes, bool write) {
  auto room = leaveMappings(lock, kMappingsOfAChange);
  if (!room.ok() || *room == Step::kRetry) {
    return room;
  }
  auto step = openBlockOnce(lock, object, bytes, write);
  if (!step.ok() && outOfMappings(step.status())) {
    // The whole block takes fewer than its window.
    const Event event = eventOf(object, bytes, write);
    if (object[object.indexOf(object.address() + bytes.begin)].state == State::kInvalid &&
        (event == Event::kReadPart || event == Event::kWritePart)) {
      object.windows.refused();
      return Step::kRetry;
    }
    GMAC_TRY(coarsen(lock));
    return Step::kRetry;
  }
  return step;
}

// ---- Faults

// The lock may have been held by a thread that this process does not have: _Fork() and clone() run
// no fork handlers.
void Manager::tellOfFaultInChild(void* address) noexcept {
  const std::unique_lock lock(lock_, std::try_to_lock);
  if (!lock.owns_lock()) {
    log(LogLevel::kError,
        "a child of fork touched {}, where shared objects are: children have no shared objects",
        address);
  } else if (const Object* const object = index_.find(address);
             object != nullptr && !object->closing) {
    log(LogLevel::kError,
        "a child of fork touched shared object {} at {}: children have no shared objects",
        fmt::ptr(object->address()), address);
  }
}

bool Manager::onFault(void* address, bool write) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (!shared_ranges::mayBeShared(address, 1)) {
    return false;
  }
  if (forked()) {
    tellOfFaultInChild(address);
    return false;
  }
  const Timed timed(Phase::kSignal);
  const AccessScope access(address);
  const TraceSpan span("fault", write ? "write fault" : "read fault", {"address", at});
  const auto byteOf = [&](const Object& object) {
    const auto offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(address) - object.address());
    return ByteRange{offset, offset + 1};
  };
  const Walk walk(*this);
  Lock lock(*this);
  bool counted = false;
  for (;;) {
    Object* object = index_.find(address);
    if (object == nullptr || object->closing) {
      return false;
    }
    if (!counted) {
      counted = true;
      (write ? stats().writeFaults : stats().readFaults).add();
    }
    std::byte* const base = object->address();
    auto step = openBlock(lock, *object, byteOf(*object), write);
    if (!step.ok()) {
      object = index_.find(base);
      if (object == nullptr) {
        return false;
      }
      die(*object, object->indexOf(address), write ? "a write fault" : "a read fault");
    }
    if (*step == Step::kDone) {
      idle_.used();
      return true;
    }
    // What was done with the lock let go may have opened the block; the access is the cheapest way
    // to find out, and a state that permits it needs no more work here.
    object = index_.find(address);
    if (object != nullptr && !object->closing &&
        object->usable(byteOf(*object), write ? Intent::kWrite : Intent::kRead)) {
      idle_.used();
      return true;
    }
  }
}

// What waits for a kernel is told that the kernel has crashed; its own part in that is only where
// it was noticed.
void Manager::die(const Object& object, BlockIndex index, const char* operation) noexcept {
  if (const adsmError_t error = lastErrorCode();
      error == adsmErrorKernel || error == adsmErrorAcceleratorLost) {
    log(LogLevel::kError, "{} (noticed by {} that waited for it: object {}, {} bytes, block {})",
        lastErrorText(), operation, fmt::ptr(object.address()), object.bytes(),
        static_cast<std::size_t>(index));
    std::abort();
  }
  log(LogLevel::kError, "object {} ({} bytes), block {}: {} failed: {}", fmt::ptr(object.address()),
      object.bytes(), static_cast<std::size_t>(index), operation, lastErrorText());
  std::abort();
}

}  // namespace gmac
