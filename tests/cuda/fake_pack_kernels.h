// SPDX-License-Identifier: Apache-2.0
//
// The pack kernels as the fake driver runs kernels: their host implementations, on the memory
// behind the device addresses.
#ifndef GMAC_TESTS_CUDA_FAKE_PACK_KERNELS_H_
#define GMAC_TESTS_CUDA_FAKE_PACK_KERNELS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "gmac/datatype/kernels/arrival_params.h"
#include "gmac/datatype/kernels/pack_kernels.h"
#include "gmac/datatype/kernels/pack_params.h"
#include "gmac/datatype/kernels/transfer_params.h"
#include "tests/cuda/fake_library.h"

namespace gmac::fake_cuda {

// The distance from a device address to the memory behind it; 0 for an address of the CPU.
inline std::uint64_t toBacking(std::uint64_t address) {
  const auto behind = reinterpret_cast<std::uint64_t>(backing(address));
  return behind == 0 ? 0 : behind - address;
}
inline void toBacking(std::uint64_t* table) { *table += toBacking(*table); }

// The tables of a list that are in device memory.
template <typename Params, typename... Tables>
void moveTables(std::byte* params, Tables Params::*... tables) {
  auto* const list = reinterpret_cast<Params*>(params);
  (toBacking(&(list->*tables)), ...);
}

template <std::size_t kNumber>
CUresult packKernel(const unsigned* grid, const unsigned* block, unsigned, void** args) {
  using namespace datatype;
  constexpr int kKernel = static_cast<int>(kNumber);
  constexpr auto kShape = static_cast<Shape>(kKernel / (kWidths * 2));
  constexpr int kColumn = kKernel / 2 % kWidths;
  constexpr std::uint64_t kWidth = kColumn == 0 ? 1 : std::uint64_t{1} << (kColumn - 1);
  alignas(16) std::array<std::byte, 4096> params;
  std::memcpy(params.data(), args[0], kernelParamBytes(kKernel));
  // Of lists in units and of tiles, the first element is another member.
  std::uint64_t begin = 0;
  switch (kShape) {
    case Shape::kLongList:
    case Shape::kWideList: {
      moveTables(params.data(), &LongListParams::units, &LongListParams::pieces);
      begin = reinterpret_cast<LongListParams*>(params.data())->begin;
      break;
    }
    case Shape::kTile:
      begin = static_cast<std::uint64_t>(reinterpret_cast<TileParams*>(params.data())->begin);
      break;
    case Shape::kEvenList:
      moveTables(params.data(), &EvenListParams::offsets);
      begin = reinterpret_cast<Part*>(params.data())->begin;
      break;
    case Shape::kMarkedList:
      moveTables(params.data(), &MarkedListParams::marks, &MarkedListParams::offsets);
      begin = reinterpret_cast<Part*>(params.data())->begin;
      break;
    default:
      begin = reinterpret_cast<Part*>(params.data())->begin;
  }
  Part part;  // begins them all
  std::memcpy(&part, params.data(), sizeof part);
  // Element 0 may lie outside of the memory on both sides.
  const std::uint64_t strided = toBacking(part.first);
  part.strided += strided;
  part.first += strided;
  part.last += strided;
  part.packed += toBacking(part.packed + begin * kWidth - part.head);
  std::memcpy(params.data(), &part, sizeof part);
  void* moved[] = {params.data()};
  for (unsigned i = 0; i < grid[0]; ++i) {
    const adsmThreadBlock_t place = {{grid[0], 1, 1}, {block[0], 1, 1}, {i, 0, 0}, nullptr, 0};
    kernelOnHost(kKernel)(&place, moved);
  }
  return CUDA_SUCCESS;
}

// One side of a transfer.
inline void moveSide(datatype::Part* part) {
  const std::uint64_t away = toBacking(part->first);
  part->strided += away;
  part->first += away;
  part->last += away;
}
inline void moveSide(datatype::AnySideParams* side) {
  using namespace datatype;
  moveSide(&side->rows.part);
  auto* const params = reinterpret_cast<std::byte*>(&side->rows);
  switch (side->form) {
    case SideForm::kEvenList:
      moveTables(params, &EvenListParams::offsets);
      break;
    case SideForm::kMarkedList:
      moveTables(params, &MarkedListParams::marks, &MarkedListParams::offsets);
      break;
    case SideForm::kLongList:
    case SideForm::kWideList:
      moveTables(params, &LongListParams::units, &LongListParams::pieces);
      break;
    case SideForm::kRows:
    case SideForm::kShortList:
      break;
  }
}
template <int kDims>
void moveSide(datatype::RowsParams<kDims>* side) {
  moveSide(&side->part);
}

template <std::size_t kNumber>
CUresult transferKernel(const unsigned* grid, const unsigned* block, unsigned, void** args) {
  using namespace datatype;
  constexpr int kKernel = kPackKernels + static_cast<int>(kNumber);
  constexpr auto kShape = static_cast<TransferShape>(kNumber / kWidths);
  const auto run = [&](auto params) {
    std::memcpy(&params, args[0], sizeof params);
    moveSide(&params.source);
    moveSide(&params.target);
    void* moved[] = {&params};
    for (unsigned i = 0; i < grid[0]; ++i) {
      const adsmThreadBlock_t place = {{grid[0], 1, 1}, {block[0], 1, 1}, {i, 0, 0}, nullptr, 0};
      kernelOnHost(kKernel)(&place, moved);
    }
  };
  if constexpr (kShape == TransferShape::kRows1) {
    run(Rows1TransferParams{});
  } else if constexpr (kShape == TransferShape::kRows3) {
    run(Rows3TransferParams{});
  } else {
    run(AnyTransferParams{{}, {SideForm::kRows, {}}, {SideForm::kRows, {}}});
  }
  return CUDA_SUCCESS;
}

inline int arrivalKernels = 0;  // that have run

template <std::size_t kNumber>
CUresult arrivalKernel(const unsigned* grid, const unsigned* block, unsigned, void** args) {
  using namespace datatype;
  ArrivalParams params;
  std::memcpy(&params, args[0], sizeof params);
  moveSide(&params.rows);
  toBacking(&params.ring);
  const adsmThreadBlock_t place = {{grid[0], 1, 1}, {block[0], 1, 1}, {0, 0, 0}, nullptr, 0};
  void* all[] = {&params};
  ++arrivalKernels;
  kernelOnHost(kFirstArrivalKernel + static_cast<int>(kNumber))(&place, all);
  return CUDA_SUCCESS;
}

struct PackKernels {
  std::array<std::size_t, datatype::kAllKernels> bytes{};
  std::vector<Kernel> kernels;

