// SPDX-License-Identifier: Apache-2.0
//
// What programs written for managed memory, and streams with functions of the CPU in them, need of
// the manager.
#include <chrono>

#include "gmac/accel/pace.h"
#include "gmac/manager.h"
#include "gmac/manager_lock.h"

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
  if (forked_) {
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

void Manager::setOnlyRead(const void* address, bool onlyRead) {
  Lock lock(*this);
  Object* const object = index_.find(address);
  if (object != nullptr && !object->sharedBySmallObjects) {
    object->onlyRead = onlyRead;
  }
}

// The stream's handle may come again; its work stays known by its ticket.
void Manager::streamDestroyed(accel::NativeStream stream) {
  Lock lock(*this);
  for (Object& object : index_.all()) {
    if (object.users == Object::Users::kOneStream && object.userStream == stream) {
      object.users = Object::Users::kEverybody;
    }
  }
}

void Manager::hostFunctionQueued() { ++hostFunctions_; }

void Manager::hostFunctionEnded() { --hostFunctions_; }

// They run when their streams reach them, which nobody else learns: so it is asked for.
Status Manager::waitForHostFunctions(Lock& lock, bool* waited) {
  const std::chrono::seconds limit(options_.waitLimitSeconds);
  for (accel::Pace pace; hostFunctions_.load() != 0;) {
    *waited = true;
    // Where a kernel has failed they never run.
    for (std::size_t i = 0; i < streamCount_; ++i) {
      if (accelerator_.done(streams_[i].ticket)) {
        GMAC_TRY(accelerator_.wait(streams_[i].ticket));
      }
    }
    lock.release();
    if (options_.waitLimitSeconds != 0 && pace.waited() > limit) {
      endBehindLimit();
    }
    pace.step();
    lock.acquire();
  }
  return {};
}

}  // namespace gmac
