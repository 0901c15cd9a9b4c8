// SPDX-License-Identifier: Apache-2.0
//
// The first use of a long list's table: in steps, with kernels between, right whatever the part,
// the threads and the failures. On a device whose copies come late and whose kernels come at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/datatype/engine/device_arena.h"
#include "gmac/datatype/engine/engine.h"
#include "gmac/datatype/engine/table_filling.h"
#include "gmac/datatype/engine/tables.h"
#include "tests/datatype/direct_accelerator.h"
#include "tests/datatype/irregular.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using testing::DirectAccelerator;
using testing::irregular;
using Call = DirectAccelerator::Call;

constexpr std::size_t kPlenty = std::size_t{64} << 20;

Layout layoutOf(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  auto made = Layout::make(dims, blocks);
  EXPECT_TRUE(made.ok()) << lastErrorText();
  return *made;
}

struct Case {
  const char* name;
  Shape shape;
  Layout layout;
};

// Lists whose tables take many steps, of every shape that has one.
const std::vector<Case>& cases() {
  static const std::vector<Case> kAll = {
      // More than all buffers hold.
      {"even", Shape::kEvenList, layoutOf({}, irregular(300000, 8, 1))},
      {"even, repeated", Shape::kEvenList,
       layoutOf({{2, 12000000}, {2, 5600000}}, irregular(160000, 8, 1))},
      {"marked", Shape::kMarkedList, layoutOf({}, irregular(160000, 4, 5))},
      {"marked, repeated", Shape::kMarkedList, layoutOf({{3, 3600004}}, irregular(120000, 4, 5))},
      {"bytes", Shape::kLongList, layoutOf({}, irregular(120000, 1, 5))},
      {"bytes, repeated", Shape::kLongList, layoutOf({{3, -800000}}, irregular(80000, 1, 5))},
      {"long pieces", Shape::kLongList, layoutOf({}, irregular(64000, 8, 160))},
      {"one long piece", Shape::kLongList, [] {
         std::vector<Block> blocks = irregular(120000, 3, 5);
         blocks[4000].bytes += 3'000'000;
         for (std::size_t i = 4001; i < blocks.size(); ++i) blocks[i].offset += 3'000'000;
         return layoutOf({}, blocks);
       }()}};
  return kAll;
}

PreparedPtr prepare(const Layout& layout) {
  return std::make_shared<const Prepared>(
      std::make_shared<const Committed>(Committed{layout, 0, 0, layout.bytes()}));
}

std::vector<std::byte> pattern(int64_t bytes, std::uint64_t seed) {
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
  std::uint64_t state = seed;
  for (std::size_t at = 0; at < memory.size(); at += sizeof state) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t word = state ^ (state >> 33);
    std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
  }
  return memory;
}

// Both sides of one operation, and what they shall be afterwards.
class Sides {
 public:
  Sides(const PreparedPtr& prepared, Direction direction, int64_t offset, int64_t bytes)
      : prepared_(prepared),
        strided_(pattern(prepared->layout().bounds().last - prepared->layout().bounds().first, 1)),
        packed_(pattern(bytes, 2)),
        wantStrided_(strided_),
        wantPacked_(packed_) {
    const Layout& layout = prepared->layout();
    const int64_t first = layout.bounds().first;
    layout.forEach(offset, bytes, [&](int64_t at, int64_t in, int64_t length) {
      std::byte* const there = wantStrided_.data() + (at - first);
      std::byte* const here = wantPacked_.data() + (in - offset);
      const bool packs = direction == Direction::kPack;
      std::memcpy(packs ? here : there, packs ? there : here, static_cast<std::size_t>(length));
    });
    operation_.direction = direction;
    operation_.prepared = prepared_.get();
    operation_.strided = strided_.data() - first;
    operation_.packed = packed_.data();
    operation_.offset = offset;
    operation_.bytes = bytes;
    operation_.bounds = layout.boundsOf(offset, bytes);
    operation_.method = adsmMethodKernel;
  }
  Sides(const PreparedPtr& prepared, Direction direction)
      : Sides(prepared, direction, 0, prepared->layout().bytes()) {}

