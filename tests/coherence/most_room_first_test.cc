// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/most_room_first.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gmac {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MostRoomFirst, TheDeviceWithTheMostComesFirstAndEqualOnesByNumber) {
  EXPECT_THAT(mostRoomFirst<int>({{5, 0}, {9, 3}, {7, 1}, {9, 2}}), ElementsAre(2, 3, 1, 0));
}

TEST(MostRoomFirst, ThereMayBeNone) { EXPECT_THAT(mostRoomFirst<int>({}), IsEmpty()); }

}  // namespace
}  // namespace gmac
