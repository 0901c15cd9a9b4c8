// SPDX-License-Identifier: Apache-2.0
//
// Random datatypes of MPI, the same on every rank for the same state of the generator.
#ifndef GMAC_TESTS_MPI_RANDOM_TYPES_H_
#define GMAC_TESTS_MPI_RANDOM_TYPES_H_

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace gmac::testing {

using Rng = std::mt19937_64;

// One of [least, most].
inline int draw(Rng& rng, int least, int most) {
  return least + static_cast<int>(rng() % static_cast<std::uint64_t>(most - least + 1));
}

// Types that are freed together.
class Types {
 public:
  Types() = default;
  ~Types() {
    for (MPI_Datatype& type : made_) MPI_Type_free(&type);
  }
  Types(const Types&) = delete;
  Types& operator=(const Types&) = delete;

  // The elements of a message: predefined, with and without gaps, or a struct.
  MPI_Datatype base(Rng& rng) {
    switch (draw(rng, 0, 7)) {
      case 0:
        return MPI_BYTE;
      case 1:
        return MPI_SHORT;
      case 2:
        return MPI_INT;
      case 3:
        return MPI_FLOAT;
      case 4:
        return MPI_DOUBLE;
      case 5:
        return MPI_DOUBLE_INT;
      case 6:
        return MPI_C_DOUBLE_COMPLEX;
      default: {
        // A ticket is whole elements of the one, and ends within a double of the other.
        std::array<int, 3> lengths = {1, 1, draw(rng, 0, 1) == 0 ? 3 : 0};
        std::array<MPI_Aint, 3> places = {0, 8, 16};
        std::array<MPI_Datatype, 3> olds = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
        MPI_Datatype type;
        MPI_Type_create_struct(3, lengths.data(), places.data(), olds.data(), &type);
        return keep(type);
      }
    }
  }

  // A type of up to `depth` constructors around `old`, committed. Its pieces do not overlap.
  MPI_Datatype derived(Rng& rng, MPI_Datatype old, int depth) {
    MPI_Datatype type = old;
    for (int i = draw(rng, 0, depth); i > 0; --i) type = keep(around(rng, type, Order::kAny));
    return type;
  }

  // The same of pieces at growing places, whole elements of `old` from zero on, as views of files
  // have them.
  MPI_Datatype growing(Rng& rng, MPI_Datatype old, int depth, bool darrays) {
    MPI_Datatype type = old;
    for (int i = draw(rng, 0, depth); i > 0; --i) {
      type = keep(around(rng, type, darrays ? Order::kGrowing : Order::kGrowingWithoutDarrays));
    }
    return type;
  }

  // `old` with a gap, or a longer one, after each.
  MPI_Datatype resized(MPI_Datatype old, MPI_Aint extent) {
    MPI_Datatype type;
    MPI_Type_create_resized(old, 0, extent, &type);
    return keep(type);
  }

  // `count` elements of `old` with a gap after each; committed.
  MPI_Datatype spread(int count, MPI_Datatype old) {
    MPI_Datatype type;
    MPI_Type_vector(count, 1, 2, old, &type);
    return keep(type);
  }

 private:
  MPI_Datatype keep(MPI_Datatype type) {
    MPI_Type_commit(&type);
    made_.push_back(type);
    return type;
  }

  enum class Order { kAny, kGrowing, kGrowingWithoutDarrays };

  static MPI_Datatype around(Rng& rng, MPI_Datatype old, Order which) {
    const bool isGrowing = which != Order::kAny;
    MPI_Aint lowerBound = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(old, &lowerBound, &extent);
    const int count = draw(rng, 1, 4);
    const int length = draw(rng, 1, 3);
    const int gap = draw(rng, 0, 3);
    const bool backwards = draw(rng, 0, 3) == 0 && !isGrowing;
    const int order = draw(rng, 0, 1) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    // Blocks at growing places, in that order or in the opposite one.
    std::array<int, 4> lengths{};
    std::array<int, 4> places{};
    int place = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      lengths[i] = draw(rng, 1, 3);
      places[i] = place;
      place += lengths[i] + draw(rng, 0, 2);
    }
    const int constructor = draw(rng, 0, which == Order::kGrowingWithoutDarrays ? 9 : 10);
    if (backwards && constructor != 5) {
      std::reverse(lengths.begin(), lengths.begin() + count);
      std::reverse(places.begin(), places.begin() + count);
    }
    std::array<MPI_Aint, 4> bytePlaces{};
    const MPI_Aint before = backwards || isGrowing ? 0 : 8;
    for (std::size_t i = 0; i < 4; ++i) bytePlaces[i] = places[i] * extent + before;
    std::array<MPI_Datatype, 4> olds = {old, old, old, old};
    std::array<int, 2> sizes = {count + gap, length + 2};
    std::array<int, 2> parts = {count, length};
    std::array<int, 2> starts = {gap, 1};
    std::array<int, 2> distributions = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    std::array<int, 2> arguments = {MPI_DISTRIBUTE_DFLT_DARG, 1};
    std::array<int, 2> grid = {1, 2};
    MPI_Datatype type = MPI_DATATYPE_NULL;
    switch (constructor) {
      case 0:
        MPI_Type_contiguous(count, old, &type);
        break;
      case 1:
        MPI_Type_vector(count, length, length + gap, old, &type);
        break;
      case 2:
        // (To Open MPI 4.1, blocks that adjoin backwards are blocks that adjoin forwards.)
        MPI_Type_create_hvector(
            count, length, (backwards ? -(length + gap + 1) : length + gap) * extent, old, &type);
        break;
      case 3:
        MPI_Type_indexed(count, lengths.data(), places.data(), old, &type);
        break;
      case 4:
        MPI_Type_create_hindexed(count, lengths.data(), bytePlaces.data(), old, &type);
        break;
      case 5:
        MPI_Type_create_indexed_block(count, 1, places.data(), old, &type);
        break;
      case 6:
        MPI_Type_create_struct(count, lengths.data(), bytePlaces.data(), olds.data(), &type);
        break;
      case 7:
        MPI_Type_create_subarray(2, sizes.data(), parts.data(), starts.data(), order, old, &type);
        break;
      case 8:
        if (isGrowing) {
          MPI_Type_create_resized(old, lowerBound, extent * (1 + gap), &type);
        } else {
          MPI_Type_create_resized(old, lowerBound - 8, extent + 16, &type);
        }
        break;
      case 9:
        MPI_Type_dup(old, &type);
        break;
      default:
        MPI_Type_create_darray(2, gap % 2, 2, sizes.data(), distributions.data(), arguments.data(),
                               grid.data(), order, old, &type);
        break;
    }
    return type;
  }

  std::vector<MPI_Datatype> made_;
};

// Where `count` elements at a buffer's address lie: [first, last) in bytes from it.
struct Span {
  std::int64_t first;
  std::int64_t last;
};
inline Span spanOf(MPI_Datatype type, int count) {
  MPI_Aint lowerBound = 0;
  MPI_Aint extent = 0;
  MPI_Aint trueLowerBound = 0;
  MPI_Aint trueExtent = 0;
  MPI_Type_get_extent(type, &lowerBound, &extent);
  MPI_Type_get_true_extent(type, &trueLowerBound, &trueExtent);
  Span span = {trueLowerBound, trueLowerBound + trueExtent};
  const std::int64_t more = std::int64_t{std::max(count - 1, 0)} * extent;
  (more < 0 ? span.first : span.last) += more;
  return {std::min<std::int64_t>(span.first, 0), std::max<std::int64_t>(span.last, 0)};
}

inline int sizeOf(MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return size;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_RANDOM_TYPES_H_
