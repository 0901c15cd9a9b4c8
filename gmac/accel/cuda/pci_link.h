// SPDX-License-Identifier: Apache-2.0
//
// How fast the PCI Express link of a device is.
#ifndef GMAC_ACCEL_CUDA_PCI_LINK_H_
#define GMAC_ACCEL_CUDA_PCI_LINK_H_

#include <string>

namespace gmac::accel::cuda {

// Where Linux describes PCI devices.
inline constexpr const char* kPciDevices = "/sys/bus/pci/devices";

// Raw bytes per microsecond in each direction of the link of device `address` ("0000:1b:00.0"), as
// the files in `devices` say; 0 where they do not say it. Thread-safe.
double pciLinkRate(const std::string& devices, const std::string& address);

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_PCI_LINK_H_
