// SPDX-License-Identifier: Apache-2.0
//
// Where code and variables of a loaded module lie: the same module may be loaded at different
// addresses in the application and in the device process, so the two speak of (module, offset).
#ifndef GMAC_ACCEL_HOST_MODULE_TABLE_H_
#define GMAC_ACCEL_HOST_MODULE_TABLE_H_

#include <array>
#include <climits>
#include <cstdint>
#include <optional>

namespace gmac::accel::host {

enum class SegmentUse { kExecute, kWrite };

struct ModulePlace {
  std::array<char, PATH_MAX> module;  // the dynamic linker's name for it; "" for the program
  std::intptr_t offset;               // from the module's load address
};

// The module that has `address` in a segment with that right; nothing when there is none.
// Thread-safe; takes the dynamic linker's lock, so not for the fault handler.
std::optional<ModulePlace> placeOf(const void* address, SegmentUse use);

// The load address of the module that the dynamic linker knows by this name, in this process.
// Thread-safe.
std::optional<std::uintptr_t> loadAddressOf(const char* module);

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_MODULE_TABLE_H_
