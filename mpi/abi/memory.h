// SPDX-License-Identifier: Apache-2.0
//
// Tells which kind of memory a buffer lies in. MPI is given neither shared objects nor device
// memory.
#ifndef GMAC_MPI_ABI_MEMORY_H_
#define GMAC_MPI_ABI_MEMORY_H_

#include "gmac/coherence/shared_memory.h"
#include "gmac/session/device_memory.h"
#include "mpi/abi/types.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// Whether the process may have memory that MPI must not touch: shared objects or device memory.
inline bool mayNeedStaging() { return gmacAnythingShared() != 0 || gmacAnyDeviceMemory() != 0; }

// Whether MPI must not touch `count` elements at `buffer`, because a byte of their span is shared
// or they lie in device memory. False for arguments that MPI refuses, and for MPI_IN_PLACE.
bool needsStagingSlow(const void* buffer, MPI_Count count, MPI_Datatype datatype);
inline bool needsStaging(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  return mayNeedStaging() && needsStagingSlow(buffer, count, datatype);
}

// Whether a span lies in device memory that belongs to no shared object. kMixed: only one end of it
// does.
enum class OnDevice { kNo, kYes, kMixed };
OnDevice onDevice(const void* buffer, const Span& span);

// Pins private memory for the runtime's device.
extern const StagingMemory::Pinning kPinning;

// The address `bytes` after `address`, which may be MPI_BOTTOM.
inline void* shifted(const void* address, MPI_Count bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) +
                                 static_cast<std::uintptr_t>(bytes));
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_MEMORY_H_
