// SPDX-License-Identifier: Apache-2.0
//
// One pack or unpack: its arguments and its result.
#ifndef GMAC_DATATYPE_ENGINE_OPERATION_H_
#define GMAC_DATATYPE_ENGINE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/native_streams.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/datatype/engine/prepared.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// Ranges of objects closer than this in memory are released together; the smallest block of large
// objects.
inline constexpr std::int64_t kReleaseGap = std::int64_t{64} << 10;

// One operation, with its arguments checked. A view: the caller keeps `prepared`.
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
  // Nobody changes the strided bytes, which a device has, until the operation is over: so they need
  // no release, whosoever they are.
  bool lent = false;

  bool packs() const { return direction == Direction::kPack; }
  const Layout& layout() const { return prepared->layout(); }
  // Where a byte of packed order lies on the packed side.
  std::byte* packedAt(std::int64_t at) const { return packed + (at - offset); }
};

// One copy between two layouts, with its arguments checked: the part [offset, offset + bytes), in
// packed order, that both have. A view: the caller keeps what is `prepared`.
struct Transfer {
  struct Side {
    const Prepared* prepared = nullptr;
    std::byte* base = nullptr;  // the layout's origin
    Bounds bounds;              // of the part, from `base`
    const Layout& layout() const { return prepared->layout(); }
    std::byte* first() const { return base + bounds.first; }
    std::size_t span() const { return static_cast<std::size_t>(bounds.last - bounds.first); }
  };
  const char* function = nullptr;  // for errors
  Side target;
  Side source;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // more than 0
  adsmMethod_t method = adsmMethodAny;
  std::uint32_t blocks = 0;  // 0: no limit
  std::optional<accel::NativeStream> stream;
  bool wait = true;  // until CPU memory has its bytes
};

// The result of an operation; it may still be under way until `ticket` is complete.
struct Outcome {
  adsmPackReport_t report{};
  accel::Ticket ticket;
};

// An operation's launch or strided copy, to be submitted again for an equal request, and what it
// depends on. A plain value; nothing of it is read unless `valid`.
struct CachedLaunch {
  bool valid = false;
  bool usesTable = false;
  accel::Memory packedMemory;  // the strided side's is the device's
  // The bytes that are accessed of either side; neither is a shared object's.
  const std::byte* strided;
  std::size_t stridedBytes;
  const std::byte* packed;
  std::size_t packedBytes;
  std::uint64_t plan;   // the identity of the plan,
  std::uint64_t table;  // and where its table was
  adsmPackReport_t report;
  // One of both, by the report's method.
  DeviceLaunch launch;
  accel::StridedCopy copy;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_OPERATION_H_
