// SPDX-License-Identifier: Apache-2.0
//
//   short_messages [multiple]
//
// Short messages of shared objects whose bytes are current on the CPU: no allocation is made for
// one; and a request ends as one of a longer message does, whichever call ends it. "multiple": with
// MPI_THREAD_MULTIPLE. For two processes.
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tests/mpi/expect.h"
#include "tests/mpi/library_allocations.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::kMask;
using gmac::testing::Memory;

// A ticket has as many bytes as one of these.
constexpr int kLengths[] = {1, 8, 480, 500, 4096};
constexpr int kMost = 4096;
constexpr int kTag = 1;

int rank = 0;
std::atomic<long> allocations{0};  // the library's

// An object of kMost bytes for each side, and another one, current on the CPU.
struct Pair {
  Memory from{Memory::Kind::kShared, kMost};
  Memory into{Memory::Kind::kShared, kMost};
  Memory other{Memory::Kind::kShared, kMost};
  unsigned char seed = 0;

  unsigned char value(int i) const {
    return static_cast<unsigned char>(i * 7 + i / 256 * 3 + seed);
  }
  void fill() {
    ++seed;
    for (int i = 0; i < kMost; ++i) from.data()[i] = value(i);
    clear();
  }
  void clear() const { std::memset(into.data(), 0xee, kMost); }
  // The first `bytes` are the message, and the others as they were.
  bool arrived(int bytes) const {
    for (int i = 0; i < kMost; ++i) {
      if (into.data()[i] != (i < bytes ? value(i) : 0xee)) return false;
    }
    return true;
  }
  bool isCleared() const { return arrived(0); }
};

// To this process itself, so that nobody else's calls are between.
void noAllocation() {
  Pair pair;
  const auto message = [&](int bytes) {
    MPI_Request requests[2];
    MPI_Irecv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_SELF, &requests[0]);
    MPI_Isend(pair.from.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_SELF, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Irecv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_SELF, &requests[0]);
    MPI_Send(pair.from.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_SELF);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Isend(pair.from.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_SELF, &requests[1]);
    MPI_Recv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Sendrecv(pair.from.data(), bytes, MPI_BYTE, 0, kTag, pair.into.data(), bytes, MPI_BYTE, 0,
                 kTag, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  };
  const char* const ticket = std::getenv("GMAC_TEST_TICKET_BYTES");
  for (const int bytes : kLengths) {
    if (ticket != nullptr && bytes >= std::atoi(ticket)) continue;  // a large message here
    pair.fill();
    message(bytes);  // memory is kept from here
    expect(pair.arrived(bytes), "messages arrive, of bytes:", bytes);
    pair.fill();
    const long before = allocations;
    for (int i = 0; i < 10; ++i) message(bytes);
    expect(allocations == before, "no allocation is made, for bytes:", bytes);
    expect(pair.arrived(bytes), "and messages arrive, of bytes:", bytes);
  }
}

