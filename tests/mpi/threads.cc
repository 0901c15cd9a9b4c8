// SPDX-License-Identifier: Apache-2.0
//
// MPI_THREAD_MULTIPLE: threads of two ranks send shared objects to each other, in every way that
// makes a request, while others make and free objects.
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::kMask;
using gmac::testing::Memory;

constexpr int kThreads = 3;
constexpr int kRounds = 60;
constexpr int kBytes = 20'000;

int rank = 0;

void expectAll(const Memory& memory, int value) {
  for (const unsigned char byte : memory.bytes()) {
    if (byte == value) continue;
    gmac::testing::failRank(std::to_string(byte) + " in place of " + std::to_string(value));
  }
}

void complete(int round, std::array<MPI_Request, 2>& requests) {
  int index = 0;
  int done = 0;
  switch (round % 3) {
    case 0:
      MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
      break;
    case 1:
      for (int i = 0; i < 2; ++i) MPI_Waitany(2, requests.data(), &index, MPI_STATUS_IGNORE);
      break;
    default:
      while (done == 0) MPI_Testall(2, requests.data(), &done, MPI_STATUSES_IGNORE);
  }
}

// Thread number `tag`, on a communicator of its own.
void exchange(int tag, MPI_Comm comm) {
  const Memory kept(Memory::Kind::kShared, kBytes);
  MPI_Request persistent;
  MPI_Send_init(kept.data(), kBytes, MPI_BYTE, 1 - rank, tag, comm, &persistent);
  for (int round = 0; round < kRounds; ++round) {
    const int value = (round * kThreads + tag) % 256;
    const Memory received(Memory::Kind::kShared, kBytes);
    std::memset(kept.data(), value, kBytes);
    kept.flip();
    std::array<MPI_Request, 2> requests;
    MPI_Irecv(received.data(), kBytes, MPI_BYTE, 1 - rank, tag, comm, &requests[0]);
    if (round % 2 == 0) {
      MPI_Start(&persistent);
      requests[1] = persistent;
    } else {
      MPI_Isend(kept.data(), kBytes, MPI_BYTE, 1 - rank, tag, comm, &requests[1]);
    }
    complete(round, requests);
    expectAll(received, value ^ kMask);
    MPI_Request all;
    MPI_Ibcast(received.data(), kBytes, MPI_BYTE, round % 2, comm, &all);
    MPI_Wait(&all, MPI_STATUS_IGNORE);
    expectAll(received, value ^ kMask);
  }
  MPI_Request_free(&persistent);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) {
    std::puts("this MPI has no MPI_THREAD_MULTIPLE");
    MPI_Finalize();
    return 1;
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#ifdef GMAC_SANITIZED
  // The runtime's start forks, and a sanitizer's allocator does not survive a fork while another
  // thread allocates.
  const gmac::testing::Memory first(gmac::testing::Memory::Kind::kShared, 1);
#endif
  std::array<MPI_Comm, kThreads> comms;
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back(&exchange, i, comms[static_cast<std::size_t>(i)]);
  for (std::thread& thread : threads) thread.join();
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  MPI_Finalize();
  if (rank == 0) std::puts("threads are right");
}
