// SPDX-License-Identifier: Apache-2.0
//
// Whether a program of this folder tests windows. Who starts it knows from plain_window.cc.
#ifndef GMAC_TESTS_MPI_WINDOWS_HERE_H_
#define GMAC_TESTS_MPI_WINDOWS_HERE_H_

#include <cstdio>
#include <cstdlib>

namespace gmac::testing {

// False where GMAC_TEST_NO_WINDOWS has the text by which MPI refuses one over plain memory, without
// gmac. `says`: prints that the windows are skipped, and why.
inline bool windowsHere(bool says) {
  const char* const refusal = std::getenv("GMAC_TEST_NO_WINDOWS");
  if (refusal == nullptr) return true;
  if (says) {
    std::printf("skipped: windows: MPI refuses one over plain memory: %s\n", refusal);
    std::fflush(stdout);
  }
  return false;
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_WINDOWS_HERE_H_
