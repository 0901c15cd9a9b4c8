// SPDX-License-Identifier: Apache-2.0
//
// Parser of PTX text: a module's functions and variables, and the instructions of one function.
//
// It accepts less than ptxas does and rejects what it does not know (nullopt). Everything that it
// returns views the text, which must outlive it. Any bytes are valid input. Linear in the text.
#ifndef GMAC_DEVICE_CODE_PTX_H_
#define GMAC_DEVICE_CODE_PTX_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gmac::device_code::ptx {

// An operand of an instruction.
struct Operand {
  enum class Kind : std::uint8_t {
    kName,     // register, special register, variable or label; a variable may have an offset
    kInteger,  // an immediate
    kFloat,    // an immediate whose bits do not matter
    kSink,     // _
    kAddress,  // [name + offset], or [offset] with an empty name
    kVector,   // {a, b} or a|b; of calls also (a, b)
  };
  Kind kind = Kind::kSink;
  std::string_view name;
  std::int64_t value = 0;          // kInteger: itself; kName, kAddress: the offset
  std::uint32_t firstElement = 0;  // kVector: in Body::elements
  std::uint32_t elementCount = 0;
};

struct Instruction {
  std::string_view opcode;  // with its modifiers: ld.global.u32
  std::uint32_t firstOperand = 0;
  std::uint32_t operandCount = 0;
};

// A function's body. Scopes are ignored: declarations of one name in several of them are merged.
struct Body {
  std::vector<Instruction> instructions;
  std::vector<Operand> operands;
  std::vector<Operand> elements;
  // Registers -> bits, the widest of all declarations.
  std::unordered_map<std::string_view, unsigned> registers;
  // %r<5> declares %r0 to %r4: prefix -> (bits, count).
  std::unordered_map<std::string_view, std::pair<unsigned, std::uint64_t>> registerRanges;
  // Variables of the function itself, in .shared, .local, .global or .const -> whether managed.
  std::unordered_map<std::string_view, bool> variables;
  // Arguments and results of the calls that it makes.
  std::unordered_map<std::string_view, bool> callParameters;
};

struct Parameter {
  std::string_view name;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct Function {
  bool entry = false;
  bool defined = false;  // has a body
  bool definedTwice = false;
  // Of an entry: `parameters` is complete. Of others: they are in memory, not in registers.
  bool laidOut = false;
  std::vector<Parameter> parameters;  // of an entry
  std::string_view body;              // between its outer braces
};

struct Module {
  std::unordered_map<std::string_view, Function> functions;
  // Variables -> whether they may be in managed memory, or in that of a module that is not seen.
  std::unordered_map<std::string_view, bool> variables;
};

// nullopt: not PTX with 64-bit addresses, or not understood.
std::optional<Module> parseModule(std::string_view text);
// nullopt: not understood, or too large.
std::optional<Body> parseBody(std::string_view text);

// Bits of a type such as "u32"; 0: not one.
unsigned bitsOfType(std::string_view type);

}  // namespace gmac::device_code::ptx

#endif  // GMAC_DEVICE_CODE_PTX_H_
