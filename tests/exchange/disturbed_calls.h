// SPDX-License-Identifier: Apache-2.0
//
// The system calls that the exchange makes, disturbed at a chosen one.
#ifndef GMAC_TESTS_EXCHANGE_DISTURBED_CALLS_H_
#define GMAC_TESTS_EXCHANGE_DISTURBED_CALLS_H_

#include <functional>

namespace gmac::testing {

enum class Disturbance {
  kNone,
  kPasses,   // the call fails once for want of something that comes back
  kRefused,  // it fails once, for good
  kKilled,   // the process is killed before it
  kStopped   // it is stopped before it
};

// From now on, in this process: disturbs the call with that number, from 1.
void disturb(Disturbance how, int number);
// Calls this once, before the runtime next opens a file of /proc.
void beforeNextOpen(std::function<void()> function);
// Whether that call has come. disturb(kNone, 0) before.
bool disturbed();
// Calls since disturb().
int calls();

}  // namespace gmac::testing

#endif  // GMAC_TESTS_EXCHANGE_DISTURBED_CALLS_H_
