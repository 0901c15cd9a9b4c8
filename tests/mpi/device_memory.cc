// SPDX-License-Identifier: Apache-2.0
//
//   device_memory [ordered]
//
// MPI calls on device memory that random programs do not make. `ordered`: with the calls ordered
// after the work of the program's streams.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "tests/mpi/expect.h"
#include "tests/mpi/shared.h"
#include "tests/mpi/windows_here.h"

#ifdef OPEN_MPI  // whose mpi.h does not have it
extern "C" int MPIX_Query_cuda_support(void);
#endif

namespace {

using gmac::testing::expect;
using gmac::testing::expectSuccess;
using gmac::testing::Memory;
using gmac::testing::says;

int rank = 0;
bool pins = false;  // the runtime's device is the one whose memory is sent

bool allBytesAre(const Memory& memory, int value) {
  for (const unsigned char byte : memory.bytes()) {
    if (byte != value) return false;
  }
  return true;
}

constexpr int kBytes = 300'000;

void exchange(const Memory& sent, const Memory& received) {
  const auto bytes = static_cast<int>(sent.size());
  expectSuccess(MPI_Sendrecv(sent.address(), bytes, MPI_BYTE, 1 - rank, 1, received.address(),
                             bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
}

// The CPU's memory is told from a device's without a start of either side's.
void plainMemoryStartsNothing() {
  const Memory sent(Memory::Kind::kPlain, kBytes);
  const Memory received(Memory::Kind::kPlain, kBytes);
  std::memset(sent.data(), 7, kBytes);
  exchange(sent, received);
  expect(allBytesAre(received, 7), "plain memory arrives");
  if (gmac::testing::usesFakeDriver()) {
    expect(gmac::testing::deviceCalls("cuInit") == 0, "plain memory starts no CUDA");
  }
}

// By the engine, or by copies: neither reads the device's address.
void everyKindToEveryKind() {
  using Kind = Memory::Kind;
  constexpr std::array kKinds = {Kind::kPlain, Kind::kShared, Kind::kDevice, Kind::kPinned};
  unsigned char value = 0;
  for (const Kind from : kKinds) {
    for (const Kind to : kKinds) {
      const Memory sent(from, kBytes);
      const Memory received(to, kBytes);
      std::memset(sent.data(), ++value, kBytes);
      std::memset(received.data(), 99, kBytes);
      exchange(sent, received);
      expect(allBytesAre(received, value), "any kind of memory reaches any kind");
      expect(allBytesAre(sent, value), "and stays as it was");
    }
  }
}

// A copy to the device may return while it is under way on a default stream.
void comesAfterStreams(bool ordered, gmac::testing::StreamKind stream, std::size_t bytes) {
  const Memory sent(Memory::Kind::kDevice, bytes);
  const Memory received(Memory::Kind::kDevice, bytes);
  std::memset(sent.data(), 1, bytes);
  gmac::testing::fillLater(sent.address(), 2, bytes, stream);
  gmac::testing::fillLater(received.address(), 3, bytes, stream);
  exchange(sent, received);
  if (ordered || stream != gmac::testing::StreamKind::kOwn) {
    expect(allBytesAre(received, 2), "a call comes after the streams' work, on both sides");
  } else if (gmac::testing::usesFakeDriver()) {
    expect(allBytesAre(received, 1), "without that, the program synchronises");
  }
  gmac::testing::finishStreams();  // which write to memory that is freed here
}

// And no event or stream of the runtime's, on either side. Of 64 bytes: `count` elements at `from`.
void shortMessageTakesOneCopy(const char* what, int from, int count, MPI_Datatype type) {
  constexpr int kShort = 64;
  const Memory sent(Memory::Kind::kDevice, 2 * kShort);
  const Memory received(Memory::Kind::kDevice, 2 * kShort);
  for (int i = 0; i < 2 * kShort; ++i) sent.data()[i] = static_cast<unsigned char>(i + 1);
  std::memset(received.data(), 0, received.size());
  const auto calls = [] {
    using gmac::testing::deviceCalls;
    return std::array{deviceCalls("cuMemcpyDtoHAsync_v2"), deviceCalls("cuMemcpyHtoDAsync_v2"),
                      deviceCalls("cuStreamSynchronize"),
                      deviceCalls("cuEventRecord") + deviceCalls("cuStreamCreate") +
                          deviceCalls("cuStreamQuery") + deviceCalls("cuMemcpy3DAsync_v2")};
  };
  const auto before = calls();
  expectSuccess(MPI_Sendrecv(sent.address(), count, type, 1 - rank, 1, received.address(), count,
                             type, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                what);
  const auto after = calls();
  for (int i = 0; i < 2 * kShort; ++i) {
    const bool isOfMessage = i >= from && i < from + kShort;
    expect(received.data()[i] == (isOfMessage ? i + 1 : 0), what);
  }
  expect(after[0] == before[0] + 1 && after[1] == before[1] + 1 && after[2] == before[2] + 2 &&
             after[3] == before[3],
         what);
}

// Whatever type the one piece is of.
void shortMessagesTakeOneCopy(bool ordered) {
  if (!gmac::testing::usesFakeDriver() || ordered) return;
  shortMessageTakesOneCopy("64 bytes take one copy and one wait on each side", 0, 64, MPI_BYTE);
  MPI_Datatype eight;
  MPI_Datatype line;
  MPI_Datatype later;
  MPI_Type_contiguous(8, MPI_BYTE, &eight);
  MPI_Type_contiguous(4, eight, &line);
  MPI_Type_commit(&line);
  shortMessageTakesOneCopy("so do two elements of a contiguous type", 0, 2, line);
  const int length = 8;
  const int from = 3;  // of eight bytes each
  MPI_Type_indexed(1, &length, &from, eight, &later);
  MPI_Type_commit(&later);
  shortMessageTakesOneCopy("so does one piece that begins later", 24, 1, later);
  for (MPI_Datatype* type : {&eight, &line, &later}) MPI_Type_free(type);
}

// As many bytes as the type extends over, but not in the order in which they lie; and one piece an
// element, with gaps between the elements.
void whatIsNotOnePieceKeepsItsOrder() {
  const int lengths[] = {8, 8};
  const int places[] = {8, 0};
  MPI_Datatype swapped;
  MPI_Datatype eight;
  MPI_Datatype apart;
  MPI_Type_indexed(2, lengths, places, MPI_BYTE, &swapped);
  MPI_Type_contiguous(8, MPI_BYTE, &eight);
  MPI_Type_create_resized(eight, 0, 16, &apart);
  for (MPI_Datatype* type : {&swapped, &apart}) MPI_Type_commit(type);
  for (const Memory::Kind kind : {Memory::Kind::kDevice, Memory::Kind::kShared}) {
    const Memory sent(kind, 32);
    const Memory received(kind, 16);
    for (int i = 0; i < 32; ++i) sent.data()[i] = static_cast<unsigned char>(i);
    for (const MPI_Datatype type : {swapped, apart}) {
      expectSuccess(MPI_Sendrecv(sent.address(), type == swapped ? 1 : 2, type, 1 - rank, 1,
                                 received.address(), 16, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                                 MPI_STATUS_IGNORE),
                    "a message that is not one piece");
      for (int i = 0; i < 16; ++i) {
        const int at = type == swapped ? (i + 8) % 16 : i + i / 8 * 8;
        expect(received.data()[i] == at, "what is not one piece keeps its order");
      }
    }
  }
  for (MPI_Datatype* type : {&swapped, &eight, &apart}) MPI_Type_free(type);
}

// Whatever copies it.
void onePieceMayBeginLater() {
  constexpr int kFrom = 24;
  for (const int bytes : {64, kBytes}) {
    MPI_Datatype later;
    MPI_Type_indexed(1, &bytes, &kFrom, MPI_BYTE, &later);
    MPI_Type_commit(&later);
    for (const Memory::Kind kind : {Memory::Kind::kDevice, Memory::Kind::kShared}) {
      for (const bool flips : {false, true}) {
        const std::size_t size = std::size_t{kFrom} + static_cast<std::size_t>(bytes);
        const Memory sent(kind, size);
        const Memory received(kind, size);
        std::memset(sent.data(), 3, size);
        std::memset(sent.data() + kFrom, 4, static_cast<std::size_t>(bytes));
        std::memset(received.data(), 5, size);
        if (flips) {
          if (kind == Memory::Kind::kDevice) continue;
          sent.flip();  // the device has them now, and they are others
          received.flip();
        }
        expectSuccess(MPI_Sendrecv(sent.address(), 1, later, 1 - rank, 1, received.address(), 1,
                                   later, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                      "a message that begins later");
        const int flipped = flips ? gmac::testing::kMask : 0;
        for (std::size_t i = 0; i < size; ++i) {
          expect(received.data()[i] == ((i < std::size_t{kFrom} ? 5 : 4) ^ flipped),
                 "one piece that begins later arrives where it belongs");
        }
      }
    }
    MPI_Type_free(&later);
  }
}

// Only MPI packs it: a distributed array.
void arrayOfProcesses() {
  constexpr int kSide = 64;
  const std::array<int, 2> sizes = {kSide, kSide};
  const std::array<int, 2> kinds = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
  const std::array<int, 2> arguments = {3, MPI_DISTRIBUTE_DFLT_DARG};
  const std::array<int, 2> processes = {2, 1};
  MPI_Datatype type;
  MPI_Type_create_darray(2, rank, 2, sizes.data(), kinds.data(), arguments.data(), processes.data(),
                         MPI_ORDER_C, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  std::array<unsigned char, 2 * kSide * kSide> results[2];
  int which = 0;
  for (const Memory::Kind kind : {Memory::Kind::kPlain, Memory::Kind::kDevice}) {
    const Memory memory(kind, 2 * kSide * kSide);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory.data()[i] = static_cast<unsigned char>(i * 7);
    }
    std::array<unsigned char, kSide * kSide> packed{};
    MPI_Sendrecv(memory.address(), 1, type, rank, 2, packed.data(), bytes, MPI_BYTE, rank, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (unsigned char& byte : packed) byte ^= 1;
    MPI_Sendrecv(packed.data(), bytes, MPI_BYTE, rank, 3, memory.address() + kSide, 1, type, rank,
                 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    std::memcpy(results[which++].data(), memory.data(), memory.size());
  }
  expect(results[0] == results[1], "what only MPI packs is packed in device memory, too");
  MPI_Type_free(&type);
}

// The device fills and reads the private memory of large messages and collectives itself, from the
// second one on.
void privateMemoryIsPinned() {
  constexpr int kLarge = 2 << 20;
  const Memory sent(Memory::Kind::kDevice, 2 * kLarge);
  const Memory received(Memory::Kind::kDevice, 2 * kLarge);
  const std::array<int, 2> counts = {kLarge, kLarge};
  const std::array<int, 2> inBytes = {0, kLarge};
  const std::array<MPI_Datatype, 2> types = {MPI_BYTE, MPI_BYTE};
  for (int round = 0; round < 3; ++round) {
    std::memset(sent.data(), 40 + round, sent.size());
    const std::size_t before =
        gmac::testing::usesFakeDriver() ? gmac::testing::deviceCalls("cuMemHostRegister_v2") : 0;
    expectSuccess(MPI_Alltoallw(sent.address(), counts.data(), inBytes.data(), types.data(),
                                received.address(), counts.data(), inBytes.data(), types.data(),
                                MPI_COMM_WORLD),
                  "MPI_Alltoallw of device memory");
    expect(allBytesAre(received, 40 + round), "what MPI_Alltoallw moves arrives");
    if (gmac::testing::usesFakeDriver() && pins && round == 1) {
      expect(gmac::testing::deviceCalls("cuMemHostRegister_v2") > before,
             "the private memory of a collective is pinned when it is used again");
    }
  }
}

// Types of addresses.
void fromBottom() {
  const Memory first(Memory::Kind::kDevice, kBytes);
  const Memory second(Memory::Kind::kDevice, kBytes);
  const Memory plain(Memory::Kind::kPlain, kBytes);
  const Memory received(Memory::Kind::kPlain, std::size_t{2} * kBytes);
  std::memset(first.data(), 5, kBytes);
  std::memset(second.data(), 6, kBytes);
  const auto send = [&](const Memory& a, const Memory& b) {
    const int lengths[] = {kBytes, kBytes};
    MPI_Aint places[2];
    MPI_Get_address(a.address(), &places[0]);
    MPI_Get_address(b.address(), &places[1]);
    MPI_Datatype type;
    MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    const int code = MPI_Sendrecv(MPI_BOTTOM, 1, type, rank, 4, received.address(), 2 * kBytes,
                                  MPI_BYTE, rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    return code;
  };
  expectSuccess(send(first, second), "a type of addresses");
  expect(received.data()[0] == 5 && received.data()[kBytes] == 6, "a type of addresses finds them");
  for (const bool deviceFirst : {true, false}) {
    const int code = deviceFirst ? send(first, plain) : send(plain, first);
    expect(says(code, "in memory of a device and elsewhere"),
           "a type of several kinds of memory is refused");
  }
}

// By the engine, or by copies.
void windows() {
  const Memory memory(Memory::Kind::kDevice, kBytes);
  const Memory fetched(Memory::Kind::kDevice, kBytes);
  for (int i = 0; i < kBytes; ++i) {
    memory.data()[i] = static_cast<unsigned char>(i + 50 * rank);
  }
  MPI_Win window;
  expectSuccess(MPI_Win_create(memory.address(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window),
                "a window over device memory");
  void* base = nullptr;
  int found = 0;
  MPI_Win_get_attr(window, MPI_WIN_BASE, static_cast<void*>(&base), &found);
  expect(base == memory.address(), "its base is the device's address");
  MPI_Win_fence(0, window);
  MPI_Get(fetched.address(), kBytes, MPI_BYTE, 1 - rank, 0, kBytes, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  for (int i = 0; i < kBytes; ++i) {
    expect(fetched.data()[i] == static_cast<unsigned char>(i + 50 * (1 - rank)),
           "device memory is fetched from its window");
  }
  // More runs than are written one by one; and the owner's kernels write between them.
  MPI_Datatype every;
  MPI_Type_vector(kBytes / 4, 1, 4, MPI_BYTE, &every);
  MPI_Type_commit(&every);
  std::memset(fetched.data(), 77, kBytes);
  MPI_Put(fetched.address(), kBytes / 4, MPI_BYTE, 1 - rank, 1, 1, every, window);
  for (int i = 2; i < kBytes; i += 4) memory.data()[i] = 5;
  MPI_Win_fence(0, window);
  for (int i = 0; i < kBytes; ++i) {
    const auto before = static_cast<unsigned char>(i + 50 * rank);
    expect(memory.data()[i] == (i % 4 == 1   ? 77
                                : i % 4 == 2 ? 5
                                             : before),
           "what is put into device memory is there, and nothing else");
  }
  MPI_Type_free(&every);
  MPI_Win_free(&window);
}

void refusedWindows() {
  const Memory memory(Memory::Kind::kDevice, kBytes);
  MPI_Win window;
  MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  const int code = MPI_Win_attach(window, memory.address(), kBytes);
  MPI_Win_free(&window);
  expect(says(code, "MPI_Win_attach: the memory is a shared object's or a device's"),
         "device memory is not attached, and MPI_Win_attach says so");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const char* const accelerator = std::getenv("GMAC_ACCEL");
  const bool cuda = accelerator != nullptr && std::strcmp(accelerator, "cuda") == 0;
  gmac::testing::loadDriver();
  expect(MPIX_Query_cuda_support() == (cuda ? 1 : 0), "MPI says whether it takes CUDA's memory");
#ifdef MPIX_GPU_SUPPORT_CUDA
  int serves = -1;
  expect(MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &serves) == MPI_SUCCESS &&
             serves == (cuda ? 1 : 0),
         "so does MPICH's function for any GPU");
#endif
  pins = cuda;
  plainMemoryStartsNothing();
  expect(gmac::testing::startDevice(), "a build with CUDA");
  everyKindToEveryKind();
  const bool ordered = argc > 1 && std::strcmp(argv[1], "ordered") == 0;
  using gmac::testing::StreamKind;
  for (const StreamKind stream : {StreamKind::kOwn, StreamKind::kDefault, StreamKind::kThreads}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4096}, std::size_t{kBytes}})
      comesAfterStreams(ordered, stream, bytes);
  }
  shortMessagesTakeOneCopy(ordered);
  whatIsNotOnePieceKeepsItsOrder();
  onePieceMayBeginLater();
  arrayOfProcesses();
  privateMemoryIsPinned();
  fromBottom();
  if (gmac::testing::windowsHere(rank == 0)) {
    windows();
    refusedWindows();
  }
  MPI_Finalize();
  if (rank == 0) std::puts("device memory is right");
}
