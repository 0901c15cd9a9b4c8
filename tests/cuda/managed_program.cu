// SPDX-License-Identifier: Apache-2.0
//
// A program written for managed memory, not linked with this library: every call that managed mode
// replaces, in cases. managed_program NAME runs one; it ends with status 0, or reports the failure
// and ends with 1, or with GMAC_MANAGED_NO_DEVICE. It must also pass with real managed memory: it
// expects only what programs may expect.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/cuda/gpu_program.h"
#include "tests/cuda/managed_cases.h"

using namespace gmac::gpu_program;  // NOLINT: a program, not a library

namespace {

constexpr int kCount = 3 << 20;
constexpr std::size_t kBytes = kCount * sizeof(int);

__global__ void increment(int* data, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) ++data[i];
}

void launch(int* data, cudaStream_t stream, int count = kCount) {
  increment<<<(count + 255) / 256, 256, 0, stream>>>(data, count);
  CHECK(cudaGetLastError());
}

__global__ void addTable(int* data, const int* table, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) data[i] += table[i];
}

// Managed memory whose elements are their indices.
struct Managed {
  explicit Managed(int elements = kCount, unsigned flags = cudaMemAttachGlobal) : count(elements) {
    CHECK(cudaMallocManaged(&data, elements * sizeof(int), flags));
    std::iota(data, data + elements, 0);
  }
  ~Managed() { cudaFree(data); }
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;
  void expectMore(int more, int line) const {
    for (int i = 0; i < count; ++i) {
      if (data[i] == i + more) continue;
      throw Failed{"line " + std::to_string(line) + ": element " + std::to_string(i) + " is " +
                   std::to_string(data[i]) + ", not " + std::to_string(i + more)};
    }
  }
  operator int*() const { return data; }
  int* data = nullptr;
  const int count;
};
#define EXPECT_MORE(managed, more) (managed).expectMore(more, __LINE__)

struct Device {
  explicit Device(std::size_t bytes = kBytes) { CHECK(cudaMalloc(&data, bytes)); }
  ~Device() { cudaFree(data); }
  int* data = nullptr;
};

cudaMemLocation onGpu() {
  int device = 0;
  CHECK(cudaGetDevice(&device));
  return {cudaMemLocationTypeDevice, device};
}
const cudaMemLocation kOnCpu{cudaMemLocationTypeHost, 0};

bool concurrent() {
  int device = 0;
  int value = 0;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrConcurrentManagedAccess, device));
  return value != 0;
}

// ---- The cases

void allocatesAndFails() {
  int* data = nullptr;
  // Nothing, which CUDA's runtime gives by itself and takes back.
  CHECK(cudaMallocManaged(&data, 0));
  CHECK(cudaFree(data));
  EXPECT_ERROR(cudaMallocManaged(&data, 100, 77), cudaErrorInvalidValue);
  EXPECT_ERROR(cudaMallocManaged(&data, std::size_t{1} << 50), cudaErrorMemoryAllocation);
  CHECK(cudaMallocManaged(&data, 1));
  *reinterpret_cast<char*>(data) = 7;
  CHECK(cudaFree(data));
  // Many small ones, of which each is its own.
  std::vector<int*> small(3000);
  for (std::size_t i = 0; i < small.size(); ++i) {
    CHECK(cudaMallocManaged(&small[i], 24));
    small[i][0] = static_cast<int>(i);
  }
  launch(small[17], nullptr, 6);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQUAL(small[17][0], 18);
  EXPECT_EQUAL(small[18][0], 18);
  for (int* one : small) CHECK(cudaFree(one));
}

void frees() {
  CHECK(cudaFree(nullptr));
  int* data = nullptr;
  CHECK(cudaMallocManaged(&data, kBytes));
  launch(data, nullptr);
  CHECK(cudaFree(data));  // waits for the kernel
  EXPECT_ERROR(cudaFree(data), cudaErrorInvalidValue);
  for (int i = 0; i < 20; ++i) {
    Managed again;
    launch(again, nullptr);
    CHECK(cudaDeviceSynchronize());
    EXPECT_MORE(again, 1);
  }
}

