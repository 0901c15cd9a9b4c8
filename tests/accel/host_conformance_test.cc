// SPDX-License-Identifier: Apache-2.0
//
// The conformance suite on the host accelerator, and the promises that only a device process can
// make.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "gmac/accel/group/group.h"
#include "gmac/accel/host/host_accelerator.h"
#include "tests/accel/conformance.h"
#include "tests/accel/device_process.h"

namespace gmac::accel::conformance {
namespace {

// ---- Kernels

template <typename T>
T argument(void** args, std::size_t i) {
  return *static_cast<T*>(args[i]);
}

void increment(const adsmThreadBlock_t* block, void** args) {
  auto* const data = argument<std::uint32_t*>(args, 0);
  const auto count = argument<std::uint64_t>(args, 1);
  const auto by = argument<std::uint32_t>(args, 2);
  for (std::uint64_t t = 0; t < block->blockDim.x; ++t) {
    const std::uint64_t i = std::uint64_t{block->blockIdx.x} * block->blockDim.x + t;
    if (i < count) {
      data[i] += by;
    }
  }
}

void sumList(const adsmThreadBlock_t* /*block*/, void** args) {
  std::uint64_t sum = 0;
  for (const Node* node = argument<const Node*>(args, 0); node != nullptr; node = node->next) {
    sum += node->value;
  }
  *argument<std::uint64_t*>(args, 1) = sum;
}

void reverseBlocks(const adsmThreadBlock_t* block, void** args) {
  auto* const data =
      argument<std::uint32_t*>(args, 0) + std::size_t{block->blockIdx.x} * block->blockDim.x;
  auto* const shared = static_cast<std::uint32_t*>(block->shared);
  for (unsigned t = 0; t < block->blockDim.x; ++t) {
    shared[t] = data[t];
  }
  for (unsigned t = 0; t < block->blockDim.x; ++t) {
    data[t] = shared[block->blockDim.x - 1 - t];
  }
}

std::uint32_t addend = 0;

void addConstant(const adsmThreadBlock_t* block, void** args) {
  auto* const data = argument<std::uint32_t*>(args, 0);
  const auto count = argument<std::uint64_t>(args, 1);
  for (std::uint64_t i = 0; block->blockIdx.x == 0 && i < count; ++i) {
    data[i] += addend;
  }
}

void storeWide(const adsmThreadBlock_t* /*block*/, void** args) {
  const auto* const wide = static_cast<const Wide*>(args[0]);
  std::copy(wide->words.begin(), wide->words.end(), argument<std::uint64_t*>(args, 1));
}

// The sanitizers would report the crash that is wanted.
__attribute__((no_sanitize("address", "undefined", "thread"))) void poke(
    const adsmThreadBlock_t* /*block*/, void** args) {
  **static_cast<std::uint32_t* volatile*>(args[0]) = 1;
}

void throwSomething(const adsmThreadBlock_t* block, void** /*args*/) {
  if (block->blockIdx.x == 3) {
    throw std::runtime_error("block 3 has had enough");
  }
}

// (uint64_t* counter, uint64_t* errors): counts blocks, and those whose coordinates do not fit
// their grid.
void countBlocks(const adsmThreadBlock_t* block, void** args) {
  __atomic_fetch_add(argument<std::uint64_t*>(args, 0), 1, __ATOMIC_RELAXED);
  const std::uint64_t place =
      block->blockIdx.x +
      std::uint64_t{block->gridDim.x} *
          (block->blockIdx.y + std::uint64_t{block->gridDim.y} * block->blockIdx.z);
  __atomic_fetch_add(argument<std::uint64_t*>(args, 1), place, __ATOMIC_RELAXED);
  if (block->blockIdx.x >= block->gridDim.x || block->blockIdx.y >= block->gridDim.y ||
      block->blockIdx.z >= block->gridDim.z ||
      reinterpret_cast<std::uintptr_t>(block->shared) % 64 != 0) {
    __atomic_fetch_add(argument<std::uint64_t*>(args, 1), std::uint64_t{1} << 60, __ATOMIC_RELAXED);
  }
}

void sleepForever(const adsmThreadBlock_t* /*block*/, void** /*args*/) {
  while (true) {
    pause();
  }
}

void abortKernel(const adsmThreadBlock_t* /*block*/, void** /*args*/) { abort(); }

const std::size_t kPointer = sizeof(void*);
const std::size_t kIncrementSizes[] = {kPointer, sizeof(std::uint64_t), sizeof(std::uint32_t)};
const std::size_t kTwoWords[] = {kPointer, sizeof(std::uint64_t)};
const std::size_t kWideSizes[] = {sizeof(Wide), kPointer};
const adsmConstant_t kAddend[] = {{"addend", sizeof addend, &addend, nullptr}};

adsmKernelDesc_t describe(const char* name, adsmHostKernel_t kernel, const std::size_t* sizes,
                          std::size_t count) {
  adsmKernelDesc_t desc{};
  desc.name = name;
  desc.host = kernel;
  desc.paramSizes = sizes;
  desc.paramCount = count;
  return desc;
}

const adsmKernelDesc_t kIncrement = describe("increment", increment, kIncrementSizes, 3);
const adsmKernelDesc_t kSumList = describe("sumList", sumList, kTwoWords, 2);
const adsmKernelDesc_t kReverseBlocks = describe("reverseBlocks", reverseBlocks, &kPointer, 1);
const adsmKernelDesc_t kAddConstant = [] {
  adsmKernelDesc_t desc = describe("addConstant", addConstant, kTwoWords, 2);
  desc.constantCount = 1;
  desc.constants = kAddend;
  return desc;
}();
const adsmKernelDesc_t kStoreWide = describe("storeWide", storeWide, kWideSizes, 2);
const adsmKernelDesc_t kPoke = describe("poke", poke, &kPointer, 1);
const adsmKernelDesc_t kMissing = describe("onlyForOthers", nullptr, nullptr, 0);
const adsmKernelDesc_t kThrow = describe("throwSomething", throwSomething, nullptr, 0);
const adsmKernelDesc_t kCountBlocks = describe("countBlocks", countBlocks, kTwoWords, 2);
const adsmKernelDesc_t kSleepForever = describe("sleepForever", sleepForever, nullptr, 0);
const adsmKernelDesc_t kAbort = describe("abortKernel", abortKernel, nullptr, 0);

constexpr std::size_t kMemoryBytes = std::size_t{256} << 20;

Result<std::unique_ptr<Accelerator>> makeSmall() {
  HostOptions options;
  options.memoryBytes = kMemoryBytes;
  options.threads = 3;
  return makeHostAccelerator(options);
}

const Kit kHostKit = {"Host",          [] { return std::string(); },
                      makeSmall,       std::size_t{16} << 20,
                      &kIncrement,     &kSumList,
                      &kReverseBlocks, &kAddConstant,
                      &kStoreWide,     &kPoke,
                      &kMissing};

// Three such accelerators as one.
Result<std::unique_ptr<Accelerator>> makeSmallGroup() {
  HostOptions options;
  options.memoryBytes = 3 * kMemoryBytes;
  options.threads = 3;
  auto members = makeHostAccelerators(options, 3);
  return members.ok() ? makeGroup(std::move(*members)) : members.status();
}

const Kit kGroupKit = [] {
  Kit kit = kHostKit;
  kit.name = "Group";
  kit.make = makeSmallGroup;
  return kit;
}();

INSTANTIATE_TEST_SUITE_P(Host, Conformance, testing::Values(&kHostKit, &kGroupKit), kitName);

// ---- The device process

class HostAcceleratorTest : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Host, HostAcceleratorTest, testing::Values(&kHostKit), kitName);

TEST_P(HostAcceleratorTest, TheDeviceProcessIsNoChildOfTheApplication) {
  EXPECT_NE(deviceProcessOf(getpid()), 0);
  EXPECT_EQ(wait(nullptr), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_P(HostAcceleratorTest, TheDeviceProcessEndsWithTheAccelerator) {
  const Watched device(deviceProcessOf(getpid()));
  ASSERT_TRUE(device.found());
  EXPECT_TRUE(device.runs());
  destroyAccelerator();
  EXPECT_TRUE(device.ends());
}

TEST_P(HostAcceleratorTest, TheDeviceProcessEndsWithTheAcceleratorAlsoWhenAKernelNeverDoes) {
  const auto kernel = load(&kSleepForever);
  ASSERT_TRUE(kernel);
  const Ticket ticket = good(accelerator().launch(*kernel, shapeFor(1), nullptr));
  EXPECT_FALSE(accelerator().done(ticket));
  const Watched device(deviceProcessOf(getpid()));
  ASSERT_TRUE(device.found());
  destroyAccelerator();
  EXPECT_TRUE(device.ends());
}

TEST_P(HostAcceleratorTest, InterruptsOfTheTerminalDoNotReachTheDeviceProcess) {
  const pid_t pid = deviceProcessOf(getpid());
  const Watched device(pid);
  ASSERT_TRUE(device.found());
  EXPECT_EQ(getsid(pid), pid);
  for (const int signal : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) {
    ASSERT_EQ(kill(pid, signal), 0);
  }
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  bringIn(object);
  EXPECT_TRUE(device.runs());
}

TEST_P(HostAcceleratorTest, TheDeviceProcessKeepsNoFileOfTheApplication) {
  int pipeEnds[2];
  ASSERT_EQ(pipe(pipeEnds), 0);
  auto second = makeSmall();
  ASSERT_TRUE(second.ok()) << lastErrorText();
  close(pipeEnds[1]);
  char byte = 0;
  EXPECT_EQ(read(pipeEnds[0], &byte, 1), 0) << "somebody still holds the pipe";
  close(pipeEnds[0]);
}

TEST_P(HostAcceleratorTest, AChildOfForkLeavesTheAcceleratorAlone) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const pid_t child = fork();
  if (child == 0) {
    const auto copy = accelerator().copyIn(object.device(), object.runtime(), 64, {});
    const bool refused = !copy.ok() && copy.status().code() == adsmErrorForked &&
                         accelerator().done(Ticket{4}) &&
                         accelerator().wait(Ticket{5}).code() == adsmErrorForked;
    destroyAccelerator();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::memset(object.runtime(), 3, object.bytes());
  bringIn(object);
  std::memset(object.runtime(), 0, object.bytes());
  bringOut(object);
  EXPECT_EQ(object.app()[0], std::byte{3});
}

TEST_P(HostAcceleratorTest, EveryMethodReportsThatTheDeviceProcessWasKilled) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const auto sleeper = load(&kSleepForever);
  const auto kernel = load(&kIncrement);
  const auto constant = load(&kAddConstant);
  ASSERT_TRUE(sleeper && kernel && constant);
  const Ticket never = good(accelerator().launch(*sleeper, shapeFor(1), nullptr));
  const Ticket behind = good(accelerator().copyOut(object.runtime(), object.device(), 64, never));

  const pid_t pid = deviceProcessOf(getpid());
  ASSERT_NE(pid, 0);
  // One thread waits already when it happens.
  std::atomic<adsmError_t> early{adsmSuccess};
  std::thread waiting([&] { early = accelerator().wait(never).code(); });
  const Watched device(pid);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  waiting.join();
  EXPECT_EQ(early, adsmErrorAcceleratorLost);
  ASSERT_TRUE(device.ends());

  const HostMemory memory = object.memory();
  EXPECT_EQ(accelerator().wait(behind).code(), adsmErrorAcceleratorLost);
  EXPECT_NE(std::string(lastErrorText()).find(std::to_string(pid)), std::string::npos)
      << lastErrorText();
  EXPECT_TRUE(accelerator().done(behind));
  EXPECT_EQ(
      accelerator().allocate(pageBytes(), pageBytes(), Placement::kSameAddress).status().code(),
      adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().free(object.device(), object.bytes()).code(), adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().pin(memory).code(), adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().unpin(memory).code(), adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().copyIn(object.device(), object.runtime(), 64, {}).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().copyOut(object.runtime(), object.device(), 64, {}).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().copyWithin(object.device(64), object.device(), 64).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().fill(object.device(), std::byte{0}, 64).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().load(kIncrement).status().code(), adsmErrorAcceleratorLost);
  void* data = object.app();
  std::uint64_t count = 1;
  std::uint32_t by = 1;
  void* args[] = {&data, &count, &by};
  EXPECT_EQ(accelerator().launch(*kernel, shapeFor(1), args).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().setConstant(*constant, kAddend[0], &by, sizeof by).code(),
            adsmErrorAcceleratorLost);
}

TEST_P(HostAcceleratorTest, ASubmitterThatWaitsForRoomNoticesTheDeath) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const auto sleeper = load(&kSleepForever);
  ASSERT_TRUE(sleeper);
  good(accelerator().launch(*sleeper, shapeFor(1), nullptr));
  const pid_t pid = deviceProcessOf(getpid());
  std::atomic<std::uint64_t> submitted{0};
  adsmError_t last = adsmSuccess;
  std::thread submitter([&] {
    while (last == adsmSuccess && submitted < 100'000) {
      last = accelerator().fill(object.device(), std::byte{1}, 64).status().code();
      ++submitted;
    }
  });
  // The queue is full when the number no longer grows; killing it earlier only makes the test
  // weaker.
  for (std::uint64_t seen = 0, before = 1; seen != before || seen == 0;) {
    before = seen;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    seen = submitted;
  }
  kill(pid, SIGKILL);
  submitter.join();
  EXPECT_EQ(last, adsmErrorAcceleratorLost);
}

TEST_P(HostAcceleratorTest, ACrashIsReportedOnceWithItsKernelSignalAndAddress) {
  const auto kernel = load(&kPoke);
  ASSERT_TRUE(kernel);
  void* nowhere = reinterpret_cast<void*>(0x1230);
  void* args[] = {&nowhere};
  const Ticket ticket = good(accelerator().launch(*kernel, shapeFor(1), args));
  EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorKernel);
  for (const char* word : {"poke", "SIGSEGV", "0x1230"}) {
    EXPECT_NE(std::string(lastErrorText()).find(word), std::string::npos) << lastErrorText();
  }
  EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorAcceleratorLost);
  EXPECT_NE(std::string(lastErrorText()).find("poke"), std::string::npos) << lastErrorText();
}

