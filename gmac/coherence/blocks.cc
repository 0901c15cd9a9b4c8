// SPDX-License-Identifier: Apache-2.0
//
// States, protections, copies to the accelerator, and evictions.
#include "gmac/coherence/blocks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/protocols/describe.h"

namespace gmac {

void Blocks::add(Object& object, const Object* before) {
  if (options_.windowBytes != 0) {
    object.windowBytes = options_.windowBytes;
    object.windows = WindowPolicy(&firstWindows_);
  }
  object.pagePolicy = WindowPolicy(&firstPages_, 2);
  if (options_.opensNeighbours) {
    object.denseUse = DenseUse(object.bytes(), object.blockBytes);
  }
  object.split = SplitPolicy(options_.splitAfter);
  index_.insert(object);
  coherence::notePlacesChanged();
  mappings_.added(object);
  if (!object.open.empty()) {
    open_.push_back(object);
  }
  protocol_.allocated();
  if (object.blocks_[0].state == State::kDirty) {
    for (std::size_t i = 0; i < object.blockCount; ++i) {
      becameDirty(object, object.blocks_.writable(i));
    }
  }
  if (before != nullptr && (before->keptOpen || object.isZeroCopy())) {
    reopen(object, *before);
  }
}

// The pages have their protections already.
void Blocks::reopen(Object& object, const Object& before) {
  if (object.isZeroCopy()) {
    const ReadBackPlaces readBack = object.readBack;
    zeroCopyChanged(object);
    object.readBack = readBack;
    for (BlockIndex i{0}; before.keptOpen && i < object.all().end; i = i + 1) {
      setState(object, i, State::kDirty);
    }
    return;
  }
  for (BlockIndex i = before.open.begin; i < before.open.end; i = i + 1) {
    object.writable(i).window = before[i].window;
    setState(object, i, before[i].state);
  }
}

void Blocks::remove(Object& object) {
  object.blocks_.forEachWritable([&](Block& block) {
    if (!object.isZeroCopy() && (block.evicted || isDirty(block.state))) {
      protocol_.dropped(block);
    }
    if (isDirty(block.state)) {
      leftDirty(object, block);
    }
  });
  protocol_.freed();
  if (!object.open.empty()) {
    OpenList& list = listOf(object);
    list.erase(list.iterator_to(object));
    object.concurrent = false;
  }
  object.watchHook.unlink();
  object.readBackHook.unlink();
  object.roundsHook.unlink();
  object.splitHook.unlink();
  noteZeroCopy();
  mappings_.noteEdges(object, 0);
  mappings_.removed(object);
  index_.erase(object);
  coherence::notePlacesChanged();
}

void Blocks::setState(Object& object, BlockIndex index, State next,
                      std::optional<ZeroCopyPolicy::Nanoseconds> since) {
  Block& block = object.writable(index);
  if (block.state == next) {
    return;
  }
  coherence::notePlacesChanged();
  if (object.concurrent) [[unlikely]] {
    endConcurrent(object);
  }
  if (isDirty(block.state) && !isDirty(next)) {
    leftDirty(object, block);
  }
  const std::size_t edges = object.edgesAt(index);
  const State before = std::exchange(block.state, next);
  object.blocks_.changed(block, before);
  mappings_.noteEdges(object, object.edges - edges + object.edgesAt(index));
  if (isDirty(next) && !isDirty(before)) {
    stats().evictionsWasted.add(block.evicted ? 1 : 0);
    becameDirty(object, block);
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
  if (block.page != 0 && before == State::kInvalid) {
    object.pagePolicy.opened(index);
  } else if (block.page != 0 && next == State::kInvalid) {
    object.pagePolicy.wasEnough(index);
  }
  if (before == State::kInvalid) {
    object.copiedBack.drop(object.bytesOf(index));
  } else if (next == State::kInvalid) {
    object.readBack.closed(index);
    if (object.readBack.repeats()) {
      if (!object.readBackHook.is_linked()) {
        readBacks_.push_back(object);
        anyReadBacks_.store(true, std::memory_order_relaxed);
      }
      if (object.isZeroCopy() && index == object.readBack.first().block()) {
        object.zeroCopy.launched(ledger_.times().now());
      }
    }
    if (isTaken(object, index, before, since)) {
      ++turns_;
      noteRound(object);
    }
  }
  if (isDirty(next)) {
    object.readBack.wrote(index);
  }
  if (next != State::kInvalid) {
    if (object.open.empty()) {
      open_.push_back(object);
    }
    object.widenOpen({index, index + 1});
  }
}

bool Blocks::isTaken(Object& object, BlockIndex index, State before,
                     std::optional<ZeroCopyPolicy::Nanoseconds> since) const {
  if (object.pageRounds == nullptr) {
    if (object.isZeroCopy() || !object.zeroCopy.isFetched()) {
      return false;
    }
    const ZeroCopyPolicy::Nanoseconds now = ledger_.times().now();
    object.zeroCopy.costs(now - since.value_or(now));
    return object.zeroCopy.takesAgain(now);
  }
  const std::size_t bytes = isPart(before) ? object.windowBytes : object.bytesOf(index).length();
  return object.pageRounds->taken(object.offsetOf(index), bytes, ledger_.times().now());
}

void Blocks::noteRound(Object& object) {
  if (!object.roundsHook.is_linked()) {
    rounds_.push_back(object);
    anyReadBacks_.store(true, std::memory_order_relaxed);
  }
}

void Blocks::noteStored(Object& object, BlockIndex index) {
  constexpr std::size_t kMost = std::size_t{64} << 10;
  if (object.isZeroCopy() || object.openOf(index).length() > kMost) {
    return;
  }
  ++turns_;
  if (!countsStored_) {
    return;
  }
  const ZeroCopyPolicy::Nanoseconds now = ledger_.times().now();
  const bool takes = object.pageRounds != nullptr
                         ? object.pageRounds->takenStored(object.offsetOf(index), now)
                         : object.zeroCopy.takesStored(now);
  if (takes) {
    noteRound(object);
  }
}

void Blocks::setOpen(Object& object, BlockRange range) {
  if (object.open.empty() && !range.empty()) {
    open_.push_back(object);
  } else if (!object.open.empty() && range.empty()) {
    open_.erase(open_.iterator_to(object));
    object.windows.closed();
    object.pagePolicy.closed();
    if (object.isZeroCopy()) {
      object.zeroCopy.closed();
    }
  }
  object.open = range;
  // Nothing is open, and what closed it has succeeded.
  object.protectionStale_ = object.protectionStale_ && !range.empty();
}

Status Blocks::protectionChanged(Lock& lock, Object& object, ByteRange bytes, os::Access access,
                                 Status status) {
  if (!status.ok()) {
    object.protectionStale_ = true;
    if (access != os::Access::kNone) {
      closeToStates(object, bytes);
    }
  }
  return lock.mapped(status);
}

Status Blocks::protect(Lock& lock, Object& object, ByteRange bytes, os::Access access) {
  return protectionChanged(lock, object, bytes, access,
                           object.mirror->protect(bytes.begin, bytes.length(), access));
}

// After a failure some of a range may be open further than its states say: a write there would go
// undetected. (That it may be closed further is what `protectionStale_` tells.)
void Blocks::closeToStates(Object& object, ByteRange bytes) {
  const BlockAccess states(object);
  for (std::size_t offset = bytes.begin; offset < bytes.end;) {
    const os::AccessRun run = states.at(offset);
    const std::size_t length = std::min(run.bytes, bytes.end - offset);
    (void)object.mirror->protect(offset, length, run.access);
    offset += length;
  }
}

// Opens a block as far as a state says.
Status Blocks::protectAs(Lock& lock, Object& object, BlockIndex index, State state) {
  return protect(lock, object, openIn(object, {index, index + 1}, state), accessOf(state));
}

// Whether one page alone is opened of bytes that are about to be.
bool Blocks::opensPage(const Object& object, BlockIndex index, ByteRange opened) const {
  constexpr std::size_t kLeastPages = 8;  // of fewer there is little to save
  return options_.opensPages && !object.isZeroCopy() &&
         opened.length() >= kLeastPages * os::pageBytes() &&
         opened.length() <= DenseUse::kPieceBytes && object.pagePolicy.wants(index) &&
         mappings_.allowsOrFew(MappingUse::kOfAChange);
}

// Which one, for an access (Block::page); 0: all.
std::uint8_t Blocks::pageToOpen(const Object& object, BlockIndex index, ByteRange opened,
                                ByteRange bytes) const {
  const std::size_t first = (bytes.begin - opened.begin) / os::pageBytes();
  const std::size_t last = (bytes.end - 1 - opened.begin) / os::pageBytes();
  return first == last && opensPage(object, index, opened) ? static_cast<std::uint8_t>(first + 1)
                                                           : std::uint8_t{0};
}

// The window of an Invalid block. Which page was open is known of the one before.
void Blocks::setWindow(Object& object, BlockIndex index, std::size_t offset) {
  Block& block = object.writable(index);
  const auto window =
      static_cast<std::uint32_t>((offset - object.offsetOf(index)) / object.windowBytes);
  block.page = block.window == window ? block.page : 0;
  block.window = window;
}

void Blocks::setPage(Object& object, BlockRange range, std::uint8_t page) {
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    if (object[i].page == page) {
      continue;
    }
    const std::size_t edges = object.edgesAt(i);
    object.writable(i).page = page;
    mappings_.noteEdges(object, object.edges - edges + object.edgesAt(i));
  }
}

// Calls look for blocks in transit among the open objects only, and a call that is made during the
// transit must wait for it.
void Blocks::step(Object& object, BlockRange range, TransitStep step) {
  if (object.open.empty()) {
    open_.push_back(object);
  }
  object.widenOpen(range);
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    Block& block = object.writable(i);
    const Transit next = after(block.transit, block.holds > 0, step);
    if (next == Transit::kNever) {
      log(LogLevel::kError, "object {}, block {}: {} cannot follow {}", shown(object.address()),
          static_cast<std::size_t>(i), stepName(step), transitName(block.transit));
      std::abort();
    }
    const Transit before = std::exchange(block.transit, next);
    object.inTransit_ += before == Transit::kSettled ? 1 : 0;
    object.inTransit_ -= next == Transit::kSettled ? 1 : 0;
    flushing_ += next == Transit::kFlushing ? 1 : 0;
    flushing_ -= before == Transit::kFlushing ? 1 : 0;
  }
}

