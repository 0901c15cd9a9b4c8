// SPDX-License-Identifier: Apache-2.0
//
// The shared object of the Fortran program.
#include "tests/mpi/shared.h"

namespace {

const gmac::testing::Memory* object = nullptr;

}  // namespace

extern "C" {

void* sharedAlloc(std::size_t bytes) {
  object = new gmac::testing::Memory(gmac::testing::Memory::Kind::kShared, bytes);
  return object->data();
}

void sharedFlip() { object->flip(); }

}  // extern "C"
