// SPDX-License-Identifier: Apache-2.0
//
// What tickets gain: a shared object goes from rank 0 to rank 1 and back, from 64 KiB to 64 MiB.
// MPI_Send goes by ticket, MPI_Ssend of the same object by MPI's wire, in turns; and MPI_Send of
// plain memory, which is MPI's alone. GB/s of one way, and ratios.
//   mpirun -n 2 gmac run --mpi -- message_rate
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kRounds = 15;
constexpr std::size_t kBytesOfARound = std::size_t{128} << 20;

using Send = decltype(&MPI_Send);

// Seconds of one way.
double pingPong(int rank, Send send, void* memory, int bytes) {
  const int times = static_cast<int>(
      std::clamp<std::size_t>(kBytesOfARound / static_cast<std::size_t>(bytes), 2, 200));
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    if (rank == 0) send(memory, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(memory, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) send(memory, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / times / 2;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  using Allocate = void* (*)(std::size_t);
  const auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "adsmAlloc"));
  if (size != 2 || allocate == nullptr) {
    std::fprintf(stderr, "message_rate: mpirun -n 2 gmac run --mpi -- message_rate\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  for (int bytes = 64 << 10; bytes <= 64 << 20; bytes *= 4) {
    void* const object = allocate(static_cast<std::size_t>(bytes));
    void* const plain = std::malloc(static_cast<std::size_t>(bytes));
    std::memset(object, 1, static_cast<std::size_t>(bytes));
    std::memset(plain, 1, static_cast<std::size_t>(bytes));
    std::array<std::vector<double>, 3> seconds;
    for (int round = 0; round < kRounds; ++round) {
      seconds[0].push_back(pingPong(rank, &MPI_Send, object, bytes));
      seconds[1].push_back(pingPong(rank, &MPI_Ssend, object, bytes));
      seconds[2].push_back(pingPong(rank, &MPI_Send, plain, bytes));
    }
    const double ticket = median(seconds[0]);
    const double wire = median(seconds[1]);
    const double own = median(seconds[2]);
    if (rank == 0) {
      std::printf(
          "%6d KiB: by ticket %.2f GB/s, by the wire %.2f GB/s, ratio %.2f; plain memory %.2f "
          "GB/s, ratio %.2f\n",
          bytes >> 10, bytes / ticket / 1e9, bytes / wire / 1e9, wire / ticket, bytes / own / 1e9,
          own / ticket);
    }
    std::free(plain);
  }
  MPI_Finalize();
}
