// SPDX-License-Identifier: Apache-2.0
//
// The gain of tickets where both buffers are device memory (cuMemAlloc), where both are a pool's
// (cuMemAllocAsync), which no other process reaches, and where both are shared objects that are
// current on the device: messages from rank 0 to rank 1 and back, 8 B to 1 GiB in one piece, and 64
// KiB to 64 MiB in rows, in ways that take turns:
//   wire    MPI_Ssend, which is never a ticket: packed, sent by MPI, unpacked
//   send    MPI_Send, by what tickets choose
//   left    MPI_Isend and MPI_Wait: the same of a sender that may be in another call meanwhile
//   isend   MPI_Isend, MPI_Irecv and MPI_Waitall, both ways at once
// and of those of 64 KiB and less in one piece:
//   hand    cuMemcpyDtoH, MPI_Send and MPI_Recv of the CPU's memory, cuMemcpyHtoD, and a wait for
//   it plain   MPI_Send of the CPU's memory alone
// Microseconds and GB/s of one way, and how many times as fast as the wire. Bytes are checked once
// for each row. Ranks take the GPUs in turn, or share one.
//   mpirun -n 2 gmac run --mpi -- device_rate [rounds [row [bytes]]]
// Row: the beginning of a row's name, as "rows" or "object contiguous"; bytes: of its messages.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

int rounds = 11;
std::string onlyRow;
int onlyBytes = 0;
int rank = 0;

// ---- CUDA's driver, which is found when the program runs.

using Address = unsigned long long;
int (*cuMemAlloc)(Address*, std::size_t) = nullptr;
int (*cuMemAllocAsync)(Address*, std::size_t, void*) = nullptr;
int (*cuMemFree)(Address) = nullptr;
int (*cuMemcpyHtoD)(Address, const void*, std::size_t) = nullptr;
int (*cuMemcpyDtoH)(void*, Address, std::size_t) = nullptr;
int (*cuStreamSynchronize)(void*) = nullptr;
// gmac's, which comes before the program. What CUDA copies to an object is current on the device.
void* (*adsmAlloc)(std::size_t) = nullptr;
int (*adsmFree)(void*) = nullptr;

[[noreturn]] void give(const char* why) {
  std::fprintf(stderr, "device_rate: %s\n", why);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}
void require(bool holds, const char* what) {
  if (!holds) give(what);
}

// (The names of the driver's newer versions of them.)
void openDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) give("there is no CUDA driver");
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) give(name);
  };
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*push)(void*) = nullptr;
  find(init, "cuInit");
  find(count, "cuDeviceGetCount");
  find(retain, "cuDevicePrimaryCtxRetain");
  find(push, "cuCtxPushCurrent_v2");
  find(cuMemAlloc, "cuMemAlloc_v2");
  find(cuMemAllocAsync, "cuMemAllocAsync");
  find(cuMemFree, "cuMemFree_v2");
  find(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  find(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  find(cuStreamSynchronize, "cuStreamSynchronize");
  adsmAlloc = reinterpret_cast<decltype(adsmAlloc)>(dlsym(RTLD_DEFAULT, "adsmAlloc"));
  adsmFree = reinterpret_cast<decltype(adsmFree)>(dlsym(RTLD_DEFAULT, "adsmFree"));
  require(adsmAlloc != nullptr && adsmFree != nullptr, "mpirun -n 2 gmac run --mpi -- device_rate");
  int devices = 0;
  void* context = nullptr;
  require(init(0) == 0 && count(&devices) == 0 && devices > 0, "cuInit");
  require(retain(&context, rank % devices) == 0 && push(context) == 0, "a context");
}

// ---- Messages.

using Send = decltype(&MPI_Send);

enum class Kind { kDevice, kPool, kObject };
const char* kindName(Kind kind) {
  return kind == Kind::kObject ? "object" : kind == Kind::kPool ? "pool" : "device";
}

Address allocate(Kind kind, std::size_t bytes) {
  Address memory = 0;
  if (kind == Kind::kObject) {
    memory = reinterpret_cast<Address>(adsmAlloc(bytes));
    require(memory != 0, "adsmAlloc");
  } else if (kind == Kind::kPool) {
    require(cuMemAllocAsync(&memory, bytes, nullptr) == 0, "cuMemAllocAsync");
    require(cuStreamSynchronize(nullptr) == 0, "a wait");
  } else {
    require(cuMemAlloc(&memory, bytes) == 0, "cuMemAlloc");
  }
  const std::vector<unsigned char> zeros(bytes, 0);
  require(cuMemcpyHtoD(memory, zeros.data(), bytes) == 0, "cuMemcpyHtoD");
  return memory;
}

void release(Kind kind, Address memory) {
  if (kind == Kind::kObject) {
    require(adsmFree(reinterpret_cast<void*>(memory)) == 0, "adsmFree");
  } else {
    require(cuMemFree(memory) == 0, "cuMemFree");
  }
}

struct Row {
  const char* name;
  int block;  // bytes; 0: one piece
  int bytes;
};

MPI_Datatype makeType(const Row& row) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  if (row.block == 0) {
    MPI_Type_contiguous(row.bytes, MPI_BYTE, &type);
  } else {
    MPI_Type_vector(row.bytes / row.block, row.block, 2 * row.block, MPI_BYTE, &type);
  }
  MPI_Type_commit(&type);
  return type;
}

