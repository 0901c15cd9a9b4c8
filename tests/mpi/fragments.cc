// SPDX-License-Identifier: Apache-2.0
//
//   fragments plain | late | exchange | failing | all FILE
//
// Large messages of shared objects from rank 0 to rank 1, which is on another host: with gmac on
// both, they go in fragments. What the receiver sees is what it sees of other messages, and no call
// waits where MPI's would not. Ranks tell each other by files whose names begin with FILE. `late`:
// receivers that are in another call. `plain`: rank 1 has no shared objects, and may have no gmac.
// `exchange`: calls that send and receive. `failing`: the n-th call of each of the driver's
// functions fails, for every n, at the sender and at the receiver.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::Memory;

constexpr int kBytes = 1'200'000;
constexpr Memory::Kind kKinds[] = {Memory::Kind::kShared, Memory::Kind::kPlain};

int rank = 0;
bool receiverIsPlain = false;

void fill(const Memory& memory, int value) {
  std::memset(memory.data(), value ^ gmac::testing::kMask, memory.size());
  memory.flip();
}

bool bytesAre(const Memory& memory, std::size_t first, std::size_t last, int value) {
  for (std::size_t i = first; i < last; ++i) {
    if (memory.data()[i] != value) return false;
  }
  return true;
}

int countOf(const MPI_Status& status) {
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  return count;
}

