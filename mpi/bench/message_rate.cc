// SPDX-License-Identifier: Apache-2.0
//
// The gain of tickets: messages from rank 0 to rank 1 and back, from 64 KiB (or the bytes given) to
// 64 MiB, contiguous and strided (MPI_Type_vector), in seven ways that take turns:
//   wire      MPI_Ssend of plain memory, which is MPI's alone
//   transfer  MPI_Send of plain memory, which the receiver takes from there
//   isend     MPI_Isend and MPI_Wait of it: short pieces are packed into shared memory at once
//   object    MPI_Send of a shared object that is current on the CPU, which the receiver maps
//   device    MPI_Send of one that only memset() has filled, which runs where its bytes are
// and MPI_Ssend of both objects, which are packed, sent by MPI, and unpacked. GB/s of one way, and
// how many times as fast as the wire. Between two hosts all of them take the wire.
//   mpirun -n 2 gmac run --mpi -- message_rate [least bytes [number of the only shape]]
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

constexpr int kRounds = 11;
constexpr int kBytesOfARound = 32 << 20;

using Send = decltype(&MPI_Send);

int sendLater(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(buffer, count, type, to, tag, comm, &request);
  return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

struct Shape {
  const char* name;
  int block;  // bytes; 0: one piece
  int stride;
};
constexpr Shape kShapes[] = {{"contiguous", 0, 0},
                             {"blocks of 8 KiB", 8192, 16384},
                             {"blocks of 128 B", 128, 256},
                             {"blocks of 8 B", 8, 16}};

// Seconds of one way.
double pingPong(int rank, Send send, void* memory, int bytes, MPI_Datatype type) {
  const int times = std::clamp(kBytesOfARound / bytes, 2, 100);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    if (rank == 0) send(memory, 1, type, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(memory, 1, type, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) send(memory, 1, type, 0, 0, MPI_COMM_WORLD);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / times / 2;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

MPI_Datatype makeType(const Shape& shape, int bytes) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  if (shape.block == 0) {
    MPI_Type_contiguous(bytes, MPI_BYTE, &type);
  } else {
    MPI_Type_vector(bytes / shape.block, shape.block, shape.stride, MPI_BYTE, &type);
  }
  MPI_Type_commit(&type);
  return type;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  using Allocate = void* (*)(std::size_t);
  using Free = int (*)(void*);
  const auto allocate = reinterpret_cast<Allocate>(dlsym(RTLD_DEFAULT, "adsmAlloc"));
  const auto release = reinterpret_cast<Free>(dlsym(RTLD_DEFAULT, "adsmFree"));
  const int least = argc > 1 ? std::max(1, std::atoi(argv[1])) : 64 << 10;
  if (size != 2 || allocate == nullptr || release == nullptr) {
    std::fprintf(stderr, "message_rate: mpirun -n 2 gmac run --mpi -- message_rate\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const int only = argc > 2 ? std::atoi(argv[2]) : -1;
  for (const Shape& shape : kShapes) {
    if (only >= 0 && &shape - kShapes != only) continue;
    for (int bytes = least; bytes <= 64 << 20; bytes *= 8) {
      MPI_Datatype type = makeType(shape, bytes);
      const std::size_t span = static_cast<std::size_t>(bytes) * (shape.block == 0 ? 1 : 2);
      void* const object = allocate(span);
      void* const device = allocate(span);
      void* const plain = std::malloc(span);
      // By the CPU itself: memset() runs where the bytes are current.
      auto* const bytesOfObject = static_cast<volatile unsigned char*>(object);
      for (std::size_t i = 0; i < span; ++i) bytesOfObject[i] = 1;
      std::memset(device, 1, span);
      std::memset(plain, 1, span);
      std::array<std::vector<double>, 7> seconds;
      for (int round = 0; round < kRounds; ++round) {
        seconds[0].push_back(pingPong(rank, &MPI_Ssend, plain, bytes, type));
        seconds[1].push_back(pingPong(rank, &MPI_Send, plain, bytes, type));
        seconds[2].push_back(pingPong(rank, &sendLater, plain, bytes, type));
        seconds[3].push_back(pingPong(rank, &MPI_Send, object, bytes, type));
        seconds[4].push_back(pingPong(rank, &MPI_Send, device, bytes, type));
        seconds[5].push_back(pingPong(rank, &MPI_Ssend, object, bytes, type));
        seconds[6].push_back(pingPong(rank, &MPI_Ssend, device, bytes, type));
      }
      if (rank == 0) {
        const double wire = median(seconds[0]);
        const auto show = [&](const char* name, const std::vector<double>& taken) {
          const double one = median(taken);
          std::printf("; %s %5.2f GB/s, ratio %5.2f", name, bytes / one / 1e9, wire / one);
        };
        std::printf("%-15s %6d KiB: wire %5.2f GB/s", shape.name, bytes >> 10, bytes / wire / 1e9);
        show("transfer", seconds[1]);
        show("isend", seconds[2]);
        show("object", seconds[3]);
        show("packed", seconds[5]);
        show("device", seconds[4]);
        show("packed", seconds[6]);
        std::printf("\n");
        std::fflush(stdout);
      }
      std::free(plain);
      release(object);
      release(device);
      MPI_Type_free(&type);
    }
  }
  MPI_Finalize();
}
