// SPDX-License-Identifier: Apache-2.0
//
// The programs on several devices, on `host`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/api/devices_programs.h"

namespace gmac::testing {

const DevicesKit& devicesKit() {
  static const DevicesKit kit{.accelerator = "host:3", .firstKind = "host", .hostMemory = "192M"};
  return kit;
}

namespace {

// Its kernels are functions of the CPU.
const bool kOnHost = setenv("GMAC_ACCEL", "host", 0) == 0;

// A single device has the same functions.
TEST_F(Devices, OneDeviceIsNumber0) {
  int count = 0;
  ASSERT_EQ(adsmDeviceCount(&count), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(count, 1);
  std::uint32_t* data = allocate();
  std::fill_n(data, kWords, 1u);
  EXPECT_EQ(adsmMigrate(data, kBytes, 0), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(adsmMigrate(data, kBytes, 1), adsmErrorInvalidValue);
  EXPECT_EQ(call(1, data), adsmErrorInvalidValue);
  ASSERT_EQ(call(0, data), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(data[kWords - 1], 2u);
  EXPECT_GE(freeOn(0), std::size_t{1});
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

}  // namespace
}  // namespace gmac::testing
