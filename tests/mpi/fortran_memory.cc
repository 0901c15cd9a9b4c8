// SPDX-License-Identifier: Apache-2.0
//
// The shared object of the Fortran program.
#include "tests/mpi/shared.h"

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

void sharedFlip() { gmac::testing::flipObject(object, objectBytes); }

}  // extern "C"
