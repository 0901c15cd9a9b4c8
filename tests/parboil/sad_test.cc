// SPDX-License-Identifier: Apache-2.0
#include "parboil/sad/sad.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/parboil/host_executor.h"
#include "tests/support/temporary_folder.h"

namespace parboil::sad {
namespace {

constexpr Parameters kTiny{64, 48, 2, 1, 1};

std::vector<std::uint16_t> searchOnHost(const Parameters& size, const std::uint16_t* current,
                                        const std::uint16_t* reference) {
  std::vector<std::uint16_t> sads(size.rows() * size.rowSads());
  const adsmDim_t grid{size.columns(), size.rows(), 1};
  const adsmDim_t block{kThreads, 1, 1};
  runOnHost(&search4x4Block, grid, block, 0, current, reference, sads.data(), size.width,
            size.height);
  runOnHost(&combine8x8Block, grid, block, 0, sads.data());
  runOnHost(&combine16x16Block, grid, block, 0, sads.data());
  return sads;
}

std::vector<std::uint16_t> frameOf(const Parameters& size, std::uint32_t number) {
  std::vector<std::uint16_t> frame(size.samples());
  makeFrame(size, number, frame.data());
  return frame;
}

TEST(Sad, HostKernelsAgreeWithTheReferenceExactly) {
  const auto current = frameOf(kTiny, 1);
  const auto reference = frameOf(kTiny, 0);
  const auto sads = searchOnHost(kTiny, current.data(), reference.data());
  std::vector<std::uint16_t> want(kTiny.rowSads());
  for (std::uint32_t row = 0; row < kTiny.rows(); ++row) {
    searchRow(kTiny, current.data(), reference.data(), row, want.data());
    EXPECT_TRUE(std::equal(want.begin(), want.end(),
                           sads.begin() + static_cast<std::ptrdiff_t>(row * kTiny.rowSads())))
        << "row " << row;
  }
}

TEST(Sad, AShiftedFrameIsFoundAtItsDisplacement) {
  constexpr int kDx = 3;
  constexpr int kDy = -5;
  const auto reference = frameOf(kTiny, 0);
  std::vector<std::uint16_t> current(kTiny.samples());
  for (std::uint32_t y = 0; y < kTiny.height; ++y) {
    for (std::uint32_t x = 0; x < kTiny.width; ++x) {
      const auto fromY = static_cast<std::size_t>(clampTo(static_cast<int>(y) + kDy, kTiny.height));
      const auto fromX = static_cast<std::size_t>(clampTo(static_cast<int>(x) + kDx, kTiny.width));
      current[std::size_t{y} * kTiny.width + x] = reference[fromY * kTiny.width + fromX];
    }
  }
  const auto sads = searchOnHost(kTiny, current.data(), reference.data());
  const std::size_t there = (kDy + kRange) * kSide + (kDx + kRange);
  for (std::size_t m = 0; m < std::size_t{kTiny.rows()} * kTiny.columns(); ++m) {
    for (std::size_t p = 0; p < kPartitions; ++p) {
      const std::uint16_t* partition = sads.data() + (m * kPartitions + p) * kPositions;
      EXPECT_EQ(partition[there], 0) << "macroblock " << m << ", partition " << p;
    }
  }
  EXPECT_GT(sads[k16x16 * kPositions], 0);
}

TEST(Sad, BlackOnWhiteIsTheLargestSadThereIs) {
  const std::vector<std::uint16_t> black(kTiny.samples(), 0);
  const std::vector<std::uint16_t> white(kTiny.samples(), 255);
  const auto sads = searchOnHost(kTiny, black.data(), white.data());
  EXPECT_EQ(sads[k4x4 * kPositions], 16 * 255);
  EXPECT_EQ(sads[k8x4 * kPositions], 32 * 255);
  EXPECT_EQ(sads[k4x8 * kPositions + kDisplacements - 1], 32 * 255);
  EXPECT_EQ(sads[k8x8 * kPositions], 64 * 255);
  EXPECT_EQ(sads[k16x8 * kPositions], 128 * 255);
  EXPECT_EQ(sads[k8x16 * kPositions], 128 * 255);
  EXPECT_EQ(sads[k16x16 * kPositions], 256 * 255);
  EXPECT_EQ(sads[k16x16 * kPositions + kDisplacements], kNoSad);
}

class SadFiles : public gmac::testing::FolderTest {
 protected:
  // The output file of a right run, but with `flip` applied to the last SAD of a displacement.
  void writeOutput(const Context& context, std::uint16_t flip) {
    const Parameters size = parameters(context.size);
    std::vector<std::uint16_t> reference(size.samples());
    std::vector<std::uint16_t> current(size.samples());
    InputFile input(dataPath(context, "sad", "in"), kInput, context.size);
    input.read(reference.data(), reference.size() * sizeof(std::uint16_t));
    input.read(current.data(), current.size() * sizeof(std::uint16_t));
    auto sads = searchOnHost(size, current.data(), reference.data());
    OutputFile output(dataPath(context, "sad", "out"), kOutput, context.size);
    for (std::uint32_t row = size.firstRow(); row < size.rows(); row += size.rowStride) {
      std::uint16_t* const begin = sads.data() + row * size.rowSads();
      if (row + size.rowStride >= size.rows())
        begin[size.rowSads() - 1 - (kPositions - kDisplacements)] ^= flip;
      output.write(begin, size.rowSads() * sizeof(std::uint16_t));
    }
    output.commit();
  }
};

TEST_F(SadFiles, CheckPassesARightFileAndFindsOneWrongBit) {
  const Context context{Size::kSmall, folder_};
  generate(context);
  writeOutput(context, 0);
  const Check right = check(context);
  EXPECT_TRUE(right.ok) << right.detail;
  writeOutput(context, 1);
  EXPECT_FALSE(check(context).ok);
}

TEST_F(SadFiles, CheckFindsAMissingRow) {
  const Context context{Size::kSmall, folder_};
  generate(context);
  OutputFile output(dataPath(context, "sad", "out"), kOutput, context.size);
  const std::vector<std::uint16_t> row(parameters(context.size).rowSads());
  output.write(row.data(), row.size() * sizeof(std::uint16_t));
  output.commit();
  EXPECT_FALSE(check(context).ok);
}

}  // namespace
}  // namespace parboil::sad
