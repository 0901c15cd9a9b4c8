// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/devices/device_pair.h"

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "exchange/bench/layouts.h"
#include "exchange/bench/mpi_types.h"

namespace gmac::exchange::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBytesOfATurn = 64 * kMiB;
constexpr std::int64_t kMostTimes = 50;
// A copy for each of more pieces takes a tenth of a second for one message.
constexpr std::size_t kMostCopies = 32768;
// With a kernel for each way: from there on their words are numbered with 32 bits.
constexpr std::int64_t kMostWords = std::int64_t{1} << 31;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    throw std::runtime_error(fmt::format("{}: {}", what, cudaGetErrorString(error)));
  }
}

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::byte valueAt(std::int64_t packed, int sender) {
  return static_cast<std::byte>(packed * 7 + packed / 251 + sender * 101 + 1);
}
constexpr std::byte kUntouched{0xEE};

}  // namespace

const char* wayName(Way way) {
  switch (way) {
    case Way::kGmac:
      return "gmac";
    case Way::kWire:
      return "wire";
    case Way::kByHand:
      return "by hand";
    case Way::kCopies:
      return "copies";
    case Way::kWarps:
      return "warps";
    case Way::kFused:
      return "fused";
  }
  return "";
}

class DevicePair::DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t bytes) {
    check(cudaMalloc(&memory_, static_cast<std::size_t>(bytes)), "cudaMalloc");
  }
  ~DeviceMemory() { (void)cudaFree(memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
};

DevicePair::DevicePair(std::int64_t bytes) {
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != 2) {
    throw std::runtime_error(fmt::format("{} processes; there have to be 2: mpirun -n 2", size));
  }
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  oneGpu_ = devices < 2;
  check(cudaSetDevice(rank_ % devices), "cudaSetDevice");
  std::string why;
  gpu_ = datatypes::openGpu(why);
  if (gpu_ == nullptr) throw std::runtime_error(why);
  gpuName_ = gpu_->name();
  source_ = std::make_unique<DeviceMemory>(bytes);
  target_ = std::make_unique<DeviceMemory>(bytes);
  packed_ = std::make_unique<DeviceMemory>(bytes);
  (void)gpu_->target(datatypes::Place::kPinned, bytes);
  openOther();
}

DevicePair::~DevicePair() {
  release();
  if (other_ != nullptr) (void)cudaIpcCloseMemHandle(const_cast<std::byte*>(other_));
}

void DevicePair::openOther() {
  cudaIpcMemHandle_t mine{};
  cudaIpcMemHandle_t theirs{};
  cudaError_t error = cudaIpcGetMemHandle(&mine, source_->get());
  MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, 1 - rank_, 0, &theirs, sizeof theirs, MPI_BYTE,
               1 - rank_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  void* other = nullptr;
  if (inBoth(error == cudaSuccess)) {
    error = cudaIpcOpenMemHandle(&other, theirs, cudaIpcMemLazyEnablePeerAccess);
  }
  if (!inBoth(error == cudaSuccess)) {
    (void)cudaGetLastError();
    whyNoHandles_ = error != cudaSuccess ? cudaGetErrorString(error) : "the other process has none";
    return;
  }
  other_ = static_cast<const std::byte*>(other);
}

bool DevicePair::inBoth(bool mine) const {
  int all = mine ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}

void DevicePair::release() {
  if (std::exchange(occupied_, false)) gpu_->userRelease();
  if (from_ != MPI_DATATYPE_NULL) MPI_Type_free(&from_);
  if (to_ != MPI_DATATYPE_NULL) MPI_Type_free(&to_);
}

// On the stream that all ways use: other work on the GPU is not waited for.
void DevicePair::write(const DeviceMemory& to, const void* from, std::size_t bytes) {
  gpu_->copy(to.get(), from, static_cast<std::int64_t>(bytes));
  gpu_->synchronize();
}

