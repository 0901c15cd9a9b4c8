// SPDX-License-Identifier: Apache-2.0
//
// Hints for managed memory: prefetching, advice, attachment to streams. A prefetch is an early
// flush or fetch. Advice is stored for queries. A hint that would hide a kernel's write if the
// program did not keep to it takes effect only where it is a promise
// (coherence/device_memory_port.h).
#include <cuda.h>
#include <sched.h>

#include <algorithm>
#include <optional>

#include "gmac/api/adsm.h"
#include "gmac/coherence/device_memory_port.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/managed_objects.h"

// cuda.h shows the newest signatures under these names; the symbols are the older ones.
#undef cuMemPrefetchAsync
#undef cuMemAdvise
extern "C" {
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream);
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);
CUresult cuMemAdvise_v2(CUdeviceptr, size_t, CUmem_advise, CUmemLocation);
}

#define GMAC_CUDA_STREAM_CALLS(X)                                                                \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync, _ptsz, 8000, 12020, Prefetch)                        \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, _ptsz, 12020, INT_MAX, Prefetch)                  \
  X(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, _ptsz, 13000, INT_MAX, PrefetchBatch)      \
  X(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, _ptsz, 13000, INT_MAX, DiscardBatch)         \
  X(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, _ptsz, 13000, INT_MAX, \
    PrefetchBatch)                                                                               \
  X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, _ptsz, 0, INT_MAX, Attach)

#define GMAC_CUDA_PLAIN_CALLS(X)                   \
  X(cuMemAdvise, cuMemAdvise, 8000, 12020, Advise) \
  X(cuMemAdvise, cuMemAdvise_v2, 12020, INT_MAX, Advise)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

GMAC_CUDA_HELPER(cuDeviceGetCount, cuDeviceGetCount)

bool isDevice(int ordinal) noexcept {
  const auto getCount = realOf<Call_cuDeviceGetCount>();
  int count = 0;
  return getCount != nullptr && getCount(&count) == CUDA_SUCCESS && ordinal >= 0 && ordinal < count;
}

