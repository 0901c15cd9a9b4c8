// SPDX-License-Identifier: Apache-2.0
//
//   device_copies [unimported|unexported|unproved|once|later|failing|column] [pinned]
//
// Large messages between device memories of two ranks of one host: the receiver's device copies
// them, once it has imported the sender's allocation. Tickets are on. With one of the first two
// words, the driver refuses imports or exports, and all is packed; `pinned`: with so short tickets
// that messages go through pinned memory. `unproved`, `once`: it refuses
// one import; `later`: one export; `failing`: the receiver's device does not copy; `column`: only
// messages of rows that lie far apart.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shapes.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::kShapes;
using gmac::testing::makeTypes;
using gmac::testing::Memory;
using gmac::testing::pattern;
using gmac::testing::says;
using gmac::testing::spans;
using gmac::testing::types;
using Kind = gmac::testing::Memory::Kind;

constexpr int kBytes = 160 << 10;
int rank = 0;

// Memory of one kind that a message of one shape fits in.
class Buffer {
 public:
  Buffer(Kind kind, int shape) : bytes_(spans[shape]), type_(types[shape]) {
    if (kind == Kind::kDevice) {
      device_ = gmac::testing::allocateExportable(bytes_);
    } else {
      memory_ = std::make_unique<Memory>(kind, bytes_);
    }
  }
  ~Buffer() {
    if (device_ != nullptr) gmac::testing::freeExportable(device_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // One that is used again, so that it is exported and imported once.
  static const Buffer& kept(Kind kind, int shape) {
    static std::map<std::pair<Kind, int>, std::unique_ptr<Buffer>> all;
    std::unique_ptr<Buffer>& one = all[{kind, shape}];
    if (one == nullptr) one = std::make_unique<Buffer>(kind, shape);
    return *one;
  }

  void fill(int seed) const { put(gmac::testing::unpacked(pattern(seed), bytes_, type_)); }
  void spoil() const { put(std::vector<unsigned char>(bytes_, 0xee)); }
  bool holds(int seed) const {
    std::vector<unsigned char> bytes(bytes_);
    if (device_ != nullptr) {
      gmac::testing::copyFromDevice(bytes.data(), device_, bytes_);
    } else {
      bytes.assign(memory_->data(), memory_->data() + bytes_);
    }
    return gmac::testing::packed(bytes, type_) == pattern(seed);
  }
  void* address() const { return device_ != nullptr ? device_ : memory_->address(); }
  MPI_Datatype type() const { return type_; }

 private:
  void put(const std::vector<unsigned char>& bytes) const {
    if (device_ != nullptr) {
      gmac::testing::copyToDevice(device_, bytes.data(), bytes_);
    } else {
      std::memcpy(memory_->data(), bytes.data(), bytes_);
    }
  }

  const std::size_t bytes_;
  void* device_ = nullptr;
  std::unique_ptr<Memory> memory_;
  const MPI_Datatype type_;
};

// By each way of sending, from each shape to each, to every kind of memory, to receivers that are
// there and that are late. What is sent is spoilt at once.
void everyShape() {
  constexpr Kind kKinds[] = {Kind::kDevice, Kind::kShared, Kind::kPlain};
  constexpr int kForms = 3;
  int round = 0;
  for (const Kind kind : kKinds) {
    for (const bool late : {false, true}) {
      for (int i = 0; i < kForms * kShapes * kShapes; ++i, ++round) {
        const int form = i % kForms;
        const int shape = i / kForms % kShapes;
        const int received = i / kForms / kShapes;
        if (rank == 0) {
          const Buffer& buffer = Buffer::kept(Kind::kDevice, shape);
          buffer.fill(round);
          if (form == 0) {
            MPI_Send(buffer.address(), 1, buffer.type(), 1, 1, MPI_COMM_WORLD);
          } else if (form == 1) {
            MPI_Request request;
            MPI_Isend(buffer.address(), 1, buffer.type(), 1, 1, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
          } else {
            int answer = 0;
            MPI_Sendrecv(buffer.address(), 1, buffer.type(), 1, 1, &answer, 1, MPI_INT, 1, 2,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect(answer == round, "MPI_Sendrecv receives", round);
          }
          buffer.spoil();
        } else {
          if (form == 2) MPI_Send(&round, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
          if (late) ::usleep(2000);
          const Buffer& buffer = Buffer::kept(kind, received);
          buffer.spoil();
          MPI_Status status = {};
          MPI_Recv(buffer.address(), 1, buffer.type(), 0, 1, MPI_COMM_WORLD, &status);
          int count = 0;
          MPI_Get_count(&status, buffer.type(), &count);
          expect(count == 1, "the status is the message's", round);
          expect(buffer.holds(round), "the message is what was sent", round);
        }
      }
    }
  }
}

// Both send at the same time, and each waits for the other's.
void bothAtOnce() {
  for (int round = 0; round < 30; ++round) {
    const Buffer& sent = Buffer::kept(Kind::kDevice, round % kShapes);
    const Buffer received(Kind::kDevice, (round + rank) % kShapes);
    sent.fill(round + rank);
    received.spoil();
    MPI_Request requests[2];
    MPI_Irecv(received.address(), 1, received.type(), 1 - rank, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent.address(), 1, sent.type(), 1 - rank, 3, MPI_COMM_WORLD, &requests[1]);
    if (round % 2 == 0) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    expect(received.holds(round + 1 - rank), "both are right", round);
    expect(sent.holds(round + rank), "and stay as they were", round);
  }
}

// The receiver comes when the sender waits in another call, as it may where MPI buffers the send.
void theSenderIsElsewhere() {
  for (int round = 0; round < 6; ++round) {
    const Buffer& buffer = Buffer::kept(Kind::kDevice, round % kShapes);
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0) {
      buffer.fill(round);
      MPI_Isend(buffer.address(), 1, buffer.type(), 1, 4, MPI_COMM_WORLD, &request);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      buffer.spoil();
      MPI_Recv(buffer.address(), 1, buffer.type(), 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(buffer.holds(round), "nothing is needed of the sender", round);
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
}

// And the other way: the sender waits for a receiver that comes to its receive only afterwards.
void theReceiverIsElsewhere() {
  for (int round = 0; round < 6; ++round) {
    const Buffer& buffer = Buffer::kept(Kind::kDevice, round % kShapes);
    if (rank == 0) {
      buffer.fill(round);
      MPI_Send(buffer.address(), 1, buffer.type(), 1, 5, MPI_COMM_WORLD);
      MPI_Barrier(MPI_COMM_WORLD);
    } else {
      buffer.spoil();
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Irecv(buffer.address(), 1, buffer.type(), 0, 5, MPI_COMM_WORLD, &request);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      expect(buffer.holds(round), "a late receiver finds a copy", round);
    }
  }
}

// Shorter receives, and ones that are longer.
void otherLengths() {
  const Buffer& buffer = Buffer::kept(Kind::kDevice, 0);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int round = 0; round < 3; ++round) {
    const int sent = round % 2 == 0 ? kBytes : kBytes / 2;
    if (rank == 0) {
      buffer.fill(round);
      MPI_Send(buffer.address(), sent, MPI_BYTE, 1, 6, MPI_COMM_WORLD);
    } else {
      buffer.spoil();
      const int room = round % 2 == 0 ? kBytes / 2 : kBytes;
      MPI_Status status = {};
      const int code = MPI_Recv(buffer.address(), room, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &status);
      int errorClass = MPI_SUCCESS;
      MPI_Error_class(code, &errorClass);
      expect(errorClass == (room < sent ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "truncation", round);
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      expect(room < sent || count == sent, "the length", round);
    }
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// Memory is freed after its messages, and other memory has its address, and other bytes.
void allocationsComeAndGo() {
  for (int round = 0; round < 40; ++round) {
    const int shape = round % kShapes;
    if (rank == 0) {
      const Buffer buffer(Kind::kDevice, shape);
      for (int i = 0; i < 3; ++i) {
        buffer.fill(round + i);
        MPI_Send(buffer.address(), 1, buffer.type(), 1, 7, MPI_COMM_WORLD);
      }
    } else {
      const Buffer& buffer = Buffer::kept(Kind::kDevice, (round + 1) % kShapes);
      for (int i = 0; i < 3; ++i) {
        MPI_Recv(buffer.address(), 1, buffer.type(), 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(buffer.holds(round + i), "memory that comes and goes is sent", round);
      }
    }
  }
}

// Memory is freed while a message of it is under way, before its receiver has begun, or at any
// moment.
void freedMeanwhile(bool late) {
  for (int round = 0; round < 60; ++round) {
    const int shape = round % kShapes;
    int heard = 0;
    if (rank == 0) {
      auto buffer = std::make_unique<Buffer>(Kind::kDevice, shape);
      buffer->fill(round);
      // (From then on the receiver has it imported.)
      MPI_Send(buffer->address(), 1, buffer->type(), 1, 8, MPI_COMM_WORLD);
      MPI_Recv(&heard, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Request request;
      MPI_Isend(buffer->address(), 1, buffer->type(), 1, 8, MPI_COMM_WORLD, &request);
      if (!late) ::usleep(static_cast<unsigned>(round * 7919 % 600));
      buffer.reset();
      if (late) MPI_Send(&heard, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      const Buffer& buffer = Buffer::kept(round % 2 == 0 ? Kind::kDevice : Kind::kShared, shape);
      MPI_Recv(buffer.address(), 1, buffer.type(), 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(&heard, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
      buffer.spoil();
      if (late) MPI_Recv(&heard, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Recv(buffer.address(), 1, buffer.type(), 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(buffer.holds(round), "the message is what the memory was", round);
    }
  }
}

// Messages of more bytes than there is room for copies (256 MiB) are copied by the device as others
// are.
void longMessages() {
  constexpr std::size_t kLong = std::size_t{140} << 20;
  constexpr int kMessages = 2;
  std::vector<unsigned char*> memory;
  for (int i = 0; i < kMessages; ++i) {
    memory.push_back(static_cast<unsigned char*>(gmac::testing::allocateExportable(kLong)));
  }
  const std::vector<unsigned char> ends = pattern(77);
  std::vector<unsigned char> arrived(ends.size());
  const auto copies = [] {
    return gmac::testing::usesFakeDriver() ? gmac::testing::deviceCalls("cuLaunchKernel") : 0;
  };
  // (Where a receiver is late, as on a machine with more to do, the sender leaves it a copy.)
  int roundsByDevice = 0;
  for (int round = 0; round < 8; ++round) {
    const std::size_t before = copies();
    MPI_Request requests[kMessages];
    for (int i = 0; i < kMessages; ++i) {
      unsigned char* const one = memory[static_cast<std::size_t>(i)];
      if (rank == 0) {
        for (unsigned char* const end : {one, one + kLong - kBytes}) {
          gmac::testing::copyToDevice(end, ends.data(), ends.size());
        }
        MPI_Isend(one, static_cast<int>(kLong), MPI_BYTE, 1, 11, MPI_COMM_WORLD, &requests[i]);
      } else {
        MPI_Irecv(one, static_cast<int>(kLong), MPI_BYTE, 0, 11, MPI_COMM_WORLD, &requests[i]);
      }
    }
    MPI_Waitall(kMessages, requests, MPI_STATUSES_IGNORE);
    const std::size_t made = copies() - before;
    for (int i = 0; i < kMessages && rank == 1; ++i) {
      unsigned char* const one = memory[static_cast<std::size_t>(i)];
      for (unsigned char* const end : {one, one + kLong - kBytes}) {
        gmac::testing::copyFromDevice(arrived.data(), end, arrived.size());
        expect(arrived == ends, "a long message is what was sent", round);
        std::fill(arrived.begin(), arrived.end(), 0);
        gmac::testing::copyToDevice(end, arrived.data(), arrived.size());
      }
    }
    if (round >= 2 && made == kMessages) ++roundsByDevice;
  }
  expect(rank == 0 || !gmac::testing::usesFakeDriver() || roundsByDevice > 0,
         "long messages go by the device", roundsByDevice);
  for (unsigned char* const one : memory) gmac::testing::freeExportable(one);
}

// A message to a receiver that is there.
int sendOne(const Buffer& buffer, int seed) {
  int word = 0;
  if (rank == 0) {
    buffer.fill(seed);
    MPI_Recv(&word, 1, MPI_INT, 1, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Send(buffer.address(), 1, buffer.type(), 1, 13, MPI_COMM_WORLD);
  }
  buffer.spoil();
  MPI_Send(&word, 1, MPI_INT, 0, 12, MPI_COMM_WORLD);
  return MPI_Recv(buffer.address(), 1, buffer.type(), 0, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// An import or export that failed once, for want of memory perhaps, is made a moment later.
void messagesFollow() {
  const Buffer& buffer = Buffer::kept(Kind::kDevice, 0);
  for (int round = 0; round < 40; ++round) {
    expect(sendOne(buffer, round) == MPI_SUCCESS, "a message that is not imported", round);
    expect(rank == 0 || buffer.holds(round), "a message is what was sent", round);
  }
}

void anImportIsRefusedOnce(std::size_t which) {
  if (rank == 1) gmac::testing::refuseOneImport(which);
  messagesFollow();
}
void anExportIsRefusedOnce() {
  if (rank == 0) gmac::testing::refuseOneExport();
  messagesFollow();
}

// The receiver's error says what the driver says, and later messages arrive.
void copiesFail() {
  constexpr int kFirst = 10;  // imported
  const Buffer& buffer = Buffer::kept(Kind::kDevice, kShapes - 1);
  bool failed = false;
  for (int round = 0; round < 40; ++round) {
    if (rank == 1 && round == kFirst) {
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      gmac::testing::failNextLaunch();
    }
    const int code = sendOne(buffer, round);
    if (code != MPI_SUCCESS) {
      expect(rank == 1 && !failed && says(code, "cuLaunchKernel"), "the error names its cause",
             round);
      failed = true;
      continue;
    }
    expect(rank == 0 || buffer.holds(round), "a message is what was sent", round);
  }
  expect(rank == 0 || failed, "one message fails");
}

// Of a matrix with rows of 4 KiB: packed by the sender's device.
void aColumn() {
  constexpr int kRows = 8192;  // 64 KiB of payload
  constexpr int kRowBytes = 4096;
  constexpr std::size_t kWord = 8;
  MPI_Datatype column = MPI_DATATYPE_NULL;
  MPI_Type_vector(kRows, kWord, kRowBytes, MPI_BYTE, &column);
  MPI_Type_commit(&column);
  std::vector<unsigned char> bytes(std::size_t{kRows} * kRowBytes, 0);
  void* const memory = gmac::testing::allocateExportable(bytes.size());
  for (int round = 0; round < 10; ++round) {
    const auto value = [&](std::size_t row, std::size_t i) {
      return static_cast<unsigned char>(row * 7 + i + static_cast<std::size_t>(round));
    };
    for (std::size_t row = 0; rank == 0 && row < kRows; ++row) {
      for (std::size_t i = 0; i < kWord; ++i) bytes[row * kRowBytes + i] = value(row, i);
    }
    gmac::testing::copyToDevice(memory, bytes.data(), bytes.size());
    if (rank == 0) {
      MPI_Send(memory, 1, column, 1, 14, MPI_COMM_WORLD);
      continue;
    }
    MPI_Recv(memory, 1, column, 0, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    std::vector<unsigned char> arrived(bytes.size());
    gmac::testing::copyFromDevice(arrived.data(), memory, arrived.size());
    bool right = true;
    for (std::size_t at = 0; at < arrived.size(); ++at) {
      const std::size_t i = at % kRowBytes;
      right = right && arrived[at] == (i < kWord ? value(at / kRowBytes, i) : 0);
    }
    expect(right, "a column is what was sent", round);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  gmac::testing::freeExportable(memory);
  MPI_Type_free(&column);
}

// Memory that was freed while others had it imported is free when they have let go, which they do
// in their calls.
void freedMemoryIsFree(std::size_t before) {
  for (int round = 0; round < 2000; ++round) {
    int enough = gmac::testing::freeDeviceMemory() >= before ? 1 : 0;
    const Buffer& buffer = Buffer::kept(Kind::kDevice, 0);
    MPI_Sendrecv_replace(buffer.address(), 1, buffer.type(), 1 - rank, 10, 1 - rank, 10,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (enough != 0) return;
    ::usleep(1000);
  }
  expect(false, "what was freed is free",
         static_cast<int>(gmac::testing::freeDeviceMemory() >> 20));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string refused = argc > 1 ? argv[1] : "";
  if (!gmac::testing::startDevice()) return 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (refused == "unimported") gmac::testing::refuseImports();
  if (refused == "unexported") gmac::testing::refuseExports();
  makeTypes(kBytes, 4096, 5000);
  const std::map<std::string, void (*)()> others = {
      {"unproved", [] { anImportIsRefusedOnce(1); }},
      {"once", [] { anImportIsRefusedOnce(2); }},
      {"later", &anExportIsRefusedOnce},
      {"failing", &copiesFail},
      {"column", &aColumn},
  };
  if (const auto other = others.find(refused); other != others.end()) {
    other->second();
    MPI_Finalize();
    if (rank == 0) std::puts("copies are right");
    return 0;
  }
  everyShape();
  bothAtOnce();
  theSenderIsElsewhere();
  theReceiverIsElsewhere();
  otherLengths();
  const std::size_t before = gmac::testing::freeDeviceMemory();
  allocationsComeAndGo();
  freedMeanwhile(true);
  freedMeanwhile(false);
  if (refused.empty()) longMessages();
  // (What the runtime takes for several packs at a time it takes when there are several.)
  const bool packsSeveral = argc > 2 && std::string(argv[2]) == "pinned";
  if (gmac::testing::usesFakeDriver() && !packsSeveral) freedMemoryIsFree(before);
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
  MPI_Finalize();
  if (rank == 0) std::puts("copies are right");
}
