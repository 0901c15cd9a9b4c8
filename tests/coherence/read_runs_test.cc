// SPDX-License-Identifier: Apache-2.0
//
// How much readers in order fetch ahead, and that others fetch nothing.
#include "gmac/coherence/read_runs.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <set>

namespace gmac {
namespace {

constexpr std::size_t kBlocks = 1000;
constexpr std::size_t kLimit = 16;

// An object whose blocks a program reads one by one, in any order.
class Reads : public ::testing::Test {
 protected:
  // Whether that was a fault; what it fetched is `fetched` then.
  bool read(std::size_t block) {
    if (current_.contains(block)) {
      return false;
    }
    const BlockRange all{BlockIndex{0}, BlockIndex{kBlocks}};
    const BlockRange range = runs_.extend(BlockIndex{block}, all, kLimit, [&](BlockIndex index) {
      const auto i = static_cast<std::size_t>(index);
      EXPECT_LT(i, kBlocks);
      return !current_.contains(i);
    });
    fetched = range.end - range.begin;
    for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
      current_.insert(static_cast<std::size_t>(i));
    }
    EXPECT_TRUE(current_.contains(block));
    return true;
  }

  std::size_t fetched = 0;
  ReadRuns runs_;
  std::set<std::size_t> current_;
};

TEST_F(Reads, InOrderFetchTwiceAsMuchEachTimeUpToTheLimit) {
  std::size_t expected = 1;
  for (std::size_t block = 0; block < 500; ++block) {
    if (read(block)) {
      EXPECT_EQ(fetched, expected) << block;
      expected = std::min(2 * expected, kLimit);
    }
  }
}

TEST_F(Reads, BackwardAreReadAheadLikewise) {
  std::size_t faults = 0;
  for (std::size_t block = kBlocks; block-- > kBlocks - 100;) {
    faults += read(block) ? 1 : 0;
  }
  EXPECT_LE(faults, 5 + 100 / kLimit);
}

TEST_F(Reads, ThatLeaveOutBlocksFetchThoseAlone) {
  for (std::size_t block = 0; block < kBlocks; block += 2) {
    EXPECT_TRUE(read(block));
    EXPECT_EQ(fetched, 1U) << block;
  }
}

TEST_F(Reads, OfFourReadersAreToldApart) {
  std::size_t faults = 0;
  for (std::size_t block = 0; block < 200; ++block) {
    for (const std::size_t reader : {0U, 250U, 500U, 750U}) {
      faults += read(reader + block) ? 1 : 0;
    }
  }
  EXPECT_LE(faults, 4 * (5 + 200 / kLimit));
}

TEST_F(Reads, StopAtABlockThatCannotCome) {
  current_ = {2};
  EXPECT_TRUE(read(0));
  EXPECT_TRUE(read(1));
  EXPECT_EQ(fetched, 1U);
}

TEST_F(Reads, WithoutReadAheadCountAsARun) {
  runs_.note(BlockIndex{0});
  runs_.note(BlockIndex{1});
  EXPECT_TRUE(read(2));
  EXPECT_EQ(fetched, 4U);
}

}  // namespace
}  // namespace gmac
