// SPDX-License-Identifier: Apache-2.0
//
// The cost of one write fault.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bench/blocks.h"
#include "bench/interleaved.h"
#include "bench/measure.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac::bench {
namespace {

// {blockBytes, blocks, rounds, huge}: a rolling write fault against a signal and one mprotect of a
// memory file's pages
// (`ratio`) and of anonymous ones, huge or not (`ratioAnonymous`); microseconds.
json bareAndRolling(const json& parameters) {
  const std::size_t blockBytes = parameters["blockBytes"];
  const std::size_t blocks = parameters["blocks"];
  SharedBlocks shared(blockBytes, blocks, blocks);
  BareBlocks file(blockBytes, blocks, Memory::kFile);
  BareBlocks anonymous(blockBytes, blocks,
                       parameters["huge"] ? Memory::kHugePages : Memory::kAnonymous);
  // Every turn begins after the same flush of the shared blocks: what a copy leaves behind in
  // caches and page tables slows the faults after it down, bare or not.
  const Interleaved turns(3, parameters["rounds"], [&](std::size_t i) {
    shared.dirty();
    file.close();
    anonymous.close();
    shared.close();
    return i == 0 ? shared.write() : i == 1 ? file.write() : anonymous.write();
  });
  const double perBlock = 1e6 / static_cast<double>(blocks);
  return {{"rolling", turns.seconds(0) * perBlock},
          {"bare", turns.seconds(1) * perBlock},
          {"bareAnonymous", turns.seconds(2) * perBlock},
          {"ratio", turns.ratio(0, 1)},
          {"ratioAnonymous", turns.ratio(0, 2)}};
}
const Registration kBareAndRolling("fault", &bareAndRolling);

// {blockBytes, blocks, threads, rounds}: threads at once, each writing to `blocks` blocks of an
// object of its own, against as many that take a signal and change a protection and do nothing
// else: how many faults they have in a second, and `ratio` of the two.
json inThreads(const json& parameters) {
  const std::size_t blockBytes = parameters["blockBytes"];
  const std::size_t blocks = parameters["blocks"];
  const std::size_t threads = std::min(parameters["threads"].get<std::size_t>(),
                                       std::size_t{std::thread::hardware_concurrency()});
  std::vector<std::unique_ptr<SharedBlocks>> objects;
  for (std::size_t i = 0; i < threads; ++i) {
    objects.push_back(std::make_unique<SharedBlocks>(blockBytes, blocks, blocks));
  }
  BareBlocks bare(blockBytes, blocks * threads, Memory::kFile);
  const Interleaved turns(2, parameters["rounds"], [&](std::size_t i) {
    if (i == 1) {
      bare.close();
      return bare.write(threads);
    }
    for (const auto& object : objects) object->close();
    const std::uint64_t before = stats().writeFaults.value();
    const double seconds =
        secondsInThreads(threads, [&](std::size_t thread) { objects[thread]->writeUnchecked(); });
    const std::uint64_t faults = stats().writeFaults.value() - before;
    if (faults != blocks * threads) {
      throw std::runtime_error(fmt::format("{} writes were {} faults", blocks * threads, faults));
    }
    return seconds;
  });
  const auto rate = [&](std::size_t i) {
    return static_cast<double>(blocks * threads) / turns.seconds(i);
  };
  return {
      {"threads", threads}, {"rolling", rate(0)}, {"bare", rate(1)}, {"ratio", turns.ratio(1, 0)}};
}
const Registration kInThreads("faultInThreads", &inThreads);

// {blockBytes, few, many, touched, rounds}: faults of an object of `few` blocks against those of
// one of `many`.
json byBlockCount(const json& parameters) {
  const std::size_t blockBytes = parameters["blockBytes"];
  const std::size_t touched = parameters["touched"];
  SharedBlocks few(blockBytes, parameters["few"], touched);
  SharedBlocks many(blockBytes, parameters["many"], touched);
  const Interleaved turns(2, parameters["rounds"], [&](std::size_t i) {
    SharedBlocks& blocks = i == 0 ? few : many;
    blocks.close();
    return blocks.write();
  });
  const double perBlock = 1e6 / static_cast<double>(touched);
  return {{"few", turns.seconds(0) * perBlock},
          {"many", turns.seconds(1) * perBlock},
          {"ratio", turns.ratio(1, 0)}};
}
const Registration kByBlockCount("faultByBlockCount", &byBlockCount);

// {blockBytes, blocks, rounds}: the probes of statistics and trace that a fault passes, and the
// fault; microseconds. Run with and without GMAC_STATS and GMAC_TRACE.
json probes(const json& parameters) {
  const std::size_t blocks = parameters["blocks"];
  SharedBlocks shared(parameters["blockBytes"], blocks, blocks);
  constexpr std::size_t kPasses = 100000;
  const Interleaved turns(2, parameters["rounds"], [&](std::size_t i) {
    shared.close();
    if (i == 0) {
      return shared.write() / static_cast<double>(blocks);
    }
    const Stopwatch watch;
    for (std::size_t pass = 0; pass < kPasses; ++pass) {
      const Timed timed(Phase::kSignal);
      const TraceSpan span("fault", "write fault", {"address", pass});
      asm volatile("" ::: "memory");
    }
    return watch.seconds() / kPasses;
  });
  return {{"fault", turns.seconds(0) * 1e6},
          {"probes", turns.seconds(1) * 1e6},
          {"share", turns.ratio(1, 0)}};
}
const Registration kProbes("probes", &probes);

}  // namespace
}  // namespace gmac::bench
