// SPDX-License-Identifier: Apache-2.0
#include "gmac/device_code/ptx.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gmac::device_code::ptx {
namespace {

constexpr std::size_t kMaxText = std::size_t{64} << 20;
constexpr std::size_t kMaxInstructions = std::size_t{1} << 20;
constexpr std::size_t kMaxOperands = std::size_t{4} << 20;
constexpr std::size_t kMaxParameterBytes = std::size_t{1} << 16;

struct Token {
  enum class Kind : std::uint8_t { kEnd, kWord, kNumber, kString, kSign, kInvalid };
  Kind kind = Kind::kEnd;
  bool startsLine = false;
  std::string_view text;

  bool is(char sign) const { return kind == Kind::kSign && text[0] == sign; }
  bool isWord() const { return kind == Kind::kWord; }
  bool isWord(std::string_view word) const { return kind == Kind::kWord && text == word; }
  bool isDirective() const { return kind == Kind::kWord && text[0] == '.'; }
};

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

// One token of lookahead.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) { current_ = scan(); }

  const Token& peek() const { return current_; }
  Token next() {
    const Token token = current_;
    current_ = scan();
    return token;
  }
  bool accept(char sign) {
    const bool found = current_.is(sign);
    if (found) {
      next();
    }
    return found;
  }
  // Where the current token begins.
  std::size_t position() const { return start_; }

 private:
  Token scan() {
    bool line = position_ == 0;
    if (!skipBlanks(line)) {
      start_ = text_.size();
      return {Token::Kind::kInvalid, line, "?"};
    }
    start_ = position_;
    if (position_ == text_.size()) {
      return {Token::Kind::kEnd, line, {}};
    }
    const char first = text_[position_];
    if (first == '"') {
      return string(line);
    }
    ++position_;
    if (isNameStart(first)) {
      // Of "::" both colons belong to the word, a single one ends a label.
      while (position_ < text_.size()) {
        const char c = text_[position_];
        if (isNameStart(c) || isDigit(c)) {
          ++position_;
        } else if (c == ':' && position_ + 1 < text_.size() && text_[position_ + 1] == ':') {
          position_ += 2;
        } else {
          break;
        }
      }
      return {Token::Kind::kWord, line, text_.substr(start_, position_ - start_)};
    }
    if (isDigit(first)) {
      while (position_ < text_.size() &&
             (isNameStart(text_[position_]) || isDigit(text_[position_]))) {
        ++position_;
      }
      return {Token::Kind::kNumber, line, text_.substr(start_, position_ - start_)};
    }
    const bool known =
        std::string_view("{}[]()<>,;:@!|+-=*/&~^?").find(first) != std::string_view::npos;
    return {known ? Token::Kind::kSign : Token::Kind::kInvalid, line, text_.substr(start_, 1)};
  }

  // False: a comment has no end.
  bool skipBlanks(bool& line) {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c == '\n') {
        line = true;
        ++position_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f') {
        ++position_;
      } else if (text_.substr(position_, 2) == "//") {
        position_ = std::min(text_.find('\n', position_), text_.size());
      } else if (text_.substr(position_, 2) == "/*") {
        const std::size_t end = text_.find("*/", position_ + 2);
        if (end == std::string_view::npos) {
          position_ = text_.size();
          return false;
        }
        position_ = end + 2;
      } else {
        break;
      }
    }
    return true;
  }

  Token string(bool line) {
    for (++position_; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (c == '\\') {
        ++position_;
      } else if (c == '\n') {
        break;
      } else if (c == '"') {
        ++position_;
        return {Token::Kind::kString, line, text_.substr(start_, position_ - start_)};
      }
    }
    position_ = text_.size();
    return {Token::Kind::kInvalid, line, "?"};
  }

  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t start_ = 0;
  Token current_;
};

struct Number {
  bool integer;
  std::int64_t value;
};

