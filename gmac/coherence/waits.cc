// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/waits.h"

#include <cstdlib>
#include <string>

#include "gmac/accel/backoff.h"
#include "gmac/base/log.h"
#include "gmac/observe/stats.h"

namespace gmac {

// Kernel errors come out here.
Status Waits::forWriters(Lock& lock, const DeviceUses& object, bool* waited) {
  const Ledger::Tickets writers = ledger_.writersOf(object);
  *waited = !writers.empty();
  if (writers.empty()) {
    return {};
  }
  const Free free(lock);
  const Timed timed(Phase::kGpu);
  for (const accel::Ticket ticket : writers) {
    GMAC_TRY(awaitWithinLimit(free, ticket));
  }
  return {};
}

Status Waits::forWork(Lock& lock, accel::Ticket ticket, bool* waited) {
  if (accelerator_.done(ticket)) {
    return {};
  }
  *waited = true;
  const Free free(lock);
  const Timed timed(Phase::kGpu);
  return awaitWithinLimit(free, ticket);
}

Status Waits::forArrival(Lock& lock, accel::Ticket ticket) {
  if (ticket.value == 0) {
    return {};
  }
  const Free free(lock);
  return await(free, ticket);
}

Status Waits::forEverything(Lock& lock) {
  const Ledger::Tickets pending = ledger_.everything();
  Status status;
  std::string words;
  Ledger::Tickets lost;
  {
    const Free free(lock);
    const Timed timed(Phase::kGpu);
    for (const accel::Ticket ticket : pending) {
      const Status one = await(free, ticket);
      if (!one.ok() && status.ok()) {
        status = one;
        words = lastErrorText();
      }
      // (A kernel's error is told before the end of its device.)
      if (!one.ok() && await(free, ticket).code() == adsmErrorAcceleratorLost) {
        lost.add(ticket);
      }
    }
  }
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

// They run when their streams reach them, which nobody else learns: so it is asked for.
Status Waits::forHostFunctions(Lock& lock, bool* waited) {
  for (accel::Backoff backoff; !ledger_.hostFunctionsRun();) {
    *waited = true;
    const Ledger::Tickets tickets = ledger_.streamWork();
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
  const std::chrono::seconds limit = limitOf(lock.access());
  if (limit.count() == 0) {
    lock.waitForChange();
    return;
  }
  for (accel::Backoff backoff; ledger_.submissionUnderWay();) {
    const Free free(lock);
    if (backoff.waited() > limit) {
      endAfterLimit(lock.access());
    }
    backoff.step();
  }
}

Status Waits::awaitWithinLimit(const Free& free, accel::Ticket ticket) {
  const std::chrono::seconds limit = limitOf(free.access());
  if (limit.count() == 0) {
    return await(free, ticket);
  }
  for (accel::Backoff backoff; !accelerator_.done(ticket); backoff.step()) {
    if (backoff.waited() > limit) {
      endAfterLimit(free.access());
    }
  }
  return await(free, ticket);
}

void Waits::endAfterLimit(const void* access) noexcept {
  log(LogLevel::kError,
      "the CPU's access to {} has waited {} seconds for device work that still runs. A kernel that "
      "itself waits for the CPU cannot be served; if it is only long, set GMAC_WAIT_LIMIT to more "
      "seconds, or to 0 for no limit",
      access, limit_);
  std::abort();
}

}  // namespace gmac
