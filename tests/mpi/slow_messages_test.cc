// SPDX-License-Identifier: Apache-2.0
#include "mpi/slow_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace gmac::mpi::slow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Counts = std::array<std::atomic<std::uint64_t>, kWords>;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

class SlowMessages : public ::testing::Test {
 protected:
  ~SlowMessages() override {
    forget();
    countIn(ownWords());
  }
};

TEST_F(SlowMessages, AreThoseThatTakeSomeTenTimesAsLong) {
  for (const Reason reason :
       {Reason::kMode, Reason::kNoRoom, Reason::kNotExported, Reason::kNotImported}) {
    EXPECT_FALSE(isSlow(reason, 0));
    EXPECT_FALSE(isSlow(reason, 64 << 10));
    EXPECT_TRUE(isSlow(reason, kMiB));
    EXPECT_TRUE(isSlow(reason, 1024 * kMiB));
  }
  // To the CPU's memory the bus is the best there is.
  EXPECT_FALSE(isSlow(Reason::kNotReached, 4 * kMiB));
  EXPECT_TRUE(isSlow(Reason::kNotReached, 32 * kMiB));
  // A few bytes of many.
  EXPECT_FALSE(isSlow(Reason::kOtherDevice, kMiB));
  EXPECT_TRUE(isSlow(Reason::kOtherDevice, kMiB, 16 * kMiB));
}

TEST_F(SlowMessages, NothingIsToldOfNone) {
  const Counts none{};
  EXPECT_EQ(tell({}), "");
  EXPECT_EQ(tell({{0, none}, {1, none}}), "");
}

TEST_F(SlowMessages, TheLineHasTheFirstCallTheReasonAndTheRate) {
  {
    const Call call("MPI_Recv");
    note(Reason::kNotImported, 4 * kMiB, std::chrono::milliseconds(2));
  }
  {
    const Call call("MPI_Wait");
    note(Reason::kNotImported, 4 * kMiB, std::chrono::milliseconds(2));
  }
  EXPECT_EQ(
      tell({{3, ownWords()}}),
      "mpi: slow: MPI_Recv of rank 3: 2 messages (8388608 bytes) of device memory at 2.1 "
      "GB/s, where some 300 are possible: the receivers have not imported the senders' memory "
      "(GMAC_LOG=info says why), so it is packed");
  forget();
  EXPECT_EQ(tell({{3, ownWords()}}), "");
}

TEST_F(SlowMessages, TheReasonsOfAllRanksAreInOneLine) {
  std::array<Counts, 10> ranks{};
  std::vector<OfRank> all;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    countIn(ranks[rank]);
    const Call call("MPI_Ssend");
    note(Reason::kMode, kMiB, std::chrono::milliseconds(1));
    if (rank == 4) note(Reason::kOtherDevice, kMiB, std::chrono::milliseconds(1));
    all.push_back({static_cast<int>(rank), ranks[rank]});
  }
  EXPECT_EQ(tell({{0, ownWords()}}), "");
  const std::string line = tell(all);
  EXPECT_THAT(line, HasSubstr("MPI_Ssend of ranks 0, 1, 2, 3, 4, 5, 6, 7, ...: 10 messages ("));
  EXPECT_THAT(line, HasSubstr("; MPI_Ssend of rank 4: 1 message (1048576 bytes)"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
}

TEST_F(SlowMessages, OneThatHasBegunTakesUntilItsCallReturns) {
  {
    const Call call("MPI_Ssend");
    begin(Reason::kMode, kMiB);
    EXPECT_EQ(tell({{0, ownWords()}}), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_THAT(tell({{0, ownWords()}}), HasSubstr("MPI_Ssend of rank 0: 1 message (1048576 bytes)"));
  EXPECT_GE(ownWords()[2].load(), 2'000'000U);
  // The next call has begun none.
  { const Call call("MPI_Send"); }
  EXPECT_THAT(tell({{0, ownWords()}}), HasSubstr(": 1 message ("));
}

}  // namespace
}  // namespace gmac::mpi::slow
