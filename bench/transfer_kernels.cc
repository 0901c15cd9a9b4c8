// SPDX-License-Identifier: Apache-2.0
//
// adsmTransfer between two layouts on the accelerator, beside a pack into its memory and an unpack
// from there: the same objects, in turns. Prints GB/s of payload; exits with 1 when a byte is
// wrong.
#include <time.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "bench/interleaved.h"
#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"

namespace gmac::bench {
namespace {

using std::int64_t;

void check(adsmError_t error, const char* what) {
  if (error != adsmSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, adsmLastErrorString());
    std::exit(1);
  }
}
#define CHECK_CALL(call) check(call, #call)

double now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::uint8_t* allocate(int64_t bytes) {
  auto* const memory = static_cast<std::uint8_t*>(adsmAlloc(static_cast<std::size_t>(bytes)));
  if (memory == nullptr) {
    check(adsmErrorAcceleratorMemory, "adsmAlloc");
  }
  return memory;
}

adsmType_t rows(int64_t count, int64_t length, int64_t stride) {
  adsmType_t type = nullptr;
  CHECK_CALL(adsmTypeVector(count, length, stride, ADSM_TYPE_1, &type));
  CHECK_CALL(adsmTypeCommit(type));
  return type;
}

// Pieces at no regular distance, within count x stride bytes.
adsmType_t listed(int64_t count, int64_t length, int64_t stride) {
  std::mt19937_64 random(1);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) {
    const auto free = static_cast<std::uint64_t>((stride - length) / 8);
    places.push_back(i * stride + static_cast<int64_t>(random() % (free + 1)) * 8);
  }
  adsmType_t type = nullptr;
  CHECK_CALL(adsmTypeHindexedBlock(count, length, places.data(), ADSM_TYPE_1, &type));
  CHECK_CALL(adsmTypeCommit(type));
  return type;
}

struct Row {
  std::string name;
  adsmType_t target;
  adsmType_t source;
};

struct Memory {
  std::uint8_t* target;
  std::uint8_t* source;
  std::uint8_t* packed;
};

void measure(const Row& row, const Memory& memory, int64_t bytes, int repeats, std::size_t rounds) {
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.method = adsmMethodKernel;
  const auto onePass = [&] {
    CHECK_CALL(
        adsmTransferWith(memory.target, 1, row.target, memory.source, 1, row.source, &options));
  };
  const auto twoPasses = [&] {
    CHECK_CALL(adsmPackWith(memory.packed, memory.source, 1, row.source, &options));
    CHECK_CALL(adsmUnpackWith(memory.target, memory.packed, 1, row.target, &options));
  };
  const Interleaved turns(2, rounds, [&](std::size_t way) {
    CHECK_CALL(adsmSync());
    const double begin = now();
    for (int i = 0; i < repeats; ++i) {
      way == 0 ? onePass() : twoPasses();
    }
    CHECK_CALL(adsmSync());
    return (now() - begin) / repeats;
  });
  const auto rate = [&](std::size_t way) {
    return static_cast<double>(bytes) / turns.seconds(way) / 1e9;
  };
  std::printf("%-44s %10.2f %10.2f %8.2f\n", row.name.c_str(), rate(0), rate(1), turns.ratio(1, 0));
  std::fflush(stdout);
}

// Whether the target has what the source had.
bool right(const Row& row, const Memory& memory, int64_t bytes) {
  CHECK_CALL(adsmTransfer(memory.target, 1, row.target, memory.source, 1, row.source));
  std::vector<std::uint8_t> there(static_cast<std::size_t>(bytes));
  std::vector<std::uint8_t> here(there.size());
  CHECK_CALL(adsmPack(there.data(), memory.target, 1, row.target));
  CHECK_CALL(adsmPack(here.data(), memory.source, 1, row.source));
  return there == here;
}

int run(int argc, char** argv) {
  CLI::App app("adsmTransfer beside adsmPack and adsmUnpack, on the accelerator");
  int64_t mebibytes = 64;
  int repeats = 20;
  std::size_t rounds = 11;
  app.add_option("--mib", mebibytes, "payload, MiB")->check(CLI::Range(1, 4096));
  app.add_option("--repeats", repeats, "calls between two waits")->check(CLI::Range(1, 10000));
  app.add_option("--rounds", rounds, "rounds, of which the median counts")
      ->check(CLI::Range(1, 999));
  CLI11_PARSE(app, argc, argv);
  const int64_t bytes = mebibytes << 20;
  // Rows lie twice their length apart in the source, and with a gap of 16 bytes in the target.
  const Memory memory{allocate(4 * bytes), allocate(3 * bytes), allocate(bytes)};
  for (int64_t i = 0; i < 3 * bytes; ++i) {
    memory.source[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  }
  std::printf("%-44s %10s %10s %8s\n", "GB/s of payload", "one pass", "pack+unpack", "ratio");
  bool good = true;
  const auto take = [&](const Row& row) {
    measure(row, memory, bytes, repeats, rounds);
    if (!right(row, memory, bytes)) {
      std::fprintf(stderr, "%s: wrong bytes\n", row.name.c_str());
      good = false;
    }
    CHECK_CALL(adsmTypeFree(row.target));
    CHECK_CALL(adsmTypeFree(row.source));
  };
  take({"contiguous to contiguous", rows(1, bytes, bytes), rows(1, bytes, bytes)});
  for (const int64_t length : {8, 16, 32, 64, 128, 256, 512, 1024}) {
    const std::string name = std::to_string(length) + " B";
    const int64_t count = bytes / length;
    take({"rows of " + name + " to rows with other gaps", rows(count, length, length + 16),
          rows(count, length, 2 * length)});
    take({"rows of " + name + " to rows of twice that",
          rows(count / 2, 2 * length, 2 * length + 16), rows(count, length, 2 * length)});
    take({"list of " + name + " to rows", rows(count, length, length + 16),
          listed(count, length, 3 * length)});
  }
  CHECK_CALL(adsmFree(memory.target));
  CHECK_CALL(adsmFree(memory.source));
  CHECK_CALL(adsmFree(memory.packed));
  return good ? 0 : 1;
}

}  // namespace
}  // namespace gmac::bench

int main(int argc, char** argv) { return gmac::bench::run(argc, argv); }
