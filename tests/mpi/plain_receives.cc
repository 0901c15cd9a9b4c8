// SPDX-License-Identifier: Apache-2.0
//
//   plain_receives [multiple]
//
// Rank 1 has many receives into plain memory open at once, some of which get tickets: completed by
// every call, in lists of many lengths, with and without another kind of request among them. Rank 0
// sends what they get: short messages, messages of a ticket's length, and large ones in pieces,
// which are tickets. `multiple`: with MPI_THREAD_MULTIPLE, where other threads look at open
// receives while one completes its own. (GMAC_TEST_TICKET_BYTES must be 1024 or less.)
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "tests/mpi/expect.h"

namespace {

using gmac::testing::failRank;

constexpr int kTicketsLength = 480;
constexpr int kPiece = 8;
constexpr int kStride = 24;
// More than a call has room for on its stack, and fewer.
constexpr int kMost = 150;
constexpr int kLengths[] = {1, 2, 40, kMost};

int rank = 0;

void expect(bool holds, const char* what, int form, int number) {
  if (!holds) {
    failRank(std::string(what) + ", form " + std::to_string(form) + ", message " +
             std::to_string(number));
  }
}

// The shape of message number `i`.
struct Shape {
  int bytes;
  bool strided;          // at its sender
  bool stridedReceived;  // at its receiver
  bool anySource;
};
Shape shapeOf(int i) {
  constexpr int kBytes[] = {1600, 8, kTicketsLength, 4096, 1024, 0, 600};
  const int bytes = kBytes[i % 7];
  return {bytes, bytes > kTicketsLength, i % 3 == 0 && bytes % kPiece == 0, i % 5 == 0};
}

MPI_Datatype vectorOf(int bytes) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_vector(bytes / kPiece, kPiece, kStride, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}

// Where byte number `at` of a message lies.
std::size_t placeOf(bool strided, int at) {
  return static_cast<std::size_t>(strided ? at / kPiece * kStride + at % kPiece : at);
}
unsigned char valueOf(int message, int at) {
  return static_cast<unsigned char>(message * 37 + at * 11 + (at >> 8));
}

std::vector<unsigned char> room(int bytes) {
  return std::vector<unsigned char>(static_cast<std::size_t>(bytes) * 3 + 1, 0xee);
}

void send(int count) {
  std::vector<std::vector<unsigned char>> buffers;
  std::vector<MPI_Request> requests;
  for (int i = 0; i < count; ++i) {
    const Shape shape = shapeOf(i);
    auto& bytes = buffers.emplace_back(room(shape.bytes));
    for (int at = 0; at < shape.bytes; ++at) bytes[placeOf(shape.strided, at)] = valueOf(i, at);
    MPI_Request& request = requests.emplace_back();
    if (shape.strided) {
      MPI_Datatype type = vectorOf(shape.bytes);
      MPI_Isend(bytes.data(), 1, type, 1, i, MPI_COMM_WORLD, &request);
      MPI_Type_free(&type);
    } else {
      MPI_Isend(bytes.data(), shape.bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD, &request);
    }
  }
  MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE);
}

enum Form { kWait, kTest, kWaitAll, kTestAll, kWaitAny, kTestAny, kWaitSome, kTestSome, kForms };

// The open receives of rank 1. Request number `count` is of another kind, or none.
class Open {
 public:
  Open(int count, int form, bool asks) : count_(count), form_(form), asks_(asks) {
    for (int i = 0; i < count; ++i) {
      const Shape shape = shapeOf(i);
      auto& bytes = buffers_.emplace_back(room(shape.bytes));
      const int source = shape.anySource ? MPI_ANY_SOURCE : 0;
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      if (shape.stridedReceived && shape.bytes > 0) {
        MPI_Datatype type = vectorOf(shape.bytes);
        MPI_Irecv(bytes.data(), 1, type, source, i, MPI_COMM_WORLD, &request);
        MPI_Type_free(&type);
      } else {
        MPI_Irecv(bytes.data(), shape.bytes, MPI_BYTE, source, i, MPI_COMM_WORLD, &request);
      }
    }
    requests_.push_back(MPI_REQUEST_NULL);
    seen_.resize(requests_.size());
  }
  MPI_Request& other() { return requests_.back(); }

