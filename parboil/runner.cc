// SPDX-License-Identifier: Apache-2.0
#include "parboil/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "gmac/api/adsm.h"
#include "parboil/require.h"
#include "parboil/start_explicit.h"

namespace parboil {
namespace {

// parboil __run NAME SIZE DIR RESULT gmac|explicit: runs one benchmark and writes {"seconds": ...}
// to RESULT.
constexpr const char* kRunCommand = "__run";
constexpr const char* kExplicit = "explicit";
constexpr const char* kNoProtocol = "none";

// A folder of its own for the files that a run leaves for its parent. Move-free owner: removed with
// all in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "parboil-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw Failure(fmt::format("cannot create a folder like {}: {}", name, strerror(errno)));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Keeps a second runner out of the folder, whose output files have fixed names. Owner of the lock.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& dir) {
    const auto path = dir / ".lock";
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0)
      throw Failure(fmt::format("cannot open {}: {}", path.string(), strerror(errno)));
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    fmt::print(stderr, "waiting for another run in {}\n", dir.string());
    while (flock(descriptor_, LOCK_EX) != 0) {
      if (errno != EINTR) {
        const int error = errno;
        close(descriptor_);
        throw Failure(fmt::format("cannot lock {}: {}", path.string(), strerror(error)));
      }
    }
  }
  ~FolderLock() { close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// Says on stderr what is going on: one line that changes on a terminal, a line for each step
// elsewhere.
class Progress {
 public:
  Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const std::string& text) {
    if (terminal_) {
      fmt::print(stderr, "\r\033[K{}", text);
    } else {
      fmt::print(stderr, "{}\n", text);
    }
    std::fflush(stderr);
  }
  // Makes room for lines that stay.
  void clear() {
    if (terminal_) fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }

 private:
  bool terminal_;
};

