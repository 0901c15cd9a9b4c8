// SPDX-License-Identifier: Apache-2.0
//
// The pack kernels by number: their names, parameters and implementations.
#ifndef GMAC_DATATYPE_KERNELS_PACK_KERNELS_H_
#define GMAC_DATATYPE_KERNELS_PACK_KERNELS_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "gmac/accel/commands.h"
#include "gmac/api/adsm.h"

namespace gmac::datatype {

enum class Direction : std::uint8_t { kPack, kUnpack };

// The form of the strided side that a kernel is for.
enum class Shape : std::uint8_t {
  kLine,   // one contiguous piece
  kRows1,  // equal pieces in one, two, three, and more dimensions
  kRows2,
  kRows3,
  kAnyRows,
  kEvenList,    // equal pieces at the offsets of a table in device memory
  kShortList,   // pieces of any length; the list travels in the launch
  kLongList,    // the same with its table in device memory, in units of equal packed size
  kWideList,    // the same for lists of more than 2^32 words
  kMarkedList,  // short pieces of whole words, whose beginnings are marked in a table
  kTile,        // neighbours in memory far apart in packed order
  kPacedRows,   // short pieces in one dimension, loaded at a fixed rate
};
inline constexpr int kShapes = 12;
inline constexpr int kWidths = 6;

// `width`: the bytes that a thread moves at a time, 1, 2, 4, 8 or 16; 0: the word mover, for sides
// that are not aligned to each other.
struct KernelId {
  Shape shape;
  std::uint8_t width;
  Direction direction;
  friend bool operator==(const KernelId&, const KernelId&) = default;
};

inline constexpr int kPackKernels = kShapes * kWidths * 2;

// What both sides of a kernel that copies from one layout to another have.
enum class TransferShape : std::uint8_t {
  kRows1,  // equal pieces in one dimension
  kRows3,  // in up to three
  kAny     // any form
};
inline constexpr int kTransferShapes = 3;

struct TransferKernelId {
  TransferShape shape;
  std::uint8_t width;  // as of KernelId
  friend bool operator==(const TransferKernelId&, const TransferKernelId&) = default;
};

// Unpacks rows in one dimension while they arrive (arrival_params.h).
struct ArrivalKernelId {
  std::uint8_t width;  // 4, 8 or 16
  friend bool operator==(const ArrivalKernelId&, const ArrivalKernelId&) = default;
};
inline constexpr int kArrivalKernels = 3;

inline constexpr int kFirstArrivalKernel = kPackKernels + kTransferShapes * kWidths;
inline constexpr int kAllKernels = kFirstArrivalKernel + kArrivalKernels;
constexpr int columnOf(std::uint8_t width) noexcept {
  return width == 0 ? 0 : std::countr_zero(static_cast<unsigned>(width)) + 1;
}
// 0 <= number < kPackKernels. Some numbers have no kernel: tiles have no word mover, and paced rows
// are only packed, in words of at least 4 bytes.
constexpr int kernelNumber(KernelId id) noexcept {
  return (static_cast<int>(id.shape) * kWidths + columnOf(id.width)) * 2 +
         static_cast<int>(id.direction);
}
// kPackKernels <= number < kFirstArrivalKernel; all exist.
constexpr int kernelNumber(TransferKernelId id) noexcept {
  return kPackKernels + static_cast<int>(id.shape) * kWidths + columnOf(id.width);
}
// kFirstArrivalKernel <= number < kAllKernels; all exist.
constexpr int kernelNumber(ArrivalKernelId id) noexcept {
  return kFirstArrivalKernel + std::countr_zero(static_cast<unsigned>(id.width)) - 2;
}
bool kernelExists(int number) noexcept;

// 0 <= number < kAllKernels: kernel `number`'s name in the module ("gmacPackRows1_8"), the size of
// its one parameter in bytes, and its implementation for the `host` accelerator. Constant;
// thread-safe.
const char* kernelName(int number) noexcept;
std::size_t kernelParamBytes(int number) noexcept;
adsmHostKernel_t kernelOnHost(int number) noexcept;

// All of them, by those numbers.
const accel::BuiltInKernels& packKernels() noexcept;

// "line", "rows1", ...
constexpr const char* shapeName(Shape shape) noexcept {
  constexpr const char* kNames[kShapes] = {"line",      "rows1",       "rows2",      "rows3",
                                           "rows",      "even list",   "short list", "long list",
                                           "wide list", "marked list", "tile",       "paced rows"};
  return kNames[static_cast<std::size_t>(shape)];
}

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_KERNELS_PACK_KERNELS_H_
