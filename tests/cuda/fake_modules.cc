// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's modules, functions and launches.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/cuda/fake_state.h"

namespace gmac::fake_cuda {
namespace {

constexpr unsigned kMaxBlockThreads = 1024;

// By either kind of handle.
bool isKernel(CUfunction function) { return (number(function) & 1) != 0; }
CUfunction functionOf(CUfunction function) {
  return reinterpret_cast<CUfunction>(number(function) & ~CUdeviceptr{1});
}

CUresult parameterOf(CUfunction function, std::size_t index, std::size_t* offset,
                     std::size_t* bytes) {
  const Kernel& kernel = *function->kernel;
  if (index >= kernel.paramCount) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (std::size_t i = 0; i <= index; ++i) {
    *bytes = kernel.paramSizes[i];
    *offset = (*offset + *bytes - 1) / *bytes * *bytes + (i < index ? *bytes : 0);
  }
  return CUDA_SUCCESS;
}

}  // namespace

std::function<CUresult()> launchOf(CUfunction handle, const unsigned grid[3],
                                   const unsigned block[3], unsigned sharedBytes, void** args,
                                   void** extra) {
  CUfunction const function = functionOf(handle);
  const Kernel& kernel = *function->kernel;
  auto copied = std::make_shared<std::vector<std::vector<std::byte>>>();
  readsArguments = true;
  for (std::size_t i = 0; i < kernel.paramCount; ++i) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    parameterOf(function, i, &offset, &bytes);
    const auto* const first = args != nullptr ? static_cast<const std::byte*>(args[i])
                                              : static_cast<const std::byte*>(extra[1]) + offset;
    copied->emplace_back(first, first + bytes);
  }
  if (args == nullptr && kernel.paramCount != 0) {
    volatile std::size_t size = *static_cast<std::size_t*>(extra[3]);
    static_cast<void>(size);
  }
  readsArguments = false;
  const std::array<unsigned, 3> gridCopy{grid[0], grid[1], grid[2]};
  const std::array<unsigned, 3> blockCopy{block[0], block[1], block[2]};
  return [=] {
    std::vector<void*> pointers;
    for (auto& argument : *copied) pointers.push_back(argument.data());
    return kernel.function(gridCopy.data(), blockCopy.data(), sharedBytes, pointers.data());
  };
}

}  // namespace gmac::fake_cuda

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

extern "C" {

#pragma GCC visibility push(default)

CUresult cuModuleLoadDataEx(CUmodule* module, const void* data, unsigned, CUjit_option*, void**) {
  FAKE_CALL();
  const auto* image = static_cast<const Image*>(data);
  if (std::memcmp(image->magic, gmac::fake_cuda::kImageMagic, sizeof image->magic) != 0) {
    image = device().standIn;
  }
  if (image == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  auto& loaded = *device().modules.emplace_back(std::make_unique<CUmod_st>());
  loaded.image = image;
  loaded.context = currentContext();
  for (std::size_t i = 0; i < image->globalCount; ++i) {
    CUdeviceptr address = 0;
    if (const CUresult result = allocate(&address, image->globals[i].bytes); result != CUDA_SUCCESS)
      return result;
    loaded.globals.push_back(address);
    *image->globals[i].address = address;
  }
  *module = &loaded;
  device().living.insert(&loaded);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  FAKE_CALL();
  if (device().living.erase(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUdeviceptr address : module->globals) release(address);
  module->globals.clear();
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_CALL();
  FAKE_HANDLE(module);
  for (std::size_t i = 0; i < module->image->kernelCount; ++i) {
    if (std::strcmp(module->image->kernels[i].name, name) != 0) continue;
    *function =
        device()
            .functions.emplace_back(new CUfunc_st{module->context, &module->image->kernels[i]})
            .get();
    device().living.insert(*function);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuModuleGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUmodule module,
                           const char* name) {
  FAKE_CALL();
  FAKE_HANDLE(module);
  for (std::size_t i = 0; i < module->globals.size(); ++i) {
    if (std::strcmp(module->image->globals[i].name, name) != 0) continue;
    *address = module->globals[i];
    *bytes = module->image->globals[i].bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int value) {
  FAKE_CALL();
  if (value > 200 << 10) return CUDA_ERROR_INVALID_VALUE;
  function->maxSharedBytes = value;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                        unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                        CUstream stream, void** args, void** extra) {
  FAKE_CALL();
  FAKE_HANDLE(functionOf(function));
  FAKE_HANDLE(stream);
  const unsigned long threads =
      1UL * std::min(blockX, 4096u) * std::min(blockY, 4096u) * std::min(blockZ, 4096u);
  if (gridX == 0 || gridY == 0 || gridZ == 0 || gridY > 65535 || gridZ > 65535 || threads == 0 ||
      threads > kMaxBlockThreads ||
      static_cast<int>(sharedBytes) > functionOf(function)->maxSharedBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (streamOf(stream).context != currentContext()) return CUDA_ERROR_INVALID_HANDLE;
  const unsigned grid[] = {gridX, gridY, gridZ};
  const unsigned block[] = {blockX, blockY, blockZ};
  return submit(stream, launchOf(function, grid, block, sharedBytes, args, extra));
}
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                            std::size_t* bytes) {
  FAKE_CALL();
  if (isKernel(function)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_HANDLE(function);
  return parameterOf(function, index, offset, bytes);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                              std::size_t* bytes) {
  FAKE_CALL();
  const auto function = reinterpret_cast<CUfunction>(kernel);
  if (!isKernel(function)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_HANDLE(functionOf(function));
  return parameterOf(functionOf(function), index, offset, bytes);
}

#pragma GCC visibility pop
}
