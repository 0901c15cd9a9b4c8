// SPDX-License-Identifier: Apache-2.0
//
// The random programs under every protocol and several block sizes, on every accelerator of the
// machine.
#include "tests/random_program.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/random_program_fatbin.h"

#if GMAC_HAVE_CUDA
extern "C" const void* randomProgramTransformBytes();
extern "C" const void* randomProgramAddBytes();
#else
static const void* randomProgramTransformBytes() { return nullptr; }
static const void* randomProgramAddBytes() { return nullptr; }
#endif

namespace gmac::testing {

const RandomProgramKit& randomProgramKit() {
  static const RandomProgramKit kit{tests_random_program_fatbin,
                                    {randomProgramTransformBytes(), randomProgramAddBytes()}};
  return kit;
}

namespace {

std::vector<Combination> everyCombination() {
  std::vector<Combination> combinations;
  for (const char* accelerator : {"host", "host:3", "cuda", "cudart"}) {
    for (const char* protocol : {"batch", "lazy", "rolling"}) {
      for (const char* blockSize : {"4K", "64K", "1M"}) {
        combinations.push_back({accelerator, protocol, blockSize, "current"});
      }
    }
  }
  // Where an object has many blocks, its parts lie on several devices.
  for (const char* accelerator : {"host:2", "host:4"}) {
    for (const char* blockSize : {"4K", "64K"}) {
      combinations.push_back({accelerator, "rolling", blockSize, "current"});
    }
  }
  // A GPU beside devices without one.
  for (const char* protocol : {"batch", "lazy", "rolling"}) {
    combinations.push_back({"cuda+host:2", protocol, "64K", "history"});
  }
  for (const char* scheduler : {"data", "history"}) {
    for (const char* protocol : {"batch", "lazy", "rolling"}) {
      combinations.push_back({"host:3", protocol, "64K", scheduler});
    }
  }
  // More objects than a device has room for.
  combinations.push_back({"host:2", "lazy", "64K", "current", "44M", true});
  combinations.push_back({"host:3", "rolling", "4K", "data", "54M", true});
  combinations.push_back({"host:4", "rolling", "64K", "history", "64M", true});
  return combinations;
}

INSTANTIATE_TEST_SUITE_P(, RandomProgram, ::testing::ValuesIn(everyCombination()), combinationName);

}  // namespace
}  // namespace gmac::testing
