// SPDX-License-Identifier: Apache-2.0
//
// The CPU engine against a walk over the type map, byte by byte: every form, width, alignment and
// part, in both directions, alone and with helpers.
#include "gmac/datatype/cpu/cpu_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/base/status.h"
#include "gmac/datatype/types/registry.h"
#include "tests/datatype/recipe.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using Bytes = std::vector<std::byte>;
using Offsets = std::vector<int64_t>;

Bytes randomBytes(std::mt19937_64& random, std::size_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A layout and, independent of it, the offset of each of its bytes; memory in which all of them
// lie, `base` bytes from its beginning, and with room around.
struct Subject {
  Layout layout;
  Offsets offsets;
  std::size_t base = 0;
  std::size_t memory = 0;

  Subject(Layout subject, Offsets all) : layout(std::move(subject)), offsets(std::move(all)) {
    int64_t low = 0;
    int64_t high = 0;
    for (const int64_t offset : offsets) {
      low = std::min(low, offset);
      high = std::max(high, offset + 1);
    }
    base = static_cast<std::size_t>(-low) + 16;
    memory = base + static_cast<std::size_t>(high) + 16;
  }
};

// `count` elements of a recipe.
Subject subjectOf(const Recipe& recipe, int64_t count) {
  const TypeMap map = typeMapOf(recipe);
  const adsmType_t type = typeOf(recipe);
  EXPECT_EQ(adsmTypeCommit(type), adsmSuccess) << lastErrorText();
  auto form = committed(type);
  EXPECT_TRUE(form.ok());
  auto layout = (*form)->layout.repeated(count, (*form)->extent);
  EXPECT_TRUE(layout.ok());
  Offsets offsets;
  const Offsets one = map.byteOffsets();
  for (int64_t i = 0; i < count; ++i) {
    for (const int64_t offset : one) offsets.push_back(offset + i * map.extent());
  }
  if (recipe.constructor != Constructor::kPrimitive) {
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  }
  return Subject(*layout, std::move(offsets));
}

// Packs and unpacks the part [from, to), from and to addresses of any alignment, and looks at every
// byte, those around included.
void expectPart(std::mt19937_64& random, const Subject& subject, std::size_t from, std::size_t to,
                const CpuOptions& options) {
  SCOPED_TRACE(subject.layout.describe() + ", bytes " + std::to_string(from) + " to " +
               std::to_string(to));
  const std::size_t shift = random() % 16;
  const Bytes plain = randomBytes(random, subject.memory + shift);
  const std::size_t base = subject.base + shift;
  const std::size_t front = random() % 24;
  const Bytes packed = randomBytes(random, front + (to - from) + 20);
  const auto at = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<int64_t>(base) + subject.offsets[i]);
  };

  Bytes expected = packed;
  for (std::size_t i = from; i < to; ++i) expected[front + i - from] = plain[at(i)];
  Bytes found = packed;
  pack(subject.layout, found.data() + front, plain.data() + base, static_cast<int64_t>(from),
       static_cast<int64_t>(to - from), options);
  EXPECT_TRUE(found == expected) << "pack";

  expected = plain;
  for (std::size_t i = from; i < to; ++i) expected[at(i)] = packed[front + i - from];
  found = plain;
  unpack(subject.layout, found.data() + base, packed.data() + front, static_cast<int64_t>(from),
         static_cast<int64_t>(to - from), options);
  // Where pieces overlap any of the values may stay: what each place may hold is looked at.
  std::vector<std::pair<std::size_t, std::byte>> written;
  for (std::size_t i = from; i < to; ++i) written.emplace_back(at(i), packed[front + i - from]);
  std::sort(written.begin(), written.end());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] != expected[i]) {
      EXPECT_TRUE(std::binary_search(written.begin(), written.end(), std::make_pair(i, found[i])))
          << "unpack, byte " << i;
    }
  }
}

TEST(CpuEngine, CopiesWhatTheTypeMapSays) {
  std::mt19937_64 random(testSeed());
  for (int i = 0; i < 1000 && !HasFailure(); ++i) {
    const Recipe recipe = randomRecipe(random, {3, 2000});
    SCOPED_TRACE(text(recipe));
    const Subject subject = subjectOf(recipe, static_cast<int64_t>(random() % 4));
    const std::size_t all = subject.offsets.size();
    expectPart(random, subject, 0, all, {});
    for (int k = 0; k < 6 && all > 0; ++k) {
      const std::size_t from = random() % all;
      const std::size_t to = from + random() % (all - from + 1);
      expectPart(random, subject, from, to, {});
    }
  }
}

