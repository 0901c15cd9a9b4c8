// SPDX-License-Identifier: Apache-2.0
//
// The C API: checks arguments and hands over to the runtime.
#include "gmac/adsm.h"

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "gmac/guarded.h"
#include "gmac/kernel.h"
#include "gmac/runtime.h"
#include "gmac/status.h"

namespace {

using gmac::fail;
using gmac::guarded;
using gmac::Runtime;
using gmac::Status;

void* allocate(const char* function, size_t size, gmac::accel::Placement placement) noexcept {
  void* address = nullptr;
  (void)guarded(function, [&]() -> Status {
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    auto allocated = (*runtime)->manager().allocate(size, placement);
    if (!allocated.ok()) {
      return allocated.status();
    }
    address = *allocated;
    return {};
  });
  return address;
}

bool positive(adsmDim_t dim) { return dim.x > 0 && dim.y > 0 && dim.z > 0; }

Status call(const char* function, adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block,
            size_t sharedBytes, void** args, std::optional<std::span<const adsmUse_t>> uses) {
  if (kernel == nullptr) {
    return fail(adsmErrorInvalidValue, "{}: kernel is NULL", function);
  }
  if (!positive(grid) || !positive(block)) {
    return fail(adsmErrorInvalidValue,
                "{}({}): grid is {} x {} x {}, block is {} x {} x {}; every one must be 1 or more",
                function, kernel->name, grid.x, grid.y, grid.z, block.x, block.y, block.z);
  }
  for (size_t i = 0; i < kernel->paramSizes.size(); ++i) {
    if (args == nullptr || args[i] == nullptr) {
      return fail(adsmErrorInvalidValue, "{}({}): args{} is NULL; the kernel has {} parameters",
                  function, kernel->name, args == nullptr ? "" : fmt::format("[{}]", i),
                  kernel->paramSizes.size());
    }
  }
  auto runtime = Runtime::get();
  if (!runtime.ok()) {
    return runtime.status();
  }
  return (*runtime)->manager().call(kernel, {grid, block, sharedBytes}, args, uses);
}

}  // namespace

extern "C" {

const char* adsmErrorName(adsmError_t error) { return gmac::errorName(error); }
adsmError_t adsmLastError(void) { return gmac::lastErrorCode(); }
const char* adsmLastErrorString(void) { return gmac::lastErrorText(); }

void* adsmAlloc(size_t size) {
  return allocate("adsmAlloc", size, gmac::accel::Placement::kSameAddress);
}

void* adsmSafeAlloc(size_t size) {
  return allocate("adsmSafeAlloc", size, gmac::accel::Placement::kAnywhere);
}

void* adsmSafe(const void* address) {
  void* device = nullptr;
  (void)guarded("adsmSafe", [&]() -> Status {
    Runtime* runtime = Runtime::started();
    if (runtime == nullptr) {
      return fail(adsmErrorInvalidPointer, "adsmSafe({}): nothing is allocated yet", address);
    }
    auto found = runtime->manager().deviceAddress(address);
    if (!found.ok()) {
      return found.status();
    }
    device = *found;
    return {};
  });
  return device;
}

adsmError_t adsmFree(void* address) {
  return guarded("adsmFree", [&]() -> Status {
    if (address == nullptr) {
      return {};
    }
    Runtime* runtime = Runtime::started();
    if (runtime == nullptr) {
      return fail(adsmErrorInvalidPointer, "adsmFree({}): nothing is allocated yet", address);
    }
    return runtime->manager().free(address);
  });
}

adsmError_t adsmKernelCreate(const adsmKernelDesc_t* desc, adsmKernel_t* kernel) {
  return guarded("adsmKernelCreate", [&]() -> Status {
    if (desc == nullptr || kernel == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmKernelCreate: {} is NULL",
                  desc == nullptr ? "desc" : "kernel");
    }
    if (desc->name == nullptr || *desc->name == '\0') {
      return fail(adsmErrorInvalidValue, "adsmKernelCreate: desc->name is {}",
                  desc->name == nullptr ? "NULL" : "empty");
    }
    if (desc->paramCount > 0 && desc->paramSizes == nullptr) {
      return fail(adsmErrorInvalidValue,
                  "adsmKernelCreate({}): paramSizes is NULL, paramCount is {}", desc->name,
                  desc->paramCount);
    }
    for (size_t i = 0; i < desc->paramCount; ++i) {
      if (desc->paramSizes[i] == 0) {
        return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): paramSizes[{}] is 0", desc->name,
                    i);
      }
    }
    if (desc->constantCount > 0 && desc->constants == nullptr) {
      return fail(adsmErrorInvalidValue,
                  "adsmKernelCreate({}): constants is NULL, constantCount is {}", desc->name,
                  desc->constantCount);
    }
    for (size_t i = 0; i < desc->constantCount; ++i) {
      if (desc->constants[i].name == nullptr || desc->constants[i].size == 0) {
        return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): constants[{}] has no {}",
                    desc->name, i, desc->constants[i].name == nullptr ? "name" : "size");
      }
    }
    if (desc->cudaImage != nullptr && desc->cudaName == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): cudaImage without cudaName",
                  desc->name);
    }
    auto made = std::make_unique<adsmKernel_s>();
    made->name = desc->name;
    made->paramSizes.assign(desc->paramSizes, desc->paramSizes + desc->paramCount);
    made->constants.assign(desc->constants, desc->constants + desc->constantCount);
    made->constantNames.reserve(desc->constantCount);
    for (adsmConstant_t& constant : made->constants) {
      constant.name = made->constantNames.emplace_back(constant.name).c_str();
    }
    made->desc = *desc;
    made->desc.name = made->name.c_str();
    made->desc.paramSizes = made->paramSizes.data();
    made->desc.constants = made->constants.data();
    if (desc->cudaName != nullptr) {
      made->cudaName = desc->cudaName;
      made->desc.cudaName = made->cudaName.c_str();
    }
    *kernel = made.release();
    return {};
  });
}

