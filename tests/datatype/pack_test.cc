// SPDX-License-Identifier: Apache-2.0
//
// Packs and unpacks of shared objects on the accelerator that is here: what moves for them, what
// they leave where, and what is refused. (That the bytes are right whatever the type and the states
// is random_program_test's.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/protocols/protocol.h"
#include "gmac/session/runtime.h"
#include "tests/support/child.h"
#include "tests/transform_kernel.h"

namespace gmac::datatype {
namespace {

using coherence::Current;
using ::testing::HasSubstr;

constexpr std::int64_t kEdge = 128;  // of a grid of doubles: 16 MiB
constexpr std::size_t kGridBytes = kEdge * kEdge * kEdge * sizeof(double);

// An element of a grid of zeros that transformBytes has been over.
double elementAt(std::int64_t index, std::uint64_t key) {
  std::uint8_t bytes[sizeof(double)];
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] =
        static_cast<std::uint8_t>(key + static_cast<std::uint64_t>(index) * sizeof(double) + i);
  }
  double value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// To the bit: what kernels make may be no number.
bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

struct Face {
  const char* name;
  std::int64_t sizes[3];
  std::int64_t starts[3];
};
constexpr Face kFaces[] = {{"XY", {1, kEdge, kEdge}, {5, 0, 0}},
                           {"XZ", {kEdge, 1, kEdge}, {0, 7, 0}},
                           {"YZ", {kEdge, kEdge, 1}, {0, 0, 9}}};
constexpr std::int64_t kFaceElements = kEdge * kEdge;
constexpr std::int64_t kFaceBytes = kFaceElements * static_cast<std::int64_t>(sizeof(double));

adsmType_t faceType(const Face& face) {
  const std::int64_t sizes[] = {kEdge, kEdge, kEdge};
  adsmType_t type = nullptr;
  EXPECT_EQ(adsmTypeSubarray(3, sizes, face.sizes, face.starts, adsmOrderC, ADSM_TYPE_8, &type),
            adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
  return type;
}

// Where in the grid the i-th element of a face lies.
std::int64_t indexOf(const Face& face, std::int64_t i) {
  std::int64_t at[3];
  for (int d = 2; d >= 0; --d) {
    at[d] = face.starts[d] + i % face.sizes[d];
    i /= face.sizes[d];
  }
  return (at[0] * kEdge + at[1]) * kEdge + at[2];
}

struct Bus {
  std::uint64_t in = stats().bytesToAccelerator.value();
  std::uint64_t out = stats().bytesToHost.value();
  std::uint64_t faults = stats().readFaults.value() + stats().writeFaults.value();
};

// A grid that a kernel can write, for one test.
class Pack : public ::testing::Test {
 protected:
  void SetUp() override {
    grid_ = static_cast<double*>(adsmAlloc(kGridBytes));
    ASSERT_NE(grid_, nullptr) << adsmLastErrorString();
    options_.size = sizeof options_;
    options_.report = &report_;
  }
  void TearDown() override {
    EXPECT_EQ(adsmFree(grid_), adsmSuccess);
    EXPECT_TRUE(Runtime::started()->memory().verify().ok()) << adsmLastErrorString();
  }

  void writeByKernel(std::uint64_t key) { kernel_.call(grid_, kGridBytes, key); }

  // Blocks that are not where `where` says.
  std::size_t bytesNot(Current where) { return testing::bytesNot(grid_, kGridBytes, where); }

  static std::string_view protocol() { return Runtime::started()->memory().protocol().name(); }

  double* grid_ = nullptr;
  testing::TransformKernel kernel_;
  adsmPackOptions_t options_ = {};
  adsmPackReport_t report_ = {};
};

// Of protocols that fetch what kernels have written only where the CPU accesses it (not batch).
class PackFetchingOnDemand : public Pack {};
// Of protocols whose objects have several blocks (rolling alone).
class PackOfBlocks : public Pack {};

TEST_F(Pack, AFaceThatAKernelWroteMovesAlone) {
  std::vector<double> packed(kFaceElements);
  for (const Face& face : kFaces) {
    std::memset(grid_, 0, kGridBytes);
    writeByKernel(11);
    const adsmType_t type = faceType(face);
    const Bus before;
    ASSERT_EQ(adsmPackWith(packed.data(), grid_, 1, type, &options_), adsmSuccess)
        << adsmLastErrorString();
    const Bus after;
    EXPECT_EQ(after.in - before.in, 0) << face.name;
    EXPECT_EQ(after.out - before.out, 0) << face.name << ": fetched";
    EXPECT_EQ(after.faults - before.faults, 0) << face.name;
    EXPECT_EQ(report_.bytes, kFaceBytes);
    EXPECT_EQ(report_.bytesAcross, kFaceBytes);
    EXPECT_EQ(report_.bytesOnCpu, 0);
    for (std::int64_t i = 0; i < kFaceElements; ++i) {
      ASSERT_TRUE(same(packed[static_cast<std::size_t>(i)], elementAt(indexOf(face, i), 11)))
          << face.name << " " << i;
    }
    EXPECT_EQ(bytesNot(Current::kAccelerator), 0) << "what was packed stays where it is";
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  }
}

TEST_F(Pack, AFaceIsUnpackedIntoTheAcceleratorsCopy) {
  std::vector<double> packed(kFaceElements);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    packed[i] = static_cast<double>(i) + 0.5;
  }
  for (const Face& face : kFaces) {
    std::memset(grid_, 0, kGridBytes);
    writeByKernel(3);
    const adsmType_t type = faceType(face);
    const Bus before;
    ASSERT_EQ(adsmUnpackWith(grid_, packed.data(), 1, type, &options_), adsmSuccess)
        << adsmLastErrorString();
    const Bus after;
    EXPECT_EQ(after.in - before.in, 0) << face.name << ": whole blocks moved";
    EXPECT_EQ(after.out - before.out, 0) << face.name;
    EXPECT_EQ(after.faults - before.faults, 0) << face.name;
    EXPECT_EQ(report_.bytesAcross, kFaceBytes);
    ASSERT_EQ(adsmSync(), adsmSuccess);
    for (std::int64_t i = 0; i < kFaceElements; ++i) {
      ASSERT_EQ(grid_[indexOf(face, i)], packed[static_cast<std::size_t>(i)]) << face.name;
    }
    const std::int64_t beside =
        indexOf(face, kFaceElements / 2) + (face.sizes[2] == 1 ? 1 : kEdge * kEdge + kEdge);
    EXPECT_TRUE(same(grid_[beside], elementAt(beside, 3))) << face.name << ", beside it";
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  }
}

TEST_F(PackFetchingOnDemand, AnUnpackLeavesOtherBlocksAsTheyAre) {
  std::memset(grid_, 0, kGridBytes);
  const std::size_t block = Runtime::started()->memory().options().blockBytes;
  writeByKernel(1);
  ASSERT_EQ(adsmSync(), adsmSuccess);
  for (std::size_t at = 0; at < kGridBytes; at += sizeof(double) * 512) {
    (void)*reinterpret_cast<volatile double*>(reinterpret_cast<std::byte*>(grid_) + at);
  }
  if (protocol() == "lazy") {
    EXPECT_EQ(bytesNot(Current::kBoth), 0);
  }
  ASSERT_EQ(bytesNot(Current::kBoth), 0);
  const adsmType_t type = faceType(kFaces[0]);  // contiguous: 128 KiB
  std::vector<double> packed(kFaceElements, 4.0);
  ASSERT_EQ(adsmUnpack(grid_, packed.data(), 1, type), adsmSuccess) << adsmLastErrorString();
  const std::size_t most = protocol() == "lazy" ? kGridBytes : kFaceBytes + 2 * block;
  EXPECT_LE(bytesNot(Current::kBoth), most);
  EXPECT_GE(bytesNot(Current::kBoth), static_cast<std::size_t>(kFaceBytes));
  EXPECT_EQ(grid_[indexOf(kFaces[0], 77)], 4.0);
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
}

// As one that receives a buffer element by element, in many messages.
TEST_F(Pack, ManyPiecesInARowAreMovedByTheCpuOnceItHasTheirBlock) {
  constexpr std::int64_t kPieces = 2000;
  const auto moveAll = [&](bool packs, int* across) {
    const Bus before;
    for (std::int64_t i = 0; i < kPieces; ++i) {
      double piece = static_cast<double>(i) + 0.5;
      const auto move = packs ? adsmPackWith : adsmUnpackWith;
      void* const to = packs ? static_cast<void*>(&piece) : grid_ + i;
      const void* const from = packs ? static_cast<const void*>(grid_ + i) : &piece;
      ASSERT_EQ(move(to, from, 1, ADSM_TYPE_8, &options_), adsmSuccess) << adsmLastErrorString();
      *across += report_.bytesAcross != 0 ? 1 : 0;
      ASSERT_TRUE(!packs || same(piece, elementAt(i, 5))) << i;
    }
    const Bus after;
    const std::size_t block = Runtime::started()->memory().options().blockBytes;
    EXPECT_LE(after.out - before.out, protocol() == "rolling" ? 2 * block : kGridBytes);
    EXPECT_EQ(after.faults - before.faults, 0);
  };
  for (const bool packs : {true, false}) {
    std::memset(grid_, 0, kGridBytes);
    writeByKernel(5);
    int across = 0;
    moveAll(packs, &across);
    EXPECT_LE(across, kPieces / 4) << "packs: " << packs;
  }
  for (std::int64_t i = 0; i < kPieces; ++i) {
    ASSERT_EQ(grid_[i], static_cast<double>(i) + 0.5);
  }
  EXPECT_TRUE(same(grid_[kPieces], elementAt(kPieces, 5))) << "beside them";
}

// As one that has all of its memory in objects, and receives into a buffer again and again.
TEST_F(Pack, WhatTheCpuReadsAfterEachUnpackStaysWithTheCpu) {
  constexpr int kRounds = 60;
  constexpr std::int64_t kPiece = 1500;  // in more than one block
  std::vector<double> packed(kPiece);
  writeByKernel(5);
  ASSERT_EQ(adsmSync(), adsmSuccess);
  int across = 0;
  const Bus before;
  for (int round = 0; round < kRounds; ++round) {
    std::fill(packed.begin(), packed.end(), round);
    ASSERT_EQ(adsmUnpackWith(grid_, packed.data(), kPiece, ADSM_TYPE_8, &options_), adsmSuccess)
        << adsmLastErrorString();
    across += report_.bytesAcross != 0 ? 1 : 0;
    for (std::int64_t i = 0; i < kPiece; ++i) {
      ASSERT_EQ(grid_[i], round);
    }
  }
  const Bus after;
  EXPECT_LE(across, kRounds / 2);
  EXPECT_LE(after.faults - before.faults, 4 * static_cast<std::uint64_t>(across));
  EXPECT_TRUE(same(grid_[kPiece], elementAt(kPiece, 5))) << "beside them";
}

// Each kernel takes the block away again, so that opening it would not be worth it.
TEST_F(PackFetchingOnDemand, PiecesBetweenKernelsAreMovedByTheAccelerator) {
  for (int i = 0; i < 100; ++i) {
    writeByKernel(5);
    const double piece = i;
    ASSERT_EQ(adsmUnpackWith(grid_ + i, &piece, 1, ADSM_TYPE_8, &options_), adsmSuccess);
    EXPECT_EQ(report_.bytesAcross, 8) << i;
    EXPECT_EQ(report_.bytesOnCpu, 0) << i;
  }
}

TEST_F(PackOfBlocks, WhatTheCpuHasIsPackedThereAndTheRestOnTheAccelerator) {
  std::memset(grid_, 0, kGridBytes);
  writeByKernel(11);
  ASSERT_EQ(adsmSync(), adsmSuccess);
  constexpr std::int64_t kHalf = kEdge / 2 * kEdge * kEdge;
  for (std::int64_t i = 0; i < kHalf; ++i) {
    grid_[i] = static_cast<double>(i);
  }
  const Face& face = kFaces[2];
  const adsmType_t type = faceType(face);
  std::vector<double> packed(kFaceElements);
  const Bus before;
  ASSERT_EQ(adsmPackWith(packed.data(), grid_, 1, type, &options_), adsmSuccess)
      << adsmLastErrorString();
  const Bus after;
  EXPECT_EQ(after.in - before.in, 0) << "nothing is flushed for it";
  EXPECT_EQ(after.out - before.out, 0);
  EXPECT_GT(report_.bytesOnCpu, 0);
  EXPECT_GT(report_.bytesAcross, 0);
  EXPECT_EQ(report_.bytesOnCpu + report_.bytesAcross, kFaceBytes);
  for (std::int64_t i = 0; i < kFaceElements; ++i) {
    const std::int64_t at = indexOf(face, i);
    const double expected = at < kHalf ? static_cast<double>(at) : elementAt(at, 11);
    ASSERT_TRUE(same(packed[static_cast<std::size_t>(i)], expected)) << i;
  }
  // Into another object: what the CPU has is packed there and follows, packed.
  auto* const object = static_cast<double*>(adsmAlloc(static_cast<std::size_t>(kFaceBytes)));
  ASSERT_EQ(adsmPackWith(object, grid_, 1, type, &options_), adsmSuccess) << adsmLastErrorString();
  EXPECT_EQ(report_.bytesAcross, report_.bytesOnCpu);
  EXPECT_TRUE(std::equal(packed.begin(), packed.end(), object, same));
  EXPECT_EQ(adsmFree(object), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
}

TEST_F(Pack, PartsMakeTheWhole) {
  std::memset(grid_, 0, kGridBytes);
  writeByKernel(5);
  const adsmType_t type = faceType(kFaces[2]);
  std::vector<std::uint8_t> whole(static_cast<std::size_t>(kFaceBytes));
  std::vector<std::uint8_t> parts(whole.size());
  ASSERT_EQ(adsmPack(whole.data(), grid_, 1, type), adsmSuccess);
  const std::int64_t cuts[] = {0, 1, 1000, 4096, 70001, kFaceBytes};
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
    options_.offset = cuts[i];
    options_.bytes = cuts[i + 1] - cuts[i];
    ASSERT_EQ(adsmPackWith(parts.data() + cuts[i], grid_, 1, type, &options_), adsmSuccess);
    EXPECT_EQ(report_.bytes, options_.bytes);
  }
  EXPECT_EQ(whole, parts);
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
}

TEST_F(Pack, AnEventTellsTheEnd) {
  std::memset(grid_, 0, kGridBytes);
  writeByKernel(5);
  const adsmType_t type = faceType(kFaces[2]);
  std::vector<double> packed(kFaceElements);
  adsmPackEvent_t event = nullptr;
  options_.event = &event;
  ASSERT_EQ(adsmPackWith(packed.data(), grid_, 1, type, &options_), adsmSuccess);
  ASSERT_NE(event, nullptr);
  while (adsmPackDone(event) == 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(adsmPackWait(event), adsmSuccess);
  EXPECT_TRUE(same(packed[100], elementAt(indexOf(kFaces[2], 100), 5)));
  EXPECT_EQ(adsmPackWait(nullptr), adsmErrorInvalidValue);
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
}

TEST_F(Pack, ThreadsPackAndUnpackAtOnce) {
  std::memset(grid_, 0, kGridBytes);
  writeByKernel(21);
  std::vector<std::thread> threads;
  std::vector<int> wrong(6);
  for (int number = 0; number < 6; ++number) {
    threads.emplace_back([&, number] {
      // Planes of its own.
      Face face = kFaces[0];
      face.starts[0] = 10 + number;
      const adsmType_t type = faceType(face);
      std::vector<double> packed(kFaceElements);
      for (int turn = 0; turn < 20; ++turn) {
        wrong[static_cast<std::size_t>(number)] +=
            adsmPack(packed.data(), grid_, 1, type) != adsmSuccess;
        const double expected = turn == 0 ? elementAt(indexOf(face, 9), 21) : turn;
        wrong[static_cast<std::size_t>(number)] += same(packed[9], expected) ? 0 : 1;
        packed.assign(packed.size(), turn + 1);
        wrong[static_cast<std::size_t>(number)] +=
            adsmUnpack(grid_, packed.data(), 1, type) != adsmSuccess;
      }
      (void)adsmTypeFree(type);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(wrong, ::testing::Each(0));
}

// Its table is filled in steps, and a kernel follows each; the objects are released for all of
// them.
TEST_F(Pack, ALongListsFirstUseIsLikeTheOthers) {
  constexpr std::int64_t kPieces = 200000;
  std::vector<std::int64_t> places(kPieces);
  for (std::int64_t i = 0; i < kPieces; ++i) {
    places[static_cast<std::size_t>(i)] = i * 10 + i * i % 251 % 7;
  }
  const auto listed = [&] {
    adsmType_t type = nullptr;
    EXPECT_EQ(adsmTypeIndexedBlock(kPieces, 1, places.data(), ADSM_TYPE_8, &type), adsmSuccess);
    EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
    return type;
  };
  auto* const packed = static_cast<double*>(adsmAlloc(kPieces * sizeof(double)));
  ASSERT_NE(packed, nullptr);
  options_.method = adsmMethodKernel;
  std::memset(grid_, 0, kGridBytes);
  writeByKernel(9);
  const adsmType_t type = listed();
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_EQ(adsmPackWith(packed, grid_, 1, type, &options_), adsmSuccess)
        << adsmLastErrorString();
    if (turn == 0) {
      EXPECT_GT(report_.launches, 2);
    } else {
      EXPECT_EQ(report_.launches, 1);
    }
    ASSERT_EQ(adsmSync(), adsmSuccess);
    for (std::int64_t i = 0; i < kPieces; ++i) {
      ASSERT_TRUE(same(packed[i], elementAt(places[static_cast<std::size_t>(i)], 9))) << i;
      packed[i] = static_cast<double>(i) + 0.5;
    }
  }
  // And unpacked: by a type that the engine has not met.
  const adsmType_t other = listed();
  ASSERT_EQ(adsmUnpackWith(grid_, packed, 1, other, &options_), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_GT(report_.launches, 2);
  ASSERT_EQ(adsmSync(), adsmSuccess);
  std::int64_t next = 0;
  for (std::int64_t at = 0; at <= places.back(); ++at) {
    const bool listedHere = places[static_cast<std::size_t>(next)] == at;
    const double expected = listedHere ? static_cast<double>(next++) + 0.5 : elementAt(at, 9);
    ASSERT_TRUE(same(grid_[at], expected)) << at;
  }
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(other), adsmSuccess);
  EXPECT_EQ(adsmFree(packed), adsmSuccess);
}

// So many that no cache holds them: where a device has a pace, it packs them at that.
TEST_F(Pack, ManyShortRowsFarApart) {
  constexpr std::int64_t kRows = 400'000;
  constexpr std::int64_t kStride = 272;
  constexpr auto kBytes = static_cast<std::size_t>(kRows * kStride);
  constexpr std::size_t kPackedBytes = kRows * 32 + 1;
  auto* const source = static_cast<std::uint8_t*>(adsmAlloc(kBytes));
  auto* const packed = static_cast<std::uint8_t*>(adsmAlloc(kPackedBytes));
  ASSERT_TRUE(source != nullptr && packed != nullptr) << adsmLastErrorString();
  std::memset(source, 0, kBytes);
  constexpr std::uint64_t kKey = 11;
  kernel_.call(source, kBytes, kKey);
  for (const std::int64_t row : {4, 8, 16, 20, 24, 32}) {
    adsmType_t type = nullptr;
    ASSERT_EQ(adsmTypeVector(kRows, row, kStride, ADSM_TYPE_1, &type), adsmSuccess);
    ASSERT_EQ(adsmTypeCommit(type), adsmSuccess);
    for (const std::int64_t left : {0, 5}) {  // at the beginning and at the end
      std::memset(packed, 0xee, kPackedBytes);
      options_.offset = left;
      options_.bytes = kRows * row - 2 * left;
      ASSERT_EQ(adsmPackWith(packed, source + 16, 1, type, &options_), adsmSuccess)
          << adsmLastErrorString();
      for (std::int64_t i = 0; i < options_.bytes; ++i) {
        const std::int64_t at = 16 + (i + left) / row * kStride + (i + left) % row;
        ASSERT_EQ(packed[i], static_cast<std::uint8_t>(kKey + static_cast<std::uint64_t>(at)))
            << "byte " << i << " of rows of " << row;
      }
      EXPECT_EQ(packed[options_.bytes], 0xee);
    }
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  }
  options_.offset = options_.bytes = 0;
  EXPECT_EQ(adsmFree(packed), adsmSuccess);
  EXPECT_EQ(adsmFree(source), adsmSuccess);
}

// As of a type of two allocations, with the packed bytes in a third between them.
TEST_F(Pack, TakesPackedBytesInAGapOfTheType) {
  std::memset(grid_, 0, kGridBytes);
  constexpr std::int64_t kPiece = 5;
  const std::int64_t lengths[] = {kPiece, kPiece};
  const std::int64_t offsets[] = {0, 40 * sizeof(double)};
  adsmType_t type = nullptr;
  ASSERT_EQ(adsmTypeHindexed(2, lengths, offsets, ADSM_TYPE_8, &type), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(type), adsmSuccess);
  for (int i = 0; i < kPiece; ++i) {
    grid_[i] = 1 + i;
    grid_[40 + i] = 11 + i;
  }
  double* const packed = grid_ + kPiece;
  ASSERT_EQ(adsmPack(packed, grid_, 1, type), adsmSuccess) << adsmLastErrorString();
  for (int i = 0; i < kPiece; ++i) {
    EXPECT_EQ(packed[i], 1 + i);
    EXPECT_EQ(packed[kPiece + i], 11 + i);
    packed[i] = 21 + i;
    packed[kPiece + i] = 31 + i;
  }
  ASSERT_EQ(adsmUnpack(grid_, packed, 1, type), adsmSuccess) << adsmLastErrorString();
  for (int i = 0; i < kPiece; ++i) {
    EXPECT_EQ(grid_[i], 21 + i);
    EXPECT_EQ(grid_[40 + i], 31 + i);
  }
  EXPECT_EQ(adsmPack(packed - 1, grid_, 1, type), adsmErrorInvalidValue);
  EXPECT_EQ(adsmPack(grid_ + 31, grid_, 1, type), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("overlap"));
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
}

TEST_F(Pack, SaysWhatIsWrong) {
  std::memset(grid_, 0, kGridBytes);
  const adsmType_t type = faceType(kFaces[2]);
  std::vector<double> packed(kFaceElements);
  const auto refused = [&](adsmError_t code, const char* words) {
    EXPECT_EQ(adsmPackWith(packed.data(), grid_, 1, type, &options_), code) << words;
    EXPECT_THAT(adsmLastErrorString(), HasSubstr(words));
  };
  EXPECT_EQ(adsmPack(packed.data(), grid_, -1, type), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("count is -1"));
  EXPECT_EQ(adsmPack(nullptr, grid_, 1, type), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("target is NULL"));
  EXPECT_EQ(adsmPack(grid_ + 9, grid_, 1, type), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("overlap"));
  EXPECT_EQ(adsmPack(packed.data(), grid_, 0, type), adsmSuccess);
  adsmType_t uncommitted = nullptr;
  ASSERT_EQ(adsmTypeContiguous(3, ADSM_TYPE_8, &uncommitted), adsmSuccess);
  EXPECT_EQ(adsmPack(packed.data(), grid_, 1, uncommitted), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("commit"));
  EXPECT_EQ(adsmTypeFree(uncommitted), adsmSuccess);

  options_.size = 4;
  refused(adsmErrorInvalidValue, "options.size is 4");
  options_.size = sizeof options_;
  options_.offset = kFaceBytes + 1;
  refused(adsmErrorInvalidValue, "options.offset is 131073");
  options_.offset = 10;
  options_.bytes = kFaceBytes;
  refused(adsmErrorInvalidValue, "options.bytes is 131072");
  options_.offset = options_.bytes = 0;
  options_.blocks = -2;
  refused(adsmErrorInvalidValue, "options.blocks is -2");
  options_.blocks = 0;
  options_.method = static_cast<adsmMethod_t>(17);
  refused(adsmErrorInvalidValue, "options.method is 17");
  options_.method = adsmMethodKernel;
  refused(adsmErrorNotSupported, "not pinned");
  options_.method = adsmMethodCopy2d;
  options_.bytes = 100;
  refused(adsmErrorNotSupported, "whole strided layouts");
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
}

// A thread finds its last pack more quickly; it may notice nothing else of that.
TEST_F(Pack, TakesTheTypeAndTheCountThatItIsGiven) {
  std::vector<std::uint8_t> source(64);
  std::iota(source.begin(), source.end(), std::uint8_t{1});
  const auto packed = [&](adsmType_t type, std::int64_t count) {
    std::vector<std::uint8_t> target(16);
    EXPECT_EQ(adsmPack(target.data(), source.data(), count, type), adsmSuccess)
        << adsmLastErrorString();
    return target;
  };
  const auto first = [](std::initializer_list<std::uint8_t> bytes) {
    std::vector<std::uint8_t> wanted(bytes);
    wanted.resize(16);
    return wanted;
  };
  adsmType_t seconds = nullptr;
  adsmType_t thirds = nullptr;
  ASSERT_EQ(adsmTypeVector(2, 1, 2, ADSM_TYPE_1, &seconds), adsmSuccess);
  ASSERT_EQ(adsmTypeVector(2, 1, 3, ADSM_TYPE_1, &thirds), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(seconds), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(thirds), adsmSuccess);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(packed(seconds, 1), first({1, 3}));
    EXPECT_EQ(packed(seconds, 1), first({1, 3}));
    EXPECT_EQ(packed(seconds, 2), first({1, 3, 4, 6}));
    EXPECT_EQ(packed(thirds, 2), first({1, 4, 5, 8}));
    EXPECT_EQ(packed(thirds, 1), first({1, 4}));
  }
  EXPECT_EQ(adsmTypeFree(seconds), adsmSuccess);
  EXPECT_EQ(packed(thirds, 1), first({1, 4}));
  EXPECT_EQ(adsmTypeFree(thirds), adsmSuccess);
  std::vector<std::uint8_t> target(16);
  for (const adsmType_t freed : {thirds, seconds, thirds}) {
    EXPECT_EQ(adsmPack(target.data(), source.data(), 1, freed), adsmErrorInvalidValue);
    EXPECT_THAT(adsmLastErrorString(), HasSubstr("is freed"));
  }
}

// A protocol, and the tests of it. (This process has rolling.)
struct OtherProtocol {
  const char* name;
  const char* tests;
};
class PackUnder : public ::testing::TestWithParam<OtherProtocol> {};

TEST_P(PackUnder, DoesTheSame) {
  const auto end = gmac::testing::runChild(GetParam().tests, {{"GMAC_PROTOCOL", GetParam().name}});
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  EXPECT_THAT(end.output, HasSubstr("[  PASSED  ]"));
}
INSTANTIATE_TEST_SUITE_P(, PackUnder,
                         ::testing::Values(OtherProtocol{"batch", "Pack.*"},
                                           OtherProtocol{"lazy", "Pack.*:PackFetchingOnDemand.*"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PackAlone, PlainMemoryTakesTheCpu) {
  std::vector<double> matrix(64 * 64);
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] = static_cast<double>(i);
  }
  adsmType_t column = nullptr;
  ASSERT_EQ(adsmTypeVector(64, 1, 64, ADSM_TYPE_8, &column), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(column), adsmSuccess);
  std::vector<double> packed(64);
  adsmPackReport_t report = {};
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.report = &report;
  ASSERT_EQ(adsmPackWith(packed.data(), &matrix[5], 1, column, &options), adsmSuccess)
      << adsmLastErrorString();
  EXPECT_EQ(report.method, adsmMethodCpu);
  EXPECT_EQ(report.bytesAcross, 0);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    EXPECT_EQ(packed[i], static_cast<double>(i * 64 + 5));
    packed[i] = -packed[i];
  }
  ASSERT_EQ(adsmUnpack(&matrix[5], packed.data(), 1, column), adsmSuccess);
  EXPECT_EQ(matrix[64 * 3 + 5], -(64.0 * 3 + 5));
  EXPECT_EQ(matrix[64 * 3 + 6], 64.0 * 3 + 6);
  EXPECT_EQ(adsmTypeFree(column), adsmSuccess);
}

}  // namespace
}  // namespace gmac::datatype
