// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_ACCEL_HOST_FILE_WINDOW_H_
#define GMAC_ACCEL_HOST_FILE_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmac/base/descriptor.h"

namespace gmac::accel::host {

// The device process's mappings of one memory file. The file is mapped from its start as far as it
// was needed, by one mapping of the kernel's for any number of pinned ranges: a mapping for each
// would meet the kernel's limit of mappings, which ends every allocation besides. A part that no
// pin names any more costs nothing but address space: its pages are the application's to give
// back. Not thread-safe; pages that were mapped stay where they are until destruction.
class FileWindow {
 public:
  // Reserves address space in steps of `windowBytes`, or more for a longer file.
  FileWindow(Descriptor file, std::size_t windowBytes)
      : file_(std::move(file)), windowBytes_(windowBytes) {}
  FileWindow(const FileWindow&) = delete;
  FileWindow& operator=(const FileWindow&) = delete;
  ~FileWindow();

  // Where the file's byte `offset` is, with `bytes` mapped from there. NULL: errno.
  void* map(std::int64_t offset, std::size_t bytes);

 private:
  struct Reservation {
    std::byte* begin;
    std::size_t bytes;
    std::size_t mapped;  // from the file's start
  };

  // Makes the last reservation one of at least `end` bytes.
  bool reach(std::size_t end);

  const Descriptor file_;
  const std::size_t windowBytes_;
  std::vector<Reservation> reservations_;  // each longer than the one before
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_FILE_WINDOW_H_
