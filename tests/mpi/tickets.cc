// SPDX-License-Identifier: Apache-2.0
//
//   tickets [single] [plain|pinned] [sent MICROSECONDS | sending | receiving]
//
// Large messages of shared objects and of plain memory between two ranks of one host, which go
// through its memory. What the receiver sees is what it sees of other messages: sizes, errors,
// order; with buffers of every kind. With arguments a rank is killed: 0 after it has sent, 0 while
// it sends, 1 while it receives; messages of `plain` memory alone, of device memory that goes
// through `pinned` memory, or of shared objects. `single`: without MPI_THREAD_MULTIPLE.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::expect;
using gmac::testing::Memory;

constexpr int kBytes = 300'000;
constexpr int kTicketBytes = 480;  // what a ticket has
constexpr Memory::Kind kKinds[] = {Memory::Kind::kPlain, Memory::Kind::kShared};

int rank = 0;
int errorsSeen = 0;

bool bytesAre(const Memory& memory, std::size_t first, std::size_t last, int value) {
  for (std::size_t i = first; i < last; ++i) {
    if (memory.data()[i] != value) return false;
  }
  return true;
}

int classOf(int code) {
  int result = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &result);
  return result;
}

int countOf(const MPI_Status& status) {
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  return count;
}

// The memory that rank 0 sends from.
Memory::Kind sentFrom = Memory::Kind::kShared;

