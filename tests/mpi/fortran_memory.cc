// SPDX-License-Identifier: Apache-2.0
//
// The shared objects of the Fortran programs, and whether they test windows.
#include "tests/mpi/shared.h"
#include "tests/mpi/windows_here.h"

namespace {

void* object = nullptr;
std::size_t objectBytes = 0;

}  // namespace

extern "C" {

void* sharedAlloc(std::size_t bytes) {
  objectBytes = bytes;
  object = adsmAlloc(bytes);
  if (object == nullptr) gmac::testing::fail("allocation");
  return object;
}

void* sharedTake(std::size_t bytes) {
  void* const taken = adsmAlloc(bytes);
  if (taken == nullptr) gmac::testing::fail("allocation");
  return taken;
}
void sharedGive(void* taken) { gmac::testing::require(adsmFree(taken), "adsmFree"); }
void sharedFlipOf(void* taken, std::size_t bytes) { gmac::testing::flipObject(taken, bytes); }

void sharedFlip() { gmac::testing::flipObject(object, objectBytes); }

int windowsHere(int says) { return gmac::testing::windowsHere(says != 0) ? 1 : 0; }

}  // extern "C"
