// SPDX-License-Identifier: Apache-2.0
#include "datatypes/pattern.h"

#include <cstring>

namespace datatypes {

void fillPattern(std::byte* to, std::int64_t offset, std::int64_t bytes) {
  constexpr std::int64_t kWord = sizeof(std::uint64_t);
  while (bytes > 0) {
    const std::int64_t inWord = offset % kWord;
    const std::int64_t part = bytes < kWord - inWord ? bytes : kWord - inWord;
    const std::uint64_t word = patternWord(static_cast<std::uint64_t>(offset / kWord));
    std::memcpy(to, reinterpret_cast<const std::byte*>(&word) + inWord,
                static_cast<std::size_t>(part));
    to += part;
    offset += part;
    bytes -= part;
  }
}

}  // namespace datatypes
