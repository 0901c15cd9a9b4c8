// SPDX-License-Identifier: Apache-2.0
//
//   death_phases PHASE [device | survives]
//
// Rank 1 is killed in that phase of a message, a collective or an epoch, which is one line of
// kPhases. The others wait for it in MPI calls, until the launcher ends them. `device`: its device
// process is killed in place of it: the call fails with gmac's error, and the job goes on and ends.
// `survives`: the launcher lets the others live; rank 0's own call ends with an error, or has what
// was sent.
#include <mpi.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"

namespace {

using gmac::testing::errorText;
using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::failRank;
using gmac::testing::Memory;

constexpr int kPeer = 0;
constexpr int kVictim = 1;
constexpr int kMessage = 1;  // tags
constexpr int kNews = 2;
constexpr int kBytes = 1 << 20;
// In 8 of each 16 bytes. The sender serves its receiver until the end.
constexpr int kLongBytes = 8 << 20;

int rank = 0;
int ranks = 0;
bool strikesDevice = false;
pid_t victim = 0;

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

// Runs in the device process, whose end it is or the application's.
void strikeFrom(const adsmThreadBlock_t*, void** args) {
  pid_t target;
  std::memcpy(&target, args[1], sizeof target);
  // The application has gone on to the call that waits for this kernel.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ::kill(target != 0 ? target : ::getpid(), SIGKILL);
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

// From now on the object's bytes are a kernel's, in whose middle this process, or its device, ends.
void strike(const Memory& object) {
  static const std::size_t sizes[] = {sizeof(void*), sizeof(pid_t)};
  adsmKernelDesc_t desc = {};
  desc.name = "strike";
  desc.paramCount = 2;
  desc.paramSizes = sizes;
  desc.host = &strikeFrom;
  adsmKernel_t kernel = nullptr;
  gmac::testing::require(adsmKernelCreate(&desc, &kernel), "adsmKernelCreate");
  void* address = object.address();
  pid_t target = strikesDevice ? 0 : ::getpid();
  void* args[] = {&address, &target};
  const adsmUse_t use = {address, adsmReadWrite};
  gmac::testing::require(adsmCallUsing(kernel, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1),
                         "adsmCallUsing");
}

// Objects and memory that live until the process ends: the device that has them may be gone.
Memory& object(std::size_t bytes = kBytes) { return *new Memory(Memory::Kind::kShared, bytes); }
unsigned char* plain(std::size_t bytes = kBytes) {
  return (new Memory(Memory::Kind::kPlain, bytes))->data();
}

// kLongBytes in pieces of 8 bytes, 16 apart.
MPI_Datatype column() {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_vector(kLongBytes / 8, 8, 16, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  return type;
}
// The memory of a column. Who comes to its middle ends there.
void* fatalInTheMiddle() {
  constexpr std::size_t kPage = 4096;
  struct sigaction action = {};
  action.sa_handler = [](int) { die(); };
  ::sigaction(SIGSEGV, &action, nullptr);
  auto* const memory = static_cast<unsigned char*>(
      ::mmap(nullptr, std::size_t{2} * kLongBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  expect(memory != MAP_FAILED && ::mprotect(memory + kLongBytes, kPage, PROT_NONE) == 0,
         "memory with a guard");
  return memory;
}

void tell(int to) { MPI_Send(&rank, 1, MPI_INT, to, kNews, MPI_COMM_WORLD); }
void hear(int from) {
  int unused = 0;
  MPI_Recv(&unused, 1, MPI_INT, from, kNews, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
// A process that its parent has not collected counts as there.
void awaitDeath() {
  while (::kill(victim, 0) == 0) ::usleep(1000);
}

int receiveObject() {
  return MPI_Recv(object().address(), kBytes, MPI_BYTE, kVictim, kMessage, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
}
int sendObject() {
  return MPI_Send(object().address(), kBytes, MPI_BYTE, kVictim, kMessage, MPI_COMM_WORLD);
}
int sendColumn() {
  return MPI_Send(plain(std::size_t{2} * kLongBytes), 1, column(), kVictim, kMessage,
                  MPI_COMM_WORLD);
}

// Messages to rank 0.

int beforeTheTicket() { die(); }

int whilePacking() {
  Memory& sent = object();
  strike(sent);
  const int code = MPI_Send(sent.address(), kBytes, MPI_BYTE, kPeer, kMessage, MPI_COMM_WORLD);
  MPI_Send(plain(), kBytes, MPI_BYTE, kPeer, kMessage, MPI_COMM_WORLD);  // in its place
  return code;
}

// Pieces so long that the receiver reads them from the sender's memory.
int afterTheTicket() {
  MPI_Datatype halves = MPI_DATATYPE_NULL;
  MPI_Type_vector(2, kBytes / 2, kBytes, MPI_BYTE, &halves);
  MPI_Type_commit(&halves);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(plain(std::size_t{2} * kBytes), 1, halves, kPeer, kMessage, MPI_COMM_WORLD, &request);
  tell(kPeer);
  hear(kPeer);
  die();
}
int receiveLater() {
  hear(kVictim);
  tell(kVictim);
  awaitDeath();
  return MPI_Recv(plain(), kBytes, MPI_BYTE, kVictim, kMessage, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int sendToWhoIsReady() {
  hear(kVictim);
  return sendColumn();
}

int amongFragments() {
  return MPI_Send(fatalInTheMiddle(), 1, column(), kPeer, kMessage, MPI_COMM_WORLD);
}
int receiveColumn() {
  return MPI_Recv(plain(kLongBytes), kLongBytes, MPI_BYTE, kVictim, kMessage, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
}

int afterTheMessage() {
  Memory& sent = object();
  sent.flip();
  MPI_Send(sent.address(), kBytes, MPI_BYTE, kPeer, kMessage, MPI_COMM_WORLD);
  tell(kPeer);
  hear(kPeer);
  die();
}

// Messages from rank 0.

int beforeItReceives() {
  hear(kPeer);
  die();
}
int sendWhenHeard() {
  tell(kVictim);
  return sendColumn();
}

int whileUnpacking() {
  Memory& received = object();
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(received.address(), kBytes, MPI_BYTE, kPeer, kMessage, MPI_COMM_WORLD, &request);
  strike(received);
  return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int amongReceivedFragments() {
  void* const memory = fatalInTheMiddle();
  tell(kPeer);
  return MPI_Recv(memory, 1, column(), kPeer, kMessage, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Collectives and windows, of all ranks.

int alltoall(void* from, void* to) {
  return MPI_Alltoall(from, kBytes / 4, MPI_BYTE, to, kBytes / 4, MPI_BYTE, MPI_COMM_WORLD);
}
int inACollective() {
  Memory& sent = object();
  strike(sent);
  const int code = alltoall(sent.address(), plain());
  alltoall(plain(), plain());  // in its place
  return code;
}
int collective() { return alltoall(object().address(), object().address()); }

int inARequest(bool dies) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ialltoall(object().address(), kBytes / 4, MPI_BYTE, object().address(), kBytes / 4, MPI_BYTE,
                MPI_COMM_WORLD, &request);
  if (dies) die();
  return MPI_Wait(&request, MPI_STATUS_IGNORE);
}
int inAnIncompleteCollective() { return inARequest(true); }
int waitForAll() { return inARequest(false); }

MPI_Win made = MPI_WIN_NULL;  // freed at the end

MPI_Win window(const Memory& memory) {
  expectSuccess(MPI_Win_create(memory.address(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made),
                "a window");
  MPI_Win_set_errhandler(made, MPI_ERRORS_RETURN);
  return made;
}
int inAFence() {
  Memory& memory = object();
  const MPI_Win all = window(memory);
  MPI_Win_fence(0, all);
  strike(memory);
  return MPI_Win_fence(0, all);
}
int fence() {
  const MPI_Win all = window(object());
  MPI_Win_fence(0, all);
  return MPI_Win_fence(0, all);
}

int withALock() {
  const MPI_Win all = window(object());
  Memory& put = object();
  put.flip();
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kPeer, 0, all);
  MPI_Put(put.address(), kBytes, MPI_BYTE, kPeer, 0, kBytes, MPI_BYTE, all);
  MPI_Win_flush(kPeer, all);
  tell(kPeer);
  die();
}
int waitForTheLock() {
  const MPI_Win all = window(object());
  if (rank == kPeer) hear(kVictim);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kPeer, 0, all);
  return MPI_Win_unlock(kPeer, all);
}

int wait() { return MPI_SUCCESS; }

struct Phase {
  std::string_view name;
  int (*victims)();
  int (*peers)();
  int (*others)();
};
constexpr Phase kPhases[] = {
    {"before_ticket", &beforeTheTicket, &receiveObject, &wait},
    {"packing", &whilePacking, &receiveObject, &wait},
    {"after_ticket", &afterTheTicket, &receiveLater, &wait},
    {"fragments", &amongFragments, &receiveColumn, &wait},
    {"after_message", &afterTheMessage, &receiveLater, &wait},
    {"before_receive", &beforeItReceives, &sendWhenHeard, &wait},
    {"unpacking", &whileUnpacking, &sendObject, &wait},
    {"received_fragments", &amongReceivedFragments, &sendToWhoIsReady, &wait},
    {"collective", &inACollective, &collective, &collective},
    {"incomplete_collective", &inAnIncompleteCollective, &waitForAll, &waitForAll},
    {"fence", &inAFence, &fence, &fence},
    {"lock", &withALock, &waitForTheLock, &waitForTheLock},
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  expect(ranks == 3 && argc >= 2, "mpirun -n 3 death_phases PHASE [device | survives]");
  const std::string_view how = argc > 2 ? argv[2] : "";
  strikesDevice = how == "device";
  victim = ::getpid();
  MPI_Bcast(&victim, sizeof victim, MPI_BYTE, kVictim, MPI_COMM_WORLD);
  const Phase* phase = nullptr;
  for (const Phase& one : kPhases) {
    if (one.name == argv[1]) phase = &one;
  }
  expect(phase != nullptr, "a phase of that name");
  object().flip();  // the device is there
  MPI_Barrier(MPI_COMM_WORLD);
  const int code = rank == kVictim ? phase->victims()
                   : rank == kPeer ? phase->peers()
                                   : phase->others();
  if (how == "survives") {
    if (rank == kPeer) {
      std::printf("rank 0: %s\n", code == MPI_SUCCESS ? "success" : errorText(code).c_str());
      std::fflush(stdout);
    }
    ::_exit(0);
  }
  if (strikesDevice && rank == kVictim) {
    expect(code != MPI_SUCCESS, "a call whose device ends fails");
    std::fprintf(stderr, "rank 1: %s\n", errorText(code).c_str());
  } else if (strikesDevice) {
    expectSuccess(code, "the call of another rank");
  }
  // Where the victim has died, the launcher ends the others here.
  const int last = MPI_Barrier(MPI_COMM_WORLD);
  if (!strikesDevice) failRank("nobody has died");
  if (made != MPI_WIN_NULL) {
    // (A barrier brings windows up to date, too.)
    if (rank == kVictim) std::fprintf(stderr, "rank 1: %s\n", errorText(last).c_str());
    MPI_Win_free(&made);
  }
  MPI_Finalize();
  if (rank == 0) std::puts("went on");
}
