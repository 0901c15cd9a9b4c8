// SPDX-License-Identifier: Apache-2.0
//
// Plans and pack kernels, run by their `host` implementations: every shape, width, alignment and
// part, both ways, against a walk over the layout's pieces.
#include "gmac/datatype/plan/device_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gmac/datatype/kernels/pack_kernels.h"
#include "tests/datatype/plan_on_host.h"

namespace gmac::datatype {
namespace {

// Small limits, so that small layouts are unrolled, cut into units and split into launches.
constexpr PlanTuning kSmall{.threads = 32,
                            .limitedThreads = 64,
                            .oneEach = 300,
                            .oneEachOfShortList = 300,
                            .onceFrom = 700,
                            .onceLeast = 1,
                            .unitBytes = 64,
                            .tileLeast = 3,
                            .wordLeast = 8,
                            .mostElements = 1 << 30};

// A plan refers to its layout.
static_assert(!std::is_constructible_v<DevicePlan, Layout>);
static_assert(std::is_constructible_v<DevicePlan, const Layout&>);

Layout layoutOf(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  Result<Layout> made = Layout::make(dims, blocks);
  EXPECT_TRUE(made.ok()) << lastErrorText();
  return std::move(*made);
}

// Memory with exact ends, so that an address sanitizer sees what is read beyond them; its first
// byte is `skew` bytes after a multiple of 64.
class Memory {
 public:
  Memory(std::int64_t bytes, unsigned skew, unsigned seed)
      : bytes_(static_cast<std::size_t>(bytes)), memory_(allocate(bytes_ + skew)) {
    begin_ = memory_.get() + skew;
    std::uint32_t state = seed * 2654435761U + 1;
    for (std::size_t i = 0; i < bytes_; ++i) {
      state = state * 1664525U + 1013904223U;
      begin_[i] = static_cast<std::byte>(state >> 24);
    }
  }
  std::byte* begin() { return begin_; }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(begin_); }
  std::vector<std::byte> copy() const { return {begin_, begin_ + bytes_}; }

