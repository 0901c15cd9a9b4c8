// SPDX-License-Identifier: Apache-2.0
//
// Private memory in place of the shared bytes that one argument of a call points to.
#ifndef GMAC_INTERPOSE_BASE_PRIVATE_COPY_H_
#define GMAC_INTERPOSE_BASE_PRIVATE_COPY_H_

#include <climits>
#include <cstddef>

#include "interpose/base/scratch.h"

namespace gmac::interpose {

// Whether the library may read these bytes itself. Where the program may not read them, the real
// function returns EFAULT, and the library must not crash. Shared memory is readable. Keeps errno.
bool readable(const void* address, std::size_t bytes) noexcept;

// The bytes of a string, its NUL included, or kMostTextBytes of a longer one. The kernel reads no
// more of a name. 0 when the string has no end before memory that cannot be read. Keeps errno.
inline constexpr std::size_t kMostTextBytes = PATH_MAX;
std::size_t textBytes(const char* text) noexcept;

// The bytes behind one argument, as the kernel gets them: the program's own bytes, or a copy of
// them if any is shared. For the stack; one thread's.
class PrivateCopy {
 public:
  // `bytes` bytes at `given`, both of which the program may have got wrong. `written`: the call may
  // write them.
  PrivateCopy(const void* given, std::size_t bytes, bool written);
  PrivateCopy(const PrivateCopy&) = delete;
  PrivateCopy& operator=(const PrivateCopy&) = delete;

  // False, with errno, when the shared bytes cannot be copied.
  bool ok() const { return ok_; }
  bool shared() const { return shared_; }
  void* get() const { return shared_ ? scratch_.data() : given_; }
  // Stores what the call has changed, and nothing else. False, with errno, when the program's bytes
  // cannot be opened, or are not there.
  bool putBack();

 private:
  void* const given_;
  const std::size_t bytes_;
  const bool written_;
  const bool shared_;
  const std::size_t reachable_;  // of the bytes, those from the first on that can be read
  Scratch scratch_;              // the copy and, of bytes that may change, what they were before
  bool ok_ = true;
};

// Opens the blocks at an address whose bytes only the kernel can count, for a call that then
// succeeds unless another thread's kernel call closes them first. False: nothing is shared there.
bool touch(void* address) noexcept;

// The same for what structures at an address point to: every word there that is the address of
// shared memory, and every such word where that leads. False: there is none. Private memory may lie
// there, or none.
bool touchPointees(const void* address) noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_BASE_PRIVATE_COPY_H_
