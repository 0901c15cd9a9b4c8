// SPDX-License-Identifier: Apache-2.0
//
// Parts of one object on several devices, through the API: each test below runs in a process of its
// own, on one to four devices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm.hpp"
#include "gmac/api/adsm_datatype.h"
#include "gmac/observe/stats.h"
#include "gmac/protocols/protocol.h"
#include "gmac/session/runtime.h"
#include "tests/api/host_kernel.h"
#include "tests/support/child.h"

namespace gmac::testing {
namespace {

using Word = std::uint32_t;
constexpr std::size_t kParts = 4;
constexpr std::size_t kWords = std::size_t{1} << 18;
constexpr std::size_t kBytes = kWords * sizeof(Word);
constexpr std::size_t kPartWords = kWords / kParts;
constexpr std::size_t kPartBytes = kBytes / kParts;

// Its kernels are functions of the CPU.
const bool kOnHost = setenv("GMAC_ACCEL", "host", 0) == 0;

Word stencil(const Word* in, std::size_t i) {
  const Word left = i > 0 ? in[i - 1] : 0;
  const Word right = i + 1 < kWords ? in[i + 1] : 0;
  return left + 3 * in[i] + right;
}

// out[first, last) from in[first - 1, last + 1).
void sweep(const adsmThreadBlock_t* block, void** args) {
  const auto* in = *static_cast<const Word**>(args[0]);
  auto* out = *static_cast<Word**>(args[1]);
  const auto first = *static_cast<std::uint64_t*>(args[2]);
  const auto last = *static_cast<std::uint64_t*>(args[3]);
  for (std::uint64_t i = first + block->blockIdx.x; i < last; i += block->gridDim.x) {
    out[i] = stencil(in, i);
  }
}

void add(const adsmThreadBlock_t* block, void** args) {
  auto* data = *static_cast<Word**>(args[0]);
  const auto count = *static_cast<std::uint64_t*>(args[1]);
  const auto addend = static_cast<Word>(*static_cast<std::uint64_t*>(args[2]));
  for (std::uint64_t i = block->blockIdx.x; i < count; i += block->gridDim.x) {
    data[i] += addend;
  }
}

std::string meetingPlace(std::uint64_t id, std::uint64_t member) {
  return "/tmp/gmac_ranges_" + std::to_string(id) + "_" + std::to_string(member);
}

// Writes 1 if all of `count` such kernels run at once: each leaves a file, and waits for those of
// the others.
void meet(const adsmThreadBlock_t*, void** args) {
  auto* word = *static_cast<Word**>(args[0]);
  const auto id = *static_cast<std::uint64_t*>(args[1]);
  const auto member = *static_cast<std::uint64_t*>(args[2]);
  const auto count = *static_cast<std::uint64_t*>(args[3]);
  ::close(::open(meetingPlace(id, member).c_str(), O_CREAT | O_WRONLY, 0600));
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  *word = 0;
  for (std::uint64_t seen = 0; seen < count && std::chrono::steady_clock::now() < patience;) {
    for (seen = 0; seen < count && ::access(meetingPlace(id, seen).c_str(), F_OK) == 0;) ++seen;
    *word = seen == count ? 1 : 0;
  }
}

// Writes 1 if a word does not change under it for a while after another kernel has left its file.
void watch(const adsmThreadBlock_t*, void** args) {
  const auto* word = *static_cast<const volatile Word**>(args[0]);
  auto* flag = *static_cast<Word**>(args[1]);
  const auto id = *static_cast<std::uint64_t*>(args[2]);
  const Word before = *word;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (::access(meetingPlace(id, 0).c_str(), F_OK) != 0 &&
         std::chrono::steady_clock::now() < patience) {
  }
  const auto enough = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  *flag = 1;
  while (*flag == 1 && std::chrono::steady_clock::now() < enough) *flag = *word == before ? 1 : 0;
}

void writeAndTell(const adsmThreadBlock_t*, void** args) {
  **static_cast<Word**>(args[0]) = 77;
  const auto id = *static_cast<std::uint64_t*>(args[1]);
  ::close(::open(meetingPlace(id, 0).c_str(), O_CREAT | O_WRONLY, 0600));
}

class Ranges : public ::testing::Test {
 protected:
  void SetUp() override {
    sweep_ = hostKernel("sweep", sweep, 4);
    add_ = hostKernel("add", add, 3);
    meet_ = hostKernel("meet", meet, 4);
    ASSERT_EQ(adsmDeviceCount(&devices_), adsmSuccess) << adsmLastErrorString();
  }
  void TearDown() override {
    for (const adsmKernel_t kernel : {sweep_, add_, meet_}) {
      EXPECT_EQ(adsmKernelDestroy(kernel), adsmSuccess) << adsmLastErrorString();
    }
  }

