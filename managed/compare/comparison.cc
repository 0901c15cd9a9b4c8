// SPDX-License-Identifier: Apache-2.0
#include "managed/compare/comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "managed/compare/child.h"

namespace managed::compare {
namespace {

namespace fs = std::filesystem;

// How the programs say that they cannot run here.
constexpr int kCannotRun = 77;

bool sameBytes(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::file_size(a, error) != fs::file_size(b, error) || error) return false;
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  std::vector<char> firstPart(1 << 20), secondPart(1 << 20);
  while (first && second) {
    first.read(firstPart.data(), static_cast<std::streamsize>(firstPart.size()));
    second.read(secondPart.data(), static_cast<std::streamsize>(secondPart.size()));
    if (first.gcount() != second.gcount() ||
        !std::equal(firstPart.begin(), firstPart.begin() + first.gcount(), secondPart.begin())) {
      return false;
    }
  }
  return first.eof() && second.eof();
}

// One way to run a program: as it is, or under gmac.
struct Way {
  std::string name;
  std::vector<std::string> prefix;
  bool underGmac = false;
  std::string accelerator;
  std::string protocol;
  Measured measured;
};

std::vector<Way> waysOf(const Options& options) {
  std::vector<Way> ways = {{"managed", {}, false, "", "", {}}};
  for (const std::string& accelerator : options.accelerators) {
    for (const std::string& protocol : options.protocols) {
      ways.push_back({fmt::format("gmac {} {}", accelerator, protocol),
                      {options.gmacCommand.string(), "run", "--managed", "--accel", accelerator,
                       "--protocol", protocol, "--"},
                      true,
                      accelerator,
                      protocol,
                      {}});
    }
  }
  return ways;
}

// One program with one runtime: all its runs.
class Case {
 public:
  Case(const Options& options, const std::string& program, const std::string& runtime)
      : options_(options), program_(program), runtime_(runtime), ways_(waysOf(options)) {}

  // The reason when the program cannot run here.
  std::optional<std::string> runAll() {
    for (unsigned repeat = 0; repeat < options_.repeats; ++repeat) {
      for (Way& way : ways_) {
        if (!way.measured.problem.empty()) continue;
        const ChildEnd end = runOnce(way, repeat == 0);
        if (end.status == kCannotRun && !way.underGmac && repeat == 0) return end.lastError();
        take(way, end);
      }
    }
    return std::nullopt;
  }

  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (const Way& way : ways_) {
      if (!way.underGmac) continue;
      const bool complete =
          ways_[0].measured.problem.empty() && way.measured.problem.empty() && haveReference_;
      rows.push_back({program_, runtime_, way.accelerator, way.protocol, ways_[0].measured,
                      way.measured, complete});
    }
    return rows;
  }

 private:
  // Only the first run of each way is held against the program's own reference, which takes longer
  // than the program; the others' bytes must be those of the first.
  ChildEnd runOnce(const Way& way, bool checked) {
    std::fprintf(stderr, "%s %s, %s\n", program_.c_str(), runtime_.c_str(), way.name.c_str());
    std::vector<std::string> words = way.prefix;
    const std::string result = resultPath();
    words.insert(words.end(), {(options_.programFolder / runtime_ / program_).string(), "--size",
                               options_.size, "--output", result});
    if (!checked) words.emplace_back("--no-check");
    fs::remove(result);
    return runChild(words, way.underGmac, options_.timeoutSeconds, scratch_.path());
  }

  void take(Way& way, const ChildEnd& end) {
    if (end.status != 0) {
      way.measured.problem = end.describe();
      return;
    }
    const auto line = nlohmann::json::parse(end.output, nullptr, false);
    if (!line.is_object() || !line.contains("seconds") || !line.contains("checksum")) {
      way.measured.problem = "did not print its line";
      return;
    }
    way.measured.seconds.push_back(line["seconds"]);
    way.measured.checksum = line["checksum"];
    way.measured.note = line.value("note", "");
    const fs::path reference = scratch_.path() / "reference";
    if (!haveReference_) {
      // The first that succeeds is that of managed memory, or else a result that a row must not
      // call equal.
      if (!way.underGmac && fs::exists(resultPath())) {
        fs::rename(resultPath(), reference);
        haveReference_ = true;
      }
    } else if (!sameBytes(resultPath(), reference)) {
      way.measured.problem = "the result is another one";
    }
  }

  fs::path resultPath() const { return scratch_.path() / "result"; }

  const Options& options_;
  const std::string program_;
  const std::string runtime_;
  std::vector<Way> ways_;  // the first is managed memory
  ScratchFolder scratch_;
  bool haveReference_ = false;
};

}  // namespace

double Measured::median() const {
  if (seconds.empty()) return 0;
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

bool Comparison::allEqual() const {
  return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.equal; });
}

Comparison compareAll(const Options& options) {
  Comparison comparison;
  for (const std::string& program : options.programs) {
    for (const std::string& runtime : options.runtimes) {
      if (!fs::exists(options.programFolder / runtime / program)) {
        comparison.skipped.push_back({program, runtime, "not built: there was no CUDA toolkit"});
        continue;
      }
      Case both(options, program, runtime);
      if (const auto reason = both.runAll()) {
        comparison.skipped.push_back({program, runtime, *reason});
        continue;
      }
      std::vector<Row> rows = both.rows();
      std::move(rows.begin(), rows.end(), std::back_inserter(comparison.rows));
    }
  }
  return comparison;
}

}  // namespace managed::compare