void launchesAndReads() {
  Managed data;
  Stream stream;
  for (int round = 1; round <= 3; ++round) {
    launch(data, nullptr);
    CHECK(cudaDeviceSynchronize());
    EXPECT_MORE(data, round);
  }
  for (int round = 4; round <= 6; ++round) {
    launch(data, stream);
    stream.wait();
    EXPECT_MORE(data, round);
    data[round] += 100;
    launch(data, cudaStreamPerThread);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    EXPECT_EQUAL(data[round], round + round + 101);
    data[round] -= 101;
    std::for_each(data.data, data.data + kCount, [](int& value) { --value; });
    data[round] += 1;
  }
}

// Between kernels and CPU without a word, as where accesses are not concurrent, it would be wrong;
// here the CPU waits for what it touches.
void readsWithoutWaiting() {
  Managed data;
  launch(data, nullptr);
  CHECK(cudaDeviceSynchronize());
  data[0] = 50;
  launch(data, nullptr);
  CHECK(cudaStreamSynchronize(nullptr));
  EXPECT_EQUAL(data[0], 51);
  EXPECT_EQUAL(data[kCount - 1], kCount + 1);
}

struct Node {
  int value;
  Node* next;
};
__global__ void incrementList(Node* node) {
  for (; node != nullptr; node = node->next) ++node->value;
}

void followsPointers() {
  Node* head = nullptr;
  for (int i = 0; i < 2000; ++i) {
    Node* node = nullptr;
    CHECK(cudaMallocManaged(&node, sizeof *node));
    *node = {i, head};
    head = node;
  }
  // Allocated straight into a node that a kernel has written.
  incrementList<<<1, 1>>>(head);
  CHECK(cudaDeviceSynchronize());
  Node* last = head;
  while (last->next != nullptr) last = last->next;
  incrementList<<<1, 1>>>(head);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMallocManaged(&last->next, sizeof(Node)));
  *last->next = {-1, nullptr};
  incrementList<<<1, 1>>>(head);
  CHECK(cudaDeviceSynchronize());
  int expected = 1999 + 3;
  for (Node* node = head; node != last->next; node = node->next)
    EXPECT_EQUAL(node->value, expected--);
  EXPECT_EQUAL(last->next->value, 0);
  while (head != nullptr) {
    Node* const next = head->next;
    CHECK(cudaFree(head));
    head = next;
  }
}

void answersForPointers() {
  Managed data;
  cudaPointerAttributes attributes{};
  CHECK(cudaPointerGetAttributes(&attributes, data + 5));
  EXPECT_EQUAL(attributes.type, cudaMemoryTypeManaged);
  EXPECT(attributes.devicePointer == data + 5);
  EXPECT(attributes.hostPointer == data + 5);
  EXPECT_EQUAL(attributes.device, 0);
  Device device;
  CHECK(cudaPointerGetAttributes(&attributes, device.data));
  EXPECT_EQUAL(attributes.type, cudaMemoryTypeDevice);
  int* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, 4096));
  CHECK(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT_EQUAL(attributes.type, cudaMemoryTypeHost);
  CHECK(cudaFreeHost(pinned));
  int plain = 0;
  CHECK(cudaPointerGetAttributes(&attributes, &plain));
  EXPECT_EQUAL(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_ERROR(cudaFreeHost(data.data), cudaErrorInvalidValue);
}

void answersForRanges() {
  if (!concurrent()) return;
  Managed data;
  const auto ask = [&](cudaMemRangeAttribute attribute, std::size_t bytes) {
    int value = -99;
    CHECK(cudaMemRangeGetAttribute(&value, sizeof value, attribute, data, bytes));
    return value;
  };
  EXPECT_EQUAL(ask(cudaMemRangeAttributeReadMostly, kBytes), 0);
  EXPECT_EQUAL(ask(cudaMemRangeAttributePreferredLocation, kBytes), cudaInvalidDeviceId);
  EXPECT_EQUAL(ask(cudaMemRangeAttributeLastPrefetchLocation, kBytes), cudaInvalidDeviceId);
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseSetReadMostly, onGpu()));
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseSetPreferredLocation, onGpu()));
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseSetAccessedBy, kOnCpu));
  EXPECT_EQUAL(ask(cudaMemRangeAttributeReadMostly, kBytes), 1);
  EXPECT_EQUAL(ask(cudaMemRangeAttributePreferredLocation, kBytes), onGpu().id);
  int by[2] = {7, 7};
  CHECK(cudaMemRangeGetAttribute(by, sizeof by, cudaMemRangeAttributeAccessedBy, data, kBytes));
  EXPECT_EQUAL(by[0], cudaCpuDeviceId);
  EXPECT_EQUAL(by[1], cudaInvalidDeviceId);
  CHECK(cudaMemAdvise(data, 1 << 20, cudaMemAdviseUnsetReadMostly, onGpu()));
  EXPECT_EQUAL(ask(cudaMemRangeAttributeReadMostly, kBytes), 0);
  CHECK(cudaMemAdvise(data, kBytes, cudaMemAdviseUnsetPreferredLocation, onGpu()));
  EXPECT_EQUAL(ask(cudaMemRangeAttributePreferredLocation, kBytes), cudaInvalidDeviceId);
  EXPECT_ERROR(cudaMemAdvise(data, kBytes, cudaMemAdviseSetPreferredLocation,
                             cudaMemLocation{cudaMemLocationTypeDevice, 99}),
               cudaErrorInvalidValue);
  int odd = 0;
  EXPECT_ERROR(
      cudaMemRangeGetAttribute(&odd, 3, cudaMemRangeAttributeReadMostly, data.data, kBytes),
      cudaErrorInvalidValue);
  EXPECT_MORE(data, 0);
}

