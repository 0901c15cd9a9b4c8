// SPDX-License-Identifier: Apache-2.0
//
// A kernel of the runtime's own that digests the blocks of an object where it lies, in the
// accelerator's memory, so that whether a block has changed can be told without moving it.
#ifndef GMAC_ACCEL_DIGEST_DIGEST_H_
#define GMAC_ACCEL_DIGEST_DIGEST_H_

#include <cstddef>
#include <cstdint>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/digest/mix.h"
#include "gmac/api/adsm.h"

namespace gmac::accel::digest {

// The kernel's description; loads where the accelerator has an implementation of it (`host`; `cuda`
// in builds with a CUDA toolkit). Constant.
const adsmKernelDesc_t& kernel();

// Role: one launch: its shape and its arguments. For the stack; allocates nothing, so the fault
// handler may make one.
class Launch {
 public:
  enum class Do : std::uint64_t { kAdd, kSubtract };

  // Adds the digests of blocks [begin, end) of an object to, or subtracts them from, the Sums of
  // these blocks in `sums`, an array in the accelerator's memory for all blocks of the object.
  // Block and object sizes are multiples of 16 bytes; the last block may be shorter. At least one
  // block.
  Launch(DeviceAddress object, std::size_t objectBytes, std::size_t blockBytes, std::size_t begin,
         std::size_t end, DeviceAddress sums, Do what);
  // Whether one launch can have all blocks of an object.
  static bool possible(std::size_t objectBytes, std::size_t blockBytes);

  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  const LaunchShape& shape() const { return shape_; }
  void** args() { return args_; }

 private:
  static constexpr std::size_t kParams = 8;

  LaunchShape shape_;
  std::uint64_t values_[kParams];
  void* args_[kParams];
};

}  // namespace gmac::accel::digest

#endif  // GMAC_ACCEL_DIGEST_DIGEST_H_
