// SPDX-License-Identifier: Apache-2.0
//
// Fault delivery: tells one function about every access to a closed page, with its direction, and
// everything else about SIGSEGV to the program, as if the kernel did.
#ifndef GMAC_OS_FAULT_H_
#define GMAC_OS_FAULT_H_

#include <csignal>

#include "gmac/base/status.h"
#include "gmac/os/signal_mask.h"

namespace gmac::os {

// Called on the faulting thread, inside the signal handler, with all signals blocked as under
// SignalsBlocked. True: the access can be repeated. False: the fault is not ours, and goes to the
// program's own handler, or kills the process at its own address. The return from the signal brings
// the mask back.
using FaultFunction = bool (*)(void* address, bool write) noexcept;

// Whether a fault there may be the runtime's to answer: a quick look, before one that is certain.
// Called in the signal handler, where there may be little stack.
using MayOwnFunction = bool (*)(const void* address) noexcept;

// Installs the process's fault function; the action that was there before is the program's from
// then on. Once per process. With `mayOwn`, faults that may be ours and are delivered on an
// alternate stack are answered on a stack of the runtime's own (fault_stack.h).
Status installFaultHandler(FaultFunction function, MayOwnFunction mayOwn = nullptr);

// A second room's faults, which the first function does not answer: asked in the same way, once a
// handler is installed. Once per process.
void alsoAnswerFaults(FaultFunction function, MayOwnFunction mayOwn) noexcept;

// sigaction(SIGSEGV, wanted, before) as the program means it: what it says and is told of its own
// action, whether or not a handler of ours stands before it. The masks are the kernel's
// (signal_mask.h). `next` is the sigaction to use while none of ours does. Thread-safe and
// async-signal-safe; not for the fault handler. What sigaction returns.
using SigactionFunction = int (*)(int signal, const struct sigaction* wanted,
                                  struct sigaction* before);
int changeProgramAction(const struct sigaction* wanted, struct sigaction* before,
                        SigactionFunction next) noexcept;

}  // namespace gmac::os

#endif  // GMAC_OS_FAULT_H_
