// SPDX-License-Identifier: Apache-2.0
//
// Queries about memory. Managed memory answers as CUDA's own does; an object of adsmAlloc() is
// device memory that also has an address on the CPU.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "gmac/coherence/device_memory_port.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/managed_objects.h"

#define GMAC_CUDA_PLAIN_CALLS(X)                                                  \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 0, INT_MAX, PointerAttribute)   \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 0, INT_MAX, PointerAttribute) \
  X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, INT_MAX, AddressRange)   \
  X(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 0, INT_MAX, RangeAttribute)   \
  X(cuMemRangeGetAttributes, cuMemRangeGetAttributes, 0, INT_MAX, RangeAttribute) \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 0, INT_MAX, DeviceAttribute)

namespace gmac::interpose {
namespace {

GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

struct PointerAttribute {
  // One attribute.
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, void* data, CUpointer_attribute attribute, CUdeviceptr address) {
    const CUresult result = direct(real, data, attribute, address);
    if (data == nullptr) return result;
    return Memory(address).correct(data, attribute) ? CUDA_SUCCESS : result;
  }

  // Several.
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, unsigned count, CUpointer_attribute* attributes, void** data,
                      CUdeviceptr address) {
    const CUresult result = direct(real, count, attributes, data, address);
    if (result != CUDA_SUCCESS || attributes == nullptr || data == nullptr) return result;
    const Memory memory(address);
    for (unsigned i = 0; i < count; ++i) {
      if (data[i] != nullptr) (void)memory.correct(data[i], attributes[i]);
    }
    return result;
  }

 private:
  // What lies at an address. Launches go on repeating while it is looked up.
  class Memory {
   public:
    explicit Memory(CUdeviceptr address)
        : managed_(ManagedObjects::get().find(address)),
          cpu_(managed_ ? address : cpuAddressOf(address)),
          shared_(managed_ || gmac::interpose::shared(cpu_, 1)) {}

    // Replaces the driver's answer by ours; false where the driver's is right. Only the lowest byte
    // of a flag is written: the driver has written the rest, as wide as its flags are.
    bool correct(void* data, CUpointer_attribute attribute) const {
      if (!shared_) return false;
      switch (attribute) {
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
          put(data, cpu_);
          return true;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
          put(data, onDevice(cpu_));
          return true;
        // (Wherever its pages lie now.)
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
          put(data, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
          return true;
        default:
          break;
      }
      if (!managed_) return false;
      switch (attribute) {
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
          put(data, std::uint8_t{1});
          return true;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
          put(data, std::uint8_t{0});
          return true;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
          put(data, static_cast<CUdeviceptr>(managed_->address));
          return true;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
          put(data, managed_->bytes);
          return true;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
          put(data, static_cast<unsigned long long>(managed_->id));
          return true;
        default:
          return false;
      }
    }

   private:
    template <typename Value>
    static void put(void* data, Value value) {
      std::memcpy(data, &value, sizeof value);
    }

    const std::optional<ManagedObject> managed_;
    const std::uintptr_t cpu_;
    const bool shared_;
  };
};

struct AddressRange {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
    const std::optional<ManagedObject> object = ManagedObjects::get().find(address);
    if (!object) return direct(real, base, bytes, address);
    if (base != nullptr) *base = object->address;
    if (bytes != nullptr) *bytes = object->bytes;
    return CUDA_SUCCESS;
  }
};

