// SPDX-License-Identifier: Apache-2.0
//
// Launches that repeat: since work on the same stream nobody has changed anything under the lock of
// all objects.
//
// Such a launch finds all objects released. What is left to note of it is that its stream has newer
// work than the newest mark. So it takes no lock, and whoever takes the lock next notes that before
// anything else (ObjectMutex::Prelude). A program that is bound by its launches does not pay for
// ours then.
//
//  - Launches may repeat on streams that follow all flushes, where no object is open that their
//    kernels use, and nothing is lent, awaited by the call itself or due to move, and no access is
//    to go first (access_turns.h).
//  - So may copies and fills that name bytes of objects, where nothing at all is open and nothing
//    has one copy: they use less than a launch may. They are no rounds.
//  - The end of such launches is known without a mark where the program has waited for all of them.
//    Else they are marked before it waits, as whoever comes for an object then has less to wait
//    for; but not where accesses come after fewer than half of such waits: a mark takes the lock,
//    so that no thread's launches repeat.
//  - While the CPU and kernels use objects at once (concurrent_use.h), waits of the program have
//    nothing to do either, and need no lock, unless a round was slow (unlocked_rounds.h).
//  - Objects with one copy are checked now and then, and launches are counted that nothing waits
//    for (unwaited_calls.h). So where there are any, at most kMostUnchecked repeat from one launch
//    with the lock to the next, or that many for each of the streams that the program has waited
//    for. Where waits are skipped, each of them, for whatever the program waits, lets as many
//    repeat anew, until the next check is due, but at most kMostRenewed; and after kMostSkipping
//    launches with the lock, or kMostSkipped in all, a wait takes the lock, too.
//  - While accesses of the CPU find the device crowded (access_turns.h), a stream gets one launch
//    more, until the program has waited for that.
//  - A thread that is about to launch while another one submits with the lock waits for that:
//    launches may repeat again then. Where waits are skipped, so does a thread that has waited, and
//    both do while another one has the lock. Else threads that come for the lock one after another
//    would keep each other from doing without. They wait for kMostWait at most, and where that was
//    in vain, the next kNotAgain of them do not.
#ifndef GMAC_COHERENCE_REPEATED_LAUNCHES_H_
#define GMAC_COHERENCE_REPEATED_LAUNCHES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/native_streams.h"
#include "gmac/coherence/concurrent_use.h"
#include "gmac/coherence/loans.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/unlocked_rounds.h"
#include "gmac/coherence/unwaited_calls.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

class Blocks;
class Ledger;

// Thread-safe. Not in a child of fork.
class RepeatedLaunches final : public ObjectMutex::Prelude {
 public:
  static constexpr std::uint64_t kMostUnchecked = 15;
  static constexpr std::uint64_t kMostRenewed = 256;
  static constexpr int kMostSkipping = 8;
  static constexpr std::uint64_t kMostSkipped = 512;
  static constexpr std::chrono::microseconds kMostWait{100};
  static constexpr int kNotAgain = 64;
  static constexpr int kMostScore = 16;
  static constexpr int kLeastScore = 4;

  RepeatedLaunches(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                   Loans& loans, Blocks& blocks, PromptWaits& promptWaits, UnwaitedCalls& unwaited,
                   ConcurrentUse& concurrent);
  RepeatedLaunches(const RepeatedLaunches&) = delete;
  RepeatedLaunches& operator=(const RepeatedLaunches&) = delete;

  // ---- Under the lock

  // Work of a stream has been noted: from here on launches repeat where they may. `launch`: it was
  // one itself, which the policies have seen.
  void allow(const Lock& lock, bool launch);
  // Such work has been noted, after which no launch may repeat.
  void refuse() { repeats_.store(false, std::memory_order_relaxed); }
  // The same where a wait of the program's has ended. What its waits do meanwhile:
  struct Waits {
    bool skip = false;       // nothing, and take no lock either
    bool contended = false;  // several threads wait
  };
  void allow(const Lock& lock, const Waits& waits);
  // The next wait has something to do.
  void waitTakesLock() {
    waits_.skip = false;
    skipsWaits_.store(false, std::memory_order_relaxed);
  }
  // How many launches have repeated so far.
  std::uint64_t launches() const { return launched_.load(std::memory_order_relaxed); }
  // How many launches have repeated since the last question.
  std::uint64_t takeLaunches() {
    const std::uint64_t launched = launched_.load(std::memory_order_relaxed);
    return launched - std::exchange(taken_, launched);
  }
  // What the rounds without the lock tell, since the last question.
  UnlockedRounds::Judged judgeRounds() { return std::exchange(judged_, {}); }
  // The queue is no more.
  void forget(ConcurrentUse::Queue queue) {
    judged_ = judged_.queue == queue ? UnlockedRounds::Judged{} : judged_;
  }

