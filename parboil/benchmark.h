// SPDX-License-Identifier: Apache-2.0
//
// A Parboil benchmark, as the runner sees it: four steps over files in one folder.
//
//   generate   writes the input file, once: later calls find it and return
//   run        the port to gmac: input file -> shared memory -> kernels -> output file
//   runExplicit  the same program with explicit copies, as a careful CUDA programmer writes it
//   check      compares the output file with a CPU reference that is computed once and kept
//
// A step that fails throws Failure. The runner calls each step of a run in a process with one
// thread and a fresh runtime; steps of one folder never run at the same time.
#ifndef GMAC_PARBOIL_BENCHMARK_H_
#define GMAC_PARBOIL_BENCHMARK_H_

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>

namespace parboil {

// Problem sizes: a quick look, the published size, and one that keeps a current accelerator busy
// for half a second. The numbers are stored in file headers.
enum class Size : std::uint32_t { kSmall = 0, kMedium = 1, kLarge = 2 };

// "small", "medium", "large".
const char* sizeName(Size size) noexcept;

// Where and how large. A plain value.
struct Context {
  Size size;
  std::filesystem::path dir;  // inputs, outputs, references; exists
};

// A file of a benchmark: <dir>/<benchmark>-<size>.<kind>, kind being "in", "out" or "ref".
std::filesystem::path dataPath(const Context& context, const char* benchmark, const char* kind);

// The verdict on an output file. `detail` is one line: the worst error against the stated
// tolerance.
struct Check {
  bool ok;
  std::string detail;
};

// Something a person can act on went wrong: a file, an argument, a call of the runtime.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A benchmark, described by functions without state. `name` is also the prefix of its files, and
// the output file is dataPath(context, name, "out"). runExplicit is nullptr in a build without the
// CUDA toolkit.
struct Benchmark {
  const char* name;
  const char* title;
  void (*generate)(const Context&);
  void (*run)(const Context&);
  void (*runExplicit)(const Context&);
  Check (*check)(const Context&);
};

const Benchmark& cpBenchmark();
const Benchmark& mriFhdBenchmark();
const Benchmark& mriQBenchmark();
const Benchmark& pnsBenchmark();
const Benchmark& rpesBenchmark();
const Benchmark& sadBenchmark();
const Benchmark& tpacfBenchmark();
const Benchmark& stencilBenchmark();
const Benchmark& vecaddBenchmark();

// All of them, in the order of the tables.
std::span<const Benchmark* const> benchmarks();

// The benchmark of that name, or nullptr.
const Benchmark* findBenchmark(const std::string& name);

}  // namespace parboil

#endif  // GMAC_PARBOIL_BENCHMARK_H_