// As with CUDA, whose allocator has mapped memory around what it gives.
TEST_P(HostAcceleratorTest, AKernelMayOverrunItsArrayByALittleWhileTheArrayLives) {
  const auto kernel = load(&kPoke);
  ASSERT_TRUE(kernel);
  const std::size_t bytes = std::size_t{64} << 10;
  const auto poke = [&](std::uintptr_t address) {
    void* at = reinterpret_cast<void*>(address);
    void* args[] = {&at};
    return accelerator().wait(good(accelerator().launch(*kernel, shapeFor(1), args))).code();
  };
  for (const std::size_t alignment : {std::size_t{4096}, std::size_t{8} << 20}) {
    for (const Placement placement : {Placement::kSameAddress, Placement::kAnywhere}) {
      const DeviceAddress memory = *accelerator().allocate(bytes, alignment, placement);
      const auto address = static_cast<std::uintptr_t>(memory);
      EXPECT_EQ(address % alignment, 0U);
      EXPECT_EQ(poke(address - 8), adsmSuccess) << lastErrorText();
      EXPECT_EQ(poke(address + bytes), adsmSuccess) << lastErrorText();
      // Memory outside the allocation is no target of a copy.
      EXPECT_EQ(accelerator()
                    .wait(good(accelerator().fill(DeviceAddress(address + bytes), std::byte{1}, 8)))
                    .code(),
                adsmErrorInvalidValue);
      EXPECT_TRUE(accelerator().free(memory, bytes).ok());
    }
  }
  const DeviceAddress memory = *accelerator().allocate(bytes, 4096, Placement::kSameAddress);
  EXPECT_TRUE(accelerator().free(memory, bytes).ok());
  EXPECT_EQ(poke(static_cast<std::uintptr_t>(memory) - 8), adsmErrorKernel);
}

