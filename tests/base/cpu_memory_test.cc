// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/cpu_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <thread>

namespace gmac {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

class Mapped {
 public:
  Mapped()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  }
  ~Mapped() { munmap(memory_, kBytes); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  std::byte* begin() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_;
};

TEST(CpuMemory, TheHeapAndTheThreadsOwnStackAreKnown) {
  const auto onHeap = std::make_unique<int>(1);
  [[maybe_unused]] const int onStack = 1;
#ifndef GMAC_SANITIZED  // whose heap is another one
  EXPECT_TRUE(onHeapOrStack(onHeap.get()));
  EXPECT_TRUE(onHeapOrStack(&onStack));
#endif
  std::thread([] {
    [[maybe_unused]] const std::array<int, 100> there{};
#ifndef GMAC_SANITIZED
    EXPECT_TRUE(onHeapOrStack(there.data()));
    EXPECT_TRUE(onHeapOrStack(there.data() + 99));
#endif
  }).join();
}

TEST(CpuMemory, WhatIsMappedIsNot) {
  const Mapped mapped;
  EXPECT_FALSE(onHeapOrStack(nullptr));
  EXPECT_FALSE(onHeapOrStack(mapped.begin()));
  EXPECT_FALSE(onHeapOrStack(mapped.begin() + kBytes));
  std::thread([&] { EXPECT_FALSE(onHeapOrStack(mapped.begin())); }).join();
}

// Other memory is mapped between a coroutine's frames and the thread's stack.
TEST(CpuMemory, OnACoroutinesStackNothingElseIsTakenForIt) {
  static ucontext_t outside;
  static ucontext_t coroutine;
  static const std::byte* asked;
  static bool answer;
  const Mapped first;
  const Mapped second;
  asked = std::max(first.begin(), second.begin());
  ASSERT_EQ(getcontext(&coroutine), 0);
  coroutine.uc_stack.ss_sp = std::min(first.begin(), second.begin());
  coroutine.uc_stack.ss_size = kBytes;
  coroutine.uc_link = &outside;
  answer = true;
  makecontext(
      &coroutine, [] { answer = onHeapOrStack(asked); }, 0);
  ASSERT_EQ(swapcontext(&outside, &coroutine), 0);
  EXPECT_FALSE(answer);
}

}  // namespace
}  // namespace gmac
