// SPDX-License-Identifier: Apache-2.0
#include "tests/datatype/recipe.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gmac/base/status.h"
#include "tests/support/seed.h"

namespace gmac::datatype {
namespace {

using std::int64_t;

constexpr const char* kNames[] = {"primitive", "contiguous", "vector",       "hvector",
                                  "indexed",   "hindexed",   "indexedBlock", "hindexedBlock",
                                  "struct",    "subarray",   "resized",      "duplicate"};

std::string text(const std::vector<int64_t>& values) {
  std::string all;
  for (const int64_t value : values) all += fmt::format("{}{}", all.empty() ? "" : ",", value);
  return "{" + all + "}";
}

// Appends one type map to another, moved.
void append(TypeMap& map, const TypeMap& part, int64_t displacement) {
  for (Entry entry : part.entries) {
    entry.displacement += displacement;
    map.entries.push_back(entry);
  }
}

// `length` elements of a type map, from a displacement on.
void appendBlock(TypeMap& map, const TypeMap& old, int64_t length, int64_t displacement) {
  for (int64_t i = 0; i < length; ++i) append(map, old, displacement + i * old.extent());
}

void appendSubarray(TypeMap& map, const TypeMap& old, const Recipe& recipe) {
  const std::size_t dimensions = recipe.sizes.size();
  int64_t elements = 1;
  int64_t all = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    elements *= recipe.lengths[i];
    all *= recipe.sizes[i];
  }
  // Every element's indices from its number in packed order, and its place from its indices.
  for (int64_t number = 0; number < elements; ++number) {
    int64_t rest = number;
    int64_t place = 0;
    int64_t pitch = 1;
    for (std::size_t k = 0; k < dimensions; ++k) {
      const std::size_t i = recipe.order == adsmOrderC ? dimensions - 1 - k : k;
      place += (recipe.places[i] + rest % recipe.lengths[i]) * pitch;
      rest /= recipe.lengths[i];
      pitch *= recipe.sizes[i];
    }
    append(map, old, place * old.extent());
  }
  std::erase_if(map.entries, [](const Entry& entry) { return entry.kind != Entry::Kind::kData; });
  map.entries.push_back({Entry::Kind::kLowerBound, 0, 0});
  map.entries.push_back({Entry::Kind::kUpperBound, all * old.extent(), 0});
}

// The smallest or largest displacement (plus bytes) of one kind of entries; false: there is none.
template <typename Value, typename Pick>
bool best(const std::vector<Entry>& entries, Entry::Kind kind, const Value& value, const Pick& pick,
          int64_t* result) {
  bool any = false;
  for (const Entry& entry : entries) {
    if (entry.kind == kind) {
      *result = any ? pick(*result, value(entry)) : value(entry);
      any = true;
    }
  }
  return any;
}

int64_t beginOf(const Entry& entry) { return entry.displacement; }
int64_t endOf(const Entry& entry) { return entry.displacement + entry.bytes; }
int64_t smaller(int64_t a, int64_t b) { return std::min(a, b); }
int64_t larger(int64_t a, int64_t b) { return std::max(a, b); }

int64_t between(std::mt19937_64& random, int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(random);
}

// Mostly a few, now and then none, one or many.
int64_t randomCount(std::mt19937_64& random) {
  const int64_t kind = between(random, 0, 19);
  if (kind == 0) return 0;
  if (kind < 4) return 1;
  return kind == 19 ? between(random, 5, 40) : between(random, 2, 5);
}

// Ascending with gaps, alike, or anywhere.
std::vector<int64_t> randomPlaces(std::mt19937_64& random, const std::vector<int64_t>& lengths,
                                  int64_t unit) {
  std::vector<int64_t> places(lengths.size());
  const int64_t kind = between(random, 0, 3);
  int64_t next = between(random, -3, 3) * unit;
  const int64_t gap = between(random, 0, 3) * unit;
  for (std::size_t i = 0; i < places.size(); ++i) {
    places[i] = kind == 3 ? between(random, -20, 20) * unit : next;
    next += lengths[i] * unit + (kind == 0 ? gap : between(random, 0, 3) * unit);
  }
  return places;
}

Recipe randomOnce(std::mt19937_64& random, int depth) {
  Recipe recipe;
  if (depth == 0 || between(random, 0, 9) == 0) {
    recipe.bytes = 1 << between(random, 0, 4);
    return recipe;
  }
  recipe.constructor = static_cast<Constructor>(between(random, 1, 11));
  recipe.olds.push_back(randomOnce(random, depth - 1));
  const int64_t extent = std::max<int64_t>(1, std::abs(typeMapOf(recipe.olds[0]).extent()));
  // Now and then bytes that no element's size divides.
  const int64_t unit = between(random, 0, 3) == 0 ? 1 : extent;
  recipe.count = randomCount(random);
  switch (recipe.constructor) {
    case Constructor::kPrimitive:
    case Constructor::kContiguous:
    case Constructor::kDuplicate:
      break;
    case Constructor::kVector:
    case Constructor::kHvector:
      recipe.blockLength = randomCount(random);
      recipe.stride = between(random, -4, 12);
      if (recipe.constructor == Constructor::kHvector) recipe.stride *= unit;
      break;
    case Constructor::kIndexed:
    case Constructor::kHindexed:
    case Constructor::kIndexedBlock:
    case Constructor::kHindexedBlock: {
      recipe.blockLength = between(random, 0, 3);
      recipe.lengths.assign(static_cast<std::size_t>(recipe.count), recipe.blockLength);
      const bool block = recipe.constructor == Constructor::kIndexedBlock ||
                         recipe.constructor == Constructor::kHindexedBlock;
      const bool inBytes = recipe.constructor == Constructor::kHindexed ||
                           recipe.constructor == Constructor::kHindexedBlock;
      if (!block && between(random, 0, 1) == 0) {
        for (int64_t& length : recipe.lengths) length = between(random, 0, 4);
      }
      recipe.places = randomPlaces(random, recipe.lengths, inBytes ? unit : 1);
      break;
    }
    case Constructor::kStruct:
      for (int64_t i = 1; i < recipe.count; ++i) {
        recipe.olds.push_back(between(random, 0, 2) == 0 ? recipe.olds[0]
                                                         : randomOnce(random, depth - 1));
      }
      recipe.olds.resize(static_cast<std::size_t>(recipe.count));
      for (int64_t i = 0; i < recipe.count; ++i) recipe.lengths.push_back(between(random, 0, 3));
      recipe.places = randomPlaces(random, recipe.lengths, unit);
      break;
    case Constructor::kSubarray: {
      recipe.order = between(random, 0, 1) == 0 ? adsmOrderC : adsmOrderFortran;
      const int64_t dimensions = between(random, 1, 4);
      for (int64_t i = 0; i < dimensions; ++i) {
        recipe.sizes.push_back(between(random, 1, 6));
        recipe.lengths.push_back(between(random, 1, recipe.sizes.back()));
        recipe.places.push_back(between(random, 0, recipe.sizes.back() - recipe.lengths.back()));
      }
      break;
    }
    case Constructor::kResized:
      recipe.stride = between(random, -8, 8);
      recipe.extent =
          between(random, 0, 4) == 0 ? between(random, -20, 60) : extent + between(random, 0, 8);
      break;
  }
  return recipe;
}

}  // namespace

