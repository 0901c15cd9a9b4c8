// SPDX-License-Identifier: Apache-2.0
//
// The device side of the `host` accelerator: what runs in the device process after the fork.
#ifndef GMAC_ACCEL_HOST_DEVICE_PROCESS_H_
#define GMAC_ACCEL_HOST_DEVICE_PROCESS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "gmac/accel/host/control_block.h"

namespace gmac::accel::host {

// Free addresses before and after each allocation: a kernel that overruns its array by a little
// meets memory there instead of nothing, as with CUDA's own allocator. Whole pages, within the
// address space that allocations come from.
inline constexpr std::size_t kMarginBytes = std::size_t{64} << 10;

struct AddressRange {
  std::uintptr_t begin;
  std::size_t bytes;
};

struct DeviceSetup {
  ControlBlock* control;
  int socket;            // the device's end; both file descriptors are above stderr's
  int applicationPidfd;  // readable when the application is gone; -1: the socket's hang-up tells
  unsigned threads;      // 1 or more
  std::size_t fileWindowBytes;          // of address space for a memory file, if it is no longer
  std::array<AddressRange, 2> windows;  // where all allocations lie; nothing is there yet
};

// Turns the calling process, a fresh fork of the application with all signals blocked, into the
// device process: cuts its ties (signals, session, files), starts the queues' threads, says hello
// on the socket, and serves until the application is gone. The calling thread does no more than
// watch the application and the socket, so that the process ends with them whatever its other
// threads wait for. It relies on no lock that another thread of the application may have held at
// the fork, beyond those that fork() (malloc) and freeLoaderLock() put right, and never runs exit
// handlers or flushes the application's stdio.
[[noreturn]] void runDeviceProcess(const DeviceSetup& setup);

// Ends the calling process, a fork of the application, and leaves undone all that an application
// does at its end.
[[noreturn]] void endProcess(int status);

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_DEVICE_PROCESS_H_