void prefetchesBothWays() {
  if (!concurrent()) return;
  Managed data;
  Stream stream;
  for (int round = 1; round <= 4; ++round) {
    CHECK(cudaMemPrefetchAsync(data, kBytes, onGpu(), 0, stream));
    launch(data, stream);
    CHECK(cudaMemPrefetchAsync(data, kBytes, kOnCpu, 0, stream));
    stream.wait();
    EXPECT_MORE(data, round);
  }
  // Part of it, and the wrong moment: only slow.
  data[0] = 100;
  CHECK(cudaMemPrefetchAsync(data + 1000, 4000, onGpu(), 0, nullptr));
  launch(data, nullptr);
  CHECK(cudaMemPrefetchAsync(data, 4000, kOnCpu, 0, nullptr));
  launch(data, nullptr);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQUAL(data[0], 102);
  EXPECT_EQUAL(data[kCount - 1], kCount - 1 + 6);
  int last = -99;
  CHECK(cudaMemRangeGetAttribute(&last, sizeof last, cudaMemRangeAttributeLastPrefetchLocation,
                                 data + 2048, 4096));
  EXPECT_EQUAL(last, cudaCpuDeviceId);
  EXPECT_ERROR(cudaMemPrefetchAsync(data.data, kBytes,
                                    cudaMemLocation{cudaMemLocationTypeDevice, 99}, 0, nullptr),
               cudaErrorInvalidDevice);
}

void readsMostlyAndWrites() {
  Managed data;
  Managed table;
  if (concurrent()) CHECK(cudaMemAdvise(table, kBytes, cudaMemAdviseSetReadMostly, onGpu()));
  for (int round = 1; round <= 3; ++round) {
    addTable<<<(kCount + 255) / 256, 256>>>(data, table, kCount);
    CHECK(cudaDeviceSynchronize());
    EXPECT_MORE(table, 0);
    EXPECT_EQUAL(data[10], 10 * (round + 1));
  }
  table[10] = 1000;
  addTable<<<(kCount + 255) / 256, 256>>>(data, table, kCount);
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQUAL(data[10], 1040);
  table[10] = 10;
  // Mostly: a kernel may write it.
  launch(table, nullptr);
  CHECK(cudaDeviceSynchronize());
  EXPECT_MORE(table, 1);
}

