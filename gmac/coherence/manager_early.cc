// SPDX-License-Identifier: Apache-2.0
//
// Copies that are asked for before a call or an access needs them: early flushes and early fetches.
// Both are hints: what cannot be done now is left to the call or the access.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

// How long the thread that fetches early sleeps before it looks again whether the kernels that it
// waits for have finished: a share of what it has waited, so that it is late by that share.
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{1000};
constexpr int kSleepShare = 16;

}  // namespace

// An early flush is what a call that only reads would do to the blocks, without the call: the
// protocol's own edge, so that it leaves no state that the protocol does not know. Where that edge
// leaves a block writable (batch-update) the call would copy it again, and nothing is done.
Status Manager::startFlush(const void* address, std::size_t bytes) {
  const Transition early = protocol_->on(State::kDirty, Event::kCallRead);
  if (forked() || bytes == 0 || early.move != Move::kFlush || early.next == State::kDirty) {
    return {};
  }
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto* const end = begin + bytes;
  const Walk walk(*this);
  Lock lock(*this);
  for (const std::byte* position = begin; position < end;) {
    Object* const object = index_.firstEndingAfter(position);
    if (object == nullptr || object->address() >= end) {
      break;
    }
    const std::byte* const first = std::max<const std::byte*>(position, object->address());
    const std::byte* const last = std::min<const std::byte*>(end, object->end());
    position = object->end();
    if (object->closing || object->open.empty()) {
      continue;
    }
    GMAC_TRY(startFlush(*object, wholeBlocks(*object, first, last)));
  }
  return {};
}

// The blocks all of whose bytes that were asked for at the allocation lie in [first, last). A block
// in which the program goes on writing would only have to be copied again.
BlockRange Manager::wholeBlocks(const Object& object, const std::byte* first,
                                const std::byte* last) {
  const auto from = static_cast<std::size_t>(first - object.address());
  const auto to = static_cast<std::size_t>(last - object.address());
  const std::size_t begin = (from + object.blockBytes - 1) / object.blockBytes;
  const std::size_t end = to >= object.requestedBytes ? object.blockCount : to / object.blockBytes;
  return {BlockIndex{begin}, BlockIndex{end}};
}

// One protection change and one copy (per chunk) for each run of dirty blocks, and for each window.
// Blocks in transit and held ones are passed over, as an eviction does.
Status Manager::startFlush(Object& object, BlockRange range) {
  range = {std::max(range.begin, object.open.begin), std::min(range.end, object.open.end)};
  const auto flushable = [&](BlockIndex i) {
    if (!object.made(i)) {
      return false;
    }
    const Block& block = object[i];
    return isDirty(block.state) && !block.busy && block.holds == 0;
  };
  for (BlockIndex i = range.begin; i < range.end;) {
    if (!flushable(i)) {
      i = object.groupClosed(i) || !object.made(i) ? object.groupEnd(i) : i + 1;
      continue;
    }
    const State state = object[i].state;
    const State next = protocol_->on(state, Event::kCallRead).next;
    BlockIndex end = i + 1;
    while (!isPart(state) && end < range.end && flushable(end) && object[end].state == state) {
      end = end + 1;
    }
    const BlockRange run{i, end};
    if (!budget_.allows(mappings(), kMappingsOfAChange)) {
      return {};
    }
    const ByteRange bytes = isPart(state) ? object.windowOf(i) : object.bytesOf(run);
    const TraceSpan span("copy", "early flush", {"bytes", bytes.length()});
    Status status = protect(object, bytes, accessOf(next));
    if (status.ok()) {
      // A call that only reads the object may still be running: its copy must not change under it.
      status = flush(object, run, accel::Ticket{object.lastRead});
    }
    if (!status.ok()) {
      // Still dirty; some of the run may be closed further than that.
      object.strict = true;
      return status;
    }
    for (; i < end; i = i + 1) {
      setState(object, object[i], next);
    }
  }
  return {};
}

Status Manager::startFetch(const void* address, std::size_t bytes) {
  if (forked() || bytes == 0) {
    return {};
  }
  const auto* const begin = static_cast<const std::byte*>(address);
  const auto* const end = begin + bytes;
  Lock lock(*this);
  bool added = false;
  for (const std::byte* position = begin; position < end;) {
    Object* const object = index_.firstEndingAfter(position);
    if (object == nullptr || object->address() >= end) {
      break;
    }
    const std::byte* const first = std::max<const std::byte*>(position, object->address());
    const std::byte* const last = std::min<const std::byte*>(end, object->end());
    position = object->end();
    if (object->closing) {
      continue;
    }
    if (firstInvalid(*object, first, last) == last) {
      continue;
    }
    if (earlyCount_ == early_.size()) {
      break;  // so much is under way that this one is not early any more
    }
    early_[(earlyFirst_ + earlyCount_) % early_.size()] = {first, last,
                                                           ledger_.newestWriters(*object)};
    ++earlyCount_;
    added = true;
  }
  if (!added || !options_.fetchInBackground || stopping_) {
    return {};
  }
  if (!fetcher_.joinable()) {
    // Under the lock all signals are blocked, which the thread inherits: the application's handlers
    // never run there.
    try {
      fetcher_ = std::thread([this] { fetchEarly(); });
    } catch (const std::system_error&) {
      earlyCount_ = 0;  // nobody would do them; they are done when they are needed
      return fail(adsmErrorSystem, "no thread for early fetches can be started");
    }
  }
  earlyGeneration_.fetch_add(1);
  earlyGeneration_.notify_one();
  return {};
}

