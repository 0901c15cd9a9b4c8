// SPDX-License-Identifier: Apache-2.0
//
//   transfers [unreadable | guarded]
//
// Large messages of plain memory between two ranks of one host, which stay at the sender until the
// receiver takes them: by every call that ends a send, to receivers that are there, late, or in
// another call. Each sender spoils its buffer as soon as it may. `unreadable`: gmac may not read
// other processes' memory; `guarded`: process_vm_readv fails for every buffer.
#include <mpi.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mpi/expect.h"

namespace {

bool readsAreRefused = false;
bool isGuarded = false;

}  // namespace

// In place of libc's, also for libgmac_mpi.so, which reads a nonce of 16 bytes last. (MPI does
// not.)
extern "C" __attribute__((visibility("default"))) ssize_t process_vm_readv(
    pid_t process, const iovec* here, unsigned long hereCount, const iovec* there,
    unsigned long thereCount, unsigned long flags) noexcept {
  if (readsAreRefused && thereCount > 0 && there[thereCount - 1].iov_len == 16) {
    errno = EPERM;
    return -1;
  }
  if (isGuarded && process == ::getpid()) {
    errno = EFAULT;
    return -1;
  }
  return ::syscall(SYS_process_vm_readv, process, here, hereCount, there, thereCount, flags);
}

