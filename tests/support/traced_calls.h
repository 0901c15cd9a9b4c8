// SPDX-License-Identifier: Apache-2.0
//
// The system calls that something makes.
#ifndef GMAC_TESTS_SUPPORT_TRACED_CALLS_H_
#define GMAC_TESTS_SUPPORT_TRACED_CALLS_H_

#include <functional>
#include <optional>
#include <vector>

namespace gmac::testing {

// Calls `body` in a child of fork, with a function that calls its argument under the eyes of a
// tracer, and returns the numbers of the system calls that those arguments made, in order. Nothing
// where the system permits no tracing. A child that dies is a test failure.
using Traced = std::function<void(const std::function<void()>& action)>;
std::optional<std::vector<long>> tracedCalls(const std::function<void(const Traced&)>& body);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_TRACED_CALLS_H_
