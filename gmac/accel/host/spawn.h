// SPDX-License-Identifier: Apache-2.0
//
// How the device process is made: a fork of the application that the application does not notice.
#ifndef GMAC_ACCEL_HOST_SPAWN_H_
#define GMAC_ACCEL_HOST_SPAWN_H_

#include "gmac/accel/host/device_process.h"
#include "gmac/base/status.h"

namespace gmac::accel::host {

// Starts the device process and returns when it has been forked. It is no child of the application:
// neither SIGCHLD nor a wait() for any child tells of it, now or later. Fork handlers run as for
// any fork. Call with all signals of the thread blocked.
Status spawnDeviceProcess(const DeviceSetup& setup);

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_SPAWN_H_
