// SPDX-License-Identifier: Apache-2.0
//
// Threads that help a caller with work that can be cut.
#ifndef GMAC_DATATYPE_CPU_THREADS_H_
#define GMAC_DATATYPE_CPU_THREADS_H_

#include <cstddef>
#include <functional>

namespace gmac::datatype {

// Calls body(0) to body(parts - 1), each once, on at most `threads` threads, the caller's among
// them, and returns when all have returned. The caller begins at once; helpers, which are started
// when they are first wanted and then wait for work, join when they wake. While another caller has
// the helpers, and where none can be started, the caller does everything. `body` does not throw.
//
// Thread-safe; a child of fork starts with no helpers and gets its own. Helpers block all signals
// and live as long as the process.
void shareOut(std::size_t threads, std::size_t parts, const std::function<void(std::size_t)>& body);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_CPU_THREADS_H_
