// SPDX-License-Identifier: Apache-2.0
//
// The number of mappings that shared objects take from those that the kernel grants a process, on
// the host accelerator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "gmac/api/adsm.h"
#include "tests/support/child.h"
#include "tests/support/own_mappings.h"

namespace gmac::testing {
namespace {

using ::testing::HasSubstr;

TEST(MappingsOfObjects, AreOneEach) {
  const ChildEnd end = runChild("MappingsOfObjects.DISABLED_AreOneEach",
                                {{"GMAC_ACCEL", "host"}, {"GMAC_HOST_THREADS", "1"}});
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  EXPECT_THAT(end.output, HasSubstr("[  PASSED  ] 1 test"));
}

TEST(MappingsOfObjects, DISABLED_AreOneEach) {
  constexpr std::size_t kObjects = 400;
  constexpr std::size_t kBytes = std::size_t{64} << 10;
  ASSERT_NE(adsmAlloc(kBytes), nullptr) << adsmLastErrorString();  // the runtime starts
  const std::size_t before = mappingCount();
  for (std::size_t i = 0; i < kObjects; ++i) {
    auto* const object = static_cast<char*>(adsmAlloc(kBytes));
    ASSERT_NE(object, nullptr) << adsmLastErrorString();
    if (i % 2 == 0) {
      object[0] = 1;  // open for writing, beside one that is not
    }
  }
  EXPECT_LE(mappingCount(), before + kObjects + 20);
}

}  // namespace
}  // namespace gmac::testing
