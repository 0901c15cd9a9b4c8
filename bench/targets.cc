// SPDX-License-Identifier: Apache-2.0
#include "bench/targets.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "bench/interleaved.h"
#include "bench/measure.h"
#include "bench/patterns.h"
#include "bench/vecadd.h"

namespace gmac::bench {
namespace {

constexpr Target atMost(double value) { return {Sense::kAtMost, value}; }
constexpr Target atLeast(double value) { return {Sense::kAtLeast, value}; }

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kGiB = 1024 * kMiB;
// Vectors of 64 Mi floats: what the target is about.
constexpr std::size_t kVectorFloats = 64 * kMiB;
// Of each access pattern, beside one that warms up.
constexpr std::size_t kPatternRounds = 10;
constexpr Range kPlausibleRound{1e-6, 1e3};  // seconds
// A pattern that misses a target in one set of processes is measured in so many.
constexpr std::size_t kPatternSets = 6;
// Enough for the host accelerator's own processor to be exercised on a small machine.
constexpr std::size_t kHostVectorFloats = 4 * kMiB;

// A figure close to its base may come out below it, by no more than the noise of clock and
// machine.
constexpr Range kRatio{0.5, 1000};
constexpr Range kOverMicroseconds{-2, 10000};
constexpr Range kOverNanoseconds{-5, 10000};
// Of a whole: what one promises to be next to nothing.
constexpr Range kShare{-0.05, 1};
// The system counts memory in pages of up to 2 MiB, the device's too.
constexpr Range kExtraMebibytes{-4, 1e6};
// A device, or its process, that is awake takes a launch in some microseconds.
constexpr Range kLaunchMicroseconds{0.05, 200};

// Faults alone: nothing is evicted.
Environment faultEnvironment(std::size_t blockBytes) {
  return {{"GMAC_ACCEL", "host"},
          {"GMAC_PROTOCOL", "rolling"},
          {"GMAC_BLOCK_SIZE", std::to_string(blockBytes)},
          {"GMAC_ROLLING_SIZE", "1073741824"}};
}

// Collects the rows of one run, leaving out those not asked for.
class Collector {
 public:
  Collector(const std::string& only, std::vector<std::string>& skipped)
      : only_(only), skipped_(skipped) {}

  bool wants(const std::string& name) const { return name.find(only_) != std::string::npos; }

  // A measurement that gives several rows: measured when one of them is wanted.
  struct Wanted {
    std::string name;
    const char* figure;  // its name in what the measurement returns
    std::string unit;
    std::optional<Target> target;
    Range plausible{};
    std::vector<Plausible> bases{};  // what it was calculated from
  };
  void measure(const char* measurement, const json& parameters, const Environment& environment,
               const std::vector<Wanted>& rows) {
    const auto wanted = [&](const Wanted& row) { return wants(row.name); };
    if (std::none_of(rows.begin(), rows.end(), wanted)) {
      return;
    }
    std::fprintf(stderr, "measuring: %s\n", rows.front().name.c_str());
    const json result = measureInChild(measurement, parameters, environment);
    for (const Wanted& row : rows) {
      if (wanted(row)) {
        std::vector<Plausible> figures = row.bases;
        figures.push_back({row.figure, row.plausible});
        std::string why = whyNotMeasured(result, figures);
        const json& value = result.contains(row.figure) ? result[row.figure] : json();
        rows_.push_back({row.name, value.is_number() ? value.get<double>() : 0, row.unit,
                         row.target, result, std::move(why)});
      }
    }
  }
  void add(Row row) { rows_.push_back(std::move(row)); }
  void skip(const std::string& name, const char* reason) {
    if (wants(name)) {
      skipped_.push_back(fmt::format("{}: {}", name, reason));
    }
  }

  std::vector<Row> take() { return std::move(rows_); }

