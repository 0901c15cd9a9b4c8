// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_SUPPORT_THREAD_NAMES_H_
#define GMAC_TESTS_SUPPORT_THREAD_NAMES_H_

#include <string_view>

namespace gmac::testing {

// Whether a thread of this process has the name, as debuggers show it. Threads name themselves, so
// a thread that has just been started is given some seconds.
bool aThreadIsCalled(std::string_view name);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_THREAD_NAMES_H_
