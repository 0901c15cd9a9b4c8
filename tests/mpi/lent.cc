// SPDX-License-Identifier: Apache-2.0
//
// Large messages of shared objects that are current on the CPU, between two ranks of one host: the
// receiver copies them out of the sender's pages. Meanwhile the sender's kernels, frees and writes
// go on, and the message is what was sent. Tickets are on.
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shapes.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::flipObject;
using gmac::testing::kMask;
using gmac::testing::kShapes;
using gmac::testing::makeTypes;
using gmac::testing::Memory;
using gmac::testing::pattern;
using gmac::testing::spans;
using gmac::testing::types;
using gmac::testing::unpacked;

constexpr int kBytes = 320 << 10;
int rank = 0;

class Buffer {
 public:
  Buffer(Memory::Kind kind, int shape) : memory_(kind, spans[shape] + kRest), type_(types[shape]) {}
  // By the CPU, byte by byte, so that they are current there; the rest, too.
  void fill(int seed) {
    const std::vector<unsigned char> bytes = unpacked(pattern(seed), size(), type_);
    for (std::size_t i = 0; i < bytes.size(); ++i) data()[i] = bytes[i];
  }
  void spoil() const {
    for (unsigned char& byte : memory_.bytes()) byte = 0xee;
  }
  bool holds(int seed) const { return holds(pattern(seed)); }
  bool holds(const std::vector<unsigned char>& expected) const {
    const std::vector<unsigned char> bytes(data(), data() + memory_.size());
    return gmac::testing::packed(bytes, type_) == expected;
  }
  unsigned char* data() const { return memory_.data(); }
  unsigned char* rest() const { return data() + memory_.size() - kRest; }
  std::size_t size() const { return memory_.size(); }
  MPI_Datatype type() const { return type_; }

 private:
  static constexpr std::size_t kRest = 64;
  Memory memory_;
  MPI_Datatype type_;
};

Memory::Kind kindOf(int number) {
  return number % 2 == 0 ? Memory::Kind::kShared : Memory::Kind::kPlain;
}

