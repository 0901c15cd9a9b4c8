// SPDX-License-Identifier: Apache-2.0
//
// Coherent memory on a fake accelerator, with real faults.
#ifndef GMAC_TESTS_SUPPORT_MACHINE_FIXTURE_H_
#define GMAC_TESTS_SUPPORT_MACHINE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gmac/coherence/coherent_memory.h"
#include "gmac/coherence/options.h"
#include "gmac/os/memory.h"
#include "tests/support/fake_accelerator.h"

namespace gmac::testing {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;
inline constexpr std::size_t kGiB = 1024 * kMiB;

// The configuration of one test.
struct MachineSetup {
  std::string protocol = "rolling";
  std::size_t blockBytes = kPage;
  std::size_t rollingSize = 0;  // 0: adaptive
  std::size_t rollingStep = 2;
  std::size_t readAheadBytes = 0;
  bool populateAhead = false;
  bool fetchInBackground = false;
  std::size_t keptBytes = 0;
  SpillOptions spill;            // where the fake's memory can move
  ZeroCopyOptions zeroCopy;      // where it can move to the CPU's pages
  std::size_t mappingLimit = 0;  // 0: the kernel's
  std::size_t windowBytes = 0;   // 0: no block is open in part
  bool opensNeighbours = false;
  bool opensPages = false;
  std::uint32_t splitAfter = 0;             // 0: no blocks are split
  bool managed = false;                     // a program for CUDA's managed memory
  std::uint64_t listingWorth = UINT64_MAX;  // nanoseconds until launches list
  std::function<std::uint64_t()> clock;     // none: the system's
  FakeOptions fake;
};
// "rolling_4K", "lazy_64K_moved", ...
std::string nameOf(const MachineSetup& setup);
void PrintTo(const MachineSetup& setup, std::ostream* out);  // NOLINT: GoogleTest's name
// Every protocol with block sizes that it can tell apart, on file mirrors and on moved pages.
std::vector<MachineSetup> everySetup();

// Coherent memory under test, and its fake accelerator. The process's fault handler serves the
// newest one that lives. Not thread-safe itself. Its end checks that nothing is left: memory, pins,
// broken rules of the seam.
class Machine {
 public:
  explicit Machine(const MachineSetup& setup);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  FakeAccelerator& fake() { return *fake_; }
  CoherentMemory& objects() { return *objects_; }
  coherence::MemoryPort& memory() { return objects_->memory(); }
  coherence::WorkPort& work() { return objects_->work(); }
  coherence::DeviceMemoryPort& deviceMemory() { return objects_->deviceMemory(); }
  const MachineSetup& setup() const { return setup_; }

  // An object, or NULL and a test failure.
  std::byte* allocate(std::size_t bytes,
                      accel::Placement placement = accel::Placement::kSameAddress);
  template <typename T>
  T* allocateArray(std::size_t count) {
    return reinterpret_cast<T*>(allocate(count * sizeof(T)));
  }
  void free(void* object);
  // Calls with pointer arguments; all of them check that the call succeeds and walk the objects.
  void call(adsmKernel_t kernel, std::vector<const void*> args);
  void callUsing(adsmKernel_t kernel, std::vector<const void*> args, std::vector<adsmUse_t> uses);
  Status tryCall(adsmKernel_t kernel, std::vector<const void*> args);
  Status tryCallUsing(adsmKernel_t kernel, std::vector<const void*> args,
                      std::vector<adsmUse_t> uses);
  void callRanges(adsmKernel_t kernel, std::vector<const void*> args,
                  std::vector<adsmRangeUse_t> uses);
  Status tryCallRanges(adsmKernel_t kernel, std::vector<const void*> args,
                       std::vector<adsmRangeUse_t> uses);
  void sync();
  // Work of the application's own on a stream that may use every object, as the hooks of CUDA's
  // launches submit it. Whether it repeated.
  bool launch(accel::NativeStream stream, std::function<void()> work);
  // The same for work that uses the objects of these addresses and no others, as the hooks submit
  // it while launches list.
  struct Use {
    const void* address;
    bool write;
  };
  void launchListed(accel::NativeStream stream, const std::vector<Use>& uses,
                    std::function<void()> work);
  // The walker's verdict, as a test failure.
  void verify();
  // Whether no copy and no protection change happens while `action` runs.
  template <typename Action>
  void expectNothingHappens(Action action) {
    fake().clearLog();
    os::failNext(os::Call::kProtect, 1, EIO);  // a protection change would fail what runs
    action();
    os::failNext(os::Call::kProtect, 0, 0);
    EXPECT_THAT(fake().copies(), ::testing::IsEmpty());
  }

 private:
  MachineSetup setup_;
  std::unique_ptr<FakeAccelerator> fake_;
  std::unique_ptr<CoherentMemory> objects_;
};

// Quantities that must not grow: mappings of this process, and bytes in memory files.
struct Footprint {
  std::size_t mappings = 0;
  std::size_t fileBytes = 0;
  std::size_t fileDescriptors = 0;
  friend bool operator==(const Footprint&, const Footprint&) = default;
};
std::ostream& operator<<(std::ostream& out, const Footprint& footprint);
Footprint measureFootprint();

// The app view's protection of one byte, from the kernel's own table.
os::Access accessAt(const void* address);

// One copy as the fake logs it.
Op copyIn(const void* device, std::size_t bytes);
Op copyOut(const void* device, std::size_t bytes);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_MACHINE_FIXTURE_H_
