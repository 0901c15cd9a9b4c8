// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/status.h"

#include <algorithm>
#include <cstring>

namespace gmac {
namespace {

// Plain bytes without a constructor: the fault path may record the first error of its thread, and
// must neither allocate nor register a destructor for the thread's end then.
struct LastError {
  adsmError_t code;
  int number;
  char text[kErrorTextBytes];
};

// Initial-exec: the first error of a thread may happen in the fault handler, which may not
// allocate.
__attribute__((tls_model("initial-exec"))) constinit thread_local LastError lastError{
    adsmSuccess, 0, {}};

}  // namespace

void recordError(adsmError_t code, std::string_view text) noexcept {
  // Leave one byte for the terminator. The text may be part of the buffer itself (a caller that
  // extends the last error).
  const std::size_t length = std::min(text.size(), kErrorTextBytes - 1);
  std::memmove(lastError.text, text.data(), length);
  lastError.text[length] = '\0';
  lastError.code = code;
  lastError.number = 0;
}

adsmError_t lastErrorCode() noexcept { return lastError.code; }

void recordErrorNumber(int number) noexcept { lastError.number = number; }

int lastErrorNumber() noexcept { return lastError.number; }

const char* lastErrorText() noexcept { return lastError.text; }

const char* errorName(adsmError_t code) noexcept {
  // No default: the compiler names the enumerator that is missing here.
  switch (code) {
#define GMAC_ERROR_NAME(name) \
  case name:                  \
    return #name
    GMAC_ERROR_NAME(adsmSuccess);
    GMAC_ERROR_NAME(adsmErrorInvalidValue);
    GMAC_ERROR_NAME(adsmErrorInvalidPointer);
    GMAC_ERROR_NAME(adsmErrorHostMemory);
    GMAC_ERROR_NAME(adsmErrorAcceleratorMemory);
    GMAC_ERROR_NAME(adsmErrorAddressConflict);
    GMAC_ERROR_NAME(adsmErrorNoImplementation);
    GMAC_ERROR_NAME(adsmErrorLaunch);
    GMAC_ERROR_NAME(adsmErrorKernel);
    GMAC_ERROR_NAME(adsmErrorAcceleratorLost);
    GMAC_ERROR_NAME(adsmErrorNoAccelerator);
    GMAC_ERROR_NAME(adsmErrorConfiguration);
    GMAC_ERROR_NAME(adsmErrorForked);
    GMAC_ERROR_NAME(adsmErrorSystem);
    GMAC_ERROR_NAME(adsmErrorNotSupported);
#undef GMAC_ERROR_NAME
  }
  return "adsmErrorUnknown";
}

}  // namespace gmac
