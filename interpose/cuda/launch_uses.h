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

#include "gmac/coherence/work_port.h"
#include "gmac/device_code/pointer_uses.h"
#include "interpose/cuda/arguments.h"
#include "interpose/cuda/managed_objects.h"

namespace gmac::interpose {

// An argument's value may point in front of what it is used for, or past its end, by so many bytes:
// neighbours count as used. (C++ allows the end alone, and programs that count from 1 take the
// element in front of an array.)
inline constexpr std::size_t kBesideArgument = 4096;

class ArgumentBytes;

// The program has waited for device work: fetches a table ahead that the CPU did not have at a
// launch, since launches wait for no kernel. At the first, the second, the fourth such launch in a
// row and so on: kernels may write it each time.
void fetchWantedTable() noexcept;

// For the stack. Not for the fault handler.
class LaunchUses {
 public:
  explicit LaunchUses(const LaunchArguments& arguments) noexcept;

  // False: the launch may use every object.
  bool known() const { return known_; }
  // For WorkPort::beginDeviceWork().
  std::span<const coherence::DeviceRange> ranges() const { return {ranges_.data(), count_}; }

 private:
  static constexpr std::size_t kMostRanges = 64;
  // Reading more at each launch takes too long for what it may gain.
  static constexpr std::size_t kMostTableBytes = std::size_t{16} << 10;

  // What the kernel uses by way of its arguments, and by way of pointers in tables. False: it may
  // use every object.
  bool addArguments(const ArgumentBytes& bytes, const device_code::KernelUses& kernel);
  bool addTables(const ArgumentBytes& bytes, const device_code::KernelUses& kernel);
  bool addTable(const ManagedObject& table, bool writes);
  bool addObject(const ManagedObject& object, bool writes);

  std::array<coherence::DeviceRange, kMostRanges> ranges_;
  std::size_t count_ = 0;
  std::size_t pointees_ = 0;  // from here on ranges are whole allocations that tables point into
  bool known_ = false;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_LAUNCH_USES_H_
