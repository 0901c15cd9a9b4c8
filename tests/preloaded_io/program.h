// SPDX-License-Identifier: Apache-2.0
//
// Makes a test a program that is not linked with the library: it starts itself again with the
// library preloaded, once per protocol, and runs its tests there.
#ifndef GMAC_TESTS_PRELOADED_IO_PROGRAM_H_
#define GMAC_TESTS_PRELOADED_IO_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gmac/api/adsm.h"

namespace gmac::testing {

// Runs the tests of this program in a child per protocol with `libraries` preloaded, in that order
// (paths as a test finds them); in such a child, runs them itself. The answer is main's.
int runPreloaded(int count, char** arguments, const std::vector<std::string>& libraries);

// The API as the preloaded library has it. Ends the process when it is not there.
struct Api {
  decltype(&::adsmAlloc) alloc;
  decltype(&::adsmFree) free;
  decltype(&::adsmKernelCreate) kernelCreate;
  decltype(&::adsmCall) call;
  decltype(&::adsmSync) sync;
  decltype(&::adsmLastErrorString) lastErrorString;
};
const Api& api();

// The same sequence for the same seed, on every machine. One thread's.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  // In [0, bound), bound > 0.
  std::size_t below(std::size_t bound) { return next() % bound; }
  bool oneIn(std::size_t bound) { return below(bound) == 0; }
  // Of every order of magnitude up to `most`, 0 and `most` included.
  std::size_t size(std::size_t most);

 private:
  std::uint64_t state_;
};

// GMAC_TEST_SEED, else by the clock; the same in every child.
std::uint64_t testSeed();
// GMAC_TEST_STEPS, else the number given.
std::size_t testSteps(std::size_t otherwise);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_PRELOADED_IO_PROGRAM_H_
