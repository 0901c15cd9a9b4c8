// SPDX-License-Identifier: Apache-2.0
//
// Bulk memory operations: memmove and memset where shared objects are involved, without a fault per
// block.
//
// An operation is done part by part, in memmove's order. A part lies in one object (or in none) at
// each end and is done on one side:
//
//  - On the accelerator, where that has the current bytes: the target's blocks are closed, the copy
//    or fill is queued after the kernels, and the blocks are Invalid from then on. Nothing waits.
//  - On the CPU otherwise: the part's blocks are opened ahead, many in one step, and the C
//    library's own function does the rest without the lock. Opening is all that it is: whatever
//    closes a block again before it is written (an eviction, a call of another thread), the access
//    faults and goes on. So nothing is held while memory is touched that may not even exist.
//
// Transitions are the protocol's own. A block whose bytes are all overwritten takes that of a write
// without its fetch, or that of a call without its flush.
#include "gmac/coherence/policies/bulk_memory.h"

#include <algorithm>

#include "gmac/base/fill_in_pieces.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

// Bytes opened for writing at a time: few enough for evictions to begin soon.
constexpr std::size_t kWriteRunBytes = std::size_t{2} << 20;
// Bytes fetched at a time.
constexpr std::size_t kReadRunBytes = std::size_t{8} << 20;
// An overlapping copy on the accelerator goes in steps as long as the ranges are apart. Shorter
// steps than these are left to the CPU.
constexpr std::size_t kLeastStepBytes = std::size_t{64} << 10;

bool intersect(const std::byte* a, std::size_t aBytes, const std::byte* b, std::size_t bBytes) {
  return a < b + bBytes && b < a + aBytes;
}

}  // namespace

// The rest of an operation. For the stack.
struct BulkMemory::Bulk {
  std::byte* to;
  const std::byte* from;  // NULL: a fill
  std::size_t bytes;
  int value;              // of a fill
  bool backward;          // the last bytes go first
  std::size_t stepBytes;  // the most that one copy on the accelerator may have
  coherence::MoveFunction move;
  coherence::SetFunction set;

  const char* name() const { return from == nullptr ? "a bulk fill" : "a bulk copy"; }
};

// One part of an operation. For the stack; its objects are good while the lock is held.
struct BulkMemory::Part {
  std::byte* to;
  const std::byte* from;  // NULL: a fill
  std::size_t bytes;
  Object* target;  // NULL: plain memory
  Object* source;
  bool onAccelerator;

  // The part's bytes in an object.
  static ByteRange in(const Object& object, const std::byte* at, std::size_t bytes) {
    const auto offset = static_cast<std::size_t>(at - object.address());
    return {offset, offset + bytes};
  }
  ByteRange targetBytes() const { return in(*target, to, bytes); }
  ByteRange sourceBytes() const { return in(*source, from, bytes); }
  BlockRange targetBlocks() const { return target->covering(to, bytes); }
  BlockRange sourceBlocks() const { return source->covering(from, bytes); }
  // Whether the part writes every byte of a target's block that anybody may read.
  bool covers(BlockIndex index) const {
    const std::byte* const begin = target->address() + target->offsetOf(index);
    const std::byte* const end =
        target->address() + std::min(target->offsetOf(index + 1), target->requestedBytes);
    return to <= begin && end <= to + bytes;
  }
};

void BulkMemory::copy(void* to, const void* from, std::size_t bytes,
                      coherence::MoveFunction move) noexcept {
  Bulk bulk{static_cast<std::byte*>(to),
            static_cast<const std::byte*>(from),
            bytes,
            0,
            false,
            SIZE_MAX,
            move,
            nullptr};
  if (bulk.to == bulk.from) {
    return;
  }
  if (intersect(bulk.to, bytes, bulk.from, bytes)) {
    bulk.backward = bulk.to > bulk.from;
    bulk.stepBytes =
        static_cast<std::size_t>(bulk.backward ? bulk.to - bulk.from : bulk.from - bulk.to);
  }
  doBulk(bulk);
}

void BulkMemory::fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept {
  doBulk({static_cast<std::byte*>(to), nullptr, bytes, value, false, SIZE_MAX, nullptr, set});
}

