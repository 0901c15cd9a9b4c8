// SPDX-License-Identifier: Apache-2.0
//
// The kernel's own table of this process's mappings, for walkers and tests.
#ifndef GMAC_OS_MAPPINGS_H_
#define GMAC_OS_MAPPINGS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/os/memory.h"

namespace gmac::os {

struct Mapping {
  std::uintptr_t begin;
  std::uintptr_t end;
  Access access;
};

// All mappings, in the order of their addresses. Thread-safe; allocates.
Result<std::vector<Mapping>> readMappings();

// The loosest protection that any byte of [begin, begin + bytes) has; kNone where nothing is
// mapped.
Access loosestAccess(const std::vector<Mapping>& mappings, std::uintptr_t begin, std::size_t bytes);
// The tightest one.
Access tightestAccess(const std::vector<Mapping>& mappings, std::uintptr_t begin,
                      std::size_t bytes);

}  // namespace gmac::os

#endif  // GMAC_OS_MAPPINGS_H_
