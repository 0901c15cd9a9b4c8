// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_FORK_MARK_H_
#define GMAC_BASE_FORK_MARK_H_

#include "gmac/base/status.h"

namespace gmac {

// Tells the process that made it from its children, also those of _Fork() and clone(), which run no
// fork handlers: it is a page that the kernel wipes in a child. Children that share the memory
// (vfork) count as the process itself. inChild() is thread-safe, costs one load, and is for the
// fault path too. Before make(), every process counts as the one that made it.
class ForkMark {
 public:
  ForkMark() = default;
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  Status make();
  bool inChild() const noexcept { return page_ != nullptr && *page_ == 0; }

 private:
  volatile unsigned char* page_ = nullptr;
};

}  // namespace gmac

#endif  // GMAC_BASE_FORK_MARK_H_
