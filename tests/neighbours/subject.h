// SPDX-License-Identifier: Apache-2.0
//
// A program that is not linked with the library. Its output must be the same with plain memory and,
// when the library is preloaded, with shared memory in any state. It looks up adsmAlloc in the
// preloaded library.
#ifndef GMAC_TESTS_NEIGHBOURS_SUBJECT_H_
#define GMAC_TESTS_NEIGHBOURS_SUBJECT_H_

#include <cstddef>
#include <cstdint>

namespace subject {

// A scenario: a name and what it does; its result is the exit status. Registered by SCENARIO.
struct Scenario {
  const char* name;
  int (*run)();
  Scenario* next;
  Scenario(const char* name, int (*run)());
};
Scenario* scenarios() noexcept;

#define SCENARIO(name)                                                \
  static int run_##name();                                            \
  static const subject::Scenario scenario_##name(#name, &run_##name); \
  static int run_##name()

// Writes one line to the standard output at once. For signal handlers too.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

inline constexpr std::size_t kBytes = std::size_t{1} << 20;

// Memory of kBytes bytes, all zero: shared when GMAC_TEST_SHARED is set, and plain else.
unsigned char* allocate();
// Makes the accelerator's copy of everything shared the only current one: the next access faults.
// Adds 1 to the first byte of `memory` on the accelerator.
void close(unsigned char* memory);

}  // namespace subject

#endif  // GMAC_TESTS_NEIGHBOURS_SUBJECT_H_
