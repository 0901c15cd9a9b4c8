// SPDX-License-Identifier: Apache-2.0
#include "gmac/device_code/pointer_uses.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gmac/device_code/abstract_values.h"
#include "gmac/device_code/instructions.h"
#include "gmac/device_code/ptx.h"

namespace gmac::device_code {
namespace {

using Kind = ptx::Operand::Kind;
using Node = std::uint32_t;

constexpr Node kNoNode = ~Node{0};
constexpr std::int64_t kNullPage = 65536;  // no memory lies below
constexpr std::size_t kMaxFunctions = 256;
constexpr std::size_t kMaxPointers = 4096;

struct Access {
  Node address;
  bool writes;
};

// Where uses of all functions of a kernel are gathered.
struct Findings {
  std::map<std::uint32_t, bool> pointers;             // offset -> writes
  std::map<std::vector<std::uint32_t>, bool> bases;   // words -> nullable
  std::map<std::vector<std::uint32_t>, bool> tables;  // words -> writes
};

// One function. run() once.
class FunctionAnalysis {
 public:
  FunctionAnalysis(const ptx::Module& module, const ptx::Function& function, Values& values)
      : module_(module), function_(function), values_(values) {}

  // False: it may access anything.
  bool run(Findings& findings) {
    auto body = ptx::parseBody(function_.body);
    if (!body) {
      return false;
    }
    body_ = std::move(*body);
    for (const ptx::Parameter& parameter : function_.parameters) {
      if (!parameters_.emplace(parameter.name, &parameter).second) {
        return false;
      }
    }
    if (hasAmbiguousNames()) {
      return false;
    }
    findParameterAddresses();
    for (const ptx::Instruction& instruction : body_.instructions) {
      if (!translate(instruction)) {
        return false;
      }
    }
    return !ambiguous_ && solve() && judge(findings);
  }

  // Those of the module that it calls; after run().
  const std::vector<std::string_view>& callees() const { return callees_; }

 private:
  struct Rule {
    Operation operation;
    std::uint8_t detail;
    Node result;
    Node a;
    Node b;
  };

  // Scopes are ignored, which is right as long as all declarations of a name are of one kind.
  bool hasAmbiguousNames() const {
    for (const auto& [name, managed] : body_.callParameters) {
      if (parameters_.contains(name) || body_.variables.contains(name)) {
        return true;
      }
    }
    for (const auto& [name, parameter] : parameters_) {
      if (body_.variables.contains(name) || module_.variables.contains(name)) {
        return true;
      }
    }
    return false;
  }

  // nvcc loads parts of structures by way of a register with the parameter's address, which is
  // written once.
  void findParameterAddresses() {
    std::unordered_map<std::string_view, std::size_t> writes;
    for (const ptx::Instruction& instruction : body_.instructions) {
      if (instruction.operandCount != 0) {
        for (const ptx::Operand& operand : elementsOf(operandOf(instruction, 0))) {
          ++writes[operand.name];
        }
      }
    }
    for (const ptx::Instruction& instruction : body_.instructions) {
      if ((instruction.opcode == "mov.b64" || instruction.opcode == "mov.u64") &&
          instruction.operandCount == 2 && operandOf(instruction, 0).kind == Kind::kName &&
          operandOf(instruction, 1).kind == Kind::kName) {
        const ptx::Operand& from = operandOf(instruction, 1);
        const std::string_view to = operandOf(instruction, 0).name;
        if (parameters_.contains(from.name) && bitsOfRegister(from.name) == 0 && writes[to] == 1) {
          parameterAddresses_.emplace(to, &from);
        }
      }
    }
  }

  // Bits of a register as declared; 0: it is none.
  unsigned bitsOfRegister(std::string_view name) const {
    unsigned bits = 0;
    const auto single = body_.registers.find(name);
    if (single != body_.registers.end()) {
      bits = single->second;
    }
    // %rd12 may be of %rd<20>, and also of %rd1<3>.
    std::uint64_t number = 0;
    std::uint64_t unit = 1;
    for (std::size_t digits = 1; digits < name.size() && digits < 19; ++digits) {
      const char c = name[name.size() - digits];
      if (c < '0' || c > '9') {
        break;
      }
      number += unit * static_cast<std::uint64_t>(c - '0');
      unit *= 10;
      if (c == '0' && digits > 1) {
        continue;  // %r01 is none of %r<2>
      }
      const auto range = body_.registerRanges.find(name.substr(0, name.size() - digits));
      if (range != body_.registerRanges.end() && number < range->second.second) {
        bits = std::max(bits, range->second.first);
      }
    }
    return bits;
  }