  Operation& operation() { return operation_; }
  bool right() const { return strided_ == wantStrided_ && packed_ == wantPacked_; }

 private:
  const PreparedPtr prepared_;
  std::vector<std::byte> strided_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> wantStrided_;
  std::vector<std::byte> wantPacked_;
  Operation operation_;
};

constexpr Direction kBoth[] = {Direction::kPack, Direction::kUnpack};

class FirstUse : public ::testing::Test {
 protected:
  void SetUp() override { start(kPlenty); }

  void start(std::size_t tableBytes) {
    engine_.reset();
    engine_ = std::make_unique<Engine>(accelerator_, tableBytes);
  }

  Result<Outcome> run(Sides& sides) {
    CachedLaunch cached;
    return engine_->run(sides.operation(), cached);
  }

  // The launches of a use that must be right.
  std::int64_t use(Sides& sides) {
    auto outcome = run(sides);
    EXPECT_TRUE(outcome.ok()) << lastErrorText();
    EXPECT_TRUE(sides.right());
    return outcome.ok() ? outcome->report.launches : 0;
  }

  std::uint64_t bytesCopied() const {
    std::uint64_t bytes = 0;
    for (const auto& copy : accelerator_.copies()) bytes += copy.bytes;
    return bytes;
  }

  DirectAccelerator accelerator_;
  std::unique_ptr<Engine> engine_;
};

std::uint64_t entryBytes(const DevicePlan& plan) {
  return plan.table().units * sizeof(std::uint32_t) + plan.table().pieces * plan.table().pieceBytes;
}

TEST_F(FirstUse, LaunchesWhileTheTableIsFilled) {
  for (const Case& item : cases()) {
    SCOPED_TRACE(item.name);
    for (const Direction direction : kBoth) {
      const PreparedPtr prepared = prepare(item.layout);
      ASSERT_EQ(prepared->plan().shape(), item.shape);
      ASSERT_GT(prepared->plan().table().bytes, 64U << 10) << "else it is no long one";
      accelerator_.clearCopies();
      Sides first(prepared, direction);
      EXPECT_GT(use(first), 2);
      // Every entry once, the first launch before most of them and the last after all.
      EXPECT_EQ(bytesCopied(), entryBytes(prepared->plan()));
      std::uint64_t before = 0;
      for (const auto& copy : accelerator_.copies()) {
        before += copy.launchesBefore == 0 ? copy.bytes : 0;
        EXPECT_LT(copy.launchesBefore, accelerator_.launches());
      }
      if (item.name != std::string("one long piece")) {
        EXPECT_LE(before, entryBytes(prepared->plan()) / 2);
      }
      // From now on there is one launch, and nothing to copy.
      accelerator_.clearCopies();
      Sides second(prepared, direction);
      EXPECT_EQ(use(second), 1);
      EXPECT_EQ(bytesCopied(), 0U);
    }
  }
}

TEST_F(FirstUse, TakesOneStepForSmallTables) {
  const PreparedPtr prepared = prepare(layoutOf({}, irregular(5000, 8, 1)));
  Sides sides(prepared, Direction::kPack);
  EXPECT_EQ(use(sides), 1);
  EXPECT_EQ(accelerator_.copies().size(), 1U);
}

