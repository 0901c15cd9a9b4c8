// SPDX-License-Identifier: Apache-2.0
//
// System calls by number, and the functions that make some of them on shared memory.
#ifndef GMAC_INTERPOSE_BASE_SYSTEM_CALL_H_
#define GMAC_INTERPOSE_BASE_SYSTEM_CALL_H_

#include <array>
#include <cstddef>

extern "C" {

// The system call itself, as libc's syscall() makes it. Written in assembly, because a system call
// may return in another process, on another stack.
__attribute__((visibility("hidden"))) long gmacSystemCall(long number, ...) noexcept;

}  // extern "C"

namespace gmac::interpose {

using Words = std::array<long, 6>;

inline long systemCall(long number, const Words& words) noexcept {
  return gmacSystemCall(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

// Makes a call with private memory in place of shared memory, like syscall().
using SystemCallServer = long(long number, const Words& words);

inline constexpr long kSystemCalls = 512;  // no number is larger
// By number; NULL for calls that have none. Filled in when the library is loaded.
inline constinit std::array<SystemCallServer*, kSystemCalls> systemCallServers{};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_BASE_SYSTEM_CALL_H_
