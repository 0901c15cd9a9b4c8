// SPDX-License-Identifier: Apache-2.0
//
// An optional capability of an accelerator: its memory can be used by the accelerators of other
// processes of the same user on the same host.
#ifndef GMAC_ACCEL_EXPORTED_MEMORY_H_
#define GMAC_ACCEL_EXPORTED_MEMORY_H_

#include <array>
#include <cstddef>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// By which another process imports what this one has exported. It may be sent to it in any way.
using MemoryHandle = std::array<unsigned char, 64>;

// Thread-safe. All functions block, at first for milliseconds. What the first two return is kept
// until the process ends or, if that comes first, the context does, but for releaseImport(); it is
// none of Accelerator::allocate()'s.
class ExportedMemory {
 public:
  virtual ~ExportedMemory() = default;

  // Memory of this accelerator, which holds anything, and its handle. adsmErrorNotSupported (the
  // system refuses handles), adsmErrorAcceleratorMemory, adsmErrorAcceleratorLost.
  virtual Result<DeviceAddress> exportMemory(std::size_t bytes, MemoryHandle* handle) = 0;
  // Where this accelerator has what another process has exported. Once for each handle. That it is
  // that memory is for the caller to check: read from it what the exporter has put there.
  // adsmErrorNotSupported (among others, the exporter's device is out of this one's reach),
  // adsmErrorAcceleratorLost.
  virtual Result<DeviceAddress> importMemory(const MemoryHandle& handle) = 0;
  // The handle of memory that the application has from this accelerator's device, from the start of
  // an allocation; good until it frees that. adsmErrorInvalidValue: none starts there.
  // adsmErrorNotSupported: memory of this kind has none.
  virtual Status handleOf(DeviceAddress start, MemoryHandle* handle) = 0;
  // The end of an import, whose memory nothing uses any more.
  virtual Status releaseImport(DeviceAddress address) = 0;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_EXPORTED_MEMORY_H_