namespace {

using gmac::testing::expect;

constexpr int kBytes = 327'680;
int rank = 0;
// Else (GMAC_MPI_TICKETS=0) all is MPI's own: its sends may wait for their receives, and be
// cancelled.
bool withTickets = true;

// kBytes bytes: in two pieces, in pieces of 64 KiB, of 8 KiB, of 8 bytes.
constexpr int kShapes = 4;
MPI_Datatype types[kShapes];

void makeTypes() {
  MPI_Type_vector(2, kBytes / 2, kBytes / 2 + 1, MPI_BYTE, &types[0]);
  MPI_Type_vector(kBytes / 65'536, 65'536, 100'000, MPI_BYTE, &types[1]);
  MPI_Type_vector(kBytes / 8192, 8192, 20'000, MPI_BYTE, &types[2]);
  MPI_Type_vector(kBytes / 8, 8, 24, MPI_BYTE, &types[3]);
  for (MPI_Datatype& type : types) MPI_Type_commit(&type);
}

class Buffer {
 public:
  explicit Buffer(int shape) : type_(types[shape]) {
    MPI_Aint lowerBound = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(type_, &lowerBound, &extent);
    memory_.assign(static_cast<std::size_t>(extent), 0x11);
  }
  void fill(int seed) {
    int position = 0;
    std::vector<unsigned char> packed = pattern(seed);
    MPI_Unpack(packed.data(), kBytes, &position, data(), 1, type_, MPI_COMM_SELF);
  }
  void spoil() { memory_.assign(memory_.size(), 0xee); }
  bool holds(int seed) {
    int position = 0;
    std::vector<unsigned char> packed(kBytes);
    MPI_Pack(data(), 1, type_, packed.data(), kBytes, &position, MPI_COMM_SELF);
    return packed == pattern(seed);
  }
  void* data() { return memory_.data(); }
  MPI_Datatype type() const { return type_; }

 private:
  static std::vector<unsigned char> pattern(int seed) {
    std::vector<unsigned char> bytes(kBytes);
    for (int i = 0; i < kBytes; ++i) {
      bytes[static_cast<std::size_t>(i)] = static_cast<unsigned char>(i * 7 + (i >> 8) + seed * 31);
    }
    return bytes;
  }
  MPI_Datatype type_;
  std::vector<unsigned char> memory_;
};

constexpr int kForms = 12;

// Rank 0's, by every call that completes it.
void sendAs(int form, Buffer& buffer, int tag) {
  MPI_Request list[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Request& request = list[1];
  int done = 0;
  int index = -1;
  int indices[3] = {};
  if (form == 0) {
    MPI_Send(buffer.data(), 1, buffer.type(), 1, tag, MPI_COMM_WORLD);
    return;
  }
  if (form == 1) {
    int answer = 0;
    MPI_Sendrecv(buffer.data(), 1, buffer.type(), 1, tag, &answer, 1, MPI_INT, 1, 1000,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(answer == tag, "MPI_Sendrecv receives", form);
    return;
  }
  MPI_Isend(buffer.data(), 1, buffer.type(), 1, tag, MPI_COMM_WORLD, &request);
  switch (form) {
    case 2:
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      break;
    case 3:
      while (done == 0) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      break;
    case 4:
      MPI_Waitall(3, list, MPI_STATUSES_IGNORE);
      break;
    case 5:
      while (done == 0) MPI_Testall(3, list, &done, MPI_STATUSES_IGNORE);
      break;
    case 6:
      MPI_Waitany(3, list, &index, MPI_STATUS_IGNORE);
      expect(index == 1, "MPI_Waitany names the request", form);
      break;
    case 7:
      while (done == 0) MPI_Testany(3, list, &index, &done, MPI_STATUS_IGNORE);
      expect(index == 1, "MPI_Testany names the request", form);
      break;
    case 8:
      MPI_Waitsome(3, list, &done, indices, MPI_STATUSES_IGNORE);
      expect(done == 1 && indices[0] == 1, "MPI_Waitsome names the request", form);
      break;
    case 9:
      while (done == 0) MPI_Testsome(3, list, &done, indices, MPI_STATUSES_IGNORE);
      expect(done == 1 && indices[0] == 1, "MPI_Testsome names the request", form);
      break;
    case 10:
      while (done == 0) MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
      buffer.spoil();
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      break;
    default: {
      // Sends are seldom cancelled; the receiver is told.
      MPI_Status status = {};
      if (withTickets) MPI_Cancel(&request);
      MPI_Wait(&request, &status);
      int cancelled = 0;
      MPI_Test_cancelled(&status, &cancelled);
      expect(cancelled == 0, "a ticket that MPI has taken is not cancelled", form);
    }
  }
  expect(request == MPI_REQUEST_NULL, "a request that is complete is gone", form);
}

void everyForm() {
  for (int round = 0; round < kForms * kShapes * kShapes * 3; ++round) {
    const int form = round % kForms;
    const int way = round / kForms % 3;  // of the receiver: at once, nonblocking, late
    Buffer buffer(round / kForms / 3 % kShapes);
    Buffer to(round / kForms / 3 / kShapes);
    const int tag = round % 500;
    if (rank == 0) {
      buffer.fill(round);
      sendAs(form, buffer, tag);
      buffer.spoil();
    } else {
      if (form == 1) MPI_Send(&tag, 1, MPI_INT, 0, 1000, MPI_COMM_WORLD);
      MPI_Status status = {};
      if (way == 1) {
        MPI_Request request;
        MPI_Irecv(to.data(), 1, to.type(), 0, tag, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
      } else {
        if (way == 2) ::usleep(3000);
        MPI_Recv(to.data(), 1, to.type(), 0, tag, MPI_COMM_WORLD, &status);
      }
      int count = 0;
      MPI_Get_count(&status, to.type(), &count);
      expect(count == 1 && status.MPI_TAG == tag, "the status is the message's", round);
      expect(to.holds(round), "the message is what was sent", round);
    }
  }
}

// Both send and receive: what either waits for is in the other's hands.
void bothWays() {
  for (int round = 0; round < 6 * kShapes; ++round) {
    Buffer out(round / 6);
    Buffer in((round / 6 + 1) % kShapes);
    const int other = 1 - rank;
    MPI_Request list[2];
    out.fill(round + rank);
    const auto receive = [&] {
      MPI_Irecv(in.data(), 1, in.type(), other, 5, MPI_COMM_WORLD, &list[0]);
    };
    const auto send = [&] { MPI_Send(out.data(), 1, out.type(), other, 5, MPI_COMM_WORLD); };
    switch (round % 6) {
      case 0:  // what most programs do
        receive();
        MPI_Isend(out.data(), 1, out.type(), other, 5, MPI_COMM_WORLD, &list[1]);
        MPI_Waitall(2, list, MPI_STATUSES_IGNORE);
        break;
      case 1:
        receive();
        send();
        MPI_Wait(&list[0], MPI_STATUS_IGNORE);
        break;
      case 2:  // MPI must let these sends end: both receives are posted
        receive();
        MPI_Barrier(MPI_COMM_WORLD);
        send();
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&list[0], MPI_STATUS_IGNORE);
        break;
      case 3:  // and those: the receive is blocking, and needs nothing of the sender's
        MPI_Isend(out.data(), 1, out.type(), other, 5, MPI_COMM_WORLD, &list[1]);
        MPI_Recv(in.data(), 1, in.type(), other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&list[1], MPI_STATUS_IGNORE);
        break;
      case 4:
        if (withTickets) {  // not safe in MPI, whose sends may wait for each other's receives
          send();
          out.spoil();
          MPI_Recv(in.data(), 1, in.type(), other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
          break;
        }
        [[fallthrough]];
      default:
        MPI_Sendrecv(out.data(), 1, out.type(), other, 5, in.data(), 1, in.type(), other, 5,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    expect(in.holds(round + other), "each has the other's message", round);
  }
}

// Both send while many receives are open, of which every other one is for messages that come at the
// end, some from anybody. What comes meanwhile is found among them, in any order.
void amongOpenReceives() {
  constexpr int kMessages = 60;
  constexpr int kFirstTag = 2000;
  const int other = 1 - rank;
  std::vector<std::unique_ptr<Buffer>> in;
  std::vector<int> late(kMessages, -1);
  std::vector<MPI_Request> list(2 * kMessages);
  for (int i = 0; i < kMessages; ++i) {
    in.push_back(std::make_unique<Buffer>(i % kShapes));
    MPI_Irecv(in.back()->data(), 1, in.back()->type(), i % 3 == 0 ? MPI_ANY_SOURCE : other,
              kFirstTag + i, MPI_COMM_WORLD, &list[std::size_t{2} * static_cast<std::size_t>(i)]);
    MPI_Irecv(&late[static_cast<std::size_t>(i)], 1, MPI_INT, other, kFirstTag + kMessages + i,
              MPI_COMM_WORLD, &list[std::size_t{2} * static_cast<std::size_t>(i) + 1]);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < kMessages; ++i) {
    const int number = i * 37 % kMessages;
    Buffer out(number % kShapes);
    out.fill(number + rank);
    MPI_Send(out.data(), 1, out.type(), other, kFirstTag + number, MPI_COMM_WORLD);
    out.spoil();
  }
  for (int i = 0; i < kMessages; ++i) {
    MPI_Send(&i, 1, MPI_INT, other, kFirstTag + kMessages + i, MPI_COMM_WORLD);
  }
  MPI_Waitall(2 * kMessages, list.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < kMessages; ++i) {
    expect(in[static_cast<std::size_t>(i)]->holds(i + other), "a message among open receives", i);
    expect(late[static_cast<std::size_t>(i)] == i, "and those after it", i);
  }
}

// A request that is freed: the buffer is the sender's when it hears that the message has arrived.
void freed() {
  for (int shape = 0; shape < kShapes; ++shape) {
    Buffer buffer(shape);
    int heard = 0;
    if (rank == 0) {
      buffer.fill(shape);
      MPI_Request request;
      MPI_Isend(buffer.data(), 1, buffer.type(), 1, 6, MPI_COMM_WORLD, &request);
      MPI_Request_free(&request);
      expect(request == MPI_REQUEST_NULL, "a freed request is gone", shape);
      MPI_Recv(&heard, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      buffer.spoil();
    } else {
      MPI_Recv(buffer.data(), 1, buffer.type(), 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(buffer.holds(shape), "the message of a freed request arrives", shape);
      MPI_Send(&heard, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    }
  }
}

// More messages at a time than there can be transfers.
void many() {
  constexpr int kMany = 700;
  constexpr int kEach = 70'000;
  std::vector<unsigned char> bytes(kEach, 7);
  if (rank == 0) {
    std::vector<MPI_Request> list(kMany);
    for (MPI_Request& request : list) {
      MPI_Isend(bytes.data(), kEach, MPI_BYTE, 1, 8, MPI_COMM_WORLD, &request);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Waitall(kMany, list.data(), MPI_STATUSES_IGNORE);
    return;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < kMany; ++i) {
    bytes.assign(kEach, 0);
    MPI_Recv(bytes.data(), kEach, MPI_BYTE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(bytes == std::vector<unsigned char>(kEach, 7), "each of many messages arrives", i);
  }
}

}  // namespace

int main(int argc, char** argv) {
  readsAreRefused = argc > 1 && std::string_view(argv[1]) == "unreadable";
  isGuarded = argc > 1 && std::string_view(argv[1]) == "guarded";
  const char* const tickets = std::getenv("GMAC_MPI_TICKETS");
  withTickets = tickets == nullptr || std::string_view(tickets) != "0";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  makeTypes();
  if (argc > 1 && std::string_view(argv[1]) == "open") {
    // Often enough: where each waits for the other at the same moment, most are left as copies.
    for (int round = 0; round < 10; ++round) amongOpenReceives();
  } else {
    everyForm();
    bothWays();
    freed();
    many();
  }
  for (MPI_Datatype& type : types) MPI_Type_free(&type);
  MPI_Finalize();
  if (rank == 0) std::puts("transfers are right");
}
