// SPDX-License-Identifier: Apache-2.0
#include "mpi/handle_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace gmac::mpi {
namespace {

struct Entry : HandleNode<Entry> {
  explicit Entry(std::uint64_t handle) { key = handle; }
};

TEST(HandleTable, FindsWhatIsThere) {
  HandleTable<Entry> table;
  EXPECT_EQ(table.find(1), nullptr);
  EXPECT_EQ(table.remove(1), nullptr);
  Entry one(1);
  Entry other(2);
  table.insert(one);
  table.insert(other);
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.find(1), &one);
  EXPECT_EQ(table.remove(2), &other);
  EXPECT_EQ(table.find(2), nullptr);
  EXPECT_EQ(table.remove(1), &one);
  EXPECT_EQ(table.size(), 0U);
}

TEST(HandleTable, FindsTheNewestOfAHandleThatIsUsedAgain) {
  HandleTable<Entry> table;
  Entry before(7);
  Entry after(7);
  table.insert(before);
  table.insert(after);
  EXPECT_EQ(table.remove(7), &after);
  EXPECT_EQ(table.remove(7), &before);
}

TEST(HandleTable, RemovesTheNewestUpToANumber) {
  HandleTable<Entry> table;
  Entry first(7);
  Entry second(7);
  Entry third(7);
  table.insert(first);
  const std::uint64_t one = table.last();
  table.insert(second);
  const std::uint64_t two = table.last();
  table.insert(third);
  EXPECT_EQ(table.remove(7, two), &second);
  EXPECT_EQ(table.remove(7, one - 1), nullptr);
  EXPECT_EQ(table.remove(7, one), &first);
  EXPECT_EQ(table.remove(7), &third);
}

TEST(HandleTable, AnEntryMakesRoomForAnother) {
  HandleTable<Entry> table;
  Entry before(7);
  Entry with(7);
  Entry newer(7);
  table.insert(before);
  table.insert(newer);
  table.replace(before, with);
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(with.number, before.number);
  EXPECT_EQ(table.remove(7), &newer);
  EXPECT_EQ(table.remove(7), &with);
}

// The keys are few, numbers or addresses, so that buckets hold several and the table grows.
TEST(HandleTable, AnswersAsAMapOfStacksDoes) {
  std::mt19937_64 random(1);
  HandleTable<Entry> table;
  std::deque<Entry> entries;
  std::map<std::uint64_t, std::vector<Entry*>> expected;
  std::size_t count = 0;
  for (int step = 0; step < 50'000; ++step) {
    const std::uint64_t number = random() % 3000;
    const std::uint64_t key = number % 2 == 0 ? number : 0x7f0000000000 + number * 64;
    auto& stack = expected[key];
    Entry* const newest = stack.empty() ? nullptr : stack.back();
    ASSERT_EQ(table.find(key), newest) << step;
    if (random() % 5 < 3) {
      stack.push_back(&entries.emplace_back(key));
      table.insert(*stack.back());
      ++count;
    } else {
      ASSERT_EQ(table.remove(key), newest) << step;
      if (newest != nullptr) {
        stack.pop_back();
        --count;
      }
    }
    ASSERT_EQ(table.size(), count);
  }
  EXPECT_GT(count, 1000U);
}

}  // namespace
}  // namespace gmac::mpi
