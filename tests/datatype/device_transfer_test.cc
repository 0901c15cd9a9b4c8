// SPDX-License-Identifier: Apache-2.0
//
// Transfer kernels, run by their `host` implementations, against a copy byte by byte: every form of
// either side, every width, alignment and part. (That the same kernels do so on a device is
// transfer_calls_test's.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmac/datatype/kernels/pack_kernels.h"
#include "gmac/datatype/plan/transfer_plan.h"
#include "tests/datatype/plan_on_host.h"
#include "tests/exchange/random_layout.h"
#include "tests/support/seed.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using testing::RandomLayout;
using testing::randomLayout;

// Small limits, so that small layouts are cut into units and split into launches.
PlanTuning smallTuning(std::mt19937_64& random) {
  PlanTuning tuning;
  tuning.threads = 32;
  tuning.limitedThreads = 64;
  tuning.unitBytes = random() % 2 == 0 ? 64 : 0;
  tuning.markedMost = random() % 2 == 0 ? 512 : 0;
  tuning.mostElements = random() % 3 == 0 ? 77 : int64_t{1} << 30;
  tuning.mostNarrow = random() % 4 == 0 ? 100 : 0xffffffff;
  tuning.oneEachOverLink = 50;
  return tuning;
}

std::uint64_t addressOf(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Runs all launches of the job; the names of their kernels.
std::vector<std::string> run(const TransferJob& job) {
  std::vector<std::string> names;
  int64_t moved = 0;
  EXPECT_TRUE(transferLaunches(job, [&](const TransferLaunch& launch) {
                const int number = kernelNumber(launch.kernel);
                EXPECT_TRUE(kernelExists(number));
                EXPECT_EQ(launch.paramBytes, kernelParamBytes(number));
                EXPECT_TRUE(job.maxBlocks == 0 || launch.blocks <= job.maxBlocks);
                names.emplace_back(kernelName(number));
                moved += static_cast<int64_t>(launch.bytes);
                testing::runBlocks(number, launch.blocks, launch.threads,
                                   const_cast<std::byte*>(launch.params));
                return Status();
              }).ok());
  EXPECT_EQ(moved, job.bytes);
  return names;
}

// Copies a part from one layout to the other, both at any address; the kernels that did.
std::vector<std::string> check(const RandomLayout& to, const RandomLayout& from,
                               const PlanTuning& tuning, int64_t offset, int64_t bytes,
                               std::size_t toSkew, std::size_t fromSkew, std::uint32_t maxBlocks) {
  const DevicePlan toPlan(to.layout, tuning);
  const DevicePlan fromPlan(from.layout, tuning);
  const std::vector<std::uint64_t> toTable = testing::tableOf(toPlan);
  const std::vector<std::uint64_t> fromTable = testing::tableOf(fromPlan);
  alignas(64) static std::byte sourceMemory[1 << 20];
  alignas(64) static std::byte targetMemory[1 << 20];
  std::byte* const source = sourceMemory + fromSkew;
  std::byte* const target = targetMemory + toSkew;
  for (int64_t i = 0; i < from.span; ++i) source[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto targetBytes = static_cast<std::size_t>(to.span) + 64;
  std::memset(targetMemory, 0xa5, toSkew + targetBytes);
  std::vector<std::byte> expected(targetMemory, target + targetBytes);
  for (auto at = static_cast<std::size_t>(offset); at < static_cast<std::size_t>(offset + bytes);
       ++at) {
    expected[toSkew + static_cast<std::size_t>(to.offsets[at])] = source[from.offsets[at]];
  }
  TransferJob job;
  job.target = {&toPlan, addressOf(target), addressOf(toTable.data())};
  job.source = {&fromPlan, addressOf(source), addressOf(fromTable.data())};
  job.offset = offset;
  job.bytes = bytes;
  job.maxBlocks = maxBlocks;
  job.overLink = bytes % 2 == 0;
  std::vector<std::string> names = run(job);
  EXPECT_EQ(std::memcmp(expected.data(), targetMemory, expected.size()), 0);
  return names;
}

// The same layout of words of `factor` bytes in place of bytes.
RandomLayout scaled(const RandomLayout& from, int64_t factor) {
  std::vector<Dim> dims;
  for (const Dim& dim : from.layout.dims()) dims.push_back({dim.count, dim.stride * factor});
  std::vector<Block> blocks;
  for (const Block& block : from.layout.blocks()) {
    blocks.push_back({block.offset * factor, block.bytes * factor});
  }
  RandomLayout made;
  Result<Layout> layout = Layout::make(dims, blocks);
  EXPECT_TRUE(layout.ok());
  made.layout = std::move(*layout);
  for (const int64_t offset : from.offsets) {
    for (int64_t i = 0; i < factor; ++i) made.offsets.push_back(offset * factor + i);
  }
  made.span = from.span * factor;
  return made;
}

TEST(DeviceTransfer, ThreadsLoadSeveralElementsOverALinkWhereThereAreMany) {
  const PlanTuning tuning;
  const auto blocksOf = [&](int64_t rows, bool overLink) {
    const Result<Layout> layout = Layout::make({{rows, 64}}, {{0, 16}});
    EXPECT_TRUE(layout.ok());
    const DevicePlan plan(*layout, tuning);
    TransferJob job;
    job.target = {&plan, 0x10000000, 0};
    job.source = {&plan, 0x20000000, 0};
    job.bytes = rows * 16;
    job.overLink = overLink;
    TransferLaunch launch;
    EXPECT_EQ(makeTransferLaunch(job, 0, launch), job.bytes);
    return launch.blocks;
  };
  const int64_t many = int64_t{1} << 20;
  EXPECT_EQ(blocksOf(many, false), many / tuning.threads);
  EXPECT_EQ(blocksOf(many, true), many / tuning.threads / kLoadsUnderWay);
  const int64_t few = tuning.oneEachOverLink;
  EXPECT_EQ(blocksOf(few, true), few / tuning.threads);
}

TEST(DeviceTransfer, CopiesAnyPartBetweenAnyLayouts) {
  std::mt19937_64 random(testing::seedOr(1));
  std::set<std::string> used;
  std::set<std::pair<Shape, Shape>> pairs;
  for (int round = 0; round < 6000; ++round) {
    const auto below = [&](int64_t end) {
      return static_cast<int64_t>(random() % static_cast<std::uint64_t>(end));
    };
    const int64_t about = 1 + below(round % 20 == 1 ? 40000 : 2000);
    const int64_t word = round % 5 == 0 ? int64_t{1} << below(5) : 1;
    const RandomLayout from = scaled(randomLayout(random, about), word);
    const RandomLayout to = scaled(randomLayout(random, about), word);
    if (std::max(from.span, to.span) > 1000000) continue;
    const PlanTuning tuning = smallTuning(random);
    pairs.insert({DevicePlan(to.layout, tuning).shape(), DevicePlan(from.layout, tuning).shape()});
    const int64_t most = std::min(from.layout.bytes(), to.layout.bytes());
    const int64_t offset = round % 2 == 0 ? 0 : below(most);
    const int64_t bytes = round % 3 == 0 ? most - offset : 1 + below(most - offset);
    const auto skew = [&] { return static_cast<std::size_t>(round % 4 == 0 ? below(16) : 0); };
    const std::size_t toSkew = skew();
    const std::size_t fromSkew = skew();
    const auto maxBlocks = static_cast<std::uint32_t>(below(3));
    for (const std::string& name :
         check(to, from, tuning, offset, bytes, toSkew, fromSkew, maxBlocks)) {
      used.insert(name);
    }
    ASSERT_FALSE(::testing::Test::HasFailure())
        << "seed " << testing::seedOr(1) << ", round " << round << ": " << from.layout.describe()
        << " to " << to.layout.describe() << ", [" << offset << ", " << offset + bytes << ")";
  }
  // Forms and widths meet in all ways.
  EXPECT_GE(pairs.size(), 60);
  EXPECT_EQ(used.size(), static_cast<std::size_t>(kTransferShapes * kWidths)) << [&] {
    std::string all;
    for (const std::string& name : used) all += name + " ";
    return all;
  }();
}

// Rows of `bytes`, `stride` apart, with the offsets of their bytes.
RandomLayout rows(int64_t bytes, int64_t count, int64_t stride) {
  RandomLayout made;
  Result<Layout> layout = Layout::make({{count, stride}}, {{0, bytes}});
  EXPECT_TRUE(layout.ok());
  made.layout = std::move(*layout);
  for (int64_t i = 0; i < count * bytes; ++i) {
    made.offsets.push_back(i / bytes * stride + i % bytes);
  }
  made.span = count * stride;
  return made;
}

TEST(DeviceTransfer, WordsAreAsWideAsBothSidesAllow) {
  const auto kernel = [](int64_t toBytes, int64_t fromBytes, std::size_t skew) {
    const RandomLayout to = rows(toBytes, 960 / toBytes, toBytes + 32);
    const RandomLayout from = rows(fromBytes, 960 / fromBytes, fromBytes + 64);
    return check(to, from, {}, 0, 960, skew, 0, 0);
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(kernel(32, 16, 0), ElementsAre("gmacTransferRows1_16"));
  EXPECT_THAT(kernel(24, 16, 0), ElementsAre("gmacTransferRows1_8"));
  EXPECT_THAT(kernel(24, 12, 0), ElementsAre("gmacTransferRows1_4"));
  EXPECT_THAT(kernel(32, 16, 4), ElementsAre("gmacTransferRows1_4"));
  EXPECT_THAT(kernel(32, 16, 1), ElementsAre("gmacTransferRows1_0"));
  EXPECT_THAT(kernel(6, 6, 0), ElementsAre("gmacTransferRows1_2"));
  EXPECT_THAT(kernel(3, 5, 0), ElementsAre("gmacTransferRows1_1"));
}

}  // namespace
}  // namespace gmac::datatype