// All threads of the device abort, one in the middle of another one's report; often enough that it
// happens.
TEST_P(HostAcceleratorTest, AbortsOfAllThreadsAreOneCrash) {
  for (int round = 0; round < 50; ++round) {
    auto made = makeSmall();
    ASSERT_TRUE(made.ok()) << lastErrorText();
    Accelerator& crashing = **made;
    const auto kernel = crashing.load(kAbort);
    ASSERT_TRUE(kernel.ok());
    const Ticket ticket = good(crashing.launch(**kernel, shapeFor(1000), nullptr));
    ASSERT_EQ(crashing.wait(ticket).code(), adsmErrorKernel) << lastErrorText();
    ASSERT_NE(std::string(lastErrorText()).find("SIGABRT"), std::string::npos) << lastErrorText();
  }
}

TEST_P(HostAcceleratorTest, AnAbortInAKernelIsACrash) {
  const auto kernel = load(&kAbort);
  ASSERT_TRUE(kernel);
  const Ticket ticket = good(accelerator().launch(*kernel, shapeFor(1000), nullptr));
  const Watched device(deviceProcessOf(getpid()));
  EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorKernel);
  EXPECT_NE(std::string(lastErrorText()).find("SIGABRT"), std::string::npos) << lastErrorText();
  EXPECT_TRUE(!device.found() || device.ends());
}