std::optional<Number> numberFrom(std::string_view text) {
  if (text.size() >= 2 && text[0] == '0' && std::string_view("fFdD").find(text[1]) != text.npos) {
    return Number{false, 0};
  }
  unsigned base = 10;
  if (text.size() >= 2 && text[0] == '0') {
    if (text[1] == 'x' || text[1] == 'X') {
      base = 16;
      text.remove_prefix(2);
    } else if (text[1] == 'b' || text[1] == 'B') {
      base = 2;
      text.remove_prefix(2);
    } else if (text.find('.') == text.npos) {
      base = 8;
    }
  }
  if (!text.empty() && text.back() == 'U') {
    text.remove_suffix(1);
  }
  if (text.empty()) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  for (const char c : text) {
    if (base == 10 && c == '.') {
      return Number{false, 0};
    }
    const unsigned digit = isDigit(c)             ? static_cast<unsigned>(c - '0')
                           : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                           : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
                                                  : 99;
    if (digit >= base || value > (~std::uint64_t{0} - digit) / base) {
      return std::nullopt;
    }
    value = value * base + digit;
  }
  return Number{true, static_cast<std::int64_t>(value)};
}

// A positive integer; nothing else.
std::optional<std::uint64_t> countFrom(const Token& token) {
  if (token.kind != Token::Kind::kNumber) {
    return std::nullopt;
  }
  const auto number = numberFrom(token.text);
  if (!number || !number->integer || number->value <= 0) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(number->value);
}

// Names that a declaration of variables declares, up to and with its ';'. `managed`: whether it
// has an attribute of that kind.
bool parseVariables(Lexer& in, std::vector<std::string_view>& names, bool& managed) {
  int depth = 0;
  bool named = false;
  while (true) {
    const Token token = in.next();
    if (token.kind == Token::Kind::kEnd || token.kind == Token::Kind::kInvalid) {
      return false;
    }
    if (token.is('{') || token.is('(') || token.is('[')) {
      ++depth;
    } else if (token.is('}') || token.is(')') || token.is(']')) {
      if (--depth < 0) {
        return false;
      }
    } else if (token.is(';')) {
      return depth == 0 && !names.empty();
    } else if (depth == 0 && token.is(',')) {
      named = false;
    } else if (token.isDirective()) {
      managed = managed || token.text == ".managed" || token.text.starts_with(".unified");
    } else if (depth == 0 && !named && token.isWord()) {
      names.push_back(token.text);
      named = true;
    }
  }
}

// The parameters of an entry, from after '(' up to and with ')'. False: not understood.
bool parseParameters(Lexer& in, std::vector<Parameter>& parameters) {
  if (in.accept(')')) {
    return true;
  }
  std::uint64_t end = 0;
  while (true) {
    if (!in.next().isWord(".param")) {
      return false;
    }
    std::uint64_t alignment = 0;
    std::uint64_t bytes = 0;
    bool pointer = false;
    while (in.peek().isDirective()) {
      const Token token = in.next();
      if (token.text == ".align") {
        const auto count = countFrom(in.next());
        if (!count || *count > 4096 || (*count & (*count - 1)) != 0) {
          return false;
        }
        if (!pointer) {
          alignment = *count;  // else of what it points to
        }
      } else if (token.text == ".ptr") {
        pointer = true;
      } else if (pointer && (token.text == ".global" || token.text == ".shared" ||
                             token.text == ".const" || token.text == ".local")) {
        // No promise that matters.
      } else {
        const unsigned bits = bitsOfType(token.text.substr(1));
        if (bits < 8 || bytes != 0) {
          return false;
        }
        bytes = bits / 8;
      }
    }
    const Token name = in.next();
    if (!name.isWord() || bytes == 0) {
      return false;
    }
    alignment = std::max(alignment, bytes);
    while (in.accept('[')) {
      const auto count = countFrom(in.next());
      if (!count || *count > kMaxParameterBytes || !in.accept(']')) {
        return false;
      }
      bytes *= *count;
      if (bytes > kMaxParameterBytes) {
        return false;
      }
    }
    const std::uint64_t offset = (end + alignment - 1) / alignment * alignment;
    end = offset + bytes;
    if (end > kMaxParameterBytes) {
      return false;
    }
    parameters.push_back(
        {name.text, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(bytes)});
    if (in.accept(')')) {
      return true;
    }
    if (!in.accept(',')) {
      return false;
    }
  }
}

// From after the '{' up to and with its '}'.
bool skipBraces(Lexer& in) {
  for (int depth = 1; depth > 0;) {
    const Token token = in.next();
    if (token.kind == Token::Kind::kEnd || token.kind == Token::Kind::kInvalid) {
      return false;
    }
    depth += token.is('{') ? 1 : token.is('}') ? -1 : 0;
  }
  return true;
}