std::string text(const Recipe& recipe) {
  if (recipe.constructor == Constructor::kPrimitive) return fmt::format("{}B", recipe.bytes);
  std::string olds;
  for (const Recipe& old : recipe.olds) olds += (olds.empty() ? "" : ", ") + text(old);
  return fmt::format(
      "{}(count={} length={} stride={} extent={} lengths={} places={} sizes={}{}: {})",
      kNames[static_cast<int>(recipe.constructor)], recipe.count, recipe.blockLength, recipe.stride,
      recipe.extent, text(recipe.lengths), text(recipe.places), text(recipe.sizes),
      recipe.order == adsmOrderC ? "" : " Fortran", olds);
}

int64_t TypeMap::size() const {
  int64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  return bytes;
}

int64_t TypeMap::lowerBound() const {
  int64_t bound = 0;
  return best(entries, Entry::Kind::kLowerBound, beginOf, smaller, &bound) ? bound
                                                                           : trueLowerBound();
}

int64_t TypeMap::upperBound() const {
  int64_t bound = 0;
  return best(entries, Entry::Kind::kUpperBound, beginOf, larger, &bound) ? bound
                                                                          : trueUpperBound();
}

int64_t TypeMap::trueLowerBound() const {
  int64_t bound = 0;
  best(entries, Entry::Kind::kData, beginOf, smaller, &bound);
  return bound;
}

int64_t TypeMap::trueUpperBound() const {
  int64_t bound = 0;
  best(entries, Entry::Kind::kData, endOf, larger, &bound);
  return bound;
}

std::vector<int64_t> TypeMap::byteOffsets() const {
  std::vector<int64_t> offsets;
  for (const Entry& entry : entries) {
    for (int64_t i = 0; i < entry.bytes; ++i) offsets.push_back(entry.displacement + i);
  }
  return offsets;
}

