// SPDX-License-Identifier: Apache-2.0
//
// Fault delivery: tells one function about every access to a closed page, with its direction.
// libsigsegv delivers.
#ifndef GMAC_OS_FAULT_H_
#define GMAC_OS_FAULT_H_

#include <csignal>

#include "gmac/status.h"

namespace gmac::os {

// Called on the faulting thread, inside the signal handler. True: the access can be repeated.
// False: the fault is not ours, and goes to the handler that was installed before, or kills the
// process at its own address.
using FaultFunction = bool (*)(void* address, bool write) noexcept;

// Installs the process's fault function; the handler that was there before is kept and asked
// second. Once per process.
Status installFaultHandler(FaultFunction function);

// Blocks every signal of the calling thread while it lives, so that no handler of the application
// runs (and touches a shared object) while the thread holds a lock of the runtime.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace gmac::os

#endif  // GMAC_OS_FAULT_H_
