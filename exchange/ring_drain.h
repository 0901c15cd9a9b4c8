// SPDX-License-Identifier: Apache-2.0
//
// How a receiver's device unpacks a message from a ring of pinned memory (pinned_rings.h).
#ifndef GMAC_EXCHANGE_RING_DRAIN_H_
#define GMAC_EXCHANGE_RING_DRAIN_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "exchange/device_functions.h"
#include "exchange/shared_file.h"
#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::internal {

// A ring as its receiver has it.
struct PinnedView {
  const std::byte* address;
  std::int64_t bytes;
  std::int64_t fragmentBytes;
};

// How many bytes from `done` on, of a message of `all` bytes, are in the ring, up to the end of a
// fragment; 0: none. adsmErrorInvalidValue: the sender says what cannot be.
Result<std::int64_t> readyInRing(const TransferRecord& record, const PinnedView& ring,
                                 std::int64_t done, std::int64_t all);

// The copies of one message, two at a time. For one thread; all that it is given outlives it.
class RingDrain {
 public:
  RingDrain(const DeviceFunctions& device, const TransferRecord& record, const PinnedView& ring,
            const datatype::Layout& to, std::byte* target, std::int64_t bytes);
  // Waits for the copies under way: nothing writes to the target after that.
  ~RingDrain();
  RingDrain(const RingDrain&) = delete;
  RingDrain& operator=(const RingDrain&) = delete;

  // Bytes that have arrived since the last call, in packed order. Never waits.
  Result<std::int64_t> advance();

 private:
  struct Copy {
    void* event;
    std::int64_t bytes;
  };
  Result<std::int64_t> complete();
  // False: there is nothing to copy now.
  Result<bool> submit();
  Status refuse(adsmError_t code, std::int64_t bytes) const;

  const DeviceFunctions& device_;
  const TransferRecord& record_;
  const PinnedView ring_;
  const datatype::Layout& to_;
  std::byte* const target_;
  const std::int64_t bytes_;
  std::deque<Copy> copies_;  // in their order
  std::int64_t submitted_ = 0;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_RING_DRAIN_H_
