// SPDX-License-Identifier: Apache-2.0
//
// parboil: runs the benchmarks and prints one table. Exit status: 0 when every output is right, 1
// when one is not or a run failed, 2 when the command line is wrong.
#include <errno.h>
#include <fmt/core.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "parboil/runner.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (parboil::isRunCommand(arguments)) return parboil::runCommand(arguments);
  try {
    const parboil::Options options = parboil::parseOptions(arguments);
    std::ofstream json;
    if (!options.json.empty()) {
      // Opened first: a file that cannot be written should not cost a run of everything.
      json.open(options.json);
      if (!json)
        throw parboil::Failure(
            fmt::format("cannot write {}: {}", options.json.string(), strerror(errno)));
    }
    const std::vector<parboil::Run> runs = parboil::runAll(options);
    fmt::print("{}", parboil::toTable(runs));
    if (json.is_open()) {
      json << parboil::toJson(runs).dump(2) << std::endl;
      if (!json) throw parboil::Failure(fmt::format("cannot write {}", options.json.string()));
    }
    return std::all_of(runs.begin(), runs.end(),
                       [](const parboil::Run& run) { return run.checked; })
               ? 0
               : 1;
  } catch (const parboil::UsageError& error) {
    fmt::print(error.status() == 0 ? stdout : stderr, "{}{}\n",
               error.status() == 0 ? "" : "parboil: ", error.what());
    return error.status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "parboil: {}\n", error.what());
    return 1;
  }
}
