// SPDX-License-Identifier: Apache-2.0
//
// How blocks are given to the accelerator.
#include <algorithm>
#include <array>
#include <optional>

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/trace.h"

namespace gmac {

// Closes all that is open of a range. Where that is a few windows, closing those alone costs less
// than going over all pages of the range. After a failure pages may be open of which no state
// tells.
Status Blocks::closePages(Lock& lock, Object& object, BlockRange range) {
  constexpr std::size_t kFewWindows = 4;
  std::array<BlockIndex, kFewWindows> found;
  std::size_t count = 0;
  bool windowsOnly = !object.protectionStale_;
  for (BlockIndex i = range.begin; i < range.end && windowsOnly;) {
    if (object.groupClosed(i)) {
      i = object.groupEnd(i);
      continue;
    }
    const State state = object.made(i) ? object[i].state : object.rest(i);
    if (object.made(i) && object[i].openInPart() && count < kFewWindows) {
      found[count++] = i;
    } else {
      windowsOnly = state == State::kInvalid;
    }
    i = i + 1;
  }
  if (!windowsOnly) {
    return protect(lock, object, range, os::Access::kNone);
  }
  for (std::size_t i = 0; i < count; ++i) {
    GMAC_TRY(protect(lock, object, object.openOf(found[i]), os::Access::kNone));
  }
  return {};
}

// A call takes as long as blocks are open, not as long as there are blocks: groups that are closed,
// or that have never been used, are looked at once. Whether all blocks of a block's group stay as
// they are.
bool Blocks::groupStays(const Object& object, BlockIndex index, Event event) const {
  return object.groupClosed(index) ||
         (!object.made(index) &&
          protocol_.on(object.rest(index), event) == Transition{Move::kNone, object.rest(index)});
}

Status Blocks::close(Lock& lock, Object& object, BlockRange range, Event event,
                     accel::Ticket* stillOpen) {
  range = {std::max(range.begin, object.open.begin), std::min(range.end, object.open.end)};
  if (range.empty()) {
    return {};
  }
  // (Only what the CPU has come for may be a round.)
  const auto since =
      object.zeroCopy.isFetched() ? std::optional(ledger_.times().now()) : std::nullopt;
  const bool closesAll = protocol_.on(State::kDirty, event).next == State::kInvalid;
  if (closesAll) {
    Status closed = closePages(lock, object, range);
    if (!closed.ok() && lock.outOfMappings(closed) && range.begin <= object.open.begin &&
        range.end >= object.open.end) {
      // Closing the whole object never splits a mapping.
      closed = protect(lock, object, object.all(), os::Access::kNone);
    }
    GMAC_TRY(closed);
  } else {
    GMAC_TRY(narrowPages(lock, object, range, event));
  }
  for (BlockIndex i = range.begin; i < range.end;) {
    if (groupStays(object, i, event)) {
      i = object.groupEnd(i);
      continue;
    }
    if (!object.made(i) && i == object.groupBegin(i) && object.groupEnd(i) <= range.end) {
      const Transition transition = protocol_.on(object.rest(i), event);
      if (transition.move == Move::kNone) {
        coherence::notePlacesChanged();
        object.blocks_.setRest(static_cast<std::size_t>(i), transition.next);
        i = object.groupEnd(i);
        continue;
      }
    }
    const Transition transition = protocol_.on(object[i].state, event);
    BlockIndex end = i + 1;
    while (!isPart(object[i].state) && end < range.end && object.made(end) &&
           protocol_.on(object[end].state, event) == transition &&
           object[end].state == object[i].state && sameDevice(object, i, end)) {
      end = end + 1;
    }
    if (transition.move == Move::kFlush) {
      GMAC_TRY(flush(object, {i, end}));
      if (isDirty(transition.next)) {
        stillOpen->value = std::max(stillOpen->value, object[i].flushed);
      }
    }
    for (; i < end; i = i + 1) {
      if (object[i].evicted || isDirty(object[i].state)) {
        protocol_.released(object.writable(i));
      }
      if (isDirty(object[i].state) && !isDirty(transition.next) &&
          transition.next != State::kInvalid) {
        noteStored(object, i);
      }
      setState(object, i, transition.next, since);
    }
  }
  if (closesAll) {
    closedAll(object, range);
  }
  return {};
}

// One protection change for each run of neighbours whose next states allow the same; none for what
// is protected so already.
Status Blocks::narrowPages(Lock& lock, Object& object, BlockRange range, Event event) {
  const auto nextAccess = [&](BlockIndex i) {
    return accessOf(protocol_.on(object[i].state, event).next);
  };
  for (BlockIndex i = range.begin; i < range.end;) {
    if (groupStays(object, i, event)) {
      i = object.groupEnd(i);
      continue;
    }
    const os::Access access = nextAccess(i);
    BlockIndex end = i + 1;
    if (access != accessOf(object[i].state)) {
      while (!object[i].openInPart() && end < range.end && !groupStays(object, end, event) &&
             !object[end].openInPart() && nextAccess(end) == access) {
        end = end + 1;
      }
      GMAC_TRY(protect(lock, object, openIn(object, {i, end}, object[i].state), access));
    }
    i = end;
  }
  return {};
}

// The blocks of a range are Invalid: perhaps that is all that was open.
void Blocks::closedAll(Object& object, BlockRange range) {
  if (!object.open.empty() && range.begin <= object.open.begin && range.end >= object.open.end) {
    setOpen(object, {});
  }
}

Status Blocks::closeForOverwriting(Lock& lock, Object& object, BlockRange range) {
  BlockRange open{range.end, range.begin};
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    if (object[i].state != State::kInvalid || object.protectionStale_) {
      open = {std::min(open.begin, i), i + 1};
    }
  }
  return open.empty() ? Status() : protect(lock, object, open, os::Access::kNone);
}

