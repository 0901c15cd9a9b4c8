// SPDX-License-Identifier: Apache-2.0
//
// Types: what the constructors make, what the queries say of it, and what is refused with which
// words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmac/api/adsm_datatype.h"
#include "tests/datatype/recipe.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using ::testing::HasSubstr;
using Pair = std::pair<int64_t, int64_t>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Frees a type when it goes.
class Owned {
 public:
  explicit Owned(adsmType_t type) : type_(type) {}
  Owned() = default;
  ~Owned() {
    if (type_ != nullptr) {
      EXPECT_EQ(adsmTypeFree(type_), adsmSuccess) << adsmLastErrorString();
    }
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator adsmType_t() const { return type_; }  // NOLINT(google-explicit-constructor)
  adsmType_t* operator&() { return &type_; }     // NOLINT(google-runtime-operator)

 private:
  adsmType_t type_ = nullptr;
};

Pair extentOf(adsmType_t type) {
  Pair pair{-1, -1};
  EXPECT_EQ(adsmTypeExtent(type, &pair.first, &pair.second), adsmSuccess);
  return pair;
}

Pair trueExtentOf(adsmType_t type) {
  Pair pair{-1, -1};
  EXPECT_EQ(adsmTypeTrueExtent(type, &pair.first, &pair.second), adsmSuccess);
  return pair;
}

int64_t sizeOf(adsmType_t type) {
  int64_t size = -1;
  EXPECT_EQ(adsmTypeSize(type, &size), adsmSuccess);
  return size;
}

std::uint64_t signatureOf(adsmType_t type) {
  std::uint64_t signature = 0;
  EXPECT_EQ(adsmTypeSignature(type, &signature), adsmSuccess);
  return signature;
}

// All blocks, read `room` at a time.
std::vector<Pair> blocksOf(adsmType_t type, int64_t room) {
  int64_t count = -1;
  EXPECT_EQ(adsmTypeBlockCount(type, &count), adsmSuccess) << adsmLastErrorString();
  std::vector<Pair> blocks;
  std::vector<adsmBlock_t> part(static_cast<std::size_t>(room));
  for (int64_t written = 1; written > 0;) {
    EXPECT_EQ(
        adsmTypeBlocks(type, static_cast<int64_t>(blocks.size()), room, part.data(), &written),
        adsmSuccess);
    for (int64_t i = 0; i < written; ++i) {
      blocks.emplace_back(part[static_cast<std::size_t>(i)].offset,
                          part[static_cast<std::size_t>(i)].bytes);
    }
  }
  EXPECT_EQ(static_cast<int64_t>(blocks.size()), count);
  return blocks;
}

// The maximal contiguous pieces of a type map, in packed order.
std::vector<Pair> piecesOf(const TypeMap& map) {
  std::vector<Pair> pieces;
  for (const Entry& entry : map.entries) {
    if (entry.kind != Entry::Kind::kData) continue;
    if (!pieces.empty() && pieces.back().first + pieces.back().second == entry.displacement) {
      pieces.back().second += entry.bytes;
    } else {
      pieces.emplace_back(entry.displacement, entry.bytes);
    }
  }
  return pieces;
}

std::vector<int64_t> dataSizes(const TypeMap& map) {
  std::vector<int64_t> sizes;
  for (const Entry& entry : map.entries) {
    if (entry.kind == Entry::Kind::kData) sizes.push_back(entry.bytes);
  }
  return sizes;
}

TEST(Types, ArePrimitivesByTheirBytes) {
  for (const int bytes : {1, 2, 4, 8, 16}) {
    const auto type = reinterpret_cast<adsmType_t>(static_cast<std::uintptr_t>(bytes));
    EXPECT_EQ(sizeOf(type), bytes);
    EXPECT_EQ(extentOf(type), Pair(0, bytes));
    EXPECT_EQ(trueExtentOf(type), Pair(0, bytes));
    EXPECT_EQ(blocksOf(type, 3), (std::vector<Pair>{{0, bytes}}));
  }
}

TEST(Types, AnswerEveryQueryAsTheirTypeMapDoes) {
  const std::uint64_t seed = testSeed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    const Recipe recipe = randomRecipe(random, {});
    SCOPED_TRACE(text(recipe));
    const TypeMap map = typeMapOf(recipe);
    const bool primitive = recipe.constructor == Constructor::kPrimitive;
    const adsmType_t type = typeOf(recipe);
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(sizeOf(type), map.size());
    EXPECT_EQ(extentOf(type), Pair(map.lowerBound(), map.extent()));
    EXPECT_EQ(trueExtentOf(type),
              Pair(map.trueLowerBound(), map.trueUpperBound() - map.trueLowerBound()));
    ASSERT_EQ(adsmTypeCommit(type), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(blocksOf(type, 1 + static_cast<int64_t>(random() % 7)), piecesOf(map));
    // A list of one entry for each primitive is the same sequence.
    std::vector<int64_t> lengths;
    std::vector<int64_t> places;
    std::vector<adsmType_t> olds;
    for (const int64_t bytes : dataSizes(map)) {
      lengths.push_back(1);
      places.push_back(0);
      olds.push_back(reinterpret_cast<adsmType_t>(static_cast<std::uintptr_t>(bytes)));
    }
    Owned flat;
    ASSERT_EQ(adsmTypeStruct(static_cast<int64_t>(olds.size()), lengths.data(), places.data(),
                             olds.data(), &flat),
              adsmSuccess);
    EXPECT_EQ(signatureOf(type), signatureOf(flat));
    if (!primitive) {
      EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
    }
  }
}

TEST(Types, HaveSignaturesThatDifferWhereTheSequencesDo) {
  Owned twoEights;
  Owned fourFours;
  Owned eightFour;
  Owned fourEight;
  Owned sixteenBytes;
  const int64_t lengths[] = {1, 1};
  const int64_t places[] = {0, 8};
  const adsmType_t eightThenFour[] = {ADSM_TYPE_8, ADSM_TYPE_4};
  const adsmType_t fourThenEight[] = {ADSM_TYPE_4, ADSM_TYPE_8};
  ASSERT_EQ(adsmTypeContiguous(2, ADSM_TYPE_8, &twoEights), adsmSuccess);
  ASSERT_EQ(adsmTypeContiguous(4, ADSM_TYPE_4, &fourFours), adsmSuccess);
  ASSERT_EQ(adsmTypeContiguous(16, ADSM_TYPE_1, &sixteenBytes), adsmSuccess);
  ASSERT_EQ(adsmTypeStruct(2, lengths, places, eightThenFour, &eightFour), adsmSuccess);
  ASSERT_EQ(adsmTypeStruct(2, lengths, places, fourThenEight, &fourEight), adsmSuccess);
  const std::vector<std::uint64_t> all = {signatureOf(twoEights),    signatureOf(fourFours),
                                          signatureOf(eightFour),    signatureOf(fourEight),
                                          signatureOf(sixteenBytes), signatureOf(ADSM_TYPE_16)};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
  }
}

