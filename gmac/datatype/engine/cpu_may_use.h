// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_DATATYPE_ENGINE_CPU_MAY_USE_H_
#define GMAC_DATATYPE_ENGINE_CPU_MAY_USE_H_

#include <cstddef>
#include <cstdint>

#include "gmac/coherence/memory_port.h"

namespace gmac::datatype {

// The longest range that is copied while nothing is held, and by one thread.
inline constexpr std::size_t kMostUnheldBytes = std::size_t{64} << 10;

// Whether the CPU may read, or write, bytes of one object as they are: a hint, as kept by this
// thread. (What another thread closes meanwhile is opened by a fault, as for any access of the
// CPU's.) `bytes` is not 0.
inline bool cpuMayUse(const void* first, std::size_t bytes, bool writes) {
  using coherence::Current;
  Current current{};
  return coherence::mayBeShared(first, bytes) &&
         coherence::currentPrefix(first, bytes, &current) == bytes &&
         (current == Current::kCpu || (current == Current::kBoth && !writes));
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_CPU_MAY_USE_H_
