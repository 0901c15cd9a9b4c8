// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/pack_kernels/check.h"
#include "bench/pack_kernels/gpu.h"
#include "bench/pack_kernels/paced_sweep.h"
#include "gmac/datatype/kernels/pack_shapes.h"

namespace packbench {
namespace {

using namespace gmac::datatype;  // NOLINT(google-build-using-namespace)

template <int W, Hint kLoad, bool kAhead>
__global__ void __launch_bounds__(1024) pacedAs(const __grid_constant__ PacedRowsParams p) {
#ifdef __CUDA_ARCH__
  using Locator = RowsLocator<1>;
  runPaced<Locator, W, Tuning<kLoad, Hint::kOnce>, kAhead>(
      Locator{p.rows}, p, {blockIdx.x, threadIdx.x, gridDim.x, blockDim.x});
#endif
}

// Leaves every word as it is, and every line of it in the caches to be written.
__global__ void writeAgain(volatile std::uint64_t* words, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) words[i] = words[i];
}

struct Build {
  const char* name;
  const void* function;
};
template <int W>
std::vector<Build> builds() {
  const auto of = [](auto* function) { return reinterpret_cast<const void*>(function); };
  return {{"plain loads", of(&pacedAs<W, Hint::kNone, false>)},
          {"plain loads, ahead", of(&pacedAs<W, Hint::kNone, true>)},
          {"loads used once", of(&pacedAs<W, Hint::kOnce, false>)},
          {"past the first level", of(&pacedAs<W, Hint::kNoFirstLevel, false>)},
          {"past the first level, ahead", of(&pacedAs<W, Hint::kNoFirstLevel, true>)}};
}

}  // namespace

void sweepPaced(const SweepTarget& target, const DeviceLaunch& launch) {
  int device = 0;
  int multiprocessors = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  PacedRowsParams params{};
  std::memcpy(&params.rows, launch.params, sizeof params.rows);
  params.rows.part.unrolled = 0;
  const auto words = static_cast<unsigned>(params.rows.piece.divisor);

  std::vector<Way> ways;
  ways.push_back({"hand", [&](cudaStream_t stream) {
                    target.item.hands[0](target.source, target.target, target.handTable, stream);
                  }});
  for (const Build& build : launch.kernel.width == 8 ? builds<8>() : builds<16>()) {
    for (const unsigned threads : {384U, 448U, 512U, 640U, 768U, 1024U}) {
      for (const unsigned interval : {0U, 110U, 120U, 130U, 140U, 150U, 155U, 160U, 170U}) {
        PacedRowsParams paced = params;
        paced.interval = interval / words;
        ways.push_back({std::string(build.name) + ", " + std::to_string(threads) + " threads, " +
                            std::to_string(paced.interval) + " cycles",
                        [=](cudaStream_t stream) {
                          PacedRowsParams copy = paced;
                          void* args[] = {&copy};
                          CHECK_CUDA(cudaLaunchKernel(build.function, dim3(multiprocessors),
                                                      dim3(threads), args, 0, stream));
                        }});
      }
    }
  }
  keepCorrect(target, ways);

  constexpr std::size_t kElsewhere = std::size_t{512} << 20;
  void* elsewhere = nullptr;
  CHECK_CUDA(cudaMalloc(&elsewhere, kElsewhere));
  const auto writeAll = [&](void* memory, std::size_t bytes) {
    constexpr unsigned kThreads = 256;
    const std::size_t count = bytes / sizeof(std::uint64_t);
    writeAgain<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0,
                 target.stream>>>(static_cast<std::uint64_t*>(memory), count);
    CHECK_CUDA(cudaGetLastError());
  };
  const Bounds bounds = target.item.layout.bounds();
  struct Before {
    const char* name;
    std::function<void(const Way&)> run;
  };
  const Before befores[] = {{"itself", [&](const Way& way) { way.run(target.stream); }},
                            {"the hand kernel", [&](const Way&) { ways[0].run(target.stream); }},
                            {"a kernel that writes all of it",
                             [&](const Way&) {
                               writeAll(target.source,
                                        static_cast<std::size_t>(bounds.last - bounds.first));
                             }},
                            {"a kernel that writes something else",
                             [&](const Way&) { writeAll(elsewhere, kElsewhere); }}};
  for (const Before& before : befores) {
    timeInTurns(ways, target.stream, std::max(target.turns / 6, 5), before.run);
    const std::string stage = std::string("at a pace, after ") + before.name;
    report(stage.c_str(), ways, target.boundMicroseconds, 10);
    report("beside them", {ways[0]}, target.boundMicroseconds, 1);
  }
  CHECK_CUDA(cudaFree(elsewhere));
}

}  // namespace packbench
