// SPDX-License-Identifier: Apache-2.0
//
// Work of the runtime's own on an accelerator: commands that run in order, and the kernels that the
// runtime brings along. Submitted by Accelerator::submit() and NativeStreams::submit().
#ifndef GMAC_ACCEL_COMMANDS_H_
#define GMAC_ACCEL_COMMANDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "gmac/accel/accelerator.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// A kernel of the runtime's. Its one parameter is a structure; its blocks and grids have one
// dimension.
struct BuiltInKernel {
  const char* name = nullptr;
  std::size_t paramBytes = 0;
  adsmHostKernel_t host = nullptr;  // its implementation for accelerators that run C functions
};

// Kernels by number. Constant data that lives as long as the process.
struct BuiltInKernels {
  std::span<const BuiltInKernel> kernels;  // one without a name does not exist
  const void* cudaImage = nullptr;  // the module that has them; NULL: built without the toolkit
};

// Such kernels on one accelerator. Thread-safe; owned by the caller, and not used after the
// accelerator's end.
class LoadedKernels {
 public:
  virtual ~LoadedKernels() = default;
};

struct Launch {
  int kernel;  // its number
  std::uint32_t blocks;
  std::uint32_t threads;  // of each block
  const void* params;     // copied before the launch returns
};

// `slices` slices of `rows` rows of `rowBytes`, which have distances of their own on each side.
struct StridedCopy {
  struct Side {
    std::uint64_t address = 0;    // of the first row
    std::int64_t pitch = 0;       // bytes from one row to the next
    std::int64_t slicePitch = 0;  // and from one slice to the next
    bool onCpu = false;           // in pinned memory; else it is the accelerator's
  };
  Side target;
  Side source;
  std::int64_t rowBytes = 0;
  std::int64_t rows = 1;
  std::int64_t slices = 1;
};

// Commands that run one after another. A view for the duration of one submit(); for one thread.
// Asynchronous; addresses are device addresses or those of pinned memory, and stay valid until the
// work is over.
class Commands {
 public:
  virtual Status launch(LoadedKernels& kernels, const Launch& launch) = 0;
  virtual Status copyIn(std::uint64_t to, const void* pinned, std::size_t bytes) = 0;
  virtual Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) = 0;
  virtual Status copyWithin(std::uint64_t to, std::uint64_t from, std::size_t bytes) = 0;
  // adsmErrorNotSupported where the device has no such engine, or it has limits that this exceeds.
  virtual Status copyStrided(const StridedCopy& copy) = 0;

 protected:
  ~Commands() = default;
};

// The callback of submit(). Not owned; for the duration of one call.
class Work {
 public:
  virtual Status run(Commands& commands) = 0;

 protected:
  ~Work() = default;
};

// A function as work: `function(commands)` submits and returns a Status. For the stack of one
// thread; may be submitted any number of times.
template <typename Function>
class WorkOf final : public Work {
 public:
  explicit WorkOf(Function function) : function_(std::move(function)) {}
  Status run(Commands& commands) override { return function_(commands); }

 private:
  Function function_;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_COMMANDS_H_
