// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/workloads.h"

#include <fmt/core.h>

#include <utility>

#include "exchange/bench/layouts.h"

namespace gmac::exchange::bench {
using datatype::Layout;

namespace {

class List {
 public:
  // Both sides alike.
  Workload& both(const char* group, std::string name, std::int64_t x, const Layout& one) {
    return from(group, std::move(name), x, one, one);
  }
  Workload& from(const char* group, std::string name, std::int64_t x, const Layout& one,
                 const Layout& other) {
    all_.push_back({group, std::move(name), static_cast<double>(x), one, other, "", 0});
    return all_.back();
  }
  // Where the figure's x are the bytes of the message.
  Workload& sized(const char* group, std::string name, const Layout& one) {
    return both(group, std::move(name), one.bytes(), one);
  }
  std::vector<Workload> take() { return std::move(all_); }

 private:
  std::vector<Workload> all_;
};

// FALCON-X, Figures 1 and 5: the applications, each at one size.
void addSteps(List& list) {
  const auto add = [&](const char* name, const Layout& layout) {
    list.sized("steps", fmt::format("{}, {}", name, sizeText(layout.bytes())), layout);
  };
  add("MILC_su3_zd", milc(32));
  add("WRF_y_vec", wrf(512));
  add("NAS_MG_z", nasZ(256, 256));
  add("NAS_MG_x", nasX(128));
  add("SPECFEM3D_cm", specfem(32000));
}

// Figures 3 and 4.
void addPieces(List& list) {
  for (std::int64_t piece = 4; piece <= 4 * kKiB; piece *= 4) {
    list.both("single-copy", fmt::format("1 MiB in pieces of {} B", piece), piece,
              vectorOf(piece, 2 * piece, kMiB));
  }
  for (const std::int64_t bytes : {4 * kKiB, 64 * kKiB, kMiB, 4 * kMiB}) {
    for (std::int64_t piece = 16; piece <= bytes; piece *= 4) {
      list.both("pieces", fmt::format("{} in pieces of {}", sizeText(bytes), sizeText(piece)),
                piece, scattered(piece, bytes))
          .series = sizeText(bytes);
    }
  }
}

// Figures 6 and 8.
void addVectors(List& list) {
  constexpr std::int64_t kBytes = 2 * kMiB;
  for (std::int64_t block = 128; block <= kBytes; block *= 4) {
    list.both("lists", fmt::format("2 MiB in pieces of {}", sizeText(block)), block,
              scattered(block, kBytes));
  }
  for (std::int64_t block = 8; block <= kBytes; block *= block < 4 * kKiB ? 2 : 4) {
    list.both("vector", fmt::format("vector of {}", sizeText(block)), block,
              vectorOf(block, 2 * block, kBytes))
        .most = block == 128 ? 0.5 : 0;
  }
}

}  // namespace

std::vector<Workload> workloads() {
  List list;
  for (std::int64_t bytes = 4 * kKiB; bytes <= 64 * kMiB; bytes *= 4) {
    // From 4 MiB on: as fast as the MPI's own single copy.
    list.sized("contiguous", "contiguous", contiguous(bytes)).most = bytes >= 4 * kMiB ? 1 : 0;
  }
  addSteps(list);
  addPieces(list);
  addVectors(list);
  for (const std::int64_t block : {16, 128, 1024}) {
    const Layout strided = vectorOf(block, 2 * block, 2 * kMiB);
    list.from("one-side", fmt::format("vector of {} B to contiguous", block), block, strided,
              contiguous(2 * kMiB));
    list.from("one-side", fmt::format("contiguous to vector of {} B", block), block,
              contiguous(2 * kMiB), strided);
  }
  for (const std::int64_t side : {8, 16, 32, 64}) {
    list.sized("MILC_su3_zd", fmt::format("MILC_su3_zd {}^4", side), milc(side));
  }
  // The paper's 42 KB and 3.8 MB, and between them.
  for (const std::int64_t width : {39, 128, 512, 3520}) {
    list.sized("WRF_y_vec", fmt::format("WRF_y_vec of {}", width), wrf(width));
  }
  for (const std::int64_t n : {64, 128, 256, 512}) {
    list.sized("NAS_MG_z", fmt::format("NAS_MG_z {}^2", n), nasZ(n, n));
  }
  for (const std::int64_t n : {32, 64, 128}) {
    list.sized("NAS_MG_x", fmt::format("NAS_MG_x {}^2", n), nasX(n));
  }
  for (const std::int64_t points : {2000, 32000, 512000}) {
    list.sized("SPECFEM3D_cm", fmt::format("SPECFEM3D_cm, {} points", points), specfem(points));
  }
  return list.take();
}

std::vector<Group> groups() {
  const std::vector<Way> all = {Way::kMpi,    Way::kByHand, Way::kChosen, Way::kPlain,
                                Way::kMapped, Way::kRead,   Way::kRing};
  const std::vector<Way> steps = {Way::kContiguous, Way::kMpi, Way::kByHand, Way::kChosen,
                                  Way::kNaive};
  const std::vector<Way> copies = {Way::kMpi, Way::kByHand, Way::kChosen, Way::kMapped, Way::kRead};
  const std::vector<Way> exchanged = {Way::kMpi,  Way::kByHand, Way::kChosen,
                                      Way::kRing, Way::kNaive,  Way::kPipelined};
  const char* const kBytes = "bytes";
  const char* const kPiece = "bytes of a piece";
  return {
      {"contiguous", "contiguous bytes", kBytes, all},
      {"steps", "the steps of a message (FALCON-X, Figures 1 and 5)", kBytes, steps, false, true},
      {"single-copy", "1 MiB, mapped or read by the kernel (FALCON-X, Figure 3)", kPiece, copies},
      {"pieces", "pieces anywhere (FALCON-X, Figure 4)", kPiece, exchanged},
      {"lists", "2 MiB in pieces anywhere (FALCON-X, Figure 6)", kPiece, exchanged, true},
      {"vector", "2 MiB, a vector (FALCON-X, Figure 8)", "bytes of a block", all, true},
      {"one-side", "", "bytes of a block", all},
      {"MILC_su3_zd", "MILC_su3_zd (FALCON-X, Figure 9)", kBytes, all},
      {"WRF_y_vec", "WRF_y_vec (FALCON-X, Figure 10)", kBytes, all},
      {"NAS_MG_z", "NAS_MG_z (FALCON-X, Figure 11)", kBytes, all},
      {"NAS_MG_x", "NAS_MG_x", kBytes, all},
      {"SPECFEM3D_cm", "SPECFEM3D_cm", kBytes, all},
  };
}

}  // namespace gmac::exchange::bench
