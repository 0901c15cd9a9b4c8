// SPDX-License-Identifier: Apache-2.0
//
// Which image each kernel was loaded from. Images are read when a kernel's uses are asked for, and
// no sooner: a program may load thousands of kernels that it never launches.
#include "interpose/cuda/kernel_code.h"

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gmac/device_code/image.h"
#include "gmac/device_code/ptx.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/program_memory.h"

#define GMAC_CUDA_PLAIN_CALLS(X)                                                              \
  X(cuModuleLoad, cuModuleLoad, 0, INT_MAX, LoadModule)                                       \
  X(cuModuleLoadData, cuModuleLoadData, 0, INT_MAX, LoadModule)                               \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, 0, INT_MAX, LoadModule)                           \
  X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 0, INT_MAX, LoadModule)                     \
  X(cuModuleGetFunction, cuModuleGetFunction, 0, INT_MAX, GetKernel)                          \
  X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12000, INT_MAX, EnumerateKernels) \
  X(cuLibraryLoadData, cuLibraryLoadData, 12000, INT_MAX, LoadLibrary)                        \
  X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, INT_MAX, LoadLibrary)                \
  X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, INT_MAX, GetKernel)                        \
  X(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12000, INT_MAX, EnumerateKernels)   \
  X(cuLibraryGetModule, cuLibraryGetModule, 12000, INT_MAX, GetModule)                        \
  X(cuKernelGetFunction, cuKernelGetFunction, 12000, INT_MAX, GetFunction)

namespace gmac::interpose {
namespace {

GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

GMAC_CUDA_HELPER(cuDeviceGetAttribute, cuDeviceGetAttribute)

// 0: not to be learnt.
int computeCapability() noexcept {
  const auto get = realOf<Call_cuDeviceGetAttribute>();
  const Reentry inside;
  int major = 0;
  int minor = 0;
  const int device = currentDevice();
  if (get == nullptr || device < 0 ||
      get(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) != CUDA_SUCCESS ||
      get(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) != CUDA_SUCCESS) {
    return 0;
  }
  return 10 * major + minor;
}

using Uses = std::shared_ptr<const device_code::KernelUses>;

// Neither the program's loads nor its launches may fail because of what is noted here.
template <typename Note>
void tried(Note note) noexcept {
  try {
    note();
  } catch (const std::bad_alloc&) {
  }
}

class KernelCode {
 public:
  // Never destroyed: kernels are launched as long as the process lives.
  static KernelCode& get() {
    static auto* const code = new KernelCode;
    return *code;
  }

  // `owner`: the module or the library; `image`: NULL where nothing is known of it.
  void loaded(const void* owner, const void* image) {
    ended(owner);
    std::shared_ptr<Image> known;
    if (device_code::mayHavePtx(image)) {
      known = std::make_shared<Image>(device_code::fatBinaryOf(image));
      // The program may change it, or free it.
      if (!isConstantOfProgram(known->bytes) && !known->read(image)) known = nullptr;
    }
    if (known == nullptr) return;
    const std::lock_guard lock(mutex_);
    known->owners.push_back(owner);
    images_[owner] = std::move(known);
  }
  void isModuleOf(const void* module, const void* library) {
    const std::lock_guard lock(mutex_);
    const auto found = images_.find(library);
    const std::shared_ptr<Image> image = found == images_.end() ? nullptr : found->second;
    if (const auto known = images_.find(module); known != images_.end()) {
      if (known->second == image) return;
      forget(*known->second);
    }
    if (image == nullptr) return;
    image->owners.push_back(module);
    images_[module] = image;
  }
  void found(const void* kernel, const void* owner, const char* name) {
    const std::lock_guard lock(mutex_);
    const auto image = images_.find(owner);
    if (image == images_.end()) {
      kernels_.erase(kernel);
      return;
    }
    const auto known = kernels_.find(kernel);
    if (known != kernels_.end() && known->second->image == image->second.get() &&
        known->second->name == name) {
      return;
    }
    kernels_.erase(kernel);
    add(kernel, std::make_shared<Kernel>(image->second, name));
  }
  // A handle that the program has by another way: it may be known, of what has ended.
  void enumerated(const void* kernel, const void* owner) {
    const std::lock_guard lock(mutex_);
    const auto known = kernels_.find(kernel);
    const auto image = images_.find(owner);
    if (known != kernels_.end() &&
        (image == images_.end() || known->second->image != image->second.get())) {
      kernels_.erase(known);
    }
  }
  void isFunctionOf(const void* function, const void* kernel) {
    const std::lock_guard lock(mutex_);
    const auto known = kernels_.find(kernel);
    const std::shared_ptr<Kernel> same = known == kernels_.end() ? nullptr : known->second;
    if (function == kernel) return;
    kernels_.erase(function);
    if (same != nullptr) add(function, same);
  }
  // Reading may take the loader's lock (decompression.h), whose holder may be about to load a
  // module: so it is done without ours.
  Uses usesOf(const void* kernel) {
    std::shared_ptr<Kernel> known;
    std::shared_ptr<Image> image;
    {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock) return nullptr;
      const auto found = kernels_.find(kernel);
      if (found == kernels_.end()) return nullptr;
      known = found->second;
      if (known->read.load(std::memory_order_acquire)) return known->uses;
      image = known->owner.lock();
    }
    return image == nullptr ? nullptr : image->usesOf(*known);
  }
  void ended(const void* owner) {
    const std::lock_guard lock(mutex_);
    const auto found = images_.find(owner);
    if (found == images_.end()) return;
    const std::shared_ptr<Image> image = found->second;
    forget(*image);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    kernels_.clear();
    images_.clear();
  }