TypeMap typeMapOf(const Recipe& recipe) {
  TypeMap map;
  if (recipe.constructor == Constructor::kPrimitive) {
    map.entries.push_back({Entry::Kind::kData, 0, recipe.bytes});
    return map;
  }
  if (recipe.constructor == Constructor::kStruct) {
    for (std::size_t i = 0; i < recipe.olds.size(); ++i) {
      appendBlock(map, typeMapOf(recipe.olds[i]), recipe.lengths[i], recipe.places[i]);
    }
    return map;
  }
  const TypeMap old = typeMapOf(recipe.olds[0]);
  switch (recipe.constructor) {
    case Constructor::kContiguous:
      appendBlock(map, old, recipe.count, 0);
      break;
    case Constructor::kVector:
    case Constructor::kHvector:
      for (int64_t i = 0; i < recipe.count; ++i) {
        const int64_t unit = recipe.constructor == Constructor::kVector ? old.extent() : 1;
        appendBlock(map, old, recipe.blockLength, i * recipe.stride * unit);
      }
      break;
    case Constructor::kIndexed:
    case Constructor::kIndexedBlock:
      for (std::size_t i = 0; i < recipe.places.size(); ++i) {
        appendBlock(map, old, recipe.lengths[i], recipe.places[i] * old.extent());
      }
      break;
    case Constructor::kHindexed:
    case Constructor::kHindexedBlock:
      for (std::size_t i = 0; i < recipe.places.size(); ++i) {
        appendBlock(map, old, recipe.lengths[i], recipe.places[i]);
      }
      break;
    case Constructor::kSubarray:
      appendSubarray(map, old, recipe);
      break;
    case Constructor::kResized:
      for (const Entry& entry : old.entries) {
        if (entry.kind == Entry::Kind::kData) map.entries.push_back(entry);
      }
      map.entries.push_back({Entry::Kind::kLowerBound, recipe.stride, 0});
      map.entries.push_back({Entry::Kind::kUpperBound, recipe.stride + recipe.extent, 0});
      break;
    default:
      map = old;
  }
  return map;
}

adsmType_t typeOf(const Recipe& recipe) {
  if (recipe.constructor == Constructor::kPrimitive) {
    return reinterpret_cast<adsmType_t>(static_cast<std::uintptr_t>(recipe.bytes));
  }
  std::vector<adsmType_t> olds;
  for (const Recipe& old : recipe.olds) olds.push_back(typeOf(old));
  const adsmType_t old = olds.empty() ? nullptr : olds[0];
  adsmType_t type = nullptr;
  adsmError_t error = adsmSuccess;
  switch (recipe.constructor) {
    case Constructor::kPrimitive:
      break;
    case Constructor::kContiguous:
      error = adsmTypeContiguous(recipe.count, old, &type);
      break;
    case Constructor::kVector:
      error = adsmTypeVector(recipe.count, recipe.blockLength, recipe.stride, old, &type);
      break;
    case Constructor::kHvector:
      error = adsmTypeHvector(recipe.count, recipe.blockLength, recipe.stride, old, &type);
      break;
    case Constructor::kIndexed:
      error =
          adsmTypeIndexed(recipe.count, recipe.lengths.data(), recipe.places.data(), old, &type);
      break;
    case Constructor::kHindexed:
      error =
          adsmTypeHindexed(recipe.count, recipe.lengths.data(), recipe.places.data(), old, &type);
      break;
    case Constructor::kIndexedBlock:
      error =
          adsmTypeIndexedBlock(recipe.count, recipe.blockLength, recipe.places.data(), old, &type);
      break;
    case Constructor::kHindexedBlock:
      error =
          adsmTypeHindexedBlock(recipe.count, recipe.blockLength, recipe.places.data(), old, &type);
      break;
    case Constructor::kStruct:
      error = adsmTypeStruct(recipe.count, recipe.lengths.data(), recipe.places.data(), olds.data(),
                             &type);
      break;
    case Constructor::kSubarray:
      error =
          adsmTypeSubarray(static_cast<int>(recipe.sizes.size()), recipe.sizes.data(),
                           recipe.lengths.data(), recipe.places.data(), recipe.order, old, &type);
      break;
    case Constructor::kResized:
      error = adsmTypeResized(old, recipe.stride, recipe.extent, &type);
      break;
    case Constructor::kDuplicate:
      error = adsmTypeDuplicate(old, &type);
      break;
  }
  EXPECT_EQ(error, adsmSuccess) << lastErrorText() << "\n" << text(recipe);
  for (std::size_t i = 0; i < olds.size(); ++i) {
    if (recipe.olds[i].constructor != Constructor::kPrimitive) {
      EXPECT_EQ(adsmTypeFree(olds[i]), adsmSuccess) << lastErrorText();
    }
  }
  return type;
}

Recipe randomRecipe(std::mt19937_64& random, const RecipeLimits& limits) {
  for (;;) {
    Recipe recipe = randomOnce(random, limits.depth);
    if (typeMapOf(recipe).entries.size() <= limits.mostEntries) return recipe;
  }
}

std::uint64_t testSeed() {
  const std::uint64_t seed = testing::newSeed();
  std::printf("GMAC_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace gmac::datatype