// Read-mostly memory that is written after all: at a few places, by kernels that the program learns
// the end of in different ways.
void writesALittleOfWhatIsReadMostly() {
  Managed table;
  Managed result;
  Stream first;
  Stream second;
  if (concurrent()) CHECK(cudaMemAdvise(table, kBytes, cudaMemAdviseSetReadMostly, onGpu()));
  std::vector<int> expected(table.data, table.data + kCount);
  const auto compare = [&](int line) {
    for (int i = 0; i < kCount; ++i) {
      if (table[i] == expected[i]) continue;
      throw Failed{"line " + std::to_string(line) + ": element " + std::to_string(i) + " is " +
                   std::to_string(table[i]) + ", not " + std::to_string(expected[i])};
    }
  };
  const auto write = [&](int at, cudaStream_t stream) {
    launch(table + at, stream, 1);
    ++expected[at];
  };
  const auto onlyRead = [&](cudaStream_t stream) {
    addTable<<<(kCount + 255) / 256, 256, 0, stream>>>(result, table, kCount);
    CHECK(cudaGetLastError());
  };
  onlyRead(first);
  first.wait();
  compare(__LINE__);
  write(0, first);
  write(kCount - 1, first);
  first.wait();
  compare(__LINE__);
  // Two streams, an event, and a write of the CPU between.
  write(kCount / 2, first);
  onlyRead(second);
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CHECK(cudaEventRecord(event, first));
  CHECK(cudaStreamWaitEvent(second, event, 0));
  write(kCount / 2, second);
  second.wait();
  CHECK(cudaEventSynchronize(event));
  compare(__LINE__);
  table[77] = expected[77] = -5;
  write(77, second);
  second.wait();
  compare(__LINE__);
  // A kernel that takes the CPU's write back.
  table[1000] = expected[1000] - 1;
  launch(table + 1000, first, 1);
  first.wait();
  compare(__LINE__);
  // A copy that waits, of something else.
  Device other;
  write(5, nullptr);
  int plain = 0;
  CHECK(cudaMemcpy(&plain, other.data, sizeof plain, cudaMemcpyDeviceToHost));
  compare(__LINE__);
  // A function of the CPU after the kernel.
  write(123456, first);
  struct Seen {
    const int* at;
    int value;
  } seen{table + 123456, 0};
  CHECK(cudaLaunchHostFunc(
      first,
      [](void* argument) {
        auto* const what = static_cast<Seen*>(argument);
        what->value = *what->at;
      },
      &seen));
  first.wait();
  EXPECT_EQUAL(seen.value, expected[123456]);
  compare(__LINE__);
  // Brought back ahead.
  write(kCount / 3, first);
  first.wait();
  if (concurrent()) CHECK(cudaMemPrefetchAsync(table, kBytes, kOnCpu, 0, first));
  first.wait();
  compare(__LINE__);
  // All of it, again and again.
  for (int round = 0; round < 6; ++round) {
    launch(table, first);
    first.wait();
    for (int& value : expected) ++value;
    compare(__LINE__);
  }
  CHECK(cudaEventDestroy(event));
}

void attaches() {
  Stream first;
  Stream second;
  Managed one;
  Managed two;
  CHECK(cudaStreamAttachMemAsync(first, one.data, 0, cudaMemAttachSingle));
  CHECK(cudaStreamAttachMemAsync(second, two.data, kBytes, cudaMemAttachSingle));
  first.wait();
  second.wait();
  for (int round = 1; round <= 3; ++round) {
    launch(one, first);
    launch(two, second);
    first.wait();
    EXPECT_MORE(one, round);
    second.wait();
    EXPECT_MORE(two, round);
  }
  CHECK(cudaStreamAttachMemAsync(first, one.data, 0, cudaMemAttachHost));
  first.wait();
  EXPECT_MORE(one, 3);
  CHECK(cudaStreamAttachMemAsync(first, one.data, 0, cudaMemAttachGlobal));
  launch(one, first);
  first.wait();
  EXPECT_MORE(one, 4);
  EXPECT_ERROR(cudaStreamAttachMemAsync(nullptr, one.data, 0, cudaMemAttachSingle),
               cudaErrorInvalidValue);
  Managed host(kCount, cudaMemAttachHost);
  EXPECT_MORE(host, 0);
  CHECK(cudaStreamAttachMemAsync(second, host.data, 0, cudaMemAttachSingle));
  launch(host, second);
  second.wait();
  EXPECT_MORE(host, 1);
}

