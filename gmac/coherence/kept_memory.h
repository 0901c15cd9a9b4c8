// SPDX-License-Identifier: Apache-2.0
//
// What others than the runtime may ask of the memory of freed objects that it keeps
// (object_pool.h); for interpose/ alone. Thread-safe.
#ifndef GMAC_COHERENCE_KEPT_MEMORY_H_
#define GMAC_COHERENCE_KEPT_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace gmac::coherence {

// Gives all of it back; whether there was any. For whoever else wants memory of the accelerator and
// got none.
bool giveBackKept();

// Whether the byte that the accelerator knows at `device` is part of it. No object of the program
// has that byte, though the driver takes it for allocated.
bool isKept(std::uintptr_t device);

// How much of the accelerator's memory it is. A load.
std::size_t keptBytes() noexcept;

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_KEPT_MEMORY_H_