  Node newNode(const Value& value) {
    known_.push_back(values_.add(value));
    return static_cast<Node>(known_.size() - 1);
  }

  void add(Operation operation, unsigned detail, Node result, Node a, Node b) {
    rules_.push_back({operation, static_cast<std::uint8_t>(detail), result, a, b});
  }
  Node compute(Operation operation, unsigned detail, Node a, Node b = kNoNode) {
    const Node result = newNode({});
    add(operation, detail, result, a, b == kNoNode ? a : b);
    return result;
  }
  void include(Node node, const Value& value) {
    known_[node] = values_.join(known_[node], values_.add(value));
  }

  std::optional<Node> registerNode(std::string_view name) {
    const auto known = nodes_.find(name);
    if (known != nodes_.end()) {
      return known->second;
    }
    const unsigned bits = bitsOfRegister(name);
    if (bits == 0) {
      return std::nullopt;
    }
    if (variable(name) || isSpecialRegister(name) || isEnvironment(name)) {
      ambiguous_ = true;
    }
    const Node node = newNode({});
    nodes_.emplace(name, node);
    bits_[node] = bits;
    return node;
  }

  // The value of what an instruction reads. nullopt: not understood.
  std::optional<Node> source(const ptx::Operand& operand) {
    switch (operand.kind) {
      case Kind::kInteger:
        return newNode(constantValue(operand.value));
      case Kind::kFloat:
        return newNode(numberOf(0));
      case Kind::kName:
        break;
      case Kind::kSink:
      case Kind::kAddress:
      case Kind::kVector:
        return std::nullopt;
    }
    if (const auto node = registerNode(operand.name)) {
      return operand.value == 0 ? node : std::nullopt;
    }
    if (isSpecialRegister(operand.name)) {
      return newNode(numberOf(0));
    }
    Value value;
    if (isEnvironment(operand.name)) {
      value.environment = true;
      return newNode(value);
    }
    if (const auto managed = variable(operand.name)) {
      if (*managed) {
        return newNode(anything());
      }
      value.symbol = true;
      return newNode(value);
    }
    return std::nullopt;
  }

  static Value anything() {
    Value value = numberOf(kFullReach);
    value.negative = true;
    return value;
  }

  // Whether a variable may be managed; nullopt: it is none.
  std::optional<bool> variable(std::string_view name) const {
    const auto own = body_.variables.find(name);
    const auto global = module_.variables.find(name);
    if (own == body_.variables.end() && global == module_.variables.end()) {
      if (parameters_.contains(name) || body_.callParameters.contains(name)) {
        return false;
      }
      return std::nullopt;
    }
    return (own != body_.variables.end() && own->second) ||
           (global != module_.variables.end() && global->second);
  }

  // The register that an instruction writes; kNoNode for a sink. nullopt: none.
  std::optional<Node> destination(const ptx::Operand& operand) {
    if (operand.kind == Kind::kSink) {
      return kNoNode;
    }
    return operand.kind == Kind::kName && operand.value == 0 ? registerNode(operand.name)
                                                             : std::nullopt;
  }

  const ptx::Operand& operandOf(const ptx::Instruction& instruction, std::size_t index) const {
    return body_.operands[instruction.firstOperand + index];
  }

  // An operand's elements if it is a vector, else itself.
  std::vector<ptx::Operand> elementsOf(const ptx::Operand& operand) const {
    if (operand.kind != Kind::kVector) {
      return {operand};
    }
    const auto first = body_.elements.begin() + operand.firstElement;
    return {first, first + operand.elementCount};
  }

  bool translate(const ptx::Instruction& instruction) {
    const Parts parts = partsOf(instruction.opcode);
    const std::string_view opcode = parts.front();
    if (isControl(opcode)) {
      return true;
    }
    if (opcode == "bar" || opcode == "barrier") {
      return !has(parts, "red") || compute(instruction);
    }
    if (opcode == "fence") {
      return !has(parts, "tensormap::generic") && addresses(instruction) == 0;
    }
    if (isArithmetic(opcode)) {
      return arithmetic(instruction, parts);
    }
    if (opcode == "cvta") {
      return instruction.operandCount == 2 && convertAddress(instruction, parts);
    }
    if (opcode == "ld" || opcode == "ldu" || opcode == "st" || opcode == "atom" ||
        opcode == "red") {
      return access(instruction, parts);
    }
    if (opcode == "call") {
      return call(instruction);
    }
    return special(instruction, parts);
  }

