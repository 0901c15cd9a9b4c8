// SPDX-License-Identifier: Apache-2.0
//
// The fake libcuda.so.1 (fake_driver.h says how it behaves). One lock guards all of it.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
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
namespace {

constexpr std::size_t kMemory = std::size_t{1} << 30;
constexpr std::size_t kPage = 2 << 20;
constexpr unsigned kMaxBlockThreads = 1024;
constexpr std::size_t kMostDevices = 4;

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

// In the name of the file, so that another process knows what it is given. The device's number
// follows.
constexpr char kPagesName[] = "gmac fake device ";

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
  bool reachEachOther = true;
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
  std::set<const void*> living;      // streams, events, modules, functions
};

Device& device() {
  static Device* const one = new Device;
  return *one;
}

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
thread_local bool readsArguments = false;
thread_local CUdevice working = -1;  // the device whose work this thread does; -1: none's

// A thread without a context works in the first device's.
CUcontext currentContext() { return contexts.empty() ? &device().primary[0] : contexts.back(); }
CUdevice currentDevice() { return currentContext()->device; }
unsigned bitOf(CUdevice number) { return 1U << number; }
std::size_t& usedOn(CUdevice number) { return device().used[static_cast<std::size_t>(number)]; }

}  // namespace

// Takes stack as a real driver does: FAKE_CUDA_STACK bytes.
[[gnu::noinline]] void useStack() {
  static const char* const wanted = std::getenv("FAKE_CUDA_STACK");
  static const std::size_t bytes = wanted == nullptr ? 0 : std::strtoul(wanted, nullptr, 10);
  if (bytes == 0) return;
  auto* const used = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t i = 0; i < bytes; i += 1024) used[i] = 1;
}

// A call that is answered whatever has happened.
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

std::byte* backingOf(CUdeviceptr address) {
  auto& memory = device().memory;
  auto after = memory.upper_bound(address);
  if (after == memory.begin()) return nullptr;
  const auto& [start, allocation] = *std::prev(after);
  const unsigned needed = working >= 0 ? bitOf(working) : ~0U;
  const bool there = address < start + allocation.bytes && (allocation.access & needed) != 0;
  return there ? allocation.backing + (address - start) : nullptr;
}

bool isPinned(CUdeviceptr address) {
  return device().given.count(reinterpret_cast<void*>(address)) != 0;
}

bool allocationOf(CUdeviceptr address, CUdeviceptr* start, std::size_t* bytes) {
  auto& memory = device().memory;
  if (backingOf(address) == nullptr) return false;
  const auto& [first, allocation] = *std::prev(memory.upper_bound(address));
  *start = first;
  *bytes = allocation.bytes;
  return true;
}

unsigned long long allocationId(CUdeviceptr start) { return device().memory.at(start).id; }

CUdevice deviceOf(CUdeviceptr address) {
  const auto& memory = device().memory;
  const auto after = memory.upper_bound(address);
  return after == memory.begin() ? -1 : std::prev(after)->second.device;
}

std::byte* bytesAt(CUdeviceptr address) {
  std::byte* const backing = backingOf(address);
  return backing != nullptr ? backing : reinterpret_cast<std::byte*>(address);
}

namespace {

// Whether a handle has not ended with its context. The default streams never do.
bool lives(CUstream stream) {
  // The driver dereferences a stream without a check, and no address has so many bits.
  if (reinterpret_cast<std::uintptr_t>(stream) >> 47 != 0) {
    std::fprintf(stderr, "%p is no stream: the driver crashes\n", static_cast<void*>(stream));
    std::abort();
  }
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
         device().living.count(stream) != 0;
}
bool lives(const void* handle) { return device().living.count(handle) != 0; }

#define FAKE_HANDLE(handle) \
  if (!lives(handle)) return CUDA_ERROR_INVALID_HANDLE

CUstream_st& streamOf(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return currentContext()->legacy;
  return stream == CU_STREAM_PER_THREAD ? currentContext()->ofThisThread() : *stream;
}

// Runs the first piece of work of the stream, after what it waits for.
using Host = CUstream_st::Host;
void advance(CUstream_st& stream, std::size_t position);
void step(CUstream_st& stream) {
  if (stream.ops.empty() || &stream == device().stalled) return;
  if (const auto host = stream.ops.front().host; host != nullptr && host->load() != Host::kOver) {
    if (host->exchange(Host::kRunning) == Host::kQueued) {
      std::thread([host, work = stream.ops.front().work] {
        work();
        host->store(Host::kOver);
      }).detach();
    }
    return;
  }
  CUstream_st::Op op = stream.ops.front();
  if (op.host != nullptr) op.work = nullptr;
  if (op.after != nullptr) advance(*op.after, op.position);
  stream.ops.pop_front();
  ++stream.done;
  if (op.work == nullptr || device().broken != CUDA_SUCCESS) return;
  const CUdevice before = std::exchange(working, stream.context->device);
  if (const CUresult result = op.work(); result != CUDA_SUCCESS) device().broken = result;
  working = before;
}
void advance(CUstream_st& stream, std::size_t position) {
  while (stream.done < position) {
    step(stream);
    if (stream.ops.empty() || stream.ops.front().host == nullptr) continue;
    // The command may need the driver. (No call holds the lock twice here.) Between two cores that
    // only yield, a mutex never reaches a third thread: it has to be free for a while.
    device().mutex.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    device().mutex.lock();
  }
}

}  // namespace

