// SPDX-License-Identifier: Apache-2.0
//
// The costs and the issue rate that follow from a device's name and attributes.
#include "gmac/datatype/engine/device_constants.h"

#include <gtest/gtest.h>

namespace gmac::datatype {
namespace {

// As the driver and Linux describe an H200.
constexpr accel::DeviceTraits kH200{.multiprocessors = 132,
                                    .cyclesPerMicrosecond = 1980,
                                    .memoryRate = 2 * 3201.0 * 6016 / 8,
                                    .linkRate = 32e3 / 8 * 128 / 130 * 16};

TEST(IssueRateOf, IsAConstantForADeviceThatWasMeasured) {
  const IssueRate rate = issueRateOf("NVIDIA H200", kH200);
  EXPECT_EQ(rate.multiprocessors, 132U);
  EXPECT_EQ(rate.cyclesPerRow, 4.65);
  EXPECT_EQ(rate.cyclesPerByte, 0.0614);
  accel::DeviceTraits unknown = kH200;
  unknown.memoryRate = 0;
  EXPECT_EQ(issueRateOf("NVIDIA H200", unknown).interval(32, 8), rate.interval(32, 8));
}

TEST(IssueRateOf, IsThatOfTheMeasuredDeviceForAnotherWithItsAttributes) {
  const IssueRate measured = issueRateOf("NVIDIA H200", kH200);
  const IssueRate other = issueRateOf("another", kH200);
  EXPECT_EQ(other.multiprocessors, 132U);
  EXPECT_NEAR(other.cyclesPerRow, measured.cyclesPerRow, 0.02 * measured.cyclesPerRow);
  EXPECT_NEAR(other.cyclesPerByte, measured.cyclesPerByte, 0.02 * measured.cyclesPerByte);
}

TEST(IssueRateOf, FollowsMemoryMultiprocessorsAndClock) {
  const IssueRate usual = issueRateOf("another", kH200);
  accel::DeviceTraits traits = kH200;
  traits.memoryRate *= 2;
  EXPECT_DOUBLE_EQ(issueRateOf("another", traits).cyclesPerRow, usual.cyclesPerRow / 2);
  traits = kH200;
  traits.multiprocessors *= 2;
  EXPECT_DOUBLE_EQ(issueRateOf("another", traits).cyclesPerByte, usual.cyclesPerByte * 2);
  traits = kH200;
  traits.cyclesPerMicrosecond *= 2;
  EXPECT_DOUBLE_EQ(issueRateOf("another", traits).cyclesPerRow, usual.cyclesPerRow * 2);
}

TEST(IssueRateOf, IsNoneWhereAnAttributeIsMissing) {
  for (auto member :
       {&accel::DeviceTraits::cyclesPerMicrosecond, &accel::DeviceTraits::memoryRate}) {
    accel::DeviceTraits traits = kH200;
    traits.*member = 0;
    EXPECT_EQ(issueRateOf("another", traits).interval(32, 8), 0U);
  }
  accel::DeviceTraits traits = kH200;
  traits.multiprocessors = 0;
  EXPECT_EQ(issueRateOf("another", traits).interval(32, 8), 0U);
}

TEST(CostsOf, HasRatesInProportionToTheLink) {
  const Costs measured;
  const Costs same = costsOf(kH200);
  EXPECT_NEAR(same.copyRate, measured.copyRate, 0.001 * measured.copyRate);
  accel::DeviceTraits traits = kH200;
  traits.linkRate /= 2;
  const Costs half = costsOf(traits);
  EXPECT_DOUBLE_EQ(half.zeroCopyRate, same.zeroCopyRate / 2);
  EXPECT_DOUBLE_EQ(half.zeroCopyReadRate, same.zeroCopyReadRate / 2);
  EXPECT_DOUBLE_EQ(half.copyRate, same.copyRate / 2);
  EXPECT_DOUBLE_EQ(half.copy2dRate, same.copy2dRate / 2);
  EXPECT_EQ(half.launch, measured.launch);
  EXPECT_EQ(half.copy2d, measured.copy2d);
  EXPECT_EQ(half.copy2dRow, measured.copy2dRow);
}

TEST(CostsOf, AreTheMeasuredOnesWhereTheLinkIsNotKnown) {
  EXPECT_EQ(costsOf({}).copyRate, Costs().copyRate);
  EXPECT_EQ(costsOf({}).zeroCopyRate, Costs().zeroCopyRate);
}

// As on an H200 (docs/datatypes_results.md): a strided copy for few or long rows, else a kernel.
TEST(Costs, ChooseTheMethodByRowsAndBytes) {
  const auto chosen = [](std::int64_t rowBytes, std::int64_t bytes) {
    auto layout = Layout::make({{bytes / rowBytes, 512}}, {{0, rowBytes}});
    EXPECT_TRUE(layout.ok());
    return Costs().choose({.layout = &*layout,
                           .bytes = bytes,
                           .whole = true,
                           .pinned = true,
                           .direction = Direction::kPack});
  };
  EXPECT_EQ(chosen(16, 8 << 10), adsmMethodCopy2d);
  EXPECT_EQ(chosen(64, 64 << 10), adsmMethodCopy2d);
  EXPECT_EQ(chosen(256, 512 << 10), adsmMethodCopy2d);
  EXPECT_EQ(chosen(8, 64 << 10), adsmMethodKernel);
  EXPECT_EQ(chosen(16, 8 << 20), adsmMethodKernel);
}

}  // namespace
}  // namespace gmac::datatype
