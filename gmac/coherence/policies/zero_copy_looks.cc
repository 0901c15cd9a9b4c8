// SPDX-License-Identifier: Apache-2.0
//
// What the library learns in the place of waits, where the program does not wait for its calls
// (unwaited_calls.h).

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/policies/zero_copy.h"
#include "gmac/observe/stats.h"
#include "gmac/os/signal_mask.h"

namespace gmac {
namespace {

// What is recorded does not run, and what waits for the program's next store does not end.
bool cannotLook() {
  return coherence::recorded() || coherence::captureUnderWay() || coherence::openWaits();
}

}  // namespace

void ZeroCopy::look() {
  if (unwaited_.onTrial()) {
    tryCall();
  } else if (unwaited_.turnsAreDue()) {
    endTurns();
  }
  if (unwaited_.isDue()) {
    lookAtCalls();
  }
}

// Accesses have waited in the program's place: what they came for has had a round.
void ZeroCopy::endTurns() {
  const os::SignalsBlocked blocked;
  bool paused = false;
  std::uint64_t each = 0;
  std::uint64_t every = 0;
  {
    Lock lock(mutex_);
    if (!ledger_.quiet()) {
      unwaited_.turnsGoOn();
      return;
    }
    const std::uint64_t now = ledger_.times().now();
    const auto [count, took, calls] = unwaited_.takeTurns(now, stats().calls.value());
    if (count == 0) {
      return;
    }
    (void)concurrent_.roundEnds(now, std::nullopt);  // the next begins here
    (void)takeCalls();
    turns_ = 0;
    streams_ = 0;
    WaitingThreads none;
    Blocks::RoundsList& objects = blocks_.rounds();
    each = took / calls;
    every = (calls + count - 1) / count;
    const bool longer = judgeTurns(each);
    if (!longer) {
      for (Object& object : objects) {
        rounds(object, none, true);
      }
    }
    kernels_ = {.round = took,
                .newest = std::max(took / count, std::uint64_t{1}),
                .turns = std::max(turns_, 1U),
                .calls = calls,
                .every = every};
    turns_ = static_cast<std::uint32_t>((turns_ + count - 1) / count);  // of one launch
    for (auto next = objects.begin(); next != objects.end();) {
      Object& object = *next;
      ++next;
      if (!waitedForRounds(object, none, {})) {
        object.roundsHook.unlink();
      }
    }
    blocks_.noteReadBacks();
    noteAny();
    keepFewMovesToCpu(longer || !unwaited_.mayTry() ? 0 : kMostByTurns);
    // (Another thread's kernel that is launched before the move would be waited for, and may itself
    // wait for what this thread launches next.)
    paused = !moves_.empty() && !coherence::openWaits() && launches_.pause(lock, 0);
    if (!paused) {
      keepFewMovesToCpu(0);  // (what moves at a wait would not be tried)
    }
  }
  if (paused) {
    moveDue(true);
    beginTrial(each, every);
  }
}

// Of what is to get one copy a few do: what kernels then take longer for tells of the rest. The
// next round tells again what should, if it still should.
void ZeroCopy::keepFewMovesToCpu(std::size_t most) {
  onTrial_ = {};
  std::size_t kept = 0;
  std::erase_if(moves_, [&](const Known& known) {
    const Object* const object = find(known);
    if (object == nullptr || object->isZeroCopy()) {
      return object == nullptr;
    }
    if (kept < most) {
      onTrial_.at(kept) = known.address;
    }
    return ++kept > most;
  });
  due_.store(!moves_.empty(), std::memory_order_relaxed);
}

// What has got one copy as accesses waited is on trial. `each`: what a call took before; `every`:
// how many there are for each turn.
void ZeroCopy::beginTrial(std::uint64_t each, std::uint64_t every) {
  const Lock lock(mutex_);
  const bool any = std::ranges::any_of(onTrial_, [this](const std::byte* address) {
    const Object* const object = address == nullptr ? nullptr : index_.find(address);
    return object != nullptr && object->isZeroCopy();
  });
  if (any) {
    unwaited_.trialBegins(ledger_.times().now(), each, every);
  }
}

// Waits for what is in flight; where that has taken too long, what is on trial has two copies
// again.
void ZeroCopy::tryCall() {
  const os::SignalsBlocked blocked;
  {
    Lock lock(mutex_);
    if (!unwaited_.onTrial() || !unwaited_.trialWaits()) {
      return;
    }
    if (looks_ || launches_.paused() || cannotLook() || !hasRoomForMoves()) {
      unwaited_.trialGoesOn();
      return;
    }
    looks_ = true;
    const bool paused = launches_.pause(lock, UnwaitedCalls::kTrialPatience);
    looks_ = false;
    if (!paused) {
      unwaited_.trialTimesOut();
      return;
    }
    if (!unwaited_.onTrial() ||
        unwaited_.tried(ledger_.times().now()) != UnwaitedCalls::Verdict::kMove) {
      launches_.resume(lock);
      return;
    }
    for (std::byte* const address : onTrial_) {
      const Object* const object = address == nullptr ? nullptr : index_.find(address);
      if (object != nullptr && object->isZeroCopy()) {
        setDue(*object);
      }
    }
  }
  moveDue(true);
}

// (Nothing may be thrown while launches are held up.)
bool ZeroCopy::hasRoomForMoves() {
  try {
    moves_.reserve(moves_.size() + kMostByTurns);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Where something has got one copy as accesses waited, whether calls take longer than before in the
// newest round of turns: then nothing more gets one copy so, and where that lasts, all that has got
// one has two again.
bool ZeroCopy::judgeTurns(std::uint64_t each) {
  constexpr std::uint64_t kPart = 8;
  const std::uint64_t before = concurrent_.before();
  const bool longer = concurrent_.unwaited() && each > before + before / kPart;
  if (unwaited_.judgeTurns(longer)) {
    const auto leaves = [this](const Object& object) {
      if (object.zeroCopy.every() != 0) {
        setDue(object);
      }
    };
    std::ranges::for_each(blocks_.concurrentObjects(), leaves);
    std::ranges::for_each(blocks_.watchedObjects(), leaves);
  }
  return longer;
}

// Whether something still has one copy as accesses waited.
void ZeroCopy::noteUnwaited() {
  if (!concurrent_.unwaited()) {
    return;
  }
  bool any = false;
  std::uint64_t before = UINT64_MAX;
  const auto look = [&](const Object& object) {
    any = any || object.zeroCopy.every() != 0;
    before = std::min(before, object.zeroCopy.before());
  };
  std::ranges::for_each(blocks_.concurrentObjects(), look);
  std::ranges::for_each(blocks_.watchedObjects(), look);
  if (!any) {
    concurrent_.noneUnwaited(before == UINT64_MAX ? 0 : before);
  }
}

std::uint64_t ZeroCopy::takeCalls() {
  const std::uint64_t calls = stats().calls.value();
  return std::max(calls - std::exchange(callsBefore_, calls), std::uint64_t{1});
}

void ZeroCopy::lookAtCalls() {
  using Verdict = UnwaitedCalls::Verdict;
  const os::SignalsBlocked blocked;
  {
    Lock lock(mutex_);
    if (!unwaited_.isDue() || looks_) {
      return;
    }
    if (launches_.paused() || cannotLook()) {
      unwaited_.cannot();
      return;
    }
    launches_.countUnwaited(0);
    if (!unwaited_.isDue()) {
      return;  // the program has waited since
    }
    looks_ = true;
    const bool paused = launches_.pause(lock, unwaited_.patience(ledger_.times().now()));
    looks_ = false;
    if (!paused) {
      unwaited_.gaveUp(ledger_.times().now());
      return;
    }
    // (Nobody else looks until launches go on.)
    if (unwaited_.takeUnjudged(false)) {
      movedInVain();
    }
    const std::size_t things = cannotLook() ? 0 : noteWithOneCopy();
    const Verdict verdict = unwaited_.looks(ledger_.times().now(), things);
    if (verdict == Verdict::kInVain || unwaited_.takeUnjudged(false)) {
      movedInVain();
    }
    movesTried_ = verdict == Verdict::kMove;
    if (movesTried_) {
      tried_.resize(unwaited_.toMove());
    }
    if (!unwaited_.tries()) {
      tried_.clear();
    }
  }
  // (Nobody else changes it while launches are held up.)
  if (movesTried_) {
    moveTried();
  }
  Lock lock(mutex_);
  if (unordered_) {
    beginConcurrent(lock);
  }
  noteAny();
  launches_.resume(lock);
}

// While launches are held up. What cannot move now is not judged.
void ZeroCopy::moveTried() {
  for (const Tried& tried : tried_) {
    if (isFreeNow(tried.known)) {
      move(tried.known);
    }
  }
  const Lock lock(mutex_);
  std::erase_if(tried_, [this](const Tried& tried) {
    const Object* const object = find(tried.known);
    return object != nullptr && object->isZeroCopy();
  });
  movesTried_ = false;
  unwaited_.moved(ledger_.times().now(), !tried_.empty());
}

bool ZeroCopy::isFreeNow(const Known& known) {
  const Lock lock(mutex_);
  return isFree(known);
}

// Where a look has moved nothing that it has still to judge: what it may move. How many that are.
std::size_t ZeroCopy::noteWithOneCopy() {
  if (unwaited_.tries()) {
    return 0;
  }
  tried_.clear();
  const auto add = [&](const Object& object) {
    const Known known{object.address(), object.number};
    if (!object.closing && isFree(known)) {
      const bool page = object.whole != nullptr;
      tried_.push_back(
          {known, page ? object.whole->pageRounds->ownReturnsOf(pages_.numberOf(object)) : 0});
    }
  };
  // (Launches are held up here: nothing may be thrown.)
  try {
    std::ranges::for_each(blocks_.concurrentObjects(), add);
    std::ranges::for_each(blocks_.watchedObjects(), add);
  } catch (const std::bad_alloc&) {
    tried_.clear();
  }
  return tried_.size();
}

// What look() has moved.
void ZeroCopy::movedInVain() {
  for (const Tried& tried : tried_) {
    Object* const object = index_.findAllocation(tried.known.address);
    if (object != nullptr && isLarge(*object)) {
      const auto offset = static_cast<std::size_t>(tried.known.address - object->address());
      const std::size_t page = offset / options_.pageBytes;
      if (object->pageRounds->ownReturnsOf(page) > tried.returns) {
        object->pageRounds->cameBackInVain(page);
      }
    } else if (object != nullptr && object->number == tried.known.number) {
      object->zeroCopy.movedBackInVain(options_.limits);
    }
  }
}

}  // namespace gmac
