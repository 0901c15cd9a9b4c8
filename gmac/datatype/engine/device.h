// SPDX-License-Identifier: Apache-2.0
//
// The accelerator as the datatype engine uses it.
#ifndef GMAC_DATATYPE_ENGINE_DEVICE_H_
#define GMAC_DATATYPE_ENGINE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/datatype/plan/arrival_plan.h"
#include "gmac/datatype/plan/device_plan.h"
#include "gmac/datatype/plan/transfer_plan.h"

namespace gmac::datatype {

// An accelerator with the pack kernels, and one way to submit to its kernel queue and to the
// application's streams. Thread-safe; part of the engine.
class Device {
 public:
  // std::nullopt: the kernel queue. Else a stream that has passed checkStream().
  using Stream = std::optional<accel::NativeStream>;

  explicit Device(accel::Accelerator& accelerator)
      : accelerator_(accelerator),
        streams_(accelerator.nativeStreams()),
        kernels_(accelerator.loadBuiltIn(packKernels())) {}

  accel::Accelerator& accelerator() const { return accelerator_; }
  // Whether the memory there may be another device's, reached over a link.
  bool reachesOverLink(const void* address) const {
    const accel::ExportedMemory* const exported = accelerator_.exportedMemory();
    return exported != nullptr &&
           exported->isImported(accel::DeviceAddress{reinterpret_cast<std::uintptr_t>(address)});
  }

  // adsmErrorInvalidValue if it is no stream, adsmErrorNotSupported if the accelerator has none.
  Status checkStream(accel::NativeStream stream) const;

  // See Accelerator::submit(). The ticket is empty on a stream of the application's.
  Result<accel::Ticket> submit(Stream stream, accel::Work& work);
  // Submits that one launch.
  Result<accel::Ticket> launch(Stream stream, const DeviceLaunch& launch);
  // Adds a launch to the commands of a submission.
  Status launch(accel::Commands& commands, const DeviceLaunch& launch) {
    return commands.launch(*kernels_, ofPlan(launch));
  }
  Status launch(accel::Commands& commands, const TransferLaunch& launch) {
    return commands.launch(
        *kernels_, {kernelNumber(launch.kernel), launch.blocks, launch.threads, launch.params});
  }
  Status launch(accel::Commands& commands, const ArrivalLaunch& launch, std::uint32_t blocks) {
    return commands.launch(*kernels_,
                           {kernelNumber(launch.kernel), blocks, kArrivalThreads, &launch.params});
  }

  // See NativeStreams.
  Status follow(accel::NativeStream stream, accel::Ticket ticket) {
    return streams_->follow(stream, ticket);
  }
  Result<accel::Ticket> mark(accel::NativeStream stream) { return streams_->mark(stream, {}); }
  // The accelerator's side stream; the kernel queue where there is none.
  Stream aside();
  Status waitForStreams() { return streams_->waitForAll(); }

  // Memory of the device where the kernels run, in the units that accelerators allocate. Where that
  // is full, objects leave it: the caller is between two submissions.
  Result<std::uint64_t> allocate(std::size_t bytes);
  void free(std::uint64_t address, std::size_t bytes) noexcept;

 private:
  Result<accel::DeviceAddress> allocateHere(std::size_t bytes);
  static accel::Launch ofPlan(const DeviceLaunch& launch) {
    return {kernelNumber(launch.kernel), launch.blocks, launch.threads, launch.params};
  }

  accel::Accelerator& accelerator_;
  accel::NativeStreams* const streams_;  // NULL: no operation has a stream
  const std::unique_ptr<accel::LoadedKernels> kernels_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_DEVICE_H_
