// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gmac/api/adsm.hpp"

namespace {

using ::testing::HasSubstr;

// ---- What compiles and what does not ----

using Saxpy = adsm::Kernel<void(float, const float*, float*, unsigned)>;
using Launch = adsm::Grid;

static_assert(std::is_invocable_v<Saxpy, Launch, float, float*, float*, unsigned>);
static_assert(std::is_invocable_v<const Saxpy&, Launch, float, const float*, float*, unsigned>);
static_assert(std::is_invocable_v<Saxpy, Launch, float, std::nullptr_t, float*, unsigned char>);
static_assert(!std::is_invocable_v<Saxpy, Launch, float, const float*, float*>, "too few");
static_assert(!std::is_invocable_v<Saxpy, Launch, float, float*, float*, unsigned, int>,
              "too many");
static_assert(!std::is_invocable_v<Saxpy, Launch, float, float*, const float*, unsigned>, "const");
static_assert(!std::is_invocable_v<Saxpy, Launch, float, double*, float*, unsigned>,
              "element type");
static_assert(!std::is_invocable_v<Saxpy, Launch, double, float*, float*, unsigned>, "narrows");
static_assert(!std::is_invocable_v<Saxpy, Launch, float, float*, float*, std::size_t>, "narrows");
static_assert(!std::is_invocable_v<Saxpy, Launch, float, float*, float*, int>, "loses the sign");
static_assert(!std::is_invocable_v<Saxpy, Launch, float, std::uintptr_t, float*, unsigned>,
              "an integer is no pointer");
static_assert(!std::is_invocable_v<Saxpy, float, float*, float*, unsigned>, "no shape");

using SaxpyUsing = decltype(std::declval<const Saxpy&>().uses(std::declval<adsmUse_t>()));
static_assert(std::is_invocable_v<SaxpyUsing, Launch, float, float*, float*, unsigned>);
static_assert(!std::is_invocable_v<SaxpyUsing, Launch, float, float*, float*, double>);

using SaxpyUsingNothing = decltype(std::declval<const Saxpy&>().uses());
static_assert(std::is_invocable_v<SaxpyUsingNothing, Launch, float, float*, float*, unsigned>);

using SaxpyOn = decltype(std::declval<const Saxpy&>().on(1));
static_assert(std::is_invocable_v<SaxpyOn, Launch, float, float*, float*, unsigned>);
static_assert(!std::is_invocable_v<SaxpyOn, Launch, float, float*, float*, double>);
using SaxpyOnUsing = decltype(std::declval<const SaxpyOn&>().uses(std::declval<adsmUse_t>()));
static_assert(std::is_invocable_v<SaxpyOnUsing, Launch, float, float*, float*, unsigned>);

static_assert(std::is_invocable_v<adsm::Kernel<void()>, Launch>);
static_assert(!std::is_copy_constructible_v<Saxpy> && std::is_nothrow_move_constructible_v<Saxpy>);

static_assert(std::is_same_v<std::allocator_traits<adsm::Allocator<int>>::rebind_alloc<char>,
                             adsm::Allocator<char>>);

// ---- Behaviour ----

template <typename T>
T argument(void** args, int index) {
  return *static_cast<T*>(args[index]);
}

void saxpyHost(const adsmThreadBlock_t* block, void** args) {
  const auto a = argument<float>(args, 0);
  const auto* const x = argument<const float*>(args, 1);
  auto* const y = argument<float*>(args, 2);
  const auto n = argument<unsigned>(args, 3);
  for (unsigned thread = 0; thread < block->blockDim.x; ++thread) {
    const unsigned i = block->blockIdx.x * block->blockDim.x + thread;
    if (i < n) y[i] += a * x[i];
  }
}

adsm::Implementations saxpyImplementations() {
  adsm::Implementations of;
  of.name = "saxpy";
  of.host = saxpyHost;
  return of;
}

adsm::Grid shapeFor(unsigned count) { return {(count + 127) / 128, 128}; }

// False when the error only says that this accelerator runs no host functions.
bool hostKernelsRun(const std::exception& error) {
  const auto* const failed = dynamic_cast<const adsm::Error*>(&error);
  return failed == nullptr || failed->code() != adsmErrorNoImplementation;
}

TEST(AdsmAllocator, ContainersLiveInSharedObjects) {
  std::vector<int, adsm::Allocator<int>> numbers(1000);
  EXPECT_EQ(adsmSafe(numbers.data()), numbers.data());
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int i = 1000; i < 5000; ++i) numbers.push_back(i);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(numbers[static_cast<std::size_t>(i)], i);
  const int* const old = numbers.data();
  numbers = {};
  numbers.shrink_to_fit();
  EXPECT_EQ(adsmSafe(old), nullptr) << "the container freed its object";

