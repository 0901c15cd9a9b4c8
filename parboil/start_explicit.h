// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_PARBOIL_START_EXPLICIT_H_
#define GMAC_PARBOIL_START_EXPLICIT_H_

namespace parboil {

// Starts the CUDA runtime for a program with explicit copies. Failure when there is no device, or
// no CUDA in this build.
void startExplicit();

}  // namespace parboil

#endif  // GMAC_PARBOIL_START_EXPLICIT_H_
