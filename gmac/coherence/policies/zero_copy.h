// SPDX-License-Identifier: Apache-2.0
//
// Objects with one copy, in the CPU's pages (zero_copy_policy.h).
#ifndef GMAC_COHERENCE_POLICIES_ZERO_COPY_H_
#define GMAC_COHERENCE_POLICIES_ZERO_COPY_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/concurrent_objects.h"
#include "gmac/coherence/concurrent_use.h"
#include "gmac/coherence/launches.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/options.h"
#include "gmac/coherence/policies/hot_pages.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/unwaited_calls.h"
#include "gmac/coherence/waiting_threads.h"
#include "gmac/coherence/waits.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

class Blocks;

// The CPU and the accelerator see the same as with two copies: blocks are closed for calls and
// opened for accesses as ever, but no copy is made; or they are not even closed (concurrent_use.h).
// `unordered`: the program is one for managed memory. Objects move while no device work is in
// flight, as placement.h has it. Thread-safe. Not for the fault handler, nor in a child of fork.
class ZeroCopy {
 public:
  ZeroCopy(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Waits& waits,
           ObjectIndex& index, Residency& residency, Blocks& blocks, Launches& launches,
           PromptWaits& promptWaits, UnwaitedCalls& unwaited, ConcurrentUse& concurrent,
           ConcurrentObjects& joins, bool unordered, const ZeroCopyOptions& options);
  ZeroCopy(const ZeroCopy&) = delete;
  ZeroCopy& operator=(const ZeroCopy&) = delete;

  // Whether there is such an object, or the newest wait has seen one; needs no lock.
  bool any() const { return blocks_.anyZeroCopy() || any_.load(std::memory_order_relaxed); }
  // Whether waits of the program have nothing to do while nobody takes the lock: all that there is
  // is used by the CPU and kernels at once. Under the lock.
  bool restsUnlocked() const;
  // Whether other threads have waited beside the one that waited last. Under the lock.
  bool isContended() const { return kernels_.contended; }
  // The program waits, and a call has waited for all work already. Needs no lock.
  bool foundSettled() {
    if (!ledger_.settled()) {
      return false;
    }
    unwaited_.waited();
    promptWaits_.found(ledger_.times().now());
    return true;
  }
  // The program waits, and nothing else is known of that. Needs no lock.
  void noteWait() { unwaited_.waited(); }
  // The program begins to wait. Under the lock.
  void waitBegins() {
    turns_ = 0;
    if (unwaited_.owes()) [[unlikely]] {
      unwaited_.payBack(ledger_.times().now());
    }
    unwaited_.waited();
    if (!movesTried_ && unwaited_.takeUnjudged(true)) [[unlikely]] {
      movedInVain();
    }
    if (promptWaits_.on()) {
      promptWaits_.waits(ledger_.times().now());
    }
  }
  // The calling thread waits, where something may be copied or opened then. Under the lock.
  void waits(WaitingThreads& waiting);
  // Whether kernels have been launched on a stream since the last wait for that. Under the lock.
  bool launchedOn(accel::NativeStream stream) const;
  // The program waits, and the CPU is about to come for the same bytes again. Under the lock.
  void round(Object& object);
  // The same where a launch has taken what the CPU came for, if that concerns the wait: of a large
  // object for its pages. `ofTurns`: accesses have waited, not the program.
  void rounds(Object& object, WaitingThreads& waiting, bool ofTurns = false);
  // What the program has waited for with success took from its first launch on: so long, by the
  // clock's `now`. `contended`: other threads wait, too; `beside`: so many of them have waited
  // since this one waited before. Under the lock.
  std::optional<std::uint64_t> roundTook(const coherence::DeviceWait& wait, std::uint64_t now,
                                         bool contended, std::size_t beside);
  // What it was.
  struct Round {
    std::uint64_t ended = 0;
    std::optional<std::uint64_t> took;
    bool contended = false;  // other threads wait, too
    bool disturbed = false;  // and take from the thread the bytes that it comes for
  };
  // The program has waited with success, perhaps for what round() told of. Under the lock.
  void waited(Object& object, const coherence::DeviceWait& wait);
  // A call of the program's has waited for its own work, as no round() has told.
  static void interrupted(Object& object);
  // The same as waited(), after rounds(). Whether others are under way.
  bool waitedForRounds(Object& object, WaitingThreads& waiting, const coherence::DeviceWait& wait);
  // The same for all that the CPU and kernels use at once. What may be used so is from now on.
  void waitEnded(Lock& lock, const coherence::DeviceWait& wait, const Round& round);
  // The application has destroyed a stream. Not under the lock.
  void streamDestroyed(accel::NativeStream stream);
  // The program is about to choose the object's device: an object with one copy is on the
  // accelerator again, for good, once all work so far has ended; it blocks until then. So are an
  // object's pages, after a wait that finds nothing in flight. Not under the lock.
  void leave(const void* address);
  // The program is about to submit work that names these ranges. The driver copies and fills no
  // range of which a part is a page with one copy and a part is not: such pages are part of their
  // allocations again, unless the driver gets the range in parts, which one that runs past its
  // allocation has not. Blocks, where there are any, until all work so far has ended. False: one
  // cannot move back. Not under the lock.
  bool joinIn(std::span<const coherence::DeviceRange> ranges);
  // Whether none of the ranges has such parts. Not under the lock.
  bool areWhole(std::span<const coherence::DeviceRange> ranges);
  // No page is on its way to become an object of its own, nor will be while the program records
  // work (coherence::recorded(), captureUnderWay()); nor on its way back.
  void endMoves();
  // That, and all pages are part of their allocations again, if what runs ends within
  // kMostPauseToRecord. False: one cannot move back. Not under the lock.
  bool keepWhole();
  // Whether look() has something to do; needs no lock.
  bool lookIsDue() const {
    return unwaited_.isDue() || unwaited_.turnsAreDue() || unwaited_.onTrial();
  }
  // The program has submitted much work for which it does not wait, and is about to submit more:
  // waits for its end, and tells whether what has one copy makes that slow (unwaited_calls.h). Not
  // under the lock.
  [[gnu::cold, gnu::noinline]] void look();
  // The program has waited for device work.
  void afterWait() {
    if (due_.load(std::memory_order_relaxed)) [[unlikely]] {
      moveDue();
    }
  }

