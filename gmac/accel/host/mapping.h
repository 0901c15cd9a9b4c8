// SPDX-License-Identifier: Apache-2.0
//
// A mapping of this process that is undone with its owner.
#ifndef GMAC_ACCEL_HOST_MAPPING_H_
#define GMAC_ACCEL_HOST_MAPPING_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace gmac::accel::host {

inline std::size_t pageBytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, std::size_t bytes) : address_(address), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (address_ != nullptr) {
      munmap(address_, bytes_);
    }
  }

  void* address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  std::uintptr_t number() const { return reinterpret_cast<std::uintptr_t>(address_); }
  explicit operator bool() const { return address_ != nullptr; }
  // Leaves the mapping as it is.
  void forget() { address_ = nullptr; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

// Of a file, or anonymous. Empty: errno.
inline Mapping map(std::size_t bytes, int protection, int flags, int fd = -1) {
  void* const address =
      mmap(nullptr, bytes, protection, flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  return address == MAP_FAILED ? Mapping() : Mapping(address, bytes);
}

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_MAPPING_H_