TEST_P(HostAcceleratorTest, AnExceptionInAKernelIsAnErrorAndTheDeviceLives) {
  const auto kernel = load(&kThrow);
  ASSERT_TRUE(kernel);
  for (int round = 0; round < 3; ++round) {
    const Ticket ticket = good(accelerator().launch(*kernel, {{100, 1, 1}, {1, 1, 1}, 0}, nullptr));
    EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorKernel);
    EXPECT_NE(std::string(lastErrorText()).find("throwSomething"), std::string::npos)
        << lastErrorText();
    EXPECT_NE(std::string(lastErrorText()).find("block 3 has had enough"), std::string::npos)
        << lastErrorText();
    EXPECT_TRUE(accelerator().wait(ticket).ok()) << "the same error twice: " << lastErrorText();
  }
}

TEST_P(HostAcceleratorTest, EveryFailedCopyIsReportedByItsOwnTicket) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  std::byte unpinned[64];
  const Ticket first = good(accelerator().copyOut(unpinned, object.device(), 64, {}));
  const Ticket right = good(accelerator().copyOut(object.runtime(), object.device(), 64, {}));
  const Ticket second =
      good(accelerator().copyOut(object.runtime(), object.device(object.bytes() - 32), 64, {}));
  EXPECT_EQ(accelerator().wait(first).code(), adsmErrorInvalidValue);
  EXPECT_TRUE(accelerator().wait(right).ok()) << lastErrorText();
  EXPECT_EQ(accelerator().wait(second).code(), adsmErrorInvalidValue);
  EXPECT_TRUE(accelerator().wait(second).ok());
}

