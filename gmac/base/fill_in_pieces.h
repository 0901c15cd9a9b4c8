// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_FILL_IN_PIECES_H_
#define GMAC_BASE_FILL_IN_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace gmac {

// As memset(), for memory that is an object's or lies near one, also under the lock of all objects:
// a long call of memset() itself may be taken over by the library's own stand-in, which takes that
// lock (interpose/libc/memory.cc).
inline void* fillInPieces(void* to, int value, std::size_t bytes) noexcept {
  constexpr std::size_t kPiece = std::size_t{16} << 10;
  auto* const begin = static_cast<std::byte*>(to);
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    std::memset(begin + at, value, std::min(kPiece, bytes - at));
  }
  return to;
}

}  // namespace gmac

#endif  // GMAC_BASE_FILL_IN_PIECES_H_
