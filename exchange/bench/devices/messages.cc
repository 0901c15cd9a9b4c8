// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/devices/messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <utility>

#include "exchange/bench/layouts.h"

namespace gmac::exchange::bench {

using datatype::Block;
using datatype::Layout;

namespace {

constexpr std::int64_t kDouble = 8;
// The paper's own sizes have to arrive in so many microseconds.
constexpr double kPaperUs = 15;
// Nine tenths of the rate of a kernel written by hand.
constexpr double kOfHand = 1 / 0.9;

// A record of a double, an integer and a text of 16 bytes, of 48 bytes.
Layout records(std::int64_t count) { return layoutOf({{count, 48}}, {{0, 12}, {24, 16}}); }

// A block of a lattice of four dimensions, half as long as the lattice in each.
Layout lattice(std::int64_t side) {
  const std::int64_t row = 2 * side * kDouble;
  return layoutOf({{side, 4 * side * side * row}, {side, 2 * side * row}, {side, row}},
                  {{0, side * kDouble}});
}

// Pieces of 8 to 512 doubles anywhere.
Layout indexed(std::int64_t bytes) {
  std::mt19937_64 random(5);
  std::vector<Block> blocks;
  std::int64_t offset = 0;
  while (bytes > 0) {
    const std::int64_t length =
        std::min(bytes, kDouble * (8 + static_cast<std::int64_t>(random() % 505)));
    blocks.push_back({offset, length});
    offset += length + kDouble * (1 + static_cast<std::int64_t>(random() % 256));
    bytes -= length;
  }
  return layoutOf({}, blocks);
}

class List {
 public:
  void both(const char* group, const char* series, std::string name, double x, const Layout& one) {
    all_.push_back({group, series, std::move(name), x, one, one});
  }
  void from(const char* group, const char* series, std::string name, double x, const Layout& one,
            const Layout& other) {
    all_.push_back({group, series, std::move(name), x, one, other});
  }
  Message& last() { return all_.back(); }
  std::vector<Message> take() { return std::move(all_); }

