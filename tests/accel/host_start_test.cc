// SPDX-License-Identifier: Apache-2.0
//
// The device process's start and end, whatever else the application and its threads are doing.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "gmac/accel/host/host_accelerator.h"
#include "tests/accel/device_process.h"

namespace gmac::accel::conformance {
namespace {

namespace fs = std::filesystem;

Result<std::unique_ptr<Accelerator>> makeSmall(unsigned threads = 2) {
  HostOptions options;
  options.memoryBytes = std::size_t{64} << 20;
  options.threads = threads;
  return makeHostAccelerator(options);
}

// A library with one kernel, made by the C compiler; NULL where there is none.
class Library {
 public:
  // `name` is unlike those of other libraries of this process.
  Library(const std::string& name, const std::string& source)
      : folder_(fs::path(::testing::TempDir()) / ("gmac_" + name + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "library.c")
        << source << "\nvoid kernel(const void* block, void** args) {}\n";
    const std::string command =
        "cc -shared -fPIC -o " + path() + " " + (folder_ / "library.c").string() + " 2>/dev/null";
    made_ = system(command.c_str()) == 0;
  }
  ~Library() { fs::remove_all(folder_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool made() const { return made_; }
  std::string path() const { return (folder_ / "library.so").string(); }
  fs::path folder() const { return folder_; }
  // Loads the library into this process and describes its kernel.
  adsmKernelDesc_t load() const {
    void* const handle = dlopen(path().c_str(), RTLD_NOW);
    adsmKernelDesc_t desc{};
    desc.name = "kernel";
    desc.host =
        handle == nullptr ? nullptr : reinterpret_cast<adsmHostKernel_t>(dlsym(handle, "kernel"));
    return desc;
  }

 private:
  const fs::path folder_;
  bool made_ = false;
};

// ---- The start is not noticed

std::atomic<int> childSignals{0};

TEST(HostStart, IsToldByNoSignalAndNoWait) {
  childSignals = 0;
  struct sigaction before;
  struct sigaction counting {};
  counting.sa_handler = [](int) { ++childSignals; };
  ASSERT_EQ(sigaction(SIGCHLD, &counting, &before), 0);
  const pid_t own = fork();
  if (own == 0) {
    while (true) pause();
  }
  pid_t waited = 0;
  std::thread waiter([&] {
    int status = 0;
    while ((waited = waitpid(-1, &status, 0)) < 0 && errno == EINTR) {
    }
  });
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(makeSmall().ok()) << lastErrorText();
  }
  EXPECT_EQ(childSignals, 0);
  kill(own, SIGKILL);
  waiter.join();
  EXPECT_EQ(waited, own);
  sigaction(SIGCHLD, &before, nullptr);
}

TEST(HostStart, LeavesNoChildOfAnyKind) {
  ASSERT_TRUE(makeSmall().ok()) << lastErrorText();
  EXPECT_EQ(waitpid(-1, nullptr, __WALL | WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// The first process of a container is such a one.
TEST(HostStart, IsToldByNoWaitOfAProcessThatGetsOrphans) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer has a thread of its own: a process with several is told";
#endif
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // if it waits for ever
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) _exit(1);
    const auto noChild = [](int options) {
      return waitpid(-1, nullptr, WNOHANG | options) == -1 && errno == ECHILD;
    };
    {
      const auto made = makeSmall();
      if (!made.ok()) _exit(2);
      if (!noChild(0)) _exit(3);
      // It still gets the others'.
      const pid_t parent = fork();
      if (parent == 0) {
        if (fork() == 0) usleep(100000);
        _exit(0);
      }
      int waited = 0;
      while (waitpid(-1, nullptr, 0) > 0) ++waited;
      if (waited != 2) _exit(4);
    }
    _exit(noChild(__WALL) ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(HostStart, NeedsNoDevicesUnderTheApplicationsRoot) {
  const fs::path root = fs::path(::testing::TempDir()) / ("gmac_root" + std::to_string(getpid()));
  fs::create_directories(root);
  constexpr int kCannot = 77;
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(root.c_str()) != 0) _exit(1);
    if (chroot(".") != 0 && (unshare(CLONE_NEWUSER) != 0 || chroot(".") != 0)) _exit(kCannot);
    const auto made = makeSmall();
    if (!made.ok()) std::fprintf(stderr, "%s\n", lastErrorText());
    _exit(made.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  fs::remove_all(root);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "this process may not change its root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The next child of such a thread is the first process of another namespace: if that were the
// library's, the program could have no more children once it had ended. The thread can have no
// threads either.
TEST(HostStart, LeavesANewNamespaceOfProcessesToTheProgram) {
  constexpr int kCannot = 77;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(kCannot);
    const auto made = makeSmall();
    if (made.ok()) _exit(1);
    const std::string why = lastErrorText();
    std::fprintf(stderr, "%s\n", why.c_str());
    if (why.find("unshare(CLONE_NEWPID)") == std::string::npos) _exit(2);
    const pid_t first = fork();
    if (first == 0) _exit(getpid() == 1 ? 0 : 3);
    int status = 0;
    if (first < 0 || waitpid(first, &status, 0) != first) _exit(4);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kCannot)
    GTEST_SKIP() << "needs root or user namespaces, which this container refuses";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

std::atomic<int> forkHandlersRun{0};

TEST(HostStart, RunsForkHandlersAsAnyForkDoes) {
  static const int registered =
      pthread_atfork([] { ++forkHandlersRun; }, [] { ++forkHandlersRun; }, nullptr);
  ASSERT_EQ(registered, 0);
  forkHandlersRun = 0;
  ASSERT_TRUE(makeSmall().ok()) << lastErrorText();
  EXPECT_EQ(forkHandlersRun, 2);
}

// ---- Other threads hold locks

// A thread that is inside dl_iterate_phdr(), and holds the dynamic linker's lock, from the moment
// when a fork has begun until it is done.
class LoaderHolder {
 public:
  static LoaderHolder& get() {
    static LoaderHolder holder;
    return holder;
  }
  void arm() { armed_ = true; }

 private:
  LoaderHolder() {
    pthread_atfork([] { get().hold(); }, [] { get().letGo(); }, nullptr);
  }
  void hold() {
    if (!armed_.exchange(false)) {
      return;
    }
    release_ = false;
    held_ = false;
    holding_ = true;
    thread_ = std::thread([this] {
      dl_iterate_phdr(
          [](dl_phdr_info*, std::size_t, void* data) {
            auto* const self = static_cast<LoaderHolder*>(data);
            self->held_ = true;
            self->held_.notify_all();
            self->release_.wait(false);
            return 1;
          },
          this);
    });
    held_.wait(false);
  }
  void letGo() {
    if (!holding_) {
      return;
    }
    holding_ = false;
    release_ = true;
    release_.notify_all();
    thread_.join();
  }

  std::atomic<bool> armed_{false};
  std::atomic<bool> held_{false};
  std::atomic<bool> release_{false};
  bool holding_ = false;
  std::thread thread_;
};

TEST(HostStart, AndALibraryLoadedLaterWorkWhereAnotherThreadHeldTheLoadersLock) {
  const Library library("late", "");
  if (!library.made()) {
    GTEST_SKIP() << "no C compiler here to make a library with";
  }
  LoaderHolder::get().arm();
  auto made = makeSmall();
  ASSERT_TRUE(made.ok()) << lastErrorText();
  const adsmKernelDesc_t desc = library.load();
  ASSERT_NE(desc.host, nullptr) << dlerror();
  const auto kernel = (*made)->load(desc);
  EXPECT_TRUE(kernel.ok()) << lastErrorText();
}

// ---- Limits

#if !defined(GMAC_SANITIZED)
TEST(HostStart, ThatCannotStartAllItsThreadsFailsWithAReasonAndLeavesNoProcess) {
  const pid_t application = fork();
  if (application == 0) {
    const rlimit limit{std::size_t{1} << 30, std::size_t{1} << 30};
    setrlimit(RLIMIT_AS, &limit);
    const auto made = makeSmall(1000);
    const std::string text = lastErrorText();
    const bool told = !made.ok() && made.status().code() == adsmErrorSystem &&
                      text.find("cannot be started") != std::string::npos &&
                      text.find("GMAC_HOST_THREADS") != std::string::npos;
    // The process says why before it is gone.
    for (int i = 0; i < 1000 && deviceProcessOf(getpid()) != 0; ++i) usleep(10'000);
    const bool gone = deviceProcessOf(getpid()) == 0;
    fprintf(stderr, "%s; gone: %d\n", text.c_str(), gone);
    _exit(told && gone ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(application, &status, 0), application);
  EXPECT_EQ(status, 0);
}
#endif

// ---- The end

TEST(HostEnd, ComesWithTheApplicationsWhileALibrarysConstructorNeverReturns) {
  const fs::path reached = fs::path(::testing::TempDir()) / ("gmac_in_" + std::to_string(getpid()));
  const Library library(
      "hanging",
      "#include <fcntl.h>\n#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n"
      "__attribute__((constructor)) static void hang(void) {\n"
      "  char name[32] = \"\";\n"
      "  FILE* file = fopen(\"/proc/self/comm\", \"r\");\n"
      "  if (file == NULL || fgets(name, sizeof name, file) == NULL || "
      "strcmp(name, \"gmac-device\\n\") != 0) return;\n"
      "  close(open(\"" +
          reached.string() +
          "\", O_CREAT | O_WRONLY, 0600));\n"
          "  for (;;) pause();\n"
          "}\n");
  if (!library.made()) {
    GTEST_SKIP() << "no C compiler here to make a library with";
  }
  fs::remove(reached);
  const pid_t application = fork();
  if (application == 0) {
    auto made = makeSmall();
    if (made.ok()) {
      (void)(*made)->load(library.load());
    }
    fprintf(stderr, "%s\n", lastErrorText());
    _exit(1);
  }
  while (!fs::exists(reached)) {
    ASSERT_EQ(waitpid(application, nullptr, WNOHANG), 0) << "the application has ended";
    usleep(10'000);
  }
  const Watched device(deviceProcessOf(application));
  EXPECT_TRUE(device.found());
  kill(application, SIGKILL);
  EXPECT_TRUE(!device.found() || device.ends());
  waitpid(application, nullptr, 0);
  fs::remove(reached);
}

}  // namespace
}  // namespace gmac::accel::conformance
