// SPDX-License-Identifier: Apache-2.0
//
//   lent_on_device [together|apart|unreached|managed] [short|long|windows]
//
// Large messages of shared objects that are current on the accelerator, between two ranks of one
// host: the receiver's device copies them out of the sender's memory, once it has imported that.
// Meanwhile the sender's kernels and frees go on, and the message is what was sent. Tickets are on.
// On the driver without a device, `apart` gives each rank one of its own, and `unreached` such that
// do not reach each other's memory, so that all is packed. With `managed`, the objects are CUDA's
// managed memory (GMAC_MANAGED=1). `short`: messages that are too short for tickets between
// processes of one device. `long`: one piece, as `short`. `windows`: more bytes under way at a time
// than there is room for payloads (GMAC_TEST_TICKET_ROOM=8M).
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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

constexpr int kBytes = 160 << 10;
constexpr std::size_t kRest = std::size_t{128} << 10;
int rank = 0;
Memory::Kind objects = Memory::Kind::kShared;

std::vector<unsigned char> flipped(std::vector<unsigned char> bytes) {
  for (unsigned char& byte : bytes) byte ^= kMask;
  return bytes;
}

// The target of a receive: an object that the accelerator has, or the CPU; plain memory.
enum class Target { kOnDevice, kOnCpu, kPlain };
constexpr int kTargets = 3;

class Buffer {
 public:
  explicit Buffer(int shape, Memory::Kind kind = objects)
      : memory_(kind, spans[shape] + kRest), type_(types[shape]) {}

  // A sender's that is used again, so that it is imported once; a receiver's.
  static Buffer& kept(int shape) { return kept(shape, Target::kOnDevice); }
  static Buffer& kept(int shape, Target target) {
    static std::map<std::pair<int, Target>, std::unique_ptr<Buffer>> all;
    std::unique_ptr<Buffer>& one = all[{shape, target}];
    if (one == nullptr) {
      one = std::make_unique<Buffer>(shape,
                                     target == Target::kPlain ? Memory::Kind::kPlain : objects);
    }
    return *one;
  }

  // Kernels write it, so that it is current on the accelerator; they may still run. An odd number.
  void fill(int seed, int kernels = 1) {
    put(flipped(pattern(seed)));
    for (int i = 0; i < kernels; ++i) flipObject(data(), size());
  }
  void spoil(Target target) {
    std::memset(data(), 0xee, size());
    if (target == Target::kOnDevice) flipObject(data(), size());
  }
  bool holds(const std::vector<unsigned char>& expected) const {
    const std::vector<unsigned char> bytes(data(), data() + size());
    return gmac::testing::packed(bytes, type_) == expected;
  }
  bool holds(int seed) const { return holds(pattern(seed)); }
  void send(int tag) { MPI_Send(data(), 1, type_, 1, tag, MPI_COMM_WORLD); }
  void receive(int tag) {
    MPI_Status status = {};
    MPI_Recv(data(), 1, type_, 0, tag, MPI_COMM_WORLD, &status);
    int count = 0;
    MPI_Get_count(&status, type_, &count);
    expect(count == 1, "the status is the message's", tag);
  }
  unsigned char* data() const { return memory_.data(); }
  std::size_t size() const { return memory_.size(); }
  unsigned char* rest() const { return data() + size() - kRest; }
  MPI_Datatype type() const { return type_; }

 private:
  void put(const std::vector<unsigned char>& packed) {
    const std::vector<unsigned char> bytes = gmac::testing::unpacked(packed, size(), type_);
    std::memcpy(data(), bytes.data(), bytes.size());
  }

  Memory memory_;
  const MPI_Datatype type_;
};

