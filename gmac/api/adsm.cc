// SPDX-License-Identifier: Apache-2.0
//
// The C API: checks arguments and calls the runtime.
#include "gmac/api/adsm.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/accel/devices.h"
#include "gmac/base/api_call.h"
#include "gmac/base/handles.h"
#include "gmac/base/status.h"
#include "gmac/coherence/kernel.h"
#include "gmac/session/runtime.h"

namespace {

using gmac::fail;
using gmac::Runtime;
using gmac::Status;
using gmac::api::guarded;

void* allocate(const char* function, size_t size, gmac::accel::Placement placement) noexcept {
  void* address = nullptr;
  (void)guarded(function, [&]() -> Status {
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    auto allocated = (*runtime)->memory().allocate(size, placement);
    if (!allocated.ok()) {
      return allocated.status();
    }
    address = *allocated;
    return {};
  });
  return address;
}

using KernelPtr = std::shared_ptr<adsmKernel_s>;

gmac::HandleTable<KernelPtr>& kernels() { return gmac::HandleTable<KernelPtr>::instance(); }

// When the library is loaded: a child of a fork in the middle of that would wait for ever.
[[gnu::constructor]] void makeKernels() { (void)kernels(); }

Status noKernel(const char* function, adsmKernel_t handle) {
  return handle == nullptr
             ? fail(adsmErrorInvalidValue, "{}: kernel is NULL", function)
             : fail(adsmErrorInvalidValue, "{}: kernel is {}, which is no kernel, or is destroyed",
                    function, static_cast<const void*>(handle));
}

gmac::Result<KernelPtr> findKernel(const char* function, adsmKernel_t handle) {
  auto found = kernels().find(handle);
  return found ? gmac::Result<KernelPtr>(*std::move(found)) : noKernel(function, handle);
}

// More than any accelerator has room for; an array of as many entries is not looked for.
constexpr std::size_t kMaxConstants = gmac::accel::kMaxConstantBytes;
constexpr std::size_t kMaxUses = std::size_t{1} << 20;

// An array of a kernel's description.
Status checkArray(const adsmKernelDesc_t& desc, const char* array, const void* entries,
                  const char* count, std::size_t length, std::size_t most) {
  if (length > most) {
    return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): {} is {}; allowed are 0 to {}",
                desc.name, count, length, most);
  }
  if (length > 0 && entries == nullptr) {
    return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): {} is NULL, {} is {}", desc.name,
                array, count, length);
  }
  return {};
}

Status checkParameters(const adsmKernelDesc_t& desc) {
  constexpr std::size_t kMost = gmac::accel::kMaxArgumentBytes;
  GMAC_TRY(checkArray(desc, "paramSizes", desc.paramSizes, "paramCount", desc.paramCount, kMost));
  std::size_t left = kMost;
  for (std::size_t i = 0; i < desc.paramCount; ++i) {
    const std::size_t size = desc.paramSizes[i];
    if (size == 0 || size > left) {
      return fail(adsmErrorInvalidValue,
                  "adsmKernelCreate({}): paramSizes[{}] is {}; allowed are 1 to {} bytes, what the "
                  "parameters before it leave of {}",
                  desc.name, i, size, left, kMost);
    }
    left -= size;
  }
  return {};
}

Status checkConstants(const adsmKernelDesc_t& desc) {
  constexpr std::size_t kMost = gmac::accel::kMaxConstantBytes;
  GMAC_TRY(checkArray(desc, "constants", desc.constants, "constantCount", desc.constantCount,
                      kMaxConstants));
  std::map<std::string_view, std::size_t> names;
  for (std::size_t i = 0; i < desc.constantCount; ++i) {
    const adsmConstant_t& constant = desc.constants[i];
    if (constant.name == nullptr || *constant.name == '\0') {
      return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): constants[{}].name is {}",
                  desc.name, i, constant.name == nullptr ? "NULL" : "empty");
    }
    if (constant.size == 0 || constant.size > kMost) {
      return fail(adsmErrorInvalidValue,
                  "adsmKernelCreate({}): constants[{}].size ({}) is {}; allowed are 1 to {} bytes",
                  desc.name, i, constant.name, constant.size, kMost);
    }
    if (const auto [first, isNew] = names.emplace(constant.name, i); !isNew) {
      return fail(adsmErrorInvalidValue,
                  "adsmKernelCreate({}): constants[{}].name is {}, as constants[{}].name is",
                  desc.name, i, constant.name, first->second);
    }
  }
  return {};
}