void copiesInEveryDirection() {
  Managed data;
  Managed other;
  Device device;
  Stream stream;
  std::vector<int> plain(kCount);
  launch(data, nullptr);
  CHECK(cudaMemcpy(plain.data(), data, kBytes, cudaMemcpyDeviceToHost));
  EXPECT_EQUAL(plain[7], 8);
  CHECK(cudaMemcpy(device.data, data, kBytes, cudaMemcpyHostToDevice));
  std::fill_n(data.data, kCount, 0);
  CHECK(cudaMemcpy(data, device.data, kBytes, cudaMemcpyDeviceToHost));
  EXPECT_MORE(data, 1);
  CHECK(cudaMemcpy(other, data, kBytes, cudaMemcpyDefault));
  EXPECT_MORE(other, 1);
  launch(other, nullptr);
  CHECK(cudaMemcpy(data, other, kBytes, cudaMemcpyDeviceToDevice));
  EXPECT_MORE(data, 2);
  launch(other, nullptr);
  CHECK(cudaMemcpy(data, other, kBytes, cudaMemcpyHostToHost));
  EXPECT_MORE(data, 3);
  std::iota(plain.begin(), plain.end(), 4);
  CHECK(cudaMemcpy(data, plain.data(), kBytes, cudaMemcpyHostToDevice));
  EXPECT_MORE(data, 4);
  CHECK(cudaMemcpyAsync(device.data, data, kBytes, cudaMemcpyDefault, stream));
  launch(device.data, stream);
  CHECK(cudaMemcpyAsync(other, device.data, kBytes, cudaMemcpyDefault, stream));
  launch(other, stream);
  stream.wait();
  EXPECT_MORE(other, 6);
  data[99] = -1;
  CHECK(cudaMemcpy(data + 100, plain.data(), 400, cudaMemcpyDefault));
  EXPECT_EQUAL(data[99], -1);
  EXPECT_EQUAL(data[100], 4);
  EXPECT_EQUAL(data[200], 204);
  CHECK(cudaMemcpyPeer(data, 0, other, 0, kBytes));
  EXPECT_MORE(data, 6);
  CHECK(cudaMemcpyPeerAsync(other, 0, device.data, 0, kBytes, stream));
  stream.wait();
  EXPECT_MORE(other, 5);
}

void copiesRowsAndBlocks() {
  Managed data;
  std::vector<int> small(20, 5);
  data[1003] = 31;
  CHECK(cudaMemcpy2D(data + 1004, 4000, small.data(), 8, 8, 10, cudaMemcpyDefault));
  EXPECT_EQUAL(data[1003], 31);
  EXPECT_EQUAL(data[1004], 5);
  EXPECT_EQUAL(data[1006], 1006);
  EXPECT_EQUAL(data[10005], 5);
  EXPECT_EQUAL(data[11004], 11004);
  launch(data, nullptr);
  CHECK(cudaMemcpy2DAsync(small.data(), 8, data + 1004, 4000, 8, 10, cudaMemcpyDeviceToHost,
                          nullptr));
  CHECK(cudaStreamSynchronize(nullptr));
  EXPECT_EQUAL(small[0], 6);
  EXPECT_EQUAL(small[19], 6);
  // 4 bytes wide, 3 rows of 16, 2 layers of 4 rows.
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(data + 2000, 16, 4, 4);
  copy.dstPtr = make_cudaPitchedPtr(data + 3000, 16, 4, 4);
  copy.extent = make_cudaExtent(4, 3, 2);
  copy.kind = cudaMemcpyDefault;
  CHECK(cudaMemcpy3D(&copy));
  EXPECT_EQUAL(data[3000], 2001);
  EXPECT_EQUAL(data[3001], 3002);
  EXPECT_EQUAL(data[3008], 2009);
  EXPECT_EQUAL(data[3016], 2017);
  EXPECT_EQUAL(data[3024], 2025);
  EXPECT_EQUAL(data[3012], 3013);
}

void fills() {
  Managed data;
  Stream stream;
  CHECK(cudaMemset(data, 1, 400));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQUAL(data[99], 0x01010101);
  EXPECT_EQUAL(data[100], 100);
  launch(data, stream);
  CHECK(cudaMemsetAsync(data + 1000, 0, 4000, stream));
  launch(data, stream);
  stream.wait();
  EXPECT_EQUAL(data[999], 1001);
  EXPECT_EQUAL(data[1000], 1);
  EXPECT_EQUAL(data[1999], 1);
  EXPECT_EQUAL(data[2000], 2002);
  CHECK(cudaMemset2D(data + 5000, 4000, 0, 8, 3));
  CHECK(cudaDeviceSynchronize());
  EXPECT_EQUAL(data[5001], 0);
  EXPECT_EQUAL(data[5002], 5004);
  EXPECT_EQUAL(data[7001], 0);
  EXPECT_EQUAL(data[8000], 8002);
}