TEST_F(FirstUse, MayBeOfAnyPart) {
  for (const Case& item : cases()) {
    const int64_t bytes = item.layout.bytes();
    const int64_t pass = item.layout.listBytes();
    const std::pair<int64_t, int64_t> parts[] = {{0, 1},
                                                 {0, bytes / 3},
                                                 {bytes - 1, 1},
                                                 {bytes / 2 + 5, bytes / 3},
                                                 {77, 4000},
                                                 {pass - 9, 9},
                                                 {1, bytes - 2},
                                                 {pass / 3, pass / 2 + 1},
                                                 {pass - 1, 1},
                                                 {bytes - pass, pass},
                                                 {bytes - pass + 3, pass / 7}};
    for (const auto& [offset, length] : parts) {
      const PreparedPtr prepared = prepare(item.layout);
      accelerator_.clearCopies();
      for (const Direction direction : kBoth) {
        Sides part(prepared, direction, offset, length);
        use(part);
        ASSERT_FALSE(HasFailure()) << item.name << ": " << offset << " + " << length;
      }
      // The table is whole.
      EXPECT_EQ(bytesCopied(), entryBytes(prepared->plan()));
      Sides whole(prepared, Direction::kPack);
      EXPECT_EQ(use(whole), 1);
    }
  }
}

TEST_F(FirstUse, IsInTheOrderOfAStream) {
  for (const Case& item : cases()) {
    SCOPED_TRACE(item.name);
    const PreparedPtr prepared = prepare(item.layout);
    Sides first(prepared, Direction::kPack);
    first.operation().stream = accel::NativeStream{7};
    use(first);
    // Another stream has not followed what the first one did.
    Sides second(prepared, Direction::kPack);
    second.operation().stream = accel::NativeStream{8};
    use(second);
  }
}

TEST_F(FirstUse, LimitsTheBlocksOfEveryLaunch) {
  const PreparedPtr prepared = prepare(cases().front().layout);
  Sides sides(prepared, Direction::kPack);
  sides.operation().blocks = 2;
  EXPECT_GT(use(sides), 2);
}

// Whatever fails at whatever step, nothing is believed of the table afterwards.
TEST_F(FirstUse, LeavesNothingBehindWhereItFails) {
  for (const Case& item : cases()) {
    SCOPED_TRACE(item.name);
    const auto failing = [&](const auto& arm) {
      const PreparedPtr prepared = prepare(item.layout);
      Sides failed(prepared, Direction::kPack);
      arm();
      const bool ok = run(failed).ok();
      accelerator_.failNext(Call::kCopyIn, 0);
      accelerator_.failNext(Call::kLaunch, 0);
      if (ok) {
        return false;
      }
      accelerator_.clearCopies();
      Sides again(prepared, Direction::kPack);
      use(again);
      EXPECT_EQ(bytesCopied(), entryBytes(prepared->plan())) << "all of them anew";
      return true;
    };
    int copies = 0;
    while (failing([&] { accelerator_.failNext(Call::kCopyIn, copies + 1); })) ++copies;
    EXPECT_GE(copies, 3);
    int launches = 0;
    while (failing([&] { accelerator_.failNext(Call::kLaunch, launches + 1); })) ++launches;
    EXPECT_GE(launches, 3);
  }
}

TEST_F(FirstUse, SaysWhatMemoryIsMissing) {
  const PreparedPtr prepared = prepare(cases().front().layout);
  Sides sides(prepared, Direction::kPack);
  accelerator_.failNext(Call::kPinned, 1);
  EXPECT_EQ(run(sides).status().code(), adsmErrorHostMemory);
  EXPECT_THAT(lastErrorText(), ::testing::HasSubstr("as was asked for"));
  // Another slab is not to be had; where one is, the table comes to lie in it.
  const std::size_t slabs = accelerator_.liveAllocations();
  std::vector<std::unique_ptr<Sides>> more;
  for (int i = 0; i < 100 && accelerator_.liveAllocations() == slabs; ++i) {
    Sides other(prepare(cases().front().layout), Direction::kPack);
    use(other);
  }
  use(sides);
  Sides again(prepared, Direction::kPack);
  EXPECT_EQ(use(again), 1);
}

