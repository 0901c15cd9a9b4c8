// SPDX-License-Identifier: Apache-2.0
//
// The time that this library adds to messages of plain memory whose receives may get tickets:
// nanoseconds of one message of this process to itself, by MPI's own functions and through this
// library in turns. The receives are from MPI_ANY_SOURCE, as a process reaches itself without
// tickets; the other rank sleeps. Of each round the fastest counts: other programs only add.
//   wait      one MPI_Irecv, MPI_Send and MPI_Wait at a time
//   recv      one MPI_Isend, MPI_Recv and MPI_Wait at a time
//   test      one MPI_Irecv; one MPI_Test that finds nothing, MPI_Send, and MPI_Test
//   waitall   64 MPI_Irecv, 64 MPI_Isend, and MPI_Waitall of each
//   testall   the same with MPI_Testall
//   waitany, waitsome: the same, where the receives are completed by those
//   sendrecv  MPI_Sendrecv
//   strided   as waitall, received to a vector of blocks of 8 bytes
//   persist   one MPI_Recv_init; MPI_Start, MPI_Send and MPI_Wait at a time
//   probe     one MPI_Isend, MPI_Iprobe and MPI_Recv at a time
//   mpirun -n 2 gmac run --mpi -- receive_cost [multiple]
// "multiple": with MPI_THREAD_MULTIPLE.
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace {

constexpr int kRounds = 40;
constexpr int kWindow = 64;
constexpr int kStride = 16;
constexpr int kBlock = 8;

struct Calls {
#define CALLS(CALL) \
  CALL(Irecv)       \
  CALL(Isend)       \
  CALL(Recv)        \
  CALL(Send)        \
  CALL(Sendrecv)    \
  CALL(Wait)        \
  CALL(Test)        \
  CALL(Waitall)     \
  CALL(Testall)     \
  CALL(Waitany)     \
  CALL(Waitsome)    \
  CALL(Recv_init)   \
  CALL(Start)       \
  CALL(Iprobe)      \
  CALL(Request_free)
#define CALL(name) decltype(&MPI_##name) name = nullptr;
  CALLS(CALL)
#undef CALL
};

// The MPI library's own functions.
bool look(Calls* calls) {
  void* library = nullptr;
  for (const char* name : {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
  }
  if (library == nullptr) return false;
#define CALL(name)                                                                     \
  calls->name = reinterpret_cast<decltype(&MPI_##name)>(dlsym(library, "MPI_" #name)); \
  if (calls->name == nullptr) return false;
  CALLS(CALL)
#undef CALL
  return true;
}

Calls throughGmac() {
  Calls calls;
#define CALL(name) calls.name = &MPI_##name;
  CALLS(CALL)
#undef CALL
  return calls;
}

struct Messages {
  std::vector<char> sent;
  std::vector<char> received;
  int bytes;
  MPI_Datatype strided;
  std::array<MPI_Request, kWindow> sends{};
  std::array<MPI_Request, kWindow> receives{};
  char* to(int i) {
    return received.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(bytes);
  }

  void begin(const Calls& mpi) {
    for (int i = 0; i < kWindow; ++i) {
      mpi.Irecv(to(i), bytes, MPI_BYTE, MPI_ANY_SOURCE, i, MPI_COMM_WORLD,
                &receives[static_cast<std::size_t>(i)]);
    }
    send(mpi);
  }
  void send(const Calls& mpi) {
    for (int i = 0; i < kWindow; ++i) {
      mpi.Isend(sent.data(), bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD,
                &sends[static_cast<std::size_t>(i)]);
    }
  }
  void endSends(const Calls& mpi) { mpi.Waitall(kWindow, sends.data(), MPI_STATUSES_IGNORE); }
};

using Way = void (*)(const Calls&, Messages&);

// Each of kWindow messages.
void waitOne(const Calls& mpi, Messages& all) {
  for (int i = 0; i < kWindow; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    mpi.Irecv(all.to(0), all.bytes, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
    mpi.Send(all.sent.data(), all.bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    mpi.Wait(&request, MPI_STATUS_IGNORE);
  }
}
void receiveOne(const Calls& mpi, Messages& all) {
  for (int i = 0; i < kWindow; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    mpi.Isend(all.sent.data(), all.bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
    mpi.Recv(all.to(0), all.bytes, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    mpi.Wait(&request, MPI_STATUS_IGNORE);
  }
}
void testOne(const Calls& mpi, Messages& all) {
  for (int i = 0; i < kWindow; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    int done = 0;
    mpi.Irecv(all.to(0), all.bytes, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
    mpi.Test(&request, &done, MPI_STATUS_IGNORE);
    mpi.Send(all.sent.data(), all.bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    while (done == 0) mpi.Test(&request, &done, MPI_STATUS_IGNORE);
  }
}
void waitAll(const Calls& mpi, Messages& all) {
  all.begin(mpi);
  mpi.Waitall(kWindow, all.receives.data(), MPI_STATUSES_IGNORE);
  all.endSends(mpi);
}
void testAll(const Calls& mpi, Messages& all) {
  all.begin(mpi);
  int done = 0;
  while (done == 0) mpi.Testall(kWindow, all.receives.data(), &done, MPI_STATUSES_IGNORE);
  all.endSends(mpi);
}
void waitAny(const Calls& mpi, Messages& all) {
  all.begin(mpi);
  for (int i = 0; i < kWindow; ++i) {
    int index = 0;
    mpi.Waitany(kWindow, all.receives.data(), &index, MPI_STATUS_IGNORE);
  }
  all.endSends(mpi);
}
void waitSome(const Calls& mpi, Messages& all) {
  all.begin(mpi);
  std::array<int, kWindow> indices{};
  for (int done = 0; done < kWindow;) {
    int more = 0;
    mpi.Waitsome(kWindow, all.receives.data(), &more, indices.data(), MPI_STATUSES_IGNORE);
    done += more;
  }
  all.endSends(mpi);
}
void sendReceive(const Calls& mpi, Messages& all) {
  for (int i = 0; i < kWindow; ++i) {
    mpi.Sendrecv(all.sent.data(), all.bytes, MPI_BYTE, 0, 0, all.to(0), all.bytes, MPI_BYTE,
                 MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}
void strided(const Calls& mpi, Messages& all) {
  for (int i = 0; i < kWindow; ++i) {
    mpi.Irecv(all.received.data(), 1, all.strided, MPI_ANY_SOURCE, i, MPI_COMM_WORLD,
              &all.receives[static_cast<std::size_t>(i)]);
  }
  all.send(mpi);
  mpi.Waitall(kWindow, all.receives.data(), MPI_STATUSES_IGNORE);
  all.endSends(mpi);
}
void persistent(const Calls& mpi, Messages& all) {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi.Recv_init(all.to(0), all.bytes, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
  for (int i = 0; i < kWindow; ++i) {
    mpi.Start(&request);
    mpi.Send(all.sent.data(), all.bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    mpi.Wait(&request, MPI_STATUS_IGNORE);
  }
  mpi.Request_free(&request);
}
void probe(const Calls& mpi, Messages& all) {
  for (int i = 0; i < kWindow; ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    mpi.Isend(all.sent.data(), all.bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
    int found = 0;
    MPI_Status status;
    while (found == 0) mpi.Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &found, &status);
    mpi.Recv(all.to(0), all.bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    mpi.Wait(&request, MPI_STATUS_IGNORE);
  }
}

// Of one message.
double nanoseconds(Way way, const Calls& mpi, Messages& all, int times) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < times; ++i) way(mpi, all);
  const std::chrono::duration<double, std::nano> took = Clock::now() - start;
  return took.count() / times / kWindow;
}

void measure(const Calls& own, const Calls& gmac) {
  constexpr struct {
    const char* name;
    Way way;
  } kWays[] = {{"wait", &waitOne},       {"recv", &receiveOne},      {"test", &testOne},
               {"waitall", &waitAll},    {"testall", &testAll},      {"waitany", &waitAny},
               {"waitsome", &waitSome},  {"sendrecv", &sendReceive}, {"strided", &strided},
               {"persist", &persistent}, {"probe", &probe}};
  std::printf("bytes  ");
  for (const auto& [name, way] : kWays) std::printf("%14s", name);
  std::printf("\n");
  for (const int bytes : {8, 512, 4096, 65536}) {
    Messages all;
    all.bytes = bytes;
    all.sent.resize(static_cast<std::size_t>(bytes), 1);
    all.received.resize(static_cast<std::size_t>(bytes) * kWindow);
    MPI_Type_vector(bytes / kBlock, kBlock, kStride, MPI_BYTE, &all.strided);
    MPI_Type_commit(&all.strided);
    std::printf("%6d ", bytes);
    for (const auto& [name, way] : kWays) {
      const int times = bytes > 4096 ? 1 : 20;
      double fastest[2] = {1e30, 1e30};
      for (int round = 0; round < kRounds; ++round) {
        fastest[0] = std::min(fastest[0], nanoseconds(way, own, all, times));
        fastest[1] = std::min(fastest[1], nanoseconds(way, gmac, all, times));
      }
      std::printf("  %6.0f %+5.0f", fastest[0], fastest[1] - fastest[0]);
      std::fflush(stdout);
    }
    std::printf("\n");
    MPI_Type_free(&all.strided);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool multiple = argc > 1 && std::strcmp(argv[1], "multiple") == 0;
  int level = 0;
  MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Calls own;
  if (size != 2 || !look(&own)) {
    std::fprintf(stderr, "receive_cost: mpirun -n 2 gmac run --mpi -- receive_cost\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  constexpr int kEndTag = 1000;
  if (rank == 0) {
    measure(own, throughGmac());
    MPI_Send(nullptr, 0, MPI_BYTE, 1, kEndTag, MPI_COMM_WORLD);
  } else {
    for (int done = 0; done == 0; usleep(20'000)) {
      MPI_Iprobe(0, kEndTag, MPI_COMM_WORLD, &done, MPI_STATUS_IGNORE);
    }
    MPI_Recv(nullptr, 0, MPI_BYTE, 0, kEndTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Finalize();
}
