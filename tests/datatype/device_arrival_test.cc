// SPDX-License-Identifier: Apache-2.0
//
// Arrival kernels, run by their `host` implementations in a thread, while this one fills the slots
// of a ring as they become free: every width, rows of any length and stride, whole and broken off.
// (That the same kernels do so on a device is device_rate's and devices_openmpi's, which compare
// every byte.)
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/datatype/kernels/pack_kernels.h"
#include "gmac/datatype/plan/arrival_plan.h"
#include "tests/datatype/plan_on_host.h"
#include "tests/support/seed.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using std::chrono::steady_clock;

constexpr std::uint64_t kLong = 30'000'000'000;  // patience, in nanoseconds

std::uint64_t addressOf(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
std::byte byteAt(int64_t at) { return static_cast<std::byte>(at * 7 + at / 251); }

// A message of rows that arrives: its ring, its target, and the kernel that unpacks it.
class Message {
 public:
  // `bytes`: of the message, where it is shorter than its layout.
  Message(Layout layout, int64_t fragmentBytes, std::uint32_t slots, std::uint64_t patience,
          int64_t bytes = 0)
      : layout_(std::move(layout)),
        plan_(layout_),
        bytes_(bytes == 0 ? layout_.bytes() : bytes),
        fragmentBytes_(fragmentBytes),
        slots_(slots),
        ring_(static_cast<std::size_t>(fragmentBytes) * slots / sizeof(Line) + 1),
        target_(static_cast<std::size_t>(layout_.bounds().last) / sizeof(Line) + 2) {
    std::memset(target_.data(), 0xa5, target_.size() * sizeof(Line));
    ArrivalJob job;
    job.bytes = bytes_;
    job.strided = addressOf(target());
    job.ring = addressOf(ring_.data());
    job.fragmentBytes = fragmentBytes;
    job.slots = slots;
    job.words = addressOf(&words_);
    job.state = addressOf(&state_);
    job.firstPatience = job.patience = patience;
    launch_ = makeArrivalLaunch(plan_, job);
  }
  ~Message() { end(); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  bool exists() const { return launch_.has_value(); }
  std::string name() const { return kernelName(kernelNumber(launch_->kernel)); }
  int64_t fragments() const { return (bytes_ + fragmentBytes_ - 1) / fragmentBytes_; }

  void start() {
    kernel_ = std::thread([this] {
      const int number = kernelNumber(launch_->kernel);
      EXPECT_EQ(sizeof launch_->params, kernelParamBytes(number));
      testing::runBlocks(number, 3, 32, &launch_->params);
    });
  }
  void end() {
    if (kernel_.joinable()) kernel_.join();
  }
  // Fills the slot of a fragment, and says that so many are there.
  void deliver(int64_t fragment) {
    const int64_t first = fragment * fragmentBytes_;
    const int64_t bytes = std::min(fragmentBytes_, bytes_ - first);
    auto* const slot =
        reinterpret_cast<std::byte*>(ring_.data()) + fragment % slots_ * fragmentBytes_;
    for (int64_t i = 0; i < bytes; ++i) slot[i] = byteAt(first + i);
    std::atomic_ref(words_.arrived)
        .store(arrivedWord(static_cast<std::uint32_t>(fragment) + 1, false),
               std::memory_order_release);
  }
  void sayNoMoreCome() { std::atomic_ref(words_.arrived).fetch_or(1, std::memory_order_release); }
  bool isUnpacked(int64_t fragment) {
    return std::atomic_ref(words_.unpacked[fragment % slots_]).load(std::memory_order_acquire) ==
           static_cast<std::uint32_t>(fragment) + 1;
  }
  // False: it is not, for longer than any machine takes.
  bool awaitUnpacked(int64_t fragment) {
    const auto end = steady_clock::now() + std::chrono::seconds(20);
    while (!isUnpacked(fragment) && steady_clock::now() < end) std::this_thread::yield();
    return isUnpacked(fragment);
  }
  // The first so many bytes are unpacked, and no other byte is touched.
  void expectUnpacked(int64_t bytes) const {
    std::vector<Line> expected(target_.size());
    std::memset(expected.data(), 0xa5, expected.size() * sizeof(Line));
    auto* const there = reinterpret_cast<std::byte*>(expected.data());
    layout_.forEach(0, layout_.bytes(), [&](int64_t at, int64_t in, int64_t length) {
      for (int64_t i = 0; i < length && in + i < bytes; ++i) there[at + i] = byteAt(in + i);
    });
    EXPECT_EQ(std::memcmp(expected.data(), target_.data(), expected.size() * sizeof(Line)), 0);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::byte* target() { return reinterpret_cast<std::byte*>(target_.data()); }

  const Layout layout_;
  const DevicePlan plan_;
  const int64_t bytes_;
  const int64_t fragmentBytes_;
  const std::uint32_t slots_;
  std::vector<Line> ring_;
  std::vector<Line> target_;
  ArrivalWords words_{};
  ArrivalState state_{};
  std::optional<ArrivalLaunch> launch_;
  std::thread kernel_;
};

Layout rows(int64_t count, int64_t row, int64_t stride) {
  return *Layout::make({{count, stride}}, {{0, row}});
}

TEST(DeviceArrival, EveryRowIsUnpackedWhileTheMessageArrives) {
  std::mt19937_64 random(testing::seedOr(1));
  std::set<std::string> used;
  for (int step = 0; step < 60; ++step) {
    const int64_t word = int64_t{4} << random() % 3;
    const int64_t row = word * static_cast<int64_t>(1 + random() % 5);
    const int64_t stride = row + word * static_cast<int64_t>(1 + random() % 7);
    const int64_t count = 2 + static_cast<int64_t>(random() % 60000);
    // Of one chunk, and of several.
    const int64_t fragment =
        random() % 3 == 0 ? int64_t{2} * kArrivalChunkBytes : int64_t{4096} << random() % 3;
    const auto slots = static_cast<std::uint32_t>(1 + random() % kMaxArrivalSlots);
    SCOPED_TRACE(::testing::Message() << count << " rows of " << row << " every " << stride
                                      << ", fragments of " << fragment << " in " << slots);
    // (Some messages are shorter than what receives them.)
    const int64_t bytes = (count * row - (random() % 4 == 0 ? row : 0)) / word * word;
    Message message(rows(count, row, stride), fragment, slots, kLong, bytes);
    ASSERT_TRUE(message.exists());
    used.insert(message.name());
    message.start();
    for (int64_t next = 0; next < message.fragments(); ++next) {
      if (next >= slots && !message.awaitUnpacked(next - slots)) break;
      message.deliver(next);
    }
    message.sayNoMoreCome();
    message.end();
    ASSERT_TRUE(message.isUnpacked(message.fragments() - 1));
    message.expectUnpacked(bytes);
  }
  EXPECT_EQ(used, (std::set<std::string>{"gmacUnpackArriving_4", "gmacUnpackArriving_8",
                                         "gmacUnpackArriving_16"}));
}

TEST(DeviceArrival, AKernelThatHearsNothingEndsByItself) {
  Message message(rows(5000, 8, 32), 4096, 4, 5'000'000);
  ASSERT_TRUE(message.exists());
  message.deliver(0);
  message.deliver(1);
  const auto before = steady_clock::now();
  message.start();
  message.end();
  EXPECT_GE(steady_clock::now() - before, std::chrono::milliseconds(5));
  EXPECT_TRUE(message.isUnpacked(0) && message.isUnpacked(1) && !message.isUnpacked(2));
  message.expectUnpacked(2 * 4096);
}

TEST(DeviceArrival, AKernelEndsWhenNoMoreCome) {
  Message message(rows(5000, 16, 64), 8192, 4, kLong);
  ASSERT_TRUE(message.exists());
  message.start();
  message.deliver(0);
  EXPECT_TRUE(message.awaitUnpacked(0));
  message.deliver(1);
  message.deliver(2);
  const auto before = steady_clock::now();
  message.sayNoMoreCome();  // what is there is unpacked before
  message.end();
  EXPECT_LT(steady_clock::now() - before, std::chrono::nanoseconds(kLong / 2));
  EXPECT_TRUE(message.isUnpacked(2) && !message.isUnpacked(3));
  message.expectUnpacked(3 * 8192);
}

TEST(DeviceArrival, OtherLayoutsAndRingsHaveNoKernel) {
  const auto exists = [](const Layout& layout, int64_t fragment = 4096, std::uint32_t slots = 4,
                         int64_t bytes = 0) {
    return Message(layout, fragment, slots, kLong, bytes).exists();
  };
  EXPECT_TRUE(exists(rows(5000, 8, 32)));
  EXPECT_FALSE(exists(*Layout::make({}, {{0, 40000}})));
  EXPECT_FALSE(exists(*Layout::make({{50, 32000}, {100, 32}}, {{0, 8}})));
  EXPECT_FALSE(exists(*Layout::make({{500, 64}}, {{0, 8}, {20, 12}})));
  EXPECT_FALSE(exists(rows(5000, 2, 32)));
  EXPECT_FALSE(exists(rows(5000, 8, 33)));
  EXPECT_FALSE(exists(rows(5000, 8, 32), kArrivalChunkBytes + 4096));
  EXPECT_TRUE(exists(rows(5000, 8, 32), 4096, 4, 8));
  EXPECT_FALSE(exists(rows(5000, 8, 32), 4096, 4, 4003));
  EXPECT_FALSE(exists(rows(5000, 8, 32), 4096, 4, 40001));
  EXPECT_FALSE(exists(rows(5000, 8, 32), 4096, 0));
  EXPECT_FALSE(exists(rows(5000, 8, 32), 4096, kMaxArrivalSlots + 1));
}

}  // namespace
}  // namespace gmac::datatype
