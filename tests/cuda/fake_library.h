// SPDX-License-Identifier: Apache-2.0
//
// Loads the fake driver before anything asks for libcuda.so.1, so that the runtime finds it instead
// of a real one.
#ifndef GMAC_TESTS_CUDA_FAKE_LIBRARY_H_
#define GMAC_TESTS_CUDA_FAKE_LIBRARY_H_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/cuda/fake_driver.h"

namespace gmac::fake_cuda {

// The library's handle. Its name inside is libcuda.so.1, by which the dynamic linker knows it from
// then on. Never destroyed.
inline void* library() {
  static void* const handle = [] {
    // Beside the program, or beside the folder that the program is in.
    const std::filesystem::path here =
        std::filesystem::read_symlink("/proc/self/exe").parent_path();
    void* loaded = dlopen((here / "libfakecuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) {
      loaded = dlopen((here / "../cuda/libfakecuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (loaded == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    return loaded;
  }();
  return handle;
}

template <typename Function>
Function* control(const char* name) {
  return reinterpret_cast<Function*>(dlsym(library(), name));
}

inline std::byte* backing(CUdeviceptr address) {
  static Backing* const function = control<Backing>("fakeCudaBacking");
  return static_cast<std::byte*>(function(address));
}
inline std::size_t calls(const char* name) { return control<Calls>("fakeCudaCalls")(name); }
inline void failNext(const char* name, CUresult code) {
  control<FailNext>("fakeCudaFailNext")(name, code);
}
inline void failNth(const char* name, std::size_t n, CUresult code) {
  control<FailNth>("fakeCudaFailNth")(name, n, code);
}
inline void failAlways(const char* name, CUresult code) {
  control<FailAlways>("fakeCudaFailAlways")(name, code);
}
inline void failAll(CUresult code) { control<FailAll>("fakeCudaFailAll")(code); }
inline void standIn(const Image* image) { control<StandIn>("fakeCudaStandIn")(image); }
inline void occupyNext() { control<OccupyNext>("fakeCudaOccupyNext")(); }
inline void giveAgain(CUdeviceptr address) { control<GiveAgain>("fakeCudaGiveAgain")(address); }
inline void setAttribute(CUdevice_attribute attribute, int value) {
  control<SetAttribute>("fakeCudaSetAttribute")(attribute, value);
}
inline void setDevices(int count, bool reachEachOther = true) {
  control<SetDevices>("fakeCudaSetDevices")(count, reachEachOther);
}
inline void shareInGroupsOf(int devices) {
  control<ShareInGroupsOf>("fakeCudaShareInGroupsOf")(devices);
}
inline int deviceOf(CUdeviceptr address) { return control<DeviceOf>("fakeCudaDeviceOf")(address); }
inline void capture(CUstream stream) { control<Capture>("fakeCudaCapture")(stream); }
inline void stall(CUstream stream) { control<Stall>("fakeCudaStall")(stream); }
inline Living living() { return control<CountLiving>("fakeCudaLiving")(); }
inline CopiedBytes copied(int device) { return control<Copied>("fakeCudaCopied")(device); }
// A function by the other kind of handle, a CUkernel, as launches take it.
inline CUfunction asKernel(CUfunction function) {
  return reinterpret_cast<CUfunction>(reinterpret_cast<std::uintptr_t>(function) + 1);
}
inline void reset() { control<Reset>("fakeCudaReset")(); }

// The i-th argument of a kernel, and the memory behind one that is a device address; NULL when that
// is none.
template <typename T>
T argument(void** args, std::size_t i) {
  return *static_cast<T*>(args[i]);
}
template <typename T>
T* device(const T* address) {
  return reinterpret_cast<T*>(backing(reinterpret_cast<CUdeviceptr>(address)));
}

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_FAKE_LIBRARY_H_