adsmError_t adsmKernelDestroy(adsmKernel_t kernel) {
  return guarded("adsmKernelDestroy", [&]() -> Status {
    if (kernel == nullptr) {
      return {};
    }
    Status status;
    if (Runtime* runtime = Runtime::started()) {
      status = runtime->manager().forget(kernel);
    }
    delete kernel;
    return status;
  });
}

adsmError_t adsmSetConstant(adsmKernel_t kernel, const char* name, const void* data, size_t size) {
  return guarded("adsmSetConstant", [&]() -> Status {
    if (kernel == nullptr || name == nullptr || data == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmSetConstant: {} is NULL",
                  kernel == nullptr ? "kernel"
                  : name == nullptr ? "name"
                                    : "data");
    }
    for (const adsmConstant_t& constant : kernel->constants) {
      if (std::string_view(constant.name) != name) {
        continue;
      }
      if (size == 0 || size > constant.size) {
        return fail(adsmErrorInvalidValue,
                    "adsmSetConstant({}, {}): size is {}; allowed are 1 to {} bytes", kernel->name,
                    name, size, constant.size);
      }
      auto runtime = Runtime::get();
      if (!runtime.ok()) {
        return runtime.status();
      }
      return (*runtime)->manager().setConstant(kernel, constant, data, size);
    }
    return fail(adsmErrorInvalidValue, "adsmSetConstant({}): it has no constant named {}",
                kernel->name, name);
  });
}

adsmError_t adsmCall(adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block, size_t sharedBytes,
                     void** args) {
  return guarded("adsmCall", [&] {
    return call("adsmCall", kernel, grid, block, sharedBytes, args, std::nullopt);
  });
}

adsmError_t adsmCallUsing(adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block, size_t sharedBytes,
                          void** args, const adsmUse_t* uses, size_t count) {
  return guarded("adsmCallUsing", [&]() -> Status {
    if (count > 0 && uses == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmCallUsing: uses is NULL, count is {}", count);
    }
    return call("adsmCallUsing", kernel, grid, block, sharedBytes, args,
                std::span<const adsmUse_t>(uses, count));
  });
}

adsmError_t adsmBind(const void* object, adsmKernel_t kernel, adsmAccess_t access) {
  return guarded("adsmBind", [&]() -> Status {
    if (kernel == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmBind: kernel is NULL");
    }
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    return (*runtime)->manager().bind(object, kernel, access);
  });
}

adsmError_t adsmSync(void) {
  return guarded("adsmSync", []() -> Status {
    Runtime* runtime = Runtime::started();
    return runtime != nullptr ? runtime->manager().sync() : Status();
  });
}

#if !GMAC_HAVE_CUDA
adsmError_t adsmUseCudart(const adsmCudart_t*) {
  return fail(adsmErrorNotSupported, "adsmUseCudart: this library was built without CUDA").code();
}
#endif

}  // extern "C"
