// SPDX-License-Identifier: Apache-2.0
//
// A CUDA driver without a device: the tests' view of the fake libcuda.so.1.
//
// Device memory is ordinary memory at another address ("backing"); its own address is mapped
// without access, as the real driver leaves it. Submitted work runs only when a call asks about it,
// and then only as much as the question needs: so work that was not ordered after its dependencies
// is found out.
#ifndef GMAC_TESTS_CUDA_FAKE_DRIVER_H_
#define GMAC_TESTS_CUDA_FAKE_DRIVER_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gmac::fake_cuda {

// A kernel: called once per launch, with the arguments as copied at the launch. Says how it ended.
using KernelFunction = CUresult (*)(const unsigned grid[3], const unsigned block[3],
                                    unsigned sharedBytes, void** args);

struct Kernel {
  const char* name;
  KernelFunction function;
  std::size_t paramCount;
  const std::size_t* paramSizes;
};

struct Global {
  const char* name;
  std::size_t bytes;
  CUdeviceptr* address;  // where the module puts it
};

// The form of a module image for this driver.
inline constexpr char kImageMagic[8] = "fakecud";
struct Image {
  char magic[8];
  const Kernel* kernels;
  std::size_t kernelCount;
  const Global* globals;
  std::size_t globalCount;
};

// The control functions that the library exports besides the driver's, as extern "C":
// fakeCudaBacking, ... The memory behind a device address; NULL when it is none.
using Backing = void*(CUdeviceptr address);
// Calls of the driver function so far; NULL: of all that the driver counts.
using Calls = std::size_t(const char* name);
// The next call of the function fails with the code (and does nothing).
using FailNext = void(const char* name, CUresult code);
// The same for the n-th next call; 0: none fails.
using FailNth = void(const char* name, std::size_t n, CUresult code);
// The same for every call of the function, until one of those above.
using FailAlways = void(const char* name, CUresult code);
// Every call fails with the code from now on, as after a kernel's crash or at the end of the
// process; CUDA_SUCCESS: none.
using FailAll = void(CUresult code);
// The stand-in for every module image that is not of this driver's kind, from now on; NULL: none.
using StandIn = void(const Image* image);
// The CPU uses part of the addresses of the next allocation.
using OccupyNext = void();
// An allocation that lives: when it is freed, the next one, of the same size, lies there.
using GiveAgain = void(CUdeviceptr address);
// Sets the answer of cuDeviceGetAttribute from now on; it is 1 where nothing was set, but each
// device has a PCI bus of its own, from 0x1a on.
using SetAttribute = void(CUdevice_attribute attribute, int value);
// The stream that counts as capturing from now on, or NULL.
using Capture = void(CUstream stream);
// The stream whose work never comes to its end from now on, or NULL.
using Stall = void(CUstream stream);
// How many devices there are from now on, 1 to 4; and whether they reach each other's memory. A
// kernel reaches what its device has been given access to.
using SetDevices = void(int count, bool reachEachOther);
// Devices 0 to n - 1 reach each other's memory, and so do n to 2n - 1, and so on.
using ShareInGroupsOf = void(int devices);
// In whose memory the pages at an address lie; -1: in the CPU's.
using DeviceOf = int(CUdeviceptr address);
// Streams, events, modules and functions that have not ended with their context; CPU memory that is
// pinned or was given by the driver; reserved ranges of addresses, and physical pages.
struct Living {
  std::size_t handles;
  std::size_t pinned;
  std::size_t ranges;
  std::size_t pages;
  friend bool operator==(const Living&, const Living&) = default;
};
using CountLiving = Living();
// Bytes that a device's streams have been given to copy from the CPU's memory, and to it, and
// between addresses of devices.
struct CopiedBytes {
  std::size_t in;
  std::size_t out;
  std::size_t within;
};
using Copied = CopiedBytes(int device);
// Brings everything back to the state after loading but for memory and streams that are in use.
using Reset = void();

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_FAKE_DRIVER_H_
