// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/device_constants.h"

namespace gmac::datatype {
namespace {

// Devices on which the rate was searched for (docs/datatypes_results.md says how).
struct Measured {
  std::string_view name;
  double cyclesPerRow;
  double cyclesPerByte;
};
constexpr Measured kMeasured[] = {{"NVIDIA H200", 4.65, 0.0614}};

// For other devices, from the H200: 132 multiprocessors of 1980 MHz, memory of 4814 GB/s.
// Copies reach this share of the bandwidth that clock and width of the memory's bus give.
constexpr double kReachedBandwidth = 0.884;
// Opening a DRAM row takes as long as moving so many bytes. Banks, and with them the rows that are
// opened at a time, come with the bus's width.
constexpr double kBytesPerRow = 75.7;

// Of the link that Costs was measured on: PCI Express 5 with 16 lanes.
constexpr double kMeasuredLink = 63015;

}  // namespace

IssueRate issueRateOf(std::string_view name, const accel::DeviceTraits& traits) {
  IssueRate rate;
  rate.multiprocessors = traits.multiprocessors;
  for (const Measured& measured : kMeasured) {
    if (measured.name == name) {
      rate.cyclesPerRow = measured.cyclesPerRow;
      rate.cyclesPerByte = measured.cyclesPerByte;
      return rate;
    }
  }
  if (traits.multiprocessors == 0 || traits.cyclesPerMicrosecond <= 0 || traits.memoryRate <= 0) {
    return {};
  }
  // All multiprocessors together issue what the memory delivers in that time.
  rate.cyclesPerByte = traits.multiprocessors * traits.cyclesPerMicrosecond /
                       (kReachedBandwidth * traits.memoryRate);
  rate.cyclesPerRow = kBytesPerRow * rate.cyclesPerByte;
  return rate;
}

Costs costsOf(const accel::DeviceTraits& traits) {
  Costs costs;
  if (traits.linkRate > 0) {
    const double share = traits.linkRate / kMeasuredLink;
    costs.zeroCopyRate *= share;
    costs.zeroCopyReadRate *= share;
    costs.copyRate *= share;
    costs.copy2dRate *= share;
  }
  return costs;
}

}  // namespace gmac::datatype
