// SPDX-License-Identifier: Apache-2.0
//
// Unpacks of messages that arrive while a kernel of the device unpacks them.
#ifndef GMAC_DATATYPE_ENGINE_ARRIVALS_H_
#define GMAC_DATATYPE_ENGINE_ARRIVALS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gmac/base/status.h"
#include "gmac/datatype/engine/device.h"
#include "gmac/datatype/engine/operation.h"
#include "gmac/datatype/kernels/arrival_params.h"

namespace gmac::datatype {

// The one unpack of that kind that a device has under way at a time, so that all of them together
// take no more than one block of each multiprocessor. begin() is thread-safe; the rest is for the
// one thread at a time that has begun. Owned by the engine, never destroyed. The words and the
// state of the kernel are made with the first unpack and kept.
class Arrivals {
 public:
  // `multiprocessors` of the device; 0: there is no such kernel.
  Arrivals(Device& device, std::uint32_t multiprocessors)
      : device_(device), multiprocessors_(multiprocessors) {}
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Launches an unpack of an operation from its layout's first byte on whose packed side is a ring
  // of so many slots. Never waits, but for the memory of the first one. Where it fails none is
  // under way. adsmErrorNotSupported: there is no kernel for it, or one is under way.
  Status begin(const Operation& unpack, std::int64_t fragmentBytes, std::uint32_t slots);
  // So many fragments have arrived; how many are unpacked.
  std::int64_t arrived(std::int64_t fragments);
  // No more than those will.
  void noMore();
  bool over();
  // Has the kernel end, and waits for it, unless it has unpacked all; how many fragments are
  // unpacked.
  Result<std::int64_t> end();

 private:
  Status launch(const Operation& unpack, std::int64_t fragmentBytes, std::uint32_t slots);
  Status makeMemory();
  void tell(std::uint32_t fragments);
  std::int64_t countUnpacked();

  Device& device_;
  const std::uint32_t multiprocessors_;
  std::atomic<bool> used_{false};  // by an unpack, to which all below belongs
  ArrivalWords* words_ = nullptr;
  std::uint64_t state_ = 0;
  std::uint32_t slots_ = 0;
  std::uint32_t fragments_ = 0;
  std::uint32_t there_ = 0;
  std::uint32_t unpacked_ = 0;
  bool last_ = false;       // no more come
  bool plain_ = false;      // the unpacked bytes lie in the device's own memory, and nowhere else
  bool abandoned_ = false;  // a kernel may run of which no end can be known
  accel::Ticket ticket_;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_ENGINE_ARRIVALS_H_
