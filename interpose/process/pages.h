// SPDX-License-Identifier: Apache-2.0
//
// Pages that a program names in a call which changes mappings, and what of them is the runtime's.
#ifndef GMAC_INTERPOSE_PROCESS_PAGES_H_
#define GMAC_INTERPOSE_PROCESS_PAGES_H_

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "gmac/base/log.h"
#include "gmac/base/own_mappings.h"
#include "gmac/base/round_up.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/real.h"
#include "interpose/base/served_call.h"
#include "interpose/base/system_call.h"

namespace gmac::interpose {

// The real function of a name, for what allocators call before this library's constructors have
// run, when the dynamic linker must not be asked for anything: until resolve(), the system call is
// made by number. Called like the function; a constinit variable.
template <long kNumber, typename Function>
class EarlyReal;

template <long kNumber, typename Return, typename... Args>
class EarlyReal<kNumber, Return(Args...)> {
 public:
  constexpr explicit EarlyReal(const char* name) : real_(name) {}

  Return operator()(Args... args) noexcept {
    if (resolved_.load(std::memory_order_acquire)) [[likely]]
      return real_(args...);
    return wordAs<Return>(gmacSystemCall(kNumber, asWord(args)..., 0L, 0L, 0L, 0L));
  }

  // When the library is loaded.
  void resolve() noexcept {
    resolved_.store(real_.resolve() != nullptr, std::memory_order_release);
  }

 private:
  Real<Return(Args...)> real_;
  std::atomic<bool> resolved_{false};
};

// The whole pages that such a call means. `bytes` is 0 where the system refuses the range: it does
// not begin at a page, or it wraps around.
struct Pages {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

inline Pages pagesOf(const void* address, std::size_t bytes) noexcept {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::size_t whole = roundUp(bytes, page);
  const bool valid = begin % page == 0 && whole >= bytes && begin + whole >= begin;
  return {reinterpret_cast<std::byte*>(begin), valid ? whole : 0};
}

// The calls of the runtime itself, of its allocator and of its driver are none of the program's. A
// child of fork has no objects, and may use their addresses for its own mappings.
inline bool programChangesMappings() noexcept {
  return !own_mappings::changingHere() && !coherence::memory().worksHere() &&
         !coherence::memory().inChildOfFork();
}

// Whether the program changes mappings of shared objects there.
inline bool meetsObjects(const Pages& pages) noexcept {
  return pages.bytes > 0 && coherence::mayBeShared(pages.begin, pages.bytes) &&
         programChangesMappings() && coherence::touchesShared(pages.begin, pages.bytes);
}

// ... or of what the runtime has reserved.
inline bool meetsOurs(const Pages& pages) noexcept {
  return meetsObjects(pages) || (pages.bytes > 0 && own_mappings::meets(pages.begin, pages.bytes) &&
                                 programChangesMappings());
}

// Whether code at this address is the CUDA driver's: it gives its memory's addresses back when the
// process ends, and maps them as it likes.
bool inDriver(const void* code) noexcept;

// Calls handle(part, bytes, shared) for each part of the pages that is shared, or is not, until it
// returns other than 0; returns that.
template <typename Handle>
int forEachPart(const Pages& pages, const Handle& handle) {
  std::byte* position = pages.begin;
  for (std::size_t left = pages.bytes; left > 0;) {
    bool shared = false;
    const std::size_t length = coherence::memory().sharedPrefix(position, left, &shared);
    if (const int result = handle(position, length, shared); result != 0) return result;
    position += length;
    left -= length;
  }
  return 0;
}

// Calls handle(piece, bytes) for each piece of a range, held open meanwhile, until it returns other
// than 0. -1 with `error` as errno where a piece cannot be opened.
template <typename Handle>
int forEachHeldPiece(std::byte* begin, std::size_t bytes, coherence::HoldFor purpose, int error,
                     const Handle& handle) {
  constexpr std::size_t kPieceBytes = std::size_t{8} << 20;  // no more is held open at a time
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t length = std::min(kPieceBytes, bytes - at);
    const coherence::CpuHold hold(begin + at, length, purpose);
    if (!hold.status().ok()) {
      errno = error;
      return -1;
    }
    if (const int result = handle(begin + at, length); result != 0) return result;
    at += length;
  }
  return 0;
}

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_PROCESS_PAGES_H_
