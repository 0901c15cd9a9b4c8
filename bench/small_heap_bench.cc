// SPDX-License-Identifier: Apache-2.0
//
// The bookkeeping of small objects: allocations and frees a second on one thread (the promise is 1
// million or better).
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "gmac/coherence/small_heap.h"

namespace gmac {
namespace {

// Numbers that stand for memory: the heap never touches what it hands out.
class Addresses : public RegionSource {
 public:
  Result<void*> acquire(std::size_t bytes) override {
    next_ += bytes;
    return reinterpret_cast<void*>(next_);
  }
  Status release(void*) override { return Status(); }
  void clear(void*, std::size_t) override {}

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
};

// Replaces a random one of range(0) live objects of 256 bytes.
void replaceOne(benchmark::State& state) {
  Addresses addresses;
  SmallHeap heap(addresses);
  std::mt19937 random(1);
  std::vector<void*> live(static_cast<std::size_t>(state.range(0)));
  for (void*& object : live) object = *heap.allocate(256);
  for (auto _ : state) {
    void*& object = live[random() % live.size()];
    if (!heap.free(object).ok()) std::abort();
    object = *heap.allocate(256);
  }
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(replaceOne)->Arg(1000)->Arg(131072);

// Allocates range(0) objects of mixed sizes and frees them all.
void fillAndEmpty(benchmark::State& state) {
  Addresses addresses;
  SmallHeap heap(addresses);
  std::mt19937 random(1);
  std::vector<std::size_t> sizes(static_cast<std::size_t>(state.range(0)));
  for (std::size_t& bytes : sizes) bytes = 1 + random() % 4096;
  std::vector<void*> live(sizes.size());
  for (auto _ : state) {
    for (std::size_t i = 0; i < sizes.size(); ++i) live[i] = *heap.allocate(sizes[i]);
    for (void* object : live) {
      if (!heap.free(object).ok()) std::abort();
    }
  }
  state.SetItemsProcessed(2 * state.iterations() * state.range(0));
}
BENCHMARK(fillAndEmpty)->Arg(1000)->Arg(100000);

void findOne(benchmark::State& state) {
  Addresses addresses;
  SmallHeap heap(addresses);
  std::mt19937 random(1);
  std::vector<void*> live(static_cast<std::size_t>(state.range(0)));
  for (void*& object : live) object = *heap.allocate(256);
  for (auto _ : state) benchmark::DoNotOptimize(heap.find(live[random() % live.size()]));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(findOne)->Arg(131072);

}  // namespace
}  // namespace gmac