TEST_P(HostAcceleratorTest, ATicketThatWasNeverGivenIsAnError) {
  EXPECT_EQ(accelerator().wait(Ticket{(std::uint64_t{1} << 40) | 1}).code(), adsmErrorInvalidValue);
  EXPECT_EQ(accelerator().wait(Ticket{8}).code(), adsmErrorInvalidValue);
}

TEST_P(HostAcceleratorTest, AnonymousMemoryCannotBePinned) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  EXPECT_FALSE(accelerator().copiesReachMovedPages());
  EXPECT_EQ(accelerator().pin({object.runtime(), pageBytes(), -1, 0}).code(),
            adsmErrorNotSupported);
  EXPECT_EQ(accelerator().nativeStreams(), nullptr);
}

TEST_P(HostAcceleratorTest, ManyFilesMayBePinnedOneAfterAnother) {
  // More than a process may have open.
  for (int i = 0; i < 2000; ++i) {
    Object object(accelerator(), pageBytes());
    ASSERT_TRUE(object.good());
  }
}

TEST_P(HostAcceleratorTest, FreedMemoryGoesBackToTheSystem) {
  const pid_t pid = deviceProcessOf(getpid());
  const auto residentPages = [pid] {
    std::size_t size = 0;
    std::size_t resident = 0;
    std::ifstream("/proc/" + std::to_string(pid) + "/statm") >> size >> resident;
    return resident;
  };
  const std::size_t bytes = std::size_t{64} << 20;
  const auto address = accelerator().allocate(bytes, pageBytes(), Placement::kAnywhere);
  ASSERT_TRUE(address.ok());
  waitFor(good(accelerator().fill(*address, std::byte{1}, bytes)));
  const std::size_t full = residentPages();
  ASSERT_TRUE(accelerator().free(*address, bytes).ok());
  EXPECT_LE(residentPages() + bytes / pageBytes() * 9 / 10, full);
}

