// SPDX-License-Identifier: Apache-2.0
//
// Error handlers of an application that throw C++ exceptions through calls of MPI: what they leave
// is as if the call had returned.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::Memory;

constexpr int kFailures = 5000;  // more than may be under way, of each kind
int rank = 0;

struct Thrown {
  int code;
};
void throwIt(MPI_Comm*, int* code, ...) { throw Thrown{*code}; }

bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const Thrown&) {
    return true;
  }
  return false;
}

using Requests = std::array<MPI_Request, 2>;
// Each completes the first of two requests, the second being none.
constexpr void (*kCompletions[])(Requests&) = {
    [](Requests& list) { MPI_Wait(list.data(), MPI_STATUS_IGNORE); },
    [](Requests& list) { MPI_Waitall(2, list.data(), MPI_STATUSES_IGNORE); },
    [](Requests& list) {
      int index = 0;
      MPI_Waitany(2, list.data(), &index, MPI_STATUS_IGNORE);
    },
    [](Requests& list) {
      int count = 0;
      std::array<int, 2> indices{};
      MPI_Waitsome(2, list.data(), &count, indices.data(), MPI_STATUSES_IGNORE);
    },
    [](Requests& list) {
      for (int done = 0; done == 0;) MPI_Test(list.data(), &done, MPI_STATUS_IGNORE);
    },
    [](Requests& list) {
      for (int done = 0; done == 0;) MPI_Testall(2, list.data(), &done, MPI_STATUSES_IGNORE);
    },
    [](Requests& list) {
      int index = 0;
      for (int done = 0; done == 0;) {
        MPI_Testany(2, list.data(), &index, &done, MPI_STATUS_IGNORE);
      }
    },
    [](Requests& list) {
      std::array<int, 2> indices{};
      for (int done = 0; done == 0;) {
        MPI_Testsome(2, list.data(), &done, indices.data(), MPI_STATUSES_IGNORE);
      }
    },
};

// A message that is too long for its receive: MPI calls the handler, and the request has ended. The
// next one, which may have the same handle, is another. (Open MPI writes a longer message to its
// end, past the room for it.)
void receives(Memory::Kind kind) {
  constexpr int kBytes = 4000;
  for (const auto complete : kCompletions) {
    const Memory buffer(kind, kBytes);
    int number = 0;
    if (rank == 0) {
      // (A synchronous message is no ticket.)
      MPI_Ssend(buffer.data(), kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
      MPI_Send(&number, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
      continue;
    }
    Requests list = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Irecv(buffer.data(), kBytes / 2, MPI_BYTE, 0, 1, MPI_COMM_WORLD, list.data());
    expect(throws([&] { complete(list); }), "the handler's exception comes out of the call");
    expect(list[0] == MPI_REQUEST_NULL, "the request has ended");
    std::memset(buffer.data(), 9, kBytes);
    MPI_Irecv(&number, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, list.data());
    MPI_Wait(list.data(), MPI_STATUS_IGNORE);
    expect(std::all_of(buffer.data(), buffer.data() + kBytes,
                       [](unsigned char byte) { return byte == 9; }),
           "the next request leaves the buffer of the one that has failed as it is");
  }
}

// A message that was never sent holds nothing: room for tickets remains.
void sends(Memory::Kind kind) {
  constexpr int kRows = 100000;
  constexpr int kColumns = 2;
  const Memory buffer(kind, std::size_t{kRows} * kColumns);
  MPI_Datatype column;
  MPI_Type_vector(kRows, 1, kColumns, MPI_BYTE, &column);
  MPI_Type_commit(&column);
  constexpr int kWrongTag = -7;
  for (int i = 0; rank == 0 && i < kFailures; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    const bool threw = throws([&] {
      if (i % 2 == 0) {
        MPI_Send(buffer.data(), 1, column, 1, kWrongTag, MPI_COMM_WORLD);
      } else {
        MPI_Isend(buffer.data(), 1, column, 1, kWrongTag, MPI_COMM_WORLD, &request);
      }
    });
    expect(threw, "a send of a wrong tag throws");
  }
  if (rank == 0) {
    MPI_Send(buffer.data(), 1, column, 1, 3, MPI_COMM_WORLD);
  } else {
    MPI_Recv(buffer.data(), 1, column, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Type_free(&column);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Errhandler throwing;
  MPI_Comm_create_errhandler(&throwIt, &throwing);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, throwing);
  for (const Memory::Kind kind : {Memory::Kind::kPlain, Memory::Kind::kShared}) {
    receives(kind);
    sends(kind);
  }
  MPI_Errhandler_free(&throwing);
  if (rank == 0) std::puts("exceptions are right");
  MPI_Finalize();
  return 0;
}
