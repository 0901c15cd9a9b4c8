// SPDX-License-Identifier: Apache-2.0
//
// Every call with a buffer in its form for large counts (MPI_x_c), from objects and to objects
// whose bytes are on the accelerator: what arrives is right, and what was sent has not been opened,
// as MPI was given private memory. For two processes. Of MPI 4; what other libraries run does
// nothing.
#include <dlfcn.h>
#include <mpi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"
#include "tests/mpi/temporary_file.h"

#if MPI_VERSION >= 4
namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::failRank;
using gmac::testing::Memory;

// Ints for each of two ranks: more than a message that MPI sends without a look at the receiver.
constexpr int kEach = 16'384;
constexpr int kAll = 2 * kEach;
constexpr std::size_t kBytes = kAll * sizeof(int);
constexpr int kNothing = -1;  // what nobody has written
constexpr int kTag = 7;

int rank = 0;
int other = 0;

int value(int of, int i) { return of * 1'000'000 + i * 7; }

// Asks the kernel, which opens no page. (By libc's own function: gmac stands in for that name.)
bool isOpen(const void* address) {
  using Read = decltype(&::process_vm_readv);
  static const auto read = reinterpret_cast<Read>(
      ::dlsym(::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "process_vm_readv"));
  char byte = 0;
  const iovec here = {&byte, 1};
  const iovec there = {const_cast<void*>(address), 1};
  return read(::getpid(), &here, 1, &there, 1, 0) == 1;
}

// What each rank sends, and where it receives: nothing, or the same.
class Pair {
 public:
  void fill(bool same = false) {
    for (int i = 0; i < kAll; ++i) {
      store(out_, i, value(rank, i));
      store(in_, i, same ? value(rank, i) : kNothing);
    }
    out_.flip();
    in_.flip();
  }
  const int* out() const { return reinterpret_cast<const int*>(out_.data()); }
  int* in() const { return reinterpret_cast<int*>(in_.data()); }
  // Nobody has read what is sent but the accelerator. (What is received may be opened: the CPU
  // reads it after each call.)
  void expectClosed(const std::string& what) const {
    for (const std::size_t at : {std::size_t{0}, kBytes / 2, kBytes - 1}) {
      if (isOpen(out_.data() + at)) failRank(what + " has opened byte " + std::to_string(at));
    }
  }

 private:
  // As the kernel finds it.
  static void store(const Memory& memory, int i, int stored) {
    constexpr unsigned kMasks = gmac::testing::kMask * 0x01010101U;
    reinterpret_cast<int*>(memory.data())[i] =
        static_cast<int>(static_cast<unsigned>(stored) ^ kMasks);
  }
  Memory out_{Memory::Kind::kShared, kBytes};
  Memory in_{Memory::Kind::kShared, kBytes};
};

// Element i of what is received.
using Expected = std::function<int(int i)>;

void check(const char* name, const char* form, const Pair& pair, int code,
           const Expected& expected) {
  const std::string what = std::string(name) + form;
  expectSuccess(code, what.c_str());
  pair.expectClosed(what);
  for (int i = 0; i < kAll; ++i) {
    if (pair.in()[i] != expected(i)) {
      failRank(what + ": element " + std::to_string(i) + " is " + std::to_string(pair.in()[i]) +
               ", not " + std::to_string(expected(i)));
    }
  }
}

int wait(int code, MPI_Request* request) {
  return code != MPI_SUCCESS ? code : MPI_Wait(request, MPI_STATUS_IGNORE);
}
int startAndWait(int code, MPI_Request* request) {
  if (code == MPI_SUCCESS) code = MPI_Start(request);
  if (code == MPI_SUCCESS) code = MPI_Wait(request, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS) code = MPI_Request_free(request);
  return code;
}

// ---- Collectives: blocking, nonblocking and persistent.

template <typename Blocking, typename Nonblocking, typename Persistent, typename... Arguments>
void inEachForm(const char* name, const Expected& expected, Pair& pair, Blocking blocking,
                Nonblocking nonblocking, Persistent persistent, Arguments... arguments) {
  MPI_Request request = MPI_REQUEST_NULL;
  pair.fill();
  check(name, "", pair, blocking(arguments...), expected);
  pair.fill();
  check(name, ", nonblocking", pair, wait(nonblocking(arguments..., &request), &request), expected);
  pair.fill();
  check(name, ", persistent", pair,
        startAndWait(persistent(arguments..., MPI_INFO_NULL, &request), &request), expected);
}

