// SPDX-License-Identifier: Apache-2.0
//
// gmac: runs programs with the library preloaded. Exit status: the program's own; 2 when the
// command line is wrong, 126 when the program cannot be run, 127 when there is none, 1 for anything
// else.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gmac/session/config.h"
#include "tools/gmac/failure.h"
#include "tools/gmac/run.h"

namespace {

using gmac::command::Ending;
using gmac::command::RunOptions;

// The program's words are none of the parser's, so that its usage line does not have them.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "usage: gmac run [OPTIONS] -- PROGRAM [ARGUMENTS]\n";
  }
};

// An option that sets a variable, with the words that the variable takes.
void addChoice(CLI::App& app, const std::string& option, std::string& value, const char* variable,
               const std::string& what) {
  app.add_option(option, value, fmt::format("{}: {}", what, gmac::allowedValues(variable)))
      ->check([=](const std::string& word) {
        return gmac::isAllowedValue(variable, word)
                   ? std::string()
                   : fmt::format("\"{}\" is not allowed; allowed: {}", word,
                                 gmac::allowedValues(variable));
      })
      ->type_name("WORD");
}

void addPath(CLI::App& app, const std::string& option, std::string& value,
             const std::string& what) {
  app.add_option(option, value, what)
      ->check([](const std::string& path) {
        return path.empty() ? std::string("the path of a file is missing") : std::string();
      })
      ->type_name("FILE");
}

}  // namespace

int main(int argc, char** argv) {
  // The words after the first "--" are the program's, whatever they look like.
  char** const end = argv + argc;
  char** const separator =
      std::find_if(argv, end, [](const char* word) { return std::string(word) == "--"; });
  const std::vector<std::string> words(separator == end ? end : separator + 1, end);

  CLI::App app("One pointer for the CPU and the accelerator.", "gmac");
  app.require_subcommand(1);
  app.set_version_flag("--version", "gmac " GMAC_VERSION);
  RunOptions options;
  CLI::App* const run = app.add_subcommand("run", "Runs a program with libgmac.so preloaded.");
  run->formatter(std::make_shared<RunFormatter>());
  addChoice(*run, "--accel", options.accelerator, "GMAC_ACCEL", "the accelerator");
  addChoice(*run, "--protocol", options.protocol, "GMAC_PROTOCOL", "the coherence protocol");
  CLI::Option* const managed =
      run->add_flag("--managed", options.managed,
                    "CUDA's managed memory is made of shared objects, in an unmodified program");
  run->add_flag("--trust-hints", options.trustHints,
                "with --managed: the program's hints are promises, and nobody checks")
      ->needs(managed);
  run->add_flag("--mpi", options.mpi,
                "MPI takes shared objects: mpirun -n N gmac run --mpi -- PROGRAM");
  addPath(*run, "--stats", options.statsPath, "writes statistics there when the program ends");
  addPath(*run, "--trace", options.tracePath, "writes a trace there when the program ends");
  run->footer(
      "The program takes the place of this command: its exit status and its signals are its own.\n"
      "Options go before other GMAC_* variables of the environment, which hold as ever.");

  try {
    app.parse(static_cast<int>(separator - argv), argv);
    if (words.empty()) {
      throw CLI::ValidationError("no program: it stands after \"--\"");
    }
    gmac::command::run(options, words);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);  // help or version
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "gmac: {}\n{}", error.what(), (run->parsed() ? *run : app).help());
    return static_cast<int>(Ending::kUsage);
  } catch (const gmac::command::Failure& failure) {
    fmt::print(stderr, "gmac: {}\n", failure.what());
    return failure.status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gmac: {}\n", error.what());
    return static_cast<int>(Ending::kOurs);
  }
}