void BulkMemory::clearUnused(std::byte* at, std::size_t bytes) noexcept {
  const Walk walk(blocks_);
  Lock lock(mutex_);
  while (bytes > 0) {
    Object* const object = index_.find(at);
    if (object == nullptr) {
      return;
    }
    const auto offset = static_cast<std::size_t>(at - object->address());
    const ByteRange part{offset,
                         std::min(offset + bytes, object->offsetOf(object->indexOf(at) + 1))};
    const Result<Step> cleared = clearPart(lock, *object, part);
    if (cleared.ok() && *cleared == Step::kRetry) {
      continue;
    }
    if (!cleared.ok() || *cleared != Step::kDone) {
      const Free free(lock);
      fill(at, 0, part.length(), &fillInPieces);
    }
    at += part.length();
    bytes -= part.length();
  }
}

// Of one block. kOpened: it takes a fill as of bytes that somebody uses. What the CPU may write is
// cleared under the lock, so that nobody closes it meanwhile.
Result<Step> BulkMemory::clearPart(Lock& lock, Object& object, ByteRange bytes) {
  const BlockIndex index{bytes.begin / object.blockBytes};
  if (object.usable(bytes, Intent::kWrite)) {
    fillInPieces(object.address() + bytes.begin, 0, bytes.length());
    return Step::kDone;
  }
  const Block& block = object[index];
  if (!block.settled() || object.inTransit()) {
    lock.waitForTransit();
    return Step::kRetry;
  }
  if (isDirty(block.state) || block.holds > 0 || object.spread() ||
      object.home == accel::Home::kApart || !object.lent.empty() || ledger_.callsElsewhere(0)) {
    return Step::kOpened;
  }
  bool waited = false;
  GMAC_TRY(waits_.forWork(lock, accel::Ticket{block.flushed}, &waited));
  if (waited) {
    return Step::kRetry;
  }
  const auto queue = [&] {
    return accelerator_.fill(object.deviceAt(bytes.begin), std::byte{0}, bytes.length());
  };
  const auto ticket =
      blocks_.overwrite(lock, object, {index, index + 1}, queue, [](BlockIndex) { return false; });
  GMAC_TRY(ticket.status());
  ledger_.called(*ticket);
  ledger_.used(object, *ticket, true);
  return Step::kDone;
}

void BulkMemory::doBulk(Bulk bulk) noexcept {
  const auto onCpu = [&bulk](std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bulk.from == nullptr) {
      (void)bulk.set(to, bulk.value, bytes);
    } else {
      (void)bulk.move(to, from, bytes);
    }
  };
  // The runtime's own copies beside shared objects.
  if (Lock::worksHere()) {
    onCpu(bulk.to, bulk.from, bulk.bytes);
    return;
  }
  const Walk walk(blocks_);
  Lock lock(mutex_);
  while (bulk.bytes > 0) {
    Part part;
    planPart(bulk, &part);
    const auto prepared = [&]() -> Result<Step> {
      if (part.onAccelerator) {
        return doOnAccelerator(lock, bulk, part);
      }
      if (part.source != nullptr) {
        auto step = openForReading(lock, *part.source, part.sourceBytes());
        if (!step.ok() || *step != Step::kDone) {
          return step;
        }
      }
      return part.target != nullptr ? openForWriting(lock, part) : Step::kDone;
    }();
    if (!prepared.ok()) {
      // Another thread may have freed the objects meanwhile. They are not reported here: the
      // access itself reports what it meets.
      const void* at = part.target != nullptr ? part.to : part.from;
      Object* object = index_.find(at);
      if (object != nullptr) {
        endFailedAccess(*object, object->indexOf(at), bulk.name());
      }
    } else if (*prepared != Step::kDone) {
      continue;
    }
    if (!prepared.ok() || !part.onAccelerator) {
      {
        const Free free(lock);
        onCpu(part.to, part.from, part.bytes);
      }
      // An eviction that fails here is tried again at the next fault or call, where its error can
      // be told.
      (void)blocks_.evictExcess(lock);
    }
    lock.turnEnds();
    bulk.bytes -= part.bytes;
    if (!bulk.backward) {
      bulk.to += part.bytes;
      bulk.from = bulk.from == nullptr ? nullptr : bulk.from + part.bytes;
    }
  }
}

