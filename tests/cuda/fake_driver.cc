// SPDX-License-Identifier: Apache-2.0
//
// The fake libcuda.so.1 (fake_driver.h says how it behaves): its state, what tests ask of it,
// devices, contexts, and the names of its functions. The rest is in the other sources
// (fake_internal.h, fake_state.h).
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>

#include "tests/cuda/fake_state.h"

namespace gmac::fake_cuda {

constinit thread_local bool readsArguments = false;
constinit thread_local CUdevice working = -1;

Device& device() {
  static Device* const one = new Device;
  return *one;
}

namespace {

// The contexts of a thread, those that have ended included. Static destructors use it, which run
// after the destructors of the main thread.
class ContextStack {
 public:
  bool empty() const { return count_ == 0; }
  CUcontext back() const { return contexts_[count_ - 1]; }
  bool push(CUcontext context) {
    if (count_ == contexts_.size()) return false;
    contexts_[count_++] = context;
    return true;
  }
  void pop() { --count_; }

 private:
  std::array<CUcontext, 4096> contexts_{};
  std::size_t count_ = 0;
};
static_assert(std::is_trivially_destructible_v<ContextStack>);
thread_local constinit ContextStack contexts;

}  // namespace

CUcontext currentContext() { return contexts.empty() ? &device().primary[0] : contexts.back(); }

// Takes stack as a real driver does: FAKE_CUDA_STACK bytes.
[[gnu::noinline]] void useStack() {
  static const char* const wanted = std::getenv("FAKE_CUDA_STACK");
  static const std::size_t bytes = wanted == nullptr ? 0 : std::strtoul(wanted, nullptr, 10);
  if (bytes == 0) return;
  auto* const used = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t i = 0; i < bytes; i += 1024) used[i] = 1;
}

void count(const char* name) {
  const std::lock_guard lock(device().mutex);
  ++device().calls[name];
}

Call::Call(const char* name) : lock_(device().mutex) {
  useStack();
  if (readsArguments) {
    std::fprintf(stderr, "%s during a launch: the driver would wait for itself\n", name);
    std::abort();
  }
  ++device().calls[name];
  result = device().broken;
  if (const auto failing = device().failNext.find(name); failing != device().failNext.end()) {
    auto& failure = failing->second;
    if (failure.countdown == 0) {
      result = failure.code;
    } else if (--failure.countdown == 0) {
      result = failure.code;
      device().failNext.erase(failing);
    }
  }
}

CUcontext makeContext(CUdevice number) {
  return device().contexts.emplace_back(std::make_unique<CUctx_st>(number)).get();
}

bool isDevice(CUdevice number) { return number >= 0 && number < device().count; }

void endContext(CUcontext context) {
  Device& all = device();
  for (auto next = all.memory.begin(); next != all.memory.end();) {
    const auto& [address, allocation] = *next++;
    if (allocation.context == context) release(address);
  }
  const auto ends = [&](const auto& handles) {
    for (const auto& handle : handles) {
      if (handle->context == context) all.living.erase(handle.get());
    }
  };
  ends(all.streams);
  ends(all.events);
  ends(all.modules);
  ends(all.functions);
  for (auto& module : all.modules) {
    if (module->context == context) module->globals.clear();
  }
  for (const auto& [address, owner] : all.given) {
    if (owner == context) ::operator delete (address, std::align_val_t{4096});
  }
  std::erase_if(all.given, [&](const auto& one) { return one.second == context; });
  std::erase_if(all.registered, [&](const auto& one) { return one.second == context; });
  const auto end = [](CUstream_st& stream) {
    stream.done = stream.submitted();
    stream.ops.clear();
  };
  for (auto& stream : all.streams) {
    if (stream->context == context) end(*stream);
  }
  end(context->legacy);
  for (auto& [thread, stream] : context->perThread) end(stream);
  all.broken = CUDA_SUCCESS;
}

void resetDevice(CUdevice number) {
  const auto index = static_cast<std::size_t>(number);
  endContext(&device().primary[index]);
  device().primaryIsActive[index] = false;
}

}  // namespace gmac::fake_cuda

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

