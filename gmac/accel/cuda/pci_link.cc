// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/pci_link.h"

#include <algorithm>
#include <cstdlib>

#include "gmac/base/descriptor.h"

namespace gmac::accel::cuda {
namespace {

// The number that a file begins with; 0 where there is none ("Unknown", no such file).
double numberIn(const std::string& path) {
  const std::string text = readWholeFile(path).value_or("");
  const double number = std::strtod(text.c_str(), nullptr);
  return number > 0 ? number : 0;
}

}  // namespace

double pciLinkRate(const std::string& devices, const std::string& address) {
  const std::string device = devices + "/" + address;
  // The current speed is low while the link sleeps, so we take what both of its ends can do. (The
  // entry is a link into the tree of devices: its parent there is the port.) The width does not
  // change with the load.
  double gigatransfers = numberIn(device + "/max_link_speed");
  const double ofPort = numberIn(device + "/../max_link_speed");
  if (ofPort > 0) {
    gigatransfers = std::min(gigatransfers, ofPort);
  }
  const double lanes = numberIn(device + "/current_link_width");
  // A lane carries one bit a transfer. PCI Express 1 and 2 send 10 bits for 8, later versions 130
  // for 128.
  const double coding = gigatransfers < 8 ? 8.0 / 10 : 128.0 / 130;
  return gigatransfers * 1000 / 8 * coding * lanes;
}

}  // namespace gmac::accel::cuda