  std::size_t addresses(const ptx::Instruction& instruction) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < instruction.operandCount; ++i) {
      count += operandOf(instruction, i).kind == Kind::kAddress ? 1 : 0;
    }
    return count;
  }

  // Any result of the operands after the first, which has no address.
  bool compute(const ptx::Instruction& instruction) {
    if (instruction.operandCount == 0) {
      return false;
    }
    std::vector<Node> sources;
    for (std::size_t i = 1; i < instruction.operandCount; ++i) {
      for (const ptx::Operand& operand : elementsOf(operandOf(instruction, i))) {
        const auto node = source(operand);
        if (!node) {
          return false;
        }
        sources.push_back(*node);
      }
    }
    // The results of a vector are made by way of one node, else their number is a product.
    Node all = kNoNode;
    if (sources.size() == 1) {
      all = sources.front();
    } else {
      all = newNode(numberOf(0));
      for (const Node node : sources) {
        add(Operation::kNumber64, 0, all, node, node);
      }
    }
    for (const ptx::Operand& operand : elementsOf(operandOf(instruction, 0))) {
      const auto result = destination(operand);
      if (!result) {
        return false;
      }
      if (*result != kNoNode) {
        add(bits_[*result] <= 32 ? Operation::kNumber32 : Operation::kNumber64, 0, *result, all,
            all);
      }
    }
    return true;
  }

  // The result is one of the operands of these indices.
  bool copy(const ptx::Instruction& instruction, std::initializer_list<std::size_t> indices,
            Operation operation = Operation::kCopy, unsigned detail = 0) {
    const auto result = destination(operandOf(instruction, 0));
    if (!result || *result == kNoNode) {
      return false;
    }
    for (const std::size_t index : indices) {
      const auto node = source(operandOf(instruction, index));
      if (!node) {
        return false;
      }
      add(operation, detail, *result, *node, *node);
    }
    return true;
  }

  bool convertAddress(const ptx::Instruction& instruction, const Parts& parts) {
    if (!copy(instruction, {1})) {
      return false;
    }
    if (!has(parts, "to") && !has(parts, "global")) {
      // Of shared, local or parameter memory: no table is there, even if a parameter says where.
      Value value;
      value.symbol = true;
      include(*destination(operandOf(instruction, 0)), value);
    }
    return true;
  }

  bool arithmetic(const ptx::Instruction& instruction, const Parts& parts) {
    if (addresses(instruction) != 0) {
      return false;
    }
    const std::string_view opcode = parts.front();
    const std::size_t count = instruction.operandCount;
    const std::string_view type = parts.back();
    const bool untyped = parts.size() == 2 && ptx::bitsOfType(type) == 64;
    const bool integer64 = untyped && type != "f64" && type != "f32x2";
    const bool scalar = std::none_of(
        body_.operands.begin() + instruction.firstOperand,
        body_.operands.begin() + instruction.firstOperand + static_cast<std::ptrdiff_t>(count),
        [](const ptx::Operand& operand) { return operand.kind == Kind::kVector; });
    if (opcode == "mov" && count == 2) {
      return move(instruction, parts);
    }
    if (opcode == "cvt" && count == 2 && scalar) {
      return convert(instruction, parts);
    }
    if (!scalar) {
      return compute(instruction);
    }
    if (opcode == "selp" && count == 4 && parts.size() == 2) {
      const unsigned bits = ptx::bitsOfType(type);
      if (bits == 64) {
        return copy(instruction, {1, 2});
      }
      if (bits == 32) {
        return copy(instruction, {1, 2}, Operation::kNarrow, 32);
      }
    }
    if (integer64 && (opcode == "min" || opcode == "max") && count == 3) {
      return copy(instruction, {1, 2});
    }
    if (integer64 && count == 3) {
      if (opcode == "add") {
        return binary(instruction, Operation::kAdd);
      }
      if (opcode == "sub") {
        return binary(instruction, Operation::kSubtract);
      }
      if (opcode == "shl") {
        return shiftLeft(instruction);
      }
      if (opcode == "and") {
        return mask(instruction);
      }
      if (opcode == "or") {
        return disjoin(instruction);
      }
      if (opcode == "shr" || opcode == "div") {
        const ptx::Operand& by = operandOf(instruction, 2);
        const bool scaled =
            by.kind == Kind::kInteger && (opcode == "shr" ? by.value != 0 : by.value > 1);
        return copy(instruction, {1, 2}, Operation::kScramble, scaled ? 1 : 0);
      }
      if (opcode == "rem") {
        return copy(instruction, {1, 2}, Operation::kScramble);
      }
    }
    if (integer64 && opcode == "neg" && count == 2) {
      const auto result = destination(operandOf(instruction, 0));
      const auto node = source(operandOf(instruction, 1));
      if (!result || *result == kNoNode || !node) {
        return false;
      }
      add(Operation::kSubtract, 0, *result, newNode(constantValue(0)), *node);
      return true;
    }
    if ((opcode == "mul" || opcode == "mad") && parts.size() == 3) {
      const bool widening = parts[1] == "wide" && (type == "s32" || type == "u32");
      const bool low = parts[1] == "lo" && (type == "s64" || type == "u64");
      if (widening || low) {
        return multiply(instruction, widening, opcode == "mad");
      }
    }
    if (opcode == "bfi" && integer64 && count == 5) {
      // How halves are joined.
      const ptx::Operand& position = operandOf(instruction, 3);
      const ptx::Operand& length = operandOf(instruction, 4);
      if (position.kind == Kind::kInteger && position.value == 32 &&
          length.kind == Kind::kInteger && length.value == 32) {
        const auto result = destination(operandOf(instruction, 0));
        const auto upper = source(operandOf(instruction, 1));
        const auto lower = source(operandOf(instruction, 2));
        if (!result || *result == kNoNode || !upper || !lower) {
          return false;
        }
        const Node moved = compute(Operation::kShiftLeft, 32, *upper);
        add(Operation::kOr, 0, *result, compute(Operation::kMask, 32, *lower), moved);
        return true;
      }
    }
    return compute(instruction);
  }