 private:
  struct Image;
  struct Kernel {
    Kernel(const std::shared_ptr<Image>& from, const char* called)
        : image(from.get()), owner(from), name(called) {}
    const Image* const image;
    const std::weak_ptr<Image> owner;
    const std::string name;
    std::atomic<bool> read{false};
    Uses uses;  // once `read` is set
  };
  struct Image {
    explicit Image(std::span<const std::byte> fatBinary) : bytes(fatBinary) {}
    // Whether it has PTX, which is kept.
    bool read(const void* image) {
      bytes = {};
      capability = computeCapability();
      if (capability != 0) ptx = device_code::ptxOf(image, capability);
      return ptx.has_value();
    }
    // NULL as well while another thread reads.
    Uses usesOf(Kernel& kernel) {
      const std::unique_lock lock(reading, std::try_to_lock);
      if (!lock || kernel.read.load(std::memory_order_relaxed)) return nullptr;
      // (What held it may have been unloaded.)
      if (isConstantOfProgram(bytes)) (void)read(bytes.data());
      if (ptx && !module) {
        module = device_code::ptx::parseModule(*ptx);
        if (!module) ptx.reset();
      }
      if (module && capability == computeCapability()) {
        auto found = device_code::usesOf(*module, kernel.name);
        if (found) kernel.uses = std::make_shared<const device_code::KernelUses>(std::move(*found));
      }
      kernel.read.store(true, std::memory_order_release);
      return kernel.uses;
    }

    std::mutex reading;
    std::span<const std::byte> bytes;  // empty: it has been read
    int capability = 0;                // of the device that it was read for
    std::optional<std::string> ptx;
    std::optional<device_code::ptx::Module> module;  // views the text
    // Under the lock of all: under which handles it is known, and its kernels.
    std::vector<const void*> owners;
    std::vector<const void*> kernels;
  };

  void add(const void* handle, std::shared_ptr<Kernel> kernel) {
    if (const std::shared_ptr<Image> image = kernel->owner.lock(); image != nullptr) {
      image->kernels.push_back(handle);
      kernels_[handle] = std::move(kernel);
    }
  }
  // All that is known by way of it: a library ends with its module.
  void forget(Image& image) {
    for (const void* const handle : image.kernels) {
      const auto known = kernels_.find(handle);
      if (known != kernels_.end() && known->second->image == &image) kernels_.erase(known);
    }
    const std::vector<const void*> owners = std::move(image.owners);
    for (const void* const owner : owners) {
      const auto known = images_.find(owner);
      if (known != images_.end() && known->second.get() == &image) images_.erase(known);
    }
  }

