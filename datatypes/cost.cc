// SPDX-License-Identifier: Apache-2.0
#include "datatypes/cost.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "datatypes/engine.h"
#include "datatypes/failure.h"
#include "datatypes/pack_bench.h"
#include "datatypes/shared_source.h"

namespace datatypes {
namespace {

// The ways that a row may have; "engine" is the engine's own choice.
constexpr const char* kEngine = "engine";
constexpr const char* kHand = "hand";
constexpr const char* kHandStaged = "hand, staged";
constexpr const char* kCopy2d = "copy2d";
constexpr const char* kCopy = "copy";
constexpr const char* kEmpty = "empty";
constexpr const char* kTwoBlocks = "engine, 2 blocks";
constexpr const char* kKernelOfTwoBlocks = "engine, kernel, 2 blocks";

std::string forced(adsmMethod_t method) {
  return fmt::format("engine, {}", adsmMethodName(method));
}
const std::vector<adsmMethod_t> kForced = {adsmMethodKernel, adsmMethodCopy2d, adsmMethodStaged};

void addReport(Row& row, const adsmPackReport_t& report) {
  row.method = adsmMethodName(report.method);
  row.details["report"] = {{"bytes", report.bytes},
                           {"bytesOnCpu", report.bytesOnCpu},
                           {"bytesAcross", report.bytesAcross},
                           {"launches", report.launches}};
}

Verdict judge(const Rule& rule, const Row& row, const Times& times) {
  const auto atMost = [&](const std::string& way, std::string target) {
    return Verdict{std::move(target), rule.value, times.ratio(kEngine, way).value(), "", false};
  };
  switch (rule.kind) {
    case Rule::Kind::kTimesHand:
      return atMost(kHand, fmt::format("<= {:.2f} of hand", rule.value));
    case Rule::Kind::kTimesBest: {
      const std::string best =
          times.quickest({kHand, kHandStaged, kCopy2d, forced(adsmMethodKernel),
                          forced(adsmMethodCopy2d), forced(adsmMethodStaged)});
      return atMost(best, fmt::format("<= {:.2f} of {}", rule.value, best));
    }
    case Rule::Kind::kOfBound: {
      // The bound is of moving bytes alone: starting and awaiting any kernel comes on top.
      const double own = std::max(times.microseconds(kEngine) - times.microseconds(kEmpty), 0.001);
      return {fmt::format(">= {:.0f} % of bound", 100 * rule.value), 100 * rule.value,
              100 * row.boundUs.value() / own, " %", true};
    }
    case Rule::Kind::kOfCopy:
      return {fmt::format(">= {:.0f} % of a copy", 100 * rule.value), 100 * rule.value,
              100 * times.ratio(kCopy, kEngine).value(), " %", true};
  }
  throw Failure("a rule of no kind");
}

Row rowOf(const CostCase& one, const char* into) {
  Row row;
  row.group = one.group;
  row.work = one.workload.name;
  row.size = one.workload.size;
  row.into = into;
  row.details = {{"bytes", one.workload.bytes}, {"extent", one.workload.extent}};
  return row;
}

}  // namespace

Row measureOnGpu(Session& session, const CostCase& one) {
  const Workload& workload = one.workload;
  const bool pinned = one.into == Place::kPinned;
  Row row = rowOf(one, pinned ? "pinned" : "device");
  announce(fmt::format("{}: {}, {}, into {} memory", row.group, row.work, row.size, row.into));
  try {
    PackBench bench(session, workload, one.into);
    row.details["layout"] = bench.type().describe();
    addReport(row, bench.report());
    bench.engine(kEngine);
    if (one.forceMethods) {
      for (const adsmMethod_t method : kForced) {
        // Staging is for what leaves the device.
        if (method == adsmMethodStaged && !pinned) continue;
        bench.engine(forced(method), {.method = method});
      }
    }
    if (one.twoBlocks) {
      bench.engine(kTwoBlocks, {.blocks = 2});
      bench.engine(kKernelOfTwoBlocks, {.method = adsmMethodKernel, .blocks = 2});
      row.beside = {kTwoBlocks, kKernelOfTwoBlocks};
    }
    bench.hand(kHand);
    if (pinned) bench.handStaged(kHandStaged);
    bench.copies(kCopy2d);
    bench.copy(kCopy);
    bench.empty(kEmpty);
    const Times times = bench.measure(session.rounds());
    row.us = times.all();
    const Rates& rates = session.rates();
    row.boundUs = pinned
                      ? static_cast<double>(workload.bytes) / rates.pinned
                      : static_cast<double>(burstBytes(workload) + workload.bytes) / rates.device;
    for (const Rule& rule : one.rules) row.verdicts.push_back(judge(rule, row, times));
  } catch (const Failure& failure) {
    row.error = failure.what();
  }
  return row;
}

Row measureWithoutGpu(Session& session, const CostCase& one) {
  const Workload& workload = one.workload;
  Row row = rowOf(one, "cpu");
  announce(fmt::format("{}: {}, {}, on the host accelerator", row.group, row.work, row.size));
  try {
    SharedSource source(workload.extent);
    source.write();
    const Type type = workload.type();
    type.commit();
    row.details["layout"] = type.describe();
    const std::vector<std::byte> expected = packedPattern(workload);
    std::vector<std::byte> found(expected.size(), std::byte{0x5a});
    adsmPackReport_t report{};
    (void)pack(found.data(), source.get(), type, {}, &report);
    requireEqual(kEngine, expected, found);
    addReport(row, report);
    const Times times({{kEngine, [&] { (void)pack(found.data(), source.get(), type, {}); }, {}}},
                      session.rounds());
    row.us = times.all();
  } catch (const Failure& failure) {
    row.error = failure.what();
  }
  return row;
}

std::vector<CostCase> costCases(bool small) {
  using Kind = Rule::Kind;
  const std::int64_t kFromHereOnBound = 8 * kMiB;
  std::vector<CostCase> cases;
  const auto add = [&](const char* group, Workload workload, std::vector<Rule> rules,
                       Place into = Place::kDevice) -> CostCase& {
    cases.push_back({group, std::move(workload), into, std::move(rules), false, false});
    return cases.back();
  };

  add("vector", vector(8, 512, small ? 64 * kKiB : kMiB), {{Kind::kTimesHand, 1.05}});
  if (!small) add("vector", vector(8, 512, 64 * kMiB), {{Kind::kOfBound, 0.80}});

  const std::vector<std::int64_t> sizes =
      small ? std::vector<std::int64_t>{8 * kKiB}
            : std::vector<std::int64_t>{8 * kKiB, 64 * kKiB, 512 * kKiB, kMiB, 8 * kMiB, 64 * kMiB};
  for (const std::int64_t block : {8, 16, 32, 64, 128, 256}) {
    for (const std::int64_t bytes : sizes) {
      std::vector<Rule> rules = {{Kind::kTimesBest, 1.05}};
      add("vectors-pinned", vector(block, 512, bytes), rules, Place::kPinned).forceMethods = true;
      if (block == 8) continue;
      if (bytes >= kFromHereOnBound) rules.push_back({Kind::kOfBound, 0.85});
      add("vectors", vector(block, 512, bytes), rules).forceMethods = true;
    }
  }

  add("submatrix", subMatrix(small ? 128 : 4096), {{Kind::kOfCopy, 0.94}});
  for (const std::int64_t n :
       small ? std::vector<std::int64_t>{128} : std::vector<std::int64_t>{4096, 8192}) {
    add("triangle", triangle(n), {{Kind::kOfCopy, 0.90}});
  }
  for (const std::int64_t side :
       small ? std::vector<std::int64_t>{4, 8} : std::vector<std::int64_t>{4, 8, 16, 32}) {
    add("subarray", subarray4d(side), {{Kind::kTimesHand, 1.10}});
  }
  for (const std::int64_t block : {8, 128}) {
    for (const std::int64_t bytes :
         small ? std::vector<std::int64_t>{32 * kKiB} : std::vector<std::int64_t>{kMiB, 8 * kMiB}) {
      add("indexed", indexed(block, bytes), {{Kind::kTimesHand, 1.05}});
    }
  }
  add("indexed-pairs", indexedPairs(small ? 256 : 65536), {{Kind::kTimesHand, 1.10}});
  for (const std::int64_t count :
       small ? std::vector<std::int64_t>{1000} : std::vector<std::int64_t>{1024, 1048576}) {
    add("structs", structs(count), {{Kind::kTimesHand, 1.10}});
  }
  add("transpose", transposed(small ? 64 : 2048), {{Kind::kTimesHand, 1.10}});
  for (const std::int64_t bytes : small ? std::vector<std::int64_t>{64 * kKiB}
                                        : std::vector<std::int64_t>{kMiB, 8 * kMiB, 64 * kMiB}) {
    add("nested", nestedVector(bytes), {{Kind::kTimesHand, 1.10}});
  }
  for (const Face which : {Face::kXy, Face::kXz, Face::kYz}) {
    const std::int64_t n = small ? 64 : 512;
    add("faces", face(which, n), {{Kind::kTimesHand, 1.05}});
    add("faces", face(which, n), {{Kind::kTimesBest, 1.05}}, Place::kPinned).forceMethods = true;
  }
  if (!small) {
    add("pipeline", subMatrix(4096), {{Kind::kOfCopy, 0.95}}, Place::kPinned).twoBlocks = true;
    add("pipeline", triangle(4096), {{Kind::kOfCopy, 0.92}}, Place::kPinned).twoBlocks = true;
  }
  return cases;
}

std::vector<Group> costGroups() {
  const auto cases = [](const char* name) {
    return [name](Session& session) {
      for (const CostCase& one : costCases(!session.hasGpu())) {
        if (one.group != name) continue;
        // There is one kind of CPU memory where there is no GPU.
        if (!session.hasGpu() && one.into == Place::kPinned) continue;
        session.results().rows.push_back(session.hasGpu() ? measureOnGpu(session, one)
                                                          : measureWithoutGpu(session, one));
      }
    };
  };
  const auto group = [&](const char* name, const char* title) {
    return Group{name, title, false, cases(name)};
  };
  return {
      group("vector", "blocks of 8 bytes every 512, 1 and 64 MiB"),
      group("vectors", "blocks of 16 to 256 bytes, 8 KiB to 64 MiB"),
      {"vectors-pinned", "blocks of 8 to 256 bytes into pinned memory", true,
       cases("vectors-pinned")},
      group("submatrix", "half the columns' rows of a matrix of doubles"),
      group("triangle", "the lower triangle of a matrix of doubles"),
      {"first-use", "the first pack of a triangle, and of short rows, against later ones", true,
       &measureFirstUse},
      group("subarray", "a corner of a 4-D array"),
      group("indexed", "lists of equal blocks"),
      group("indexed-pairs", "a list of blocks of 8 and 128 bytes in turn"),
      group("structs", "an array of C structs with padding"),
      group("transpose", "a matrix of doubles column by column"),
      group("nested", "a vector of vectors"),
      group("faces", "the faces of a cube of doubles"),
      {"small", "packs of 256 bytes to 8 KiB", true, &measureSmallPacks},
      {"pipeline", "large packs into pinned memory against a copy", true, cases("pipeline")},
      {"commit", "committing types, on the CPU", false, &measureCommits},
      {"shared", "a face of a shared grid that a kernel has written", false, &measureSharedFaces}};
}

}  // namespace datatypes
