// SPDX-License-Identifier: Apache-2.0
//
// Default options that a program with the thread sanitizer needs to run with this library: the
// sanitizer calls a function of this name, and finds this one where the library is preloaded.
// TSAN_OPTIONS overrides it, and so does a function of the program's own.
//
// The library's own sanitizer builds leave it out: their tests set the options.
#if !defined(__SANITIZE_THREAD__)

#include "interpose/base/real.h"

// A signal handler answers faults; the sanitizer would report every call in it that is not for
// handlers. The device process of the `host` accelerator is a fork that starts threads.
extern "C" GMAC_INTERPOSED const char* __tsan_default_options() {
  return "report_signal_unsafe=0:die_after_fork=0";
}

#endif
