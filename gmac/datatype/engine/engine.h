// SPDX-License-Identifier: Apache-2.0
//
// Packs and unpacks on the device or the CPU, depending on where the bytes are current.
#ifndef GMAC_DATATYPE_ENGINE_ENGINE_H_
#define GMAC_DATATYPE_ENGINE_ENGINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "gmac/base/status.h"
#include "gmac/coherence/work_port.h"
#include "gmac/datatype/engine/arrivals.h"
#include "gmac/datatype/engine/costs.h"
#include "gmac/datatype/engine/device.h"
#include "gmac/datatype/engine/operation.h"
#include "gmac/datatype/engine/prepared.h"
#include "gmac/datatype/engine/staging.h"
#include "gmac/datatype/engine/tables.h"
#include "gmac/datatype/plan/issue_rate.h"

namespace gmac::datatype {

// The pack engine of a process: the device of the runtime's accelerator with its staging buffers,
// tables and layouts. Thread-safe; made by the first operation that may need a device, and again
// after the end of its context; never destroyed. Not for the fault handler. An operation holds no
// lock while it copies.
class Engine {
 public:
  // The process's engine, with the runtime started.
  static Result<Engine*> get();
  Engine(accel::Accelerator& accelerator, std::size_t tableBytes);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The process's engine if it exists and its context lives, else nullptr; a few loads.
  static Engine* current() noexcept {
    Engine* const made = made_.load(std::memory_order_acquire);
    return made != nullptr && made->lives() ? made : nullptr;
  }

  // Does an operation, and fills in `cached` for relaunch() where that can be done.
  Result<Outcome> run(const Operation& operation, CachedLaunch& cached);
  // Copies from one layout to the other: by one kernel and in one pass where both sides' bytes are
  // the device's, or may be; by the CPU where it has both; else packs and unpacks by way of the
  // CPU's memory. adsmErrorNotSupported for a method that these sides do not allow, and where the
  // CPU would take part in work on a stream.
  Result<Outcome> transfer(const Transfer& transfer);
  // Does the operation of `cached` again if everything that its launch depends on is as it was;
  // memory may have been freed and allocated meanwhile. False: it is not, and nothing was done.
  Result<bool> relaunch(const CachedLaunch& cached, std::optional<accel::NativeStream> stream,
                        accel::Ticket* ticket);
  PreparedCache& prepared() { return prepared_; }
  Device& device() { return device_; }
  Arrivals& arrivals() { return arrivals_; }

 private:
  class Run;
  class TransferRun;
  // The memory of an engine whose context has ended is gone; it is abandoned.
  bool lives() const noexcept { return context_ == coherence::contextsEnded(); }

  static inline constinit std::atomic<Engine*> made_{nullptr};
  const Engine* before_ = nullptr;  // the one of the context before: others may still be in it
  const std::uint64_t context_;     // contexts that had ended when it was made
  Device device_;
  Staging staging_;
  const accel::DeviceTraits traits_;
  const Costs costs_;
  const IssueRate issueRate_;
  Tables tables_;
  Arrivals arrivals_;
  PreparedCache prepared_;
};

// Needs no engine: both sides are in CPU memory that is not shared.
Outcome runOnCpu(const Operation& operation);
Outcome transferOnCpu(const Transfer& transfer);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_ENGINE_H_
