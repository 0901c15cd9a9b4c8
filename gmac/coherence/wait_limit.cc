// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/wait_limit.h"

#include <cstdlib>

#include "gmac/base/log.h"

namespace gmac::coherence {

void endAfterWaitLimit(const void* access, unsigned seconds) noexcept {
  log(LogLevel::kError,
      "the CPU's access to {} has waited {} seconds for device work that still runs. A kernel that "
      "itself waits for the CPU cannot be served; if it is only long, set GMAC_WAIT_LIMIT to more "
      "seconds, or to 0 for no limit",
      access, seconds);
  std::abort();
}

}  // namespace gmac::coherence
