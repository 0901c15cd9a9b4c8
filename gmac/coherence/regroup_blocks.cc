// SPDX-License-Identifier: Apache-2.0
//
// How blocks are joined to larger ones, and split.
#include <algorithm>
#include <new>
#include <utility>

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"

namespace gmac {

Status Blocks::join(Lock& lock, Object& object, std::size_t factor) {
  const Lock::Quiet quiet(lock);  // the whole object is in transit until the end
  // Closing the whole object never splits a mapping, and frees those that its blocks have taken.
  GMAC_TRY(protect(lock, object, object.all(), os::Access::kNone));
  object.protectionStale_ = true;
  // (Where a page alone was open, all of it is to be: no access has outgrown it.)
  object.blocks_.forEachWritable([&](Block& block) { block.page = 0; });
  object.pagePolicy.restart();
  mappings_.noteEdges(object, object.countEdges());
  GMAC_TRY(closeParts(lock, object));
  const BlockRange parts = object.all();
  step(object, parts, TransitStep::kFetch);
  Status status = fetchForJoin(lock, object, factor);
  step(object, parts, TransitStep::kEnd);
  if (status.ok()) {
    joinStates(object, factor);
  }
  // Reopen what the (old or new) blocks allow; a block that is left too strict is opened by its
  // next fault.
  object.protectionStale_ = !status.ok();
  for (BlockIndex i = object.all().begin; i < object.all().end;) {
    const os::Access access = accessOf(object[i].state);
    BlockIndex end = i + 1;
    while (end < object.all().end && accessOf(object[end].state) == access) {
      end = end + 1;
    }
    if (access != os::Access::kNone && status.ok()) {
      status = protect(lock, object, {i, end}, access);
      if (lock.outOfMappings(status)) {
        status = Status();
        break;
      }
    }
    i = end;
  }
  lock.changed();
  return status;
}

// A group whose CPU copy is current in part is made current as a whole. All blocks are in transit.
Status Blocks::fetchForJoin(Lock& lock, Object& object, std::size_t factor) {
  const auto missing = [&](const auto& visit) -> Status {
    for (BlockIndex i = object.all().begin; i < object.all().end;) {
      const BlockIndex end = std::min(i + factor, object.all().end);
      bool current = false;
      for (BlockIndex j = i; j < end; j = j + 1) {
        current = current || object[j].state != State::kInvalid;
      }
      while (current && i < end) {
        BlockIndex next = i;
        while (next < end && object[next].state == State::kInvalid) {
          next = next + 1;
        }
        if (i < next) {
          GMAC_TRY(visit(BlockRange{i, next}));
        }
        i = next + 1;
      }
      i = end;
    }
    return {};
  };
  bool fetches = false;
  (void)missing([&](BlockRange) -> Status {
    fetches = true;
    return {};
  });
  if (!fetches) {
    return {};
  }
  for (bool waited = true; waited;) {
    waited = false;
    GMAC_TRY(waits_.forWriters(lock, object, &waited));
  }
  GMAC_TRY(missing([&](BlockRange run) { return residency_.populate(lock, object, run); }));
  GMAC_TRY([&]() -> Status {
    const FreeForWork free(lock);
    const Timed timed(Phase::kCopy);
    accel::Ticket last;
    const Status queued = missing([&](BlockRange run) {
      return queueFetch(object, object.bytesOf(run), object.flushed(run), &last);
    });
    const Status copied = waits_.await(free, last);
    return queued.ok() ? copied : queued;
  }());
  return missing([&](BlockRange run) -> Status {
    for (BlockIndex i = run.begin; i < run.end; i = i + 1) {
      setState(object, i, State::kReadOnly);
    }
    return {};
  });
}

// The blocks of a group are all Invalid, or all current on the CPU.
void Blocks::joinStates(Object& object, std::size_t factor) {
  const std::size_t newCount = (object.blockCount + factor - 1) / factor;
  coherence::notePlacesChanged();
  for (std::size_t group = 0; group < newCount; ++group) {
    const BlockIndex end{std::min((group + 1) * factor, object.blockCount)};
    State state = State::kInvalid;
    std::uint64_t flushed = 0;
    for (BlockIndex i{group * factor}; i < end; i = i + 1) {
      Block& block = object.writable(i);
      flushed = std::max(flushed, block.flushed);
      state = std::max(state, block.state);  // Invalid < ReadOnly < Dirty
      if (block.evicted || block.state == State::kDirty) {
        protocol_.released(block);  // what is known of its parts says little of the whole
      }
      if (block.state == State::kDirty) {
        leftDirty(object, block);
      }
      block.state = State::kInvalid;
      block.flushed = 0;
    }
    Block& joined = object.blocks_.writable(group);
    joined.flushed = flushed;
    joined.state = state;
    if (state == State::kDirty) {
      becameDirty(object, joined);
    }
  }
  object.blockBytes *= factor;
  object.blockCount = newCount;
  object.blocks_.shrink(newCount);
  mappings_.noteEdges(object, object.countEdges());
  object.readRuns = {};
  object.denseUse = {};
  object.windows.restart();
  object.pagePolicy.restart();
  object.split.joined();
  object.readBack.forget();
  object.copiedBack.dropAll();
  if (!object.open.empty()) {
    object.open = object.all();
  }
}

void Blocks::split(Object& object) {
  const std::size_t before = object.blockBytes;
  if (regroup(object, options_.windowBytes)) {
    object.split.split(before);
    stats().splits.add();
  }
}

void Blocks::unsplit(Object& object) {
  if (regroup(object, object.split.before())) {
    object.split.joined();
  }
}

// False: there is no memory for it. (Whether the accelerator's bytes are still zero was known by
// flushes of the blocks.)
bool Blocks::regroup(Object& object, std::size_t blockBytes) {
  const std::size_t count = (object.bytes() + blockBytes - 1) / blockBytes;
  try {
    DenseUse denseUse(object.bytes(), blockBytes);
    object.blocks_.remake(count);
    object.denseUse = std::move(denseUse);
  } catch (const std::bad_alloc&) {
    return false;
  }
  coherence::notePlacesChanged();
  object.blockBytes = blockBytes;
  object.blockCount = count;
  object.zeroSince.reset();
  object.readRuns = {};
  object.pagePolicy.restart();
  object.readBack.forget();
  object.copiedBack.dropAll();
  mappings_.noteEdges(object, 0);
  return true;
}

}  // namespace gmac
