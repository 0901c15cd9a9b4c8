// SPDX-License-Identifier: Apache-2.0
//
// The cost of open receives to messages that wait for their receivers: 128 KiB in blocks of 8
// bytes, each 16 after the one before it, from both ranks at the same time (MPI_Irecv, MPI_Send,
// MPI_Wait), while each rank has posted so many MPI_Irecv that get their messages at the end.
// Microseconds of one exchange, and how many times as long as with none open.
//   mpirun -n 2 gmac run --mpi -- open_receives
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

constexpr int kRounds = 9;
constexpr int kTimes = 60;
constexpr int kBytes = 128 << 10;
constexpr int kBlock = 8;
constexpr int kStride = 16;
constexpr int kOpenBytes = 1024;
constexpr int kFirstOpenTag = 100;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

// Seconds of one exchange.
double exchange(int other, char* sent, char* received, MPI_Datatype type) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) {
    MPI_Request receive = MPI_REQUEST_NULL;
    MPI_Irecv(received, 1, type, other, 0, MPI_COMM_WORLD, &receive);
    MPI_Send(sent, 1, type, other, 0, MPI_COMM_WORLD);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / kTimes;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    std::fprintf(stderr, "open_receives: mpirun -n 2 gmac run --mpi -- open_receives\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const int other = 1 - rank;
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  MPI_Type_vector(kBytes / kBlock, kBlock, kStride, MPI_BYTE, &vector);
  MPI_Type_commit(&vector);
  std::vector<char> sent(std::size_t{kBytes} / kBlock * kStride, 1);
  std::vector<char> received(sent.size());
  constexpr std::array kOpen = {0, 10, 100, 1000};
  double none = 0;
  for (const int open : kOpen) {
    std::vector<char> room(static_cast<std::size_t>(open) * kOpenBytes);
    std::vector<MPI_Request> requests(static_cast<std::size_t>(open));
    for (int i = 0; i < open; ++i) {
      MPI_Irecv(room.data() + std::size_t{kOpenBytes} * static_cast<std::size_t>(i), kOpenBytes,
                MPI_BYTE, other, kFirstOpenTag + i, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(i)]);
    }
    std::vector<double> seconds;
    for (int round = 0; round <= kRounds; ++round) {
      const double took = exchange(other, sent.data(), received.data(), vector);
      if (round > 0) seconds.push_back(took);
    }
    for (int i = 0; i < open; ++i) {
      MPI_Send(sent.data(), kOpenBytes, MPI_BYTE, other, kFirstOpenTag + i, MPI_COMM_WORLD);
    }
    MPI_Waitall(open, requests.data(), MPI_STATUSES_IGNORE);
    const double took = median(seconds);
    if (open == 0) none = took;
    if (rank == 0) {
      std::printf("%5d open %8.1f us, %5.2f times as long\n", open, took * 1e6, took / none);
    }
  }
  MPI_Type_free(&vector);
  MPI_Finalize();
}
