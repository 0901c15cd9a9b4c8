// SPDX-License-Identifier: Apache-2.0
//
// fork: the child has no shared objects and gets an error; the parent is unaffected.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "tests/support/child.h"

namespace gmac::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void addOne(const adsmThreadBlock_t*, void** args) { ++**static_cast<int**>(args[0]); }

constexpr adsmDim_t kOne = {1, 1, 1};

struct ForkEnd {
  bool exited;
  int status;  // or the signal
  std::string errors;
};

// Forks; what the child says on standard error comes back.
ForkEnd inFork(const std::function<int()>& body, pid_t (*make)() = &fork) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = make();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    _exit(body());
  }
  close(ends[1]);
  ForkEnd end = {};
  char buffer[1024];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
    end.errors.append(buffer, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  end.exited = WIFEXITED(status);
  end.status = end.exited ? WEXITSTATUS(status) : WTERMSIG(status);
  return end;
}

// The tests below, each on the host accelerator in a process of its own, under every protocol.
class Fork : public ::testing::TestWithParam<const char*> {
 protected:
  void expectPasses(const std::string& name, const std::string& suite = "ForkChild") {
    const ChildEnd end = runChild(suite + ".DISABLED_" + name, {{"GMAC_ACCEL", "host"},
                                                                {"GMAC_HOST_MEMORY", "64M"},
                                                                {"GMAC_HOST_THREADS", "2"},
                                                                {"GMAC_BLOCK_SIZE", "4K"},
                                                                {"GMAC_PROTOCOL", GetParam()}});
    EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
    EXPECT_THAT(end.output, HasSubstr("[  PASSED  ] 1 test"));
  }
};

// Types are made without the runtime, before it and in children of fork.
class ForkTypesChild : public ::testing::Test {
 protected:
  // A child that hangs is killed; a busy machine may take long.
  void SetUp() override { alarm(120); }

  // Makes, uses and frees a type.
  static int useType() {
    adsmType_t type = nullptr;
    const char from[6] = {'a', 'b', 'c', 'd', 'e', 'f'};
    char packed[3] = {};
    const bool well = adsmTypeVector(3, 1, 2, ADSM_TYPE_1, &type) == adsmSuccess &&
                      adsmTypeCommit(type) == adsmSuccess &&
                      adsmPack(packed, from, 1, type) == adsmSuccess &&
                      std::memcmp(packed, "ace", 3) == 0 && adsmTypeFree(type) == adsmSuccess;
    if (!well) std::fprintf(stderr, "%s\n", adsmLastErrorString());
    return well ? 0 : 1;
  }
};

// The runtime starts by a fork, which runs the program's handlers.
TEST(ForkHandlers, MayCallTheLibraryWhileTheRuntimeStarts) {
  const ChildEnd end = runChild("ForkHandlersChild.DISABLED_CallTheLibrary",
                                {{"GMAC_ACCEL", "host"}, {"GMAC_HOST_MEMORY", "64M"}});
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
}
std::string toldHandler;
TEST(ForkHandlersChild, DISABLED_CallTheLibrary) {
  const auto handler = [] {
    if (adsmAlloc(64) == nullptr && toldHandler.empty()) toldHandler = adsmLastErrorString();
  };
  ASSERT_EQ(pthread_atfork(handler, handler, handler), 0);
  EXPECT_NE(adsmAlloc(64), nullptr) << adsmLastErrorString();
  EXPECT_THAT(toldHandler, HasSubstr("the runtime is starting, and a handler of pthread_atfork()"));
}

