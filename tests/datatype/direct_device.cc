// SPDX-License-Identifier: Apache-2.0
#include "tests/datatype/direct_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace gmac::testing {

using accel::DeviceAddress;
using accel::Ticket;

namespace {

Status notHere(const char* what) {
  return fail(adsmErrorNotSupported, "the direct accelerator has no {}", what);
}

// Counts down to the one that fails.
bool countsDown(int& countdown) { return countdown > 0 && --countdown == 0; }

}  // namespace

DirectAccelerator::~DirectAccelerator() { EXPECT_TRUE(allocations_.empty()) << "memory is kept"; }

void DirectAccelerator::failNext(Call call, int n) {
  const std::lock_guard lock(lock_);
  countdowns_[call] = n;
}

bool DirectAccelerator::fails(Call call) { return countsDown(countdowns_[call]); }

std::vector<DirectAccelerator::Copy> DirectAccelerator::copies() const {
  const std::lock_guard lock(lock_);
  return copies_;
}

void DirectAccelerator::clearCopies() {
  const std::lock_guard lock(lock_);
  copies_.clear();
  launches_ = 0;
}

std::size_t DirectAccelerator::launches() const {
  const std::lock_guard lock(lock_);
  return launches_;
}

std::size_t DirectAccelerator::liveAllocations() const {
  const std::lock_guard lock(lock_);
  return allocations_.size();
}

void DirectAccelerator::copyUpTo(std::uint64_t number) {
  while (!pending_.empty() && pending_.front().number <= number) {
    const Pending& copy = pending_.front();
    std::memcpy(copy.to, copy.from, copy.bytes);
    pending_.pop_front();
  }
}

Result<DeviceAddress> DirectAccelerator::allocate(std::size_t bytes, std::size_t alignment,
                                                  accel::Placement) {
  const std::lock_guard lock(lock_);
  if (fails(Call::kAllocate)) {
    return fail(adsmErrorAcceleratorMemory, "no memory, as was asked for");
  }
  void* memory = nullptr;
  EXPECT_EQ(posix_memalign(&memory, alignment, bytes), 0);
  std::memset(memory, 0, bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  allocations_[address] = bytes;
  return DeviceAddress{address};
}

Status DirectAccelerator::free(DeviceAddress address, std::size_t bytes) {
  const std::lock_guard lock(lock_);
  const auto found = allocations_.find(static_cast<std::uintptr_t>(address));
  EXPECT_TRUE(found != allocations_.end() && found->second == bytes);
  for (const Pending& copy : pending_) {
    const auto to = reinterpret_cast<std::uintptr_t>(copy.to);
    EXPECT_FALSE(to >= found->first && to < found->first + bytes) << "a copy is under way there";
  }
  std::free(reinterpret_cast<void*>(found->first));
  allocations_.erase(found);
  return {};
}

Result<Ticket> DirectAccelerator::copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                                         Ticket) {
  const std::lock_guard lock(lock_);
  if (fails(Call::kCopyIn)) {
    return fail(adsmErrorSystem, "no copy, as was asked for");
  }
  const auto address = static_cast<std::uintptr_t>(to);
  pending_.push_back({++newest_, reinterpret_cast<void*>(address), from, bytes});
  copies_.push_back({address, bytes, launches_});
  return Ticket{newest_};
}

Result<Ticket> DirectAccelerator::copyOut(void* to, DeviceAddress from, std::size_t bytes, Ticket) {
  const std::lock_guard lock(lock_);
  copyUpTo(newest_);
  std::memcpy(to, reinterpret_cast<void*>(static_cast<std::uintptr_t>(from)), bytes);
  return Ticket{newest_};
}

Result<Ticket> DirectAccelerator::copyWithin(DeviceAddress, DeviceAddress, std::size_t) {
  return notHere("copies within");
}
Result<Ticket> DirectAccelerator::fill(DeviceAddress, std::byte, std::size_t) {
  return notHere("fills");
}

bool DirectAccelerator::done(Ticket ticket) noexcept {
  const std::lock_guard lock(lock_);
  return pending_.empty() || pending_.front().number > ticket.value;
}

