// SPDX-License-Identifier: Apache-2.0
//
//   pinned_messages around|several|unpinned N|failing|left|exchanged
//
// Messages of memory that other processes' devices do not reach: they go through pinned memory.
// `around`: each rank sends to the next one, all at the same time. `several`: rank 0 sends to each
// other one, which are more than it has such memory for. `unpinned`: of the first memory, the rank
// N is refused that it is pinned. `failing`: the n-th call of the driver fails, for every n, at
// either end. `left`: by MPI_Isend to a receiver that is elsewhere, in turns with objects, which
// are packed; the output begins with the number of messages that must have gone that way.
// `exchanged`: by calls that send and receive, in every order. On a driver without a device.
#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::deviceCalls;
using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::Memory;

constexpr int kBytes = 96 << 10;
constexpr int kRow = 48;  // with a gap of as much
int rank = 0;
int ranks = 0;

MPI_Datatype makeType(bool rows) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  if (rows) {
    MPI_Type_vector(kBytes / kRow, kRow, 2 * kRow, MPI_BYTE, &type);
  } else {
    MPI_Type_contiguous(kBytes, MPI_BYTE, &type);
  }
  MPI_Type_commit(&type);
  return type;
}

class Buffer {
 public:
  explicit Buffer(bool rows)
      : rows_(rows), memory_(Memory::Kind::kDevice, rows ? 2 * kBytes : kBytes) {}
  void fill(int seed) const {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_.data()[i] = value(seed, i);
  }
  void spoil() const { std::memset(memory_.data(), kSpoilt, memory_.size()); }
  // Whether it was spoilt, and then received what one of such a shape was filled with.
  bool holds(int seed, bool sentRows) const {
    for (int at = 0; at < kBytes; ++at) {
      const unsigned char found = memory_.data()[place(at, rows_)];
      if (const unsigned char sent = value(seed, place(at, sentRows)); found != sent) {
        std::fprintf(stderr, "byte %d is %d in place of %d\n", at, found, sent);
        return false;
      }
    }
    for (std::size_t i = 0; rows_ && i < memory_.size(); ++i) {
      if (i / kRow % 2 == 1 && memory_.data()[i] != kSpoilt) return false;
    }
    return true;
  }
  unsigned char* address() const { return memory_.address(); }

 private:
  static constexpr unsigned char kSpoilt = 0xee;
  static std::size_t place(int at, bool rows) {
    return static_cast<std::size_t>(rows ? at / kRow * 2 * kRow + at % kRow : at);
  }
  static unsigned char value(int seed, std::size_t i) {
    return static_cast<unsigned char>(i * 7 + i / 256 + static_cast<std::size_t>(seed) * 31);
  }
  const bool rows_;
  const Memory memory_;
};

// Whether each rank has pinned so much memory, or was refused it, since the runtimes have started:
// a message was received from there. (Receivers that are late get copies, as on a machine with more
// to do.)
constexpr int kMost = 10'000;
std::size_t pinnedBefore = 0;
void countPinned() {
  // (This call's messages are packed.)
  const Buffer both(false);
  both.fill(0);
  MPI_Sendrecv_replace(both.address(), kBytes, MPI_BYTE, (rank + 1) % ranks, 4,
                       (rank + ranks - 1) % ranks, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  expect(both.holds(0, false), "a packed message is whole");
  pinnedBefore = deviceCalls("cuMemHostRegister_v2");
}
bool allHavePinned(std::size_t times) {
  int own = deviceCalls("cuMemHostRegister_v2") - pinnedBefore >= times ? 1 : 0;
  int all = 0;
  MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}

// A receiver takes a message in the calls of its own send.
void around() {
  MPI_Datatype types[2] = {makeType(false), makeType(true)};
  const Buffer buffers[2][2] = {{Buffer(false), Buffer(true)}, {Buffer(false), Buffer(true)}};
  for (int round = 0; round < 40 || (round < kMost && !allHavePinned(2)); ++round) {
    const int sent = round % 2;
    const int received = round / 2 % 2;
    const Buffer& from = buffers[0][sent];
    const Buffer& into = buffers[1][received];
    from.fill(round + rank);
    into.spoil();
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(into.address(), 1, types[received], (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD,
              &request);
    MPI_Send(from.address(), 1, types[sent], (rank + 1) % ranks, 1, MPI_COMM_WORLD);
    from.spoil();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(into.holds(round + (rank + ranks - 1) % ranks, sent == 1), "all send at once", round);
  }
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
}

// How much such memory of others, and of its own, this process has mapped: pieces.
int mappedHere() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("gmac-ring") != std::string::npos ? 1 : 0;
  }
  return count;
}

