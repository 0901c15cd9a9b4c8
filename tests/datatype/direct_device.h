// SPDX-License-Identifier: Apache-2.0
//
// A device of the datatype engine in this process, whose copies in are as late as the seam allows.
#ifndef GMAC_TESTS_DATATYPE_DIRECT_DEVICE_H_
#define GMAC_TESTS_DATATYPE_DIRECT_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/datatype/device.h"

namespace gmac::testing {

// Device memory is this process's; a copy in happens when what was submitted after it, or a
// wait, forces it, and then reads what its source holds by then. Kernels run when they are
// launched: one that was to run after a later copy finds old bytes. Thread-safe; owned by the test
// or by DirectDevice.
class DirectAccelerator final : public accel::Accelerator {
 public:
  enum class Call { kAllocate, kCopyIn };
  struct Copy {
    std::uint64_t to;
    std::size_t bytes;
    std::size_t launchesBefore;
  };

  ~DirectAccelerator() override;

  // The n-th next call (1: the very next) fails.
  void failNext(Call call, int n);
  std::vector<Copy> copies() const;
  void clearCopies();
  // Launches since the last clearCopies().
  std::size_t launches() const;
  std::size_t liveAllocations() const;

  // A launch is submitted: on the kernel queue it runs after all copies, on a stream after those
  // that the stream follows. `run` is called with the accelerator's lock held.
  template <typename Run>
  Result<accel::Ticket> launch(std::optional<accel::NativeStream> stream, const Run& run) {
    const std::lock_guard lock(lock_);
    copyUpTo(stream ? followed_[static_cast<std::uintptr_t>(*stream)] : newest_);
    ++launches_;
    GMAC_TRY(run());
    return accel::Ticket{newest_};
  }

  std::string_view name() const noexcept override { return "direct"; }
  std::string_view deviceName() const noexcept override { return "this process"; }
  bool copiesReachMovedPages() const noexcept override { return false; }
  Result<accel::DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                        accel::Placement placement) override;
  Status free(accel::DeviceAddress address, std::size_t bytes) override;
  Status pin(const accel::HostMemory&) override { return {}; }
  Status unpin(const accel::HostMemory&) override { return {}; }
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
  Status fence(accel::NativeStream) override { return {}; }
  Result<accel::Ticket> mark(accel::NativeStream) override;
  Status follow(accel::NativeStream stream, accel::Ticket ticket) override;

 private:
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
};

// Runs the pack kernels' host implementations on that accelerator. All memory that it is
// asked about is the device's, but for what it is told.
class DirectDevice final : public datatype::Device {
 public:
  explicit DirectDevice(DirectAccelerator& accelerator)
      : Device(accelerator), accelerator_(accelerator) {}
  ~DirectDevice() override;

  // The n-th next launch fails; so does the n-th next call for pinned memory.
  void failLaunch(int n) { failLaunch_ = n; }
  void failPinned(int n) { failPinned_ = n; }
  // For the engines made from now on; all 0 before.
  void setTraits(const datatype::DeviceTraits& traits) { traits_ = traits; }
  // What the byte there is from now on.
  void setMemory(const void* address, datatype::Memory memory) { memory_[address] = memory; }

  datatype::Memory memoryOf(const void* address) const noexcept override {
    const auto found = memory_.find(address);
    return found == memory_.end() ? datatype::Memory::kDevice : found->second;
  }
  datatype::DeviceTraits traits() const noexcept override { return traits_; }
  bool kernelsReachPinned() const noexcept override { return true; }
  Result<accel::Ticket> submit(std::optional<accel::NativeStream> stream,
                               datatype::DeviceWork& work) override;
  Status waitForStreams() override { return {}; }
  Status follow(std::optional<accel::NativeStream> stream, accel::Ticket ticket) override;
  Result<void*> allocatePinned(std::size_t bytes) override;
  void freePinned(void* address, std::size_t bytes) noexcept override;

 private:
  class Queue;

  DirectAccelerator& accelerator_;
  datatype::DeviceTraits traits_;
  int failLaunch_ = 0;
  int failPinned_ = 0;
  std::map<void*, std::size_t> pinned_;
  std::map<const void*, datatype::Memory> memory_;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_DATATYPE_DIRECT_DEVICE_H_
