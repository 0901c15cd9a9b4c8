// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "bench/median.h"
#include "datatypes/failure.h"
#include "datatypes/figures.h"
#include "datatypes/pack_bench.h"

namespace datatypes {
namespace {

// More plain copies than these are left out of a figure: each takes microseconds.
constexpr std::int64_t kMostCopies = 8192;

constexpr const char* kPack = "Pack";
constexpr const char* kHandCoded = "Hand-coded";
constexpr const char* kCuda = "CUDA";

// One of the paper's types (its section 4.1), for a packed size.
struct PaperType {
  const char* name;
  const char* title;
  Workload (*make)(std::int64_t bytes);
};

// The sides that give packed sizes near the powers of two.
Workload subarrayOf(std::int64_t bytes) {
  std::int64_t side = 2;
  while (side < 32 && 16 * side * side * side * side * 8 <= bytes) side *= 2;
  return subarray4d(side);
}

const std::vector<PaperType>& paperTypes() {
  static const std::vector<PaperType> types = {
      {"contiguous", "Contiguous", &contiguous},
      {"vector-8B", "Vector (8B blocks)", [](std::int64_t bytes) { return vector(8, 512, bytes); }},
      {"vector-128B", "Vector (128B blocks)",
       [](std::int64_t bytes) { return vector(std::min<std::int64_t>(128, bytes), 512, bytes); }},
      {"subarray", "4D subarray", &subarrayOf},
      {"indexed-8B", "Indexed (8B blocks)", [](std::int64_t bytes) { return indexed(8, bytes); }},
      {"indexed-128B", "Indexed (128B blocks)",
       [](std::int64_t bytes) { return indexed(128, std::max<std::int64_t>(128, bytes)); }},
      {"struct", "Struct (C-style)",
       [](std::int64_t bytes) { return structs(std::max<std::int64_t>(1, bytes / 17)); }}};
  return types;
}

std::vector<std::int64_t> powersOfTwo(int first, int last, int step) {
  std::vector<std::int64_t> sizes;
  for (int power = first; power <= last; power += step) sizes.push_back(std::int64_t{1} << power);
  return sizes;
}

// Nothing is measured yet.
Panel timesBySize(const PaperType& type, std::vector<std::string> series) {
  return {type.name, type.title, "packed bytes", "packing time, us", true, true, std::move(series),
          {},        {}};
}

void figure4(Session& session, Figure& figure) {
  for (const PaperType& type : paperTypes()) {
    Panel panel = timesBySize(type, {kCuda, kPack, kHandCoded});
    for (const std::int64_t bytes : powersOfTwo(6, 22, 2)) {
      const Workload workload = type.make(bytes);
      if (panel.points.count(static_cast<double>(workload.bytes)) > 0) continue;
      PackBench bench(session, workload, Place::kPinned);
      bench.engine(kPack);
      bench.hand(kHandCoded);
      if (workload.copies.empty()) {
        bench.piecewise(kCuda, kMostCopies);
      } else {
        bench.copies(kCuda);
      }
      const Times times = bench.measure(session.rounds());
      for (const auto& [name, us] : times.all()) {
        panel.set(static_cast<double>(workload.bytes), name, us);
      }
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.notes = {
      "into pinned CPU memory; CUDA is one cudaMemcpy, cudaMemcpy2D, one cudaMemcpy3D for each "
      "index "
      "of the fourth dimension, and one cudaMemcpy a block for indexed and struct",
      fmt::format("more than {} copies of one block are left out", kMostCopies),
      "the paper's indexed type has regular displacements, which would be a vector after the "
      "commit; "
      "here each block lies somewhere in its 512 bytes"};
}

void figure5(Session& session, Figure& figure) {
  for (const std::int64_t bytes : {kKiB, 16 * kKiB, 128 * kKiB, 4 * kMiB}) {
    Panel panel{fmt::format("vector-{}", bytes),
                fmt::format("Vector pack: {} packed size", sizeText(bytes)),
                "block length, bytes",
                "time, us",
                true,
                false,
                {kPack, kCuda},
                {},
                {}};
    for (const std::int64_t block : powersOfTwo(3, 8, 1)) {
      PackBench bench(session, vector(block, 512, bytes), Place::kPinned);
      bench.engine(kPack);
      bench.engine("kernel alone", {.method = adsmMethodKernel});
      bench.copies(kCuda);
      for (const auto& [name, us] : bench.measure(session.rounds()).all()) {
        panel.set(static_cast<double>(block), name, us);
      }
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.notes = {"Pack is the engine's choice, \"kernel alone\" what the paper compares",
                  "stride 512 bytes, into pinned CPU memory"};
}

void figure6(Session& session, Figure& figure) {
  constexpr const char* kWhole = "Traverse, R/W, Transmit";
  constexpr const char* kInside = "Traverse, R/W";
  constexpr const char* kLaunch = "Launch";
  for (const PaperType& type : paperTypes()) {
    Panel panel = timesBySize(type, {kWhole, kInside, kLaunch});
    for (const std::int64_t bytes : powersOfTwo(6, 22, 2)) {
      const Workload workload = type.make(bytes);
      const auto x = static_cast<double>(workload.bytes);
      if (panel.points.count(x) > 0) continue;
      PackBench whole(session, workload, Place::kPinned);
      whole.engine(kWhole);
      panel.set(x, kWhole, whole.measure(session.rounds()).microseconds(kWhole));
      PackBench inside(session, workload, Place::kDevice);
      inside.engine(kInside);
      inside.empty(kLaunch);
      const Times times = inside.measure(session.rounds());
      panel.set(x, kInside, times.microseconds(kInside));
      panel.set(x, kLaunch, times.microseconds(kLaunch));
    }
    figure.panels.push_back(std::move(panel));
  }
  figure.notes = {
      "the paper's third component, traversing the type without moving anything, is no part that "
      "these kernels have: they compute where to read while earlier reads are under way. An empty "
      "kernel's launch and synchronisation stands in its place"};
}

void table2(Session& session, Figure& figure) {
  Panel panel{"faces",
              "Transfer of faces of a cube of doubles to the CPU",
              "face",
              "MB/s",
              false,
              false,
              {kPack, kCuda},
              {},
              {}};
  const char* const names[] = {"X-Y", "X-Z", "Y-Z"};
  for (const std::int64_t n : {64, 128, 256, 512}) {
    for (const Face which : {Face::kXy, Face::kXz, Face::kYz}) {
      PackBench bench(session, face(which, n), Place::kPinned);
      bench.engine(kPack);
      bench.copies(kCuda);
      const auto line = static_cast<double>(panel.lines.size());
      panel.lines.push_back(fmt::format("{}^3 {}", n, names[static_cast<int>(which)]));
      for (const auto& [name, us] : bench.measure(session.rounds()).all()) {
        panel.set(line, name, static_cast<double>(bench.workload().bytes) / us);
      }
    }
  }
  figure.panels.push_back(std::move(panel));
}

// ---- Table 3: the user's work and packing at the same time.

// Something that is started, and goes on by itself until it is awaited.
struct Operation {
  std::function<void()> start;
  std::function<void()> finish;
};

struct Both {
  double user = 0;
  double type = 0;
  double total = 0;
};

// Medians of starting one operation, then the other, in milliseconds since before the first. Which
// stream an operation runs on is whose it is.
Both together(Session& session, const Operation& type, const Operation& user, bool userFirst) {
  Gpu& gpu = session.gpu();
  std::vector<double> users;
  std::vector<double> types;
  std::vector<double> totals;
  for (std::size_t round = 0; round <= session.rounds(); ++round) {
    gpu.synchronize();
    gpu.userSynchronize();
    gpu.markStart();
    for (const bool isUser : {userFirst, !userFirst}) {
      (isUser ? user : type).start();
      gpu.markEnd(isUser);
    }
    type.finish();
    user.finish();
    const double userMs = 1e3 * gpu.secondsToEnd(true);
    const double typeMs = 1e3 * gpu.secondsToEnd(false);
    if (round == 0) continue;
    users.push_back(userMs);
    types.push_back(typeMs);
    totals.push_back(std::max(userMs, typeMs));
  }
  return {gmac::bench::median(users), gmac::bench::median(types), gmac::bench::median(totals)};
}

void table3(Session& session, Figure& figure) {
  Gpu& gpu = session.gpu();
  // 262,144 blocks of 8 bytes every 64: 16 MB in all.
  const Workload workload = vector(8, 64, 262144 * 8);
  PackBench bench(session, workload, Place::kPinned);
  bench.engine(kPack, {.method = adsmMethodKernel});
  bench.copies(kCuda);
  const Times alone = bench.measure(session.rounds());

  const std::byte* const source = gpu.source(workload.extent);
  std::byte* const target = gpu.target(Place::kPinned, workload.bytes);
  const Type& type = bench.type();
  adsmPackEvent_t event = nullptr;
  const Operation nothing{[] {}, [] {}};
  const Operation packing{[&] {
                            event = startPack(target, source, type,
                                              {.method = adsmMethodKernel, .stream = gpu.stream()});
                          },
                          [&] { finishPack(event); }};
  const Operation copying{[&] {
                            for (const StridedCopy& shape : workload.copies) {
                              (void)gpu.copyStrided(shape, target, source, false);
                            }
                          },
                          [&] { gpu.synchronize(); }};
  const struct {
    const char* name;
    const char* title;
    void (Gpu::*start)(std::int64_t);
  } users[] = {{"sm", "SM: a vector addition of the user's", &Gpu::userAdd},
               {"pcie-in", "PCIe (CPU to GPU): a copy of the user's", &Gpu::userCopyIn},
               {"pcie-out", "PCIe (GPU to CPU): a copy of the user's", &Gpu::userCopyOut}};
  for (const auto& user : users) {
    // As in the paper, the user's work takes about as long as the packing.
    std::int64_t amount = kMiB;
    const auto sized = [&] {
      return Operation{[&] { (gpu.*user.start)(amount); }, [&] { gpu.userSynchronize(); }};
    };
    while (amount < 256 * kMiB &&
           1e3 * together(session, nothing, sized(), true).user < alone.microseconds(kPack)) {
      amount *= 2;
    }
    const Operation work = sized();
    Panel panel{user.name, user.title, "order", "ms", false, false, {"User", "Type", "Total"},
                {},        {}};
    const auto add = [&](const std::string& name, const Both& both) {
      const auto line = static_cast<double>(panel.lines.size());
      panel.lines.push_back(name);
      panel.set(line, "User", both.user);
      panel.set(line, "Type", both.type);
      panel.set(line, "Total", both.total);
    };
    const double userAlone = together(session, nothing, work, true).user;
    for (const bool packs : {true, false}) {
      const double typeAlone = together(session, packs ? packing : copying, nothing, false).type;
      add(fmt::format("Serialized ({})", packs ? "Pack" : "CUDA"),
          {userAlone, typeAlone, userAlone + typeAlone});
    }
    add("User->Pack", together(session, packing, work, true));
    add("User->CUDA", together(session, copying, work, true));
    add("Pack->User", together(session, packing, work, false));
    add("CUDA->User", together(session, copying, work, false));
    figure.panels.push_back(std::move(panel));
  }
  figure.notes = {
      "times until each operation's end, by events on the two streams; packing by a kernel that "
      "writes pinned memory, as in the paper",
      "the user's work is scaled to take about as long as the packing does alone"};
}

}  // namespace

Group figureGroup(const char* name, const char* title,
                  void (*draw)(Session& session, Figure& figure)) {
  return {name, title, true, [=](Session& session) {
            announce(fmt::format("{}: {}", name, title));
            Figure figure;
            figure.name = name;
            figure.title = title;
            try {
              draw(session, figure);
            } catch (const Failure& failure) {
              figure.error = failure.what();
            }
            session.results().figures.push_back(std::move(figure));
          }};
}

std::vector<Group> mpichFigures() {
  return {
      figureGroup("mpich-fig4", "MPICH paper, Figure 4: packing time by type", &figure4),
      figureGroup("mpich-fig5", "MPICH paper, Figure 5: vector packing by block length", &figure5),
      figureGroup("mpich-fig6", "MPICH paper, Figure 6: packing time by component", &figure6),
      figureGroup("mpich-table2", "MPICH paper, Table 2: faces of a cube", &table2),
      figureGroup("mpich-table3", "MPICH paper, Table 3: contention with the user's work",
                  &table3)};
}

}  // namespace datatypes
