// SPDX-License-Identifier: Apache-2.0
//
// The number of mappings that the runtime leaves to the program, and how it counts the program's.
#include "gmac/os/mapping_budget.h"

#include <gtest/gtest.h>

#include "tests/support/own_mappings.h"

namespace gmac::os {
namespace {

using gmac::testing::mappingCount;
using gmac::testing::OwnMappings;

TEST(MappingBudget, LeavesATenthAndAtLeastFourThousand) {
  EXPECT_EQ(MappingBudget(65530).reserve(), 6553u);
  EXPECT_EQ(MappingBudget(20000).reserve(), 4000u);
  EXPECT_EQ(MappingBudget(6000).reserve(), 3000u);  // of a small limit, the half
}

TEST(MappingBudget, CountsTheMappingsOfTheProcess) {
  const std::size_t before = mappingCount();
  const OwnMappings own(200);
  EXPECT_GE(mappingCount(), before + 200);
  EXPECT_LE(mappingCount(), before + 202);  // the pages at both ends join their neighbours, or not
}

TEST(MappingBudget, AllowsWhatTheProgramLeaves) {
  const OwnMappings own(4000);
  const std::size_t left = 6000 - mappingCount();
  MappingBudget budget(10000);
  EXPECT_TRUE(budget.allows(4000, 1));
  EXPECT_TRUE(budget.allows(4000, left - 20));
  EXPECT_FALSE(budget.allows(4000, left + 20));
  EXPECT_FALSE(budget.allows(4000 + left / 4, left));
}

TEST(MappingBudget, NoticesWhatTheProgramTakesMeanwhile) {
  MappingBudget budget(10000);
  ASSERT_TRUE(budget.allows(2000, 1));
  const OwnMappings own(6000);
  // Half of what was free, and the rest is the program's.
  EXPECT_FALSE(budget.allows(2000 + 3000, 1));
}

TEST(MappingBudget, NoticesWhatTheProgramTakesWhileTheRuntimesComeAndGo) {
  MappingBudget budget(10000);
  ASSERT_TRUE(budget.allows(2000, 1));
  const OwnMappings own(6000);
  for (int i = 0; i < 20'000; ++i) {
    budget.taken();
  }
  EXPECT_FALSE(budget.allows(2000, 1));
}

TEST(MappingBudget, NoticesWhatTheProgramGivesBack) {
  MappingBudget budget(10000);
  {
    const OwnMappings own(6000);
    EXPECT_FALSE(budget.allows(2000, 1));
    EXPECT_TRUE(budget.allows(900, 1)) << "a few are always the runtime's";
  }
  EXPECT_TRUE(budget.allows(1500, 1));
}

}  // namespace
}  // namespace gmac::os