// `registers`: whether there are any inside.
bool skipParentheses(Lexer& in, bool& registers) {
  for (int depth = 1; depth > 0;) {
    const Token token = in.next();
    if (token.kind == Token::Kind::kEnd || token.kind == Token::Kind::kInvalid || token.is(';') ||
        token.is('{')) {
      return false;
    }
    registers = registers || token.isWord(".reg");
    depth += token.is('(') ? 1 : token.is(')') ? -1 : 0;
  }
  return true;
}

// From after .entry or .func.
bool parseFunction(std::string_view text, Lexer& in, bool entry, Module& module) {
  Function function;
  function.entry = entry;
  bool registers = false;
  while (in.peek().isWord(".attribute") || (!entry && in.peek().is('('))) {  // or its result
    if (in.peek().isWord()) {
      in.next();
    }
    if (!in.accept('(') || !skipParentheses(in, registers)) {
      return false;
    }
  }
  const Token name = in.next();
  if (!name.isWord() || name.isDirective()) {
    return false;
  }
  if (!in.peek().is('(')) {
    function.laidOut = !registers;
  } else if (entry) {
    in.next();
    function.laidOut = parseParameters(in, function.parameters);
    if (!function.laidOut) {
      // Another kernel may be the one asked for.
      while (!in.peek().is('{') && !in.peek().is(';')) {
        if (in.peek().kind == Token::Kind::kEnd || in.peek().kind == Token::Kind::kInvalid) {
          return false;
        }
        in.next();
      }
    }
  } else {
    in.next();
    if (!skipParentheses(in, registers)) {
      return false;
    }
    function.laidOut = !registers;
  }
  // Directives such as .maxntid 128, 1, 1; only .pragma ends with ';' as a prototype does.
  bool pragma = false;
  while (true) {
    const Token token = in.next();
    if (token.kind == Token::Kind::kEnd || token.kind == Token::Kind::kInvalid) {
      return false;
    }
    if (token.isWord(".pragma")) {
      pragma = true;
    } else if (token.is(';')) {
      if (!pragma) {
        break;
      }
      pragma = false;
    } else if (token.is('{')) {
      const std::size_t start = in.position();
      std::size_t end = start;
      for (int depth = 1; depth > 0;) {
        end = in.position();
        const Token inside = in.next();
        if (inside.kind == Token::Kind::kEnd || inside.kind == Token::Kind::kInvalid) {
          return false;
        }
        depth += inside.is('{') ? 1 : inside.is('}') ? -1 : 0;
      }
      function.defined = true;
      function.body = text.substr(start, end - start);
      break;
    }
  }
  const auto [known, added] = module.functions.try_emplace(name.text, function);
  if (!added && function.defined) {
    if (known->second.defined) {
      known->second.definedTwice = true;
    } else {
      known->second = std::move(function);
    }
  }
  return true;
}

void declare(std::unordered_map<std::string_view, bool>& variables, std::string_view name,
             bool managed) {
  bool& known = variables.try_emplace(name, false).first->second;
  known = known || managed;
}

class BodyParser {
 public:
  explicit BodyParser(std::string_view text) : in_(text) {}

  std::optional<Body> parse() {
    while (in_.peek().kind != Token::Kind::kEnd) {
      if (!statement() || body_.instructions.size() > kMaxInstructions ||
          body_.operands.size() + body_.elements.size() > kMaxOperands) {
        return std::nullopt;
      }
    }
    return std::move(body_);
  }

 private:
  bool statement() {
    if (in_.accept('{') || in_.accept('}') || in_.accept(';')) {
      return true;
    }
    if (in_.accept('@')) {
      in_.accept('!');
      const Token predicate = in_.next();
      return predicate.isWord() && !predicate.isDirective() && in_.peek().isWord() &&
             !in_.peek().isDirective() && instruction(in_.next().text);
    }
    const Token word = in_.next();
    if (!word.isWord()) {
      return false;
    }
    if (word.isDirective()) {
      return directive(word.text);
    }
    if (in_.accept(':')) {
      return true;  // a label
    }
    return instruction(word.text);
  }