  bool binary(const ptx::Instruction& instruction, Operation operation) {
    const auto result = destination(operandOf(instruction, 0));
    const auto a = source(operandOf(instruction, 1));
    const auto b = source(operandOf(instruction, 2));
    if (!result || *result == kNoNode || !a || !b) {
      return false;
    }
    add(operation, 0, *result, *a, *b);
    return true;
  }

  bool shiftLeft(const ptx::Instruction& instruction) {
    const ptx::Operand& by = operandOf(instruction, 2);
    if (by.kind == Kind::kInteger) {
      if (by.value < 0 || by.value > 63) {
        return compute(instruction);
      }
      return copy(instruction, {1}, Operation::kShiftLeft, static_cast<unsigned>(by.value));
    }
    return binary(instruction, Operation::kShiftBy);
  }

  bool mask(const ptx::Instruction& instruction) {
    const ptx::Operand& with = operandOf(instruction, 2);
    if (with.kind != Kind::kInteger) {
      return compute(instruction);
    }
    if (with.value < 0) {
      // Every allocation is aligned to 256 bytes. Larger blocks may hold others too, and be what
      // compressed pointers are relative to.
      return with.value >= -256 ? copy(instruction, {1}, Operation::kLowBits)
                                : compute(instruction);
    }
    unsigned bits = 0;
    while (bits < 63 && (with.value >> bits) != 0) {
      ++bits;
    }
    return copy(instruction, {1}, Operation::kMask, bits);
  }

  bool disjoin(const ptx::Instruction& instruction) {
    const ptx::Operand& with = operandOf(instruction, 2);
    if (with.kind == Kind::kInteger && with.value >= 0 && with.value < 4096) {
      // The low bits of something aligned.
      return copy(instruction, {1}, Operation::kLowBits);
    }
    return binary(instruction, Operation::kOr);
  }

  bool multiply(const ptx::Instruction& instruction, bool widening, bool adds) {
    if (instruction.operandCount != (adds ? 4U : 3U)) {
      return false;
    }
    const auto result = destination(operandOf(instruction, 0));
    auto a = source(operandOf(instruction, 1));
    auto b = source(operandOf(instruction, 2));
    if (!result || *result == kNoNode || !a || !b) {
      return false;
    }
    if (widening) {
      a = compute(Operation::kNarrow, 32, *a);
      b = compute(Operation::kNarrow, 32, *b);
    }
    if (!adds) {
      add(Operation::kMultiply, 0, *result, *a, *b);
      return true;
    }
    const auto summand = source(operandOf(instruction, 3));
    if (!summand) {
      return false;
    }
    add(Operation::kAdd, 0, *result, compute(Operation::kMultiply, 0, *a, *b), *summand);
    return true;
  }