 private:
  std::vector<Message> all_;
};

// FALCON-X, Figures 13 and 14: four sizes of the paper, and 16 and 256 times the largest.
void addApplications(List& list) {
  const auto add = [&](const char* group, const Layout& layout, bool papers) {
    const auto bytes = layout.bytes();
    list.both(group, "", fmt::format("{} of {} B", group, bytes), static_cast<double>(bytes),
              layout);
    list.last().mostUs = papers ? kPaperUs : 0;
  };
  // 12 KiB for a side of 8; a site has 24 bytes, the face side^3 of them.
  constexpr std::int64_t kMilcSite = 24;
  for (const std::int64_t sites : {512, 1024, 2048, 4096, 16 * 4096, 256 * 4096}) {
    constexpr std::int64_t kSide = 8;
    const std::int64_t plane = sites / kSide / 2 * kMilcSite;
    add("MILC_su3_zd", layoutOf({{2, kSide * kSide * plane}, {kSide, kSide * plane}}, {{0, plane}}),
        sites <= 4096);
  }
  for (const auto& [row, rows] :
       {std::pair{14, 30}, {62, 126}, {126, 254}, {254, 510}, {1022, 2038}, {4094, 8190}}) {
    add("NAS_MG", nasZ(row, rows), row <= 254);
  }
  for (const std::int64_t points : {2202, 4602, 8854, 14806, 16 * 14806, 256 * 14806}) {
    add("SPECFEM3D_cm", specfem(points), points <= 14806);
  }
}

// Rows at a stride of four rows.
void addRows(List& list) {
  for (const std::int64_t bytes : {64 * kKiB, kMiB, 64 * kMiB}) {
    for (const std::int64_t block : {8, 16, 32, 64, 128, 1024, 4096}) {
      const std::string series = sizeText(bytes);
      list.both("rows", series.c_str(), fmt::format("{} in rows of {} B", series, block),
                static_cast<double>(block), vectorOf(block, 4 * block, bytes));
    }
  }
}

void addShapes(List& list) {
  const auto add = [&](const char* name, const Layout& layout) {
    const auto bytes = static_cast<double>(layout.bytes());
    list.both("shapes", name, fmt::format("{} of {}", name, sizeText(layout.bytes())), bytes,
              layout);
    list.last().mostOfHand = kOfHand;
    const std::string toLine = fmt::format("{} to contiguous", name);
    list.from("shapes", toLine.c_str(), fmt::format("{}, {}", toLine, sizeText(layout.bytes())),
              bytes, layout, contiguous(layout.bytes()));
    list.last().mostOfHand = kOfHand;
  };
  for (const std::int64_t scale : {1, 8}) {
    add("triangle", triangle(512 * scale));
    add("indexed", indexed(kMiB * scale * scale));
    add("records", records((kMiB / 28) * scale * scale));
    add("4-D subarray", lattice(scale == 1 ? 19 : 54));
  }
}

// Open MPI paper, Figures 10 to 12: matrices of doubles, both ways.
void addMatrices(List& list) {
  for (const std::int64_t n : {512, 1024, 2048, 4096}) {
    const auto x = static_cast<double>(n);
    const Layout dense = contiguous(n * n * kDouble);
    list.both("matrices", "contiguous", fmt::format("matrix of {}", n), x, dense);
    list.both("matrices", "V", fmt::format("sub-matrix V of {}", n), x, subMatrix(n));
    list.both("matrices", "T", fmt::format("triangle T of {}", n), x, triangle(n));
    list.from("one-side", "V to contiguous", fmt::format("V of {} to contiguous", n), x,
              subMatrix(n), dense);
    list.from("one-side", "contiguous to V", fmt::format("contiguous to V of {}", n), x, dense,
              subMatrix(n));
    list.from("transpose", "", fmt::format("transpose of {}", n), x, dense, transposed(n));
  }
}

// Open MPI paper, Figure 15.
void addBusy(List& list) {
  constexpr std::int64_t kColumns = 2048;
  for (const double busy : {0.0, 0.25, 0.5, 0.75, 0.875}) {
    for (const bool whole : {true, false}) {
      const char* const name = whole ? "V" : "T";
      list.both("busy", name, fmt::format("{} of {}, {:g} % busy", name, kColumns, busy * 100),
                busy * 100, whole ? subMatrix(kColumns) : triangle(kColumns));
      list.last().busy = busy;
    }
  }
}

// Open MPI paper, Figures 13 and 14: what a kernel needs to fill the link.
void addBlocks(List& list) {
  constexpr std::int64_t kColumns = 2048;
  for (int blocks = 1; blocks <= 1024; blocks *= 2) {
    for (const bool whole : {true, false}) {
      const char* const name = whole ? "V" : "T";
      list.both("blocks", name, fmt::format("{} of {}, {} thread blocks", name, kColumns, blocks),
                blocks, whole ? subMatrix(kColumns) : triangle(kColumns));
      list.last().blocks = blocks;
    }
  }
}

}  // namespace

std::vector<Message> messages() {
  List list;
  addApplications(list);
  addRows(list);
  addShapes(list);
  addMatrices(list);
  addBusy(list);
  addBlocks(list);
  std::vector<Message> all = list.take();
  const std::vector<Group> order = groups();
  const auto placeOf = [&](const Message& message) {
    return std::find_if(order.begin(), order.end(),
                        [&](const Group& group) { return group.name == message.group; });
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Message& a, const Message& b) { return placeOf(a) < placeOf(b); });
  return all;
}

std::vector<Group> groups() {
  return {{"MILC_su3_zd", "MILC_su3_zd (FALCON-X, Figures 13 and 14)", "bytes"},
          {"NAS_MG", "NAS_MG, a face in z (FALCON-X, Figures 13 and 14)", "bytes"},
          {"SPECFEM3D_cm", "SPECFEM3D_cm (FALCON-X, Figures 13 and 14)", "bytes"},
          {"rows", "rows at a stride of four rows", "bytes of a row"},
          {"shapes", "other layouts", "bytes"},
          {"matrices", "matrices of doubles (Open MPI paper, Figure 10)", "columns"},
          {"one-side", "one side contiguous (Open MPI paper, Figure 11)", "columns"},
          {"transpose", "transpose of doubles (Open MPI paper, Figure 12)", "columns"},
          {"busy", "other work on both GPUs (Open MPI paper, Figure 15)",
           "share of the multiprocessors that it takes, %"},
          {"blocks", "thread blocks of a kernel over the link (Open MPI paper, Figures 13 and 14)",
           "thread blocks"}};
}

}  // namespace gmac::exchange::bench
