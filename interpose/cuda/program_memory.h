// SPDX-License-Identifier: Apache-2.0
//
// Memory that holds parts of the program's files.
#ifndef GMAC_INTERPOSE_CUDA_PROGRAM_MEMORY_H_
#define GMAC_INTERPOSE_CUDA_PROGRAM_MEMORY_H_

#include <cstddef>
#include <span>

namespace gmac::interpose {

// Whether bytes lie in what the program, or one library that it has loaded, may only read: they are
// the same until that is unloaded. Takes no lock, in particular not the loader's.
bool isConstantOfProgram(std::span<const std::byte> bytes) noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_PROGRAM_MEMORY_H_
