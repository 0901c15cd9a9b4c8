// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/placement.h"

#include <fmt/core.h>

#include <algorithm>

#include "gmac/coherence/memory_port.h"
#include "gmac/datatype/engine/strided_copy.h"

namespace gmac::datatype {
namespace {

using coherence::Current;

// Fewer packed bytes are not divided between the CPU and the accelerator.
constexpr std::int64_t kMinPortion = std::int64_t{4} << 10;

bool isShared(const std::byte* first, std::size_t bytes) {
  return coherence::mayBeShared(first, bytes) && coherence::touchesShared(first, bytes);
}

std::uint64_t addressOf(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

}  // namespace

Placement::Placement(Device& device, const Operation& operation)
    : device_(device),
      op_(operation),
      whole_{operation.offset, operation.bytes, Current::kNotShared} {
  const std::byte* const first = op_.strided + op_.bounds.first;
  stridedShared_ = isShared(first, static_cast<std::size_t>(op_.bounds.last - op_.bounds.first));
  packedShared_ = isShared(op_.packed, static_cast<std::size_t>(op_.bytes));
  if (op_.lent) {
    stridedDistance_ =
        stridedShared_ ? coherence::memory().deviceDistance(first) : std::ptrdiff_t{0};
    stridedShared_ = false;
    stridedOnDevice_ = true;
  } else if (stridedShared_) {
    stridedDistance_ = coherence::memory().deviceDistance(first);
    divided_ = divide(op_.layout(), op_.strided, op_.offset, op_.bytes, kMinPortion);
  } else {
    stridedOnDevice_ = device_.accelerator().memoryOf(first) == accel::Memory::kDevice;
  }
  if (packedShared_) {
    packedDistance_ = coherence::memory().deviceDistance(op_.packed);
    packedAt_ = packedOfObjectOnDevice() ? Packed::kDevice : Packed::kPageable;
    return;
  }
  switch (device_.accelerator().memoryOf(op_.packed)) {
    case accel::Memory::kDevice:
      packedAt_ = Packed::kDevice;
      break;
    case accel::Memory::kPinned:
      packedAt_ = device_.accelerator().kernelsReachPinned() ? Packed::kPinned : Packed::kPageable;
      break;
    case accel::Memory::kPageable:
      packedAt_ = Packed::kPageable;
      break;
  }
}

// A shared packed side is accessed where the strided side is, or where it is current itself.
bool Placement::packedOfObjectOnDevice() const {
  if (op_.method != adsmMethodAny) {
    return op_.method != adsmMethodCpu;
  }
  const std::span<const Portion> parts = portions();
  const bool anyOnDevice =
      stridedOnDevice_ || std::any_of(parts.begin(), parts.end(), [](const Portion& p) {
        return p.current == Current::kAccelerator;
      });
  const bool anyOnCpu = (!stridedShared_ && !stridedOnDevice_) ||
                        std::any_of(parts.begin(), parts.end(), [](const Portion& p) {
                          return p.current == Current::kCpu || p.current == Current::kNotShared;
                        });
  bool accelerator = false;
  bool cpu = false;
  const std::byte* at = op_.packed;
  for (auto left = static_cast<std::size_t>(op_.bytes); left > 0;) {
    Current current{};
    const std::size_t length = coherence::currentPrefix(at, left, &current);
    accelerator |= current == Current::kAccelerator;
    cpu |= current == Current::kCpu || current == Current::kNotShared;
    at += length;
    left -= length;
  }
  if (op_.packs()) {
    return anyOnDevice || (!anyOnCpu && !cpu);
  }
  return accelerator || (!cpu && !(anyOnCpu && !anyOnDevice));
}

bool Placement::onDevice(const Portion& portion) const {
  if (op_.method != adsmMethodAny) {
    return op_.method != adsmMethodCpu;
  }
  switch (portion.current) {
    case Current::kAccelerator:
      return true;
    case Current::kCpu:
      // Before a device unpacks over them they are flushed, as the next call would do.
      return !op_.packs() && packedOnDevice();
    case Current::kBoth:
      // If the CPU unpacked, whole blocks would have to be copied to the device afterwards.
      return !op_.packs() || packedOnDevice();
    case Current::kNotShared:
      return stridedOnDevice_;
  }
  __builtin_unreachable();
}

std::uint64_t Placement::deviceStrided() const {
  return addressOf(op_.strided) + static_cast<std::uint64_t>(stridedDistance_);
}

std::uint64_t Placement::devicePacked(std::int64_t offset) const {
  return addressOf(op_.packedAt(offset)) +
         (packedOnDevice() ? static_cast<std::uint64_t>(packedDistance_) : 0);
}

Status Placement::checkMethod() const {
  if (op_.method == adsmMethodAny) [[likely]] {
    return {};
  }
  const char* const name = adsmMethodName(op_.method);
  const char* const function = op_.packs() ? "adsmPackWith" : "adsmUnpackWith";
  if (op_.method == adsmMethodCpu) {
    if ((!stridedShared_ && stridedOnDevice_) || (!packedShared_ && packedOnDevice())) {
      return fail(adsmErrorNotSupported, "{}: method {}: the CPU does not reach {}", function, name,
                  shown(stridedOnDevice_ ? op_.strided : op_.packed));
    }
    return {};
  }
  const Layout& layout = op_.layout();
  if (!stridedShared_ && !stridedOnDevice_) {
    return fail(adsmErrorNotSupported, "{}: method {}: {} is the CPU's memory", function, name,
                shown(op_.strided));
  }
  if (op_.method == adsmMethodKernel && packedAt_ == Packed::kPageable) {
    return fail(adsmErrorNotSupported,
                "{}: method {}: kernels do not reach {}, which is not pinned", function, name,
                shown(op_.packed));
  }
  const bool whole = op_.offset == 0 && op_.bytes == layout.bytes();
  if (op_.method == adsmMethodCopy2d && !(whole && gridOf(layout))) {
    return fail(adsmErrorNotSupported,
                "{}: method {}: the layout is {}; whole strided layouts of at most three "
                "dimensions fit",
                function, name, layout.describe());
  }
  if ((op_.method == adsmMethodCopy2d || op_.method == adsmMethodCopy) &&
      packedAt_ == Packed::kPageable && !device_.accelerator().kernelsReachPinned()) {
    return fail(adsmErrorNotSupported, "{}: method {}: the {} accelerator does not reach {}",
                function, name, device_.accelerator().name(), shown(op_.packed));
  }
  if (op_.method == adsmMethodStaged && packedOnDevice()) {
    return fail(adsmErrorNotSupported, "{}: method {}: {} is the device's memory", function, name,
                shown(op_.packed));
  }
  return {};
}

}  // namespace gmac::datatype
