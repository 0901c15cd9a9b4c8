// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pattern.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gmac::testing {

void fillWithPattern(std::byte* object, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    object[i] = pattern(i);
  }
}

void expectPattern(Machine& machine, const std::byte* object, std::size_t bytes,
                   const std::vector<std::pair<std::size_t, std::byte>>& changed) {
  std::vector<std::byte> expected(bytes);
  fillWithPattern(expected.data(), bytes);
  for (const auto& [at, value] : changed) {
    expected[at] = value;
  }
  FakeAccelerator& fake = machine.fake();
  bool checked = false;
  const adsmKernel_t check = fake.kernel("check", 1, [&](const accel::LaunchShape&, void** args) {
    checked = true;
    EXPECT_EQ(std::memcmp(fake.argument<std::byte>(args, 0), expected.data(), bytes), 0);
  });
  machine.call(check, {object});
  machine.sync();
  EXPECT_TRUE(checked);
  EXPECT_EQ(std::memcmp(object, expected.data(), bytes), 0);
  machine.verify();
}

}  // namespace gmac::testing