// Rank 0 sends what the pair holds; rank 1 begins to receive it, and `end`s it.
template <typename End>
void between(Pair& pair, int bytes, const End& end) {
  pair.fill();
  if (rank == 0) {
    MPI_Send(pair.from.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
  end(request);
  expect(request == MPI_REQUEST_NULL, "the request is over");
}

void expectStatus(const MPI_Status& status, int bytes) {
  int received = 0;
  MPI_Get_count(&status, MPI_BYTE, &received);
  expect(status.MPI_SOURCE == 0 && status.MPI_TAG == kTag && received == bytes,
         "the status is the message's, of bytes:", bytes);
}

void everyCallEndsOne(int bytes) {
  Pair pair;
  MPI_Status status = {};
  int done = 0;
  int index = 0;
  between(pair, bytes, [&](MPI_Request& request) { MPI_Wait(&request, &status); });
  const auto expectIt = [&] {
    if (rank == 0) return;
    expectStatus(status, bytes);
    expect(pair.arrived(bytes), "a message arrives, of bytes:", bytes);
    status = {};
  };
  expectIt();
  between(pair, bytes, [&](MPI_Request& request) {
    for (done = 0; done == 0;) MPI_Test(&request, &done, &status);
  });
  expectIt();
  between(pair, bytes, [&](MPI_Request& request) { MPI_Waitall(1, &request, &status); });
  expectIt();
  between(pair, bytes, [&](MPI_Request& request) {
    for (done = 0; done == 0;) MPI_Testall(1, &request, &done, &status);
  });
  expectIt();
  between(pair, bytes, [&](MPI_Request& request) { MPI_Waitany(1, &request, &index, &status); });
  expectIt();
  between(pair, bytes, [&](MPI_Request& request) {
    for (done = 0; done == 0;) MPI_Testany(1, &request, &index, &done, &status);
  });
  expectIt();
  between(pair, bytes,
          [&](MPI_Request& request) { MPI_Waitsome(1, &request, &done, &index, &status); });
  expectIt();
  between(pair, bytes, [&](MPI_Request& request) {
    for (done = 0; done == 0;) MPI_Testsome(1, &request, &done, &index, &status);
  });
  expectIt();
  // The flag means that the bytes are there; they are the program's from then on.
  between(pair, bytes, [&](MPI_Request& request) {
    for (done = 0; done == 0;) MPI_Request_get_status(request, &done, &status);
    expectIt();
    pair.clear();
    MPI_Wait(&request, &status);
    expect(pair.isCleared(), "nothing is delivered a second time, of bytes:", bytes);
  });
  MPI_Barrier(MPI_COMM_WORLD);
  // Into more room, by MPI_Recv.
  pair.fill();
  if (rank == 0) MPI_Send(pair.from.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
  if (rank == 1) {
    MPI_Recv(pair.into.data(), kMost, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
             &status);
  }
  expectIt();
}

// Of what a kernel has written since: the message comes after it.
void kernelsInBetween(int bytes) {
  Pair pair;
  pair.fill();
  if (rank == 0) {
    pair.from.flip();
    MPI_Send(pair.from.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
    return;
  }
  MPI_Request request;
  MPI_Irecv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
  pair.into.flip();
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int i = 0; i < kMost; ++i) {
    const int wanted = (i < bytes ? pair.value(i) : 0xee) ^ kMask;
    expect(pair.into.data()[i] == wanted, "a message is later than the kernel, of bytes:", bytes);
  }
}

void freedCancelledAndTruncated(int bytes) {
  Pair pair;
  MPI_Request request = MPI_REQUEST_NULL;
  // Sends that were freed.
  pair.fill();
  std::memset(pair.other.data(), 1, kMost);
  if (rank == 0) {
    MPI_Isend(pair.from.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Issend(pair.other.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    MPI_Recv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(pair.arrived(bytes), "a freed send arrives, of bytes:", bytes);
    MPI_Recv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(pair.into.data()[0] == 1 && pair.into.data()[bytes - 1] == 1,
           "a freed synchronous send arrives, of bytes:", bytes);
  }
  // A receive that was freed, and one that was cancelled.
  MPI_Barrier(MPI_COMM_WORLD);
  pair.fill();
  if (rank == 1) {
    MPI_Irecv(pair.into.data(), bytes, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) MPI_Send(pair.from.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
  while (rank == 1 && !pair.arrived(bytes)) {  // in calls that begin something
    MPI_Irecv(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    Pair other;
    MPI_Irecv(other.into.data(), 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Irecv(other.into.data(), 1, MPI_BYTE, rank, kTag, MPI_COMM_WORLD, &request);
    MPI_Send(other.from.data(), 1, MPI_BYTE, rank, kTag, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  MPI_Status status = {};
  int cancelled = 0;
  pair.clear();
  MPI_Irecv(pair.into.data(), bytes, MPI_BYTE, 1 - rank, kTag + 1, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  expect(cancelled != 0 && pair.isCleared(), "a cancelled receive writes nothing");
  // One that is too short.
  pair.fill();
  MPI_Barrier(MPI_COMM_WORLD);
  if (bytes < 2) return;
  if (rank == 0) {
    for (int i = 0; i < 2; ++i) {
      MPI_Send(pair.from.data(), bytes, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
    }
    return;
  }
  int code =
      MPI_Recv(pair.into.data(), bytes / 2, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  int errorClass = 0;
  MPI_Error_class(code, &errorClass);
  expect(errorClass == MPI_ERR_TRUNCATE && pair.isCleared(), "a short receive is truncated");
  MPI_Irecv(pair.into.data(), bytes / 2, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
  code = MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Error_class(code, &errorClass);
  expect(errorClass == MPI_ERR_TRUNCATE && pair.isCleared(), "and one that is waited for");
}

// The call that needs an object which was freed says so. (Objects of at most 32 KiB have their
// memory together; the first of these is not freed.)
void freedObjects(int bytes, std::size_t objectBytes) {
  const Memory sent(Memory::Kind::kShared, objectBytes);
  void* const into = adsmAlloc(objectBytes);
  void* const from = adsmAlloc(objectBytes);
  expect(into != nullptr && from != nullptr, "objects");
  std::memset(into, 1, objectBytes);
  std::memset(from, 1, objectBytes);
  std::memset(sent.data(), 1, objectBytes);
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Request send = MPI_REQUEST_NULL;
  MPI_Irecv(into, bytes, MPI_BYTE, 1 - rank, kTag, MPI_COMM_WORLD, &receive);
  MPI_Send_init(from, bytes, MPI_BYTE, 1 - rank, kTag + 1, MPI_COMM_WORLD, &send);
  expect(adsmFree(into) == adsmSuccess && adsmFree(from) == adsmSuccess, "they are freed");
  MPI_Request other = MPI_REQUEST_NULL;
  MPI_Isend(sent.data(), bytes, MPI_BYTE, 1 - rank, kTag, MPI_COMM_WORLD, &other);
  expect(gmac::testing::says(MPI_Wait(&receive, MPI_STATUS_IGNORE), "has been freed"),
         "a receive says that its object is gone, of bytes:", bytes);
  expect(gmac::testing::says(MPI_Start(&send), "has been freed"),
         "a persistent send says so, of bytes:", bytes);
  MPI_Request_free(&send);
  MPI_Wait(&other, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
}

// In one list: short and long ones, of objects and of plain memory, sent and received.
void lists() {
  constexpr int kLong = 200'000;
  const Memory longFrom(Memory::Kind::kShared, kLong);
  const Memory longInto(Memory::Kind::kShared, kLong);
  Pair pair;
  for (int round = 0; round < 40; ++round) {
    pair.fill();
    std::memset(longFrom.data(), round, kLong);
    unsigned char plainFrom[64];
    unsigned char plainInto[64] = {};
    std::memset(plainFrom, round, sizeof plainFrom);
    const int bytes = kLengths[round % static_cast<int>(std::size(kLengths))];
    const int peer = round % 3 == 0 ? rank : 1 - rank;
    MPI_Request all[6];
    int made = 0;
    const bool withLong = round % 2 == 1;
    MPI_Irecv(pair.into.data(), bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &all[made++]);
    MPI_Irecv(plainInto, sizeof plainInto, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &all[made++]);
    if (withLong) {
      MPI_Irecv(longInto.data(), kLong, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &all[made++]);
      MPI_Isend(longFrom.data(), kLong, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &all[made++]);
    }
    MPI_Issend(pair.from.data(), bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &all[made++]);
    MPI_Isend(plainFrom, sizeof plainFrom, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &all[made++]);
    int indices[6];
    int done = 0;
    switch (round / 2 % 4) {
      case 0:
        MPI_Waitall(made, all, MPI_STATUSES_IGNORE);
        break;
      case 1:
        for (int ended = 0; ended < made; ++ended) {
          MPI_Waitany(made, all, indices, MPI_STATUS_IGNORE);
        }
        break;
      case 2:
        for (int ended = 0; ended < made; ended += done) {
          MPI_Waitsome(made, all, &done, indices, MPI_STATUSES_IGNORE);
        }
        break;
      default:
        while (done == 0) MPI_Testall(made, all, &done, MPI_STATUSES_IGNORE);
    }
    expect(pair.arrived(bytes), "short ones arrive, round", round);
    expect(plainInto[0] == round && plainInto[63] == round, "and plain ones, round", round);
    if (withLong) expect(longInto.data()[kLong - 1] == round, "and long ones, round", round);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

}  // namespace

bool gmac::testing::mayAllocate() {
  ++allocations;
  return true;
}

int main(int argc, char** argv) {
  const bool multiple = argc > 1 && std::string_view(argv[1]) == "multiple";
  int level = 0;
  MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  gmac::testing::watchAllocations();
  noAllocation();
  for (const int bytes : kLengths) {
    everyCallEndsOne(bytes);
    kernelsInBetween(bytes);
    freedCancelledAndTruncated(bytes);
    freedObjects(bytes, kMost);
    freedObjects(bytes, 300'000);
  }
  freedObjects(20'000, 32 << 10);
  freedObjects(200'000, 300'000);
  lists();
  MPI_Finalize();
  if (rank == 0) std::puts("short messages are right");
}
