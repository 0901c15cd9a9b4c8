// SPDX-License-Identifier: Apache-2.0
//
//   freed_types [plain] [WAY...]
//
// The program frees each datatype as soon as a call has been given it, and makes others, while the
// call's request, operation or epoch is open: MPI keeps the type until then. Messages of all
// lengths between two ranks, from plain memory and objects to plain memory and objects. `plain`:
// without objects, to see what MPI itself does. WAY: a name from main(), all by default.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/persistent_collectives.h"
#include "tests/mpi/shared.h"
#include "tests/mpi/temporary_file.h"
#include "tests/mpi/windows_here.h"

namespace {

using gmac::testing::expectSuccess;
using gmac::testing::failRank;
using gmac::testing::Memory;

constexpr Memory::Kind kPlain = Memory::Kind::kPlain;
constexpr Memory::Kind kShared = Memory::Kind::kShared;

int rank = 0;
std::string where;  // what is under way, for failRank()

void check(int code, const char* call) {
  expectSuccess(code, (std::string(call) + ", " + where).c_str());
}

// Blocks of at most 8 bytes, one in each 16. A list has them at places of its own. MPI alone packs
// a darray.
enum class Shape { kVector, kList, kDarray };
constexpr Shape kShapes[] = {Shape::kVector, Shape::kList, Shape::kDarray};
constexpr int kUnit = 16;
constexpr int kBlock = 8;

bool isInside(Shape shape, std::size_t byte) {
  const std::size_t unit = byte / kUnit;
  const std::size_t first = shape == Shape::kList && unit % 3 == 1 ? 5 : 0;
  const std::size_t in = byte % kUnit;
  return in >= first && in < first + kBlock;
}

MPI_Datatype make(Shape shape, int units) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  if (shape == Shape::kVector) {
    MPI_Type_vector(units, kBlock, kUnit, MPI_BYTE, &type);
  } else if (shape == Shape::kList) {
    std::vector<int> places(static_cast<std::size_t>(units));
    for (int i = 0; i < units; ++i) {
      places[static_cast<std::size_t>(i)] = i * kUnit + (i % 3 == 1 ? 5 : 0);
    }
    MPI_Type_create_indexed_block(units, kBlock, places.data(), MPI_BYTE, &type);
  } else {
    int size = units * kUnit;
    int distribution = MPI_DISTRIBUTE_CYCLIC;
    int argument = kBlock;
    int grid = 2;
    MPI_Type_create_darray(2, 0, 1, &size, &distribution, &argument, &grid, MPI_ORDER_C, MPI_BYTE,
                           &type);
  }
  MPI_Type_commit(&type);
  return type;
}

// Types that a call is given. After free(), every second one makes as many others, which may have
// their handles and their memory, and shows them to everybody who keeps types. With the rest a
// handle that is used once more is an error.
class Given {
 public:
  Given() : makesOthers_(++number % 2 == 0) {}
  ~Given() {
    free();
    for (MPI_Datatype& other : others_) MPI_Type_free(&other);
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  MPI_Datatype operator()(Shape shape, int units) {
    types_.push_back(make(shape, units));
    return types_.back();
  }
  void free() {
    for (MPI_Datatype& type : types_) MPI_Type_free(&type);
    for (std::size_t i = 0; makesOthers_ && i < types_.size() + 2; ++i) {
      MPI_Datatype other = MPI_DATATYPE_NULL;
      MPI_Type_vector(2, 3, 5, MPI_BYTE, &other);
      MPI_Type_commit(&other);
      MPI_Sendrecv(object_.data(), 1, other, 0, 77, plain_.data(), 1, other, 0, 77, MPI_COMM_SELF,
                   MPI_STATUS_IGNORE);
      others_.push_back(other);
    }
    types_.clear();
  }

 private:
  std::vector<MPI_Datatype> types_;
  std::vector<MPI_Datatype> others_;
  const bool makesOthers_;
  const Memory object_{kShared, 64};
  const Memory plain_{kPlain, 64};
  static inline int number = 0;
};

unsigned char valueAt(std::size_t byte, int seed) {
  return static_cast<unsigned char>(byte * 7 + byte / 251 + static_cast<std::size_t>(seed));
}

// The memory of one side of a message. (Bytes of objects are the accelerator's when MPI is called.)
class Side {
 public:
  Side(Memory::Kind kind, Shape shape, int units)
      : kind(kind),
        shape(shape),
        units(units),
        memory(kind, static_cast<std::size_t>(units) * kUnit) {}