 private:
  static std::byte* allocate(std::size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(posix_memalign(&memory, 64, bytes), 0);
    return static_cast<std::byte*>(memory);
  }
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* begin_;
};

// Pieces at no regular distance, of `even` bytes or of different lengths, multiples of `unit` all.
std::vector<Block> irregular(int count, std::int64_t unit, std::int64_t even) {
  std::vector<Block> blocks;
  std::int64_t at = 0;
  for (int i = 0; i < count; ++i) {
    const std::int64_t bytes = even != 0 ? even : (1 + i * i % 11 % 5) * unit;
    blocks.push_back({at, bytes});
    at += bytes + (1 + static_cast<std::int64_t>(i) * i % 251 % 7) * unit;
  }
  return blocks;
}

void run(const DeviceLaunch& launch) {
  const int number = kernelNumber(launch.kernel);
  ASSERT_TRUE(kernelExists(number));
  ASSERT_EQ(launch.paramBytes, kernelParamBytes(number));
  alignas(16) std::byte params[sizeof launch.params];
  std::memcpy(params, launch.params, launch.paramBytes);
  testing::runBlocks(number, launch.blocks, launch.threads, params);
}

struct Range {
  std::int64_t offset;
  std::int64_t bytes;
};

struct Setting {
  unsigned stridedSkew = 0;
  unsigned packedSkew = 0;
  std::uint32_t maxBlocks = 0;
  Dim repeat{1, 0};
  const IssueRate* issueRate = nullptr;
};

using Used = std::map<std::pair<Shape, int>, int>;

// Does `part` of the layout both ways by the plan's launches and by a walk.
void check(const DevicePlan& plan, const Range& part, const Setting& setting,
           Used* used = nullptr) {
  const Layout& base = plan.layout();
  Result<Layout> whole = base.repeated(setting.repeat.count, setting.repeat.stride);
  ASSERT_TRUE(whole.ok());
  const Layout& layout = *whole;
  const Bounds bounds = layout.bounds();
  const std::vector<std::uint64_t> table = testing::tableOf(plan);
  for (const Direction direction : {Direction::kPack, Direction::kUnpack}) {
    Memory strided(bounds.last - bounds.first, setting.stridedSkew, 1);
    Memory packed(part.bytes, setting.packedSkew, 2);
    std::vector<std::byte> wantStrided = strided.copy();
    std::vector<std::byte> wantPacked = packed.copy();
    layout.forEach(part.offset, part.bytes,
                   [&](std::int64_t offset, std::int64_t at, std::int64_t bytes) {
                     auto* const there = wantStrided.data() + (offset - bounds.first);
                     auto* const here = wantPacked.data() + (at - part.offset);
                     const auto count = static_cast<std::size_t>(bytes);
                     if (direction == Direction::kPack) {
                       std::memcpy(here, there, count);
                     } else {
                       std::memcpy(there, here, count);
                     }
                   });
    DeviceJob job;
    job.direction = direction;
    job.strided = strided.address() - static_cast<std::uint64_t>(bounds.first);
    job.packed = packed.address();
    job.offset = part.offset;
    job.bytes = part.bytes;
    job.maxBlocks = setting.maxBlocks;
    job.repeat = setting.repeat;
    job.issueRate = setting.issueRate;
    job.table = reinterpret_cast<std::uintptr_t>(table.data());
    std::uint64_t moved = 0;
    const Status status = plan.launches(job, [&](const DeviceLaunch& launch) {
      if (setting.maxBlocks != 0) {
        EXPECT_LE(launch.blocks, setting.maxBlocks);
      }
      EXPECT_GT(launch.bytes, 0U);
      moved += launch.bytes;
      if (used != nullptr) ++(*used)[{launch.kernel.shape, launch.kernel.width}];
      run(launch);
      return Status();
    });
    ASSERT_TRUE(status.ok());
    ASSERT_EQ(moved, static_cast<std::uint64_t>(part.bytes));
    const char* const way = direction == Direction::kPack ? "pack" : "unpack";
    ASSERT_TRUE(packed.copy() == wantPacked)
        << way << " of " << layout.describe() << ", part " << part.offset << " + " << part.bytes
        << ": packed side differs";
    ASSERT_TRUE(strided.copy() == wantStrided)
        << way << " of " << layout.describe() << ", part " << part.offset << " + " << part.bytes
        << ": strided side differs";
  }
}

// All of it, and parts that begin and end anywhere.
void checkParts(const Layout& layout, const PlanTuning& tuning, std::mt19937& random,
                Used* used = nullptr, Dim repeat = {1, 0}) {
  const DevicePlan plan(layout, tuning);
  const std::int64_t bytes = layout.bytes() * repeat.count;
  if (bytes == 0) return;
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int i = 0; i < 6; ++i) {
    Setting setting;
    setting.repeat = repeat;
    if (i > 0) {
      const unsigned unit = 1U << draw(0, 4);
      setting.stridedSkew = static_cast<unsigned>(draw(0, 64 / unit - 1)) * unit;
      setting.packedSkew = static_cast<unsigned>(draw(0, 64 / unit - 1)) * unit;
    }
    if (i % 3 == 2) setting.maxBlocks = static_cast<std::uint32_t>(draw(1, 3));
    Range part{0, bytes};
    if (i > 1) {
      part.offset = draw(0, bytes - 1);
      part.bytes =
          draw(1, i == 5 ? std::min<std::int64_t>(bytes - part.offset, 40) : bytes - part.offset);
    }
    ASSERT_NO_FATAL_FAILURE(check(plan, part, setting, used)) << "attempt " << i;
  }
}

class EveryWidth : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Widths, EveryWidth, ::testing::Values(1, 2, 4, 8, 16));

