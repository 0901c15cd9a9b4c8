// SPDX-License-Identifier: Apache-2.0
//
// The vector addition with shared objects, and all its ways in turns.
#include "bench/vecadd.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "bench/add_vectors.h"
#include "bench/measure.h"

namespace gmac::bench {
namespace {

constexpr std::chrono::milliseconds kSettle{200};

// The kernel's owner, and the vector addition as a program with shared objects writes it.
class SharedVecadd {
 public:
  SharedVecadd() { check(adsmKernelCreate(&addVectorsKernel(), &kernel_), "adsmKernelCreate"); }
  ~SharedVecadd() { (void)adsmKernelDestroy(kernel_); }
  SharedVecadd(const SharedVecadd&) = delete;
  SharedVecadd& operator=(const SharedVecadd&) = delete;

  VecaddRun run(std::size_t count, std::size_t sparseIterations) const {
    VecaddRun run;
    const std::size_t bytes = count * sizeof(float);
    Stopwatch watch;
    auto* const a = static_cast<float*>(checkedAlloc(bytes));
    auto* const b = static_cast<float*>(checkedAlloc(bytes));
    auto* const sum = static_cast<float*>(checkedAlloc(bytes));
    run.allocate = watch.seconds();
    watch = Stopwatch();
    fillVector(a, 0, count, 0);
    fillVector(b, 0, count, 1);
    run.fill = watch.seconds();
    watch = Stopwatch();
    add(sum, a, b, count);
    run.add = watch.seconds();
    watch = Stopwatch();
    run.result = sumVector(sum, count);
    run.sum = watch.seconds();
    watch = Stopwatch();
    for (std::size_t i = 0; i < sparseIterations; ++i) {
      const std::size_t element = sparseElement(i, count);
      a[element] = static_cast<float>(i);
      add(sum, a, b, count);
      (void)*static_cast<volatile float*>(sum + element);
    }
    run.sparse = sparseIterations > 0 ? watch.seconds() / static_cast<double>(sparseIterations) : 0;
    watch = Stopwatch();
    for (float* vector : {a, b, sum}) {
      check(adsmFree(vector), "adsmFree");
    }
    run.release = watch.seconds();
    return run;
  }

 private:
  void add(float* sum, const float* a, const float* b, std::size_t count) const {
    void* args[] = {&sum, &a, &b, &count};
    check(adsmCall(kernel_, addVectorsGrid(count), {kAddThreads, 1, 1}, 0, args), "adsmCall");
    check(adsmSync(), "adsmSync");
  }

  adsmKernel_t kernel_ = nullptr;
};

json toJson(const std::vector<VecaddRun>& runs) {
  const auto of = [&](auto part) {
    std::vector<double> values;
    for (const VecaddRun& run : runs) {
      values.push_back(part(run));
    }
    return median(std::move(values));
  };
  return {{"allocate", of([](const VecaddRun& run) { return run.allocate; })},
          {"fill", of([](const VecaddRun& run) { return run.fill; })},
          {"add", of([](const VecaddRun& run) { return run.add; })},
          {"sum", of([](const VecaddRun& run) { return run.sum; })},
          {"free", of([](const VecaddRun& run) { return run.release; })},
          {"whole", of([](const VecaddRun& run) {
             return run.allocate + run.fill + run.add + run.sum + run.release;
           })},
          {"sparse", of([](const VecaddRun& run) { return run.sparse; })}};
}

// {count, rounds, sparse, compare}: medians in seconds for each way, the ways in turns; with
// `compare`, those of CUDA too, and their ratios.
json vecadd(const json& parameters) {
  const std::size_t count = parameters["count"];
  const std::size_t sparse = parameters["sparse"];
  const bool compare = parameters["compare"];
  if (compare) {
    createCudaContext();
  }
  const SharedVecadd shared;
  std::vector<std::pair<std::string, std::function<VecaddRun()>>> ways;
  if (compare) {
    ways.emplace_back("managed", [&] { return addManaged(count, sparse, false); });
    ways.emplace_back("managedPrefetched", [&] { return addManaged(count, sparse, true); });
    ways.emplace_back("pinnedOverlapped", [&] { return addOverlapped(count, sparse); });
  }
  ways.emplace_back("gmac", [&] { return shared.run(count, sparse); });
  // The first round starts the runtime, loads the kernels, and is not counted.
  std::map<std::string, std::vector<VecaddRun>> runs;
  for (std::size_t round = 0; round <= parameters["rounds"].get<std::size_t>(); ++round) {
    for (const auto& [name, way] : ways) {
      // Work that the previous way has left to its threads ends before this one begins.
      std::this_thread::sleep_for(kSettle);
      const VecaddRun run = way();
      if (round > 0) {
        runs[name].push_back(run);
      }
    }
  }
  double expected = 0;
  {
    std::vector<float> a(count);
    std::vector<float> b(count);
    fillVector(a.data(), 0, count, 0);
    fillVector(b.data(), 0, count, 1);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] += b[i];
    }
    expected = sumVector(a.data(), count);
  }
  json result;
  for (const auto& [name, of] : runs) {
    for (const VecaddRun& run : of) {
      if (run.result != expected) {  // the same additions in the same order
        throw std::runtime_error(
            fmt::format("vecadd, {}: the sum is {}, not {}", name, run.result, expected));
      }
    }
    result[name] = toJson(of);
  }
  if (compare) {
    const double whole = result["gmac"]["whole"];
    const double managed = result["managed"]["whole"];
    const double prefetched = result["managedPrefetched"]["whole"];
    const double pinned = result["pinnedOverlapped"]["whole"];
    result["overBestManaged"] = whole / std::min(managed, prefetched);
    result["overPinned"] = whole / pinned;
  }
  return result;
}
const Registration kVecadd("vecadd", &vecadd);

}  // namespace
}  // namespace gmac::bench