  std::mutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<Image>> images_;    // by module or library
  std::unordered_map<const void*, std::shared_ptr<Kernel>> kernels_;  // by function or kernel
};

// What tells the driver to compile an image for something else than the device.
bool isForDevice(unsigned count, const CUjit_option* options) noexcept {
  return options == nullptr || std::none_of(options, options + count, [](CUjit_option option) {
           return option == CU_JIT_TARGET || option == CU_JIT_TARGET_FROM_CUCONTEXT;
         });
}

struct LoadModule {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUmodule* module, const char* file) {
    const CUresult result = direct(real, module, file);
    if (result == CUDA_SUCCESS) tried([&] { KernelCode::get().loaded(*module, nullptr); });
    return result;
  }
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUmodule* module, const void* image) {
    const CUresult result = direct(real, module, image);
    if (result == CUDA_SUCCESS) tried([&] { KernelCode::get().loaded(*module, image); });
    return result;
  }
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUmodule* module, const void* image, unsigned count,
                      CUjit_option* options, void** values) {
    const CUresult result = direct(real, module, image, count, options, values);
    if (result == CUDA_SUCCESS) {
      const void* const known = isForDevice(count, options) ? image : nullptr;
      tried([&] { KernelCode::get().loaded(*module, known); });
    }
    return result;
  }
};

struct LoadLibrary {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Options>
  static CUresult run(Real real, CUlibrary* library, const char* file, Options... options) {
    const CUresult result = direct(real, library, file, options...);
    if (result == CUDA_SUCCESS) tried([&] { KernelCode::get().loaded(*library, nullptr); });
    return result;
  }
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUlibrary* library, const void* image, CUjit_option* options,
                      void** values, unsigned count, CUlibraryOption* libraryOptions,
                      void** libraryValues, unsigned libraryCount) {
    const CUresult result = direct(real, library, image, options, values, count, libraryOptions,
                                   libraryValues, libraryCount);
    if (result == CUDA_SUCCESS) {
      const void* const known = isForDevice(count, options) ? image : nullptr;
      tried([&] { KernelCode::get().loaded(*library, known); });
    }
    return result;
  }
};

struct GetKernel {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename Kernel, typename Owner>
  static CUresult run(Real real, Kernel* kernel, Owner owner, const char* name) {
    const CUresult result = direct(real, kernel, owner, name);
    if (result == CUDA_SUCCESS) tried([&] { KernelCode::get().found(*kernel, owner, name); });
    return result;
  }
};

// (Their names would have to be asked for.)
struct EnumerateKernels {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename Kernel, typename Owner>
  static CUresult run(Real real, Kernel* kernels, unsigned count, Owner owner) {
    const CUresult result = direct(real, kernels, count, owner);
    if (result != CUDA_SUCCESS || kernels == nullptr) return result;
    for (unsigned i = 0; i < count && kernels[i] != nullptr; ++i) {
      KernelCode::get().enumerated(kernels[i], owner);
    }
    return result;
  }
};

struct GetModule {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUmodule* module, CUlibrary library) {
    const CUresult result = direct(real, module, library);
    if (result == CUDA_SUCCESS) tried([&] { KernelCode::get().isModuleOf(*module, library); });
    return result;
  }
};

struct GetFunction {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUfunction* function, CUkernel kernel) {
    const CUresult result = direct(real, function, kernel);
    if (result == CUDA_SUCCESS) tried([&] { KernelCode::get().isFunctionOf(*function, kernel); });
    return result;
  }
};

}  // namespace

Uses usesOf(CUfunction kernel) noexcept {
  Uses uses;
  tried([&] { uses = KernelCode::get().usesOf(kernel); });
  return uses;
}

void forgetCode(CUmodule module) noexcept {
  if (!coherence::memory().inChildOfFork()) KernelCode::get().ended(module);
}

void forgetCode(CUlibrary library) noexcept {
  if (!coherence::memory().inChildOfFork()) KernelCode::get().ended(library);
}

void forgetAllCode() noexcept {
  if (!coherence::memory().inChildOfFork()) KernelCode::get().clear();
}

GMAC_CUDA_TABLE(cudaKernelCode, GMAC_CUDA_NONE, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
