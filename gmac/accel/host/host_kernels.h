// SPDX-License-Identifier: Apache-2.0
//
// Kernels of a `host` accelerator: where their code lies in the device process, and their launches.
#ifndef GMAC_ACCEL_HOST_HOST_KERNELS_H_
#define GMAC_ACCEL_HOST_HOST_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/host/command_queues.h"
#include "gmac/accel/host/device_link.h"
#include "gmac/accel/host/module_table.h"
#include "gmac/base/status.h"

namespace gmac::accel::host {

// Thread-safe. Owned by the accelerator, as whose functions these do; but a launch comes after the
// work of a ticket, too.
class HostKernels {
 public:
  HostKernels(DeviceLink& link, CommandQueues& queues) : link_(link), queues_(queues) {}

  Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc);
  Result<Ticket> launch(Ticket after, LoadedKernel& kernel, const LaunchShape& shape, void** args);
  Status setConstant(LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes);
  std::unique_ptr<LoadedKernels> loadBuiltIn(const BuiltInKernels& kernels);
  Result<Ticket> submit(Work& work);

 private:
  // Where a function or variable of the application's lies in the device process.
  Result<std::uintptr_t> resolve(const void* address, SegmentUse use, const char* kind,
                                 const char* what);

  DeviceLink& link_;
  CommandQueues& queues_;
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_HOST_KERNELS_H_