 private:
  const std::string& only_;
  std::vector<std::string>& skipped_;
  std::vector<Row> rows_;
};

void faultRows(Collector& collector) {
  const struct {
    const char* name;
    std::size_t blockBytes;
    std::size_t blocks;
  } sizes[] = {{"4 KiB", 4 * kKiB, 128}, {"64 KiB", 64 * kKiB, 128}, {"2 MiB", 2 * kMiB, 16}};
  for (const auto& size : sizes) {
    collector.measure("fault",
                      {{"blockBytes", size.blockBytes},
                       {"blocks", size.blocks},
                       {"rounds", 301},
                       {"huge", false}},
                      faultEnvironment(size.blockBytes),
                      {{fmt::format("rolling fault / bare fault, {} blocks", size.name), "ratio",
                        "", atMost(1.5), kRatio}});
  }
  // Rates: the promise is one for 16 cores; fewer take as many threads.
  collector.measure("faultInThreads",
                    {{"blockBytes", 4 * kKiB}, {"blocks", 128}, {"threads", 16}, {"rounds", 101}},
                    faultEnvironment(4 * kKiB),
                    {{"faults of threads on objects of their own / bare faults of threads, rate",
                      "ratio", "", atLeast(0.8), kRatio}});
  collector.measure("faultByBlockCount",
                    {{"blockBytes", 4 * kKiB},
                     {"few", 1000},
                     {"many", 1000000},
                     {"touched", 128},
                     {"rounds", 301}},
                    faultEnvironment(4 * kKiB),
                    {{"fault at 1,000,000 blocks / at 1,000", "ratio", "", atMost(1.5), kRatio}});
}

// The same on a GPU, whose objects lie in pinned huge pages that were moved into place: against
// huge pages.
void cudaFaultRows(Collector& collector) {
  for (const std::size_t blockBytes : {64 * kKiB, 2 * kMiB}) {
    Environment environment = faultEnvironment(blockBytes);
    environment["GMAC_ACCEL"] = "cuda";
    environment["GMAC_TEST_MIRROR"] = "moved";
    collector.measure(
        "fault", {{"blockBytes", blockBytes}, {"blocks", 64}, {"rounds", 301}, {"huge", true}},
        environment,
        {{fmt::format("rolling fault / bare fault, {} KiB of huge pages, cuda", blockBytes / kKiB),
          "ratioAnonymous", "", atMost(1.5), kRatio}});
  }
}

// The cost of statistics and trace in a fault, off and on.
void probeRows(Collector& collector) {
  const json parameters = {{"blockBytes", 64 * kKiB}, {"blocks", 128}, {"rounds", 101}};
  collector.measure(
      "probes", parameters, faultEnvironment(64 * kKiB),
      {{"statistics and trace off, share of a fault", "share", "", atMost(0.01), kShare},
       {"fault, statistics and trace off", "fault", "us", std::nullopt}});
  const auto folder = std::filesystem::temp_directory_path();
  for (const char* variable : {"GMAC_STATS", "GMAC_TRACE"}) {
    const std::string file = folder / fmt::format("gmac-bench-{}.json", getpid());
    Environment environment = faultEnvironment(64 * kKiB);
    environment[variable] = file;
    collector.measure(
        "probes", parameters, environment,
        {{fmt::format("{} on, share of a fault", variable), "share", "", std::nullopt, kShare}});
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
}

void callRows(Collector& collector, const std::string& accelerator) {
  collector.measure(
      "call", {{"objects", 1000}, {"objectBytes", kMiB}, {"rounds", 501}},
      {{"GMAC_ACCEL", accelerator}},
      {{fmt::format("call over launch, nothing dirty, {}", accelerator),
        "over",
        "us",
        atMost(20),
        kOverMicroseconds,
        {{"launch", kLaunchMicroseconds}, {"call", {}}}},
       {fmt::format("accelerator's own launch, {}", accelerator), "launch", "us", std::nullopt,
        kLaunchMicroseconds},
       {fmt::format("call after one read, {}", accelerator), "callAfterRead", "us", std::nullopt}});
}

void smallRows(Collector& collector, const std::string& accelerator) {
  collector.measure("smallObjects",
                    {{"bytes", 256}, {"live", 131072}, {"pairs", 200000}, {"rounds", 7}},
                    {{"GMAC_ACCEL", accelerator}},
                    {{fmt::format("small objects, pairs, {}", accelerator), "operationsPerSecond",
                      "1/s", atLeast(1e6)},
                     {fmt::format("small objects, 131,072 and back, {}", accelerator),
                      "massedOperationsPerSecond", "1/s", atLeast(1e6)},
                     {fmt::format("small objects, CPU side, {}", accelerator), "appExtraMiB", "MiB",
                      atMost(64), kExtraMebibytes},
                     {fmt::format("small objects, accelerator's side, {}", accelerator),
                      "acceleratorExtraMiB", "MiB", atMost(64), kExtraMebibytes}});
}

// A file to the accelerator and a kernel's result to a file. On the host accelerator the copies
// take the processor that the file takes, too, and nothing is promised.
void fileRows(Collector& collector, const std::string& accelerator) {
  const bool cuda = accelerator == "cuda";
  const json parameters = {{"bytes", cuda ? kGiB : 64 * kMiB}, {"rounds", 7}};
  const auto target = cuda ? std::optional(atMost(1.05)) : std::nullopt;
  const auto measure = [&](const char* measurement, const char* what) {
    collector.measure(
        measurement, parameters, {{"GMAC_ACCEL", accelerator}},
        {{fmt::format("{}, {}", what, accelerator), "ratio", "", target},
         {fmt::format("{} huge pages, {}", what, accelerator), "ratioHuge", "", std::nullopt},
         {fmt::format("{}: seconds a GiB, {}", what, accelerator), "shared", "s", std::nullopt}});
  };
  measure("readFile", "file to the accelerator / read");
  measure("writeFile", "kernel's result to a file / write");
}

// The library's cost to calls of a program that do not touch shared memory.
void memoryRows(Collector& collector) {
  for (const char* function : {"memcpy", "memmove", "memset"}) {
    collector.measure("interposedMemory",
                      {{"function", function}, {"bytes", 64}, {"calls", 20000}, {"rounds", 501}},
                      {{"GMAC_ACCEL", "host"}},
                      {{fmt::format("{} of 64 bytes over libc's", function), "over", "ns",
                        atMost(2), kOverNanoseconds}});
    collector.measure(
        "interposedMemory",
        {{"function", function}, {"bytes", 64 * kKiB}, {"calls", 100}, {"rounds", 1001}},
        {{"GMAC_ACCEL", "host"}},
        {{fmt::format("{} of 64 KiB / libc's", function), "ratio", "", atMost(1.01), kRatio}});
  }
}

// A pattern under each of `ways` (protocols, or managed memory) in a process of its own, in turns.
Interleaved patternSet(const Pattern& pattern, const std::vector<std::string>& ways,
                       const std::string& accelerator) {
  std::vector<std::unique_ptr<TurnsInChild>> children;
  for (const std::string& way : ways) {
    json parameters = pattern.parameters;
    parameters["managed"] = way == "managed";
    children.push_back(std::make_unique<TurnsInChild>(
        "pattern", parameters,
        Environment{{"GMAC_ACCEL", accelerator},
                    {"GMAC_PROTOCOL", way == "managed" ? "rolling" : way}}));
  }
  return Interleaved(ways.size(), kPatternRounds,
                     [&](std::size_t i) { return children[i]->turn(); });
}

// Every access pattern; on a GPU beside managed memory.
void patternRows(Collector& collector, bool cuda) {
  const std::string accelerator = cuda ? "cuda" : "host";
  std::vector<std::string> ways = {"rolling", "lazy", "batch"};
  if (cuda) {
    ways.emplace_back("managed");
  }
  const Target toBetter = atMost(1.25);
  const Target toManaged = atMost(1.10);
  for (const Pattern& pattern : patterns(cuda)) {
    const std::string name = fmt::format("patterns, {}, {}", accelerator, pattern.name);
    if (!collector.wants(name)) {
      continue;
    }
    std::fprintf(stderr, "measuring: %s\n", name.c_str());
    LeastOfSets least;
    double better = 0;
    double managed = 0;
    const auto measure = [&] {
      const Interleaved set = patternSet(pattern, ways, accelerator);
      least.add(set);
      const auto ratio = [&](std::size_t to) {
        return least.sets() == 1 ? set.ratio(0, to) : least.ratio(0, to);
      };
      better = std::max(ratio(1), ratio(2));
      managed = cuda ? ratio(3) : 0;
      return toBetter.isMetBy(better) && (!cuda || toManaged.isMetBy(managed));
    };
    // (All sets, not until one of them meets the targets.)
    for (bool met = measure(); !met && least.sets() < kPatternSets;) {
      (void)measure();
    }
    json details = {{"sets", least.sets()}};
    std::vector<Plausible> plausible;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      details[ways[i]] = least.seconds(i);
      plausible.push_back({ways[i], kPlausibleRound});
    }
    const std::string failure = whyNotMeasured(details, plausible);
    collector.add({name + " / better of lazy and batch", better, "", toBetter, details, failure});
    if (cuda) {
      collector.add({name + " / managed", managed, "", toManaged, details, failure});
    }
  }
}

// The result of a measurement on all GPUs; nothing where the row is not wanted, or skipped.
std::optional<json> onAllGpus(Collector& collector, bool cuda, const std::string& name,
                              const std::string& measure, const json& parameters,
                              Environment environment) {
  if (!collector.wants(name)) return std::nullopt;
  if (cuda) {
    std::fprintf(stderr, "measuring: %s\n", name.c_str());
    environment["GMAC_ACCEL"] = "cuda";
    json result = measureInChild(measure, parameters, environment);
    if (result.at("devices") != 1) return result;
  }
  collector.skip(name, "not several CUDA GPUs that reach each other's memory");
  return std::nullopt;
}

// Six kernels of different lengths, none of which needs another one.
void deviceRows(Collector& collector, bool cuda) {
  const std::string name =
      "six kernels on all GPUs, GMAC_SCHEDULER=history / best fixed assignment";
  const std::optional<json> result =
      onAllGpus(collector, cuda, name, "deviceCalls", {{"unit", 200'000}, {"rounds", 15}},
                {{"GMAC_SCHEDULER", "history"}});
  if (!result) return;
  const json& ratio = (*result)["ratio"];
  collector.add({name, ratio.is_number() ? ratio.get<double>() : 0, "", atMost(1.1), *result,
                 whyNotMeasured(*result, {{"ratio", kRatio}, {"best", kPlausibleRound}})});
}

// Over all buses at once. (Whole objects are handed over, so that the copies are what takes time.)
void stripingRow(Collector& collector, bool cuda) {
  const std::string name = "filling 1 GiB that is striped over all GPUs, from the CPU's pages";
  const std::optional<json> result =
      onAllGpus(collector, cuda, name, "striping",
                {{"bytes", std::size_t{1} << 30}, {"rounds", 11}}, {{"GMAC_PROTOCOL", "lazy"}});
  if (!result) return;
  const json& rate = (*result)["stripedRate"];
  collector.add({name, rate.is_number() ? rate.get<double>() : 0, "GB/s", atLeast(95), *result,
                 whyNotMeasured(*result, {{"striped", kPlausibleRound},
                                          {"plain", kPlausibleRound},
                                          {"ratio", kRatio}})});
}

// 1.5 times what the GPU has free. (One GPU: others would have room.)
void workingSetRows(Collector& collector, bool cuda) {
  constexpr std::size_t kPiece = std::size_t{256} << 20;
  const struct {
    const char* name;
    int coldEvery;
    double target;
  } rows[] = {{"6 GiB of objects with 4 GiB free, swept, over streaming by hand", 1, 0.6},
              {"the same, half of them in each fourth sweep only", 4, 0.4}};
  for (const auto& row : rows) {
    if (!collector.wants(row.name)) {
      continue;
    }
    if (!cuda) {
      collector.skip(row.name, "no CUDA GPU");
      continue;
    }
    std::fprintf(stderr, "measuring: %s\n", row.name);
    const int sweeps = 10 * row.coldEvery;
    double byHand = 0;
    double objects = 0;
    double last = 0;
    {
      json parameters{
          {"pieces", 24}, {"bytes", kPiece}, {"coldEvery", row.coldEvery}, {"byHand", true}};
      const Environment environment{{"GMAC_ACCEL", "cuda"}, {"CUDA_VISIBLE_DEVICES", "0"}};
      TurnsInChild hand("workingSet", parameters, environment);
      byHand = hand.turn();  // its memory is there, before the other's reservation
      parameters["byHand"] = false;
      parameters["free"] = 16 * kPiece;
      TurnsInChild shared("workingSet", parameters, environment);
      objects = shared.turn();
      for (int sweep = 1; sweep < sweeps; ++sweep) {
        byHand += hand.turn();
        objects += last = shared.turn();
      }
    }
    const json result{{"byHand", byHand / sweeps},
                      {"objects", objects / sweeps},
                      {"last", last},
                      {"ratio", objects / byHand}};
    collector.add({row.name, objects / byHand, "", atMost(row.target), result,
                   whyNotMeasured(result, {{"byHand", kPlausibleRound},
                                           {"objects", kPlausibleRound},
                                           {"ratio", {0.001, 1000}}})});
  }
}

json vecaddParameters(bool cuda, bool compare, int rounds) {
  return {{"count", cuda ? kVectorFloats : kHostVectorFloats},
          {"sparse", cuda ? 100 : 10},
          {"rounds", rounds},
          {"compare", compare}};
}

void vecaddRows(Collector& collector, bool cuda) {
  const std::string name = "vector addition / best of managed";
  if (!cuda) {
    collector.skip(name, "no CUDA GPU");
    return;
  }
  collector.measure(
      "vecadd", vecaddParameters(true, true, 7), {{"GMAC_ACCEL", "cuda"}},
      {{name, "overBestManaged", "", atMost(0.60)},
       {"vector addition / pinned, overlapped by hand", "overPinned", "", std::nullopt}});
}

}  // namespace

std::vector<Row> measureRows(const std::string& only, std::vector<std::string>& skipped) {
  Collector collector(only, skipped);
  const bool cuda = measureInChild("cuda", {}, {}).at("present");
  faultRows(collector);
  probeRows(collector);
  memoryRows(collector);
  for (const std::string accelerator : {"host", "cuda"}) {
    if (accelerator == "cuda" && !cuda) {
      collector.skip("call over launch, nothing dirty, cuda", "no CUDA GPU");
      collector.skip("small objects, cuda", "no CUDA GPU");
      collector.skip("file to the accelerator / read, cuda", "no CUDA GPU");
      collector.skip("kernel's result to a file / write, cuda", "no CUDA GPU");
      continue;
    }
    if (accelerator == "cuda") {
      cudaFaultRows(collector);
    }
    callRows(collector, accelerator);
    smallRows(collector, accelerator);
    fileRows(collector, accelerator);
  }
  patternRows(collector, cuda);
  vecaddRows(collector, cuda);
  deviceRows(collector, cuda);
  stripingRow(collector, cuda);
  workingSetRows(collector, cuda);
  return collector.take();
}

std::string sweep() {
  const bool cuda = measureInChild("cuda", {}, {}).at("present");
  std::string text =
      fmt::format("vector addition of {} Mi floats on {}, gmac alone; seconds\n",
                  (cuda ? kVectorFloats : kHostVectorFloats) / kMiB, cuda ? "cuda" : "host");
  text += fmt::format("{:>6} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>10}\n", "block", "allocate",
                      "fill", "add", "sum", "free", "whole", "sparse ms");
  double best = 0;
  std::string bestBlock;
  for (const std::string block : {"256K", "512K", "1M", "2M", "4M", "8M"}) {
    std::fprintf(stderr, "measuring: block %s\n", block.c_str());
    const json run = measureInChild(
        "vecadd", vecaddParameters(cuda, false, 3),
        {{"GMAC_ACCEL", cuda ? "cuda" : "host"}, {"GMAC_BLOCK_SIZE", block}})["gmac"];
    const double whole = run["whole"];
    if (bestBlock.empty() || whole < best) {
      best = whole;
      bestBlock = block;
    }
    text += fmt::format("{:>6} {:>8.3f} {:>7.3f} {:>7.3f} {:>7.3f} {:>7.3f} {:>7.3f} {:>10.3f}\n",
                        block, run["allocate"].get<double>(), run["fill"].get<double>(),
                        run["add"].get<double>(), run["sum"].get<double>(),
                        run["free"].get<double>(), whole, 1e3 * run["sparse"].get<double>());
  }
  text += fmt::format("best: block {}: {:.3f} s\n", bestBlock, best);
  return text;
}

namespace {

// Whether there is a GPU, asked in a process of its own so that this one never starts a driver.
json cuda(const json&) { return {{"present", cudaPresent()}}; }
const Registration kCuda("cuda", &cuda);

}  // namespace

}  // namespace gmac::bench
