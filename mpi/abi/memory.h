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

// The memory of a message.
enum class Where {
  kPlain,    // MPI's to touch
  kShared,   // a byte of its span is shared
  kOnDevice  // no byte is; in device memory
};
// Of `count` elements at `buffer`. kPlain for arguments that MPI refuses, and for MPI_IN_PLACE.
// `place`: of the first of them, where they are kOnDevice.
Where whereSlow(const void* buffer, MPI_Count count, MPI_Datatype datatype, gmacDevicePlace* place);
// Of the bytes of a span.
Where whereLies(const void* buffer, const Span& span, gmacDevicePlace* place);
inline Where whereIs(const void* buffer, MPI_Count count, MPI_Datatype datatype,
                     gmacDevicePlace* place) {
  return mayNeedStaging() ? whereSlow(buffer, count, datatype, place) : Where::kPlain;
}
inline Where whereIs(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  gmacDevicePlace unused;
  return whereIs(buffer, count, datatype, &unused);
}
// Whether MPI must not touch them.
inline bool needsStaging(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  return whereIs(buffer, count, datatype) != Where::kPlain;
}
inline bool needsStaging(const void* buffer, const Span& span) {
  gmacDevicePlace unused;
  return mayNeedStaging() && whereLies(buffer, span, &unused) != Where::kPlain;
}

// Whether a span lies in device memory that belongs to no shared object. kMixed: only one end of it
// does.
enum class OnDevice { kNo, kYes, kMixed };
OnDevice onDevice(const void* buffer, const Span& span);

// A moment, and the objects that lived then.
class ObjectsThen {
 public:
  // Whether the object that had this byte, if one had it, has been freed since. (Small objects
  // share memory, so gmacTouchesShared() goes on saying yes.) Two loads if none has been freed.
  bool isFreed(const void* address) const {
    return gmacFreedObjects() != freed_ && gmacTouchesShared(address, 1) != 0 &&
           adsmSafe(address) == nullptr;
  }

 private:
  std::uint64_t freed_ = gmacFreedObjects();
};

// Pins private memory for the runtime's device.
extern const StagingMemory::Pinning kPinning;

// The address `bytes` after `address`, which may be MPI_BOTTOM.
inline void* shifted(const void* address, MPI_Count bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) +
                                 static_cast<std::uintptr_t>(bytes));
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_MEMORY_H_
