// SPDX-License-Identifier: Apache-2.0
//
// libgmac.so and libgmac_mpi.so as the dynamic linker is told of them.
#ifndef GMAC_TOOLS_GMAC_LIBRARY_H_
#define GMAC_TOOLS_GMAC_LIBRARY_H_

#include <string>
#include <string_view>
#include <vector>

namespace gmac::command {

// The library that belongs to this command: ../lib/libgmac.so of where it is installed,
// ../../gmac/libgmac.so where it was built. Throws Failure (kOurs) when it is in neither place, or
// where LD_PRELOAD cannot name it.
std::string findLibrary();

// The library for programs that use MPI: ../lib/libgmac_mpi.so, or ../../mpi/libgmac_mpi.so. Throws
// as findLibrary() does.
std::string findMpiLibrary();

// The LD_PRELOAD of a program that is linked with `needed`, given what it is (empty: not set). The
// library comes before allocators and whatever else stands there, so that it sees every call first.
// Only the runtime of the address sanitizer comes before it: programs that have one refuse to run
// when it is not the first of all.
std::string preloadWith(const std::string& library, std::string_view existing,
                        const std::vector<std::string>& needed);

}  // namespace gmac::command

#endif  // GMAC_TOOLS_GMAC_LIBRARY_H_
