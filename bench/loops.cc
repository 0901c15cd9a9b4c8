// SPDX-License-Identifier: Apache-2.0
//
// The measured loops alone, under Google Benchmark, in this process and with its GMAC_* variables.
#include <benchmark/benchmark.h>

#include "bench/blocks.h"
#include "bench/measure.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac::bench {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
constexpr std::size_t kBlocks = 256;

// One write fault an iteration; closing the blocks again is not counted.
template <typename Blocks>
void faultEach(benchmark::State& state, Blocks& blocks) {
  while (state.KeepRunningBatch(kBlocks)) {
    blocks.close();
    state.SetIterationTime(blocks.write());
  }
}

void bareFault(benchmark::State& state) {
  BareBlocks blocks(kBlockBytes, kBlocks, Memory::kFile);
  faultEach(state, blocks);
}
BENCHMARK(bareFault)->UseManualTime();

void rollingFault(benchmark::State& state) {
  SharedBlocks blocks(kBlockBytes, kBlocks, kBlocks);
  faultEach(state, blocks);
}
BENCHMARK(rollingFault)->UseManualTime();

void smallObject(benchmark::State& state) {
  for (auto _ : state) {
    check(adsmFree(checkedAlloc(256)), "adsmFree");
  }
}
BENCHMARK(smallObject);

void largeObject(benchmark::State& state) {
  for (auto _ : state) {
    check(adsmFree(checkedAlloc(static_cast<std::size_t>(state.range(0)))), "adsmFree");
  }
}
BENCHMARK(largeObject)->Arg(1 << 20)->Arg(64 << 20);

void callAndSync(benchmark::State& state) {
  const adsmKernel_t kernel = makeKernel("nothing", {}, [](const adsmThreadBlock_t*, void**) {});
  for (auto _ : state) {
    check(adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, 0, nullptr), "adsmCall");
    check(adsmSync(), "adsmSync");
  }
  check(adsmKernelDestroy(kernel), "adsmKernelDestroy");
}
BENCHMARK(callAndSync);

void probesOff(benchmark::State& state) {
  for (auto _ : state) {
    const Timed timed(Phase::kSignal);
    const TraceSpan span("fault", "write fault");
    benchmark::ClobberMemory();
  }
}
BENCHMARK(probesOff);

}  // namespace
}  // namespace gmac::bench

BENCHMARK_MAIN();
