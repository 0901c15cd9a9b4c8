// SPDX-License-Identifier: Apache-2.0
//
// What is known of a register: every way in which its value may be made of a kernel's parameters.
//
// A value is a set of alternatives. Operations are applied to all of them, joins unite them. What
// an operation does to a pointer that is not argued for in abstract_values.cc yields a Number of
// full reach, through which no memory can be accessed.
//
// The one question is which term of a sum is the pointer and which are indices. It is answered by
// these rules:
//  - Numbers have a reach: up to which bit they may contain bits of data (of memory, parameters or
//    pointers). Below kAddressBits a number cannot be an address, nor the negative of one.
//  - A base is a sum of parameter words, each exactly once, and of numbers. If one of those words
//    is the address of an object, everything else in the sum is an index.
//  - That argument fails where pointers can cancel each other: base - pointer + other pointer. So
//    differences of what may be pointers are marked, and nothing is added to them.
//  - A 64-bit word that was loaded by way of bases alone may be a pointer too. No launch tells
//    whether it is, so it remains one only while nothing is added that may be an address; in any
//    other sum it is the number that it would be otherwise.
#ifndef GMAC_DEVICE_CODE_ABSTRACT_VALUES_H_
#define GMAC_DEVICE_CODE_ABSTRACT_VALUES_H_

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace gmac::device_code {

constexpr unsigned kAddressBits = 46;  // a number of that reach may be an address
constexpr unsigned kFullReach = 64;

// An alternative that contains parameter words.
struct Base {
  std::vector<std::uint32_t> words;  // their offsets; sorted
  bool wide = false;                 // a number that may be an address was added
  bool difference = false;           // a number that may be an address was subtracted
  friend bool operator<(const Base& a, const Base& b) {
    return std::tie(a.words, a.wide, a.difference) < std::tie(b.words, b.wide, b.difference);
  }
};

struct Value {
  bool constant = false;     // an immediate of at most `constantBits` bits
  bool symbol = false;       // an address in a variable of the module
  bool environment = false;  // (a half of) the address of the driver's memory for grid barriers
  bool number = false;       // anything else that is no base
  bool negative = false;     // the number may contain the negative of an address
  std::uint8_t constantBits = 0;
  std::uint8_t reach = 0;   // of the number
  std::vector<Base> bases;  // no one's words include another's
  // Not empty: it may be a word loaded from memory, plus what cannot be an address. These are all
  // words that took part in the address it was loaded from; sorted.
  std::vector<std::uint32_t> tables;
  std::vector<std::uint32_t> words;  // all that took part in 64-bit arithmetic; sorted

  bool loaded() const { return !tables.empty(); }
  bool empty() const {
    return !constant && !symbol && !environment && !number && bases.empty() && !loaded();
  }

  auto key() const {
    return std::tie(constant, symbol, environment, number, negative, constantBits, reach, bases,
                    tables, words);
  }
  friend bool operator<(const Value& a, const Value& b) { return a.key() < b.key(); }
};

Value constantValue(std::int64_t immediate);
Value numberOf(unsigned reach);
Value wordAt(std::uint32_t offset);

enum class Operation : std::uint8_t {
  kCopy,       // a
  kLowBits,    // a with other low bits, of the same object
  kLoad,       // a 64-bit word at address a
  kNarrow,     // the low `detail` bits of a
  kMask,       // likewise, at 64 bits
  kAdd,        // a + b
  kSubtract,   // a - b
  kMultiply,   // a * b
  kShiftLeft,  // a << detail
  kShiftBy,    // a << b
  kScramble,   // quotients and right shifts of a; `detail` is 0 where they may be a itself
  kOr,         // a | b
  kNumber32,   // any result of at most 32 bits
  kNumber64,   // any result
};

// Values by number: equal values have equal numbers. Not thread-safe.
class Values {
 public:
  using Id = std::uint32_t;
  static constexpr Id kEmpty = 0;

  Values();
  Id add(Value value);
  const Value& operator[](Id id) const { return *values_[id]; }
  Id join(Id a, Id b);
  Id apply(Operation operation, unsigned detail, Id a, Id b);
  // More values than any reasonable kernel has; nothing that was returned since is right.
  bool overflowed() const { return overflowed_; }

 private:
  std::map<Value, Id> ids_;
  std::vector<const Value*> values_;
  std::unordered_map<std::uint64_t, Id> results_;
  bool overflowed_ = false;
};

}  // namespace gmac::device_code

#endif  // GMAC_DEVICE_CODE_ABSTRACT_VALUES_H_
