// SPDX-License-Identifier: Apache-2.0
//
// A fault makes no system calls but its protection changes, and the return from its signal.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <vector>

#include "tests/support/machine_fixture.h"
#include "tests/support/traced_calls.h"

namespace gmac::testing {
namespace {

using accel::LaunchShape;

class FaultCalls : public ::testing::Test {
 protected:
  void SetUp() override {
#if GMAC_WALK || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the walker reads the kernel's table of mappings, and sanitizers make calls";
#endif
  }

  // Expects calls of `access(object)`, where the object has had `prepare(machine, object)` done to
  // it. A round before that has made its pages; after two there would be no fault (read_backs.h).
  template <typename Prepare, typename Access>
  static void expectCalls(MachineSetup setup, Prepare prepare, Access access,
                          const std::vector<long>& expected) {
    setup.fake.run = FakeOptions::Run::kEager;
    const auto calls = tracedCalls([&](const Traced& traced) {
      Machine machine(setup);
      volatile std::byte* const object = machine.allocate(8 * kPage);
      for (int round = 0; round < 2; ++round) {
        prepare(machine, const_cast<std::byte*>(object));
        round < 1 ? access(object) : traced([&] { access(object); });
      }
    });
    if (!calls) GTEST_SKIP() << "ptrace(PTRACE_TRACEME) is not permitted here";
    EXPECT_EQ(*calls, expected);
  }

  // A call that leaves the object's blocks ReadOnly, or Invalid.
  static void call(Machine& machine, std::byte* object, adsmAccess_t access) {
    const adsmKernel_t nothing =
        machine.fake().kernel("nothing", 1, [](const LaunchShape&, void**) {});
    machine.callUsing(nothing, {object}, {{object, access}});
    machine.sync();
  }
};

TEST_F(FaultCalls, AWriteFaultOpensItsBlock) {
  expectCalls(
      {}, [](auto& machine, std::byte* object) { call(machine, object, adsmRead); },
      [](volatile std::byte* object) { object[0] = std::byte{1}; },
      {SYS_mprotect, SYS_rt_sigreturn});
}

TEST_F(FaultCalls, AReadFaultOpensWhatItHasFetched) {
  expectCalls(
      {}, [](auto& machine, std::byte* object) { call(machine, object, adsmReadWrite); },
      [](volatile std::byte* object) { (void)object[0]; }, {SYS_mprotect, SYS_rt_sigreturn});
}

TEST_F(FaultCalls, AWriteFaultThatEvictsClosesOneBlockMore) {
  MachineSetup setup;
  setup.rollingSize = 1;
  expectCalls(
      setup,
      [](auto& machine, std::byte* object) {
        call(machine, object, adsmRead);
        object[kPage] = std::byte{1};
      },
      [](volatile std::byte* object) { object[0] = std::byte{1}; },
      {SYS_mprotect, SYS_mprotect, SYS_rt_sigreturn});
}

}  // namespace
}  // namespace gmac::testing
