// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/repeated_launches.h"

#include <algorithm>
#include <limits>

#include "gmac/accel/backoff.h"
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

void RepeatedLaunches::allow(const Lock& lock, bool skipsWaits) {
  const accel::Devices* const devices = accelerator_.devices();
  if (due() || lock.turns().claimed() || loans_.any(coherence::Lent::kOnDevice) ||
      promptWaits_.on() || unwaited_.onTrial() || ledger_.submissionUnderWay() ||
      (lock.turns().any() && lock.turns().crowded(ledger_.times().now()))) {
    return;
  }
  // (No stream follows the calls of other devices.)
  if (devices != nullptr && (!devices->reachEachOther() || ledger_.callsElsewhere(0))) {
    return;
  }
  count_ = 0;
  ledger_.forEachUpToDate([&](accel::NativeStream stream) {
    if (count_ < kMostStreams && usedByNone(stream)) {
      streams_[count_].launched.store(false, std::memory_order_relaxed);
      streams_[count_++].stream = stream;
    }
  });
  if (count_ == 0) {
    return;
  }
  skipsWaits_ = skipsWaits;
  patience_.store(concurrent_.patience(), std::memory_order_relaxed);
  began_.store(0, std::memory_order_relaxed);
  noted_.store(launched_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  left_.store(blocks_.anyZeroCopy() || unwaited_.tries() ? kMostUnchecked
                                                         : std::numeric_limits<std::int64_t>::max(),
              std::memory_order_relaxed);
  due_.store(true);
}

bool RepeatedLaunches::begin(accel::NativeStream stream) noexcept {
  if (!due()) {
    return false;
  }
  inside_.fetch_add(1);
  // A host function runs between launches, and what it writes is released by the next one.
  if (due_.load() && ledger_.hostFunctionsRun()) {
    const auto end = streams_.begin() + count_;
    const auto found = std::find_if(streams_.begin(), end,
                                    [&](const Stream& one) { return one.stream == stream; });
    if (found != end && left_.fetch_sub(1, std::memory_order_relaxed) > 0) {
      found->launched.store(true, std::memory_order_relaxed);
      launched_.fetch_add(1);
      here.inside = true;
      if (skipsWaits_ && began_.load(std::memory_order_relaxed) == 0) {
        began_.store(ledger_.times().now(), std::memory_order_relaxed);
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
    ledger_.repeated(stream, false);
    ledger_.submissionEnds();
    lock.changed();
  }
}

coherence::DeviceWait RepeatedLaunches::waitBegins(
    std::optional<accel::NativeStream> stream) noexcept {
  coherence::DeviceWait wait;
  if (!due()) {
    return wait;
  }
  // A handler of the program's that met a closed page would wait for its own thread.
  const os::SignalsBlocked blocked(os::SignalsBlocked::When::kWhereHandled);
  inside_.fetch_add(1);
  if (due_.load()) {
    const std::uint64_t launched = launched_.load();
    const bool any = launched != noted_.load(std::memory_order_relaxed);
    wait.skipped = skipsWaits_ && any;
    // What is counted has been submitted where no other thread is inside.
    const bool all =
        std::all_of(streams_.begin(), streams_.begin() + count_, [&](const Stream& one) {
          return !stream || one.stream == *stream || !one.launched.load(std::memory_order_relaxed);
        });
    if (any && all && inside_.load() == 1) {
      wait.launches = launched;
    }
  }
  inside_.fetch_sub(1);
  return wait;
}

bool RepeatedLaunches::waitEnded(const coherence::DeviceWait& wait) noexcept {
  const bool forAll = wait.launches != 0 && wait.launches == launched_.load();
  if (forAll) {
    waited_.store(wait.launches);
  }
  if (wait.skipped) {
    unwaited_.waited();
  }
  if (!wait.skipped || !due()) {
    return false;
  }
  const std::uint64_t began = forAll ? began_.exchange(0, std::memory_order_relaxed) : 0;
  if (began == 0) {
    return true;
  }
  const std::uint64_t took = ledger_.times().now() - began;
  if (took > patience_.load(std::memory_order_relaxed)) {
    slowTook_.store(took, std::memory_order_relaxed);
    return false;
  }
  rounds_.fetch_add(1, std::memory_order_relaxed);
  roundsTook_.fetch_add(took, std::memory_order_relaxed);
  return true;
}

ConcurrentUse::Verdict RepeatedLaunches::judgeRounds() {
  const std::uint64_t rounds = rounds_.exchange(0, std::memory_order_relaxed);
  const std::uint64_t took = roundsTook_.exchange(0, std::memory_order_relaxed);
  const std::uint64_t slow = slowTook_.exchange(0, std::memory_order_relaxed);
  const auto verdict =
      rounds > 0 ? concurrent_.took(took / rounds, rounds) : ConcurrentUse::Verdict::kOpen;
  return slow == 0 || verdict == ConcurrentUse::Verdict::kBad ? verdict : concurrent_.took(slow);
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
  for (std::size_t i = 0; launched != noted_.load(std::memory_order_relaxed) && i < count_; ++i) {
    if (streams_[i].launched.load(std::memory_order_relaxed)) {
      ledger_.repeated(streams_[i].stream, ended);
    }
  }
  marking_.store(false);
}

}  // namespace gmac