// Rank 1 receives so that the sender learns that it attends.
void attend(int times = 3) {
  const Memory object(receiverIsPlain && rank == 1 ? Memory::Kind::kPlain : Memory::Kind::kShared,
                      kBytes);
  for (int i = 0; i < times; ++i) {
    fill(object, i);
    if (rank == 0) MPI_Send(object.data(), kBytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) {
      MPI_Recv(object.data(), kBytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(bytesAre(object, 0, kBytes, i), "a message is whole");
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// In rows of 1000 bytes, if they are apart. To be freed.
MPI_Datatype makeType(bool rows) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  if (rows) {
    MPI_Type_vector(kBytes / 1000, 1000, 1500, MPI_BYTE, &type);
  } else {
    MPI_Type_contiguous(kBytes, MPI_BYTE, &type);
  }
  MPI_Type_commit(&type);
  return type;
}

// Every call that receives, in every kind of memory, of one piece and of rows on either side.
void eachReceive() {
  constexpr int kCalls = 9;
  for (const Memory::Kind kind : kKinds) {
    for (int shapes = 0; shapes < 4; ++shapes) {
      const bool rows = rank == 0 ? shapes % 2 == 1 : shapes / 2 == 1;
      MPI_Datatype type = makeType(rows);
      const Memory memory(rank == 0 ? Memory::Kind::kShared : kind, rows ? kBytes / 2 * 3 : kBytes);
      for (int call = 0; call < kCalls; ++call) {
        const int value = 1 + call;
        fill(memory, rank == 0 ? value : 99);
        if (rank == 0) {
          MPI_Request request = MPI_REQUEST_NULL;
          if (call % 2 == 0) {
            MPI_Send(memory.data(), 1, type, 1, call, MPI_COMM_WORLD);
          } else {
            MPI_Isend(memory.data(), 1, type, 1, call, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
          }
          continue;
        }
        MPI_Status status = {};
        std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        MPI_Message message;
        int flag = 0;
        int index = 0;
        const auto post = [&] {
          MPI_Irecv(memory.data(), 1, type, call % 3 == 0 ? MPI_ANY_SOURCE : 0,
                    call % 3 == 1 ? MPI_ANY_TAG : call, MPI_COMM_WORLD, &requests[1]);
        };
        switch (call) {
          case 0:
            MPI_Recv(memory.data(), 1, type, MPI_ANY_SOURCE, call, MPI_COMM_WORLD, &status);
            break;
          case 1:
            post();
            MPI_Wait(&requests[1], &status);
            break;
          case 2:
            post();
            while (flag == 0) MPI_Test(&requests[1], &flag, &status);
            break;
          case 3:
            post();
            MPI_Waitany(2, requests.data(), &index, &status);
            expect(index == 1, "MPI_Waitany finds it");
            break;
          case 4:
            post();
            while (index == 0) MPI_Testsome(2, requests.data(), &index, &flag, &status);
            expect(index == 1 && flag == 1, "MPI_Testsome finds it");
            break;
          case 5:
            MPI_Probe(0, call, MPI_COMM_WORLD, &status);
            expect(countOf(status) == kBytes, "a probe shows the size");
            MPI_Recv(memory.data(), 1, type, 0, call, MPI_COMM_WORLD, &status);
            break;
          case 6:
            MPI_Mprobe(0, call, MPI_COMM_WORLD, &message, &status);
            expect(countOf(status) == kBytes, "MPI_Mprobe shows the size");
            MPI_Mrecv(memory.data(), 1, type, &message, &status);
            break;
          case 7:
            MPI_Mprobe(0, call, MPI_COMM_WORLD, &message, &status);
            MPI_Imrecv(memory.data(), 1, type, &message, &requests[1]);
            while (flag == 0) MPI_Request_get_status(requests[1], &flag, &status);
            MPI_Wait(&requests[1], &status);
            break;
          default:
            MPI_Recv_init(memory.data(), 1, type, 0, call, MPI_COMM_WORLD, &requests[1]);
            MPI_Start(&requests[1]);
            while (flag == 0) MPI_Testall(2, requests.data(), &flag, MPI_STATUSES_IGNORE);
            MPI_Request_free(&requests[1]);
            status.MPI_TAG = call;
        }
        expect(status.MPI_TAG == call && (call == 8 || countOf(status) == kBytes) &&
                   requests[1] == MPI_REQUEST_NULL,
               "the status is the message's");
        const std::size_t period = rows ? 1500 : 1000;
        for (std::size_t i = 0; i < kBytes / 1000; ++i) {
          expect(bytesAre(memory, i * period, i * period + 1000, value), "the message is whole");
          expect(!rows || i + 1 == kBytes / 1000 ||
                     bytesAre(memory, i * period + 1000, (i + 1) * period, 99),
                 "and what is between is as it was");
        }
      }
      MPI_Type_free(&type);
      attend(1);
    }
  }
}

// Rank 1 has posted its receive, and waits in a call that only the sender ends.
void lateReceiver(int value) {
  attend();
  const Memory object(Memory::Kind::kShared, kBytes);
  fill(object, rank == 0 ? value : 99);
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank == 0) {
    MPI_Isend(object.data(), kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    fill(object, 98);  // it is the program's again
  } else {
    MPI_Irecv(object.data(), kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(bytesAre(object, 0, kBytes, rank == 0 ? 98 : value), "a message comes late");
}

// The first part of the names of files that processes wait for, in place of messages.
std::string flagPath;
void raise(int number) {
  std::fclose(std::fopen((flagPath + std::to_string(number)).c_str(), "w"));
}
void await(int number) {
  while (::access((flagPath + std::to_string(number)).c_str(), F_OK) != 0) ::sched_yield();
}

// The sender is in no call of MPI's while rank 1 asks for the message, until that has asked often.
void testsWhileTheSenderIsAway() {
  constexpr int kOften = 1000;
  for (int i = 0; i < 2; ++i) {
    attend();
    const Memory object(kKinds[rank == 0 ? 0 : i], kBytes);
    fill(object, rank == 0 ? 7 : 99);
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0) {
      MPI_Isend(object.data(), kBytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &request);
      await(i);
    } else {
      MPI_Irecv(object.data(), kBytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &request);
      int flag = 0;
      for (int asked = 0; asked < kOften && flag == 0; ++asked) {
        MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        ::sched_yield();
      }
      raise(i);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(bytesAre(object, 0, kBytes, 7), "a message comes that was asked for");
  }
}

// Many at once, both ways, received in another order than they are sent.
void bothWays() {
  constexpr int kMessages = 6;
  attend();
  std::vector<std::unique_ptr<Memory>> sent;
  std::vector<std::unique_ptr<Memory>> received;
  std::vector<MPI_Request> requests(2 * kMessages);
  for (int i = 0; i < kMessages; ++i) {
    sent.push_back(std::make_unique<Memory>(Memory::Kind::kShared, kBytes));
    received.push_back(std::make_unique<Memory>(Memory::Kind::kShared, kBytes));
    fill(*sent.back(), 10 * rank + i);
  }
  for (int i = 0; i < kMessages; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    const std::size_t turned = static_cast<std::size_t>(kMessages - 1 - i);
    MPI_Irecv(received[turned]->data(), kBytes, MPI_BYTE, 1 - rank, kMessages - 1 - i,
              MPI_COMM_WORLD, &requests[2 * turned]);
    MPI_Isend(sent[at]->data(), kBytes, MPI_BYTE, 1 - rank, i, MPI_COMM_WORLD,
              &requests[2 * at + 1]);
  }
  MPI_Waitall(2 * kMessages, requests.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < kMessages; ++i) {
    expect(bytesAre(*received[static_cast<std::size_t>(i)], 0, kBytes, 10 * (1 - rank) + i),
           "each of many messages is whole");
  }
}

// Both send to each other, and each has posted its receive before.
void exchangeByBlockingSends() {
  for (int i = 0; i < 3; ++i) {
    attend();
    const Memory sent(Memory::Kind::kShared, kBytes);
    const Memory received(Memory::Kind::kShared, kBytes);
    fill(sent, 40 + rank);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(received.data(), kBytes, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD, &request);
    MPI_Send(sent.data(), kBytes, MPI_BYTE, 1 - rank, 4, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(bytesAre(received, 0, kBytes, 41 - rank), "an exchange is whole");
  }
}

// Receives that are too short. (Open MPI 4.1 writes past the end of one for a long message on the
// wire, so these must go in fragments.)
void truncated(std::initializer_list<int> rooms, int calls) {
  attend();
  for (const int room : rooms) {
    for (int call = 0; call < calls; ++call) {
      const Memory object(Memory::Kind::kShared, kBytes);
      fill(object, rank == 0 ? 5 : 99);
      if (rank == 0) {
        MPI_Send(object.data(), kBytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
        MPI_Send(object.data(), kBytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
        continue;
      }
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Status status = {};
      int code = MPI_SUCCESS;
      int flag = 0;
      if (call == 0) {
        code = MPI_Recv(object.data(), room, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &status);
      } else {
        MPI_Irecv(object.data(), room, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &request);
        if (call == 1) code = MPI_Wait(&request, &status);
        while (call == 2 && flag == 0) code = MPI_Test(&request, &flag, &status);
      }
      int errorClass = MPI_SUCCESS;
      MPI_Error_class(code, &errorClass);
      expect(errorClass == MPI_ERR_TRUNCATE, "a receive that is too short is truncated");
      expect(bytesAre(object, static_cast<std::size_t>(room), kBytes, 99),
             "and writes nothing after its end");
      code = MPI_Recv(object.data(), kBytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &status);
      expect(code == MPI_SUCCESS && countOf(status) == kBytes && bytesAre(object, 0, kBytes, 5),
             "the next message is whole");
    }
  }
}

// A receive is cancelled before its message comes; one that is freed gets it all the same.
void cancelledAndFreed() {
  attend();
  const Memory object(Memory::Kind::kShared, kBytes);
  const Memory other(Memory::Kind::kShared, kBytes);
  fill(object, rank == 0 ? 6 : 99);
  fill(other, rank == 0 ? 7 : 99);
  if (rank == 0) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(object.data(), kBytes, MPI_BYTE, 1, 6, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Send(other.data(), kBytes, MPI_BYTE, 1, 6, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status = {};
  int flag = 0;
  MPI_Irecv(object.data(), kBytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &flag);
  expect(flag != 0 && bytesAre(object, 0, kBytes, 99), "a receive is cancelled");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Irecv(object.data(), kBytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &request);
  MPI_Request_free(&request);
  MPI_Recv(other.data(), kBytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &status);
  expect(bytesAre(other, 0, kBytes, 7), "the message after a freed receive's is whole");
  MPI_Barrier(MPI_COMM_WORLD);
  // (It is unpacked in a later call that receives.)
  while (object.data()[kBytes - 1] != 6) {
    MPI_Irecv(other.data(), kBytes, MPI_BYTE, 0, 99, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  expect(bytesAre(object, 0, kBytes, 6), "a freed receive gets its message");
}

// MPI_Sendrecv and MPI_Sendrecv_replace, in pieces and in rows.
struct Exchange {
  bool replaces;
  MPI_Datatype type;

  int call(const Memory& sent, const Memory& received, int tag, MPI_Status* status) const {
    return replaces ? MPI_Sendrecv_replace(received.address(), 1, type, 1 - rank, tag, 1 - rank,
                                           tag, MPI_COMM_WORLD, status)
                    : MPI_Sendrecv(sent.address(), 1, type, 1 - rank, tag, received.address(), 1,
                                   type, 1 - rank, tag, MPI_COMM_WORLD, status);
  }
};

bool rowsAre(const Memory& memory, bool rows, int value, int between) {
  const std::size_t period = rows ? 1500 : 1000;
  for (std::size_t i = 0; i < kBytes / 1000; ++i) {
    if (!bytesAre(memory, i * period, i * period + 1000, value) ||
        (rows && i + 1 < kBytes / 1000 &&
         !bytesAre(memory, i * period + 1000, (i + 1) * period, between))) {
      return false;
    }
  }
  return true;
}

// Both ranks at once, and from a message that a probe has found.
void exchangeByOneCall() {
  attend();
  for (const bool replaces : {false, true}) {
    for (const bool rows : {false, true}) {
      const Exchange exchange = {replaces, makeType(rows)};
      const std::size_t bytes = rows ? kBytes / 2 * 3 : kBytes;
      for (const Memory::Kind kind : kKinds) {
        // (Plain memory, whose messages take the wire, is replaced by rank 1 alone.)
        const bool plain = kind == Memory::Kind::kPlain && (!replaces || rank == 1);
        const Memory sent(Memory::Kind::kShared, bytes);
        const Memory received(plain ? kind : Memory::Kind::kShared, bytes);
        for (int round = 0; round < 3; ++round) {
          MPI_Status status = {};
          fill(sent, 60 + rank);
          fill(received, replaces ? 60 + rank : 99);
          expect(exchange.call(sent, received, 20, &status) == MPI_SUCCESS, "an exchange succeeds");
          expect(status.MPI_SOURCE == 1 - rank && status.MPI_TAG == 20 && countOf(status) == kBytes,
                 "the status is the received message's");
          expect(rowsAre(received, rows, 61 - rank, replaces ? 60 + rank : 99),
                 "an exchange is whole");
        }
        // Rank 1's probe has the message before the call receives it.
        MPI_Status status = {};
        fill(sent, 70 + rank);
        fill(received, replaces ? 70 + rank : 99);
        if (rank == 0) {
          MPI_Request request = MPI_REQUEST_NULL;
          MPI_Isend(sent.address(), 1, exchange.type, 1, 21, MPI_COMM_WORLD, &request);
          MPI_Recv(received.address(), 1, exchange.type, 1, 21, MPI_COMM_WORLD, &status);
          MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
          MPI_Probe(0, 21, MPI_COMM_WORLD, &status);
          expect(exchange.call(sent, received, 21, &status) == MPI_SUCCESS, "an exchange succeeds");
        }
        expect(countOf(status) == kBytes && rowsAre(received, rows, 71 - rank,
                                                    rank == 1 && replaces ? 70 + rank
                                                    : replaces            ? 70
                                                                          : 99),
               "an exchange of a probed message is whole");
      }
      MPI_Datatype type = exchange.type;
      MPI_Type_free(&type);
    }
  }
}

// The message that the call receives is sent when the one that it sends has arrived.
void theAnswerComesAfterTheMessage() {
  attend();
  for (int round = 0; round < 6; ++round) {
    const Memory object(Memory::Kind::kShared, kBytes);
    int answer = 0;
    if (rank == 0) {
      fill(object, 80 + round);
      MPI_Sendrecv(object.data(), kBytes, MPI_BYTE, 1, 22, &answer, 1, MPI_INT, 1, 22,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(answer == 80 + round, "the answer comes");
    } else {
      fill(object, 99);
      MPI_Recv(object.data(), kBytes, MPI_BYTE, 0, 22, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      answer = object.data()[kBytes - 1];
      MPI_Send(&answer, 1, MPI_INT, 0, 22, MPI_COMM_WORLD);
    }
  }
}

// MPI finds what is wrong with a call before it sends: the next message is not disturbed.
void wrongExchanges() {
  attend();
  const Memory object(Memory::Kind::kShared, kBytes);
  const auto isOfClass = [](int code, int wanted) {
    int errorClass = MPI_SUCCESS;
    MPI_Error_class(code, &errorClass);
    return errorClass == wanted;
  };
  fill(object, 90 + rank);
  if (rank == 0) {
    expect(isOfClass(MPI_Sendrecv(object.data(), kBytes, MPI_BYTE, 1, -7, object.data(), 0,
                                  MPI_BYTE, 1, 23, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                     MPI_ERR_TAG),
           "a wrong tag of what is sent");
    expect(isOfClass(MPI_Sendrecv(object.data(), kBytes, MPI_BYTE, 1, 23, nullptr, 0, MPI_BYTE, 7,
                                  23, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                     MPI_ERR_RANK),
           "a wrong source");
    expect(isOfClass(MPI_Sendrecv_replace(object.data(), kBytes, MPI_BYTE, 1, 23, 1, -7,
                                          MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                     MPI_ERR_TAG),
           "a wrong tag of what is received");
    MPI_Send(object.data(), kBytes, MPI_BYTE, 1, 23, MPI_COMM_WORLD);
  } else {
    MPI_Recv(object.data(), kBytes, MPI_BYTE, 0, 23, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(bytesAre(object, 0, kBytes, 90), "the next message is whole");
  }
}

// Of what packs and unpacks need. A rank whose device fails gets an error, and so does the receiver
// of what was not packed; the next message is whole.
constexpr const char* kDriverCalls[] = {
    "cuLaunchKernel",       "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyAsync",
    "cuMemcpy2DAsync_v2",   "cuEventRecord",        "cuEventCreate",        "cuEventQuery",
    "cuEventSynchronize",   "cuStreamSynchronize",  "cuStreamWaitEvent",    "cuStreamQuery",
    "cuMemHostRegister_v2", "cuMemHostAlloc"};

int exchangeOne(const Memory& memory, MPI_Datatype type) {
  return rank == 0 ? MPI_Send(memory.address(), 1, type, 1, 30, MPI_COMM_WORLD)
                   : MPI_Recv(memory.address(), 1, type, 0, 30, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void failing() {
  for (const Memory::Kind kind : {Memory::Kind::kShared, Memory::Kind::kDevice}) {
    for (const bool rows : {false, true}) {
      MPI_Datatype type = makeType(rows);
      const Memory memory(kind, rows ? kBytes / 2 * 3 : kBytes);
      int failures = 0;
      for (const char* const name : kDriverCalls) {
        for (const int fails : {0, 1}) {
          // As often as the function is called in a good message.
          attend(2);
          fill(memory, rank == 0 ? 1 : 99);
          const std::size_t before = gmac::testing::deviceCalls(name);
          expect(exchangeOne(memory, type) == MPI_SUCCESS, "a message is sent");
          int calls = static_cast<int>(gmac::testing::deviceCalls(name) - before);
          MPI_Bcast(&calls, 1, MPI_INT, fails, MPI_COMM_WORLD);
          for (int n = 1; n <= calls; ++n) {
            fill(memory, rank == 0 ? 1 + n : 99);
            if (rank == fails) gmac::testing::failNthCall(name, static_cast<std::size_t>(n));
            const int code = exchangeOne(memory, type);
            if (rank == fails) gmac::testing::failNthCall(name, 0);
            int codes[2] = {};
            MPI_Allgather(&code, 1, MPI_INT, codes, 1, MPI_INT, MPI_COMM_WORLD);
            expect(fails == 1 || (codes[0] == MPI_SUCCESS) == (codes[1] == MPI_SUCCESS),
                   "what its sender has failed to pack fails for both");
            expect(fails == 0 || codes[0] == MPI_SUCCESS, "a sender's message has arrived");
            expect(code != MPI_SUCCESS || rowsAre(memory, rows, 1 + n, rank == 0 ? 1 + n : 99),
                   "a message without an error is whole");
            failures += codes[fails] != MPI_SUCCESS ? 1 : 0;
            fill(memory, rank == 0 ? 2 + n : 99);
            expect(exchangeOne(memory, type) == MPI_SUCCESS &&
                       rowsAre(memory, rows, 2 + n, rank == 0 ? 2 + n : 99),
                   "the message after it is whole");
          }
        }
      }
      expect(failures >= 10, "calls have failed", failures);
      MPI_Type_free(&type);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "failing" && !gmac::testing::startDevice()) return 1;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  receiverIsPlain = word == "plain";
  flagPath = argc > 2 ? argv[2] : "";
  attend();
  if (word == "late") {
    for (int i = 0; i < 3; ++i) lateReceiver(i);
  }
  if (word == "exchange") {
    exchangeByOneCall();
    theAnswerComesAfterTheMessage();
    wrongExchanges();
  }
  if (word == "failing") failing();
  if (word == "all") {
    eachReceive();
    testsWhileTheSenderIsAway();
    bothWays();
    exchangeByBlockingSends();
    cancelledAndFreed();
    truncated({1000, kBytes - 1}, 3);
  }
  MPI_Finalize();
  if (rank == 0) std::puts("fragments are right");
}
