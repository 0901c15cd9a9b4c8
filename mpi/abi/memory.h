// SPDX-License-Identifier: Apache-2.0
//
// Which memory a buffer is. MPI is given neither shared objects nor memory of devices.
#ifndef GMAC_MPI_ABI_MEMORY_H_
#define GMAC_MPI_ABI_MEMORY_H_

#include "gmac/coherence/shared_memory.h"
#include "gmac/session/device_memory.h"
#include "mpi/abi/types.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// Whether there may be memory that is the CPU's no more, or not alone.
inline bool mayNeedStaging() { return gmacAnythingShared() != 0 || gmacAnyDeviceMemory() != 0; }

// Whether MPI is not to touch `count` elements at `buffer`: a byte of their span is shared, or they
// lie in memory of a device. No for arguments that MPI has to refuse, and for MPI_IN_PLACE.
bool needsStagingSlow(const void* buffer, MPI_Count count, MPI_Datatype datatype);
inline bool needsStaging(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  return mayNeedStaging() && needsStagingSlow(buffer, count, datatype);
}

// Memory of a device that is no shared object. kMixed: one end of the span is, the other is not.
enum class OnDevice { kNo, kYes, kMixed };
OnDevice onDevice(const void* buffer, const Span& span);

// Pins private memory for the runtime's device.
extern const StagingMemory::Pinning kPinning;

// What is `bytes` from an address, which may be MPI_BOTTOM.
inline void* shifted(const void* address, MPI_Count bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) +
                                 static_cast<std::uintptr_t>(bytes));
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_MEMORY_H_
