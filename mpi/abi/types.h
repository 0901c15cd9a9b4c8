// SPDX-License-Identifier: Apache-2.0
//
// MPI's datatypes, as gmac packs them.
#ifndef GMAC_MPI_ABI_TYPES_H_
#define GMAC_MPI_ABI_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "exchange/layout_bytes.h"
#include "gmac/api/adsm_datatype.h"
#include "mpi/abi/calls.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// Larger elements are refused, because MPI counts their bytes in ints.
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
  std::int64_t trueExtent = 0;
  // The datatype by which MPI transfers one packed element. It has the same size; a dense type is
  // its own.
  MPI_Datatype wire = MPI_DATATYPE_NULL;
  bool ownsWire = false;
  // Whether a ticket in elements of it may end within a basic element. MPICH 4.0 does not unpack
  // such a message: it says that it is truncated.
  bool splitsTickets = false;

  // The layout of `count` (1 or more) elements; NULL where only MPI knows it. O(blocks) if the
  // count differs from that of the last call. Thread-safe.
  exchange::SharedLayoutPtr layoutOf(std::int64_t count) const;

 private:
  exchange::SharedLayoutPtr makeLayout(std::int64_t count) const;

  mutable std::mutex lock_;  // guards what follows
  mutable std::optional<datatype::Layout> element_;
  mutable std::int64_t lastCount_ = 0;
  mutable exchange::SharedLayoutPtr lastLayout_;
};
using TypePtr = std::shared_ptr<const Type>;

struct FoundType {
  TypePtr type;               // NULL: none
  bool refusedByMpi = false;  // there is none because MPI does not communicate with it
  const char* reason = "";    // else why there is none
};
// Finds a type, which is made at the first call and kept until MPI frees it. Thread-safe; holds no
// lock while it calls MPI.
FoundType findType(MPI_Datatype datatype);
// One that was found before, where one thread at a time calls MPI; valid until the next call of
// these functions. NULL: ask findType().
const TypePtr* recentType(MPI_Datatype datatype);

// The size of an element of a predefined type without gaps; 0: of another type. Some nanoseconds
// for the types that are used most.
MPI_Count denseSize(MPI_Datatype datatype);
// The same, and 0 also of most types that were not asked about before. Calls no MPI.
MPI_Count knownDenseSize(MPI_Datatype datatype);

// Whether MPI_Type_get_contents returns a new handle for such a type, which the caller frees.
bool isDerived(MPI_Datatype datatype);

// openTypes() comes after MPI_Init, or when a session has begun; closeTypes() before MPI_Finalize,
// or before the end of that session.
void openTypes();
#if MPI_VERSION >= 4
void openTypes(MPI_Session session);
#endif
void closeTypes();

// A communicator of this process alone, whose error handler is MPI_ERRORS_RETURN. MPI_COMM_NULL
// as long as MPI is not in use.
MPI_Comm ownCommunicator();

// The bytes that elements occupy: [first, last), relative to their address.
struct Span {
  MPI_Count first = 0;
  MPI_Count last = 0;

  bool empty() const { return last <= first; }
  std::size_t bytes() const { return static_cast<std::size_t>(last - first); }
  // The span of `count` elements (1 or more), each `extent` bytes after the one before it.
  static Span of(MPI_Count count, MPI_Count trueLowerBound, MPI_Count trueExtent,
                 MPI_Count extent) {
    Span span = {trueLowerBound, trueLowerBound + trueExtent};
    (extent < 0 ? span.first : span.last) += (count - 1) * extent;
    return span;
  }
};
// Empty for arguments that MPI refuses.
Span spanOf(MPI_Count count, MPI_Datatype datatype);

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_TYPES_H_
