// SPDX-License-Identifier: Apache-2.0
//
//   rare_calls [others GMAC]
//
// Two ranks, shared objects, and what few programs use: duplicates that come later
// (MPI_Comm_idup), persistent ready and buffered messages, generalised requests beside those of
// ready and buffered messages, windows of memory that MPI allocates or that is attached, a datatype
// of more than 2 GiB of extent, a part of an element, and MPI's tool interface. `others`: groups
// that meet by a port, by the name of one, or by a socket, and processes that are spawned, which
// `GMAC run --mpi` starts.
// Of what MPI itself refuses, with no object in the call, rank 0 says "skipped: ", the call and
// MPI's words.
#include <arpa/inet.h>
#include <mpi.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"
#include "tests/mpi/windows_here.h"

namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::Memory;

constexpr int kBytes = 100'000;
int rank = 0;

unsigned char byteOf(int i, int seed) {
  return static_cast<unsigned char>(i * 7 + (i >> 8) + seed * 31);
}

// An object whose bytes are current on the accelerator.
class Object {
 public:
  explicit Object(std::size_t bytes = kBytes) : memory_(Memory::Kind::kShared, bytes) {}
  void fill(int seed) {
    for (int i = 0; i < kBytes; ++i) {
      data()[i] = static_cast<unsigned char>(byteOf(i, seed) ^ gmac::testing::kMask);
    }
    memory_.flip();
  }
  void clear() {
    std::fill(data(), data() + kBytes, static_cast<unsigned char>(0));
    memory_.flip();
  }
  bool holds(int seed, int bytes = kBytes) const {
    for (int i = 0; i < bytes; ++i) {
      if (data()[i] != byteOf(i, seed)) return false;
    }
    return true;
  }
  unsigned char* data() const { return memory_.data(); }

 private:
  Memory memory_;
};

// The group of rank 0 sends to that of rank 1, and gets it back. Each has one process.
void exchange(MPI_Comm communicator, int other, bool begins, int seed) {
  Object object;
  object.clear();
  if (begins) {
    object.fill(seed);
    expectSuccess(MPI_Send(object.data(), kBytes, MPI_BYTE, other, 1, communicator), "MPI_Send");
    object.clear();
  }
  MPI_Status status = {};
  expectSuccess(MPI_Recv(object.data(), kBytes, MPI_BYTE, other, 1, communicator, &status),
                "MPI_Recv");
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  expect(count == kBytes && status.MPI_SOURCE == other, "the status is the message's", seed);
  expect(object.holds(seed), "the message is what was sent", seed);
  if (!begins) {
    expectSuccess(MPI_Send(object.data(), kBytes, MPI_BYTE, other, 1, communicator), "MPI_Send");
  }
}

