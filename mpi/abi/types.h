// SPDX-License-Identifier: Apache-2.0
//
// Datatypes of MPI as gmac packs them, and which memory a buffer is.
#ifndef GMAC_MPI_ABI_TYPES_H_
#define GMAC_MPI_ABI_TYPES_H_

#include <cstdint>
#include <memory>

#include "gmac/api/adsm_datatype.h"
#include "gmac/coherence/shared_memory.h"
#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// Elements of more bytes are refused: MPI counts them in ints.
inline constexpr std::int64_t kMaxElementBytes = std::int64_t{1} << 30;

struct Type {
  Type() = default;
  ~Type();
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;

  std::int64_t size = 0;  // packed bytes of one element
  std::int64_t extent = 0;
  // A predefined type without gaps: its packed bytes are its bytes.
  bool dense = false;
  adsmType_t own = nullptr;  // committed. NULL: dense, or only MPI knows how to pack it
  std::int64_t trueLowerBound = 0;
  // One element's payload as MPI is told of it, as many bytes as the type has: the type itself
  // where it is dense.
  MPI_Datatype wire = MPI_DATATYPE_NULL;
  bool ownsWire = false;
};
using TypePtr = std::shared_ptr<const Type>;

struct FoundType {
  TypePtr type;               // NULL: none
  bool refusedByMpi = false;  // there is none because MPI does not communicate with it
  const char* reason = "";    // else why there is none
};
// The type; made when it is first asked for, kept until MPI frees it. Thread-safe; keeps no lock
// while it calls MPI.
FoundType findType(MPI_Datatype datatype);

// When MPI has been initialised, and before it is finalised.
void openTypes();
void closeTypes();

// A communicator of this process alone whose errors are returned; MPI_COMM_NULL outside of
// MPI_Init and MPI_Finalize.
MPI_Comm ownCommunicator();

// Where `count` elements at an address lie: [first, last) in bytes from it. Empty for arguments
// that MPI has to refuse.
struct Span {
  MPI_Count first = 0;
  MPI_Count last = 0;
};
Span spanOf(MPI_Count count, MPI_Datatype datatype);

// Whether a byte of the span of `count` elements at `buffer` is shared. No for arguments that MPI
// has to refuse, and for MPI_IN_PLACE.
bool touchesSlow(const void* buffer, MPI_Count count, MPI_Datatype datatype);
inline bool touches(const void* buffer, MPI_Count count, MPI_Datatype datatype) {
  return gmacAnythingShared() != 0 && touchesSlow(buffer, count, datatype);
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_TYPES_H_
