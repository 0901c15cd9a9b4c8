// SPDX-License-Identifier: Apache-2.0
//
// The calls of the driver and of the system that a launch and its wait make, counted over the fake
// driver: the fixed cost of a program with many small kernels. The program is a child that its
// parent traces. Needs no GPU.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>

#include "gmac/api/adsm.h"
#include "gmac/api/adsm_datatype.h"
#include "gmac/coherence/shared_memory.h"
#include "gmac/session/device_memory.h"
#include "tests/cuda/application_test.h"
#include "tests/cuda/fake_pack_kernels.h"
#include "tests/cuda/fake_program.h"

namespace gmac {
namespace {

const bool kPrepared = fake_cuda::prepare();

constexpr int kRounds = 64;

// Of kRounds rounds, by the first thread of the program.
struct Cost {
  std::size_t driverCalls = 0;
  std::size_t systemCalls = 0;
};

class Program : public fake_cuda::ApplicationTest {
 public:
  Program() { SetUp(); }
  void TestBody() override {}

  // A launch of the application's own, and its wait. No byte of the object is the CPU's.
  void launchAndWait() {
    launch(stream_, object_);
    EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  }
  void launchAgain() { launch(stream_, object_); }
  void launchAndAsk() {
    launch(stream_, object_);
    void* address = nullptr;
    EXPECT_EQ(DRIVER(cuPointerGetAttribute)(&address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                            reinterpret_cast<CUdeviceptr>(object_)),
              CUDA_SUCCESS);
    EXPECT_EQ(address, object_);
  }
  void allocateStoreAndFree() {
    auto* const object = static_cast<std::uint32_t*>(adsmAlloc(fake_cuda::kBytes));
    ASSERT_NE(object, nullptr) << adsmLastErrorString();
    object[0] = 1;
    EXPECT_EQ(object[1], 0u);
    EXPECT_EQ(adsmFree(object), adsmSuccess) << adsmLastErrorString();
  }
  void callAndSync() {
    if (kernel_ == nullptr) {
      adsmKernelDesc_t desc{};
      desc.name = "increment";
      desc.cudaImage = &fake_cuda::kImage;
      desc.cudaName = "increment";
      desc.paramSizes = fake_cuda::kSizes;
      desc.paramCount = 2;
      ASSERT_EQ(adsmKernelCreate(&desc, &kernel_), adsmSuccess) << adsmLastErrorString();
    }
    void* data = object_;
    std::uint64_t count = 1;
    void* args[] = {&data, &count};
    ASSERT_EQ(adsmCall(kernel_, {1, 1, 1}, {1, 1, 1}, 0, args), adsmSuccess)
        << adsmLastErrorString();
    ASSERT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
  }

  // Another process is lent an object on the device, and gives it back.
  void lendOnDevice() {
    makeSharedObjects();
    gmacDeviceLoan loan{};
    int lent = 0;
    ASSERT_EQ(gmacLendOnDevice(from_, fake_cuda::kBytes, &loan, &lent), adsmSuccess)
        << adsmLastErrorString();
    ASSERT_EQ(lent, 1);
    gmacGiveBackOnDevice(from_, fake_cuda::kBytes, &loan);
  }
  // As messages do it.
  void packOnDevice() {
    makeSharedObjects();
    adsmPackEvent_t event = nullptr;
    adsmPackOptions_t options{};
    options.size = sizeof options;
    options.event = &event;
    ASSERT_EQ(adsmPackWith(to_, from_, fake_cuda::kBytes, ADSM_TYPE_1, &options), adsmSuccess)
        << adsmLastErrorString();
    while (adsmPackDone(event) == 0) {
    }
    ASSERT_EQ(adsmPackWait(event), adsmSuccess) << adsmLastErrorString();
  }

 private:
  // Current on the device.
  void makeSharedObjects() {
    if (from_ != nullptr) return;
    gmacShareDeviceMemory();
    fake_cuda::standIn(&fake_cuda::packImage());
    for (std::uint32_t** const object : {&from_, &to_}) {
      *object = static_cast<std::uint32_t*>(adsmAlloc(fake_cuda::kBytes));
      ASSERT_NE(*object, nullptr) << adsmLastErrorString();
      launch(stream_, *object);
      ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    }
  }

