// SPDX-License-Identifier: Apache-2.0
//
// Datatypes of several allocations: an array of the program's own and a shared object, so that
// whatever is between them, gmac's private memory too, lies in a gap of the type.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::kMask;
using gmac::testing::Memory;

constexpr int kBytes = 48000;  // so that what gmac packs is on the heap, and not mapped
constexpr int kRow = 5;
constexpr int kStride = 8;
constexpr int kRows = kBytes / kStride;

int rank = 0;
// Below the heap.
std::array<unsigned char, kBytes> lowOut{};
std::array<unsigned char, kBytes> lowIn{};

unsigned char valueAt(int sender, int i) {
  return static_cast<unsigned char>(i * 7 + i / 251 + sender);
}
bool isSent(int i) { return i / kStride < kRows && i % kStride < kRow; }

// Rows of the array, and rows of the object, from the array's address or from MPI_BOTTOM.
struct Wide {
  Wide(unsigned char* low, unsigned char* object, bool fromBottom)
      : address(fromBottom ? MPI_BOTTOM : low) {
    MPI_Datatype rows;
    MPI_Type_vector(kRows, kRow, kStride, MPI_BYTE, &rows);
    MPI_Aint first;
    MPI_Aint second;
    MPI_Get_address(low, &first);
    MPI_Get_address(object, &second);
    std::array<int, 2> lengths = {1, 1};
    std::array<MPI_Aint, 2> displacements = {fromBottom ? first : 0,
                                             fromBottom ? second : second - first};
    MPI_Type_create_hindexed(2, lengths.data(), displacements.data(), rows, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&rows);
  }
  ~Wide() { MPI_Type_free(&type); }
  Wide(const Wide&) = delete;
  Wide& operator=(const Wide&) = delete;

  void* address;
  MPI_Datatype type;
};

void clear(const Memory& object) {
  lowIn.fill(1);
  std::memset(object.data(), 1 ^ kMask, kBytes);
  object.flip();
}

void expectFrom(int sender, const Memory& object, const char* what) {
  for (int i = 0; i < kBytes; ++i) {
    const int wanted = isSent(i) ? valueAt(sender, i) : 1;
    expect(lowIn[static_cast<std::size_t>(i)] == wanted && object.data()[i] == wanted, what);
  }
}

void exchange(bool fromBottom) {
  const Memory out(Memory::Kind::kShared, kBytes);
  const Memory in(Memory::Kind::kShared, kBytes);
  for (int i = 0; i < kBytes; ++i) {
    lowOut[static_cast<std::size_t>(i)] = valueAt(rank, i);
    out.data()[i] = static_cast<unsigned char>(valueAt(rank, i) ^ kMask);
  }
  out.flip();
  const Wide sent(lowOut.data(), out.data(), fromBottom);
  const Wide received(lowIn.data(), in.data(), fromBottom);
  const int other = 1 - rank;

  for (const int partner : {other, rank}) {
    clear(in);
    expectSuccess(MPI_Sendrecv(sent.address, 1, sent.type, partner, 1, received.address, 1,
                               received.type, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                  "MPI_Sendrecv");
    expectFrom(partner, in, "what MPI_Sendrecv has received");
  }

  clear(in);
  std::array<MPI_Request, 2> requests{};
  expectSuccess(
      MPI_Irecv(received.address, 1, received.type, other, 2, MPI_COMM_WORLD, &requests[0]),
      "MPI_Irecv");
  expectSuccess(MPI_Isend(sent.address, 1, sent.type, other, 2, MPI_COMM_WORLD, &requests[1]),
                "MPI_Isend");
  expectSuccess(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  expectFrom(other, in, "what MPI_Irecv has received");

  // The other side in one piece.
  constexpr int kPacked = 2 * kRows * kRow;
  const Memory packed(Memory::Kind::kShared, kPacked);
  std::memset(packed.data(), 0, kPacked);
  packed.flip();
  clear(in);
  expectSuccess(MPI_Irecv(packed.data(), kPacked, MPI_BYTE, other, 3, MPI_COMM_WORLD, &requests[0]),
                "MPI_Irecv of bytes");
  expectSuccess(MPI_Send(sent.address, 1, sent.type, other, 3, MPI_COMM_WORLD), "MPI_Send");
  expectSuccess(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), "MPI_Wait");
  expectSuccess(MPI_Isend(packed.data(), kPacked, MPI_BYTE, other, 4, MPI_COMM_WORLD, &requests[0]),
                "MPI_Isend of bytes");
  expectSuccess(
      MPI_Recv(received.address, 1, received.type, other, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
      "MPI_Recv");
  expectSuccess(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), "MPI_Wait");
  expectFrom(rank, in, "what came back");

  clear(in);
  std::vector<unsigned char> buffer(kPacked);
  int position = 0;
  expectSuccess(
      MPI_Pack(sent.address, 1, sent.type, buffer.data(), kPacked, &position, MPI_COMM_WORLD),
      "MPI_Pack");
  position = 0;
  expectSuccess(MPI_Unpack(buffer.data(), kPacked, &position, received.address, 1, received.type,
                           MPI_COMM_WORLD),
                "MPI_Unpack");
  expectFrom(rank, in, "what was packed and unpacked");

  clear(in);
  const Wide& mine = rank == 0 ? sent : received;
  expectSuccess(MPI_Bcast(mine.address, 1, mine.type, 0, MPI_COMM_WORLD), "MPI_Bcast");
  if (rank == 1) expectFrom(0, in, "what MPI_Bcast has brought");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  exchange(false);
  exchange(true);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::puts("wide");
  MPI_Finalize();
}
