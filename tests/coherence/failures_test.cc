// SPDX-License-Identifier: Apache-2.0
//
// Injected failures: the n-th copy, launch, pin, allocation, mapping or protection change fails,
// for n = 1, 2, 3 and so on until no call is left to fail. Every failure leaves a clear error,
// coherent data and no leak; a failure inside the fault handler ends the process with one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "tests/support/machine_fixture.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;
using accel::Placement;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 3 * kMiB;
constexpr std::size_t kStride = 48 * kKiB;  // every block, several times

class Failures : public ::testing::TestWithParam<MachineSetup> {};

// The program that is made to fail: every call of the runtime that is not a fault, each answering
// whether it failed. A value of the oracle is what the CPU wrote last, plus one for every call that
// succeeded since.
class Program {
 public:
  explicit Program(Machine& machine) : machine_(machine) {
    addOne_ = machine.fake().kernel("addOne", 1, [&machine](const LaunchShape&, void** args) {
      auto* bytes = machine.fake().argument<unsigned char>(args, 0);
      for (std::size_t i = 0; i < kBytes; i += kStride) {
        ++bytes[i];
      }
    });
  }

  // Allocates; the number of steps that failed is added to `failures`.
  unsigned char* allocate(Placement placement) {
    auto made = machine_.objects().allocate(kBytes, placement);
    note(made.status());
    return made.ok() ? static_cast<unsigned char*>(*made) : nullptr;
  }
  void free(void* object) { note(machine_.objects().free(object)); }
  // Calls the kernel; whether it will run.
  bool call(unsigned char* object, std::vector<adsmUse_t> uses) {
    const Status status = uses.empty() ? machine_.tryCall(addOne_, {object})
                                       : machine_.tryCallUsing(addOne_, {object}, std::move(uses));
    note(status);
    return status.ok();
  }
  void sync() { note(machine_.objects().sync()); }
  // Acts as a system call on shared memory, which may fail, unlike a fault.
  bool fill(unsigned char* object, unsigned char value) {
    const Status held = machine_.memory().hold(object, kBytes, true);
    note(held);
    if (!held.ok()) {
      return false;
    }
    const std::uint64_t faults = stats().writeFaults.value();
    for (std::size_t i = 0; i < kBytes; i += kStride) {
      object[i] = value;
    }
    EXPECT_EQ(stats().writeFaults.value(), faults) << "a system call would have failed";
    machine_.memory().unhold(object, kBytes);
    return true;
  }

  int failures() const { return failures_; }
  const std::string& firstError() const { return firstError_; }

 private:
  void note(Status status) {
    if (!status.ok() && failures_++ == 0) {
      firstError_ = lastErrorText();
    }
    machine_.verify();
  }

  Machine& machine_;
  adsmKernel_t addOne_;
  int failures_ = 0;
  std::string firstError_;
};

// Runs the program with a failure armed; afterwards everything must work and nothing may be left.
void runWithFailure(Machine& machine, const std::function<void()>& disarm, int* failures,
                    std::string* error) {
  Program program(machine);
  unsigned char* object = program.allocate(Placement::kSameAddress);
  void* small = machine.objects().allocate(100, Placement::kSameAddress).ok() ? nullptr : &object;
  unsigned char expected = 0;
  if (object != nullptr) {
    if (program.fill(object, 10)) {
      expected = 10;
    }
    expected += program.call(object, {}) ? 1 : 0;
    program.sync();
    expected += program.call(object, {{object, adsmReadWrite}}) ? 1 : 0;
    if (program.fill(object, 20)) {
      expected = 20;
    }
    expected += program.call(object, {}) ? 1 : 0;
    program.sync();
  }
  disarm();
  if (object != nullptr) {
    for (std::size_t i = 0; i < kBytes; i += kStride) {
      ASSERT_EQ(object[i], expected) << "byte " << i;
    }
    machine.verify();
    Program after(machine);
    EXPECT_TRUE(after.call(object, {}));
    after.sync();
    EXPECT_EQ(object[kStride], expected + 1);
    after.free(object);
    EXPECT_EQ(after.failures(), 0) << after.firstError();
  }
  (void)small;
  *failures = program.failures();
  *error = program.firstError();
}

