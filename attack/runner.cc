// SPDX-License-Identifier: Apache-2.0
#include "attack/runner.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace attack {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kSkippedStatus = 77;
// How long what an attack leaves may take to end by itself. The device process notices the end of
// its parent in milliseconds; machines may be busy.
constexpr double kLeftSeconds = 5;

std::runtime_error systemError(const char* what) {
  return std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code ignored;  // threads and processes end meanwhile
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0) continue;
    const std::string text = contents(entry.path() / "stat");
    const std::size_t nameEnd = text.rfind(')');
    int parent = 0;
    char state = 0;
    if (nameEnd != std::string::npos &&
        std::sscanf(text.c_str() + nameEnd + 1, " %c %d", &state, &parent) == 2 &&
        parent == ::getpid() && state != 'Z') {
      found.push_back(process);
    }
  }
  return found;
}

std::string nameOf(pid_t process) {
  std::string name = contents(fmt::format("/proc/{}/comm", process));
  name = name.substr(0, name.find('\n'));
  std::string line = contents(fmt::format("/proc/{}/cmdline", process));
  for (char& letter : line) letter = letter == '\0' ? ' ' : letter;
  return fmt::format("{} {} ({})", process, name, line);
}

// Waits for all adopted processes; names the first that stays, and kills those that do.
std::string whatIsLeft() {
  std::string left;
  for (const auto start = Clock::now();;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno == ECHILD) return left;
    if (ended > 0) continue;
    if (secondsSince(start) > kLeftSeconds) {
      for (const pid_t process : children()) {
        if (left.empty()) left = nameOf(process);
        ::kill(process, SIGKILL);
      }
    }
    pause();
  }
}

// The output of an attack's processes.
class Output {
 public:
  Output() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) throw systemError("pipe2");
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
  }
  ~Output() {
    ::close(ends_[0]);
    closeWriteEnd();
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int writeEnd() const { return ends_[1]; }
  void closeWriteEnd() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  // Whatever is there; never waits.
  void take() {
    char buffer[4096];
    for (ssize_t count = 0; (count = ::read(ends_[0], buffer, sizeof buffer)) > 0;) {
      text_.append(buffer, static_cast<std::size_t>(count));
    }
  }
  const std::string& text() const { return text_; }

 private:
  int ends_[2] = {-1, -1};
  std::string text_;
};

std::string lastLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? -1 : begin));
}

bool saysSomethingOfGmac(const std::string& output) {
  return output.starts_with("gmac: ") || output.find("\ngmac: ") != std::string::npos;
}

// In the child: what the attack's process is given.
[[noreturn]] void become(const Planned& attack, const Surroundings& surroundings,
                         const fs::path& folder, int out) {
  ::setsid();
  const int in = ::open("/dev/null", O_RDONLY);
  if (in < 0 || ::dup2(in, STDIN_FILENO) < 0 || ::dup2(out, STDOUT_FILENO) < 0 ||
      ::dup2(out, STDERR_FILENO) < 0 || ::chdir(folder.c_str()) != 0) {
    ::_exit(98);
  }
  ::close(in);
  ::close(out);
  for (char** entry = environ; *entry != nullptr;) {
    const std::string_view text(*entry);
    if (text.starts_with("GMAC_") || text.starts_with("LD_PRELOAD=")) {
      ::unsetenv(std::string(text.substr(0, text.find('='))).c_str());
      entry = environ;
    } else {
      ++entry;
    }
  }
  ::setenv("LD_PRELOAD", surroundings.library.c_str(), 1);
  ::setenv("GMAC_ACCEL", "host", 1);
  ::setenv("GMAC_HOST_MEMORY", "2G", 1);
  ::setenv("GMAC_HOST_THREADS", "2", 1);
  ::setenv("GMAC_TEST_SECONDS", std::to_string(surroundings.seconds).c_str(), 1);
  ::setenv("GMAC_TEST_COMMAND", surroundings.command.c_str(), 1);
  ::setenv("TMPDIR", folder.c_str(), 1);
  ::execl(surroundings.subject.c_str(), "subject", attack.name.c_str(), nullptr);
  ::_exit(98);
}

}  // namespace

void adoptOrphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) throw systemError("prctl(subreaper)");
}

std::vector<Planned> listAttacks(const Surroundings& surroundings) {
  const std::string command =
      fmt::format("GMAC_TEST_SECONDS={} LD_PRELOAD='{}' '{}' --list", surroundings.seconds,
                  surroundings.library, surroundings.subject);
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw systemError("popen");
  std::string text;
  for (int letter = 0; (letter = std::fgetc(pipe)) != EOF;) text += static_cast<char>(letter);
  if (::pclose(pipe) != 0) throw std::runtime_error(command + " failed");
  std::vector<Planned> planned;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Planned one;
    std::string ending;
    std::getline(words, one.name, '\t');
    words >> one.limitSeconds >> ending;
    one.mayEndWithMessage = ending == "message";
    planned.push_back(std::move(one));
  }
  return planned;
}

Result makeAttack(const Planned& attack, const Surroundings& surroundings) {
  std::string name = (fs::temp_directory_path() / "gmac-attack.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw systemError("mkdtemp");
  const fs::path folder = name;
  // Somebody without rights works there, too.
  fs::permissions(folder, fs::perms::all);

  // No file: the size of files is one of the limits that attacks set.
  Output output;
  const auto start = Clock::now();
  const pid_t child = ::fork();
  if (child < 0) throw systemError("fork");
  if (child == 0) become(attack, surroundings, folder, output.writeEnd());
  output.closeWriteEnd();
  int status = 0;
  bool timedOut = false;
  while (::waitpid(child, &status, WNOHANG) != child) {
    output.take();
    if (secondsSince(start) > attack.limitSeconds) {
      timedOut = true;
      ::kill(-child, SIGKILL);
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      break;
    }
    pause();
  }
  Result result;
  result.seconds = secondsSince(start);
  const std::string left = whatIsLeft();
  output.take();
  result.output = output.text();
  const std::string said = lastLine(result.output);
  const auto because = [&](const std::string& what) {
    result.verdict = Verdict::kFailed;
    result.why = said.empty() ? what : what + "; last said: " + said;
  };
  if (timedOut) {
    because(fmt::format("did not end in {} s", attack.limitSeconds));
  } else if (WIFEXITED(status) && WEXITSTATUS(status) == kSkippedStatus) {
    result.verdict = Verdict::kSkipped;
    result.why = said;
  } else if (WIFSIGNALED(status)) {
    const bool told = attack.mayEndWithMessage && WTERMSIG(status) == SIGABRT &&
                      saysSomethingOfGmac(result.output);
    result.verdict = Verdict::kPassed;
    if (!told) because(fmt::format("killed by SIG{}", sigabbrev_np(WTERMSIG(status))));
  } else if (WEXITSTATUS(status) != 0) {
    because(fmt::format("ended with {}", WEXITSTATUS(status)));
  } else {
    result.verdict = Verdict::kPassed;
  }
  if (!left.empty() && !timedOut) because("left a process: " + left);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return result;
}

}  // namespace attack