TEST_P(EveryWidth, IsMovedInEveryShape) {
  const std::int64_t w = GetParam();
  std::mt19937 random(7);
  const struct {
    Shape shape;
    Layout layout;
  } cases[] = {
      {Shape::kLine, layoutOf({}, {{5 * w, 333 * w}})},
      {Shape::kRows1, layoutOf({{77, 9 * w}}, {{w, 3 * w}})},
      {Shape::kRows2, layoutOf({{5, 200 * w}, {17, 11 * w}}, {{0, 3 * w}})},
      {Shape::kRows3, layoutOf({{3, 2000 * w}, {5, 200 * w}, {7, 11 * w}}, {{0, 3 * w}})},
      {Shape::kAnyRows,
       layoutOf({{2, 9000 * w}, {3, 2000 * w}, {5, -200 * w}, {7, 11 * w}}, {{0, 3 * w}})},
      {Shape::kEvenList, layoutOf({}, irregular(200, w, 3 * w))},
      {Shape::kEvenList, layoutOf({{2, 30000 * w}, {3, 9000 * w}}, irregular(150, w, 3 * w))},
      {Shape::kShortList, layoutOf({}, irregular(20, w, 0))},
      {Shape::kShortList, layoutOf({{9, 1999 * w}, {4, 333 * w}}, irregular(20, w, 0))},
      {Shape::kLongList, layoutOf({}, irregular(200, w, 0))},
      {Shape::kLongList, layoutOf({{2, 30000 * w}, {3, 9000 * w}}, irregular(200, w, 0))},
      {Shape::kMarkedList, layoutOf({}, irregular(200, w, 0))},
      {Shape::kMarkedList, layoutOf({{2, 30000 * w}, {3, 9000 * w}}, irregular(200, w, 0))},
      {Shape::kTile, layoutOf({{37, w}, {41, 64 * w}}, {{0, w}})},
      {Shape::kTile, layoutOf({{3, 9000 * w}, {37, w}, {2, 4500 * w}, {41, 64 * w}}, {{0, w}})},
  };
  for (const auto& item : cases) {
    if (item.shape == Shape::kMarkedList && w < 4) continue;  // too many marks
    PlanTuning tuning = kSmall;
    if (item.shape == Shape::kLongList) tuning.markedMost = 0;
    Used used;
    const DevicePlan plan(item.layout, tuning);
    check(plan, {0, item.layout.bytes()}, {}, &used);
    EXPECT_EQ(used.size(), 1U);
    const auto [shape, width] = used.begin()->first;
    EXPECT_EQ(shape, item.shape) << item.layout.describe();
    // Of aligned memory in pieces: the elements' own width, or words of them.
    if (w >= 4 && item.shape != Shape::kLine) {
      EXPECT_EQ(width, w);
    }
    for (int i = 0; i < 20 && !HasFatalFailure(); ++i) checkParts(item.layout, tuning, random);
  }
}

TEST(DevicePlan, MovesWideWordsOfALineWhoseSidesAreEquallyMisaligned) {
  const Layout line = layoutOf({}, {{0, 1000}});
  const DevicePlan plan(line);
  Used used;
  check(plan, {0, 1000}, {.stridedSkew = 5, .packedSkew = 21}, &used);
  EXPECT_THAT(used, ::testing::ElementsAre(::testing::Pair(std::pair(Shape::kLine, 16), 2)));
  used.clear();
  check(plan, {0, 1000}, {.stridedSkew = 5, .packedSkew = 0}, &used);
  EXPECT_THAT(used, ::testing::ElementsAre(::testing::Pair(std::pair(Shape::kLine, 0), 2)));
}

// Units as large as a device takes them: whole turns of all loads, in wide words where a column's
// two sides are equally misaligned and in narrow ones where they are not.
TEST(DevicePlan, MovesLongPiecesInUnitsOfTheUsualSize) {
  std::mt19937 random(29);
  for (const std::int64_t w : {4, 8, 16}) {
    constexpr std::int64_t kSide = 420;
    std::vector<Block> columns;
    for (std::int64_t j = 0; j < kSide; ++j) {
      columns.push_back({j * (kSide + 1) * w, (kSide - j) * w});
    }
    const Layout triangle = layoutOf({}, columns);
    Used used;
    const DevicePlan plan(triangle);
    check(plan, {0, triangle.bytes()}, {}, &used);
    EXPECT_EQ(used.begin()->first, (std::pair(Shape::kLongList, static_cast<int>(w))));
    for (int i = 0; i < 4 && !HasFatalFailure(); ++i) checkParts(triangle, {}, random);
  }
}

