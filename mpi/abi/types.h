// SPDX-License-Identifier: Apache-2.0
//
// Datatypes of MPI as gmac packs them.
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
  std::int64_t trueExtent = 0;
  // One element's payload as MPI is told of it, as many bytes as the type has: the type itself
  // where it is dense.
  MPI_Datatype wire = MPI_DATATYPE_NULL;
  bool ownsWire = false;

  // Of `count` (1 or more) elements; NULL where only MPI knows it. O(blocks) for another count than
  // the last. Thread-safe.
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
// The type; made when it is first asked for, kept until MPI frees it. Thread-safe; keeps no lock
// while it calls MPI.
FoundType findType(MPI_Datatype datatype);

// Whether MPI gives a new handle for such a type where it is an answer, which is to be freed.
bool isDerived(MPI_Datatype datatype);

// When MPI has been initialised, and before it is finalised.
void openTypes();
void closeTypes();

// A communicator of this process alone whose errors are returned; MPI_COMM_NULL outside of
// MPI_Init and MPI_Finalize.
MPI_Comm ownCommunicator();

// Where elements at an address lie: [first, last) in bytes from it.
struct Span {
  MPI_Count first = 0;
  MPI_Count last = 0;

  bool empty() const { return last <= first; }
  std::size_t bytes() const { return static_cast<std::size_t>(last - first); }
  // Of `count` elements (1 or more), each so many bytes after the one before it.
  static Span of(MPI_Count count, MPI_Count trueLowerBound, MPI_Count trueExtent,
                 MPI_Count extent) {
    Span span = {trueLowerBound, trueLowerBound + trueExtent};
    (extent < 0 ? span.first : span.last) += (count - 1) * extent;
    return span;
  }
};
// Empty for arguments that MPI has to refuse.
Span spanOf(MPI_Count count, MPI_Datatype datatype);

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_TYPES_H_
