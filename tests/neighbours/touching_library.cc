// SPDX-License-Identifier: Apache-2.0
//
// A library that touches memory of the program while it is loaded and unloaded.
#include <cstdint>
#include <cstdlib>

namespace {

volatile unsigned char* place() {
  return reinterpret_cast<volatile unsigned char*>(
      std::strtoull(std::getenv("GMAC_TEST_ADDRESS"), nullptr, 16));
}

[[gnu::constructor]] void load() { *place() = static_cast<unsigned char>(*place() + 1); }
[[gnu::destructor]] void unload() { *place() = static_cast<unsigned char>(*place() + 1); }

}  // namespace
