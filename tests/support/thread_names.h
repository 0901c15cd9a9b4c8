// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_TESTS_SUPPORT_THREAD_NAMES_H_
#define GMAC_TESTS_SUPPORT_THREAD_NAMES_H_

#include <string_view>

namespace gmac::testing {

// Whether a thread of this process has the name, as debuggers show it. Threads name themselves, so
// one that has just been started may not have it yet: aThreadIsCalled gives it some seconds.
bool aThreadIsCalledNow(std::string_view name);
bool aThreadIsCalled(std::string_view name);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_THREAD_NAMES_H_
