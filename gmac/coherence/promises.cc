// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/promises.h"

#include "gmac/coherence/ledger.h"

namespace gmac {

Status Promises::setUsers(const void* address, Object::Users users, accel::NativeStream stream) {
  Lock lock(mutex_);
  for (;;) {
    Object* const object = index_.findAllocation(address);
    if (object == nullptr || object->closing) {
      return fail(adsmErrorInvalidPointer, "{} is in no shared object", address);
    }
    // The small objects of one region share their pages, not their users.
    if (object->sharedBySmallObjects) {
      return {};
    }
    if (ledger_.submissionUnderWay()) {
      lock.waitForChange();
      continue;
    }
    // Later accesses will no longer wait for what was submitted under the terms so far.
    bool waited = false;
    GMAC_TRY(waits_.forWriters(lock, *object, &waited));
    for (const std::unique_ptr<Object>& page : object->pages) {
      if (!waited) {
        GMAC_TRY(waits_.forWriters(lock, *page, &waited));
      }
    }
    if (!waited) {
      if (users != Object::Users::kEverybody) {
        ledger_.usersDiffer();
      }
      object->withPages([&](Object& part) {
        part.users = users;
        part.userStream = stream;
      });
      return {};
    }
  }
}

void Promises::setReadMostly(const void* address, bool readMostly) {
  Lock lock(mutex_);
  Object* const object = index_.findAllocation(address);
  if (object != nullptr && !object->closing && !object->sharedBySmallObjects) {
    object->withPages([&](Object& part) { part.onlyRead = readMostly; });
  }
}

void Promises::streamDestroyed(accel::NativeStream stream) {
  Lock lock(mutex_);
  ledger_.streamDestroyed(stream);
  for (Object& object : index_.all()) {
    if (object.users == Object::Users::kOneStream && object.userStream == stream) {
      object.users = Object::Users::kEverybody;
    }
  }
}

}  // namespace gmac
