// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "parboil/benchmark.h"

namespace parboil {

std::span<const Benchmark* const> benchmarks() {
  static const std::array<const Benchmark*, 9> kAll = {
      &cpBenchmark(),  &mriFhdBenchmark(), &mriQBenchmark(),    &pnsBenchmark(),   &rpesBenchmark(),
      &sadBenchmark(), &tpacfBenchmark(),  &stencilBenchmark(), &vecaddBenchmark()};
  return kAll;
}

const Benchmark* findBenchmark(const std::string& name) {
  for (const Benchmark* benchmark : benchmarks()) {
    if (name == benchmark->name) return benchmark;
  }
  return nullptr;
}

}  // namespace parboil
