// SPDX-License-Identifier: Apache-2.0
//
// From two layouts to the launches that copy from one to the other on a device, in one pass.
#ifndef GMAC_DATATYPE_PLAN_TRANSFER_PLAN_H_
#define GMAC_DATATYPE_PLAN_TRANSFER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "gmac/base/status.h"
#include "gmac/datatype/kernels/pack_kernels.h"
#include "gmac/datatype/kernels/transfer_params.h"
#include "gmac/datatype/plan/device_plan.h"

namespace gmac::datatype {

// A launch of one transfer kernel, as DeviceLaunch is one of a pack kernel.
struct TransferLaunch {
  TransferKernelId kernel;
  std::uint32_t blocks;
  std::uint32_t threads;
  std::uint32_t paramBytes;
  std::uint64_t bytes;  // of payload, that it moves
  alignas(16) std::byte params[sizeof(AnyTransferParams)];
};

// One side of a transfer: the address of its layout's offset 0, and that of its plan's table where
// it needs one.
struct TransferSide {
  const DevicePlan* plan = nullptr;
  std::uint64_t strided = 0;
  std::uint64_t table = 0;
};

// The part [offset, offset + bytes), in packed order, that both layouts have. The sides do not
// overlap.
struct TransferJob {
  TransferSide target;
  TransferSide source;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::uint32_t maxBlocks = 0;  // the most thread blocks that may run; 0: no limit
  bool overLink = false;        // the source is another device's memory
};

// Fills in the launch that does the job from `done` bytes on; how many bytes that does.
// Allocates nothing; thread-safe.
std::int64_t makeTransferLaunch(const TransferJob& job, std::int64_t done, TransferLaunch& launch);

// Calls `launch(const TransferLaunch&)`, which returns a Status, for each launch that the job
// takes: one, but for parts of more than 2^30 words and more than eight dimensions. They may run in
// any order. Stops at the first that fails.
template <typename Function>
Status transferLaunches(const TransferJob& job, Function&& launch) {
  TransferLaunch room;
  for (std::int64_t done = 0; done < job.bytes;) {
    const std::int64_t bytes = makeTransferLaunch(job, done, room);
    GMAC_TRY(launch(static_cast<const TransferLaunch&>(room)));
    done += bytes;
  }
  return Status();
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PLAN_TRANSFER_PLAN_H_