std::string readText(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string lastLine(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// The parent's environment with some variables set.
std::vector<std::string> environmentWith(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const bool changed = std::any_of(changes.begin(), changes.end(), [&](const auto& change) {
      return text.starts_with(fmt::format("{}=", change.first));
    });
    if (!changed) environment.push_back(text);
  }
  for (const auto& [name, value] : changes)
    environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Runs this program again with all its output going to `log`; how it failed, or "".
std::string runSelf(std::vector<std::string> arguments, std::vector<std::string> environment,
                    const std::filesystem::path& log) {
  arguments.insert(arguments.begin(), "parboil");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                                pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fmt::format("cannot start a process: {}", strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fmt::format("cannot wait for the process: {}", strerror(errno));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  const std::string last = lastLine(readText(log));
  if (WIFSIGNALED(status)) {
    return fmt::format("killed by signal {} ({}){}{}", WTERMSIG(status),
                       strsignal(WTERMSIG(status)), last.empty() ? "" : ": ", last);
  }
  return last.empty() ? fmt::format("exit status {}", WEXITSTATUS(status)) : last;
}

// One run in a child, then the check of what it wrote.
Run runOnce(const Options& options, const Context& context, const Benchmark& benchmark,
            const std::string& protocol, Progress& progress, const std::string& label) {
  const bool withRuntime = protocol != kNoProtocol;
  Run run;
  run.benchmark = benchmark.name;
  run.protocol = protocol;
  run.size = context.size;
  run.accelerator = !withRuntime                  ? kExplicit
                    : options.accelerator.empty() ? "?"
                                                  : options.accelerator;

  const TemporaryFolder folder;
  const auto result = folder.path() / "result.json";
  const auto statistics = folder.path() / "statistics.json";
  const auto log = folder.path() / "log";
  std::vector<std::pair<std::string, std::string>> changes;
  if (withRuntime) {
    changes = {{"GMAC_PROTOCOL", protocol}, {"GMAC_STATS", statistics.string()}};
    if (!options.accelerator.empty()) changes.emplace_back("GMAC_ACCEL", options.accelerator);
  }
  // Only the output of this run is checked.
  std::filesystem::remove(dataPath(context, benchmark.name, "out"));
  progress.step(label + ": running");
  run.error = runSelf({kRunCommand, benchmark.name, sizeName(context.size), context.dir.string(),
                       result.string(), withRuntime ? "gmac" : kExplicit},
                      environmentWith(changes), log);
  if (!run.error.empty()) return run;
  if (const std::string said = readText(log); !said.empty()) {
    progress.clear();
    fmt::print(stderr, "{}", said);
  }
  try {
    const double seconds = nlohmann::json::parse(readText(result)).at("seconds").get<double>();
    if (withRuntime) {
      const auto counted = nlohmann::json::parse(readText(statistics));
      run.accelerator = counted.at("accelerator").get<std::string>();
      run.traffic = readTraffic(counted);
    }
    run.seconds = seconds;
  } catch (const nlohmann::json::exception& error) {
    run.error = fmt::format("the run's statistics cannot be read: {}", error.what());
    return run;
  }
  progress.step(fmt::format("{}: {:.3f} s, checking", label, *run.seconds));
  const Check check = benchmark.check(context);
  run.checked = check.ok;
  if (!check.ok) run.error = "wrong result: " + check.detail;
  return run;
}

std::string sizeOrDash(const std::optional<Traffic>& traffic, std::uint64_t Traffic::*bytes) {
  return traffic ? fmt::format("{:.1f}", static_cast<double>((*traffic).*bytes) / 1e6) : "-";
}

// The runs of one line of the table: same benchmark and protocol, in a row.
using RunIterator = std::vector<Run>::const_iterator;
RunIterator endOfLine(RunIterator first, RunIterator end) {
  return std::find_if(first, end, [&](const Run& run) {
    return run.benchmark != first->benchmark || run.protocol != first->protocol;
  });
}

// The run of median time; a failed one if there is any, so that no failure hides behind a good
// median.
const Run& representative(RunIterator first, RunIterator end) {
  std::vector<const Run*> order;
  for (auto run = first; run != end; ++run) {
    if (!run->checked) return *run;
    order.push_back(&*run);
  }
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>((order.size() - 1) / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [](const Run* a, const Run* b) { return *a->seconds < *b->seconds; });
  return **middle;
}

}  // namespace

Traffic readTraffic(const nlohmann::json& statistics) {
  const auto value = [&](const char* key) { return statistics.at(key).get<std::uint64_t>(); };
  return {value("bytesToAccelerator"), value("bytesToHost"), value("readFaults"),
          value("writeFaults"), value("evictions")};
}

std::vector<Run> runAll(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.dir, error);
  if (error)
    throw Failure(fmt::format("cannot create {}: {}", options.dir.string(), error.message()));
  const FolderLock lock(options.dir);
  const Context context{options.size, options.dir};
  std::vector<std::string> protocols = options.protocols;
  if (options.explicitCopies) protocols.emplace_back(kNoProtocol);

  Progress progress;
  std::vector<Run> runs;
  const std::size_t total = options.benchmarks.size() * protocols.size() * options.repeat;
  for (const Benchmark* benchmark : options.benchmarks) {
    progress.step(fmt::format("{}: input of size {}", benchmark->name, sizeName(options.size)));
    std::string inputError;
    try {
      benchmark->generate(context);
    } catch (const std::exception& failure) {
      inputError = fmt::format("no input: {}", failure.what());
    }
    for (const std::string& protocol : protocols) {
      for (unsigned repeat = 0; repeat < options.repeat; ++repeat) {
        const std::string label =
            fmt::format("[{}/{}] {}, {}", runs.size() + 1, total, benchmark->name,
                        protocol == kNoProtocol ? "explicit copies" : protocol);
        Run run{benchmark->name, "?",          protocol, options.size,
                std::nullopt,    std::nullopt, false,    inputError};
        if (inputError.empty()) {
          try {
            run = runOnce(options, context, *benchmark, protocol, progress, label);
          } catch (const std::exception& failure) {
            run.error = failure.what();
          }
        }
        if (!run.error.empty()) progress.step(fmt::format("{}: failed: {}", label, run.error));
        runs.push_back(std::move(run));
      }
    }
  }
  return runs;
}

bool isRunCommand(const std::vector<std::string>& arguments) {
  return !arguments.empty() && arguments.front() == kRunCommand;
}

int runCommand(const std::vector<std::string>& arguments) {
  try {
    if (arguments.size() != 6)
      throw Failure(std::string(kRunCommand) + " is for the runner's own use");
    const Benchmark* benchmark = findBenchmark(arguments[1]);
    if (benchmark == nullptr) throw Failure("no benchmark " + arguments[1]);
    const Context context{parseSize(arguments[2]), arguments[3]};
    const bool withRuntime = arguments[5] != kExplicit;
    const auto run = withRuntime ? benchmark->run : benchmark->runExplicit;
    // Starting the accelerator takes longer than most benchmarks and is the same for all ways to
    // use it.
    if (withRuntime) {
      require(adsmFree(requireShared<char>(adsmAlloc(1))));
    } else {
      startExplicit();
    }
    const auto begin = std::chrono::steady_clock::now();
    run(context);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::ofstream result(arguments[4]);
    result << nlohmann::json{{"seconds", seconds.count()}} << std::endl;
    if (!result) throw Failure("cannot write " + arguments[4]);
    return 0;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    return 1;
  }
}

nlohmann::ordered_json toJson(const std::vector<Run>& runs) {
  auto list = nlohmann::ordered_json::array();
  for (const Run& run : runs) {
    nlohmann::ordered_json entry = {{"benchmark", run.benchmark},
                                    {"accelerator", run.accelerator},
                                    {"protocol", run.protocol},
                                    {"size", sizeName(run.size)},
                                    {"seconds", nullptr},
                                    {"checked", run.checked},
                                    {"bytesToAccelerator", nullptr},
                                    {"bytesToHost", nullptr},
                                    {"readFaults", nullptr},
                                    {"writeFaults", nullptr},
                                    {"evictions", nullptr}};
    if (run.seconds) entry["seconds"] = *run.seconds;
    if (run.traffic) {
      entry["bytesToAccelerator"] = run.traffic->bytesToAccelerator;
      entry["bytesToHost"] = run.traffic->bytesToHost;
      entry["readFaults"] = run.traffic->readFaults;
      entry["writeFaults"] = run.traffic->writeFaults;
      entry["evictions"] = run.traffic->evictions;
    }
    if (!run.error.empty()) entry["error"] = run.error;
    list.push_back(std::move(entry));
  }
  nlohmann::ordered_json all;
  all["runs"] = std::move(list);
  return all;
}

std::string toTable(const std::vector<Run>& runs) {
  constexpr const char* kLine = "{:<10} {:<11} {:<8} {:>10} {:>12} {:>12} {:>9} {:>9}  {}\n";
  std::string table = fmt::format(kLine, "benchmark", "accelerator", "protocol", "time (s)",
                                  "MB to accel", "MB to host", "faults", "evictions", "checked");
  std::string failures;
  for (auto first = runs.begin(); first != runs.end();) {
    const auto end = endOfLine(first, runs.end());
    const Run& run = representative(first, end);
    const auto& traffic = run.traffic;
    table += fmt::format(
        kLine, run.benchmark, run.accelerator, run.protocol,
        run.seconds ? fmt::format("{:.4f}", *run.seconds) : "failed",
        sizeOrDash(traffic, &Traffic::bytesToAccelerator),
        sizeOrDash(traffic, &Traffic::bytesToHost),
        traffic ? fmt::format("{}", traffic->readFaults + traffic->writeFaults) : "-",
        traffic ? fmt::format("{}", traffic->evictions) : "-", run.checked ? "yes" : "NO");
    if (!run.error.empty())
      failures += fmt::format("{}, {}: {}\n", run.benchmark, run.protocol, run.error);
    first = end;
  }
  return table + (failures.empty() ? "" : "\n" + failures);
}

}  // namespace parboil
