// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_BASE_KEEPING_ERROR_H_
#define GMAC_BASE_KEEPING_ERROR_H_

#include <string>

#include "gmac/base/status.h"

namespace gmac {

// Undoes something; what the caller is told stays what went wrong first.
template <typename Function>
Status keepingError(const Status& status, Function undo) {
  if (status.ok()) {
    undo();
    return status;
  }
  const std::string text = lastErrorText();
  undo();
  recordError(status.code(), text);
  return status;
}

}  // namespace gmac

#endif  // GMAC_BASE_KEEPING_ERROR_H_
