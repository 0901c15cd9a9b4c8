// SPDX-License-Identifier: Apache-2.0
//
// Messages of the same bytes in three shapes, for programs that send each shape to each.
#ifndef GMAC_TESTS_MPI_SHAPES_H_
#define GMAC_TESTS_MPI_SHAPES_H_

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace gmac::testing {

inline constexpr int kShapes = 3;
inline MPI_Datatype types[kShapes];
inline std::size_t spans[kShapes];  // bytes of memory that one of the type takes
inline int packedBytes = 0;

// Makes the types, of `bytes` bytes each: in one piece, in pieces of `piece` bytes that begin every
// `stride`, and in pieces of 8. Once, after MPI_Init.
inline void makeTypes(int bytes, int piece, int stride) {
  packedBytes = bytes;
  MPI_Type_contiguous(bytes, MPI_BYTE, &types[0]);
  MPI_Type_vector(bytes / piece, piece, stride, MPI_BYTE, &types[1]);
  MPI_Type_vector(bytes / 8, 8, 24, MPI_BYTE, &types[2]);
  for (int i = 0; i < kShapes; ++i) {
    MPI_Type_commit(&types[i]);
    MPI_Aint lowerBound = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(types[i], &lowerBound, &extent);
    spans[i] = static_cast<std::size_t>(extent);
  }
}

// The bytes of a message, which differ from seed to seed.
inline std::vector<unsigned char> pattern(int seed) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(packedBytes));
  for (int i = 0; i < packedBytes; ++i) {
    bytes[static_cast<std::size_t>(i)] = static_cast<unsigned char>(i * 7 + (i >> 8) + seed * 31);
  }
  return bytes;
}

// `size` bytes of memory in which a message of one type lies, with 0x11 around it.
inline std::vector<unsigned char> unpacked(const std::vector<unsigned char>& packed,
                                           std::size_t size, MPI_Datatype type) {
  std::vector<unsigned char> bytes(size, 0x11);
  int position = 0;
  MPI_Unpack(packed.data(), packedBytes, &position, bytes.data(), 1, type, MPI_COMM_SELF);
  return bytes;
}

// And back.
inline std::vector<unsigned char> packed(const std::vector<unsigned char>& bytes,
                                         MPI_Datatype type) {
  std::vector<unsigned char> message(static_cast<std::size_t>(packedBytes));
  int position = 0;
  MPI_Pack(bytes.data(), 1, type, message.data(), packedBytes, &position, MPI_COMM_SELF);
  return message;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_SHAPES_H_
