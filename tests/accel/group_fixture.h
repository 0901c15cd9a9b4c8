// SPDX-License-Identifier: Apache-2.0
//
// A group of accelerators under test, and what every test does with its memory.
#ifndef GMAC_TESTS_ACCEL_GROUP_FIXTURE_H_
#define GMAC_TESTS_ACCEL_GROUP_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"

namespace gmac::accel {

// The derived class's SetUp() hands over the group.
class GroupFixture : public ::testing::Test {
 protected:
  static constexpr std::size_t kMiB = std::size_t{1} << 20;
  static constexpr std::size_t kPinned = 16 * kMiB;

  void start(Result<std::unique_ptr<Accelerator>> made) {
    ASSERT_TRUE(made.ok()) << lastErrorText();
    group_ = std::move(*made);
    auto pinned = group_->allocatePinned(kPinned);
    ASSERT_TRUE(pinned.ok()) << lastErrorText();
    pinned_ = static_cast<std::uint32_t*>(*pinned);
  }
  void TearDown() override {
    if (group_ != nullptr && pinned_ != nullptr) group_->freePinned(pinned_, kPinned);
  }

  Accelerator& group() { return *group_; }
  Devices& devices() { return *group_->devices(); }
  DeviceAddress allocate(std::size_t bytes, Placement placement = Placement::kSameAddress) {
    const auto address = group().allocate(bytes, 4096, placement);
    EXPECT_TRUE(address.ok()) << lastErrorText();
    return address.ok() ? *address : DeviceAddress{};
  }
  void await(const Result<Ticket>& ticket) {
    ASSERT_TRUE(ticket.ok()) << lastErrorText();
    ASSERT_TRUE(group().wait(*ticket).ok()) << lastErrorText();
  }
  // With all that it holds.
  Status move(DeviceAddress address, std::size_t bytes, std::size_t device) {
    const Part all{0, bytes};
    return devices().move(address, bytes, device, {&all, 1});
  }
  // Its words, by way of memory that is pinned on device 0 alone: it has to be there.
  void fillWith(DeviceAddress address, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes / 4; ++i) pinned_[i] = static_cast<std::uint32_t>(i * 7);
    await(group().copyIn(address, pinned_, bytes, {}));
  }
  void expectWords(DeviceAddress address, std::size_t bytes, std::uint32_t added) {
    await(group().copyOut(pinned_, address, bytes, {}));
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      ASSERT_EQ(pinned_[i], i * 7 + added) << "word " << i;
    }
  }
  std::size_t freeOn(std::size_t device) {
    const auto described = devices().describe(device);
    EXPECT_TRUE(described.ok()) << lastErrorText();
    return described.ok() ? described->memory.free : 0;
  }

  std::unique_ptr<Accelerator> group_;
  std::uint32_t* pinned_ = nullptr;
};

}  // namespace gmac::accel

#endif  // GMAC_TESTS_ACCEL_GROUP_FIXTURE_H_
