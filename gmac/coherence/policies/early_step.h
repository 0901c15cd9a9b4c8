// SPDX-License-Identifier: Apache-2.0
//
// The outcome of one step of an early fetch (early_copies.h).
#ifndef GMAC_COHERENCE_POLICIES_EARLY_STEP_H_
#define GMAC_COHERENCE_POLICIES_EARLY_STEP_H_

#include <cstdint>

namespace gmac {

// kWaits: kernels, or a copy, must finish first.
enum class EarlyStep : std::uint8_t { kIdle, kWaits, kMoved };

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_EARLY_STEP_H_
