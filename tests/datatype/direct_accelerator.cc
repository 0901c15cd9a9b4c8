// SPDX-License-Identifier: Apache-2.0
#include "tests/datatype/direct_accelerator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace gmac::testing {

using accel::DeviceAddress;
using accel::Ticket;

namespace {

Status notHere(const char* what) {
  return fail(adsmErrorNotSupported, "the direct accelerator has no {}", what);
}

struct Loaded final : accel::LoadedKernels {
  explicit Loaded(const accel::BuiltInKernels& built) : kernels(built) {}
  const accel::BuiltInKernels kernels;
};

}  // namespace

DirectAccelerator::~DirectAccelerator() {
  EXPECT_TRUE(allocations_.empty()) << "memory is kept";
  EXPECT_TRUE(pinned_.empty()) << "pinned memory is kept";
}

void DirectAccelerator::failNext(Call call, int n) {
  const std::lock_guard lock(lock_);
  countdowns_[call] = n;
}

// Counts down to the one that fails.
bool DirectAccelerator::fails(Call call) {
  int& countdown = countdowns_[call];
  return countdown > 0 && --countdown == 0;
}

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

Result<Ticket> DirectAccelerator::mark(accel::NativeStream, Ticket) {
  const std::lock_guard lock(lock_);
  return Ticket{newest_};
}

Status DirectAccelerator::follow(accel::NativeStream stream, Ticket ticket) {
  const std::lock_guard lock(lock_);
  std::uint64_t& followed = followed_[static_cast<std::uintptr_t>(stream)];
  followed = std::max(followed, ticket.value);
  return {};
}

// Launches after the copies up to a number.
class DirectAccelerator::Queue final : public accel::Commands {
 public:
  Queue(DirectAccelerator& accelerator, std::uint64_t after)
      : accelerator_(accelerator), after_(after) {}

  Status launch(accel::LoadedKernels& loaded, const accel::Launch& launch) override {
    const std::lock_guard lock(accelerator_.lock_);
    accelerator_.copyUpTo(after_);
    ++accelerator_.launches_;
    if (accelerator_.fails(Call::kLaunch)) {
      return fail(adsmErrorLaunch, "no launch, as was asked for");
    }
    const accel::BuiltInKernel& kernel =
        static_cast<Loaded&>(loaded).kernels.kernels[static_cast<std::size_t>(launch.kernel)];
    alignas(16) std::array<std::byte, 4096> params;
    std::memcpy(params.data(), launch.params, kernel.paramBytes);
    void* args[] = {params.data()};
    for (std::uint32_t block = 0; block < launch.blocks; ++block) {
      const adsmThreadBlock_t place = {
          {launch.blocks, 1, 1}, {launch.threads, 1, 1}, {block, 0, 0}, nullptr, 0};
      kernel.host(&place, args);
    }
    return {};
  }
  Status copyIn(std::uint64_t, const void*, std::size_t) override { return notHere("copies"); }
  Status copyOut(void*, std::uint64_t, std::size_t) override { return notHere("copies"); }
  Status copyWithin(std::uint64_t, std::uint64_t, std::size_t) override {
    return notHere("copies");
  }
  Status copyStrided(const accel::StridedCopy&) override { return notHere("copies"); }

 private:
  DirectAccelerator& accelerator_;
  const std::uint64_t after_;
};

std::unique_ptr<accel::LoadedKernels> DirectAccelerator::loadBuiltIn(
    const accel::BuiltInKernels& kernels) {
  return std::make_unique<Loaded>(kernels);
}

Result<Ticket> DirectAccelerator::submit(accel::Work& work) {
  const std::lock_guard lock(lock_);
  Queue queue(*this, newest_);
  GMAC_TRY(work.run(queue));
  return Ticket{newest_};
}

Status DirectAccelerator::submit(accel::NativeStream stream, accel::Work& work) {
  const std::lock_guard lock(lock_);
  Queue queue(*this, followed_[static_cast<std::uintptr_t>(stream)]);
  return work.run(queue);
}

Status DirectAccelerator::launch(accel::NativeStream stream, accel::LoadedKernels& kernels,
                                 const accel::Launch& launch) {
  accel::WorkOf work([&](accel::Commands& commands) { return commands.launch(kernels, launch); });
  return submit(stream, work);
}

Result<void*> DirectAccelerator::allocatePinned(std::size_t bytes) {
  const std::lock_guard lock(lock_);
  if (fails(Call::kPinned)) {
    return fail(adsmErrorHostMemory, "no pinned memory, as was asked for");
  }
  void* const memory = std::malloc(bytes);
  pinned_[memory] = bytes;
  return memory;
}

void DirectAccelerator::freePinned(void* address, std::size_t bytes) noexcept {
  const std::lock_guard lock(lock_);
  const auto found = pinned_.find(address);
  EXPECT_TRUE(found != pinned_.end() && found->second == bytes);
  pinned_.erase(found);
  std::free(address);
}

}  // namespace gmac::testing