  void fill(int seed) const {
    const unsigned char mask = gmac::testing::kMask;
    for (std::size_t i = 0; i < memory.size(); ++i) memory.data()[i] = valueAt(i, seed) ^ mask;
    memory.flip();
  }
  // What was filled with seed `own` has got what a side of that shape was filled with. Bytes
  // outside the type are as they were.
  void expectFrom(Shape sender, int seed, int own) const {
    std::size_t from = 0;
    const std::size_t end = memory.size();
    for (std::size_t i = 0; i < end; ++i) {
      unsigned char wanted = valueAt(i, own);
      if (isInside(shape, i)) {
        while (!isInside(sender, from)) ++from;
        wanted = valueAt(from++, seed);
      }
      if (memory.data()[i] != wanted) {
        failRank("byte " + std::to_string(i) + " is wrong, " + where);
      }
    }
  }
  void* address() const { return memory.address(); }

  const Memory::Kind kind;
  const Shape shape;
  const int units;
  const Memory memory;
};

struct Message {
  Memory::Kind from;
  Memory::Kind to;
  Shape sent;
  Shape received;
  int units;
};

constexpr int kSeed = 3;
constexpr int kOwn = 101;

// Both ranks send and receive at once: each way begins what it has to, frees the types, and ends
// it.
class Exchange {
 public:
  explicit Exchange(const Message& message)
      : units(message.units),
        peer(1 - rank),
        from(message.from, message.sent, message.units),
        to(message.to, message.received, message.units) {
    refill();
  }
  void refill() const {
    from.fill(kSeed + rank);
    to.fill(kOwn);
  }
  void expectArrived() const { to.expectFrom(from.shape, kSeed + peer, kOwn); }
  MPI_Datatype sentType() { return given(from.shape, units); }
  MPI_Datatype receivedType() { return given(to.shape, units); }

  const int units;
  const int peer;
  const Side from;
  const Side to;
  Given given;
};

using Isend = decltype(&MPI_Isend);

template <Isend send>
void nonblocking(Exchange& all) {
  MPI_Request requests[2];
  check(
      MPI_Irecv(all.to.address(), 1, all.receivedType(), all.peer, 1, MPI_COMM_WORLD, &requests[0]),
      "MPI_Irecv");
  all.given.free();
  check(send(all.from.address(), 1, all.sentType(), all.peer, 1, MPI_COMM_WORLD, &requests[1]),
        "a nonblocking send");
  all.given.free();
  check(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
  all.expectArrived();
}

// The receive is posted after the message is there, and completed by tests.
void unexpected(Exchange& all) {
  MPI_Request send = MPI_REQUEST_NULL;
  check(MPI_Isend(all.from.address(), 1, all.sentType(), all.peer, 1, MPI_COMM_WORLD, &send),
        "MPI_Isend");
  all.given.free();
  MPI_Message message;
  check(MPI_Mprobe(all.peer, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE), "MPI_Mprobe");
  MPI_Request receive = MPI_REQUEST_NULL;
  check(MPI_Imrecv(all.to.address(), 1, all.receivedType(), &message, &receive), "MPI_Imrecv");
  all.given.free();
  for (int done = 0; done == 0;) check(MPI_Test(&receive, &done, MPI_STATUS_IGNORE), "MPI_Test");
  check(MPI_Wait(&send, MPI_STATUS_IGNORE), "MPI_Wait");
  all.expectArrived();
}

// The request is freed, too, where it is a send.
void orphaned(Exchange& all) {
  MPI_Request receive = MPI_REQUEST_NULL;
  MPI_Request send = MPI_REQUEST_NULL;
  check(MPI_Isend(all.from.address(), 1, all.sentType(), all.peer, 1, MPI_COMM_WORLD, &send),
        "MPI_Isend");
  check(MPI_Request_free(&send), "MPI_Request_free");
  all.given.free();
  check(MPI_Irecv(all.to.address(), 1, all.receivedType(), all.peer, 1, MPI_COMM_WORLD, &receive),
        "MPI_Irecv");
  all.given.free();
  check(MPI_Wait(&receive, MPI_STATUS_IGNORE), "MPI_Wait");
  all.expectArrived();
  MPI_Barrier(MPI_COMM_WORLD);
}

void persistent(Exchange& all) {
  MPI_Request requests[2];
  check(MPI_Recv_init(all.to.address(), 1, all.receivedType(), all.peer, 1, MPI_COMM_WORLD,
                      &requests[0]),
        "MPI_Recv_init");
  check(MPI_Send_init(all.from.address(), 1, all.sentType(), all.peer, 1, MPI_COMM_WORLD,
                      &requests[1]),
        "MPI_Send_init");
  all.given.free();
  for (int i = 0; i < 2; ++i) {
    all.refill();
    check(MPI_Startall(2, requests), "MPI_Startall");
    check(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
    all.expectArrived();
  }
  for (MPI_Request& request : requests) check(MPI_Request_free(&request), "MPI_Request_free");
}

#if MPI_VERSION >= 4
void partitioned(Exchange& all) {
  MPI_Request requests[2];
  check(MPI_Precv_init(all.to.address(), 1, 1, all.receivedType(), all.peer, 1, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &requests[0]),
        "MPI_Precv_init");
  check(MPI_Psend_init(all.from.address(), 1, 1, all.sentType(), all.peer, 1, MPI_COMM_WORLD,
                       MPI_INFO_NULL, &requests[1]),
        "MPI_Psend_init");
  all.given.free();
  for (int i = 0; i < 2; ++i) {
    all.refill();
    check(MPI_Startall(2, requests), "MPI_Startall");
    check(MPI_Pready(0, requests[1]), "MPI_Pready");
    check(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), "MPI_Waitall");
    all.expectArrived();
  }
  for (MPI_Request& request : requests) check(MPI_Request_free(&request), "MPI_Request_free");
}

void sendAndReceive(Exchange& all) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isendrecv(all.from.address(), 1, all.sentType(), all.peer, 1, all.to.address(), 1,
                      all.receivedType(), all.peer, 1, MPI_COMM_WORLD, &request),
        "MPI_Isendrecv");
  all.given.free();
  check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  all.expectArrived();
}
#endif