  // Number `i` is complete.
  void ended(int i, const MPI_Status& status) {
    expect(!seen_[static_cast<std::size_t>(i)], "a request ends once", form_, i);
    seen_[static_cast<std::size_t>(i)] = true;
    if (i == count_) return;
    const Shape shape = shapeOf(i);
    if (asks_) {
      int bytes = -1;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      expect(bytes == shape.bytes, "the status has the message's length", form_, i);
      expect(status.MPI_SOURCE == 0 && status.MPI_TAG == i, "the status is the message's", form_,
             i);
    }
    const auto& bytes = buffers_[static_cast<std::size_t>(i)];
    const bool strided = shape.stridedReceived && shape.bytes > 0;
    for (int at = 0; at < shape.bytes; ++at) {
      expect(bytes[placeOf(strided, at)] == valueOf(i, at), "the message is what was sent", form_,
             i);
    }
    const auto gaps = std::count(bytes.begin(), bytes.end(), 0xee);
    expect(gaps >= static_cast<long>(bytes.size()) - shape.bytes, "gaps keep their bytes", form_,
           i);
  }

  void complete() {
    const int all = count_ + 1;
    std::vector<MPI_Status> statuses(static_cast<std::size_t>(all));
    MPI_Status* const several = asks_ ? statuses.data() : MPI_STATUSES_IGNORE;
    MPI_Status* const one = asks_ ? statuses.data() : MPI_STATUS_IGNORE;
    std::vector<int> indices(static_cast<std::size_t>(all));
    const int real = all - (other() == MPI_REQUEST_NULL ? 1 : 0);
    int left = real;
    int done = 0;
    while (left > 0) {
      int index = 0;
      switch (form_) {
        case kWait:
        case kTest:
          index = left - 1;
          // The request that it calls complete has its bytes.
          while (index % 2 == 0 && done == 0) {
            MPI_Request_get_status(requests_[static_cast<std::size_t>(index)], &done, one);
          }
          done = 0;
          if (form_ == kWait) {
            MPI_Wait(&requests_[static_cast<std::size_t>(index)], one);
          } else {
            while (done == 0) MPI_Test(&requests_[static_cast<std::size_t>(index)], &done, one);
          }
          done = 0;
          ended(index, statuses[0]);
          --left;
          break;
        case kWaitAll:
        case kTestAll:
          if (form_ == kWaitAll) MPI_Waitall(all, requests_.data(), several);
          while (form_ == kTestAll && done == 0) {
            MPI_Testall(all, requests_.data(), &done, several);
          }
          for (int i = 0; i < real; ++i) ended(i, statuses[static_cast<std::size_t>(i)]);
          left = 0;
          break;
        case kWaitAny:
        case kTestAny:
          if (form_ == kWaitAny) MPI_Waitany(all, requests_.data(), &index, one);
          done = 0;
          while (form_ == kTestAny && done == 0) {
            MPI_Testany(all, requests_.data(), &index, &done, one);
          }
          ended(index, statuses[0]);
          --left;
          break;
        default:
          (form_ == kWaitSome ? MPI_Waitsome : MPI_Testsome)(all, requests_.data(), &done,
                                                             indices.data(), several);
          for (int i = 0; i < done; ++i) {
            ended(indices[static_cast<std::size_t>(i)], statuses[static_cast<std::size_t>(i)]);
          }
          left -= done;
      }
    }
    for (const MPI_Request request : requests_) {
      expect(request == MPI_REQUEST_NULL, "what is complete is gone", form_, 0);
    }
  }

 private:
  const int count_;
  const int form_;
  const bool asks_;
  std::vector<std::vector<unsigned char>> buffers_;
  std::vector<MPI_Request> requests_;
  std::vector<bool> seen_;
};

