// SPDX-License-Identifier: Apache-2.0
//
// compare: managed-memory programs with real managed memory and with gmac's. Exit status: 0 when
// all results are equal (programs that cannot run here are named), 1 when one is not or a run
// failed, 2 when the command line is wrong.
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>

#include "managed/compare/comparison.h"
#include "managed/compare/options.h"
#include "managed/compare/report.h"

int main(int argc, char** argv) {
  using namespace managed::compare;
  try {
    const Options options = parseOptions(argc, argv);
    std::ofstream json;
    if (!options.jsonPath.empty()) {
      // Opened first: a file that cannot be written should not cost all the runs.
      json.open(options.jsonPath);
      if (!json) {
        throw std::runtime_error(
            fmt::format("cannot write {}: {}", options.jsonPath.string(), std::strerror(errno)));
      }
    }
    const Comparison comparison = compareAll(options);
    fmt::print("{}", toTable(comparison));
    if (json.is_open()) {
      json << toJson(comparison, options).dump(2) << std::endl;
      if (!json) throw std::runtime_error("cannot write " + options.jsonPath.string());
    }
    return comparison.allEqual() ? 0 : 1;
  } catch (const UsageError& error) {
    fmt::print(error.status() == 0 ? stdout : stderr, "{}", error.what());
    return error.status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "compare: {}\n", error.what());
    return 1;
  }
}
