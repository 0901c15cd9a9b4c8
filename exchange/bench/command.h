// SPDX-License-Identifier: Apache-2.0
//
// The command line of the programs that measure messages, and the file that their runs are added
// to.
#ifndef GMAC_EXCHANGE_BENCH_COMMAND_H_
#define GMAC_EXCHANGE_BENCH_COMMAND_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gmac::exchange::bench {

struct Options {
  std::vector<std::string> groups;  // none: all
  std::int64_t edge = 256;
  std::size_t rounds = 15;
  std::filesystem::path json;
  std::filesystem::path plots;
  bool gate = false;

  bool wants(const std::string& group) const;
};

// The text of a program's --help, and its measurement.
struct Command {
  std::string name;
  std::string text;
  std::vector<std::string> groups;
  // Groups of other programs of the same command, which may be asked for as well.
  std::vector<std::string> others = {};
  bool takesEdge = false;  // of a grid
};

// Every process calls it; rank 0 prints. The exit status of a command line that asks for no
// measurement, or is wrong; nothing: it is right, and in `options`.
std::optional<int> parse(const Command& command, int argc, char** argv, int rank, Options& options);

// Adds this run to the runs that the file holds, if it is there. Throws std::runtime_error.
void addRun(const nlohmann::ordered_json& run, const std::filesystem::path& path);

}  // namespace gmac::exchange::bench

#endif  // GMAC_EXCHANGE_BENCH_COMMAND_H_