void Blocks::overwritten(Object& object, BlockIndex index, bool covered) {
  Block& block = object.writable(index);
  if (!object.isZeroCopy() && (block.evicted || isDirty(block.state))) {
    covered ? protocol_.dropped(block) : protocol_.released(block);
  }
  setState(object, index, protocol_.on(block.state, Event::kCall).next);
}

// The page of a block that is open, which is not enough: all that the CPU has of the block is
// opened next, without a copy.
Status Blocks::closePage(Lock& lock, Object& object, BlockIndex index) {
  GMAC_TRY(protect(lock, object, object.openOf(index), os::Access::kNone));
  object.protectionStale_ = true;
  object.pagePolicy.outgrown(index);
  object.pagePolicy.refused();
  setPage(object, {index, index + 1}, 0);
  return {};
}

// No other part is opened in this object for some time. (The accelerator's copy is the only one
// that is current outside a window.)
Status Blocks::closePart(Lock& lock, Object& object, BlockIndex index) {
  accel::Ticket stillOpen;
  const bool window = isPart(object[index].state);
  const bool page = object[index].page != 0;
  GMAC_TRY(close(lock, object, {index, index + 1}, Event::kCall, &stillOpen));
  if (window) {
    object.windows.refused();
  }
  if (page) {
    object.pagePolicy.refused();
  }
  return {};
}

Status Blocks::closeParts(Lock& lock, Object& object) {
  for (BlockIndex i = object.open.begin; i < object.open.end;) {
    if (object.groupClosed(i) || !object.made(i)) {
      i = object.groupEnd(i);
      continue;
    }
    if (object[i].openInPart()) {
      GMAC_TRY(closePart(lock, object, i));
    }
    i = i + 1;
  }
  return {};
}

bool Blocks::writesBackAhead() const {
  const Transition ahead = protocol_.on(State::kDirty, Event::kCallRead);
  return ahead.move == Move::kFlush && ahead.next != State::kDirty;
}

// One protection change and one copy (per chunk) for each run of dirty blocks, and for each window.
// It is what a call that only reads would do to the blocks, without the call: the protocol's own
// edge, so that it leaves no state that the protocol does not know.
Status Blocks::writeBack(Lock& lock, Object& object, BlockRange range) {
  range = {std::max(range.begin, object.open.begin), std::min(range.end, object.open.end)};
  const auto flushable = [&](BlockIndex i) {
    return object.made(i) && isDirty(object[i].state) && object[i].idle();
  };
  // (A call that waits for blocks in transit will take all dirty ones.)
  for (BlockIndex i = range.begin;
       i < range.end && !object.closing && !object.moving && !lock.callsWait();) {
    if (!flushable(i)) {
      i = object.groupClosed(i) || !object.made(i) ? object.groupEnd(i) : i + 1;
      continue;
    }
    const State state = object[i].state;
    BlockIndex end = i + 1;
    while (!object[i].openInPart() && end < range.end && flushable(end) &&
           !object[end].openInPart() && object[end].state == state && sameDevice(object, i, end)) {
      end = end + 1;
    }
    if (!mappings_.allows(MappingUse::kOfAChange)) {
      return {};
    }
    const TraceSpan span("copy", "early flush",
                         {"bytes", currentIn(object, {i, end}, state).length()});
    GMAC_TRY(flushPages(lock, object, {i, end}, protocol_.on(state, Event::kCallRead).next));
    i = end;
  }
  return {};
}

}  // namespace gmac
