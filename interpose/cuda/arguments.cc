// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/arguments.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "gmac/api/adsm.h"
#include "gmac/base/round_up.h"
#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "interpose/cuda/call.h"

namespace gmac::interpose {
namespace {

GMAC_CUDA_HELPER(cuFuncGetParamInfo, cuFuncGetParamInfo)
GMAC_CUDA_HELPER(cuKernelGetParamInfo, cuKernelGetParamInfo)

// The largest size of all parameters of a kernel together.
constexpr std::size_t kMostBytes = 32764;
// The largest alignment of a parameter.
constexpr std::size_t kAlignment = alignof(std::max_align_t);

constexpr std::size_t padded(std::size_t bytes) { return roundUp(bytes, kAlignment); }

bool isShared(const void* address, std::size_t bytes) {
  return bytes != 0 && coherence::mayBeShared(address, bytes) &&
         coherence::touchesShared(address, bytes);
}

// Caches the parameter sizes of kernels that were launched. Asking the driver takes it as long as
// the launch itself, because the query past the last parameter is an error to it. A handle means
// the same kernel until something is unloaded. Thread-safe.
class KnownKernels {
 public:
  static constexpr std::size_t kMostParameters = 30;
  struct Sizes {
    std::uint32_t count = 0;
    std::array<std::uint16_t, kMostParameters> bytes{};  // of each
  };
  static_assert(kMostBytes <= UINT16_MAX);

  // Never destroyed: kernels are launched as long as the process lives.
  static KnownKernels& get() {
    static auto* const known = new KnownKernels;
    return *known;
  }

  // Neither of these waits for the lock: in a child of fork its owner may not exist. The driver can
  // be asked instead.
  bool find(CUfunction function, Sizes* sizes) const {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    const auto found = sizes_.find(function);
    if (found == sizes_.end()) return false;
    *sizes = found->second;
    return true;
  }
  void add(CUfunction function, const Sizes& sizes) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) sizes_.insert_or_assign(function, sizes);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    sizes_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<CUfunction, Sizes> sizes_;
};

// The parameters of a kernel.
class Parameters {
 public:
  explicit Parameters(CUfunction function) : function_(function) {
    // A driver that lacks these functions is asked once.
    static const auto ofFunction = realOf<Call_cuFuncGetParamInfo>();
    static const auto ofKernel = realOf<Call_cuKernelGetParamInfo>();
    if (ofFunction == nullptr || ofKernel == nullptr) return;
    known_ = KnownKernels::get().find(function, &sizes_);
    if (known_) return;
    const Reentry inside;
    std::size_t offset = 0;
    const CUresult asFunction = ofFunction(function, 0, &offset, &firstBytes_);
    if (asFunction == CUDA_SUCCESS) {
      ask_ = [](CUfunction one, std::size_t index, std::size_t* at, std::size_t* bytes) {
        return ofFunction(one, index, at, bytes);
      };
      remember();
      return;
    }
    const CUresult asKernel =
        ofKernel(reinterpret_cast<CUkernel>(function), 0, &offset, &firstBytes_);
    if (asKernel == CUDA_SUCCESS) {
      ask_ = [](CUfunction one, std::size_t index, std::size_t* at, std::size_t* bytes) {
        return ofKernel(reinterpret_cast<CUkernel>(one), index, at, bytes);
      };
    }
    // This tells an index that is too large: the kernel has no parameter 0.
    none_ = asFunction == CUDA_ERROR_INVALID_VALUE || asKernel == CUDA_ERROR_INVALID_VALUE;
    if (ask_ != nullptr || none_) remember();
  }

  // The bytes that the driver reads of argument `index`; 0: none, or unknown.
  std::size_t bytesOf(std::size_t index, void* const* params) const {
    if (known_) return index < sizes_.count ? sizes_.bytes[index] : 0;
    if (ask_ != nullptr) return asked(index);
    if (none_) return 0;
    // The length of the array is unknown, but an element that is shared must be an argument.
    if (index >= kMostBytes || !isShared(params[index], 1)) return 0;
    bool shared = false;
    const std::size_t bytes = coherence::memory().sharedPrefix(params[index], kMostBytes, &shared);
    return shared ? bytes : 0;
  }

 private:
  std::size_t asked(std::size_t index) const {
    if (ask_ == nullptr || index == 0) return firstBytes_;
    const Reentry inside;
    std::size_t offset = 0;
    std::size_t bytes = 0;
    return ask_(function_, index, &offset, &bytes) == CUDA_SUCCESS ? bytes : 0;
  }
  // The cache has no room for a kernel with more parameters: the driver is asked at every launch.
  void remember() {
    for (std::uint32_t index = 0;; ++index) {
      const std::size_t bytes = none_ ? 0 : asked(index);
      if (bytes == 0) {
        sizes_.count = index;
        break;
      }
      if (index == KnownKernels::kMostParameters) return;
      sizes_.bytes[index] = static_cast<std::uint16_t>(bytes);
    }
    KnownKernels::get().add(function_, sizes_);
    known_ = true;
  }

  const CUfunction function_;
  bool known_ = false;
  KnownKernels::Sizes sizes_;
  CUresult (*ask_)(CUfunction, std::size_t, std::size_t*, std::size_t*) = nullptr;
  std::size_t firstBytes_ = 0;
  bool none_ = false;
};

CUresult failure() { return resultOf(Status(adsmLastError())); }

}  // namespace

void forgetKernels() noexcept { KnownKernels::get().clear(); }

