// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_SESSION_FILE_NAMES_H_
#define GMAC_SESSION_FILE_NAMES_H_

#include <string>
#include <string_view>

namespace gmac {

// The path of a file that each process of a job writes for itself: in what the variable says, `%p`
// stands for the process's id, `%r` for its rank as the MPI launcher tells it (0 without one), and
// `%%` for a `%`; any other `%` for itself. `variable` reads the environment. Thread-safe if that
// is.
std::string ownFileName(std::string_view pattern, const char* (*variable)(const char* name));

}  // namespace gmac

#endif  // GMAC_SESSION_FILE_NAMES_H_