int timesOf(int bytes) { return std::clamp((256 << 20) / bytes, bytes > 256 << 20 ? 3 : 10, 200); }

int leave(const void* memory, int count, MPI_Datatype type, int destination, int tag,
          MPI_Comm communicator) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(memory, count, type, destination, tag, communicator, &request);
  return MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// Seconds of one way, of `times` messages each way.
template <typename SendOne, typename ReceiveOne>
double oneWay(int times, const SendOne& send, const ReceiveOne& receive) {
  MPI_Barrier(MPI_COMM_WORLD);
  auto start = std::chrono::steady_clock::now();
  for (int i = -1; i < times; ++i) {
    if (i == 0) start = std::chrono::steady_clock::now();  // after a round that is not counted
    if (rank == 0) send();
    receive();
    if (rank == 1) send();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / times / 2;
}

double pingPong(Send send, void* memory, int bytes, MPI_Datatype type) {
  // (The wire takes 50 times as long.)
  const int times =
      send == &MPI_Ssend ? std::max(std::min(timesOf(bytes), 40) / 4, 1) : timesOf(bytes);
  return oneWay(
      times, [&] { send(memory, 1, type, 1 - rank, 0, MPI_COMM_WORLD); },
      [&] { MPI_Recv(memory, 1, type, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); });
}

// What a program does that knows of no other way. `device`: 0: the CPU's memory alone.
double byHand(Address device, std::vector<unsigned char>& cpu) {
  const int bytes = static_cast<int>(cpu.size());
  return oneWay(
      timesOf(bytes),
      [&] {
        if (device != 0) require(cuMemcpyDtoH(cpu.data(), device, cpu.size()) == 0, "a copy");
        MPI_Send(cpu.data(), bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
      },
      [&] {
        MPI_Recv(cpu.data(), bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (device == 0) return;
        require(cuMemcpyHtoD(device, cpu.data(), cpu.size()) == 0, "a copy");
        require(cuStreamSynchronize(nullptr) == 0, "a wait");
      });
}

double bothWays(void* memory, void* other, int bytes, MPI_Datatype type) {
  const int times = timesOf(bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  auto start = std::chrono::steady_clock::now();
  for (int i = -1; i < times; ++i) {
    if (i == 0) start = std::chrono::steady_clock::now();
    std::array<MPI_Request, 2> requests{};
    MPI_Irecv(other, 1, type, 1 - rank, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(memory, 1, type, 1 - rank, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / times;
}

unsigned char byteAt(std::size_t at) { return static_cast<unsigned char>(at * 7 + at / 251); }

// One message that arrives where all was zero.
void check(const Row& row, Address memory, std::size_t span, MPI_Datatype type) {
  std::vector<unsigned char> bytes(span, 0);
  if (rank == 0) {
    for (std::size_t at = 0; at < span; ++at) bytes[at] = byteAt(at);
  }
  require(cuMemcpyHtoD(memory, bytes.data(), span) == 0, "cuMemcpyHtoD");
  void* const address = reinterpret_cast<void*>(memory);
  // (Twice: the first one may be how the receiver comes to know the memory.)
  for (int i = 0; i < 2; ++i) {
    if (rank == 0) MPI_Send(address, 1, type, 1, 1, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(address, 1, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  if (rank == 0) return;
  require(cuMemcpyDtoH(bytes.data(), memory, span) == 0, "cuMemcpyDtoH");
  for (std::size_t at = 0; at < span; ++at) {
    const bool sent = row.block == 0 || at / static_cast<std::size_t>(row.block) % 2 == 0;
    if (bytes[at] != (sent ? byteAt(at) : 0)) give("wrong bytes");
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool isWanted(Kind kind, const Row& row) {
  const std::string name = row.name;
  return (name.starts_with(onlyRow) || (kindName(kind) + (" " + name)).starts_with(onlyRow)) &&
         (onlyBytes == 0 || onlyBytes == row.bytes);
}

void measure(Kind kind, const Row& row) {
  if (!isWanted(kind, row)) return;
  MPI_Datatype type = makeType(row);
  const std::size_t span = static_cast<std::size_t>(row.bytes) * (row.block == 0 ? 1 : 2);
  const Address memory = allocate(kind, span);
  const Address other = allocate(kind, span);
  check(row, memory, span, type);
  void* const address = reinterpret_cast<void*>(memory);
  const bool isShort = kind == Kind::kDevice && row.block == 0 && row.bytes <= 64 << 10;
  std::vector<unsigned char> cpu(isShort ? static_cast<std::size_t>(row.bytes) : 0);
  std::array<std::vector<double>, 6> seconds;
  for (int round = 0; round < rounds; ++round) {
    seconds[0].push_back(pingPong(&MPI_Ssend, address, row.bytes, type));
    seconds[1].push_back(pingPong(&MPI_Send, address, row.bytes, type));
    seconds[2].push_back(bothWays(address, reinterpret_cast<void*>(other), row.bytes, type));
    seconds[5].push_back(pingPong(&leave, address, row.bytes, type));
    if (!isShort) continue;
    seconds[3].push_back(byHand(memory, cpu));
    seconds[4].push_back(byHand(0, cpu));
  }
  if (rank == 0) {
    const double wire = median(seconds[0]);
    const double sent = median(seconds[1]);
    const double both = median(seconds[2]);
    const double left = median(seconds[5]);
    const auto rate = [&](double one) { return row.bytes / one / 1e9; };
    std::printf(
        "%-6s %-13s %9d B: wire %9.1f us %7.2f GB/s; send %9.1f us %7.2f GB/s, ratio %5.2f; left "
        "%9.1f us %7.2f GB/s; isend %9.1f us %7.2f GB/s",
        kindName(kind), row.name, row.bytes, wire * 1e6, rate(wire), sent * 1e6, rate(sent),
        wire / sent, left * 1e6, rate(left), both * 1e6, rate(both));
    if (isShort) {
      std::printf("; hand %6.1f us; plain %6.1f us", median(seconds[3]) * 1e6,
                  median(seconds[4]) * 1e6);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  release(kind, memory);
  release(kind, other);
  MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1) rounds = std::max(1, std::atoi(argv[1]));
  if (argc > 2) onlyRow = argv[2];
  if (argc > 3) onlyBytes = std::atoi(argv[3]);
  if (size != 2) give("mpirun -n 2 gmac run --mpi -- device_rate");
  openDriver();
  for (const Kind kind : {Kind::kDevice, Kind::kPool, Kind::kObject}) {
    for (const int bytes : {8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
                            16 << 20, 64 << 20, 256 << 20, 1 << 30}) {
      measure(kind, {"contiguous", 0, bytes});
    }
    for (const int bytes : {4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
      measure(kind, {"rows of 8 B", 8, bytes});
    }
    measure(kind, {"rows of 64 B", 64, 64 << 20});
    for (const int bytes : {64 << 10, 1 << 20, 64 << 20}) {
      measure(kind, {"rows of 1 KiB", 1024, bytes});
    }
  }
  MPI_Finalize();
}
