// SPDX-License-Identifier: Apache-2.0
//
// The runtime's parts of the address space: the ranges that it has reserved for objects to come and
// for its view of their memory, and the calls by which it changes mappings itself. interpose/
// refuses the program's own changes of such ranges; the runtime's calls go the same way through
// libc, where sanitizers see them, and are told apart by this.
#ifndef GMAC_BASE_OWN_MAPPINGS_H_
#define GMAC_BASE_OWN_MAPPINGS_H_

#include <cstddef>

namespace gmac::own_mappings {

// A range is reserved from now on, and until remove() of its begin. Thread-safe; none of these
// calls the allocator. Where no page can be mapped for more than 64 ranges, a line says which are
// not guarded.
void add(const void* begin, std::size_t bytes) noexcept;
void remove(const void* begin) noexcept;

// Whether a byte of [address, address + bytes) is in such a range. False in the children of the
// process that has reserved them. Takes no lock; may be called in signal handlers.
bool meets(const void* address, std::size_t bytes) noexcept;

namespace internal {
inline constinit thread_local int changes __attribute__((tls_model("initial-exec"))) = 0;
}  // namespace internal

// While one lives, the thread's changes of mappings are the runtime's own.
class Change {
 public:
  Change() noexcept { ++internal::changes; }
  ~Change() { --internal::changes; }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
};
inline bool changingHere() noexcept { return internal::changes > 0; }

}  // namespace gmac::own_mappings

#endif  // GMAC_BASE_OWN_MAPPINGS_H_