// One part that says its bounds is enough for the others' not to count, whatever they are.
TEST(Types, KeepBoundsThatWereSaid) {
  Owned resized;
  ASSERT_EQ(adsmTypeResized(ADSM_TYPE_4, -4, 20, &resized), adsmSuccess);
  EXPECT_EQ(extentOf(resized), Pair(-4, 20));
  EXPECT_EQ(trueExtentOf(resized), Pair(0, 4));
  Owned twice;
  ASSERT_EQ(adsmTypeContiguous(2, resized, &twice), adsmSuccess);
  EXPECT_EQ(extentOf(twice), Pair(-4, 40));
  EXPECT_EQ(trueExtentOf(twice), Pair(0, 24));
  const int64_t lengths[] = {1, 1};
  const int64_t places[] = {0, 1000};
  const adsmType_t olds[] = {resized, ADSM_TYPE_8};
  Owned both;
  ASSERT_EQ(adsmTypeStruct(2, lengths, places, olds, &both), adsmSuccess);
  EXPECT_EQ(extentOf(both), Pair(-4, 20));
  EXPECT_EQ(trueExtentOf(both), Pair(0, 1008));
  Owned again;
  ASSERT_EQ(adsmTypeResized(both, 0, 8, &again), adsmSuccess);
  EXPECT_EQ(extentOf(again), Pair(0, 8));
}

TEST(Types, HaveNoPaddingThatNobodyAskedFor) {
  const int64_t lengths[] = {1, 1};
  const int64_t places[] = {0, 8};
  const adsmType_t olds[] = {ADSM_TYPE_8, ADSM_TYPE_1};
  Owned type;
  ASSERT_EQ(adsmTypeStruct(2, lengths, places, olds, &type), adsmSuccess);
  EXPECT_EQ(extentOf(type), Pair(0, 9));
}