  static Word* allocate(std::size_t bytes = kBytes) {
    auto* words = static_cast<Word*>(adsmAlloc(bytes));
    EXPECT_NE(words, nullptr) << adsmLastErrorString();
    return words;
  }
  static void verify() {
    EXPECT_TRUE(Runtime::get().ok() && (*Runtime::get())->memory().verify().ok())
        << adsmLastErrorString();
  }
  static bool wholeObjects() { return (*Runtime::get())->memory().protocol().wholeObjects(); }
  int deviceOf(std::size_t part) const { return static_cast<int>(part) % devices_; }

  void addTo(int device, Word* data, std::size_t first, std::size_t count, Word addend = 1) {
    Word* begin = data + first;
    std::uint64_t words = count;
    std::uint64_t value = addend;
    void* args[] = {&begin, &words, &value};
    const adsmRangeUse_t use = {begin, count * sizeof(Word), adsmReadWrite};
    ASSERT_EQ(adsmCallRanges(device, add_, {2, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
        << adsmLastErrorString();
  }
  // One part of a sweep, which reads a word of each neighbour.
  void sweepPart(std::size_t part, const Word* in, Word* out) {
    std::uint64_t first = part * kPartWords;
    std::uint64_t last = first + kPartWords;
    const std::size_t readFirst = first == 0 ? 0 : first - 1;
    const std::size_t readLast = std::min<std::size_t>(last + 1, kWords);
    void* args[] = {&in, &out, &first, &last};
    const adsmRangeUse_t uses[] = {
        {in + readFirst, (readLast - readFirst) * sizeof(Word), adsmRead},
        {out + first, kPartBytes, adsmWrite}};
    ASSERT_EQ(adsmCallRanges(deviceOf(part), sweep_, {2, 1, 1}, {1, 1, 1}, 0, args, uses, 2),
              adsmSuccess)
        << adsmLastErrorString();
  }
  static void sweepOnCpu(std::vector<Word>& data) {
    const std::vector<Word> before = data;
    for (std::size_t i = 0; i < kWords; ++i) data[i] = stencil(before.data(), i);
  }
  static void expectEqual(const Word* data, const std::vector<Word>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(data[i], expected[i]) << i;
  }

  static std::size_t freeOn(int device) {
    adsmDeviceInfo_t info;
    EXPECT_EQ(adsmDeviceInfo(device, &info), adsmSuccess) << adsmLastErrorString();
    return info.freeBytes;
  }
  // Uses a part, and does nothing. What that has copied between devices.
  std::uint64_t migratedBy(int device, Word* data, std::size_t first, std::size_t count,
                           adsmAccess_t access) {
    const std::uint64_t before = stats().migratedBytes.value();
    Word* begin = data + first;
    std::uint64_t none = 0;
    void* args[] = {&begin, &none, &none};
    const adsmRangeUse_t use = {begin, count * sizeof(Word), access};
    EXPECT_EQ(adsmCallRanges(device, add_, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
        << adsmLastErrorString();
    return stats().migratedBytes.value() - before;
  }
  adsmError_t addToAll(int device, Word* data) {
    std::uint64_t words = kWords;
    std::uint64_t addend = 1;
    void* args[] = {&data, &words, &addend};
    const adsmUse_t use = {data, adsmReadWrite};
    return adsmCallOn(device, add_, {2, 1, 1}, {1, 1, 1}, 0, args, &use, 1);
  }

  int devices_ = 0;
  adsmKernel_t sweep_ = nullptr;
  adsmKernel_t add_ = nullptr;
  adsmKernel_t meet_ = nullptr;
};

TEST_F(Ranges, DISABLED_AJacobiOverQuartersAgreesWithTheCpu) {
  Word* in = allocate();
  Word* out = allocate();
  std::vector<Word> expected(kWords);
  std::iota(expected.begin(), expected.end(), 1u);
  std::copy(expected.begin(), expected.end(), in);
  for (int step = 0; step < 24; ++step) {
    for (std::size_t part = 0; part < kParts; ++part) sweepPart(part, in, out);
    sweepOnCpu(expected);
    std::swap(in, out);
    if (step % 5 == 2) {
      // The CPU reads and writes here and there, at a border of parts too.
      for (const std::size_t i : {kPartWords - 1, kPartWords, 3 * kPartWords + 17}) {
        ASSERT_EQ(in[i], expected[i]) << "step " << step << ", " << i;
        in[i] = expected[i] = static_cast<Word>(i * 7 + 1);
      }
      verify();
    }
    if (step % 9 == 4) {
      // Another call has all of it.
      std::uint64_t words = kWords;
      std::uint64_t addend = 5;
      void* args[] = {&in, &words, &addend};
      const adsmUse_t use = {in, adsmReadWrite};
      ASSERT_EQ(adsmCallOn(devices_ - 1, add_, {2, 1, 1}, {1, 1, 1}, 0, args, &use, 1), adsmSuccess)
          << adsmLastErrorString();
      for (Word& word : expected) word += 5;
    }
  }
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  expectEqual(in, expected);
  verify();
  EXPECT_EQ(adsmFree(in), adsmSuccess);
  EXPECT_EQ(adsmFree(out), adsmSuccess);
}

// The bytes on both sides of a border are one block, and calls on it keep their order.
TEST_F(Ranges, DISABLED_CallsThatShareABlockKeepTheirOrder) {
  Word* data = allocate();
  std::vector<Word> expected(kWords, 0);
  std::fill_n(data, kWords, 0u);
  for (std::size_t i = 0; i < 60; ++i) {
    const std::size_t first = (i * 7001) % (kWords - 5000);
    const std::size_t count = 1 + (i * 97) % 5000;
    addTo(deviceOf(i), data, first, count, static_cast<Word>(i));
    for (std::size_t j = first; j < first + count; ++j) expected[j] += static_cast<Word>(i);
  }
  expectEqual(data, expected);
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Ranges, DISABLED_OtherBlocksStayOpenOnTheCpu) {
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  addTo(0, data, 0, kWords);
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  std::fill_n(data + 3 * kPartWords, kPartWords, 7u);
  const auto faults = stats().writeFaults.value();
  addTo(devices_ - 1, data, kPartWords, kPartWords);
  std::fill_n(data + 3 * kPartWords, kPartWords, 8u);
  EXPECT_EQ(stats().writeFaults.value(), faults);
  for (std::size_t i = 0; i < kWords; ++i) {
    ASSERT_EQ(data[i], i / kPartWords == 3 ? 8u : i / kPartWords == 1 ? 3u : 2u) << i;
  }
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// On four devices: none of them goes on before all of them run.
TEST_F(Ranges, DISABLED_FourDevicesComputeAtOnce) {
  Word* data = allocate();
  std::fill_n(data, kWords, 5u);
  const auto id = static_cast<std::uint64_t>(::getpid());
  for (std::uint64_t part = 0; part < kParts; ++part) {
    Word* word = data + part * kPartWords;
    std::uint64_t number = id;
    std::uint64_t count = kParts;
    void* args[] = {&word, &number, &part, &count};
    const adsmRangeUse_t use = {word, kPartBytes, adsmReadWrite};
    ASSERT_EQ(adsmCallRanges(deviceOf(part), meet_, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1),
              adsmSuccess)
        << adsmLastErrorString();
  }
  for (std::size_t part = 0; part < kParts; ++part) {
    EXPECT_EQ(data[part * kPartWords], 1u) << part;
    EXPECT_EQ(data[part * kPartWords + 1], 5u) << part;
  }
  for (std::size_t part = 0; part < kParts; ++part) {
    EXPECT_EQ(::unlink(meetingPlace(id, part).c_str()), 0);
  }
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// It has a copy of its own of what another device writes, until a later call of its own needs that.
TEST_F(Ranges, DISABLED_WhatACallReadsDoesNotChangeUnderIt) {
  const adsmKernel_t watcher = hostKernel("watch", watch, 3);
  const adsmKernel_t writer = hostKernel("writeAndTell", writeAndTell, 2);
  const adsmDim_t one = {1, 1, 1};
  Word* data = allocate();
  Word* flag = data + 2 * kPartWords;
  std::fill_n(data, kWords, 5u);
  auto id = static_cast<std::uint64_t>(::getpid());
  void* watched[] = {&data, &flag, &id};
  const adsmRangeUse_t reads[] = {{data, kPartBytes, adsmRead}, {flag, 4, adsmReadWrite}};
  ASSERT_EQ(adsmCallRanges(0, watcher, one, one, 0, watched, reads, 2), adsmSuccess)
      << adsmLastErrorString();
  void* written[] = {&data, &id};
  const adsmRangeUse_t writes = {data, kPartBytes, adsmReadWrite};
  ASSERT_EQ(adsmCallRanges(1, writer, one, one, 0, written, &writes, 1), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(migratedBy(0, data, 0, kPartWords, adsmRead), kPartBytes);
  EXPECT_EQ(flag[0], 1u);
  EXPECT_EQ(data[0], 77u);
  EXPECT_EQ(data[1], 5u);
  EXPECT_EQ(::unlink(meetingPlace(id, 0).c_str()), 0);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
  EXPECT_EQ(adsmKernelDestroy(watcher), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(adsmKernelDestroy(writer), adsmSuccess) << adsmLastErrorString();
}

TEST_F(Ranges, DISABLED_WhatIsOnlyReadIsCopiedOnce) {
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  ASSERT_EQ(addToAll(0, data), adsmSuccess) << adsmLastErrorString();
  for (int device = 1; device < 4; ++device) {
    EXPECT_EQ(migratedBy(device, data, 0, kPartWords, adsmRead), kPartBytes) << device;
    EXPECT_EQ(migratedBy(device, data, 0, kPartWords, adsmRead), 0u) << device;
  }
  addTo(2, data, 0, kPartWords);
  for (const int device : {0, 1, 3}) {
    EXPECT_EQ(migratedBy(device, data, 0, kPartWords, adsmRead), kPartBytes) << device;
  }
  // The CPU's writes go to the device that uses them next, and no gather copies them.
  std::fill_n(data, kPartWords, 9u);
  EXPECT_EQ(migratedBy(3, data, 0, kPartWords, adsmRead), 0u);
  EXPECT_EQ(migratedBy(1, data, 0, kPartWords, adsmRead), kPartBytes);
  addTo(1, data, 0, kPartWords);
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], i < kPartWords ? 10u : 2u) << i;
  EXPECT_EQ(stats().migrations.value(), 0u);
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// All devices have a copy of what the CPU writes then, and one block may be dirty: the others are
// flushed to one device, before a call says which one needs them.
TEST_F(Ranges, DISABLED_AnEvictionOutdatesTheOtherCopies) {
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  for (int device = 0; device < 4; ++device) {
    for (int other = 0; other < 4; ++other) migratedBy(other, data, 0, kPartWords, adsmRead);
    const auto value = static_cast<Word>(10 * device);
    std::fill_n(data, kPartWords, value);
    addTo(device, data, 0, kPartWords);
    for (std::size_t i = 0; i < kWords; ++i)
      ASSERT_EQ(data[i], i < kPartWords ? value + 1 : 1) << i;
  }
  EXPECT_GT(stats().evictions.value(), 0u);
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Ranges, DISABLED_WhatNobodyHasWrittenIsNotCopied) {
  Word* data = allocate();
  for (std::size_t part = 0; part < kParts; ++part) {
    addTo(deviceOf(part), data, part * kPartWords, kPartWords, static_cast<Word>(part + 1));
  }
  EXPECT_EQ(stats().migratedBytes.value(), 0u);
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], 1 + i / kPartWords) << i;
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Ranges, DISABLED_AUseOfTheWholeBringsItTogether) {
  std::array<std::size_t, 4> room{};
  for (int device = 0; device < 4; ++device)
    room[static_cast<std::size_t>(device)] = freeOn(device);
  const auto expectRoom = [&](std::array<std::size_t, 4> copies) {
    for (int device = 0; device < 4; ++device) {
      const auto i = static_cast<std::size_t>(device);
      EXPECT_EQ(freeOn(device), room[i] - copies[i] * kBytes) << device;
    }
  };
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  for (std::size_t part = 0; part < 3; ++part) {
    addTo(deviceOf(part), data, part * kPartWords, kPartWords);
  }
  expectRoom({1, 1, 1, 0});
  ASSERT_EQ(addToAll(2, data), adsmSuccess) << adsmLastErrorString();
  expectRoom({0, 0, 1, 0});
  EXPECT_EQ(stats().migrations.value(), 1u);
  verify();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], i < 3 * kPartWords ? 3u : 2u) << i;
  // So do a migration, a call that lists nothing, and a free.
  addTo(1, data, 0, kPartWords);
  ASSERT_EQ(adsmMigrate(data, 1, 3), adsmSuccess) << adsmLastErrorString();
  expectRoom({0, 0, 0, 1});
  addTo(1, data, 0, kPartWords);
  std::uint64_t none = 0;
  void* args[] = {&data, &none, &none};
  ASSERT_EQ(adsmCall(add_, {1, 1, 1}, {1, 1, 1}, 0, args), adsmSuccess) << adsmLastErrorString();
  expectRoom({1, 0, 0, 0});
  for (std::size_t i = 0; i < kWords; ++i) {
    ASSERT_EQ(data[i], i < kPartWords ? 5u : i < 3 * kPartWords ? 3u : 2u) << i;
  }
  // So does a migration to the home itself.
  addTo(3, data, 0, kPartWords);
  expectRoom({1, 0, 0, 1});
  ASSERT_EQ(adsmMigrate(data, 1, 0), adsmSuccess) << adsmLastErrorString();
  expectRoom({1, 0, 0, 0});
  addTo(3, data, 0, kPartWords);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
  expectRoom({0, 0, 0, 0});
}

// Packs run on the first device.
TEST_F(Ranges, DISABLED_APackBringsItTogether) {
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  ASSERT_EQ(addToAll(0, data), adsmSuccess) << adsmLastErrorString();
  addTo(devices_ - 1, data, 0, kPartWords);
  std::vector<Word> packed(kWords);
  ASSERT_EQ(adsmPack(packed.data(), data, kWords, ADSM_TYPE_4), adsmSuccess)
      << adsmLastErrorString();
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(packed[i], i < kPartWords ? 3u : 2u) << i;
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Ranges, DISABLED_WhatDoesNotFitChangesNothing) {
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  addTo(0, data, 0, kPartWords);
  Word* large = allocate(freeOn(1));
  ASSERT_EQ(adsmMigrate(large, 1, 1), adsmSuccess) << adsmLastErrorString();
  std::uint64_t none = 0;
  void* args[] = {&data, &none, &none};
  const adsmRangeUse_t uses[] = {{data, kPartBytes, adsmReadWrite}, {large, 1, adsmRead}};
  EXPECT_EQ(adsmCallRanges(1, add_, {1, 1, 1}, {1, 1, 1}, 0, args, uses, 2),
            adsmErrorAcceleratorMemory);
  EXPECT_NE(std::string(adsmLastErrorString()).find("device 1"), std::string::npos)
      << adsmLastErrorString();
  EXPECT_EQ(data[0], 2u);
  EXPECT_EQ(adsmFree(large), adsmSuccess);
  addTo(1, data, 0, kPartWords);
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(data[i], i < kPartWords ? 3u : 1u) << i;
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

// What leaves is all of an object that several devices have, and comes to one of them.
TEST_F(Ranges, DISABLED_PartsMakeRoomAndHaveItMade) {
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  addTo(0, data, 0, kPartWords);
  Word* large = allocate(freeOn(1));
  large[3] = 5;
  std::uint64_t one = 1;
  void* args[] = {&large, &one, &one};
  const adsmRangeUse_t all = {large, 0, adsmReadWrite};
  const auto callOnLarge = [&] {
    return adsmCallRanges(1, add_, {1, 1, 1}, {1, 1, 1}, 0, args, &all, 1);
  };
  ASSERT_EQ(callOnLarge(), adsmSuccess) << adsmLastErrorString();
  const std::uint64_t before = stats().peerSpills.value();
  addTo(1, data, 0, kPartWords);
  EXPECT_EQ(stats().peerSpills.value(), before + 1) << "the large one has left";
  addTo(3, data, kPartWords, kPartWords);
  ASSERT_EQ(callOnLarge(), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(stats().peerSpills.value(), before + 2) << "so has the one in parts";
  for (std::size_t i = 0; i < kWords; ++i) {
    ASSERT_EQ(data[i], i < kPartWords ? 3u : i < 2 * kPartWords ? 2u : 1u) << i;
  }
  EXPECT_EQ(large[0], 2u);
  EXPECT_EQ(large[3], 5u);
  verify();
  EXPECT_EQ(adsmFree(large), adsmSuccess);
  EXPECT_EQ(adsmFree(data), adsmSuccess);
}

TEST_F(Ranges, DISABLED_PartsElsewhereOutliveADevice) {
  Word* data = allocate();
  std::fill_n(data, kWords, 1u);
  for (std::size_t part = 0; part < kParts; ++part) {
    addTo(deviceOf(part), data, part * kPartWords, kPartWords);
  }
  ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  const adsmKernel_t crash = hostKernel(
      "crash", [](const adsmThreadBlock_t*, void**) { __builtin_trap(); }, 0);
  ASSERT_EQ(adsmCallRanges(1, crash, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr, 0), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_NE(adsmSync(), adsmSuccess);
  EXPECT_EQ(addToAll(0, data), adsmErrorAcceleratorLost);
  EXPECT_NE(std::string(adsmLastErrorString()).find("device 1"), std::string::npos)
      << adsmLastErrorString();
  for (const std::size_t part : {0, 2, 3}) {
    addTo(0, data, part * kPartWords, kPartWords);
    for (std::size_t i = part * kPartWords; i < (part + 1) * kPartWords; ++i) {
      ASSERT_EQ(data[i], 3u) << i;
    }
  }
  verify();
  EXPECT_EQ(adsmFree(data), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(adsmKernelDestroy(crash), adsmSuccess) << adsmLastErrorString();
}

TEST_F(Ranges, DISABLED_SafeAndSmallObjectsHavePartsToo) {
  auto* safe = static_cast<Word*>(adsmSafeAlloc(kBytes));
  ASSERT_NE(safe, nullptr) << adsmLastErrorString();
  Word* small = allocate(400);
  std::fill_n(safe, kWords, 1u);
  std::fill_n(small, 100, 1u);
  for (std::size_t part = 0; part < kParts; ++part) {
    void* begin = adsmSafe(safe + part * kPartWords);
    std::uint64_t words = kPartWords;
    std::uint64_t addend = part;
    void* args[] = {&begin, &words, &addend};
    const adsmRangeUse_t use = {safe + part * kPartWords, kPartBytes, adsmReadWrite};
    ASSERT_EQ(adsmCallRanges(deviceOf(part), add_, {2, 1, 1}, {1, 1, 1}, 0, args, &use, 1),
              adsmSuccess)
        << adsmLastErrorString();
    addTo(deviceOf(part), small, part * 25, 25, static_cast<Word>(part));
  }
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(safe[i], 1 + i / kPartWords) << i;
  for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(small[i], 1 + i / 25) << i;
  verify();
  EXPECT_EQ(adsmFree(safe), adsmSuccess);
  EXPECT_EQ(adsmFree(small), adsmSuccess);
}

TEST_F(Ranges, DISABLED_TheCppFormMeansTheSame) {
  const adsm::Kernel<void(Word*, std::uint64_t, std::uint64_t)> kernel(
      {.name = "add", .host = add});
  Word* data = allocate();
  Word* other = allocate();
  for (Word* words : {data, other}) std::fill_n(words, kWords, 1u);
  const adsm::Grid grid{2, 1};
  kernel.uses(adsm::readsAndWrites(data + kPartWords, kPartBytes))(grid, data + kPartWords,
                                                                   kPartWords, 1u);
  kernel.on(devices_ - 1)
      .uses(adsm::reads(other), adsm::writes(data, kPartBytes))(grid, data, kPartWords, 2u);
  for (std::size_t i = 0; i < kWords; ++i) {
    ASSERT_EQ(data[i], i < kPartWords ? 3u : i < 2 * kPartWords ? 2u : 1u) << i;
  }
  try {
    kernel.uses(adsm::reads(data, kBytes + 1))(grid, data, 0u, 0u);
    ADD_FAILURE() << "it leaves the object";
  } catch (const adsm::Error& error) {
    EXPECT_EQ(error.code(), adsmErrorInvalidValue);
  }
  EXPECT_EQ(adsmFree(data), adsmSuccess);
  EXPECT_EQ(adsmFree(other), adsmSuccess);
}

TEST_F(Ranges, DISABLED_WrongArgumentsAreNamed) {
  Word* data = allocate();
  std::uint64_t none = 0;
  void* args[] = {&data, &none, &none};
  const adsmRangeUse_t use = {data, 1, adsmRead};
  const auto call = [&](int device, const adsmRangeUse_t* uses, std::size_t count) {
    return adsmCallRanges(device, add_, {1, 1, 1}, {1, 1, 1}, 0, args, uses, count);
  };
  EXPECT_EQ(call(ADSM_ANY_DEVICE, &use, 1), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(call(0, nullptr, 0), adsmSuccess) << adsmLastErrorString();
  for (const int device : {-2, devices_}) {
    EXPECT_EQ(call(device, &use, 1), adsmErrorInvalidValue);
    EXPECT_NE(
        std::string(adsmLastErrorString()).find("adsmCallRanges: device " + std::to_string(device)),
        std::string::npos)
        << adsmLastErrorString();
  }
  EXPECT_EQ(call(0, nullptr, 3), adsmErrorInvalidValue);
  EXPECT_NE(std::string(adsmLastErrorString()).find("count is 3"), std::string::npos);
  const adsmRangeUse_t beyond = {data + 1, kBytes, adsmRead};
  EXPECT_EQ(call(0, &beyond, 1), adsmErrorInvalidValue);
  EXPECT_NE(std::string(adsmLastErrorString()).find("leave their object"), std::string::npos)
      << adsmLastErrorString();
  EXPECT_EQ(adsmFree(data), adsmSuccess);
  EXPECT_EQ(call(0, &use, 1), adsmErrorInvalidPointer);
}

// A process reads its GMAC_* variables once, and starts its devices once.
void run(const std::string& test, const std::vector<int>& devices,
         const std::vector<std::pair<std::string, std::string>>& protocols,
         const std::string& rollingSize = "") {
  for (const int count : devices) {
    for (const auto& [protocol, blockSize] : protocols) {
      const ChildEnd end =
          runChild("Ranges.DISABLED_" + test, {{"GMAC_ACCEL", "host:" + std::to_string(count)},
                                               {"GMAC_PROTOCOL", protocol},
                                               {"GMAC_BLOCK_SIZE", blockSize},
                                               {"GMAC_ROLLING_SIZE", rollingSize},
                                               {"GMAC_HOST_MEMORY", "256M"},
                                               {"GMAC_HOST_THREADS", "4"}});
      EXPECT_EQ(end.exitStatus, 0)
          << count << " devices, " << protocol << ", signal " << end.signal << "\n"
          << end.output;
      EXPECT_NE(end.output.find("[  PASSED  ] 1 test"), std::string::npos) << end.output;
    }
  }
}

class InAProcess : public ::testing::TestWithParam<const char*> {};

TEST_P(InAProcess, Works) {
  run(GetParam(), {1, 2, 3, 4},
      {{"batch", "2M"}, {"lazy", "2M"}, {"rolling", "64K"}, {"rolling", "4K"}});
}

INSTANTIATE_TEST_SUITE_P(Ranges, InAProcess,
                         ::testing::Values("AJacobiOverQuartersAgreesWithTheCpu",
                                           "CallsThatShareABlockKeepTheirOrder",
                                           "SafeAndSmallObjectsHavePartsToo",
                                           "TheCppFormMeansTheSame", "WrongArgumentsAreNamed"),
                         [](const auto& info) { return std::string(info.param); });

// Nothing is evicted: what the CPU has written it alone has.
class OnFourDevices : public ::testing::TestWithParam<const char*> {};

TEST_P(OnFourDevices, Works) { run(GetParam(), {4}, {{"rolling", "64K"}}, "1000"); }

INSTANTIATE_TEST_SUITE_P(
    Ranges, OnFourDevices,
    ::testing::Values("FourDevicesComputeAtOnce", "WhatACallReadsDoesNotChangeUnderIt",
                      "WhatIsOnlyReadIsCopiedOnce", "WhatNobodyHasWrittenIsNotCopied",
                      "AUseOfTheWholeBringsItTogether", "APackBringsItTogether",
                      "WhatDoesNotFitChangesNothing", "PartsMakeRoomAndHaveItMade",
                      "PartsElsewhereOutliveADevice"),
    [](const auto& info) { return std::string(info.param); });

TEST(InAProcessWithBlocks, AnEvictionOutdatesTheOtherCopies) {
  run("AnEvictionOutdatesTheOtherCopies", {4}, {{"rolling", "64K"}, {"rolling", "4K"}}, "2");
}

TEST(InAProcessWithBlocks, OtherBlocksStayOpenOnTheCpu) {
  run("OtherBlocksStayOpenOnTheCpu", {1, 4}, {{"rolling", "64K"}}, "1000");
}

}  // namespace
}  // namespace gmac::testing
