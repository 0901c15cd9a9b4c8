// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_COHERENCE_MOVED_PAGES_H_
#define GMAC_COHERENCE_MOVED_PAGES_H_

#include <cstddef>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/os/mirror.h"

namespace gmac {

// The least that a copy of moved pages may have (the driver copies less through the CPU address,
// which is gone).
inline constexpr std::size_t kMovedGranularity = std::size_t{64} << 10;

// Whether this kernel and driver copy to and from pages that moved away: shown with real pages
// before any object depends on it. `stripes`: for copies of allocations over these devices; none:
// for those of others. adsmErrorNotSupported: they do not.
Status proveMovedPages(accel::Accelerator& accelerator, os::Pinner& pinner,
                       std::span<const std::size_t> stripes = {});

}  // namespace gmac

#endif  // GMAC_COHERENCE_MOVED_PAGES_H_