TEST(Types, OutliveTheirOldTypesHandles) {
  adsmType_t old = nullptr;
  ASSERT_EQ(adsmTypeVector(3, 1, 2, ADSM_TYPE_4, &old), adsmSuccess);
  Owned type;
  ASSERT_EQ(adsmTypeContiguous(2, old, &type), adsmSuccess);
  ASSERT_EQ(adsmTypeFree(old), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(type), adsmSuccess);
  EXPECT_EQ(blocksOf(type, 10), (std::vector<Pair>{{0, 4}, {8, 4}, {16, 8}, {28, 4}, {36, 4}}));
}

TEST(Types, DescribeTheirCanonicalForm) {
  const auto description = [](adsmType_t type) {
    EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
    const char* text = nullptr;
    EXPECT_EQ(adsmTypeDescribe(type, &text), adsmSuccess) << adsmLastErrorString();
    return std::string(text);
  };
  Owned vector;
  ASSERT_EQ(adsmTypeVector(4096, 1, 64, ADSM_TYPE_8, &vector), adsmSuccess);
  EXPECT_EQ(description(vector), "strided 8 B x 4096 @ 512");
  Owned contiguous;
  ASSERT_EQ(adsmTypeVector(4096, 64, 64, ADSM_TYPE_8, &contiguous), adsmSuccess);
  EXPECT_EQ(description(contiguous), "contiguous 2097152 B");
  Owned none;
  ASSERT_EQ(adsmTypeContiguous(0, ADSM_TYPE_8, &none), adsmSuccess);
  EXPECT_EQ(description(none), "empty");
  // A lower triangle of doubles.
  std::vector<int64_t> lengths(8192);
  std::vector<int64_t> places(8192);
  for (int64_t i = 0; i < 8192; ++i) {
    lengths[static_cast<std::size_t>(i)] = i + 1;
    places[static_cast<std::size_t>(i)] = i * 8192;
  }
  Owned triangle;
  ASSERT_EQ(adsmTypeIndexed(8192, lengths.data(), places.data(), ADSM_TYPE_8, &triangle),
            adsmSuccess);
  EXPECT_EQ(description(triangle), "list of 8192 blocks, 268 MB");
  const int64_t sizes[] = {4, 5, 6};
  const int64_t subsizes[] = {2, 3, 4};
  const int64_t starts[] = {1, 1, 1};
  Owned subarray;
  ASSERT_EQ(adsmTypeSubarray(3, sizes, subsizes, starts, adsmOrderC, ADSM_TYPE_4, &subarray),
            adsmSuccess);
  EXPECT_EQ(description(subarray), "strided 16 B x 3 @ 24 x 2 @ 120, from 148");
}

