// SPDX-License-Identifier: Apache-2.0
//
// adsmTransfer on the accelerator that is here: the bytes, whatever the layouts and wherever they
// are current; what moves for it; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/session/runtime.h"
#include "tests/exchange/random_layout.h"
#include "tests/support/child.h"
#include "tests/support/seed.h"
#include "tests/transform_kernel.h"

namespace gmac::datatype {
namespace {

using coherence::Current;
using ::testing::HasSubstr;
using testing::RandomLayout;
using testing::randomLayout;

constexpr std::size_t kBytes = std::size_t{512} << 10;  // of an object

// The committed type of a layout.
adsmType_t typeOf(const Layout& layout) {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> places;
  for (const Block& block : layout.blocks()) {
    lengths.push_back(block.bytes);
    places.push_back(block.offset);
  }
  adsmType_t type = nullptr;
  EXPECT_EQ(adsmTypeHindexed(static_cast<std::int64_t>(lengths.size()), lengths.data(),
                             places.data(), ADSM_TYPE_1, &type),
            adsmSuccess);
  for (auto dim = layout.dims().rbegin(); dim != layout.dims().rend(); ++dim) {
    adsmType_t around = nullptr;
    EXPECT_EQ(adsmTypeHvector(dim->count, 1, dim->stride, type, &around), adsmSuccess);
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
    type = around;
  }
  EXPECT_EQ(adsmTypeCommit(type), adsmSuccess) << adsmLastErrorString();
  return type;
}

adsmType_t vectorOf(std::int64_t count, std::int64_t length, std::int64_t stride) {
  adsmType_t type = nullptr;
  EXPECT_EQ(adsmTypeVector(count, length, stride, ADSM_TYPE_8, &type), adsmSuccess);
  EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
  return type;
}

// Before any other: no device is in use yet.
TEST(TransferAlone, PlainMemoryTakesTheCpu) {
  std::vector<double> source(64 * 64);
  std::iota(source.begin(), source.end(), 0.0);
  std::vector<double> target(64 * 64, -1.0);
  const adsmType_t column = vectorOf(64, 1, 64);
  const adsmType_t pairs = vectorOf(32, 2, 5);
  adsmPackReport_t report = {};
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.report = &report;
  ASSERT_EQ(adsmTransferWith(target.data(), 1, pairs, &source[5], 1, column, &options), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(report.method, adsmMethodCpu);
  EXPECT_EQ(report.bytes, 512);
  for (std::size_t i = 0; i < 160; ++i) {
    const std::size_t element = i / 5 * 2 + i % 5;
    EXPECT_EQ(target[i], i % 5 < 2 ? static_cast<double>(element * 64 + 5) : -1.0) << i;
  }
  options.method = adsmMethodStaged;
  EXPECT_EQ(adsmTransferWith(target.data(), 1, pairs, &source[5], 1, column, &options),
            adsmErrorNotSupported);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("no device is in use"));
  EXPECT_EQ(adsmTypeFree(column), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(pairs), adsmSuccess);
}

// Two objects, and what is to be in them.
class Transfers : public ::testing::Test {
 protected:
  struct Memory {
    std::byte* data;
    std::vector<std::byte> expected;
  };

  void SetUp() override {
    for (Memory* const memory : {&target_, &source_}) {
      memory->data = static_cast<std::byte*>(adsmAlloc(kBytes));
      ASSERT_NE(memory->data, nullptr) << adsmLastErrorString();
      memory->expected.resize(kBytes);
    }
    options_.size = sizeof options_;
    options_.report = &report_;
  }
  void TearDown() override {
    EXPECT_EQ(adsmFree(target_.data), adsmSuccess);
    EXPECT_EQ(adsmFree(source_.data), adsmSuccess);
    EXPECT_TRUE(Runtime::started()->memory().verify().ok()) << adsmLastErrorString();
  }

