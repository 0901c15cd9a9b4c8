// SPDX-License-Identifier: Apache-2.0
//
// Pages with one copy, on devices that do not reach each other's memory: an accelerator over the
// fake driver, whose copies meet nothing where the device that copies has no access. Needs no GPU.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "gmac/accel/cuda/cuda_accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "tests/cuda/fake_library.h"
#include "tests/cuda/fake_program.h"

namespace gmac::accel {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr int kOther = 2;  // a device apart from the accelerator's own, 0

class ApartPages : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    fake_cuda::library();
    fake_cuda::setDevices(4, false);
    CUcontext context = nullptr;
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, kOther), CUDA_SUCCESS);
    auto made = makeCudaAccelerator();
    ASSERT_TRUE(made.ok()) << lastErrorText();
    accelerator_ = std::move(*made);
    ASSERT_TRUE(memory().separateDevices());
    const auto address = accelerator_->allocate(
        bytes(), kPage, hasMargin() ? Placement::kSameAddress : Placement::kAnywhere);
    ASSERT_TRUE(address.ok()) << lastErrorText();
    address_ = *address;
    const int file = memfd_create("pages", 0);
    ASSERT_EQ(ftruncate(file, static_cast<off_t>(bytes())), 0);
    void* const at = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address_));
    cpu_ = static_cast<std::byte*>(
        mmap(at, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0));
    ASSERT_EQ(cpu_, at);
    close(file);
    std::memset(cpu_, 7, bytes());
  }
  void TearDown() override {
    if (accelerator_ != nullptr) {
      EXPECT_TRUE(accelerator_->free(address_, bytes()).ok()) << lastErrorText();
    }
    fake_cuda::reset();
  }
  std::size_t bytes() const { return GetParam() * kPage; }
  // Whether there is memory around it.
  bool hasMargin() const { return GetParam() != 2; }
  MovableMemory& memory() { return *accelerator_->movableMemory(); }
  DeviceAddress page(std::size_t number) const {
    return DeviceAddress{static_cast<std::uintptr_t>(address_) + number * kPage};
  }
  int deviceOf(std::size_t number) const {
    return fake_cuda::deviceOf(static_cast<CUdeviceptr>(static_cast<std::uintptr_t>(page(number))));
  }
  void expectMoved(std::size_t number, Home home, int device) {
    ASSERT_TRUE(memory().movePage(page(number), kPage, home, device).ok()) << lastErrorText();
  }
  // The device's copy, which has what the CPU has written before the page came back.
  void expectSeven(std::size_t number) {
    std::memset(cpu_ + number * kPage, 9, kPage);
    std::byte read{};
    const auto ticket = accelerator_->copyOut(&read, page(number), 1, Ticket{});
    ASSERT_TRUE(ticket.ok()) << lastErrorText();
    ASSERT_TRUE(accelerator_->wait(*ticket).ok()) << lastErrorText();
    EXPECT_EQ(read, std::byte{7}) << number;
  }

  std::unique_ptr<Accelerator> accelerator_;
  DeviceAddress address_{};
  std::byte* cpu_ = nullptr;
};

// Memory is gathered on another device, and an allocation lies on the accelerator's own, alone.
TEST_P(ApartPages, ComeBackToTheirAllocationWhereverMemoryIsGathered) {
  ASSERT_TRUE(memory().gatherIn(Home::kApart, kOther).ok()) << lastErrorText();
  ASSERT_TRUE(memory().move(address_, bytes(), Home::kApart).ok()) << lastErrorText();
  ASSERT_TRUE(memory().moveAlone(address_, bytes(), Home::kDevice, 0, true).ok())
      << lastErrorText();
  ASSERT_NO_FATAL_FAILURE(expectMoved(1, Home::kMirror, 0));
  ASSERT_NO_FATAL_FAILURE(expectMoved(1, Home::kDevice, 0));
  for (std::size_t i = 0; i < GetParam(); ++i) EXPECT_EQ(deviceOf(i), 0) << i;
  ASSERT_NO_FATAL_FAILURE(expectSeven(1));
}

// As many pages as can are away while the rest goes to another device: the last one stays, unless
// there is memory around the allocation.
TEST_P(ApartPages, ComeBackToWhereTheRestHasGone) {
  std::size_t away = 0;
  while (away < GetParam() && memory().movePage(page(away), kPage, Home::kMirror, 0).ok()) ++away;
  ASSERT_EQ(away, hasMargin() ? GetParam() : GetParam() - 1);
  ASSERT_TRUE(memory().moveAlone(address_, bytes(), Home::kApart, kOther, true).ok())
      << lastErrorText();
  for (std::size_t i = 0; i < away; ++i) {
    ASSERT_NO_FATAL_FAILURE(expectMoved(i, Home::kApart, kOther));
    EXPECT_EQ(deviceOf(i), kOther) << i;
    ASSERT_NO_FATAL_FAILURE(expectSeven(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, ApartPages, ::testing::Values(2, 3));

}  // namespace
}  // namespace gmac::accel