// Knowledge about an old type changes nothing of a list that is made of it but the time that it
// takes.
TEST(Types, AreTheSameWheneverTheirOldTypesAreCommitted) {
  const int64_t lengths[] = {1, 0, 3, 1, 2};
  const int64_t places[] = {0, 1000, 50, 30, 7};
  const std::vector<Pair> whole = {{0, 8}, {400, 24}, {240, 8}, {56, 16}};
  const std::vector<Pair> gapped = {{0, 4},   {8, 4},   {600, 4}, {608, 8}, {620, 8}, {632, 4},
                                    {360, 4}, {368, 4}, {84, 4},  {92, 8},  {104, 4}};
  for (const bool before : {false, true}) {
    Owned pair;
    Owned apart;
    Owned spaced;
    ASSERT_EQ(adsmTypeResized(ADSM_TYPE_8, 0, 12, &spaced), adsmSuccess);
    ASSERT_EQ(adsmTypeContiguous(2, ADSM_TYPE_4, &pair), adsmSuccess);
    ASSERT_EQ(adsmTypeVector(2, 1, 2, ADSM_TYPE_4, &apart), adsmSuccess);
    if (before) {
      ASSERT_EQ(adsmTypeCommit(pair), adsmSuccess);
      ASSERT_EQ(adsmTypeCommit(apart), adsmSuccess);
      ASSERT_EQ(adsmTypeCommit(spaced), adsmSuccess);
    }
    Owned ofSpaced;
    ASSERT_EQ(adsmTypeIndexed(5, lengths, places, spaced, &ofSpaced), adsmSuccess);
    ASSERT_EQ(adsmTypeCommit(ofSpaced), adsmSuccess);
    const std::vector<Pair> one = {{0, 8},   {600, 8}, {612, 8}, {624, 8},
                                   {360, 8}, {84, 8},  {96, 8}};
    EXPECT_EQ(blocksOf(ofSpaced, 3), one) << before;
    Owned ofPairs;
    Owned ofApart;
    Owned ofBoth;
    ASSERT_EQ(adsmTypeIndexed(5, lengths, places, pair, &ofPairs), adsmSuccess);
    ASSERT_EQ(adsmTypeIndexed(5, lengths, places, apart, &ofApart), adsmSuccess);
    const int64_t bytes[] = {0, 1000, 600, 360, 84};
    const adsmType_t olds[] = {pair, pair, apart, apart, pair};
    ASSERT_EQ(adsmTypeStruct(5, lengths, bytes, olds, &ofBoth), adsmSuccess);
    for (const adsmType_t type :
         {static_cast<adsmType_t>(ofPairs), static_cast<adsmType_t>(ofApart),
          static_cast<adsmType_t>(ofBoth)}) {
      ASSERT_EQ(adsmTypeCommit(type), adsmSuccess) << adsmLastErrorString();
    }
    EXPECT_EQ(blocksOf(ofPairs, 3), whole) << before;
    EXPECT_EQ(blocksOf(ofApart, 3), gapped) << before;
    const std::vector<Pair> both = {{0, 8},   {600, 4}, {608, 8}, {620, 8},
                                    {632, 4}, {360, 4}, {368, 4}, {84, 16}};
    EXPECT_EQ(blocksOf(ofBoth, 3), both) << before;
  }
}

// Nothing of these fits into memory piece by piece.
TEST(Types, AreNotExpandedWhereTheyRepeat) {
  Owned row;
  Owned plane;
  Owned all;
  ASSERT_EQ(adsmTypeVector(1 << 20, 1, 2, ADSM_TYPE_4, &row), adsmSuccess);
  ASSERT_EQ(adsmTypeHvector(1 << 20, 1, 1 << 24, row, &plane), adsmSuccess);
  std::vector<int64_t> places(1000);
  for (int64_t i = 0; i < 1000; ++i) places[static_cast<std::size_t>(i)] = i * (int64_t{1} << 45);
  ASSERT_EQ(adsmTypeHindexedBlock(1000, 1, places.data(), plane, &all), adsmSuccess);
  ASSERT_EQ(adsmTypeCommit(all), adsmSuccess) << adsmLastErrorString();
  const char* text = nullptr;
  ASSERT_EQ(adsmTypeDescribe(all, &text), adsmSuccess);
  EXPECT_STREQ(text, "strided 4 B x 1048576 @ 8 x 1048576 @ 16777216 x 1000 @ 35184372088832");
  adsmBlock_t block{};
  int64_t written = 0;
  ASSERT_EQ(adsmTypeBlocks(all, 1000 * (int64_t{1} << 40) - 1, 5, &block, &written), adsmSuccess);
  EXPECT_EQ(written, 1);
  EXPECT_EQ(block.offset,
            999 * (int64_t{1} << 45) + ((1 << 20) - 1) * (int64_t{1} << 24) + ((1 << 20) - 1) * 8);
  // And where they would have to be, that is said.
  const int64_t lengths[] = {1, 1};
  const int64_t two[] = {0, 3};
  const adsmType_t olds[] = {all, ADSM_TYPE_1};
  Owned mixed;
  ASSERT_EQ(adsmTypeStruct(2, lengths, two, olds, &mixed), adsmSuccess);
  EXPECT_EQ(adsmTypeCommit(mixed), adsmErrorHostMemory);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("adsmTypeCommit"));
}

// A chain of types longer than a stack of one frame each would be deep.
TEST(Types, NestWithoutEnd) {
  adsmType_t type = nullptr;
  ASSERT_EQ(adsmTypeResized(ADSM_TYPE_4, 0, 8, &type), adsmSuccess);
  for (int i = 0; i < 300000; ++i) {
    adsmType_t next = nullptr;
    ASSERT_EQ(adsmTypeContiguous(1, type, &next), adsmSuccess);
    ASSERT_EQ(adsmTypeFree(type), adsmSuccess);
    type = next;
  }
  EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
  EXPECT_EQ(extentOf(type), Pair(0, 8));
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
}