CUresult submit(CUstream stream, std::function<CUresult()> work) {
  FAKE_HANDLE(stream);
  streamOf(stream).ops.push_back({std::move(work)});
  return CUDA_SUCCESS;
}

CUresult submitHost(CUstream stream, const std::function<void()>& function) {
  CUstream_st::Op op;
  op.work = [function] {
    function();
    return CUDA_SUCCESS;
  };
  op.host = std::make_shared<std::atomic<CUstream_st::Host>>(CUstream_st::Host::kQueued);
  CUstream_st& queue = streamOf(stream);
  queue.ops.push_back(std::move(op));
  // Nobody need ask: a thread of the driver sees to it.
  std::thread([&queue, position = queue.submitted()] {
    const std::lock_guard lock(device().mutex);
    advance(queue, position);
  }).detach();
  return CUDA_SUCCESS;
}

CUresult finish(CUstream stream) {
  FAKE_HANDLE(stream);
  advance(streamOf(stream), streamOf(stream).submitted());
  return device().broken;
}

namespace {

CUresult submitCopy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return submit(stream, [=] {
    std::memmove(bytesAt(to), bytesAt(from), bytes);
    return CUDA_SUCCESS;
  });
}

void submitRows(const CUDA_MEMCPY2D& copy, CUstream stream) {
  const auto base = [](CUmemorytype type, const void* host, CUdeviceptr device, CUarray array) {
    return type == CU_MEMORYTYPE_HOST    ? reinterpret_cast<CUdeviceptr>(host)
           : type == CU_MEMORYTYPE_ARRAY ? reinterpret_cast<CUdeviceptr>(array->bytes.data())
                                         : device;
  };
  const auto from = base(copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcArray);
  const auto to = base(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray);
  submit(stream, [=] {
    for (std::size_t row = 0; row < copy.Height; ++row) {
      std::memmove(bytesAt(to + (copy.dstY + row) * copy.dstPitch + copy.dstXInBytes),
                   bytesAt(from + (copy.srcY + row) * copy.srcPitch + copy.srcXInBytes),
                   copy.WidthInBytes);
    }
    return CUDA_SUCCESS;
  });
}

template <typename Value>
CUresult submitSet(CUdeviceptr to, Value value, std::size_t count, CUstream stream) {
  if (backingOf(to) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, [=] {
    std::fill_n(reinterpret_cast<Value*>(backingOf(to)), count, value);
    return CUDA_SUCCESS;
  });
}