Status DirectAccelerator::wait(Ticket ticket) {
  const std::lock_guard lock(lock_);
  copyUpTo(ticket.value);
  return {};
}

Result<std::unique_ptr<accel::LoadedKernel>> DirectAccelerator::load(const adsmKernelDesc_t&) {
  return notHere("kernels of others");
}
Result<Ticket> DirectAccelerator::launch(accel::LoadedKernel&, const accel::LaunchShape&, void**) {
  return notHere("kernels of others");
}
Status DirectAccelerator::setConstant(accel::LoadedKernel&, const adsmConstant_t&, const void*,
                                      std::size_t) {
  return notHere("constants");
}

Result<Ticket> DirectAccelerator::mark(accel::NativeStream) {
  const std::lock_guard lock(lock_);
  return Ticket{newest_};
}

Status DirectAccelerator::follow(accel::NativeStream stream, Ticket ticket) {
  const std::lock_guard lock(lock_);
  std::uint64_t& followed = followed_[static_cast<std::uintptr_t>(stream)];
  followed = std::max(followed, ticket.value);
  return {};
}

// See datatype::DeviceQueue.
class DirectDevice::Queue final : public datatype::DeviceQueue {
 public:
  Queue(DirectDevice& device, std::optional<accel::NativeStream> stream)
      : device_(device), stream_(stream) {}
  Ticket last() const { return last_; }

  Status launch(const datatype::DeviceLaunch& launch) override {
    auto ticket = device_.accelerator_.launch(stream_, [&]() -> Status {
      if (countsDown(device_.failLaunch_)) {
        return fail(adsmErrorLaunch, "no launch, as was asked for");
      }
      alignas(16) std::byte params[sizeof launch.params];
      std::memcpy(params, launch.params, launch.paramBytes);
      void* args[] = {params};
      const auto kernel = datatype::kernelOnHost(datatype::kernelNumber(launch.kernel));
      for (std::uint32_t block = 0; block < launch.blocks; ++block) {
        const adsmThreadBlock_t place = {
            {launch.blocks, 1, 1}, {launch.threads, 1, 1}, {block, 0, 0}, nullptr, 0};
        kernel(&place, args);
      }
      return {};
    });
    if (ticket.ok()) {
      last_ = *ticket;
    }
    return ticket.status();
  }
  Status copyIn(std::uint64_t, const void*, std::size_t) override { return notHere("copies"); }
  Status copyOut(void*, std::uint64_t, std::size_t) override { return notHere("copies"); }
  Status copyWithin(std::uint64_t, std::uint64_t, std::size_t) override {
    return notHere("copies");
  }
  Status copyStrided(const datatype::StridedCopy&) override { return notHere("copies"); }

 private:
  DirectDevice& device_;
  const std::optional<accel::NativeStream> stream_;
  Ticket last_;
};

DirectDevice::~DirectDevice() { EXPECT_TRUE(pinned_.empty()) << "pinned memory is kept"; }

Result<Ticket> DirectDevice::submit(std::optional<accel::NativeStream> stream,
                                    datatype::DeviceWork& work) {
  Queue queue(*this, stream);
  GMAC_TRY(work.run(queue));
  return stream ? Ticket{} : queue.last();
}

Status DirectDevice::follow(std::optional<accel::NativeStream> stream, Ticket ticket) {
  return stream ? accelerator_.follow(*stream, ticket) : Status();
}

Result<void*> DirectDevice::allocatePinned(std::size_t bytes) {
  if (countsDown(failPinned_)) {
    return fail(adsmErrorHostMemory, "no pinned memory, as was asked for");
  }
  void* const memory = std::malloc(bytes);
  pinned_[memory] = bytes;
  return memory;
}

void DirectDevice::freePinned(void* address, std::size_t bytes) noexcept {
  const auto found = pinned_.find(address);
  EXPECT_TRUE(found != pinned_.end() && found->second == bytes);
  pinned_.erase(found);
  std::free(address);
}

}  // namespace gmac::testing
