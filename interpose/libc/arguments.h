// SPDX-License-Identifier: Apache-2.0
//
// The small things besides a buffer that a call is given by address (an offset, a length, a
// vector's table), which may lie in shared memory as well.
#ifndef GMAC_INTERPOSE_LIBC_ARGUMENTS_H_
#define GMAC_INTERPOSE_LIBC_ARGUMENTS_H_

#include <sys/uio.h>

#include <cstddef>

#include "gmac/coherence/port.h"
#include "interpose/libc/stand_in.h"

namespace gmac::interpose {

// Whether the library may look at these bytes itself: where a program may not, the real function
// answers EFAULT and the library must not die. Shared memory is readable. Keeps errno.
bool readable(const void* address, std::size_t bytes) noexcept;

// What the kernel is given for one value that a call reads or updates: the program's own
// unless that is shared, then a private copy. For the stack; one thread's.
template <typename Value>
class Argument {
 public:
  explicit Argument(Value* given)
      : given_(given), shared_(given != nullptr && coherence::touchesShared(given, sizeof *given)) {
    if (shared_) own_ = *given_;
  }
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;

  bool shared() const { return shared_; }
  Value* get() { return shared_ ? &own_ : given_; }
  // What the kernel left in the copy; by an ordinary store, which faults its way in.
  void putBack() {
    if (shared_) *given_ = own_;
  }

 private:
  Value* given_;
  bool shared_;
  Value own_{};
};

// A vector as a program hands it over: its table may be shared, or not be there at all. For
// the stack; one thread's.
class CallersVector {
 public:
  CallersVector(const iovec* parts, std::size_t count);
  CallersVector(const CallersVector&) = delete;
  CallersVector& operator=(const CallersVector&) = delete;

  // Whether a part, or the table, is shared, and the kernel would take the table as it is. What it
  // would refuse goes to the real function, which knows the error.
  bool isOurs() const { return ours_; }
  // The table, where the kernel can read it if it could read it on plain memory.
  const iovec* parts() const { return vector_.parts; }
  const Vector& vector() const { return vector_; }

 private:
  Scratch table_;  // a copy, of a table that is shared
  Vector vector_;
  bool ours_ = false;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_ARGUMENTS_H_