TEST_P(HostAcceleratorTest, EveryBlockOfAGridRunsOnce) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const auto kernel = load(&kCountBlocks);
  ASSERT_TRUE(kernel);
  void* counter = object.appAs<std::uint64_t>();
  void* places = object.appAs<std::uint64_t>() + 1;
  void* args[] = {&counter, &places};
  std::uint64_t blocks = 0;
  std::uint64_t sum = 0;
  Ticket last;
  for (const adsmDim_t& grid :
       {adsmDim_t{1, 1, 1}, adsmDim_t{7, 1, 1}, adsmDim_t{1, 65'535, 1}, adsmDim_t{13, 17, 19},
        adsmDim_t{1, 1, 1000}, adsmDim_t{1 << 20, 1, 1}}) {
    last = good(accelerator().launch(*kernel, {grid, {1, 1, 1}, 0}, args));
    const std::uint64_t here = std::uint64_t{grid.x} * grid.y * grid.z;
    blocks += here;
    sum += here * (here - 1) / 2;
  }
  bringOut(object, last);
  EXPECT_EQ(object.appAs<std::uint64_t>()[0], blocks);
  EXPECT_EQ(object.appAs<std::uint64_t>()[1], sum);
}

TEST_P(HostAcceleratorTest, AKernelAndItsConstantAreFoundInALibraryThatIsLoadedLater) {
  namespace fs = std::filesystem;
  const fs::path directory =
      fs::path(testing::TempDir()) / ("gmac_late_" + std::to_string(getpid()));
  fs::create_directories(directory);
  const fs::path source = directory / "late.c";
  const fs::path library = directory / "late.so";
  std::ofstream(source) << "unsigned lateConstant = 1;\n"
                           "void lateKernel(const void *block, void **args) { **(unsigned "
                           "**)args[0] = lateConstant; }\n";
  const std::string command =
      "cc -shared -fPIC -o " + library.string() + " " + source.string() + " 2>/dev/null";
  if (system(command.c_str()) != 0) {
    GTEST_SKIP() << "no C compiler here to make a library with";
  }
  void* const handle = dlopen(library.c_str(), RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  void* const constant = dlsym(handle, "lateConstant");
  const adsmConstant_t constants[] = {{"lateConstant", sizeof(unsigned), constant, nullptr}};
  adsmKernelDesc_t desc = describe(
      "lateKernel", reinterpret_cast<adsmHostKernel_t>(dlsym(handle, "lateKernel")), &kPointer, 1);
  desc.constantCount = 1;
  desc.constants = constants;
  const auto kernel = load(&desc);
  ASSERT_TRUE(kernel);
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const unsigned value = 4711;
  ASSERT_TRUE(accelerator().setConstant(*kernel, constants[0], &value, sizeof value).ok())
      << lastErrorText();
  void* data = object.app();
  void* args[] = {&data};
  bringOut(object, good(accelerator().launch(*kernel, shapeFor(1), args)));
  EXPECT_EQ(*object.appAs<unsigned>(), value);
  dlclose(handle);
  fs::remove_all(directory);
}

TEST_P(HostAcceleratorTest, WhatIsNoFunctionOrVariableOfAModuleIsRefused) {
  const auto heap = std::make_unique<std::uint32_t>(0);
  adsmKernelDesc_t desc =
      describe("notCode", reinterpret_cast<adsmHostKernel_t>(heap.get()), nullptr, 0);
  EXPECT_EQ(accelerator().load(desc).status().code(), adsmErrorInvalidValue);
  EXPECT_NE(std::string(lastErrorText()).find("notCode"), std::string::npos) << lastErrorText();

  static const std::uint32_t readOnly = 1;
  for (void* variable :
       {static_cast<void*>(heap.get()), const_cast<void*>(static_cast<const void*>(&readOnly))}) {
    const adsmConstant_t constants[] = {{"notAVariable", sizeof(std::uint32_t), variable, nullptr}};
    desc = kAddConstant;
    desc.constants = constants;
    EXPECT_EQ(accelerator().load(desc).status().code(), adsmErrorInvalidValue);
    EXPECT_NE(std::string(lastErrorText()).find("notAVariable"), std::string::npos)
        << lastErrorText();
  }
}

TEST_P(HostAcceleratorTest, ArgumentsThatAreTooLargeAreRefused) {
  const std::size_t sizes[] = {kHostMaxArgumentBytes, 1};
  const adsmKernelDesc_t desc = describe("tooWide", storeWide, sizes, 2);
  const auto kernel = load(&desc);
  ASSERT_TRUE(kernel);
  std::vector<std::byte> large(kHostMaxArgumentBytes);
  void* args[] = {large.data(), large.data()};
  EXPECT_EQ(accelerator().launch(*kernel, shapeFor(1), args).status().code(),
            adsmErrorInvalidValue);
  EXPECT_NE(std::string(lastErrorText()).find("tooWide"), std::string::npos) << lastErrorText();
}

TEST(HostAccelerator, SeveralLiveSideBySide) {
  auto one = makeSmall();
  auto two = makeSmall();
  ASSERT_TRUE(one.ok() && two.ok()) << lastErrorText();
  Object objectOfOne(**one, pageBytes());
  Object objectOfTwo(**two, pageBytes());
  ASSERT_TRUE(objectOfOne.good() && objectOfTwo.good());
  EXPECT_NE(objectOfOne.device(), objectOfTwo.device());
}

TEST(HostAccelerator, AnAddressWindowSmallerThanTheMemoryGivesAnAddressConflict) {
  HostOptions options;
  options.memoryBytes = std::size_t{1} << 30;
  options.threads = 1;
  options.windowBytes = std::size_t{64} << 20;
  auto made = makeHostAccelerator(options);
  ASSERT_TRUE(made.ok()) << lastErrorText();
  const std::size_t bytes = std::size_t{128} << 20;
  EXPECT_EQ((*made)->allocate(bytes, pageBytes(), Placement::kSameAddress).status().code(),
            adsmErrorAddressConflict);
  EXPECT_TRUE((*made)->allocate(bytes, pageBytes(), Placement::kAnywhere).ok()) << lastErrorText();
}

// A process with an accelerator of its own, which ends in some way of its own.
class ApplicationEnds : public testing::Test {
 protected:
  // Runs `then` in a child that has an accelerator, and returns when it has.
  template <typename Then>
  void startApplication(const Then& then) {
    int pipeEnds[2];
    ASSERT_EQ(pipe(pipeEnds), 0);
    application_ = fork();
    if (application_ == 0) {
      auto made = makeSmall();
      const char ready = made.ok() ? 'y' : 'n';
      if (write(pipeEnds[1], &ready, 1) != 1) {
        _exit(1);
      }
      // Until the test has found the device process.
      raise(SIGSTOP);
      then();
      _exit(0);
    }
    char ready = 'n';
    ASSERT_EQ(read(pipeEnds[0], &ready, 1), 1);
    close(pipeEnds[0]);
    close(pipeEnds[1]);
    ASSERT_EQ(ready, 'y');
    int status = 0;
    ASSERT_EQ(waitpid(application_, &status, WUNTRACED), application_);
    ASSERT_TRUE(WIFSTOPPED(status));
    device_ = std::make_unique<Watched>(deviceProcessOf(application_));
    ASSERT_TRUE(device_->found());
    ASSERT_TRUE(device_->runs());
  }

  void TearDown() override {
    if (application_ > 0) {
      kill(application_, SIGKILL);
      waitpid(application_, nullptr, 0);
    }
  }

  pid_t application_ = -1;
  std::unique_ptr<Watched> device_;
};

TEST_F(ApplicationEnds, ByExitWithoutDestroyingTheAccelerator) {
  startApplication([] {});
  kill(application_, SIGCONT);
  EXPECT_TRUE(device_->ends());
}

TEST_F(ApplicationEnds, ByBeingKilled) {
  startApplication([] {});
  kill(application_, SIGKILL);
  EXPECT_TRUE(device_->ends());
}

TEST_F(ApplicationEnds, ByBeingKilledWhileAChildOfItLivesOn) {
  int pipeEnds[2];
  ASSERT_EQ(pipe(pipeEnds), 0);
  startApplication([&] {
    const pid_t child = fork();
    if (child > 0 && write(pipeEnds[1], &child, sizeof child) != sizeof child) {
      _exit(1);
    }
    while (true) {
      pause();
    }
  });
  kill(application_, SIGCONT);
  pid_t child = 0;
  ASSERT_EQ(read(pipeEnds[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  kill(application_, SIGKILL);
  EXPECT_TRUE(device_->ends());
  EXPECT_EQ(kill(child, SIGKILL), 0) << "the child was to hold the socket until now";
  close(pipeEnds[0]);
  close(pipeEnds[1]);
}

TEST_F(ApplicationEnds, ByExec) {
  startApplication([] { execl("/bin/sleep", "sleep", "1000", nullptr); });
  kill(application_, SIGCONT);
  EXPECT_TRUE(device_->ends());
  EXPECT_EQ(kill(application_, 0), 0);
}

}  // namespace
}  // namespace gmac::accel::conformance
