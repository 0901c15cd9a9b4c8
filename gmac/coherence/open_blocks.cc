// SPDX-License-Identifier: Apache-2.0
//
// How blocks are opened for the CPU.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "gmac/base/fill_in_pieces.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

// Copies bytes from the accelerator, and waits for that. Their blocks are in transit.
Status Blocks::copyOut(const Free& free, Object& object, ByteRange bytes, accel::Ticket after) {
  const Timed timed(Phase::kCopy);
  const TraceSpan span("copy", "fetch", {"bytes", bytes.length()});
  accel::Ticket ticket;
  const Status queued = queueFetch(object, bytes, after, &ticket);
  // Also after a failure: the copies before it are in flight to pages that the caller may give up.
  const Status copied = waits_.await(free, ticket);
  return queued.ok() ? copied : queued;
}

// Queues copies of bytes from the accelerator, one per chunk; `last` becomes the ticket of the last
// that was queued. Their blocks are in transit.
Status Blocks::queueFetch(Object& object, ByteRange bytes, accel::Ticket after,
                          accel::Ticket* last) {
  if (object.isZeroCopy()) {
    return {};
  }
  const std::size_t end = bytes.end;
  for (std::size_t offset = bytes.begin; offset < end;) {
    const std::size_t chunkBytes = object.mirror->chunkBytes();
    std::size_t stop = std::min(end, (offset / chunkBytes + 1) * chunkBytes);
    void* const to = object.mirror->copyAddress(offset);
    Result<accel::Ticket> copied = accel::Ticket{};
    if (object.spread()) {
      // Block by block: each may come from another device, and has been flushed there.
      const BlockIndex index{offset / object.blockBytes};
      stop = std::min(stop, object.offsetOf(index + 1));
      accel::Devices& devices = *accelerator_.devices();
      const std::size_t source = object.deviceOf(index);
      if (last->value != 0 && devices.deviceOf(*last) != source) {
        GMAC_TRY(accelerator_.wait(*last));
      }
      copied = devices.copyOut(source, to, object.deviceAt(offset), stop - offset,
                               {object[index].flushed});
    } else {
      copied = accelerator_.copyOut(to, object.deviceAt(offset), stop - offset, after);
    }
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

// The same for blocks that come together, with one wait.
Status Blocks::copyOut(const Free& free, Object& object, const Runs& runs, accel::Ticket after) {
  const Timed timed(Phase::kCopy);
  accel::Ticket last;
  Status queued;
  for (std::size_t i = 0; i < runs.size() && queued.ok(); ++i) {
    queued = queueFetch(object, object.bytesOf(runs[i]), after, &last);
  }
  const Status copied = waits_.await(free, last);
  return queued.ok() ? copied : queued;
}

// Whether a copy of bytes was made ahead, and nothing may have written the accelerator's since.
bool Blocks::copiedAhead(const Object& object, ByteRange bytes) const {
  return object.copiedBack.has(bytes) && object.copiedBack.writers == ledger_.newestWriters(object);
}

// And whether it has arrived.
bool Blocks::isCopiedBack(const Object& object, ByteRange bytes) const {
  return copiedAhead(object, bytes) && accelerator_.done(object.copiedBack.ticket) &&
         (!object.isZeroCopy() || (ledger_.writersDone(object) && ledger_.readersDone(object)));
}

bool Blocks::isZero(const Object& object, BlockRange range) const {
  return object.zeroSince && *object.zeroSince == ledger_.newestWriters(object) &&
         object.flushed(range).value == 0;
}

// Whether the CPU makes such bytes zero on its side without a copy: where the pages are new, there
// is nothing to do, and others are cleared unless the app view alone leads there.
bool Blocks::canClear(const Object& object, ByteRange bytes) const {
  std::size_t stale = 0;
  object.forEachStale(bytes, [&](ByteRange part) { stale += part.length(); });
  return stale == 0 ||
         (stale <= options_.mostClearedBytes && object.mirror->runtimeView(0) != nullptr);
}

void Blocks::comes(Object& object, std::size_t offset) {
  if (object.pageRounds != nullptr) {
    object.pageRounds->comes(offset, threadNumber());
  } else {
    object.zeroCopy.fetched();
  }
}

// (Not inlined: the fault path's stack is short.)
[[gnu::noinline]] void Blocks::opened(Object& object, std::size_t offset,
                                      ZeroCopyPolicy::Nanoseconds begun) const {
  if (object.isZeroCopy()) {
    return;
  }
  const ZeroCopyPolicy::Nanoseconds took = ledger_.times().now() - begun;
  object.pageRounds != nullptr ? object.pageRounds->costs(offset, took)
                               : object.zeroCopy.costs(took);
}

void Blocks::stores(Object& object, std::size_t offset) {
  if (object.pageRounds != nullptr) {
    object.pageRounds->stores(offset, threadNumber());
  } else {
    object.zeroCopy.stored();
  }
}

void Blocks::openCopiedBack(Lock& lock, Object& object) {
  object.copiedBack.opens = false;
  for (std::size_t place = 0; place < object.readBack.size(); ++place) {
    if (std::exchange(object.copiedBack.parts[place].opens, false)) {
      openPart(lock, object, place);
    }
  }
}

void Blocks::openPart(Lock& lock, Object& object, std::size_t place) {
  const Object::ReadBack::Part copy = object.copiedBack.parts[place];
  const BlockIndex index{copy.bytes.begin / object.blockBytes};
  if (copy.bytes.empty() || object.closing || object.inTransit() || lock.callsWait() ||
      ledger_.submissionElsewhere() || object[index].state != State::kInvalid ||
      !object.pagesReady(copy.bytes.begin, copy.bytes.length()) ||
      !isCopiedBack(object, copy.bytes) ||
      (copy.write && ledger_.runningReader(object).value != 0)) {
    return;
  }
  const bool part = copy.bytes != object.bytesOf(index);
  if (part ? !wantsWindow(object, copy.bytes) : !mappings_.allows(MappingUse::kOfAChange)) {
    return;
  }
  const Event event = part ? (copy.write ? Event::kWritePart : Event::kReadPart)
                           : (copy.write ? Event::kWrite : Event::kRead);
  const State next = protocol_.on(State::kInvalid, event).next;
  if (part && !isPart(next)) {
    return;
  }
  if (part) {
    setWindow(object, index, copy.bytes.begin);
  }
  // The page for which the CPU came before, if no other one had to be opened then.
  const std::uint8_t page =
      opensPage(object, index, copy.bytes) ? object[index].page : std::uint8_t{0};
  if (object.split.isSplit() && !object.isZeroCopy()) {
    const OfGroup of = groupOf(object, index);
    object.split.opensAhead(of.number(), of.first);
  }
  object.readBack.opened(place);
  comes(object, copy.bytes.begin);
  const ZeroCopyPolicy::Nanoseconds begun = ledger_.times().now();
  (void)openPages(lock, object, {index, index + 1}, next, page);
  opened(object, copy.bytes.begin, begun);
}

// Copies from the accelerator, which must have finished with them, what blocks lack for `next`, and
// opens them so: Invalid ones as a whole, one Invalid block's window, or all but the window of one
// that is open in part. That one's window stays open meanwhile, and what the CPU writes there
// stays.
Status Blocks::fetchAs(Lock& lock, Object& object, BlockRange range, State next,
                       std::uint8_t page) {
  const BlockIndex first = range.begin;
  const ByteRange window = object.windowOf(first);
  std::array<ByteRange, 2> missing{object.bytesOf(range), ByteRange{}};
  if (isPart(next)) {
    missing[0] = window;
  } else if (isPart(object[first].state)) {
    missing = {ByteRange{object.offsetOf(first), window.begin},
               ByteRange{window.end, object.offsetOf(first + 1)}};
  }
  if (std::all_of(missing.begin(), missing.end(),
                  [&](ByteRange bytes) { return bytes.empty() || isCopiedBack(object, bytes); })) {
    return openPages(lock, object, range, next, page);
  }
  // Usually a kernel has run since the blocks were flushed; not if its launch failed.
  const accel::Ticket after = object.flushed(range);
  const bool zero = isZero(object, range);
  step(object, range, TransitStep::kFetch);
  const Status status = [&]() -> Status {
    const FreeForWork free(lock);
    for (const ByteRange bytes : missing) {
      if (zero && canClear(object, bytes)) {
        object.forEachStale(bytes, [&](ByteRange part) {
          fillInPieces(object.mirror->runtimeView(part.begin), 0, part.length());
        });
      } else if (!bytes.empty()) {
        GMAC_TRY(copyOut(free, object, bytes, after));
      }
    }
    return {};
  }();
  if (status.ok()) {
    return openPages(lock, object, range, next, page);
  }
  step(object, range, TransitStep::kEnd);
  lock.changed();
  return status;
}

Status Blocks::fetch(Lock& lock, Object& object, BlockRange range, Event event) {
  return fetchAs(lock, object, range, protocol_.on(object[range.begin].state, event).next);
}

// Neighbours that a call on another part of the object may be writing do not come along, nor do
// those that another device has: it may be gone.
bool Blocks::comesAlong(const Object& object, BlockIndex index, BlockIndex neighbour) const {
  return object.fetchable(neighbour) && sameDevice(object, index, neighbour) &&
         (object.parts.empty() || ledger_.writersDone(object, object.bytesOf(neighbour)));
}

BlockRange Blocks::readAhead(Object& object, BlockIndex index) {
  return object.readRuns.extend(
      index, object.all(), options_.readAheadBytes / object.blockBytes,
      [&](BlockIndex neighbour) { return comesAlong(object, index, neighbour); });
}

// What lies around a block that an access opens, where it is to come along. Nothing is evicted for
// it: blocks that become dirty without a write take no more than what the rolling size leaves.
// (Where blocks were split that does not hold: groupOfSplit().)
BlockRange Blocks::neighbours(Object& object, BlockIndex index, State next) {
  const bool write = isDirty(next);
  if (object.isZeroCopy()) {
    return {index, index + 1};
  }
  BlockRange range = object.denseUse.around(index, write, [&](BlockIndex i) {
    return write ? isDirty(object[i].state) : object[i].state != State::kInvalid;
  });
  if (object.split.isSplit() && range.end - range.begin > 1) {
    object.split.costs(SplitPolicy::kSaved);  // nothing was saved in the end
  }
  const std::size_t most = write ? std::max<std::size_t>(1, protocol_.room()) : SIZE_MAX;
  while (range.end - range.begin > most) {
    const BlockIndex middle = range.begin + (range.end - range.begin) / 2;
    (index < middle ? range.end : range.begin) = middle;
  }
  return range;
}

// Of split blocks: which group a block is of, and whether no other block of it is open, or dirty.
Blocks::OfGroup Blocks::groupOf(const Object& object, BlockIndex index) {
  OfGroup of{.group = object.denseUse.group(index)};
  for (BlockIndex i = of.group.begin; i < of.group.end; i = i + 1) {
    of.first = of.first && (i == index || object[i].state == State::kInvalid);
    of.firstDirty = of.firstDirty && (i == index || !isDirty(object[i].state));
  }
  return of;
}

// The group that an access opens as a whole; empty: it opens no more than others do.
BlockRange Blocks::groupOfSplit(Object& object, BlockIndex index, State next) {
  if (!object.split.isSplit() || object.isZeroCopy()) {
    return {};
  }
  const OfGroup of = groupOf(object, index);
  const bool alone = object.split.opensAlone(of.number(), of.first);
  if (alone && isDirty(next)) {
    object.split.dirties(of.number(), of.firstDirty);
  }
  noteSplit(object);
  return alone ? BlockRange{} : of.group;
}

// Blocks that the CPU overwrites would not have been fetched, however large they were. But each is
// opened and flushed by itself: it costs a fault or so, but for the first of a group.
void Blocks::overwrites(Object& object, BlockRange range) {
  if (!object.split.isSplit() || object.isZeroCopy()) {
    return;
  }
  std::size_t groups = 0;
  for (BlockIndex i = range.begin; i < range.end; ++groups) {
    const BlockRange group = object.denseUse.group(i);
    bool first = true;
    for (BlockIndex j = group.begin; j < i && first; j = j + 1) {
      first = object[j].state == State::kInvalid;
    }
    groups -= first ? 0 : 1;
    i = group.end;
  }
  object.split.costs(range.end - range.begin - groups);
  noteSplit(object);
}

// An access outside the window of a block opens all of it: for a few bytes, perhaps, unless it goes
// on next to the window.
void Blocks::noteOutgrown(Object& object, BlockIndex index, ByteRange bytes) {
  const ByteRange window = object.windowOf(index);
  const bool near = bytes.begin < window.end + object.windowBytes &&
                    window.begin < bytes.end + object.windowBytes;
  if (!near && !object.isZeroCopy() && splits(object)) {
    object.split.outgrown();
    noteSplit(object);
  }
}

void Blocks::noteSplit(Object& object) {
  if (object.split.advice() != SplitPolicy::Advice::kStay && !object.splitHook.is_linked()) {
    toSplit_.push_back(object);
    anyReadBacks_.store(true, std::memory_order_relaxed);
  }
}

// The runs of a range that come along with a block, its own the first.
Blocks::Runs Blocks::runsAround(Object& object, BlockIndex index, BlockRange range) const {
  Runs runs;
  const auto comes = [&](BlockIndex i) { return i == index || comesAlong(object, index, i); };
  BlockRange own{index, index + 1};
  while (own.begin > range.begin && comes(own.begin - 1)) {
    own.begin = own.begin - 1;
  }
  while (own.end < range.end && comes(own.end)) {
    own.end = own.end + 1;
  }
  runs.add(own);
  const auto addRuns = [&](BlockIndex i, BlockIndex end) {
    while (i < end && !runs.full()) {
      BlockIndex stop = i;
      while (stop < end && comes(stop)) {
        stop = stop + 1;
      }
      if (i < stop) {
        runs.add({i, stop});
      }
      i = stop + 1;
    }
  };
  addRuns(own.end, range.end);
  addRuns(range.begin, own.begin);
  return runs;
}

// Fetches an Invalid block and those of a range that come along, with one wait for all copies, and
// opens them. The block itself is opened last: until then it is in transit, and nobody evicts it.
[[gnu::noinline]] Status Blocks::fetchNeighbours(Lock& lock, Object& object, BlockIndex index,
                                                 BlockRange range, State next) {
  const Runs runs = runsAround(object, index, range);
  accel::Ticket after;
  for (const BlockRange run : runs) {
    after.value = std::max(after.value, object.flushed(run).value);
    step(object, run, TransitStep::kFetch);
  }
  Status status = [&] {
    const FreeForWork free(lock);
    return copyOut(free, object, runs, after);
  }();
  for (std::size_t left = runs.size(); left > 0; --left) {
    const BlockRange run = runs[left - 1];
    if (status.ok()) {
      status = openPages(lock, object, run, next);
    } else {
      step(object, run, TransitStep::kEnd);
    }
  }
  lock.changed();
  return status;
}

// Not where mappings are scarce: a window takes as many as two more than its block.
bool Blocks::wantsWindow(const Object& object, ByteRange bytes) {
  return object.fitWindow(bytes) &&
         object.windows.wants(BlockIndex{bytes.begin / object.blockBytes}) &&
         mappings_.allowsOrFew(MappingUse::kOfAChange);
}

Event Blocks::eventOf(const Object& object, ByteRange bytes, Intent intent) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  const bool write = intent == Intent::kWrite;
  const State state = object[index].state;
  const bool part = isPart(state)              ? object.windowOf(index).contains(bytes)
                    : state == State::kInvalid ? wantsWindow(object, bytes)
                                               : false;
  return part ? (write ? Event::kWritePart : Event::kReadPart)
              : (write ? Event::kWrite : Event::kRead);
}

// (Not inlined: an access that waits for kernels, and tells of their crash, needs its stack.)
[[gnu::noinline]] Result<bool> Blocks::refusePart(Lock& lock, Object& object, ByteRange bytes,
                                                  Intent intent) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  const Block& block = object[index];
  if (block.state != State::kInvalid) {
    const bool suffices =
        object.openOf(index).contains(bytes) && (intent == Intent::kRead || isDirty(block.state));
    if (!block.openInPart() || !block.idle() || suffices) {
      return false;
    }
    if (block.page != 0) {
      GMAC_TRY(closePage(lock, object, index));
    } else {
      object.windows.outgrown(index);
      GMAC_TRY(closePart(lock, object, index));
    }
    return true;
  }
  const Event event = eventOf(object, bytes, intent);
  if (event == Event::kReadPart || event == Event::kWritePart) {
    object.windows.refused();
    return true;
  }
  const ByteRange opened = object.currentIn(index, protocol_.on(block.state, event).next);
  if (pageToOpen(object, index, opened, bytes) == 0) {
    return false;
  }
  object.pagePolicy.refused();
  return true;
}

