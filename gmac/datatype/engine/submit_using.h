// SPDX-License-Identifier: Apache-2.0
//
// Submits device work of the engine's own that uses shared objects.
#ifndef GMAC_DATATYPE_ENGINE_SUBMIT_USING_H_
#define GMAC_DATATYPE_ENGINE_SUBMIT_USING_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmac/accel/commands.h"
#include "gmac/base/status.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"
#include "gmac/datatype/engine/device.h"
#include "gmac/datatype/layout/block_list.h"

namespace gmac::datatype {

// Whether memory of the device is of one kind from the first byte to the last one: strided copies
// need that.
inline bool isOfOneKind(std::uint64_t origin, const Bounds& bounds) {
  const std::uintptr_t first =
      coherence::memory().cpuAddress(origin + static_cast<std::uint64_t>(bounds.first));
  const auto bytes = static_cast<std::size_t>(bounds.last - bounds.first);
  return bytes == 0 ||
         coherence::work().ofOneKind(reinterpret_cast<const void*>(first), bytes) == bytes;
}

// Releases the ranges, calls `function(accel::Commands&)`, which submits to the stream or the
// kernel queue, and gives the ranges its ticket. Without ranges nothing is released. Thread-safe.
template <typename Function>
Result<accel::Ticket> submitUsing(Device& device, const Device::Stream& stream,
                                  const std::vector<coherence::DeviceRange>& ranges,
                                  Function function) {
  accel::WorkOf work(std::move(function));
  if (ranges.empty()) {
    return device.submit(stream, work);
  }
  if (stream) {
    GMAC_TRY(coherence::work().beginDeviceWork(*stream, ranges));
    auto ticket = device.submit(stream, work);
    const Status ended = coherence::work().endDeviceWork(*stream, ticket.ok());
    return ticket.ok() && !ended.ok() ? Result<accel::Ticket>(ended) : ticket;
  }
  GMAC_TRY(coherence::work().beginOwnWork(ranges));
  auto ticket = device.submit(stream, work);
  const Status ended =
      coherence::work().endOwnWork(ranges, ticket.ok() ? *ticket : accel::Ticket{});
  return ticket.ok() && !ended.ok() ? Result<accel::Ticket>(ended) : ticket;
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_SUBMIT_USING_H_
