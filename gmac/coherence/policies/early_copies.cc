// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/early_copies.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"

namespace gmac {
namespace {

// How long the thread that fetches early sleeps before it looks again whether the kernels that it
// waits for have finished: a share of what it has waited, so that it is late by that share.
constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{1000};
constexpr int kSleepShare = 16;

}  // namespace

// Where the protocol's edge leaves a block writable (batch-update) the call would copy it again,
// and nothing is done. A block in which the program goes on writing would only have to be copied
// again: so it is whole blocks.
Status EarlyCopies::startFlush(const void* address, std::size_t bytes) {
  if (!blocks_.writesBackAhead()) {
    return {};
  }
  const Walk walk(blocks_);
  Lock lock(mutex_);
  Status status;
  index_.forEachIn(address, bytes, [&](Object& object, const auto* first, const auto* last) {
    if (!object.closing && !object.open.empty()) {
      status = blocks_.writeBack(lock, object, object.wholeBlocks(first, last));
    }
    return status.ok();
  });
  return status;
}

Status EarlyCopies::startFetch(const void* address, std::size_t bytes) {
  Lock lock(mutex_);
  bool added = false;
  index_.forEachIn(address, bytes, [&](Object& object, const auto* first, const auto* last) {
    if (object.closing || object.firstInvalid(first, last) == last) {
      return true;
    }
    if (count_ == ring_.size()) {
      return false;  // so much is under way that this one is not early any more
    }
    ring_[(first_ + count_) % ring_.size()] = {first, last, ledger_.newestWriters(object)};
    ++count_;
    added = true;
    return true;
  });
  if (!added || !inBackground_ || stopping_) {
    return {};
  }
  if (!thread_.joinable()) {
    // Under the lock all signals are blocked, which the thread inherits: the application's handlers
    // never run there.
    try {
      thread_ = std::thread([this] { backgroundLoop(); });
    } catch (const std::system_error&) {
      count_ = 0;  // nobody would do them; they are done when they are needed
      return fail(adsmErrorSystem, "no thread for early fetches can be started");
    }
  }
  alarm_.ring();
  return {};
}

void EarlyCopies::stop() {
  stopping_ = true;
  std::thread thread;
  {
    const Lock lock(mutex_);
    thread.swap(thread_);
  }
  alarm_.ring();
  if (thread.joinable()) {
    thread.join();
  }
}

// One step of the oldest early fetch.
EarlyStep EarlyCopies::fetchNext() {
  const Walk walk(blocks_);
  Lock lock(mutex_);
  if (count_ == 0) {
    return EarlyStep::kIdle;
  }
  const Fetch request = ring_[first_];
  const auto drop = [&] {
    first_ = (first_ + 1) % ring_.size();
    --count_;
    return EarlyStep::kMoved;
  };
  Object* const object = index_.find(request.first);
  // Freed meanwhile; or a later call may write the object, and its bytes will be asked for anew.
  if (object == nullptr || object->closing || object->ownEnd(request.first) < request.last ||
      !(ledger_.newestWriters(*object) == request.writers)) {
    return drop();
  }
  const std::byte* const first = object->firstInvalid(request.first, request.last);
  if (first == request.last) {
    return drop();
  }
  ring_[first_].first = first;
  const BlockIndex begin = object->indexOf(first);
  // The wait for a kernel is where its error comes out, which is not this thread's to take: it
  // looks, and never waits.
  const BlockIndex end =
      object->covering(first, static_cast<std::size_t>(request.last - first)).end;
  if (!(*object)[begin].settled() || ledger_.submissionUnderWay() || lock.callsWait() ||
      !ledger_.writersDone(*object, object->bytesOf(BlockRange{begin, end}))) {
    // Others need not wait for the same.
    const Fetch waiting = ring_[first_];
    (void)drop();
    ring_[(first_ + count_) % ring_.size()] = waiting;
    ++count_;
    return EarlyStep::kWaits;
  }
  auto ready = residency_.makeReady(lock, *object, begin);
  if (!ready.ok()) {
    return drop();  // whoever needs the chunk meets the failure again and is told
  }
  if (*ready == Step::kRetry) {
    return EarlyStep::kMoved;
  }
  const State state = (*object)[begin].state;
  const std::size_t most = std::max<std::size_t>(1, readAheadBytes_ / object->blockBytes);
  BlockRange range{begin, begin + 1};
  while (!isPart(state) && range.end < std::min(begin + most, end) &&
         object->fetchable(range.end)) {
    range.end = range.end + 1;
  }
  // A failure is not this thread's to tell either: the blocks stay Invalid, and the access meets
  // it.
  return blocks_.fetch(lock, *object, range, Event::kRead).ok() ? EarlyStep::kMoved : drop();
}

// The thread's work. It sleeps while there is nothing to fetch, and in growing steps while what it
// shall fetch is being written.
void EarlyCopies::backgroundLoop() {
  (void)::pthread_setname_np(::pthread_self(), "gmac fetch");
  std::chrono::microseconds waited{0};
  for (std::uint32_t heard = alarm_.heard(); !stopping_; heard = alarm_.heard()) {
    EarlyStep outcome = EarlyStep::kIdle;
    while (!stopping_ && (outcome = fetchNext()) != EarlyStep::kIdle) {
      if (outcome == EarlyStep::kMoved) {
        waited = std::chrono::microseconds{0};
        continue;
      }
      const auto pause = std::clamp(waited / kSleepShare, kShortestSleep, kLongestSleep);
      std::this_thread::sleep_for(pause);
      waited += pause;
    }
    if (!stopping_) {
      alarm_.sleep(heard);
    }
  }
}

}  // namespace gmac