TEST(Types, RefuseWrongArgumentsByName) {
  const int64_t good[] = {1, 2, 3};
  const int64_t bad[] = {1, -7, 3};
  const adsmType_t types[] = {ADSM_TYPE_4, ADSM_TYPE_8, reinterpret_cast<adsmType_t>(5)};
  adsmType_t type = reinterpret_cast<adsmType_t>(77);
  const auto refused = [&](adsmError_t error, const char* words) {
    EXPECT_EQ(error, adsmErrorInvalidValue) << words;
    EXPECT_STREQ(adsmLastErrorString(), words);
    EXPECT_EQ(type, reinterpret_cast<adsmType_t>(77)) << "a failed call changes nothing";
  };
  refused(adsmTypeContiguous(-3, ADSM_TYPE_4, &type),
          "adsmTypeContiguous: count is -3; 0 or more is allowed");
  refused(adsmTypeVector(-3, 1, 1, ADSM_TYPE_4, &type),
          "adsmTypeVector: count is -3; 0 or more is allowed");
  refused(adsmTypeVector(3, -1, 1, ADSM_TYPE_4, &type),
          "adsmTypeVector: blockLength is -1; 0 or more is allowed");
  refused(adsmTypeHvector(3, -1, 1, ADSM_TYPE_4, &type),
          "adsmTypeHvector: blockLength is -1; 0 or more is allowed");
  refused(adsmTypeIndexed(3, bad, good, ADSM_TYPE_4, &type),
          "adsmTypeIndexed: blockLengths[1] is -7; 0 or more is allowed");
  refused(adsmTypeHindexed(3, good, nullptr, ADSM_TYPE_4, &type),
          "adsmTypeHindexed: displacementBytes is NULL, count is 3");
  refused(adsmTypeIndexed(2, nullptr, good, ADSM_TYPE_4, &type),
          "adsmTypeIndexed: blockLengths is NULL, count is 2");
  refused(adsmTypeIndexed(-2, nullptr, good, ADSM_TYPE_4, &type),
          "adsmTypeIndexed: count is -2; 0 or more is allowed");
  refused(adsmTypeIndexedBlock(2, -1, good, ADSM_TYPE_4, &type),
          "adsmTypeIndexedBlock: blockLength is -1; 0 or more is allowed");
  refused(adsmTypeHindexedBlock(2, 1, good, nullptr, &type), "adsmTypeHindexedBlock: old is NULL");
  refused(adsmTypeStruct(3, good, good, types, &type),
          "adsmTypeStruct: types[2] is 0x5, which is no type, or is freed");
  refused(adsmTypeSubarray(0, good, good, good, adsmOrderC, ADSM_TYPE_4, &type),
          "adsmTypeSubarray: dimensions is 0; 1 to 1024 are allowed");
  refused(adsmTypeSubarray(3, good, good, good, adsmOrderC, ADSM_TYPE_4, &type),
          "adsmTypeSubarray: starts[0] is 1 and subsizes[0] is 1: outside the array, whose "
          "sizes[0] is 1");
  refused(adsmTypeSubarray(1, good, good, good, static_cast<adsmOrder_t>(9), ADSM_TYPE_4, &type),
          "adsmTypeSubarray: order is 9; adsmOrderC and adsmOrderFortran are");
  refused(adsmTypeResized(ADSM_TYPE_4, kMax, 1, &type),
          "adsmTypeResized: the type's bytes or bounds do not fit into 63 bits: lowerBound is "
          "9223372036854775807, extent is 1");
  refused(adsmTypeVector(3, 1, kMax / 2, ADSM_TYPE_4, &type),
          "adsmTypeVector: the type's bytes or bounds do not fit into 63 bits: count is 3, "
          "blockLength is 1, stride is 4611686018427387903, old's extent is 4");
  refused(adsmTypeContiguous(kMax, ADSM_TYPE_2, &type),
          "adsmTypeContiguous: the type's bytes or bounds do not fit into 63 bits: count is "
          "9223372036854775807, old's extent is 2");
  const int64_t far[] = {-kMax, kMax - 8};
  refused(adsmTypeHindexedBlock(2, 1, far, ADSM_TYPE_4, &type),
          "adsmTypeHindexedBlock: the type's bytes or bounds do not fit into 63 bits: entry 1 has "
          "length 1, displacementBytes 9223372036854775799, old's extent is 4");
  Owned farOff;
  ASSERT_EQ(adsmTypeResized(ADSM_TYPE_4, kMax - 90, 4, &farOff), adsmSuccess);
  const int64_t near[] = {0, 100};
  refused(adsmTypeHindexedBlock(2, 1, near, farOff, &type),
          "adsmTypeHindexedBlock: the type's bytes or bounds do not fit into 63 bits: entry 1 has "
          "length 1, displacementBytes 100, old's extent is 4");
  const int64_t huge[] = {kMax / 8, kMax / 8, 3};
  const int64_t part[] = {1, 1, 1};
  const int64_t zero[] = {0, 0, 0};
  refused(adsmTypeSubarray(3, huge, part, zero, adsmOrderC, ADSM_TYPE_4, &type),
          "adsmTypeSubarray: the type's bytes or bounds do not fit into 63 bits: sizes is "
          "{1152921504606846975, 1152921504606846975, 3}, old's extent is 4");
  EXPECT_EQ(adsmTypeContiguous(1, ADSM_TYPE_4, nullptr), adsmErrorInvalidValue);
  EXPECT_STREQ(adsmLastErrorString(), "adsmTypeContiguous: type is NULL");
  EXPECT_EQ(adsmTypeDuplicate(reinterpret_cast<adsmType_t>(&type), &type), adsmErrorInvalidValue);
}

