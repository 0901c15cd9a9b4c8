// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_EXCHANGE_BENCH_DEVICES_DEVICE_PAIR_H_
#define GMAC_EXCHANGE_BENCH_DEVICES_DEVICE_PAIR_H_

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datatypes/gpu.h"
#include "exchange/bench/devices/kernels.h"
#include "exchange/bench/devices/messages.h"
#include "exchange/bench/devices/shapes.h"

namespace gmac::exchange::bench {

// How a message goes from one device memory to the other. In the last three the receiver does it
// all, over CUDA's interprocess handle of the sender's memory; MPI carries one byte that says that
// the sender is ready.
enum class Way {
  kGmac,    // MPI_Send and MPI_Recv of the datatypes
  kWire,    // MPI_Ssend of them, which gmac packs and sends by MPI's own wire
  kByHand,  // packed by a kernel, copied to the CPU, sent by MPI, copied and unpacked
  kCopies,  // a copy for each piece
  kWarps,   // FALCON-X: a kernel with a warp for each piece
  kFused,   // a kernel for this pair of layouts
};
inline constexpr std::array kWays = {Way::kGmac,   Way::kWire,  Way::kByHand,
                                     Way::kCopies, Way::kWarps, Way::kFused};
const char* wayName(Way way);

// This process and the other one of an MPI job of two, and the GPU of each. Throws
// std::runtime_error; the other process then waits for ever, so end the job. Every call is one of
// both processes, but for accessors.
class DevicePair {
 public:
  // Memory for messages whose sides lie within `bytes`.
  explicit DevicePair(std::int64_t bytes);
  ~DevicePair();
  DevicePair(const DevicePair&) = delete;
  DevicePair& operator=(const DevicePair&) = delete;

  int rank() const { return rank_; }
  const std::string& gpu() const { return gpuName_; }
  bool oneGpu() const { return oneGpu_; }
  // Why the ways over interprocess handles cannot be measured; "": they can.
  const std::string& whyNoHandles() const { return whyNoHandles_; }

  // The message of the calls below; other work keeps its share of the GPUs busy until the next one.
  void use(const Message& message);
  // Whether this way can send it. The same answer in both processes.
  bool can(Way way) const;
  // Sends it there and back once; whether all bytes arrived, here, and no others changed.
  bool arrives(Way way);
  // Seconds of one way: half of there and back.
  double seconds(Way way);
  // Of the messages sent by hand since use(), on average: packing and copying to the CPU, at the
  // sender, and copying and unpacking, at the receiver. Seconds.
  double packing() const { return packing_ / sentByHand_; }
  double unpacking() const { return unpacking_ / sentByHand_; }
  bool inBoth(bool mine) const;

 private:
  class DeviceMemory;

  void send(Way way);
  void receive(Way way);
  void sendByHand();
  void receiveByHand();
  void load(Way way);
  void openOther();
  void release();
  void write(const DeviceMemory& to, const void* from, std::size_t bytes);
  void placeTable(Shape& shape, std::unique_ptr<DeviceMemory>& table);

  int rank_ = 0;
  bool oneGpu_ = false;
  bool occupied_ = false;
  std::string gpuName_;
  std::string whyNoHandles_;
  std::unique_ptr<datatypes::Gpu> gpu_;
  std::unique_ptr<DeviceMemory> source_;
  std::unique_ptr<DeviceMemory> target_;
  std::unique_ptr<DeviceMemory> packed_;
  const std::byte* other_ = nullptr;  // the other process's source
  const Message* message_ = nullptr;
  MPI_Datatype from_ = MPI_DATATYPE_NULL;
  MPI_Datatype to_ = MPI_DATATYPE_NULL;
  std::int64_t wordBytes_ = 0;
  std::vector<Piece> pieces_;
  std::unique_ptr<DeviceMemory> devicePieces_;
  std::optional<Shape> fromShape_;
  std::optional<Shape> toShape_;
  std::unique_ptr<DeviceMemory> fromTable_;
  std::unique_ptr<DeviceMemory> toTable_;
  std::vector<std::byte> image_;  // of the target, as the CPU looks at it
  double packing_ = 0;
  double unpacking_ = 0;
  double sentByHand_ = 0;
};

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_DEVICES_DEVICE_PAIR_H_
