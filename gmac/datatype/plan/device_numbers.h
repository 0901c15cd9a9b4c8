// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of device plans.
#ifndef GMAC_DATATYPE_PLAN_DEVICE_NUMBERS_H_
#define GMAC_DATATYPE_PLAN_DEVICE_NUMBERS_H_

#include <cstdint>

namespace gmac::datatype {

// Bytes of the widest word that a thread moves.
inline constexpr std::uint64_t kWidestWord = 16;

// The widest word that divides everything whose bits are set.
constexpr std::uint32_t widthOf(std::uint64_t bits) {
  bits |= kWidestWord;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

constexpr std::uint64_t asBits(std::int64_t value) { return static_cast<std::uint64_t>(value); }
constexpr std::uint32_t narrow(std::int64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::int64_t ceilDivide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_PLAN_DEVICE_NUMBERS_H_
