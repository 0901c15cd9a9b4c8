// SPDX-License-Identifier: Apache-2.0
//
// What single instructions and registers of PTX are (PTX ISA, chapters 9 and 10).
#ifndef GMAC_DEVICE_CODE_INSTRUCTIONS_H_
#define GMAC_DEVICE_CODE_INSTRUCTIONS_H_

#include <string_view>
#include <vector>

namespace gmac::device_code {

// The parts of an opcode: ld.global.u32 -> ld, global, u32.
using Parts = std::vector<std::string_view>;
Parts partsOf(std::string_view opcode);
// Whether an opcode has a part after its first one.
bool has(const Parts& parts, std::string_view part);

// Whether the instruction computes its first operand from the others, and accesses no memory;
// whether it computes nothing and accesses no memory. By the opcode's first part.
bool isArithmetic(std::string_view opcode);
bool isControl(std::string_view opcode);
// Whether a part of a load's, a store's or an atomic operation's opcode says nothing of where it
// accesses memory.
bool isModifierOfAccess(std::string_view part);
// Of a load: what it reads may be written meanwhile.
bool expectsWriters(const Parts& parts);

bool isSpecialRegister(std::string_view name);
// The driver's memory for grid barriers has its address there.
bool isEnvironment(std::string_view name);

}  // namespace gmac::device_code

#endif  // GMAC_DEVICE_CODE_INSTRUCTIONS_H_
