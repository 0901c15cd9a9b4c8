// SPDX-License-Identifier: Apache-2.0
//
// Memory of a real GPU's accelerators that other processes are given by files: through the Driver
// API (`cuda`) and through this program's CUDA runtime (`cudart`).
#include <gtest/gtest.h>

#include "tests/accel/shared_memory.h"

#if GMAC_HAVE_CUDA

#include "gmac/accel/cuda/cuda_accelerator.h"
#include "gmac/accel/cuda/cudart_accelerator.h"

extern "C" const void* conformanceIncrement();  // so that there is a CUDA runtime

namespace gmac::accel::shared_memory {
namespace {

[[maybe_unused]] const void* const kKernel = conformanceIncrement();

const Kit kCuda = {"Cuda", &makeCudaAccelerator, std::size_t{8} << 20};
const Kit kCudaSmall = {"CudaSmall", &makeCudaAccelerator, std::size_t{64} << 10};
const Kit kCudart = {"Cudart", &makeCudartAccelerator, std::size_t{8} << 20};
INSTANTIATE_TEST_SUITE_P(Gpu, SharedMemory, ::testing::Values(&kCuda, &kCudaSmall, &kCudart),
                         kitName);

}  // namespace
}  // namespace gmac::accel::shared_memory

#else

namespace gmac::accel::shared_memory {
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedMemory);
}  // namespace gmac::accel::shared_memory

TEST(CudaSharedMemory, NeedsTheCudaToolkit) { GTEST_SKIP() << "built without the CUDA toolkit"; }

#endif
