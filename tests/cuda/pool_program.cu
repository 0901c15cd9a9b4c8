// SPDX-License-Identifier: Apache-2.0
//
// A program that keeps all its arrays in one managed allocation, as pools do, and is not linked
// with this library. One of them is a word that the CPU and a kernel use in turn. Each case copies
// or fills ranges that begin, end or lie around that word's page, by another part of CUDA's
// runtime, and compares every byte. pool_program CASE ends with status 0, or reports the failure
// and ends with 1, or with GMAC_MANAGED_NO_DEVICE. It must also pass with real managed memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/cuda/gpu_program.h"
#include "tests/cuda/managed_cases.h"

using namespace gmac::gpu_program;  // NOLINT: a program, not a library

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kPool = 32 * kMiB;
// The word's page, if its allocation begins with one.
constexpr std::size_t kHot = 8 * kMiB;
constexpr std::size_t kHotEnd = kHot + 2 * kMiB;
constexpr std::size_t kWord = kHot + 1 * kMiB;
// Bytes elsewhere in the pool, to copy to and from.
constexpr std::size_t kFar = 20 * kMiB;
constexpr std::size_t kMost = 6 * kMiB;  // of a copy

__global__ void add(std::uint32_t* word) { ++*word; }
__global__ void addBytes(unsigned char* bytes, std::size_t count) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * blockDim.x) {
    ++bytes[i];
  }
}
__global__ void fetch(cudaTextureObject_t texture, std::uint32_t* to, std::size_t count) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * blockDim.x) {
    to[i] = tex1Dfetch<std::uint32_t>(texture, static_cast<int>(i));
  }
}
__device__ unsigned char symbol[64 << 10];

using Bytes = std::vector<unsigned char>;

Bytes pattern(std::size_t count, unsigned seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    bytes[i] = static_cast<unsigned char>(seed >> 24);
  }
  return bytes;
}