  bool directive(std::string_view name) {
    if (name == ".reg") {
      return registers();
    }
    if (name == ".param" || name == ".shared" || name == ".local" || name == ".global" ||
        name == ".const") {
      std::vector<std::string_view> names;
      bool managed = false;
      if (!parseVariables(in_, names, managed)) {
        return false;
      }
      for (const std::string_view variable : names) {
        declare(name == ".param" ? body_.callParameters : body_.variables, variable, managed);
      }
      return true;
    }
    if (name == ".loc") {
      return location();
    }
    if (name == ".pragma" || name == ".branchtargets" || name == ".calltargets" ||
        name == ".callprototype") {
      while (!in_.peek().is(';')) {
        const Token token = in_.next();
        if (token.kind == Token::Kind::kEnd || token.kind == Token::Kind::kInvalid) {
          return false;
        }
      }
      return true;
    }
    return false;
  }

  // `.loc file line column[, function_name label[ + offset]][, inlined_at file line column]`, up to
  // the end of its line. An instruction may follow there, which must not be passed over.
  bool location() {
    bool label = false;
    while (in_.peek().kind != Token::Kind::kEnd && !in_.peek().startsLine) {
      const Token token = in_.next();
      const bool allowed = label ? token.isWord()
                                 : token.kind == Token::Kind::kNumber || token.is(',') ||
                                       token.is('+') || token.isWord("function_name") ||
                                       token.isWord("inlined_at");
      if (!allowed) {
        return false;
      }
      label = !label && token.isWord("function_name");
    }
    return true;
  }

  bool registers() {
    const Token type = in_.next();
    const unsigned bits = type.isDirective() ? bitsOfType(type.text.substr(1)) : 0;
    if (bits == 0) {
      return false;
    }
    do {
      const Token name = in_.next();
      if (!name.isWord() || name.isDirective()) {
        return false;
      }
      if (in_.accept('<')) {
        const auto count = countFrom(in_.next());
        if (!count || !in_.accept('>')) {
          return false;
        }
        auto& range = body_.registerRanges[name.text];
        range.first = std::max(range.first, bits);
        range.second = std::max(range.second, *count);
      } else {
        unsigned& known = body_.registers[name.text];
        known = std::max(known, bits);
      }
    } while (in_.accept(','));
    return in_.accept(';');
  }

  bool instruction(std::string_view opcode) {
    if (opcode.front() == '%') {
      return false;
    }
    Instruction instruction;
    instruction.opcode = opcode;
    instruction.firstOperand = static_cast<std::uint32_t>(body_.operands.size());
    if (!in_.peek().is(';')) {
      do {
        const auto operand = operandWithPair();
        if (!operand) {
          return false;
        }
        body_.operands.push_back(*operand);
      } while (in_.accept(','));
    }
    instruction.operandCount =
        static_cast<std::uint32_t>(body_.operands.size()) - instruction.firstOperand;
    body_.instructions.push_back(instruction);
    return in_.accept(';');
  }

  // An operand, or two joined by '|'.
  std::optional<Operand> operandWithPair() {
    const auto first = operand();
    if (!first || !in_.accept('|')) {
      return first;
    }
    const auto second = simpleOperand();
    if (!second || first->kind == Operand::Kind::kVector) {
      return std::nullopt;
    }
    return vectorOf({*first, *second});
  }

  std::optional<Operand> operand() {
    if (in_.accept('[')) {
      auto inside = in_.peek().is('[') || in_.peek().is('{') ? std::nullopt : simpleOperand();
      if (!inside || !in_.accept(']')) {
        return std::nullopt;
      }
      if (inside->kind != Operand::Kind::kName && inside->kind != Operand::Kind::kInteger) {
        return std::nullopt;
      }
      inside->kind = Operand::Kind::kAddress;
      return inside;
    }
    const bool braces = in_.peek().is('{');
    if (braces || in_.peek().is('(')) {
      in_.next();
      const char end = braces ? '}' : ')';
      std::vector<Operand> elements;
      if (!in_.accept(end)) {
        do {
          const auto element = simpleOperand();
          if (!element || elements.size() == 1024) {
            return std::nullopt;
          }
          elements.push_back(*element);
        } while (in_.accept(','));
        if (!in_.accept(end)) {
          return std::nullopt;
        }
      }
      return vectorOf(elements);
    }
    return simpleOperand();
  }