  bool move(const ptx::Instruction& instruction, const Parts& parts) {
    const ptx::Operand& to = operandOf(instruction, 0);
    const ptx::Operand& from = operandOf(instruction, 1);
    const unsigned bits = parts.size() == 2 ? ptx::bitsOfType(parts.back()) : 0;
    if (to.kind == Kind::kVector || (bits != 64 && bits != 32)) {
      return compute(instruction);
    }
    if (from.kind != Kind::kVector) {
      return bits == 64 ? copy(instruction, {1}) : copy(instruction, {1}, Operation::kNarrow, 32);
    }
    const auto result = destination(to);
    const std::vector<ptx::Operand> elements = elementsOf(from);
    if (bits != 64 || elements.empty() || 64 % elements.size() != 0 || !result ||
        *result == kNoNode) {
      return compute(instruction);
    }
    const auto each = static_cast<unsigned>(64 / elements.size());
    Node joined = newNode(constantValue(0));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto node = source(elements[i]);
      if (!node) {
        return false;
      }
      const Node piece = compute(Operation::kNarrow, each, *node);
      joined = compute(Operation::kOr, 0, joined,
                       compute(Operation::kShiftLeft, each * static_cast<unsigned>(i), piece));
    }
    add(Operation::kCopy, 0, *result, joined, joined);
    return true;
  }

  bool convert(const ptx::Instruction& instruction, const Parts& parts) {
    if (parts.size() == 3 && (parts[1] == "u64" || parts[1] == "s64")) {
      if (parts[2] == "u64" || parts[2] == "s64") {
        return copy(instruction, {1});
      }
      const unsigned bits = ptx::bitsOfType(parts[2]);
      if ((parts[2].front() == 'u' || parts[2].front() == 's') && bits != 0 && bits <= 32) {
        return copy(instruction, {1}, Operation::kNarrow, bits);
      }
    }
    return compute(instruction);
  }

  // ld, st, atom and red.
  bool access(const ptx::Instruction& instruction, const Parts& parts) {
    std::string_view space;
    unsigned bits = 0;
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const std::string_view part = parts[i];
      if (part == "global" || part == "local" || part == "const" || part.starts_with("shared") ||
          part.starts_with("param")) {
        if (!space.empty()) {
          return false;
        }
        space = part.substr(0, part.find(':'));
      } else if (const unsigned found = ptx::bitsOfType(part); found >= 8) {
        if (bits != 0) {
          return false;
        }
        bits = found;
      } else if (!isModifierOfAccess(part)) {
        return false;
      }
    }
    const std::string_view opcode = parts.front();
    const bool loads = opcode == "ld" || opcode == "ldu" || opcode == "atom";
    const std::size_t addressIndex = loads ? 1 : 0;
    if (bits == 0 || instruction.operandCount < 2 || addresses(instruction) != 1 ||
        operandOf(instruction, addressIndex).kind != Kind::kAddress) {
      return false;
    }
    const ptx::Operand& address = operandOf(instruction, addressIndex);
    for (std::size_t i = addressIndex + 1; i < instruction.operandCount; ++i) {
      for (const ptx::Operand& operand : elementsOf(operandOf(instruction, i))) {
        if (operand.kind != Kind::kSink && !source(operand)) {
          return false;
        }
      }
    }
    if (space == "param" && opcode == "ld") {
      return loadParameter(instruction, address, bits);
    }
    if (space == "param") {
      return opcode == "st" && storeParameter(instruction, address);
    }
    if (space.empty() || space == "global") {
      const bool reads = opcode == "ld" || opcode == "ldu";
      if (!accessGlobal(address, !reads)) {
        return false;
      }
      // By way of a register, the access is the last one.
      if (reads && bits == 64 && bitsOfRegister(address.name) != 0 && !expectsWriters(parts)) {
        return loadWords(operandOf(instruction, 0), accesses_.back().address);
      }
    }
    return !loads || setLoaded(operandOf(instruction, 0), numberOf(std::min(bits, 64U)));
  }

  bool setLoaded(const ptx::Operand& to, const Value& value) {
    for (const ptx::Operand& operand : elementsOf(to)) {
      const auto result = destination(operand);
      if (!result) {
        return false;
      }
      if (*result != kNoNode) {
        include(*result, value);
      }
    }
    return true;
  }

  bool loadWords(const ptx::Operand& to, Node address) {
    for (const ptx::Operand& operand : elementsOf(to)) {
      const auto result = destination(operand);
      if (!result) {
        return false;
      }
      if (*result != kNoNode) {
        add(Operation::kLoad, 0, *result, address, address);
      }
    }
    return true;
  }

  bool accessGlobal(const ptx::Operand& address, bool writes) {
    if (address.name.empty()) {
      return address.value > -kNullPage && address.value < kNullPage;
    }
    if (const auto node = registerNode(address.name)) {
      // With a large offset it is not the null pointer's page.
      const Node sum =
          address.value > -kNullPage && address.value < kNullPage
              ? *node
              : compute(Operation::kAdd, 0, *node, newNode(constantValue(address.value)));
      accesses_.push_back({sum, writes});
      return true;
    }
    const auto managed = variable(address.name);
    return managed && !*managed && !parameters_.contains(address.name) &&
           !body_.callParameters.contains(address.name);
  }

  bool loadParameter(const ptx::Instruction& instruction, const ptx::Operand& address,
                     unsigned bits) {
    const auto addressed = parameterAddresses_.find(address.name);
    const bool indirect = addressed != parameterAddresses_.end();
    const auto parameter = parameters_.find(indirect ? addressed->second->name : address.name);
    if (parameter == parameters_.end() || bits != 64) {
      // Of registers, of results of calls, and in functions: what they return is untraced.
      return setLoaded(operandOf(instruction, 0), numberOf(std::min(bits, 64U)));
    }
    constexpr std::int64_t kFar = std::int64_t{1} << 32;
    const std::int64_t start = indirect ? addressed->second->value : 0;
    if (address.value <= -kFar || address.value >= kFar || start <= -kFar || start >= kFar) {
      return false;
    }
    std::int64_t position = start + address.value;
    for (const ptx::Operand& operand : elementsOf(operandOf(instruction, 0))) {
      if (position < 0 || position + 8 > parameter->second->bytes) {
        return false;
      }
      const auto offset = parameter->second->offset + static_cast<std::uint32_t>(position);
      if (!setLoaded(operand, wordAt(offset))) {
        return false;
      }
      position += 8;
    }
    return true;
  }

  bool storeParameter(const ptx::Instruction& instruction, const ptx::Operand& address) {
    if (parameters_.contains(address.name)) {
      return false;
    }
    for (const ptx::Operand& operand : elementsOf(operandOf(instruction, 1))) {
      const auto node = source(operand);
      if (!node) {
        return false;
      }
      arguments_[address.name].push_back(*node);
    }
    return true;
  }

  // call (results), function, (arguments); results and arguments may be missing.
  bool call(const ptx::Instruction& instruction) {
    std::size_t index = 0;
    if (index < instruction.operandCount && operandOf(instruction, 0).kind == Kind::kVector) {
      for (const ptx::Operand& operand : elementsOf(operandOf(instruction, 0))) {
        // Registers would be results that no rule describes.
        if (!body_.callParameters.contains(operand.name)) {
          return false;
        }
      }
      ++index;
    }
    if (index >= instruction.operandCount || operandOf(instruction, index).kind != Kind::kName) {
      return false;
    }
    const std::string_view name = operandOf(instruction, index).name;
    if (bitsOfRegister(name) != 0) {
      return false;
    }
    const auto callee = module_.functions.find(name);
    if (callee == module_.functions.end() || callee->second.entry) {
      return false;
    }
    if (callee->second.defined) {
      callees_.push_back(name);
      return true;
    }
    if (name != "__assertfail" || instruction.operandCount != index + 2) {
      return false;
    }
    // It reads the strings that it is given.
    for (const ptx::Operand& argument : elementsOf(operandOf(instruction, index + 1))) {
      if (body_.callParameters.contains(argument.name)) {
        printed_.push_back(argument.name);
      } else if (argument.kind != Kind::kInteger) {
        return false;
      }
    }
    return true;
  }

  // Instructions on memory with a form of their own. Any that is not listed is not understood.
  bool special(const ptx::Instruction& instruction, const Parts& parts) {
    const std::string_view opcode = parts.front();
    const std::size_t count = instruction.operandCount;
    const bool global = !has(parts, "shared") && !has(parts, "shared::cta");
    if (opcode == "prefetch" || opcode == "prefetchu" || opcode == "applypriority" ||
        opcode == "discard") {
      const bool known = std::all_of(parts.begin() + 1, parts.end(), [](std::string_view part) {
        return part == "global" || part == "local" || part == "L1" || part == "L2" ||
               part.starts_with("L2::");
      });
      return known && count >= 1 && operandOf(instruction, 0).kind == Kind::kAddress &&
             (has(parts, "local") || accessGlobal(operandOf(instruction, 0), opcode == "discard"));
    }
    if (opcode == "createpolicy" && has(parts, "fractional")) {
      return addresses(instruction) == 0 && compute(instruction);
    }
    if (opcode == "wmma") {
      if (has(parts, "mma")) {
        return addresses(instruction) == 0 && compute(instruction);
      }
      const bool loads = has(parts, "load");
      if ((!loads && !has(parts, "store")) || count < 2 || addresses(instruction) != 1) {
        return false;
      }
      const ptx::Operand& address = operandOf(instruction, loads ? 1 : 0);
      if (address.kind != Kind::kAddress || (global && !accessGlobal(address, !loads))) {
        return false;
      }
      return !loads || setLoaded(operandOf(instruction, 0), numberOf(kFullReach));
    }
    if (opcode == "ldmatrix") {
      return count == 2 && setLoaded(operandOf(instruction, 0), numberOf(32));
    }
    if (opcode == "stmatrix") {
      return count == 2;
    }
    if (opcode == "mbarrier") {
      return synchronize(instruction);
    }
    if (opcode == "cp" && has(parts, "async")) {
      return copyAsynchronously(instruction, parts);
    }
    return false;
  }

  // Barriers lie in shared memory, wherever their addresses are generic too.
  bool synchronize(const ptx::Instruction& instruction) {
    if (instruction.operandCount == 0) {
      return false;
    }
    const ptx::Operand& first = operandOf(instruction, 0);
    return first.kind == Kind::kAddress || setLoaded(first, numberOf(kFullReach));
  }

  bool copyAsynchronously(const ptx::Instruction& instruction, const Parts& parts) {
    if (parts.size() == 3 &&
        (parts[2] == "commit_group" || parts[2] == "wait_group" || parts[2] == "wait_all")) {
      return true;
    }
    if (has(parts, "mbarrier") && !has(parts, "bulk") && !has(parts, "global")) {
      return synchronize(instruction);
    }
    const bool known = std::all_of(parts.begin() + 1, parts.end(), [](std::string_view part) {
      return part == "async" || part == "ca" || part == "cg" || part == "shared" ||
             part == "shared::cta" || part == "global" || part.starts_with("L2::");
    });
    if (!known || !has(parts, "global") || instruction.operandCount < 3 ||
        addresses(instruction) != 2 || operandOf(instruction, 0).kind != Kind::kAddress ||
        operandOf(instruction, 1).kind != Kind::kAddress) {
      return false;
    }
    return accessGlobal(operandOf(instruction, 1), false);
  }

  // Applies the rules until nothing changes. False: too much effort.
  bool solve() {
    const std::size_t nodes = known_.size();
    std::vector<std::uint32_t> starts(nodes + 1, 0);
    for (const Rule& rule : rules_) {
      ++starts[rule.a];
      starts[rule.b] += rule.b == rule.a ? 0 : 1;
    }
    std::uint32_t total = 0;
    for (std::uint32_t& start : starts) {
      total += std::exchange(start, total);
    }
    std::vector<std::uint32_t> users(total);
    std::vector<std::uint32_t> fill(starts.begin(), starts.end() - 1);
    for (std::uint32_t i = 0; i < rules_.size(); ++i) {
      users[fill[rules_[i].a]++] = i;
      if (rules_[i].b != rules_[i].a) {
        users[fill[rules_[i].b]++] = i;
      }
    }
    std::vector<std::uint32_t> waiting(rules_.size());
    std::vector<bool> isWaiting(rules_.size(), true);
    for (std::uint32_t i = 0; i < waiting.size(); ++i) {
      waiting[i] = static_cast<std::uint32_t>(waiting.size()) - 1 - i;
    }
    std::size_t effort = 64 * rules_.size();
    while (!waiting.empty()) {
      const std::uint32_t index = waiting.back();
      waiting.pop_back();
      isWaiting[index] = false;
      const Rule& rule = rules_[index];
      const Values::Id value =
          values_.apply(rule.operation, rule.detail, known_[rule.a], known_[rule.b]);
      const Values::Id joined = values_.join(known_[rule.result], value);
      if (effort-- == 0 || values_.overflowed()) {
        return false;
      }
      if (joined == known_[rule.result]) {
        continue;
      }
      known_[rule.result] = joined;
      for (std::uint32_t i = starts[rule.result]; i < starts[rule.result + 1]; ++i) {
        if (!isWaiting[users[i]]) {
          isWaiting[users[i]] = true;
          waiting.push_back(users[i]);
        }
      }
    }
    return !values_.overflowed();
  }

  // Adds what is accessed to the findings. False: it may be anything.
  bool judge(Findings& findings) const {
    std::map<std::pair<Values::Id, bool>, bool> seen;
    for (const Access& access : accesses_) {
      if (!seen.try_emplace({known_[access.address], access.writes}, true).second) {
        continue;
      }
      const Value& address = values_[known_[access.address]];
      if (address.empty() || address.number || (address.constant && address.constantBits > 16)) {
        return false;
      }
      for (const std::uint32_t word : address.words) {
        bool& writes = findings.pointers[word];
        writes = writes || access.writes;
      }
      for (const Base& base : address.bases) {
        const bool nullable = !base.wide && !base.difference;
        const auto known = findings.bases.try_emplace(base.words, nullable).first;
        known->second = known->second && nullable;
      }
      if (address.loaded()) {
        bool& writes = findings.tables[address.tables];
        writes = writes || access.writes;
      }
      if (findings.pointers.size() > kMaxPointers || findings.bases.size() > kMaxPointers ||
          findings.tables.size() > kMaxPointers) {
        return false;
      }
    }
    for (const std::string_view name : printed_) {
      const auto stored = arguments_.find(name);
      if (stored == arguments_.end()) {
        return false;
      }
      for (const Node node : stored->second) {
        const Value& value = values_[known_[node]];
        if (value.empty() || !value.bases.empty() || value.loaded() ||
            (value.number && value.reach != 0)) {
          return false;
        }
      }
    }
    return true;
  }

  const ptx::Module& module_;
  const ptx::Function& function_;
  Values& values_;
  ptx::Body body_;
  std::unordered_map<std::string_view, const ptx::Parameter*> parameters_;
  // Registers that hold the address of a parameter, and nothing else.
  std::unordered_map<std::string_view, const ptx::Operand*> parameterAddresses_;
  std::unordered_map<std::string_view, Node> nodes_;  // of registers
  std::unordered_map<Node, unsigned> bits_;           // likewise
  std::vector<Values::Id> known_;                     // of each node, its value
  std::vector<Rule> rules_;
  std::vector<Access> accesses_;
  std::unordered_map<std::string_view, std::vector<Node>> arguments_;  // of calls
  std::vector<std::string_view> printed_;                              // arguments of __assertfail
  std::vector<std::string_view> callees_;
  bool ambiguous_ = false;  // a register's name is also another thing's
};

}  // namespace

