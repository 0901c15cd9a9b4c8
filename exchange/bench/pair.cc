// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/pair.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exchange/bench/mpi_types.h"
#include "exchange/job.h"
#include "gmac/datatype/cpu/cpu_engine.h"

namespace gmac::exchange::bench {
namespace {

constexpr std::int64_t kBytesOfATurn = std::int64_t{8} << 20;

[[noreturn]] void fails(const char* what) {
  throw std::runtime_error(fmt::format("{}: {}", what, lastErrorText()));
}

template <typename T>
T valueOf(Result<T> result, const char* what) {
  if (!result.ok()) fails(what);
  return std::move(*result);
}

// To its end. As MPI waits: with the processor, at first, though others may want it.
template <typename Message>
void advance(Message& message, const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  while (!valueOf(message.advance(), what)) {
    if (Clock::now() - start > std::chrono::milliseconds(1)) ::sched_yield();
  }
}

std::byte valueAt(std::int64_t packed, int sender) {
  return static_cast<std::byte>(packed * 7 + packed / 251 + sender * 101 + 1);
}
constexpr std::byte kUntouched{0xEE};

}  // namespace

const char* wayName(Way way) {
  switch (way) {
    case Way::kMpi:
      return "MPI";
    case Way::kByHand:
      return "by hand";
    case Way::kChosen:
      return "chosen";
    case Way::kPlain:
      return "plain";
    case Way::kMapped:
      return "mapped";
    case Way::kRead:
      return "read";
    case Way::kRing:
      return "ring";
  }
  return "";
}

// A memory file, mapped, all pages there.
class Pair::Memory {
 public:
  explicit Memory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    bytes_ = (bytes_ + page - 1) / page * page;
    file_ = ::memfd_create("transfers", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0) {
      throw std::runtime_error(
          fmt::format("a memory file of {} bytes: {}", bytes_, std::strerror(errno)));
    }
    void* const data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(file_);
      throw std::runtime_error(
          fmt::format("cannot map {} bytes: {}", bytes_, std::strerror(error)));
    }
    data_ = static_cast<std::byte*>(data);
    std::fill(data_, data_ + bytes_, kUntouched);
  }
  ~Memory() {
    ::munmap(data_, bytes_);
    ::close(file_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int file() const { return file_; }

 private:
  std::size_t bytes_;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

Pair::Pair() {
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    throw std::runtime_error(fmt::format("{} processes; there have to be 2: mpirun -n 2", size));
  }
  std::array<unsigned, 4> key{};
  std::random_device random;
  std::generate(key.begin(), key.end(), std::ref(random));
  MPI_Bcast(key.data(), static_cast<int>(sizeof key), MPI_BYTE, 0, MPI_COMM_WORLD);
  exchange_ = valueOf(Exchange::open({.key = fmt::format("{:08x}{:08x}{:08x}{:08x}", key[0], key[1],
                                                         key[2], key[3]),
                                      .rank = rank_,
                                      .size = size}),
                      "the exchange does not open");
  MPI_Barrier(MPI_COMM_WORLD);
  exchange_->meet(rank_, size);
  if (!inBoth(exchange_->reaches(1 - rank_))) {
    throw std::runtime_error("the two processes do not reach each other: are they on one host?");
  }
}

Pair::~Pair() {
  if (from_ != MPI_DATATYPE_NULL) MPI_Type_free(&from_);
  if (to_ != MPI_DATATYPE_NULL) MPI_Type_free(&to_);
}

bool Pair::inBoth(bool mine) const {
  int all = mine ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}

void Pair::use(const Workload& workload) {
  if (file_ != kNoExport) {
    (void)valueOf(exchange_->revoke(file_), "the memory file is not revoked");
  }
  if (from_ != MPI_DATATYPE_NULL) MPI_Type_free(&from_);
  if (to_ != MPI_DATATYPE_NULL) MPI_Type_free(&to_);
  workload_ = &workload;
  paths_ = {};
  from_ = typeOf(workload.from);
  to_ = typeOf(workload.to);
  shared_ = shareLayout(workload.from);
  source_ = std::make_unique<Memory>(workload.from.bounds().last);
  target_ = std::make_unique<Memory>(workload.to.bounds().last);
  packed_ = std::make_unique<std::byte[]>(static_cast<std::size_t>(workload.from.bytes()));
  workload.from.forEach(0, workload.from.bytes(),
                        [&](std::int64_t offset, std::int64_t packed, std::int64_t bytes) {
                          for (std::int64_t i = 0; i < bytes; ++i) {
                            source_->data()[offset + i] = valueAt(packed + i, rank_);
                          }
                        });
  file_ = valueOf(exchange_->exportFile(source_->file(), 0, source_->bytes()),
                  "the memory file is not exported");
  if (!exchange_->offer(file_, 1 - rank_).ok()) fails("the memory file is not offered");
  MPI_Barrier(MPI_COMM_WORLD);
}

void Pair::send(Way way) {
  const int to = 1 - rank_;
  const auto bytes = static_cast<int>(workload_->from.bytes());
  if (way == Way::kMpi) {
    MPI_Send(source_->data(), 1, from_, to, 0, MPI_COMM_WORLD);
    return;
  }
  if (way == Way::kByHand) {
    datatype::pack(workload_->from, packed_.get(), source_->data(), 0, bytes);
    MPI_Send(packed_.get(), bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD);
    return;
  }
  SendOptions options;
  if (way == Way::kChosen || way == Way::kMapped) options.file = file_;
  if (way == Way::kMapped) options.path = Path::kMapped;
  if (way == Way::kRead) options.path = Path::kRead;
  if (way == Way::kRing) options.path = Path::kRing;
  Sending message = valueOf(exchange_->send(to, source_->data(), shared_, options), "send");
  std::array<std::byte, kDescriptionBytes> description;
  message.describe(description);
  MPI_Send(description.data(), static_cast<int>(description.size()), MPI_BYTE, to, 0,
           MPI_COMM_WORLD);
  advance(message, "sending");
}

void Pair::receive(Way way) {
  const int from = 1 - rank_;
  const auto bytes = static_cast<int>(workload_->to.bytes());
  if (way == Way::kMpi) {
    MPI_Recv(target_->data(), 1, to_, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  if (way == Way::kByHand) {
    MPI_Recv(packed_.get(), bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    datatype::unpack(workload_->to, target_->data(), packed_.get(), 0, bytes);
    return;
  }
  std::array<std::byte, kDescriptionBytes> description;
  MPI_Recv(description.data(), static_cast<int>(description.size()), MPI_BYTE, from, 0,
           MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  Receiving message =
      valueOf(exchange_->receive(from, description, target_->data(), workload_->to), "receive");
  advance(message, "receiving");
  paths_[static_cast<std::size_t>(way)] = message.path();
}

bool Pair::arrives(Way way) {
  std::fill(target_->data(), target_->data() + target_->bytes(), kUntouched);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 0) send(way);
  receive(way);
  if (rank_ == 1) send(way);
  bool right = true;
  std::int64_t touched = 0;
  workload_->to.forEach(0, workload_->to.bytes(),
                        [&](std::int64_t offset, std::int64_t packed, std::int64_t bytes) {
                          for (std::int64_t i = 0; i < bytes; ++i) {
                            const std::byte value = target_->data()[offset + i];
                            right = right && value == valueAt(packed + i, 1 - rank_);
                            touched += value != kUntouched ? 1 : 0;
                          }
                        });
  const std::int64_t changed =
      static_cast<std::int64_t>(target_->bytes()) -
      std::count(target_->data(), target_->data() + target_->bytes(), kUntouched);
  return right && changed == touched;
}

double Pair::seconds(Way way) {
  const auto times = std::clamp<std::int64_t>(
      kBytesOfATurn / std::max<std::int64_t>(workload_->from.bytes(), 1), 2, 100);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < times; ++i) {
    if (rank_ == 0) send(way);
    receive(way);
    if (rank_ == 1) send(way);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(times) / 2;
}

}  // namespace gmac::exchange::bench