TEST_F(FirstUse, IsSharedByThreads) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 3; ++round) {
    for (const Case& item : cases()) {
      SCOPED_TRACE(item.name);
      const PreparedPtr prepared = prepare(item.layout);
      const PreparedPtr other = prepare(cases().front().layout);
      accelerator_.clearCopies();
      std::vector<std::unique_ptr<Sides>> sides;
      for (int i = 0; i < kThreads; ++i) {
        sides.push_back(std::make_unique<Sides>(
            i == 3 ? other : prepared, i % 2 == 0 ? Direction::kPack : Direction::kUnpack));
      }
      std::vector<std::thread> threads;
      std::vector<char> done(kThreads);
      for (int i = 0; i < kThreads; ++i) {
        const auto index = static_cast<std::size_t>(i);
        threads.emplace_back([&, index] { done[index] = run(*sides[index]).ok() ? 1 : 0; });
      }
      for (std::thread& thread : threads) thread.join();
      for (std::size_t i = 0; i < kThreads; ++i) {
        EXPECT_TRUE(done[i] != 0);
        EXPECT_TRUE(sides[i]->right()) << "thread " << i;
      }
      EXPECT_EQ(bytesCopied(), entryBytes(prepared->plan()) + entryBytes(other->plan()))
          << "each table is filled once";
    }
  }
}

TEST_F(FirstUse, ComesAgainWhereTheLimitHasTakenTheTable) {
  const PreparedPtr one = prepare(cases()[0].layout);
  const PreparedPtr two = prepare(cases()[2].layout);
  start(std::max(one->plan().table().bytes, two->plan().table().bytes));
  for (int i = 0; i < 3; ++i) {
    for (const PreparedPtr& prepared : {one, two}) {
      Sides sides(prepared, Direction::kPack);
      EXPECT_GT(use(sides), 1) << "the other one's table had to go";
      Sides again(prepared, Direction::kPack);
      EXPECT_EQ(use(again), 1);
    }
  }
}

// The device's costs and its issue rate are known: nothing is measured, allocated or stored.
TEST_F(FirstUse, MeasuresNothingAndWritesNoFile) {
  const std::string cache = ::testing::TempDir() + "first_use_cache";
  std::filesystem::remove_all(cache);
  std::filesystem::create_directories(cache);
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  accelerator_.setTraits({.multiprocessors = 3, .cyclesPerMicrosecond = 1000, .memoryRate = 1e5});
  engine_ = std::make_unique<Engine>(accelerator_, kPlenty);
  accelerator_.clearCopies();

  const PreparedPtr rows = prepare(layoutOf({{400000, 256}}, {{0, 4}}));
  Sides paced(rows, Direction::kPack);
  CachedLaunch cached;
  auto outcome = engine_->run(paced.operation(), cached);
  ASSERT_TRUE(outcome.ok()) << lastErrorText();
  EXPECT_TRUE(paced.right());
  EXPECT_EQ(cached.launch.kernel.shape, Shape::kPacedRows);
  EXPECT_EQ(accelerator_.launches(), 1U);

  const PreparedPtr few = prepare(layoutOf({{10000, 256}}, {{0, 4}}));
  Sides pinned(few, Direction::kPack);
  pinned.operation().method = adsmMethodAny;
  accelerator_.setMemory(pinned.operation().packed, accel::Memory::kPinned);
  accelerator_.failNext(Call::kPinned, 1);
  outcome = engine_->run(pinned.operation(), cached);
  ASSERT_TRUE(outcome.ok()) << lastErrorText();
  EXPECT_EQ(outcome->report.method, adsmMethodKernel);
  EXPECT_EQ(accelerator_.launches(), 2U);

  EXPECT_EQ(accelerator_.liveAllocations(), 0U);
  EXPECT_TRUE(std::filesystem::is_empty(cache));
  ::unsetenv("XDG_CACHE_HOME");
}

// ---- The tables alone.

