// SPDX-License-Identifier: Apache-2.0
#include "gmac/os/mirror.h"

#include <utility>

namespace gmac::os {

Status Mirror::addMargin(std::size_t bytes) {
  GMAC_TRY(mapAnonymous(address_ + bytes_, bytes));
  marginBytes_ = bytes;
  const Status kept = keepFromChildren(address_ + bytes_, bytes);
  if (!kept.ok()) {
    removeMargin();
  }
  return kept;
}

void Mirror::removeMargin() noexcept {
  if (const std::size_t bytes = std::exchange(marginBytes_, 0); bytes != 0) {
    (void)close(address_ + bytes_, bytes);
  }
}

}  // namespace gmac::os
