// SPDX-License-Identifier: Apache-2.0
//
// The n-th copy, or kernel, of the device fails, for every n, in messages of objects that are
// current there and of device memory, short and long, in one piece and in many. Each call succeeds,
// with all bytes, or fails with gmac's error, and when it is made again it does what it always
// does. For one process, and a driver without a device.
#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::failRank;
using gmac::testing::Memory;

int failures = 0;

// A buffer for each side, whose bytes are on the device.
struct Pair {
  Pair(Memory::Kind kind, std::size_t bytes) : from(kind, bytes), into(kind, bytes) {}

  void fill() {
    ++seed;
    for (std::size_t i = 0; i < from.size(); ++i) from.data()[i] = value(i);
    std::memset(into.data(), 0, into.size());
    for (const Memory* one : {&from, &into}) {
      one->flip();
      one->flip();
    }
  }
  unsigned char value(std::size_t i) const {
    return static_cast<unsigned char>(i * 7 + i / 256 + seed);
  }
  // Of blocks of `block` bytes with as long gaps; 0: one piece.
  bool arrived(std::size_t block) const {
    for (std::size_t i = 0; i < into.size(); ++i) {
      const bool sent = block == 0 || i / block % 2 == 0;
      if (into.data()[i] != (sent ? value(i) : 0)) return false;
    }
    return true;
  }

  Memory from;
  Memory into;
  std::size_t seed = 0;
};

void eachFailure(const char* function, Memory::Kind kind, std::size_t bytes, std::size_t block) {
  Pair pair(kind, bytes);
  MPI_Datatype type;
  if (block == 0) {
    MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type);
  } else {
    const int length = static_cast<int>(block);
    MPI_Type_vector(static_cast<int>(bytes / block / 2), length, 2 * length, MPI_BYTE, &type);
  }
  MPI_Type_commit(&type);
  const std::string what = std::string(function) + ", " + std::to_string(bytes) +
                           " bytes in blocks of " + std::to_string(block) + ": ";
  const auto message = [&] {
    if (block != 0) {
      return MPI_Sendrecv(pair.from.address(), 1, type, 0, 1, pair.into.address(), 1, type, 0, 1,
                          MPI_COMM_SELF, MPI_STATUS_IGNORE);
    }
    const int length = static_cast<int>(bytes);
    return MPI_Sendrecv(pair.from.address(), length, MPI_BYTE, 0, 1, pair.into.address(), length,
                        MPI_BYTE, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  };
  for (std::size_t n = 1;; ++n) {
    pair.fill();
    const std::size_t before = gmac::testing::deviceCalls(function);
    gmac::testing::failNthCall(function, n);
    const int code = message();
    const std::size_t made = gmac::testing::deviceCalls(function) - before;
    gmac::testing::failNthCall(function, 0);
    if (code != MPI_SUCCESS) {
      const std::string text = gmac::testing::errorText(code);
      if (text.find("gmac: ") == std::string::npos) failRank(what + text);
    } else if (!pair.arrived(block)) {
      failRank(what + "failure " + std::to_string(n) + " is not said");
    }
    if (made < n) {
      expectSuccess(code, what.c_str());
      break;
    }
    ++failures;
    pair.fill();
    expectSuccess(message(), what.c_str());
    expect(pair.arrived(block), (what + "what has failed once is done again").c_str());
  }
  MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (!gmac::testing::startDevice()) return 1;
  for (const char* const function :
       {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2",
        "cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2", "cuLaunchKernel"}) {
    for (const Memory::Kind kind : {Memory::Kind::kShared, Memory::Kind::kDevice}) {
      eachFailure(function, kind, 64, 0);
      eachFailure(function, kind, 100'000, 0);
      eachFailure(function, kind, 64, 8);
      eachFailure(function, kind, 100'000, 8);
    }
  }
  expect(failures > 5, "copies have failed", failures);
  MPI_Finalize();
  std::puts("failures of copies are right");
}
