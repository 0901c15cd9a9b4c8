// SPDX-License-Identifier: Apache-2.0
#include "gmac/session/device_memory.h"

#include <cstdint>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/base/api_call.h"
#include "gmac/base/status.h"
#include "gmac/coherence/work_port.h"

// ---- Of every accelerator

namespace gmac {
namespace {

Result<accel::ExportedMemory*> exportedMemory() {
  const auto accelerator = coherence::work().ensureAccelerator();
  if (!accelerator.ok()) {
    return accelerator.status();
  }
  accel::ExportedMemory* const exported = (*accelerator)->exportedMemory();
  if (exported == nullptr) {
    return fail(adsmErrorNotSupported, "the {} accelerator has no memory for other processes",
                (*accelerator)->name());
  }
  return exported;
}

static_assert(GMAC_MEMORY_FILES == accel::kMaxMemoryFiles);

accel::DeviceAddress deviceAddressOf(const void* address) {
  return accel::DeviceAddress{reinterpret_cast<std::uintptr_t>(address)};
}

}  // namespace
}  // namespace gmac

void gmacShareDeviceMemory(void) { gmac::accel::shareMemory(); }

void gmacOnDeviceMemoryEnd(void (*ended)(uint64_t)) { gmac::accel::onSharedMemoryEnd(ended); }

adsmError_t gmacFilesOfDeviceMemory(const void* start, uint64_t bytes, uint64_t number,
                                    gmacMemoryFile* files, int* count) {
  return gmac::api::guarded("gmacFilesOfDeviceMemory", [&]() -> gmac::Status {
    const auto exported = gmac::exportedMemory();
    GMAC_TRY(exported.status());
    auto made = (*exported)->filesOf({gmac::deviceAddressOf(start), bytes, number});
    GMAC_TRY(made.status());
    *count = 0;
    for (const gmac::accel::MemoryFile& one : *made) {
      files[(*count)++] = {one.file, one.offset, one.bytes};
    }
    return {};
  });
}

adsmError_t gmacImportDeviceFiles(const gmacMemoryFile* files, int count, void** address) {
  return gmac::api::guarded("gmacImportDeviceFiles", [&]() -> gmac::Status {
    const auto exported = gmac::exportedMemory();
    GMAC_TRY(exported.status());
    std::vector<gmac::accel::MemoryFile> given;
    for (const gmacMemoryFile* one = files; one != files + count; ++one) {
      given.push_back({one->file, one->offset, one->bytes});
    }
    const auto memory = (*exported)->importFiles(given);
    GMAC_TRY(memory.status());
    *address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(*memory));
    return {};
  });
}

adsmError_t gmacReleaseDeviceImport(void* address) {
  return gmac::api::guarded("gmacReleaseDeviceImport", [&]() -> gmac::Status {
    const auto exported = gmac::exportedMemory();
    GMAC_TRY(exported.status());
    return (*exported)->releaseImport(gmac::deviceAddressOf(address));
  });
}

void gmacDeviceImportIsLocal(void* address) {
  if (const auto exported = gmac::exportedMemory(); exported.ok()) {
    (*exported)->importIsLocal(gmac::deviceAddressOf(address));
  }
}

// ---- Of CUDA

#if GMAC_HAVE_CUDA
#include <cstdlib>
#include <cstring>

#include "gmac/accel/cuda/application_memory.h"
#include "gmac/accel/cuda/default_device.h"
#include "gmac/accel/cuda/deferred_frees.h"
#include "gmac/accel/cuda/driver.h"
#include "gmac/base/cpu_memory.h"
#include "gmac/base/log.h"
#include "gmac/session/config.h"

namespace gmac {
namespace {

using accel::cuda::ApplicationMemory;
using accel::cuda::applicationMemoryAt;

const char* variable(const char* name) { return std::getenv(name); }

// (The runtime may not have started, and tells of a bad value when it does.)
Result<bool> ordersAfterStreams() {
  const auto config = readConfig(&variable);
  if (!config.ok()) {
    return config.status();
  }
  return config->mpiOrder == MpiOrder::kStreams;
}

// Whether the engine's kernels and copies, which run on the runtime's device, reach the memory.
bool reaches(accel::Accelerator& accelerator, const ApplicationMemory& memory) {
  const accel::NativeStreams* const native = accelerator.nativeStreams();
  if (native == nullptr || !memory.ofDevice) {
    return false;
  }
  return memory.context != 0 ? memory.context == native->nativeContext()
                             : memory.device == native->primaryDevice();
}

// Read once; of an error it says again, for this thread, what is wrong.
Result<bool> isOrderedAfterStreams() {
  static const Result<bool> ordered = ordersAfterStreams();
  return ordered.ok() ? ordered : ordersAfterStreams();
}

// `copy(memory)`, unless more is to be waited for than the default streams.
template <typename Copy>
Status copyInOrder(const void* device, const gmacDevicePlace* place, int* copied,
                   const Copy& copy) {
  *copied = 0;
  const Result<bool> ordered = isOrderedAfterStreams();
  GMAC_TRY(ordered.status());
  if (!*ordered) {
    const Result<bool> done =
        copy(place != nullptr ? ApplicationMemory{true, place->context, place->device}
                              : applicationMemoryAt(device));
    GMAC_TRY(done.status());
    *copied = *done ? 1 : 0;
  }
  return {};
}

Status open(const void* address, int* packs) {
  const Result<bool> ordered = isOrderedAfterStreams();
  GMAC_TRY(ordered.status());
  const ApplicationMemory memory = applicationMemoryAt(address);
  GMAC_TRY(*ordered ? waitForApplication(memory) : waitForDefaultStreams(memory));
  const auto accelerator = coherence::work().ensureAccelerator();
  if (!accelerator.ok()) {
    return accelerator.status();
  }
  *packs = reaches(**accelerator, memory) ? 1 : 0;
  return {};
}

static_assert(GMAC_MEMORY_HANDLE_BYTES == sizeof(accel::MemoryHandle));

}  // namespace
}  // namespace gmac