// One fresh machine for every n, until a run in which nothing failed.
void forEveryN(const MachineSetup& setup, const std::function<void(FakeAccelerator&, int)>& arm,
               const std::function<bool(FakeAccelerator&)>& stillArmed, const char* words) {
  const Footprint before = measureFootprint();
  constexpr int kEnough = 400;
  int n = 1;
  for (bool happened = true; happened && n < kEnough; ++n) {
    SCOPED_TRACE("n = " + std::to_string(n));
    {
      Machine machine(setup);
      int failures = 0;
      std::string error;
      arm(machine.fake(), n);
      runWithFailure(
          machine,
          [&] {
            happened = !stillArmed(machine.fake());
            arm(machine.fake(), 0);
          },
          &failures, &error);
      if (failures > 0) {
        EXPECT_THAT(error, HasSubstr(words));
      }
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
    EXPECT_EQ(measureFootprint(), before);
  }
  EXPECT_GT(n, 2) << "nothing was there to fail";
  EXPECT_LT(n, kEnough);
}

void forEveryDriverCall(const MachineSetup& setup, Op::Kind kind, adsmError_t code) {
  forEveryN(
      setup, [&](FakeAccelerator& fake, int n) { fake.failNext(kind, n, code); },
      [](FakeAccelerator& fake) { return fake.armed(); }, "fake driver: injected failure");
}

TEST_P(Failures, TheNthAllocation) {
  forEveryDriverCall(GetParam(), Op::Kind::kAllocate, adsmErrorAcceleratorMemory);
}

TEST_P(Failures, TheNthPin) { forEveryDriverCall(GetParam(), Op::Kind::kPin, adsmErrorSystem); }

TEST_P(Failures, TheNthCopyIn) {
  forEveryDriverCall(GetParam(), Op::Kind::kCopyIn, adsmErrorSystem);
}

TEST_P(Failures, TheNthCopyOut) {
  forEveryDriverCall(GetParam(), Op::Kind::kCopyOut, adsmErrorSystem);
}

TEST_P(Failures, TheNthLaunch) {
  forEveryDriverCall(GetParam(), Op::Kind::kLaunch, adsmErrorLaunch);
}

TEST_P(Failures, TheNthLoad) { forEveryDriverCall(GetParam(), Op::Kind::kLoad, adsmErrorSystem); }

void forEverySystemCall(const MachineSetup& setup, os::Call call, int error, const char* words) {
  forEveryN(
      setup, [&](FakeAccelerator&, int n) { os::failNext(call, n, error); },
      [](FakeAccelerator&) { return os::injectionArmed(); }, words);
}

TEST_P(Failures, TheNthProtectionChange) {
  forEverySystemCall(GetParam(), os::Call::kProtect, EACCES, "mprotect");
}

TEST_P(Failures, TheNthProtectionChangeForWantOfMappings) {
  forEverySystemCall(GetParam(), os::Call::kProtect, ENOMEM, "mprotect");
}

TEST_P(Failures, TheNthMapping) { forEverySystemCall(GetParam(), os::Call::kMap, ENOMEM, "mmap"); }

TEST_P(Failures, TheNthAdvice) {
  forEverySystemCall(GetParam(), os::Call::kAdvise, EINVAL, "madvise");
}

TEST_P(Failures, TheNthMove) {
  if (!GetParam().fake.movedPages) {
    GTEST_SKIP() << "memory files are not moved";
  }
  forEverySystemCall(GetParam(), os::Call::kMove, EFAULT, "mremap");
}

TEST_P(Failures, TheMemoryFileCannotGrow) {
  if (GetParam().fake.movedPages) {
    GTEST_SKIP() << "moved pages are in no file";
  }
  forEverySystemCall(GetParam(), os::Call::kFile, EFBIG, "memory file");
}

std::vector<MachineSetup> failingSetups() {
  std::vector<MachineSetup> setups;
  for (MachineSetup setup : everySetup()) {
    if (setup.blockBytes == 64 * kKiB) {
      setup.blockBytes = 256 * kKiB;  // few enough to let every one fail
      setups.push_back(setup);
    }
  }
  return setups;
}

INSTANTIATE_TEST_SUITE_P(, Failures, ::testing::ValuesIn(failingSetups()),
                         [](const auto& info) { return nameOf(info.param); });

// ---- In the fault handler: one line, then the end

class FaultFailures : public ::testing::Test {
 protected:
  static MachineSetup small() {
    MachineSetup setup;
    setup.rollingSize = 1;
    return setup;
  }
  FaultFailures() : machine_(small()) {
    // A forked child would have no objects.
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
    object_ = machine_.allocate(16 * kPage);
  }
  void invalidate() {
    machine_.call(machine_.fake().kernel("nothing", 0, [](const LaunchShape&, void**) {}), {});
    machine_.sync();
  }
  // The line names the object, its size, the block, the operation, and ends with the driver's
  // words.
  std::string line(int block, const char* operation, const char* words) {
    return fmt::format("gmac: object 0x[0-9a-f]+ \\(65536 bytes\\), block {}: {} failed: .*{}",
                       block, operation, words);
  }

  Machine machine_;
  std::byte* object_;
};

using FaultFailuresDeathTest = FaultFailures;

TEST_F(FaultFailuresDeathTest, AFetchThatFailsNamesObjectBlockAndWords) {
  invalidate();
  EXPECT_DEATH(
      {
        machine_.fake().failNext(Op::Kind::kCopyOut, 1, adsmErrorSystem);
        (void)*static_cast<volatile std::byte*>(object_ + 3 * kPage);
      },
      line(3, "a read fault", "fake driver: injected failure of copyOut"));
}

TEST_F(FaultFailuresDeathTest, AProtectionChangeThatFailsNamesTheCall) {
  EXPECT_DEATH(
      {
        os::failNext(os::Call::kProtect, 1, EACCES);
        object_[5 * kPage] = std::byte{1};
      },
      line(5, "a write fault", "mprotect.*Permission denied"));
}

TEST_F(FaultFailuresDeathTest, AnEvictionThatFailsNamesTheCopy) {
  object_[0] = std::byte{1};
  EXPECT_DEATH(
      {
        machine_.fake().failNext(Op::Kind::kCopyIn, 1, adsmErrorSystem);
        object_[kPage] = std::byte{1};
      },
      line(1, "a write fault", "fake driver: injected failure of copyIn"));
}

TEST_F(FaultFailuresDeathTest, APinThatFailsNamesThePin) {
  EXPECT_DEATH(
      {
        machine_.fake().failNext(Op::Kind::kPin, 1, adsmErrorHostMemory);  // not of mappings
        object_[kPage] = std::byte{1};
      },
      line(1, "a write fault", "fake driver: injected failure of pin"));
}

// The message begins with the failure, not with the access.
TEST_F(FaultFailuresDeathTest, AnAcceleratorThatIsLostIsNamed) {
  invalidate();
  EXPECT_DEATH(
      {
        machine_.fake().failNext(Op::Kind::kWait, 1, adsmErrorAcceleratorLost);
        object_[2 * kPage] = std::byte{1};
      },
      "gmac: fake driver: injected failure of wait \\(noticed by a write fault that waited for it: "
      "object 0x[0-9a-f]+, 65536 bytes, block 2\\)");
}

TEST_F(FaultFailuresDeathTest, AKernelThatCrashedIsNamedBeforeTheAccessThatWaitedForIt) {
  EXPECT_DEATH(
      {
        machine_.fake().crashKernel(1);
        machine_.call(machine_.fake().kernel("crashes", 0, [](const LaunchShape&, void**) {}), {});
        (void)*static_cast<volatile std::byte*>(object_ + 3 * kPage);
      },
      "gmac: fake driver: a kernel crashed \\(noticed by a read fault that waited for it: object "
      "0x[0-9a-f]+, 65536 bytes, block 3\\)");
}

}  // namespace
}  // namespace gmac::testing
