// SPDX-License-Identifier: Apache-2.0
//
// The parameters of the transfer kernels, which copy from one layout to another in one pass. For
// the CPU's compiler and for nvcc.
#ifndef GMAC_DATATYPE_KERNELS_TRANSFER_PARAMS_H_
#define GMAC_DATATYPE_KERNELS_TRANSFER_PARAMS_H_

#include <cstdint>

#include "gmac/datatype/kernels/pack_params.h"

namespace gmac::datatype {

// What a thread loads before it stores, of a transfer with more elements than threads. (Between two
// GPUs a load takes a microsecond and more.)
inline constexpr std::uint32_t kLoadsUnderWay = 4;

// How the parameters of one side are to be read.
enum class SideForm : std::uint32_t {
  kRows,
  kEvenList,
  kShortList,
  kMarkedList,
  kLongList,
  kWideList
};

// One side of any form: the parameters of the pack kernel that would move the same part of it, the
// first element of which is the transfer's. Each of them begins with its Part.
struct AnySideParams {
  SideForm form;
  union {
    AnyRowsParams rows;
    EvenListParams even;
    ShortListParams list;
    MarkedListParams marked;
    LongListParams units;
  };
};

// The part to copy: whole elements, and the bytes of it at its ends that are none. Element i of it
// is element part.begin + i of either side (of a list in units, `begin` + i).
struct TransferPart {
  std::uint32_t elements;
  std::uint8_t head;
  std::uint8_t tail;
};

// Both sides have equal pieces in one dimension; in up to three; or in any form.
struct Rows1TransferParams {
  TransferPart part;
  RowsParams<1> source;
  RowsParams<1> target;
};
struct Rows3TransferParams {
  TransferPart part;
  RowsParams<3> source;
  RowsParams<3> target;
};
struct AnyTransferParams {
  TransferPart part;
  AnySideParams source;
  AnySideParams target;
};
// What a launch may carry on every device.
static_assert(sizeof(AnyTransferParams) <= 4096);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_KERNELS_TRANSFER_PARAMS_H_
