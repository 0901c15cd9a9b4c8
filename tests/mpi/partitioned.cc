// SPDX-License-Identifier: Apache-2.0
//
// Partitioned messages of shared objects: what each partition's bytes are, and when.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

#if MPI_VERSION >= 4
namespace {

using gmac::testing::expect;
using gmac::testing::kMask;
using gmac::testing::Memory;

int rank = 0;

constexpr int kPartitions = 16;
constexpr int kBytes = 10'000;  // of one; so that two share a block

// Flips one partition on the accelerator; does not wait for it.
void flip(const Memory& memory, int partition) {
  static const adsmKernel_t kernel = gmac::testing::makeFlip();
  unsigned char* bytes = memory.data() + std::size_t{kBytes} * static_cast<std::size_t>(partition);
  std::size_t count = kBytes;
  void* args[] = {&bytes, &count};
  const adsmUse_t use = {memory.data(), adsmReadWrite};
  gmac::testing::require(adsmCallUsing(kernel, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1),
                         "adsmCallUsing");
}

bool isAll(const Memory& memory, int partition, int value) {
  for (int i = 0; i < kBytes; ++i) {
    if (memory.data()[partition * kBytes + i] != static_cast<unsigned char>(value)) return false;
  }
  return true;
}

void fill(const Memory& memory, int value) { std::memset(memory.data(), value, memory.size()); }

// Kernels that come before a partition is ready are seen, in every round; and what has arrived is
// the program's own before the message is complete.
void rounds() {
  const Memory memory(Memory::Kind::kShared, std::size_t{kBytes} * kPartitions);
  MPI_Request request;
  if (rank == 0) {
    MPI_Psend_init(memory.data(), kPartitions, kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  } else {
    MPI_Precv_init(memory.data(), kPartitions, kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  }
  for (int round = 0; round < 3; ++round) {
    fill(memory, rank == 0 ? round : 99);
    MPI_Start(&request);
    if (rank == 0) {
      for (int i = kPartitions - 1; i >= 8; --i) {
        flip(memory, i);
        MPI_Pready(i, request);
      }
      for (int i = 0; i < 8; ++i) flip(memory, i);
      MPI_Pready_range(0, 3, request);
      int list[] = {7, 5, 4, 6};
      MPI_Pready_list(4, list, request);
      // The message is not changed by what comes after.
      for (int i = 0; i < kPartitions; ++i) flip(memory, i);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      expect(isAll(memory, 3, round), "what was sent is as it was");
      continue;
    }
    for (const int partition : {9, 2, 9}) {
      int there = 0;
      while (there == 0) MPI_Parrived(request, partition, &there);
    }
    expect(isAll(memory, 9, round ^ kMask) && isAll(memory, 2, round ^ kMask),
           "what has arrived is in the object");
    flip(memory, 9);
    std::memset(memory.data() + 2 * std::size_t{kBytes}, 77, kBytes);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < kPartitions; ++i) {
      expect(isAll(memory, i,
                   i == 9   ? round
                   : i == 2 ? 77
                            : round ^ kMask),
             "each partition is delivered once");
    }
    fill(memory, 55);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(isAll(memory, 4, 55), "an inactive request delivers nothing");
  }
  MPI_Request_free(&request);
  expect(request == MPI_REQUEST_NULL, "the request is freed");
}

// Threads mark partitions, and ask for them, while the first one waits.
void threads() {
  constexpr int kThreads = 4;
  const Memory memory(Memory::Kind::kShared, std::size_t{kBytes} * kPartitions);
  MPI_Request request;
  if (rank == 0) {
    MPI_Psend_init(memory.data(), kPartitions, kBytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  } else {
    MPI_Precv_init(memory.data(), kPartitions, kBytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD,
                   MPI_INFO_NULL, &request);
  }
  for (int round = 0; round < 30; ++round) {
    fill(memory, rank == 0 ? round : 99);
    MPI_Start(&request);
    const MPI_Request own = request;
    std::vector<std::thread> all;
    for (int thread = 0; thread < kThreads; ++thread) {
      all.emplace_back([&, thread] {
        for (int i = thread; i < kPartitions; i += kThreads) {
          if (rank == 0) {
            flip(memory, i);
            MPI_Pready(i, own);
            continue;
          }
          int there = 0;
          while (there == 0) MPI_Parrived(own, i, &there);
          expect(isAll(memory, i, round ^ kMask), "a thread finds what has arrived");
        }
      });
    }
    if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (std::thread& thread : all) thread.join();
    if (rank == 1) MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(isAll(memory, 7, round ^ kMask), "the round is over");
  }
  MPI_Request_free(&request);
}

// A column a partition: the type may be freed.
void columns() {
  constexpr int kRows = 3000;
  constexpr int kColumns = 6;
  const Memory memory(Memory::Kind::kShared, sizeof(int) * kRows * kColumns);
  auto* const values = reinterpret_cast<int*>(memory.data());
  for (int i = 0; i < kRows * kColumns; ++i) values[i] = rank == 0 ? i : -1;
  MPI_Datatype strided;
  MPI_Datatype column;
  MPI_Type_vector(kRows, 1, kColumns, MPI_INT, &strided);
  MPI_Type_create_resized(strided, 0, sizeof(int), &column);
  MPI_Type_commit(&column);
  MPI_Request request;
  if (rank == 0) {
    MPI_Psend_init(values, 3, 2, column, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  } else {
    MPI_Precv_init(values, 3, 2, column, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  }
  MPI_Type_free(&strided);
  MPI_Type_free(&column);
  MPI_Start(&request);
  if (rank == 0) MPI_Pready_range(0, 2, request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < kRows * kColumns; ++i) expect(values[i] == i, "the columns arrive");
  MPI_Request_free(&request);
}

// From addresses: MPI_BOTTOM.
void absolute() {
  const Memory memory(Memory::Kind::kShared, 4000);
  fill(memory, rank == 0 ? 8 : 1);
  memory.flip();
  MPI_Aint address = 0;
  MPI_Get_address(memory.data(), &address);
  const int length = 1000;
  MPI_Datatype placed;
  MPI_Datatype type;
  MPI_Type_create_hindexed(1, &length, &address, MPI_BYTE, &placed);
  MPI_Type_create_resized(placed, 0, 2000, &type);
  MPI_Type_commit(&type);
  MPI_Request request;
  if (rank == 0) {
    MPI_Psend_init(MPI_BOTTOM, 2, 1, type, 1, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  } else {
    MPI_Precv_init(MPI_BOTTOM, 2, 1, type, 0, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  }
  MPI_Start(&request);
  if (rank == 0) MPI_Pready_range(0, 1, request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < 4000 && rank == 1; ++i) {
    expect(memory.data()[i] == ((i % 2000 < 1000 ? 8 : 1) ^ kMask), "elements by their addresses");
  }
  MPI_Request_free(&request);
  MPI_Type_free(&placed);
  MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  expect(provided == MPI_THREAD_MULTIPLE, "threads may call MPI");
  rounds();
  threads();
  columns();
  absolute();
  MPI_Finalize();
  if (rank == 0) std::puts("partitions are right");
}
#else
int main() { std::puts("an MPI of version 3"); }
#endif
