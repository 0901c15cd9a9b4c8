// SPDX-License-Identifier: Apache-2.0
//
// The n-th allocation of libgmac_mpi.so fails, for every n, in one MPI call after the other, all of
// shared objects. Each call succeeds or fails with gmac's error, and when it is made again it does
// what it always does. For one process.
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "tests/mpi/expect.h"
#include "tests/mpi/library_allocations.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::failRank;
using gmac::testing::Memory;

std::atomic<long> left{-1};  // how many allocations of the library's are left to succeed

constexpr int kBytes = 50'000;
long failures = 0;

// Objects whose bytes are on the accelerator.
struct Pair {
  Memory from{Memory::Kind::kShared, kBytes};
  Memory into{Memory::Kind::kShared, kBytes};
  int seed = 0;

  void fill() {
    ++seed;
    for (int i = 0; i < kBytes; ++i) from.data()[i] = value(i);
    from.flip();
    from.flip();
    std::memset(into.data(), 0, kBytes);
    into.flip();
  }
  unsigned char value(int i) const { return static_cast<unsigned char>(i * 7 + i / 256 + seed); }
  bool arrived() const {
    for (int i = 0; i < kBytes; ++i) {
      if (into.data()[i] != value(i)) return false;
    }
    return true;
  }
};

// `call` moves `from` to `into`. What it begins and does not end is ended by `clean`.
void eachFailure(
    const char* what, const std::function<int(Pair&)>& call,
    const std::function<void()>& clean = [] {}) {
  Pair pair;
  for (long n = 0;; ++n) {
    pair.fill();
    left = n;
    const int code = call(pair);
    const bool reached = left < 0;
    left = -1;
    if (!reached) {
      expectSuccess(code, what);
      expect(pair.arrived(), what);
      return;
    }
    ++failures;
    if (code != MPI_SUCCESS) {
      const std::string text = gmac::testing::errorText(code);
      if (text.find("gmac: ") == std::string::npos) {
        failRank(std::string(what) + ": allocation " + std::to_string(n) + ": " + text);
      }
      clean();
    } else if (!pair.arrived()) {
      failRank(std::string(what) + ": allocation " + std::to_string(n) + " is lost, and not said");
    }
    pair.fill();
    expectSuccess(call(pair), what);
    expect(pair.arrived(), "what has failed once is done when it is called again");
  }
}

void messages() {
  MPI_Comm self = MPI_COMM_SELF;
  eachFailure("MPI_Sendrecv", [&](Pair& pair) {
    return MPI_Sendrecv(pair.from.data(), kBytes, MPI_BYTE, 0, 1, pair.into.data(), kBytes,
                        MPI_BYTE, 0, 1, self, MPI_STATUS_IGNORE);
  });
  MPI_Request request = MPI_REQUEST_NULL;
  const auto cancel = [&] {
    if (request == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  eachFailure(
      "MPI_Irecv, MPI_Send, MPI_Wait",
      [&](Pair& pair) {
        request = MPI_REQUEST_NULL;
        int code = MPI_Irecv(pair.into.data(), kBytes, MPI_BYTE, 0, 2, self, &request);
        if (code != MPI_SUCCESS) request = MPI_REQUEST_NULL;
        if (code == MPI_SUCCESS) code = MPI_Send(pair.from.data(), kBytes, MPI_BYTE, 0, 2, self);
        return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
      },
      cancel);
}

void collectives() {
  MPI_Comm self = MPI_COMM_SELF;
  const int count = kBytes;
  const int place = 0;
  const MPI_Datatype type = MPI_BYTE;
  eachFailure("MPI_Allgather", [&](Pair& pair) {
    return MPI_Allgather(pair.from.data(), kBytes, type, pair.into.data(), kBytes, type, self);
  });
  eachFailure("MPI_Alltoallw", [&](Pair& pair) {
    return MPI_Alltoallw(pair.from.data(), &count, &place, &type, pair.into.data(), &count, &place,
                         &type, self);
  });
  eachFailure("MPI_Allreduce", [&](Pair& pair) {
    return MPI_Allreduce(pair.from.data(), pair.into.data(), kBytes, MPI_UNSIGNED_CHAR, MPI_SUM,
                         self);
  });
}

void packing() {
  std::string room(kBytes, 0);
  eachFailure("MPI_Pack, MPI_Unpack", [&](Pair& pair) {
    int position = 0;
    int code =
        MPI_Pack(pair.from.data(), kBytes, MPI_BYTE, room.data(), kBytes, &position, MPI_COMM_SELF);
    position = 0;
    return code == MPI_SUCCESS ? MPI_Unpack(room.data(), kBytes, &position, pair.into.data(),
                                            kBytes, MPI_BYTE, MPI_COMM_SELF)
                               : code;
  });
}

}  // namespace

bool gmac::testing::mayAllocate() { return left < 0 || left-- != 0; }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  gmac::testing::watchAllocations();
  messages();
  collectives();
  packing();
  expect(failures > 20, "allocations have failed");
  MPI_Finalize();
  std::puts("failures are right");
}
