// SPDX-License-Identifier: Apache-2.0
//
// What a program asks of the pages of shared objects. mprotect: a request for the protection that
// an object has succeeds and changes nothing; any other is refused. mlock: what only the
// accelerator has comes to the CPU, as an access brings it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gmac/api/adsm.hpp"

namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = std::size_t{3} << 20;  // not a whole number of huge pages
constexpr int kBoth = PROT_READ | PROT_WRITE;

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

class PagesOfObjects : public ::testing::Test {
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

using Protections = PagesOfObjects;
using Locks = PagesOfObjects;

TEST_F(Protections, WhatAnObjectIsIsGrantedAndNothingIsLost) {
  close();
  ASSERT_EQ(mprotect(object_, kBytes, kBoth), 0) << strerror(errno);
  EXPECT_EQ(object_[70000], 2) << "the CPU's old copy";
  object_[5] = 10;
  object_[kBytes - 1] = 20;
  close();
  ASSERT_EQ(pkey_mprotect(object_ + kPage, kPage, kBoth, -1), 0) << strerror(errno);
  EXPECT_EQ(object_[5], 11) << "a write of the CPU's is lost";
  EXPECT_EQ(object_[kPage + 5], 3);
  EXPECT_EQ(object_[kBytes - 1], 21);
}

TEST_F(Protections, WhatAnObjectCannotBeIsRefusedAndChangesNothing) {
  ::testing::internal::CaptureStderr();
  for (const int protection : {PROT_NONE, PROT_READ, PROT_WRITE, kBoth | PROT_EXEC}) {
    errno = 0;
    EXPECT_EQ(mprotect(object_ + kPage, 10, protection), -1) << protection;
    EXPECT_EQ(errno, EACCES) << protection;
  }
  errno = 0;
  EXPECT_EQ(pkey_mprotect(object_, kPage, kBoth, 1), -1);
  EXPECT_EQ(errno, EACCES);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(", 10, 0x0) fails with EACCES: shared objects are there, whose pages "
                              "can be readable and writable (0x3) only"));
  EXPECT_EQ(said.find('\n'), said.size() - 1) << "it is said once:\n" << said;
  object_[kPage] = 5;
  close();
  EXPECT_EQ(object_[kPage], 6);
}

TEST_F(Protections, OfMemoryBesideAnObjectAreChanged) {
  // What follows is address space of the runtime's, for other objects.
  unsigned char* const after = object_ + kBytes;
  close();
  ASSERT_EQ(mprotect(after - kPage, 2 * kPage, kBoth), 0) << strerror(errno);
  *after = 1;
  EXPECT_EQ(after[-1], 2);
  EXPECT_EQ(mprotect(after - kPage, 2 * kPage, PROT_NONE), -1);
  *after = 2;
  EXPECT_EQ(mprotect(after, kPage, PROT_NONE), 0) << strerror(errno);
}

TEST_F(Protections, OfOtherMemoryAreTheSystems) {
  void* const page = mmap(nullptr, 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(mprotect(page, kPage, kBoth), 0);
  *static_cast<volatile unsigned char*>(page) = 1;
  EXPECT_EQ(mprotect(page, kPage, PROT_READ), 0);
  errno = 0;
  EXPECT_EQ(mprotect(object_ + 1, kPage, kBoth), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mprotect(object_, 0, PROT_NONE), 0);
  EXPECT_EQ(munmap(page, 2 * kPage), 0);
}

TEST_F(Locks, OfAnObjectAreLockedWhateverSideItsBytesAreOn) {
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

TEST_F(Locks, OfOtherMemoryAreTheSystems) {
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