TEST(CpuEngine, CopiesEveryPart) {
  std::mt19937_64 random(testSeed());
  for (int i = 0; i < 60 && !HasFailure();) {
    const Recipe recipe = randomRecipe(random, {3, 24});
    const Subject subject = subjectOf(recipe, 2);
    if (subject.offsets.size() > 96 || subject.offsets.size() < 4) continue;
    SCOPED_TRACE(text(recipe));
    for (std::size_t from = 0; from <= subject.offsets.size(); ++from) {
      for (std::size_t to = from; to <= subject.offsets.size(); ++to) {
        expectPart(random, subject, from, to, {});
      }
    }
    ++i;
  }
}

Offsets offsetsByDefinition(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  Offsets bases = {0};
  for (const Dim& dim : dims) {
    Offsets next;
    for (const int64_t base : bases) {
      for (int64_t i = 0; i < dim.count; ++i) next.push_back(base + i * dim.stride);
    }
    bases = std::move(next);
  }
  Offsets offsets;
  for (const int64_t base : bases) {
    for (const Block& block : blocks) {
      for (int64_t i = 0; i < block.bytes; ++i) offsets.push_back(base + block.offset + i);
    }
  }
  return offsets;
}

Subject subjectOf(const std::vector<Dim>& dims, const std::vector<Block>& blocks) {
  auto layout = Layout::make(dims, blocks);
  EXPECT_TRUE(layout.ok()) << lastErrorText();
  return Subject(*layout, offsetsByDefinition(dims, blocks));
}

// Around every width that has a loop of its own, and where a copy function takes over.
TEST(CpuEngine, CopiesBlocksOfEveryWidth) {
  std::mt19937_64 random(testSeed());
  std::vector<int64_t> widths;
  for (int64_t width = 1; width <= 140; ++width) widths.push_back(width);
  for (const int64_t width : {255, 256, 257, 1000}) widths.push_back(width);
  for (const int64_t width : widths) {
    SCOPED_TRACE("width " + std::to_string(width));
    const int64_t gap = static_cast<int64_t>(random() % 9) + 1;
    const Subject subjects[] = {
        subjectOf({{7, width + gap}}, {{3, width}}),
        subjectOf({{3, -20 * width}, {4, width + gap}}, {{0, width}}),
        subjectOf({{2, 40 * width}, {3, 6 * width + 11}, {2, width + gap}}, {{5, width}}),
        subjectOf({}, {{0, width}, {3 * width, width}, {9 * width, width}, {-width, width}}),
        subjectOf({{3, 30 * width}}, {{0, width}, {2 * width, width + 3}, {9 * width, width}}),
    };
    for (const Subject& subject : subjects) {
      const std::size_t all = subject.offsets.size();
      expectPart(random, subject, 0, all, {});
      for (int k = 0; k < 8; ++k) {
        const std::size_t from = random() % all;
        expectPart(random, subject, from, from + random() % (all - from + 1), {});
      }
    }
  }
}

// Around the number of words that one move takes.
TEST(CpuEngine, CopiesEverySecondWord) {
  std::mt19937_64 random(testSeed());
  for (const int64_t width : {4, 8}) {
    for (const int64_t columns : {1, 7, 8, 9, 15, 16, 17, 31, 33, 40, 64, 71}) {
      SCOPED_TRACE(std::to_string(columns) + " of width " + std::to_string(width));
      for (const Subject& subject :
           {subjectOf({{columns, 2 * width}}, {{3, width}}),
            subjectOf({{3, 2 * width * columns + 5}, {columns, 2 * width}}, {{0, width}})}) {
        const std::size_t all = subject.offsets.size();
        expectPart(random, subject, 0, all, {});
        for (int k = 0; k < 8; ++k) {
          const std::size_t from = random() % all;
          expectPart(random, subject, from, from + random() % (all - from + 1), {});
        }
      }
    }
  }
}

// What lies between two words is in a page that nobody may touch, before the first one or after the
// last.
TEST(CpuEngine, TouchesNothingBetweenWords) {
  constexpr std::size_t kPage = 4096;
  auto* const pages = static_cast<std::byte*>(
      ::mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::mprotect(pages, kPage, PROT_NONE), 0);
  ASSERT_EQ(::mprotect(pages + 2 * kPage, kPage, PROT_NONE), 0);
  for (const int64_t width : {4, 8}) {
    for (const int64_t columns : {8, 16, 32, 64}) {
      const auto layout = Layout::make({{columns, 2 * width}}, {{0, width}});
      ASSERT_TRUE(layout.ok()) << lastErrorText();
      Bytes packed(static_cast<std::size_t>(columns * width), std::byte{7});
      for (std::byte* const base : {pages + kPage, pages + 2 * kPage - (2 * columns - 1) * width}) {
        std::memset(pages + kPage, 1, kPage);
        unpack(*layout, base, packed.data(), 0, columns * width, {});
        Bytes again(packed.size());
        pack(*layout, again.data(), base, 0, columns * width, {});
        EXPECT_TRUE(again == packed) << columns << " of width " << width;
      }
    }
  }
  ::munmap(pages, 3 * kPage);
}

