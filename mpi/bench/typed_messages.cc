// SPDX-License-Identifier: Apache-2.0
//
// The cost of a datatype to a message of plain memory: 64 KiB, 256 KiB and 2 MiB in blocks of 8
// bytes, each 16 after the one before it, from rank 0 to rank 1 and back, in ways that take turns:
//   contiguous  MPI_Send of as many bytes in one piece
//   wire        MPI_Ssend of the vector, which is MPI's alone
//   send        MPI_Send of the vector
//   isend       MPI_Isend and MPI_Wait of the vector
// Microseconds of one way, and how many times as long as the contiguous one.
//   mpirun -n 2 gmac run --mpi -- typed_messages
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

namespace {

constexpr int kRounds = 25;
constexpr int kTimes = 8;
constexpr int kSizes[] = {64 << 10, 256 << 10, 2 << 20};
constexpr int kBlock = 8;
constexpr int kStride = 16;

using Send = decltype(&MPI_Send);

int sendLater(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(buffer, count, type, to, tag, comm, &request);
  return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Seconds of one way.
double pingPong(int rank, Send send, void* memory, int count, MPI_Datatype type) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) {
    if (rank == 0) send(memory, count, type, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(memory, count, type, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) send(memory, count, type, 0, 0, MPI_COMM_WORLD);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / kTimes / 2;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

// One size in every way.
void measure(int rank, int bytes) {
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  MPI_Type_vector(bytes / kBlock, kBlock, kStride, MPI_BYTE, &vector);
  MPI_Type_commit(&vector);
  std::vector<char> memory(static_cast<std::size_t>(bytes) / kBlock * kStride, 1);
  const struct {
    const char* name;
    Send send;
    int count;
    MPI_Datatype type;
  } ways[] = {{"contiguous", &MPI_Send, bytes, MPI_BYTE},
              {"wire", &MPI_Ssend, 1, vector},
              {"send", &MPI_Send, 1, vector},
              {"isend", &sendLater, 1, vector}};
  std::array<std::vector<double>, std::size(ways)> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    for (std::size_t i = 0; i < std::size(ways); ++i) {
      const double took = pingPong(rank, ways[i].send, memory.data(), ways[i].count, ways[i].type);
      if (round > 0) seconds[i].push_back(took);
    }
  }
  const double contiguous = median(seconds[0]);
  for (std::size_t i = 0; i < std::size(ways) && rank == 0; ++i) {
    const double took = median(seconds[i]);
    std::printf("%4d KiB %-10s %8.1f us, %5.2f times as long\n", bytes >> 10, ways[i].name,
                took * 1e6, took / contiguous);
  }
  MPI_Type_free(&vector);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    std::fprintf(stderr,
                 "typed_messages: mpirun -n 2 gmac run --mpi -- "
                 "typed_messages\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (const int bytes : kSizes) measure(rank, bytes);
  MPI_Finalize();
}