CUdeviceptr number(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Addresses without access for the CPU, as those of device memory are; 0: there are none.
CUdeviceptr reserveAddresses(std::size_t bytes) {
  auto* const raw = static_cast<std::byte*>(
      mmap(nullptr, bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (raw == MAP_FAILED) return 0;
  const std::size_t skip = (kPage - number(raw) % kPage) % kPage;
  if (skip != 0) munmap(raw, skip);
  if (skip != kPage) munmap(raw + skip + bytes, kPage - skip);
  if (std::exchange(device().occupyNext, false)) mprotect(raw + skip, 4096, PROT_READ);
  return number(raw + skip);
}

// Fresh memory holds anything; all of it where that is cheap.
std::byte* freshMemory(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memset(memory, 0xA5, std::min<std::size_t>(bytes, 16 << 20));
  return static_cast<std::byte*>(memory);
}

bool mappedWithin(CUdeviceptr address, std::size_t bytes) {
  const auto after = device().memory.lower_bound(address);
  if (after != device().memory.end() && after->first < address + bytes) return true;
  if (after == device().memory.begin()) return false;
  const auto& [start, allocation] = *std::prev(after);
  return start + allocation.bytes > address;
}

void dropPages(CUmemGenericAllocationHandle handle) {
  const auto found = device().pages.find(handle);
  if (--found->second.uses != 0) return;
  close(found->second.file);
  if (found->second.device >= 0 && !found->second.imported) {
    usedOn(found->second.device) -= found->second.bytes;
  }
  device().pages.erase(found);
}

CUresult allocate(CUdeviceptr* address, std::size_t bytes) {
  bytes = (bytes + kPage - 1) / kPage * kPage;
  const CUcontext context = currentContext();
  std::size_t& used = usedOn(context->device);
  const unsigned access = bitOf(context->device);
  if (bytes == 0 || bytes > kMemory - used) return CUDA_ERROR_OUT_OF_MEMORY;
  auto& again = device().again;
  if (!again.empty() && device().memory.count(again.front()) == 0) {
    *address = again.front();
    again.pop_front();
    auto* const backing = static_cast<std::byte*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (backing == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    device().memory[*address] = {bytes, backing, access, context, context->device};
    used += bytes;
    return CUDA_SUCCESS;
  }
  const CUdeviceptr range = reserveAddresses(bytes);
  std::byte* const backing = freshMemory(bytes);
  if (range == 0 || backing == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  device().memory[range] = {bytes, backing, access, context, context->device};
  used += bytes;
  *address = range;
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr address) {
  const auto found = device().memory.find(address);
  if (found == device().memory.end() || found->second.mapped()) return CUDA_ERROR_INVALID_VALUE;
  void* const range = reinterpret_cast<void*>(address);
  const auto& again = device().again;
  if (std::find(again.begin(), again.end(), address) == again.end()) {
    munmap(range, found->second.bytes);
  } else {
    (void)mmap(range, found->second.bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  if (found->second.file >= 0) {
    // An importer holds a lock: what it would read after this is undefined.
    if (!found->second.imported && flock(found->second.file, LOCK_EX | LOCK_NB) != 0) {
      std::fprintf(stderr, "FAILED: memory is freed that another process has imported\n");
      std::abort();
    }
    close(found->second.file);
  }
  munmap(found->second.backing, found->second.bytes);
  usedOn(found->second.device) -= found->second.bytes;
  device().memory.erase(found);
  return CUDA_SUCCESS;
}

// By either kind of handle.
bool isKernel(CUfunction function) { return (number(function) & 1) != 0; }
CUfunction functionOf(CUfunction function) {
  return reinterpret_cast<CUfunction>(number(function) & ~CUdeviceptr{1});
}

CUresult parameterOf(CUfunction function, std::size_t index, std::size_t* offset,
                     std::size_t* bytes) {
  const Kernel& kernel = *function->kernel;
  if (index >= kernel.paramCount) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (std::size_t i = 0; i <= index; ++i) {
    *bytes = kernel.paramSizes[i];
    *offset = (*offset + *bytes - 1) / *bytes * *bytes + (i < index ? *bytes : 0);
  }
  return CUDA_SUCCESS;
}

}  // namespace

std::function<CUresult()> launchOf(CUfunction handle, const unsigned grid[3],
                                   const unsigned block[3], unsigned sharedBytes, void** args,
                                   void** extra) {
  CUfunction const function = functionOf(handle);
  const Kernel& kernel = *function->kernel;
  auto copied = std::make_shared<std::vector<std::vector<std::byte>>>();
  readsArguments = true;
  for (std::size_t i = 0; i < kernel.paramCount; ++i) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    parameterOf(function, i, &offset, &bytes);
    const auto* const first = args != nullptr ? static_cast<const std::byte*>(args[i])
                                              : static_cast<const std::byte*>(extra[1]) + offset;
    copied->emplace_back(first, first + bytes);
  }
  if (args == nullptr && kernel.paramCount != 0) {
    volatile std::size_t size = *static_cast<std::size_t*>(extra[3]);
    static_cast<void>(size);
  }
  readsArguments = false;
  const std::array<unsigned, 3> gridCopy{grid[0], grid[1], grid[2]};
  const std::array<unsigned, 3> blockCopy{block[0], block[1], block[2]};
  return [=] {
    std::vector<void*> pointers;
    for (auto& argument : *copied) pointers.push_back(argument.data());
    return kernel.function(gridCopy.data(), blockCopy.data(), sharedBytes, pointers.data());
  };
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

__attribute__((visibility("default"))) void* fakeCudaBacking(CUdeviceptr address) {
  const std::lock_guard lock(device().mutex);
  return backingOf(address);
}
__attribute__((visibility("default"))) std::size_t fakeCudaCalls(const char* name) {
  const std::lock_guard lock(device().mutex);
  if (name == nullptr) {
    std::size_t all = 0;
    for (const auto& [one, count] : device().calls) all += count;
    return all;
  }
  return device().calls[name];
}
__attribute__((visibility("default"))) void fakeCudaFailNext(const char* name, CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().failNext[name] = {1, code};
}
__attribute__((visibility("default"))) void fakeCudaFailNth(const char* name, std::size_t n,
                                                            CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().failNext.erase(name);
  if (n != 0) device().failNext[name] = {n, code};
}
__attribute__((visibility("default"))) void fakeCudaFailAlways(const char* name, CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().failNext[name] = {0, code};
}
__attribute__((visibility("default"))) void fakeCudaFailAll(CUresult code) {
  const std::lock_guard lock(device().mutex);
  device().broken = code;
}
__attribute__((visibility("default"))) CopiedBytes fakeCudaCopied(int number) {
  const std::lock_guard lock(device().mutex);
  const auto i = static_cast<std::size_t>(number);
  return {device().copiedIn[i], device().copiedOut[i], device().copiedWithin[i]};
}
__attribute__((visibility("default"))) void fakeCudaStandIn(const Image* image) {
  const std::lock_guard lock(device().mutex);
  device().standIn = image;
}
__attribute__((visibility("default"))) void fakeCudaOccupyNext() {
  const std::lock_guard lock(device().mutex);
  device().occupyNext = true;
}
__attribute__((visibility("default"))) void fakeCudaGiveAgain(CUdeviceptr address) {
  const std::lock_guard lock(device().mutex);
  device().again.push_back(address);
}
__attribute__((visibility("default"))) Living fakeCudaLiving() {
  const std::lock_guard lock(device().mutex);
  return {device().living.size(), device().registered.size() + device().given.size(),
          device().reserved.size(), device().pages.size()};
}
__attribute__((visibility("default"))) void fakeCudaReset() {
  const std::lock_guard lock(device().mutex);
  device().calls.clear();
  device().failNext.clear();
  device().registered.clear();
  device().reached.clear();
  device().broken = CUDA_SUCCESS;
}

__attribute__((visibility("default"))) void fakeCudaSetAttribute(CUdevice_attribute attribute,
                                                                 int value) {
  const std::lock_guard lock(device().mutex);
  device().attributes[attribute] = value;
}
__attribute__((visibility("default"))) void fakeCudaStall(CUstream stream) {
  const std::lock_guard lock(device().mutex);
  device().stalled = stream;
}
__attribute__((visibility("default"))) void fakeCudaSetDevices(int count, bool reachEachOther) {
  const std::lock_guard lock(device().mutex);
  device().count = count;
  device().reachEachOther = reachEachOther;
}
__attribute__((visibility("default"))) void fakeCudaCapture(CUstream stream) {
  const std::lock_guard lock(device().mutex);
  device().capturing = stream;
}

#pragma GCC visibility push(default)

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
  *can = number != peer && device().reachEachOther ? 1 : 0;
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

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  FAKE_CALL();
  return allocate(address, bytes);
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  FAKE_CALL();
  *bytes = kPage;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  FAKE_CALL();
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  *address = reserveAddresses(bytes);
  if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const window =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  device().reserved[*address] = {bytes, static_cast<std::byte*>(window)};
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  FAKE_CALL();
  const auto found = device().reserved.find(address);
  if (found == device().reserved.end() || found->second.bytes != bytes ||
      mappedWithin(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(reinterpret_cast<void*>(address), bytes);
  munmap(found->second.window, bytes);
  device().reserved.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  FAKE_CALL();
  const bool onDevice = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const int home = onDevice ? properties->location.id : -1;
  if (bytes == 0 || bytes % kPage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (onDevice && !isDevice(home)) return CUDA_ERROR_INVALID_DEVICE;
  if (onDevice && bytes > kMemory - usedOn(home)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::string name = kPagesName + std::to_string(home);
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  // Fresh pages hold anything; all of them where that is cheap.
  const std::vector<std::byte> anything(std::min<std::size_t>(bytes, 16 << 20), std::byte{0xA5});
  if (pwrite(file, anything.data(), anything.size(), 0) < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (onDevice) usedOn(home) += bytes;
  *handle = ++device().lastPages;
  const bool exportable =
      (properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  device().pages[*handle] = {bytes, file, home, exportable};
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_CALL();
  const auto found = device().pages.find(handle);
  if (found == device().pages.end() || !found->second.exportable || flags != 0 ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int file = dup(found->second.file);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(shareable, &file, sizeof file);
  return CUDA_SUCCESS;
}
// The pages live as long as anybody has them: another process's count, too.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  FAKE_CALL();
  const auto given = static_cast<int>(number(shareable));
  const std::string link = "/proc/self/fd/" + std::to_string(given);
  std::array<char, 256> name{};
  struct stat status {};
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(given, &status) != 0 ||
      readlink(link.c_str(), name.data(), name.size() - 1) < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const char* const described = std::strstr(name.data(), kPagesName);
  if (described == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int home = std::atoi(described + sizeof kPagesName - 1);
  const int file = fcntl(given, F_DUPFD_CLOEXEC, 3);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = ++device().lastPages;
  device().pages[*handle] = {static_cast<std::size_t>(status.st_size), file, home, true, true};
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_CALL();
  if (device().pages.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  dropPages(handle);
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  FAKE_CALL();
  auto range = device().reserved.upper_bound(address);
  const auto pages = device().pages.find(handle);
  if (range == device().reserved.begin() || offset != 0 || pages == device().pages.end() ||
      pages->second.bytes != bytes || address % kPage != 0 || mappedWithin(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  --range;
  if (address + bytes > range->first + range->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  std::byte* const backing = range->second.window + (address - range->first);
  if (mmap(backing, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages->second.file, 0) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++pages->second.uses;
  device().mapped[address] = handle;
  device().memory[address] = {bytes, backing, 0, nullptr, pages->second.device};
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  FAKE_CALL();
  const auto found = device().memory.find(address);
  if (found == device().memory.end() || !found->second.mapped() || found->second.bytes != bytes ||
      count != 1 || access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      !isDevice(access->location.id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUdevice home = found->second.device;
  if (home >= 0 && home != access->location.id && !device().reachEachOther)
    return CUDA_ERROR_INVALID_DEVICE;
  // A kernel that writes what its device may only read ends the process.
  if (found->second.access == 0 || access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const int mode =
        access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mprotect(found->second.backing, bytes, mode) != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  found->second.access |= bitOf(access->location.id);
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  FAKE_CALL();
  const auto found = device().memory.find(address);
  if (found == device().memory.end() || !found->second.mapped() || found->second.bytes != bytes ||
      device().mapped.count(address) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  (void)mmap(found->second.backing, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  device().memory.erase(found);
  dropPages(device().mapped[address]);
  device().mapped.erase(address);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(std::size_t* available, std::size_t* total) {
  FAKE_CALL();
  *available = kMemory - usedOn(currentDevice());
  *total = kMemory;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  FAKE_CALL();
  return release(address);
}
CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  FAKE_CALL();
  *address = ::operator new (bytes, std::align_val_t{4096});
  device().given[*address] = currentContext();
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* address) {
  {
    const std::lock_guard lock(device().mutex);
    if (device().given.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  ::operator delete (address, std::align_val_t{4096});  // gone with a lost device as well
  FAKE_CALL();
  return CUDA_SUCCESS;
}
// Memory for other processes is a file from now on. The handle is where they find it.
struct IpcHandle {
  std::size_t bytes;
  int process;
  int file;
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

// All but pages of zeros, which the file has already.
bool copyToFile(int file, const Allocation& allocation) {
  constexpr std::size_t kPart = 4096;
  static constexpr std::byte kZeros[kPart] = {};
  for (std::size_t at = 0; at < allocation.bytes; at += kPart) {
    if (std::memcmp(allocation.backing + at, kZeros, kPart) != 0 &&
        pwrite(file, allocation.backing + at, kPart, static_cast<off_t>(at)) != kPart) {
      return false;
    }
  }
  return true;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  FAKE_CALL();
  // Of the whole allocation, wherever in it the address lies.
  auto found = device().memory.upper_bound(address);
  if (found == device().memory.begin()) return CUDA_ERROR_INVALID_VALUE;
  --found;
  if (address - found->first >= found->second.bytes || found->second.mapped()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Allocation& allocation = found->second;
  if (allocation.file < 0) {
    const int file = memfd_create("exported", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(allocation.bytes)) != 0 ||
        !copyToFile(file, allocation) ||
        mmap(allocation.backing, allocation.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             file, 0) == MAP_FAILED) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.file = file;
  }
  const IpcHandle made{allocation.bytes, getpid(), allocation.file};
  std::memcpy(handle, &made, sizeof made);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  FAKE_CALL();
  IpcHandle given;
  std::memcpy(&given, &handle, sizeof given);
  // A process does not import its own.
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || given.process == getpid()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::string path =
      "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const CUdeviceptr range = reserveAddresses(given.bytes);
  void* const backing = mmap(nullptr, given.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || range == 0 || backing == MAP_FAILED || flock(file, LOCK_SH | LOCK_NB) != 0) {
    close(file);
    return CUDA_ERROR_MAP_FAILED;
  }
  const CUcontext context = currentContext();
  Allocation& made = device().memory[range] = {given.bytes, static_cast<std::byte*>(backing),
                                               bitOf(context->device), context, context->device};
  made.file = file;
  made.imported = true;
  usedOn(context->device) += given.bytes;
  *address = range;
  return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  FAKE_CALL();
  return release(address);
}
// Where the process's mapping that holds an address ends, and whether other mappings may share it.
std::pair<std::uintptr_t, bool> mappingAt(std::uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, access) == 3 && address >= begin &&
        address < end) {
      return {end, access[3] == 's'};
    }
  }
  return {address, false};
}

// The CPU's pages at reserved addresses where nothing is mapped: the device reaches them there, and
// work reaches them through the window, which becomes a second mapping of them. (Of private ones
// after the first it cannot be: work finds other pages there.)
CUresult mapRegistered(void* address, std::size_t bytes) {
  auto range = device().reserved.upper_bound(number(address));
  if (range == device().reserved.begin()) return CUDA_SUCCESS;
  --range;
  const std::size_t offset = number(address) - range->first;
  if (offset + bytes > range->second.bytes) return CUDA_SUCCESS;
  std::byte* const window = range->second.window + offset;
  for (std::size_t done = 0; done < bytes;) {
    std::byte* const page = static_cast<std::byte*>(address) + done;
    const auto [end, shared] = mappingAt(number(page));
    const std::size_t length = std::min<std::size_t>(end - number(page), bytes - done);
    void* const there = window + done;
    if (length == 0 || (!shared && done == 0) ||
        (shared ? mremap(page, 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, there)
                : mmap(there, length, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)) != there) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    done += length;
  }
  device().memory[number(address)] = {bytes, window, ~0U, nullptr, -1};
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister(void* address, std::size_t bytes, unsigned flags) {
  FAKE_CALL();
  if (mappedWithin(number(address), bytes)) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0) {
    if (const CUresult mapped = mapRegistered(address, bytes); mapped != CUDA_SUCCESS) {
      return mapped;
    }
  }
  if (!device().registered.emplace(address, currentContext()).second) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if ((flags & CU_MEMHOSTREGISTER_PORTABLE) == 0) {
    device().reached[number(address)] = {bytes, currentDevice()};
  }
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void* address) {
  FAKE_CALL();
  if (device().registered.erase(address) == 0) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  device().reached.erase(number(address));
  if (const auto found = device().memory.find(number(address)); found != device().memory.end()) {
    (void)mmap(found->second.backing, found->second.bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    device().memory.erase(found);
  }
  return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* reached, void* address, unsigned) {
  FAKE_CALL();
  if (device().registered.count(address) == 0) return CUDA_ERROR_INVALID_VALUE;
  *reached = number(address);
  return CUDA_SUCCESS;
}

// Memory that was registered for one device alone is out of the others' reach.
bool reaches(CUdevice from, const void* host) {
  auto found = device().reached.upper_bound(number(host));
  if (found == device().reached.begin()) return true;
  --found;
  const auto& [bytes, owner] = found->second;
  return number(host) - found->first >= bytes || owner == from;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  const CUdevice by = streamOf(stream).context->device;
  if (!reaches(by, from)) return CUDA_ERROR_INVALID_VALUE;
  device().copiedIn[static_cast<std::size_t>(by)] += bytes;
  return backingOf(to) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                  : submitCopy(to, number(from), bytes, stream);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  const CUdevice by = streamOf(stream).context->device;
  if (!reaches(by, to)) return CUDA_ERROR_INVALID_VALUE;
  device().copiedOut[static_cast<std::size_t>(by)] += bytes;
  return backingOf(from) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                    : submitCopy(number(to), from, bytes, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  const CUdevice by = streamOf(stream).context->device;
  device().copiedWithin[static_cast<std::size_t>(by)] += bytes;
  return submitCopy(to, from, bytes, stream);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  FAKE_CALL();
  return submitCopy(to, from, bytes, stream);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  FAKE_CALL();
  submitCopy(to, from, bytes, nullptr);
  return finish(nullptr);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  FAKE_CALL();
  if (backingOf(to) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  submitCopy(to, number(from), bytes, nullptr);
  return finish(nullptr);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  FAKE_CALL();
  if (backingOf(from) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  submitCopy(number(to), from, bytes, nullptr);
  return finish(nullptr);
}
CUresult cuMemcpy2D(const CUDA_MEMCPY2D* copy) {
  FAKE_CALL();
  submitRows(*copy, nullptr);
  return finish(nullptr);
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  FAKE_CALL();
  submitRows(*copy, stream);
  return CUDA_SUCCESS;
}
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* copy, CUstream stream) {
  FAKE_CALL();
  for (std::size_t slice = 0; slice < copy->Depth; ++slice) {
    CUDA_MEMCPY2D rows{};
    rows.WidthInBytes = copy->WidthInBytes;
    rows.Height = copy->Height;
    const std::size_t from = slice * copy->srcPitch * copy->srcHeight;
    const std::size_t to = slice * copy->dstPitch * copy->dstHeight;
    rows.srcMemoryType = copy->srcMemoryType;
    rows.srcDevice = copy->srcDevice + from;
    rows.srcHost = static_cast<const std::byte*>(copy->srcHost) + from;
    rows.srcPitch = copy->srcPitch;
    rows.dstMemoryType = copy->dstMemoryType;
    rows.dstDevice = copy->dstDevice + to;
    rows.dstHost = static_cast<std::byte*>(copy->dstHost) + to;
    rows.dstPitch = copy->dstPitch;
    submitRows(rows, stream);
  }
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  FAKE_CALL();
  return submitSet(to, value, count, stream);
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, std::size_t count) {
  FAKE_CALL();
  return submitSet(to, value, count, nullptr);
}
CUresult cuMemsetD32(CUdeviceptr to, unsigned value, std::size_t count) {
  FAKE_CALL();
  return submitSet(to, value, count, nullptr);
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  FAKE_CALL();
  *stream = device().streams.emplace_back(std::make_unique<CUstream_st>()).get();
  (*stream)->context = currentContext();
  device().living.insert(*stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  FAKE_CALL();
  return device().living.erase(stream) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  *context = streamOf(stream).context;
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  FAKE_HANDLE(event);
  if (event->stream != nullptr)
    streamOf(stream).ops.push_back({nullptr, event->stream, event->position});
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_CALL();
  return finish(stream);
}
CUresult cuStreamQuery(CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  step(streamOf(stream));
  if (device().broken != CUDA_SUCCESS) return device().broken;
  return streamOf(stream).ops.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_CALL();
  *status = stream != nullptr && stream == device().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                              : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  count(__func__);
  thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(*mode, own);
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_CALL();
  *event = device().events.emplace_back(std::make_unique<CUevent_st>()).get();
  (*event)->context = currentContext();
  device().living.insert(*event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  FAKE_CALL();
  return device().living.erase(event) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  FAKE_HANDLE(event);
  if (streamOf(stream).context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  event->stream = &streamOf(stream);
  event->position = event->stream->submitted();
  event->others.clear();
  return CUDA_SUCCESS;
}
CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  FAKE_CALL();
  FAKE_HANDLE(event);
  if (context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  event->stream = &context->legacy;
  event->position = event->stream->submitted();
  event->others.clear();
  for (const auto& stream : device().streams) {
    if (stream->context == context) event->others.emplace_back(stream.get(), stream->submitted());
  }
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  FAKE_CALL();
  FAKE_HANDLE(event);
  for (const auto& [stream, position] : event->others) {
    if (stream->done >= position) continue;
    step(*stream);
    return device().broken != CUDA_SUCCESS ? device().broken : CUDA_ERROR_NOT_READY;
  }
  if (event->stream == nullptr || event->stream->done >= event->position) return CUDA_SUCCESS;
  step(*event->stream);
  if (device().broken != CUDA_SUCCESS) return device().broken;
  return event->stream->done >= event->position ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  FAKE_CALL();
  FAKE_HANDLE(start);
  FAKE_HANDLE(end);
  for (const CUevent event : {start, end}) {
    if (event->stream != nullptr && event->stream->done < event->position) {
      step(*event->stream);
      return CUDA_ERROR_NOT_READY;
    }
  }
  *milliseconds = 1;
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
  FAKE_CALL();
  FAKE_HANDLE(event);
  if (event->stream != nullptr) advance(*event->stream, event->position);
  return device().broken;
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* data, unsigned, CUjit_option*, void**) {
  FAKE_CALL();
  const auto* image = static_cast<const Image*>(data);
  if (std::memcmp(image->magic, gmac::fake_cuda::kImageMagic, sizeof image->magic) != 0) {
    image = device().standIn;
  }
  if (image == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  auto& loaded = *device().modules.emplace_back(std::make_unique<CUmod_st>());
  loaded.image = image;
  loaded.context = currentContext();
  for (std::size_t i = 0; i < image->globalCount; ++i) {
    CUdeviceptr address = 0;
    if (const CUresult result = allocate(&address, image->globals[i].bytes); result != CUDA_SUCCESS)
      return result;
    loaded.globals.push_back(address);
    *image->globals[i].address = address;
  }
  *module = &loaded;
  device().living.insert(&loaded);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  FAKE_CALL();
  if (device().living.erase(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUdeviceptr address : module->globals) release(address);
  module->globals.clear();
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_CALL();
  FAKE_HANDLE(module);
  for (std::size_t i = 0; i < module->image->kernelCount; ++i) {
    if (std::strcmp(module->image->kernels[i].name, name) != 0) continue;
    *function =
        device()
            .functions.emplace_back(new CUfunc_st{module->context, &module->image->kernels[i]})
            .get();
    device().living.insert(*function);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuModuleGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUmodule module,
                           const char* name) {
  FAKE_CALL();
  FAKE_HANDLE(module);
  for (std::size_t i = 0; i < module->globals.size(); ++i) {
    if (std::strcmp(module->image->globals[i].name, name) != 0) continue;
    *address = module->globals[i];
    *bytes = module->image->globals[i].bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int value) {
  FAKE_CALL();
  if (value > 200 << 10) return CUDA_ERROR_INVALID_VALUE;
  function->maxSharedBytes = value;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                        unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                        CUstream stream, void** args, void** extra) {
  FAKE_CALL();
  FAKE_HANDLE(functionOf(function));
  FAKE_HANDLE(stream);
  const unsigned long threads =
      1UL * std::min(blockX, 4096u) * std::min(blockY, 4096u) * std::min(blockZ, 4096u);
  if (gridX == 0 || gridY == 0 || gridZ == 0 || gridY > 65535 || gridZ > 65535 || threads == 0 ||
      threads > kMaxBlockThreads ||
      static_cast<int>(sharedBytes) > functionOf(function)->maxSharedBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (streamOf(stream).context != currentContext()) return CUDA_ERROR_INVALID_HANDLE;
  const unsigned grid[] = {gridX, gridY, gridZ};
  const unsigned block[] = {blockX, blockY, blockZ};
  return submit(stream, launchOf(function, grid, block, sharedBytes, args, extra));
}
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                            std::size_t* bytes) {
  FAKE_CALL();
  if (isKernel(function)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_HANDLE(function);
  return parameterOf(function, index, offset, bytes);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                              std::size_t* bytes) {
  FAKE_CALL();
  const auto function = reinterpret_cast<CUfunction>(kernel);
  if (!isKernel(function)) return CUDA_ERROR_INVALID_HANDLE;
  FAKE_HANDLE(functionOf(function));
  return parameterOf(functionOf(function), index, offset, bytes);
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
