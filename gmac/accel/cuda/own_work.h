// SPDX-License-Identifier: Apache-2.0
//
// Work of the runtime's own by the Driver API, for both CUDA layers: their contexts are the
// driver's.
#ifndef GMAC_ACCEL_CUDA_OWN_WORK_H_
#define GMAC_ACCEL_CUDA_OWN_WORK_H_

#include <cstddef>
#include <memory>
#include <string>

#include "gmac/accel/commands.h"
#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

class Driver;

// Thread-safe; part of a StreamAccelerator, which says what its methods do. Those that name no
// stream make the layer's context current themselves.
class OwnWork {
 public:
  OwnWork(const Driver& driver, DeviceCalls& calls) : driver_(driver), calls_(calls) {}

  Memory memoryOf(const void* address) const noexcept;
  std::string busAddress() const;
  DeviceTraits traits() const noexcept;
  Result<void*> allocatePinned(std::size_t bytes);
  void freePinned(void* address) noexcept;
  Status waitForAll();
  static Status check(NativeStream stream);

  std::unique_ptr<LoadedKernels> load(const BuiltInKernels& kernels);
  // Calls `work` with commands on `stream`. The context is current.
  Status run(Stream stream, Work& work);
  // The same, and one launch, on a stream of the application's in the context of `calls`, whatever
  // is current. adsmErrorNotSupported: a launch in a context that is not the layer's.
  Status runOn(DeviceCalls& calls, Stream stream, Work& work);
  Status launchOn(DeviceCalls& calls, Stream stream, LoadedKernels& kernels, const Launch& launch);

 private:
  class Scope;
  class Kernels;
  class Queue;

  template <typename Function, typename... Args>
  Status call(adsmError_t otherwise, const Entry<Function>& entry, Args... args) const noexcept {
    return callIn(calls_, otherwise, entry, args...);
  }
  template <typename Function, typename... Args>
  Status callIn(DeviceCalls& calls, adsmError_t otherwise, const Entry<Function>& entry,
                Args... args) const noexcept;

  const Driver& driver_;
  DeviceCalls& calls_;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_OWN_WORK_H_
