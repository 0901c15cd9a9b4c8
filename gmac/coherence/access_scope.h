// SPDX-License-Identifier: Apache-2.0
//
// Whether the calling thread is in the middle of an access of the CPU, rather than in a call that
// the application made knowing that it may wait.
#ifndef GMAC_COHERENCE_ACCESS_SCOPE_H_
#define GMAC_COHERENCE_ACCESS_SCOPE_H_

namespace gmac {

// Says for a thread, while it lives, which address it accesses. For the stack; nests; the
// fault handler uses it.
class AccessScope {
 public:
  explicit AccessScope(const void* address) noexcept : outer_(current()) { current() = address; }
  ~AccessScope() { current() = outer_; }
  AccessScope(const AccessScope&) = delete;
  AccessScope& operator=(const AccessScope&) = delete;

  // The address; NULL outside of accesses.
  static const void*& current() noexcept;

 private:
  const void* const outer_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_ACCESS_SCOPE_H_
