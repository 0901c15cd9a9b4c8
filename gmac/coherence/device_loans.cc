// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/device_loans.h"

#include <algorithm>

#include "gmac/accel/exported_memory.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/ledger.h"

namespace gmac {
namespace {

using coherence::DeviceLoan;
using coherence::Lent;

// Whether its memory may be handed over at all: on one device, and no other object's.
bool mayBeLent(const Object& object) {
  return !object.closing && !object.sharedBySmallObjects && !object.spread() &&
         object.home == accel::Home::kDevice;
}

bool isCurrentOnDevice(const Object& object, ByteRange bytes) {
  bool current = true;
  object.forEachOnlyOnCpu([&](ByteRange onCpu) { current = current && !onCpu.overlaps(bytes); });
  return current;
}

}  // namespace

Result<bool> DeviceLoans::lend(const void* address, std::size_t bytes, DeviceLoan* loan) {
  accel::ExportedMemory* const exported = accelerator_.exportedMemory();
  if (exported == nullptr || bytes == 0) {
    return false;
  }
  const Walk walk(blocks_);
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  Object* object = nullptr;
  ByteRange lent;
  while (true) {
    object = index_.find(address);
    if (object == nullptr || !mayBeLent(*object) ||
        bytes > static_cast<std::size_t>(object->ownEnd(address) -
                                         static_cast<const std::byte*>(address))) {
      return false;
    }
    lent.begin =
        static_cast<std::size_t>(static_cast<const std::byte*>(address) - object->address());
    lent.end = lent.begin + bytes;
    const BlockRange range = object->covering(address, bytes);
    if (object->inTransit(range)) {
      lock.waitForTransit();
      continue;
    }
    if (!isCurrentOnDevice(*object, lent)) {
      return false;
    }
    // (It may write the object, or move it.)
    if (ledger_.submissionUnderWay()) {
      waits_.forSubmission(lock);
      continue;
    }
    bool waited = false;
    GMAC_TRY(waits_.forWriters(lock, *object, lent, &waited));
    if (!waited) {
      GMAC_TRY(waits_.forWork(lock, blocks_.flushesOf(*object, range), &waited));
    }
    if (!waited) {
      break;
    }
  }
  // From now on it neither moves nor is freed: nobody needs the lock to ask for its pages.
  object->lent.push_back(lent);
  loans_.begins(Lent::kOnDevice);
  loan->object = object->number;
  loan->address = static_cast<std::uintptr_t>(object->deviceAt(lent.begin));
  const auto allocation = [&] {
    const FreeForWork free(lock);
    return exported->sharedAllocation(accel::DeviceAddress{loan->address});
  }();
  if (!allocation.ok()) {
    end(lock, *object, lent);
    return false;
  }
  loan->start = static_cast<std::uintptr_t>(allocation->start);
  loan->bytes = allocation->bytes;
  loan->number = allocation->number;
  return true;
}

void DeviceLoans::giveBack(const void* address, std::size_t bytes, const DeviceLoan& loan) {
  Lock lock(mutex_, os::SignalsBlocked::When::kWhereHandled);
  // (The end of a context frees what is lent.)
  Object* const object = index_.find(address);
  if (object != nullptr && object->number == loan.object) {
    const auto begin =
        static_cast<std::size_t>(static_cast<const std::byte*>(address) - object->address());
    end(lock, *object, {begin, begin + bytes});
  } else {
    loans_.ends(Lent::kOnDevice);
  }
}

// (Other loans may be of the same bytes.)
void DeviceLoans::end(Lock& lock, Object& object, ByteRange lent) {
  const auto found = std::find(object.lent.begin(), object.lent.end(), lent);
  if (found != object.lent.end()) {
    object.lent.erase(found);
  }
  loans_.ends(Lent::kOnDevice);
  lock.changed();
}

}  // namespace gmac
