// SPDX-License-Identifier: Apache-2.0
//
// Coarsening: what the manager does before the kernel has no mappings left for the program, and
// where it has none.
#include <algorithm>
#include <utility>

#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"

namespace gmac {
namespace {

// By how much coarsening grows the blocks of an object.
constexpr std::size_t kCoarsenFactor = 16;

}  // namespace

void Manager::noteEdges(Object& object, std::size_t edges) {
  if (edges > object.edges) {
    budget_.taken();
  }
  edges_ = edges_ - object.edges + edges;
  object.edges = edges;
}

// Before blocks are opened one by one, or an object is made: joins blocks of the object that has
// the most mappings where the objects would otherwise take those that are the program's. Waits for
// no kernel: an object that one may write is passed over, and so is one that others are using.
// kDone also where nothing can be joined.
Result<Manager::Step> Manager::leaveMappings(Lock& lock, std::size_t more) {
  if (edges_ < kFewEdges || budget_.allows(mappings(), more) ||
      (nothingToJoinAt_ && edges_ < *nothingToJoinAt_ + kFewEdges &&
       edges_ + kFewEdges > *nothingToJoinAt_)) {
    return Step::kDone;
  }
  Object* most = nullptr;
  for (Object& object : index_.all()) {
    if (!object.closing && object.busy == 0 && object.holds == 0 && object.preparing == 0 &&
        object.edges >= (most == nullptr ? kFewEdges : most->edges + 1) &&
        ledger_.writersDone(object)) {
      most = &object;
    }
  }
  if (most == nullptr) {
    nothingToJoinAt_ = edges_;
    return Step::kDone;
  }
  nothingToJoinAt_.reset();
  // Windows go first: their blocks are opened as a whole then.
  const std::size_t edges = most->edges;
  GMAC_TRY(closeWindows(*most));
  if (most->edges < edges) {
    return Step::kRetry;
  }
  GMAC_TRY(coarsen(lock, *most, kCoarsenFactor));
  return Step::kRetry;
}

Status Manager::leaveMappingsForObject() {
  Lock lock(*this);
  for (;;) {
    auto room = leaveMappings(lock, mappingsOfAnObject());
    if (!room.ok()) {
      return room.status();
    }
    if (*room == Step::kDone) {
      break;
    }
  }
  if (!budget_.allows(mappings(), mappingsOfAnObject())) {
    closeWindows();
  }
  if (budget_.allows(mappings(), mappingsOfAnObject())) {
    return {};
  }
  return fail(adsmErrorHostMemory,
              "adsmAlloc: {} objects have about {} of this process's {} memory mappings; {} of the "
              "{} that vm.max_map_count allows stay free for the program. Larger objects need no "
              "more mappings than small ones",
              index_.count(), mappings(), budget_.estimate(mappings()), budget_.reserve(),
              budget_.limit());
}

// The kernel's limit of mappings is reached: grows the blocks of the object that has the most of
// them.
Status Manager::coarsen(Lock& lock) {
  if (giveBackKept(lock)) {
    return {};  // the caller tries again with the mappings that this has freed
  }
  Object* most = nullptr;
  bool later = false;
  const auto has = [](const Object& object) { return std::pair(object.edges, object.blockCount); };
  for (Object& object : index_.all()) {
    if (object.closing || object.holds > 0 || object.blockCount == 1) {
      continue;
    }
    if (object.preparing > 0 || object.busy > 0) {
      later = true;
    } else if (most == nullptr || has(object) > has(*most)) {
      most = &object;
    }
  }
  if (most == nullptr && later) {
    waitForChange(lock);  // the caller tries again, and comes back here
    return {};
  }
  if (most == nullptr) {
    return fail(adsmErrorHostMemory,
                "the kernel's limit of memory mappings is reached (vm.max_map_count) and no object "
                "has blocks left to join");
  }
  return coarsen(lock, *most, kCoarsenFactor);
}

// Gives the blocks that are open in part to the accelerator, as a call would: its copy is the only
// one that is current outside the windows. No block of the object is busy or held.
Status Manager::closeWindows(Object& object) {
  accel::Ticket stillOpen;
  for (BlockIndex i = object.open.begin; i < object.open.end;) {
    if (object.groupClosed(i) || !object.made(i)) {
      i = object.groupEnd(i);
      continue;
    }
    if (isPart(object[i].state)) {
      GMAC_TRY(releaseBlocks(object, {i, i + 1}, Event::kCall, &stillOpen));
    }
    i = i + 1;
  }
  return {};
}

// Before an allocation fails for want of the mappings that windows take. What cannot be closed now
// stays as it is.
void Manager::closeWindows() {
  for (Object& object : index_.all()) {
    if (object.edges > 0 && !object.closing && object.busy == 0 && object.holds == 0) {
      (void)closeWindows(object);
    }
  }
}

// Makes the pages of a range exist. Lets the lock go.
Status Manager::makeReady(Lock& lock, Object& object, BlockRange range) {
  const std::size_t last = object.chunkOf(object.offsetOf(range.end) - 1);
  for (std::size_t chunk = object.chunkOf(object.offsetOf(range.begin)); chunk <= last; ++chunk) {
    while (object.chunks[chunk] != Object::Chunk::kReady) {
      GMAC_TRY(makeReady(lock, object, chunk));
    }
  }
  return {};
}

Status Manager::coarsen(Lock& lock, Object& object, std::size_t factor) {
  const Lock::Quiet quiet(lock);  // the whole object is busy until the end
  // Closing the whole object never splits a mapping, and frees those that its blocks have taken.
  GMAC_TRY(protect(object, object.all(), os::Access::kNone));
  object.strict = true;
  GMAC_TRY(closeWindows(object));
  for (std::size_t i = 0; i < object.blockCount; ++i) {
    object.blocks[i].busy = true;
  }
  object.busy += static_cast<std::uint32_t>(object.blockCount);
  const std::size_t newCount = (object.blockCount + factor - 1) / factor;
  const auto groupEnd = [&](std::size_t group) {
    return BlockIndex{std::min((group + 1) * factor, object.blockCount)};
  };
  // A group whose CPU copy is current in part is made current as a whole.
  const auto missing = [&](const auto& visit) -> Status {
    for (std::size_t group = 0; group < newCount; ++group) {
      const BlockIndex end = groupEnd(group);
      BlockIndex i{group * factor};
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
    }
    return {};
  };
  bool fetches = false;
  (void)missing([&](BlockRange) -> Status {
    fetches = true;
    return {};
  });
  Status status = [&]() -> Status {
    if (!fetches) {
      return {};
    }
    for (bool waited = true; waited;) {
      waited = false;
      GMAC_TRY(waitForWriters(lock, object, &waited));
    }
    GMAC_TRY(missing([&](BlockRange run) { return makeReady(lock, object, run); }));
    GMAC_TRY([&]() -> Status {
      const FreeForWork free(lock);
      const Timed timed(Phase::kCopy);
      accel::Ticket last;
      const Status queued = missing([&](BlockRange run) {
        accel::Ticket after;
        for (BlockIndex i = run.begin; i < run.end; i = i + 1) {
          after.value = std::max(after.value, object[i].flushed);
        }
        return queueFetch(object, object.bytesOf(run), after, &last);
      });
      const Status copied = await(free, last);
      return queued.ok() ? copied : queued;
    }());
    return missing([&](BlockRange run) -> Status {
      for (BlockIndex i = run.begin; i < run.end; i = i + 1) {
        setState(object, object[i], State::kReadOnly);
      }
      return {};
    });
  }();
  object.busy -= static_cast<std::uint32_t>(object.blockCount);
  for (std::size_t i = 0; i < object.blockCount; ++i) {
    object.blocks[i].busy = false;
  }
  if (status.ok()) {
    const State initialOfNone = State::kInvalid;
    for (std::size_t group = 0; group < newCount; ++group) {
      State state = initialOfNone;
      std::uint64_t flushed = 0;
      for (BlockIndex i{group * factor}; i < groupEnd(group); i = i + 1) {
        Block& block = object[i];
        flushed = std::max(flushed, block.flushed);
        state = std::max(state, block.state);  // Invalid < ReadOnly < Dirty
        if (block.evicted || block.state == State::kDirty) {
          protocol_->released(block);  // what is known of its parts says little of the whole
        }
        if (block.state == State::kDirty) {
          protocol_->leftDirty(block);
        }
        block.state = State::kInvalid;
        block.flushed = 0;
      }
      Block& joined = object.blocks[group];
      joined.flushed = flushed;
      joined.state = state;
      if (state == State::kDirty) {
        protocol_->becameDirty(joined);
      }
    }
    object.blockBytes *= factor;
    object.blockCount = newCount;
    object.blocks.shrink(newCount);
    noteEdges(object, object.countEdges());
    object.readRuns = {};
    object.windows.restart();
    if (!object.open.empty()) {
      object.open = object.all();
    }
    stats().coarsenings.add();
  }
  // Reopen what the (old or new) blocks allow; a block that is left too strict is opened by its
  // next fault.
  object.strict = !status.ok();
  for (BlockIndex i = object.all().begin; i < object.all().end;) {
    const os::Access access = accessOf(object[i].state);
    BlockIndex end = i + 1;
    while (end < object.all().end && accessOf(object[end].state) == access) {
      end = end + 1;
    }
    if (access != os::Access::kNone && status.ok()) {
      status = protect(object, {i, end}, access);
      if (outOfMappings(status)) {
        status = Status();
        break;
      }
    }
    i = end;
  }
  changed();
  return status;
}

}  // namespace gmac