std::optional<KernelUses> usesOf(std::string_view text, std::string_view kernel) {
  const auto module = ptx::parseModule(text);
  return module ? usesOf(*module, kernel) : std::nullopt;
}

std::optional<KernelUses> usesOf(const ptx::Module& module, std::string_view kernel) {
  const auto entry = module.functions.find(kernel);
  if (entry == module.functions.end() || !entry->second.entry) {
    return std::nullopt;
  }
  Findings findings;
  Values values;
  // Functions that it calls are analysed without what they are given: they may not access memory
  // by way of it.
  std::vector<std::string_view> names{kernel};
  std::unordered_set<std::string_view> reached{kernel};
  while (!names.empty()) {
    const ptx::Function& function = module.functions.at(names.back());
    names.pop_back();
    if (!function.defined || function.definedTwice || !function.laidOut) {
      return std::nullopt;
    }
    FunctionAnalysis analysis(module, function, values);
    if (!analysis.run(findings)) {
      return std::nullopt;
    }
    for (const std::string_view callee : analysis.callees()) {
      if (reached.insert(callee).second) {
        names.push_back(callee);
      }
    }
    if (reached.size() > kMaxFunctions) {
      return std::nullopt;
    }
  }
  KernelUses uses{};
  for (const ptx::Parameter& parameter : entry->second.parameters) {
    uses.parameters.push_back({parameter.offset, parameter.bytes});
    uses.parameterBytes = parameter.offset + parameter.bytes;
  }
  for (const auto& [offset, writes] : findings.pointers) {
    uses.pointers.push_back({offset, writes});
  }
  for (const auto& [offsets, nullable] : findings.bases) {
    uses.bases.push_back({offsets, nullable});
  }
  for (const auto& [words, writes] : findings.tables) {
    uses.tables.push_back({words, writes});
  }
  return uses;
}

}  // namespace gmac::device_code
