// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/waits.h"

#include <algorithm>
#include <string>

#include "gmac/accel/backoff.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/wait_limit.h"
#include "gmac/observe/stats.h"

namespace gmac {

// Kernel errors come out here.
Status Waits::forWriters(Lock& lock, const DeviceUses& object, ByteRange bytes, bool* waited) {
  const Tickets writers = ledger_.writersOf(object, bytes);
  *waited = !writers.empty();
  if (writers.empty()) {
    return {};
  }
  return forAll(lock, writers);
}

Status Waits::forWork(Lock& lock, accel::Ticket ticket, bool* waited) {
  if (accelerator_.done(ticket)) {
    return {};
  }
  *waited = true;
  return forAll(lock, {&ticket, 1});
}

Status Waits::forWork(Lock& lock, const NewestCalls& calls, bool* waited) {
  if (std::all_of(calls.begin(), calls.end(),
                  [&](accel::Ticket call) { return accelerator_.done(call); })) {
    return {};
  }
  *waited = true;
  return forAll(lock, calls);
}

Status Waits::forAll(Lock& lock, std::span<const accel::Ticket> work) {
  lock.waitsForWork(ledger_.times().now(), ledger_.newestWork());
  if (ledger_.times().on() && lock.access() == nullptr) {
    return forAllInTurn(lock, work);
  }
  End last;
  const Status status = [&]() -> Status {
    const Free free(lock);
    const Timed timed(Phase::kGpu);
    for (const accel::Ticket ticket : work) {
      GMAC_TRY(awaitEnd(free, ticket, last));
    }
    return {};
  }();
  last.note(ledger_.times());
  return status;
}

Status Waits::forAllInTurn(Lock& lock, std::span<const accel::Ticket> work) {
  const CallTimes::Sequence before = callsUpTo(lock, work);
  Ends ends;
  const Status status = [&]() -> Status {
    const Free free(lock);
    const Timed timed(Phase::kGpu);
    GMAC_TRY(awaitEnds(free, before, ends));
    return awaitEnds(free, work, ends);
  }();
  ends.note(ledger_.times());
  return status;
}

void Waits::forCalls(Lock& lock, const Tickets& calls) {
  const CallTimes::Sequence before = callsUpTo(lock, calls);
  Ends ends;
  {
    const Free free(lock);
    (void)awaitEnds(free, before, ends);
    for (const accel::Ticket call : calls) {
      (void)awaitEnd(free, call, ends);
    }
  }
  ends.note(ledger_.times());
}

Status Waits::forArrival(Lock& lock, accel::Ticket ticket) {
  if (ticket.value == 0) {
    return {};
  }
  const Free free(lock);
  return await(free, ticket);
}

Status Waits::forEverything(Lock& lock) {
  const Tickets pending = ledger_.everything();
  Status status;
  std::string words;
  Tickets lost;
  const CallTimes::Sequence before = callsUpTo(lock, pending);
  Ends ends;
  {
    const Free free(lock);
    const Timed timed(Phase::kGpu);
    const auto note = [&](Status one) {
      if (!one.ok() && status.ok()) {
        status = one;
        words = lastErrorText();
      }
      return one;
    };
    for (const accel::Ticket ticket : before) {
      (void)note(awaitEnd(free, ticket, ends));
    }
    for (const accel::Ticket ticket : pending) {
      const Status one = note(awaitEnd(free, ticket, ends));
      // (A kernel's error is told before the end of its device.)
      if (!one.ok() && await(free, ticket).code() == adsmErrorAcceleratorLost) {
        lost.add(ticket);
      }
    }
  }
  ends.note(ledger_.times());
  if (status.ok()) {
    return status;
  }
  // Where other devices go on, the loss of one is told once.
  if (accelerator_.usable().ok()) {
    for (const accel::Ticket ticket : lost) {
      ledger_.callsLost(ticket);
    }
  }
  recordError(status.code(), words);
  return status;
}

void Waits::forEveryUse(Lock& lock) { forUses(lock, ledger_.everything()); }

void Waits::forUses(Lock& lock, const Tickets& calls) {
  const accel::Ticket flushes = ledger_.lastFlush();
  const Free free(lock);
  for (const accel::Ticket call : calls) {
    (void)await(free, call);
  }
  (void)await(free, flushes);
}

// They run when their streams reach them, which nobody else learns: so it is asked for.
Status Waits::forHostFunctions(Lock& lock, bool* waited) {
  for (accel::Backoff backoff; !ledger_.hostFunctionsRun();) {
    *waited = true;
    const Tickets tickets = ledger_.streamWork();
    const Free free(lock);
    // Where a kernel has failed they never run.
    for (const accel::Ticket ticket : tickets) {
      if (accelerator_.done(ticket)) {
        GMAC_TRY(await(free, ticket));
      }
    }
    backoff.step();
  }
  return {};
}

// Submitting takes as long as a synchronous copy does, which may wait for a kernel.
void Waits::forSubmission(Lock& lock) {
  lock.waitsForWork(ledger_.times().now(), ledger_.newestWork());
  const std::chrono::seconds limit = limitOf(lock.access());
  if (limit.count() == 0) {
    lock.waitForChange();
    return;
  }
  for (accel::Backoff backoff; ledger_.submissionUnderWay();) {
    const Free free(lock);
    if (backoff.waited() > limit) {
      coherence::endAfterWaitLimit(lock.access(), limit_);
    }
    backoff.step();
  }
}

CallTimes::Sequence Waits::callsUpTo(const Lock& lock, std::span<const accel::Ticket> work) const {
  return limitOf(lock.access()).count() == 0 ? ledger_.times().upTo(work) : CallTimes::Sequence();
}

Status Waits::awaitEnds(const Free& free, std::span<const accel::Ticket> tickets, Ends& ends) {
  for (const accel::Ticket ticket : tickets) {
    GMAC_TRY(awaitEnd(free, ticket, ends));
  }
  return {};
}

// Notes no end for work that had ended before: nobody saw when.
Status Waits::awaitEnd(const Free& free, accel::Ticket ticket, End& end) {
  const CallTimes& times = ledger_.times();
  const bool runs = times.on() && !accelerator_.done(ticket);
  const Status status = awaitWithinLimit(free, ticket);
  if (runs) {
    end = {ticket, times.now()};
  }
  return status;
}

Status Waits::awaitEnd(const Free& free, accel::Ticket ticket, Ends& ends) {
  End end;
  const Status status = awaitEnd(free, ticket, end);
  ends.add(end);
  return status;
}

Status Waits::awaitWithinLimit(const Free& free, accel::Ticket ticket) {
  const std::chrono::seconds limit = limitOf(free.access());
  if (limit.count() == 0) {
    return await(free, ticket);
  }
  if (!accelerator_.done(ticket)) {
    accelerator_.endIsAwaited(ticket);
  }
  for (accel::Backoff backoff; !accelerator_.done(ticket); backoff.step()) {
    if (backoff.waited() > limit) {
      coherence::endAfterWaitLimit(free.access(), limit_);
    }
  }
  return await(free, ticket);
}

}  // namespace gmac
