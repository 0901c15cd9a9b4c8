// SPDX-License-Identifier: Apache-2.0
#include "mpi/far_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gmac::mpi {
namespace {

using datatype::Layout;

bool isFar(std::int64_t rows, std::int64_t stride, std::int64_t bytes) {
  return rowsLieFarApart(*Layout::make({{rows, stride}}, {{0, bytes}}));
}

TEST(FarRows, AreManyShortAndInPagesOfTheirOwn) {
  EXPECT_TRUE(isFar(16384, 65552, 8));
  EXPECT_TRUE(isFar(4096, 8192, 16));
  EXPECT_TRUE(isFar(8192, 4096, 8));
  EXPECT_FALSE(isFar(8192, 4088, 8));
  EXPECT_FALSE(isFar(1048, 4208, 8)) << "few rows";
  EXPECT_FALSE(isFar(16384, 65552, 64)) << "long rows";
  EXPECT_FALSE(isFar(1 << 20, 32, 8)) << "many to a page";
}

TEST(FarRows, ListsCountAsWell) {
  std::vector<datatype::Block> blocks;
  for (std::int64_t i = 0; i < 5000; ++i) blocks.push_back({i * 10000 + i % 7 * 16, 8});
  EXPECT_TRUE(rowsLieFarApart(*Layout::make({}, blocks)));
  blocks.resize(2000);
  EXPECT_FALSE(rowsLieFarApart(*Layout::make({}, blocks)));
  EXPECT_FALSE(rowsLieFarApart(*Layout::make({}, {{0, 1 << 30}})));
  EXPECT_FALSE(rowsLieFarApart(Layout()));
}

}  // namespace
}  // namespace gmac::mpi