// How many of the next `most` bytes from an edge on (backward: up to it) have one owner: an object,
// or NULL for plain memory.
std::size_t BulkMemory::sameOwner(const std::byte* edge, std::size_t most, bool backward,
                                  Object** owner) {
  Object* object = backward ? index_.lastBeginningBefore(edge) : index_.firstEndingAfter(edge);
  *owner = nullptr;
  if (object == nullptr) {
    return most;
  }
  const std::byte* const near = backward ? object->end() : object->address();
  const bool outside = backward ? near < edge : near > edge;
  if (!outside && !object->closing) {
    *owner = object;
  }
  const std::byte* const border = outside    ? near
                                  : backward ? object->ownBegin(edge)
                                             : object->ownEnd(edge);
  return std::min(most, static_cast<std::size_t>(backward ? edge - border : border - edge));
}

// The next part: as much as has the same owners, is best done on the same side, and shall be done
// at once. It ends where a block of the target ends, or else of the source, unless something else
// ends before.
void BulkMemory::planPart(const Bulk& bulk, Part* part) {
  const auto take = [&](std::size_t bytes) {
    const std::size_t skip = bulk.backward ? bulk.bytes - bytes : 0;
    part->to = bulk.to + skip;
    part->from = bulk.from == nullptr ? nullptr : bulk.from + skip;
    part->bytes = bytes;
  };
  const std::size_t edge = bulk.backward ? bulk.bytes : 0;
  part->source = nullptr;
  part->onAccelerator = false;
  std::size_t most = sameOwner(bulk.to + edge, bulk.bytes, bulk.backward, &part->target);
  if (bulk.from != nullptr) {
    most = sameOwner(bulk.from + edge, most, bulk.backward, &part->source);
  }
  take(most);
  Object* const object = part->target != nullptr ? part->target : part->source;
  if (object == nullptr) {
    return;
  }
  // From here on block by block.
  const std::byte* const position = (object == part->target ? bulk.to : bulk.from) + edge;
  const auto offset = static_cast<std::size_t>(position - object->address());
  const auto nextBorder = [&](std::size_t taken) {
    const std::size_t at = bulk.backward ? offset - taken - 1 : offset + taken;
    const BlockIndex index{at / object->blockBytes};
    return std::min(most, bulk.backward ? offset - object->offsetOf(index)
                                        : object->offsetOf(index + 1) - offset);
  };
  std::size_t taken = 0;
  bool first = true;
  const std::size_t run = part->target != nullptr ? kWriteRunBytes : kReadRunBytes;
  while (taken < most) {
    const std::size_t next = nextBorder(taken);
    bool onAccelerator = false;
    if (part->target != nullptr) {
      // The bytes of this block alone.
      const std::size_t skip = bulk.backward ? bulk.bytes - next : taken;
      Part block = *part;
      block.to = bulk.to + skip;
      block.from = bulk.from == nullptr ? nullptr : bulk.from + skip;
      block.bytes = next - taken;
      onAccelerator = betterOnAccelerator(bulk, block);
    }
    if (!first && (onAccelerator != part->onAccelerator || (!onAccelerator && next > run))) {
      break;
    }
    part->onAccelerator = onAccelerator;
    first = false;
    taken = next;
  }
  take(taken);
}

// Whether a part that lies in one block of the target is done on the accelerator. It has to have
// the current bytes, of the source and of what the part leaves of the block; where the CPU has them
// too, the less work wins.
bool BulkMemory::betterOnAccelerator(const Bulk& bulk, const Part& part) {
  Object& target = *part.target;
  const BlockIndex index = target.indexOf(part.to);
  const Block& block = target[index];
  const bool whole = part.covers(index);
  if (block.holds > 0 || (ledger_.submissionUnderWay() && !ledger_.submissionElsewhere())) {
    return false;
  }
  if (part.source != nullptr && part.source->homeDevice != target.homeDevice &&
      !accelerator_.devices()->reachEachOther()) {
    return false;
  }
  // (What lies apart is out of reach of the device that does it.)
  if (target.home == accel::Home::kApart ||
      (part.source != nullptr && part.source->home == accel::Home::kApart)) {
    return false;
  }
  if (target.spread() || (part.source != nullptr && part.source->spread())) {
    return false;
  }
  // Pages that the CPU has never touched: making them takes longer than fetching what it may want
  // to see of them later.
  const auto untouched = [](Object& object, BlockIndex i) {
    return object[i].state == State::kReadOnly && !object.pagesReady(i);
  };
  // (What the CPU has written to a window must be copied, too.)
  const bool onAcceleratorAlone =
      block.state == State::kInvalid ||
      (block.state == State::kPartReadOnly && !target.windowOf(index).contains(part.targetBytes()));
  if (part.from == nullptr) {
    return onAcceleratorAlone || (whole && untouched(target, index));
  }
  if (part.source == nullptr || bulk.stepBytes < kLeastStepBytes) {
    return false;
  }
  bool onBoth = true;
  const BlockRange read = part.sourceBlocks();
  for (BlockIndex i = read.begin; i < read.end; i = i + 1) {
    const Block& from = (*part.source)[i];
    if (isDirty(from.state)) {
      return false;
    }
    onBoth = onBoth && from.state == State::kReadOnly;
  }
  return onAcceleratorAlone || whole ||
         ((block.state == State::kReadOnly || block.state == State::kPartReadOnly) && !onBoth);
}

