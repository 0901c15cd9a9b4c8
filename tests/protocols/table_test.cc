// SPDX-License-Identifier: Apache-2.0
//
// The machines of Figure 6, pair by pair, and the rolling list.
#include "gmac/protocols/table.h"

#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gmac/protocols/protocol.h"

namespace gmac {

std::ostream& operator<<(std::ostream& out, const Transition& transition) {
  static const char* const kMoves[] = {"nothing", "fetch", "flush"};
  return out << kMoves[static_cast<std::size_t>(transition.move)] << " -> "
             << stateName(transition.next);
}

namespace {

constexpr State kInvalid = State::kInvalid;
constexpr State kReadOnly = State::kReadOnly;
constexpr State kDirty = State::kDirty;
constexpr State kPartReadOnly = State::kPartReadOnly;
constexpr State kPartDirty = State::kPartDirty;
constexpr Move kNothing = Move::kNone;
constexpr Move kFetch = Move::kFetch;
constexpr Move kFlush = Move::kFlush;

struct Row {
  State state;
  Event event;
  Transition expected;
};

// Every pair, once.
void expectTable(const Protocol& protocol, const std::vector<Row>& rows) {
  ASSERT_EQ(rows.size(), kStates.size() * kEvents.size());
  std::array<std::array<int, kEvents.size()>, kStates.size()> seen{};
  for (const Row& row : rows) {
    EXPECT_EQ(protocol.on(row.state, row.event), row.expected)
        << protocol.name() << ": " << stateName(row.state) << ", event "
        << static_cast<int>(row.event);
    ++seen[static_cast<std::size_t>(row.state)][static_cast<std::size_t>(row.event)];
  }
  for (const auto& events : seen) {
    for (const int count : events) {
      EXPECT_EQ(count, 1);
    }
  }
}

TEST(BatchTable, MovesEverythingAtCallsAndSyncs) {
  const auto batch = makeBatchProtocol();
  EXPECT_EQ(batch->name(), "batch");
  EXPECT_EQ(batch->initial(), kDirty);
  EXPECT_TRUE(batch->wholeObjects());
  EXPECT_TRUE(batch->fetchesAtSync());
  expectTable(*batch, {
                          {kInvalid, Event::kRead, {kFetch, kDirty}},
                          {kInvalid, Event::kWrite, {kFetch, kDirty}},
                          {kInvalid, Event::kCall, {kNothing, kInvalid}},
                          {kInvalid, Event::kCallRead, {kNothing, kInvalid}},
                          {kInvalid, Event::kSync, {kFetch, kDirty}},
                          {kInvalid, Event::kEvict, {kNothing, kInvalid}},
                          {kReadOnly, Event::kRead, {kNothing, kDirty}},
                          {kReadOnly, Event::kWrite, {kNothing, kDirty}},
                          {kReadOnly, Event::kCall, {kFlush, kInvalid}},
                          {kReadOnly, Event::kCallRead, {kFlush, kDirty}},
                          {kReadOnly, Event::kSync, {kNothing, kDirty}},
                          {kReadOnly, Event::kEvict, {kNothing, kDirty}},
                          {kDirty, Event::kRead, {kNothing, kDirty}},
                          {kDirty, Event::kWrite, {kNothing, kDirty}},
                          {kDirty, Event::kCall, {kFlush, kInvalid}},
                          {kDirty, Event::kCallRead, {kFlush, kDirty}},
                          {kDirty, Event::kSync, {kNothing, kDirty}},
                          {kDirty, Event::kEvict, {kNothing, kDirty}},
                          {kInvalid, Event::kReadPart, {kFetch, kDirty}},
                          {kInvalid, Event::kWritePart, {kFetch, kDirty}},
                          {kReadOnly, Event::kReadPart, {kNothing, kDirty}},
                          {kReadOnly, Event::kWritePart, {kNothing, kDirty}},
                          {kDirty, Event::kReadPart, {kNothing, kDirty}},
                          {kDirty, Event::kWritePart, {kNothing, kDirty}},
                          {kPartReadOnly, Event::kRead, {kFetch, kDirty}},
                          {kPartReadOnly, Event::kWrite, {kFetch, kDirty}},
                          {kPartReadOnly, Event::kReadPart, {kNothing, kPartDirty}},
                          {kPartReadOnly, Event::kWritePart, {kNothing, kPartDirty}},
                          {kPartReadOnly, Event::kCall, {kFlush, kInvalid}},
                          {kPartReadOnly, Event::kCallRead, {kFlush, kInvalid}},
                          {kPartReadOnly, Event::kSync, {kFetch, kDirty}},
                          {kPartReadOnly, Event::kEvict, {kNothing, kPartDirty}},
                          {kPartDirty, Event::kRead, {kFetch, kDirty}},
                          {kPartDirty, Event::kWrite, {kFetch, kDirty}},
                          {kPartDirty, Event::kReadPart, {kNothing, kPartDirty}},
                          {kPartDirty, Event::kWritePart, {kNothing, kPartDirty}},
                          {kPartDirty, Event::kCall, {kFlush, kInvalid}},
                          {kPartDirty, Event::kCallRead, {kFlush, kInvalid}},
                          {kPartDirty, Event::kSync, {kFetch, kDirty}},
                          {kPartDirty, Event::kEvict, {kNothing, kPartDirty}},
                      });
}

// The rows that blocks have under lazy and rolling alike, and `own` rows.
std::vector<Row> lazyTable(std::vector<Row> own) {
  const Row common[] = {
      {kInvalid, Event::kRead, {kFetch, kReadOnly}},
      {kInvalid, Event::kWrite, {kFetch, kDirty}},
      {kInvalid, Event::kCall, {kNothing, kInvalid}},
      {kInvalid, Event::kCallRead, {kNothing, kInvalid}},
      {kInvalid, Event::kSync, {kNothing, kInvalid}},
      {kInvalid, Event::kEvict, {kNothing, kInvalid}},
      {kReadOnly, Event::kRead, {kNothing, kReadOnly}},
      {kReadOnly, Event::kWrite, {kNothing, kDirty}},
      {kReadOnly, Event::kCall, {kNothing, kInvalid}},
      {kReadOnly, Event::kCallRead, {kNothing, kReadOnly}},
      {kReadOnly, Event::kSync, {kNothing, kReadOnly}},
      {kReadOnly, Event::kEvict, {kNothing, kReadOnly}},
      {kDirty, Event::kRead, {kNothing, kDirty}},
      {kDirty, Event::kWrite, {kNothing, kDirty}},
      {kDirty, Event::kCall, {kFlush, kInvalid}},
      {kDirty, Event::kCallRead, {kFlush, kReadOnly}},
      {kDirty, Event::kSync, {kNothing, kDirty}},
      {kReadOnly, Event::kReadPart, {kNothing, kReadOnly}},
      {kReadOnly, Event::kWritePart, {kNothing, kDirty}},
      {kDirty, Event::kReadPart, {kNothing, kDirty}},
      {kDirty, Event::kWritePart, {kNothing, kDirty}},
      {kPartReadOnly, Event::kRead, {kFetch, kReadOnly}},
      {kPartReadOnly, Event::kWrite, {kFetch, kDirty}},
      {kPartReadOnly, Event::kReadPart, {kNothing, kPartReadOnly}},
      {kPartReadOnly, Event::kWritePart, {kNothing, kPartDirty}},
      {kPartReadOnly, Event::kCall, {kNothing, kInvalid}},
      {kPartReadOnly, Event::kCallRead, {kNothing, kPartReadOnly}},
      {kPartReadOnly, Event::kSync, {kNothing, kPartReadOnly}},
      {kPartReadOnly, Event::kEvict, {kNothing, kPartReadOnly}},
      {kPartDirty, Event::kRead, {kFetch, kDirty}},
      {kPartDirty, Event::kWrite, {kFetch, kDirty}},
      {kPartDirty, Event::kReadPart, {kNothing, kPartDirty}},
      {kPartDirty, Event::kWritePart, {kNothing, kPartDirty}},
      {kPartDirty, Event::kCall, {kFlush, kInvalid}},
      {kPartDirty, Event::kCallRead, {kFlush, kPartReadOnly}},
      {kPartDirty, Event::kSync, {kNothing, kPartDirty}},
  };
  own.insert(own.end(), std::begin(common), std::end(common));
  return own;
}

// Asked for a part it gives the whole; it never comes to be in the states of parts.
TEST(LazyTable, DetectsWritesOnReadOnlyAndEveryAccessOnInvalid) {
  const auto lazy = makeLazyProtocol();
  EXPECT_EQ(lazy->name(), "lazy");
  EXPECT_EQ(lazy->initial(), kReadOnly);
  EXPECT_TRUE(lazy->wholeObjects());
  EXPECT_FALSE(lazy->fetchesAtSync());
  expectTable(*lazy, lazyTable({
                         {kDirty, Event::kEvict, {kNothing, kDirty}},
                         {kInvalid, Event::kReadPart, {kFetch, kReadOnly}},
                         {kInvalid, Event::kWritePart, {kFetch, kDirty}},
                         {kPartDirty, Event::kEvict, {kNothing, kPartDirty}},
                     }));
}

TEST(RollingTable, IsLazyPerBlockWithEvictionAndParts) {
  const auto rolling = makeRollingProtocol({});
  EXPECT_EQ(rolling->name(), "rolling");
  EXPECT_EQ(rolling->initial(), kReadOnly);
  EXPECT_FALSE(rolling->wholeObjects());
  EXPECT_FALSE(rolling->fetchesAtSync());
  expectTable(*rolling, lazyTable({
                            {kDirty, Event::kEvict, {kFlush, kReadOnly}},
                            {kInvalid, Event::kReadPart, {kFetch, kPartReadOnly}},
                            {kInvalid, Event::kWritePart, {kFetch, kPartDirty}},
                            {kPartDirty, Event::kEvict, {kFlush, kPartReadOnly}},
                        }));
}

// ---- The rolling list

class RollingList : public ::testing::Test {
 protected:
  ~RollingList() override { rolling_.reset(); }  // before the blocks that it lists