// The bytes must be fetched before they are opened. (Inlined, as it waits for kernels, and tells of
// their crash, on the stack on which the access has faulted.)
[[gnu::always_inline]] inline Result<Step> Blocks::fetchToOpen(Lock& lock, Object& object,
                                                               ByteRange bytes, Intent intent,
                                                               State next) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  const Block& block = object[index];
  bool waited = false;
  GMAC_TRY(waits_.forWriters(lock, object, object.bytesOf(index), &waited));
  // (The flush of what is written next waits for no launch that reads the device's bytes.)
  if (!waited && intent == Intent::kWrite) {
    GMAC_TRY(waits_.forWork(lock, ledger_.runningReader(object), &waited));
  }
  if (waited) {
    return Step::kRetry;
  }
  if (lock.callsWait()) {
    lock.waitForChange();
    return Step::kRetry;
  }
  BlockRange range{index, index + 1};
  BlockRange around = range;
  if (isPart(next)) {
    setWindow(object, index, bytes.begin);
  } else if (isPart(block.state)) {
    if (intent == Intent::kRead) {
      object.readRuns.note(index);
    }
    noteOutgrown(object, index, bytes);
  } else {
    const BlockRange group = groupOfSplit(object, index, next);
    if (!group.empty()) {
      around = group;
    } else {
      if (next == State::kReadOnly) {
        range = readAhead(object, index);
      }
      if (range.end - range.begin == 1) {
        around = neighbours(object, index, next);
      }
    }
    // (What is known of windows of large blocks is for when there are some again.)
    if (!object.split.isSplit()) {
      object.windows.openedWhole(range, index);
    }
  }
  std::uint8_t page = 0;
  if (block.state == State::kInvalid) {
    object.comers.comes(threadNumber());
    const ByteRange opened = object.currentIn(index, next);
    if (around.end - around.begin == 1 && range.end - range.begin == 1) {
      page = pageToOpen(object, index, opened, bytes);
    }
    if (page == 0) {
      object.pagePolicy.openedWhole(around.end - around.begin > 1 ? around : range, index);
    }
    object.readBack.fetched(index, opened, object.isZeroCopy() || copiedAhead(object, opened));
    comes(object, bytes.begin);
  }
  const ZeroCopyPolicy::Nanoseconds begun = ledger_.times().now();
  if (around.end - around.begin > 1) {
    GMAC_TRY(fetchNeighbours(lock, object, index, around, next));
  } else {
    GMAC_TRY(fetchAs(lock, object, range, next, page));
  }
  opened(object, bytes.begin, begun);
  return Step::kOpened;
}