#define GMAC_IN_EACH_FORM(name, iname, expected, ...)                              \
  inEachForm("MPI_" #name "_c", expected, pair, &MPI_##name##_c, &MPI_##iname##_c, \
             &MPI_##name##_init_c, __VA_ARGS__)

void collectives() {
  Pair pair;
  const int* const out = pair.out();
  int* const in = pair.in();
  const std::array<MPI_Count, 2> counts = {kEach, kEach};
  const std::array<MPI_Aint, 2> places = {0, kEach};
  const std::array<MPI_Aint, 2> bytePlaces = {0, kEach * sizeof(int)};
  const std::array<MPI_Datatype, 2> types = {MPI_INT, MPI_INT};
  // Each rank has both as its neighbours.
  const std::array<int, 2> both = {0, 1};
  MPI_Comm ring = MPI_COMM_NULL;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, both.data(), MPI_UNWEIGHTED, 2, both.data(),
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
  const MPI_Comm world = MPI_COMM_WORLD;
  constexpr MPI_Count kCount = kEach;

  const Expected gathered = [](int i) { return value(i / kEach, i % kEach); };
  const Expected exchanged = [](int i) { return value(i / kEach, rank * kEach + i % kEach); };
  const auto atRoot = [](const Expected& expected) {
    return Expected([expected](int i) { return rank == 0 ? expected(i) : kNothing; });
  };
  const Expected scattered = [](int i) {
    return i < kEach ? value(0, rank * kEach + i) : kNothing;
  };
  const Expected summed = [](int i) { return i < kEach ? value(0, i) + value(1, i) : kNothing; };
  const Expected prefix = [](int i) {
    return i >= kEach ? kNothing : rank == 0 ? value(0, i) : value(0, i) + value(1, i);
  };
  const Expected before = [](int i) { return i < kEach && rank == 1 ? value(0, i) : kNothing; };
  const Expected partSummed = [](int i) {
    const int at = rank * kEach + i;
    return i < kEach ? value(0, at) + value(1, at) : kNothing;
  };

  GMAC_IN_EACH_FORM(Allgather, Iallgather, gathered, out, kCount, MPI_INT, in, kCount, MPI_INT,
                    world);
  GMAC_IN_EACH_FORM(Allgatherv, Iallgatherv, gathered, out, kCount, MPI_INT, in, counts.data(),
                    places.data(), MPI_INT, world);
  GMAC_IN_EACH_FORM(Gather, Igather, atRoot(gathered), out, kCount, MPI_INT, in, kCount, MPI_INT, 0,
                    world);
  GMAC_IN_EACH_FORM(Gatherv, Igatherv, atRoot(gathered), out, kCount, MPI_INT, in, counts.data(),
                    places.data(), MPI_INT, 0, world);
  GMAC_IN_EACH_FORM(Scatter, Iscatter, scattered, out, kCount, MPI_INT, in, kCount, MPI_INT, 0,
                    world);
  GMAC_IN_EACH_FORM(Scatterv, Iscatterv, scattered, out, counts.data(), places.data(), MPI_INT, in,
                    kCount, MPI_INT, 0, world);
  GMAC_IN_EACH_FORM(Alltoall, Ialltoall, exchanged, out, kCount, MPI_INT, in, kCount, MPI_INT,
                    world);
  GMAC_IN_EACH_FORM(Alltoallv, Ialltoallv, exchanged, out, counts.data(), places.data(), MPI_INT,
                    in, counts.data(), places.data(), MPI_INT, world);
  GMAC_IN_EACH_FORM(Alltoallw, Ialltoallw, exchanged, out, counts.data(), bytePlaces.data(),
                    types.data(), in, counts.data(), bytePlaces.data(), types.data(), world);
  GMAC_IN_EACH_FORM(Neighbor_allgather, Ineighbor_allgather, gathered, out, kCount, MPI_INT, in,
                    kCount, MPI_INT, ring);
  GMAC_IN_EACH_FORM(Neighbor_allgatherv, Ineighbor_allgatherv, gathered, out, kCount, MPI_INT, in,
                    counts.data(), places.data(), MPI_INT, ring);
  GMAC_IN_EACH_FORM(Neighbor_alltoall, Ineighbor_alltoall, exchanged, out, kCount, MPI_INT, in,
                    kCount, MPI_INT, ring);
  GMAC_IN_EACH_FORM(Neighbor_alltoallv, Ineighbor_alltoallv, exchanged, out, counts.data(),
                    places.data(), MPI_INT, in, counts.data(), places.data(), MPI_INT, ring);
  GMAC_IN_EACH_FORM(Neighbor_alltoallw, Ineighbor_alltoallw, exchanged, out, counts.data(),
                    bytePlaces.data(), types.data(), in, counts.data(), bytePlaces.data(),
                    types.data(), ring);
  GMAC_IN_EACH_FORM(Reduce, Ireduce, atRoot(summed), out, in, kCount, MPI_INT, MPI_SUM, 0, world);
  GMAC_IN_EACH_FORM(Allreduce, Iallreduce, summed, out, in, kCount, MPI_INT, MPI_SUM, world);
  GMAC_IN_EACH_FORM(Scan, Iscan, prefix, out, in, kCount, MPI_INT, MPI_SUM, world);
  GMAC_IN_EACH_FORM(Exscan, Iexscan, before, out, in, kCount, MPI_INT, MPI_SUM, world);
  GMAC_IN_EACH_FORM(Reduce_scatter, Ireduce_scatter, partSummed, out, in, counts.data(), MPI_INT,
                    MPI_SUM, world);
  GMAC_IN_EACH_FORM(Reduce_scatter_block, Ireduce_scatter_block, partSummed, out, in, kCount,
                    MPI_INT, MPI_SUM, world);
  const Expected broadcast = [](int i) { return rank == 1 && i < kEach ? value(0, i) : kNothing; };
  void* const cast = rank == 0 ? const_cast<int*>(out) : in;
  GMAC_IN_EACH_FORM(Bcast, Ibcast, broadcast, cast, kCount, MPI_INT, 0, world);
  pair.fill();
  check("MPI_Reduce_local_c", "", pair, MPI_Reduce_local_c(out, in, kCount, MPI_INT, MPI_SUM),
        [](int i) { return i < kEach ? value(rank, i) + kNothing : kNothing; });
  MPI_Comm_free(&ring);
}

// ---- Messages, from each rank to the other one.

const Expected kFromOther = [](int i) { return i < kEach ? value(other, i) : kNothing; };

template <typename Receive>
void receivedBy(const char* name, Pair& pair, const Receive& receive) {
  pair.fill();
  MPI_Request sent = MPI_REQUEST_NULL;
  MPI_Isend_c(pair.out(), kEach, MPI_INT, other, kTag, MPI_COMM_WORLD, &sent);
  const int code = receive();
  expectSuccess(MPI_Wait(&sent, MPI_STATUS_IGNORE), "MPI_Isend_c");
  check(name, "", pair, code, kFromOther);
}

template <typename Send>
void sentBy(const char* name, Pair& pair, const Send& send) {
  pair.fill();
  MPI_Request received = MPI_REQUEST_NULL;
  MPI_Irecv_c(pair.in(), kEach, MPI_INT, other, kTag, MPI_COMM_WORLD, &received);
  MPI_Barrier(MPI_COMM_WORLD);  // for the ready sends
  const int code = send();
  expectSuccess(MPI_Wait(&received, MPI_STATUS_IGNORE), "MPI_Irecv_c");
  check(name, "", pair, code, kFromOther);
}

void messages() {
  Pair pair;
  const MPI_Comm world = MPI_COMM_WORLD;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto blocking = [&](const char* name, auto call) {
    sentBy(name, pair, [&] { return call(pair.out(), kEach, MPI_INT, other, kTag, world); });
  };
  const auto nonblocking = [&](const char* name, auto call) {
    sentBy(name, pair, [&] {
      return wait(call(pair.out(), kEach, MPI_INT, other, kTag, world, &request), &request);
    });
  };
  const auto persistent = [&](const char* name, auto call) {
    sentBy(name, pair, [&] {
      return startAndWait(call(pair.out(), kEach, MPI_INT, other, kTag, world, &request), &request);
    });
  };
  const Memory buffer(Memory::Kind::kShared, kBytes + MPI_BSEND_OVERHEAD);
  expectSuccess(MPI_Buffer_attach_c(buffer.data(), static_cast<MPI_Count>(buffer.size())),
                "MPI_Buffer_attach_c");
  blocking("MPI_Send_c", &MPI_Send_c);
  blocking("MPI_Ssend_c", &MPI_Ssend_c);
  blocking("MPI_Rsend_c", &MPI_Rsend_c);
  blocking("MPI_Bsend_c", &MPI_Bsend_c);
  nonblocking("MPI_Isend_c", &MPI_Isend_c);
  nonblocking("MPI_Issend_c", &MPI_Issend_c);
  nonblocking("MPI_Irsend_c", &MPI_Irsend_c);
  nonblocking("MPI_Ibsend_c", &MPI_Ibsend_c);
  persistent("MPI_Send_init_c", &MPI_Send_init_c);
  persistent("MPI_Ssend_init_c", &MPI_Ssend_init_c);
  persistent("MPI_Rsend_init_c", &MPI_Rsend_init_c);
  persistent("MPI_Bsend_init_c", &MPI_Bsend_init_c);
  void* detached = nullptr;
  MPI_Count size = 0;
  expectSuccess(MPI_Buffer_detach_c(static_cast<void*>(&detached), &size), "MPI_Buffer_detach_c");
  expect(detached == buffer.data() && size == static_cast<MPI_Count>(buffer.size()),
         "MPI_Buffer_detach_c gives the program's own buffer back");

  receivedBy("MPI_Recv_c", pair, [&] {
    return MPI_Recv_c(pair.in(), kEach, MPI_INT, other, kTag, world, MPI_STATUS_IGNORE);
  });
  receivedBy("MPI_Irecv_c", pair, [&] {
    return wait(MPI_Irecv_c(pair.in(), kEach, MPI_INT, other, kTag, world, &request), &request);
  });
  receivedBy("MPI_Recv_init_c", pair, [&] {
    return startAndWait(MPI_Recv_init_c(pair.in(), kEach, MPI_INT, other, kTag, world, &request),
                        &request);
  });
  MPI_Message message = MPI_MESSAGE_NULL;
  receivedBy("MPI_Mrecv_c", pair, [&] {
    MPI_Mprobe(other, kTag, world, &message, MPI_STATUS_IGNORE);
    return MPI_Mrecv_c(pair.in(), kEach, MPI_INT, &message, MPI_STATUS_IGNORE);
  });
  receivedBy("MPI_Imrecv_c", pair, [&] {
    MPI_Mprobe(other, kTag, world, &message, MPI_STATUS_IGNORE);
    return wait(MPI_Imrecv_c(pair.in(), kEach, MPI_INT, &message, &request), &request);
  });

  const auto exchangedBy = [&](const char* name, const auto& call) {
    pair.fill();
    check(name, "", pair, call(), kFromOther);
  };
  exchangedBy("MPI_Sendrecv_c", [&] {
    return MPI_Sendrecv_c(pair.out(), kEach, MPI_INT, other, kTag, pair.in(), kEach, MPI_INT, other,
                          kTag, world, MPI_STATUS_IGNORE);
  });
  exchangedBy("MPI_Isendrecv_c", [&] {
    return wait(MPI_Isendrecv_c(pair.out(), kEach, MPI_INT, other, kTag, pair.in(), kEach, MPI_INT,
                                other, kTag, world, &request),
                &request);
  });
  const Expected replaced = [](int i) { return value(i < kEach ? other : rank, i); };
  pair.fill(true);
  check("MPI_Sendrecv_replace_c", "", pair,
        MPI_Sendrecv_replace_c(pair.in(), kEach, MPI_INT, other, kTag, other, kTag, world,
                               MPI_STATUS_IGNORE),
        replaced);
  pair.fill(true);
  check("MPI_Isendrecv_replace_c", "", pair,
        wait(MPI_Isendrecv_replace_c(pair.in(), kEach, MPI_INT, other, kTag, other, kTag, world,
                                     &request),
             &request),
        replaced);
}

void packing() {
  Pair pair;
  const Expected own = [](int i) { return i < kEach ? value(rank, i) : kNothing; };
  MPI_Count size = 0;
  MPI_Pack_size_c(kEach, MPI_INT, MPI_COMM_WORLD, &size);
  const Memory packed(Memory::Kind::kShared, static_cast<std::size_t>(size));
  pair.fill();
  MPI_Count position = 0;
  expectSuccess(
      MPI_Pack_c(pair.out(), kEach, MPI_INT, packed.data(), size, &position, MPI_COMM_WORLD),
      "MPI_Pack_c");
  const MPI_Count end = position;
  position = 0;
  check("MPI_Pack_c and MPI_Unpack_c", "", pair,
        MPI_Unpack_c(packed.data(), end, &position, pair.in(), kEach, MPI_INT, MPI_COMM_WORLD),
        own);
  MPI_Pack_external_size_c("external32", kEach, MPI_INT, &size);
  const Memory external(Memory::Kind::kShared, static_cast<std::size_t>(size));
  pair.fill();
  position = 0;
  expectSuccess(MPI_Pack_external_c("external32", pair.out(), kEach, MPI_INT, external.data(), size,
                                    &position),
                "MPI_Pack_external_c");
  position = 0;
  check("MPI_Pack_external_c and MPI_Unpack_external_c", "", pair,
        MPI_Unpack_external_c("external32", external.data(), size, &position, pair.in(), kEach,
                              MPI_INT),
        own);
}

// ---- Windows, of MPI's own memory.

void oneSided() {
  int* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate_c(kBytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                     static_cast<void*>(&memory), &window);
  Pair pair;
  MPI_Request request = MPI_REQUEST_NULL;
  const MPI_Aint place = 0;
  // An operation on the other rank's window, whose elements are those of `value` before it.
  const auto by = [&](const char* name, const Expected& fetched, const Expected& there,
                      const auto& operation) {
    pair.fill();
    for (int i = 0; i < kAll; ++i) memory[i] = value(rank, i);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, other, 0, window);
    int code = operation();
    if (request != MPI_REQUEST_NULL) code = wait(code, &request);
    MPI_Win_unlock(other, window);
    check(name, "", pair, code, fetched);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int i = 0; i < kAll; ++i) expect(memory[i] == there(i), name, i);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
  };
  const Expected nothing = [](int) { return kNothing; };
  const Expected unchanged = [](int i) { return value(rank, i); };
  const Expected put = [](int i) { return value(i < kEach ? other : rank, i); };
  const Expected added = [](int i) { return value(rank, i) + (i < kEach ? value(other, i) : 0); };
  const int* const out = pair.out();
  int* const in = pair.in();
  by("MPI_Put_c", nothing, put,
     [&] { return MPI_Put_c(out, kEach, MPI_INT, other, place, kEach, MPI_INT, window); });
  by("MPI_Rput_c", nothing, put, [&] {
    return MPI_Rput_c(out, kEach, MPI_INT, other, place, kEach, MPI_INT, window, &request);
  });
  by("MPI_Get_c", kFromOther, unchanged,
     [&] { return MPI_Get_c(in, kEach, MPI_INT, other, place, kEach, MPI_INT, window); });
  by("MPI_Rget_c", kFromOther, unchanged, [&] {
    return MPI_Rget_c(in, kEach, MPI_INT, other, place, kEach, MPI_INT, window, &request);
  });
  by("MPI_Accumulate_c", nothing, added, [&] {
    return MPI_Accumulate_c(out, kEach, MPI_INT, other, place, kEach, MPI_INT, MPI_SUM, window);
  });
  by("MPI_Raccumulate_c", nothing, added, [&] {
    return MPI_Raccumulate_c(out, kEach, MPI_INT, other, place, kEach, MPI_INT, MPI_SUM, window,
                             &request);
  });
  by("MPI_Get_accumulate_c", kFromOther, added, [&] {
    return MPI_Get_accumulate_c(out, kEach, MPI_INT, in, kEach, MPI_INT, other, place, kEach,
                                MPI_INT, MPI_SUM, window);
  });
  by("MPI_Rget_accumulate_c", kFromOther, added, [&] {
    return MPI_Rget_accumulate_c(out, kEach, MPI_INT, in, kEach, MPI_INT, other, place, kEach,
                                 MPI_INT, MPI_SUM, window, &request);
  });
  MPI_Win_free(&window);
}

