// SPDX-License-Identifier: Apache-2.0
//
//   slow_messages device|objects|plain all|unimported|unexported|synchronous|replaced|groups
//
// Messages of 4 MiB from memory of rank 0's device to such memory of rank 1, or (plain) to the
// CPU's, on a driver without a device: as they are meant to be sent; where the driver refuses; and
// by calls that take MPI's wire.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using Kind = gmac::testing::Memory::Kind;

constexpr int kBytes = 4 << 20;
constexpr int kMessages = 5;
constexpr int kLongBytes = 24 << 20;
constexpr int kLongMessages = 2;
int rank = 0;

unsigned char valueOf(int round) { return static_cast<unsigned char>(17 * round + 3); }

// An object's bytes are on the device when they are sent, or received.
class Message {
 public:
  Message(Kind kind, int bytes) : memory_(kind, static_cast<std::size_t>(bytes)), kind_(kind) {}
  void fill(unsigned char value) const {
    const bool flips = kind_ == Kind::kShared;
    std::memset(memory_.data(), flips ? value ^ gmac::testing::kMask : value, memory_.size());
    if (flips) memory_.flip();
  }
  // The first bytes.
  bool holds(unsigned char value, int bytes) const {
    const auto all = memory_.bytes().first(static_cast<std::size_t>(bytes));
    return std::count(all.begin(), all.end(), value) == bytes;
  }
  void* address() const { return memory_.address(); }

 private:
  const gmac::testing::Memory memory_;
  const Kind kind_;
};

void send(const Message& message, const std::string& how, int messages, int bytes,
          MPI_Comm communicator, int other) {
  for (int round = 0; round < messages; ++round) {
    if (rank == 0) {
      message.fill(valueOf(round));
      if (how == "synchronous") {
        MPI_Ssend(message.address(), bytes, MPI_BYTE, other, 1, communicator);
      } else if (how == "replaced") {
        MPI_Sendrecv_replace(message.address(), bytes, MPI_BYTE, other, 1, other, 2, communicator,
                             MPI_STATUS_IGNORE);
      } else {
        MPI_Send(message.address(), bytes, MPI_BYTE, other, 1, communicator);
      }
    } else {
      message.fill(0xee);
      MPI_Recv(message.address(), bytes, MPI_BYTE, other, 1, communicator, MPI_STATUS_IGNORE);
      expect(message.holds(valueOf(round), bytes), "a message is what was sent", round);
      if (how == "replaced") MPI_Send(&round, 1, MPI_INT, other, 2, communicator);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string memory = argc > 1 ? argv[1] : "";
  const std::string how = argc > 2 ? argv[2] : "";
  gmac::testing::showDevices(2);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!gmac::testing::startDevice()) return 1;
  gmac::testing::chooseDevice(rank);
  if (how == "unimported" && rank == 1) gmac::testing::refuseImports();
  if (how == "unexported" && rank == 0) gmac::testing::refuseExports();
  const Kind sent = memory == "objects" ? Kind::kShared : Kind::kDevice;
  const Kind received = memory == "plain" ? Kind::kPlain : sent;
  {
    const Message message(rank == 0 ? sent : received, kBytes);
    // Both know then that the other has a device, if it has one.
    send(message, "all", kMessages, 128 << 10, MPI_COMM_WORLD, 1 - rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (how != "groups") send(message, how, kMessages, kBytes, MPI_COMM_WORLD, 1 - rank);
  }
  if (how == "groups") {
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, 3, &between);
    const Message message(rank == 0 ? sent : received, kLongBytes);
    send(message, how, kLongMessages, kLongBytes, between, 0);
    MPI_Comm_free(&between);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  if (rank == 0) std::puts("slow or not");
}