Status checkDescription(const adsmKernelDesc_t& desc) {
  if (desc.name == nullptr || *desc.name == '\0') {
    return fail(adsmErrorInvalidValue, "adsmKernelCreate: desc->name is {}",
                desc.name == nullptr ? "NULL" : "empty");
  }
  GMAC_TRY(checkParameters(desc));
  GMAC_TRY(checkConstants(desc));
  if (desc.cudaImage != nullptr && desc.cudaName == nullptr) {
    return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): cudaImage without cudaName",
                desc.name);
  }
  if (desc.cudaName != nullptr && *desc.cudaName == '\0') {
    return fail(adsmErrorInvalidValue, "adsmKernelCreate({}): cudaName is empty", desc.name);
  }
  return {};
}

Status checkDevice(const char* function, Runtime& runtime, int device) {
  const auto count = static_cast<int>(gmac::accel::deviceCount(runtime.memory().accelerator()));
  return device >= 0 && device < count
             ? Status()
             : fail(adsmErrorInvalidValue, "{}: device {}; allowed are 0 to {}", function, device,
                    count - 1);
}

// Of the accelerator that is one device, or of one of its several.
gmac::Result<gmac::accel::DeviceDescription> describe(gmac::accel::Accelerator& accelerator,
                                                      std::size_t device) {
  if (accelerator.devices() != nullptr) {
    return accelerator.devices()->describe(device);
  }
  GMAC_TRY(accelerator.usable());
  const auto room = accelerator.memoryRoom();
  if (!room.ok()) {
    return room.status();
  }
  return gmac::accel::DeviceDescription{accelerator.name(), accelerator.deviceName(), *room,
                                        accelerator.busAddress()};
}

// The devices whose memory kernels of this one use where it lies, as bits.
unsigned peersOf(const gmac::accel::Accelerator& accelerator, unsigned device) {
  const gmac::accel::Devices* const devices = accelerator.devices();
  static_assert(gmac::accel::kMaxDevices < std::numeric_limits<unsigned>::digits);
  return devices != nullptr && devices->reachEachOther() && device < devices->together()
             ? ((1U << devices->together()) - 1U) & ~(1U << device)
             : 0;
}

// As much of it as there is room for.
template <std::size_t size>
void copyText(std::string_view text, char (&to)[size]) {
  const std::size_t length = text.copy(to, size - 1);
  std::fill(to + length, to + size, '\0');
}

bool positive(adsmDim_t dim) { return dim.x > 0 && dim.y > 0 && dim.z > 0; }

// `submit(memory, kernel, shape, device)` makes the call, once its arguments are known to be good.
// `device` NULL: none is named.
template <typename Submit>
Status checkedCall(const char* function, adsmKernel_t handle, adsmDim_t grid, adsmDim_t block,
                   size_t sharedBytes, void** args, const int* device, Submit submit) {
  const auto found = findKernel(function, handle);
  if (!found.ok()) {
    return found.status();
  }
  adsmKernel_s& kernel = **found;
  if (!positive(grid) || !positive(block)) {
    return fail(adsmErrorInvalidValue,
                "{}({}): grid is {} x {} x {}, block is {} x {} x {}; every one must be 1 or more",
                function, kernel.name, grid.x, grid.y, grid.z, block.x, block.y, block.z);
  }
  for (size_t i = 0; i < kernel.paramSizes.size(); ++i) {
    if (args == nullptr || args[i] == nullptr) {
      return fail(adsmErrorInvalidValue, "{}({}): args{} is NULL; the kernel has {} parameters",
                  function, kernel.name, args == nullptr ? "" : fmt::format("[{}]", i),
                  kernel.paramSizes.size());
    }
  }
  auto runtime = Runtime::get();
  if (!runtime.ok()) {
    return runtime.status();
  }
  const gmac::accel::LaunchShape shape{grid, block, sharedBytes};
  if (!device) {
    return submit((*runtime)->memory(), &kernel, shape, std::optional<std::size_t>());
  }
  GMAC_TRY(checkDevice(function, **runtime, *device));
  return submit((*runtime)->memory(), &kernel, shape,
                std::optional<std::size_t>(static_cast<std::size_t>(*device)));
}

Status call(const char* function, adsmKernel_t handle, adsmDim_t grid, adsmDim_t block,
            size_t sharedBytes, void** args, std::optional<std::span<const adsmUse_t>> uses,
            const int* device = nullptr) {
  return checkedCall(function, handle, grid, block, sharedBytes, args, device,
                     [&](gmac::CoherentMemory& memory, adsmKernel_t kernel, const auto& shape,
                         auto on) { return memory.call(kernel, shape, args, uses, on); });
}

}  // namespace

