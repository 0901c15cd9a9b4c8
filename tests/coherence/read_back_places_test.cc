// SPDX-License-Identifier: Apache-2.0
//
// Which places of an object are known: several at a time, and a new one after old ones.
#include "gmac/coherence/read_back_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <random>
#include <set>
#include <vector>

namespace gmac {
namespace {

constexpr std::size_t kBlock = 65536;

// A program's rounds on one object: a call, a wait, and the blocks that the CPU looks at then.
class Program {
 public:
  explicit Program(const ReadBackPlaces& places = {}) : places_(places) {}

  // The blocks that were copied at the wait.
  std::set<std::size_t> round(const std::vector<std::size_t>& looks) {
    for (const std::size_t block : open_) {
      places_.closed(BlockIndex{block});
    }
    open_.clear();
    std::set<std::size_t> copied;
    for (std::size_t place = 0; place < places_.size(); ++place) {
      const auto guess = places_[place].guess();
      if (guess) {
        copied.insert(static_cast<std::size_t>(guess->block));
      }
      if (guess && guess->open) {
        places_.opened(place);
        open_.insert(static_cast<std::size_t>(guess->block));
      }
    }
    copies += copied.size();
    for (const std::size_t block : looks) {
      if (open_.insert(block).second) {
        places_.fetched(BlockIndex{block}, {block * kBlock, (block + 1) * kBlock});
        ++fetches;
      }
    }
    return copied;
  }
  std::set<std::size_t> rounds(int count, const std::vector<std::size_t>& looks) {
    std::set<std::size_t> copied;
    for (int i = 0; i < count; ++i) {
      copied = round(looks);
    }
    return copied;
  }

  std::size_t copies = 0;
  std::size_t fetches = 0;

 private:
  ReadBackPlaces places_;
  std::set<std::size_t> open_;
};

using Blocks = std::set<std::size_t>;

TEST(ReadBackPlaces, SeveralAreLearnedInTheSameRounds) {
  Program program;
  EXPECT_EQ(program.rounds(3, {0, 9, 4}), (Blocks{0, 4, 9}));
  const std::size_t fetches = program.fetches;
  EXPECT_EQ(program.round({0, 9, 4}), (Blocks{0, 4, 9}));
  EXPECT_EQ(program.fetches, fetches);
}

TEST(ReadBackPlaces, OfMoreThanThatTheFirstOnesAreKnown) {
  Program program;
  EXPECT_EQ(program.rounds(40, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
            (Blocks{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ReadBackPlaces, AccessesAllOverTheObjectPushOutNoPlace) {
  Program program;
  std::mt19937_64 random(3);
  std::size_t without = 0;
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::size_t> looks;
    std::generate_n(std::back_inserter(looks), 6, [&] { return 100 + random() % 100000; });
    looks.insert(round < 10 ? looks.begin() : looks.end(), {7, 8});
    const Blocks copied = program.round(looks);
    without += round > 20 && !(copied.contains(7) && copied.contains(8)) ? 1 : 0;
  }
  EXPECT_EQ(without, 0u);
  EXPECT_LE(program.copies, 2u * 1000);
}

TEST(ReadBackPlaces, PlacesThatAreLeftMakeRoom) {
  Program program;
  program.rounds(20, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(program.rounds(40, {10, 11, 12, 13, 14, 15, 16, 17}),
            (Blocks{10, 11, 12, 13, 14, 15, 16, 17}));
}

// One of many that take turns is none.
TEST(ReadBackPlaces, TheCpuHasToComeSoonAgain) {
  Program program;
  for (std::size_t round = 0; round < 1000; ++round) {
    program.round({round % 20});
  }
  EXPECT_EQ(program.copies, 0u);
  for (std::size_t round = 0; round < 1000; ++round) {
    program.round({round % 4});
  }
  EXPECT_GT(program.copies, 0u);
}

// Guesses that were wrong are not forgotten with the block that they were for.
TEST(ReadBackPlaces, AProgramThatGoesFromPlaceToPlacePaysForFew) {
  Program program;
  for (std::size_t block = 0; block < 10000; ++block) {
    program.rounds(3, {block});  // as long as the first guess takes
  }
  EXPECT_LE(program.copies, ReadBackPlaces::kMost * (std::bit_width(std::size_t{10000}) + 1));
}

TEST(ReadBackPlaces, OfOneCopyOnePlaceIsKnown) {
  Program program(ReadBackPlaces::ofOneCopy());
  EXPECT_EQ(program.rounds(40, {5, 6}), (Blocks{5}));
}

TEST(ReadBackPlaces, NothingIsKnownOnceItIsForgotten) {
  ReadBackPlaces places;
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t block : {2U, 3U}) {
      places.fetched(BlockIndex{block}, {block * kBlock, (block + 1) * kBlock});
      places.closed(BlockIndex{block});
    }
  }
  EXPECT_TRUE(places.repeats());
  EXPECT_TRUE(places.overlaps({3 * kBlock + 1, 3 * kBlock + 2}));
  EXPECT_FALSE(places.overlaps({4 * kBlock, 5 * kBlock}));
  places.forget();
  EXPECT_FALSE(places.repeats());
  EXPECT_FALSE(places.overlaps({0, 10 * kBlock}));
}

}  // namespace
}  // namespace gmac