// ---- Files: each rank writes a part of one, and reads it again.

void files() {
  const std::string name = gmac::testing::temporaryFileOf(MPI_COMM_WORLD);
  Pair pair;
  const int* const out = pair.out();
  int* const in = pair.in();
  const MPI_Offset own = static_cast<MPI_Offset>(rank) * kEach * sizeof(int);
  const Expected written = [](int i) { return i < kEach ? value(rank, i) : kNothing; };
  MPI_File file = MPI_FILE_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status = {};
  const auto by = [&](const char* what, const auto& write, const auto& read) {
    MPI_File_open(MPI_COMM_WORLD, name.c_str(), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                  &file);
    pair.fill();
    MPI_File_seek(file, own, MPI_SEEK_SET);
    int code = write();
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek(file, own, MPI_SEEK_SET);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    if (code == MPI_SUCCESS) code = read();
    check(what, "", pair, code, written);
    MPI_File_close(&file);
  };
#define GMAC_DIRECT(form)                                                           \
  by(                                                                               \
      "MPI_File_write" #form "_c and its read",                                     \
      [&] { return MPI_File_write##form##_c(file, out, kEach, MPI_INT, &status); }, \
      [&] { return MPI_File_read##form##_c(file, in, kEach, MPI_INT, &status); })
#define GMAC_DIRECT_AT(form)                                                             \
  by(                                                                                    \
      "MPI_File_write" #form "_c and its read",                                          \
      [&] { return MPI_File_write##form##_c(file, own, out, kEach, MPI_INT, &status); }, \
      [&] { return MPI_File_read##form##_c(file, own, in, kEach, MPI_INT, &status); })
#define GMAC_LATER(form)                                                                       \
  by(                                                                                          \
      "MPI_File_iwrite" #form "_c and its read",                                               \
      [&] {                                                                                    \
        return wait(MPI_File_iwrite##form##_c(file, out, kEach, MPI_INT, &request), &request); \
      },                                                                                       \
      [&] {                                                                                    \
        return wait(MPI_File_iread##form##_c(file, in, kEach, MPI_INT, &request), &request);   \
      })
#define GMAC_LATER_AT(form)                                                                       \
  by(                                                                                             \
      "MPI_File_iwrite" #form "_c and its read",                                                  \
      [&] {                                                                                       \
        return wait(MPI_File_iwrite##form##_c(file, own, out, kEach, MPI_INT, &request),          \
                    &request);                                                                    \
      },                                                                                          \
      [&] {                                                                                       \
        return wait(MPI_File_iread##form##_c(file, own, in, kEach, MPI_INT, &request), &request); \
      })
#define GMAC_SPLIT(form)                                                                    \
  by(                                                                                       \
      "MPI_File_write" #form "_begin_c and its read",                                       \
      [&] {                                                                                 \
        const int code = MPI_File_write##form##_begin_c(file, out, kEach, MPI_INT);         \
        return code != MPI_SUCCESS ? code : MPI_File_write##form##_end(file, out, &status); \
      },                                                                                    \
      [&] {                                                                                 \
        const int code = MPI_File_read##form##_begin_c(file, in, kEach, MPI_INT);           \
        return code != MPI_SUCCESS ? code : MPI_File_read##form##_end(file, in, &status);   \
      })
  GMAC_DIRECT();
  GMAC_DIRECT(_all);
  GMAC_DIRECT(_ordered);
  GMAC_DIRECT_AT(_at);
  GMAC_DIRECT_AT(_at_all);
  GMAC_LATER();
  GMAC_LATER(_all);
  GMAC_LATER_AT(_at);
  GMAC_LATER_AT(_at_all);
  GMAC_SPLIT(_all);
  GMAC_SPLIT(_ordered);
  by(
      "MPI_File_write_at_all_begin_c and its read",
      [&] {
        const int code = MPI_File_write_at_all_begin_c(file, own, out, kEach, MPI_INT);
        return code != MPI_SUCCESS ? code : MPI_File_write_at_all_end(file, out, &status);
      },
      [&] {
        const int code = MPI_File_read_at_all_begin_c(file, own, in, kEach, MPI_INT);
        return code != MPI_SUCCESS ? code : MPI_File_read_at_all_end(file, in, &status);
      });
  // By the common pointer each has what it has from whom comes first: one after the other.
  const auto inTurn = [&](const auto& call) {
    int code = MPI_SUCCESS;
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == rank) code = call();
      MPI_Barrier(MPI_COMM_WORLD);
    }
    return code;
  };
  by(
      "MPI_File_write_shared_c and its read",
      [&] {
        return inTurn([&] { return MPI_File_write_shared_c(file, out, kEach, MPI_INT, &status); });
      },
      [&] {
        return inTurn([&] { return MPI_File_read_shared_c(file, in, kEach, MPI_INT, &status); });
      });
  by(
      "MPI_File_iwrite_shared_c and its read",
      [&] {
        return inTurn([&] {
          return wait(MPI_File_iwrite_shared_c(file, out, kEach, MPI_INT, &request), &request);
        });
      },
      [&] {
        return inTurn([&] {
          return wait(MPI_File_iread_shared_c(file, in, kEach, MPI_INT, &request), &request);
        });
      });
  if (rank == 0) ::unlink(name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  other = 1 - rank;
  messages();
  collectives();
  packing();
  oneSided();
  files();
  MPI_Finalize();
  if (rank == 0) std::puts("large counts are right");
}
#else
int main() {}
#endif