adsmError_t gmacExportDeviceMemory(size_t bytes, void** address, unsigned char* handle) {
  return gmac::api::guarded("gmacExportDeviceMemory", [&]() -> gmac::Status {
    const auto exported = gmac::exportedMemory();
    GMAC_TRY(exported.status());
    gmac::accel::MemoryHandle made{};
    const auto memory = (*exported)->exportMemory(bytes, &made);
    GMAC_TRY(memory.status());
    std::memcpy(handle, made.data(), made.size());
    *address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(*memory));
    return {};
  });
}

adsmError_t gmacImportDeviceMemory(const unsigned char* handle, void** address) {
  return gmac::api::guarded("gmacImportDeviceMemory", [&]() -> gmac::Status {
    const auto exported = gmac::exportedMemory();
    GMAC_TRY(exported.status());
    gmac::accel::MemoryHandle given{};
    std::memcpy(given.data(), handle, given.size());
    const auto memory = (*exported)->importMemory(given);
    GMAC_TRY(memory.status());
    *address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(*memory));
    return {};
  });
}

adsmError_t gmacHandleOfDeviceMemory(void* address, unsigned char* handle) {
  return gmac::api::guarded("gmacHandleOfDeviceMemory", [&]() -> gmac::Status {
    const auto exported = gmac::exportedMemory();
    GMAC_TRY(exported.status());
    const auto accelerator = gmac::coherence::work().ensureAccelerator();
    GMAC_TRY(accelerator.status());
    const auto memory = gmac::applicationMemoryAt(address);
    if (!gmac::reaches(**accelerator, memory)) {
      return gmac::fail(adsmErrorNotSupported, "{} is no memory of the runtime's device", address);
    }
    gmac::accel::MemoryHandle made{};
    GMAC_TRY((*exported)->handleOf(
        gmac::accel::DeviceAddress{reinterpret_cast<std::uintptr_t>(address)}, &made));
    std::memcpy(handle, made.data(), made.size());
    return {};
  });
}

adsmError_t gmacAllocationOf(const void* address, gmacAllocation* allocation) {
  return gmac::api::guarded("gmacAllocationOf", [&]() -> gmac::Status {
    const auto found = gmac::accel::cuda::allocationAt(address);
    if (found.bytes == 0) {
      return gmac::fail(adsmErrorInvalidValue, "{} is in no allocation of a device's", address);
    }
    *allocation = {reinterpret_cast<void*>(found.start), found.bytes, found.id};
    return {};
  });
}

void gmacOnDeviceFree(int (*mayFree)(void*)) { gmac::accel::cuda::askBeforeFrees(mayFree); }
void gmacFreeKept(void) { (void)gmac::accel::cuda::freeDeferred(); }

int gmacAnyDeviceMemory(void) { return gmac::accel::cuda::driverLoaded() ? 1 : 0; }

int gmacIsDeviceMemory(const void* address) {
  gmacDevicePlace unused{};
  return gmacFindDeviceMemory(address, &unused);
}

int gmacFindDeviceMemory(const void* address, gmacDevicePlace* place) {
  if (gmac::onHeapOrStack(address)) {
    return 0;
  }
  const gmac::ApplicationMemory memory = gmac::applicationMemoryAt(address);
  *place = {memory.context, memory.device};
  return memory.ofDevice ? 1 : 0;
}

adsmError_t gmacOpenDeviceMemory(const void* address, int* packs) {
  return gmac::api::guarded("gmacOpenDeviceMemory",
                            [&]() -> gmac::Status { return gmac::open(address, packs); });
}

adsmError_t gmacCopyFromDevice(void* to, const void* device, size_t bytes) {
  return gmac::api::guarded("gmacCopyFromDevice", [&]() -> gmac::Status {
    return copyFromApplication(gmac::applicationMemoryAt(device), to, device, bytes);
  });
}

adsmError_t gmacCopyToDevice(void* device, const void* from, size_t bytes) {
  return gmac::api::guarded("gmacCopyToDevice", [&]() -> gmac::Status {
    return copyToApplication(gmac::applicationMemoryAt(device), device, from, bytes);
  });
}

