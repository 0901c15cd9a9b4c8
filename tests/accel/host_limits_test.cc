// SPDX-License-Identifier: Apache-2.0
//
// The device process when the system has no more memory or mappings for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmac/accel/host/host_accelerator.h"
#include "gmac/base/descriptor.h"
#include "tests/accel/device_process.h"

namespace gmac::accel::conformance {
namespace {

using ::testing::HasSubstr;

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

class HostLimits : public testing::Test {
 protected:
  void SetUp() override {
    HostOptions options;
    options.memoryBytes = std::size_t{1} << 30;
    options.threads = 2;
    auto made = makeHostAccelerator(options);
    ASSERT_TRUE(made.ok()) << lastErrorText();
    accelerator_ = std::move(*made);
    device_ = deviceProcessOf(getpid());
    ASSERT_NE(device_, 0);
    file_ = Descriptor(memfd_create("pinned", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(file_.get(), static_cast<off_t>(kFilePages * kPage)), 0);
    view_ = static_cast<std::byte*>(
        mmap(nullptr, kFilePages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0));
    ASSERT_NE(view_, MAP_FAILED);
  }
  void TearDown() override {
    accelerator_.reset();
    munmap(view_, kFilePages * kPage);
  }

  HostMemory page(std::size_t index) const {
    return {view_ + index * kPage, kPage, file_.get(), static_cast<std::int64_t>(index * kPage)};
  }
  std::size_t deviceMappings() const {
    std::ifstream maps("/proc/" + std::to_string(device_) + "/maps");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
  }

  static constexpr std::size_t kFilePages = 32768;
  std::unique_ptr<Accelerator> accelerator_;
  pid_t device_ = 0;
  Descriptor file_;
  std::byte* view_ = nullptr;
};

TEST_F(HostLimits, AnyNumberOfPinsOfOneFileTakesAFewMappings) {
  const std::size_t before = deviceMappings();
  // In an order in which the kernel joins no mappings by itself.
  for (std::size_t i = 0; i < kFilePages; i += 16) {
    ASSERT_TRUE(accelerator_->pin(page(i)).ok()) << lastErrorText();
  }
  EXPECT_LE(deviceMappings(), before + 8);
  for (std::size_t i = 0; i < kFilePages; i += 16) {
    ASSERT_TRUE(accelerator_->unpin(page(i)).ok()) << lastErrorText();
  }
  EXPECT_LE(deviceMappings(), before + 8);
}

TEST_F(HostLimits, EachPinNamesItsOwnBytesOfTheFile) {
  const auto memory = accelerator_->allocate(kPage, kPage, Placement::kAnywhere);
  ASSERT_TRUE(memory.ok()) << lastErrorText();
  for (const std::size_t i : {std::size_t{7}, std::size_t{3}, kFilePages - 1, std::size_t{0}}) {
    ASSERT_TRUE(accelerator_->pin(page(i)).ok()) << lastErrorText();
    view_[i * kPage] = static_cast<std::byte>(i * 5 + 1);
  }
  for (const std::size_t i : {std::size_t{3}, std::size_t{0}, std::size_t{7}, kFilePages - 1}) {
    const auto in = accelerator_->copyIn(*memory, view_ + i * kPage, 1, {});
    ASSERT_TRUE(in.ok()) << lastErrorText();
    const auto out = accelerator_->copyOut(view_ + i * kPage + 1, *memory, 1, *in);
    ASSERT_TRUE(out.ok()) << lastErrorText();
    ASSERT_TRUE(accelerator_->wait(*out).ok()) << lastErrorText();
    EXPECT_EQ(view_[i * kPage + 1], static_cast<std::byte>(i * 5 + 1)) << i;
  }
}

#if !defined(GMAC_SANITIZED)
TEST_F(HostLimits, ADeviceProcessWithoutMemoryAnswersWithErrorsAndLives) {
  adsmKernelDesc_t desc{};
  desc.name = "nothing";
  desc.host = [](const adsmThreadBlock_t*, void**) {};
  const auto kernel = accelerator_->load(desc);
  ASSERT_TRUE(kernel.ok()) << lastErrorText();
  rlimit before;
  const rlimit none{1, RLIM_INFINITY};
  ASSERT_EQ(prlimit(device_, RLIMIT_DATA, &none, &before), 0);

  // The file can still be mapped; what is missing is memory for the tables.
  std::size_t pins = 0;
  Status last;
  while (last.ok() && pins < kFilePages) {
    last = accelerator_->pin(page(pins));
    pins += last.ok() ? 1 : 0;
  }
  EXPECT_EQ(last.code(), adsmErrorHostMemory);
  EXPECT_EQ(accelerator_->allocate(std::size_t{1} << 20, kPage, Placement::kAnywhere).ok(), false);
  EXPECT_THAT(lastErrorText(), HasSubstr("the device process"));
  const auto launched = accelerator_->launch(**kernel, {{1, 1, 1}, {1, 1, 1}, 8 << 20}, nullptr);
  ASSERT_TRUE(launched.ok()) << lastErrorText();
  EXPECT_EQ(accelerator_->wait(*launched).code(), adsmErrorKernel);
  EXPECT_THAT(lastErrorText(), HasSubstr("no memory"));

  ASSERT_EQ(prlimit(device_, RLIMIT_DATA, &before, nullptr), 0);
  EXPECT_TRUE(accelerator_->usable().ok()) << lastErrorText();
  EXPECT_TRUE(accelerator_->pin(page(pins)).ok()) << lastErrorText();
  const auto again = accelerator_->launch(**kernel, {{1, 1, 1}, {1, 1, 1}, 8 << 20}, nullptr);
  ASSERT_TRUE(again.ok()) << lastErrorText();
  EXPECT_TRUE(accelerator_->wait(*again).ok()) << lastErrorText();
}
#endif

}  // namespace
}  // namespace gmac::accel::conformance