// Opens bytes for the CPU to read; neighbours come in one copy. Of several blocks all of their
// bytes are opened, of a single one perhaps a window.
Result<Step> BulkMemory::openForReading(Lock& lock, Object& object, ByteRange bytes) {
  const BlockRange range{BlockIndex{bytes.begin / object.blockBytes}, object.indexAt(bytes.end)};
  auto room = coarsening_.leaveMappings(lock);
  if (!room.ok() || *room == Step::kRetry) {
    return room;
  }
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    const ByteRange wanted = range.end - range.begin == 1 ? bytes : object.bytesOf(i);
    if (object.usable(wanted, Intent::kRead)) {
      continue;
    }
    const Block& block = object[i];
    if (!block.settled() || block.state != State::kInvalid || blocks_.wantsWindow(object, wanted)) {
      auto step = access_.open(lock, object, wanted, Intent::kRead);
      if (!step.ok() || *step != Step::kDone) {
        return step;
      }
      continue;
    }
    if (ledger_.submissionElsewhere()) {
      waits_.forSubmission(lock);
      return Step::kRetry;
    }
    BlockIndex end = i;
    while (end < range.end && object[end].state == State::kInvalid && object[end].settled()) {
      auto ready = residency_.makeReady(lock, object, end);
      if (!ready.ok() || *ready == Step::kRetry) {
        return ready;
      }
      end = end + 1;
    }
    bool waited = false;
    GMAC_TRY(waits_.forWriters(lock, object, object.bytesOf(BlockRange{i, end}), &waited));
    if (!waited && lock.callsWait()) {
      lock.waitForChange();
    } else if (!waited) {
      object.windows.openedWhole({i, end}, i);
      object.pagePolicy.openedWhole({i, end}, i);
      if (const Status fetched = blocks_.fetch(lock, object, {i, end}, Event::kRead);
          !fetched.ok()) {
        return coarsening_.retry(lock, fetched);
      }
    }
    return Step::kRetry;
  }
  return Step::kDone;
}

// Opens the target's blocks for the CPU to write. (The source's are open by then, so no block that
// the part also reads is Invalid.) Those that the part overwrites as a whole are not
// fetched before: until it has done so, their bytes are neither the old ones nor the new ones, as
// bytes are that one thread reads while another one copies.
Result<Step> BulkMemory::openForWriting(Lock& lock, const Part& part) {
  auto room = coarsening_.leaveMappings(lock);
  if (!room.ok() || *room == Step::kRetry) {
    return room;
  }
  Object& object = *part.target;
  const BlockRange range = part.targetBlocks();
  // A part in a single block may have enough in a window of it.
  const auto wanted = [&](BlockIndex i) {
    return range.end - range.begin == 1 ? part.targetBytes() : object.bytesOf(i);
  };
  bool allOpen = true;
  bool overwrites = false;
  accel::Ticket flushed;
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    if (object.usable(wanted(i), Intent::kWrite)) {
      continue;
    }
    const Block& block = object[i];
    const bool lacking = block.state == State::kInvalid || isPart(block.state);
    const bool inPage = block.page != 0 && object.openOf(i).contains(wanted(i));
    if (!block.settled() || (lacking && !part.covers(i)) || inPage) {
      // Opening it may have evicted blocks that were looked at before. (A single one is open then,
      // though it may not be usable: after a failure elsewhere in the object.)
      auto step = access_.open(lock, object, wanted(i), Intent::kWrite);
      return step.ok() && range.end - range.begin > 1 ? Step::kRetry : step;
    }
    if (lacking && ledger_.submissionElsewhere()) {
      waits_.forSubmission(lock);
      return Step::kRetry;
    }
    auto ready = residency_.makeReady(lock, object, i);
    if (!ready.ok() || *ready == Step::kRetry) {
      return ready;
    }
    allOpen = false;
    overwrites = overwrites || lacking;
    // (Of several, each is waited for in turn.)
    if (!accelerator_.done({block.flushed})) {
      flushed.value = std::max(flushed.value, block.flushed);
    }
  }
  if (allOpen) {
    return Step::kDone;
  }
  // As for a fault: kernels that may still write the blocks, copies that read the old bytes, and
  // device work of the application's own that does.
  bool waited = false;
  if (overwrites) {
    GMAC_TRY(waits_.forWriters(lock, object, object.bytesOf(range), &waited));
  }
  if (!waited) {
    GMAC_TRY(waits_.forWork(lock, flushed, &waited));
  }
  if (!waited) {
    GMAC_TRY(waits_.forWork(lock, ledger_.runningReader(object), &waited));
  }
  if (!waited && object.isZeroCopy()) {
    GMAC_TRY(waits_.forWork(lock, ledger_.readersOf(object, object.bytesOf(range)), &waited));
  }
  if (waited) {
    return Step::kRetry;
  }
  if (const Status opened = blocks_.openUnfetched(lock, object, range); !opened.ok()) {
    return coarsening_.retry(lock, opened);
  }
  return Step::kDone;
}

