// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/repeated_launches.h"

#include <algorithm>
#include <limits>

#include "gmac/accel/backoff.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"
#include "gmac/observe/stats.h"
#include "gmac/os/signal_mask.h"

namespace gmac {
namespace {

// The calling thread is between begin() and end(); and has run the prelude there, in a fault of the
// driver's: then it is the one that submits, as between beginDeviceWork() and endDeviceWork().
struct Here {
  bool inside = false;
  bool noted = false;
};
constinit thread_local Here here __attribute__((tls_model("initial-exec")));

}  // namespace

RepeatedLaunches::RepeatedLaunches(ObjectMutex& mutex, accel::Accelerator& accelerator,
                                   Ledger& ledger, Loans& loans, Blocks& blocks,
                                   PromptWaits& promptWaits, UnwaitedCalls& unwaited,
                                   ConcurrentUse& concurrent)
    : mutex_(mutex),
      accelerator_(accelerator),
      ledger_(ledger),
      loans_(loans),
      blocks_(blocks),
      promptWaits_(promptWaits),
      unwaited_(unwaited),
      concurrent_(concurrent) {
  mutex.startWith(*this);
}

bool RepeatedLaunches::usedByNone(accel::NativeStream stream) const {
  const Blocks::OpenList& open = blocks_.openObjects();
  return std::none_of(open.begin(), open.end(),
                      [&](const Object& object) { return object.usedBy(stream); });
}

// A thread looks at what is noted for launches that repeat, if they may: whoever takes the lock
// waits for it. (A handler of the program's that met a closed page would wait for its own thread.)
class RepeatedLaunches::Inside {
 public:
  explicit Inside(RepeatedLaunches& launches) : launches_(launches) {
    launches_.inside_.fetch_add(1);
    may_ = launches_.due_.load();
  }
  ~Inside() { launches_.inside_.fetch_sub(1); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  bool may() const { return may_; }

 private:
  const os::SignalsBlocked blocked_{os::SignalsBlocked::When::kWhereHandled};
  RepeatedLaunches& launches_;
  bool may_ = false;
};

void RepeatedLaunches::allow(const Lock& lock, bool launch) {
  if (launch) {
    most_ = kMostUnchecked * std::exchange(waitedFor_, 1);
    checked_ = launched_.load(std::memory_order_relaxed);
    skipping_ = std::min(skipping_ + 1, kMostSkipping + 1);
  }
  const std::uint64_t skipped = launched_.load(std::memory_order_relaxed) - skippedFrom_;
  const bool skip = waits_.skip && !judged_.bad && skipping_ <= kMostSkipping &&
                    skipped < kMostSkipped && !concurrent_.unwaited() &&
                    !blocks_.concurrentObjects().empty() && blocks_.watchedObjects().empty() &&
                    !blocks_.anyReadBacks();
  allow(lock, UnlockedRounds::Mode{.skipsWaits = skip, .contended = waits_.contended});
}

void RepeatedLaunches::allow(const Lock& lock, const Waits& waits) {
  waits_ = waits;
  skipping_ = 0;
  skippedFrom_ = launched_.load(std::memory_order_relaxed);
  allow(lock, UnlockedRounds::Mode{.skipsWaits = waits.skip, .contended = waits.contended});
  if (due()) {
    letMoreRepeat();
  }
}

// The streams on which launches may repeat.
bool RepeatedLaunches::findStreams(const Lock& lock) {
  rounds_.clear();
  // (No stream follows the calls of other devices.)
  const accel::Devices* const devices = accelerator_.devices();
  if (lock.turns().claimed() || loans_.any(coherence::Lent::kOnDevice) || promptWaits_.on() ||
      unwaited_.onTrial() ||
      (devices != nullptr && (!devices->reachEachOther() || ledger_.callsElsewhere(0)))) {
    return false;
  }
  ledger_.forEachUpToDate([&](accel::NativeStream stream, std::uint64_t thread) {
    if (!rounds_.full() && usedByNone(stream)) {
      rounds_.add(stream, ledger_.queueOf(stream), thread);
    }
  });
  return !rounds_.streams().empty();
}

void RepeatedLaunches::allow(const Lock& lock, UnlockedRounds::Mode mode) {
  if (due() || ledger_.submissionUnderWay()) {
    return;
  }
  if (!findStreams(lock)) {
    skipsWaits_.store(false, std::memory_order_relaxed);
    refuse();
    return;
  }
  repeats_.store(true, std::memory_order_relaxed);
  mode.measures = blocks_.anyReadBacks() || blocks_.anyZeroCopy();
  mode.crowded = lock.turns().any() && lock.turns().crowded(ledger_.times().now());
  skipsWaits_.store(rounds_.start(mode, concurrent_), std::memory_order_relaxed);
  const std::uint64_t launched = launched_.load(std::memory_order_relaxed);
  noted_.store(launched, std::memory_order_relaxed);
  named_.store(blocks_.openObjects().empty() && !blocks_.anyZeroCopy() && !ledger_.anyUsersDiffer(),
               std::memory_order_relaxed);
  limit();
  due_.store(true);
}

void RepeatedLaunches::limit() {
  if (!blocks_.anyZeroCopy() && !unwaited_.tries()) {
    limit_.store(std::numeric_limits<std::uint64_t>::max(), std::memory_order_relaxed);
    return;
  }
  const std::uint64_t unwaited = checked_ + most_;
  const std::size_t objects = blocks_.concurrentObjects().size();
  checkAt_ = unwaited;
  if (skipsWaits() && objects != 0) {
    const std::size_t calls = concurrent_.callsToCheck(objects);  // (the one with the lock is one)
    const std::uint64_t check = taken_ + std::max<std::size_t>(calls, 1) - 1;
    checkAt_ = std::max(unwaited, std::min(check, checked_ + kMostRenewed));
  }
  limit_.store(unwaited, std::memory_order_relaxed);
}

// The program has waited.
void RepeatedLaunches::letMoreRepeat() noexcept {
  const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
  const std::uint64_t unwaited = launched_.load(std::memory_order_relaxed) + most_;
  if (limit < checkAt_ && limit < unwaited) {
    limit_.store(std::min(unwaited, checkAt_), std::memory_order_relaxed);
  }
}

// Whether launches may repeat when those are done that have the lock, or submit with it. (What
// these wait for may need this launch.)
bool RepeatedLaunches::comesToRepeat() noexcept {
  if (due()) {
    return true;
  }
  if (skipsWaits()) {
    const Look look(mutex_);
  }
  if (inVain_.load(std::memory_order_relaxed) > 0) {
    inVain_.fetch_sub(1, std::memory_order_relaxed);
    return due();
  }
  for (accel::Backoff backoff; submitting() && !due();) {
    if (backoff.waited() > kMostWait) {
      inVain_.store(kNotAgain, std::memory_order_relaxed);
      break;
    }
    backoff.step();
  }
  return due();
}

bool RepeatedLaunches::begin(accel::NativeStream stream, bool names) noexcept {
  if (names ? !due() : !comesToRepeat()) {
    return false;
  }
  inside_.fetch_add(1);
  // A host function runs between launches, and what it writes is released by the next one.
  if (due_.load() && (!names || named_.load(std::memory_order_relaxed)) &&
      ledger_.hostFunctionsRun()) {
    UnlockedRounds::Stream* const found = rounds_.find(stream);
    if (found != nullptr && rounds_.mayLaunch(*found) &&
        launched_.load(std::memory_order_relaxed) < limit_.load(std::memory_order_relaxed)) {
      launched_.fetch_add(1);
      here.inside = true;
      if (names) {
        UnlockedRounds::submits(*found, threadNumber());
      } else {
        rounds_.launches(*found, rounds_.measures() ? ledger_.times().now() : 0, threadNumber());
      }
      return true;
    }
  }
  inside_.fetch_sub(1);
  return false;
}

void RepeatedLaunches::end(accel::NativeStream stream, bool submitted) noexcept {
  if (submitted) {
    stats().called(0);
    stats().repeatedCalls.add();
  }
  const bool noted = here.noted;
  here = {};
  inside_.fetch_sub(1);
  if (noted) [[unlikely]] {
    Lock lock(mutex_);
    ledger_.repeated(stream, false, threadNumber());
    ledger_.submissionEnds();
    lock.changed();
  }
}

coherence::DeviceWait RepeatedLaunches::atEnd(
    std::optional<accel::NativeStream> stream) const noexcept {
  coherence::DeviceWait wait;
  wait.rounds.atEnd = skipsWaits() && !blocks_.anyReadBacks();
  wait.rounds.ofEvent = stream == accel::kForeignStream;
  wait.rounds.stream = stream;
  wait.rounds.until = wait.rounds.atEnd ? ledger_.times().now() : 0;
  return wait;
}

coherence::DeviceWait RepeatedLaunches::waitBegins(
    std::optional<accel::NativeStream> stream) noexcept {
  coherence::DeviceWait wait;
  if (!due()) {
    return atEnd(stream);
  }
  const Inside inside(*this);
  if (!inside.may()) {
    return atEnd(stream);
  }
  const std::uint64_t launched = launched_.load();
  const bool any = launched != noted_.load(std::memory_order_relaxed);
  // What is counted has been submitted where no other thread is inside.
  if (any && rounds_.onlyLaunchedOn(stream) && inside_.load() == 1) {
    wait.launches = launched;
  }
  rounds_.waitBegins(stream, threadNumber(), any, wait);
  return wait;
}

// A wait has ended that was not noted when it began. (Its round is where it was.)
bool RepeatedLaunches::endsWithoutLock(const coherence::DeviceWait& wait,
                                       ConcurrentUse::Nanoseconds now) noexcept {
  if (!comesToRepeat()) {
    return false;
  }
  const Inside inside(*this);
  if (!inside.may()) {
    return false;
  }
  const std::optional<accel::NativeStream> stream =
      wait.rounds.ofEvent ? std::optional(accel::kForeignStream) : wait.rounds.stream;
  coherence::DeviceWait late;
  rounds_.waitBegins(stream, threadNumber(), true, late);
  late.rounds.until = std::min(late.rounds.until, wait.rounds.until);
  late.rounds.since = late.rounds.since > wait.rounds.until ? 0 : late.rounds.since;
  if (!late.skipped || !rounds_.waitEnded(late, threadNumber(), now)) {
    return false;
  }
  letMoreRepeat();
  return true;
}

// Where launches have ceased to repeat meanwhile, or the round was slow, what has begun is, or
// goes, back under the lock, and its end is seen there.
bool RepeatedLaunches::waitEnded(coherence::DeviceWait& wait) noexcept {
  if (wait.launches != 0 && wait.launches == launched_.load()) {
    waited_.store(wait.launches);
  }
  if (wait.skipped) {
    unwaited_.waited();
  }
  const ConcurrentUse::Nanoseconds now =
      wait.skipped || wait.rounds.atEnd ? ledger_.times().now() : 0;
  if (wait.rounds.atEnd && endsWithoutLock(wait, now)) {
    unwaited_.waited();
    return true;
  }
  if (!wait.rounds.noted) {
    return false;
  }
  if (!wait.skipped || comesToRepeat()) {
    const Inside inside(*this);
    if (inside.may() && rounds_.waitEnded(wait, threadNumber(), now)) {
      if (wait.skipped) {
        letMoreRepeat();
      }
      return wait.skipped;
    }
  }
  if (wait.skipped && wait.rounds.since != 0) {
    wait.begun = true;
    wait.stream = wait.rounds.stream;
  }
  return false;
}

bool RepeatedLaunches::anyToMark() const noexcept {
  const std::uint64_t launched = launched_.load();
  return dueOrMarking() && launched != noted_.load(std::memory_order_relaxed) &&
         launched != waited_.load();
}

// (Accesses without a fault wait a little longer, and nothing else. Of two waits at once one may
// not be counted.)
bool RepeatedLaunches::marksForWait() noexcept {
  if (!anyToMark()) {
    return false;
  }
  const std::uint64_t faults = stats().readFaults.value() + stats().writeFaults.value();
  const bool came = faults != faults_.exchange(faults, std::memory_order_relaxed);
  const int score =
      std::clamp(score_.load(std::memory_order_relaxed) + (came ? 1 : -1), 0, kMostScore);
  score_.store(score, std::memory_order_relaxed);
  return score >= kLeastScore || blocks_.protocol().fetchesAtSync();
}

void RepeatedLaunches::note() noexcept {
  if (dueOrMarking()) {
    const Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  }
}

// The holder of the lock comes first from here on: no launch begins any more, and those under way
// end.
void RepeatedLaunches::run() noexcept {
  marking_.store(true);
  due_.store(false);
  const std::uint32_t own = here.inside ? 1 : 0;
  for (accel::Backoff backoff; inside_.load() > own;) {
    backoff.step();
  }
  if (here.inside) {
    here.noted = true;
    ledger_.submissionBegins();
  }
  const std::uint64_t launched = launched_.load();
  const bool ended = waited_.load() == launched && own == 0;
  const bool any = launched != noted_.load(std::memory_order_relaxed);
  for (const UnlockedRounds::Stream& one : rounds_.streams()) {
    if (any && one.launched.load(std::memory_order_relaxed)) {
      ledger_.repeated(one.stream, ended, one.thread.load(std::memory_order_relaxed));
    }
  }
  const UnlockedRounds::Judged judged = rounds_.stop(concurrent_);
  judged_ = judged_.bad ? judged_ : judged;
  waitedFor_ = std::max<std::uint64_t>(waitedFor_, rounds_.streamsWaitedFor());
  marking_.store(false);
}

}  // namespace gmac