// The other request among them is none, or a receive to a shared object, which is staged.
void everyForm(unsigned char* object) {
  for (const int count : kLengths) {
    for (int round = 0; round < kForms * 4; ++round) {
      const int form = round % kForms;
      const bool asks = round / kForms % 2 == 0;
      const bool staged = round / kForms / 2 == 1;
      constexpr int kLastTag = 1000;
      if (rank == 0) {
        MPI_Recv(nullptr, 0, MPI_BYTE, 1, kLastTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        send(count);
        if (staged) MPI_Send(&round, 1, MPI_INT, 1, kLastTag, MPI_COMM_WORLD);
      } else {
        Open open(count, form, asks);
        if (staged) MPI_Irecv(object, 1, MPI_INT, 0, kLastTag, MPI_COMM_WORLD, &open.other());
        MPI_Send(nullptr, 0, MPI_BYTE, 0, kLastTag, MPI_COMM_WORLD);
        open.complete();
        expect(!staged || *reinterpret_cast<int*>(object) == round, "the object has its message",
               form, count);
      }
    }
  }
}

// A request's handle is used again while others are open, and after it was cancelled or freed.
void usedAgain() {
  constexpr int kRounds = 300;
  constexpr int kBytes = 1600;
  for (int round = 0; round < kRounds; ++round) {
    auto bytes = room(kBytes);
    if (rank == 0) {
      for (int at = 0; at < kBytes; ++at) bytes[placeOf(true, at)] = valueOf(round, at);
      MPI_Datatype type = vectorOf(kBytes);
      MPI_Ssend(nullptr, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
      MPI_Send(bytes.data(), 1, type, 1, 1, MPI_COMM_WORLD);
      MPI_Type_free(&type);
      continue;
    }
    auto never = room(kBytes);
    MPI_Request cancelled = MPI_REQUEST_NULL;
    MPI_Irecv(never.data(), kBytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD, &cancelled);
    MPI_Cancel(&cancelled);
    if (round % 2 == 0) {
      MPI_Status status;
      int isCancelled = 0;
      MPI_Wait(&cancelled, &status);
      MPI_Test_cancelled(&status, &isCancelled);
      expect(isCancelled != 0, "a receive is cancelled", 0, round);
    } else {
      MPI_Request_free(&cancelled);
    }
    MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Irecv(bytes.data(), kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    expect(count == kBytes, "the status has the message's length", 0, round);
    for (int at = 0; at < kBytes; ++at) {
      expect(bytes[static_cast<std::size_t>(at)] == valueOf(round, at),
             "the message is what was sent", 0, round);
    }
    expect(std::count(never.begin(), never.end(), 0xee) == static_cast<long>(never.size()),
           "nothing comes to a receive that was cancelled", 0, round);
  }
}

// One thread waits for a message while another one's send waits for its receiver, and meanwhile
// delivers what that has sent to this process: but not to receives that the first thread completes.
void completedByAnotherThread() {
  constexpr int kRounds = 400;
  constexpr int kBytes = 1600;
  enum Tag { kLast = 1, kFirst, kBack, kBegin };
  MPI_Datatype type = vectorOf(kBytes);
  auto strided = room(kBytes);
  for (int round = 0; round < kRounds; ++round) {
    for (int at = 0; at < kBytes; ++at) strided[placeOf(true, at)] = valueOf(round, at);
    if (rank == 1) {
      MPI_Recv(nullptr, 0, MPI_BYTE, 0, kBegin, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(strided.data(), 1, type, 0, kFirst, MPI_COMM_WORLD);
      auto back = room(kBytes);
      MPI_Recv(back.data(), kBytes, MPI_BYTE, 0, kBack, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      // A ticket, or none.
      if (round % 2 == 0) {
        MPI_Send(strided.data(), 1, type, 0, kLast, MPI_COMM_WORLD);
      } else {
        MPI_Send(back.data(), kBytes, MPI_BYTE, 0, kLast, MPI_COMM_WORLD);
      }
      continue;
    }
    auto first = room(kBytes);
    auto last = room(kBytes);
    MPI_Request requests[2];
    MPI_Irecv(last.data(), kBytes, MPI_BYTE, 1, kLast, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(first.data(), kBytes, MPI_BYTE, 1, kFirst, MPI_COMM_WORLD, &requests[1]);
    std::thread waits([&] {
      int index = 0;
      if (round % 4 < 2) {
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
      } else {
        MPI_Waitany(1, &requests[0], &index, MPI_STATUS_IGNORE);
      }
    });
    MPI_Send(nullptr, 0, MPI_BYTE, 1, kBegin, MPI_COMM_WORLD);
    MPI_Send(strided.data(), 1, type, 1, kBack, MPI_COMM_WORLD);
    waits.join();
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    for (int at = 0; at < kBytes; ++at) {
      expect(first[static_cast<std::size_t>(at)] == valueOf(round, at) &&
                 last[static_cast<std::size_t>(at)] == valueOf(round, at),
             "each receive gets its message", 0, round);
    }
  }
  MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  const bool multiple = argc > 1 && std::string_view(argv[1]) == "multiple";
  int provided = 0;
  MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto* const object = static_cast<unsigned char*>(adsmAlloc(4096));
  if (object == nullptr) failRank("adsmAlloc");
  everyForm(object);
  usedAgain();
  if (multiple) completedByAnotherThread();
  adsmFree(object);
  MPI_Finalize();
  if (rank == 0) std::puts("plain receives are right");
}