// Queues a part after the kernels, and gives the target's blocks to the accelerator.
Result<Step> BulkMemory::doOnAccelerator(Lock& lock, const Bulk& bulk, const Part& part) {
  Object& target = *part.target;
  const BlockRange range = part.targetBlocks();
  if (ledger_.submissionElsewhere()) {
    waits_.forSubmission(lock);
    return Step::kRetry;
  }
  if (target.inTransit()) {
    lock.waitForTransit();
    return Step::kRetry;
  }
  // Copies in that have not arrived: the kernel queue does not wait for them by itself. Nor does it
  // for the application's own streams.
  bool waited = false;
  accel::Ticket flushed = target.flushed(range);
  if (part.source != nullptr) {
    const BlockRange read = part.sourceBlocks();
    for (BlockIndex i = read.begin; i < read.end; i = i + 1) {
      if (!(*part.source)[i].settled()) {
        lock.waitForChange();
        return Step::kRetry;
      }
      flushed.value = std::max(flushed.value, (*part.source)[i].flushed);
    }
  }
  GMAC_TRY(waits_.forWork(lock, flushed, &waited));
  if (!waited) {
    GMAC_TRY(waits_.forWork(lock, ledger_.runningStreamWork(), &waited));
  }
  if (!waited && ledger_.callsElsewhere(0)) {
    NewestCalls before;
    ledger_.addConflicts(target, target.bytesOf(range), 0, true, before);
    if (part.source != nullptr) {
      ledger_.addConflicts(*part.source, part.source->bytesOf(part.sourceBlocks()), 0, false,
                           before);
    }
    GMAC_TRY(waits_.forWork(lock, before, &waited));
  }
  if (waited) {
    return Step::kRetry;
  }
  const TraceSpan span("copy", part.from == nullptr ? "fill" : "copy within",
                       {"bytes", part.bytes});
  const auto to = static_cast<std::size_t>(part.to - target.address());
  const auto queue = [&]() -> Result<accel::Ticket> {
    accel::Ticket ticket;
    for (std::size_t done = 0; done < part.bytes;) {
      const std::size_t bytes = std::min(part.bytes - done, bulk.stepBytes);
      const std::size_t skip = bulk.backward ? part.bytes - done - bytes : done;
      auto queued =
          part.from == nullptr
              ? accelerator_.fill(target.deviceAt(to), static_cast<std::byte>(bulk.value), bytes)
              : accelerator_.copyWithin(
                    target.deviceAt(to + skip),
                    part.source->deviceAt(
                        static_cast<std::size_t>(part.from - part.source->address()) + skip),
                    bytes);
      if (!queued.ok()) {
        return queued;
      }
      ticket = *queued;
      done += bytes;
    }
    return ticket;
  };
  auto ticket = blocks_.overwrite(lock, target, range, queue,
                                  [&](BlockIndex index) { return part.covers(index); });
  if (!ticket.ok()) {
    return coarsening_.retry(lock, ticket.status());
  }
  // To everybody else this was a call that wrote the one object and read the other.
  ledger_.called(*ticket);
  ledger_.used(target, *ticket, true);
  if (part.source != nullptr) {
    ledger_.used(*part.source, *ticket, false);
  }
  return Step::kDone;
}

}  // namespace gmac
