// SPDX-License-Identifier: Apache-2.0
//
// What programs written for managed memory, and streams with functions of the CPU in them, need of
// the manager.
#include <chrono>
#include <cstdlib>

#include "gmac/accel/backoff.h"
#include "gmac/base/log.h"
#include "gmac/coherence/access_scope.h"
#include "gmac/coherence/manager.h"
#include "gmac/coherence/manager_lock.h"

namespace gmac {

std::uintptr_t Manager::cpuAddress(std::uintptr_t device) noexcept {
  if (safeObjects_.load(std::memory_order_relaxed) == 0) {
    return device;
  }
  Lock lock(*this);
  for (const Object& object : index_.all()) {
    const auto begin = static_cast<std::uintptr_t>(object.device);
    if (!object.sameAddress && device >= begin && device - begin < object.bytes()) {
      return reinterpret_cast<std::uintptr_t>(object.address()) + (device - begin);
    }
  }
  return device;
}

Status Manager::setUsers(const void* address, Object::Users users, accel::NativeStream stream) {
  if (forked()) {
    return fail(adsmErrorForked, "attaching {} to a stream in a child of fork", address);
  }
  Lock lock(*this);
  for (;;) {
    Object* const object = index_.find(address);
    if (object == nullptr || object->closing) {
      return fail(adsmErrorInvalidPointer, "{} is in no shared object", address);
    }
    // What the small objects of one region have in common is their pages, not their users.
    if (object->sharedBySmallObjects) {
      return {};
    }
    if (deviceWork_) {
      waitForChange(lock);
      continue;
    }
    // Later accesses will no longer wait for what was submitted under the terms so far.
    bool waited = false;
    GMAC_TRY(waitForWriters(lock, *object, &waited));
    if (!waited) {
      object->users = users;
      object->userStream = stream;
      return {};
    }
  }
}

void Manager::setReadMostly(const void* address, bool readMostly) {
  if (forked() || !options_.trustHints) {
    return;
  }
  Lock lock(*this);
  Object* const object = index_.find(address);
  if (object != nullptr && !object->closing && !object->sharedBySmallObjects) {
    object->onlyRead = readMostly;
  }
}

void Manager::streamDestroyed(accel::NativeStream stream) {
  Lock lock(*this);
  ledger_.streamDestroyed(stream);
  for (Object& object : index_.all()) {
    if (object.users == Object::Users::kOneStream && object.userStream == stream) {
      object.users = Object::Users::kEverybody;
    }
  }
}

void Manager::hostFunctionQueued() { ledger_.hostFunctionQueued(); }

void Manager::hostFunctionEnded() { ledger_.hostFunctionEnded(); }

// What ends with the application's context, as CUDA's own memory does: every object.
void Manager::endContext(bool workFinished) {
  if (forked()) {
    return;
  }
  accelerator_.contextEnds();
  // Where a kernel has failed they never run.
  if (!workFinished) {
    ledger_.hostFunctionsDropped();
  }
  small_.releaseAll();
  {
    Lock lock(*this);
    keepsFreed_ = false;
    while (!index_.all().empty()) {
      Object& object = *index_.all().begin();
      if (object.closing) {
        waitForChange(lock);  // another thread frees it
      } else {
        // What the accelerator has to say about memory that goes anyway is of no use.
        (void)destroy(lock, object);
      }
    }
    while (leaving_ > 0) {
      waitForChange(lock);
    }
    // Memory of freed objects is kept, and pages of others are still pinned.
    (void)giveBackKept(lock);
    keepsFreed_ = true;
    ledger_.contextEnded();
    ++coherence::internal::contextsEnded;
  }
  accelerator_.leaveContext();
}

// They run when their streams reach them, which nobody else learns: so it is asked for.
Status Manager::waitForHostFunctions(Lock& lock, bool* waited) {
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

// ---- The limit of waits

const void*& AccessScope::current() noexcept {
  static thread_local const void* address __attribute__((tls_model("initial-exec"))) = nullptr;
  return address;
}

// What the application calls and waits for, such as freeing, has no limit.
std::chrono::seconds Manager::waitLimit() const noexcept {
  return std::chrono::seconds(AccessScope::current() != nullptr ? options_.waitLimitSeconds : 0);
}

Status Manager::await(const Free&, accel::Ticket ticket) { return accelerator_.wait(ticket); }

Status Manager::awaitWithinLimit(const Free& free, accel::Ticket ticket) {
  const std::chrono::seconds limit = waitLimit();
  if (limit.count() == 0) {
    return await(free, ticket);
  }
  for (accel::Backoff backoff; !accelerator_.done(ticket); backoff.step()) {
    if (backoff.waited() > limit) {
      endBehindLimit();
    }
  }
  return await(free, ticket);
}

// Submitting takes as long as a synchronous copy does, which may wait for a kernel.
void Manager::waitForDeviceWork(Lock& lock) {
  const std::chrono::seconds limit = waitLimit();
  if (limit.count() == 0) {
    waitForChange(lock);
    return;
  }
  for (accel::Backoff backoff; deviceWork_;) {
    const Free free(lock);
    if (backoff.waited() > limit) {
      endBehindLimit();
    }
    backoff.step();
  }
}

void Manager::endBehindLimit() noexcept {
  log(LogLevel::kError,
      "the CPU's access to {} has waited {} seconds for device work that still runs. A kernel that "
      "itself waits for the CPU cannot be served; if it is only long, set GMAC_WAIT_LIMIT to more "
      "seconds, or to 0 for no limit",
      AccessScope::current(), options_.waitLimitSeconds);
  std::abort();
}

}  // namespace gmac
