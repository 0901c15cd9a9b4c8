// SPDX-License-Identifier: Apache-2.0
//
// The running runtime: the accelerator, the protocol and the coherent memory, as the process's
// configuration chose them.
#ifndef GMAC_SESSION_RUNTIME_H_
#define GMAC_SESSION_RUNTIME_H_

#include <memory>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/coherence/coherent_memory.h"

namespace gmac {

// The process's one runtime. Made by the first call that needs it and never destroyed: the driver
// may be gone before it at process exit. Thread-safe.
class Runtime {
 public:
  // The runtime, started if it was not. A failed start changes nothing and is tried again, since
  // what was missing may come: by the next call, later by every 2nd, 4th, ... 1024th; the calls
  // between get the error of the last start.
  static Result<Runtime*> get();
  // The runtime if it has started, else NULL. One load; for the interposers and the fault handler.
  static Runtime* started() noexcept;

  CoherentMemory& memory() { return *memory_; }

 private:
  Runtime() = default;
  static Result<std::unique_ptr<Runtime>> start();

  std::unique_ptr<accel::Accelerator> accelerator_;
  std::unique_ptr<CoherentMemory> memory_;
};

}  // namespace gmac

#endif  // GMAC_SESSION_RUNTIME_H_
