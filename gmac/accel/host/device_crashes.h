// SPDX-License-Identifier: Apache-2.0
//
// Crashes of the device process, which the application hears of: whose command ran, and where.
#ifndef GMAC_ACCEL_HOST_DEVICE_CRASHES_H_
#define GMAC_ACCEL_HOST_DEVICE_CRASHES_H_

#include "gmac/accel/host/control_block.h"

namespace gmac::accel::host {

// Before the process has other threads: gives every signal its default action, but ignores what the
// application may handle, and reports crashes in the control block, which lives as long as the
// process. No signal is blocked afterwards.
void takeSignals(ControlBlock* control);
// Gives the calling thread a stack for the report, since what crashes may be out of stack. The
// thread lives as long as the process, and so does the stack.
void prepareThread(bool runsKernels);
// The command that the kernel queue runs from now on; NULL: none. Kernels crash on its thread, on
// the pool's, or on threads of their own.
void kernelQueueRuns(const Command* command);

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_DEVICE_CRASHES_H_