TEST(DevicePlan, TakesBlocksThatTheKernelsRegistersAllow) {
  const Layout layouts[] = {
      layoutOf({{77, 24}}, {{0, 17}}),     layoutOf({{77, 72}}, {{8, 24}}),
      layoutOf({}, irregular(200, 8, 16)), layoutOf({}, irregular(20, 8, 0)),
      layoutOf({}, irregular(200, 8, 0)),  layoutOf({{37, 8}, {41, 512}}, {{0, 8}}),
  };
  for (const Layout& layout : layouts) {
    for (const std::uint32_t maxBlocks : {0U, 2U}) {
      const DevicePlan plan(layout);
      DeviceJob job;
      job.bytes = layout.bytes();
      job.maxBlocks = maxBlocks;
      DeviceLaunch launch;
      plan.makeLaunch(job, 0, launch);
      const bool heavy = launch.kernel.shape == Shape::kLongList || launch.kernel.width == 0;
      EXPECT_LE(launch.threads, heavy ? kMaxHeavyThreads : kMaxThreads) << layout.describe();
      EXPECT_EQ(launch.threads % 32, 0U);
      EXPECT_GE(launch.threads,
                launch.kernel.shape == Shape::kTile || maxBlocks == 0 ? 256U : 512U);
    }
  }
}

TEST(DevicePlan, SplitsWhatOneLaunchCannotCount) {
  std::mt19937 random(11);
  PlanTuning tuning = kSmall;
  const std::vector<Block> even = irregular(150, 8, 16);
  const std::vector<Block> uneven = irregular(150, 8, 0);
  const Layout layouts[] = {
      layoutOf({}, {{0, 4000}}),
      layoutOf({{77, 72}}, {{8, 24}}),
      layoutOf({{3, 5000}, {5, 900}, {7, 88}}, {{0, 24}}),
      layoutOf({{3, 5000}}, {{0, 2400}}),
      layoutOf({}, even),
      layoutOf({{3, 60000}, {2, 30000}}, even),
      layoutOf({{3, 60000}, {2, 30000}}, uneven),
      layoutOf({{30, 7000}, {20, 300}}, {{0, 8}, {16, 24}, {50, 6}}),
  };
  for (const std::int64_t most : {40, 41, 100, 1000}) {
    tuning.mostElements = most;
    for (const Layout& layout : layouts) {
      if (layout.blocks().size() > 1 && layout.blocks().size() < 100 && most < 38) continue;
      checkParts(layout, tuning, random);
      if (::testing::Test::HasFatalFailure()) FAIL() << "at most " << most << " elements";
    }
  }
  const DevicePlan plan(layouts[0], tuning);
  Used used;
  tuning.mostElements = 100;
  const DevicePlan split(layouts[0], tuning);
  check(split, {0, 4000}, {}, &used);
  EXPECT_EQ((used[{Shape::kLine, 16}]), 2 * 3);
}

TEST(DevicePlan, MovesPiecesLongerThanALaunchOneByOne) {
  std::mt19937 random(13);
  PlanTuning tuning = kSmall;
  tuning.mostElements = 3;
  checkParts(layoutOf({{2, 40000}}, irregular(150, 16, 64)), tuning, random);
  checkParts(layoutOf({{5, 100}}, {{0, 64}}), tuning, random);
}

TEST(DevicePlan, TakesMoreDimensionsThanALaunchCarries) {
  std::mt19937 random(17);
  std::vector<Dim> dims;
  std::int64_t stride = 24;
  for (int i = 0; i < 11; ++i) {
    dims.insert(dims.begin(), {2, stride});
    stride = stride * 2 + 8;
  }
  const Layout layout = layoutOf(dims, {{0, 8}});
  ASSERT_GT(layout.dims().size(), 8U);
  checkParts(layout, kSmall, random);
}

TEST(DevicePlan, RepeatsAListWithoutANewTable) {
  std::mt19937 random(19);
  const std::vector<Block> even = irregular(150, 8, 16);
  const std::vector<Block> uneven = irregular(150, 8, 0);
  for (const auto& blocks : {even, uneven, std::vector<Block>{{0, 3}, {9, 4}, {90, 40}}}) {
    for (int i = 0; i < 5; ++i) {
      checkParts(layoutOf({}, blocks), kSmall, random, nullptr, {4, 70000});
      checkParts(layoutOf({}, blocks), kSmall, random, nullptr, {4, 70004});
      checkParts(layoutOf({{2, 30000}}, blocks), kSmall, random, nullptr, {3, -70000});
    }
  }
}