// So many bytes as rank 0 sends them: plain memory in two pieces, with a byte between them; in one
// piece it would take MPI's wire. To be freed.
MPI_Datatype sentType(int bytes) {
  const int gap = sentFrom == Memory::Kind::kPlain ? 1 : 0;
  const int lengths[2] = {bytes / 2, bytes - bytes / 2};
  const int offsets[2] = {0, bytes / 2 + gap};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_indexed(2, lengths, offsets, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

// From rank 0: memory whose bytes are all `value`.
void send(int value, int tag, MPI_Comm comm, int bytes = kBytes) {
  const Memory object(sentFrom, static_cast<std::size_t>(bytes) + 1);
  std::memset(object.data(), value ^ gmac::testing::kMask, object.size());
  object.flip();
  MPI_Datatype type = sentType(bytes);
  MPI_Send(object.address(), 1, type, 1, tag, comm);
  MPI_Type_free(&type);
}

// A receive that is too short fails as ever, whichever call it is, and the next message comes.
void truncation() {
  for (const Memory::Kind kind : kKinds) {
    for (const int room : {100, 500, 5000}) {
      for (int way = 0; way < 5; ++way) {
        if (rank == 0) {
          send(1, way, MPI_COMM_WORLD);
          send(2, way, MPI_COMM_WORLD);
          continue;
        }
        const Memory buffer(kind, kBytes);
        std::memset(buffer.data(), 9, kBytes);
        MPI_Status status = {};
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Message message;
        int code = MPI_SUCCESS;
        if (way == 0) {
          code = MPI_Recv(buffer.data(), room, MPI_BYTE, 0, way, MPI_COMM_WORLD, &status);
        } else if (way == 4) {
          MPI_Mprobe(0, way, MPI_COMM_WORLD, &message, &status);
          expect(countOf(status) == kBytes, "MPI_Mprobe shows the message's size");
          code = MPI_Mrecv(buffer.data(), room, MPI_BYTE, &message, &status);
        } else {
          MPI_Irecv(buffer.data(), room, MPI_BYTE, MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &request);
          if (way == 1) code = MPI_Wait(&request, &status);
          if (way == 2) {
            code = MPI_Waitall(1, &request, &status);
            expect(code == MPI_ERR_IN_STATUS, "the error of MPI_Waitall is in a status");
            code = status.MPI_ERROR;
          }
          if (way == 3) {
            int done = 0;
            while (done == 0 && code == MPI_SUCCESS) code = MPI_Test(&request, &done, &status);
          }
          expect(request == MPI_REQUEST_NULL, "a request that failed is over");
        }
        expect(classOf(code) == MPI_ERR_TRUNCATE, "a receive that is too short is truncated");
        expect(bytesAre(buffer, static_cast<std::size_t>(room), kBytes, 9),
               "and writes nothing after its end");
        code = MPI_Recv(buffer.data(), kBytes, MPI_BYTE, 0, way, MPI_COMM_WORLD, &status);
        expect(code == MPI_SUCCESS && countOf(status) == kBytes && bytesAre(buffer, 0, kBytes, 2),
               "the next message is whole");
      }
    }
  }
}

// A call's message arrives, also when its receive is too short.
void truncatedExchange() {
  const Memory buffer(sentFrom, kBytes + 1);
  std::memset(buffer.data(), 4, kBytes + 1);
  int number = 0;
  if (rank == 1) {
    MPI_Send(buffer.data(), 1000, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    MPI_Recv(&number, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    std::memset(buffer.data(), 0, kBytes);
    const int code =
        MPI_Recv(buffer.data(), kBytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(code == MPI_SUCCESS && bytesAre(buffer, 0, kBytes, 4),
           "what an MPI_Sendrecv sends arrives when its receive has failed");
    return;
  }
  const Memory small(Memory::Kind::kPlain, 10);
  MPI_Datatype type = sentType(kBytes);
  const int code = MPI_Sendrecv(buffer.data(), 1, type, 1, 0, small.data(), 10, MPI_BYTE, 1, 0,
                                MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Type_free(&type);
  expect(classOf(code) == MPI_ERR_TRUNCATE, "its receive has failed");
  MPI_Send(&number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
}

void countError(MPI_Comm*, int*, ...) { ++errorsSeen; }

// The handler of the communicator on which it was received is told.
void errorHandler() {
  MPI_Comm comm;
  MPI_Errhandler handler;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(&countError, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  if (rank == 0) {
    send(1, 0, comm);
  } else {
    const Memory buffer(Memory::Kind::kPlain, 1000);
    errorsSeen = 0;
    const int code = MPI_Recv(buffer.data(), 1000, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE);
    expect(classOf(code) == MPI_ERR_TRUNCATE && errorsSeen == 1,
           "the communicator's handler is told");
  }
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&comm);
}

// Messages that have a ticket's length, also between others that a probe has looked at.
void ofATicketsLength() {
  for (const Memory::Kind kind : kKinds) {
    if (rank == 0) {
      const Memory plain(Memory::Kind::kPlain, kTicketBytes);
      std::memset(plain.data(), 3, kTicketBytes);
      MPI_Send(plain.data(), kTicketBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
      send(4, 2, MPI_COMM_WORLD);
      MPI_Send(plain.data(), kTicketBytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
      continue;
    }
    const Memory buffer(kind, kBytes);
    MPI_Status status = {};
    MPI_Probe(0, 3, MPI_COMM_WORLD, &status);
    expect(countOf(status) == kTicketBytes && status.MPI_TAG == 3, "a short message is shown");
    MPI_Recv(buffer.data(), kBytes, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    expect(status.MPI_TAG == 1 && countOf(status) == kTicketBytes &&
               bytesAre(buffer, 0, kTicketBytes, 3),
           "what was sent first comes first");
    MPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    expect(countOf(status) == kBytes && status.MPI_TAG == 2, "a probe shows the size");
    MPI_Recv(buffer.data(), 17, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &status);
    std::memset(buffer.data(), 0, kBytes);
    MPI_Recv(buffer.data(), kBytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &status);
    expect(bytesAre(buffer, 0, kBytes, 4), "and the message is whole");
  }
}

// Requests that are cancelled or freed; a persistent receive of a message that a probe has seen.
void requests() {
  for (const Memory::Kind kind : kKinds) {
    const Memory buffer(kind, kBytes);
    MPI_Request request;
    MPI_Status status = {};
    int flag = 0;
    if (rank == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
      for (int i = 0; i < 4; ++i) send(5 + i, 6, MPI_COMM_WORLD);
      continue;
    }
    std::memset(buffer.data(), 1, kBytes);
    MPI_Irecv(buffer.data(), kBytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    expect(flag != 0 && bytesAre(buffer, 0, kBytes, 1), "a receive is cancelled");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv_init(buffer.data(), kBytes, MPI_BYTE, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &request);
    const MPI_Request made = request;
    for (int i = 0; i < 2; ++i) {
      if (i == 0) MPI_Probe(0, 6, MPI_COMM_WORLD, &status);
      MPI_Start(&request);
      MPI_Cancel(&request);
      for (flag = 0; flag == 0;) MPI_Request_get_status(request, &flag, &status);
      MPI_Test_cancelled(&status, &flag);
      if (flag != 0) {  // it was not there yet
        MPI_Wait(&request, &status);
        MPI_Start(&request);
        for (flag = 0; flag == 0;) MPI_Request_get_status(request, &flag, &status);
      }
      expect(countOf(status) == kBytes && bytesAre(buffer, 0, kBytes, 5 + i), "it has arrived");
      MPI_Wait(&request, &status);
      expect(countOf(status) == kBytes && request == made, "and is over");
    }
    MPI_Request_free(&request);
    // Freed before it arrives; it does, when a later message has.
    const Memory other(kind, kBytes);
    MPI_Probe(0, 6, MPI_COMM_WORLD, &status);
    MPI_Irecv(other.data(), kBytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Recv(buffer.data(), kBytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, &status);
    MPI_Irecv(buffer.data(), kBytes, MPI_BYTE, 0, 99, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    expect(bytesAre(other, 0, kBytes, 7), "a freed request's message arrives");
    expect(bytesAre(buffer, 0, kBytes, 8), "and so does the next");
  }
}

#if MPI_VERSION >= 4
void bothAtOnce() {
  for (int i = 0; i < 2; ++i) {
    int number = 42;
    if (rank == 0) {
      send(9, 7, MPI_COMM_WORLD);
      MPI_Recv(&number, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      expect(number == 42, "what MPI_Isendrecv sends arrives");
      continue;
    }
    const Memory buffer(Memory::Kind::kPlain, kBytes);
    MPI_Request request;
    if (i == 0) MPI_Probe(0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Isendrecv(&number, 1, MPI_INT, 0, 7, buffer.data(), kBytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD,
                  &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(bytesAre(buffer, 0, kBytes, 9), "MPI_Isendrecv receives");
  }
}
#else
void bothAtOnce() {}
#endif

// Nobody receives these: neither the communicator nor the end of the program waits for them.
void forgotten() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (rank == 0) {
    send(1, 1, comm);
    send(1, 2, comm);
    send(1, 3, MPI_COMM_WORLD);
  } else {
    MPI_Status status = {};
    MPI_Probe(0, 2, comm, &status);
    MPI_Probe(0, 3, MPI_COMM_WORLD, &status);
    expect(countOf(status) == kBytes, "a probe shows the size");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_free(&comm);
}

// One thread looks at what the others receive.
void threads() {
  constexpr int kRounds = 200;
  constexpr int kReceivers = 2;
  if (rank == 0) {
    std::vector<std::thread> senders;
    for (int tag = 0; tag < kReceivers; ++tag) {
      senders.emplace_back([tag] {
        for (int i = 0; i < kRounds; ++i) send(i % 256, tag, MPI_COMM_WORLD, 100'000);
      });
    }
    for (std::thread& sender : senders) sender.join();
    return;
  }
  std::atomic<bool> over{false};
  std::thread watcher([&over] {
    for (int i = 0; !over; ++i) {
      MPI_Status status = {};
      int flag = 0;
      MPI_Iprobe(i % 2 == 0 ? MPI_ANY_SOURCE : 0, i % 3 == 2 ? MPI_ANY_TAG : i % 3, MPI_COMM_WORLD,
                 &flag, &status);
      expect(flag == 0 || countOf(status) == 100'000, "a watcher sees the size");
    }
  });
  std::vector<std::thread> receivers;
  for (int tag = 0; tag < kReceivers; ++tag) {
    receivers.emplace_back([tag] {
      const Memory buffer(tag == 0 ? Memory::Kind::kPlain : Memory::Kind::kShared, 100'000);
      for (int i = 0; i < kRounds; ++i) {
        MPI_Status status = {};
        if (i % 3 == 0) {
          MPI_Recv(buffer.data(), 100'000, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &status);
        } else if (i % 3 == 1) {
          MPI_Request request;
          MPI_Irecv(buffer.data(), 100'000, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &request);
          MPI_Wait(&request, &status);
        } else {
          MPI_Message message;
          MPI_Mprobe(0, tag, MPI_COMM_WORLD, &message, &status);
          MPI_Mrecv(buffer.data(), 100'000, MPI_BYTE, &message, &status);
        }
        expect(countOf(status) == 100'000 && bytesAre(buffer, 0, 100'000, i % 256),
               "every message comes, in order");
      }
    });
  }
  for (std::thread& receiver : receivers) receiver.join();
  over = true;
  watcher.join();
}

// Threads look at short messages that others receive meanwhile, of `bytes` bytes. (What Open MPI
// itself shows of a message that another thread receives may be another's, or nonsense.)
void watchedByTwo(int bytes, int rounds) {
  constexpr int kReceivers = 2;
  constexpr int kLast = kReceivers;  // the last message's tag
  const Memory buffer(Memory::Kind::kPlain, kTicketBytes);
  if (rank == 0) {
    for (int i = 0; i < rounds * kReceivers; ++i) {
      MPI_Send(buffer.data(), bytes, MPI_BYTE, 1, i % kReceivers, MPI_COMM_WORLD);
    }
    MPI_Send(buffer.data(), bytes, MPI_BYTE, 1, kLast, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);  // what comes next has other lengths
    return;
  }
  const auto see = [bytes](int tag, const MPI_Status& status) {
    expect(countOf(status) == bytes && status.MPI_SOURCE == 0 &&
               (tag == MPI_ANY_TAG ? status.MPI_TAG >= 0 && status.MPI_TAG <= kLast
                                   : status.MPI_TAG == tag),
           "a watcher sees a short message");
    return status.MPI_TAG == kLast;
  };
  std::thread asking([&see] {
    for (int i = 0, seen = 0; seen == 0; ++i) {
      const int tag = i % 4 == 3 ? MPI_ANY_TAG : i % 4;
      MPI_Status status = {};
      int flag = 0;
      MPI_Iprobe(i % 2 == 0 ? MPI_ANY_SOURCE : 0, tag, MPI_COMM_WORLD, &flag, &status);
      if (flag != 0) seen = static_cast<int>(see(tag, status));
    }
  });
  std::thread waiting([&see] {
    MPI_Status status = {};
    do {
      MPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    } while (!see(MPI_ANY_TAG, status));
  });
  std::vector<std::thread> receivers;
  for (int tag = 0; tag < kReceivers; ++tag) {
    receivers.emplace_back([=] {
      const Memory room(Memory::Kind::kPlain, kTicketBytes);
      for (int i = 0; i < rounds; ++i) {
        MPI_Recv(room.data(), bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
    });
  }
  for (std::thread& receiver : receivers) receiver.join();
  asking.join();
  waiting.join();
  MPI_Recv(buffer.data(), bytes, MPI_BYTE, 0, kLast, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
}

constexpr int kLargeBytes = 32'000'000;

// Rank 0 is killed when its messages have been sent, `delay` microseconds after rank 1 begins to
// receive: they arrive whole. (What MPI has not delivered is lost: so rank 0 waits for an answer to
// a later message.)
void killedAfterSending(unsigned delay) {
  constexpr int kNumber = 5;
  int number = 0;
  if (rank == 0) {
    for (int i = 0; i < kNumber; ++i) send(i, 1, MPI_COMM_WORLD, i == 0 ? kLargeBytes : kBytes);
    MPI_Send(&number, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
    MPI_Recv(&number, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    ::usleep(delay);
    ::kill(::getpid(), SIGKILL);
  }
  const Memory buffer(Memory::Kind::kShared, kLargeBytes);
  MPI_Recv(&number, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Send(&number, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
  for (int i = 0; i < kNumber; ++i) {
    const std::size_t bytes = i == 0 ? kLargeBytes : kBytes;
    std::memset(buffer.data(), 99, kLargeBytes);
    const int code = MPI_Recv(buffer.data(), static_cast<int>(bytes), MPI_BYTE, 0, 1,
                              MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(code == MPI_SUCCESS, "a message that was sent arrives after its sender");
    expect(bytesAre(buffer, 0, bytes, i), "and is whole");
  }
  std::puts("survived");
  std::fflush(stdout);
}

// Rank `dies` is killed at any time while messages go from 0 to 1: what arrives is whole.
void killedInBetween(int dies) {
  constexpr int kMessageBytes = 4'000'000;
  std::thread killer;
  if (rank == dies) {
    killer = std::thread([] {
      ::usleep(600'000);
      ::kill(::getpid(), SIGKILL);
    });
  }
  const Memory buffer(Memory::Kind::kShared, kMessageBytes);
  for (int i = 0;; ++i) {
    const int value = 1 + i % 200;
    if (rank == 0) {
      send(value, 1, MPI_COMM_WORLD, kMessageBytes);
    } else if (MPI_Recv(buffer.data(), kMessageBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE) == MPI_SUCCESS) {
      expect(bytesAre(buffer, 0, kMessageBytes, value), "what arrives is whole");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  const bool single = argc > 1 && std::string_view(argv[1]) == "single";
  MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  char** words = argv + (single ? 2 : 1);
  if (*words != nullptr && std::string_view(*words) == "plain") {
    sentFrom = Memory::Kind::kPlain;
    ++words;
  } else if (*words != nullptr && std::string_view(*words) == "pinned") {
    if (!gmac::testing::startDevice()) return 1;
    gmac::testing::refuseExports();
    sentFrom = Memory::Kind::kDevice;
    ++words;
  }
  const std::string_view dies = *words != nullptr ? *words : "";
  if (dies == "sent") {
    killedAfterSending(static_cast<unsigned>(std::atoi(words[1])));
    std::_Exit(0);
  }
  if (!dies.empty()) killedInBetween(dies == "sending" ? 0 : 1);
  for (const Memory::Kind kind : kKinds) {
    sentFrom = kind;
    truncation();
    truncatedExchange();
    errorHandler();
    ofATicketsLength();
    requests();
    bothAtOnce();
    if (provided == MPI_THREAD_MULTIPLE) threads();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (provided == MPI_THREAD_MULTIPLE) {
    watchedByTwo(8, 20'000);
    watchedByTwo(kTicketBytes, 1000);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  forgotten();
  MPI_Finalize();
  if (rank == 0) std::puts("tickets are right");
}