extern "C" {

#pragma GCC visibility push(default)

void* fakeCudaBacking(CUdeviceptr address) {
  const std::lock_guard lock(device().mutex);
  return backingOf(address);
}
std::size_t fakeCudaCalls(const char* name) {
  const std::lock_guard lock(device().mutex);
  if (name == nullptr) {
    std::size_t all = 0;
    for (const auto& [one, count] : device().calls) all += count;
    return all;
  }
  return device().calls[name];
}
void fakeCudaFailNext(const char* name, CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().failNext[name] = {1, code};
}
void fakeCudaFailNth(const char* name, std::size_t n, CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().failNext.erase(name);
  if (n != 0) device().failNext[name] = {n, code};
}
void fakeCudaFailAlways(const char* name, CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().failNext[name] = {0, code};
}
void fakeCudaFailAll(CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().broken = code;
}
CopiedBytes fakeCudaCopied(int number) {
  const std::lock_guard lock(device().mutex);
  const auto i = static_cast<std::size_t>(number);
  return {device().copiedIn[i], device().copiedOut[i], device().copiedWithin[i]};
}
void fakeCudaStandIn(const Image* image) {
  const std::lock_guard lock(device().mutex);
  device().standIn = image;
}
void fakeCudaOccupyNext() {
  const std::lock_guard lock(device().mutex);
  device().occupyNext = true;
}
void fakeCudaGiveAgain(CUdeviceptr address) {
  const std::lock_guard lock(device().mutex);
  device().again.push_back(address);
}
Living fakeCudaLiving() {
  const std::lock_guard lock(device().mutex);
  return {device().living.size(), device().registered.size() + device().given.size(),
          device().reserved.size(), device().pages.size()};
}
void fakeCudaReset() {
  const std::lock_guard lock(device().mutex);
  device().calls.clear();
  device().failNext.clear();
  device().registered.clear();
  device().reached.clear();
  device().broken = CUDA_SUCCESS;
}

void fakeCudaSetAttribute(CUdevice_attribute attribute, int value) {
  const std::lock_guard lock(device().mutex);
  device().attributes[attribute] = value;
}
void fakeCudaStall(CUstream stream) {
  const std::lock_guard lock(device().mutex);
  device().stalled = stream;
}
void fakeCudaSetDevices(int count, bool reachEachOther) {
  const std::lock_guard lock(device().mutex);
  device().count = count;
  device().sharing = reachEachOther ? kMostDevices : 1;
}
void fakeCudaShareInGroupsOf(int devices) {
  const std::lock_guard lock(device().mutex);
  device().sharing = devices;
}
int fakeCudaDeviceOf(CUdeviceptr address) {
  const std::lock_guard lock(device().mutex);
  return deviceOf(address);
}
void fakeCudaCapture(CUstream stream) {
  const std::lock_guard lock(device().mutex);
  device().capturing = stream;
}

CUresult cuInit(unsigned) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY       ? "out of memory"
          : error == CUDA_ERROR_ILLEGAL_ADDRESS   ? "an illegal memory access was encountered"
          : error == CUDA_ERROR_INVALID_VALUE     ? "invalid argument"
          : error == CUDA_ERROR_NOT_FOUND         ? "named symbol not found"
          : error == CUDA_ERROR_LAUNCH_FAILED     ? "unspecified launch failure"
          : error == CUDA_ERROR_ECC_UNCORRECTABLE ? "uncorrectable ECC error encountered"
                                                  : "some error";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* number, int ordinal) {
  FAKE_CALL();
  if (!isDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *number = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  FAKE_CALL();
  *count = device().count;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  FAKE_CALL();
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(bytes));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice number) {
  FAKE_CALL();
  const auto found = device().attributes.find(attribute);
  *value = found != device().attributes.end()            ? found->second
           : attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? 0x1a + number
                                                         : 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice number, CUdevice peer) {
  FAKE_CALL();
  if (!isDevice(number) || !isDevice(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = number != peer && device().reach(number, peer) ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice number, unsigned* flags, int* active) {
  FAKE_CALL();
  if (!isDevice(number)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = device().primaryIsActive[static_cast<std::size_t>(number)] ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice number) {
  FAKE_CALL();
  if (!isDevice(number)) return CUDA_ERROR_INVALID_DEVICE;
  *context = &device().primary[static_cast<std::size_t>(number)];
  device().primaryIsActive[static_cast<std::size_t>(number)] = true;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  FAKE_CALL();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  count(__func__);
  *context = contexts.empty() ? nullptr : contexts.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* number) {
  *number = currentDevice();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  return contexts.push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = contexts.back();
  contexts.pop();
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  FAKE_CALL();
  for (const auto& stream : device().streams) {
    if (stream->context == currentContext()) advance(*stream, stream->submitted());
  }
  for (auto& [thread, stream] : currentContext()->perThread) advance(stream, stream.submitted());
  openVariable();
  return finish(nullptr);
}

// The functions that programs ask for by name, in the newest signature.
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t,
                          CUdriverProcAddressQueryResult* found) {
#define FAKE_ENTRY(entry) {#entry, reinterpret_cast<void*>(&::entry)},
  static const std::map<std::string, void*> entries = {
      FAKE_ENTRY(cuMemcpy) FAKE_ENTRY(cuMemcpyHtoD) FAKE_ENTRY(cuMemcpyDtoH)
          FAKE_ENTRY(cuMemcpyHtoDAsync) FAKE_ENTRY(cuMemcpyDtoHAsync) FAKE_ENTRY(cuMemcpy2D)
              FAKE_ENTRY(cuMemsetD8) FAKE_ENTRY(cuMemsetD32) FAKE_ENTRY(cuLaunchKernel)
                  FAKE_ENTRY(cuStreamSynchronize) FAKE_ENTRY(cuCtxSynchronize) FAKE_ENTRY(cuMemFree)
                      FAKE_ENTRY(cuMemHostRegister) FAKE_ENTRY(cuMemHostGetDevicePointer)
                          FAKE_ENTRY(cuGetProcAddress) FAKE_ENTRY(cuEventSynchronize)
                              FAKE_ENTRY(cuStreamCreate) FAKE_ENTRY(cuMemAlloc)
                                  FAKE_ENTRY(cuModuleLoadDataEx) FAKE_ENTRY(cuMemGetInfo)
                                      FAKE_ENTRY(cuModuleUnload) FAKE_ENTRY(cuModuleGetFunction)
                                          FAKE_ENTRY(cuEventCreate) FAKE_ENTRY(cuEventDestroy)
                                              FAKE_ENTRY(cuEventRecord) FAKE_ENTRY(cuEventQuery)
                                                  FAKE_ENTRY(cuEventElapsedTime)};
#undef FAKE_ENTRY
  const auto entry = entries.find(name);
  *function = entry == entries.end() ? moreEntries(name, version) : entry->second;
  if (found != nullptr) {
    *found =
        *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#pragma GCC visibility pop
}