void needsNoMoreOfATableThanItSays(const Layout& layout, const PlanTuning& tuning) {
  const DevicePlan plan(layout, tuning);
  const DevicePlan::Table& shape = plan.table();
  for (const std::uint64_t pieces : {1UL, 2UL, 100UL, 299UL, 300UL, 301UL}) {
    if (pieces > shape.pieces) break;
    const std::int64_t bytes = plan.bytesWithin(pieces);
    ASSERT_GE(bytes, layout.startOf(pieces - 1) - kSmall.unitBytes);
    if (bytes == 0) continue;
    std::vector<std::uint64_t> table((shape.bytes + 7) / 8, 0xfefefefefefefefeULL);
    auto* const out = reinterpret_cast<std::byte*>(table.data());
    plan.writeUnits(0, plan.unitsWithin(bytes), out);
    plan.writePieces(0, pieces, out + shape.piecesAt);
    Memory source(layout.bounds().last, 0, 3);
    Memory target(bytes, 0, 4);
    DeviceJob job;
    job.strided = source.address();
    job.packed = target.address();
    job.bytes = bytes;
    job.table = reinterpret_cast<std::uintptr_t>(table.data());
    std::vector<std::byte> want = target.copy();
    layout.forEach(0, bytes, [&](std::int64_t offset, std::int64_t at, std::int64_t count) {
      std::memcpy(want.data() + at, source.begin() + offset, static_cast<std::size_t>(count));
    });
    ASSERT_TRUE(plan.launches(job,
                              [&](const DeviceLaunch& launch) {
                                run(launch);
                                return Status();
                              })
                    .ok());
    ASSERT_TRUE(target.copy() == want) << pieces << " pieces";
  }
  EXPECT_EQ(plan.bytesWithin(301), layout.bytes());
}

TEST(DevicePlan, NeedsNoMoreOfATableThanItSays) {
  const Layout layout = layoutOf({}, irregular(300, 8, 0));
  PlanTuning inUnits = kSmall;
  inUnits.markedMost = 0;
  ASSERT_NO_FATAL_FAILURE(needsNoMoreOfATableThanItSays(layout, inUnits));
  ASSERT_NO_FATAL_FAILURE(needsNoMoreOfATableThanItSays(layout, kSmall));
}

// A table is filled through small buffers: what is written in parts is what is written at once.
TEST(DevicePlan, WritesATableInParts) {
  const Layout layout = layoutOf({}, irregular(300, 8, 0));
  for (const std::int64_t markedMost : {0, 512}) {
    PlanTuning tuning = kSmall;
    tuning.markedMost = markedMost;
    const DevicePlan plan(layout, tuning);
    const DevicePlan::Table& shape = plan.table();
    std::vector<std::uint32_t> units(shape.units);
    plan.writeUnits(0, shape.units, units.data());
    for (const std::uint64_t most : {1UL, 2UL, 7UL}) {
      for (std::uint64_t from = 0; from < shape.units; from += most) {
        const std::uint64_t to = std::min(from + most, shape.units);
        std::vector<std::uint32_t> part(to - from);
        plan.writeUnits(from, to, part.data());
        ASSERT_TRUE(
            std::equal(part.begin(), part.end(), units.begin() + static_cast<std::ptrdiff_t>(from)))
            << "entries from " << from << ", " << most << " at a time";
      }
    }
  }
}

