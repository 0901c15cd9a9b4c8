// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/pack_kernels/check.h"
#include "bench/pack_kernels/gpu.h"
#include "bench/pack_kernels/paced_sweep.h"
#include "bench/pack_kernels/sweep.h"
#include "gmac/datatype/kernels/pack_shapes.h"
#include "gmac/datatype/plan/device_plan.h"

namespace packbench {
namespace {

using namespace gmac::datatype;  // NOLINT(google-build-using-namespace)

template <typename Shape, int W, typename T>
struct BuildBounds {
  static constexpr unsigned kThreads = Shape::template kThreads<W>;
  static constexpr unsigned kResident = T::kLoadsInFlight > 4 ? 1 : 2;
};

// Blocks in an order that touches `streams` places of memory at a time.
template <typename Shape, int W, typename T>
__global__ void __launch_bounds__(BuildBounds<Shape, W, T>::kThreads,
                                  BuildBounds<Shape, W, T>::kResident)
    packAs(const __grid_constant__ typename Shape::Params p, unsigned streams) {
  unsigned block = blockIdx.x;
  if (streams > 1 && gridDim.x % streams == 0) {
    block = block % streams * (gridDim.x / streams) + block / streams;
  }
  Shape::template run<W, true, T>(p, {block, threadIdx.x, gridDim.x, blockDim.x});
}

// Rows of single 8-byte words, loaded in ways that the tunings do not have.
enum class Ptx {
  kPlain,
  kNonCoherent,
  kPrefetch64,
  kPrefetch128,
  kPrefetch256,
  kEvictFirst,
  kRelaxed
};
constexpr const char* kPtxNames[] = {
    "ld", "ld.nc", "ld L2::64B", "ld L2::128B", "ld L2::256B", "ld evict_first", "ld.relaxed.gpu"};

template <Ptx kKind>
__device__ __forceinline__ std::uint64_t loadAs(const std::uint64_t* address) {
  std::uint64_t v;
  const auto global = __cvta_generic_to_global(address);
  if constexpr (kKind == Ptx::kPlain) {
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(global));
  } else if constexpr (kKind == Ptx::kNonCoherent) {
    asm volatile("ld.global.nc.L1::no_allocate.u64 %0, [%1];" : "=l"(v) : "l"(global));
  } else if constexpr (kKind == Ptx::kPrefetch64) {
    asm volatile("ld.global.L2::64B.u64 %0, [%1];" : "=l"(v) : "l"(global));
  } else if constexpr (kKind == Ptx::kPrefetch128) {
    asm volatile("ld.global.L2::128B.u64 %0, [%1];" : "=l"(v) : "l"(global));
  } else if constexpr (kKind == Ptx::kPrefetch256) {
    asm volatile("ld.global.L2::256B.u64 %0, [%1];" : "=l"(v) : "l"(global));
  } else if constexpr (kKind == Ptx::kEvictFirst) {
    asm volatile(
        "{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
        "ld.global.L1::no_allocate.L2::cache_hint.u64 %0, [%1], policy; }"
        : "=l"(v)
        : "l"(global));
  } else {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(global));
  }
  return v;
}

template <Ptx kKind, int kLoads>
__global__ void rowsOfWords(const std::uint64_t* source, std::uint64_t* target, unsigned count,
                            unsigned stride) {
  const unsigned first = blockIdx.x * blockDim.x * kLoads + threadIdx.x;
  std::uint64_t v[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned e = first + i * blockDim.x;
    if (e < count) v[i] = loadAs<kKind>(source + static_cast<std::size_t>(e) * stride);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned e = first + i * blockDim.x;
    if (e < count) __stcs(target + e, v[i]);
  }
}

// As an engine for any nesting has it: a word a thread, found by divisions of 64 bits.
__global__ void rowsByDivision(const std::uint64_t* source, std::uint64_t* target,
                               std::uint64_t count, std::uint64_t rows, std::uint64_t wordsOfRow,
                               std::uint64_t stride) {
  std::uint64_t rest = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (rest >= count) return;
  const std::uint64_t at = rest;
  const std::uint64_t element = rest / (rows * wordsOfRow);
  rest %= rows * wordsOfRow;
  const std::uint64_t row = rest / wordsOfRow;
  target[at] = source[element * rows * stride + row * stride + rest % wordsOfRow];
}

