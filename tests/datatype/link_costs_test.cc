// SPDX-License-Identifier: Apache-2.0
//
// How a device copies from another device's memory. What is cheapest was measured
// (docs/results.md).
#include "gmac/datatype/engine/link_costs.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "gmac/api/adsm_datatype.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::datatype {
namespace {

using std::int64_t;

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

Layout line(int64_t bytes) { return *Layout::make({}, {{0, bytes}}); }
// Every second row.
Layout rows(int64_t bytes, int64_t row) {
  return *Layout::make({{bytes / row, 2 * row}}, {{0, row}});
}
adsmMethod_t whole(const Layout& to, const Layout& from) {
  return methodOverLink(to, from, 0, from.bytes());
}
adsmMethod_t rowsToRows(int64_t bytes, int64_t row) {
  return whole(rows(bytes, row), rows(bytes, row));
}

TEST(LinkCosts, OnePieceGoesByTheCopyEngine) {
  for (const int64_t bytes : {int64_t{8}, 64 * kKiB, 64 * kMiB}) {
    EXPECT_EQ(whole(line(bytes), line(bytes)), adsmMethodCopy) << bytes;
  }
  // Its parts as well, and to a longer one.
  EXPECT_EQ(methodOverLink(line(kMiB), line(kMiB), 4096, 8192), adsmMethodCopy);
  EXPECT_EQ(methodOverLink(line(2 * kMiB), line(kMiB), 0, kMiB), adsmMethodCopy);
}

TEST(LinkCosts, ShortMessagesOfRowsGoByTheCopyEngine) {
  for (const int64_t row : {8, 16, 64, 1024}) {
    EXPECT_EQ(rowsToRows(64 * kKiB, row), adsmMethodCopy2d) << row;
  }
  EXPECT_EQ(rowsToRows(kMiB, 8), adsmMethodKernel);
  EXPECT_EQ(rowsToRows(kMiB, 32), adsmMethodKernel);
  EXPECT_EQ(rowsToRows(512 * kKiB, 1024), adsmMethodCopy2d);
  for (const int64_t row : {64, 256, 4096, 32768}) {
    EXPECT_EQ(rowsToRows(64 * kMiB, row), adsmMethodKernel) << row;
  }
}

TEST(LinkCosts, AContiguousSideChangesNothingForRows) {
  EXPECT_EQ(whole(line(128 * kKiB), rows(128 * kKiB, 1024)), adsmMethodCopy2d);
  EXPECT_EQ(whole(rows(128 * kKiB, 1024), line(128 * kKiB)), adsmMethodCopy2d);
  EXPECT_EQ(whole(rows(kMiB, 8), line(kMiB)), adsmMethodKernel);
}

TEST(LinkCosts, WhatTheEngineDoesNotTakeIsLoaded) {
  const Layout list = *Layout::make({}, {{0, 8}, {20, 40}, {100, 48}});
  EXPECT_EQ(whole(list, list), adsmMethodKernel);
  EXPECT_EQ(whole(rows(kMiB, 512), rows(kMiB, 1024)), adsmMethodKernel) << "rows of two lengths";
  const Layout both = rows(kMiB, 1024);
  EXPECT_EQ(methodOverLink(both, both, 0, kMiB / 2), adsmMethodKernel) << "a part";
  EXPECT_EQ(methodOverLink(rows(2 * kMiB, 1024), both, 0, kMiB), adsmMethodKernel);
}

}  // namespace
}  // namespace gmac::datatype
