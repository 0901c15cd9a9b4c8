// SPDX-License-Identifier: Apache-2.0
//
//   collective_types [known]
//
// Datatypes that all processes commit together. Two ranks; `known`: with libgmac_mpi.so, so that
// types of different layouts are found out. Rank 0 receives messages of such a type as bytes.
#include <mpi.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "gmac/api/adsm_mpi.h"
#include "tests/mpi/expect.h"

namespace {

using gmac::testing::expect;

constexpr int kPieces = 20'000;
int rank = 0;

// Doubles at growing distances, in `pieces` pieces.
MPI_Datatype growing(int pieces) {
  std::vector<int> places;
  for (int i = 0; i < pieces; ++i) places.push_back(i * 2 + i % 3);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_indexed_block(pieces, 1, places.data(), MPI_DOUBLE, &type);
  return type;
}

// Rank 1 sends so many elements, and rank 0 receives their bytes.
void send(MPI_Datatype type, int count, int tag) {
  MPI_Aint lowerBound = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(type, &lowerBound, &extent);
  std::vector<double> values(static_cast<std::size_t>(extent) * static_cast<std::size_t>(count) /
                             sizeof(double));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
  std::vector<double> packed(static_cast<std::size_t>(kPieces) * static_cast<std::size_t>(count));
  const int bytes = static_cast<int>(packed.size() * sizeof(double));
  if (rank == 1) {
    MPI_Send(values.data(), count, type, 0, tag, MPI_COMM_WORLD);
    return;
  }
  MPI_Recv(packed.data(), bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  std::vector<double> wanted(packed.size());
  int position = 0;
  MPI_Pack(values.data(), count, type, wanted.data(), bytes, &position, MPI_COMM_SELF);
  expect(packed == wanted, "the elements arrive", count);
}

void refuseDifferentTypes(bool known) {
  MPI_Datatype type = growing(kPieces + rank);
  const adsmError_t error = adsmTypeCommitOn(MPI_COMM_WORLD, &type);
  expect(error == (known ? adsmErrorInvalidValue : adsmSuccess), "types of different layouts");
  expect(!known ||
             std::string_view(adsmLastErrorString()).find("adsmTypeCommitOn: the processes") == 0,
         "the error says so");
  expect(type != MPI_DATATYPE_NULL && MPI_Type_free(&type) == MPI_SUCCESS, "it can be freed");
  MPI_Datatype none = MPI_DATATYPE_NULL;
  expect(adsmTypeCommitOn(MPI_COMM_WORLD, nullptr) == adsmErrorInvalidValue &&
             adsmTypeCommitOn(MPI_COMM_WORLD, &none) == adsmErrorInvalidValue &&
             adsmTypeFreeOn(MPI_COMM_WORLD, &none) == adsmErrorInvalidValue,
         "no type");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool known = argc > 1 && std::string_view(argv[1]) == "known";

  MPI_Datatype type = growing(kPieces);
  expect(adsmTypeCommitOn(MPI_COMM_WORLD, &type) == adsmSuccess, "adsmTypeCommitOn");
  send(type, 1, 1);
  send(type, 3, 2);
  expect(adsmTypeFreeOn(MPI_COMM_WORLD, &type) == adsmSuccess && type == MPI_DATATYPE_NULL,
         "adsmTypeFreeOn");
  // It is made by each for itself now, so that its layout is read.
  type = growing(kPieces);
  MPI_Type_commit(&type);
  send(type, 2, 3);
  MPI_Type_free(&type);
  refuseDifferentTypes(known);

  if (rank == 0) std::printf("collective types are right\n");
  MPI_Finalize();
  return 0;
}
