// SPDX-License-Identifier: Apache-2.0
//
// mlock over shared memory: what only the accelerator has comes to the CPU, as an access brings it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "gmac/api/adsm.hpp"

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = std::size_t{3} << 20;  // not a whole number of huge pages

const bool kPrepared = [] {
  setenv("GMAC_ACCEL", "host", 0);
  setenv("GMAC_HOST_MEMORY", "64M", 0);
  setenv("GMAC_HOST_THREADS", "1", 0);
  setenv("GMAC_BLOCK_SIZE", "64K", 0);
  return true;
}();

void addOne(const adsmThreadBlock_t*, void** args) {
  auto* const bytes = *static_cast<unsigned char**>(args[0]);
  for (std::size_t i = 0; i < kBytes; ++i) ++bytes[i];
}

class LockedPages : public ::testing::Test {
 protected:
  void SetUp() override {
    object_ = static_cast<unsigned char*>(adsmAlloc(kBytes));
    ASSERT_NE(object_, nullptr) << adsmLastErrorString();
    std::memset(object_, 1, kBytes);
  }
  void TearDown() override { EXPECT_EQ(adsmFree(object_), adsmSuccess); }

  // The accelerator's copy alone is current then.
  void close() {
    static adsmKernel_t kernel = nullptr;
    if (kernel == nullptr) {
      static const std::size_t kSizes[] = {sizeof(void*)};
      adsmKernelDesc_t description = {};
      description.name = "addOne";
      description.paramCount = 1;
      description.paramSizes = kSizes;
      description.host = &addOne;
      ASSERT_EQ(adsmKernelCreate(&description, &kernel), adsmSuccess);
    }
    void* args[] = {&object_};
    ASSERT_EQ(adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, 0, args), adsmSuccess);
    ASSERT_EQ(adsmSync(), adsmSuccess);
  }

  unsigned char* object_ = nullptr;
};

TEST_F(LockedPages, OfAnObjectAreLockedWhateverSideItsBytesAreOn) {
  std::byte* const plain = new std::byte[kBytes];
  if (mlock(plain, kBytes) != 0) GTEST_SKIP() << "no memory may be locked: " << strerror(errno);
  ASSERT_EQ(munlock(plain, kBytes), 0);
  delete[] plain;
  close();
  ASSERT_EQ(mlock(object_, kBytes), 0) << strerror(errno);
  EXPECT_EQ(object_[70000], 2);
  object_[5] = 10;
  close();
  EXPECT_EQ(object_[5], 11) << "a write of the CPU's is lost";
  EXPECT_EQ(object_[kBytes - 1], 3);
  // What is locked goes to and fro as ever.
  close();
  ASSERT_EQ(mlock2(object_ + kPage + 100, kPage, 0), 0) << strerror(errno);
  EXPECT_EQ(object_[kPage + 100], 4);
  ASSERT_EQ(mlock2(object_, kBytes, MLOCK_ONFAULT), 0) << strerror(errno);
  EXPECT_EQ(munlock(object_, kBytes), 0) << strerror(errno);
}

TEST_F(LockedPages, OfOtherMemoryAreTheSystems) {
  errno = 0;
  EXPECT_EQ(mlock(object_, SIZE_MAX - 8192), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mlock(object_, 0), 0);
  void* const page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = 0;
  EXPECT_EQ(mlock(page, kPage), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(munmap(page, kPage), 0);
}

}  // namespace
