// SPDX-License-Identifier: Apache-2.0
#include "tools/gmac/run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "gmac/base/log.h"
#include "gmac/session/config.h"
#include "tools/gmac/failure.h"
#include "tools/gmac/library.h"
#include "tools/gmac/program.h"

namespace gmac::command {
namespace {

void set(const char* name, const std::string& value) {
  if (value.empty()) return;
  if (::setenv(name, value.c_str(), 1) != 0) {
    refuse(Ending::kOurs, "cannot set {}: {}", name, std::strerror(errno));
  }
}

// The program may change its folder before the file is written.
std::string absolutePath(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).string();
}

// The variables that launchers set in the processes that they start: Open MPI's, MPICH's, Slurm's,
// PMIx's.
constexpr const char* kLaunchers[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID",
                                      "PMIX_RANK"};

void noteMpi() {
  // libgmac_mpi.so looks there whether it is this very program that never calls MPI.
  set("_GMAC_MPI_PROCESS", std::to_string(::getpid()));
  if (std::none_of(std::begin(kLaunchers), std::end(kLaunchers),
                   [](const char* name) { return ::getenv(name) != nullptr; })) {
    writeLogLine(
        "--mpi: no launcher has started this: the program is alone. For several processes: "
        "mpirun -n N gmac run --mpi -- PROGRAM");
  }
}

}  // namespace

void run(const RunOptions& options, const std::vector<std::string>& words) {
  set("GMAC_ACCEL", options.accelerator);
  set("GMAC_PROTOCOL", options.protocol);
  set("GMAC_MANAGED", options.trustHints ? "trust" : options.managed ? "1" : "");
  set("GMAC_STATS", absolutePath(options.statsPath));
  set("GMAC_TRACE", absolutePath(options.tracePath));
  // The other variables too: a program that knows nothing of the library could not say it better.
  warnOfUnknownVariables(environ);
  if (!readConfig(::getenv).ok()) refuse(Ending::kUsage, "{}", lastErrorText());

  const std::string library = findLibrary();
  const std::string path = findProgram(words.front(), ::getenv("PATH"));
  checkCanPreload(path);
  const char* const existing = ::getenv("LD_PRELOAD");
  std::string preloaded = existing != nullptr ? existing : "";
  const std::vector<std::string> needed = librariesOf(path);
  if (options.mpi) {
    preloaded = preloadWith(findMpiLibrary(), preloaded, needed);
    noteMpi();
  }
  set("LD_PRELOAD", preloadWith(library, preloaded, needed));

  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  // With a slash in the path nothing is searched; a script without a first line runs in the shell.
  ::execvp(path.c_str(), arguments.data());
  refuse(Ending::kCannotRun, "cannot run {}: {}", path, std::strerror(errno));
}

}  // namespace gmac::command
