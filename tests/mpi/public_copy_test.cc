// SPDX-License-Identifier: Apache-2.0
#include "mpi/public_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace gmac::mpi {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Bytes = std::vector<std::byte>;

Bytes bytesOf(std::size_t count, unsigned seed) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + seed);
  }
  return bytes;
}

// The window's two copies, and what the test expects in them.
class PublicCopyTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 100'000;

  PublicCopyTest() { copy.begin(0, own); }
  bool collect() {
    return copy.collect(0, kBytes, [&](std::span<const ByteRun> runs, const std::byte* values) {
      for (const ByteRun& run : runs) {
        taken.push_back(run);
        std::copy_n(values, run.bytes, own.begin() + static_cast<std::ptrdiff_t>(run.first));
        values += run.bytes;
      }
      return true;
    });
  }
  Bytes shown() const { return {copy.memory(), copy.memory() + kBytes}; }

  Bytes own = bytesOf(kBytes, 1);
  std::vector<ByteRun> taken;
  PublicCopy copy{nullptr, kBytes};
};

TEST(FindDifferences, FindsTheLongestRunsWhereverTheyBegin) {
  for (std::size_t first = 0; first < 70; ++first) {
    for (const std::size_t length : {1, 2, 7, 8, 9, 40}) {
      const Bytes one = bytesOf(130, 0);
      Bytes other = one;
      for (std::size_t i = first; i < first + length; ++i) other[i] ^= std::byte{0x80};
      std::vector<ByteRun> runs;
      findDifferences(one, other.data(), 1000, &runs);
      EXPECT_THAT(runs, ElementsAre(ByteRun{1000 + first, length}));
    }
  }
}

TEST(FindDifferences, FindsRunsSideBySide) {
  const Bytes one(20, std::byte{0});
  Bytes other = one;
  for (const std::size_t i : {0, 2, 3, 9, 19}) other[i] = std::byte{1};
  std::vector<ByteRun> runs;
  findDifferences(one, other.data(), 0, &runs);
  EXPECT_THAT(runs, ElementsAre(ByteRun{0, 1}, ByteRun{2, 2}, ByteRun{9, 1}, ByteRun{19, 1}));
}

TEST_F(PublicCopyTest, IsAlignedAsTheApplicationsIs) {
  for (std::uintptr_t shift = 0; shift < 128; ++shift) {
    const PublicCopy other(reinterpret_cast<void*>(0x1000 + shift), 100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(other.memory()) % 64, shift % 64);
  }
}

TEST_F(PublicCopyTest, ShowsWhatIsPublishedAndHandsItToNobody) {
  own = bytesOf(kBytes, 2);
  copy.publish(0, own);
  EXPECT_EQ(shown(), own);
  EXPECT_TRUE(collect());
  EXPECT_THAT(taken, IsEmpty());
}

TEST_F(PublicCopyTest, HandsOverWhatOthersHaveWrittenOnce) {
  copy.memory()[5] ^= std::byte{1};
  copy.memory()[50'000] ^= std::byte{1};
  EXPECT_TRUE(collect());
  EXPECT_THAT(taken, ElementsAre(ByteRun{5, 1}, ByteRun{50'000, 1}));
  EXPECT_EQ(own, shown());
  taken.clear();
  EXPECT_TRUE(collect());
  EXPECT_THAT(taken, IsEmpty());
}

TEST_F(PublicCopyTest, JoinsWhatChangedFromTheFirstToTheLastByte) {
  for (std::size_t i = 0; i < kBytes; ++i) copy.memory()[i] ^= std::byte{1};
  EXPECT_TRUE(collect());
  EXPECT_THAT(taken, ElementsAre(ByteRun{0, kBytes}));
  EXPECT_EQ(own, shown());
}

// Bytes that both sides write stay as others have written them.
TEST_F(PublicCopyTest, WritesNoByteThatItsOwnerHasNotChanged) {
  std::mt19937 random(7);
  Bytes expected = own;
  for (std::size_t i = 0; i < kBytes; ++i) {
    const unsigned who = random() % 8;
    if (who == 0 || who == 2) own[i] ^= std::byte{2};
    if (who == 1 || who == 2) copy.memory()[i] ^= std::byte{4};
    expected[i] ^= who == 0 ? std::byte{2} : who == 1 || who == 2 ? std::byte{4} : std::byte{0};
  }
  copy.publish(0, own);
  EXPECT_EQ(shown(), expected);
  EXPECT_TRUE(collect());
  EXPECT_EQ(own, expected);
}

TEST_F(PublicCopyTest, HandsOverAgainWhatWasNotTaken) {
  copy.memory()[77] ^= std::byte{1};
  EXPECT_FALSE(copy.collect(0, kBytes, [](auto, auto) { return false; }));
  EXPECT_TRUE(collect());
  EXPECT_THAT(taken, ElementsAre(ByteRun{77, 1}));
}

TEST_F(PublicCopyTest, HandsOverPartsOfTheWindow) {
  copy.memory()[10] ^= std::byte{1};
  copy.memory()[20] ^= std::byte{1};
  EXPECT_TRUE(copy.collect(15, 10, [&](std::span<const ByteRun> runs, const std::byte*) {
    taken.assign(runs.begin(), runs.end());
    return true;
  }));
  EXPECT_THAT(taken, ElementsAre(ByteRun{20, 1}));
}

// More runs, and more bytes, than are handed over at once.
TEST(PublicCopy, HandsOverALotInPieces) {
  constexpr std::size_t kBytes = 3 * PublicCopy::kPieceBytes + 12345;
  PublicCopy copy(nullptr, kBytes);
  Bytes own = bytesOf(kBytes, 3);
  copy.begin(0, own);
  for (std::size_t i = 0; i < kBytes; i += i < kBytes / 2 ? 2 : 1) copy.memory()[i] ^= std::byte{8};
  int pieces = 0;
  EXPECT_TRUE(copy.collect(0, kBytes, [&](std::span<const ByteRun> runs, const std::byte* values) {
    std::size_t bytes = 0;
    for (const ByteRun& run : runs) {
      std::copy_n(values + bytes, run.bytes, own.begin() + static_cast<std::ptrdiff_t>(run.first));
      bytes += run.bytes;
    }
    EXPECT_LE(bytes, PublicCopy::kPieceBytes);
    ++pieces;
    return true;
  }));
  EXPECT_GT(pieces, 3);
  EXPECT_EQ(own, Bytes(copy.memory(), copy.memory() + kBytes));
}

}  // namespace
}  // namespace gmac::mpi
