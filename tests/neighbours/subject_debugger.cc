// SPDX-License-Identifier: Apache-2.0
//
// Data for a debugger; debugger_test.cc stops here.
#include <sys/mman.h>

#include "tests/neighbours/subject.h"

// Variables for the debugger, with names that need no debugging information.
extern "C" {
unsigned char* debuggedMemory = nullptr;
[[gnu::noinline]] void stopForDebugger() { asm volatile(""); }
}

SCENARIO(isLookedAtByADebugger) {
  debuggedMemory = subject::allocate();
  for (std::size_t i = 0; i < subject::kBytes; ++i) debuggedMemory[i] = 7;
  subject::close(debuggedMemory);
  stopForDebugger();
  subject::say("%d %d", debuggedMemory[0], debuggedMemory[subject::kBytes - 1]);
  return 0;
}

SCENARIO(crashesUnderADebugger) {
  debuggedMemory = subject::allocate();
  subject::close(debuggedMemory);
  subject::say("%d", debuggedMemory[0]);
  auto* const foreign = static_cast<volatile unsigned char*>(
      mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  *foreign = 1;
  return 0;
}
