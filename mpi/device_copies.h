// SPDX-License-Identifier: Apache-2.0
//
// Copies between two layouts by the runtime's device, for exchange/ (DeviceFunctions::transfer).
// Knows no mpi.h.
#ifndef GMAC_MPI_DEVICE_COPIES_H_
#define GMAC_MPI_DEVICE_COPIES_H_

#include <cstdint>

#include "gmac/api/adsm.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::mpi {

// See DeviceFunctions. Where a side is contiguous, by a pack or an unpack; else by
// adsmTransferWith. Keeps the types of the last few layouts. Errors are those of these functions.
adsmError_t copyByDevice(const datatype::Layout& to, void* target, const datatype::Layout& from,
                         const void* source, std::int64_t offset, std::int64_t bytes);

// The same, in parts; see DeviceFunctions. An event is an adsmPackEvent_t.
adsmError_t beginCopy(const datatype::Layout& to, void* target, const datatype::Layout& from,
                      const void* source, std::int64_t offset, std::int64_t bytes, void** event);
// A pack whose source nobody changes meanwhile (gmacPackLent).
adsmError_t beginPack(const datatype::Layout& to, void* target, const datatype::Layout& from,
                      const void* source, std::int64_t offset, std::int64_t bytes, void** event);
// An unpack from one piece, of pinned memory: where the target is one, too, which side is the
// device's is not asked of the driver, and the CPU copies nothing.
adsmError_t beginUnpack(const datatype::Layout& to, void* target, const datatype::Layout& from,
                        const void* source, std::int64_t offset, std::int64_t bytes, void** event);
// One kernel that unpacks what arrives in a ring (gmac/datatype/engine/arriving_bytes.h); see
// ArrivalFunctions.
adsmError_t beginArrival(const datatype::Layout& to, void* target, std::int64_t bytes,
                         const void* ring, std::int64_t fragmentBytes, int slots, void** arrival);
std::int64_t tellArrived(void* arrival, std::int64_t fragments);
void tellNoMoreArrives(void* arrival);
bool arrivalIsOver(void* arrival);
adsmError_t endArrival(void* arrival, std::int64_t* fragments);
bool copyIsOver(void* event);
adsmError_t endCopy(void* event);

}  // namespace gmac::mpi

#endif  // GMAC_MPI_DEVICE_COPIES_H_
