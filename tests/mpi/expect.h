// SPDX-License-Identifier: Apache-2.0
//
// How the programs of this folder fail: the rank says what is wrong, with MPI's own text where MPI
// has one, and ends all processes.
#ifndef GMAC_TESTS_MPI_EXPECT_H_
#define GMAC_TESTS_MPI_EXPECT_H_

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace gmac::testing {

// MPI's text for what a call has returned.
inline std::string errorText(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return "error " + std::to_string(code);
  }
  return {text.data(), static_cast<std::size_t>(length)};
}

// Whether a call has failed with such words in its text.
inline bool says(int code, const char* words) {
  return code != MPI_SUCCESS && errorText(code).find(words) != std::string::npos;
}

[[noreturn]] inline void failRank(const std::string& what) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "rank %d: FAILED: %s\n", rank, what.c_str());
  std::fflush(stderr);
  ::sleep(1);  // the launcher passes that on
  MPI_Abort(MPI_COMM_WORLD, 1);
  ::_exit(1);
}

inline void expect(bool holds, const char* what) {
  if (!holds) failRank(what);
}
// In the round of that number.
inline void expect(bool holds, const char* what, int number) {
  if (!holds) failRank(std::string(what) + " (" + std::to_string(number) + ")");
}
// Checks the return value of a call.
inline void expectSuccess(int code, const char* what) {
  if (code != MPI_SUCCESS) failRank(std::string(what) + ": " + errorText(code));
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_EXPECT_H_