void DevicePair::placeTable(Shape& shape, std::unique_ptr<DeviceMemory>& table) {
  if (shape.table.empty()) return;
  const std::size_t bytes = shape.table.size() * sizeof(std::uint32_t);
  table = std::make_unique<DeviceMemory>(static_cast<std::int64_t>(bytes));
  write(*table, shape.table.data(), bytes);
  shape.place.table = reinterpret_cast<const std::uint32_t*>(table->get());
}

void DevicePair::use(const Message& message) {
  release();
  message_ = &message;
  packing_ = unpacking_ = sentByHand_ = 0;
  from_ = typeOf(message.from);
  to_ = typeOf(message.to);
  wordBytes_ = wordOf(message.from, message.to);
  fromShape_ = shapeOf(message.from, wordBytes_);
  toShape_ = shapeOf(message.to, wordBytes_);
  if (fromShape_.has_value()) placeTable(*fromShape_, fromTable_);
  if (toShape_.has_value()) placeTable(*toShape_, toTable_);
  pieces_ = piecesOf(message.from, message.to);
  const std::size_t bytes = pieces_.size() * sizeof(Piece);
  devicePieces_ = std::make_unique<DeviceMemory>(static_cast<std::int64_t>(bytes));
  write(*devicePieces_, pieces_.data(), bytes);
  image_.assign(static_cast<std::size_t>(message.from.bounds().last), kUntouched);
  message.from.forEach(
      0, message.from.bytes(), [&](std::int64_t offset, std::int64_t packed, std::int64_t length) {
        for (std::int64_t i = 0; i < length; ++i) {
          image_[static_cast<std::size_t>(offset + i)] = valueAt(packed + i, rank_);
        }
      });
  write(*source_, image_.data(), image_.size());
  image_.resize(static_cast<std::size_t>(message.to.bounds().last));
  if (message.busy > 0) {
    // The rest has to be there for the kernels that are measured.
    const int all = gpu_->multiprocessors();
    gpu_->userOccupy(std::min(all - 1, static_cast<int>(message.busy * all)));
    occupied_ = true;
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

bool DevicePair::can(Way way) const {
  const bool fits = wordBytes_ >= 4 && message_->from.bytes() / wordBytes_ < kMostWords;
  const bool limited = message_->blocks > 0;
  switch (way) {
    case Way::kGmac:
    case Way::kWire:
      return !limited;
    case Way::kByHand:
      return !limited && fits && fromShape_.has_value() && toShape_.has_value();
    case Way::kCopies:
      return !limited && other_ != nullptr && pieces_.size() <= kMostCopies;
    case Way::kWarps:
      return other_ != nullptr;
    case Way::kFused:
      return other_ != nullptr && fits && fromShape_.has_value() && toShape_.has_value();
  }
  return false;
}

void DevicePair::sendByHand() {
  const std::int64_t bytes = message_->from.bytes();
  const auto start = Clock::now();
  std::byte* const pinned = gpu_->target(datatypes::Place::kPinned, bytes);
  const std::byte* packed = source_->get() + fromShape_->place.offset * wordBytes_;
  if (fromShape_->place.kind != Place::Kind::kLine) {
    moveWords({}, packed_->get(), fromShape_->place, source_->get(), bytes / wordBytes_, wordBytes_,
              gpu_->stream());
    packed = packed_->get();
  }
  gpu_->copy(pinned, packed, bytes);
  gpu_->synchronize();
  packing_ += secondsSince(start);
  sentByHand_ += 1;
  MPI_Send(pinned, static_cast<int>(bytes), MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD);
}

void DevicePair::receiveByHand() {
  const std::int64_t bytes = message_->to.bytes();
  std::byte* const pinned = gpu_->target(datatypes::Place::kPinned, bytes);
  MPI_Recv(pinned, static_cast<int>(bytes), MPI_BYTE, 1 - rank_, 0, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
  const auto start = Clock::now();
  if (toShape_->place.kind == Place::Kind::kLine) {
    gpu_->copy(target_->get() + toShape_->place.offset * wordBytes_, pinned, bytes);
  } else {
    gpu_->copy(packed_->get(), pinned, bytes);
    moveWords(toShape_->place, target_->get(), {}, packed_->get(), bytes / wordBytes_, wordBytes_,
              gpu_->stream());
  }
  gpu_->synchronize();
  unpacking_ += secondsSince(start);
}

void DevicePair::load(Way way) {
  if (way == Way::kCopies) {
    for (const Piece& piece : pieces_) {
      gpu_->copy(target_->get() + piece.to, other_ + piece.from, piece.bytes);
    }
  } else if (way == Way::kWarps) {
    movePieces(reinterpret_cast<const Piece*>(devicePieces_->get()),
               static_cast<std::int64_t>(pieces_.size()), target_->get(), other_, gpu_->stream(),
               message_->blocks);
  } else {
    moveWords(toShape_->place, target_->get(), fromShape_->place, other_,
              message_->from.bytes() / wordBytes_, wordBytes_, gpu_->stream(), message_->blocks);
  }
  gpu_->synchronize();
}

void DevicePair::send(Way way) {
  const int to = 1 - rank_;
  if (way == Way::kGmac) {
    MPI_Send(source_->get(), 1, from_, to, 0, MPI_COMM_WORLD);
  } else if (way == Way::kWire) {
    MPI_Ssend(source_->get(), 1, from_, to, 0, MPI_COMM_WORLD);
  } else if (way == Way::kByHand) {
    sendByHand();
  } else {
    const char ready = 1;
    MPI_Send(&ready, 1, MPI_CHAR, to, 0, MPI_COMM_WORLD);
  }
}

void DevicePair::receive(Way way) {
  const int from = 1 - rank_;
  if (way == Way::kGmac || way == Way::kWire) {
    MPI_Recv(target_->get(), 1, to_, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (way == Way::kByHand) {
    receiveByHand();
  } else {
    char ready = 0;
    MPI_Recv(&ready, 1, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    load(way);
  }
}

bool DevicePair::arrives(Way way) {
  std::fill(image_.begin(), image_.end(), kUntouched);
  write(*target_, image_.data(), image_.size());
  MPI_Barrier(MPI_COMM_WORLD);
  // Twice: by the first message of an allocation gmac comes to know it.
  for (int i = 0; i < 2; ++i) {
    if (rank_ == 0) send(way);
    receive(way);
    if (rank_ == 1) send(way);
  }
  gpu_->copy(image_.data(), target_->get(), static_cast<std::int64_t>(image_.size()));
  gpu_->synchronize();
  bool right = true;
  message_->to.forEach(0, message_->to.bytes(),
                       [&](std::int64_t offset, std::int64_t packed, std::int64_t bytes) {
                         for (std::int64_t i = 0; i < bytes; ++i) {
                           std::byte& value = image_[static_cast<std::size_t>(offset + i)];
                           right = right && value == valueAt(packed + i, 1 - rank_);
                           value = kUntouched;
                         }
                       });
  return right && std::all_of(image_.begin(), image_.end(),
                              [](std::byte value) { return value == kUntouched; });
}

double DevicePair::seconds(Way way) {
  const bool slow = way == Way::kWire || way == Way::kByHand || way == Way::kCopies;
  const std::int64_t most = slow ? kMostTimes / 5 : kMostTimes;
  const std::int64_t bytes = std::max<std::int64_t>(message_->from.bytes(), 1);
  const std::int64_t times =
      std::clamp<std::int64_t>(kBytesOfATurn / bytes / (slow ? 8 : 1), 1, most);
  MPI_Barrier(MPI_COMM_WORLD);
  auto start = Clock::now();
  for (std::int64_t i = -1; i < times; ++i) {
    if (i == 0) start = Clock::now();  // after a round that is not counted: addresses are looked up
    if (rank_ == 0) send(way);
    receive(way);
    if (rank_ == 1) send(way);
  }
  return secondsSince(start) / static_cast<double>(times) / 2;
}

}  // namespace gmac::exchange::bench
