// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>

#include "bench/pack_kernels/cases.h"
#include "bench/pack_kernels/hand.cuh"

namespace packbench {
namespace {

using gmac::datatype::Block;
using gmac::datatype::Dim;
using gmac::datatype::Layout;

Layout layoutOf(std::vector<Dim> dims, std::vector<Block> blocks) {
  auto made = Layout::make(std::move(dims), std::move(blocks));
  if (!made.ok()) {
    std::fprintf(stderr, "no layout: %s\n", gmac::lastErrorText());
    std::exit(1);
  }
  return std::move(*made);
}

std::string sizeText(std::int64_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

constexpr unsigned kThreads = 256;
unsigned blocksFor(std::uint64_t work) {
  return static_cast<unsigned>((work + kThreads - 1) / kThreads);
}

// One thread an element.
template <typename Kernel>
Case::Hand flat(Kernel kernel, hand::Call call) {
  return [kernel, call](const void* source, void* target, const void* table, cudaStream_t stream) {
    hand::Call c = call;
    c.source = source;
    c.target = target;
    c.table = table;
    kernel<<<blocksFor(c.elements), kThreads, 0, stream>>>(c);
  };
}

Case vectorCase(const std::string& name, std::int64_t piece, std::int64_t stride,
                std::int64_t packed) {
  const std::int64_t rows = packed / piece;
  Case item;
  item.name = name + " " + sizeText(packed);
  item.layout = layoutOf({{rows, stride}}, {{0, piece}});
  const auto word = [&](std::int64_t w) {
    return hand::Call{nullptr,
                      nullptr,
                      static_cast<std::uint32_t>(packed / w),
                      static_cast<std::uint32_t>(piece / w),
                      static_cast<std::uint32_t>(stride / w),
                      0,
                      nullptr};
  };
  item.hands.push_back(piece % 16 == 0 ? flat(hand::vector<ulonglong2>, word(16))
                                       : flat(hand::vector<std::uint64_t>, word(8)));
  item.copy2d = {static_cast<std::size_t>(piece), static_cast<std::size_t>(stride),
                 static_cast<std::size_t>(rows)};
  return item;
}

Case submatrixCase() {
  constexpr std::int64_t kN = 4096;
  constexpr std::int64_t kPitch = 8192;
  Case item;
  item.name = "submatrix N = 4096";
  item.layout = layoutOf({{kN, kPitch * 8}}, {{0, kN * 8}});
  item.hands.push_back([](const void* source, void* target, const void*, cudaStream_t stream) {
    const hand::Call c{source, target, 0, kN / 2, kPitch / 2, 0, nullptr};
    hand::submatrix<<<dim3(kN / 2 / kThreads, kN), kThreads, 0, stream>>>(c);
  });
  item.copy2d = {kN * 8, kPitch * 8, kN};
  return item;
}

Case triangleCase(std::int64_t n) {
  Case item;
  item.name = "lower triangle N = " + std::to_string(n);
  std::vector<Block> blocks;
  for (std::int64_t j = 0; j < n; ++j) blocks.push_back({(j * n + j) * 8, (n - j) * 8});
  item.layout = layoutOf({}, std::move(blocks));
  item.hands.push_back([n](const void* source, void* target, const void*, cudaStream_t stream) {
    const hand::Call c{source, target, 0, static_cast<std::uint32_t>(n), 0, 0, nullptr};
    hand::triangle<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(c);
  });
  return item;
}

Case fourDCase(int log2Side) {
  const std::int64_t side = 1 << log2Side;
  Case item;
  item.name = "4-D subarray, side " + std::to_string(side);
  item.layout =
      layoutOf({{side, 64 * 64 * 64 * 8}, {side, 64 * 64 * 8}, {side, 64 * 8}}, {{0, side * 8}});
  item.hands.push_back(
      flat(hand::fourD, {nullptr, nullptr, static_cast<std::uint32_t>(side * side * side * side), 0,
                         0, static_cast<std::uint32_t>(log2Side), nullptr}));
  return item;
}

Case indexedCase(std::int64_t piece, std::int64_t packed) {
  Case item;
  item.name = "indexed, " + std::to_string(piece) + " B, " + sizeText(packed);
  std::mt19937 random(5);
  std::vector<Block> blocks;
  const std::int64_t word = piece == 8 ? 8 : 16;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < packed / piece; ++i) {
    blocks.push_back({at, piece});
    item.handTable.push_back(static_cast<std::uint32_t>(at / word));
    at += piece + static_cast<std::int64_t>(1 + random() % 15) * word;
  }
  item.layout = layoutOf({}, std::move(blocks));
  const hand::Call c{nullptr,
                     nullptr,
                     static_cast<std::uint32_t>(packed / word),
                     static_cast<std::uint32_t>(piece / word),
                     0,
                     0,
                     nullptr};
  item.hands.push_back(word == 8 ? flat(hand::indexed<std::uint64_t>, c)
                                 : flat(hand::indexed<ulonglong2>, c));
  return item;
}

Case pairsCase() {
  constexpr std::int64_t kPairs = 65536;
  Case item;
  item.name = "indexed, 8 and 128 B in turn";
  std::mt19937 random(6);
  std::vector<Block> blocks;
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < 2 * kPairs; ++i) {
    const std::int64_t bytes = i % 2 == 0 ? 8 : 128;
    blocks.push_back({at, bytes});
    item.handTable.push_back(static_cast<std::uint32_t>(at / 8));
    at += bytes + static_cast<std::int64_t>(1 + random() % 15) * 8;
  }
  item.layout = layoutOf({}, std::move(blocks));
  item.hands.push_back(flat(
      hand::pairs, {nullptr, nullptr, static_cast<std::uint32_t>(kPairs * 17), 0, 0, 0, nullptr}));
  return item;
}

Case structsCase(std::int64_t count) {
  Case item;
  item.name = "structs of 17 in 24 B, " + std::to_string(count);
  item.layout = layoutOf({{count, 24}}, {{0, 17}});
  const hand::Call c{nullptr, nullptr, static_cast<std::uint32_t>(count), 0, 0, 0, nullptr};
  item.hands.push_back(flat(hand::structs, c));
  item.hands.push_back(flat(hand::structsShared, c));
  return item;
}

Case transposeCase() {
  constexpr std::int64_t kN = 2048;
  Case item;
  item.name = "transpose N = 2048";
  item.layout = layoutOf({{kN, 8}, {kN, kN * 8}}, {{0, 8}});
  item.hands.push_back([](const void* source, void* target, const void*, cudaStream_t stream) {
    const hand::Call c{source, target, 0, kN, 0, 0, nullptr};
    hand::transpose<<<dim3(kN / 32, kN / 32), dim3(32, 8), 0, stream>>>(c);
  });
  return item;
}

Case vectorOfVectorsCase(std::int64_t packed) {
  Case item;
  item.name = "vector of vectors " + sizeText(packed);
  item.layout = layoutOf({{packed / 2048, 8192}, {32, 128}}, {{0, 64}});
  item.hands.push_back(
      flat(hand::vectorOfVectors,
           {nullptr, nullptr, static_cast<std::uint32_t>(packed / 16), 0, 0, 0, nullptr}));
  return item;
}

Case faceCase(const std::string& name, std::int64_t rows, std::int64_t piece, std::int64_t pitch) {
  Case item = vectorCase("face", piece, pitch, rows * piece);
  item.name = "face " + name + " of 512^3";
  return item;
}

}  // namespace

