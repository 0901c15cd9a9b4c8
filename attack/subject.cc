// SPDX-License-Identifier: Apache-2.0
#include "attack/subject.h"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace attack {
namespace {

std::vector<Attack>& registry() {
  static std::vector<Attack> attacks;
  return attacks;
}

constexpr int kFailed = 1;
constexpr int kSkipped = 77;

[[noreturn]] void end(int status, const char* word, const std::string& why) {
  const std::string line = fmt::format("{}: {}\n", word, why);
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
  ::_exit(status);
}

constexpr adsmDim_t kOne = {1, 1, 1};

void addBlock(const adsmThreadBlock_t* block, void** args) {
  auto* const words = *static_cast<std::uint32_t**>(args[0]);
  const std::size_t count = *static_cast<std::size_t*>(args[1]);
  const std::uint32_t by = *static_cast<std::uint32_t*>(args[2]);
  const std::size_t share = (count + block->gridDim.x - 1) / block->gridDim.x;
  const std::size_t begin = share * block->blockIdx.x;
  for (std::size_t i = begin; i < begin + share && i < count; ++i) words[i] += by;
}

void sleepBlock(const adsmThreadBlock_t*, void** args) {
  timespec left = {};
  const unsigned milliseconds = *static_cast<unsigned*>(args[0]);
  left.tv_sec = milliseconds / 1000;
  left.tv_nsec = milliseconds % 1000 * 1000000L;
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

adsmError_t makeKernel(const char* name, adsmHostKernel_t function,
                       const std::vector<std::size_t>& sizes, adsmKernel_t* kernel) {
  adsmKernelDesc_t desc = {};
  desc.name = name;
  desc.paramCount = sizes.size();
  desc.paramSizes = sizes.data();
  desc.host = function;
  return adsmKernelCreate(&desc, kernel);
}

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  if (DIR* const opened = ::opendir(folder); opened != nullptr) {
    while (const dirent* entry = ::readdir(opened)) count += entry->d_name[0] != '.' ? 1 : 0;
    ::closedir(opened);
  }
  return count;
}

// Reads what the child says until it ends or the time is over.
End waitFor(pid_t child, int output, int seconds) {
  End end;
  const double limit = now() + seconds;
  char buffer[4096];
  int status = 0;
  bool open = true;
  for (;;) {
    pollfd watched{output, POLLIN, 0};
    if (open && ::poll(&watched, 1, 10) > 0) {
      const ssize_t count = ::read(output, buffer, sizeof buffer);
      if (count > 0) end.output.append(buffer, static_cast<std::size_t>(count));
      open = count > 0;
      if (count > 0) continue;
    } else if (!open) {
      pause(0.005);
    }
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (now() > limit) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      end.timedOut = true;
      break;
    }
  }
  // Reads its last words; others may hold the pipe open still.
  for (;;) {
    pollfd watched{output, POLLIN, 0};
    if (!open || ::poll(&watched, 1, 0) <= 0) break;
    const ssize_t count = ::read(output, buffer, sizeof buffer);
    if (count <= 0) break;
    end.output.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(output);
  if (WIFEXITED(status)) end.exitStatus = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

// One number of /proc/self/status.
std::size_t statusNumber(const std::string& field) {
  const std::string text = contents("/proc/self/status");
  const std::size_t at = text.find("\n" + field + ":");
  return at == std::string::npos ? 0
                                 : std::strtoul(text.c_str() + at + field.size() + 2, nullptr, 10);
}

}  // namespace

Registration::Registration(Attack attack) { registry().push_back(std::move(attack)); }
Registration::Registration(std::vector<Attack> attacks) {
  for (Attack& attack : attacks) registry().push_back(std::move(attack));
}
const std::vector<Attack>& all() { return registry(); }

int wantedSeconds() {
  const char* const wanted = std::getenv("GMAC_TEST_SECONDS");
  return wanted != nullptr ? std::atoi(wanted) : 20;
}

void endFailed(const std::string& why) { end(kFailed, "failed", why); }
void endSkipped(const std::string& why) { end(kSkipped, "skipped", why); }

void check(adsmError_t error, const char* what) {
  require(error == adsmSuccess, "{}: {}: {}", what, adsmErrorName(error), adsmLastErrorString());
}

std::uint32_t* allocate(std::size_t words) {
  void* const object = adsmAlloc(words * sizeof(std::uint32_t));
  require(object != nullptr, "adsmAlloc({}): {}", words * sizeof(std::uint32_t),
          adsmLastErrorString());
  return static_cast<std::uint32_t*>(object);
}

adsmError_t tryAdd(std::uint32_t* p, std::size_t words, std::uint32_t by) {
  static adsmKernel_t kernel = nullptr;
  if (kernel == nullptr) {
    const adsmError_t error = makeKernel("add", &addBlock, {8, 8, 4}, &kernel);
    if (error != adsmSuccess) return error;
  }
  void* args[] = {&p, &words, &by};
  return adsmCall(kernel, {4, 1, 1}, kOne, 0, args);
}
void add(std::uint32_t* p, std::size_t words, std::uint32_t by) {
  check(tryAdd(p, words, by), "adsmCall");
}

void sleepOn(std::uint32_t* p, unsigned milliseconds) {
  static adsmKernel_t kernel = nullptr;
  if (kernel == nullptr) check(makeKernel("sleep", &sleepBlock, {4}, &kernel), "adsmKernelCreate");
  void* args[] = {&milliseconds};
  const adsmUse_t use = {p, adsmReadWrite};
  check(adsmCallUsing(kernel, kOne, kOne, 0, args, &use, 1), "adsmCallUsing");
}

adsmError_t runKernel(const char* name, adsmHostKernel_t function, const void* used) {
  adsmKernel_t kernel = nullptr;
  check(makeKernel(name, function, {}, &kernel), "adsmKernelCreate");
  const adsmUse_t use{used, adsmReadWrite};
  const adsmError_t called = used != nullptr
                                 ? adsmCallUsing(kernel, kOne, kOne, 0, nullptr, &use, 1)
                                 : adsmCall(kernel, kOne, kOne, 0, nullptr);
  return called == adsmSuccess ? adsmSync() : called;
}

void sync() { check(adsmSync(), "adsmSync"); }

void work() {
  std::string why;
  require(workOrError(&why), "{}", why);
}

bool workOrError(std::string* why) {
  constexpr std::size_t kWords = std::size_t{1} << 20;
  const auto failed = [&](const char* what, adsmError_t error) {
    require(*adsmLastErrorString() != '\0', "{} failed without a text", what);
    *why = fmt::format("{}: {}: {}", what, adsmErrorName(error), adsmLastErrorString());
    return false;
  };
  auto* const words = static_cast<std::uint32_t*>(adsmAlloc(kWords * sizeof(std::uint32_t)));
  if (words == nullptr) return failed("adsmAlloc", adsmLastError());
  for (std::size_t i = 0; i < kWords; ++i) words[i] = static_cast<std::uint32_t>(i);
  for (std::uint32_t round = 1; round <= 3; ++round) {
    if (const adsmError_t error = tryAdd(words, kWords, 1); error != adsmSuccess) {
      return failed("adsmCall", error);
    }
    if (const adsmError_t error = adsmSync(); error != adsmSuccess) {
      return failed("adsmSync", error);
    }
    for (std::size_t i = 0; i < kWords; i += 777) {
      require(words[i] == i + round, "word {} is {}, not {}", i, words[i], i + round);
    }
  }
  if (const adsmError_t error = adsmFree(words); error != adsmSuccess) {
    return failed("adsmFree", error);
  }
  return true;
}

std::vector<pid_t> deviceProcesses() {
  const pid_t starter = ::getppid();
  const std::string mine = std::to_string(::getpid());
  DIR* const processes = ::opendir("/proc");
  std::vector<pid_t> found;
  while (const dirent* entry = processes != nullptr ? ::readdir(processes) : nullptr) {
    const pid_t process = std::atoi(entry->d_name);
    if (process <= 0 || mine == entry->d_name) continue;
    const std::string text = contents(fmt::format("/proc/{}/stat", process));
    const std::size_t nameEnd = text.rfind(')');
    if (nameEnd == std::string::npos || text.find("(gmac-device)") == std::string::npos) continue;
    char state = 0;
    int parent = 0;
    if (std::sscanf(text.c_str() + nameEnd + 1, " %c %d", &state, &parent) == 2 &&
        parent == starter && state != 'Z') {
      found.push_back(process);
    }
  }
  if (processes != nullptr) ::closedir(processes);
  std::sort(found.begin(), found.end());
  return found;
}

pid_t devicePid() {
  const std::vector<pid_t> devices = deviceProcesses();
  return devices.empty() ? 0 : devices.back();
}

std::string End::text() const {
  const std::string how = timedOut      ? "did not end"
                          : signal != 0 ? fmt::format("was killed by SIG{}", sigabbrev_np(signal))
                                        : fmt::format("ended with {}", exitStatus);
  std::string last = output.substr(0, output.find_last_not_of('\n') + 1);
  last = last.substr(last.find_last_of('\n') + 1);
  return last.empty() ? how : how + ", saying: " + last;
}

End inChild(const std::function<void()>& function, int seconds) {
  int ends[2];
  require(::pipe(ends) == 0, "pipe: {}", std::strerror(errno));
  const pid_t child = ::fork();
  require(child >= 0, "fork: {}", std::strerror(errno));
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    if (ends[1] > STDERR_FILENO) ::close(ends[1]);
    function();
    ::_exit(0);
  }
  ::close(ends[1]);
  return waitFor(child, ends[0], seconds);
}

