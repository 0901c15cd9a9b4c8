// SPDX-License-Identifier: Apache-2.0
//
// Small arguments that a call takes by address (an offset, a length, a vector's table). They may
// lie in shared memory as well.
#ifndef GMAC_INTERPOSE_LIBC_ARGUMENTS_H_
#define GMAC_INTERPOSE_LIBC_ARGUMENTS_H_

#include <sys/uio.h>

#include <cstddef>

#include "gmac/coherence/memory_port.h"
#include "interpose/base/private_copy.h"
#include "interpose/libc/stand_in.h"

namespace gmac::interpose {

// One value that a call reads or updates, as the kernel gets it: the program's own, or a private
// copy if that is shared. For the stack; one thread's.
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
  // Stores the copy, which the kernel may have changed, in the shared value. An ordinary store: it
  // may fault.
  void putBack() {
    if (shared_) *given_ = own_;
  }

 private:
  Value* given_;
  bool shared_;
  Value own_{};
};

// A vector as the program passes it: its table may be shared, or unreadable. For the stack; one
// thread's.
class CallersVector {
 public:
  CallersVector(const iovec* parts, std::size_t count);
  CallersVector(const CallersVector&) = delete;
  CallersVector& operator=(const CallersVector&) = delete;

  // Whether a part or the table is shared and the kernel would accept the table. A table that it
  // would refuse goes to the real function, which knows the error.
  bool isOurs() const { return ours_; }
  // The table, at an address that the kernel can read if it could read it in plain memory.
  const iovec* parts() const { return vector_.parts; }
  const Vector& vector() const { return vector_; }

 private:
  Scratch table_;  // a copy, of a table that is shared
  Vector vector_;
  bool ours_ = false;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_ARGUMENTS_H_