void copiesToAndFromArrays() {
  Managed data;
  Stream stream;
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
  CHECK(cudaMallocArray(&array, &format, 64, 16));
  launch(data, nullptr);
  CHECK(cudaMemcpy2DToArray(array, 0, 0, data, 64 * 4, 64 * 4, 16, cudaMemcpyDefault));
  CHECK(cudaMemcpy2DFromArray(data + 10000, 64 * 4, array, 0, 0, 64 * 4, 16, cudaMemcpyDefault));
  EXPECT_EQUAL(data[9999], 10000);
  EXPECT_EQUAL(data[10000], 1);
  EXPECT_EQUAL(data[10000 + 1023], 1024);
  EXPECT_EQUAL(data[10000 + 1024], 10000 + 1025);
  data[3] = 99;
  CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, data, 64 * 4, 64 * 4, 16, cudaMemcpyHostToDevice,
                                 stream));
  CHECK(cudaMemcpy2DFromArrayAsync(data + 20000, 64 * 4, array, 0, 0, 64 * 4, 16,
                                   cudaMemcpyDeviceToHost, stream));
  stream.wait();
  EXPECT_EQUAL(data[20003], 99);
  CHECK(cudaFreeArray(array));
}

void copiesBatches() {
#if CUDART_VERSION >= 13000
  Managed data;
  Device device;
  Stream stream;
  std::vector<int> plain(1000, 9);
  launch(data, stream);
  void* to[] = {device.data, data + 5000};
  const void* from[] = {data.data, plain.data()};
  std::size_t sizes[] = {4000, 4000};
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t index = 0;
  CHECK(cudaMemcpyBatchAsync(to, from, sizes, 2, &attributes, &index, 1, stream));
  launch(data, stream);
  stream.wait();
  EXPECT_EQUAL(data[4999], 5001);
  EXPECT_EQUAL(data[5000], 10);
  EXPECT_EQUAL(data[5999], 10);
  EXPECT_EQUAL(data[6000], 6002);
  CHECK(cudaMemcpy(plain.data(), device.data, 4000, cudaMemcpyDefault));
  EXPECT_EQUAL(plain[7], 8);
#endif
}

void usesOtherMemoryBeside() {
  Managed data;
  Managed table;
  Device device;
  int* pinned = nullptr;
  CHECK(cudaMallocHost(&pinned, kBytes));
  std::vector<int> registered(kCount, 3);
  CHECK(cudaHostRegister(registered.data(), kBytes, cudaHostRegisterMapped));
  int* mapped = nullptr;
  CHECK(cudaHostGetDevicePointer(&mapped, registered.data(), 0));
  std::fill_n(pinned, kCount, 2);
  // Device, pinned, mapped and managed memory in kernels and copies of one stream.
  Stream stream;
  CHECK(cudaMemcpyAsync(device.data, pinned, kBytes, cudaMemcpyHostToDevice, stream));
  addTable<<<(kCount + 255) / 256, 256, 0, stream>>>(data, device.data, kCount);
  addTable<<<(kCount + 255) / 256, 256, 0, stream>>>(data, pinned, kCount);
  addTable<<<(kCount + 255) / 256, 256, 0, stream>>>(data, mapped, kCount);
  addTable<<<(kCount + 255) / 256, 256, 0, stream>>>(device.data, table, kCount);
  CHECK(cudaMemcpyAsync(pinned, device.data, kBytes, cudaMemcpyDeviceToHost, stream));
  stream.wait();
  EXPECT_MORE(data, 2 + 2 + 3);
  EXPECT_EQUAL(pinned[kCount - 1], kCount - 1 + 2);
  CHECK(cudaHostUnregister(registered.data()));
  CHECK(cudaFreeHost(pinned));
}

void replaysGraphs() {
  Managed data;
  Managed copy;
  Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launch(data, stream);
  CHECK(cudaMemcpyAsync(copy, data, kBytes, cudaMemcpyDefault, stream));
  CHECK(cudaMemsetAsync(copy, 0, 400, stream));
  launch(copy, stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int round = 1; round <= 3; ++round) {
    CHECK(cudaGraphLaunch(executable, stream));
    stream.wait();
    EXPECT_MORE(data, round);
    EXPECT_EQUAL(copy[99], 1);
    EXPECT_EQUAL(copy[100], 100 + round + 1);
    data[5] += 1;
    data[5] -= 1;
  }
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
}