// Queues copies to the accelerator, one per chunk; `newest` becomes the ticket of the last that was
// queued. The lock may be let go.
Status Blocks::queueFlush(const Object& object, ByteRange bytes, accel::Ticket after,
                          accel::Ticket* newest) {
  if (object.isZeroCopy()) {
    return {};
  }
  for (std::size_t offset = bytes.begin; offset < bytes.end;) {
    const std::size_t chunkBytes = object.mirror->chunkBytes();
    const std::size_t stop = std::min(bytes.end, (offset / chunkBytes + 1) * chunkBytes);
    const void* const from = object.mirror->copyAddress(offset);
    auto copied = object.spread()
                      ? accelerator_.devices()->copyIn(
                            object.deviceOf(BlockIndex{bytes.begin / object.blockBytes}),
                            object.deviceAt(offset), from, stop - offset, after)
                      : accelerator_.copyIn(object.deviceAt(offset), from, stop - offset, after);
    if (!copied.ok()) {
      return copied.status();
    }
    *newest = *copied;
    stats().flushes.add();
    stats().bytesToAccelerator.add(stop - offset);
    offset = stop;
  }
  return {};
}

// Copies of blocks to the accelerator were queued; perhaps more would have been, but for a failure.
void Blocks::flushed(Object& object, BlockRange range, accel::Ticket newest) {
  ledger_.flushed(newest);
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    // (A flush to another device may have an older number; what it copied has been waited for.)
    if (newest.value != 0) {
      object.writable(i).flushed = newest.value;
    }
  }
}

