// SPDX-License-Identifier: Apache-2.0
//
// Every wait of the coherence for the accelerator: for the writers of an object, for one piece of
// work, for everything.
#ifndef GMAC_COHERENCE_WAITS_H_
#define GMAC_COHERENCE_WAITS_H_

#include <chrono>
#include <cstddef>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/base/short_list.h"
#include "gmac/base/status.h"
#include "gmac/coherence/call_times.h"
#include "gmac/coherence/device_uses.h"
#include "gmac/coherence/lock.h"

namespace gmac {

class Ledger;

// A ticket of nothing: complete.
inline constexpr accel::Ticket kDone{};

// Asks the ledger what to wait for, lets the lock go, and waits: what was known of objects before
// must be looked up again wherever `waited` is set. Fault path. Errors are those of the work that
// was waited for. Where the lock's holder is in the middle of an access of the CPU, waits for
// kernels have a limit, and the process ends where that is exceeded.
class Waits {
 public:
  // `limitSeconds`: how long one access may wait for running kernels; 0: for ever.
  Waits(accel::Accelerator& accelerator, Ledger& ledger, unsigned limitSeconds)
      : accelerator_(accelerator), ledger_(ledger), limit_(limitSeconds) {}
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  // For every kernel that may write those bytes of the object; sets `waited` to whether there was
  // any.
  Status forWriters(Lock& lock, const DeviceUses& object, ByteRange bytes, bool* waited);
  Status forWriters(Lock& lock, const DeviceUses& object, bool* waited) {
    return forWriters(lock, object, kAllBytes, waited);
  }
  // For one piece of work; sets `waited` unless it has finished before.
  Status forWork(Lock& lock, accel::Ticket ticket, bool* waited);
  // The same for all of some calls.
  Status forWork(Lock& lock, const NewestCalls& calls, bool* waited);
  // For some, whatever becomes of it: a kernel's error is for adsmSync to tell.
  void forCalls(Lock& lock, const Tickets& calls);
  // Waits for copies of bytes that the calling thread must not overwrite yet. kDone if there are
  // none. No limit.
  Status forArrival(Lock& lock, accel::Ticket ticket);
  // For all calls and all work on streams so far; the first error. No limit.
  Status forEverything(Lock& lock);
  // For all of that and all flushes, before an object's memory moves. Errors are left for others: a
  // kernel's for adsmSync to tell, and a lost accelerator says so when the memory moves. No limit.
  void forEveryUse(Lock& lock);
  // The same for those calls and all flushes.
  void forUses(Lock& lock, const Tickets& calls);
  // For the functions of the CPU in streams; sets `waited` if there were any.
  Status forHostFunctions(Lock& lock, bool* waited);
  // Waits until another thread has submitted its work.
  void forSubmission(Lock& lock);

  // The accelerator's wait, with and without the limit.
  Status await(const Free&, accel::Ticket ticket) { return accelerator_.wait(ticket); }
  Status awaitWithinLimit(const Free& free, accel::Ticket ticket);

 private:
  // When calls ended that were waited for; noted once the lock is held again. For the stack.
  struct End {
    accel::Ticket ticket;  // none: nothing was seen to end
    CallTimes::Nanoseconds when = 0;
    void note(CallTimes& times) const {
      if (ticket.value != 0) {
        times.ended(ticket, when);
      }
    }
  };
  class Ends {
   public:
    void add(const End& end) {
      if (end.ticket.value != 0 && !ends_.full()) {
        ends_.add(end);
      }
    }
    void note(CallTimes& times) const {
      for (const End& end : ends_) {
        end.note(times);
      }
    }

   private:
    ShortList<End, CallTimes::Sequence::kMax + accel::kMaxDevices> ends_;
  };

  // For all of some work; the first error. A fault has little stack: of what it waits for, the last
  // end alone is noted.
  Status forAll(Lock& lock, std::span<const accel::Ticket> work);
  [[gnu::noinline]] Status forAllInTurn(Lock& lock, std::span<const accel::Ticket> work);
  // The calls to wait for on the way to some work, so that the end of each is seen. None where the
  // wait has a limit, which is that of one wait.
  CallTimes::Sequence callsUpTo(const Lock& lock, std::span<const accel::Ticket> work) const;
  Status awaitEnd(const Free& free, accel::Ticket ticket, End& end);
  Status awaitEnd(const Free& free, accel::Ticket ticket, Ends& ends);
  // The first error.
  Status awaitEnds(const Free& free, std::span<const accel::Ticket> tickets, Ends& ends);
  // The limit of the calling thread's wait; 0: none. Calls that the application waits for, such as
  // adsmFree, have none.
  std::chrono::seconds limitOf(const void* access) const {
    return std::chrono::seconds(access != nullptr ? limit_ : 0);
  }

  accel::Accelerator& accelerator_;
  Ledger& ledger_;
  const unsigned limit_;  // seconds
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_WAITS_H_