TEST(Types, AreFreedOnceAndPrimitivesNever) {
  adsmType_t type = nullptr;
  ASSERT_EQ(adsmTypeContiguous(2, ADSM_TYPE_4, &type), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  EXPECT_EQ(adsmTypeFree(type), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("which is no type, or is freed"));
  int64_t size = 0;
  EXPECT_EQ(adsmTypeSize(type, &size), adsmErrorInvalidValue);
  EXPECT_EQ(adsmTypeCommit(type), adsmErrorInvalidValue);
  EXPECT_EQ(adsmTypeFree(nullptr), adsmErrorInvalidValue);
  EXPECT_STREQ(adsmLastErrorString(), "adsmTypeFree: type is NULL");
  EXPECT_EQ(adsmTypeFree(ADSM_TYPE_8), adsmErrorInvalidValue);
  EXPECT_STREQ(adsmLastErrorString(), "adsmTypeFree: type is the primitive of 8 bytes");
  int local = 0;
  EXPECT_EQ(adsmTypeFree(reinterpret_cast<adsmType_t>(&local)), adsmErrorInvalidValue);
  EXPECT_EQ(adsmTypeFree(reinterpret_cast<adsmType_t>(3)), adsmErrorInvalidValue);
}

TEST(Types, MustBeCommittedToShowTheirBlocks) {
  Owned type;
  ASSERT_EQ(adsmTypeContiguous(2, ADSM_TYPE_4, &type), adsmSuccess);
  int64_t count = 0;
  EXPECT_EQ(adsmTypeBlockCount(type, &count), adsmErrorInvalidValue);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("is not committed"));
  const char* text = nullptr;
  EXPECT_EQ(adsmTypeDescribe(type, &text), adsmErrorInvalidValue);
  EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
  EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
  EXPECT_EQ(adsmTypeBlockCount(type, &count), adsmSuccess);
  Owned copy;
  ASSERT_EQ(adsmTypeDuplicate(type, &copy), adsmSuccess);
  EXPECT_EQ(adsmTypeBlockCount(copy, &count), adsmSuccess) << "a committed type's duplicate is too";
}

TEST(Types, AreMadeUsedAndFreedByThreads) {
  Owned shared;
  ASSERT_EQ(adsmTypeVector(100, 1, 3, ADSM_TYPE_4, &shared), adsmSuccess);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&shared, t] {
      for (int64_t i = 1; i < 200; ++i) {
        Owned type;
        EXPECT_EQ(adsmTypeHvector(i, 1, 4000 + t, shared, &type), adsmSuccess);
        EXPECT_EQ(adsmTypeCommit(type), adsmSuccess);
        EXPECT_EQ(adsmTypeCommit(shared), adsmSuccess);
        EXPECT_EQ(blocksOf(type, 64).size(), static_cast<std::size_t>(i * 100));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gmac::datatype