class ForkChild : public ::testing::Test {
 protected:
  void SetUp() override {
    adsmKernelDesc_t desc = {};
    static const std::size_t kSizes[] = {8};
    desc.name = "addOne";
    desc.paramCount = 1;
    desc.paramSizes = kSizes;
    desc.host = &addOne;
    ASSERT_EQ(adsmKernelCreate(&desc, &kernel_), adsmSuccess);
    data_ = static_cast<int*>(adsmAlloc(1 << 20));
    ASSERT_NE(data_, nullptr) << adsmLastErrorString();
    data_[0] = 1;
  }
  void TearDown() override {
    EXPECT_EQ(adsmFree(data_), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(adsmKernelDestroy(kernel_), adsmSuccess) << adsmLastErrorString();
  }
  void callAndExpect(int value) {
    void* args[] = {&data_};
    ASSERT_EQ(adsmCall(kernel_, kOne, kOne, 0, args), adsmSuccess) << adsmLastErrorString();
    ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(data_[0], value);
  }

  adsmKernel_t kernel_ = nullptr;
  int* data_ = nullptr;
};

TEST_P(Fork, AChildThatTouchesAnObjectDiesWithAMessage) { expectPasses("TouchInChild"); }
TEST_F(ForkChild, DISABLED_TouchInChild) {
  for (const bool write : {false, true}) {
    const ForkEnd end = inFork([&] {
      volatile int* byte = data_ + (write ? 5000 : 0);
      if (write) {
        *byte = 99;
      }
      return *byte;
    });
    EXPECT_FALSE(end.exited);
    EXPECT_EQ(end.status, SIGSEGV);
    EXPECT_THAT(end.errors, AllOf(HasSubstr("a child of fork touched shared object"),
                                  HasSubstr(fmt::format("{}", fmt::ptr(data_)))));
  }
  EXPECT_EQ(data_[5000], 0);
  callAndExpect(2);
}

// Children that the fork handlers do not see.
TEST_P(Fork, AChildThatTheCLibraryDoesNotKnowIsToldTheSame) { expectPasses("UnknownChild"); }
TEST_F(ForkChild, DISABLED_UnknownChild) {
  const auto cloned = [] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); };
  for (pid_t (*make)() : {static_cast<pid_t (*)()>(cloned), static_cast<pid_t (*)()>(&_Fork)}) {
    const ForkEnd touched = inFork([&] { return *const_cast<volatile int*>(data_); }, make);
    EXPECT_FALSE(touched.exited);
    EXPECT_EQ(touched.status, SIGSEGV);
    EXPECT_THAT(touched.errors, AllOf(HasSubstr("a child of fork touched shared object"),
                                      HasSubstr(fmt::format("{}", fmt::ptr(data_)))));
    const ForkEnd called = inFork(
        [&] {
          void* args[] = {&data_};
          const bool forked = adsmCall(kernel_, kOne, kOne, 0, args) == adsmErrorForked &&
                              adsmAlloc(100) == nullptr && adsmLastError() == adsmErrorForked &&
                              adsmFree(data_) == adsmErrorForked;
          return forked ? 0 : 1;
        },
        make);
    EXPECT_TRUE(called.exited);
    EXPECT_EQ(called.status, 0) << called.errors;
  }
  callAndExpect(2);
}

TEST_P(Fork, EveryCallInAChildAnswersForked) { expectPasses("CallInChild"); }
TEST_F(ForkChild, DISABLED_CallInChild) {
  const ForkEnd end = inFork([&] {
    void* args[] = {&data_};
    const adsmUse_t use = {data_, adsmRead};
    int wrong = 0;
    const auto expectForked = [&](bool failed, const char* what) {
      if (!failed || adsmLastError() != adsmErrorForked) {
        std::fprintf(stderr, "%s: %s\n", what, adsmErrorName(adsmLastError()));
        ++wrong;
      }
    };
    expectForked(adsmAlloc(1) == nullptr, "adsmAlloc");
    expectForked(adsmAlloc(1 << 20) == nullptr, "adsmAlloc");
    expectForked(adsmSafeAlloc(1 << 20) == nullptr, "adsmSafeAlloc");
    expectForked(adsmSafe(data_) == nullptr, "adsmSafe");
    expectForked(adsmFree(data_) != adsmSuccess, "adsmFree");
    expectForked(adsmCall(kernel_, kOne, kOne, 0, args) != adsmSuccess, "adsmCall");
    expectForked(adsmCallUsing(kernel_, kOne, kOne, 0, args, &use, 1) != adsmSuccess,
                 "adsmCallUsing");
    expectForked(adsmBind(data_, kernel_, adsmRead) != adsmSuccess, "adsmBind");
    expectForked(adsmSync() != adsmSuccess, "adsmSync");
    return wrong;
  });
  EXPECT_TRUE(end.exited);
  EXPECT_EQ(end.status, 0) << end.errors;
  callAndExpect(2);
}

