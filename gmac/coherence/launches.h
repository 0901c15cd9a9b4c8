// SPDX-License-Identifier: Apache-2.0
//
// Device work: calls, work on the application's own streams, and work of the runtime's own. All of
// it is released, submitted and noted in one way (Gelado et al., section 3.3), whoever submits it.
#ifndef GMAC_COHERENCE_LAUNCHES_H_
#define GMAC_COHERENCE_LAUNCHES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/api/adsm.h"
#include "gmac/base/short_list.h"
#include "gmac/base/status.h"
#include "gmac/coherence/call_uses.h"
#include "gmac/coherence/concurrent_use.h"
#include "gmac/coherence/listing_policy.h"
#include "gmac/coherence/loans.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/repeated_launches.h"
#include "gmac/coherence/unwaited_calls.h"
#include "gmac/coherence/waits.h"
#include "gmac/coherence/work_port.h"
#include "gmac/protocols/protocol.h"

namespace gmac {

class Allocation;
class Blocks;
class Coarsening;
class Kernels;
class Ledger;

// Thread-safe. Not for the fault handler, nor in a child of fork.
class Launches {
 public:
  // `unordered`: the program's own work has no order with the CPU's accesses to objects with one
  // copy.
  Launches(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger, Loans& loans,
           Waits& waits, ObjectIndex& index, Blocks& blocks, Coarsening& coarsening,
           Allocation& allocation, Kernels& kernels, PromptWaits& promptWaits,
           UnwaitedCalls& unwaited, ConcurrentUse& concurrent, RepeatedLaunches& repeated,
           ListingPolicy& listing, bool unordered)
      : mutex_(mutex),
        accelerator_(accelerator),
        ledger_(ledger),
        loans_(loans),
        waits_(waits),
        index_(index),
        blocks_(blocks),
        coarsening_(coarsening),
        allocation_(allocation),
        kernels_(kernels),
        promptWaits_(promptWaits),
        unwaited_(unwaited),
        concurrent_(concurrent),
        repeated_(repeated),
        listing_(listing),
        unordered_(unordered) {}
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  // See adsm.h. The call runs on a device, where all that it may use has to lie: where an object
  // does not, that is told in `away`, and nothing is launched.
  Status call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
              const std::optional<CallUses>& uses, std::size_t device, Away* away);