CUmemLocation locationOf(CUdevice device) noexcept {
  return device == CU_DEVICE_CPU ? CUmemLocation{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

// A location that memory can have, with the caller's node if it names that; or the error.
CUresult resolve(CUmemLocation* location) noexcept {
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return isDevice(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
      location->id = 0;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: {
      unsigned node = 0;
      (void)getcpu(nullptr, &node);
      *location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, static_cast<int>(node)};
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Whether this library answers for a range: it begins in an object of managed memory. The driver
// answers for all others.
bool isOurs(CUdeviceptr address) { return ManagedObjects::get().find(address).has_value(); }

CUresult prefetch(NativeStream stream, CUdeviceptr address, std::size_t bytes,
                  CUmemLocation location) {
  ManagedObjects& objects = ManagedObjects::get();
  if (!objects.covers(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = resolve(&location); result != CUDA_SUCCESS) return result;
  if (capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  objects.change(address, bytes, [&](Hints& hints) { hints.prefetched = location; });
  const auto* const first = reinterpret_cast<const void*>(address);
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return resultOf(coherence::memory().startFetch(first, bytes));
  const Status placed =
      coherence::deviceMemory().prefer(first, bytes, location.id, /*forGood=*/false);
  return resultOf(placed.ok() ? coherence::memory().startFlush(first, bytes) : placed);
}

struct Prefetch {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdeviceptr address, std::size_t bytes, CUdevice device,
                      CUstream stream) {
    if (!isOurs(address)) return direct(real, address, bytes, device, stream);
    return prefetch(nativeStream(Zero, stream), address, bytes, locationOf(device));
  }

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdeviceptr address, std::size_t bytes, CUmemLocation location,
                      unsigned flags, CUstream stream) {
    if (!isOurs(address)) return direct(real, address, bytes, location, flags, stream);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return prefetch(nativeStream(Zero, stream), address, bytes, location);
  }
};

// Other ranges go to the driver one by one.
struct PrefetchBatch {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdeviceptr* addresses, std::size_t* sizes, std::size_t count,
                      CUmemLocation* locations, std::size_t* indices, std::size_t locationCount,
                      unsigned long long flags, CUstream stream) {
    const bool any = addresses != nullptr &&
                     std::any_of(addresses, addresses + count, [](auto a) { return isOurs(a); });
    if (!any) {
      return direct(real, addresses, sizes, count, locations, indices, locationCount, flags,
                    stream);
    }
    if (sizes == nullptr || locations == nullptr || indices == nullptr || flags != 0 ||
        stream == nullptr || locationCount == 0 || locationCount > count || indices[0] != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      while (at + 1 < locationCount && indices[at + 1] <= i) ++at;
      CUmemLocation location = locations[at];
      CUdeviceptr address = addresses[i];
      std::size_t bytes = sizes[i];
      std::size_t first = 0;
      const CUresult result = isOurs(address)
                                  ? prefetch(nativeStream(Zero, stream), address, bytes, location)
                                  : direct(real, &address, &bytes, std::size_t{1}, &location,
                                           &first, std::size_t{1}, flags, stream);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }
};

// Bytes that no one needs may stay as they are.
struct DiscardBatch {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUdeviceptr* addresses, std::size_t* sizes, std::size_t count,
                      unsigned long long flags, CUstream stream) {
    const bool any = addresses != nullptr && sizes != nullptr &&
                     std::any_of(addresses, addresses + count, [](auto a) { return isOurs(a); });
    if (!any) return direct(real, addresses, sizes, count, flags, stream);
    if (flags != 0 || stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      CUdeviceptr address = addresses[i];
      std::size_t bytes = sizes[i];
      if (isOurs(address)) {
        if (!ManagedObjects::get().covers(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
      } else if (const CUresult result =
                     direct(real, &address, &bytes, std::size_t{1}, flags, stream);
                 result != CUDA_SUCCESS) {
        return result;
      }
    }
    return CUDA_SUCCESS;
  }
};

struct Advise {
  template <ZeroStream Zero, typename Real, typename Location>
  static CUresult run(Real real, CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                      Location given) {
    if (!isOurs(address)) return direct(real, address, bytes, advice, given);
    ManagedObjects& objects = ManagedObjects::get();
    if (!objects.covers(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    CUmemLocation location{};
    if constexpr (std::is_same_v<Location, CUmemLocation>) {
      location = given;
    } else {
      location = locationOf(given);
    }
    const bool needsLocation = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                               advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                               advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (needsLocation) {
      // A device that does not exist is an invalid value in advice, as the driver has it.
      if (resolve(&location) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    }
    const int accessor = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        objects.change(address, bytes, [&](Hints& hints) {
          hints.readMostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        });
        noteReadMostly(objects, address, bytes);
        return CUDA_SUCCESS;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        objects.change(address, bytes, [&](Hints& hints) { hints.preferred = location; });
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
          return resultOf(coherence::deviceMemory().prefer(reinterpret_cast<const void*>(address),
                                                           bytes, location.id, /*forGood=*/true));
        }
        return CUDA_SUCCESS;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        objects.change(address, bytes, [](Hints& hints) {
          hints.preferred = {CU_MEM_LOCATION_TYPE_INVALID, 0};
        });
        return CUDA_SUCCESS;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        objects.change(address, bytes, [&](Hints& hints) {
          auto& by = hints.accessedBy;
          const auto place = std::lower_bound(by.begin(), by.end(), accessor);
          if (place == by.end() || *place != accessor) by.insert(place, accessor);
        });
        return CUDA_SUCCESS;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        objects.change(address, bytes,
                       [&](Hints& hints) { std::erase(hints.accessedBy, accessor); });
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }

 private:
  // Only for objects that are read-mostly throughout.
  static void noteReadMostly(ManagedObjects& objects, CUdeviceptr address, std::size_t bytes) {
    for (const ManagedObject& object : objects.touched(address, bytes)) {
      coherence::deviceMemory().setReadMostly(reinterpret_cast<const void*>(object.address),
                                              objects.readMostly(object));
    }
  }
};

struct Attach {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream, CUdeviceptr address, std::size_t bytes,
                      unsigned flags) {
    const std::optional<ManagedObject> object = ManagedObjects::get().find(address);
    if (!object) return direct(real, stream, address, bytes, flags);
    if (object->address != address || (bytes != 0 && bytes != object->bytes))
      return CUDA_ERROR_INVALID_VALUE;
    coherence::Users users{};
    switch (flags) {
      case CU_MEM_ATTACH_GLOBAL:
        users = coherence::Users::kEverybody;
        break;
      case CU_MEM_ATTACH_HOST:
        users = coherence::Users::kCpu;
        break;
      case CU_MEM_ATTACH_SINGLE:
        // The NULL stream is not a stream of its own.
        if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
          return CUDA_ERROR_INVALID_VALUE;
        users = coherence::Users::kOneStream;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (capturing(nativeStream(Zero, stream))) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!attachmentIsPromise()) return CUDA_SUCCESS;
    const Result<NativeStream> number = known(nativeStream(Zero, stream));
    if (!number.ok()) return resultOf(number.status());
    // The runtime cannot tell the work of a stream that it does not know, so other streams count
    // too.
    if (*number == accel::kForeignStream && users == coherence::Users::kOneStream)
      users = coherence::Users::kEverybody;
    return resultOf(
        coherence::deviceMemory().setUsers(reinterpret_cast<const void*>(address), users, *number));
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaManagedHints, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