  std::list<double, adsm::Allocator<double>> list = {1, 2, 3};
  list.splice(list.end(), std::list<double, adsm::Allocator<double>>{4});
  EXPECT_EQ(std::accumulate(list.begin(), list.end(), 0.0), 10.0);
  std::map<int, int, std::less<>, adsm::Allocator<std::pair<const int, int>>> map = {{1, 2}};
  map[3] = 4;
  EXPECT_EQ(map.size(), 2u);
}

TEST(AdsmAllocator, AbsurdCountsThrow) {
  adsm::Allocator<double> allocator;
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(static_cast<void>(allocator.allocate(most / 4)), std::bad_array_new_length);
  try {
    static_cast<void>(allocator.allocate(most / sizeof(double)));
    FAIL() << "the whole address space was allocated";
  } catch (const adsm::Error& error) {
    EXPECT_NE(error.code(), adsmSuccess);
    EXPECT_STREQ(error.what(), adsmLastErrorString());
    EXPECT_STRNE(error.what(), "");
  }
}

struct Counted {
  explicit Counted(int* counter, bool fail = false) : counter(counter) {
    if (fail) throw std::runtime_error("no");
    ++*counter;
  }
  ~Counted() { --*counter; }
  int* counter;
};

TEST(AdsmUniquePtr, ConstructsAndDestroysOnTheCpu) {
  int alive = 0;
  {
    auto one = adsm::makeUnique<Counted>(&alive);
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(adsmSafe(one.get()), one.get());
    adsm::unique_ptr<Counted> moved = std::move(one);
    EXPECT_EQ(one, nullptr);
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
  EXPECT_THROW(adsm::makeUnique<Counted>(&alive, true), std::runtime_error);
  EXPECT_EQ(alive, 0);
}

struct FailsAtFive {
  static inline int alive = 0;
  FailsAtFive() {
    if (alive == 5) throw std::runtime_error("five are enough");
    ++alive;
  }
  ~FailsAtFive() { --alive; }
};

TEST(AdsmUniquePtr, ArraysAreZeroedCountedAndUndone) {
  auto zeros = adsm::makeUnique<float[]>(3000);
  EXPECT_EQ(zeros.get_deleter().count(), 3000u);
  for (std::size_t i = 0; i < 3000; ++i) ASSERT_EQ(zeros[i], 0.0f);
  {
    auto few = adsm::makeUnique<FailsAtFive[]>(5);
    EXPECT_EQ(FailsAtFive::alive, 5);
  }
  EXPECT_EQ(FailsAtFive::alive, 0);
  EXPECT_THROW(adsm::makeUnique<FailsAtFive[]>(6), std::runtime_error);
  EXPECT_EQ(FailsAtFive::alive, 0);
  EXPECT_NE(adsm::makeUnique<int[]>(0), nullptr);
}

TEST(AdsmUniquePtr, ArraysAreStripedOverTheDevicesThatAreNamed) {
  constexpr std::size_t kCount = std::size_t{3} << 20;
  for (const std::vector<int>& devices : {std::vector<int>{}, std::vector<int>{0}}) {
    const auto array = adsm::makeUniqueStripedForOverwrite<unsigned char[]>(kCount, devices);
    array[0] = 1;
    array[kCount - 1] = 2;
    EXPECT_EQ(array[0] + array[kCount - 1], 3);
    EXPECT_EQ(adsmFree(array.get() + 1), adsmErrorInvalidPointer);  // it is one object
  }
  const int last = adsm::deviceCount() - 1;
  EXPECT_THROW(adsm::makeUniqueStripedForOverwrite<int[]>(kCount, {last + 1}), adsm::Error);
  EXPECT_THROW(adsm::makeUniqueStripedForOverwrite<int[]>(kCount, {0, 0}), adsm::Error);
  EXPECT_THROW(adsm::makeUniqueStripedForOverwrite<int[]>(SIZE_MAX), std::bad_array_new_length);
}

TEST(AdsmError, HasTheCodeAndTheSentence) {
  try {
    adsm::check(adsmFree(reinterpret_cast<void*>(4096)));
    FAIL() << "a wrong pointer was freed";
  } catch (const adsm::Error& error) {
    EXPECT_EQ(error.code(), adsmErrorInvalidPointer);
    EXPECT_THAT(error.what(), HasSubstr("0x1000"));
  }
}

TEST(AdsmKernel, ADescriptionWithoutANameIsRefused) {
  EXPECT_THROW(Saxpy{adsm::Implementations{}}, adsm::Error);
}

TEST(AdsmKernel, LaunchesWithItsArgumentsInOrder) {
  constexpr unsigned kCount = 10000;
  auto x = adsm::makeUniqueForOverwrite<float[]>(kCount);
  std::vector<float, adsm::Allocator<float>> y(kCount, 1.0f);
  for (unsigned i = 0; i < kCount; ++i) x[i] = static_cast<float>(i);
  try {
    Saxpy made(saxpyImplementations());
    const Saxpy saxpy = std::move(made);
    EXPECT_EQ(made.get(), nullptr);  // NOLINT(bugprone-use-after-move): that is the question
    saxpy(shapeFor(kCount), 2.0f, x.get(), y.data(), kCount);
    adsm::sync();
    for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(y[i], 1.0f + 2.0f * static_cast<float>(i));

    saxpy.uses(adsm::reads(x.get()), adsm::readsAndWrites(y.data()))(shapeFor(kCount), 1.0f,
                                                                     x.get(), y.data(), kCount);
    EXPECT_EQ(x[77], 77.0f);  // stays readable while the kernel runs
    adsm::sync();
    for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(y[i], 1.0f + 3.0f * static_cast<float>(i));

    // The last device, which may be the only one.
    const int last = adsm::deviceCount() - 1;
    EXPECT_GE(adsm::deviceInfo(last).memoryBytes, sizeof(float) * kCount);
    adsm::migrate(y.data(), sizeof(float) * kCount, last);
    saxpy.on(last)(shapeFor(kCount), 1.0f, x.get(), y.data(), kCount);
    saxpy.on(last).uses(adsm::reads(x.get()), adsm::readsAndWrites(y.data()))(
        shapeFor(kCount), 1.0f, x.get(), y.data(), kCount);
    adsm::sync();
    for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(y[i], 1.0f + 5.0f * static_cast<float>(i));
    EXPECT_THROW(saxpy.on(last + 1)(shapeFor(1), 1.0f, x.get(), y.data(), 1u), adsm::Error);
    EXPECT_THROW(adsm::deviceInfo(-1), adsm::Error);
  } catch (const std::exception& error) {
    if (hostKernelsRun(error)) throw;
    GTEST_SKIP() << "this accelerator has no implementation of the test's kernel: " << error.what();
  }
}

TEST(AdsmKernel, AUseThatIsNoSharedObjectThrows) {
  float local = 0;
  try {
    const Saxpy saxpy(saxpyImplementations());
    EXPECT_THROW(saxpy.uses(adsm::writes(&local))(shapeFor(1), 1.0f, &local, &local, 1u),
                 adsm::Error);
  } catch (const std::exception& error) {
    if (hostKernelsRun(error)) throw;
    GTEST_SKIP() << error.what();
  }
}

}  // namespace
