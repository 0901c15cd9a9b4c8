// SPDX-License-Identifier: Apache-2.0
//
// docs/examples/halo, which docs/datatypes.md shows: the program with datatypes
// exchanges a halo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <vector>

#include "docs/examples/halo/after.h"
#include "docs/examples/halo/messages.h"
#include "gmac/api/adsm.h"

namespace {

// One grid that is its own neighbour on both sides.
std::vector<side>& sent() {
  static std::vector<side> sides;
  return sides;
}

}  // namespace

extern "C" void sendAndReceive(side to, const void* out, void* in, size_t bytes) {
  sent().push_back(to);
  std::memcpy(in, out, bytes);
}

namespace gmac {
namespace {

constexpr int kNx = 20;
constexpr int kNy = 30;
constexpr int kNz = 40;
constexpr std::size_t kCells = std::size_t{kNx} * kNy * kNz;

double cell(std::size_t i) { return static_cast<double>(i) + 0.5; }

// A step of the simulation.
void writeCells(const adsmThreadBlock_t*, void** args) {
  double* const grid = *static_cast<double**>(args[0]);
  for (std::size_t i = 0; i < kCells; ++i) grid[i] = cell(i);
}

TEST(HaloExample, PlanesOfTheNeighboursArrive) {
  // The kernel is the host's alone.
  setenv("GMAC_ACCEL", "host", 1);
  auto* const grid = static_cast<double*>(adsmAlloc(kCells * sizeof(double)));
  ASSERT_NE(grid, nullptr) << adsmLastErrorString();
  const std::size_t sizes[] = {sizeof(double*)};
  adsmKernelDesc_t desc{};
  desc.name = "step";
  desc.paramCount = 1;
  desc.paramSizes = sizes;
  desc.host = &writeCells;
  adsmKernel_t step = nullptr;
  ASSERT_EQ(adsmKernelCreate(&desc, &step), adsmSuccess) << adsmLastErrorString();
  void* args[] = {const_cast<double**>(&grid)};
  ASSERT_EQ(adsmCall(step, {1, 1, 1}, {1, 1, 1}, 0, args), adsmSuccess) << adsmLastErrorString();

  struct exchange halo;
  ASSERT_EQ(exchangeCreate(&halo, kNx, kNy, kNz), adsmSuccess) << adsmLastErrorString();
  ASSERT_EQ(exchangeHalo(&halo, grid), adsmSuccess) << adsmLastErrorString();
  EXPECT_THAT(sent(), testing::ElementsAre(kLeft, kRight));
  for (std::size_t i = 0; i < kCells; ++i) {
    const std::size_t x = i % kNx;
    // The neighbour on the right is the grid itself, whose first own plane is 1.
    const std::size_t from = x == 0 ? i + kNx - 2 : x == kNx - 1 ? i - (kNx - 2) : i;
    ASSERT_EQ(grid[i], cell(from)) << "cell " << i;
  }
  exchangeDestroy(&halo);
  EXPECT_EQ(adsmKernelDestroy(step), adsmSuccess);
  EXPECT_EQ(adsmFree(grid), adsmSuccess);
}

}  // namespace
}  // namespace gmac
