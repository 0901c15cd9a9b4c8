// SPDX-License-Identifier: Apache-2.0
//
// What an Exchange consists of, for the files that implement it.
#ifndef GMAC_EXCHANGE_EXCHANGE_STATE_H_
#define GMAC_EXCHANGE_EXCHANGE_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "exchange/device_functions.h"
#include "exchange/exchange.h"
#include "exchange/exports.h"
#include "exchange/handshake.h"
#include "exchange/imports.h"
#include "exchange/job.h"
#include "exchange/layout_bytes.h"
#include "exchange/outbox.h"
#include "exchange/packed_ahead.h"
#include "exchange/pinned_rings.h"
#include "exchange/transfers.h"
#include "gmac/base/status.h"

namespace gmac::exchange {

struct Exchange::State {
  Job job;
  std::optional<Listener> listener;  // until meet()
  std::shared_ptr<internal::Outbox> outbox;
  std::vector<std::shared_ptr<internal::Peer>> peers;  // by rank; NULL: not reached
  internal::Counters collected;
  const DeviceFunctions* device = nullptr;
  bool devicePayloads = true;
  std::atomic<bool> deviceTold{false};
  std::atomic<std::uint64_t> deviceNews{0};  // that anyIsFar is of
  std::atomic<bool> anyIsFar{false};
  internal::AheadOptions ahead{};
  std::int64_t arrivalLeast = 0;  // see Options
  std::shared_ptr<internal::Exports> exports;
  std::size_t pinnedRingBytes = 0;
  std::shared_ptr<internal::PinnedRings> pinnedRings;
  std::shared_ptr<internal::Imports> imports;
  std::shared_ptr<internal::Transfers> transfers;
  std::shared_ptr<internal::PathCounters> received = std::make_shared<internal::PathCounters>();
  std::unique_ptr<LayoutTable> layouts;

  // NULL: it copies no messages.
  const DeviceFunctions* copying() const {
    return device != nullptr && device->transfer != nullptr ? device : nullptr;
  }
  internal::Peer* peer(int rank) const {
    return rank >= 0 && static_cast<std::size_t>(rank) < peers.size()
               ? peers[static_cast<std::size_t>(rank)].get()
               : nullptr;
  }
};

inline Status forked() {
  return fail(adsmErrorForked, "exchange: a child of fork has no part in its parent's exchange");
}

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_EXCHANGE_STATE_H_