  // ---- Without the lock

  // See work_port.h.
  bool may() const noexcept {
    return due() || skipsWaits() || (submitting() && repeats_.load(std::memory_order_relaxed));
  }
  bool mayName() const noexcept { return due() && named_.load(std::memory_order_relaxed); }
  bool begin(accel::NativeStream stream, bool names) noexcept;
  void end(accel::NativeStream stream, bool submitted) noexcept;
  // A thread is about to submit work of a stream with the lock; it has, or nothing was submitted.
  void submissionBegins() noexcept { submits_.fetch_add(1, std::memory_order_relaxed); }
  void submissionEnds() noexcept { submits_.fetch_sub(1, std::memory_order_relaxed); }
  // The program begins to wait for a stream, or for all streams; kForeignStream: for something
  // else.
  coherence::DeviceWait waitBegins(std::optional<accel::NativeStream> stream) noexcept;
  // It has waited with success. Whether that is all there is to do; else, if the wait was to be
  // skipped, it counts as one that has begun.
  bool waitEnded(coherence::DeviceWait& wait) noexcept;
  // Whether there are launches whose end nobody could ask for.
  bool anyToMark() const noexcept;
  // The program begins to wait for a part of them: whether they are to be marked.
  bool marksForWait() noexcept;
  // Launches no longer repeat, and those so far are marked, by another thread if that has begun.
  // Takes the lock where there may be any.
  void note() noexcept;

 private:
  using Count = std::atomic<std::uint64_t>;
  class Inside;

  void run() noexcept override;
  bool usedByNone(accel::NativeStream stream) const;
  void limit();
  void letMoreRepeat() noexcept;
  bool findStreams(const Lock& lock);
  void allow(const Lock& lock, UnlockedRounds::Mode mode);
  // A wait that begins while launches may not repeat.
  coherence::DeviceWait atEnd(std::optional<accel::NativeStream> stream) const noexcept;
  bool endsWithoutLock(const coherence::DeviceWait& wait, ConcurrentUse::Nanoseconds now) noexcept;
  bool skipsWaits() const noexcept { return skipsWaits_.load(std::memory_order_relaxed); }
  bool submitting() const noexcept { return submits_.load(std::memory_order_relaxed) != 0; }
  bool comesToRepeat() noexcept;
  // Launches may repeat, or some are not marked yet.
  bool dueOrMarking() const noexcept { return due() || marking_.load(); }

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Loans& loans_;
  Blocks& blocks_;
  PromptWaits& promptWaits_;
  UnwaitedCalls& unwaited_;
  ConcurrentUse& concurrent_;

  // Written under the lock while launches may not repeat, and nobody is inside.
  UnlockedRounds rounds_;
  UnlockedRounds::Judged judged_;
  Waits waits_;                          // as the newest wait with the lock has found
  int skipping_ = 0;                     // launches with the lock since then
  std::uint64_t skippedFrom_ = 0;        // launched_ by then
  std::uint64_t most_ = kMostUnchecked;  // so many from one launch with the lock to the next
  std::uint64_t waitedFor_ = 1;          // so many streams, since the newest of these
  std::uint64_t checked_ = 0;            // launched_ by then
  std::uint64_t checkAt_ = 0;            // waits do not let more repeat than up to that launched_

  std::uint64_t taken_ = 0;                // launched_ at the last take()
  std::atomic<std::uint32_t> inside_{0};   // threads that launch, or look at the above
  Count limit_{0};                         // launched_ by when no more may repeat
  Count launched_{0};                      // of all time, before they are submitted
  std::atomic<bool> marking_{false};       // run() is under way
  std::atomic<bool> named_{false};         // what names bytes may repeat, too
  Count noted_{0};                         // so many when launches were allowed
  Count waited_{0};                        // so many the program has waited for
  std::atomic<int> score_{kMostScore};     // one more after a wait with an access, else one less
  Count faults_{0};                        // of all time, by the newest wait
  std::atomic<bool> repeats_{false};       // launches were allowed, the last time that was asked
  std::atomic<bool> skipsWaits_{false};    // and waits were to be skipped
  std::atomic<int> inVain_{0};             // so many wait for no submission
  std::atomic<std::uint32_t> submits_{0};  // threads that submit with the lock
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_REPEATED_LAUNCHES_H_
