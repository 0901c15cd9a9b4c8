// SPDX-License-Identifier: Apache-2.0
//
// Shared by the sources of the fake driver.
#ifndef GMAC_TESTS_CUDA_FAKE_INTERNAL_H_
#define GMAC_TESTS_CUDA_FAKE_INTERNAL_H_

#include <cuda.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "tests/cuda/fake_driver.h"

struct CUarray_st {
  CUDA_ARRAY_DESCRIPTOR description;
  std::size_t element;  // bytes
  std::vector<std::byte> bytes;
};

namespace gmac::fake_cuda {

// The beginning of every call: it is counted, and fails where it was told to. The driver's one lock
// is held as long as this lives.
class Call {
 public:
  explicit Call(const char* name);
  CUresult result;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

#define FAKE_CALL()                       \
  ::gmac::fake_cuda::Call call(__func__); \
  if (call.result != CUDA_SUCCESS) return call.result

// The memory behind a device address; NULL when it is none.
std::byte* backingOf(CUdeviceptr address);
// Whether the driver copies and fills a range: it is not in part memory of the CPU's that was
// registered, and in part a device's, and does not run past its allocation. (What is mapped side by
// side is one.)
bool ofOneKind(CUdeviceptr address, std::size_t bytes);
// The same of both ends of a copy, from the first byte to the last.
bool ofOneKind(const CUDA_MEMCPY3D& copy);
// Where the bytes of an address are: unified addressing.
std::byte* bytesAt(CUdeviceptr address);

// The allocation that holds a device address; false when none does.
bool allocationOf(CUdeviceptr address, CUdeviceptr* start, std::size_t* bytes);
// Its number, which no other has had.
unsigned long long allocationId(CUdeviceptr start);
// Where such an address lies; -1: in the CPU's memory.
CUdevice deviceOf(CUdeviceptr address);
// True for an address that cuMemHostAlloc has given.
bool isPinned(CUdeviceptr address);

// The context's work is over: the CPU may use managed variables again.
void openVariable();

// Queues a function of the CPU on a stream. It runs in a thread of its own.
CUresult submitHost(CUstream stream, const std::function<void()>& function);
// Queues work on a stream, and runs all of a stream's.
CUresult submit(CUstream stream, std::function<CUresult()> work);
CUresult finish(CUstream stream);

// A launch as work for a stream. Reads the arguments, under the driver's lock as the real one does:
// a call that comes from the reading thread meanwhile would wait for itself, so it ends the
// process.
std::function<CUresult()> launchOf(CUfunction function, const unsigned grid[3],
                                   const unsigned block[3], unsigned sharedBytes, void** args,
                                   void** extra);

// A context of a device, which never is another one's.
CUcontext makeContext(CUdevice device);
bool isDevice(CUdevice device);
// The end of a context: its memory goes, and its streams, events, pinned memory, modules and
// functions are none any more. What is mapped is the device's, and stays.
void endContext(CUcontext context);
void resetDevice(CUdevice device);

// The functions of the other sources, by the names of cuGetProcAddress; NULL when there is none.
void* moreEntries(const char* name, int version);

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_FAKE_INTERNAL_H_