// What has made way for others is given back by receivers in their next calls.
void several() {
  constexpr int kMostRings = 4;
  MPI_Datatype type = makeType(true);
  const Buffer buffer(true);
  for (int other = 1; other < ranks; ++other) {
    int mapped = 0;
    for (int round = 0; mapped == 0 && round < kMost; ++round) {
      if (rank == 0) {
        buffer.fill(round);
        MPI_Send(buffer.address(), 1, type, other, 5, MPI_COMM_WORLD);
        MPI_Recv(&mapped, 1, MPI_INT, other, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else if (rank == other) {
        buffer.spoil();
        MPI_Recv(buffer.address(), 1, type, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(buffer.holds(round, true), "a message to one of several is whole", round);
        mapped = mappedHere();
        MPI_Send(&mapped, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
      } else {
        break;
      }
    }
    expect(mapped == (rank == 0 || rank == other ? 1 : 0), "a message goes through memory of both");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const Memory plain(Memory::Kind::kDevice, kBytes);
  MPI_Sendrecv(plain.address(), kBytes, MPI_BYTE, rank, 7, buffer.address(), kBytes, MPI_BYTE, rank,
               7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  int mapped = rank == 0 ? 0 : mappedHere();
  MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  expect(mapped == kMostRings && (rank != 0 || mappedHere() == kMostRings),
         "what has made way is given back", mapped);
  MPI_Type_free(&type);
}

// Memory that is not pinned does as well, at a lower rate.
void unpinned(int refused) {
  MPI_Datatype type = makeType(false);
  const Buffer buffer(false);
  if (rank == refused) gmac::testing::failNthCall("cuMemHostRegister_v2", 1);
  for (int round = 0; round < 5 || (round < kMost && !allHavePinned(1)); ++round) {
    // A receiver that was late has the memory by now, and need not be in time any more.
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
      buffer.fill(round);
      expectSuccess(MPI_Send(buffer.address(), 1, type, 1, 2, MPI_COMM_WORLD), "a message");
    } else {
      buffer.spoil();
      expectSuccess(MPI_Recv(buffer.address(), 1, type, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                    "a message");
      expect(buffer.holds(round, false), "a message is whole", round);
    }
  }
  MPI_Type_free(&type);
}

// One piece of either kind, which its owner fills anew for each message. An object's bytes are
// current on the device alone when they are sent.
struct Piece {
  Piece(Memory::Kind kind, std::size_t bytes)
      : isObject(kind == Memory::Kind::kShared), memory(kind, bytes) {}
  static unsigned char value(int seed, std::size_t i) {
    return static_cast<unsigned char>(i * 5 + i / 4096 + static_cast<std::size_t>(seed) * 29);
  }
  void fill(int seed) const {
    const unsigned char mask = isObject ? gmac::testing::kMask : 0;
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = value(seed, i) ^ mask;
    if (isObject) memory.flip();
  }
  void spoil() const {
    if (isObject) {
      memory.flip();  // by a kernel
    } else {
      std::memset(memory.data(), 0xee, memory.size());
    }
  }
  bool holds(int seed) const {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (memory.data()[i] != value(seed, i)) return false;
    }
    return true;
  }
  const bool isObject;
  const Memory memory;
};

// Objects of so few bytes have no files of their own to give to others.
constexpr int kObjectBytes = 24 << 10;

std::vector<std::unique_ptr<Piece>> makePieces(std::size_t count, bool areObjects,
                                               std::size_t bytes) {
  std::vector<std::unique_ptr<Piece>> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    pieces.push_back(
        std::make_unique<Piece>(areObjects ? Memory::Kind::kShared : Memory::Kind::kDevice, bytes));
  }
  return pieces;
}

// The receiver comes to its receives after the sender, which is in a barrier with it meanwhile, and
// whose kernels and stores have used the memory again.
void left() {
  constexpr int kRounds = 12;
  constexpr std::size_t kMessages = 4;
  const auto ofDevice = makePieces(kMessages, false, kBytes);
  const auto objects = makePieces(kMessages, true, kObjectBytes);
  const Memory plain(Memory::Kind::kPlain, kBytes);
  int sent = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto& pieces = round % 2 == 0 ? ofDevice : objects;
    const int bytes = round % 2 == 0 ? kBytes : kObjectBytes;
    MPI_Request requests[kMessages];
    for (std::size_t i = 0; rank == 0 && i < kMessages; ++i) {
      pieces[i]->fill(round + static_cast<int>(i));
      MPI_Isend(pieces[i]->memory.address(), bytes, MPI_BYTE, 1, static_cast<int>(i),
                MPI_COMM_WORLD, &requests[i]);
    }
    if (rank == 0) {
      MPI_Waitall(kMessages, requests, MPI_STATUSES_IGNORE);
      for (std::size_t i = 0; i < kMessages; ++i) pieces[i]->spoil();
      sent += round > 0 && round % 2 == 0 ? static_cast<int>(kMessages) : 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (std::size_t i = kMessages; rank == 1 && i-- > 0;) {
      // (To the CPU's memory, too.)
      const bool toPlain = i == 0 && round > 0;
      pieces[i]->spoil();
      expectSuccess(MPI_Recv(toPlain ? plain.address() : pieces[i]->memory.address(), bytes,
                             MPI_BYTE, 0, static_cast<int>(i), MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                    "a message that was left");
      if (toPlain) std::memcpy(pieces[i]->memory.data(), plain.data(), pieces[i]->memory.size());
      expect(pieces[i]->holds(round + static_cast<int>(i)), "a message that was left is whole",
             round);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) std::printf("%d\n", sent);
}

// `bytes`: of each message; more than a ring has, or less.
void exchangeAll(std::size_t bytes, int rounds, bool areObjects) {
  const auto pieces = makePieces(2, areObjects, bytes);
  const Piece& from = *pieces[0];
  const Piece& into = *pieces[1];
  const int count = static_cast<int>(bytes);
  const int next = (rank + 1) % ranks;
  const int last = (rank + ranks - 1) % ranks;
  const auto begin = [&](int round) {
    from.fill(round + rank);
    into.spoil();
  };
  const auto end = [&](int round, int sender, const char* what) {
    expect(into.holds(round + sender), what, round);
    from.spoil();
  };
  for (int round = 0; round < rounds; ++round) {
    begin(round);
    MPI_Status status = {};
    MPI_Sendrecv(from.memory.address(), count, MPI_BYTE, next, 1, into.memory.address(), count,
                 MPI_BYTE, last, 1, MPI_COMM_WORLD, &status);
    int received = 0;
    MPI_Get_count(&status, MPI_BYTE, &received);
    expect(received == count && status.MPI_SOURCE == last && status.MPI_TAG == 1,
           "the status of an exchange", received);
    end(round, last, "all exchange at once");

    begin(round);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(from.memory.address(), count, MPI_BYTE, next, 2, MPI_COMM_WORLD, &request);
    MPI_Recv(into.memory.address(), count, MPI_BYTE, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    end(round, last, "all send first");

    begin(round);
    MPI_Request both[2];
    MPI_Irecv(into.memory.address(), count, MPI_BYTE, last, 3, MPI_COMM_WORLD, &both[0]);
    MPI_Isend(from.memory.address(), count, MPI_BYTE, next, 3, MPI_COMM_WORLD, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    end(round, last, "all are ready to receive first");

    // Rank 1 sends once it has received.
    if (rank > 1) continue;
    begin(round);
    const int other = 1 - rank;
    if (rank == 0) {
      MPI_Sendrecv(from.memory.address(), count, MPI_BYTE, 1, 4, into.memory.address(), count,
                   MPI_BYTE, 1, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(into.memory.address(), count, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(from.memory.address(), count, MPI_BYTE, 0, 4, MPI_COMM_WORLD);
    }
    end(round, other, "one receives before it sends");
  }
  // Nothing is sent, and the memory is as it was.
  MPI_Barrier(MPI_COMM_WORLD);
  expect(MPI_Sendrecv(from.memory.address(), count, MPI_BYTE, ranks, 5, into.memory.address(),
                      count, MPI_BYTE, last, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS,
         "there is no such rank");
  MPI_Barrier(MPI_COMM_WORLD);
}

void exchanged() {
  constexpr std::size_t kLong = std::size_t{40} << 20;
  exchangeAll(kBytes, 10, false);
  exchangeAll(kObjectBytes, 10, true);
  exchangeAll(kLong, 2, false);
  exchangeAll(kBytes, 2, false);
}

// Of what packs and unpacks need.
constexpr const char* kDriverCalls[] = {
    "cuLaunchKernel",     "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyAsync",
    "cuMemcpy2DAsync_v2", "cuEventRecord",        "cuEventCreate",        "cuStreamWaitEvent"};

struct Codes {
  int ofSend = MPI_SUCCESS;
  int ofReceive = MPI_SUCCESS;
  bool arrived = false;
};

// A sender that fails before it has sent anything sends nothing, so an empty message follows one
// that has failed. What was not received is thrown away.
Codes exchangeOne(const Buffer& buffer, MPI_Datatype type) {
  constexpr int kTag = 3;
  int code = MPI_SUCCESS;
  int count = 0;
  if (rank == 0) {
    code = MPI_Send(buffer.address(), 1, type, 1, kTag, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) MPI_Send(&count, 0, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
  } else {
    MPI_Status status = {};
    code = MPI_Recv(buffer.address(), 1, type, 0, kTag, MPI_COMM_WORLD, &status);
    if (code == MPI_SUCCESS) MPI_Get_elements(&status, MPI_BYTE, &count);
  }
  const bool isWhole = count == kBytes;
  int here[2] = {code, isWhole ? 1 : 0};
  int all[4] = {};
  MPI_Allgather(here, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
  for (int waits = 1; rank == 1 && waits != 0;) {
    MPI_Iprobe(0, kTag, MPI_COMM_WORLD, &waits, MPI_STATUS_IGNORE);
    if (waits != 0) {
      (void)MPI_Recv(buffer.address(), 1, type, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);  // before the next message
  return {all[0], all[2], all[3] != 0};
}

void failing() {
  int failures = 0;
  for (const bool rows : {false, true}) {
    MPI_Datatype type = makeType(rows);
    const Buffer buffer(rows);
    const auto good = [&](int seed) {
      if (rank == 0) {
        buffer.fill(seed);
      } else {
        buffer.spoil();
      }
      const Codes codes = exchangeOne(buffer, type);
      expectSuccess(rank == 0 ? codes.ofSend : codes.ofReceive, "a message");
      expect(rank == 0 || buffer.holds(seed, rows), "a message is whole", seed);
    };
    for (int i = 0; i == 0 || (i < kMost && !allHavePinned(1)); ++i) good(1);
    for (const char* const name : kDriverCalls) {
      for (const int fails : {0, 1}) {
        const std::size_t before = deviceCalls(name);
        good(2);
        // (And a few more, as not all messages make the same.)
        int calls = static_cast<int>(deviceCalls(name) - before) + 2;
        MPI_Bcast(&calls, 1, MPI_INT, fails, MPI_COMM_WORLD);
        for (int n = 1; n <= calls; ++n) {
          if (rank == 0) {
            buffer.fill(n);
          } else {
            buffer.spoil();
          }
          if (rank == fails) gmac::testing::failNthCall(name, static_cast<std::size_t>(n));
          const Codes codes = exchangeOne(buffer, type);
          if (rank == fails) gmac::testing::failNthCall(name, 0);
          expect(fails == 1 || codes.ofSend != MPI_SUCCESS || codes.arrived,
                 "a message that was sent arrives", n);
          expect(fails == 0 || codes.ofSend == MPI_SUCCESS, "a sender is not to blame", n);
          expect(rank == 0 || !codes.arrived || buffer.holds(n, rows),
                 "a message without an error is whole", n);
          failures += codes.ofSend != MPI_SUCCESS || codes.ofReceive != MPI_SUCCESS ? 1 : 0;
          good(n + 100);
        }
      }
    }
    MPI_Type_free(&type);
  }
  expect(failures > 0, "calls have failed");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  gmac::testing::showDevices(2);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (!gmac::testing::startDevice()) return 1;
  gmac::testing::chooseDevice(rank % 2);
  gmac::testing::refuseExports();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  countPinned();
  if (how == "around") around();
  if (how == "several") several();
  if (how == "unpinned") unpinned(argc > 2 ? std::atoi(argv[2]) : 0);
  if (how == "failing") failing();
  if (how == "left") left();
  if (how == "exchanged") exchanged();
  MPI_Finalize();
  if (rank == 0) std::puts("messages through pinned memory are right");
}
