// SPDX-License-Identifier: Apache-2.0
//
// Datatypes as recipes: what a test can build in more than one way, and a type map that is expanded
// entry by entry, after the definitions of MPI 4.0, section 5.1, and independent of the library.
#ifndef GMAC_TESTS_DATATYPE_RECIPE_H_
#define GMAC_TESTS_DATATYPE_RECIPE_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmac/api/adsm_datatype.h"

namespace gmac::datatype {

enum class Constructor {
  kPrimitive,
  kContiguous,
  kVector,
  kHvector,
  kIndexed,
  kHindexed,
  kIndexedBlock,
  kHindexedBlock,
  kStruct,
  kSubarray,
  kResized,
  kDuplicate,
};

// One constructor's arguments, in the fields that it has.
struct Recipe {
  Constructor constructor = Constructor::kPrimitive;
  int bytes = 0;                      // of a primitive
  std::int64_t count = 0;             // entries of the lists, where there are lists
  std::int64_t blockLength = 0;       // also of a vector
  std::int64_t stride = 0;            // of a vector; a resized type's lower bound
  std::int64_t extent = 0;            // of a resized type
  std::vector<std::int64_t> lengths;  // of blocks; a subarray's subsizes
  std::vector<std::int64_t> places;   // displacements; a subarray's starts
  std::vector<std::int64_t> sizes;    // of a subarray
  adsmOrder_t order = adsmOrderC;     // of a subarray
  std::vector<Recipe> olds;           // one; of a struct one for each entry
};

// As one would write it down.
std::string text(const Recipe& recipe);

struct Entry {
  enum class Kind { kData, kLowerBound, kUpperBound } kind;
  std::int64_t displacement;
  std::int64_t bytes;  // of data
};

// The whole type map, with what follows from it by definition.
struct TypeMap {
  std::vector<Entry> entries;

  std::int64_t size() const;
  std::int64_t lowerBound() const;
  std::int64_t upperBound() const;
  std::int64_t extent() const { return upperBound() - lowerBound(); }
  std::int64_t trueLowerBound() const;
  std::int64_t trueUpperBound() const;
  // The offset of every packed byte.
  std::vector<std::int64_t> byteOffsets() const;
};

TypeMap typeMapOf(const Recipe& recipe);

// The library's type, not committed; a failure is the test's.
adsmType_t typeOf(const Recipe& recipe);

// Nested `depth` deep at most, with `mostEntries` entries in its type map at most. Everything that
// the constructors allow: zero counts, negative strides, gaps, overlaps.
struct RecipeLimits {
  int depth = 3;
  std::size_t mostEntries = 4000;
};
Recipe randomRecipe(std::mt19937_64& random, const RecipeLimits& limits);

// The seed of a random test: GMAC_TEST_SEED, or by the clock. It is printed.
std::uint64_t testSeed();

}  // namespace gmac::datatype

#endif  // GMAC_TESTS_DATATYPE_RECIPE_H_