// Only the loads, for what memory itself can do: the lanes of a warp lie 2^laneBit rows apart.
__global__ void readRows(const std::uint64_t* source, std::uint64_t* unused, unsigned stride,
                         unsigned laneBit) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned rest = i / 32;
  const unsigned low = rest & ((1U << laneBit) - 1);
  const unsigned row = low | (i % 32) << laneBit | rest >> laneBit << (laneBit + 5);
  const std::uint64_t v = loadAs<Ptx::kPlain>(source + static_cast<std::size_t>(row) * stride);
  if (v == 0x7f4a7c15f39cc060)
    *unused = v;  // no word of the pattern, which the compiler cannot know
}

// Unpacks of single words, which write a part of a sector each.
enum class Scatter { kPlain, kOnce, kPrefetchFirst, kLoadFirst, kWholeSector };
constexpr const char* kScatterNames[] = {"st", "st.cs", "prefetch, st", "ld, st",
                                         "32-byte st (writes into the gaps)"};
template <Scatter kKind, int kLoads>
__global__ void scatterWords(std::uint64_t* strided, const std::uint64_t* packed, unsigned count,
                             unsigned stride) {
  const unsigned first = blockIdx.x * blockDim.x * kLoads + threadIdx.x;
  std::uint64_t v[kLoads];
  std::uint64_t old[kLoads] = {};
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned e = first + i * blockDim.x;
    if (e >= count) continue;
    std::uint64_t* const to = strided + static_cast<std::size_t>(e) * stride;
    if constexpr (kKind == Scatter::kPrefetchFirst) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(to)));
    }
    if constexpr (kKind == Scatter::kLoadFirst) old[i] = loadAs<Ptx::kPlain>(to);
    v[i] = loadAs<Ptx::kPlain>(packed + e);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned e = first + i * blockDim.x;
    if (e >= count) continue;
    std::uint64_t* const to = strided + static_cast<std::size_t>(e) * stride;
    // Waits for the answer; what it compares with is no word of the pattern.
    if (kKind == Scatter::kLoadFirst && old[i] == 0x7f4a7c15f39cc060) v[i] = 0;
    if constexpr (kKind == Scatter::kOnce) {
      __stcs(to, v[i]);
    } else if constexpr (kKind == Scatter::kWholeSector) {
      reinterpret_cast<ulonglong2*>(to)[0] = make_ulonglong2(v[i], v[i]);
      reinterpret_cast<ulonglong2*>(to)[1] = make_ulonglong2(v[i], v[i]);
    } else {
      *to = v[i];
    }
  }
}

// Packs through asynchronous copies into shared memory: loads that hold no registers.
template <int kLoads>
__global__ void rowsOfWordsAsync(const std::uint64_t* source, std::uint64_t* target, unsigned count,
                                 unsigned stride) {
  extern __shared__ std::uint64_t staged[];
  const unsigned first = blockIdx.x * blockDim.x * kLoads + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned e = first + i * blockDim.x;
    if (e >= count) continue;
    const auto shared =
        static_cast<unsigned>(__cvta_generic_to_shared(staged + i * blockDim.x + threadIdx.x));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"
                 :
                 : "r"(shared),
                   "l"(__cvta_generic_to_global(source + static_cast<std::size_t>(e) * stride)));
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const unsigned e = first + i * blockDim.x;
    if (e < count) __stcs(target + e, staged[i * blockDim.x + threadIdx.x]);
  }
}

// Packs words through a table with an entry for each.
__global__ void listedWords(const std::uint64_t* source, const std::uint32_t* table,
                            std::uint64_t* target, unsigned count) {
  const unsigned e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < count) target[e] = loadAs<Ptx::kPlain>(source + __ldg(table + e));
}

struct Build {
  std::string name;
  int loads;
  const void* function;
};

constexpr const char* kHints[] = {"-", "once", "noL1"};

