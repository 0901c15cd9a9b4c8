// SPDX-License-Identifier: Apache-2.0
//
// States, protections, copies to the accelerator, and evictions.
#include "gmac/coherence/blocks.h"

#include <algorithm>
#include <utility>

#include "gmac/observe/stats.h"

namespace gmac {

void Blocks::add(Object& object) {
  if (options_.windowBytes != 0) {
    object.windowBytes = options_.windowBytes;
    object.windows = WindowPolicy(&firstWindows_);
  }
  index_.insert(object);
  mappings_.added(object);
  if (!object.open.empty()) {
    open_.push_back(object);
  }
  protocol_.allocated();
  if (object.blocks[0].state == State::kDirty) {
    for (std::size_t i = 0; i < object.blockCount; ++i) {
      protocol_.becameDirty(object.blocks[i]);
    }
  }
}

void Blocks::remove(Object& object) {
  object.blocks.forEachMade([&](Block& block) {
    if (block.evicted || isDirty(block.state)) {
      protocol_.dropped(block);
    }
    if (isDirty(block.state)) {
      protocol_.leftDirty(block);
    }
  });
  protocol_.freed();
  if (!object.open.empty()) {
    open_.erase(open_.iterator_to(object));
  }
  mappings_.noteEdges(object, 0);
  mappings_.removed(object);
  index_.erase(object);
}

void Blocks::setState(Object& object, Block& block, State next) {
  if (block.state == next) {
    return;
  }
  if (isDirty(block.state) && !isDirty(next)) {
    protocol_.leftDirty(block);
  }
  const BlockIndex index = object.indexOf(block);
  const std::size_t edges = object.edgesAt(index);
  const State before = std::exchange(block.state, next);
  object.blocks.changed(block, before);
  mappings_.noteEdges(object, object.edges - edges + object.edgesAt(index));
  if (isDirty(next) && !isDirty(before)) {
    stats().evictionsWasted.add(block.evicted ? 1 : 0);
    protocol_.becameDirty(block);
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

void Blocks::setOpen(Object& object, BlockRange range) {
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

Status Blocks::protectionChanged(Lock& lock, Object& object, ByteRange bytes, os::Access access,
                                 Status status) {
  if (!status.ok()) {
    object.strict = true;
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
// undetected. (That it may be closed further is what `strict` tells.)
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
  return protect(lock, object, pagesOf(object, index, state), accessOf(state));
}

// Queues copies of dirty blocks to the accelerator, one per chunk, and notes their tickets in the
// blocks. A block that is dirty in part comes alone: its window is copied.
Status Blocks::flush(Object& object, BlockRange range, accel::Ticket after) {
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

Status Blocks::evictExcess(Lock& lock) {
  while (Block* block = protocol_.excess()) {
    Object& object = *block->owner;
    const BlockIndex index = object.indexOf(*block);
    const BlockRange range{index, index + 1};
    const Transition transition = protocol_.on(block->state, Event::kEvict);
    GMAC_TRY(protectAs(lock, object, index, transition.next));
    // A call that only reads the object may still be running: its copy must not change under it.
    if (const Status flushed = flush(object, range, accel::Ticket{object.lastRead});
        !flushed.ok()) {
      object.strict = true;
      return flushed;
    }
    setState(object, *block, transition.next);
    protocol_.evicted(*block);
    stats().evictions.add();
  }
  return {};
}

// The block that was just opened must not go: whoever faulted would fault again for ever, and a
// hold would be closed.
Status Blocks::evictExcessBut(Lock& lock, Block& block) {
  ++block.holds;
  const Status status = evictExcess(lock);
  --block.holds;
  return status;
}

}  // namespace gmac
