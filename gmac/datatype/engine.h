// SPDX-License-Identifier: Apache-2.0
//
// Packs and unpacks wherever the bytes are current.
#ifndef GMAC_DATATYPE_ENGINE_H_
#define GMAC_DATATYPE_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gmac/base/status.h"
#include "gmac/coherence/port.h"
#include "gmac/datatype/costs.h"
#include "gmac/datatype/device.h"
#include "gmac/datatype/issue_rate.h"
#include "gmac/datatype/operation.h"
#include "gmac/datatype/prepared.h"
#include "gmac/datatype/staging.h"
#include "gmac/datatype/tables.h"

namespace gmac::datatype {

// Role: the engine of a process: the device of the runtime's accelerator, and what is kept for it.
// Thread-safe; made by the first operation that may need a device, anew behind the end of its
// context, and never destroyed. Not for the fault handler. An operation takes no lock of its own
// while it copies.
class Engine {
 public:
  // The process's engine, with the runtime started.
  static Result<Engine*> get();
  explicit Engine(std::unique_ptr<Device> device, std::size_t tableBytes);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The process's engine, if it is made and lives; some loads.
  static Engine* current() noexcept {
    Engine* const made = made_.load(std::memory_order_acquire);
    return made != nullptr && made->lives() ? made : nullptr;
  }

  // Does an operation; what again() needs to do it once more is left in `kept`.
  Result<Outcome> run(const Operation& operation, KeptLaunch& kept);
  // Does the operation that `kept` is of once more, where all that its launch depends upon is as it
  // was, whatever has been freed and allocated meanwhile; false: it is not, and nothing is done.
  Result<bool> again(const KeptLaunch& kept, std::optional<accel::NativeStream> stream,
                     accel::Ticket* ticket);
  PreparedCache& prepared() { return prepared_; }
  Device& device() { return *device_; }

 private:
  class Run;
  // One whose context has ended has lost its memory with it, and is left behind.
  bool lives() const noexcept { return context_ == coherence::contextsEnded(); }

  static inline constinit std::atomic<Engine*> made_{nullptr};
  const Engine* before_ = nullptr;  // the one of the context before: others may still be in it
  const std::uint64_t context_;     // contexts that had ended when it was made
  const std::unique_ptr<Device> device_;
  Staging staging_;
  const DeviceTraits traits_;
  const Costs costs_;
  const IssueRate issueRate_;
  Tables tables_;
  PreparedCache prepared_;
};

// Without an engine: both sides in CPU memory that is not shared.
Outcome runOnCpu(const Operation& operation);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_H_
