// SPDX-License-Identifier: Apache-2.0
//
// How one end of a message copies: its own memory is the CPU's, or its device's.
#ifndef GMAC_EXCHANGE_COPIES_H_
#define GMAC_EXCHANGE_COPIES_H_

#include <cstddef>
#include <cstdint>

#include "exchange/device_functions.h"
#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange::internal {

// A value; thread-safe. Done when they return. The errors are the device's; copies of the CPU do
// not fail.
class Copies {
 public:
  // `device`: the base is an address of its memory, and it has a function of transfers; NULL: it is
  // the CPU's.
  explicit Copies(const DeviceFunctions* device = nullptr) : device_(device) {}
  bool onDevice() const { return device_ != nullptr; }
  const DeviceFunctions* device() const { return device_; }

  // Between `base` and `packed`, memory of the CPU's, which holds the part [offset, offset + bytes)
  // in packed order from its first byte on. `whole`: the bytes of the operation that it is part of,
  // by which the CPU decides whether it writes past its caches; 0: what it writes is read at once.
  Status pack(const datatype::Layout& layout, std::byte* packed, const std::byte* base,
              std::int64_t offset, std::int64_t bytes, std::int64_t whole = 0) const;
  Status unpack(const datatype::Layout& layout, std::byte* base, const std::byte* packed,
                std::int64_t offset, std::int64_t bytes, std::int64_t whole = 0) const;
  // From `source`, which is mapped, to `base`.
  Status transfer(const datatype::Layout& to, std::byte* base, const datatype::Layout& from,
                  const std::byte* source, std::int64_t offset, std::int64_t bytes,
                  std::int64_t whole) const;

 private:
  const DeviceFunctions* device_;
};

// The device's function, with its error's text.
Status transferByDevice(const DeviceFunctions& device, const datatype::Layout& to, void* target,
                        const datatype::Layout& from, const void* source, std::int64_t offset,
                        std::int64_t bytes);

}  // namespace gmac::exchange::internal

#endif  // GMAC_EXCHANGE_COPIES_H_
