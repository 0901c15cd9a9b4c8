// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/file_window.h"

#include <sys/mman.h>

#include <algorithm>

namespace gmac::accel::host {

FileWindow::~FileWindow() {
  for (const Reservation& reservation : reservations_) {
    munmap(reservation.begin, reservation.bytes);
  }
}

bool FileWindow::reach(std::size_t end) {
  if (!reservations_.empty()) {
    // The addresses that follow may be free.
    Reservation& last = reservations_.back();
    void* const next = last.begin + last.bytes;
    void* const got =
        mmap(next, end - last.bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == next) {
      last.bytes = end;
      return true;
    }
    if (got != MAP_FAILED) {
      munmap(got, end - last.bytes);  // a kernel that takes the address for a wish
    }
  }
  reservations_.reserve(reservations_.size() + 1);
  const std::size_t twice = reservations_.empty() ? 0 : reservations_.back().bytes * 2;
  std::size_t wanted = std::max({windowBytes_, twice, end});
  while (true) {
    void* const begin =
        mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin != MAP_FAILED) {
      reservations_.push_back({static_cast<std::byte*>(begin), wanted, 0});
      return true;
    }
    if (wanted == end) {
      return false;
    }
    wanted = std::max(wanted / 2, end);  // address space may be limited
  }
}

void* FileWindow::map(std::int64_t offset, std::size_t bytes) {
  const std::size_t end = static_cast<std::size_t>(offset) + bytes;
  if ((reservations_.empty() || reservations_.back().bytes < end) && !reach(end)) {
    return nullptr;
  }
  Reservation& window = reservations_.back();
  if (window.mapped < end) {
    if (mmap(window.begin + window.mapped, end - window.mapped, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, file_.get(),
             static_cast<off_t>(window.mapped)) == MAP_FAILED) {
      return nullptr;
    }
    window.mapped = end;
  }
  return window.begin + offset;
}

}  // namespace gmac::accel::host