// The pool, and what it should hold.
struct Pool {
  Pool() : expected(pattern(kPool, 1)) {
    CHECK(cudaMallocManaged(&data, kPool));
    std::memcpy(data, expected.data(), kPool);
    addBytes<<<64, 256>>>(data, kPool);
    for (unsigned char& byte : expected) ++byte;
    CHECK(cudaDeviceSynchronize());
    use(300);
  }
  ~Pool() { cudaFree(data); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The CPU and a kernel add to the word in turn.
  void use(int rounds) {
    auto* const word = reinterpret_cast<volatile std::uint32_t*>(data + kWord);
    std::uint32_t value = 0;
    std::memcpy(&value, expected.data() + kWord, sizeof value);
    for (int i = 0; i < rounds; ++i) {
      *word = ++value;
      add<<<1, 1>>>(reinterpret_cast<std::uint32_t*>(data + kWord));
      CHECK(cudaDeviceSynchronize());
      EXPECT_EQUAL(*word, ++value);
    }
    std::memcpy(expected.data() + kWord, &value, sizeof value);
  }
  void compare(int line) const {
    const auto differs = std::mismatch(expected.begin(), expected.end(), data);
    if (differs.first == expected.end()) return;
    throw Failed{"line " + std::to_string(line) + ": byte " +
                 std::to_string(differs.first - expected.begin()) + " of the pool is " +
                 std::to_string(*differs.second) + ", not " + std::to_string(*differs.first)};
  }

  unsigned char* data = nullptr;
  Bytes expected;
};

void compare(const Bytes& seen, const Bytes& expected, int line) {
  const auto differs = std::mismatch(expected.begin(), expected.end(), seen.begin());
  if (differs.first == expected.end()) return;
  throw Failed{"line " + std::to_string(line) + ": byte " +
               std::to_string(differs.first - expected.begin()) + " is " +
               std::to_string(*differs.second) + ", not " + std::to_string(*differs.first)};
}

struct Device {
  explicit Device(std::size_t bytes = kMost) { CHECK(cudaMalloc(&data, bytes)); }
  ~Device() { cudaFree(data); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  unsigned char* data = nullptr;
};

// Ranges of the pool: before the page, over its begin, in it, all of it, over its end, around it.
struct Range {
  std::size_t begin, bytes;
};
const Range kRanges[] = {
    {kHot - kMiB, kMiB}, {kHot - 70'000, 140'000}, {kHot + 4096, kMiB / 2},
    {kHot, 2 * kMiB},    {kHotEnd - 33, 1 << 17},  {kHot - 12'345, 2 * kMiB + 34'567},
};

// Each way between the pool, plain memory of the CPU's and memory of the device's: `move` copies.
using Move = std::function<void(unsigned char* to, const unsigned char* from)>;

// Rows of `width` bytes, `pitch` apart; layers of `height` rows.
struct Shape {
  std::size_t width, rows, layers, pitch, height;
  std::size_t bytes() const { return ((layers - 1) * height + rows - 1) * pitch + width; }
};

void moveRows(unsigned char* to, const unsigned char* from, const Shape& shape) {
  for (std::size_t z = 0; z < shape.layers; ++z) {
    for (std::size_t y = 0; y < shape.rows; ++y) {
      const std::size_t at = (z * shape.height + y) * shape.pitch;
      std::memcpy(to + at, from + at, shape.width);
    }
  }
}

// Copies such rows from and to a place in the pool, with every kind of memory at the other end.
void everyWay(Pool& pool, std::size_t begin, const Shape& shape, const Move& move, int line) {
  const std::size_t bytes = shape.bytes();
  unsigned char* const here = pool.data + begin;
  unsigned char* const there = pool.data + kFar;
  unsigned char* const expectedHere = pool.expected.data() + begin;
  unsigned char* const expectedThere = pool.expected.data() + kFar;
  const Device device(bytes);
  Bytes plain = pattern(bytes, 3);
  Bytes expected = plain;
  // From the pool.
  move(plain.data(), here);
  CHECK(cudaDeviceSynchronize());
  moveRows(expected.data(), expectedHere, shape);
  compare(plain, expected, line);
  // (It may still be on its way, for which a stream that does not block does not wait.)
  CHECK(cudaMemcpy(device.data, plain.data(), bytes, cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());
  move(there, here);
  moveRows(expectedThere, expectedHere, shape);
  move(device.data, here);
  CHECK(cudaMemcpy(plain.data(), device.data, bytes, cudaMemcpyDefault));
  compare(plain, expected, line);
  pool.compare(line);
  pool.use(3);
  // To it.
  Bytes other = pattern(bytes, static_cast<unsigned>(begin) + 5);
  move(here, other.data());
  CHECK(cudaDeviceSynchronize());
  moveRows(expectedHere, other.data(), shape);
  pool.compare(line);
  move(here, there);
  moveRows(expectedHere, expectedThere, shape);
  pool.compare(line);
  CHECK(cudaMemcpy(device.data, other.data(), bytes, cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());
  move(here, device.data);
  moveRows(expectedHere, other.data(), shape);
  CHECK(cudaDeviceSynchronize());
  pool.compare(line);
  pool.use(3);
}

// ---- The cases

void copiesRanges() {
  Pool pool;
  const Stream stream;
  for (const Range& range : kRanges) {
    const Shape shape{range.bytes, 1, 1, range.bytes, 1};
    const auto copy = [&](unsigned char* to, const unsigned char* from) {
      CHECK(cudaMemcpy(to, from, range.bytes, cudaMemcpyDefault));
    };
    everyWay(pool, range.begin, shape, copy, __LINE__);
    const auto queue = [&](unsigned char* to, const unsigned char* from) {
      CHECK(cudaMemcpyAsync(to, from, range.bytes, cudaMemcpyDefault, stream));
      stream.wait();
    };
    everyWay(pool, range.begin, shape, queue, __LINE__);
  }
  for (const Range& range : kRanges) {
    const Device device(range.bytes);
    int gpu = 0;
    CHECK(cudaGetDevice(&gpu));
    CHECK(cudaMemcpyPeer(device.data, gpu, pool.data + range.begin, gpu, range.bytes));
    CHECK(cudaMemcpyPeer(pool.data + kFar, gpu, device.data, gpu, range.bytes));
    std::memcpy(pool.expected.data() + kFar, pool.expected.data() + range.begin, range.bytes);
    CHECK(cudaDeviceSynchronize());
    pool.compare(__LINE__);
  }
}

// The shapes' rows end before, at and after borders; the last ones are longer than a page.
const Shape kShapes[] = {
    {2048, 700, 1, 4096, 700}, {4096, 600, 1, 4096, 600},          {3000, 900, 1, 5000, 900},
    {1, 1500, 1, 2048, 1500},  {2 * kMiB + 48, 2, 1, 3 * kMiB, 2}, {100'000, 30, 1, 100'000, 30},
};

void copiesRows() {
  Pool pool;
  const Stream stream;
  for (const Shape& shape : kShapes) {
    for (const std::size_t begin : {kHot - kMiB, kHot - 100, kHotEnd - 5'001}) {
      if (begin + shape.bytes() > kFar) continue;
      const auto copy = [&](unsigned char* to, const unsigned char* from) {
        CHECK(cudaMemcpy2D(to, shape.pitch, from, shape.pitch, shape.width, shape.rows,
                           cudaMemcpyDefault));
      };
      everyWay(pool, begin, shape, copy, __LINE__);
      const auto queue = [&](unsigned char* to, const unsigned char* from) {
        CHECK(cudaMemcpy2DAsync(to, shape.pitch, from, shape.pitch, shape.width, shape.rows,
                                cudaMemcpyDefault, stream));
        stream.wait();
      };
      everyWay(pool, begin, shape, queue, __LINE__);
    }
  }
}

void copiesLayers() {
  Pool pool;
  const Stream stream;
  for (const Shape& shape : {Shape{300, 50, 20, 512, 200}, Shape{512, 64, 60, 512, 64},
                             Shape{4096, 1, 700, 4096, 1}, Shape{1000, 300, 3, 1024, 700}}) {
    for (const std::size_t begin : {kHot - kMiB, kHotEnd - 5'001}) {
      const auto described = [&](unsigned char* to, const unsigned char* from) {
        cudaMemcpy3DParms copy{};
        copy.srcPtr = make_cudaPitchedPtr(const_cast<unsigned char*>(from), shape.pitch,
                                          shape.width, shape.height);
        copy.dstPtr = make_cudaPitchedPtr(to, shape.pitch, shape.width, shape.height);
        copy.extent = make_cudaExtent(shape.width, shape.rows, shape.layers);
        copy.kind = cudaMemcpyDefault;
        return copy;
      };
      const auto copy = [&](unsigned char* to, const unsigned char* from) {
        const cudaMemcpy3DParms parameters = described(to, from);
        CHECK(cudaMemcpy3D(&parameters));
      };
      everyWay(pool, begin, shape, copy, __LINE__);
      const auto queue = [&](unsigned char* to, const unsigned char* from) {
        const cudaMemcpy3DParms parameters = described(to, from);
        CHECK(cudaMemcpy3DAsync(&parameters, stream));
        stream.wait();
      };
      everyWay(pool, begin, shape, queue, __LINE__);
    }
  }
}

void copiesToAndFromArrays() {
  Pool pool;
  constexpr std::size_t kWidth = 4096;
  constexpr std::size_t kRows = 600;
  const cudaChannelFormatDesc words = cudaCreateChannelDesc<std::uint32_t>();
  cudaArray_t array = nullptr;
  CHECK(cudaMallocArray(&array, &words, kWidth / 4, kRows));
  for (const std::size_t begin : {kHot - kMiB, kHotEnd - 1024}) {
    CHECK(cudaMemcpy2DToArray(array, 0, 0, pool.data + begin, kWidth + 512, kWidth, kRows,
                              cudaMemcpyDefault));
    CHECK(cudaMemcpy2DFromArray(pool.data + kFar, kWidth, array, 0, 0, kWidth, kRows,
                                cudaMemcpyDefault));
    for (std::size_t y = 0; y < kRows; ++y) {
      std::memcpy(pool.expected.data() + kFar + y * kWidth,
                  pool.expected.data() + begin + y * (kWidth + 512), kWidth);
    }
    CHECK(cudaDeviceSynchronize());
    pool.compare(__LINE__);
    pool.use(3);
    CHECK(cudaMemcpy2DFromArrayAsync(pool.data + begin + 8, kWidth, array, 16, 1, kWidth - 64,
                                     kRows - 1, cudaMemcpyDefault, nullptr));
    CHECK(cudaDeviceSynchronize());
    for (std::size_t y = 0; y + 1 < kRows; ++y) {
      std::memcpy(pool.expected.data() + begin + 8 + y * kWidth,
                  pool.expected.data() + kFar + (y + 1) * kWidth + 16, kWidth - 64);
    }
    pool.compare(__LINE__);
    pool.use(3);
  }
  CHECK(cudaFreeArray(array));
}

void fills() {
  Pool pool;
  const Stream stream;
  int value = 1;
  for (const Range& range : kRanges) {
    CHECK(cudaMemset(pool.data + range.begin, ++value, range.bytes));
    std::memset(pool.expected.data() + range.begin, value, range.bytes);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemsetAsync(pool.data + range.begin + 7, ++value, range.bytes - 99, stream));
    std::memset(pool.expected.data() + range.begin + 7, value, range.bytes - 99);
    stream.wait();
    pool.compare(__LINE__);
    pool.use(3);
  }
  for (const Shape& shape : kShapes) {
    const std::size_t begin = kHot - 200'001;
    ++value;
    CHECK(cudaMemset2D(pool.data + begin, shape.pitch, value, shape.width, shape.rows));
    CHECK(cudaDeviceSynchronize());
    for (std::size_t y = 0; y < shape.rows; ++y) {
      std::memset(pool.expected.data() + begin + y * shape.pitch, value, shape.width);
    }
    pool.compare(__LINE__);
    pool.use(3);
  }
  const Shape shape{300, 50, 20, 512, 200};
  const std::size_t begin = kHot - 700'001;
  CHECK(cudaMemset3D(make_cudaPitchedPtr(pool.data + begin, shape.pitch, shape.width, shape.height),
                     99, make_cudaExtent(shape.width, shape.rows, shape.layers)));
  CHECK(cudaDeviceSynchronize());
  for (std::size_t z = 0; z < shape.layers; ++z) {
    for (std::size_t y = 0; y < shape.rows; ++y) {
      std::memset(pool.expected.data() + begin + (z * shape.height + y) * shape.pitch, 99,
                  shape.width);
    }
  }
  pool.compare(__LINE__);
  pool.use(3);
}

void copiesSymbols() {
  Pool pool;
  for (const std::size_t begin : {kHot - 30'000, kHotEnd - 5, kHot + 100}) {
    CHECK(cudaMemcpyToSymbol(symbol, pool.data + begin, sizeof symbol));
    CHECK(cudaMemcpyFromSymbol(pool.data + kFar, symbol, sizeof symbol));
    CHECK(cudaDeviceSynchronize());
    std::memcpy(pool.expected.data() + kFar, pool.expected.data() + begin, sizeof symbol);
    pool.compare(__LINE__);
    CHECK(cudaMemcpyFromSymbol(pool.data + begin + 1, symbol, sizeof symbol));
    CHECK(cudaDeviceSynchronize());
    std::memcpy(pool.expected.data() + begin + 1, pool.expected.data() + kFar, sizeof symbol);
    pool.compare(__LINE__);
    pool.use(3);
  }
}

void readsByTextures() {
  Pool pool;
  constexpr std::size_t kCount = kMost / 4;
  const std::size_t begin = kHot - kMiB;
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = pool.data + begin;
  resource.res.linear.desc = cudaCreateChannelDesc<std::uint32_t>();
  resource.res.linear.sizeInBytes = kMost;
  cudaTextureDesc description{};
  cudaTextureObject_t texture = 0;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  for (int i = 0; i < 3; ++i) {
    fetch<<<64, 256>>>(texture, reinterpret_cast<std::uint32_t*>(pool.data + kFar), kCount);
    CHECK(cudaDeviceSynchronize());
    std::memcpy(pool.expected.data() + kFar, pool.expected.data() + begin, kMost);
    pool.compare(__LINE__);
    pool.use(3);
  }
  CHECK(cudaDestroyTextureObject(texture));
}

// Runs a graph again and again, with uses of the page between; `expect` does the same to what the
// pool should hold.
void replay(Pool& pool, cudaGraph_t graph, const std::function<void()>& expect, int line) {
  const Stream stream;
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 4; ++i) {
    CHECK(cudaGraphLaunch(executable, stream));
    stream.wait();
    expect();
    pool.compare(line);
    pool.use(100);
  }
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
}

void replaysCapturedCopies() {
  Pool pool;
  const Stream stream;
  const Shape shape = kShapes[0];
  const std::size_t begin = kHot - kMiB;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemcpyAsync(pool.data + kFar, pool.data + begin, kMost, cudaMemcpyDefault, stream));
  CHECK(cudaMemcpy2DAsync(pool.data + begin + 100, shape.pitch, pool.data + kFar, shape.pitch,
                          shape.width, shape.rows, cudaMemcpyDefault, stream));
  CHECK(cudaMemsetAsync(pool.data + kHotEnd - 1000, 7, 2000, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  const auto expect = [&] {
    std::memcpy(pool.expected.data() + kFar, pool.expected.data() + begin, kMost);
    moveRows(pool.expected.data() + begin + 100, pool.expected.data() + kFar, shape);
    std::memset(pool.expected.data() + kHotEnd - 1000, 7, 2000);
  };
  replay(pool, graph, expect, __LINE__);
}

void buildsGraphsOfCopies() {
  Pool pool;
  const std::size_t begin = kHot - kMiB;
  cudaGraph_t graph = nullptr;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t copy = nullptr;
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, nullptr, 0, pool.data + kFar, pool.data + begin,
                                 kMost, cudaMemcpyDefault));
  cudaMemsetParams fill{};
  fill.dst = pool.data + kHotEnd - 4 * 4096;
  fill.pitch = 4096;
  fill.value = 0x01020304;
  fill.elementSize = 4;
  fill.width = 100;
  fill.height = 9;
  cudaGraphNode_t filled = nullptr;
  CHECK(cudaGraphAddMemsetNode(&filled, graph, &copy, 1, &fill));
  const auto expect = [&] {
    std::memcpy(pool.expected.data() + kFar, pool.expected.data() + begin, kMost);
    for (std::size_t y = 0; y < fill.height; ++y) {
      for (std::size_t x = 0; x < fill.width; ++x) {
        std::memcpy(pool.expected.data() + kHotEnd - 4 * 4096 + y * 4096 + x * 4, &fill.value, 4);
      }
    }
  };
  replay(pool, graph, expect, __LINE__);
}

void copiesBatches() {
  Pool pool;
  const Stream stream;
  const Device device;
  void* to[] = {pool.data + kFar, pool.data + kHotEnd - 3000, device.data};
  const void* from[] = {pool.data + kHot - 1000, pool.data + kFar + 4 * kMiB,
                        pool.data + kHot - kMiB};
  std::size_t sizes[] = {2 * kMiB + 2000, 6000, 4 * kMiB};
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  CHECK(cudaMemcpyBatchAsync(to, from, sizes, 3, &attributes, &first, 1, stream));
  stream.wait();
  std::memcpy(pool.expected.data() + kFar, pool.expected.data() + kHot - 1000, sizes[0]);
  // (Copies of a batch have no order: these ranges do not meet.)
  Bytes copied(4 * kMiB);
  CHECK(cudaMemcpy(copied.data(), device.data, copied.size(), cudaMemcpyDefault));
  const Bytes before(pool.expected.begin() + kHot - kMiB, pool.expected.begin() + kHotEnd - 3000);
  compare(copied, before, __LINE__);
  std::memcpy(pool.expected.data() + kHotEnd - 3000, pool.expected.data() + kFar + 4 * kMiB, 6000);
  // What the second copy wrote the first and the third one may have read before or after it.
  for (const std::size_t at : {kFar + 2 * kMiB - 2000}) {
    std::memcpy(pool.expected.data() + at, pool.data + at, 4000);
  }
  pool.compare(__LINE__);
  pool.use(3);
}

void advisesAndPrefetches() {
  Pool pool;
  int gpu = 0;
  CHECK(cudaGetDevice(&gpu));
  const cudaMemLocation locations[] = {{cudaMemLocationTypeDevice, gpu},
                                       {cudaMemLocationTypeHost, 0}};
  for (const Range& range : kRanges) {
    for (const cudaMemLocation& location : locations) {
      CHECK(cudaMemPrefetchAsync(pool.data + range.begin, range.bytes, location, 0, nullptr));
      pool.use(20);
      CHECK(cudaMemAdvise(pool.data + range.begin, range.bytes, cudaMemAdviseSetAccessedBy,
                          location));
      addBytes<<<16, 256>>>(pool.data + range.begin, range.bytes);
      for (std::size_t i = 0; i < range.bytes; ++i) ++pool.expected[range.begin + i];
      CHECK(cudaDeviceSynchronize());
      pool.compare(__LINE__);
      pool.use(20);
    }
  }
}

#define CASE(name) {#name, name},
const Case kCases[] = {GMAC_POOL_CASES(CASE)};

}  // namespace

int main(int count, char** words) {
  return runCase(kCases, count, words, GMAC_MANAGED_NO_DEVICE, 60);
}
