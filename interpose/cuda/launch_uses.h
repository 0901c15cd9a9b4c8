// SPDX-License-Identifier: Apache-2.0
//
// Which objects a launch may use, from its kernel's code and its arguments.
#ifndef GMAC_INTERPOSE_CUDA_LAUNCH_USES_H_
#define GMAC_INTERPOSE_CUDA_LAUNCH_USES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gmac/coherence/port.h"
#include "gmac/device_code/pointer_uses.h"
#include "interpose/cuda/arguments.h"

namespace gmac::interpose {

// An argument's value may point in front of what it is used for, or past its end, by so many bytes:
// neighbours count as used. (C++ allows the end alone, and programs that count from 1 take the
// element in front of an array.)
inline constexpr std::size_t kBesideArgument = 4096;

// For the stack. Not for the fault handler.
class LaunchUses {
 public:
  explicit LaunchUses(const LaunchArguments& arguments) noexcept;

  // False: the launch may use every object.
  bool known() const { return known_; }
  // For Port::beginDeviceWork().
  std::span<const coherence::DeviceRange> ranges() const { return {ranges_.data(), count_}; }

 private:
  static constexpr std::size_t kMostRanges = 64;

  bool add(const LaunchArguments& arguments, const device_code::KernelUses& kernel);

  std::array<coherence::DeviceRange, kMostRanges> ranges_;
  std::size_t count_ = 0;
  bool known_ = false;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_LAUNCH_USES_H_
