// SPDX-License-Identifier: Apache-2.0
//
// How a receiver's device copies a message from its sender's device memory.
#ifndef GMAC_EXCHANGE_DEVICE_READS_H_
#define GMAC_EXCHANGE_DEVICE_READS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "exchange/arriving.h"
#include "exchange/device_functions.h"
#include "exchange/shared_file.h"
#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::internal {

// The copies of one message: all in one; or what is packed ahead by one kernel, while it arrives,
// or in fragments, two at a time. For one thread; all that it is given outlives it.
class DeviceReads {
 public:
  // `arrivalLeast`: bytes of the shortest message that one kernel unpacks while it arrives.
  DeviceReads(const DeviceFunctions& device, TransferRecord& record,
              const std::optional<AheadRing>& ring, const datatype::Layout& to, std::byte* target,
              const datatype::Layout& from, const std::byte* source, std::int64_t arrivalLeast);
  // drain()
  ~DeviceReads();
  DeviceReads(const DeviceReads&) = delete;
  DeviceReads& operator=(const DeviceReads&) = delete;

  // Bytes that have arrived since the last call, in packed order. Never waits.
  Result<std::int64_t> advance();
  // Waits for the copies under way; nothing writes to the target after that.
  void drain();
  // Whether one kernel has unpacked all of it.
  bool arrivedByOneKernel() const { return arrivedByOneKernel_; }

 private:
  struct Copy {
    void* event;
    std::int64_t bytes;
  };
  Result<std::int64_t> complete();
  // Bytes of a message that arrives.
  Result<std::int64_t> advanceArriving();
  void note(std::int64_t arrived);
  // False: there is nothing to copy now.
  Result<bool> submitAll();
  Result<bool> submitFragment();
  Status copy(const datatype::Layout& from, const std::byte* source, std::int64_t bytes);

  const DeviceFunctions& device_;
  TransferRecord& record_;
  const std::optional<AheadRing> ring_;
  const datatype::Layout& to_;
  std::byte* const target_;
  const datatype::Layout& from_;
  const std::byte* const source_;
  std::unique_ptr<Arriving> arriving_;  // before any copy
  bool mayArrive_;                      // it has not begun
  bool arrivedByOneKernel_ = false;
  std::deque<Copy> copies_;  // in their order
  std::int64_t submitted_ = 0;
  std::int64_t arrived_ = 0;
  // Since when it waits for the sender, and for how long it has, in all; nanoseconds.
  std::optional<std::int64_t> waitsSince_;
  std::int64_t waited_ = 0;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_DEVICE_READS_H_
