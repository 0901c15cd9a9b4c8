// SPDX-License-Identifier: Apache-2.0
//
// Which pages of a large object are known, and when a round of one begins.
#include "gmac/coherence/page_rounds.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gmac {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kPages = 1000;
constexpr std::size_t kWindow = std::size_t{64} << 10;
constexpr std::uint64_t kNow = 17;

class PageRoundsOf : public ::testing::Test {
 protected:
  bool taken(std::size_t offset, std::size_t bytes = kWindow) {
    return rounds_.taken(offset, bytes, kNow);
  }
  std::vector<std::size_t> taken() {
    std::vector<std::size_t> numbers;
    rounds_.forEachTaken([&](const PageRounds::Page& page) { numbers.push_back(page.number); });
    return numbers;
  }
  bool round(std::size_t page, std::size_t bytes = kWindow) {
    rounds_.comes(page * kPage + 100, 1);
    return taken(page * kPage + 100, bytes);
  }
  void endAll() {
    rounds_.forEachTaken([&](PageRounds::Page& page) { rounds_.ended(page); });
  }

  PageRounds rounds_{kPages * kPage, kPage};
};

TEST_F(PageRoundsOf, ARoundBeginsWhereALaunchTakesWhatTheCpuCameFor) {
  EXPECT_FALSE(taken(3 * kPage)) << "nobody came";
  rounds_.comes(3 * kPage + 5, 7);
  EXPECT_FALSE(rounds_.anyTaken());
  EXPECT_FALSE(taken(4 * kPage)) << "another page";
  EXPECT_TRUE(taken(4 * kPage - 1));
  EXPECT_EQ(taken(), std::vector<std::size_t>{3});
  rounds_.forEachTaken([](const PageRounds::Page& page) {
    EXPECT_EQ(page.comers.newest(), 7U);
    EXPECT_TRUE(page.policy.taken());
  });
  EXPECT_FALSE(taken(3 * kPage)) << "the CPU has not come again";
  endAll();
  EXPECT_FALSE(rounds_.anyTaken());
}

TEST_F(PageRoundsOf, TheLastFourThreadsThatCameForAPageAreKnown) {
  for (const std::uint64_t thread : {1, 2, 3, 2, 4, 5, 3}) {
    rounds_.comes(3 * kPage, thread);
  }
  const Comers& comers = rounds_.known(3)->comers;
  EXPECT_EQ(comers.newest(), 3U);
  for (const std::uint64_t thread : {2, 3, 4, 5}) {
    EXPECT_TRUE(comers.has(thread)) << thread;
  }
  EXPECT_FALSE(comers.has(1));
  for (int i = 0; i < 14; ++i) {
    rounds_.comes(3 * kPage, 5);
  }
  EXPECT_TRUE(comers.has(3));
  rounds_.comes(3 * kPage, 5);
  rounds_.comes(3 * kPage, 5);
  EXPECT_FALSE(comers.has(3)) << "long ago";
  EXPECT_TRUE(comers.has(5));
}

TEST_F(PageRoundsOf, EachPageHasRoundsOfItsOwn) {
  for (const std::size_t page : {0UL, 1UL, 62UL, 65UL, 999UL}) {
    EXPECT_TRUE(round(page)) << page;
  }
  EXPECT_EQ(taken().size(), 5U);
}

TEST_F(PageRoundsOf, WhereTheCpuIsGivenMuchOnlySparsePagesCount) {
  const auto counts = [&](std::size_t number) {
    bool counts = false;
    rounds_.forEachTaken([&](const PageRounds::Page& page) {
      counts = page.number == number ? rounds_.counts(page) : counts;
    });
    return counts;
  };
  ASSERT_TRUE(round(3, kPage / 2));
  ASSERT_TRUE(round(4, kPage / 2));
  EXPECT_FALSE(taken(5 * kPage - kWindow)) << "the round has begun";
  ASSERT_FALSE(taken(7 * kPage, 9 * kPage / 2 - kWindow)) << "nobody came";
  EXPECT_TRUE(counts(3));
  EXPECT_TRUE(counts(4));
  ASSERT_FALSE(taken(9 * kPage));
  EXPECT_TRUE(counts(3));
  EXPECT_FALSE(counts(4)) << "more than five pages, and more than half of this one";
  // The next round begins anew.
  endAll();
  ASSERT_TRUE(round(4, kPage));
  ASSERT_FALSE(taken(7 * kPage, 4 * kPage));
  EXPECT_TRUE(counts(4));
  // Whatever other threads wait for meanwhile.
  ASSERT_TRUE(round(3));
  rounds_.forEachTaken([&](PageRounds::Page& page) {
    if (page.number == 3) {
      rounds_.ended(page);
    }
  });
  EXPECT_FALSE(counts(4));
  endAll();
  ASSERT_TRUE(round(4));
  ASSERT_FALSE(taken(7 * kPage, 10 * kPage));
  EXPECT_TRUE(counts(4));
}

// As where the CPU reads words all over the object beside a few arrays.
TEST_F(PageRoundsOf, AHotPageStaysKnownBesideManyOthers) {
  ASSERT_TRUE(round(5));
  endAll();
  for (std::size_t page = 100; page < kPages; ++page) {
    rounds_.comes(page * kPage, 1);
    if (page % 100 == 0) {
      ASSERT_TRUE(round(5)) << page;
      endAll();
    }
  }
}

TEST_F(PageRoundsOf, AnotherPageGetsThePlaceOfOneThatIsNoLongerUsed) {
  ASSERT_TRUE(round(5));
  endAll();
  int passedOver = 0;
  while (!round(68) && passedOver < 100) {  // (it has the same place)
    ++passedOver;
  }
  EXPECT_EQ(passedOver, PageRounds::kPatience);
  EXPECT_FALSE(taken(5 * kPage));
  EXPECT_EQ(rounds_.known(5), nullptr);
  ASSERT_NE(rounds_.known(68), nullptr);
  EXPECT_TRUE(rounds_.known(68)->comers.has(1));
}

TEST_F(PageRoundsOf, WhatIsKnownGoesWithThePage) {
  ASSERT_TRUE(round(5));
  rounds_.forEachTaken([](PageRounds::Page& page) { page.policy.round(); });
  EXPECT_TRUE(rounds_.release(5).inRound());
  EXPECT_FALSE(rounds_.anyTaken());
  EXPECT_FALSE(rounds_.release(5).inRound());
  EXPECT_FALSE(taken(5 * kPage));
}

TEST_F(PageRoundsOf, OnceStoppedNoneIsKnown) {
  ASSERT_TRUE(round(5));
  rounds_.stop();
  EXPECT_FALSE(rounds_.anyTaken());
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(round(5));
  }
}

TEST_F(PageRoundsOf, ReturnsOfOtherPagesCountByTheirLogarithm) {
  EXPECT_EQ(rounds_.returnsOf(5), 0U);
  rounds_.comesBack(5);
  EXPECT_EQ(rounds_.returnsOf(5), 1U);
  EXPECT_EQ(rounds_.returnsOf(6), 1U);
  for (std::size_t page = 100; page < 115; ++page) {
    rounds_.comesBack(page);
  }
  EXPECT_EQ(rounds_.returnsOf(6), 5U);
  EXPECT_EQ(rounds_.returnsOf(5), 5U);
  for (int i = 0; i < 1000; ++i) {
    rounds_.comesBack(7);
  }
  EXPECT_EQ(rounds_.returnsOf(7), 255U + 10U);
}

}  // namespace
}  // namespace gmac
