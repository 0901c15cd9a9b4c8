// SPDX-License-Identifier: Apache-2.0
//
// The device side of the `host` accelerator: what runs in the device process after the fork.
#ifndef GMAC_ACCEL_HOST_DEVICE_PROCESS_H_
#define GMAC_ACCEL_HOST_DEVICE_PROCESS_H_

#include "gmac/accel/host/control_block.h"

namespace gmac::accel::host {

struct DeviceSetup {
  ControlBlock* control;
  int socket;            // the device's end; both file descriptors are above stderr's
  int applicationPidfd;  // readable when the application is gone
  unsigned threads;      // 1 or more
};

// Turns the calling process, a fresh fork of the application with all signals blocked, into the
// device process: cuts its ties (signals, session, files), starts the queues' threads, says hello
// on the socket, and serves until the application is gone. It relies on no lock that another thread
// of the application may have held at the fork, beyond those that fork() itself puts right (malloc,
// the dynamic linker), and never runs exit handlers or flushes the application's stdio.
[[noreturn]] void runDeviceProcess(const DeviceSetup& setup);

// Ends the calling process, a fork of the application, and leaves undone all that an application
// does at its end.
[[noreturn]] void endProcess(int status);

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_DEVICE_PROCESS_H_
