// SPDX-License-Identifier: Apache-2.0
//
// Attacks on the library: what a process may do that no test of a room thinks of.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "attack/runner.h"

namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> only;
  bool list = false;
  bool verbose = false;
  int seconds = 20;
};

// A name, or the class of it.
bool isMeant(const std::string& name, const std::string& by) {
  return name == by || name.starts_with(by + "/");
}

bool isWanted(const std::string& name, const Options& options) {
  if (options.only.empty()) return true;
  for (const std::string& by : options.only) {
    if (isMeant(name, by)) return true;
  }
  return false;
}

// The first requested name that no attack has.
std::string unknownName(const std::vector<attack::Planned>& planned, const Options& options) {
  for (const std::string& by : options.only) {
    bool known = false;
    for (const attack::Planned& one : planned) known = known || isMeant(one.name, by);
    if (!known) return by;
  }
  return {};
}

int run(const Options& options) {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  const attack::Surroundings surroundings = {
      .subject = (folder / "subject").string(),
      .library = (folder.parent_path() / "gmac" / "libgmac.so").string(),
      .command = (folder.parent_path() / "tools" / "gmac" / "gmac").string(),
      .seconds = options.seconds,
  };
  const std::vector<attack::Planned> planned = attack::listAttacks(surroundings);
  if (const std::string unknown = unknownName(planned, options); !unknown.empty()) {
    fmt::print(stderr, "attack: there is nothing named '{}'; --list prints the names\n", unknown);
    return 2;
  }
  if (options.list) {
    for (const attack::Planned& one : planned) {
      if (isWanted(one.name, options)) fmt::print("{}\n", one.name);
    }
    return 0;
  }
  attack::adoptOrphans();
  int counts[3] = {};
  for (const attack::Planned& one : planned) {
    if (!isWanted(one.name, options)) continue;
    const attack::Result result = attack::makeAttack(one, surroundings);
    constexpr const char* kWords[] = {"passed", "FAILED", "skipped"};
    const auto verdict = static_cast<std::size_t>(result.verdict);
    ++counts[verdict];
    fmt::print("{:<44} {:<7} {:>7.2f} s{}{}\n", one.name, kWords[verdict], result.seconds,
               result.why.empty() ? "" : "  ", result.why);
    if (options.verbose) fmt::print("{}", result.output);
    std::fflush(stdout);
  }
  fmt::print("{} passed, {} failed, {} skipped\n", counts[0], counts[1], counts[2]);
  return counts[1] == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Attacks on the library, each in a process of its own on the host accelerator: one line for "
      "each with its name, its verdict and its seconds. Exit status 1 when one fails.",
      "attack");
  app.add_option("--only", options.only, "attacks, or classes of them")->type_name("NAME");
  app.add_flag("--list", options.list, "the names alone");
  app.add_flag("--verbose", options.verbose, "what each of them says, too");
  app.add_option("--seconds", options.seconds, "how long those go on that have no end of their own")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    return run(options);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "attack: {}\n{}", error.what(), app.help());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "attack: {}\n", error.what());
    return 2;
  }
}