LaunchArguments::LaunchArguments(CUfunction function, void** params, void** extra)
    : function_(function), params_(params), extra_(extra) {
  if (function == nullptr || !coherence::anythingShared()) return;
  if (params_ != nullptr) {
    copyParams(function);
  } else if (extra_ != nullptr) {
    copyExtra();
  }
}

void LaunchArguments::name() const {
  // Of longer arguments only the beginning.
  constexpr std::size_t kMostWords = 64;
  if (function_ == nullptr || params_ == nullptr || !coherence::deviceMemory().placesMemory())
    return;
  // Until another context works, all is where it is needed.
  if (!coherence::work().knowsOtherContexts() && !inForeignContext()) return;
  const int device = currentDevice();
  const Parameters parameters(function_);
  for (std::size_t i = 0;; ++i) {
    const std::size_t bytes = parameters.bytesOf(i, params_);
    if (bytes == 0) return;
    for (std::size_t word = 0; word < std::min(bytes / sizeof(void*), kMostWords); ++word) {
      CUdeviceptr value = 0;
      std::memcpy(&value, static_cast<const std::byte*>(params_[i]) + word * sizeof value,
                  sizeof value);
      const std::uintptr_t address = cpuAddressOf(value);
      if (!gmac::interpose::shared(address, 1)) continue;
      // Where the object stays, the kernel reaches it all the same.
      (void)coherence::deviceMemory().namedBy(reinterpret_cast<const void*>(address), device);
    }
  }
}

void LaunchArguments::copyParams(CUfunction function) {
  const Parameters parameters(function);
  bool any = false;
  std::size_t count = 0;
  std::size_t total = 0;
  for (;; ++count) {
    const std::size_t bytes = parameters.bytesOf(count, params_);
    if (bytes == 0) break;
    if (!isShared(params_[count], bytes)) continue;
    any = true;
    total += padded(bytes);
  }
  if (!any && !isShared(params_, count * sizeof(void*))) return;
  const std::size_t arrayBytes = padded(count * sizeof(void*));
  own_.emplace(arrayBytes + total);
  if (own_->data() == nullptr) {
    result_ = CUDA_ERROR_OUT_OF_MEMORY;
    return;
  }
  auto* const array = reinterpret_cast<void**>(own_->data());
  std::byte* to = own_->data() + arrayBytes;
  std::byte* const end = to + total;
  for (std::size_t i = 0; i < count; ++i) {
    array[i] = params_[i];
    const std::size_t bytes = parameters.bytesOf(i, params_);
    // (Another thread may have freed or made an object meanwhile.)
    if (!isShared(array[i], bytes) || padded(bytes) > static_cast<std::size_t>(end - to)) continue;
    if (!copyFromShared(to, array[i], bytes)) {
      result_ = failure();
      return;
    }
    array[i] = to;
    to += padded(bytes);
  }
  params_ = array;
}

void LaunchArguments::copyExtra() {
  // A list of at most two keys with their values.
  constexpr std::size_t kMostEntries = 5;
  const std::byte* buffer = nullptr;
  const std::size_t* size = nullptr;
  std::size_t entries = 0;
  for (; extra_[entries] != CU_LAUNCH_PARAM_END; entries += 2) {
    if (entries + 2 >= kMostEntries + 1) return;  // the driver reports the error
    if (extra_[entries] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = static_cast<const std::byte*>(extra_[entries + 1]);
    } else if (extra_[entries] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const std::size_t*>(extra_[entries + 1]);
    } else {
      return;
    }
  }
  if (buffer == nullptr || size == nullptr) return;
  const std::size_t bytes = *size;
  if (bytes > kMostBytes || (!isShared(extra_, (entries + 1) * sizeof(void*)) &&
                             !isShared(size, sizeof *size) && !isShared(buffer, bytes))) {
    return;
  }
  struct List {
    void* entries[kMostEntries];
    std::size_t size;
  };
  constexpr std::size_t kListBytes = padded(sizeof(List));
  own_.emplace(kListBytes + bytes);
  if (own_->data() == nullptr) {
    result_ = CUDA_ERROR_OUT_OF_MEMORY;
    return;
  }
  std::byte* const copy = own_->data() + kListBytes;
  if (!copyFromShared(copy, buffer, bytes)) {
    result_ = failure();
    return;
  }
  auto* const list = new (own_->data()) List{};
  list->size = bytes;
  list->entries[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
  list->entries[1] = copy;
  list->entries[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
  list->entries[3] = &list->size;
  list->entries[4] = CU_LAUNCH_PARAM_END;
  extra_ = list->entries;
}

LaunchConfiguration::LaunchConfiguration(const CUlaunchConfig* given) : given_(given) {
  if (given == nullptr || !coherence::anythingShared()) return;
  const std::size_t bytes = given->attrs != nullptr ? given->numAttrs * sizeof *given->attrs : 0;
  const bool attributesAreShared = isShared(given->attrs, bytes);
  if (!attributesAreShared && !isShared(given, sizeof *given)) return;
  config_ = *given;
  given_ = &config_;
  if (!attributesAreShared) return;
  attributes_.emplace(bytes);
  if (attributes_->data() == nullptr) {
    result_ = CUDA_ERROR_OUT_OF_MEMORY;
  } else if (!copyFromShared(attributes_->data(), config_.attrs, bytes)) {
    result_ = failure();
  } else {
    config_.attrs = reinterpret_cast<CUlaunchAttribute*>(attributes_->data());
  }
}

}  // namespace gmac::interpose
