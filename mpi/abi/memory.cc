// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

bool isShared(const void* address) { return gmacTouchesShared(address, 1) != 0; }

}  // namespace

constinit const StagingMemory::Pinning kPinning = {
    [](void* memory, std::size_t bytes) {
      int pinned = 0;
      return gmacPinMemory(memory, bytes, &pinned) == adsmSuccess && pinned != 0;
    },
    [](void* memory, std::size_t bytes) { (void)gmacUnpinMemory(memory, bytes); }};

Where whereSlow(const void* buffer, MPI_Count count, MPI_Datatype datatype,
                gmacDevicePlace* place) {
  return buffer == MPI_IN_PLACE ? Where::kPlain : whereLies(buffer, spanOf(count, datatype), place);
}

Where whereLies(const void* buffer, const Span& span, gmacDevicePlace* place) {
  if (span.empty()) {
    return Where::kPlain;
  }
  if (gmacTouchesShared(shifted(buffer, span.first), span.bytes()) != 0) {
    return Where::kShared;
  }
  // One buffer is of one kind, but for types of addresses from MPI_BOTTOM.
  const bool isOnDevice =
      gmacFindDeviceMemory(shifted(buffer, span.first), place) != 0 ||
      (buffer == MPI_BOTTOM && gmacIsDeviceMemory(shifted(buffer, span.last - 1)) != 0);
  return isOnDevice ? Where::kOnDevice : Where::kPlain;
}

OnDevice onDevice(const void* buffer, const Span& span) {
  if (span.empty()) {
    return OnDevice::kNo;
  }
  const void* const first = shifted(buffer, span.first);
  const void* const last = shifted(buffer, span.last - 1);
  // (The driver takes shared objects for its own.)
  const bool firstIsShared = isShared(first);
  const bool lastIsShared = last == first ? firstIsShared : isShared(last);
  if ((firstIsShared && lastIsShared) || gmacAnyDeviceMemory() == 0) {
    return OnDevice::kNo;
  }
  const bool isDevices = !firstIsShared && gmacIsDeviceMemory(first) != 0;
  if (last != first && isDevices != (!lastIsShared && gmacIsDeviceMemory(last) != 0)) {
    return OnDevice::kMixed;
  }
  return isDevices ? OnDevice::kYes : OnDevice::kNo;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
