// SPDX-License-Identifier: Apache-2.0
//
// Pack kernels on a GPU, without the runtime around them: checks every case's bytes, packs and
// unpacks, against a walk on the CPU, and times the plan's launch beside kernels written by hand
// and cudaMemcpy2D, in turns.
//
//   pack_kernels [--turns N] [--case TEXT] [--sweep TEXT]
//
// --case: only those whose name contains TEXT. --sweep: instead, all builds and launch shapes on
// the cases whose name contains TEXT. See build.sh beside this file.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/pack_kernels/cases.h"
#include "bench/pack_kernels/check.h"
#include "bench/pack_kernels/gpu.h"
#include "bench/pack_kernels/sweep.h"
#include "gmac/datatype/kernels/pack_kernels.cu"
#include "gmac/datatype/plan/device_plan.h"

namespace packbench {
namespace {

using namespace gmac::datatype;  // NOLINT(google-build-using-namespace)

const void* functionOf(KernelId id) {
#define GMAC_PACK_FUNCTION(form, bytes)                                      \
  if (id.shape == Shape::k##form && id.width == (bytes)) {                   \
    return id.direction == Direction::kPack                                  \
               ? reinterpret_cast<const void*>(&gmacPack##form##_##bytes)    \
               : reinterpret_cast<const void*>(&gmacUnpack##form##_##bytes); \
  }
#define GMAC_PACK_FUNCTIONS(form) GMAC_PACK_FLAT_MOVERS(GMAC_PACK_FUNCTION, form)
  GMAC_PACK_FLAT_SHAPES(GMAC_PACK_FUNCTIONS)
  GMAC_PACK_TILE_MOVERS(GMAC_PACK_FUNCTION)
  return nullptr;
}

struct Memory {
  void* source = nullptr;
  void* target = nullptr;
  void* table = nullptr;      // the plan's
  void* handTable = nullptr;  // the hand-written kernel's
  std::size_t sourceBytes = 0;
};

// Device memory for the largest case; the source has its pattern.
Memory makeMemory(const std::vector<Case>& cases) {
  Memory memory;
  std::size_t target = 1;
  for (const Case& item : cases) {
    const Bounds bounds = item.layout.bounds();
    // Copies and kernels written by hand run over the last row's gap.
    const auto extent = static_cast<std::size_t>(bounds.last - bounds.first) + (1 << 20);
    memory.sourceBytes = std::max(memory.sourceBytes, (extent + 511) / 512 * 512);
    target = std::max(target, static_cast<std::size_t>(item.layout.bytes()));
  }
  CHECK_CUDA(cudaMalloc(&memory.source, memory.sourceBytes));
  CHECK_CUDA(cudaMalloc(&memory.target, target));
  fillPattern(memory.source, memory.sourceBytes);
  return memory;
}

void* upload(const void* data, std::size_t bytes) {
  void* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)));
  CHECK_CUDA(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
  return memory;
}

void runPlan(const DevicePlan& plan, const Memory& memory, Direction direction,
             cudaStream_t stream) {
  DeviceJob job;
  job.direction = direction;
  job.strided = reinterpret_cast<std::uintptr_t>(memory.source) -
                static_cast<std::uint64_t>(plan.layout().bounds().first);
  job.packed = reinterpret_cast<std::uintptr_t>(memory.target);
  job.bytes = plan.layout().bytes();
  job.table = reinterpret_cast<std::uintptr_t>(memory.table);
  const gmac::Status status = plan.launches(job, [&](const DeviceLaunch& launch) {
    void* args[] = {const_cast<std::byte*>(launch.params)};
    CHECK_CUDA(cudaLaunchKernel(functionOf(launch.kernel), dim3(launch.blocks),
                                dim3(launch.threads), args, 0, stream));
    return gmac::Status();
  });
  if (!status.ok()) std::abort();
}

// Whether the target holds the packed bytes; they are gone afterwards.
bool targetIs(const std::vector<std::uint8_t>& want, void* target) {
  std::vector<std::uint8_t> got(want.size());
  CHECK_CUDA(cudaMemcpy(got.data(), target, got.size(), cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemset(target, 0xee, got.size()));
  CHECK_CUDA(cudaDeviceSynchronize());
  return got == want;
}

// Unpacks into memory of zeros and looks at every byte of it.
bool unpackIsRight(const DevicePlan& plan, const Memory& memory,
                   const std::vector<std::uint8_t>& packed, cudaStream_t stream) {
  const Bounds bounds = plan.layout().bounds();
  const auto extent = static_cast<std::size_t>(bounds.last - bounds.first);
  CHECK_CUDA(cudaMemcpy(memory.target, packed.data(), packed.size(), cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemset(memory.source, 0, memory.sourceBytes));
  CHECK_CUDA(cudaDeviceSynchronize());  // cudaMemset returns early, and the stream does not wait
  runPlan(plan, memory, Direction::kUnpack, stream);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  std::vector<std::uint8_t> got(extent);
  CHECK_CUDA(cudaMemcpy(got.data(), memory.source, extent, cudaMemcpyDeviceToHost));
  fillPattern(memory.source, memory.sourceBytes);
  bool right = true;
  plan.layout().forEach(
      0, plan.layout().bytes(), [&](std::int64_t offset, std::int64_t at, std::int64_t bytes) {
        auto* const there = got.data() + (offset - bounds.first);
        right =
            right && std::memcmp(there, packed.data() + at, static_cast<std::size_t>(bytes)) == 0;
        std::memset(there, 0, static_cast<std::size_t>(bytes));
      });
  return right && std::all_of(got.begin(), got.end(), [](std::uint8_t byte) { return byte == 0; });
}

struct Options {
  int turns = 60;
  std::string filter;
  bool sweep = false;
};

int measure(const Options& options, const std::vector<Case>& cases, Memory memory,
            cudaStream_t stream, double rate) {
  int wrong = 0;
  std::printf("device copy %.0f GB/s read + write\n", rate / 1e9);
  std::printf("%-40s %-14s | wall us: %8s %8s %8s %8s %8s | of hand | gpu us: %8s %8s | of bound\n",
              "case", "kernel", "pack", "unpack", "hand", "hand 2", "copy2d", "pack", "hand");
  for (const Case& item : cases) {
    const DevicePlan plan(item.layout);
    const auto& shape = plan.table();
    std::vector<std::byte> table(shape.bytes);
    if (shape.bytes != 0) {
      plan.writeUnits(0, shape.units, table.data());
      plan.writePieces(0, shape.pieces, table.data() + shape.piecesAt);
    }
    memory.table = upload(table.data(), table.size());
    memory.handTable = upload(item.handTable.data(), item.handTable.size() * 4);
    const std::vector<std::uint8_t> want = expectedPacked(item.layout);
    const double bound =
        (static_cast<double>(burstsOf(item.layout)) * 64 + static_cast<double>(want.size())) /
        rate * 1e6;

    std::vector<Way> ways;
    ways.push_back({"pack", [&](cudaStream_t s) { runPlan(plan, memory, Direction::kPack, s); }});
    for (const Case::Hand& hand : item.hands) {
      ways.push_back({"hand", [&](cudaStream_t s) {
                        hand(memory.source, memory.target, memory.handTable, s);
                      }});
    }
    const std::size_t copyAt = ways.size();
    if (item.copy2d.width != 0) {
      ways.push_back({"copy2d", [&](cudaStream_t s) {
                        const Copy2d& c = item.copy2d;
                        CHECK_CUDA(cudaMemcpy2DAsync(memory.target, c.width, memory.source, c.pitch,
                                                     c.width, c.rows, cudaMemcpyDeviceToDevice, s));
                      }});
    }
    for (const Way& way : ways) {
      CHECK_CUDA(cudaMemset(memory.target, 0xee, want.size()));
      CHECK_CUDA(cudaDeviceSynchronize());
      way.run(stream);
      CHECK_CUDA(cudaStreamSynchronize(stream));
      if (!targetIs(want, memory.target)) {
        std::printf("WRONG: %s of %s\n", way.name.c_str(), item.name.c_str());
        ++wrong;
      }
    }
    if (!unpackIsRight(plan, memory, want, stream)) {
      std::printf("WRONG: unpack of %s\n", item.name.c_str());
      ++wrong;
    }
    timeInTurns(ways, stream, options.turns);
    // Apart from the packs: what it leaves in the caches is dirty. What is unpacked is what lies
    // there already: the source keeps its pattern.
    CHECK_CUDA(cudaMemcpy(memory.target, want.data(), want.size(), cudaMemcpyHostToDevice));
    std::vector<Way> unpack{
        {"unpack", [&](cudaStream_t s) { runPlan(plan, memory, Direction::kUnpack, s); }}};
    timeInTurns(unpack, stream, options.turns);

    DeviceJob job;
    job.bytes = item.layout.bytes();
    DeviceLaunch launch;
    plan.makeLaunch(job, 0, launch);
    const std::string kernel =
        std::string(shapeName(launch.kernel.shape)) + " " + std::to_string(launch.kernel.width);
    const double hand2 = item.hands.size() > 1 ? ways[2].wall : 0;
    std::printf(
        "%-40s %-14s |          %8.1f %8.1f %8.1f %8.1f %8.1f | %7.2f |         %8.1f %8.1f | "
        "%5.1f "
        "%%\n",
        item.name.c_str(), kernel.c_str(), ways[0].wall, unpack[0].wall, ways[1].wall, hand2,
        copyAt < ways.size() ? ways[copyAt].wall : 0.0, ways[0].wall / ways[1].wall, ways[0].gpu,
        ways[1].gpu, 100 * bound / ways[0].gpu);
    std::fflush(stdout);
    CHECK_CUDA(cudaFree(memory.table));
    CHECK_CUDA(cudaFree(memory.handTable));
  }
  if (wrong != 0) std::printf("%d WRONG\n", wrong);
  return wrong == 0 ? 0 : 1;
}

int run(const Options& options) {
  const std::vector<Case> cases = makeCases(options.filter);
  if (cases.empty()) {
    std::fprintf(stderr, "no case's name contains \"%s\"\n", options.filter.c_str());
    return 1;
  }
  const Memory memory = makeMemory(cases);
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const double rate = deviceCopyRate(stream);
  if (!options.sweep) return measure(options, cases, memory, stream, rate);
  std::printf("device copy %.0f GB/s read + write\n", rate / 1e9);
  for (const Case& item : cases) {
    const std::vector<std::uint8_t> want = expectedPacked(item.layout);
    const double bound =
        (static_cast<double>(burstsOf(item.layout)) * 64 + static_cast<double>(want.size())) /
        rate * 1e6;
    void* const handTable = upload(item.handTable.data(), item.handTable.size() * 4);
    sweep({item, memory.source, memory.sourceBytes, memory.target, handTable, bound, options.turns,
           stream, [&] { return targetIs(want, memory.target); }});
    CHECK_CUDA(cudaFree(handTable));
  }
  return 0;
}

}  // namespace
}  // namespace packbench

int main(int argc, char** argv) {
  packbench::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--turns") options.turns = std::atoi(argv[i + 1]);
    if (name == "--case" || name == "--sweep") options.filter = argv[i + 1];
    if (name == "--sweep") options.sweep = true;
  }
  return packbench::run(options);
}
