// SPDX-License-Identifier: Apache-2.0
//
// One pack or unpack: what it is asked to do, and what it has done.
#ifndef GMAC_DATATYPE_OPERATION_H_
#define GMAC_DATATYPE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/datatype/device.h"
#include "gmac/datatype/prepared.h"

namespace gmac::datatype {

// One operation, with its arguments checked. A view: whoever runs it keeps `prepared`.
struct Operation {
  Direction direction = Direction::kPack;
  const Prepared* prepared = nullptr;
  std::byte* strided = nullptr;  // the layout's origin
  std::byte* packed = nullptr;   // where the part begins
  std::int64_t offset = 0;       // of the part in packed order
  std::int64_t bytes = 0;        // more than 0
  Bounds bounds;                 // of the part, from `strided`
  adsmMethod_t method = adsmMethodAny;
  std::uint32_t blocks = 0;  // 0: no limit
  std::optional<accel::NativeStream> stream;
  bool wait = true;  // until CPU memory has its bytes

  bool packs() const { return direction == Direction::kPack; }
  const Layout& layout() const { return prepared->layout(); }
  // Where a byte of packed order lies on the packed side.
  std::byte* packedAt(std::int64_t at) const { return packed + (at - offset); }
};

// What an operation has left under way: nothing, when `ticket` is complete.
struct Outcome {
  adsmPackReport_t report{};
  accel::Ticket ticket;
};

// What an operation leaves for the next one that asks for the same: the launch or strided copy that
// did all of it, where one did, and what that depends upon. A plain value; nothing of it is read
// unless `kept`.
struct KeptLaunch {
  bool kept = false;
  bool usesTable = false;
  Memory packedMemory;  // the strided side's is the device's
  // What is touched of either side, which is no shared object's.
  const std::byte* strided;
  std::size_t stridedBytes;
  const std::byte* packed;
  std::size_t packedBytes;
  std::uint64_t plan;   // the identity of the plan,
  std::uint64_t table;  // and where its table was
  adsmPackReport_t report;
  // By the method that the report names.
  DeviceLaunch launch;
  StridedCopy copy;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_OPERATION_H_
