// SPDX-License-Identifier: Apache-2.0
//
// The application's end of a device process: starts it, asks it, notices its loss, and ends it.
#ifndef GMAC_ACCEL_HOST_DEVICE_LINK_H_
#define GMAC_ACCEL_HOST_DEVICE_LINK_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "gmac/accel/address_windows.h"
#include "gmac/accel/host/control_block.h"
#include "gmac/accel/host/mapping.h"
#include "gmac/accel/host/messages.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/fork_mark.h"
#include "gmac/base/status.h"

namespace gmac::accel::host {

// Thread-safe. Owned by the accelerator. All but start() and ask() are for the fault path, too. Its
// destructor ends the device process, unless it runs in a child of fork.
class DeviceLink {
 public:
  DeviceLink() = default;
  ~DeviceLink();
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;

  // Starts the device process, with `threads` threads for kernels and all allocations in `windows`.
  // Once, before anything else.
  Status start(const AddressWindows& windows, unsigned threads);

  ControlBlock& control() const { return *control_; }
  // Whether this process is a child that the application has forked.
  bool forked() const { return forkMark_.inChild(); }
  // adsmErrorForked or adsmErrorAcceleratorLost. A system call.
  Status usable();
  // Looks whether the device process is gone; a system call.
  bool lost() noexcept;
  // The same, and whether the program has closed what the device is watched and asked through.
  bool lostOrClosed() noexcept;
  // Whether that was noticed before.
  bool knownLost() const noexcept { return lost_.load(std::memory_order_acquire); }

  Status failForked() const;
  Status failLost() const;
  // As failLost(), but the first wait after a kernel's crash is told of the kernel.
  Status failLostInWait();

  // Sends a request, with a file's descriptor unless that is -1, and returns the reply's value. The
  // strings are those that the request announces. Blocks.
  Result<std::uint64_t> ask(const Request& request, int fd = -1, std::string_view module = {},
                            std::string_view path = {});

 private:
  Status forkDevice(const AddressWindows& windows, unsigned threads, int deviceSocket);
  Status receiveHello();
  void reapDevice() const noexcept;
  bool pidfdOurs() const noexcept;

  ForkMark forkMark_;
  Mapping controlMemory_;
  ControlBlock* control_ = nullptr;
  Descriptor socket_;
  Descriptor devicePidfd_;  // empty where the system has none; the socket's hang-up tells then
  pid_t devicePid_ = 0;
  std::atomic<bool> lost_{false};
  std::atomic<bool> crashReported_{false};

  std::mutex socketMutex_;  // held from a request to its reply
  Reply reply_;             // guarded by it; too large for the stack of a fault
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_DEVICE_LINK_H_
