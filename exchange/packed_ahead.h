// SPDX-License-Identifier: Apache-2.0
//
// A message of short pieces in device memory, packed by its sender while its receiver takes it
// (pipelined RDMA by GET, "GPU-aware datatype engine" of Open MPI, section 4.1). A load over the
// link moves whole sectors, so that of rows of 8 bytes it has a quarter of the link's rate.
//
// The sender's device packs fragments into a ring of its memory, as long as the sender is in a call
// of its own now and then; the receiver copies what is packed, and loads the rest itself, so that
// it never depends on the sender.
#ifndef GMAC_EXCHANGE_PACKED_AHEAD_H_
#define GMAC_EXCHANGE_PACKED_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "exchange/device_functions.h"
#include "exchange/outbox.h"
#include "exchange/shared_file.h"
#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::internal {

struct AheadOptions {
  std::int64_t least;     // bytes of the shortest message
  std::int64_t fragment;  // bytes of a fragment, a multiple of 4096
};

// The sender's part. For one thread at a time; the layout, the record and the functions outlive it.
class PackedAhead {
 public:
  // Begins with the first fragment. NULL: the message gains nothing by it, or there is no ring that
  // the receiver reaches, now.
  static std::unique_ptr<PackedAhead> begin(const std::shared_ptr<Outbox>& outbox,
                                            const DeviceFunctions& device, TransferRecord& record,
                                            const datatype::Layout& layout, const std::byte* base,
                                            int receiver, const AheadOptions& options);
  // Waits for what the device packs.
  ~PackedAhead();
  PackedAhead(const PackedAhead&) = delete;
  PackedAhead& operator=(const PackedAhead&) = delete;

  // Submits what there is room for, and tells the receiver what is packed. Never waits. A device
  // that fails packs no more.
  void advance();

 private:
  // Of the fragments [first, end).
  struct Pack {
    void* event;
    std::uint64_t first;
    std::uint64_t end;
  };
  PackedAhead(std::shared_ptr<Outbox> outbox, const DeviceFunctions& device, TransferRecord& record,
              const datatype::Layout& layout, const std::byte* base, std::int64_t fragment,
              Outbox::DeviceRoom room);

  bool submit();

  const std::shared_ptr<Outbox> outbox_;
  const DeviceFunctions& device_;
  TransferRecord& record_;
  const datatype::Layout& layout_;
  const std::byte* const base_;
  const std::int64_t fragmentBytes_;
  const Outbox::DeviceRoom room_;
  std::deque<Pack> packs_;  // under way, in their order
  std::uint64_t next_ = 0;  // the fragment that is packed next
  bool failed_ = false;
};

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_PACKED_AHEAD_H_
