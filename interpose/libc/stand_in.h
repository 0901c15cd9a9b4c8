// SPDX-License-Identifier: Apache-2.0
//
// Two ways to give the kernel shared bytes: private memory in their place, or the shared memory
// itself, held open.
#ifndef GMAC_INTERPOSE_LIBC_STAND_IN_H_
#define GMAC_INTERPOSE_LIBC_STAND_IN_H_

#include <sys/uio.h>

#include <climits>
#include <cstddef>

#include "gmac/coherence/memory_port.h"
#include "interpose/base/scratch.h"

namespace gmac::interpose {

// The most that the kernel transfers in one call: the largest int, in whole pages.
inline constexpr std::size_t kMostPerCall = INT_MAX & ~std::size_t{4095};

// A caller's vector.
struct Vector {
  const iovec* parts;
  std::size_t count;

  // The number of bytes, at most kMostPerCall.
  std::size_t bytes() const;
  bool touchesShared() const;
};

// A vector in which private memory replaces the shared stretches, for one call that may wait. Other
// parts stay as they were given: only the kernel can tell whether they exist. For the stack; one
// thread's.
class StandIn {
 public:
  // `kernelKeeps`: the kernel may read the bytes after the call has returned.
  explicit StandIn(const Vector& given, bool kernelKeeps = false);
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  // False when there is no memory, or the kernel would refuse a vector of so many parts.
  bool ok() const { return parts_ != nullptr; }
  Vector vector() const { return {parts_, count_}; }

  // copyIn() copies all shared bytes to the private memory; copyOut() copies the first `bytes`
  // bytes of the vector back. False, with errno, when the shared bytes cannot be opened.
  bool copyIn();
  bool copyOut(std::size_t bytes);

 private:
  // One stretch of shared bytes; `at` bytes of the vector come before it.
  struct Stretch {
    std::byte* shared;
    std::byte* own;
    std::size_t bytes;
    std::size_t at;
  };
  struct Sizes {
    std::size_t parts = 0;
    std::size_t stretches = 0;
    std::size_t dataBytes = 0;
  };
  static Sizes measure(const Vector& given);
  static std::size_t tableBytes(const Sizes& sizes);
  void fill(const Vector& given, const Sizes& sizes);

  Sizes sizes_;
  Scratch scratch_;
  iovec* parts_ = nullptr;
  std::size_t count_ = 0;
  Stretch* stretches_ = nullptr;
  std::size_t stretchCount_ = 0;
  std::size_t bytes_ = 0;
};

// Holds every shared byte of a vector open on the CPU. For the stack; one thread's, and like
// a CpuHold short-lived.
class VectorHold {
 public:
  VectorHold(const Vector& given, bool write);
  ~VectorHold();
  VectorHold(const VectorHold&) = delete;
  VectorHold& operator=(const VectorHold&) = delete;
  // False, with errno, when the bytes cannot be opened.
  bool ok() const { return ok_; }

 private:
  Scratch scratch_;
  coherence::CpuHold* holds_;
  std::size_t count_ = 0;
  bool ok_ = true;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_STAND_IN_H_