 private:
  // Where threads launch one kernel after another, there is never a wait after which nothing is in
  // flight. After so many waits with something to move, launches are held up until nothing is, for
  // as long as kMostPause at most; after twice as many where that fails.
  static constexpr std::uint32_t kLeastBusyWaits = 8;
  static constexpr std::uint32_t kMostBusyWaits = 4096;
  static constexpr std::uint64_t kMostPause = 200'000;            // nanoseconds
  static constexpr std::uint64_t kMostPauseToRecord = 2'000'000;  // nanoseconds
  // So many get one copy at once as accesses have waited in the program's place.
  static constexpr std::size_t kMostByTurns = 2;
  // So many waits of other threads say as much as one of the thread that comes for an object.
  static constexpr std::uint64_t kOthersWaits = 32;
  // And so many where that one's stream has no work: it pauses, or has ended.
  static constexpr std::uint64_t kLongPause = 64 * kOthersWaits;

  // An object while the lock is free: its number tells whether it is still the same.
  struct Known {
    std::byte* address;
    std::uint64_t number;
  };
  // What look() moves. `returns`: of a page, how often it had moved back before.
  struct Tried {
    Known known;
    std::uint32_t returns;
  };
  // What look() does: a round ends, or calls are tried or judged (zero_copy_looks.cc).
  void endTurns();
  bool judgeTurns(std::uint64_t each);
  void noteUnwaited();
  void keepFewMovesToCpu(std::size_t most);
  void beginTrial(std::uint64_t each, std::uint64_t every);
  void tryCall();
  bool hasRoomForMoves();
  void lookAtCalls();
  // Calls since the newest round's end, at least one.
  std::uint64_t takeCalls();
  void noteAny();
  bool mayMove(const Object& object) const;
  // Whether it moves page by page, and a page may.
  static bool isLarge(const Object& object) { return object.pageRounds != nullptr; }
  // Of a small one: whether a launch has taken what the CPU came for.
  static bool hasRound(const Object& object) {
    return !object.isZeroCopy() && object.zeroCopy.taken();
  }
  bool mayPageMove(const Object& object, const std::byte* page) const;
  ZeroCopyPolicy::Advice finished(ZeroCopyPolicy& policy, const coherence::DeviceWait& wait,
                                  std::size_t bytes) const;
  void setDue(const Object& object) { setDue({object.address(), object.number}); }
  void setDue(const Known& known);
  Object* find(const Known& known);
  // `paused`: launches are held up, and go on afterwards.
  [[gnu::cold, gnu::noinline]] void moveDue(bool paused = false);
  // Of what is to move, the first one that nobody holds, or the end.
  std::vector<Known>::iterator firstFree();
  bool isFree(const Known& known);
  bool isFreeNow(const Known& known);
  void moveTried();
  std::size_t noteWithOneCopy();
  [[gnu::cold, gnu::noinline]] void movedInVain();
  bool pause(Lock& lock);
  void beginConcurrent(Lock& lock);
  void leaveSlow(ConcurrentUse::Queue queue);
  void move(const Known& known);
  Object* settled(const Known& known, bool toCpu, std::unique_ptr<Object>* page);
  // Moves an object of one kind of memory to the other; all that fails is told of in the log.
  void moveMemory(Object& object, std::unique_ptr<Object> page);
  // A page of which a range has a part, and of what is beside it as well. No address: there is
  // none.
  Known pageAcross(std::span<const coherence::DeviceRange> ranges);
  // Moves all pages back. False: one cannot.
  bool joinPages();
  Status copy(Object& object, bool toCpu);
  Status toCpu(Object& object);
  Status toDevice(Object& object);
  void moved(Object& object, accel::Home home);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  accel::MovableMemory* const memory_;  // NULL: nothing moves
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
  Blocks& blocks_;
  Launches& launches_;
  PromptWaits& promptWaits_;
  UnwaitedCalls& unwaited_;
  ConcurrentUse& concurrent_;
  ConcurrentObjects& joins_;
  const bool unordered_;
  const ZeroCopyOptions options_;
  HotPages pages_;
  bool pageMoves_ = false;         // its memory
  bool looks_ = false;             // a thread, and has not held up launches yet
  bool movesTried_ = false;        // it moves what is in tried_
  std::uint64_t callsBefore_ = 0;  // of the process, by the newest round's end
  std::vector<Known> moves_;
  std::vector<Tried> tried_;  // what look() moves, or has moved and has still to judge
  std::array<std::byte*, kMostByTurns> onTrial_{};  // as turns have told; NULL: none
  std::uint32_t turns_ = 0;                         // of objects' rounds at the newest wait
  KernelTimes kernels_;                             // by the newest wait's end
  std::size_t streams_ = 0;      // on which there was work before the newest wait ended
  std::uint32_t busyWaits_ = 0;  // after which something was to move, while work was in flight
  std::uint32_t pauseAfter_ = kLeastBusyWaits;
  std::atomic<bool> any_{false};
  std::atomic<bool> due_{false};  // moves_ is not
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_ZERO_COPY_H_