// A write waits for what reads the old bytes: the copy of its own eviction, and device work of the
// application's own, which later flushes would not wait for as they do for calls. kDone: nothing
// reads them.
Result<Step> Blocks::awaitOldBytes(Lock& lock, Object& object, BlockIndex index) {
  const Block& block = object[index];
  accel::Ticket ticket;
  if (!accelerator_.done({block.flushed})) {
    ticket.value = block.flushed;
  }
  if (ticket.value == 0) {
    ticket = ledger_.runningReader(object);
  }
  if (ticket.value == 0) {
    return Step::kDone;
  }
  if (lock.callsWait()) {
    lock.waitForChange();
    return Step::kRetry;
  }
  lock.waitsForWork(ledger_.times().now(), ledger_.newestWork());
  step(object, {index, index + 1}, TransitStep::kAwait);
  const Status status = [&] {
    const FreeForWork free(lock);
    const Timed timed(Phase::kCopy);
    return waits_.awaitWithinLimit(free, ticket);
  }();
  step(object, {index, index + 1}, TransitStep::kEnd);
  lock.changed();
  GMAC_TRY(status);
  return Step::kRetry;
}

// Of a block that has the bytes, which nothing reads any more where they are written. (Not inlined:
// an access that waits for kernels, and tells of their crash, needs its stack.)
[[gnu::noinline]] Result<Step> Blocks::openCurrent(Lock& lock, Object& object, ByteRange bytes,
                                                   State next) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  const Block& block = object[index];
  const bool suffices = object.openOf(index).contains(bytes);
  if ((block.state != next || !suffices) && lock.callsWait()) {
    lock.waitForChange();
    return Step::kRetry;
  }
  // (From here on the lock is not let go before the pages are open, or the block is in transit.)
  if (block.state == next && suffices) {
    // Another thread has been faster, or a failure has left the protection stricter than the state.
    GMAC_TRY(protectAs(lock, object, index, next));
    return Step::kDone;
  }
  if (isDirty(next) && !isDirty(block.state) && object.split.isSplit() && !object.isZeroCopy()) {
    const OfGroup of = groupOf(object, index);
    object.split.dirties(of.number(), of.firstDirty);
    noteSplit(object);
  }
  if (countsStored_ && isDirty(next) && !isDirty(block.state)) {
    stores(object, bytes.begin);
  }
  // If the page that is open is not enough, all are to be.
  const ZeroCopyPolicy::Nanoseconds begun = ledger_.times().now();
  GMAC_TRY(openPages(lock, object, {index, index + 1}, next, suffices ? block.page : 0));
  opened(object, bytes.begin, begun);
  return Step::kOpened;
}