adsmError_t gmacCopyFromDeviceInOrder(void* to, const void* device, size_t bytes,
                                      const gmacDevicePlace* place, int* copied) {
  return gmac::api::guarded("gmacCopyFromDeviceInOrder", [&]() -> gmac::Status {
    return gmac::copyInOrder(device, place, copied, [&](const gmac::ApplicationMemory& memory) {
      return copyFromApplicationInOrder(memory, to, device, bytes);
    });
  });
}

adsmError_t gmacCopyToDeviceInOrder(void* device, const void* from, size_t bytes,
                                    const gmacDevicePlace* place, int* copied) {
  return gmac::api::guarded("gmacCopyToDeviceInOrder", [&]() -> gmac::Status {
    return gmac::copyInOrder(device, place, copied, [&](const gmac::ApplicationMemory& memory) {
      return copyToApplicationInOrder(memory, device, from, bytes);
    });
  });
}

int gmacReachesDeviceMemory(const void* address) {
  const auto accelerator = gmac::coherence::work().ensureAccelerator();
  return accelerator.ok() && gmac::reaches(**accelerator, gmac::applicationMemoryAt(address)) ? 1
                                                                                              : 0;
}

adsmError_t gmacCopyImportInOrder(void* device, const void* import, size_t bytes, int* copied) {
  return gmac::api::guarded("gmacCopyImportInOrder", [&]() -> gmac::Status {
    const auto accelerator = gmac::coherence::work().ensureAccelerator();
    GMAC_TRY(accelerator.status());
    return gmac::copyInOrder(
        device, nullptr, copied, [&](const gmac::ApplicationMemory& memory) -> gmac::Result<bool> {
          return gmac::reaches(**accelerator, memory)
                     ? gmac::accel::cuda::copyOnDeviceInOrder(memory, device, import, bytes)
                     : gmac::Result<bool>(false);
        });
  });
}

adsmError_t gmacPinMemory(void* memory, size_t bytes, int* pinned) {
  return gmac::api::guarded("gmacPinMemory", [&]() -> gmac::Status {
    *pinned = 0;
    const auto accelerator = gmac::coherence::work().ensureAccelerator();
    if (!accelerator.ok()) {
      return accelerator.status();
    }
    if ((*accelerator)->kernelsReachPinned()) {
      GMAC_TRY((*accelerator)->pin({memory, bytes, -1, 0}));
      *pinned = 1;
    }
    return {};
  });
}

adsmError_t gmacUnpinMemory(void* memory, size_t bytes) {
  return gmac::api::guarded("gmacUnpinMemory", [&]() -> gmac::Status {
    const auto accelerator = gmac::coherence::work().ensureAccelerator();
    return accelerator.ok() ? (*accelerator)->unpin({memory, bytes, -1, 0}) : accelerator.status();
  });
}

void gmacSpreadByLocalRank(void) { gmac::accel::cuda::spreadByLocalRank(); }

int gmacServesDeviceMemory(void) {
  const auto config = gmac::readConfig(&gmac::variable);
  const bool wanted = !config.ok() || config->accelerator != gmac::AcceleratorKind::kHost;
  return wanted && gmac::accel::cuda::driverLibrary() != nullptr ? 1 : 0;
}

#else

int gmacAnyDeviceMemory(void) { return 0; }
int gmacIsDeviceMemory(const void*) { return 0; }
int gmacFindDeviceMemory(const void*, gmacDevicePlace*) { return 0; }
adsmError_t gmacOpenDeviceMemory(const void*, int*) { return adsmErrorNotSupported; }
adsmError_t gmacCopyFromDevice(void*, const void*, size_t) { return adsmErrorNotSupported; }
adsmError_t gmacCopyToDevice(void*, const void*, size_t) { return adsmErrorNotSupported; }
adsmError_t gmacCopyFromDeviceInOrder(void*, const void*, size_t, const gmacDevicePlace*, int*) {
  return adsmErrorNotSupported;
}
adsmError_t gmacCopyToDeviceInOrder(void*, const void*, size_t, const gmacDevicePlace*, int*) {
  return adsmErrorNotSupported;
}
int gmacReachesDeviceMemory(const void*) { return 0; }
adsmError_t gmacCopyImportInOrder(void*, const void*, size_t, int*) {
  return adsmErrorNotSupported;
}
adsmError_t gmacPinMemory(void*, size_t, int* pinned) {
  *pinned = 0;
  return adsmSuccess;
}
adsmError_t gmacUnpinMemory(void*, size_t) { return adsmSuccess; }
void gmacSpreadByLocalRank(void) {}
adsmError_t gmacExportDeviceMemory(size_t, void**, unsigned char*) { return adsmErrorNotSupported; }
adsmError_t gmacImportDeviceMemory(const unsigned char*, void**) { return adsmErrorNotSupported; }
adsmError_t gmacHandleOfDeviceMemory(void*, unsigned char*) { return adsmErrorNotSupported; }
void gmacOnDeviceFree(int (*)(void*)) {}
void gmacFreeKept(void) {}
adsmError_t gmacAllocationOf(const void*, gmacAllocation*) { return adsmErrorInvalidValue; }
int gmacServesDeviceMemory(void) { return 0; }

#endif
