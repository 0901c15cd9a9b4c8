// SPDX-License-Identifier: Apache-2.0
//
// How a sender's device packs a message into a ring of pinned memory (pinned_rings.h).
#ifndef GMAC_EXCHANGE_RING_FILL_H_
#define GMAC_EXCHANGE_RING_FILL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "exchange/device_functions.h"
#include "exchange/shared_file.h"
#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::internal {

// The packs of one message, two at a time. For one thread at a time; all that it is given outlives
// it.
class RingFill {
 public:
  // Where, and in which fragments, is said in the record; the ring is `ring`.
  RingFill(const DeviceFunctions& device, TransferRecord& record, const datatype::Layout& layout,
           const std::byte* base, std::byte* ring);
  // Waits for the packs under way: nothing reads the message any more.
  ~RingFill();
  RingFill(const RingFill&) = delete;
  RingFill& operator=(const RingFill&) = delete;

  // Tells the receiver what is packed, and submits what there is room for. Never waits.
  // adsmErrorSystem: the receiver says what cannot be; else the device's errors, each time.
  Status advance();
  // Whether all of it is in the ring, or was.
  bool isPacked() const { return produced_ == layout_.bytes(); }

 private:
  struct Pack {
    void* event;
    std::int64_t bytes;
  };
  Status complete();
  // False: there is no room now.
  Result<bool> submit();
  Status refuse(adsmError_t code);

  const DeviceFunctions& device_;
  TransferRecord& record_;
  const datatype::Layout& layout_;
  const std::byte* const base_;
  std::byte* const ring_;
  const std::int64_t ringBytes_;
  const std::int64_t fragmentBytes_;
  std::deque<Pack> packs_;  // under way, in their order
  std::int64_t submitted_ = 0;
  std::int64_t produced_ = 0;
  adsmError_t failed_ = adsmSuccess;
  std::string cause_;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_RING_FILL_H_
