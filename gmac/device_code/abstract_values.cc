// SPDX-License-Identifier: Apache-2.0
#include "gmac/device_code/abstract_values.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <utility>

namespace gmac::device_code {
namespace {

constexpr std::size_t kMaxValues = std::size_t{1} << 16;  // fits the keys of results_
constexpr std::size_t kMaxBases = 8;
constexpr std::size_t kMaxBaseWords = 8;
constexpr std::size_t kMaxWords = 256;
constexpr unsigned kSmallConstant = 16;  // bits of an offset in the null pointer's page, or so

using Words = std::vector<std::uint32_t>;

Words united(const Words& a, const Words& b) {
  Words all;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
  return all;
}

void addNumber(Value& value, unsigned reach, bool negative = false) {
  if (reach >= kAddressBits) {
    reach = kFullReach;
  } else {
    negative = false;
  }
  value.number = true;
  value.negative = value.negative || negative;
  value.reach = std::max(value.reach, static_cast<std::uint8_t>(reach));
}

// May be any pointer, or the difference of any two.
void addAnything(Value& value) { addNumber(value, kFullReach, true); }

void addConstant(Value& value, unsigned bits) {
  value.constant = true;
  value.constantBits = std::max(value.constantBits, static_cast<std::uint8_t>(std::min(bits, 64U)));
}

// A base whose words include another's asks for less than that one does, so it is dropped; what
// was done to it is remembered with the other.
void addBase(Value& value, Base base) {
  for (Base& known : value.bases) {
    if (std::includes(base.words.begin(), base.words.end(), known.words.begin(),
                      known.words.end())) {
      known.wide = known.wide || base.wide;
      known.difference = known.difference || base.difference;
      return;
    }
  }
  std::erase_if(value.bases, [&](const Base& known) {
    const bool implied =
        std::includes(known.words.begin(), known.words.end(), base.words.begin(), base.words.end());
    base.wide = base.wide || (implied && known.wide);
    base.difference = base.difference || (implied && known.difference);
    return implied;
  });
  value.bases.insert(std::upper_bound(value.bases.begin(), value.bases.end(), base),
                     std::move(base));
}

// Keeps values small: what has too many alternatives may be anything.
void bound(Value& value) {
  const bool large = value.bases.size() > kMaxBases || value.words.size() > kMaxWords ||
                     value.tables.size() > kMaxWords ||
                     std::any_of(value.bases.begin(), value.bases.end(), [](const Base& base) {
                       return base.words.size() > kMaxBaseWords;
                     });
  if (large) {
    value.bases.clear();
    value.words.clear();
    value.tables.clear();
    addAnything(value);
  }
}

// `value` for operations that make no pointer of a loaded word.
Value withoutLoaded(Value value) {
  if (value.loaded()) {
    value.tables.clear();
    addNumber(value, kFullReach);
  }
  return value;
}

// Every alternative of `value` as a number, of at most `reach`. `scaled`: what was the negative of
// an address is not one any more.
Value asNumber(const Value& value, unsigned reach, bool scaled) {
  Value result;
  result.words = value.words;
  if (value.constant) {
    addNumber(result, 0);
  }
  if (value.number) {
    addNumber(result, std::min<unsigned>(value.reach, reach), value.negative && !scaled);
  }
  if (value.symbol || value.environment) {
    addNumber(result, reach);
  }
  for (const Base& base : value.bases) {
    addNumber(result, reach, base.difference && !scaled);
  }
  return result;
}

// Whether no bit of data is in it.
bool isPlain(const Value& value) {
  return !value.symbol && !value.environment && value.bases.empty() && value.reach == 0;
}

Value narrowed(const Value& value, unsigned bits) {
  Value rest = value;
  rest.constant = false;
  rest.environment = value.environment && bits < 32;
  Value result = asNumber(rest, bits, false);
  if (bits < kAddressBits) {
    result.words.clear();
  }
  if (value.constant) {
    addConstant(result, std::min<unsigned>(value.constantBits, bits));
  }
  result.environment = value.environment && bits >= 32;
  return result;
}

// a + b, for `a` not a constant or `b` not one.
void addSums(Value& result, const Value& a, const Value& b) {
  // Each pair once: the caller calls again with both exchanged.
  const bool pointerLike = (b.number && b.reach >= kAddressBits) || b.loaded();
  if (a.loaded()) {
    // (A large constant may be an address itself, if the word is an index.)
    const bool largeConstant = b.constant && b.constantBits > kSmallConstant;
    if ((b.constant && !largeConstant) || (b.number && b.reach < kAddressBits)) {
      result.tables = united(result.tables, a.tables);
    }
    if (pointerLike || largeConstant) {
      addNumber(result, kFullReach, b.negative);
    }
  }
  if (a.number && (b.number || b.constant)) {
    addNumber(result, std::max(a.reach, b.number ? b.reach : std::uint8_t{0}),
              a.negative || (b.number && b.negative));
  }
  if (a.constant && b.constant) {
    addNumber(result, 0);
  }
  if (a.symbol) {
    result.symbol = result.symbol || b.constant || (b.number && !pointerLike);
    if (pointerLike || b.symbol || b.environment || !b.bases.empty()) {
      addAnything(result);
    }
  }
  if (a.environment) {
    result.environment = result.environment || b.constant || (b.number && !pointerLike);
    if (pointerLike || b.environment || !b.bases.empty()) {
      addAnything(result);
    }
  }
  for (const Base& base : a.bases) {
    if (b.constant) {
      // (A large one may be an address itself, if the words are 0.)
      Base sum = base;
      sum.wide = sum.wide || b.constantBits > kSmallConstant;
      addBase(result, std::move(sum));
    }
    if (b.number || b.loaded()) {
      if (pointerLike && (base.difference || b.negative)) {
        addAnything(result);
      } else {
        Base sum = base;
        sum.wide = sum.wide || pointerLike;
        addBase(result, std::move(sum));
      }
    }
    for (const Base& other : b.bases) {
      if (base.difference || other.difference) {
        addAnything(result);
      } else {
        addBase(result, {united(base.words, other.words), base.wide || other.wide, false});
      }
    }
  }
}

Value sum(const Value& a, const Value& b) {
  Value result;
  addSums(result, a, b);
  addSums(result, b, a);
  result.words = united(a.words, b.words);
  return result;
}

Value difference(const Value& a, const Value& b) {
  Value result;
  const bool wide = (b.number && b.reach >= kAddressBits) || b.loaded();
  const bool pointerLike = wide || b.symbol || b.environment || !b.bases.empty();
  // Of `b`, what cannot be an address is as good as added.
  Value small;
  small.constant = b.constant;
  small.constantBits = b.constantBits;
  small.number = b.number && b.reach < kAddressBits;
  small.reach = small.number ? b.reach : 0;
  result = sum(a, small);
  if (pointerLike && (a.number || a.constant || a.symbol || a.environment || a.loaded())) {
    addAnything(result);
  }
  for (const Base& base : a.bases) {
    if (b.symbol || b.environment || !b.bases.empty()) {
      addAnything(result);
    }
    if (wide) {
      // base + pointer - b may be the pointer plus an index.
      if (base.wide || base.difference || b.negative) {
        addAnything(result);
      } else {
        addBase(result, {base.words, false, true});
      }
    }
  }
  result.words = united(a.words, b.words);
  return result;
}

// Bits that a constant factor moves data up by.
unsigned shiftOf(const Value& factor) { return factor.constant ? factor.constantBits : 0; }

bool isConstant(const Value& value) {
  return value.constant && !value.number && !value.symbol && !value.environment &&
         value.bases.empty();
}

bool mayBeNegative(const Value& value) {
  return value.negative || std::any_of(value.bases.begin(), value.bases.end(),
                                       [](const Base& base) { return base.difference; });
}

Value product(const Value& a, const Value& b) {
  Value result;
  if (isPlain(a) && isPlain(b)) {
    addNumber(result, 0);
  } else {
    const bool pointers = a.symbol || a.environment || !a.bases.empty() || b.symbol ||
                          b.environment || !b.bases.empty();
    // Times 1 or -1 a pointer may become its negative; times a variable, a negative may stay one.
    const bool one = (a.constant && a.constantBits < 2) || (b.constant && b.constantBits < 2);
    const bool scaled = isConstant(a) || isConstant(b);
    const bool negative = one || (!scaled && (mayBeNegative(a) || mayBeNegative(b)));
    const unsigned reach =
        std::max(a.reach == 0 ? 0 : a.reach + std::max<unsigned>(shiftOf(b), b.reach),
                 b.reach == 0 ? 0 : b.reach + shiftOf(a));
    addNumber(result, pointers ? kFullReach : reach, negative);
  }
  result.words = united(a.words, b.words);
  return result;
}

Value shifted(const Value& value, unsigned bits) {
  if (bits == 0) {
    return value;
  }
  Value result;
  result.words = value.words;
  if (value.constant) {
    addConstant(result, value.constantBits == 0 ? 0 : value.constantBits + bits);
  }
  if (value.number) {
    addNumber(result, value.reach == 0 ? 0 : value.reach + bits);
  }
  result.environment = value.environment && bits == 32;  // its upper half
  if ((value.environment && bits != 32) || value.symbol || !value.bases.empty()) {
    addNumber(result, kFullReach);
  }
  return result;
}

Value disjunction(const Value& a, const Value& b) {
  const auto isHalf = [](const Value& value) {
    return !value.symbol && !value.number && value.bases.empty();
  };
  Value result;
  if (isHalf(a) && isHalf(b)) {
    if (a.environment || b.environment) {
      result.environment = true;
    }
    if (a.constant && b.constant) {
      addConstant(result, std::max(a.constantBits, b.constantBits));
    }
    return result;
  }
  const bool pointers = a.symbol || a.environment || !a.bases.empty() || b.symbol ||
                        b.environment || !b.bases.empty();
  addNumber(result, pointers ? kFullReach : std::max(a.reach, b.reach),
            pointers || a.negative || b.negative);
  result.words = united(a.words, b.words);
  return result;
}

// A word at an address. The null pointer's page has none; null stands for them.
Value loadedFrom(const Value& address) {
  Value result;
  if (address.constant) {
    addConstant(result, 0);
  }
  if (address.number || address.symbol || address.environment || address.loaded()) {
    addNumber(result, kFullReach);
  }
  if (!address.bases.empty()) {
    // Not only the bases' words: one that is null may have taken the place of its sum with
    // another, which is the pointer then.
    result.tables = address.words;
  }
  return result;
}

// Whether its result for a loaded word is more than for any number.
bool keepsLoaded(Operation operation) {
  return operation == Operation::kCopy || operation == Operation::kLoad ||
         operation == Operation::kAdd || operation == Operation::kSubtract;
}

Value compute(Operation operation, unsigned detail, const Value& a, const Value& b) {
  if (!keepsLoaded(operation) && (a.loaded() || b.loaded())) {
    return compute(operation, detail, withoutLoaded(a), withoutLoaded(b));
  }
  switch (operation) {
    case Operation::kCopy:
    case Operation::kLowBits:
      return a;
    case Operation::kLoad:
      return loadedFrom(a);
    case Operation::kNarrow:
    case Operation::kMask:
      return narrowed(a, detail);
    case Operation::kAdd:
      return sum(a, b);
    case Operation::kSubtract:
      return difference(a, b);
    case Operation::kMultiply:
      return product(a, b);
    case Operation::kShiftLeft:
      return shifted(a, detail);
    case Operation::kShiftBy: {
      const unsigned most = isConstant(b) && b.constantBits < 6 ? (1U << b.constantBits) - 1 : 63;
      Value result = shifted(asNumber(a, kFullReach, false), most);
      result.negative = result.number && mayBeNegative(a) && result.reach >= kAddressBits;
      return result;
    }
    case Operation::kScramble:
      return asNumber(a, kFullReach, detail != 0);
    case Operation::kOr:
      return disjunction(a, b);
    case Operation::kNumber32: {
      Value result;
      addNumber(result, isPlain(a) ? 0 : 32);
      return result;
    }
    case Operation::kNumber64: {
      Value result;
      result.words = a.words;
      if (isPlain(a)) {
        addNumber(result, 0);
      } else {
        addAnything(result);
      }
      return result;
    }
  }
  return {};
}

bool hasTwoOperands(Operation operation) {
  return operation == Operation::kAdd || operation == Operation::kSubtract ||
         operation == Operation::kMultiply || operation == Operation::kShiftBy ||
         operation == Operation::kOr;
}

constexpr std::uint64_t kJoin = 31;  // beside the operations, in keys of results

std::uint64_t keyOf(std::uint64_t operation, unsigned detail, Values::Id a, Values::Id b) {
  return (operation << 56) | (std::uint64_t{detail} << 48) | (std::uint64_t{a} << 24) | b;
}

}  // namespace

Value constantValue(std::int64_t immediate) {
  const auto bits = static_cast<std::uint64_t>(immediate);
  Value value;
  // Also for negative ones: a small step back is no address.
  addConstant(value, static_cast<unsigned>(std::bit_width(immediate < 0 ? 0 - bits : bits)));
  return value;
}

Value numberOf(unsigned reach) {
  Value value;
  addNumber(value, reach);
  return value;
}

Value wordAt(std::uint32_t offset) {
  Value value;
  value.words = {offset};
  value.bases.push_back({{offset}, false, false});
  return value;
}

Values::Values() { add({}); }

Values::Id Values::add(Value value) {
  bound(value);
  const auto known = ids_.find(value);
  if (known != ids_.end()) {
    return known->second;
  }
  if (values_.size() == kMaxValues) {
    overflowed_ = true;
    return kEmpty;
  }
  const auto id = static_cast<Id>(values_.size());
  values_.push_back(&ids_.emplace(std::move(value), id).first->first);
  return id;
}

Values::Id Values::join(Id a, Id b) {
  if (a == b || b == kEmpty) {
    return a;
  }
  if (a == kEmpty) {
    return b;
  }
  const std::uint64_t key = keyOf(kJoin, 0, a, b);
  const auto known = results_.find(key);
  if (known != results_.end()) {
    return known->second;
  }
  Value both = (*this)[a];
  const Value& other = (*this)[b];
  both.symbol = both.symbol || other.symbol;
  both.environment = both.environment || other.environment;
  if (other.constant) {
    addConstant(both, other.constantBits);
  }
  if (other.number) {
    addNumber(both, other.reach, other.negative);
  }
  for (const Base& base : other.bases) {
    addBase(both, base);
  }
  both.tables = united(both.tables, other.tables);
  both.words = united(both.words, other.words);
  const Id id = add(std::move(both));
  results_.emplace(key, id);
  return id;
}

Values::Id Values::apply(Operation operation, unsigned detail, Id a, Id b) {
  // Before its operands are known, a result is not.
  if (a == kEmpty || (hasTwoOperands(operation) && b == kEmpty)) {
    return kEmpty;
  }
  const std::uint64_t key = keyOf(static_cast<std::uint64_t>(operation), detail, a, b);
  const auto known = results_.find(key);
  if (known != results_.end()) {
    return known->second;
  }
  const Id id = add(compute(operation, detail, (*this)[a], (*this)[b]));
  results_.emplace(key, id);
  return id;
}

}  // namespace gmac::device_code