TEST(DevicePlan, MovesMarkedPiecesByWhateverBothSidesAllow) {
  std::mt19937 random(37);
  for (const std::int64_t unit : {4, 8, 16}) {
    Used used;
    std::vector<Block> blocks;
    std::int64_t at = -40 * unit;
    for (int i = 0; i < 333; ++i) {
      const std::int64_t bytes = (i % 37 == 36 ? 50 : i % 5 == 4 ? 2 : 1) * unit;
      blocks.push_back({at, bytes});
      at += bytes + (1 + i % 3) * unit;
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    PlanTuning tuning = kSmall;
    tuning.wordLeast = unit == 16 ? 8 : 100;
    for (int i = 0; i < 20 && !HasFatalFailure(); ++i) {
      checkParts(layoutOf({}, blocks), tuning, random, &used);
      checkParts(layoutOf({{3, 3000 * unit}}, blocks), tuning, random, &used);
      checkParts(layoutOf({}, blocks), tuning, random, &used, {5, 3001 * unit});
    }
    for (const int width : {1, 2, 4, 8, 16}) {
      if (width > unit || (unit == 16 && width < 4)) continue;
      EXPECT_GT((used[{Shape::kMarkedList, width}]), 0) << width << " of " << unit;
    }
    if (unit == 16) {
      EXPECT_GT((used[{Shape::kMarkedList, 0}]), 0);
    }
  }
}

// Structures with bytes of padding, as C compilers make them, and pieces that begin anywhere.
TEST(DevicePlan, UnpacksWindowsOfPiecesThatAreNoWords) {
  std::mt19937 random(31);
  const Layout layouts[] = {
      layoutOf({{300, 24}}, {{0, 17}}),           layoutOf({{300, 24}}, {{3, 17}}),
      layoutOf({{300, 27}}, {{0, 17}}),           layoutOf({{5, 3000}, {30, 24}}, {{0, 9}}),
      layoutOf({}, irregular(200, 1, 13)),        layoutOf({{3, 30000}}, irregular(150, 1, 8)),
      layoutOf({{3, -4001}, {7, 31}}, {{0, 22}}), layoutOf({}, {{0, 777}}),
  };
  for (const Layout& layout : layouts) {
    Used used;
    for (int i = 0; i < 30 && !HasFatalFailure(); ++i) {
      checkParts(layout, kSmall, random, &used);
      checkParts(layout, kSmall, random, &used, {2, 100003});
    }
    const bool words = std::any_of(used.begin(), used.end(),
                                   [](const auto& use) { return use.first.second == 0; });
    EXPECT_TRUE(words) << layout.describe();
  }
}

TEST(DevicePlan, MovesRandomLayoutsLikeAWalk) {
  const char* const given = std::getenv("GMAC_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 20261121U;
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  Used used;
  for (int round = 0; round < 600; ++round) {
    const std::int64_t unit = std::int64_t{1} << draw(0, 4);
    std::vector<Block> blocks;
    const std::int64_t count = draw(0, 3) != 0 ? 1 : draw(2, 4) == 2 ? draw(121, 300) : draw(2, 30);
    const std::int64_t even = draw(0, 1) * draw(1, 12) * unit;
    std::int64_t at = draw(-20, 20) * unit;
    const std::int64_t most = draw(0, 2) == 0 ? 2 : 6;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t longest = most > 2 && draw(0, 9) == 0 ? 60 : most;
      const std::int64_t bytes = even != 0 ? even : draw(1, longest) * unit;
      blocks.push_back({at, bytes});
      at += bytes + draw(0, 5) * unit;
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    std::vector<Dim> dims;
    std::int64_t extent = at + 20 * unit + 16 * unit;
    std::int64_t repetitions = 1;
    for (std::int64_t d = draw(0, 5); d > 0; --d) {
      const std::int64_t times = draw(2, 12);
      if (repetitions * times * count > 3000) break;
      repetitions *= times;
      const std::int64_t stride = extent + draw(0, 4) * unit;
      dims.insert(dims.begin() + draw(0, static_cast<std::int64_t>(dims.size())),
                  {times, draw(0, 3) == 0 ? -stride : stride});
      extent = stride * times;
    }
    if (draw(0, 4) == 0) {
      const std::int64_t across = draw(2, 70);
      blocks = {{at, unit}};
      dims = {{across, unit}, {draw(2, 50), (across + draw(0, 9)) * unit}};
      if (draw(0, 1) == 0) dims.insert(dims.begin() + draw(0, 2), {3, 5000 * unit});
    }
    PlanTuning tuning = kSmall;
    if (draw(0, 3) == 0) tuning.mostElements = draw(3000, 100000);
    if (draw(0, 3) == 0) tuning.mostNarrow = 0;
    if (draw(0, 1) == 0) tuning.markedMost = 0;
    const Layout layout = layoutOf(dims, blocks);
    ASSERT_NO_FATAL_FAILURE(checkParts(layout, tuning, random, &used))
        << "round " << round << ", GMAC_TEST_SEED=" << seed;
  }
  for (int shape = 0; shape < kShapes; ++shape) {
    for (const int width : {0, 1, 2, 4, 8, 16}) {
      if (shape == static_cast<int>(Shape::kTile) && width == 0) continue;
      if (shape == static_cast<int>(Shape::kPacedRows))
        continue;  // of devices that have an issue rate
      // By the test of its own.
      if (shape == static_cast<int>(Shape::kMarkedList) && (width == 1 || width == 2)) continue;
      if (shape == static_cast<int>(Shape::kLine) && (width == 2 || width == 4)) continue;
      EXPECT_GT((used[{static_cast<Shape>(shape), width}]), 0)
          << shapeName(static_cast<Shape>(shape)) << " of width " << width << " was never used";
    }
  }
}

constexpr IssueRate kRate{.multiprocessors = 3, .cyclesPerRow = 5, .cyclesPerByte = 0.06};

// The first launch of a pack of the whole layout.
DeviceLaunch firstLaunch(const DevicePlan& plan, const DeviceJob& asked) {
  DeviceJob job = asked;
  job.packed = 1 << 20;
  job.bytes = plan.layout().bytes();
  DeviceLaunch launch;
  (void)plan.makeLaunch(job, 0, launch);
  return launch;
}

TEST(PacedRows, MoveTheSameBytes) {
  std::mt19937 random(5);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  PlanTuning tuning = kSmall;
  tuning.cachedMost = 0;
  tuning.pacedThreads = 32;
  tuning.pacedThreadsOfTwo = 64;
  Used used;
  for (const std::int64_t row : {4, 8, 12, 16, 20, 24, 32}) {
    const std::int64_t unit = row % 16 == 0 ? 16 : row % 8 == 0 ? 8 : 4;
    for (const std::int64_t stride : {256L, -272L, 304L, 496L, 512L}) {
      const Layout layout = layoutOf({{500, stride}}, {{unit, row}});
      const DevicePlan plan(layout, tuning);
      for (int i = 0; i < 6; ++i) {
        Setting setting;
        setting.issueRate = &kRate;
        setting.packedSkew = static_cast<unsigned>(draw(0, 3)) * 16;
        Range part{0, layout.bytes()};
        if (i > 0) {
          part.offset = draw(0, layout.bytes() / 2);
          part.bytes = draw(64, layout.bytes() - part.offset);
          setting.packedSkew = static_cast<unsigned>(part.offset % 16);
        }
        ASSERT_NO_FATAL_FAILURE(check(plan, part, setting, &used))
            << row << " bytes every " << stride << ", part " << part.offset << " + " << part.bytes;
      }
    }
  }
  for (const int width : {4, 8, 16}) {
    EXPECT_GT((used[{Shape::kPacedRows, width}]), 0) << width;
  }
}

TEST(PacedRows, AreAskedForAsFastAsTheirRowsOrBytesAllow) {
  const auto paramsOf = [](std::int64_t bytes, std::int64_t stride, std::int64_t rows) {
    const Layout layout = layoutOf({{rows, stride}}, {{0, bytes}});
    const DevicePlan plan(layout);
    DeviceJob job;
    job.issueRate = &kRate;
    const DeviceLaunch launch = firstLaunch(plan, job);
    EXPECT_EQ(launch.kernel.shape, Shape::kPacedRows);
    EXPECT_EQ(launch.blocks, kRate.multiprocessors);
    PacedRowsParams params;
    std::memcpy(&params, launch.params, sizeof params);
    return params;
  };
  const auto intervalOf = [&](std::int64_t bytes, std::int64_t stride, std::int64_t rows) {
    const PacedRowsParams params = paramsOf(bytes, stride, rows);
    EXPECT_EQ(params.rows.part.caching, Caching::kUsual);
    return params.interval;
  };
  constexpr std::int64_t kMany = 1 << 20;
  EXPECT_EQ(intervalOf(8, 512, kMany), 32 * 5U);
  EXPECT_EQ(intervalOf(8, -512, kMany), 32 * 5U);
  EXPECT_EQ(intervalOf(4, 256, kMany), 32 * 5U);
  EXPECT_EQ(intervalOf(32, 512, kMany), 92U);  // 16 rows of 64 and 32 bytes

  const PlanTuning tuning;
  const std::int64_t mostHeld = tuning.secondLevelMost / IssueRate::kLine;
  const PacedRowsParams held = paramsOf(8, 512, mostHeld);
  EXPECT_EQ(held.rows.part.caching, Caching::kSecondLevel);
  EXPECT_EQ(held.interval, std::lround(tuning.secondLevelInterval * 32 * 5));
  EXPECT_EQ(intervalOf(8, 512, mostHeld + 1), 32 * 5U);
}

TEST(Caching, IsOfTheSecondLevelForShortRowsThatItMayHold) {
  const auto cachingOf = [](const Layout& layout, const DeviceJob& job) {
    const DevicePlan plan(layout);
    const DeviceLaunch launch = firstLaunch(plan, job);
    EXPECT_EQ(launch.kernel.shape, Shape::kRows1);
    RowsParams<1> params;
    std::memcpy(&params, launch.params, sizeof params);
    return params.part.caching;
  };
  const auto rows = [](std::int64_t bytes, std::int64_t stride, std::int64_t count) {
    return layoutOf({{count, stride}}, {{0, bytes}});
  };
  constexpr std::int64_t kSome = 1 << 19;  // 32 MiB of lines
  EXPECT_EQ(cachingOf(rows(8, 512, kSome), {}), Caching::kSecondLevel);
  EXPECT_EQ(cachingOf(rows(32, -4096, kSome), {}), Caching::kSecondLevel);
  EXPECT_EQ(cachingOf(rows(8, 248, kSome), {}), Caching::kUsual) << "near";
  EXPECT_EQ(cachingOf(rows(40, 512, kSome), {}), Caching::kUsual) << "long";
  EXPECT_EQ(cachingOf(rows(8, 512, kSome / 2), {}), Caching::kUsual) << "few";
  EXPECT_EQ(cachingOf(rows(8, 512, 2 * kSome), {}), Caching::kUsual) << "many";
  EXPECT_EQ(cachingOf(rows(128, 512, 1 << 18), {}), Caching::kNowhere);
  DeviceJob unpack;
  unpack.direction = Direction::kUnpack;
  EXPECT_EQ(cachingOf(rows(8, 512, kSome), unpack), Caching::kUsual);
}

TEST(PacedRows, AreLongListsOfShortRowsOnADeviceThatHasAnIssueRate) {
  const auto shapeOf = [](const Layout& layout, const DeviceJob& job) {
    return firstLaunch(DevicePlan(layout), job).kernel.shape;
  };
  const auto rows = [](std::int64_t bytes, std::int64_t stride, std::int64_t count = 1 << 20) {
    return layoutOf({{count, stride}}, {{0, bytes}});
  };
  DeviceJob paced;
  paced.issueRate = &kRate;
  EXPECT_EQ(shapeOf(rows(8, 512), paced), Shape::kPacedRows);
  EXPECT_EQ(shapeOf(rows(8, 512), {}), Shape::kRows1);
  EXPECT_EQ(shapeOf(rows(8, 248), paced), Shape::kRows1) << "near";
  EXPECT_EQ(shapeOf(rows(8, 520), paced), Shape::kRows1) << "too far";
  EXPECT_EQ(shapeOf(rows(40, 512), paced), Shape::kRows1) << "long";
  EXPECT_EQ(shapeOf(rows(8, 512, 1 << 18), paced), Shape::kRows1) << "few: a cache holds them";
  EXPECT_EQ(shapeOf(rows(2, 512), paced), Shape::kRows1) << "narrow words";
  EXPECT_EQ(shapeOf(rows(24, 512), paced), Shape::kRows1) << "three words";
  DeviceJob limited = paced;
  limited.maxBlocks = 2;
  EXPECT_EQ(shapeOf(rows(8, 512), limited), Shape::kRows1);
  DeviceJob unpack = paced;
  unpack.direction = Direction::kUnpack;
  EXPECT_EQ(shapeOf(rows(8, 512), unpack), Shape::kRows1);
  const IssueRate none{.multiprocessors = 3};
  paced.issueRate = &none;
  EXPECT_EQ(shapeOf(rows(8, 512), paced), Shape::kRows1) << "nothing to gain there";
}

TEST(Divisor, DividesLikeTheProcessor) {
  std::mt19937 random(23);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = [&] { return random() >> (1 + random() % 31); };
    const std::uint32_t d = i < 100
                                ? static_cast<std::uint32_t>(i) + 1
                                : std::max<std::uint32_t>(static_cast<std::uint32_t>(bits()), 1);
    const Divisor divisor = Divisor::of(d);
    for (const std::uint32_t x : {static_cast<std::uint32_t>(bits()), kMaxDividend, d, d - 1,
                                  kMaxDividend / d * d, kMaxDividend / d * d - 1}) {
      if (x > kMaxDividend) continue;
      ASSERT_EQ(divisor.quotient(x), x / d) << x << " / " << d;
    }
  }
}

}  // namespace
}  // namespace gmac::datatype