  // See work_port.h.
  Status beginDeviceWork(accel::NativeStream stream,
                         std::span<const coherence::DeviceRange> ranges);
  Status endDeviceWork(accel::NativeStream stream, bool submitted);
  // `moves`: an address of the object whose memory the work moves: then it does not lend, and what
  // it has lent on the device is asked back first.
  Status beginOwnWork(std::span<const coherence::DeviceRange> ranges, const void* moves = nullptr);
  Status endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket);
  // From here until resume() only the calling thread submits device work, and none is in flight;
  // signals of the program's are blocked. False, and nothing is so, where that takes longer. May
  // let the lock go. What is to be released must not be held, or the work fails.
  bool pause(Lock& lock, std::uint64_t nanoseconds);
  // Whether some thread has. Under the lock.
  bool paused() const { return paused_; }
  void resume(Lock& lock);
  // Whether work of the library's own is being submitted, or an object moves: what that has closed
  // stays closed. Under the lock.
  bool ownWorkUnderWay() const { return submission_.own; }
  // The library is about to use bytes for the program, in the order in which the program has
  // submitted its work. Of what the CPU and kernels use at once calls close what work may still
  // use; of what is `held` for long they close all from now on.
  Status order(const void* address, std::size_t bytes, bool held);
  // Of what the CPU and kernels use at once: what rounds that took no lock tell of it.
  UnlockedRounds::Judged judgeRepeated() { return repeated_.judgeRounds(); }
  void forget(ConcurrentUse::Queue queue) { repeated_.forget(queue); }
  // The next wait of the program has something to do. Under the lock.
  void waitTakesLock() { repeated_.waitTakesLock(); }
  // So many calls, and the launches that took no lock before them, are work for which nothing has
  // waited yet. Under the lock.
  void countUnwaited(std::uint64_t calls);
  // What the CPU and kernels use at once has become slow: from now on each object is watched.
  void suspectAll();

  // Whether objects in the CPU's memory are used so much that others on the device may be worth
  // less there (guest_policy.h); once.
  bool guestsAreDue() const { return guestsAreDue_.load(std::memory_order_relaxed); }
  bool takeGuestsAreDue() { return guestsAreDue_.exchange(false, std::memory_order_relaxed); }

 private:
  // An object, by its address, that a launch lists.
  struct Listed {
    const std::byte* object;
    bool write;
  };
  // A launch that lists more may use all.
  static constexpr std::size_t kMostListed = 16;
  // Of so many turns without a wait it is counted what they were.
  static constexpr std::uint64_t kFewTurns = 8;
  using List = ShortList<Listed, kMostListed>;

  // State of the thread between begin and end.
  struct Submission {
    bool reads = false;                  // objects whose CPU copy stays current
    bool names = false;                  // objects itself, whoever else may use them
    bool lists = false;                  // what is listed, and no more
    bool awaited = false;                // by the call itself
    bool usesAll = false;                // may use all objects, and write them
    bool own = false;                    // the library's own
    accel::Ticket stillOpen;             // copies of what the thread may go on writing
    const std::byte* checked = nullptr;  // the object that ceases to be used at once
    List listed;
  };

  template <typename Ready, typename WritesLent, typename ForEachUse>
  Status releaseUsed(Lock& lock, Ready ready, WritesLent writesLent, ForEachUse forEachUse,
                     accel::Ticket* stillOpen);
  bool letOthersGoFirst(Lock& lock);
  void keepQueueShort(Lock& lock, accel::Ticket newest, bool* waited);
  Result<Step> release(Lock& lock, Object& object, BlockRange range, Event event,
                       accel::Ticket* stillOpen);
  bool passesConcurrent(ConcurrentUse::Queue queue, bool unordered,
                        const std::byte** checked = nullptr);
  // `stream`: that of the program's own on which the work is, if any.
  void returns(Lock& lock, bool awaited, accel::Ticket ticket,
               std::optional<accel::NativeStream> stream);
  void endedInCall();
  bool endsWithin(Lock& lock, accel::Ticket ticket, std::uint64_t nanoseconds);
  void endAllConcurrent();
  void endConcurrentIn(std::span<const coherence::DeviceRange> ranges);
  bool list(accel::NativeStream stream, std::span<const coherence::DeviceRange> ranges,
            List& listed);
  static const Listed* find(const List& listed, const Object& object);
  bool mayListNow();
  void noteListed(accel::NativeStream stream, const List& listed);
  void closeAfterAll(Lock& lock, accel::Ticket ticket);
  bool writesLent(accel::NativeStream stream, const coherence::DeviceRange& range);
  void begins(Lock& lock, const Submission& submission);
  std::optional<os::SignalsBlocked> takeBlocked();
  Status ends(Lock& lock, accel::Ticket reader);
  template <typename Release>
  Result<Step> releaseForCall(const UsedObjects& used, adsmKernel_t kernel, std::size_t device,
                              Away* away, bool& awaited, Release release);
  void noteCall(const UsedObjects& used, adsmKernel_t kernel, std::size_t device,
                accel::Ticket ticket);
  Status beginStreamWork(accel::NativeStream stream,
                         std::span<const coherence::DeviceRange> ranges);
  Status readyForWork(Lock& lock, accel::NativeStream stream, bool uses, bool& queueWaits,
                      bool* waited);
  template <typename Release>
  Result<Step> releaseForWork(Object& object, accel::NativeStream stream,
                              const coherence::DeviceRange& range, Submission& submission,
                              Release release);
  Status waitForOtherDevices(Lock& lock, std::span<const coherence::DeviceRange> ranges,
                             bool* waited);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  Loans& loans_;
  Waits& waits_;
  ObjectIndex& index_;
  Blocks& blocks_;
  Coarsening& coarsening_;
  Allocation& allocation_;
  Kernels& kernels_;
  PromptWaits& promptWaits_;
  UnwaitedCalls& unwaited_;
  std::uint64_t repeatedBefore_ = 0;  // launches, by the newest one that unwaited_ was told of
  std::uint64_t turnsBefore_ = 0;     // and turns of blocks_
  ConcurrentUse& concurrent_;
  RepeatedLaunches& repeated_;
  ListingPolicy& listing_;
  const bool unordered_;
  Submission submission_;  // of the thread that the ledger knows
  bool paused_ = false;    // by that thread
  // That thread's handlers wait for the end: an object that they touched before it would be open
  // while the work writes it.
  std::optional<os::SignalsBlocked> submitterBlocked_;
  std::atomic<bool> guestsAreDue_{false};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_LAUNCHES_H_