  void start(const RollingOptions& options) { rolling_ = makeRollingProtocol(options); }
  // Evicts a block as the core does.
  void evict(Block& block) { rolling_->leftDirty(block); }

  std::array<Block, 8> blocks_;
  std::unique_ptr<Protocol> rolling_;
};

TEST_F(RollingList, TheOldestDirtyBlockGoesFirst) {
  start({.step = 2, .fixed = 2});
  for (const int i : {3, 1, 4}) {
    rolling_->becameDirty(blocks_[i]);
  }
  EXPECT_EQ(rolling_->evictionCandidate(0), &blocks_[3]);
  evict(blocks_[3]);
  EXPECT_EQ(rolling_->evictionCandidate(0), nullptr);
  rolling_->becameDirty(blocks_[0]);
  EXPECT_EQ(rolling_->evictionCandidate(0), &blocks_[1]);
}

TEST_F(RollingList, AFixedSizeDoesNotGrow) {
  start({.step = 2, .fixed = 1});
  rolling_->allocated();
  rolling_->allocated();
  rolling_->becameDirty(blocks_[0]);
  EXPECT_EQ(rolling_->evictionCandidate(0), nullptr);
  rolling_->becameDirty(blocks_[1]);
  EXPECT_EQ(rolling_->evictionCandidate(0), &blocks_[0]);
}

TEST_F(RollingList, AnAdaptiveSizeGrowsByTheStepAtEveryAllocation) {
  start({.step = 3, .fixed = 0});
  rolling_->allocated();
  for (int i = 0; i < 3; ++i) {
    rolling_->becameDirty(blocks_[i]);
    EXPECT_EQ(rolling_->evictionCandidate(0), nullptr) << i;
  }
  rolling_->becameDirty(blocks_[3]);
  EXPECT_EQ(rolling_->evictionCandidate(0), &blocks_[0]);
  rolling_->allocated();
  EXPECT_EQ(rolling_->evictionCandidate(0), nullptr);
}

TEST_F(RollingList, BlocksInTransitAndHeldBlocksArePassedOver) {
  start({.step = 2, .fixed = 1});
  for (int i = 0; i < 4; ++i) {
    rolling_->becameDirty(blocks_[i]);
  }
  blocks_[0].transit = Transit::kFetching;
  blocks_[1].holds = 1;
  EXPECT_EQ(rolling_->evictionCandidate(0), &blocks_[2]);
  blocks_[2].holds = 2;
  blocks_[3].transit = Transit::kFetching;
  EXPECT_EQ(rolling_->evictionCandidate(0), nullptr);
  blocks_[1].holds = 0;
  EXPECT_EQ(rolling_->evictionCandidate(0), &blocks_[1]);
}

TEST_F(RollingList, ABlockThatIsCleanedIsForgotten) {
  start({.step = 2, .fixed = 1});
  rolling_->becameDirty(blocks_[0]);
  rolling_->becameDirty(blocks_[1]);
  rolling_->leftDirty(blocks_[0]);
  EXPECT_EQ(rolling_->evictionCandidate(0), nullptr);
  EXPECT_FALSE(blocks_[0].rolling.is_linked());
  EXPECT_TRUE(blocks_[1].rolling.is_linked());
}

TEST(OtherProtocols, NeverEvict) {
  std::array<Block, 4> blocks;
  for (const auto& protocol : {makeBatchProtocol(), makeLazyProtocol()}) {
    for (Block& block : blocks) {
      protocol->becameDirty(block);
    }
    EXPECT_EQ(protocol->evictionCandidate(0), nullptr) << protocol->name();
  }
}

}  // namespace
}  // namespace gmac
