// SPDX-License-Identifier: Apache-2.0
//
// What a program with the thread sanitizer needs of it in order to run with this library, as its
// default: the sanitizer asks a function of this name, and finds this one where the library is
// preloaded. TSAN_OPTIONS comes before it, and so does a function of the program's own.
//
// Left out of the library's own builds with a sanitizer, whose tests say what they want.
#if !defined(__SANITIZE_THREAD__)

#include "interpose/base/real.h"

// Faults are answered in a signal handler, which the sanitizer would report at every call that is
// not for handlers. The device process of the `host` accelerator is a fork that starts threads.
extern "C" GMAC_INTERPOSED const char* __tsan_default_options() {
  return "report_signal_unsafe=0:die_after_fork=0";
}

#endif