void Blocks::spread(Object& object, bool all) {
  const auto home = static_cast<std::uint16_t>(1U << object.homeDevice);
  object.zeroSince.reset();
  object.places.assign(object.blockCount, all ? std::uint16_t{0xffff} : home);
  object.copies = home;
}

void Blocks::added(Object& object, BlockRange range, std::size_t device) {
  const auto bit = static_cast<std::uint16_t>(1U << device);
  object.copies |= bit;
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    object.places[static_cast<std::size_t>(i)] |= bit;
  }
}

void Blocks::writes(Object& object, BlockRange range, std::size_t device) {
  std::fill(object.places.begin() + static_cast<std::ptrdiff_t>(range.begin),
            object.places.begin() + static_cast<std::ptrdiff_t>(range.end),
            static_cast<std::uint16_t>(1U << device));
}

void Blocks::sends(Object& object, BlockRange range, std::size_t device) {
  const BlockIndex end = std::min(range.end, object.open.end);
  for (BlockIndex i = std::max(range.begin, object.open.begin); i < end; i = i + 1) {
    if (isDirty(object.made(i) ? object[i].state : object.rest(i))) {
      writes(object, {i, i + 1}, device);
    }
  }
}

// Before dirty blocks that have one target are flushed: the other copies lack what the CPU has
// written.
void Blocks::aimFlush(Object& object, BlockRange range) {
  if (object.spread()) {
    writes(object, range, object.deviceOf(range.begin));
  }
}

// The least window is a page where nothing is copied. What is known of the CPU's rounds is known of
// other windows.
void Blocks::zeroCopyChanged(Object& object) {
  if (options_.windowBytes != 0) {
    object.windowBytes = object.isZeroCopy() ? std::min(options_.windowBytes, os::pageBytes())
                                             : options_.windowBytes;
  }
  object.blocks_.forEachWritable([](Block& block) { block.page = 0; });
  object.zeroSince.reset();
  object.splitHook.unlink();
  object.readBackHook.unlink();
  object.readBack = object.isZeroCopy() ? ReadBackPlaces::ofOneCopy() : ReadBackPlaces();
  object.copiedBack.dropAll();
  object.watchHook.unlink();
  if (object.isZeroCopy()) {
    watched_.push_back(object);
  }
  noteZeroCopy();
}