// Messages are under way on the original meanwhile.
void duplicates() {
  MPI_Comm later = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  expectSuccess(MPI_Comm_idup(MPI_COMM_WORLD, &later, &request), "MPI_Comm_idup");
  exchange(MPI_COMM_WORLD, 1 - rank, rank == 0, 1);
  expectSuccess(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  exchange(later, 1 - rank, rank == 1, 2);
  MPI_Comm_free(&later);
}

// Started twice: the second time, kernels have written other bytes. (Of longer buffered messages,
// Open MPI 4.1 sends zeros then, also from plain memory, without gmac.)
void persistentModes() {
  constexpr int kShort = 2000;
  Object sent;
  Object received;
  std::vector<char> room(kBytes + std::size_t{MPI_BSEND_OVERHEAD});
  expectSuccess(MPI_Buffer_attach(room.data(), static_cast<int>(room.size())), "MPI_Buffer_attach");
  const struct {
    const char* name;
    decltype(&MPI_Send_init) make;
    int bytes;
  } modes[] = {{"MPI_Bsend_init", &MPI_Bsend_init, kShort},
               {"MPI_Rsend_init", &MPI_Rsend_init, kBytes}};
  for (const auto& mode : modes) {
    std::array<MPI_Request, 2> requests{};
    expectSuccess(MPI_Recv_init(received.data(), mode.bytes, MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD,
                                requests.data()),
                  "MPI_Recv_init");
    expectSuccess(
        mode.make(sent.data(), mode.bytes, MPI_BYTE, 1 - rank, 5, MPI_COMM_WORLD, &requests[1]),
        mode.name);
    for (int round = 0; round < 2; ++round) {
      received.clear();
      sent.fill(round + 20 + rank);
      expectSuccess(MPI_Start(requests.data()), "MPI_Start");
      MPI_Barrier(MPI_COMM_WORLD);  // a ready message is expected
      expectSuccess(MPI_Start(&requests[1]), mode.name);
      expectSuccess(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
      expect(received.holds(round + 21 - rank, mode.bytes), mode.name, round);
    }
    for (MPI_Request& request : requests) MPI_Request_free(&request);
  }
  void* given = nullptr;
  int bytes = 0;
  MPI_Buffer_detach(&given, &bytes);
}

// ---- Generalised requests, whose end the program says

struct Asked {
  int queries = 0;
  int frees = 0;
  int cancels = 0;
};

int query(void* state, MPI_Status* status) {
  ++static_cast<Asked*>(state)->queries;
  MPI_Status_set_elements(status, MPI_BYTE, 7);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = 3;
  status->MPI_TAG = 4;
  return MPI_SUCCESS;
}
int release(void* state) {
  ++static_cast<Asked*>(state)->frees;
  return MPI_SUCCESS;
}
int cancel(void* state, int /*complete*/) {
  ++static_cast<Asked*>(state)->cancels;
  return MPI_SUCCESS;
}

// All of them end, in one way or another.
void waitFor(std::array<MPI_Request, 3>& requests, std::array<MPI_Status, 3>& statuses, int how) {
  const int all = static_cast<int>(requests.size());
  if (how == 0) {
    expectSuccess(MPI_Waitall(all, requests.data(), statuses.data()), "MPI_Waitall");
    return;
  }
  for (int left = all; left > 0;) {
    std::array<int, 3> which{};
    std::array<MPI_Status, 3> ended{};
    int count = 1;
    if (how == 1) {
      expectSuccess(MPI_Waitsome(all, requests.data(), &count, which.data(), ended.data()),
                    "MPI_Waitsome");
    } else {
      expectSuccess(MPI_Waitany(all, requests.data(), which.data(), ended.data()), "MPI_Waitany");
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      statuses.at(static_cast<std::size_t>(which.at(i))) = ended.at(i);
    }
    left -= count;
  }
}

void expectStatus(const MPI_Status& status, int source, int tag, int bytes, int round) {
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  expect(status.MPI_SOURCE == source && status.MPI_TAG == tag && count == bytes,
         "the status is that of its request", round);
}

void generalisedRequests() {
  Object sent;
  Object received;
  std::vector<char> room(2 * (std::size_t{kBytes} + MPI_BSEND_OVERHEAD));
  for (int round = 0; round < 6; ++round) {
    Asked asked;
    std::array<MPI_Request, 3> requests{};
    std::array<MPI_Status, 3> statuses{};
    sent.fill(round + 10 * rank);
    received.clear();
    expectSuccess(
        MPI_Irecv(received.data(), kBytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, requests.data()),
        "MPI_Irecv");
    expectSuccess(MPI_Grequest_start(query, release, cancel, &asked, &requests[1]),
                  "MPI_Grequest_start");
    MPI_Barrier(MPI_COMM_WORLD);  // a ready message is expected
    if (round % 2 == 0) {
      expectSuccess(
          MPI_Irsend(sent.data(), kBytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[2]),
          "MPI_Irsend");
    } else {
      MPI_Buffer_attach(room.data(), static_cast<int>(room.size()));
      expectSuccess(
          MPI_Ibsend(sent.data(), kBytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[2]),
          "MPI_Ibsend");
    }
    const bool cancels = round > 3;
    if (cancels) expectSuccess(MPI_Cancel(&requests[1]), "MPI_Cancel");
    expectSuccess(MPI_Grequest_complete(requests[1]), "MPI_Grequest_complete");
    waitFor(requests, statuses, round % 3);
    if (round % 2 != 0) {
      void* given = nullptr;
      int bytes = 0;
      MPI_Buffer_detach(&given, &bytes);
    }
    expectStatus(statuses[0], 1 - rank, 1, kBytes, round);
    expectStatus(statuses[1], 3, 4, 7, round);
    expect(asked.queries == 1 && asked.frees == 1 && asked.cancels == (cancels ? 1 : 0),
           "the program's functions are called once", round);
    expect(received.holds(round + 10 * (1 - rank)), "the message is what was sent", round);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  received.clear();
  MPI_Irecv(received.data(), kBytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, &request);
  MPI_Barrier(MPI_COMM_WORLD);
  expectSuccess(MPI_Rsend(sent.data(), kBytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD), "MPI_Rsend");
  expectSuccess(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  expect(received.holds(5 + 10 * (1 - rank)), "a ready message is what was sent");
}

// ---- Groups that meet

// Whether MPI does what it was asked for, with no object in the call.
bool serves(int code, const char* call) {
  int all = code == MPI_SUCCESS ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (all == 0 && rank == 0) {
    std::string words = gmac::testing::errorText(code);
    std::replace(words.begin(), words.end(), '\n', ' ');
    std::printf("skipped: %s: %s\n", call, words.c_str());
  }
  return all != 0;
}

// The two ranks meet at a port of rank 0, which rank 1 is told; or finds by a name, which is looked
// up again when it is taken back.
void ports(const char* service) {
  std::array<char, MPI_MAX_PORT_NAME> name{};
  MPI_Comm other = MPI_COMM_NULL;
  if (!serves(rank == 0 ? MPI_Open_port(MPI_INFO_NULL, name.data()) : MPI_SUCCESS,
              "MPI_Open_port")) {
    return;
  }
  if (service == nullptr) {
    MPI_Bcast(name.data(), MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
  } else {
    if (!serves(rank == 0 ? MPI_Publish_name(service, MPI_INFO_NULL, name.data()) : MPI_SUCCESS,
                "MPI_Publish_name")) {
      return;
    }
    if (rank == 1) {
      expectSuccess(MPI_Lookup_name(service, MPI_INFO_NULL, name.data()), "MPI_Lookup_name");
    }
  }
  expectSuccess(rank == 0 ? MPI_Comm_accept(name.data(), MPI_INFO_NULL, 0, MPI_COMM_SELF, &other)
                          : MPI_Comm_connect(name.data(), MPI_INFO_NULL, 0, MPI_COMM_SELF, &other),
                "MPI_Comm_accept or MPI_Comm_connect");
  exchange(other, 0, rank == 0, service == nullptr ? 3 : 12);
  expectSuccess(MPI_Comm_disconnect(&other), "MPI_Comm_disconnect");
  if (rank == 0) {
    if (service != nullptr) {
      expectSuccess(MPI_Unpublish_name(service, MPI_INFO_NULL, name.data()), "MPI_Unpublish_name");
    }
    MPI_Close_port(name.data());
  }
}

// A connection of this host between the two ranks.
int connection() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  expect(made >= 0, "socket");
  if (rank == 0) {
    expect(bind(made, any, bytes) == 0 && listen(made, 1) == 0, "listen");
    expect(getsockname(made, any, &bytes) == 0, "getsockname");
  }
  MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) {
    expect(connect(made, any, bytes) == 0, "connect");
    return made;
  }
  const int accepted = accept4(made, nullptr, nullptr, SOCK_CLOEXEC);
  expect(accepted >= 0, "accept4");
  close(made);
  return accepted;
}

void joined() {
  const int socket = connection();
  MPI_Comm other = MPI_COMM_NULL;
  if (serves(MPI_Comm_join(socket, &other), "MPI_Comm_join")) {
    exchange(other, 0, rank == 1, 13);
    expectSuccess(MPI_Comm_disconnect(&other), "MPI_Comm_disconnect");
  }
  close(socket);
}

// Objects at the origin, MPI's own memory, which the other rank also reads by its own loads, at the
// target.
void sharedWindow() {
  unsigned char* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  expectSuccess(MPI_Win_allocate_shared(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window),
                "MPI_Win_allocate_shared");
  Object object;
  object.fill(4 + rank);
  MPI_Win_fence(0, window);
  expectSuccess(MPI_Put(object.data(), kBytes, MPI_BYTE, 1 - rank, 0, kBytes, MPI_BYTE, window),
                "MPI_Put");
  MPI_Win_fence(0, window);
  MPI_Aint bytes = 0;
  int unit = 0;
  unsigned char* others = nullptr;
  expectSuccess(MPI_Win_shared_query(window, 1 - rank, &bytes, &unit, &others),
                "MPI_Win_shared_query");
  for (int i = 0; i < kBytes; ++i) {
    expect(own[i] == byteOf(i, 5 - rank) && others[i] == byteOf(i, 4 + rank),
           "a shared window has what was put", i);
  }
  object.clear();
  expectSuccess(MPI_Get(object.data(), kBytes, MPI_BYTE, rank, 0, kBytes, MPI_BYTE, window),
                "MPI_Get");
  MPI_Win_fence(0, window);
  expect(object.holds(5 - rank), "an object gets it", rank);
  MPI_Win_free(&window);
}

void dynamicWindow() {
  MPI_Win window = MPI_WIN_NULL;
  expectSuccess(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window),
                "MPI_Win_create_dynamic");
  const Memory plain(Memory::Kind::kPlain, kBytes);
  expectSuccess(MPI_Win_attach(window, plain.data(), kBytes), "MPI_Win_attach");
  MPI_Aint here = 0;
  MPI_Aint there = 0;
  MPI_Get_address(plain.data(), &here);
  MPI_Sendrecv(&here, 1, MPI_AINT, 1 - rank, 3, &there, 1, MPI_AINT, 1 - rank, 3, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  Object object;
  object.fill(6 + rank);
  MPI_Win_fence(0, window);
  expectSuccess(MPI_Put(object.data(), kBytes, MPI_BYTE, 1 - rank, there, kBytes, MPI_BYTE, window),
                "MPI_Put");
  MPI_Win_fence(0, window);
  expect(plain.data()[777] == byteOf(777, 7 - rank), "attached memory has what was put", rank);
  object.clear();
  expectSuccess(MPI_Get(object.data(), kBytes, MPI_BYTE, 1 - rank, there, kBytes, MPI_BYTE, window),
                "MPI_Get");
  MPI_Win_fence(0, window);
  expect(object.holds(6 + rank), "an object gets it", rank);
  MPI_Win_detach(window, plain.data());
  MPI_Win_free(&window);
}

// Two pieces, 2.5 GiB apart, of objects of which nobody touches what is in between.
void wideExtent() {
  constexpr MPI_Aint kApart = MPI_Aint{5} << 29;
  constexpr int kPiece = kBytes / 2;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_hvector(2, kPiece, kApart, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  Object object(static_cast<std::size_t>(kApart) + kPiece);
  unsigned char* const second = object.data() + kApart;
  if (rank == 0) {
    for (int i = 0; i < kPiece; ++i) {
      object.data()[i] = byteOf(i, 8);
      second[i] = byteOf(i, 9);
    }
    expectSuccess(MPI_Send(object.data(), 1, type, 1, 4, MPI_COMM_WORLD), "MPI_Send");
  } else {
    expectSuccess(MPI_Recv(object.data(), 1, type, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                  "MPI_Recv");
    for (int i = 0; i < kPiece; ++i) {
      expect(object.data()[i] == byteOf(i, 8) && second[i] == byteOf(i, 9), "both pieces arrive",
             i);
    }
    expect(object.data()[kPiece] == 0 && second[-1] == 0, "and nothing beside them");
  }
  MPI_Type_free(&type);
}

// One element and a part of a second one, of a type that gmac leaves to MPI's own packing: every
// second int of eight.
void partOfAnElement() {
  constexpr int kInts = 8;
  constexpr int kSent = 6;
  const std::array<int, 1> sizes = {kInts};
  const std::array<int, 1> distribution = {MPI_DISTRIBUTE_CYCLIC};
  const std::array<int, 1> argument = {1};
  const std::array<int, 1> grid = {2};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_darray(2, 0, 1, sizes.data(), distribution.data(), argument.data(), grid.data(),
                         MPI_ORDER_C, MPI_INT, &type);
  MPI_Type_commit(&type);
  const Memory memory(Memory::Kind::kShared, 2 * kInts * sizeof(int));
  auto* const ints = reinterpret_cast<int*>(memory.data());
  std::fill(ints, ints + 2 * kInts, -1);
  std::array<int, kSent> sent{};
  for (int i = 0; i < kSent; ++i) sent.at(static_cast<std::size_t>(i)) = i + 100;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(ints, 2, type, 1 - rank, 6, MPI_COMM_WORLD, &request);
  expectSuccess(MPI_Send(sent.data(), kSent, MPI_INT, 1 - rank, 6, MPI_COMM_WORLD), "MPI_Send");
  expectSuccess(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  for (int i = 0; i < 2 * kInts; ++i) {
    const bool arrived = i % 2 == 0 && i < 2 * kSent;
    expect(ints[i] == (arrived ? i / 2 + 100 : -1), "a part of an element arrives", i);
  }
  MPI_Type_free(&type);
}

// Its names are not those of calls with messages; they go to MPI.
void toolInterface() {
  int given = 0;
  expectSuccess(MPI_T_init_thread(MPI_THREAD_SINGLE, &given), "MPI_T_init_thread");
  int variables = 0;
  expectSuccess(MPI_T_cvar_get_num(&variables), "MPI_T_cvar_get_num");
  expect(variables > 0, "there are control variables");
  expectSuccess(MPI_T_finalize(), "MPI_T_finalize");
}

// Processes of another job, of this program: one; or two by two commands.
void spawn(const char* gmac, const char* self, bool multiple) {
  std::string words[] = {"run", "--mpi", "--", self, "child"};
  std::array<char*, std::size(words) + 1> arguments{};
  std::transform(std::begin(words), std::end(words), arguments.begin(),
                 [](std::string& word) { return word.data(); });
  std::string command = gmac;
  std::array<char*, 2> commands = {command.data(), command.data()};
  std::array<char**, 2> argumentsOf = {arguments.data(), arguments.data()};
  const std::array<int, 2> counts = {1, 1};
  const std::array<MPI_Info, 2> none = {MPI_INFO_NULL, MPI_INFO_NULL};
  MPI_Comm children = MPI_COMM_NULL;
  std::array<int, 2> codes{};
  const char* const call = multiple ? "MPI_Comm_spawn_multiple" : "MPI_Comm_spawn";
  const int code =
      multiple ? MPI_Comm_spawn_multiple(2, commands.data(), argumentsOf.data(), counts.data(),
                                         none.data(), 0, MPI_COMM_SELF, &children, codes.data())
               : MPI_Comm_spawn(gmac, arguments.data(), 1, MPI_INFO_NULL, 0, MPI_COMM_SELF,
                                &children, codes.data());
  if (!serves(code, call)) return;
  int size = 0;
  MPI_Comm_remote_size(children, &size);
  expect(size == (multiple ? 2 : 1), call, size);
  for (int child = 0; child < size; ++child) exchange(children, child, true, 10 + rank + child);
  expectSuccess(MPI_Comm_disconnect(&children), "MPI_Comm_disconnect");
}

int beChild() {
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parent);
  expect(parent != MPI_COMM_NULL, "a spawned process has a parent");
  Object object;
  object.clear();
  expectSuccess(MPI_Recv(object.data(), kBytes, MPI_BYTE, 0, 1, parent, MPI_STATUS_IGNORE),
                "MPI_Recv");
  expectSuccess(MPI_Send(object.data(), kBytes, MPI_BYTE, 0, 1, parent), "MPI_Send");
  MPI_Comm_disconnect(&parent);
  MPI_Finalize();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const std::string_view how = argc > 1 ? argv[1] : "";
  if (how == "child") return beChild();
  if (how == "others") {
    ports(nullptr);
    ports("gmac rare calls");
    joined();
    for (const bool multiple : {false, true}) spawn(argv[2], argv[0], multiple);
  } else {
    duplicates();
    persistentModes();
    generalisedRequests();
    sharedWindow();
    if (gmac::testing::windowsHere(rank == 0)) dynamicWindow();
    wideExtent();
    partOfAnElement();
    toolInterface();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::puts("rare calls are right");
  MPI_Finalize();
}