void signal(int from, int tag) {
  int word = 0;
  if (rank == from) {
    MPI_Send(&word, 1, MPI_INT, 1 - rank, tag, MPI_COMM_WORLD);
  } else {
    MPI_Recv(&word, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

// By each way of sending, from each shape to each, to every target, to receivers that are there and
// that are late. What is sent is spoilt at once.
void everyShape() {
  constexpr int kForms = 3;
  constexpr int kRounds = kForms * kShapes * kShapes * kTargets * 2;
  for (int round = 0; round < kRounds; ++round) {
    const int form = round % kForms;
    const int shape = round / kForms % kShapes;
    const int received = round / kForms / kShapes % kShapes;
    const auto target = static_cast<Target>(round / kForms / kShapes / kShapes % kTargets);
    const bool late = round >= kRounds / 2;
    if (rank == 0) {
      Buffer& buffer = Buffer::kept(shape);
      buffer.fill(round);
      if (form == 0) {
        buffer.send(1);
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
      buffer.spoil(round % 2 == 0 ? Target::kOnDevice : Target::kOnCpu);
    } else {
      if (form == 2) MPI_Send(&round, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
      if (late) ::usleep(2000);
      Buffer& buffer = Buffer::kept(received, target);
      buffer.spoil(target);
      buffer.receive(1);
      expect(buffer.holds(round), "the message is what was sent", round);
    }
  }
}

// Many kernels are still to run when the message is sent.
void messagesComeAfterKernels() {
  for (int round = 0; round < 4 * kShapes; ++round) {
    Buffer& buffer = Buffer::kept(round % kShapes);
    if (rank == 0) {
      buffer.fill(round, 81);
      buffer.send(3);
    } else {
      buffer.spoil(Target::kOnDevice);
      buffer.receive(3);
      expect(buffer.holds(round), "a message comes after the kernels before it", round);
    }
  }
}

// Ways in which a program uses an object of which a message is under way.
constexpr int kNeeds = 6;
void disturb(std::unique_ptr<Buffer>& buffer, int shape, int need) {
  if (need == 0) {
    flipObject(buffer->data(), buffer->size());  // a kernel that writes it
  } else if (need == 1) {
    flipObject(buffer->data(), buffer->size());
    buffer->spoil(Target::kOnDevice);
  } else if (need == 2) {
    buffer.reset();
  } else if (need == 3) {
    // The CPU has what is beside it, and a kernel gets that.
    std::memset(buffer->rest(), 0x77, kRest);
    flipObject(buffer->data(), buffer->size());
  } else if (need == 4) {
    std::memset(buffer->rest(), 0x77, kRest);
  } else {
    buffer.reset();
    buffer = std::make_unique<Buffer>(shape);  // which has the same memory, as a rule
    buffer->spoil(Target::kOnDevice);
  }
}

// The receiver comes only when it has heard that the sender, without a call of MPI's, has had its
// way with the object.
void objectsAreNeededMeanwhile() {
  for (int round = 0; round < 2 * kShapes * kNeeds; ++round) {
    const int shape = round % kShapes;
    const int need = round / kShapes % kNeeds;
    const auto target = static_cast<Target>(round / kShapes % kTargets);
    if (rank == 0) {
      auto buffer = std::make_unique<Buffer>(shape);
      buffer->fill(round);
      buffer->send(4);  // the receiver has it imported from then on
      signal(1, 5);
      MPI_Request request;
      MPI_Isend(buffer->data(), 1, buffer->type(), 1, 4, MPI_COMM_WORLD, &request);
      disturb(buffer, shape, need);
      signal(0, 5);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      Buffer& imports = Buffer::kept(shape);
      imports.spoil(Target::kOnDevice);
      imports.receive(4);
      signal(1, 5);
      Buffer& buffer = Buffer::kept(shape, target);
      buffer.spoil(target);
      signal(0, 5);
      buffer.receive(4);
      expect(buffer.holds(round), "a message is what its object was", round);
    }
  }
}

// A kernel of another thread's, at any moment of the message: before, while it is read, after.
void kernelsAtAnyMoment() {
  for (int round = 0; round < 100; ++round) {
    const int shape = round % kShapes;
    if (rank == 0) {
      Buffer& buffer = Buffer::kept(shape);
      buffer.fill(round);
      std::thread other([&] {
        ::usleep(static_cast<unsigned>(round * 7919 % 400));
        flipObject(buffer.data(), buffer.size());
      });
      buffer.send(6);
      other.join();
    } else {
      const auto target = static_cast<Target>(round % kTargets);
      Buffer& buffer = Buffer::kept((shape + round / 7) % kShapes, target);
      buffer.spoil(target);
      ::usleep(static_cast<unsigned>(round * 104'729 % 300));
      buffer.receive(6);
      expect(buffer.holds(round) || buffer.holds(flipped(pattern(round))),
             "a message is one state of its object", round);
    }
  }
}

// The pages of an object move to another device of the sender's process, which has several, when
// the receiver has imported them and a message is under way. The next message is of the new ones.
void objectsMove() {
  int devices = 0;
  gmac::testing::require(adsmDeviceCount(&devices), "adsmDeviceCount");
  for (int round = 0; devices > 1 && round < 8 * kShapes; ++round) {
    Buffer& buffer = Buffer::kept(round % kShapes);
    if (rank == 0) {
      buffer.fill(round);
      buffer.send(10);
      signal(1, 11);
      MPI_Request request;
      MPI_Isend(buffer.data(), 1, buffer.type(), 1, 10, MPI_COMM_WORLD, &request);
      gmac::testing::require(adsmMigrate(buffer.data(), buffer.size(), round % devices),
                             "adsmMigrate");
      signal(0, 11);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      buffer.spoil(Target::kOnDevice);
      buffer.receive(10);
      expect(buffer.holds(round), "an object that has moved is sent", round);
      signal(1, 11);
      buffer.spoil(Target::kOnDevice);
      signal(0, 11);
      buffer.receive(10);
      expect(buffer.holds(round), "a message outlives the move of its object", round);
    }
  }
}

// Only a part is current on the accelerator: it is packed.
void partsElsewhere() {
  for (int round = 0; round < kShapes; ++round) {
    Buffer& buffer = Buffer::kept(round);
    if (rank == 0) {
      buffer.fill(round);
      buffer.data()[0] = pattern(round)[0];  // (as it is)
      buffer.send(7);
    } else {
      buffer.spoil(Target::kOnDevice);
      buffer.receive(7);
      expect(buffer.holds(round), "what the CPU has is sent, too", round);
    }
  }
}

// Objects are freed after their messages, and others have their memory; more than are imported at a
// time.
void objectsComeAndGo() {
  std::vector<std::unique_ptr<Buffer>> all;
  for (int round = 0; round < 150; ++round) {
    const int shape = round % kShapes;
    if (rank == 0) {
      if (all.size() >= 70) {
        all.erase(all.begin() + round % 5);
      }
      all.push_back(std::make_unique<Buffer>(shape));
      for (const std::size_t index : {all.size() - 1, all.size() - 1, all.size() / 2}) {
        Buffer& buffer = *all[index];
        buffer.fill(round);
        MPI_Send(buffer.data(), 1, buffer.type(), 1, 8, MPI_COMM_WORLD);
      }
    } else {
      for (int i = 0; i < 3; ++i) {
        Buffer& buffer = Buffer::kept((round + i) % kShapes);
        buffer.spoil(Target::kOnDevice);
        buffer.receive(8);
        expect(buffer.holds(round), "objects that come and go are sent", round);
      }
    }
  }
}

// Both send and receive parts of one object at a time, as borders of a grid are.
void partsOfOneObject() {
  constexpr int kHalf = kBytes / 2;
  for (int round = 0; round < 12; ++round) {
    Buffer& buffer = Buffer::kept(0);
    buffer.fill(round + 100 * rank);
    MPI_Request requests[2];
    MPI_Irecv(buffer.data() + kHalf, kHalf, MPI_BYTE, 1 - rank, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(buffer.data(), kHalf, MPI_BYTE, 1 - rank, 9, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    std::vector<unsigned char> expected = pattern(round + 100 * rank);
    const std::vector<unsigned char> other = pattern(round + 100 * (1 - rank));
    std::copy_n(other.begin(), kHalf, expected.begin() + kHalf);
    expect(buffer.holds(expected), "both parts are right", round);
  }
}

// Between devices one piece goes by the copy engine, also if it is shorter than a ticket's payload
// on the CPU. Two processes of one device leave such messages to the wire, and longer ones to a
// kernel.
void onePiece(bool apart, int bytes) {
  constexpr int kFirst = 4;  // until these have come the two may not know each other's memory
  constexpr int kFew = 20;
  constexpr int kMany = 2000;  // a receiver that is late finds a copy
  const auto copied = [] {
    return gmac::testing::usesFakeDriver() ? gmac::testing::deviceCalls("cuMemcpyDtoDAsync_v2") : 0;
  };
  std::size_t before = 0;
  int copies = 0;
  for (int round = 0; round < kFew || (round < kMany && apart && copies == 0); ++round) {
    Buffer& buffer = Buffer::kept(0);
    if (round <= kFirst) before = copied();
    if (rank == 0) {
      buffer.fill(round);
      signal(1, 16);  // the receiver is not late
      MPI_Send(buffer.data(), bytes, MPI_BYTE, 1, 12, MPI_COMM_WORLD);
    } else {
      buffer.spoil(Target::kOnDevice);
      signal(1, 16);
      MPI_Recv(buffer.data(), bytes, MPI_BYTE, 0, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const auto expected = pattern(round);
      expect(std::equal(expected.begin(), expected.begin() + bytes, buffer.data()) &&
                 buffer.data()[bytes] == (0xee ^ kMask),
             "one piece is what was sent", round);
    }
    // The two have told each other by now, so the next round knows it.
    copies = static_cast<int>(copied() - before);
    MPI_Bcast(&copies, 1, MPI_INT, 1, MPI_COMM_WORLD);
  }
  if (gmac::testing::usesFakeDriver()) {
    expect((copies > 0) == apart, "one piece goes by the copy engine between two devices", copies);
  }
}

// Many at a time. Each of their objects is disturbed, or none, before the receiver comes to any.
void windows() {
  constexpr int kWindow = 32;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::unique_ptr<Buffer>> objects;
    std::vector<MPI_Request> requests(kWindow);
    for (int i = 0; i < kWindow; ++i) {
      const int shape = i % kShapes;
      const int seed = round * kWindow + i;
      if (rank == 0) {
        objects.push_back(std::make_unique<Buffer>(shape));
        objects.back()->fill(seed);
        objects.back()->send(14);  // the receiver has it imported from then on
      } else {
        Buffer& imports = Buffer::kept(shape);
        imports.spoil(Target::kOnDevice);
        imports.receive(14);
        expect(imports.holds(seed), "one message is what was sent", seed);
      }
      signal(1, 15);  // the payload of that has gone
    }
    for (int i = 0; i < kWindow && rank == 0; ++i) {
      Buffer& buffer = *objects[static_cast<std::size_t>(i)];
      MPI_Isend(buffer.data(), 1, buffer.type(), 1, 14, MPI_COMM_WORLD,
                &requests[static_cast<std::size_t>(i)]);
    }
    for (int i = 0; i < kWindow && rank == 0 && round % 2 == 1; ++i) {
      disturb(objects[static_cast<std::size_t>(i)], i % kShapes, i / kShapes % kNeeds);
    }
    signal(0, 15);
    if (rank == 0) {
      MPI_Waitall(kWindow, requests.data(), MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < kWindow && rank == 1; ++i) {
      Buffer& buffer = Buffer::kept(i % kShapes, static_cast<Target>(i / kShapes % kTargets));
      buffer.spoil(static_cast<Target>(i / kShapes % kTargets));
      buffer.receive(14);
      expect(buffer.holds(round * kWindow + i), "a message of many is what its object was", i);
    }
  }
}

void largeMessages() {
  everyShape();
  messagesComeAfterKernels();
  objectsAreNeededMeanwhile();
  kernelsAtAnyMoment();
  objectsMove();
  partsElsewhere();
  partsOfOneObject();
  objectsComeAndGo();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "managed") {
    if (!gmac::testing::startDevice()) return 1;
    objects = Memory::Kind::kManaged;
  } else if (!word.empty() && word != "together") {
    gmac::testing::showDevices(2, word == "apart");
  }
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  makeTypes(kBytes, 4096, 5000);
  if (argc > 2 && std::strcmp(argv[2], "short") == 0) {
    onePiece(word == "apart", 4096);
  } else if (argc > 2 && std::strcmp(argv[2], "long") == 0) {
    onePiece(word == "apart", kBytes);
  } else if (argc > 2 && std::strcmp(argv[2], "windows") == 0) {
    windows();
  } else {
    largeMessages();
  }
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
  MPI_Finalize();
  if (rank == 0) std::puts("objects on devices are right");
}
