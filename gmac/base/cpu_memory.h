// SPDX-License-Identifier: Apache-2.0
//
// Memory that is the CPU's without asking anybody.
#ifndef GMAC_BASE_CPU_MEMORY_H_
#define GMAC_BASE_CPU_MEMORY_H_

namespace gmac {

// Whether an address lies in the program's heap (below its break) or on the calling thread's stack:
// neither is ever a device's memory. A few nanoseconds, but for a thread's first call, which reads
// files and may allocate. No means that it is not known.
bool onHeapOrStack(const void* address) noexcept;

}  // namespace gmac

#endif  // GMAC_BASE_CPU_MEMORY_H_
