// SPDX-License-Identifier: Apache-2.0
#include "mpi/import_attempts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gmac::mpi {
namespace {

constexpr exchange::ExportId kOne{1};
constexpr exchange::ExportId kOther{2};

TEST(ImportAttempts, WhatHasFailedIsTriedAgainAfterTwiceAsManyMessagesEachTime) {
  ImportAttempts attempts;
  std::vector<std::uint64_t> packed;
  for (int attempt = 0; attempt < 14; ++attempt) {
    std::uint64_t messages = 0;
    while (messages < 5000 && !attempts.mayTry(3, kOne)) ++messages;
    packed.push_back(messages);
    attempts.failed(3, kOne);
  }
  EXPECT_EQ(packed, (std::vector<std::uint64_t>{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024,
                                                1024, 1024}));
}

TEST(ImportAttempts, ThoseOfOtherRanksAndExportsAndLaterOnesBeginAnew) {
  ImportAttempts attempts;
  attempts.failed(3, kOne);
  EXPECT_FALSE(attempts.mayTry(3, kOne));
  EXPECT_TRUE(attempts.mayTry(3, kOther));
  EXPECT_TRUE(attempts.mayTry(4, kOne));
  attempts.failed(3, kOne);
  attempts.succeeded(3, kOne);
  EXPECT_TRUE(attempts.mayTry(3, kOne));
  attempts.failed(3, kOne);
  EXPECT_FALSE(attempts.mayTry(3, kOne));
  EXPECT_TRUE(attempts.mayTry(3, kOne));
}

TEST(ImportAttempts, TooManyAreForgotten) {
  ImportAttempts attempts;
  for (std::size_t i = 0; i < ImportAttempts::kMostFailed; ++i) {
    attempts.failed(0, exchange::ExportId{i + 1});
  }
  EXPECT_FALSE(attempts.mayTry(0, kOne));
  attempts.failed(0, exchange::ExportId{0});
  EXPECT_TRUE(attempts.mayTry(0, kOther));
}

}  // namespace
}  // namespace gmac::mpi