Result<Step> Blocks::open(Lock& lock, Object& object, ByteRange bytes, Intent intent) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  const Block& block = object[index];
  if (!block.settled()) {
    lock.waitForChange();
    return Step::kRetry;
  }
  if (ledger_.submissionElsewhere() && !object.currentOf(index).contains(bytes)) {
    waits_.forSubmission(lock);
    return Step::kRetry;
  }
  if (object.moving) {
    lock.waitForChange();
    return Step::kRetry;
  }
  auto ready = residency_.makeReady(lock, object, index);
  if (!ready.ok() || *ready == Step::kRetry) {
    return ready;
  }
  const Transition transition = protocol_.on(block.state, eventOf(object, bytes, intent));
  const bool becomesDirty = isDirty(transition.next) && !isDirty(block.state);
  if (object.isZeroCopy() && becomesDirty) {
    const Result<Step> step = awaitReaders(lock, object, object.bytesOf(index));
    if (!step.ok() || *step == Step::kRetry) {
      return step;
    }
  }
  if (transition.move == Move::kFetch) {
    return fetchToOpen(lock, object, bytes, intent, transition.next);
  }
  if (becomesDirty) {
    const Result<Step> step = awaitOldBytes(lock, object, index);
    if (!step.ok() || *step == Step::kRetry) {
      return step;
    }
  }
  return openCurrent(lock, object, bytes, transition.next);
}

