// SPDX-License-Identifier: Apache-2.0
//
// Bytes that other processes' accelerators read where they lie: which are lent, after what, and who
// asks for them back.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gmac/coherence/device_memory_port.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using coherence::DeviceLoan;
using coherence::DeviceRange;
using coherence::Lent;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// No region of small objects.
constexpr std::size_t kObject = kMiB;
constexpr accel::NativeStream kStream{3};

class DeviceLoans : public ::testing::TestWithParam<std::string> {
 protected:
  DeviceLoans() {
    coherence::onReclaim([](Lent lent) {
      asked.push_back(lent);
      if (answer) answer();
    });
  }
  ~DeviceLoans() override {
    coherence::onReclaim(nullptr);
    asked.clear();
    answer = nullptr;
  }
  static MachineSetup setup() {
    MachineSetup setup;
    setup.protocol = GetParam();
    setup.blockBytes = 4 * kPage;
    setup.fake.movableMemory = true;
    setup.spill.leastBytes = kPage;
    return setup;
  }
  CoherentMemory& objects() { return machine_.objects(); }
  coherence::MemoryPort& memory() { return machine_.memory(); }
  coherence::WorkPort& work() { return machine_.work(); }
  coherence::DeviceMemoryPort& deviceMemory() { return machine_.deviceMemory(); }
  FakeAccelerator& fake() { return machine_.fake(); }
  // Writes 7 to every byte, on the accelerator.
  adsmKernel_t sevens() {
    return fake().kernel("sevens", 1, [this](const LaunchShape&, void** args) {
      std::memset(fake().argument<std::byte>(args, 0), 7, kObject);
    });
  }
  std::byte* written() {
    std::byte* const object = machine_.allocate(kObject);
    std::memset(object, 1, kObject);
    machine_.callUsing(sevens(), {object}, {{object, adsmReadWrite}});
    return object;
  }
  bool lend(const std::byte* address, std::size_t bytes) {
    const Result<bool> lent = memory().lendOnDevice(address, bytes, &loan_);
    EXPECT_TRUE(lent.ok()) << lastErrorText();
    return lent.ok() && *lent;
  }
  // Memory that is asked for is given back at once.
  void returns(const std::byte* address, std::size_t bytes) {
    answer = [this, address, bytes] {
      EXPECT_FALSE(CoherentMemory::lockIsHeldHere());
      memory().giveBackOnDevice(address, bytes, loan_);
    };
  }

  Machine machine_{setup()};
  DeviceLoan loan_{};
  static inline std::vector<Lent> asked;
  static inline std::function<void()> answer;
};

INSTANTIATE_TEST_SUITE_P(, DeviceLoans, ::testing::Values("batch", "lazy", "rolling"),
                         [](const auto& info) { return info.param; });

// (The fake's kernels run when something waits for them.)
TEST_P(DeviceLoans, AreWhatTheKernelsBeforeHaveWritten) {
  const std::byte* const object = written();
  const std::size_t at = 3 * kPage + 100;
  ASSERT_TRUE(lend(object + at, 5 * kPage));
  EXPECT_EQ(*fake().at(object + at), std::byte{7});
  EXPECT_EQ(loan_.address - loan_.start, at);
  EXPECT_EQ(loan_.address, reinterpret_cast<std::uintptr_t>(object + at));
  EXPECT_GE(loan_.bytes, kObject);
  EXPECT_NE(loan_.number, 0u);
  machine_.verify();
  memory().giveBackOnDevice(object + at, 5 * kPage, loan_);
  EXPECT_THAT(asked, IsEmpty());
}

TEST_P(DeviceLoans, ChangeNoBlock) {
  const std::byte* const object = written();
  machine_.expectNothingHappens([&] {
    ASSERT_TRUE(lend(object, kObject));
    memory().giveBackOnDevice(object, kObject, loan_);
  });
  machine_.verify();
}

TEST_P(DeviceLoans, AreOfOneObjectThatIsCurrentThere) {
  std::byte* const object = written();
  const std::byte plain{};
  EXPECT_FALSE(lend(&plain, 1));
  EXPECT_FALSE(lend(object, 0));
  EXPECT_FALSE(lend(object + kPage, kObject));
  ASSERT_TRUE(objects().sync().ok());
  object[5 * kPage] = std::byte{9};  // (batch has all of it on the CPU since the wait)
  EXPECT_FALSE(lend(object, kObject));
  EXPECT_FALSE(lend(object + 5 * kPage, 1));
  machine_.callUsing(sevens(), {object}, {{object, adsmReadWrite}});
  ASSERT_TRUE(lend(object, kObject));
  memory().giveBackOnDevice(object, kObject, loan_);
}

