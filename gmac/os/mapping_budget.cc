// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/mapping_budget.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "gmac/base/own_system_call.h"

namespace gmac::os {
namespace {

constexpr std::size_t kKernelsDefault = 65530;
constexpr std::size_t kLeastReserve = 4000;
// Counts again when the runtime has taken so many mappings for each that the process had...
constexpr std::size_t kTakenPerCounted = 8;
// ... plus so many.
constexpr std::size_t kTakenAtLeast = std::size_t{16} << 10;
// Smaller changes do not trigger a count.
constexpr std::size_t kSmallestStep = 256;

// A file of the kernel, read with plain system calls: no cancellation point, and no function that
// interpose/ replaces.
class KernelFile {
 public:
  explicit KernelFile(const char* path)
      : fd_(static_cast<int>(ownSystemCall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC))) {}
  ~KernelFile() {
    if (fd_ >= 0) {
      ownSystemCall(SYS_close, fd_);
    }
  }
  KernelFile(const KernelFile&) = delete;
  KernelFile& operator=(const KernelFile&) = delete;
  // The number of bytes read; 0: end of file; negative: the file cannot be read.
  long read(char* to, std::size_t bytes) {
    if (fd_ < 0) {
      return -1;
    }
    long got = 0;
    do {
      got = ownSystemCall(SYS_read, fd_, to, bytes);
    } while (got < 0 && errno == EINTR);
    return got;
  }

 private:
  int fd_;
};

std::size_t kernelsLimit() {
  char text[32] = {};
  KernelFile file("/proc/sys/vm/max_map_count");
  if (file.read(text, sizeof text - 1) <= 0) {
    return kKernelsDefault;
  }
  const unsigned long limit = std::strtoul(text, nullptr, 10);
  return limit != 0 ? limit : kKernelsDefault;
}

}  // namespace

std::optional<std::size_t> countMappings(char* buffer, std::size_t bytes) noexcept {
  KernelFile file("/proc/self/maps");
  std::size_t lines = 0;
  for (;;) {
    const long got = file.read(buffer, bytes);
    if (got < 0) {
      return std::nullopt;
    }
    if (got == 0) {
      return lines;
    }
    lines += static_cast<std::size_t>(std::count(buffer, buffer + got, '\n'));
  }
}

MappingBudget::MappingBudget(std::size_t limit)
    : limit_(limit != 0 ? limit : kernelsLimit()),
      // If the limit is smaller than the reserve: half of it.
      reserve_(std::min(std::max(limit_ / 10, kLeastReserve), limit_ / 2)) {}

std::size_t MappingBudget::estimate(std::size_t own) const noexcept {
  // Neighbours that the kernel has joined count once there and twice here.
  return own >= ownAtCount_ ? counted_ + (own - ownAtCount_)
                            : std::max(counted_, ownAtCount_ - own) - (ownAtCount_ - own);
}

bool MappingBudget::countIsOld(std::size_t own) const noexcept {
  if (!everCounted_ || takenSinceCount_ >= kTakenPerCounted * counted_ + kTakenAtLeast) {
    return true;
  }
  const std::size_t most = limit_ - reserve_;
  const std::size_t room = most - std::min(most, counted_);
  return own >= ownAtCount_ + std::max(room / 2, kSmallestStep);
}

void MappingBudget::count(std::size_t own) noexcept {
  if (const auto counted = countMappings(buffer_.data(), buffer_.size())) {
    counted_ = *counted;
  } else {
    counted_ = estimate(own);  // nothing better is known
  }
  ownAtCount_ = own;
  takenSinceCount_ = 0;
  everCounted_ = true;
}

bool MappingBudget::allows(std::size_t own, std::size_t more) noexcept {
  if (own + more <= kGuaranteed) {
    return true;
  }
  const auto fits = [&] { return estimate(own) + more <= limit_ - reserve_; };
  const bool changed = takenSinceCount_ >= kSmallestStep || own + kSmallestStep <= ownAtCount_;
  if (countIsOld(own) || (changed && !fits())) {
    count(own);
  }
  return fits();
}

}  // namespace gmac::os
