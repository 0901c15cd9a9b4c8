// SPDX-License-Identifier: Apache-2.0
//
// Pages of other processes' mapped memory, which the device reads at addresses of this process.
#ifndef GMAC_ACCEL_CUDA_IMPORTED_FILES_H_
#define GMAC_ACCEL_CUDA_IMPORTED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

class Driver;

// Guarded by its owner, a StreamAccelerator. Every function but holds() is called in the device's
// context (DeviceScope). Pages that are imported stay the driver's until they are released, also
// when their process frees them or ends, and when this one's context does.
class ImportedFiles {
 public:
  ImportedFiles(const Driver& driver, DeviceCalls& calls) : driver_(driver), calls_(calls) {}
  ImportedFiles(const ImportedFiles&) = delete;
  ImportedFiles& operator=(const ImportedFiles&) = delete;

  // See ExportedMemory::importFiles(). All files or none are mapped.
  Result<std::uintptr_t> add(std::span<const MemoryFile> files);
  // Whether an import starts there.
  bool holds(std::uintptr_t address) const { return imports_.count(address) != 0; }
  // After an error it is still imported.
  Status release(std::uintptr_t address);

 private:
  struct Import {
    std::vector<std::size_t> sizes;  // of the files, one after the other
    std::size_t mapped = 0;          // how many of them, from the first
    std::size_t bytes() const;
  };

  Status map(std::uintptr_t address, const MemoryFile& file);
  Status mapPages(std::uintptr_t address, std::size_t bytes, unsigned long long pages);
  Status letRead(std::uintptr_t address, std::size_t bytes);
  // May be called again after an error.
  Status giveBack(std::uintptr_t address, Import& import);

  const Driver& driver_;
  DeviceCalls& calls_;
  std::map<std::uintptr_t, Import> imports_;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_IMPORTED_FILES_H_