// Opens blocks that have their bytes. The lock is let go meanwhile: the system call is most of what
// a fault takes, and threads that fault elsewhere would wait for each other's. Evicts what becomes
// too much; these blocks stay, since they are in transit until then: whoever faulted would fault
// again for ever.
Status Blocks::openPages(Lock& lock, Object& object, BlockRange range, State next,
                         std::uint8_t page) {
  if (isDirty(next)) {
    object.zeroCopy.opensInOrder();  // it has waited for readers, too
  }
  const Block& first = object[range.begin];
  const std::uint8_t before = first.page;
  const bool outgrown = before != 0 && page == 0 && first.state != State::kInvalid;
  const bool dirties = isDirty(next) && !isDirty(first.state);
  setPage(object, range, page);
  const ByteRange pages = openIn(object, range, next);
  step(object, range, TransitStep::kOpen);
  const Status changed = [&] {
    const FreeForWork free(lock);
    return object.mirror->protect(pages.begin, pages.length(), accessOf(next));
  }();
  if (!changed.ok() && range.end - range.begin == 1) {
    setPage(object, range, before);
  } else if (changed.ok() && outgrown) {
    object.pagePolicy.outgrown(range.begin);
  }
  Status status = protectionChanged(lock, object, pages, accessOf(next), changed);
  if (status.ok()) {
    for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
      setState(object, i, next);
    }
    if (dirties) {
      status = evictExcess(lock);
    }
  }
  step(object, range, TransitStep::kEnd);
  lock.changed();
  return status;
}

