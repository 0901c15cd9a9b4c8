// SPDX-License-Identifier: Apache-2.0
//
// The PTX in the images that programs load.
#ifndef GMAC_DEVICE_CODE_IMAGE_H_
#define GMAC_DEVICE_CODE_IMAGE_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>

// An image is what cuModuleLoadData, cuModuleLoadFatBinary and cuLibraryLoadData take: PTX text, a
// fat binary, the wrapper of one that nvcc puts into host code, or a cubin. It has no length, so no
// more of it is read than its own headers promise. All functions are thread-safe, allocate, and are
// not for the fault handler. An image may lie in a shared object: call them without the runtime's
// locks.
namespace gmac::device_code {

// The PTX, of at most 8 MiB, that the code for a device of `computeCapability` (90 for 9.0) is
// compiled from, whether by the driver or before; without the terminator.
//
// In a fat binary, this is the PTX of the highest architecture that the device can run, provided
// that all machine code that the driver may prefer to it was compiled from the same architecture's
// PTX, and that the variants of the PTX (sm_90 and sm_90a) are one text but for their `.target`.
// nullopt if that is not certain, if the image has no PTX or has code to be linked, and if anything
// in it is unknown or damaged. The answer holds with CUDA_FORCE_PTX_JIT and with any
// CU_JIT_FALLBACK_STRATEGY, and not for an image that is linked with others (cuLinkAddData) or
// compiled for another target (CU_JIT_TARGET).
std::optional<std::string> ptxOf(const void* image, int computeCapability);

// The fat binary that an image is, or that it is the wrapper of; empty: it is neither.
std::span<const std::byte> fatBinaryOf(const void* image);

// False if ptxOf() finds nothing for any device. Reads headers only.
bool mayHavePtx(const void* image);

// ptxOf() for a fat binary that begins with `bytes` and must end in them.
std::optional<std::string> ptxOfFatBinary(std::span<const std::byte> bytes, int computeCapability);

}  // namespace gmac::device_code

#endif  // GMAC_DEVICE_CODE_IMAGE_H_
