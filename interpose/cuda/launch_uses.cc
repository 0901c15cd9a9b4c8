// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/launch_uses.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "interpose/cuda/call.h"
#include "interpose/cuda/kernel_code.h"

namespace gmac::interpose {
namespace {

GMAC_CUDA_HELPER(cuPointerGetAttribute, cuPointerGetAttribute)

// Whether an address lies in an object, or in memory that the driver knows. (What objects leave of
// their pages is neither: the driver knows those pages.)
bool isKnown(CUdeviceptr address) noexcept {
  const std::uintptr_t cpu = cpuAddressOf(address);
  if (gmac::interpose::shared(cpu, 1)) return true;
  if (coherence::mayBeShared(reinterpret_cast<const void*>(cpu), 1)) return false;
  const auto get = realOf<Call_cuPointerGetAttribute>();
  const Reentry inside;
  unsigned type = 0;
  return get != nullptr && get(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS;
}

// The bytes of a kernel's parameters, in either form in which a launch takes them.
class ArgumentBytes {
 public:
  ArgumentBytes(const LaunchArguments& arguments, const device_code::KernelUses& kernel)
      : params_(arguments.params()), kernel_(kernel) {
    if (params_ != nullptr || arguments.extra() == nullptr) return;
    void* const* const extra = arguments.extra();
    // (The driver has refused longer lists.)
    for (std::size_t i = 0; i < 4 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer_ = static_cast<const std::byte*>(extra[i + 1]);
      } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        bufferBytes_ = *static_cast<const std::size_t*>(extra[i + 1]);
      }
    }
  }
  bool word(std::uint32_t offset, CUdeviceptr* value) const {
    const std::byte* const at = find(offset);
    if (at != nullptr) std::memcpy(value, at, sizeof *value);
    return at != nullptr;
  }

 private:
  const std::byte* find(std::uint32_t offset) const {
    if (buffer_ != nullptr) {
      return offset + sizeof(CUdeviceptr) <= bufferBytes_ ? buffer_ + offset : nullptr;
    }
    for (std::size_t i = 0; params_ != nullptr && i < kernel_.parameters.size(); ++i) {
      const device_code::ParameterPlace& place = kernel_.parameters[i];
      if (offset >= place.offset && offset + sizeof(CUdeviceptr) <= place.offset + place.bytes) {
        return static_cast<const std::byte*>(params_[i]) + (offset - place.offset);
      }
    }
    return nullptr;
  }

  void* const* const params_;
  const device_code::KernelUses& kernel_;
  const std::byte* buffer_ = nullptr;
  std::size_t bufferBytes_ = 0;
};

}  // namespace

LaunchUses::LaunchUses(const LaunchArguments& arguments) noexcept {
  const auto kernel = usesOf(arguments.function());
  known_ = kernel != nullptr && add(arguments, *kernel);
}

bool LaunchUses::add(const LaunchArguments& arguments, const device_code::KernelUses& kernel) {
  const ArgumentBytes bytes(arguments, kernel);
  ranges_[count_++] = {nullptr, 0, true, false, true};
  // Only what the driver or the runtime knows can be the base of an address.
  for (const device_code::AddressBase& base : kernel.bases) {
    bool known = false;
    bool null = true;
    for (const std::uint32_t offset : base.offsets) {
      CUdeviceptr value = 0;
      if (!bytes.word(offset, &value)) return false;
      null = null && value == 0;
      known = known || (value != 0 && isKnown(value));
    }
    if (!known && !(null && base.nullable)) return false;
  }
  for (const device_code::PointerUse& use : kernel.pointers) {
    CUdeviceptr value = 0;
    if (!bytes.word(use.offset, &value)) return false;
    const std::uintptr_t address = cpuAddressOf(value);
    if (address < kBesideArgument) continue;
    const std::uintptr_t first = address - kBesideArgument;
    if (!gmac::interpose::shared(first, 2 * kBesideArgument)) continue;
    if (count_ == ranges_.size()) return false;
    ranges_[count_++] = {reinterpret_cast<const void*>(first), 2 * kBesideArgument, use.writes,
                         true};
  }
  return true;
}

}  // namespace gmac::interpose
