// SPDX-License-Identifier: Apache-2.0
//
// The CPU engine against Open MPI's MPI_Pack and MPI_Unpack: the same layouts, the same memory, in
// turns. Prints medians and ratios; exits with 1 when an output differs or (--gate) when the engine
// is the slower one.
#include <mpi.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/interleaved.h"
#include "bench/measure.h"
#include "gmac/api/adsm_mpi.h"
#include "gmac/datatype/cpu/cpu_engine.h"
#include "gmac/datatype/cpu/streaming_copy.h"
#include "gmac/datatype/engine/plain_copy.h"
#include "gmac/datatype/types/registry.h"

namespace gmac::bench {
namespace {

using std::int64_t;

struct Work {
  std::string name;
  std::function<MPI_Datatype()> make;
  int count = 1;
};

MPI_Datatype vectorOf(int count, int length, int stride, MPI_Datatype old) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_vector(count, length, stride, old, &type);
  return type;
}

MPI_Datatype hvectorOf(int count, MPI_Aint stride, MPI_Datatype old) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_hvector(count, 1, stride, old, &type);
  MPI_Type_free(&old);
  return type;
}

MPI_Datatype triangle(int size) {
  std::vector<int> lengths(static_cast<std::size_t>(size));
  std::vector<int> places(lengths.size());
  for (int i = 0; i < size; ++i) {
    lengths[static_cast<std::size_t>(i)] = i + 1;
    places[static_cast<std::size_t>(i)] = i * size;
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_indexed(size, lengths.data(), places.data(), MPI_DOUBLE, &type);
  return type;
}

// Blocks of `length` doubles at random distances.
MPI_Datatype scattered(int count, int length) {
  std::mt19937 random(1);
  std::vector<int> places(static_cast<std::size_t>(count));
  int next = 0;
  for (int& place : places) {
    place = next;
    next += length + 1 + static_cast<int>(random() % (2 * static_cast<unsigned>(length)));
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_indexed_block(count, length, places.data(), MPI_DOUBLE, &type);
  return type;
}

// Blocks of 8 and 128 bytes in turns.
MPI_Datatype alternating(int pairs) {
  std::vector<int> lengths;
  std::vector<int> places;
  int next = 0;
  for (int i = 0; i < pairs; ++i) {
    for (const int length : {1, 16}) {
      lengths.push_back(length);
      places.push_back(next);
      next += length + 1 + i % 3;
    }
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_indexed(2 * pairs, lengths.data(), places.data(), MPI_DOUBLE, &type);
  return type;
}

struct Particle {
  double weight;
  int cell[2];
  char kind;
};

MPI_Datatype particle() {
  const int lengths[] = {1, 2, 1};
  const MPI_Aint places[] = {offsetof(Particle, weight), offsetof(Particle, cell),
                             offsetof(Particle, kind)};
  const MPI_Datatype olds[] = {MPI_DOUBLE, MPI_INT, MPI_CHAR};
  MPI_Datatype members = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(3, lengths, places, olds, &members);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(members, 0, sizeof(Particle), &type);
  MPI_Type_free(&members);
  return type;
}

MPI_Datatype face(int side, int normal) {
  const int sizes[] = {side, side, side};
  int subsizes[] = {side, side, side};
  const int starts[] = {0, 0, 0};
  subsizes[normal] = 1;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  return type;
}

MPI_Datatype submatrix(int size) {
  const int sizes[] = {size, size};
  const int subsizes[] = {size / 2, size / 2};
  const int starts[] = {size / 4, size / 4};
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
  return type;
}

MPI_Datatype transposed(int size) {
  return hvectorOf(size, sizeof(double), vectorOf(size, 1, size, MPI_DOUBLE));
}

std::vector<Work> allWork() {
  return {
      {"vector, 8 B every 512 B, 64 KiB", [] { return vectorOf(8192, 1, 64, MPI_DOUBLE); }},
      {"vector, 8 B every 512 B, 1 MiB", [] { return vectorOf(131072, 1, 64, MPI_DOUBLE); }},
      {"vector, 8 B every 16 B, 8 MiB", [] { return vectorOf(1 << 20, 1, 2, MPI_DOUBLE); }},
      {"vector, 128 B every 512 B, 8 MiB", [] { return vectorOf(65536, 16, 64, MPI_DOUBLE); }},
      {"vector, 4 KiB every 8 KiB, 16 MiB", [] { return vectorOf(4096, 512, 1024, MPI_DOUBLE); }},
      {"submatrix, half of 2048 x 2048", [] { return submatrix(2048); }},
      {"lower triangle of 2048 x 2048", [] { return triangle(2048); }},
      {"indexed, 8 B, 1 MiB", [] { return scattered(131072, 1); }},
      {"indexed, 128 B, 8 MiB", [] { return scattered(65536, 16); }},
      {"indexed, 8 B and 128 B, 65536 pairs", [] { return alternating(65536); }},
      {"structs {double, int[2], char}, 262144", [] { return particle(); }, 262144},
      {"vector of vectors, 8 B, 8 MiB",
       [] { return hvectorOf(1024, 32768, vectorOf(1024, 1, 2, MPI_DOUBLE)); }},
      {"transpose of 1024 x 1024", [] { return transposed(1024); }},
      {"face XY of 256^3", [] { return face(256, 0); }},
      {"face XZ of 256^3", [] { return face(256, 1); }},
      {"face YZ of 256^3", [] { return face(256, 2); }},
  };
}

struct Row {
  double bytes;
  double mpiPack;    // seconds
  double packRatio;  // of the engine to MPI
  double mpiUnpack;
  double unpackRatio;
};

// Alone, the thread's own time: other programs' turns on the CPU are not in it.
double now(bool alone) {
  timespec time{};
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

bool measure(const Work& work, std::size_t threads, std::size_t rounds, Row* row) {
  MPI_Datatype mpi = work.make();
  MPI_Type_commit(&mpi);
  adsmType_t type = nullptr;
  check(adsmTypeFromMpi(mpi, &type), "adsmTypeFromMpi");
  check(adsmTypeCommit(type), "adsmTypeCommit");
  const auto form = *datatype::committed(type);
  auto layout = form->layout.repeated(work.count, form->extent);
  if (!layout.ok()) std::abort();
  const auto bytes = static_cast<std::size_t>(layout->bytes());
  const auto room = static_cast<std::size_t>(layout->bounds().last);
  // Both work on the same memory: where it lies must not decide.
  std::vector<std::byte> plain(room);
  std::vector<std::byte> packed(bytes);
  for (std::size_t i = 0; i < room; ++i) plain[i] = static_cast<std::byte>(i * 31 + (i >> 9));
  // As the engine copies.
  const datatype::CpuOptions options{
      .threads = threads, .copy = datatype::copyOf<&datatype::plainCopy>(layout->bytes())};
  const auto pack = [&](std::size_t who) {
    int position = 0;
    if (who == 0) {
      MPI_Pack(plain.data(), work.count, mpi, packed.data(), static_cast<int>(bytes), &position,
               MPI_COMM_SELF);
    } else {
      datatype::pack(*layout, packed.data(), plain.data(), 0, layout->bytes(), options);
    }
  };
  const auto unpack = [&](std::size_t who) {
    int position = 0;
    if (who == 0) {
      MPI_Unpack(packed.data(), static_cast<int>(bytes), &position, plain.data(), work.count, mpi,
                 MPI_COMM_SELF);
    } else {
      datatype::unpack(*layout, plain.data(), packed.data(), 0, layout->bytes(), options);
    }
  };
  // A turn is long against the clock's steps.
  const int repetitions = std::max(1, static_cast<int>((std::size_t{4} << 20) / bytes));
  const auto timed = [&](const auto& copy) {
    return Interleaved(2, rounds, [&](std::size_t who) {
      const double start = now(threads == 1);
      for (int i = 0; i < repetitions; ++i) copy(who);
      return (now(threads == 1) - start) / repetitions;
    });
  };
  const auto resultOf = [](const auto& copy, std::size_t who, std::vector<std::byte>& target) {
    std::fill(target.begin(), target.end(), std::byte{0x5a});
    copy(who);
    return target;
  };
  const auto original = plain;
  bool same = resultOf(pack, 0, packed) == resultOf(pack, 1, packed);
  same = same && resultOf(unpack, 0, plain) == resultOf(unpack, 1, plain);
  plain = original;
  const Interleaved packs = timed(pack);
  const Interleaved unpacks = timed(unpack);
  *row = {static_cast<double>(bytes), packs.seconds(0), packs.ratio(1, 0), unpacks.seconds(0),
          unpacks.ratio(1, 0)};
  check(adsmTypeFree(type), "adsmTypeFree");
  MPI_Type_free(&mpi);
  return same;
}

int run(bool gate, std::size_t threads, std::size_t rounds, const std::string& only) {
  std::printf("CPU engine (%zu thread%s) to Open MPI; medians of turns\n", threads,
              threads == 1 ? "" : "s");
  std::printf("%-42s %10s %12s %8s %12s %8s\n", "work", "bytes", "MPI_Pack us", "ratio",
              "MPI_Unpack us", "ratio");
  int status = 0;
  for (const Work& work : allWork()) {
    if (work.name.find(only) == std::string::npos) continue;
    Row row{};
    if (!measure(work, threads, rounds, &row)) {
      std::fprintf(stderr, "%s: the bytes differ\n", work.name.c_str());
      status = 1;
    }
    std::printf("%-42s %10.0f %12.1f %8.2f %12.1f %8.2f\n", work.name.c_str(), row.bytes,
                row.mpiPack * 1e6, row.packRatio, row.mpiUnpack * 1e6, row.unpackRatio);
    std::fflush(stdout);
    if (gate && std::max(row.packRatio, row.unpackRatio) > 1.05) {
      std::fprintf(stderr, "missed: %s is slower than Open MPI\n", work.name.c_str());
      status = 1;
    }
  }
  return status;
}

}  // namespace
}  // namespace gmac::bench

int main(int argc, char** argv) {
  bool gate = false;
  std::size_t threads = 1;
  std::size_t rounds = 21;
  std::string only;
  CLI::App app("Packs and unpacks on the CPU, beside Open MPI's.");
  app.add_flag("--gate", gate, "exit status 1 when Open MPI is faster by more than 5 %");
  app.add_option("--threads", threads, "of the CPU engine");
  app.add_option("--rounds", rounds, "turns of each");
  app.add_option("--only", only, "the rows whose name contains this");
  CLI11_PARSE(app, argc, argv);
  // One process without a launcher.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 1);
  setenv("OMPI_MCA_pml", "ob1", 1);
  setenv("OMPI_MCA_btl", "self", 1);
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) {
    std::fprintf(stderr, "datatype_cpu: MPI_Init failed\n");
    return 1;
  }
  const int status = gmac::bench::run(gate, threads, rounds, only);
  MPI_Finalize();
  return status;
}
