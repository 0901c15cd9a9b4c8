// SPDX-License-Identifier: Apache-2.0
//
// datatypes: measures what packing costs and draws the papers' figures. Exit status: 0; 1 when an
// output is wrong, something failed or, with --gate, a target is missed; 2 when the command line is
// wrong.
#include <errno.h>
#include <fmt/core.h>
#include <string.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "datatypes/first_pack.h"
#include "datatypes/options.h"
#include "datatypes/plots.h"
#include "datatypes/results.h"
#include "datatypes/session.h"

namespace datatypes {
namespace {

int listGroups() {
  for (const Group& group : groups()) {
    fmt::print("{:<16} {}{}\n", group.name, group.title, group.needsGpu ? " (needs a GPU)" : "");
  }
  return 0;
}

// The GPU, unless the runtime is told to do without; and the runtime told so where there is none.
std::unique_ptr<Gpu> findGpu(std::string& whyNot) {
  constexpr const char* kVariable = "GMAC_ACCEL";
  const char* const wanted = std::getenv(kVariable);
  std::unique_ptr<Gpu> gpu;
  if (wanted != nullptr && std::string(wanted) == "host") {
    whyNot = fmt::format("{} is host", kVariable);
  } else {
    gpu = openGpu(whyNot);
  }
  if (gpu == nullptr) setenv(kVariable, "host", 1);
  return gpu;
}

int run(const Options& options) {
  if (options.list) return listGroups();
  std::ofstream json;
  if (!options.json.empty()) {
    // Opened first: a file that cannot be written should not cost a run of everything.
    json.open(options.json);
    if (!json) {
      throw Failure(fmt::format("cannot write {}: {}", options.json.string(), strerror(errno)));
    }
  }
  std::string whyNot;
  Session session(findGpu(whyNot), options.rounds);
  Results& results = session.results();
  if (options.firstPack) {
    if (!session.hasGpu()) throw Failure("--first-pack needs a GPU: " + whyNot);
    const FirstPack took = measureFirstPack(session.gpu(), *options.firstPack);
    fmt::print("{} {}\n", took.first, took.later);
    return 0;
  }
  results.device = session.hasGpu() ? session.gpu().name() : "none: " + whyNot;
  results.accelerator = session.hasGpu() ? "cuda" : "host";
  for (const Group* group : options.groups) {
    if (group->needsGpu && !session.hasGpu()) {
      results.leftOut.push_back(fmt::format("{}: {}", group->name, whyNot));
    } else {
      group->run(session);
    }
  }
  if (!session.hasGpu()) {
    results.leftOut.push_back("hand, copy2d and bound, and every target that is about them: " +
                              whyNot);
  }

  fmt::print("{}", results.rows.empty() ? "" : toTable(results.rows));
  for (const Figure& figure : results.figures) fmt::print("\n{}", toText(figure));
  for (const std::string& text : results.leftOut) fmt::print("left out: {}\n", text);
  if (!options.plots.empty()) fmt::print("{}\n", writePlots(results.figures, options.plots));
  std::fflush(stdout);
  if (json.is_open()) {
    json << toJson(results).dump(2) << std::endl;
    if (!json) throw Failure(fmt::format("cannot write {}", options.json.string()));
  }
  return results.right() && (!options.gate || results.allMet()) ? 0 : 1;
}

}  // namespace
}  // namespace datatypes

int main(int argc, char** argv) {
  try {
    return datatypes::run(datatypes::parseOptions({argv + 1, argv + argc}));
  } catch (const datatypes::UsageError& error) {
    fmt::print(error.status() == 0 ? stdout : stderr, "{}{}\n",
               error.status() == 0 ? "" : "datatypes: ", error.what());
    return error.status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "datatypes: {}\n", error.what());
    return 1;
  }
}
