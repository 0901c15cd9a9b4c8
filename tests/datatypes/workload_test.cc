// SPDX-License-Identifier: Apache-2.0
//
// The layouts that are measured: each one's datatype, its walk over pieces and its arguments to
// CUDA's copies describe the same bytes. Where there is a GPU, the program itself compares the
// kernels written by hand.
#include "datatypes/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "datatypes/pattern.h"
#include "gmac/api/adsm_datatype.h"

namespace datatypes {
namespace {

using ::testing::ElementsAre;

using Pieces = std::vector<std::pair<std::int64_t, std::int64_t>>;

void append(Pieces& pieces, std::int64_t offset, std::int64_t bytes) {
  if (!pieces.empty() && pieces.back().first + pieces.back().second == offset) {
    pieces.back().second += bytes;
  } else {
    pieces.emplace_back(offset, bytes);
  }
}

Pieces walked(const Workload& workload) {
  Pieces pieces;
  workload.pieces([&](std::int64_t offset, std::int64_t bytes) { append(pieces, offset, bytes); });
  return pieces;
}

Pieces blocksOf(const Type& type) {
  std::int64_t count = 0;
  require(adsmTypeBlockCount(type.get(), &count), "adsmTypeBlockCount");
  std::vector<adsmBlock_t> blocks(static_cast<std::size_t>(count));
  std::int64_t written = 0;
  require(adsmTypeBlocks(type.get(), 0, count, blocks.data(), &written), "adsmTypeBlocks");
  EXPECT_EQ(written, count);
  Pieces pieces;
  for (const adsmBlock_t& block : blocks) append(pieces, block.offset, block.bytes);
  return pieces;
}

std::vector<Workload> everyWorkload() {
  return {contiguous(64),
          contiguous(kMiB + 8),
          vector(8, 512, 64 * kKiB),
          vector(12, 24, 12 * 100),
          vector(256, 512, 64 * kKiB),
          subMatrix(64),
          triangle(63),
          triangle(64),
          triangleVariant(64, 0),
          triangleVariant(64, 61),
          stairTriangle(512, 256),
          subarray4d(2),
          subarray4d(8),
          subarray4d(32),
          indexed(8, 8 * kKiB),
          indexed(128, 8 * kKiB),
          indexedPairs(100),
          structs(1),
          structs(1000),
          transposed(64),
          nestedVector(8 * kKiB),
          face(Face::kXy, 16),
          face(Face::kXz, 16),
          face(Face::kYz, 16)};
}

TEST(Workloads, TheDatatypeIsTheSameBytesAsTheWalk) {
  for (const Workload& workload : everyWorkload()) {
    SCOPED_TRACE(workload.name + ", " + workload.size);
    const Type type = workload.type();
    type.commit();
    EXPECT_EQ(type.size(), workload.bytes);
    EXPECT_EQ(blocksOf(type), walked(workload));
  }
}

TEST(Workloads, PiecesLieInTheExtentAndMakeTheSize) {
  for (const Workload& workload : everyWorkload()) {
    SCOPED_TRACE(workload.name + ", " + workload.size);
    std::int64_t sum = 0;
    workload.pieces([&](std::int64_t offset, std::int64_t bytes) {
      EXPECT_GE(offset, 0);
      EXPECT_LE(offset + bytes, workload.extent);
      sum += bytes;
    });
    EXPECT_EQ(sum, workload.bytes);
  }
}

TEST(Workloads, StridedCopiesAreTheSameBytes) {
  int withCopies = 0;
  for (const Workload& workload : everyWorkload()) {
    if (workload.copies.empty()) continue;
    ++withCopies;
    SCOPED_TRACE(workload.name + ", " + workload.size);
    std::vector<std::byte> packed(static_cast<std::size_t>(workload.bytes));
    for (const StridedCopy& copy : workload.copies) {
      std::byte* to = packed.data() + copy.targetOffset;
      EXPECT_EQ(copy.depth == 1 ? 0 : copy.planePitch % copy.rowPitch, 0);
      for (std::int64_t z = 0; z < copy.depth; ++z) {
        for (std::int64_t y = 0; y < copy.height; ++y) {
          fillPattern(to, copy.sourceOffset + z * copy.planePitch + y * copy.rowPitch, copy.width);
          to += copy.width;
        }
      }
    }
    EXPECT_EQ(packed, packedPattern(workload));
  }
  EXPECT_GE(withCopies, 10);
}

TEST(Workloads, BlocksOfListsStayApart) {
  EXPECT_EQ(walked(indexed(8, 8 * kKiB)).size(), 1024U);
  EXPECT_EQ(walked(indexed(128, 128 * kKiB)).size(), 1024U);
  EXPECT_EQ(walked(indexedPairs(1000)).size(), 2000U);
}

TEST(Workloads, VariantsOfATriangleAreAllDifferent) {
  const Pieces first = walked(triangleVariant(64, 0));
  EXPECT_NE(walked(triangleVariant(64, 1)), first);
  EXPECT_NE(walked(triangleVariant(64, 61)), first);
  EXPECT_NE(walked(triangle(64)), first);
}

TEST(Workloads, BurstsAreThoseOf64BytesThatHoldSomething) {
  EXPECT_EQ(burstBytes(vector(8, 512, 8 * 100)), 100 * 64);
  EXPECT_EQ(burstBytes(vector(128, 512, 128 * 100)), 100 * 128);
  EXPECT_EQ(burstBytes(vector(8, 64, 8 * 100)), 100 * 64);
  EXPECT_EQ(burstBytes(vector(8, 16, 8 * 100)), 100 * 16);
  EXPECT_EQ(burstBytes(transposed(64)), 64 * 64 * 8);
}

TEST(Pattern, IsWrittenFromAnyByteOn) {
  std::vector<std::byte> whole(64);
  fillPattern(whole.data(), 0, 64);
  for (std::int64_t first : {0, 1, 7, 8, 9}) {
    std::vector<std::byte> part(20);
    fillPattern(part.data(), first, 20);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + first, 20), 0) << first;
  }
}

TEST(SizeText, HasTheUnitThatFits) {
  EXPECT_THAT((std::vector{sizeText(64), sizeText(8 * kKiB), sizeText(17 * kMiB),
                           sizeText(kMiB + kMiB / 2)}),
              ElementsAre("64 B", "8 KiB", "17 MiB", "1.5 MiB"));
}

}  // namespace
}  // namespace datatypes