  Operand vectorOf(const std::vector<Operand>& elements) {
    Operand vector;
    vector.kind = Operand::Kind::kVector;
    vector.firstElement = static_cast<std::uint32_t>(body_.elements.size());
    vector.elementCount = static_cast<std::uint32_t>(elements.size());
    body_.elements.insert(body_.elements.end(), elements.begin(), elements.end());
    return vector;
  }

  std::optional<Operand> number(bool negative) {
    const Token token = in_.next();
    const auto number = token.kind == Token::Kind::kNumber ? numberFrom(token.text) : std::nullopt;
    if (!number) {
      return std::nullopt;
    }
    Operand operand;
    operand.kind = number->integer ? Operand::Kind::kInteger : Operand::Kind::kFloat;
    const auto bits = static_cast<std::uint64_t>(number->value);
    operand.value = static_cast<std::int64_t>(negative ? 0 - bits : bits);
    return operand;
  }

  std::optional<Operand> simpleOperand() {
    if (in_.accept('-')) {
      return number(true);
    }
    if (in_.peek().kind == Token::Kind::kNumber) {
      return number(false);
    }
    const bool negated = in_.accept('!');  // a predicate
    const Token name = in_.next();
    if (!name.isWord() || name.isDirective()) {
      return std::nullopt;
    }
    Operand operand;
    operand.kind = name.text == "_" ? Operand::Kind::kSink : Operand::Kind::kName;
    operand.name = name.text;
    if (in_.peek().is('+') || in_.peek().is('-')) {
      const bool plus = in_.next().is('+');
      const bool negative = plus ? in_.accept('-') : true;
      const auto offset = number(negative);
      if (!offset || offset->kind != Operand::Kind::kInteger || negated) {
        return std::nullopt;
      }
      operand.value = offset->value;
    }
    return operand;
  }

  Lexer in_;
  Body body_;
};

}  // namespace

unsigned bitsOfType(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, unsigned>, 24> kTypes{{
      {"pred", 1}, {"b8", 8},     {"u8", 8},      {"s8", 8},     {"b16", 16},   {"u16", 16},
      {"s16", 16}, {"f16", 16},   {"bf16", 16},   {"b32", 32},   {"u32", 32},   {"s32", 32},
      {"f32", 32}, {"f16x2", 32}, {"bf16x2", 32}, {"u16x2", 32}, {"s16x2", 32}, {"tf32", 32},
      {"b64", 64}, {"u64", 64},   {"s64", 64},    {"f64", 64},   {"f32x2", 64}, {"b128", 128},
  }};
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                         [&](const auto& known) { return known.first == type; });
  return found == kTypes.end() ? 0 : found->second;
}

std::optional<Module> parseModule(std::string_view text) {
  if (text.size() > kMaxText) {
    return std::nullopt;
  }
  Module module;
  Lexer in(text);
  bool wide = false;
  bool external = false;
  while (in.peek().kind != Token::Kind::kEnd) {
    const Token token = in.next();
    if (token.kind == Token::Kind::kInvalid) {
      return std::nullopt;
    }
    if (!token.isDirective()) {
      if (token.is('{') && !skipBraces(in)) {  // of a debug section
        return std::nullopt;
      }
      continue;
    }
    if (token.text == ".entry" || token.text == ".func") {
      if (!parseFunction(text, in, token.text == ".entry", module)) {
        return std::nullopt;
      }
      external = false;
    } else if (token.text == ".global" || token.text == ".const" || token.text == ".shared" ||
               token.text == ".local") {
      std::vector<std::string_view> names;
      bool managed = external && token.text == ".global";
      if (!parseVariables(in, names, managed)) {
        return std::nullopt;
      }
      for (const std::string_view name : names) {
        declare(module.variables, name, managed);
      }
      external = false;
    } else if (token.text == ".extern") {
      external = true;
    } else if (token.text == ".address_size") {
      if (in.next().text != "64") {
        return std::nullopt;
      }
      wide = true;
    }
  }
  return wide ? std::optional(std::move(module)) : std::nullopt;
}

std::optional<Body> parseBody(std::string_view text) { return BodyParser(text).parse(); }

}  // namespace gmac::device_code::ptx