// Columns of row-major matrices, which are copied in tiles: sizes around a tile's, both signs.
TEST(CpuEngine, CopiesTransposes) {
  std::mt19937_64 random(testSeed());
  for (const int64_t width : {1, 4, 8, 16, 20}) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{33, 34}, {100, 65}, {7, 200}, {2, 33}}) {
      const int64_t pitch = random() % 2 == 0 ? width : -width;
      const int64_t stride = (random() % 2 == 0 ? 1 : -1) * 128 * width;
      const Subject subject =
          subjectOf({{2, 1 << 18}, {rows, pitch}, {columns, stride}}, {{0, width}});
      const std::size_t all = subject.offsets.size();
      expectPart(random, subject, 0, all, {});
      for (int k = 0; k < 4; ++k) {
        const std::size_t from = random() % all;
        expectPart(random, subject, from, from + random() % (all - from + 1), {});
      }
    }
  }
}

// Enough for helpers.
std::vector<Subject> largeSubjects() {
  std::vector<Subject> subjects;
  subjects.push_back(subjectOf({{300000, 24}}, {{0, 8}}));
  subjects.push_back(subjectOf({{40, 90000}, {100, 800}}, {{0, 700}}));
  subjects.push_back(subjectOf({{60000, 40}}, {{0, 17}, {20, 12}}));
  std::vector<Block> triangle;
  for (int64_t i = 0; i < 2000; ++i) triangle.push_back({i * 2100, i + 1});
  subjects.push_back(subjectOf({}, triangle));
  subjects.push_back(subjectOf({}, {{64, 3 << 20}}));
  return subjects;
}

TEST(CpuEngine, SharesOutWhatIsLarge) {
  std::mt19937_64 random(testSeed());
  for (const Subject& subject : largeSubjects()) {
    const std::size_t all = subject.offsets.size();
    expectPart(random, subject, 0, all, {4});
    expectPart(random, subject, 12345, all - 777, {2});
  }
}

TEST(CpuEngine, IsUsedByThreadsAtATime) {
  const auto subjects = largeSubjects();
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (std::size_t i = 0; i < 3; ++i) {
        const Subject& subject = subjects[(i + t) % subjects.size()];
        expectPart(random, subject, 0, subject.offsets.size(), {3});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The parent's helpers are not there, and its work may be under way.
TEST(CpuEngine, WorksInAChildOfFork) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer takes a child's new threads for the parent's";
#endif
  const Subject subject = subjectOf({{300000, 24}}, {{0, 8}});
  std::mt19937_64 random(1);
  expectPart(random, subject, 0, subject.offsets.size(), {3});
  std::atomic<bool> over{false};
  std::thread busy([&] {
    std::mt19937_64 own(2);
    const Bytes plain = randomBytes(own, subject.memory);
    Bytes packed(subject.offsets.size());
    while (!over) {
      pack(subject.layout, packed.data(), plain.data() + subject.base, 0, subject.layout.bytes(),
           {3});
    }
  });
  const Bytes plain = randomBytes(random, subject.memory);
  Bytes packed(subject.offsets.size());
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      pack(subject.layout, packed.data(), plain.data() + subject.base, 0, subject.layout.bytes(),
           {3});
      bool equal = true;
      for (std::size_t k = 0; k < packed.size(); ++k) {
        equal = equal &&
                packed[k] == plain[subject.base + static_cast<std::size_t>(subject.offsets[k])];
      }
      _exit(equal ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  over = true;
  busy.join();
}

TEST(CpuEngine, LeavesLongPiecesToTheFunctionGiven) {
  static std::atomic<int64_t> copied{0};
  CpuOptions options;
  options.copy = [](void* to, const void* from, std::size_t bytes) {
    copied += static_cast<int64_t>(bytes);
    return std::memcpy(to, from, bytes);
  };
  std::mt19937_64 random(1);
  const Subject subject = subjectOf({{10, 6000}}, {{0, 5000}});
  expectPart(random, subject, 0, subject.offsets.size(), options);
  EXPECT_EQ(copied, 2 * 50000);
}

}  // namespace
}  // namespace gmac::datatype