// Of collectives, each rank's block to the other one, and nothing to itself.
struct Blocks {
  explicit Blocks(Exchange& all) {
    counts[static_cast<std::size_t>(all.peer)] = 1;
    sent.fill(all.sentType());
    received.fill(all.receivedType());
  }
  std::array<int, 2> counts{};
  std::array<int, 2> places{};
  std::array<MPI_Datatype, 2> sent{};
  std::array<MPI_Datatype, 2> received{};
};

void collective(Exchange& all) {
  Blocks blocks(all);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ialltoallw(all.from.address(), blocks.counts.data(), blocks.places.data(),
                       blocks.sent.data(), all.to.address(), blocks.counts.data(),
                       blocks.places.data(), blocks.received.data(), MPI_COMM_WORLD, &request),
        "MPI_Ialltoallw");
  all.given.free();
  check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  all.expectArrived();
  all.refill();
  Blocks again(all);
  check(MPI_Ialltoallv(all.from.address(), again.counts.data(), again.places.data(), again.sent[0],
                       all.to.address(), again.counts.data(), again.places.data(),
                       again.received[0], MPI_COMM_WORLD, &request),
        "MPI_Ialltoallv");
  all.given.free();
  check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  all.expectArrived();
}

void broadcast(Exchange& all) {
  for (int root = 0; root < 2; ++root) {
    all.refill();
    const Side& side = rank == root ? all.from : all.to;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(side.address(), 1, rank == root ? all.sentType() : all.receivedType(), root,
                     MPI_COMM_WORLD, &request),
          "MPI_Ibcast");
    all.given.free();
    check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    if (rank != root) all.expectArrived();
  }
}

void persistentCollective(Exchange& all) {
  Blocks blocks(all);
  MPI_Request request = MPI_REQUEST_NULL;
  check(GMAC_PERSISTENT(Alltoallw)(all.from.address(), blocks.counts.data(), blocks.places.data(),
                                   blocks.sent.data(), all.to.address(), blocks.counts.data(),
                                   blocks.places.data(), blocks.received.data(), MPI_COMM_WORLD,
                                   MPI_INFO_NULL, &request),
        "a persistent MPI_Alltoallw");
  all.given.free();
  for (int i = 0; i < 2; ++i) {
    all.refill();
    check(MPI_Start(&request), "MPI_Start");
    check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    all.expectArrived();
  }
  check(MPI_Request_free(&request), "MPI_Request_free");
}