// Kernels that only read bytes read the CPU's: a write waits for them.
Result<Step> Blocks::awaitReaders(Lock& lock, Object& object, ByteRange bytes) {
  bool waited = false;
  GMAC_TRY(waits_.forWork(lock, ledger_.readersOf(object, bytes), &waited));
  if (!waited) {
    GMAC_TRY(waits_.forWork(lock, ledger_.runningReader(object), &waited));
  }
  return waited ? Step::kRetry : Step::kDone;
}

Result<Step> Blocks::openUnfetched(Lock& lock, Object& object, BlockIndex index) {
  const Block& block = object[index];
  if (!block.settled()) {
    lock.waitForChange();
    return Step::kRetry;
  }
  if (ledger_.submissionElsewhere()) {
    waits_.forSubmission(lock);
    return Step::kRetry;
  }
  if (object.moving) {
    lock.waitForChange();
    return Step::kRetry;
  }
  auto ready = residency_.makeReady(lock, object, index);
  if (!ready.ok() || *ready == Step::kRetry) {
    return ready;
  }
  // Work that would still write the block on the accelerator, or reads the pages or, in device work
  // that later flushes do not wait for, the old bytes.
  bool waited = false;
  GMAC_TRY(waits_.forWriters(lock, object, object.bytesOf(index), &waited));
  if (!waited) {
    GMAC_TRY(waits_.forWork(lock, accel::Ticket{block.flushed}, &waited));
  }
  if (!waited) {
    GMAC_TRY(waits_.forWork(lock, ledger_.runningReader(object), &waited));
  }
  if (waited) {
    return Step::kRetry;
  }
  if (object.isZeroCopy()) {
    const Result<Step> step = awaitReaders(lock, object, object.bytesOf(index));
    if (!step.ok() || *step == Step::kRetry) {
      return step;
    }
  }
  if (lock.callsWait()) {
    lock.waitForChange();
    return Step::kRetry;
  }
  overwrites(object, {index, index + 1});
  GMAC_TRY(
      openPages(lock, object, {index, index + 1}, protocol_.on(block.state, Event::kWrite).next));
  return Step::kOpened;
}

Status Blocks::openUnfetched(Lock& lock, Object& object, BlockRange range) {
  overwrites(object, range);
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    if (object[i].page != 0 && object[i].state != State::kInvalid) {
      object.pagePolicy.outgrown(i);
    }
  }
  setPage(object, range, 0);
  GMAC_TRY(protect(lock, object, range, os::Access::kReadWrite));
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    setState(object, i, protocol_.on(object[i].state, Event::kWrite).next);
  }
  return {};
}

}  // namespace gmac