void Blocks::noteZeroCopy() {
  anyZeroCopy_.store(!concurrent_.empty() || !watched_.empty(), std::memory_order_relaxed);
}

Status Blocks::beginConcurrent(Lock& lock, Object& object, bool first) {
  if (!object.allDirty()) {
    GMAC_TRY(openUnfetched(lock, object, object.all()));
  }
  object.readBackHook.unlink();
  object.readBack.forget();
  object.copiedBack.dropAll();
  object.watchHook.unlink();
  concurrent_.splice(first ? concurrent_.begin() : concurrent_.end(), open_,
                     open_.iterator_to(object));
  object.concurrent = true;
  coherence::notePlacesChanged();  // calls pass over it from here on
  return {};
}

void Blocks::endConcurrent(Object& object) {
  object.concurrent = false;
  object.zeroCopy.watched();
  open_.splice(open_.end(), concurrent_, concurrent_.iterator_to(object));
  watched_.push_back(object);
}

NewestCalls Blocks::flushesOf(const Object& object, BlockRange range) const {
  NewestCalls newest;
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    if (!object.made(i)) {
      i = object.groupEnd(i) - 1;
    } else {
      ledger_.addNewest(newest, {object[i].flushed});
    }
  }
  return newest;
}

void Blocks::moved(Object& object, std::size_t device) {
  object.homeDevice = device;
  object.zeroSince.reset();
  object.places.clear();
  object.copies = 0;
  object.lastWrite = object.lastRead = {};
  object.parts.clear();
  object.forEachMadeBlock(
      [&](const Block& block) { object.writable(object.indexOf(block)).flushed = 0; });
}

// The newest call that only reads the bytes, which may still be running: its copy must not change
// under it. Where such calls run on several devices, copies will follow the others.
Result<accel::Ticket> Blocks::lastReader(const Object& object, ByteRange bytes) {
  accel::Devices* const devices = accelerator_.devices();
  const NewestCalls readers = ledger_.readersOf(object, bytes);
  if (devices == nullptr || !devices->reachEachOther()) {
    return readers[object.deviceOf(BlockIndex{bytes.begin / object.blockBytes})];
  }
  accel::Ticket last;
  for (const accel::Ticket reader : readers) {
    if (reader.value != 0) {
      GMAC_TRY(devices->copiesFollow(last));
      last = reader;
    }
  }
  return last;
}

// Queues copies of closed dirty blocks to the accelerator. A block that is dirty in part comes
// alone: its window is copied.
Status Blocks::flush(Object& object, BlockRange range) {
  accel::Ticket newest;
  aimFlush(object, range);
  const ByteRange bytes = currentIn(object, range, object[range.begin].state);
  const Result<accel::Ticket> reader = lastReader(object, bytes);
  const Status status = reader.ok() ? queueFlush(object, bytes, *reader, &newest) : reader.status();
  flushed(object, range, newest);
  if (!status.ok()) {
    object.protectionStale_ = true;  // still dirty, and closed further than that
  }
  return status;
}

// Flushes dirty blocks of one state, and leaves them open as the next one says, for reading. The
// lock is let go over the system call and the driver's, as in openPages().
Status Blocks::flushPages(Lock& lock, Object& object, BlockRange range, State next) {
  aimFlush(object, range);
  const ByteRange bytes = currentIn(object, range, object[range.begin].state);
  const ByteRange open = openIn(object, range, object[range.begin].state);
  const Result<accel::Ticket> reader = lastReader(object, bytes);
  accel::Ticket newest;
  Status queued;
  step(object, range, TransitStep::kFlush);
  const Status changed = [&]() -> Status {
    const FreeForWork free(lock);
    GMAC_TRY(object.mirror->protect(open.begin, open.length(), accessOf(next)));
    queued = reader.ok() ? queueFlush(object, bytes, *reader, &newest) : reader.status();
    return {};
  }();
  step(object, range, TransitStep::kEnd);
  flushed(object, range, newest);
  lock.changed();
  GMAC_TRY(protectionChanged(lock, object, open, accessOf(next), changed));
  if (!queued.ok()) {
    object.protectionStale_ = true;  // still dirty, and closed further than that
    return queued;
  }
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    setState(object, i, next);
  }
  return {};
}

// A call that waits for blocks in transit will take all dirty ones.
Status Blocks::evictExcess(Lock& lock) {
  while (Block* const block =
             lock.callsWait() || !evicts_ ? nullptr : protocol_.evictionCandidate(flushing_)) {
    Object& object = *block->owner;
    if (object.moving) {
      return {};  // the next fault or call evicts it
    }
    const BlockIndex index = object.indexOf(*block);
    GMAC_TRY(flushPages(lock, object, {index, index + 1},
                        protocol_.on(block->state, Event::kEvict).next));
    protocol_.evicted(*block);
    stats().evictions.add();
  }
  return {};
}

}  // namespace gmac
