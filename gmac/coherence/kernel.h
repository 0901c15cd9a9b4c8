// SPDX-License-Identifier: Apache-2.0
//
// A kernel as the application described it, and what the accelerator made of it.
#ifndef GMAC_COHERENCE_KERNEL_H_
#define GMAC_COHERENCE_KERNEL_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/api/adsm.h"

// The kernel behind an application's adsmKernel_t: the API has a table of them (adsm.cc), and
// whoever uses one keeps it alive. Constant after creation except `loaded`, which Kernels fills
// at the first call, and `loading`; its lock guards both. The fault handler never calls it.
struct adsmKernel_s {
  std::string name;
  std::string cudaName;
  std::vector<std::size_t> paramSizes;
  std::vector<std::string> constantNames;
  std::vector<adsmConstant_t> constants;
  adsmKernelDesc_t desc;  // points into the members above
  std::array<std::unique_ptr<gmac::accel::LoadedKernel>, gmac::accel::kMaxDevices>
      loaded;            // by device
  bool loading = false;  // by a thread that has let go of the lock; all others wait
};

#endif  // GMAC_COHERENCE_KERNEL_H_
