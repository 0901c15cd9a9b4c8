// SPDX-License-Identifier: Apache-2.0
//
// Types against Open MPI's: random ones built in both libraries, and taken over from MPI, have the
// same sizes, bounds and bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmac/api/adsm_mpi.h"
#include "gmac/datatype/cpu/cpu_engine.h"
#include "gmac/datatype/types/registry.h"
#include "tests/datatype/recipe.h"

namespace gmac::datatype {
namespace {

using std::int64_t;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// One process without a launcher, which speaks to nobody.
class Mpi : public ::testing::Environment {
 public:
  void SetUp() override {
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
    setenv("OMPI_MCA_pml", "ob1", 1);
    setenv("OMPI_MCA_btl", "self", 1);
    ASSERT_EQ(MPI_Init(nullptr, nullptr), MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  }
  void TearDown() override { MPI_Finalize(); }
};
[[maybe_unused]] ::testing::Environment* const kMpi = ::testing::AddGlobalTestEnvironment(new Mpi);

// An MPI type that is freed when it goes.
class MpiType {
 public:
  explicit MpiType(MPI_Datatype type) : type_(type) {}
  ~MpiType() { MPI_Type_free(&type_); }
  MpiType(const MpiType&) = delete;
  MpiType& operator=(const MpiType&) = delete;
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_;
};
using MpiTypePtr = std::shared_ptr<MpiType>;

std::vector<int> narrow(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

std::vector<MPI_Aint> addresses(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

// `aligned`: primitives are numbers, after which MPI pads structs; else they are bytes.
MPI_Datatype primitive(int bytes, bool aligned) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  if (!aligned) {
    MPI_Type_contiguous(bytes, MPI_BYTE, &type);
  } else {
    MPI_Type_dup(bytes == 1   ? MPI_CHAR
                 : bytes == 2 ? MPI_SHORT
                 : bytes == 4 ? MPI_INT
                 : bytes == 8 ? MPI_DOUBLE
                              : MPI_C_DOUBLE_COMPLEX,
                 &type);
  }
  return type;
}

MpiTypePtr mpiTypeOf(const Recipe& recipe, bool aligned) {
  std::vector<MpiTypePtr> olds;
  std::vector<MPI_Datatype> handles;
  for (const Recipe& old : recipe.olds) {
    olds.push_back(mpiTypeOf(old, aligned));
    handles.push_back(olds.back()->get());
  }
  const auto count = static_cast<int>(recipe.count);
  const auto length = static_cast<int>(recipe.blockLength);
  std::vector<int> lengths = narrow(recipe.lengths);
  std::vector<int> places = narrow(recipe.places);
  std::vector<MPI_Aint> bytePlaces = addresses(recipe.places);
  const MPI_Datatype old = handles.empty() ? MPI_DATATYPE_NULL : handles[0];
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int error = MPI_SUCCESS;
  switch (recipe.constructor) {
    case Constructor::kPrimitive:
      type = primitive(recipe.bytes, aligned);
      break;
    case Constructor::kContiguous:
      error = MPI_Type_contiguous(count, old, &type);
      break;
    case Constructor::kVector:
      error = MPI_Type_vector(count, length, static_cast<int>(recipe.stride), old, &type);
      break;
    case Constructor::kHvector:
      error = MPI_Type_create_hvector(count, length, recipe.stride, old, &type);
      break;
    case Constructor::kIndexed:
      error = MPI_Type_indexed(count, lengths.data(), places.data(), old, &type);
      break;
    case Constructor::kHindexed:
      error = MPI_Type_create_hindexed(count, lengths.data(), bytePlaces.data(), old, &type);
      break;
    case Constructor::kIndexedBlock:
      error = MPI_Type_create_indexed_block(count, length, places.data(), old, &type);
      break;
    case Constructor::kHindexedBlock:
      error = MPI_Type_create_hindexed_block(count, length, bytePlaces.data(), old, &type);
      break;
    case Constructor::kStruct:
      error =
          MPI_Type_create_struct(count, lengths.data(), bytePlaces.data(), handles.data(), &type);
      break;
    case Constructor::kSubarray: {
      const std::vector<int> sizes = narrow(recipe.sizes);
      error = MPI_Type_create_subarray(
          static_cast<int>(sizes.size()), sizes.data(), lengths.data(), places.data(),
          recipe.order == adsmOrderC ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, &type);
      break;
    }
    case Constructor::kResized:
      error = MPI_Type_create_resized(old, recipe.stride, recipe.extent, &type);
      break;
    case Constructor::kDuplicate:
      error = MPI_Type_dup(old, &type);
      break;
  }
  EXPECT_EQ(error, MPI_SUCCESS) << text(recipe);
  return std::make_shared<MpiType>(type);
}

Bytes randomBytes(std::mt19937_64& random, std::size_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Everything that both libraries say of a type.
void expectSame(adsmType_t type, MPI_Datatype mpi) {
  int mpiSize = -1;
  MPI_Aint mpiLowerBound = -1;
  MPI_Aint mpiExtent = -1;
  MPI_Aint mpiTrueLowerBound = -1;
  MPI_Aint mpiTrueExtent = -1;
  MPI_Type_size(mpi, &mpiSize);
  MPI_Type_get_extent(mpi, &mpiLowerBound, &mpiExtent);
  MPI_Type_get_true_extent(mpi, &mpiTrueLowerBound, &mpiTrueExtent);
  int64_t size = -2;
  int64_t lowerBound = -2;
  int64_t extent = -2;
  EXPECT_EQ(adsmTypeSize(type, &size), adsmSuccess);
  EXPECT_EQ(size, mpiSize);
  EXPECT_EQ(adsmTypeExtent(type, &lowerBound, &extent), adsmSuccess);
  EXPECT_EQ(lowerBound, mpiLowerBound);
  EXPECT_EQ(extent, mpiExtent);
  if (size > 0) {
    EXPECT_EQ(adsmTypeTrueExtent(type, &lowerBound, &extent), adsmSuccess);
    EXPECT_EQ(lowerBound, mpiTrueLowerBound);
    EXPECT_EQ(extent, mpiTrueExtent);
  }
}

// `count` elements packed and unpacked by both; `ordered`: no pieces overlap.
void expectSameBytes(std::mt19937_64& random, adsmType_t type, MPI_Datatype mpi, int count,
                     bool ordered) {
  ASSERT_EQ(adsmTypeCommit(type), adsmSuccess) << adsmLastErrorString();
  auto form = committed(type);
  ASSERT_TRUE(form.ok());
  auto layout = (*form)->layout.repeated(count, (*form)->extent);
  ASSERT_TRUE(layout.ok());
  const Bounds bounds = layout->bounds();
  const auto base = static_cast<std::size_t>(std::max<int64_t>(0, -bounds.first));
  const Bytes plain =
      randomBytes(random, base + 1 + static_cast<std::size_t>(std::max<int64_t>(0, bounds.last)));
  const auto bytes = static_cast<std::size_t>(layout->bytes());

  Bytes packed(bytes + 1);
  // MPI does not take NULL for nothing.
  Bytes mpiPacked(bytes + 1);
  int position = 0;
  EXPECT_EQ(MPI_Pack(plain.data() + base, count, mpi, mpiPacked.data(), static_cast<int>(bytes),
                     &position, MPI_COMM_SELF),
            MPI_SUCCESS);
  EXPECT_EQ(position, layout->bytes());
  pack(*layout, packed.data(), plain.data() + base, 0, layout->bytes());
  EXPECT_TRUE(packed == mpiPacked) << "pack";
  if (!ordered) return;

  const Bytes wire = randomBytes(random, bytes + 1);
  Bytes unpacked = plain;
  Bytes mpiUnpacked = plain;
  position = 0;
  EXPECT_EQ(MPI_Unpack(wire.data(), static_cast<int>(bytes), &position, mpiUnpacked.data() + base,
                       count, mpi, MPI_COMM_SELF),
            MPI_SUCCESS);
  unpack(*layout, unpacked.data() + base, wire.data(), 0, layout->bytes());
  EXPECT_TRUE(unpacked == mpiUnpacked) << "unpack";
}

bool overlaps(const TypeMap& map, int count) {
  std::vector<int64_t> offsets;
  for (int i = 0; i < count; ++i) {
    for (const int64_t offset : map.byteOffsets()) offsets.push_back(offset + i * map.extent());
  }
  std::sort(offsets.begin(), offsets.end());
  return std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
}

// Open MPI takes a distance of -1 byte between elements for "as the old type's extent is", and
// gives types that are built on one without bytes bounds of its own.
bool isMisread(const Recipe& recipe) {
  if (std::any_of(recipe.olds.begin(), recipe.olds.end(), isMisread)) return true;
  if (recipe.olds.empty()) return false;
  if (std::any_of(recipe.olds.begin(), recipe.olds.end(),
                  [](const Recipe& old) { return typeMapOf(old).size() == 0; })) {
    return true;
  }
  const int64_t extent = typeMapOf(recipe.olds[0]).extent();
  return typeMapOf(recipe).extent() == -1 ||
         (recipe.constructor == Constructor::kVector && recipe.stride * extent == -1) ||
         (recipe.constructor == Constructor::kHvector && recipe.stride == -1);
}

Recipe recipeForMpi(std::mt19937_64& random) {
  for (;;) {
    Recipe recipe = randomRecipe(random, {3, 1500});
    if (!isMisread(recipe)) return recipe;
  }
}

TEST(Mpi, BuildsTheSameTypes) {
  std::mt19937_64 random(testSeed());
  for (int i = 0; i < 1500 && !HasFailure(); ++i) {
    const Recipe recipe = recipeForMpi(random);
    SCOPED_TRACE(text(recipe));
    const MpiTypePtr mpi = mpiTypeOf(recipe, false);
    MPI_Datatype handle = mpi->get();
    ASSERT_EQ(MPI_Type_commit(&handle), MPI_SUCCESS);
    adsmType_t type = nullptr;
    const adsmType_t built = typeOf(recipe);
    ASSERT_EQ(adsmTypeDuplicate(built, &type), adsmSuccess);
    if (recipe.constructor != Constructor::kPrimitive) {
      EXPECT_EQ(adsmTypeFree(built), adsmSuccess);
    }
    const auto count = static_cast<int>(random() % 3);
    expectSame(type, mpi->get());
    expectSameBytes(random, type, mpi->get(), count, !overlaps(typeMapOf(recipe), count));
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  }
}

// With the padding that MPI gives to structs of numbers.
TEST(Mpi, GivesTypesThatAreTakenOver) {
  std::mt19937_64 random(testSeed());
  for (int i = 0; i < 1500 && !HasFailure(); ++i) {
    const Recipe recipe = recipeForMpi(random);
    SCOPED_TRACE(text(recipe));
    const MpiTypePtr mpi = mpiTypeOf(recipe, true);
    MPI_Datatype handle = mpi->get();
    ASSERT_EQ(MPI_Type_commit(&handle), MPI_SUCCESS);
    adsmType_t type = nullptr;
    ASSERT_EQ(adsmTypeFromMpi(mpi->get(), &type), adsmSuccess) << adsmLastErrorString();
    expectSame(type, mpi->get());
    expectSameBytes(random, type, mpi->get(), static_cast<int>(random() % 3), false);
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  }
}

TEST(Mpi, GivesNamedTypesOfEverySize) {
  std::mt19937_64 random(1);
  for (const MPI_Datatype named : {MPI_CHAR,
                                   MPI_BYTE,
                                   MPI_SHORT,
                                   MPI_INT,
                                   MPI_LONG,
                                   MPI_FLOAT,
                                   MPI_DOUBLE,
                                   MPI_LONG_DOUBLE,
                                   MPI_C_BOOL,
                                   MPI_C_FLOAT_COMPLEX,
                                   MPI_C_DOUBLE_COMPLEX,
                                   MPI_C_LONG_DOUBLE_COMPLEX,
                                   MPI_AINT,
                                   MPI_OFFSET,
                                   MPI_FLOAT_INT,
                                   MPI_DOUBLE_INT,
                                   MPI_LONG_INT,
                                   MPI_2INT,
                                   MPI_SHORT_INT,
                                   MPI_LONG_DOUBLE_INT}) {
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    MPI_Type_get_name(named, name, &length);
    SCOPED_TRACE(name);
    adsmType_t type = nullptr;
    ASSERT_EQ(adsmTypeFromMpi(named, &type), adsmSuccess) << adsmLastErrorString();
    expectSame(type, named);
    expectSameBytes(random, type, named, 3, true);
    EXPECT_EQ(adsmTypeFree(type), adsmSuccess);
  }
}

TEST(Mpi, HasTypesThatAreRefused) {
  const int sizes[] = {10};
  const int distributions[] = {MPI_DISTRIBUTE_BLOCK};
  const int arguments[] = {MPI_DISTRIBUTE_DFLT_DARG};
  const int processes[] = {2};
  MPI_Datatype array = MPI_DATATYPE_NULL;
  ASSERT_EQ(MPI_Type_create_darray(2, 0, 1, sizes, distributions, arguments, processes, MPI_ORDER_C,
                                   MPI_INT, &array),
            MPI_SUCCESS);
  MPI_Datatype nested = MPI_DATATYPE_NULL;
  ASSERT_EQ(MPI_Type_contiguous(2, array, &nested), MPI_SUCCESS);
  adsmType_t type = nullptr;
  EXPECT_EQ(adsmTypeFromMpi(nested, &type), adsmErrorNotSupported);
  EXPECT_THAT(adsmLastErrorString(), HasSubstr("MPI_Type_create_darray"));
  EXPECT_EQ(type, nullptr);
  EXPECT_EQ(adsmTypeFromMpi(MPI_DATATYPE_NULL, &type), adsmErrorInvalidValue);
  EXPECT_STREQ(adsmLastErrorString(), "adsmTypeFromMpi: from is MPI_DATATYPE_NULL");
  EXPECT_EQ(adsmTypeFromMpi(MPI_INT, nullptr), adsmErrorInvalidValue);
  MPI_Type_free(&nested);
  MPI_Type_free(&array);
}

}  // namespace
}  // namespace gmac::datatype
