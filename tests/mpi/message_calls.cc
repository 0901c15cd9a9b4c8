// SPDX-License-Identifier: Apache-2.0
//
//   message_calls objects|device
//
// The calls of the CUDA driver that one message between two devices makes, on each side, where the
// receiver's device copies: of shared objects, and of the application's own memory. The driver is
// one without a device.
#include <mpi.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::Memory;

constexpr int kBytes = 4 << 20;  // a sender waits for 1.1 ms before it leaves a copy
// The first ones are packed, and so are those whose receiver is late.
constexpr int kMost = 10'000;
constexpr int kLeast = 40;
int rank = 0;

// How often a message calls the functions, at its sender and its receiver. What is not listed is
// not called. (A receiver asks for the end of its copy as long as that takes.)
struct Calls {
  const char* function;
  std::size_t sender;
  std::size_t receiver;
};
// The thread's context before the copy and its mark, as the driver has several devices. The
// capture mode twice each for those, and for the wait.
const std::vector<Calls> kOfObjects = {
    {"cuPointerGetAttributes", 0, 1},
    {"cuCtxGetCurrent", 0, 2},
    {"cuThreadExchangeStreamCaptureMode", 0, 4},
    {"cuMemcpyDtoDAsync_v2", 0, 1},
    {"cuEventRecord", 0, 1},
};
// The sender asks whether the default stream of all has work, the receiver copies by that stream;
// and both what memory it is: the call, the message, and the wait or the copy each ask; and the
// sender which allocation.
const std::vector<Calls> kOfDeviceMemory = {
    {"cuPointerGetAttributes", 4, 4},
    {"cuCtxGetCurrent", 1, 1},
    {"cuThreadExchangeStreamCaptureMode", 2, 2},
    {"cuDevicePrimaryCtxRetain", 1, 1},  // (this driver does not tell memory's context)
    {"cuDevicePrimaryCtxRelease_v2", 1, 1},
    {"cuStreamIsCapturing", 1, 1},
    {"cuStreamQuery", 1, 0},
    {"cuMemcpyDtoDAsync_v2", 0, 1},
    {"cuStreamSynchronize", 0, 1},
};

void exchange(const Memory& memory) {
  int word = 0;
  if (rank == 0) {
    MPI_Recv(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(memory.address(), kBytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
  } else {
    MPI_Send(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    MPI_Recv(memory.address(), kBytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

}  // namespace

int main(int argc, char** argv) {
  gmac::testing::showDevices(2);
  const bool objects = argc > 1 && std::strcmp(argv[1], "objects") == 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!objects) {
    if (!gmac::testing::startDevice()) return 1;
    gmac::testing::chooseDevice(rank);
  }
  const Memory memory(objects ? Memory::Kind::kShared : Memory::Kind::kDevice, kBytes);
  std::memset(memory.data(), 0, kBytes);
  if (objects) memory.flip();
  const std::vector<Calls>& expected = objects ? kOfObjects : kOfDeviceMemory;
  // The functions' calls, and last those of all. (This driver's cuPointerGetAttributes calls the
  // other for each attribute.)
  const auto counts = [&] {
    using gmac::testing::deviceCalls;
    std::vector<std::size_t> all;
    for (const Calls& calls : expected) all.push_back(deviceCalls(calls.function));
    all.push_back(deviceCalls(nullptr) - deviceCalls("cuPointerGetAttribute") -
                  deviceCalls("cuEventQuery"));
    return all;
  };
  int asExpected = 0;
  int both = 0;
  std::string seen;
  for (int i = 0; i < kMost && both < kLeast; ++i) {
    const std::vector<std::size_t> before = counts();
    exchange(memory);
    const std::vector<std::size_t> after = counts();
    std::size_t sum = 0;
    bool same = true;
    seen = "the last message has called";
    for (std::size_t f = 0; f < expected.size(); ++f) {
      const std::size_t calls = rank == 0 ? expected[f].sender : expected[f].receiver;
      const std::size_t made = after[f] - before[f];
      same = same && made == calls;
      sum += calls;
      seen += std::string(" ") + expected[f].function + " " + std::to_string(made) + ",";
    }
    seen += " all " + std::to_string(after.back() - before.back());
    asExpected += same && after.back() - before.back() == sum ? 1 : 0;
    if (i % kLeast == kLeast - 1) {
      MPI_Allreduce(&asExpected, &both, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
  }
  gmac::testing::expect(asExpected >= kLeast, seen.c_str(), asExpected);
  MPI_Finalize();
  if (rank == 0) std::puts("calls are few");
}