extern "C" {

const char* adsmErrorName(adsmError_t error) { return gmac::errorName(error); }
adsmError_t adsmLastError(void) { return gmac::lastErrorCode(); }
const char* adsmLastErrorString(void) { return gmac::lastErrorText(); }

void* adsmAlloc(size_t size) {
  return allocate("adsmAlloc", size, gmac::accel::Placement::kSameAddress);
}

void* adsmAllocStriped(size_t size, int deviceCount, const int* devices) {
  void* address = nullptr;
  (void)guarded("adsmAllocStriped", [&]() -> Status {
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    const gmac::accel::Accelerator& accelerator = (*runtime)->memory().accelerator();
    const auto all = static_cast<int>(gmac::accel::deviceCount(accelerator));
    if (deviceCount < 0 || deviceCount > all || (deviceCount == 0 && devices != nullptr)) {
      return fail(adsmErrorInvalidValue,
                  "adsmAllocStriped: deviceCount is {}; allowed are 1 to {}, or 0 (all devices) "
                  "with devices NULL",
                  deviceCount, all);
    }
    std::vector<std::size_t> list;
    const int count = deviceCount != 0
                          ? deviceCount
                          : static_cast<int>(gmac::accel::devicesTogether(accelerator));
    for (int i = 0; i < count; ++i) {
      const int device = devices == nullptr ? i : devices[i];
      GMAC_TRY(checkDevice("adsmAllocStriped", **runtime, device));
      if (std::find(list.begin(), list.end(), static_cast<std::size_t>(device)) != list.end()) {
        return fail(adsmErrorInvalidValue, "adsmAllocStriped: device {} is listed twice", device);
      }
      list.push_back(static_cast<std::size_t>(device));
    }
    auto allocated = (*runtime)->memory().allocateStriped(size, list);
    if (!allocated.ok()) {
      return allocated.status();
    }
    address = *allocated;
    return {};
  });
  return address;
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
    auto found = runtime->memory().deviceAddress(address);
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
    return runtime->memory().free(address);
  });
}

adsmError_t adsmKernelCreate(const adsmKernelDesc_t* desc, adsmKernel_t* kernel) {
  return guarded("adsmKernelCreate", [&]() -> Status {
    if (desc == nullptr || kernel == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmKernelCreate: {} is NULL",
                  desc == nullptr ? "desc" : "kernel");
    }
    GMAC_TRY(checkDescription(*desc));
    auto made = std::make_shared<adsmKernel_s>();
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
    *kernel = static_cast<adsmKernel_t>(kernels().add(std::move(made)));
    return {};
  });
}

adsmError_t adsmKernelDestroy(adsmKernel_t kernel) {
  return guarded("adsmKernelDestroy", [&]() -> Status {
    if (kernel == nullptr) {
      return {};
    }
    const auto taken = kernels().take(kernel);
    if (!taken) {
      return noKernel("adsmKernelDestroy", kernel);
    }
    Runtime* const runtime = Runtime::started();
    return runtime != nullptr ? runtime->memory().forget(taken->get()) : Status();
  });
}

adsmError_t adsmSetConstant(adsmKernel_t kernel, const char* name, const void* data, size_t size) {
  return guarded("adsmSetConstant", [&]() -> Status {
    if (name == nullptr || data == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmSetConstant: {} is NULL",
                  name == nullptr ? "name" : "data");
    }
    const auto found = findKernel("adsmSetConstant", kernel);
    if (!found.ok()) {
      return found.status();
    }
    adsmKernel_s& known = **found;
    for (const adsmConstant_t& constant : known.constants) {
      if (std::string_view(constant.name) != name) {
        continue;
      }
      if (size == 0 || size > constant.size) {
        return fail(adsmErrorInvalidValue,
                    "adsmSetConstant({}, {}): size is {}; allowed are 1 to {} bytes", known.name,
                    name, size, constant.size);
      }
      auto runtime = Runtime::get();
      if (!runtime.ok()) {
        return runtime.status();
      }
      return (*runtime)->memory().setConstant(&known, constant, data, size);
    }
    return fail(adsmErrorInvalidValue, "adsmSetConstant({}): it has no constant named {}",
                known.name, name);
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
    if (count > kMaxUses) {
      return fail(adsmErrorInvalidValue, "adsmCallUsing: count is {}; allowed are 0 to {}", count,
                  kMaxUses);
    }
    if (count > 0 && uses == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmCallUsing: uses is NULL, count is {}", count);
    }
    return call("adsmCallUsing", kernel, grid, block, sharedBytes, args,
                std::span<const adsmUse_t>(uses, count));
  });
}

