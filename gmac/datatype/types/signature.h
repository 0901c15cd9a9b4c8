// SPDX-License-Identifier: Apache-2.0
//
// A hash of a sequence of primitive sizes that composes: the hash of two concatenated sequences, or
// of a repeated one, follows from their hashes.
#ifndef GMAC_DATATYPE_TYPES_SIGNATURE_H_
#define GMAC_DATATYPE_TYPES_SIGNATURE_H_

#include <cstdint>

namespace gmac::datatype {

// The sequence as the map x -> scale x + sum modulo the prime 2^61 - 1. A primitive is x -> radix x
// + (a hash of its size), and concatenation composes the maps. A value; no locks.
class Signature {
 public:
  Signature() = default;
  // Of one primitive.
  explicit Signature(int bytes)
      : scale_(kRadix), sum_(mixed(static_cast<std::uint64_t>(bytes)) % kPrime), count_(1) {}

  // This sequence, then `next`.
  Signature then(const Signature& next) const {
    Signature both;
    both.scale_ = times(scale_, next.scale_);
    both.sum_ = reduced(times(sum_, next.scale_) + next.sum_);
    both.count_ = count_ + next.count_;
    return both;
  }

  // This sequence `times` times; by squaring.
  Signature repeated(std::int64_t times) const {
    Signature result;
    Signature power = *this;
    for (auto rest = static_cast<std::uint64_t>(times); rest > 0; rest >>= 1) {
      if ((rest & 1) != 0) {
        result = result.then(power);
      }
      power = power.then(power);
    }
    return result;
  }

  std::uint64_t value() const { return mixed(sum_ ^ mixed(count_)); }

 private:
  static constexpr int kPrimeBits = 61;
  static constexpr std::uint64_t kPrime = (std::uint64_t{1} << kPrimeBits) - 1;
  static constexpr std::uint64_t kRadix = 0x1d8af5c3b2e96a7bU % kPrime;

  static std::uint64_t times(std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return reduced(static_cast<std::uint64_t>(product & kPrime) +
                   static_cast<std::uint64_t>(product >> kPrimeBits));
  }
  // `value` is less than twice the prime. (2^61 is 1 modulo the prime, so a product's upper bits
  // are added to its lower ones.)
  static std::uint64_t reduced(std::uint64_t value) {
    return value >= kPrime ? value - kPrime : value;
  }
  // The finaliser of splitmix64.
  static std::uint64_t mixed(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15U;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
  }

  std::uint64_t scale_ = 1;
  std::uint64_t sum_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_TYPES_SIGNATURE_H_
