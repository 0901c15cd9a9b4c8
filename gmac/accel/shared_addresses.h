// SPDX-License-Identifier: Apache-2.0
//
// An optional capability of an accelerator: it shares its addresses with others, and its memory may
// be put under an address that one of them has allocated.
#ifndef GMAC_ACCEL_SHARED_ADDRESSES_H_
#define GMAC_ACCEL_SHARED_ADDRESSES_H_

#include <cstddef>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// Thread-safe. Both functions block.
class SharedAddresses {
 public:
  virtual ~SharedAddresses() = default;

  // Memory of this accelerator for an allocation of another one, under its address. Reads as zero.
  // Accelerator::free() of the one where it ends gives the address back. Errors:
  // adsmErrorAcceleratorMemory, adsmErrorAcceleratorLost.
  virtual Status allocateAt(DeviceAddress address, std::size_t bytes, Placement placement) = 0;
  // Frees this accelerator's memory under an address that another one's has now. The caller has
  // waited for all work that names it.
  virtual Status leave(DeviceAddress address, std::size_t bytes) = 0;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_SHARED_ADDRESSES_H_
