// SPDX-License-Identifier: Apache-2.0
//
// Of the program that measures messages between GPUs: the formulas of the kernels written by hand
// say of every word where its layout has it, and pieces cover both sides once.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "exchange/bench/devices/messages.h"
#include "exchange/bench/devices/shapes.h"

namespace gmac::exchange::bench {
namespace {

using datatype::Layout;

// (Larger ones are of the same form.)
constexpr std::int64_t kMostBytes = std::int64_t{3} << 20;

void expectPlaces(const std::string& name, const Layout& layout, std::int64_t wordBytes) {
  std::optional<Shape> shape = shapeOf(layout, wordBytes);
  if (!shape.has_value()) return;
  shape->place.table = shape->table.data();
  std::int64_t wrong = 0;
  layout.forEach(0, layout.bytes(), [&](std::int64_t at, std::int64_t packed, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += wordBytes) {
      const auto word = static_cast<std::uint32_t>((packed + i) / wordBytes);
      wrong += placeOf(shape->place, word) * wordBytes == at + i ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong, 0) << name << ", words of " << wordBytes << " bytes";
}

void expectPieces(const Message& message) {
  std::int64_t packed = 0;
  std::int64_t wrong = 0;
  for (const Piece& piece : piecesOf(message.from, message.to)) {
    const auto at = [&](const Layout& layout) {
      std::int64_t place = -1;
      layout.forEach(packed, piece.bytes,
                     [&](std::int64_t offset, std::int64_t, std::int64_t bytes) {
                       place = bytes == piece.bytes ? offset : -1;
                     });
      return place;
    };
    wrong += at(message.from) == piece.from && at(message.to) == piece.to ? 0 : 1;
    packed += piece.bytes;
  }
  EXPECT_EQ(wrong, 0) << message.name;
  EXPECT_EQ(packed, message.from.bytes()) << message.name;
}

TEST(DeviceShapes, FormulasSayWhereTheWordsLie) {
  std::set<Place::Kind> kinds;
  for (const Message& message : messages()) {
    ASSERT_EQ(message.from.bytes(), message.to.bytes()) << message.name;
    if (message.from.bytes() > kMostBytes) continue;
    const std::int64_t word = wordOf(message.from, message.to);
    EXPECT_GE(word, 4) << message.name;
    expectPlaces(message.name, message.from, word);
    expectPlaces(message.name, message.to, word);
    expectPieces(message);
    if (const auto shape = shapeOf(message.from, word)) kinds.insert(shape->place.kind);
  }
  EXPECT_EQ(kinds.size(), 5U) << "each kind of formula has a message";
}

TEST(DeviceShapes, NoFormulaIsMadeForWhatNoneFits) {
  const auto irregular = Layout::make({}, {{0, 8}, {16, 24}, {64, 8}});
  ASSERT_TRUE(irregular.ok());
  EXPECT_FALSE(shapeOf(*irregular, 8).has_value());
  const auto deep = Layout::make({{2, 4096}, {2, 1024}, {2, 256}, {2, 64}}, {{0, 8}});
  ASSERT_TRUE(deep.ok());
  EXPECT_FALSE(shapeOf(*deep, 8).has_value());
}

}  // namespace
}  // namespace gmac::exchange::bench
