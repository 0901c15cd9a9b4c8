// SPDX-License-Identifier: Apache-2.0
//
// Coarsening: what the manager does when the kernel has no mappings left.
#include <algorithm>

#include "gmac/manager.h"
#include "gmac/manager_lock.h"
#include "gmac/stats.h"

namespace gmac {
namespace {

// By how much coarsening grows the blocks of an object.
constexpr std::size_t kCoarsenFactor = 16;

}  // namespace

// The kernel's limit of mappings is reached: grows the blocks of the object that has the most of
// them.
Status Manager::coarsen(Lock& lock) {
  if (giveBackKept(lock)) {
    return {};  // the caller tries again with the mappings that this has freed
  }
  Object* most = nullptr;
  bool later = false;
  for (Object& object : index_.all()) {
    if (object.closing || object.busy > 0 || object.holds > 0 || object.blockCount == 1) {
      continue;
    }
    if (object.preparing > 0) {
      later = true;
    } else if (most == nullptr || object.blockCount > most->blockCount) {
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
  object.settled = false;
  for (std::size_t i = 0; i < object.blockCount; ++i) {
    if (object.blocks[i].unverified) {
      setState(object, object.blocks[i], State::kInvalid);
    }
    object.blocks[i].busy = true;
  }
  object.busy += static_cast<std::uint32_t>(object.blockCount);
  const std::size_t newCount = (object.blockCount + factor - 1) / factor;
  const auto groupEnd = [&](std::size_t group) {
    return BlockIndex{std::min((group + 1) * factor, object.blockCount)};
  };
  // A group whose CPU copy is current in part is made current as a whole.
  Status status;
  bool waited = true;
  while (status.ok() && waited) {
    status = waitForWriters(lock, object, &waited);
  }
  for (std::size_t group = 0; status.ok() && group < newCount; ++group) {
    const BlockRange range{BlockIndex{group * factor}, groupEnd(group)};
    bool current = false;
    for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
      current = current || object[i].state != State::kInvalid;
    }
    for (BlockIndex i = range.begin; current && status.ok() && i < range.end;) {
      if (object[i].state != State::kInvalid) {
        i = i + 1;
        continue;
      }
      BlockIndex end = i;
      accel::Ticket after;
      for (; end < range.end && object[end].state == State::kInvalid; end = end + 1) {
        after.value = std::max(after.value, object[end].flushed);
        object[end].described = false;  // not compared
      }
      const BlockRange run{i, end};
      status = makeReady(lock, object, run);
      if (status.ok()) {
        const FreeForWork free(lock);
        status = copyChanged(free, object, run, after);
      }
      for (; status.ok() && i < end; i = i + 1) {
        setState(object, object[i], State::kReadOnly);
      }
    }
  }
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
        block.described = false;
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
    object.readRuns = {};
    if (!object.open.empty()) {
      object.open = object.all();
    }
    stats().coarsenings.add();
  }
  // What was fetched is news of kernels that have finished, as in fetch().
  if (status.ok()) {
    status = closeUnverified();
  }
  // Reopen what the (old or new) blocks allow; a block that is left too strict is opened by its
  // next fault.
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
