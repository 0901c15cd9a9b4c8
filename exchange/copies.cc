// SPDX-License-Identifier: Apache-2.0
#include "exchange/copies.h"

#include <cstring>

#include "gmac/datatype/cpu/cpu_engine.h"
#include "gmac/datatype/cpu/streaming_copy.h"
#include "gmac/datatype/cpu/transfer.h"

namespace gmac::exchange::internal {
namespace {

using datatype::Layout;
using std::int64_t;

// Contiguous bytes of which the first is number `offset` in packed order.
Result<Layout> lineFrom(int64_t offset, int64_t bytes) {
  return Layout::make({}, {{-offset, offset + bytes}});
}

}  // namespace

Status transferByDevice(const DeviceFunctions& device, const Layout& to, void* target,
                        const Layout& from, const void* source, int64_t offset, int64_t bytes) {
  if (const adsmError_t code = device.transfer(to, target, from, source, offset, bytes);
      code != adsmSuccess) {
    return fail(code, "exchange: the device has not copied {} bytes of a message: {}", bytes,
                device.causeOf(code));
  }
  return {};
}

Status Copies::pack(const Layout& layout, std::byte* packed, const std::byte* base, int64_t offset,
                    int64_t bytes, int64_t whole) const {
  if (device_ == nullptr) {
    datatype::pack(layout, packed, base, offset, bytes,
                   {.copy = datatype::copyOf<&std::memcpy>(whole)});
    return {};
  }
  const Result<Layout> line = lineFrom(offset, bytes);
  GMAC_TRY(line.status());
  return transferByDevice(*device_, *line, packed, layout, base, offset, bytes);
}

Status Copies::unpack(const Layout& layout, std::byte* base, const std::byte* packed,
                      int64_t offset, int64_t bytes, int64_t whole) const {
  if (device_ == nullptr) {
    datatype::unpack(layout, base, packed, offset, bytes,
                     {.copy = datatype::copyOf<&std::memcpy>(whole)});
    return {};
  }
  const Result<Layout> line = lineFrom(offset, bytes);
  GMAC_TRY(line.status());
  return transferByDevice(*device_, layout, base, *line, packed, offset, bytes);
}

Status Copies::transfer(const Layout& to, std::byte* base, const Layout& from,
                        const std::byte* source, int64_t offset, int64_t bytes,
                        int64_t whole) const {
  if (device_ == nullptr) {
    datatype::transfer(to, base, from, source, offset, bytes,
                       datatype::copyOf<&std::memcpy>(whole));
    return {};
  }
  return transferByDevice(*device_, to, base, from, source, offset, bytes);
}

}  // namespace gmac::exchange::internal