TEST(Tables, CountWhatIsBeingFilledAndForgetWhatFails) {
  DirectAccelerator accelerator;
  Device device(accelerator);
  Tables tables(device, kPlenty);
  const PreparedPtr prepared = prepare(cases().front().layout);
  const DevicePlan& plan = prepared->plan();
  {
    TableFilling filling(tables, plan);
    ASSERT_TRUE(filling.begin().ok());
    EXPECT_EQ(tables.bytes(), plan.table().bytes);
    ASSERT_TRUE(filling.step().ok());
    EXPECT_FALSE(filling.complete());
    auto address = tables.pin(plan.identity(), {});
    ASSERT_TRUE(address.ok());
    EXPECT_EQ(*address, 0U) << "a table that is not whole is nobody else's";
    accelerator.failNext(Call::kCopyIn, 1);
    EXPECT_FALSE(filling.step().ok());
  }
  EXPECT_EQ(tables.bytes(), 0U);
  {
    TableFilling filling(tables, plan);
    ASSERT_TRUE(filling.begin().ok());
    int64_t served = 0;
    while (!filling.complete()) {
      auto step = filling.step();
      ASSERT_TRUE(step.ok());
      EXPECT_GE(*step, served);
      served = *step;
    }
    EXPECT_EQ(served, plan.layout().listBytes());
    filling.keep();
  }
  EXPECT_EQ(tables.bytes(), plan.table().bytes);
  auto address = tables.pin(plan.identity(), {});
  ASSERT_TRUE(address.ok());
  EXPECT_NE(*address, 0U);
  tables.unpin(plan.identity(), {});
}

TEST(Tables, HaveNoTableWithoutMemory) {
  DirectAccelerator accelerator;
  Device device(accelerator);
  Tables tables(device, kPlenty);
  const PreparedPtr prepared = prepare(cases().front().layout);
  TableFilling filling(tables, prepared->plan());
  accelerator.failNext(Call::kAllocate, 1);
  // The second attempt, after a look at what can be given up, succeeds.
  EXPECT_TRUE(filling.begin().ok());
}

TEST(DeviceArena, GivesPiecesOfSlabsAndSlabsBack) {
  DirectAccelerator accelerator;
  Device device(accelerator);
  DeviceArena arena(device);
  constexpr std::size_t kPiece = std::size_t{3} << 20;
  std::vector<std::uint64_t> pieces;
  for (int i = 0; i < 5; ++i) {
    auto piece = arena.allocate(kPiece - 1);
    ASSERT_TRUE(piece.ok());
    EXPECT_EQ(*piece % 256, 0U);
    std::memset(reinterpret_cast<void*>(*piece), i, kPiece - 1);
    pieces.push_back(*piece);
  }
  EXPECT_EQ(accelerator.liveAllocations(), 3U) << "two pieces in each slab of 8 MiB";
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(pieces[i]);
    EXPECT_TRUE(std::all_of(bytes, bytes + kPiece - 1,
                            [&](std::byte byte) { return byte == static_cast<std::byte>(i); }));
  }
  arena.free(pieces[0], kPiece - 1);
  EXPECT_EQ(*arena.allocate(kPiece), pieces[0]);
  arena.free(pieces[0], kPiece);
  arena.trim();
  EXPECT_EQ(accelerator.liveAllocations(), 3U) << "a piece is left in each";
  arena.free(pieces[1], kPiece - 1);
  arena.free(pieces[4], kPiece - 1);
  arena.trim();
  EXPECT_EQ(accelerator.liveAllocations(), 1U);
  // More than a slab has one of its own.
  auto large = arena.allocate(std::size_t{20} << 20);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(accelerator.liveAllocations(), 2U);
  accelerator.failNext(Call::kAllocate, 1);
  EXPECT_EQ(arena.allocate(std::size_t{20} << 20).status().code(), adsmErrorAcceleratorMemory);
}

}  // namespace
}  // namespace gmac::datatype