  void writeByCpu(Memory& memory, std::uint64_t key) {
    for (std::size_t i = 0; i < kBytes; ++i) {
      memory.expected[i] = static_cast<std::byte>(i * 7 + i / 251 + key);
    }
    std::copy(memory.expected.begin(), memory.expected.end(), memory.data);
  }
  void writeByKernel(Memory& memory, std::uint64_t key) {
    kernel_.call(memory.data, kBytes, key);
    for (std::size_t i = 0; i < kBytes; ++i) {
      memory.expected[i] =
          static_cast<std::byte>(static_cast<std::uint8_t>(memory.expected[i]) * 3 + key + i);
    }
  }
  // Reads all, so that both sides have it.
  static bool holds(const Memory& memory) {
    return std::memcmp(memory.data, memory.expected.data(), kBytes) == 0;
  }
  static std::size_t bytesNot(const Memory& memory, Current where) {
    return testing::bytesNot(memory.data, kBytes, where);
  }

  Memory target_;
  Memory source_;
  testing::TransformKernel kernel_;
  adsmPackOptions_t options_ = {};
  adsmPackReport_t report_ = {};
};

TEST_F(Transfers, AnyBytesBetweenAnyLayouts) {
  std::mt19937_64 random(testing::seedOr(1));
  std::set<adsmMethod_t> methods;
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  writeByCpu(target_, 1);
  writeByCpu(source_, 2);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t about = 1 + below(round % 4 == 0 ? 100000 : 3000);
    const RandomLayout from = randomLayout(random, about);
    const RandomLayout to = randomLayout(random, about);
    constexpr std::int64_t kRoom = kBytes - 64;
    if (std::max(from.span, to.span) > kRoom) {
      continue;
    }
    // Some kernel, the CPU, or the last round's check has each side's bytes.
    for (Memory* const memory : {&target_, &source_}) {
      const auto key = static_cast<std::uint64_t>(below(256));
      switch (below(3)) {
        case 0:
          writeByKernel(*memory, key);
          break;
        case 1:
          writeByCpu(*memory, key);
          break;
        default:
          break;
      }
    }
    // As many bytes on both sides: the part that both layouts have, where one is longer.
    const std::int64_t bytes = std::min(from.layout.bytes(), to.layout.bytes());
    const adsmType_t fromType = typeOf(from.layout);
    const adsmType_t toType = typeOf(to.layout);
    const auto cut = [&](const Layout& layout) {
      std::vector<Block> blocks;
      layout.forEach(0, bytes, [&](std::int64_t at, std::int64_t, std::int64_t length) {
        blocks.push_back({at, length});
      });
      Result<Layout> made = Layout::make({}, blocks);
      EXPECT_TRUE(made.ok());
      return typeOf(*made);
    };
    const adsmType_t fromCut = from.layout.bytes() > bytes ? cut(from.layout) : nullptr;
    const adsmType_t toCut = to.layout.bytes() > bytes ? cut(to.layout) : nullptr;
    const std::int64_t fromAt = below(64);
    const std::int64_t toAt = below(64);
    options_.offset = below(2) == 0 ? 0 : below(bytes);
    options_.bytes = below(2) == 0 ? 0 : 1 + below(bytes - options_.offset);
    constexpr adsmMethod_t kMethods[] = {adsmMethodAny, adsmMethodAny, adsmMethodKernel,
                                         adsmMethodStaged, adsmMethodCpu};
    options_.method = kMethods[below(std::size(kMethods))];
    ASSERT_EQ(adsmTransferWith(target_.data + toAt, 1, toCut != nullptr ? toCut : toType,
                               source_.data + fromAt, 1, fromCut != nullptr ? fromCut : fromType,
                               &options_),
              adsmSuccess)
        << adsmLastErrorString();
    const std::int64_t moved = options_.bytes != 0 ? options_.bytes : bytes - options_.offset;
    EXPECT_EQ(report_.bytes, moved);
    methods.insert(report_.method);
    for (std::int64_t i = options_.offset; i < options_.offset + moved; ++i) {
      const auto at = static_cast<std::size_t>(i);
      target_.expected[static_cast<std::size_t>(toAt + to.offsets[at])] =
          source_.expected[static_cast<std::size_t>(fromAt + from.offsets[at])];
    }
    ASSERT_TRUE(holds(target_)) << "seed " << testing::seedOr(1) << ", round " << round << ", "
                                << adsmMethodName(report_.method) << ": " << from.layout.describe()
                                << " to " << to.layout.describe() << " from " << options_.offset;
    ASSERT_TRUE(holds(source_));
    for (const adsmType_t type : {fromType, toType, fromCut, toCut}) {
      EXPECT_TRUE(type == nullptr || adsmTypeFree(type) == adsmSuccess);
    }
  }
  EXPECT_TRUE(methods.contains(adsmMethodKernel));
  EXPECT_TRUE(methods.contains(adsmMethodStaged));
  EXPECT_TRUE(methods.contains(adsmMethodCpu));
}

struct Bus {
  std::uint64_t in = stats().bytesToAccelerator.value();
  std::uint64_t out = stats().bytesToHost.value();
  std::uint64_t faults = stats().readFaults.value() + stats().writeFaults.value();
};

TEST_F(Transfers, BetweenObjectsOfTheAcceleratorsIsOneKernel) {
  const adsmType_t from = vectorOf(1000, 4, 16);
  const adsmType_t to = vectorOf(250, 8, 24);
  for (Memory* const memory : {&target_, &source_}) {
    writeByCpu(*memory, 3);
    writeByKernel(*memory, 4);
  }
  for (const std::int64_t count : {1, 2}) {
    const Bus before;
    // (Twice as many elements of half the bytes.)
    ASSERT_EQ(
        adsmTransferWith(target_.data, 2 * count, to, source_.data + 8, count, from, &options_),
        adsmSuccess)
        << adsmLastErrorString();
    const Bus after;
    EXPECT_EQ(after.in - before.in, 0);
    EXPECT_EQ(after.out - before.out, 0);
    EXPECT_EQ(after.faults - before.faults, 0);
    EXPECT_EQ(report_.method, adsmMethodKernel);
    EXPECT_EQ(report_.launches, 1);
    EXPECT_EQ(report_.bytes, count * 32000);
    EXPECT_EQ(report_.bytesAcross, 0);
    EXPECT_EQ(report_.bytesOnCpu, 0);
    EXPECT_EQ(bytesNot(target_, Current::kAccelerator), 0);
    EXPECT_EQ(bytesNot(source_, Current::kAccelerator), 0);
    const auto elementAt = [](std::int64_t i, std::int64_t length, std::int64_t stride,
                              std::int64_t blocks) {
      const std::int64_t extent = (blocks - 1) * stride + length;
      return i / (blocks * length) * extent + i / length % blocks * stride + i % length;
    };
    for (std::int64_t i = 0; i < count * 4000; ++i) {
      std::memcpy(target_.expected.data() + 8 * elementAt(i, 8, 24, 250),
                  source_.expected.data() + 8 + 8 * elementAt(i, 4, 16, 1000), 8);
    }
  }
  EXPECT_TRUE(holds(target_));
  EXPECT_EQ(adsmTypeFree(from), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(to), adsmSuccess);
}

TEST_F(Transfers, FromAnObjectToTheCpusOwnMemoryAndBack) {
  const adsmType_t from = vectorOf(3000, 2, 8);
  const adsmType_t to = vectorOf(2000, 3, 4);
  writeByCpu(source_, 5);
  writeByKernel(source_, 6);
  std::vector<std::uint64_t> plain(8000, 7);
  std::vector<std::uint64_t> expected = plain;
  const auto* const words = reinterpret_cast<const std::uint64_t*>(source_.expected.data());
  for (std::size_t i = 0; i < 6000; ++i) {
    expected[i / 3 * 4 + i % 3] = words[i / 2 * 8 + i % 2];
  }
  ASSERT_EQ(adsmTransferWith(plain.data(), 1, to, source_.data, 1, from, &options_), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(report_.method, adsmMethodStaged) << "they are at different places";
  EXPECT_EQ(plain, expected);
  EXPECT_EQ(bytesNot(source_, Current::kAccelerator), 0);

  std::memset(source_.data, 0, kBytes);
  std::fill(source_.expected.begin(), source_.expected.end(), std::byte{0});
  writeByKernel(source_, 7);
  for (std::size_t i = 0; i < 6000; ++i) {
    std::memcpy(source_.expected.data() + 8 * (i / 2 * 8 + i % 2), &plain[i / 3 * 4 + i % 3], 8);
  }
  ASSERT_EQ(adsmTransferWith(source_.data, 1, from, plain.data(), 1, to, &options_), adsmSuccess);
  EXPECT_EQ(report_.method, adsmMethodStaged);
  EXPECT_TRUE(holds(source_));
  EXPECT_EQ(adsmTypeFree(from), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(to), adsmSuccess);
}

TEST_F(Transfers, WhatTheCpuHasIsCopiedThere) {
  const adsmType_t from = vectorOf(1000, 2, 8);
  const adsmType_t to = vectorOf(500, 4, 6);
  writeByCpu(source_, 1);
  writeByCpu(target_, 2);
  const Bus before;
  ASSERT_EQ(adsmTransferWith(target_.data, 1, to, source_.data, 1, from, &options_), adsmSuccess);
  const Bus after;
  EXPECT_EQ(report_.method, adsmMethodCpu);
  EXPECT_EQ(report_.bytesOnCpu, 16000);
  EXPECT_EQ(after.out - before.out, 0);
  for (std::size_t i = 0; i < 2000; ++i) {
    std::memcpy(target_.expected.data() + 8 * (i / 4 * 6 + i % 4),
                source_.expected.data() + 8 * (i / 2 * 8 + i % 2), 8);
  }
  EXPECT_TRUE(holds(target_));
  EXPECT_EQ(adsmTypeFree(from), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(to), adsmSuccess);
}

// Both types have tables, which the first use fills.
TEST_F(Transfers, ThreadsCopyBetweenListsAtOnce) {
  constexpr std::int64_t kPieces = 4000;
  writeByCpu(source_, 1);
  writeByCpu(target_, 2);
  writeByKernel(source_, 3);
  writeByKernel(target_, 4);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  constexpr std::int64_t kPart = kBytes / 4;
  for (std::int64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      std::vector<std::int64_t> fromPlaces(kPieces);
      std::vector<std::int64_t> toPlaces(kPieces);
      for (std::int64_t i = 0; i < kPieces; ++i) {
        fromPlaces[static_cast<std::size_t>(i)] = i * 32 + i * i % 251 % 6 * 4;
        toPlaces[static_cast<std::size_t>(i)] = i * 24 + i * i % 509 % 4 * 4;
      }
      const auto listed = [&](const std::vector<std::int64_t>& places) {
        adsmType_t type = nullptr;
        wrong[static_cast<std::size_t>(number)] +=
            adsmTypeHindexedBlock(kPieces, 2, places.data(), ADSM_TYPE_4, &type) != adsmSuccess;
        wrong[static_cast<std::size_t>(number)] += adsmTypeCommit(type) != adsmSuccess;
        return type;
      };
      for (int turn = 0; turn < 10; ++turn) {
        const adsmType_t from = listed(fromPlaces);
        const adsmType_t to = listed(toPlaces);
        for (int again = 0; again < 2; ++again) {
          wrong[static_cast<std::size_t>(number)] +=
              adsmTransfer(target_.data + number * kPart, 1, to, source_.data + number * kPart, 1,
                           from) != adsmSuccess;
        }
        wrong[static_cast<std::size_t>(number)] += adsmTypeFree(from) != adsmSuccess;
        wrong[static_cast<std::size_t>(number)] += adsmTypeFree(to) != adsmSuccess;
      }
      for (std::int64_t i = 0; i < kPieces; ++i) {
        std::memcpy(
            target_.expected.data() + number * kPart + toPlaces[static_cast<std::size_t>(i)],
            source_.expected.data() + number * kPart + fromPlaces[static_cast<std::size_t>(i)], 8);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(wrong, ::testing::Each(0));
  EXPECT_TRUE(holds(target_));
}

TEST_F(Transfers, AnEventTellsTheEnd) {
  const adsmType_t from = vectorOf(1000, 2, 8);
  const adsmType_t to = vectorOf(500, 4, 6);
  writeByCpu(source_, 1);
  writeByCpu(target_, 2);
  writeByKernel(source_, 3);
  adsmPackEvent_t event = nullptr;
  options_.event = &event;
  for (const adsmMethod_t method : {adsmMethodKernel, adsmMethodStaged, adsmMethodCpu}) {
    options_.method = method;
    ASSERT_EQ(adsmTransferWith(target_.data, 1, to, source_.data, 1, from, &options_), adsmSuccess);
    while (adsmPackDone(event) == 0) {
      std::this_thread::yield();
    }
    EXPECT_EQ(adsmPackWait(event), adsmSuccess);
  }
  EXPECT_EQ(adsmTypeFree(from), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(to), adsmSuccess);
}

TEST_F(Transfers, TakesASideInAGapOfTheOther) {
  const std::int64_t lengths[] = {64, 64};
  const std::int64_t offsets[] = {0, 8000};
  adsmType_t apart = nullptr;
  ASSERT_EQ(adsmTypeHindexed(2, lengths, offsets, ADSM_TYPE_1, &apart), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(apart), adsmSuccess);
  const adsmType_t inside = vectorOf(8, 2, 5);
  writeByCpu(source_, 1);
  auto* const data = static_cast<std::uint8_t*>(static_cast<void*>(source_.data));
  const std::vector<std::uint8_t> before(data, data + 8064);
  ASSERT_EQ(adsmTransfer(data + 100, 1, inside, data, 1, apart), adsmSuccess)
      << adsmLastErrorString();
  for (std::size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(data[100 + i / 16 * 40 + i % 16], before[i < 64 ? i : 7936 + i]) << i;
  }
  EXPECT_EQ(adsmTransfer(data + 4, 1, apart, data, 1, apart), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("overlap"));
  EXPECT_EQ(adsmTypeFree(apart), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(inside), adsmSuccess);
}

TEST_F(Transfers, SaysWhatIsWrong) {
  const adsmType_t from = vectorOf(100, 2, 8);
  const adsmType_t to = vectorOf(50, 4, 6);
  writeByCpu(source_, 1);
  writeByCpu(target_, 2);
  void* const data = target_.data;
  const auto refused = [&](adsmError_t code, adsmError_t wanted, const char* words) {
    EXPECT_EQ(code, wanted) << words;
    EXPECT_THAT(adsmLastErrorString(), HasSubstr(words));
  };
  refused(adsmTransfer(data, -1, to, source_.data, 1, from), adsmErrorInvalidValue,
          "adsmTransfer: targetCount is -1; 0 or more is allowed");
  refused(adsmTransfer(data, 1, to, source_.data, -7, from), adsmErrorInvalidValue,
          "sourceCount is -7");
  refused(adsmTransfer(data, 2, to, source_.data, 1, from), adsmErrorInvalidValue,
          "2 elements of targetType have 3200 bytes, and 1 of sourceType have 1600");
  refused(adsmTransfer(data, 1, nullptr, source_.data, 1, from), adsmErrorInvalidValue,
          "targetType is NULL");
  refused(adsmTransfer(data, 1, to, source_.data, 1, reinterpret_cast<adsmType_t>(0x77)),
          adsmErrorInvalidValue, "sourceType is 0x77, which is no type");
  refused(adsmTransfer(nullptr, 1, to, source_.data, 1, from), adsmErrorInvalidValue,
          "target is NULL, and 1600 bytes are to be moved");
  refused(adsmTransfer(data, 1, to, nullptr, 1, from), adsmErrorInvalidValue, "source is NULL");
  refused(adsmTransfer(source_.data + 1592, 1, to, source_.data, 1, from), adsmErrorInvalidValue,
          "overlap");
  adsmType_t uncommitted = nullptr;
  ASSERT_EQ(adsmTypeContiguous(3, ADSM_TYPE_8, &uncommitted), adsmSuccess);
  refused(adsmTransfer(data, 1, to, source_.data, 1, uncommitted), adsmErrorInvalidValue,
          "is not committed");
  EXPECT_EQ(adsmTypeFree(uncommitted), adsmSuccess);
  EXPECT_EQ(adsmTransfer(nullptr, 0, to, nullptr, 0, from), adsmSuccess) << "nothing to move";

  const auto refusedWith = [&](adsmError_t wanted, const char* words) {
    refused(adsmTransferWith(data, 1, to, source_.data, 1, from, &options_), wanted, words);
  };
  options_.size = 4;
  refusedWith(adsmErrorInvalidValue, "options.size is 4");
  options_.size = sizeof options_;
  options_.offset = 1601;
  refusedWith(adsmErrorInvalidValue, "options.offset is 1601");
  options_.offset = 10;
  options_.bytes = 1600;
  refusedWith(adsmErrorInvalidValue, "options.bytes is 1600");
  options_.offset = options_.bytes = 0;
  options_.method = adsmMethodCopy;
  refusedWith(adsmErrorNotSupported, "transfers have any, kernel, copy2d, staged and cpu");
  options_.method = adsmMethodKernel;
  std::vector<std::byte> plain(8000);
  refused(adsmTransferWith(plain.data(), 1, to, source_.data, 1, from, &options_),
          adsmErrorNotSupported, "kernels of transfers do not reach");
  EXPECT_TRUE(holds(target_)) << "a failed call changes nothing";
  EXPECT_EQ(adsmTypeFree(from), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(to), adsmSuccess);
}

TEST_F(Transfers, APartMayBeOfALongerType) {
  const adsmType_t from = vectorOf(1000, 2, 8);
  const adsmType_t to = vectorOf(50, 4, 6);
  writeByCpu(source_, 1);
  writeByCpu(target_, 2);
  options_.offset = 160;
  options_.bytes = 1440;
  for (const adsmMethod_t method : {adsmMethodKernel, adsmMethodStaged, adsmMethodCpu}) {
    options_.method = method;
    ASSERT_EQ(adsmTransferWith(target_.data, 1, to, source_.data, 1, from, &options_), adsmSuccess)
        << adsmLastErrorString();
    for (std::size_t i = 20; i < 200; ++i) {
      std::memcpy(target_.expected.data() + 8 * (i / 4 * 6 + i % 4),
                  source_.expected.data() + 8 * (i / 2 * 8 + i % 2), 8);
    }
    EXPECT_TRUE(holds(target_));
    writeByCpu(target_, 3);
  }
  options_.bytes = 1441;
  EXPECT_EQ(adsmTransferWith(target_.data, 1, to, source_.data, 1, from, &options_),
            adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("options.bytes is 1441; allowed are 1 to 1440"));
  options_.bytes = 0;
  EXPECT_EQ(adsmTransferWith(target_.data, 1, to, source_.data, 1, from, &options_),
            adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("have 16000; both must have the same"));
  EXPECT_TRUE(holds(target_));
  EXPECT_EQ(adsmTypeFree(from), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(to), adsmSuccess);
}

class TransfersUnder : public ::testing::TestWithParam<const char*> {};

TEST_P(TransfersUnder, DoTheSame) {
  const auto end = gmac::testing::runChild("Transfers.*", {{"GMAC_PROTOCOL", GetParam()}});
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  EXPECT_THAT(end.output, HasSubstr("[  PASSED  ]"));
}
INSTANTIATE_TEST_SUITE_P(, TransfersUnder, ::testing::Values("batch", "lazy"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gmac::datatype