// The first byte in [first, last) that is not current on the CPU; `last` when there is none.
const std::byte* Manager::firstInvalid(Object& object, const std::byte* first,
                                       const std::byte* last) {
  const BlockRange range = object.covering(first, static_cast<std::size_t>(last - first));
  for (BlockIndex i = range.begin; i < range.end;) {
    if (object.groupClosed(i)) {
      return std::max<const std::byte*>(first, object.address() + object.offsetOf(i));
    }
    if (!object.made(i)) {
      i = object.groupEnd(i);
      continue;
    }
    const ByteRange block = object.bytesOf(i);
    const ByteRange wanted{
        std::max(block.begin, static_cast<std::size_t>(first - object.address())),
        std::min(block.end, static_cast<std::size_t>(last - object.address()))};
    const ByteRange current = object.currentOf(i);
    if (!current.contains(wanted)) {
      const bool begins = current.begin <= wanted.begin && wanted.begin < current.end;
      return object.address() + (begins ? current.end : wanted.begin);
    }
    i = i + 1;
  }
  return last;
}

// One step of the oldest early fetch.
Manager::EarlyStep Manager::fetchNext() {
  const Walk walk(*this);
  Lock lock(*this);
  if (earlyCount_ == 0 || forked()) {
    return EarlyStep::kIdle;
  }
  const EarlyFetch request = early_[earlyFirst_];
  const auto drop = [&] {
    earlyFirst_ = (earlyFirst_ + 1) % early_.size();
    --earlyCount_;
    return EarlyStep::kMoved;
  };
  Object* const object = index_.find(request.first);
  // Freed meanwhile; or a later call may write the object, and its bytes will be asked for anew.
  if (object == nullptr || object->closing || object->end() < request.last ||
      !(ledger_.newestWriters(*object) == request.writers)) {
    return drop();
  }
  const std::byte* const first = firstInvalid(*object, request.first, request.last);
  if (first == request.last) {
    return drop();
  }
  early_[earlyFirst_].first = first;
  const BlockIndex begin = object->indexOf(first);
  // The wait for a kernel is where its error comes out, which is not this thread's to take: it
  // looks, and never waits.
  if ((*object)[begin].busy || deviceWork_ || callsWaiting_ > 0 || !ledger_.writersDone(*object)) {
    // Others need not wait for the same.
    const EarlyFetch waiting = early_[earlyFirst_];
    (void)drop();
    early_[(earlyFirst_ + earlyCount_) % early_.size()] = waiting;
    ++earlyCount_;
    return EarlyStep::kWaits;
  }
  auto ready = makePagesReady(lock, *object, begin);
  if (!ready.ok()) {
    return drop();  // whoever needs the chunk meets the failure again and is told
  }
  if (*ready == Step::kRetry) {
    return EarlyStep::kMoved;
  }
  const State state = (*object)[begin].state;
  const Transition transition = protocol_->on(state, Event::kRead);
  const std::size_t most = std::max<std::size_t>(1, options_.readAheadBytes / object->blockBytes);
  const BlockIndex end =
      object->covering(first, static_cast<std::size_t>(request.last - first)).end;
  BlockRange range{begin, begin + 1};
  while (!isPart(state) && range.end < std::min(begin + most, end) &&
         fetchable(*object, range.end)) {
    range.end = range.end + 1;
  }
  // A failure is not this thread's to tell either: the blocks stay Invalid, and the access meets
  // it.
  return fetch(lock, *object, range, transition.next).ok() ? EarlyStep::kMoved : drop();
}

// Opens a block that is Invalid, or open in part, whose bytes the CPU is about to overwrite: the
// protocol's transition without its fetch.
Result<Manager::Step> Manager::openForOverwriting(Lock& lock, Object& object, BlockIndex index) {
  Block& block = object[index];
  if (block.busy) {
    waitForChange(lock);
    return Step::kRetry;
  }
  if (deviceWorkElsewhere()) {
    waitForDeviceWork(lock);
    return Step::kRetry;
  }
  auto room = leaveMappings(lock, kMappingsOfAChange);
  if (!room.ok() || *room == Step::kRetry) {
    return room;
  }
  auto ready = makePagesReady(lock, object, index);
  if (!ready.ok() || *ready == Step::kRetry) {
    return ready;
  }
  // What would still write the block on the accelerator, or reads the pages or, in device work that
  // later flushes do not wait for, the old bytes.
  bool waited = false;
  GMAC_TRY(waitForWriters(lock, object, &waited));
  if (!waited) {
    GMAC_TRY(waitFor(lock, accel::Ticket{block.flushed}, &waited));
  }
  if (waited) {
    return Step::kRetry;
  }
  const State next = protocol_->on(block.state, Event::kWrite).next;
  if (const Status opened = protectAs(object, index, next); !opened.ok()) {
    if (!outOfMappings(opened)) {
      return opened;
    }
    GMAC_TRY(coarsen(lock));
    return Step::kRetry;
  }
  setState(object, block, next);
  GMAC_TRY(evictExcessBut(block));
  return Step::kDone;
}

// The thread's work. It sleeps while there is nothing to fetch, and in growing steps while what it
// shall fetch is being written.
void Manager::fetchEarly() {
  (void)::pthread_setname_np(::pthread_self(), "gmac fetch");
  std::chrono::microseconds waited{0};
  for (std::uint32_t seen = earlyGeneration_.load(); !stopping_; seen = earlyGeneration_.load()) {
    EarlyStep step = EarlyStep::kIdle;
    while (!stopping_ && (step = fetchNext()) != EarlyStep::kIdle) {
      if (step == EarlyStep::kMoved) {
        waited = std::chrono::microseconds{0};
        continue;
      }
      const auto pause = std::clamp(waited / kSleepShare, kShortestSleep, kLongestSleep);
      std::this_thread::sleep_for(pause);
      waited += pause;
    }
    if (!stopping_) {
      earlyGeneration_.wait(seen);
    }
  }
}

}  // namespace gmac