adsmError_t adsmBind(const void* object, adsmKernel_t kernel, adsmAccess_t access) {
  return guarded("adsmBind", [&]() -> Status {
    const auto found = findKernel("adsmBind", kernel);
    if (!found.ok()) {
      return found.status();
    }
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    return (*runtime)->memory().bind(object, found->get(), access);
  });
}

adsmError_t adsmCallOn(int device, adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block,
                       size_t sharedBytes, void** args, const adsmUse_t* uses, size_t count) {
  return guarded("adsmCallOn", [&]() -> Status {
    if (count > (uses == nullptr ? 0 : kMaxUses)) {
      return fail(adsmErrorInvalidValue, "adsmCallOn: uses is {}, count is {}; allowed are 0 to {}",
                  static_cast<const void*>(uses), count, uses == nullptr ? 0 : kMaxUses);
    }
    return call(
        "adsmCallOn", kernel, grid, block, sharedBytes, args,
        uses == nullptr ? std::nullopt : std::optional(std::span<const adsmUse_t>(uses, count)),
        &device);
  });
}

adsmError_t adsmCallRanges(int device, adsmKernel_t kernel, adsmDim_t grid, adsmDim_t block,
                           size_t sharedBytes, void** args, const adsmRangeUse_t* uses,
                           size_t count) {
  return guarded("adsmCallRanges", [&]() -> Status {
    if (count > (uses == nullptr ? 0 : kMaxUses)) {
      return fail(adsmErrorInvalidValue,
                  "adsmCallRanges: uses is {}, count is {}; allowed are 0 to {}",
                  static_cast<const void*>(uses), count, uses == nullptr ? 0 : kMaxUses);
    }
    return checkedCall(
        "adsmCallRanges", kernel, grid, block, sharedBytes, args,
        device == ADSM_ANY_DEVICE ? nullptr : &device,
        [&](gmac::CoherentMemory& memory, adsmKernel_t known, const auto& shape, auto on) {
          return memory.callRanges(known, shape, args, std::span<const adsmRangeUse_t>(uses, count),
                                   on);
        });
  });
}

adsmError_t adsmDeviceCount(int* count) {
  return guarded("adsmDeviceCount", [&]() -> Status {
    if (count == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmDeviceCount: count is NULL");
    }
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    *count = static_cast<int>(gmac::accel::deviceCount((*runtime)->memory().accelerator()));
    return {};
  });
}

adsmError_t adsmDeviceInfo(int device, adsmDeviceInfo_t* info) {
  return guarded("adsmDeviceInfo", [&]() -> Status {
    if (info == nullptr) {
      return fail(adsmErrorInvalidValue, "adsmDeviceInfo: info is NULL");
    }
    auto runtime = Runtime::get();
    if (!runtime.ok()) {
      return runtime.status();
    }
    GMAC_TRY(checkDevice("adsmDeviceInfo", **runtime, device));
    const auto described =
        describe((*runtime)->memory().accelerator(), static_cast<std::size_t>(device));
    if (!described.ok()) {
      return described.status();
    }
    copyText(described->kind, info->kind);
    copyText(described->name, info->name);
    info->memoryBytes = described->memory.total;
    info->freeBytes = described->memory.free;
    copyText(described->bus, info->bus);
    info->peers = peersOf((*runtime)->memory().accelerator(), static_cast<unsigned>(device));
    return {};
  });
}

adsmError_t adsmMigrate(const void* address, size_t bytes, int device) {
  return guarded("adsmMigrate", [&]() -> Status {
    Runtime* const runtime = Runtime::started();
    if (runtime == nullptr) {
      return fail(adsmErrorInvalidPointer, "adsmMigrate({}): nothing is allocated yet", address);
    }
    GMAC_TRY(checkDevice("adsmMigrate", *runtime, device));
    return runtime->memory().migrate(address, bytes, static_cast<std::size_t>(device));
  });
}

adsmError_t adsmSync(void) {
  return guarded("adsmSync", []() -> Status {
    Runtime* runtime = Runtime::started();
    return runtime != nullptr ? runtime->memory().sync() : Status();
  });
}

#if !GMAC_HAVE_CUDA
adsmError_t adsmUseCudart(const adsmCudart_t*) {
  return fail(adsmErrorNotSupported, "adsmUseCudart: this library was built without CUDA").code();
}
#endif

}  // extern "C"