  adsmKernel_t kernel_ = nullptr;
  std::uint32_t* from_ = nullptr;
  std::uint32_t* to_ = nullptr;
};

// The mark that begins and ends the count: nothing else makes this call.
void mark() { (void)::getpgid(0); }
constexpr long kMark = SYS_getpgid;

// What a wait does that takes long, because the machine does other things (accel/backoff.h).
bool isPause(long call) {
  return call == SYS_sched_yield || call == SYS_nanosleep || call == SYS_clock_nanosleep;
}

[[noreturn]] void runTraced(void (Program::*round)(), bool withHandler, std::size_t* driverCalls) {
  Program program;
  if (withHandler) std::signal(SIGUSR1, [](int) {});
  for (int i = 0; i < 3; ++i) (program.*round)();
  ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  ::raise(SIGSTOP);
  const std::size_t before = fake_cuda::calls(nullptr);
  mark();
  for (int i = 0; i < kRounds; ++i) (program.*round)();
  mark();
  *driverCalls = fake_cuda::calls(nullptr) - before;
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

Cost costOf(void (Program::*round)(), bool withHandler = false) {
  Cost cost;
  auto* const shared = static_cast<std::size_t*>(::mmap(
      nullptr, sizeof(std::size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  EXPECT_NE(shared, MAP_FAILED);
  const pid_t child = ::fork();
  if (child == 0) runTraced(round, withHandler, shared);
  int status = 0;
  bool enters = true;
  bool counts = false;
  while (::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      user_regs_struct registers{};
      ::ptrace(PTRACE_GETREGS, child, nullptr, &registers);
      if (enters && static_cast<long>(registers.orig_rax) == kMark) {
        counts = !counts;
      } else if (enters && counts && !isPause(static_cast<long>(registers.orig_rax))) {
        ++cost.systemCalls;
      }
      enters = !enters;
    }
    ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
    const int signal = WSTOPSIG(status);
    const bool ofTracing = signal == (SIGTRAP | 0x80) || signal == SIGTRAP || signal == SIGSTOP;
    ::ptrace(PTRACE_SYSCALL, child, nullptr, static_cast<std::intptr_t>(ofTracing ? 0 : signal));
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  cost.driverCalls = *shared;
  ::munmap(shared, sizeof(std::size_t));
  return cost;
}

// In a build with the walker, or a sanitizer, which has it.
#if GMAC_WALK
#define GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED() \
  GTEST_SKIP() << "the walker reads the kernel's table of mappings"
#else
#define GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED() static_cast<void>(0)
#endif

// The launch, the mark after it and the wait; whether the stream is capturing; the thread's context
// and the stream's, before the launch and the wait (the driver has several devices); and the
// thread's context and twice its capture mode for the mark.
TEST(LaunchCost, ALaunchOfTheApplicationsMakesNoSystemCallAndAsksTheDriverForLittle) {
  GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED();
  const Cost cost = costOf(&Program::launchAndWait);
  EXPECT_LE(cost.driverCalls, 11u * kRounds);
  EXPECT_EQ(cost.systemCalls, 0u);
}

// The launch, the thread's context and the stream's (the driver has several devices).
TEST(LaunchCost, ALaunchAfterAnotherOneNeedsNeitherAMarkNorASystemCall) {
  GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED();
  const Cost cost = costOf(&Program::launchAgain);
  EXPECT_LE(cost.driverCalls, 3u * kRounds);
  EXPECT_EQ(cost.systemCalls, 0u);
}

// The same and the question itself.
TEST(LaunchCost, AQuestionAboutAnAddressEndsNothingOfThat) {
  GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED();
  const Cost cost = costOf(&Program::launchAndAsk);
  EXPECT_LE(cost.driverCalls, 4u * kRounds);
  EXPECT_EQ(cost.systemCalls, 0u);
}

// The launch, the mark after it, a question whether it has ended, what has the device tell of its
// end, and a question after that (this driver's work goes on when it is asked only); the thread's
// context and twice its capture mode, for the call and the wait.
TEST(LaunchCost, ACallMakesNoSystemCallAndAsksTheDriverForLittle) {
  GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED();
  const Cost cost = costOf(&Program::callAndSync);
  EXPECT_LE(cost.driverCalls, 11u * kRounds);
  EXPECT_EQ(cost.systemCalls, 0u);
}

// Of a message of an object to another process, what its two sides do with the objects.
TEST(LaunchCost, ALoanOnTheDeviceAsksNeitherTheSystemNorTheDriver) {
  GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED();
  const Cost cost = costOf(&Program::lendOnDevice);
  EXPECT_EQ(cost.driverCalls, 0u);
  EXPECT_EQ(cost.systemCalls, 0u);
}

// The kernel, its mark, and one question; the thread's context and twice its capture mode, for both
// and for the wait.
TEST(LaunchCost, APackBetweenObjectsMakesNoSystemCallAndAsksTheDriverForLittle) {
  GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED();
  const Cost cost = costOf(&Program::packOnDevice);
  EXPECT_LE(cost.driverCalls, 9u * kRounds);
  EXPECT_EQ(cost.systemCalls, 0u);
}

// In kept memory, which the accelerator has not got. The pages are opened in a fault, and closed;
// signals are blocked for the allocation and for the free.
TEST(LaunchCost, AnObjectThatTheCpuAloneUsesAsksTheDriverForNothing) {
  GMAC_SKIP_WHERE_OBJECTS_ARE_WALKED();
  const Cost cost = costOf(&Program::allocateStoreAndFree);
  EXPECT_EQ(cost.driverCalls, 0u);
  EXPECT_LE(cost.systemCalls, 7u * kRounds);
}

TEST(LaunchCost, WhereTheProgramHasAHandlerItIsKeptOut) {
  EXPECT_GE(costOf(&Program::launchAndWait, true).systemCalls, 2u * kRounds);
  EXPECT_GE(costOf(&Program::launchAgain, true).systemCalls, 2u * kRounds);
  EXPECT_GE(costOf(&Program::callAndSync, true).systemCalls, 2u * kRounds);
  EXPECT_GE(costOf(&Program::lendOnDevice, true).systemCalls, 4u * kRounds);
  EXPECT_GE(costOf(&Program::packOnDevice, true).systemCalls, 2u * kRounds);
}

}  // namespace
}  // namespace gmac
