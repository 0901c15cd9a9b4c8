// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <functional>
#include <memory>

#include "datatypes/figures.h"
#include "datatypes/pack_bench.h"

namespace datatypes {
namespace {

// Steps of the stair triangle: a multiple of a block of threads' width.
constexpr std::int64_t kStair = 256;
constexpr const char* kPingPong =
    "the paper's ping-pong between two processes is left to the work on MPI; here one process "
    "packs";

std::vector<std::int64_t> matrixSizes() { return {512, 1024, 1536, 2048, 2560, 3072, 3584, 4096}; }

// GB/s of packed bytes.
double rate(const Workload& workload, double us) {
  return static_cast<double>(workload.bytes) / us / 1e3;
}

// Adds every way's rate.
void addRates(Panel& panel, double x, const std::string& prefix, const Workload& workload,
              const Times& times) {
  for (const auto& [name, us] : times.all()) panel.set(x, prefix + name, rate(workload, us));
}

// The packs that both of the paper's figures of bandwidths show.
Panel bandwidthBySize(Session& session, const char* title, Place into) {
  Panel panel{"bandwidth",
              title,
              "matrix size N",
              "GB/s of packed bytes",
              false,
              false,
              {"V", "T", "T-stair", "contiguous, V's size", "contiguous, T's size"},
              {},
              {}};
  for (const std::int64_t n : matrixSizes()) {
    const auto x = static_cast<double>(n);
    const auto add = [&](const char* name, const Workload& workload) {
      PackBench bench(session, workload, into);
      bench.engine(name);
      addRates(panel, x, "", workload, bench.measure(session.rounds()));
    };
    {
      PackBench bench(session, subMatrix(n), into);
      bench.engine("V");
      bench.copy("contiguous, V's size");
      addRates(panel, x, "", bench.workload(), bench.measure(session.rounds()));
    }
    {
      PackBench bench(session, triangle(n), into);
      bench.engine("T");
      bench.copy("contiguous, T's size");
      addRates(panel, x, "", bench.workload(), bench.measure(session.rounds()));
    }
    add("T-stair", stairTriangle(n, kStair));
  }
  return panel;
}

void figure6(Session& session, Figure& figure) {
  figure.panels.push_back(
      bandwidthBySize(session, "GPU memory bandwidth of packing", Place::kDevice));
  figure.notes = {
      fmt::format("the stair has steps of {} columns; contiguous is cudaMemcpy", kStair)};
}

// Times of packing and unpacking a layout that the engine has not met, each time another.
void addFirstUse(Session& session, Panel& panel, const char* name, std::int64_t n) {
  Gpu& gpu = session.gpu();
  const Workload whole = triangle(n);
  const std::byte* const source = gpu.source(whole.extent);
  std::byte* const scratch = gpu.scratch(whole.extent);
  std::byte* const target = gpu.target(Place::kDevice, whole.bytes);
  std::int64_t variant = 0;
  std::unique_ptr<Type> fresh;
  const auto renew = [&] {
    fresh = std::make_unique<Type>(triangleVariant(n, variant++).type());
    fresh->commit();
  };
  const auto packAndUnpack = [&] {
    const Manner manner{.stream = gpu.stream()};
    (void)pack(target, source, *fresh, manner);
    (void)unpack(scratch, target, *fresh, manner);
    gpu.synchronize();
  };
  const Workload first = triangleVariant(n, variant);
  renew();
  gpu.clear(scratch, first.extent);
  packAndUnpack();
  std::vector<std::byte> unpacked(static_cast<std::size_t>(first.extent));
  gpu.read(unpacked.data(), scratch, first.extent);
  std::vector<std::byte> found;
  first.pieces([&](std::int64_t offset, std::int64_t bytes) {
    found.insert(found.end(), unpacked.begin() + offset, unpacked.begin() + offset + bytes);
  });
  requireEqual(name, packedPattern(first), found);

  const Times times({{name, packAndUnpack, renew}}, session.rounds());
  panel.set(static_cast<double>(n), name, times.microseconds(name) / 1e3);
}

void figure7(Session& session, Figure& figure) {
  Panel panel{"pack-unpack",
              "Pack and unpack of sub-matrix and triangle",
              "matrix size N",
              "ms",
              false,
              false,
              {"V-d2d", "T-d2d-cached", "T-d2d-first", "V-d2d2h", "T-d2d2h-cached", "V-0cpy",
               "T-0cpy-cached"},
              {},
              {}};
  for (const std::int64_t n : matrixSizes()) {
    for (const bool isMatrix : {true, false}) {
      const auto name = [=](const char* way) {
        return isMatrix ? fmt::format("V-{}", way) : fmt::format("T-{}-cached", way);
      };
      const Workload workload = isMatrix ? subMatrix(n) : triangle(n);
      const auto add = [&](const Times& times) {
        for (const auto& [way, us] : times.all()) {
          panel.set(static_cast<double>(n), way, us / 1e3);
        }
      };
      PackBench device(session, workload, Place::kDevice);
      device.roundTrip(name("d2d"), {}, false);
      add(device.measure(session.rounds()));
      PackBench pinned(session, workload, Place::kPinned);
      pinned.roundTrip(name("d2d2h"), {}, true);
      pinned.roundTrip(name("0cpy"), {.method = adsmMethodKernel}, false);
      add(pinned.measure(session.fewRounds()));
    }
    addFirstUse(session, panel, "T-d2d-first", n);
  }
  figure.panels.push_back(std::move(panel));
  figure.notes = {
      "d2d: packed into device memory and unpacked from there; d2d2h: copied to pinned memory and "
      "back in between; 0cpy: kernels that write and read pinned memory",
      "first: a layout that the engine has not met; preparing it overlaps the kernels inside the "
      "engine, so the paper's curve without that pipeline is not drawn"};
}

void figure8(Session& session, Figure& figure) {
  for (const std::int64_t count : {1000, 8000}) {
    Panel panel{
        fmt::format("vector-{}", count),
        fmt::format("{} blocks", count),
        "block size, bytes",
        "pack and unpack, us",
        true,
        true,
        {"kernel-d2d", "mcp2d-d2d", "kernel-d2d2h", "mcp2d-d2d2h", "kernel-0cpy", "mcp2d-d2h"},
        {},
        {}};
    for (const std::int64_t block :
         {64, 96, 128, 192, 200, 256, 384, 512, 712, 1024, 1480, 2048, 3000, 4096}) {
      const Workload workload = vector(block, 2 * block, count * block);
      const auto add = [&](const Times& times) {
        for (const auto& [name, us] : times.all()) panel.set(static_cast<double>(block), name, us);
      };
      PackBench device(session, workload, Place::kDevice);
      device.roundTrip("kernel-d2d", {.method = adsmMethodKernel}, false);
      device.roundTripOfCopies("mcp2d-d2d", false);
      add(device.measure(session.rounds()));
      PackBench pinned(session, workload, Place::kPinned);
      pinned.roundTrip("kernel-d2d2h", {.method = adsmMethodKernel}, true);
      pinned.roundTrip("kernel-0cpy", {.method = adsmMethodKernel}, false);
      pinned.roundTripOfCopies("mcp2d-d2d2h", true);
      pinned.roundTripOfCopies("mcp2d-d2h", false);
      add(pinned.measure(session.rounds()));
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.notes = {
      "the stride is twice the block; sizes that are and are not multiples of 64 bytes"};
}

void figure9(Session& session, Figure& figure) {
  figure.panels.push_back(
      bandwidthBySize(session, "PCI-E bandwidth of packing into pinned memory", Place::kPinned));
  figure.notes = {kPingPong};
}

// Rates by thread blocks that the engine may occupy, into device and into pinned memory.
void ratesByBlocks(Session& session, Figure& figure, const char* type,
                   Workload (*make)(std::int64_t n)) {
  const int all = session.gpu().multiprocessors();
  for (const Place into : {Place::kDevice, Place::kPinned}) {
    const bool device = into == Place::kDevice;
    Panel panel{device ? "gpu" : "pcie",
                fmt::format("{} of packing \"{}\"",
                            device ? "GPU memory bandwidth" : "PCI-E bandwidth", type),
                "thread blocks",
                "GB/s of packed bytes",
                true,
                false,
                {},
                {},
                {}};
    for (const std::int64_t n : {1024, 2048, 3072, 4096}) {
      const Workload workload = make(n);
      PackBench bench(session, workload, into);
      std::vector<int> limits;
      for (int blocks = 1; blocks < all; blocks *= 2) limits.push_back(blocks);
      limits.insert(limits.end(), {all, 2 * all});
      for (const int blocks : limits) bench.engine(std::to_string(blocks), {.blocks = blocks});
      const Times times = bench.measure(session.fewRounds());
      for (const int blocks : limits) {
        const std::string way = std::to_string(blocks);
        if (!times.has(way)) continue;
        panel.set(blocks, fmt::format("N = {}", n), rate(workload, times.microseconds(way)));
      }
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.notes = {"the engine's choice of method within the limit"};
}

void figure13(Session& session, Figure& figure) { ratesByBlocks(session, figure, "V", &subMatrix); }

// Rates while another kernel holds a share of the GPU: the paper's section 5.4.
void addSharedGpu(Session& session, Figure& figure) {
  Gpu& gpu = session.gpu();
  Panel panel{"shared",
              "PCI-E bandwidth beside a kernel that occupies multiprocessors",
              "share occupied, %",
              "GB/s of packed bytes",
              false,
              false,
              {"V", "T"},
              {},
              {}};
  for (const int percent : {0, 25, 50, 75, 90}) {
    for (const bool isMatrix : {true, false}) {
      const Workload workload = isMatrix ? subMatrix(4096) : triangle(4096);
      PackBench bench(session, workload, Place::kPinned);
      bench.engine(isMatrix ? "V" : "T");
      // Before the GPU is shared: growing memory waits for all kernels.
      (void)bench.measure(1);
      const int occupied = gpu.multiprocessors() * percent / 100;
      if (occupied > 0) gpu.userOccupy(occupied);
      try {
        addRates(panel, percent, "", workload, bench.measure(session.fewRounds()));
      } catch (...) {
        if (occupied > 0) gpu.userRelease();
        throw;
      }
      if (occupied > 0) gpu.userRelease();
    }
  }
  figure.panels.push_back(std::move(panel));
}

void figure14(Session& session, Figure& figure) {
  ratesByBlocks(session, figure, "T", &triangle);
  addSharedGpu(session, figure);
  figure.notes.push_back(std::string("\"shared\" is what section 5.4 (Figure 15) asks for; ") +
                         kPingPong);
}

}  // namespace

std::vector<Group> openMpiFigures() {
  return {figureGroup("openmpi-fig6", "Open MPI paper, Figure 6: GPU memory bandwidth of packing",
                      &figure6),
          figureGroup("openmpi-fig7", "Open MPI paper, Figure 7: pack and unpack by matrix size",
                      &figure7),
          figureGroup("openmpi-fig8", "Open MPI paper, Figure 8: vectors against cudaMemcpy2D",
                      &figure8),
          figureGroup("openmpi-fig9", "Open MPI paper, Figure 9: PCI-E bandwidth", &figure9),
          figureGroup("openmpi-fig13", "Open MPI paper, Figure 13: sub-matrix by thread blocks",
                      &figure13),
          figureGroup("openmpi-fig14", "Open MPI paper, Figure 14: triangle by thread blocks",
                      &figure14)};
}

}  // namespace datatypes
