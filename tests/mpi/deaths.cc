// SPDX-License-Identifier: Apache-2.0
//
//   deaths KIND MICROSECONDS
//
// Three ranks exchange shared objects, without end, in one KIND: messages, collectives or windows.
// Rank 1 is killed so long after the others have begun: in any phase of a message, a collective or
// an epoch. The others go on until the launcher ends them.
#include <mpi.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::failRank;
using gmac::testing::Memory;

constexpr int kVictim = 1;
constexpr int kBytes = 1 << 20;
// Without a death in between, the program fails.
constexpr std::chrono::seconds kLimit{60};

int rank = 0;
int ranks = 0;

void dieAfter(long microseconds) {
  if (rank != kVictim) return;
  ::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
  const itimerval timer = {{0, 0}, {microseconds / 1'000'000, microseconds % 1'000'000 + 1}};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

// Every second one is a column of an array, so that it is packed in pieces.
class Messages {
 public:
  Messages() {
    MPI_Type_vector(kBytes / 16, 8, 16, MPI_BYTE, &column_);
    MPI_Type_commit(&column_);
  }
  // Both ways between the victim and each of the others. What the first failing call has returned.
  int exchange(int round) {
    const Memory& from = round % 3 == 0 ? plain_ : object_;
    // (Whole, plain memory is a message of MPI's alone.)
    const bool whole = round % 3 != 0 && round % 2 == 0;
    const MPI_Datatype type = whole ? MPI_BYTE : column_;
    const int count = whole ? kBytes : 1;
    if (round % 4 < 2) from.flip();
    if (rank != kVictim) return both(kVictim, from, count, type, round);
    for (int other = 0; other < ranks; ++other) {
      if (other == kVictim) continue;
      if (const int code = both(other, from, count, type, round); code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
  }

 private:
  int both(int other, const Memory& from, int count, MPI_Datatype type, int round) {
    MPI_Request receive = MPI_REQUEST_NULL;
    int code = MPI_Irecv(into_.data(), count, type, other, 0, MPI_COMM_WORLD, &receive);
    if (code != MPI_SUCCESS) return code;
    if (round % 5 < 3) {
      code = MPI_Send(from.data(), count, type, other, 0, MPI_COMM_WORLD);
    } else {
      MPI_Request send = MPI_REQUEST_NULL;
      code = MPI_Isend(from.data(), count, type, other, 0, MPI_COMM_WORLD, &send);
      if (code == MPI_SUCCESS) code = MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    if (code != MPI_SUCCESS) return code;
    return MPI_Wait(&receive, MPI_STATUS_IGNORE);
  }

  Memory object_{Memory::Kind::kShared, kBytes};
  Memory plain_{Memory::Kind::kPlain, kBytes};
  Memory into_{Memory::Kind::kShared, kBytes};
  MPI_Datatype column_ = MPI_DATATYPE_NULL;
};

class Collectives {
 public:
  int exchange(int round) {
    object_.flip();
    switch (round % 4) {
      case 0:
        return MPI_Bcast(object_.data(), kBytes, MPI_BYTE, round % ranks, MPI_COMM_WORLD);
      case 1:
        return MPI_Alltoall(object_.data(), kBytes / 4, MPI_BYTE, into_.data(), kBytes / 4,
                            MPI_BYTE, MPI_COMM_WORLD);
      case 2:
        return MPI_Allreduce(object_.data(), into_.data(), kBytes / 4, MPI_INT, MPI_BXOR,
                             MPI_COMM_WORLD);
      default: {
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = MPI_Iallgather(object_.data(), kBytes / 4, MPI_BYTE, into_.data(),
                                        kBytes / 4, MPI_BYTE, MPI_COMM_WORLD, &request);
        return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
      }
    }
  }

 private:
  Memory object_{Memory::Kind::kShared, kBytes};
  Memory into_{Memory::Kind::kShared, kBytes};
};

class Windows {
 public:
  Windows() {
    expectSuccess(
        MPI_Win_create(object_.data(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_),
        "a window");
    MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
  }
  int exchange(int round) {
    const int next = (rank + 1) % ranks;
    if (round % 2 == 0) {
      object_.flip();
      int code = MPI_Win_fence(0, window_);
      if (code == MPI_SUCCESS) {
        code = MPI_Put(from_.data(), kBytes / 2, MPI_BYTE, next, 0, kBytes / 2, MPI_BYTE, window_);
      }
      return code == MPI_SUCCESS ? MPI_Win_fence(0, window_) : code;
    }
    int code = MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window_);
    if (code == MPI_SUCCESS) {
      code = MPI_Get(from_.data(), kBytes / 2, MPI_BYTE, next, 0, kBytes / 2, MPI_BYTE, window_);
    }
    return code == MPI_SUCCESS ? MPI_Win_unlock(next, window_) : code;
  }

 private:
  Memory object_{Memory::Kind::kShared, kBytes};
  Memory from_{Memory::Kind::kShared, kBytes};
  MPI_Win window_ = MPI_WIN_NULL;
};

// Until a call fails, which nothing but the death may cause.
template <typename Traffic>
int run(Traffic& traffic, long microseconds) {
  const auto start = std::chrono::steady_clock::now();
  int code = MPI_SUCCESS;
  for (int round = 0; code == MPI_SUCCESS; ++round) {
    code = traffic.exchange(round);
    if (round == 4) {
      MPI_Barrier(MPI_COMM_WORLD);
      dieAfter(microseconds);
    }
    if (std::chrono::steady_clock::now() - start > kLimit) failRank("nobody has died");
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  expect(ranks == 3 && argc >= 3, "mpirun -n 3 deaths KIND MICROSECONDS");
  const std::string_view kind = argv[1];
  const long microseconds = std::atol(argv[2]);
  if (kind == "collectives") {
    Collectives traffic;
    (void)run(traffic, microseconds);
  } else if (kind == "windows") {
    Windows traffic;
    (void)run(traffic, microseconds);
  } else {
    Messages traffic;
    (void)run(traffic, microseconds);
  }
  // The launcher's turn.
  ::sleep(60);
  failRank("the launcher has ended nobody");
}
