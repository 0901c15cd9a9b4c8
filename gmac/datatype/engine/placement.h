// SPDX-License-Identifier: Apache-2.0
//
// Where the two sides of an operation are, and which parts of it the CPU and the device do.
#ifndef GMAC_DATATYPE_ENGINE_PLACEMENT_H_
#define GMAC_DATATYPE_ENGINE_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/engine/device.h"
#include "gmac/datatype/engine/division.h"
#include "gmac/datatype/engine/operation.h"

namespace gmac::datatype {

// A snapshot of both sides when an operation begins. Shared objects may change their state a moment
// later; that costs time, but no bytes, because the release flushes what is current on the CPU.
// Immutable; for the stack of one operation, which outlives it.
class Placement {
 public:
  enum class Packed : std::uint8_t { kDevice, kPinned, kPageable };

  Placement(Device& device, const Operation& operation);
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  bool stridedShared() const { return stridedShared_; }
  bool packedShared() const { return packedShared_; }
  // True for device memory that is not an object's, or lent.
  bool stridedPlain() const { return stridedOnDevice_; }
  // Where the operation accesses the packed side.
  Packed packedAt() const { return packedAt_; }
  bool packedOnDevice() const { return packedAt_ == Packed::kDevice; }
  // The operation in parts, by where the bytes of the strided side are current.
  std::span<const Portion> portions() const {
    return divided_.empty() ? std::span(&whole_, 1) : std::span(divided_);
  }
  // True if the device does the part.
  bool onDevice(const Portion& portion) const;

  // The device's addresses of the layout's origin and of a byte in packed order.
  std::uint64_t deviceStrided() const;
  std::uint64_t devicePacked(std::int64_t offset) const;

  // adsmErrorNotSupported for a forced method that these sides do not allow.
  Status checkMethod() const;

 private:
  bool packedOfObjectOnDevice() const;

  Device& device_;
  const Operation& op_;
  bool stridedShared_ = false;
  bool stridedOnDevice_ = false;  // and not shared, or lent
  bool packedShared_ = false;
  Packed packedAt_ = Packed::kPageable;
  std::ptrdiff_t stridedDistance_ = 0;  // from an address of the CPU's to the device's
  std::ptrdiff_t packedDistance_ = 0;
  Portion whole_;
  std::vector<Portion> divided_;  // empty: `whole_` alone
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_PLACEMENT_H_
