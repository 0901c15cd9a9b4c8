// SPDX-License-Identifier: Apache-2.0
//
// A benchmark's kernels as typed functions over gmac's C API, so that a call in the port reads like
// the CUDA launch that it replaces.
#ifndef GMAC_PARBOIL_KERNEL_H_
#define GMAC_PARBOIL_KERNEL_H_

#include <cstddef>
#include <type_traits>

#include "gmac/api/adsm.h"
#include "parboil/require.h"

// The CUDA halves of a kernel description: absent from a build without the toolkit.
#ifdef PARBOIL_CUDA
#define PARBOIL_CUDA_ONLY(expression) (expression)
#else
#define PARBOIL_CUDA_ONLY(expression) nullptr
#endif

namespace parboil {

// A kernel with parameters of exactly these types. Thread-safe. A handle: the kernel itself lives
// until the process ends, so keep one per kernel in a function's static variable.
template <typename... Params>
class Kernel {
  static_assert((std::is_trivially_copyable_v<Params> && ...), "parameters travel as bytes");

 public:
  // `desc` without its parameters, which are filled in here.
  explicit Kernel(adsmKernelDesc_t desc) {
    const std::size_t sizes[] = {sizeof(Params)...};
    desc.paramCount = sizeof...(Params);
    desc.paramSizes = sizes;
    require(adsmKernelCreate(&desc, &kernel_));
  }

  // adsmCall(): releases all shared objects and queues the launch.
  void call(adsmDim_t grid, adsmDim_t block, std::size_t sharedBytes, Params... params) const {
    void* args[] = {const_cast<void*>(static_cast<const void*>(&params))...};
    require(adsmCall(kernel_, grid, block, sharedBytes, args));
  }

  // Constant memory for the calls made afterwards.
  void setConstant(const char* name, const void* data, std::size_t bytes) const {
    require(adsmSetConstant(kernel_, name, data, bytes));
  }

 private:
  adsmKernel_t kernel_ = nullptr;
};

// The i-th argument of a host kernel.
template <typename T>
const T& argument(void** args, std::size_t i) {
  return *static_cast<const T*>(args[i]);
}

// Blocks of `width` threads that cover `count` items.
constexpr unsigned blocksFor(std::size_t count, unsigned width) {
  return static_cast<unsigned>((count + width - 1) / width);
}

}  // namespace parboil

#endif  // GMAC_PARBOIL_KERNEL_H_
