// SPDX-License-Identifier: Apache-2.0
//
// A thread whose stack lies beside shared objects: what the runtime hands to the system on it is no
// shared memory, and nobody may look for that under a lock that the thread has.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "gmac/api/adsm.hpp"
#include "tests/interpose/libc/host_kernels.h"

namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10;
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr std::size_t kGranule = std::size_t{2} << 20;  // in which memory may be shared
constexpr int kRounds = 200;

// A stack in the granule of an object, below it; MAP_FAILED: there is no room.
void* mapBelow(const unsigned char* object) {
  const auto end = reinterpret_cast<std::uintptr_t>(object);
  for (std::uintptr_t at = end / kGranule * kGranule; at + kStackBytes <= end; at += kBytes) {
    void* const stack = mmap(reinterpret_cast<void*>(at), kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (stack != MAP_FAILED) {
      return stack;
    }
  }
  return MAP_FAILED;
}

using Fill = adsm::Kernel<void(unsigned char*, std::size_t, unsigned)>;

struct Work {
  unsigned char* object = nullptr;    // at any address, as the system gives them
  unsigned char* onDevice = nullptr;  // of the same bytes
  Fill* fill = nullptr;
  std::atomic<int> right{0};
};

void* callAndRead(void* given) {
  Work& work = *static_cast<Work*>(given);
  for (unsigned round = 0; round < kRounds; ++round) {
    work.fill->uses(adsm::writes(work.object))(gmac::testing::kOneThread, work.onDevice, kBytes,
                                               round);
    work.right += work.object[kBytes / 2] == gmac::testing::patternAt(kBytes / 2, round) ? 1 : 0;
  }
  return nullptr;
}

TEST(AStackBesideObjects, IsNoSharedMemory) {
  ::setenv("GMAC_ACCEL", "host", 0);
  Fill fill(gmac::testing::hostOnly("fill", gmac::testing::fillOnHost));
  Work work;
  work.fill = &fill;
  // One object lies above the stack, in its granule, and one below: the system gives lower and
  // lower addresses once the gaps between what is mapped are full.
  void* stack = MAP_FAILED;
  std::vector<unsigned char*> objects;
  const auto allocate = [&](std::size_t bytes) {
    objects.push_back(static_cast<unsigned char*>(adsmSafeAlloc(bytes)));
    return objects.back() != nullptr;
  };
  while (stack == MAP_FAILED && objects.size() < 64) {
    ASSERT_TRUE(allocate(kBytes)) << adsmLastErrorString();
    work.object = objects.back();
    stack = mapBelow(work.object);
  }
  ASSERT_NE(stack, MAP_FAILED) << "no room beside " << objects.size() << " objects";
  const auto liesBelow = [&](const unsigned char* object) { return object < stack; };
  while (std::none_of(objects.begin(), objects.end(), liesBelow)) {
    ASSERT_LT(objects.size(), 256U) << "no object lies below " << stack;
    ASSERT_TRUE(allocate(2 * kGranule)) << adsmLastErrorString();
  }
  work.onDevice = static_cast<unsigned char*>(adsmSafe(work.object));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack, kStackBytes), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, &callAndRead, &work), 0);
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 60;
  if (pthread_timedjoin_np(thread, nullptr, &until) != 0) {
    std::fprintf(stderr, "the thread waits for itself, after %d rounds\n", work.right.load());
    _exit(1);
  }
  EXPECT_EQ(work.right, kRounds);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(munmap(stack, kStackBytes), 0);
  for (unsigned char* const object : objects) {
    EXPECT_EQ(adsmFree(object), adsmSuccess) << adsmLastErrorString();
  }
}

}  // namespace