End runProgram(const std::vector<std::string>& words, int seconds,
               const std::vector<std::string>& removed) {
  int ends[2];
  require(::pipe(ends) == 0, "pipe: {}", std::strerror(errno));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  require(child >= 0, "fork: {}", std::strerror(errno));
  if (child == 0) {
    for (const std::string& name : removed) ::unsetenv(name.c_str());
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execvp(arguments[0], arguments.data());
    std::perror(arguments[0]);
    ::_exit(127);
  }
  ::close(ends[1]);
  return waitFor(child, ends[0], seconds);
}

std::string besideMe(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}
std::string libraryPath() {
  const char* const preloaded = std::getenv("LD_PRELOAD");
  return preloaded != nullptr ? preloaded : "libgmac.so";
}

std::string find(const std::string& program) {
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH")
                                                            : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = fmt::format("{}/{}", folder, program);
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

double now() {
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void pause(double seconds) {
  timespec left = {
      static_cast<time_t>(seconds),
      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

bool waitUntil(const std::function<bool()>& isTrue, double seconds) {
  for (const double limit = now() + seconds; !isTrue();) {
    if (now() > limit) return false;
    pause(0.002);
  }
  return true;
}

bool sleeps(pid_t thread) {
  const std::string text = contents(fmt::format("/proc/self/task/{}/stat", thread));
  const std::size_t nameEnd = text.rfind(')');
  return nameEnd != std::string::npos && text.compare(nameEnd, 3, ") S") == 0;
}

std::size_t countMappings() {
  const std::string text = contents("/proc/self/maps");
  std::size_t lines = 0;
  for (const char letter : text) lines += letter == '\n' ? 1 : 0;
  return lines;
}
std::size_t countDescriptors() { return entries("/proc/self/fd"); }
std::size_t countThreads() { return entries("/proc/self/task"); }
std::size_t residentKiB() { return statusNumber("VmRSS"); }

}  // namespace attack

// subject --list: every attack with its limit and how it may end. subject NAME: makes that attack.
int main(int argc, char** argv) {
  if (argc != 2) return 97;
  const bool list = std::strcmp(argv[1], "--list") == 0;
  for (const attack::Attack& one : attack::all()) {
    // A name that begins with a point is a part of another attack, in a process of its own.
    const bool isPart = one.name.find("/.") != std::string::npos;
    if (list && !isPart) {
      fmt::print("{}\t{}\t{}\n", one.name, one.limitSeconds,
                 one.ending == attack::Ending::kOrWithMessage ? "message" : "well");
    } else if (!list && one.name == argv[1]) {
      one.run();
      return 0;
    }
  }
  return list ? 0 : 97;
}