std::vector<Case> makeCases(const std::string& filter) {
  std::vector<Case> cases;
  const auto add = [&](auto maker) {
    Case item = maker();
    if (item.name.find(filter) != std::string::npos) cases.push_back(std::move(item));
  };
  for (const std::int64_t packed : {256, 1024, 4096, 8192}) {
    add([&] { return vectorCase("small: 8 B @ 64 B,", 8, 64, packed); });
  }
  for (const std::int64_t packed : {1LL << 20, 8LL << 20, 64LL << 20}) {
    add([&] { return vectorCase("vector 8 B @ 512 B,", 8, 512, packed); });
  }
  for (const std::int64_t piece : {16, 32, 64, 128}) {
    for (const std::int64_t packed : {8LL << 20, 64LL << 20}) {
      add([&] {
        return vectorCase("vector " + std::to_string(piece) + " B @ 512 B,", piece, 512, packed);
      });
    }
  }
  for (const std::int64_t piece : {16, 32, 64, 128, 256}) {
    for (const std::int64_t packed : {8LL << 10, 1LL << 20, 8LL << 20, 64LL << 20}) {
      add([&] {
        return vectorCase(
            "vector " + std::to_string(piece) + " B @ " + std::to_string(2 * piece) + " B,", piece,
            2 * piece, packed);
      });
    }
  }
  add(submatrixCase);
  add([] { return triangleCase(4096); });
  add([] { return triangleCase(8192); });
  for (int side = 2; side <= 5; ++side) add([&] { return fourDCase(side); });
  for (const std::int64_t piece : {8, 128}) {
    for (const std::int64_t packed : {1LL << 20, 8LL << 20}) {
      add([&] { return indexedCase(piece, packed); });
    }
  }
  add(pairsCase);
  add([] { return structsCase(1024); });
  add([] { return structsCase(1048576); });
  add(transposeCase);
  for (const std::int64_t packed : {1LL << 20, 8LL << 20, 64LL << 20}) {
    add([&] { return vectorOfVectorsCase(packed); });
  }
  add([] { return faceCase("XY", 512, 4096, 4096); });
  add([] { return faceCase("XZ", 512, 4096, 2097152); });
  add([] { return faceCase("YZ", 262144, 8, 4096); });
  return cases;
}

}  // namespace packbench
