// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/kernels.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gmac/coherence/ledger.h"
#include "gmac/coherence/small_heap.h"

namespace gmac {

Status Kernels::bind(const void* address, adsmKernel_t kernel, adsmAccess_t access) {
  if (access < adsmRead || access > adsmReadWrite) {
    return fail(adsmErrorInvalidValue,
                "adsmBind: access {}; allowed are adsmRead, adsmWrite, adsmReadWrite",
                static_cast<int>(access));
  }
  Lock lock(mutex_);
  Object* object = index_.findAllocation(address);
  if (object == nullptr || object->closing) {
    return fail(adsmErrorInvalidPointer, "adsmBind: {} is in no shared object", address);
  }
  if (object->sharedBySmallObjects) {
    return fail(
        adsmErrorNotSupported,
        "adsmBind: {} is an object of at most {} bytes, which shares its pages with others; "
        "list it per call (adsmCallUsing) instead",
        address, SmallHeap::kLargestObject);
  }
  object->withPages([&](Object& part) { ledger_.bind(part, kernel, access); });
  return {};
}

// A driver may take seconds to compile it, and may wait for the kernels that run.
Status Kernels::load(Lock& lock, adsmKernel_t kernel, std::size_t device) {
  while (kernel->loading) {
    lock.waitForChange();
  }
  if (kernel->loaded[device]) {
    return {};
  }
  kernel->loading = true;
  auto loaded = [&] {
    const FreeForWork free(lock);
    accel::Devices* const devices = accelerator_.devices();
    return devices == nullptr ? accelerator_.load(kernel->desc)
                              : devices->load(device, kernel->desc);
  }();
  kernel->loading = false;
  lock.changed();
  if (!loaded.ok()) {
    return loaded.status();
  }
  kernel->loaded[device] = std::move(*loaded);
  return {};
}

Status Kernels::setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                            std::size_t bytes) {
  // The data may lie in a shared object, which must not be touched by the driver or under the lock.
  const auto* begin = static_cast<const std::byte*>(data);
  const std::vector<std::byte> copy(begin, begin + bytes);
  Lock lock(mutex_);
  accel::Devices* const devices = accelerator_.devices();
  if (devices == nullptr) {
    GMAC_TRY(load(lock, kernel, 0));
    const FreeForWork free(lock);
    return accelerator_.setConstant(*kernel->loaded[0], constant, copy.data(), bytes);
  }
  // On all devices that are there, and for which the kernel has code.
  Status lost;
  std::size_t set = 0;
  for (std::size_t device = 0; device < devices->count(); ++device) {
    Status status = load(lock, kernel, device);
    if (status.code() == adsmErrorNoImplementation) {
      lost = status;
      continue;
    }
    if (status.ok()) {
      const FreeForWork free(lock);
      status = devices->setConstant(device, *kernel->loaded[device], constant, copy.data(), bytes);
    }
    if (!status.ok() && status.code() != adsmErrorAcceleratorLost) {
      return status;
    }
    set += status.ok() ? 1 : 0;
    lost = status.ok() ? lost : status;
  }
  return set != 0 ? Status() : lost;
}

Status Kernels::forget(adsmKernel_t kernel) {
  Lock lock(mutex_);
  ledger_.unbind(kernel);
  const bool loaded = std::any_of(kernel->loaded.begin(), kernel->loaded.end(),
                                  [](const auto& one) { return one != nullptr; });
  return loaded ? waits_.forEverything(lock) : Status();
}

}  // namespace gmac