// Sent by rank 0 in each way, and spoilt at once.
void everyShape() {
  constexpr int kForms = 3;
  constexpr int kRounds = kForms * kShapes * kShapes * 2 * 2;
  for (int round = 0; round < kRounds; ++round) {
    const int form = round % kForms;
    const int shape = round / kForms % kShapes;
    const int received = round / kForms / kShapes % kShapes;
    const int late = round / kForms / kShapes / kShapes % 2;
    const int kind = round / kForms / kShapes / kShapes / 2;
    if (rank == 0) {
      Buffer buffer(Memory::Kind::kShared, shape);
      buffer.fill(round);
      if (form == 0) {
        MPI_Send(buffer.data(), 1, buffer.type(), 1, 1, MPI_COMM_WORLD);
      } else if (form == 1) {
        MPI_Request request;
        MPI_Isend(buffer.data(), 1, buffer.type(), 1, 1, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      } else {
        int answer = 0;
        MPI_Sendrecv(buffer.data(), 1, buffer.type(), 1, 1, &answer, 1, MPI_INT, 1, 2,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(answer == round, "MPI_Sendrecv receives", round);
      }
      buffer.spoil();
    } else {
      if (form == 2) MPI_Send(&round, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
      if (late != 0) ::usleep(2000);
      Buffer buffer(kindOf(kind), received);
      MPI_Status status = {};
      MPI_Recv(buffer.data(), 1, buffer.type(), 0, 1, MPI_COMM_WORLD, &status);
      int count = 0;
      MPI_Get_count(&status, buffer.type(), &count);
      expect(count == 1, "the status is the message's", round);
      expect(buffer.holds(round), "the message is what was sent", round);
    }
  }
}

// The receiver comes only when it has heard that the sender, without a call of MPI's, has had its
// way with the object.
void objectsAreNeededMeanwhile() {
  constexpr int kNeeds = 4;
  for (int round = 0; round < 2 * kShapes * kNeeds; ++round) {
    const int shape = round % kShapes;
    const int need = round / kShapes % kNeeds;
    int heard = round;
    if (rank == 0) {
      auto buffer = std::make_unique<Buffer>(Memory::Kind::kShared, shape);
      buffer->fill(round);
      MPI_Request request;
      MPI_Isend(buffer->data(), 1, buffer->type(), 1, 3, MPI_COMM_WORLD, &request);
      if (need == 0) {
        flipObject(buffer->data(), buffer->size());  // a kernel that writes it
      } else if (need == 1) {
        flipObject(buffer->data(), buffer->size());
        buffer->spoil();
      } else if (need == 2) {
        buffer.reset();
      } else {
        for (int i = 0; i < 64; ++i) buffer->rest()[i] = static_cast<unsigned char>(i);
      }
      MPI_Send(&heard, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      Buffer buffer(kindOf(round / kShapes / kNeeds), shape);
      MPI_Recv(&heard, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Recv(buffer.data(), 1, buffer.type(), 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(buffer.holds(round), "a message is what its object was", round);
    }
  }
}

// A kernel of another thread's, at any moment of the message: before, while it is read, after.
void kernelsAtAnyMoment() {
  constexpr int kRounds = 150;
  for (int round = 0; round < kRounds; ++round) {
    const int shape = round % kShapes;
    if (rank == 0) {
      Buffer buffer(Memory::Kind::kShared, shape);
      buffer.fill(round);
      std::thread other([&] {
        ::usleep(static_cast<unsigned>(round * 7919 % 400));
        flipObject(buffer.data(), buffer.size());
      });
      MPI_Send(buffer.data(), 1, buffer.type(), 1, 5, MPI_COMM_WORLD);
      other.join();
    } else {
      Buffer buffer(kindOf(round), (shape + round / 7) % kShapes);
      ::usleep(static_cast<unsigned>(round * 104'729 % 300));
      MPI_Recv(buffer.data(), 1, buffer.type(), 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      std::vector<unsigned char> flipped = pattern(round);
      for (unsigned char& byte : flipped) byte ^= kMask;
      expect(buffer.holds(round) || buffer.holds(flipped), "a message is one state of its object",
             round);
    }
  }
}

// Only a part is current on the CPU: it is packed.
void partsElsewhere() {
  for (int round = 0; round < kShapes; ++round) {
    if (rank == 0) {
      Buffer buffer(Memory::Kind::kShared, round);
      std::vector<unsigned char> packed = pattern(round);
      for (unsigned char& byte : packed) byte ^= kMask;
      const std::vector<unsigned char> bytes = unpacked(packed, buffer.size(), buffer.type());
      std::memcpy(buffer.data(), bytes.data(), bytes.size());
      flipObject(buffer.data(), buffer.size());
      const unsigned char first = buffer.data()[0];  // fetches some of it
      MPI_Send(buffer.data(), 1, buffer.type(), 1, 6, MPI_COMM_WORLD);
      expect(first == pattern(round)[0], "the CPU reads what the kernel wrote", round);
    } else {
      Buffer buffer(kindOf(round), round);
      MPI_Recv(buffer.data(), 1, buffer.type(), 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(buffer.holds(round), "what the accelerator has is sent, too", round);
    }
  }
}

// The file that objects lie in grows, is used again, and has holes.
void objectsComeAndGo() {
  std::vector<std::unique_ptr<Memory>> others;
  for (int round = 0; round < 60; ++round) {
    if (rank == 0) {
      others.push_back(std::make_unique<Memory>(Memory::Kind::kShared,
                                                static_cast<std::size_t>(round % 7 + 1) << 22));
      if (round % 3 == 2) others.erase(others.begin() + round % 2);
      Buffer buffer(Memory::Kind::kShared, round % kShapes);
      buffer.fill(round);
      MPI_Send(buffer.data(), 1, buffer.type(), 1, 7, MPI_COMM_WORLD);
    } else {
      Buffer buffer(kindOf(round), round % kShapes);
      MPI_Recv(buffer.data(), 1, buffer.type(), 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(buffer.holds(round), "objects that come and go are sent", round);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  makeTypes(kBytes, 65'536, 100'000);
  everyShape();
  objectsAreNeededMeanwhile();
  kernelsAtAnyMoment();
  partsElsewhere();
  objectsComeAndGo();
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
  MPI_Finalize();
  if (rank == 0) std::puts("lent objects are right");
}
