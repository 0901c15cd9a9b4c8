// SPDX-License-Identifier: Apache-2.0
//
// Launches that repeat: since a launch on the same stream nobody has taken the lock of all objects.
//
// Such a launch finds all objects released. What is left to note of it is that its stream has newer
// work than the newest mark. So it takes no lock, and whoever takes the lock next notes that before
// anything else (ObjectMutex::Prelude). A program that is bound by its launches does not pay for
// ours then.
//
//  - Launches may repeat on streams that follow all flushes, where no object is open that their
//    kernels use, and nothing is lent, awaited by the call itself or due to move, and no access is
//    to go first (access_turns.h).
//  - The end of such launches is known without a mark where the program has waited for all of them.
//    Else they are marked before it waits, as whoever comes for an object then has less to wait
//    for; but not where accesses come after fewer than half of such waits: a mark takes the lock,
//    so that no thread's launches repeat.
//  - While the CPU and kernels use objects at once (concurrent_use.h), waits of the program have
//    nothing to do either, and need no lock, unless a round was slow.
//  - Objects with one copy are checked now and then, and launches are counted that nothing waits
//    for (unwaited_calls.h). So where there are any, at most kMostUnchecked repeat in a row.
#ifndef GMAC_COHERENCE_REPEATED_LAUNCHES_H_
#define GMAC_COHERENCE_REPEATED_LAUNCHES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/native_streams.h"
#include "gmac/coherence/concurrent_use.h"
#include "gmac/coherence/loans.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/unwaited_calls.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

class Blocks;
class Ledger;

// Thread-safe. Not in a child of fork.
class RepeatedLaunches final : public ObjectMutex::Prelude {
 public:
  static constexpr std::size_t kMostStreams = 32;
  static constexpr std::int64_t kMostUnchecked = 15;
  static constexpr int kMostScore = 16;
  static constexpr int kLeastScore = 4;

  RepeatedLaunches(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                   Loans& loans, Blocks& blocks, PromptWaits& promptWaits, UnwaitedCalls& unwaited,
                   ConcurrentUse& concurrent);
  RepeatedLaunches(const RepeatedLaunches&) = delete;
  RepeatedLaunches& operator=(const RepeatedLaunches&) = delete;

  // ---- Under the lock

  // A launch that may use all objects has been noted, or a wait of the program's has ended. From
  // here on launches repeat where they may. `skipsWaits`: so do waits.
  void allow(const Lock& lock, bool skipsWaits);
  // How many launches have repeated so far.
  std::uint64_t launches() const { return launched_.load(std::memory_order_relaxed); }
  // How many launches have repeated since the last question.
  std::uint64_t takeLaunches() {
    const std::uint64_t launched = launched_.load(std::memory_order_relaxed);
    return launched - std::exchange(taken_, launched);
  }
  // What the rounds without the lock tell of the objects that are used at once.
  ConcurrentUse::Verdict judgeRounds();

  // ---- Without the lock

  // See work_port.h.
  bool may() const noexcept { return due(); }
  bool begin(accel::NativeStream stream) noexcept;
  void end(accel::NativeStream stream, bool submitted) noexcept;
  // The program begins to wait for a stream, or for all streams; kForeignStream: for something
  // else.
  coherence::DeviceWait waitBegins(std::optional<accel::NativeStream> stream) noexcept;
  // It has waited with success. Whether that is all there is to do.
  bool waitEnded(const coherence::DeviceWait& wait) noexcept;
  // Whether there are launches whose end nobody could ask for.
  bool anyToMark() const noexcept;
  // The program begins to wait for a part of them: whether they are to be marked.
  bool marksForWait() noexcept;
  // Launches no longer repeat, and those so far are marked, by another thread if that has begun.
  // Takes the lock where there may be any.
  void note() noexcept;

 private:
  struct Stream {
    accel::NativeStream stream{};
    std::atomic<bool> launched{false};  // since it was allowed
  };

  void run() noexcept override;
  bool usedByNone(accel::NativeStream stream) const;
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
  std::array<Stream, kMostStreams> streams_;
  std::size_t count_ = 0;
  bool skipsWaits_ = false;

  std::uint64_t taken_ = 0;                 // launched_ at the last take()
  std::atomic<std::uint32_t> inside_{0};    // threads that launch, or look at the above
  std::atomic<std::int64_t> left_{0};       // so many may repeat
  std::atomic<std::uint64_t> launched_{0};  // of all time, before they are submitted
  std::atomic<bool> marking_{false};        // run() is under way
  std::atomic<std::uint64_t> noted_{0};     // so many when launches were allowed
  std::atomic<std::uint64_t> waited_{0};    // so many the program has waited for
  std::atomic<int> score_{kMostScore};      // one more after a wait with an access, else one less
  std::atomic<std::uint64_t> faults_{0};    // of all time, by the newest wait

  // Of rounds at whose wait nothing was to be done, in nanoseconds.
  std::atomic<std::uint64_t> patience_{0};  // what takes longer is slow
  std::atomic<std::uint64_t> began_{0};   // the first launch since the last wait; 0: there is none
  std::atomic<std::uint64_t> rounds_{0};  // those that were not slow
  std::atomic<std::uint64_t> roundsTook_{0};  // together
  std::atomic<std::uint64_t> slowTook_{0};    // the newest slow one; 0: there is none
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_REPEATED_LAUNCHES_H_