void buildsGraphs() {
  Managed data;
  Managed copy;
  std::vector<int> plain(1000, 9);
  Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t kernel, move, fill, in;
  int* pointer = data;
  int count = kCount;
  void* args[] = {&pointer, &count};
  cudaKernelNodeParams launchOf{};
  launchOf.func = reinterpret_cast<void*>(increment);
  launchOf.gridDim = dim3((kCount + 255) / 256);
  launchOf.blockDim = dim3(256);
  launchOf.kernelParams = args;
  CHECK(cudaGraphAddKernelNode(&kernel, graph, nullptr, 0, &launchOf));
  CHECK(cudaGraphAddMemcpyNode1D(&move, graph, &kernel, 1, copy.data, data.data, kBytes,
                                 cudaMemcpyDefault));
  cudaMemsetParams fillOf{};
  fillOf.dst = copy.data;
  fillOf.elementSize = 4;
  fillOf.value = 77;
  fillOf.width = 100;
  fillOf.height = 1;
  CHECK(cudaGraphAddMemsetNode(&fill, graph, &move, 1, &fillOf));
  CHECK(cudaGraphAddMemcpyNode1D(&in, graph, &fill, 1, copy + 1000, plain.data(), 4000,
                                 cudaMemcpyHostToDevice));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int round = 1; round <= 2; ++round) {
    CHECK(cudaGraphLaunch(executable, stream));
    stream.wait();
    EXPECT_MORE(data, round);
    EXPECT_EQUAL(copy[99], 77);
    EXPECT_EQUAL(copy[100], 100 + round);
    EXPECT_EQUAL(copy[1000], 9);
    EXPECT_EQUAL(copy[2000], 2000 + round);
  }
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
}

void doubleAll(void* argument) {
  int* const data = static_cast<int*>(argument);
  for (int i = 0; i < kCount; ++i) data[i] *= 2;
}
void doubleAllCallback(cudaStream_t, cudaError_t error, void* argument) {
  if (error == cudaSuccess) doubleAll(argument);
}

void runsHostFunctions() {
  if (!concurrent()) return;  // there the CPU may not touch managed memory beside device work
  Managed data;
  Stream stream;
  launch(data, stream);
  CHECK(cudaLaunchHostFunc(stream, doubleAll, data.data));
  launch(data, stream);
  CHECK(cudaStreamAddCallback(stream, doubleAllCallback, data.data, 0));
  launch(data, stream);
  stream.wait();
  for (int i = 0; i < kCount; ++i) EXPECT_EQUAL(data[i], ((i + 1) * 2 + 1) * 2 + 1);
  // A synchronous copy after one, on the stream that everything waits for.
  CHECK(cudaLaunchHostFunc(nullptr, doubleAll, data.data));
  int seen = 0;
  CHECK(cudaMemcpy(&seen, data + 1, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQUAL(seen, 22);
}

void waitsForEvents() {
  Managed data;
  Stream first;
  Stream second;
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreate(&event));
  for (int round = 0; round < 10; ++round) {
    launch(data, first);
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(second, event, 0));
    launch(data, second);
    CHECK(cudaEventRecord(event, second));
    CHECK(cudaStreamWaitEvent(first, event, 0));
  }
  cudaError_t state = cudaErrorNotReady;
  while ((state = cudaEventQuery(event)) == cudaErrorNotReady) {
  }
  CHECK(state);
  EXPECT_MORE(data, 20);
  launch(data, first);
  CHECK(cudaEventRecord(event, first));
  CHECK(cudaEventSynchronize(event));
  EXPECT_MORE(data, 21);
  launch(data, first);
  while ((state = cudaStreamQuery(first)) == cudaErrorNotReady) {
  }
  CHECK(state);
  EXPECT_MORE(data, 22);
  CHECK(cudaEventDestroy(event));
}