template <typename Shape, int W, int kLoads, Hint kLoad, Hint kStore>
void addBuild(std::vector<Build>& builds) {
  builds.push_back(
      {"loads " + std::to_string(kLoads) + ", load " + kHints[static_cast<int>(kLoad)] +
           ", store " + kHints[static_cast<int>(kStore)],
       kLoads, reinterpret_cast<const void*>(&packAs<Shape, W, Tuning<kLoad, kStore, kLoads>>)});
}
template <typename Shape, int W, int kLoads>
void addHints(std::vector<Build>& builds) {
  addBuild<Shape, W, kLoads, Hint::kNone, Hint::kNone>(builds);
  addBuild<Shape, W, kLoads, Hint::kNone, Hint::kOnce>(builds);
  addBuild<Shape, W, kLoads, Hint::kOnce, Hint::kNone>(builds);
  addBuild<Shape, W, kLoads, Hint::kOnce, Hint::kOnce>(builds);
  addBuild<Shape, W, kLoads, Hint::kNoFirstLevel, Hint::kNone>(builds);
  addBuild<Shape, W, kLoads, Hint::kNoFirstLevel, Hint::kOnce>(builds);
}
template <typename Shape, int W>
std::vector<Build> buildsOf() {
  std::vector<Build> builds;
  addHints<Shape, W, 1>(builds);
  addHints<Shape, W, 2>(builds);
  addHints<Shape, W, 4>(builds);
  addHints<Shape, W, 8>(builds);
  addHints<Shape, W, 16>(builds);
  return builds;
}

// From kFewest loads each on.
template <typename Shape, int W, int kFewest = 2>
std::vector<Build> listBuildsOf() {
  std::vector<Build> builds;
  const auto add = [&]<int kLoads>() {
    addBuild<Shape, W, kLoads, Hint::kNone, Hint::kNone>(builds);
    addBuild<Shape, W, kLoads, Hint::kNoFirstLevel, Hint::kNone>(builds);
    addBuild<Shape, W, kLoads, Hint::kOnce, Hint::kOnce>(builds);
  };
  if constexpr (kFewest == 1) add.template operator()<1>();
  add.template operator()<2>();
  add.template operator()<4>();
  add.template operator()<8>();
  return builds;
}

// Device memory with a plan's table.
class Table {
 public:
  explicit Table(const DevicePlan& plan) {
    const auto& shape = plan.table();
    if (shape.bytes == 0) return;
    std::vector<std::byte> bytes(shape.bytes);
    plan.writeUnits(0, shape.units, bytes.data());
    plan.writePieces(0, shape.pieces, bytes.data() + shape.piecesAt);
    CHECK_CUDA(cudaMalloc(&memory_, shape.bytes));
    CHECK_CUDA(cudaMemcpy(memory_, bytes.data(), shape.bytes, cudaMemcpyHostToDevice));
  }
  ~Table() { cudaFree(memory_); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(memory_); }

 private:
  void* memory_ = nullptr;
};

DeviceLaunch launchOf(const SweepTarget& target, const DevicePlan& plan, const Table& table) {
  DeviceJob job;
  job.strided = reinterpret_cast<std::uintptr_t>(target.source) -
                static_cast<std::uint64_t>(target.item.layout.bounds().first);
  job.packed = reinterpret_cast<std::uintptr_t>(target.target);
  job.bytes = target.item.layout.bytes();
  job.table = table.address();
  DeviceLaunch launch;
  plan.makeLaunch(job, 0, launch);
  return launch;
}