// A window over the memory of the sender's, or of the receiver's, whose type is the target's.
class Window {
 public:
  explicit Window(const Side& side) : side_(side) {
    check(MPI_Win_create(side.address(), static_cast<MPI_Aint>(side.memory.size()), 1,
                         MPI_INFO_NULL, MPI_COMM_WORLD, &window_),
          "MPI_Win_create");
    MPI_Win_fence(0, window_);
  }
  ~Window() { MPI_Win_free(&window_); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  MPI_Win get() const { return window_; }

 private:
  const Side& side_;
  MPI_Win window_ = MPI_WIN_NULL;
};

void put(Exchange& all) {
  const Window window(all.to);
  check(MPI_Put(all.from.address(), 1, all.sentType(), all.peer, 0, 1, all.receivedType(),
                window.get()),
        "MPI_Put");
  all.given.free();
  MPI_Win_fence(0, window.get());
  all.expectArrived();
}

void get(Exchange& all) {
  const Window window(all.from);
  check(MPI_Get(all.to.address(), 1, all.receivedType(), all.peer, 0, 1, all.sentType(),
                window.get()),
        "MPI_Get");
  all.given.free();
  MPI_Win_fence(0, window.get());
  all.expectArrived();
}

// What is fetched with a request is there when that is complete. (MPICH 4.0 completes it sooner
// where the target's type is derived, so what it fetches to plain memory is there after the epoch.)
#ifdef MPICH
constexpr bool kFetchesBeforeEnd = false;
#else
constexpr bool kFetchesBeforeEnd = true;
#endif

// `begin`: makes the request of an operation between `all` and the peer's window over `side`.
template <typename Begin>
void withRequest(Exchange& all, const Side& side, const Begin& begin) {
  const Window window(side);
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window.get());
  MPI_Win_lock_all(0, window.get());
  MPI_Request request = MPI_REQUEST_NULL;
  check(begin(window.get(), &request), "an operation with a request");
  all.given.free();
  check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  const bool fetches = &side == &all.from;
  if (fetches && (kFetchesBeforeEnd || all.to.kind == kShared)) all.expectArrived();
  MPI_Win_unlock_all(window.get());
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_fence(0, window.get());
  all.expectArrived();
}

void putWithRequest(Exchange& all) {
  withRequest(all, all.to, [&](MPI_Win window, MPI_Request* request) {
    return MPI_Rput(all.from.address(), 1, all.sentType(), all.peer, 0, 1, all.receivedType(),
                    window, request);
  });
}
void getWithRequest(Exchange& all) {
  withRequest(all, all.from, [&](MPI_Win window, MPI_Request* request) {
    return MPI_Rget(all.to.address(), 1, all.receivedType(), all.peer, 0, 1, all.sentType(), window,
                    request);
  });
}
void accumulateWithRequest(Exchange& all) {
  withRequest(all, all.to, [&](MPI_Win window, MPI_Request* request) {
    return MPI_Raccumulate(all.from.address(), 1, all.sentType(), all.peer, 0, 1,
                           all.receivedType(), MPI_REPLACE, window, request);
  });
}
void getAccumulateWithRequest(Exchange& all) {
  withRequest(all, all.from, [&](MPI_Win window, MPI_Request* request) {
    return MPI_Rget_accumulate(nullptr, 0, MPI_BYTE, all.to.address(), 1, all.receivedType(),
                               all.peer, 0, 1, all.sentType(), MPI_NO_OP, window, request);
  });
}

// MPI_REPLACE, and the target's old value to the origin's place.
void accumulate(Exchange& all) {
  const Window window(all.to);
  check(MPI_Accumulate(all.from.address(), 1, all.sentType(), all.peer, 0, 1, all.receivedType(),
                       MPI_REPLACE, window.get()),
        "MPI_Accumulate");
  all.given.free();
  MPI_Win_fence(0, window.get());
  all.expectArrived();
}

void getAccumulate(Exchange& all) {
  const Window window(all.from);
  check(MPI_Get_accumulate(nullptr, 0, MPI_BYTE, all.to.address(), 1, all.receivedType(), all.peer,
                           0, 1, all.sentType(), MPI_NO_OP, window.get()),
        "MPI_Get_accumulate");
  all.given.free();
  MPI_Win_fence(0, window.get());
  all.expectArrived();
}

// To a file of this process and back.
void file(Exchange& all) {
  const std::string name = gmac::testing::temporaryFile();
  MPI_File opened;
  check(MPI_File_open(MPI_COMM_SELF, name.c_str(), MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                      MPI_INFO_NULL, &opened),
        "MPI_File_open");
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_File_iwrite_at(opened, 0, all.from.address(), 1, all.sentType(), &request),
        "MPI_File_iwrite_at");
  all.given.free();
  check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  check(MPI_File_iread_at(opened, 0, all.to.address(), 1, all.receivedType(), &request),
        "MPI_File_iread_at");
  all.given.free();
  check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  all.to.expectFrom(all.from.shape, kSeed + rank, kOwn);
  check(MPI_File_read_at_all_begin(opened, 0, all.to.address(), 1, all.receivedType()),
        "MPI_File_read_at_all_begin");
  all.given.free();
  check(MPI_File_read_at_all_end(opened, all.to.address(), MPI_STATUS_IGNORE),
        "MPI_File_read_at_all_end");
  all.to.expectFrom(all.from.shape, kSeed + rank, kOwn);
  MPI_File_close(&opened);
}