void usesTwoThreads() {
  std::atomic<int> wrong{0};
  const auto program = [&] {
    try {
      Managed mine;
      Stream stream;
      for (int round = 1; round <= 30; ++round) {
        launch(mine, stream);
        stream.wait();
        EXPECT_MORE(mine, round);
        mine[round] += 1;
        mine[round] -= 1;
      }
    } catch (const Failed& failed) {
      std::printf("%s\n", failed.what.c_str());
      ++wrong;
    }
  };
  std::thread first(program);
  std::thread second(program);
  first.join();
  second.join();
  EXPECT_EQUAL(wrong.load(), 0);
}

// CUDA calls that write their answers to addresses that a kernel has written before.
void takesResultsInManagedMemory() {
  struct Results {
    int* device;
    cudaStream_t stream;
    cudaEvent_t before, after;
    float milliseconds;
    int ordinal;
    cudaPointerAttributes attributes;
    cudaDeviceProp properties;
    std::size_t free, total;
  };
  Results* results = nullptr;
  CHECK(cudaMallocManaged(&results, std::max(sizeof *results, std::size_t{1} << 20)));
  const auto closed = [&] {
    launch(reinterpret_cast<int*>(results) + (1 << 17), nullptr, 100);
    CHECK(cudaDeviceSynchronize());
    return results;
  };
  CHECK(cudaMalloc(&closed()->device, 1000));
  CHECK(cudaStreamCreate(&closed()->stream));
  CHECK(cudaEventCreate(&closed()->before));
  CHECK(cudaEventCreate(&closed()->after));
  CHECK(cudaEventRecord(results->before, results->stream));
  CHECK(cudaEventRecord(results->after, results->stream));
  CHECK(cudaStreamSynchronize(results->stream));
  CHECK(cudaEventElapsedTime(&closed()->milliseconds, results->before, results->after));
  EXPECT(results->milliseconds >= 0 && results->milliseconds < 1e6f);
  CHECK(cudaGetDevice(&closed()->ordinal));
  EXPECT_EQUAL(results->ordinal, 0);
  CHECK(cudaPointerGetAttributes(&closed()->attributes, results));
  EXPECT_EQUAL(results->attributes.type, cudaMemoryTypeManaged);
  CHECK(cudaGetDeviceProperties(&closed()->properties, 0));
  EXPECT(results->properties.multiProcessorCount > 0);
  CHECK(cudaMemGetInfo(&closed()->free, &results->total));
  EXPECT(results->free > 0 && results->free <= results->total);
  CHECK(cudaStreamDestroy(results->stream));
  CHECK(cudaEventDestroy(results->before));
  CHECK(cudaEventDestroy(results->after));
  CHECK(cudaFree(results->device));
  CHECK(cudaFree(results));
}

void hasManagedMemory() {
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrManagedMemory, 0));
  EXPECT_EQUAL(value, 1);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  EXPECT_EQUAL(properties.managedMemory, 1);
}

void resets() {
  int* lost = nullptr;
  CHECK(cudaMallocManaged(&lost, kBytes));
  lost[0] = 1;
  launch(lost, nullptr);
  CHECK(cudaDeviceReset());
  Managed data;
  launch(data, nullptr);
  CHECK(cudaDeviceSynchronize());
  EXPECT_MORE(data, 1);
  CHECK(cudaDeviceReset());
}

void keepsArgumentsInManagedMemory() {
  Managed data;
  struct Arguments {
    int* data;
    int count;
  };
  Arguments* arguments = nullptr;
  CHECK(cudaMallocManaged(&arguments, 1 << 20));
  *arguments = {data, kCount};
  for (int round = 1; round <= 3; ++round) {
    void* args[] = {&arguments->data, &arguments->count};
    CHECK(cudaLaunchKernel(reinterpret_cast<void*>(increment), dim3((kCount + 255) / 256),
                           dim3(256), args, 0, nullptr));
    CHECK(cudaDeviceSynchronize());
    EXPECT_MORE(data, round);
  }
  CHECK(cudaFree(arguments));
}

#define CASE(name) {#name, name},
#define NAMED(name) {GMAC_TEXT(name), name},
#define GMAC_TEXT(name) GMAC_TEXT_(name)
#define GMAC_TEXT_(name) #name
const Case kCases[] = {GMAC_MANAGED_CASES(CASE) NAMED(GMAC_MANAGED_ARGUMENTS)};

}  // namespace

int main(int count, char** words) {
  return runCase(kCases, count, words, GMAC_MANAGED_NO_DEVICE, 30);
}
