// SPDX-License-Identifier: Apache-2.0
//
// An accelerator for the datatype engine in this process, whose copies in are as late as the seam
// allows.
#ifndef GMAC_TESTS_DATATYPE_DIRECT_ACCELERATOR_H_
#define GMAC_TESTS_DATATYPE_DIRECT_ACCELERATOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/native_streams.h"

namespace gmac::testing {

// Device memory is this process's; a copy in happens when what was submitted after it, or a
// wait, forces it, and then reads what its source holds by then. The pack kernels' host
// implementations run when they are launched: one that was to run after a later copy finds old
// bytes. All memory is the device's, but for what a test says. Thread-safe; owned by the test.
class DirectAccelerator final : public accel::Accelerator, public accel::NativeStreams {
 public:
  enum class Call { kAllocate, kCopyIn, kLaunch, kPinned };
  struct Copy {
    std::uint64_t to;
    std::size_t bytes;
    std::size_t launchesBefore;
  };

  DirectAccelerator() : Accelerator({.streams = this}) {}
  ~DirectAccelerator() override;

  // The n-th next call (1: the very next) fails; 0: none does.
  void failNext(Call call, int n);
  std::vector<Copy> copies() const;
  void clearCopies();
  // Launches since the last clearCopies().
  std::size_t launches() const;
  std::size_t liveAllocations() const;

  // For the engines made from now on; all 0 before.
  void setTraits(const accel::DeviceTraits& traits) { traits_ = traits; }
  // The kind of the byte there, from now on.
  void setMemory(const void* address, accel::Memory memory) { memory_[address] = memory; }

  std::string_view name() const noexcept override { return "direct"; }
  std::string_view deviceName() const noexcept override { return "this process"; }
  bool copiesReachMovedPages() const noexcept override { return false; }
  bool kernelsReachPinned() const noexcept override { return true; }
  accel::DeviceTraits traits() const noexcept override { return traits_; }
  Result<accel::DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                        accel::Placement placement) override;
  Status free(accel::DeviceAddress address, std::size_t bytes) override;
  Status pin(const accel::HostMemory&) override { return {}; }
  Status unpin(const accel::HostMemory&) override { return {}; }
  Result<void*> allocatePinned(std::size_t bytes) override;
  void freePinned(void* address, std::size_t bytes) noexcept override;
  accel::Memory memoryOf(const void* address) const noexcept override {
    const auto found = memory_.find(address);
    return found == memory_.end() ? accel::Memory::kDevice : found->second;
  }
  Result<accel::Ticket> copyIn(accel::DeviceAddress to, const void* from, std::size_t bytes,
                               accel::Ticket after) override;
  Result<accel::Ticket> copyOut(void* to, accel::DeviceAddress from, std::size_t bytes,
                                accel::Ticket after) override;
  Result<accel::Ticket> copyWithin(accel::DeviceAddress, accel::DeviceAddress,
                                   std::size_t) override;
  Result<accel::Ticket> fill(accel::DeviceAddress, std::byte, std::size_t) override;
  bool done(accel::Ticket ticket) noexcept override;
  Status wait(accel::Ticket ticket) override;
  Result<std::unique_ptr<accel::LoadedKernel>> load(const adsmKernelDesc_t&) override;
  Result<accel::Ticket> launch(accel::LoadedKernel&, const accel::LaunchShape&, void**) override;
  Status setConstant(accel::LoadedKernel&, const adsmConstant_t&, const void*,
                     std::size_t) override;
  std::unique_ptr<accel::LoadedKernels> loadBuiltIn(const accel::BuiltInKernels& kernels) override;
  // On the kernel queue a launch runs after all copies, on a stream after those that it follows.
  Result<accel::Ticket> submit(accel::Work& work) override;

  Status check(accel::NativeStream) const override { return {}; }
  bool perThread(accel::NativeStream) const noexcept override { return false; }
  bool capturing(accel::NativeStream) const noexcept override { return false; }
  Result<Fence> fence(accel::NativeStream, const Fence&) override { return Fence{}; }
  Fence newest() const noexcept override { return {}; }
  Status follow(accel::NativeStream stream, accel::Ticket ticket) override;
  Result<accel::Ticket> mark(accel::NativeStream, accel::Ticket) override;
  Status waitForAll() override { return {}; }
  Status submit(accel::NativeStream stream, accel::Work& work) override;
  Status launch(accel::NativeStream stream, accel::LoadedKernels& kernels,
                const accel::Launch& launch) override;
  std::uintptr_t nativeContext() const noexcept override { return 0; }
  int primaryDevice() const noexcept override { return -1; }
  void contextEnds() noexcept override {}
  void leaveContext() noexcept override {}

 private:
  class Queue;
  struct Pending {
    std::uint64_t number;
    void* to;
    const void* from;
    std::size_t bytes;
  };
  void copyUpTo(std::uint64_t number);
  bool fails(Call call);

  mutable std::recursive_mutex lock_;  // guards all below
  std::deque<Pending> pending_;
  std::uint64_t newest_ = 0;  // of the copies
  std::size_t launches_ = 0;
  std::vector<Copy> copies_;
  std::map<std::uintptr_t, std::size_t> allocations_;
  std::map<std::uintptr_t, std::uint64_t> followed_;
  std::map<Call, int> countdowns_;
  std::map<void*, std::size_t> pinned_;
  std::map<const void*, accel::Memory> memory_;
  accel::DeviceTraits traits_;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_DATATYPE_DIRECT_ACCELERATOR_H_