// Shared memory that lets no more than `resident` threads of a multiprocessor run at a time.
unsigned sharedFor(unsigned threads, unsigned resident) {
  constexpr unsigned kShared = 227 * 1024;
  constexpr unsigned kOfBlock = 1024;  // that the system takes
  return std::max(kShared / std::max(resident / threads, 1U) / 128 * 128, 2 * kOfBlock) - kOfBlock;
}
void allowShared(const void* function, unsigned bytes) {
  CHECK_CUDA(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
}

bool canLaunch(const Build& build, unsigned threads) {
  cudaFuncAttributes attributes{};
  CHECK_CUDA(cudaFuncGetAttributes(&attributes, build.function));
  return static_cast<int>(threads) <= attributes.maxThreadsPerBlock;
}

void launchBuild(const Build& build, const DeviceLaunch& launch, unsigned blocks, unsigned threads,
                 unsigned streams, cudaStream_t stream, unsigned shared = 0) {
  DeviceLaunch copy = launch;
  // All shapes' parameters begin with the part.
  reinterpret_cast<Part*>(copy.params)->unrolled = 1;
  void* args[] = {copy.params, &streams};
  CHECK_CUDA(cudaLaunchKernel(build.function, dim3(blocks), dim3(threads), args, shared, stream));
}

unsigned blocksFor(const DeviceLaunch& launch, const Build& build, unsigned threads) {
  const std::uint64_t elements = launch.bytes / launch.kernel.width;
  const std::uint64_t span = std::uint64_t{threads} * static_cast<unsigned>(build.loads);
  return static_cast<unsigned>((elements + span - 1) / span);
}

void sweepFlat(const SweepTarget& target, const std::vector<Build>& builds) {
  const DevicePlan plan(target.item.layout);
  const Table table(plan);
  const DeviceLaunch launch = launchOf(target, plan, table);
  std::vector<Way> ways;
  for (const Build& build : builds) {
    ways.push_back({build.name, [&, build](cudaStream_t stream) {
                      launchBuild(build, launch, blocksFor(launch, build, 256), 256, 1, stream);
                    }});
  }
  keepCorrect(target, ways);
  timeInTurns(ways, target.stream, target.turns);
  report("builds, 256 threads, one pass", ways, target.boundMicroseconds, 10);
  const auto best = std::min_element(ways.begin(), ways.end(),
                                     [](const Way& a, const Way& b) { return a.gpu < b.gpu; });
  const Build& chosen = *std::find_if(builds.begin(), builds.end(),
                                      [&](const Build& b) { return b.name == best->name; });
  std::vector<Way> shapes;
  for (const unsigned threads : {64U, 128U, 256U, 512U, 1024U}) {
    if (!canLaunch(chosen, threads)) continue;
    const unsigned all = blocksFor(launch, chosen, threads);
    const auto add = [&](const std::string& name, unsigned blocks, unsigned streams) {
      shapes.push_back({std::to_string(threads) + " threads, " + name,
                        [&, blocks, threads, streams](cudaStream_t stream) {
                          launchBuild(chosen, launch, blocks, threads, streams, stream);
                        }});
    };
    add("one pass", all, 1);
    for (const unsigned streams : {2U, 8U, 32U, 128U}) {
      if (all >= 2 * streams) {
        add("one pass, " + std::to_string(streams) + " places", all / streams * streams, streams);
      }
    }
    for (const unsigned resident : {256U, 512U, 768U, 1024U, 1536U}) {
      if (resident < threads) continue;
      const unsigned shared = sharedFor(threads, resident);
      shapes.push_back({std::to_string(threads) + " threads, one pass, " +
                            std::to_string(resident) + " resident",
                        [&, all, threads, shared](cudaStream_t stream) {
                          allowShared(chosen.function, shared);
                          launchBuild(chosen, launch, all, threads, 1, stream, shared);
                        }});
    }
    for (const unsigned times : {1U, 2U, 4U}) {
      const unsigned blocks = 132 * 2048 / threads * times / 2;
      if (blocks < all) add(std::to_string(blocks) + " blocks", blocks, 1);
    }
  }
  keepCorrect(target, shapes);
  timeInTurns(shapes, target.stream, target.turns);
  report("shapes of the best build's launch", shapes, target.boundMicroseconds, 30);
}

template <Ptx kKind>
void addPtx(std::vector<Way>& ways, const SweepTarget& target, unsigned count, unsigned stride) {
  const auto* source = static_cast<const std::uint64_t*>(target.source);
  auto* packed = static_cast<std::uint64_t*>(target.target);
  const std::string name = kPtxNames[static_cast<int>(kKind)];
  const auto add = [&]<int kLoads>(std::integral_constant<int, kLoads>) {
    for (const unsigned threads : {128U, 512U}) {
      ways.push_back(
          {name + ", loads " + std::to_string(kLoads) + ", threads " + std::to_string(threads),
           [=](cudaStream_t stream) {
             const unsigned blocks = (count + threads * kLoads - 1) / (threads * kLoads);
             rowsOfWords<kKind, kLoads>
                 <<<blocks, threads, 0, stream>>>(source, packed, count, stride);
           }});
    }
  };
  add(std::integral_constant<int, 1>());
  add(std::integral_constant<int, 4>());
  add(std::integral_constant<int, 8>());
}

void sweepWords(const SweepTarget& target) {
  const auto& layout = target.item.layout;
  const auto count = static_cast<unsigned>(layout.dims()[0].count);
  const auto stride = static_cast<unsigned>(layout.dims()[0].stride / 8);
  std::vector<Way> ways;
  addPtx<Ptx::kPlain>(ways, target, count, stride);
  addPtx<Ptx::kNonCoherent>(ways, target, count, stride);
  addPtx<Ptx::kPrefetch64>(ways, target, count, stride);
  addPtx<Ptx::kPrefetch128>(ways, target, count, stride);
  addPtx<Ptx::kPrefetch256>(ways, target, count, stride);
  addPtx<Ptx::kEvictFirst>(ways, target, count, stride);
  addPtx<Ptx::kRelaxed>(ways, target, count, stride);
  const auto* source = static_cast<const std::uint64_t*>(target.source);
  auto* packed = static_cast<std::uint64_t*>(target.target);
  const auto addResident = [&]<int kLoads>(std::integral_constant<int, kLoads>) {
    for (const unsigned threads : {128U, 512U}) {
      for (const unsigned resident : {256U, 512U, 1024U, 1536U}) {
        if (resident < threads) continue;
        const unsigned shared = sharedFor(threads, resident);
        ways.push_back(
            {"ld, loads " + std::to_string(kLoads) + ", threads " + std::to_string(threads) + ", " +
                 std::to_string(resident) + " resident",
             [=](cudaStream_t stream) {
               allowShared(reinterpret_cast<const void*>(&rowsOfWords<Ptx::kPlain, kLoads>),
                           shared);
               const unsigned blocks = (count + threads * kLoads - 1) / (threads * kLoads);
               rowsOfWords<Ptx::kPlain, kLoads>
                   <<<blocks, threads, shared, stream>>>(source, packed, count, stride);
             }});
      }
    }
  };
  ways.push_back({"ld, divisions of 64 bits, threads 256", [=](cudaStream_t stream) {
                    rowsByDivision<<<(count + 255) / 256, 256, 0, stream>>>(source, packed, count,
                                                                            count, 1, stride);
                  }});
  addResident(std::integral_constant<int, 1>());
  addResident(std::integral_constant<int, 4>());
  const auto addAsync = [&]<int kLoads>(std::integral_constant<int, kLoads>) {
    for (const unsigned threads : {128U, 256U}) {
      ways.push_back(
          {"cp.async, loads " + std::to_string(kLoads) + ", threads " + std::to_string(threads),
           [=](cudaStream_t stream) {
             const unsigned blocks = (count + threads * kLoads - 1) / (threads * kLoads);
             rowsOfWordsAsync<kLoads>
                 <<<blocks, threads, threads * kLoads * 8, stream>>>(source, packed, count, stride);
           }});
    }
  };
  addAsync(std::integral_constant<int, 4>());
  addAsync(std::integral_constant<int, 8>());
  addAsync(std::integral_constant<int, 16>());
  keepCorrect(target, ways);
  timeInTurns(ways, target.stream, target.turns);
  report("ways to load single words", ways, target.boundMicroseconds, 80);

  std::vector<Way> scatters;
  auto* const strided = static_cast<std::uint64_t*>(target.source);
  const auto addScatter = [&]<Scatter kKind, int kLoads>() {
    scatters.push_back(
        {std::string(kScatterNames[static_cast<int>(kKind)]) + ", loads " + std::to_string(kLoads),
         [=](cudaStream_t stream) {
           scatterWords<kKind, kLoads>
               <<<(count + 256 * kLoads - 1) / (256 * kLoads), 256, 0, stream>>>(strided, packed,
                                                                                 count, stride);
         }});
  };
  addScatter.operator()<Scatter::kPlain, 1>();
  addScatter.operator()<Scatter::kPlain, 4>();
  addScatter.operator()<Scatter::kOnce, 1>();
  addScatter.operator()<Scatter::kPrefetchFirst, 1>();
  addScatter.operator()<Scatter::kPrefetchFirst, 4>();
  addScatter.operator()<Scatter::kLoadFirst, 1>();
  addScatter.operator()<Scatter::kLoadFirst, 4>();
  timeInTurns(scatters, target.stream, target.turns);
  // Last, apart: the pattern is gone afterwards.
  std::vector<Way> whole;
  std::swap(whole, scatters);
  addScatter.operator()<Scatter::kWholeSector, 1>();
  timeInTurns(scatters, target.stream, target.turns);
  whole.push_back(scatters.front());
  report("ways to unpack single words", whole, target.boundMicroseconds, 20);
  fillPattern(target.source, target.sourceBytes);

  // Memory throughput by the distance of rows and by the distance of a warp's lanes.
  std::vector<Way> reads;
  const auto addRead = [&](unsigned rows, unsigned words, unsigned laneBit) {
    reads.push_back({std::to_string(rows) + " rows, " + std::to_string(words * 8) +
                         " B apart, lanes " + std::to_string(1U << laneBit) + " rows apart",
                     [=](cudaStream_t stream) {
                       readRows<<<rows / 512, 512, 0, stream>>>(source, packed, words, laneBit);
                     }});
  };
  const unsigned rows = std::min(1U << 22, 1U << (31 - __builtin_clz(count)));
  if (rows < 1U << 18) return;
  const auto fits = [&](unsigned words) {
    return std::uint64_t{rows} * words * 8 <= target.sourceBytes;
  };
  for (const unsigned words : {8U, 16U, 32U, 48U, 64U, 72U, 80U, 96U, 128U, 192U}) {
    if (fits(words)) addRead(rows, words, 0);
  }
  for (unsigned laneBit = 1; laneBit <= 13; ++laneBit) addRead(rows, stride, laneBit);
  timeInTurns(reads, target.stream, target.turns);
  std::printf("  reads alone\n");
  for (const Way& way : reads) {
    std::printf("    %8.1f us gpu  %6.1f G rows/s  %s\n", way.gpu, rows / way.gpu / 1e3,
                way.name.c_str());
  }
}

void sweepUnits(const SweepTarget& target) {
  const std::vector<Build> builds = listBuildsOf<shapes::LongList, 8>();
  for (const std::uint32_t unitBytes : {512U, 1024U, 2048U, 4096U, 8192U, 16384U}) {
    PlanTuning tuning;
    tuning.unitBytes = unitBytes;
    tuning.markedMost = 0;
    const DevicePlan plan(target.item.layout, tuning);
    const Table table(plan);
    const DeviceLaunch launch = launchOf(target, plan, table);
    const std::uint64_t units = plan.table().units - 1;
    std::vector<Way> ways;
    for (const Build& build : builds) {
      for (const unsigned threads : {128U, 256U, 512U}) {
        if (!canLaunch(build, threads)) continue;
        const auto all = static_cast<unsigned>((units * 32 + threads - 1) / threads);
        ways.push_back({build.name + ", " + std::to_string(threads) + " threads",
                        [&, all, threads, build](cudaStream_t stream) {
                          launchBuild(build, launch, all, threads, 1, stream);
                        }});
      }
    }
    keepCorrect(target, ways);
    timeInTurns(ways, target.stream, target.turns);
    report(("units of " + std::to_string(unitBytes) + " B").c_str(), ways, target.boundMicroseconds,
           6);
  }
}

// The plan's own launch of a list, and the same by a table that has an entry for each word.
void sweepTables(const SweepTarget& target) {
  const Layout& layout = target.item.layout;
  std::vector<std::uint32_t> entries;
  for (const Block& block : layout.blocks()) {
    for (std::int64_t at = 0; at < block.bytes; at += 8) {
      entries.push_back(
          static_cast<std::uint32_t>((block.offset + at - layout.bounds().first) / 8));
    }
  }
  void* words = nullptr;
  CHECK_CUDA(cudaMalloc(&words, entries.size() * 4));
  CHECK_CUDA(cudaMemcpy(words, entries.data(), entries.size() * 4, cudaMemcpyHostToDevice));
  const auto count = static_cast<unsigned>(entries.size());
  PlanTuning inUnits;
  inUnits.markedMost = 0;
  const DevicePlan marked(layout);
  const DevicePlan units(layout, inUnits);
  const Table markedTable(marked);
  const Table unitsTable(units);
  const DeviceLaunch markedLaunch = launchOf(target, marked, markedTable);
  const DeviceLaunch unitsLaunch = launchOf(target, units, unitsTable);
  const auto add = [&]<typename Shape>(std::vector<Way>& ways, const char* name,
                                       const DeviceLaunch& launch, Shape) {
    ways.push_back(
        {name, [&launch](cudaStream_t stream) {
           DeviceLaunch copy = launch;
           unsigned streams = 1;
           void* args[] = {copy.params, &streams};
           CHECK_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(&packAs<Shape, 8, Tuning<>>),
                                       dim3(copy.blocks), dim3(copy.threads), args, 0, stream));
         }});
  };
  std::vector<Way> ways;
  add(ways, "marks", markedLaunch, shapes::MarkedList{});
  add(ways, "units", unitsLaunch, shapes::LongList{});
  for (const unsigned threads : {128U, 256U, 512U}) {
    ways.push_back({"an entry a word, " + std::to_string(threads) + " threads",
                    [&, threads](cudaStream_t stream) {
                      listedWords<<<(count + threads - 1) / threads, threads, 0, stream>>>(
                          static_cast<const std::uint64_t*>(target.source),
                          static_cast<const std::uint32_t*>(words),
                          static_cast<std::uint64_t*>(target.target), count);
                    }});
  }
  for (std::size_t i = 0; i < target.item.hands.size(); ++i) {
    ways.push_back({"hand", [&, i](cudaStream_t stream) {
                      target.item.hands[i](target.source, target.target, target.handTable, stream);
                    }});
  }
  keepCorrect(target, ways);
  timeInTurns(ways, target.stream, target.turns);
  report("tables", ways, target.boundMicroseconds, ways.size());
  CHECK_CUDA(cudaFree(words));
}

}  // namespace