TEST_P(DeviceLoans, AreGivenBackToCallsThatWriteThem) {
  std::byte* const object = written();
  std::byte* const other = written();
  ASSERT_TRUE(lend(object, 6 * kPage));
  returns(object, 6 * kPage);
  machine_.callUsing(sevens(), {other}, {{other, adsmReadWrite}});
  const adsmKernel_t nothing = fake().kernel("nothing", 1, [](const LaunchShape&, void**) {});
  machine_.callUsing(nothing, {object}, {{object, adsmRead}});
  machine_.callRanges(nothing, {object}, {{object + 64 * kPage, kPage, adsmWrite}});
  EXPECT_THAT(asked, IsEmpty());
  machine_.callUsing(sevens(), {object}, {{object, adsmReadWrite}});
  EXPECT_THAT(asked, ElementsAre(Lent::kOnDevice));
  ASSERT_TRUE(lend(object, 6 * kPage));
  machine_.call(nothing, {object});  // which may write every object
  EXPECT_THAT(asked, ElementsAre(Lent::kOnDevice, Lent::kOnDevice));
  machine_.sync();
}

TEST_P(DeviceLoans, AreGivenBackToWorkOnStreamsThatWritesThem) {
  std::byte* const object = written();
  ASSERT_TRUE(lend(object, 6 * kPage));
  returns(object, 6 * kPage);
  const auto submit = [&](DeviceRange range) {
    ASSERT_TRUE(work().beginDeviceWork(kStream, {&range, 1}).ok()) << lastErrorText();
    ASSERT_TRUE(work().endDeviceWork(kStream, true).ok()) << lastErrorText();
  };
  submit({object, kObject, false});
  submit({object + 64 * kPage, kPage, true});
  submit({nullptr, 0, false});
  EXPECT_THAT(asked, IsEmpty());
  submit({object + 5 * kPage, kPage, true});
  EXPECT_THAT(asked, ElementsAre(Lent::kOnDevice));
  ASSERT_TRUE(lend(object, 6 * kPage));
  submit({nullptr, 0, true});
  EXPECT_THAT(asked, ElementsAre(Lent::kOnDevice, Lent::kOnDevice));
}

// Packs say which bytes they write, and the program does not write what it sends.
TEST_P(DeviceLoans, AreNotAskedForByPacks) {
  std::byte* const object = written();
  ASSERT_TRUE(lend(object, kObject));
  const DeviceRange range{object, kObject, true};
  ASSERT_TRUE(work().beginOwnWork({&range, 1}).ok());
  ASSERT_TRUE(work().endOwnWork({&range, 1}, {}).ok());
  EXPECT_THAT(asked, IsEmpty());
  memory().giveBackOnDevice(object, kObject, loan_);
}

TEST_P(DeviceLoans, AreGivenBackToWhoFreesTheObject) {
  std::byte* const object = written();
  ASSERT_TRUE(lend(object + kPage, kPage));
  returns(object + kPage, kPage);
  ASSERT_TRUE(objects().free(object).ok());
  EXPECT_THAT(asked, ElementsAre(Lent::kOnDevice));
}

TEST_P(DeviceLoans, AreGivenBackBeforeTheirMemoryMoves) {
  std::byte* const object = written();
  ASSERT_TRUE(lend(object, kObject));
  returns(object, kObject);
  std::size_t askedBefore = 0;
  fake().onMove([&] { askedBefore = asked.size(); });
  ASSERT_TRUE(deviceMemory().makeRoom());
  EXPECT_EQ(askedBefore, 1u);
  fake().onMove(nullptr);
  EXPECT_FALSE(lend(object, kObject)) << "it lies in the CPU's memory";
}

// Two loans of the same bytes: each is given back by itself.
TEST_P(DeviceLoans, MayBeOfTheSameBytes) {
  std::byte* const object = written();
  ASSERT_TRUE(lend(object, kPage));
  ASSERT_TRUE(lend(object, kPage));
  memory().giveBackOnDevice(object, kPage, loan_);
  returns(object, kPage);
  machine_.callUsing(sevens(), {object}, {{object, adsmWrite}});
  EXPECT_THAT(asked, ElementsAre(Lent::kOnDevice));
  machine_.sync();
}

TEST_P(DeviceLoans, AreRefusedWithTheErrorOfAKernelThatHasFailed) {
  std::byte* const object = machine_.allocate(kObject);
  fake().crashKernel(1);
  machine_.callUsing(sevens(), {object}, {{object, adsmReadWrite}});
  const Result<bool> lent = memory().lendOnDevice(object, kObject, &loan_);
  ASSERT_FALSE(lent.ok());
  EXPECT_EQ(lent.status().code(), adsmErrorKernel);
  // Nothing is lent: a free asks for nothing.
  ASSERT_TRUE(objects().free(object).ok());
  EXPECT_THAT(asked, IsEmpty());
}

}  // namespace
}  // namespace gmac::testing
