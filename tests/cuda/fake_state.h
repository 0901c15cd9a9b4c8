// SPDX-License-Identifier: Apache-2.0
//
// The state that the sources of the fake driver share: handles, memory, and the wishes of tests.
// One lock guards all of it.
#ifndef GMAC_TESTS_CUDA_FAKE_STATE_H_
#define GMAC_TESTS_CUDA_FAKE_STATE_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/fake_internal.h"

struct CUstream_st {
  CUcontext context = nullptr;
  enum class Host { kNone, kQueued, kRunning, kOver };
  struct Op {
    std::function<CUresult()> work;
    CUstream_st* after = nullptr;  // or: nothing to do, but this stream must have come so far
    std::size_t position = 0;
    // A function of the CPU: runs in a thread of its own, without the driver's lock.
    std::shared_ptr<std::atomic<Host>> host = nullptr;
  };
  std::deque<Op> ops;
  std::size_t done = 0;
  std::size_t submitted() const { return done + ops.size(); }
};

// The default streams are a context's own.
struct CUctx_st {
  explicit CUctx_st(CUdevice number) : device(number) { legacy.context = this; }
  CUstream_st& ofThisThread() {
    static std::uint64_t threads = 0;
    static thread_local std::uint64_t thread = 0;
    if (thread == 0) thread = ++threads;
    CUstream_st& stream = perThread[thread];
    stream.context = this;
    return stream;
  }
  const CUdevice device;
  CUstream_st legacy;
  std::map<std::uint64_t, CUstream_st> perThread;
};

struct CUevent_st {
  CUcontext context = nullptr;
  CUstream_st* stream = nullptr;
  std::size_t position = 0;
  unsigned questions = 0;                                    // since it was recorded
  std::vector<std::pair<CUstream_st*, std::size_t>> others;  // of a whole context
};

struct CUmod_st {
  CUcontext context;
  const gmac::fake_cuda::Image* image;
  std::vector<CUdeviceptr> globals;
};

struct CUfunc_st {
  CUcontext context;
  const gmac::fake_cuda::Kernel* kernel;
  int maxSharedBytes = 48 << 10;
};

namespace gmac::fake_cuda {

inline constexpr std::size_t kMemory = std::size_t{1} << 30;
inline constexpr std::size_t kPage = 2 << 20;
inline constexpr std::size_t kMostDevices = 4;

struct Allocation {
  static unsigned long long nextId() {
    static std::atomic<unsigned long long> ids{6};
    return ++ids;
  }
  std::size_t bytes;
  std::byte* backing;
  unsigned access = 0;  // a bit for each device
  CUcontext context =
      nullptr;  // whose memory it is; NULL: mapped, and the backing is that of pages
  CUdevice device = 0;
  unsigned long long id = nextId();  // given once
  int file = -1;                     // of memory that was exported, or is imported
  bool imported = false;
  bool mapped() const { return context == nullptr; }
};

// Reserved addresses, and the window behind them through which work reaches what is mapped there.
struct Range {
  std::size_t bytes;
  std::byte* window;
};

// Physical pages: a file, which is mapped into the window of each range where they are.
struct Pages {
  std::size_t bytes;
  int file;
  int device;       // -1: in the CPU's memory
  bool exportable;  // asked for when they were made
  bool imported = false;
  std::size_t uses = 1;  // the handle, and where they are mapped
};

struct Device {
  std::recursive_mutex mutex;
  std::map<CUdeviceptr, Allocation> memory;
  std::map<CUdeviceptr, Range> reserved;
  std::map<CUmemGenericAllocationHandle, Pages> pages;
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
  CUmemGenericAllocationHandle lastPages = 0;
  std::array<std::size_t, kMostDevices> used{};
  std::map<std::string, std::size_t> calls;
  struct Failure {
    std::size_t countdown;  // 0: every call fails
    CUresult code;
  };
  std::map<std::string, Failure> failNext;
  const Image* standIn = nullptr;  // for images of other kinds
  bool occupyNext = false;
  std::deque<CUdeviceptr> again;   // where the next allocations lie, when what is there is freed
  CUresult broken = CUDA_SUCCESS;  // what the context died of
  int count = 1;
  int sharing = kMostDevices;  // devices of such a group reach each other's memory
  bool reach(int one, int other) const { return one / sharing == other / sharing; }
  std::array<CUctx_st, kMostDevices> primary{CUctx_st(0), CUctx_st(1), CUctx_st(2), CUctx_st(3)};
  std::array<bool, kMostDevices> primaryIsActive{};
  std::vector<std::unique_ptr<CUctx_st>> contexts;  // that programs have made
  std::map<CUdevice_attribute, int> attributes;     // the others are 1
  CUstream capturing = nullptr;
  CUstream stalled = nullptr;
  // Streams and events stay: work may still name them after they are destroyed.
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::vector<std::unique_ptr<CUevent_st>> events;
  std::vector<std::unique_ptr<CUmod_st>> modules;
  std::vector<std::unique_ptr<CUfunc_st>> functions;
  std::map<void*, CUcontext> registered;
  std::map<CUdeviceptr, std::pair<std::size_t, CUdevice>> reached;  // registered for one device
  // Bytes, by streams of each.
  std::array<std::size_t, kMostDevices> copiedIn{}, copiedOut{}, copiedWithin{};
  std::map<void*, CUcontext> given;  // by cuMemHostAlloc
  std::set<CUdeviceptr> managed;     // by cuMemAllocManaged
  std::set<const void*> living;      // streams, events, modules, functions
};

Device& device();

// A thread without a context works in the first device's.
CUcontext currentContext();
inline CUdevice currentDevice() { return currentContext()->device; }
inline unsigned bitOf(CUdevice number) { return 1U << number; }
inline std::size_t& usedOn(CUdevice number) {
  return device().used[static_cast<std::size_t>(number)];
}
inline CUdeviceptr number(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// The calling thread reads the arguments of a launch; the device whose work it does (-1: none's).
extern constinit thread_local bool readsArguments;
extern constinit thread_local CUdevice working;

// A call that is answered whatever has happened.
void count(const char* name);

// ---- Memory

CUresult allocate(CUdeviceptr* address, std::size_t bytes);
CUresult release(CUdeviceptr address);
// Addresses without access for the CPU, as those of device memory are; 0: there are none.
CUdeviceptr reserveAddresses(std::size_t bytes);
// Whether some of these addresses have memory.
bool mappedWithin(CUdeviceptr address, std::size_t bytes);

// ---- Streams

// Whether a handle has not ended with its context. The default streams never do.
bool lives(CUstream stream);
bool lives(const void* handle);

#define FAKE_HANDLE(handle) \
  if (!lives(handle)) return CUDA_ERROR_INVALID_HANDLE

CUstream_st& streamOf(CUstream stream);
// Runs the first piece of work of the stream, after what it waits for; all up to a position.
void step(CUstream_st& stream);
void advance(CUstream_st& stream, std::size_t position);

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_FAKE_STATE_H_