void report(const char* stage, std::vector<Way> ways, double bound, std::size_t most) {
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Way& a, const Way& b) { return a.gpu < b.gpu; });
  std::printf("  %s\n", stage);
  for (std::size_t i = 0; i < std::min(most, ways.size()); ++i) {
    std::printf("    %8.1f us gpu %8.1f us wall  %5.1f %% of bound  %s\n", ways[i].gpu,
                ways[i].wall, 100 * bound / ways[i].gpu, ways[i].name.c_str());
  }
}

void keepCorrect(const SweepTarget& target, std::vector<Way>& ways) {
  std::erase_if(ways, [&](const Way& way) {
    way.run(target.stream);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaStreamSynchronize(target.stream));
    const bool right = target.correct();
    if (!right) std::printf("    WRONG: %s\n", way.name.c_str());
    return !right;
  });
}

void sweep(const SweepTarget& target) {
  const DevicePlan plan(target.item.layout);
  const Table table(plan);
  const DeviceLaunch launch = launchOf(target, plan, table);
  const KernelId kernel = launch.kernel;
  std::printf("%s: %s, width %d, bound %.1f us\n", target.item.name.c_str(),
              shapeName(kernel.shape), kernel.width, target.boundMicroseconds);
  if (kernel.shape == Shape::kLongList) {
    sweepUnits(target);
  } else if (kernel.shape == Shape::kMarkedList && kernel.width == 8) {
    sweepTables(target);
    sweepFlat(target, listBuildsOf<shapes::MarkedList, 8, 1>());
    sweepUnits(target);
  } else if (kernel.shape == Shape::kRows1 && kernel.width == 8) {
    sweepFlat(target, buildsOf<shapes::Rows1, 8>());
    if (target.item.layout.blocks().front().bytes == 8) sweepWords(target);
  } else if (kernel.shape == Shape::kRows1 && kernel.width == 16) {
    sweepFlat(target, buildsOf<shapes::Rows1, 16>());
  } else if (kernel.shape == Shape::kEvenList && kernel.width == 8) {
    sweepFlat(target, buildsOf<shapes::EvenList, 8>());
  } else if (kernel.shape == Shape::kEvenList && kernel.width == 16) {
    sweepFlat(target, buildsOf<shapes::EvenList, 16>());
  } else {
    std::printf("  no sweep for this shape\n");
  }
  if (kernel.shape == Shape::kRows1 && (kernel.width == 8 || kernel.width == 16) &&
      target.item.layout.blocks().front().bytes <= 2 * kernel.width) {
    sweepPaced(target, launch);
  }
  std::fflush(stdout);
}

}  // namespace packbench
