// SPDX-License-Identifier: Apache-2.0
//
// The CPU's memory that the device process reaches: it maps the files that such memory is of.
#ifndef GMAC_ACCEL_HOST_PINNED_MEMORY_H_
#define GMAC_ACCEL_HOST_PINNED_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/host/device_link.h"
#include "gmac/base/status.h"

namespace gmac::accel::host {

// Thread-safe. Owned by the accelerator; not for the fault path. Its functions are those of
// Accelerator.
class PinnedMemory {
 public:
  explicit PinnedMemory(DeviceLink& link) : link_(link) {}

  Status pin(const HostMemory& memory);
  Status unpin(const HostMemory& memory);
  Result<void*> allocate(std::size_t bytes);
  void free(void* address, std::size_t bytes) noexcept;

 private:
  struct PinnedFile {
    std::uint32_t number;
    std::size_t pins;
  };
  using FileKey = std::pair<dev_t, ino_t>;
  struct Pin {
    std::size_t bytes;
    FileKey file;
  };

  DeviceLink& link_;
  std::mutex mutex_;  // guards what follows
  std::map<std::uintptr_t, Pin> pins_;
  std::map<FileKey, PinnedFile> files_;
  std::uint32_t nextFile_ = 1;
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_PINNED_MEMORY_H_