struct RangeAttribute {
  // One attribute.
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, void* data, std::size_t dataBytes, CUmem_range_attribute attribute,
                      CUdeviceptr address, std::size_t bytes) {
    if (!ManagedObjects::get().find(address))
      return direct(real, data, dataBytes, attribute, address, bytes);
    if (!ManagedObjects::get().covers(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return answer(data, dataBytes, attribute, ManagedObjects::get().hints(address, bytes));
  }

  // Several.
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, void** data, std::size_t* dataBytes,
                      CUmem_range_attribute* attributes, std::size_t count, CUdeviceptr address,
                      std::size_t bytes) {
    if (!ManagedObjects::get().find(address))
      return direct(real, data, dataBytes, attributes, count, address, bytes);
    if (data == nullptr || dataBytes == nullptr || attributes == nullptr || count == 0 ||
        !ManagedObjects::get().covers(address, bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::vector<Hints> hints = ManagedObjects::get().hints(address, bytes);
    for (std::size_t i = 0; i < count; ++i) {
      if (const CUresult result = answer(data[i], dataBytes[i], attributes[i], hints);
          result != CUDA_SUCCESS) {
        return result;
      }
    }
    return CUDA_SUCCESS;
  }

 private:
  // The location that all parts share, or none.
  static CUmemLocation common(std::span<const Hints> parts, CUmemLocation Hints::*location) {
    const CUmemLocation first = parts.front().*location;
    const bool same = std::all_of(parts.begin(), parts.end(), [&](const Hints& part) {
      return (part.*location).type == first.type && (part.*location).id == first.id;
    });
    return same ? first : CUmemLocation{CU_MEM_LOCATION_TYPE_INVALID, 0};
  }

  // In the form of the attributes that are older than location types.
  static int deviceOf(CUmemLocation location) {
    switch (location.type) {
      case CU_MEM_LOCATION_TYPE_INVALID:
        return CU_DEVICE_INVALID;
      case CU_MEM_LOCATION_TYPE_DEVICE:
        return location.id;
      default:
        return CU_DEVICE_CPU;
    }
  }

  // The devices that every part names.
  static std::vector<int> accessors(std::span<const Hints> parts) {
    std::vector<int> all = parts.front().accessedBy;
    std::erase_if(all, [&](int device) {
      return !std::all_of(parts.begin(), parts.end(), [&](const Hints& part) {
        return std::binary_search(part.accessedBy.begin(), part.accessedBy.end(), device);
      });
    });
    return all;
  }

  static CUresult answer(void* data, std::size_t dataBytes, CUmem_range_attribute attribute,
                         std::span<const Hints> parts) {
    auto* const words = static_cast<int*>(data);
    const bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    if (data == nullptr || parts.empty() ||
        (list ? dataBytes == 0 || dataBytes % sizeof(int) != 0 : dataBytes != sizeof(int))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attribute) {
      case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *words = std::all_of(parts.begin(), parts.end(),
                             [](const Hints& part) { return part.readMostly; })
                     ? 1
                     : 0;
        return CUDA_SUCCESS;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *words = deviceOf(common(parts, &Hints::preferred));
        return CUDA_SUCCESS;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *words = common(parts, &Hints::preferred).type;
        return CUDA_SUCCESS;
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *words = common(parts, &Hints::preferred).id;
        return CUDA_SUCCESS;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *words = deviceOf(common(parts, &Hints::prefetched));
        return CUDA_SUCCESS;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *words = common(parts, &Hints::prefetched).type;
        return CUDA_SUCCESS;
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *words = common(parts, &Hints::prefetched).id;
        return CUDA_SUCCESS;
      case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
        const std::vector<int> devices = accessors(parts);
        const std::size_t room = dataBytes / sizeof(int);
        for (std::size_t i = 0; i < room; ++i)
          words[i] = i < devices.size() ? devices[i] : CU_DEVICE_INVALID;
        return CUDA_SUCCESS;
      }
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
};

// Where the device has no managed memory, it has the runtime's.
struct DeviceAttribute {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, int* value, CUdevice_attribute attribute, CUdevice device) {
    const CUresult result = direct(real, value, attribute, device);
    if (result == CUDA_SUCCESS && attribute == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY &&
        coherence::deviceMemory().managedMode()) {
      *value = 1;
    }
    return result;
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaManagedQueries, GMAC_CUDA_NONE, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