  template <std::size_t... kNumbers, std::size_t... kTransfers, std::size_t... kArrivals>
  PackKernels(std::index_sequence<kNumbers...>, std::index_sequence<kTransfers...>,
              std::index_sequence<kArrivals...>) {
    (add(kNumbers, packKernel<kNumbers>), ...);
    (add(datatype::kPackKernels + kTransfers, transferKernel<kTransfers>), ...);
    (add(datatype::kFirstArrivalKernel + kArrivals, arrivalKernel<kArrivals>), ...);
  }
  void add(std::size_t number, KernelFunction function) {
    const int kernel = static_cast<int>(number);
    if (datatype::kernelExists(kernel)) {
      bytes[number] = datatype::kernelParamBytes(kernel);
      kernels.push_back({datatype::kernelName(kernel), function, 1, &bytes[number]});
    }
  }
};

// For standIn().
inline const Image& packImage() {
  constexpr std::size_t kTransfers = datatype::kFirstArrivalKernel - datatype::kPackKernels;
  static const PackKernels kAll{std::make_index_sequence<datatype::kPackKernels>{},
                                std::make_index_sequence<kTransfers>{},
                                std::make_index_sequence<datatype::kArrivalKernels>{}};
  static const Image kImage = {"fakecud", kAll.kernels.data(), kAll.kernels.size(), nullptr, 0};
  return kImage;
}

}  // namespace gmac::fake_cuda

#endif  // GMAC_TESTS_CUDA_FAKE_PACK_KERNELS_H_