TEST_P(Fork, TheParentGoesOnWhileChildrenComeAndGo) { expectPasses("ParentGoesOn"); }
TEST_F(ForkChild, DISABLED_ParentGoesOn) {
  void* args[] = {&data_};
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(adsmCall(kernel_, kOne, kOne, 0, args), adsmSuccess);
    const ForkEnd end = inFork([] { return 7; });
    EXPECT_TRUE(end.exited);
    EXPECT_EQ(end.status, 7);
    data_[2000] += 1;
    ASSERT_EQ(adsmSync(), adsmSuccess);
    EXPECT_EQ(data_[0], round + 2);
    EXPECT_EQ(data_[2000], round + 1);
  }
}

TEST_P(Fork, WaitSeesTheProgramsOwnChildrenOnly) { expectPasses("WaitSeesNone"); }
TEST_F(ForkChild, DISABLED_WaitSeesNone) {
  callAndExpect(2);
  errno = 0;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// The accelerator's process is a child of fork, too.
TEST_P(Fork, TheRuntimeStartsAfterTypesWereMade) { expectPasses("StartAfter", "ForkTypesChild"); }
TEST_F(ForkTypesChild, DISABLED_StartAfter) {
  EXPECT_EQ(useType(), 0);
  void* const object = adsmAlloc(1 << 20);
  ASSERT_NE(object, nullptr) << adsmLastErrorString();
  std::memset(object, 1, 1 << 20);
  EXPECT_EQ(useType(), 0);
  EXPECT_EQ(adsmFree(object), adsmSuccess);
}

TEST_P(Fork, ChildrenMakeTypesAndForkAgain) { expectPasses("TypesInChildren", "ForkTypesChild"); }
TEST_F(ForkTypesChild, DISABLED_TypesInChildren) {
  EXPECT_EQ(useType(), 0);
  const ForkEnd end = inFork([] {
    alarm(120);
    const ForkEnd grandchild = inFork([] { return useType(); });
    return useType() + (grandchild.exited ? grandchild.status : 1);
  });
  EXPECT_TRUE(end.exited) << end.status;
  EXPECT_EQ(end.status, 0) << end.errors;
}

// (Types and kernels know no protocol.)
TEST(ForkTypes, ChildrenMakeTypesAndKernelsWhateverOtherThreadsDo) {
  // A process makes its tables of types and kernels once, and the first fork may come in the middle
  // of that.
  for (int process = 0; process < 10 && !HasFailure(); ++process) {
    const ChildEnd end =
        runChild("ForkTypesChild.DISABLED_TypesBesideThreads",
                 {{"GMAC_ACCEL", "host"}, {"GMAC_HOST_MEMORY", "64M"}, {"GMAC_HOST_THREADS", "2"}});
    EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
    EXPECT_THAT(end.output, HasSubstr("[  PASSED  ] 1 test"));
  }
}
TEST_F(ForkTypesChild, DISABLED_TypesBesideThreads) {
  const auto makeBoth = [] {
    adsmType_t type = nullptr;
    adsmKernel_t kernel = nullptr;
    adsmKernelDesc_t desc{};
    desc.name = "nothing";
    desc.host = [](const adsmThreadBlock_t*, void**) {};
    return adsmKernelCreate(&desc, &kernel) == adsmSuccess &&
           adsmKernelDestroy(kernel) == adsmSuccess &&
           adsmTypeVector(3, 1, 2, ADSM_TYPE_1, &type) == adsmSuccess &&
           adsmTypeFree(type) == adsmSuccess;
  };
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      EXPECT_TRUE(makeBoth());
    }
  });
  for (int round = 0; round < 100 && !HasFailure(); ++round) {
    const ForkEnd end = inFork([&] {
      alarm(120);
      return makeBoth() ? 0 : 1;
    });
    EXPECT_TRUE(end.exited) << end.status;
    EXPECT_EQ(end.status, 0) << end.errors;
  }
  over = true;
  other.join();
}

INSTANTIATE_TEST_SUITE_P(, Fork, ::testing::Values("batch", "lazy", "rolling"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gmac::testing