// Open MPI takes 0.1 to 0.3 s to make a window, or to open a file: these ways have fewer messages.
enum class Makes { kRequests, kWindows, kFiles };
struct Way {
  const char* name;
  void (*run)(Exchange&);
  Makes makes = Makes::kRequests;
};
constexpr Way kWays[] = {
    {"isend", &nonblocking<&MPI_Isend>},
    {"issend", &nonblocking<&MPI_Issend>},
    {"unexpected", &unexpected},
    {"orphaned", &orphaned},
    {"persistent", &persistent},
#if MPI_VERSION >= 4
    {"partitioned", &partitioned},
    {"sendrecv", &sendAndReceive},
#endif
    {"collective", &collective},
    {"broadcast", &broadcast},
    {"persistent_collective", &persistentCollective},
    {"put", &put, Makes::kWindows},
    {"get", &get, Makes::kWindows},
    {"rput", &putWithRequest, Makes::kWindows},
    {"rget", &getWithRequest, Makes::kWindows},
    {"raccumulate", &accumulateWithRequest, Makes::kWindows},
    {"rget_accumulate", &getAccumulateWithRequest, Makes::kWindows},
    {"accumulate", &accumulate, Makes::kWindows},
    {"get_accumulate", &getAccumulate, Makes::kWindows},
    {"file", &file, Makes::kFiles},
};

// Shorter than a ticket is, such as go by ticket, and such as private memory is pinned for.
#ifdef GMAC_SANITIZED
constexpr int kUnits[] = {5, 10'000, 20'000};  // each byte is compared, which takes its time there
#else
constexpr int kUnits[] = {5, 10'000, 150'000};
#endif

// Each shape meets each other one in turn.
std::vector<Message> messagesOf(const Way& way) {
  std::vector<Message> messages;
  std::size_t number = 0;
  for (const int units : kUnits) {
    if (way.makes != Makes::kRequests && units != kUnits[2]) continue;
    for (const Memory::Kind from : {kPlain, kShared}) {
      for (const Memory::Kind to : {kPlain, kShared}) {
        const std::size_t shapes = way.makes == Makes::kRequests ? std::size(kShapes) : 1;
        for (std::size_t i = 0; i < shapes; ++i, ++number) {
          const Shape sent = kShapes[number % std::size(kShapes)];
          const Shape received = kShapes[(number + number / 3) % std::size(kShapes)];
          messages.push_back({from, to, sent, received, units});
        }
      }
    }
  }
  return messages;
}

bool isPlain(const Message& message) { return message.from == kPlain && message.to == kPlain; }

// Whether MPI keeps the types, or gmac does. (Open MPI 4.1 keeps none for its persistent
// collectives; MPICH 4.0 not those of MPI_Isendrecv, for which tickets stand in.)
bool isServed([[maybe_unused]] std::string_view way, [[maybe_unused]] const Message& message) {
#if defined(MPICH)
  const char* const tickets = std::getenv("GMAC_MPI_TICKETS");
  return way != "sendrecv" || !isPlain(message) || tickets == nullptr ||
         tickets != std::string_view("0");
#elif OMPI_MAJOR_VERSION < 5
  return way != "persistent_collective" || (message.from == kShared && message.to == kShared);
#else
  return true;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<std::string_view> words(argv + 1, argv + argc);
  const auto isGiven = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool plainOnly = isGiven("plain");
  const bool all = words.size() == (plainOnly ? 1 : 0);
  const bool hasWindows = gmac::testing::windowsHere(rank == 0);
  for (const Way& way : kWays) {
    if ((!all && !isGiven(way.name)) || (way.makes == Makes::kWindows && !hasWindows)) continue;
    for (const Message& message : messagesOf(way)) {
      const bool isWanted = plainOnly                       ? isPlain(message)
                            : way.makes == Makes::kRequests ? isServed(way.name, message)
                                                            : !isPlain(message);
      if (!isWanted) continue;
      where = std::string(way.name) + ", " + std::to_string(message.units) + " units, memory " +
              std::to_string(static_cast<int>(message.from)) + " to " +
              std::to_string(static_cast<int>(message.to)) + ", shape " +
              std::to_string(static_cast<int>(message.sent)) + " to " +
              std::to_string(static_cast<int>(message.received));
      Exchange exchange(message);
      way.run(exchange);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Finalize();
  if (rank == 0) std::puts("freed types are right");
}
