// SPDX-License-Identifier: Apache-2.0
//
// A message that one kernel of the receiver's device unpacks while the sender packs it ahead
// (packed_ahead.h). Unpacked by a kernel for each fragment, short rows have two thirds of the
// link's rate: each kernel begins late, and ends with few blocks.
//
// The kernel is launched when the receiver begins with the message, whose first fragment the
// sender's device has been given to pack by then. The receiver's advance() tells the kernel what is
// there, by memory alone, so that it depends on no lock and on no call of the driver; and a
// receiver that is elsewhere, or a sender that packs nothing, has it end by itself
// (ArrivalFunctions). What it has not unpacked then is copied as without it (device_reads.h).
#ifndef GMAC_EXCHANGE_ARRIVING_H_
#define GMAC_EXCHANGE_ARRIVING_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "exchange/device_functions.h"
#include "exchange/shared_file.h"
#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::internal {

// Where the receiver's device has what the sender packs ahead.
struct AheadRing {
  const std::byte* address;
  std::int64_t fragmentBytes;
};

// For one thread; all that it is given outlives it.
class Arriving {
 public:
  // The message has so many bytes; the layout may have more. NULL: the device has no kernel for it,
  // or not now.
  static std::unique_ptr<Arriving> begin(const DeviceFunctions& device,
                                         const TransferRecord& record, const AheadRing& ring,
                                         const datatype::Layout& to, std::byte* target,
                                         std::int64_t bytes);
  // Has the kernel end, and waits for it: nothing writes to the target after that.
  ~Arriving();
  Arriving(const Arriving&) = delete;
  Arriving& operator=(const Arriving&) = delete;

  // Tells the kernel what is there. Bytes that are unpacked, in all. Never waits. Errors: the
  // device's; the kernel has ended then.
  Result<std::int64_t> advance();
  // It has unpacked all, or has ended by itself.
  bool over() const { return arrival_ == nullptr; }

 private:
  Arriving(const DeviceFunctions& device, const TransferRecord& record, std::int64_t fragmentBytes,
           std::int64_t bytes, void* arrival);
  bool isThere(std::int64_t fragment) const;
  Status end();

  const DeviceFunctions& device_;
  const TransferRecord& record_;
  const std::int64_t fragmentBytes_;
  const std::int64_t bytes_;
  const std::int64_t fragments_;
  void* arrival_;  // NULL: it is over
  std::int64_t there_ = 0;
  std::int64_t unpacked_ = 0;  // fragments, as there_
  bool noMore_ = false;        // the kernel has been told to end
  std::int64_t changed_;       // when; nanoseconds
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_ARRIVING_H_
