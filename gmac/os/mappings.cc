// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/mappings.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "gmac/base/descriptor.h"

namespace gmac::os {

Result<std::vector<Mapping>> readMappings() {
  const Stream file = openStream("/proc/self/maps");
  if (!file) {
    return fail(adsmErrorSystem, "/proc/self/maps cannot be opened");
  }
  std::vector<Mapping> mappings;
  char line[512];
  bool continued = false;  // the rest of a line longer than the buffer
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char read = '-';
    char write = '-';
    const bool whole = std::find(line, line + sizeof line, '\n') != line + sizeof line;
    if (!continued &&
        std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c", &begin, &end, &read, &write) == 4) {
      const Access access = write == 'w'  ? Access::kReadWrite
                            : read == 'r' ? Access::kRead
                                          : Access::kNone;
      mappings.push_back({begin, end, access});
    }
    continued = !whole;
  }
  return mappings;
}

namespace {

// The first mapping that ends after an address.
auto endingAfter(const std::vector<Mapping>& mappings, std::uintptr_t address) {
  return std::upper_bound(mappings.begin(), mappings.end(), address,
                          [](std::uintptr_t p, const Mapping& m) { return p < m.end; });
}

}  // namespace

Access loosestAccess(const std::vector<Mapping>& mappings, std::uintptr_t begin,
                     std::size_t bytes) {
  Access loosest = Access::kNone;
  for (auto mapping = endingAfter(mappings, begin);
       mapping != mappings.end() && mapping->begin < begin + bytes; ++mapping) {
    loosest = std::max(loosest, mapping->access);
  }
  return loosest;
}

Access tightestAccess(const std::vector<Mapping>& mappings, std::uintptr_t begin,
                      std::size_t bytes) {
  Access tightest = Access::kReadWrite;
  std::uintptr_t position = begin;
  for (auto mapping = endingAfter(mappings, begin);
       mapping != mappings.end() && mapping->begin <= position && position < begin + bytes;
       ++mapping) {
    tightest = std::min(tightest, mapping->access);
    position = mapping->end;
  }
  return position < begin + bytes ? Access::kNone : tightest;
}

}  // namespace gmac::os
