// SPDX-License-Identifier: Apache-2.0
//
// The device of an accelerator that runs C functions.
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "gmac/datatype/devices.h"
#include "gmac/os/memory.h"
#include "gmac/os/mirror.h"

namespace gmac::datatype {
namespace {

using accel::DeviceAddress;
using accel::Ticket;

Status noStreams() {
  return fail(adsmErrorNotSupported,
              "options.stream: the host accelerator has no streams of the application's; NULL is "
              "the runtime's own");
}

// See device.h. The first launch of each kernel loads it.
class HostDevice final : public Device {
 public:
  HostDevice(accel::Accelerator& accelerator, std::unique_ptr<os::FileArena> arena)
      : Device(accelerator), arena_(std::move(arena)) {}

  Memory memoryOf(const void*) const noexcept override { return Memory::kPageable; }
  bool kernelsReachPinned() const noexcept override { return false; }
  DeviceTraits traits() const noexcept override { return {}; }

  Result<Ticket> submit(std::optional<accel::NativeStream> stream, DeviceWork& work) override {
    if (stream) {
      return noStreams();
    }
    Queue queue(*this);
    GMAC_TRY(work.run(queue));
    return queue.last();
  }

  Status checkStream(accel::NativeStream) const override { return noStreams(); }
  Status waitForStreams() override { return {}; }

  Status follow(std::optional<accel::NativeStream> stream, Ticket ticket) override {
    return stream ? noStreams() : accelerator().wait(ticket);
  }

  Result<void*> allocatePinned(std::size_t bytes) override {
    bytes = os::roundUp(bytes, os::pageBytes());
    auto offset = arena_->allocate(bytes);
    if (!offset.ok()) {
      return offset.status();
    }
    auto memory = arena_->map(nullptr, bytes, *offset, os::Access::kReadWrite);
    Status status = memory.status();
    if (memory.ok()) {
      status = os::keepFromChildren(*memory, bytes);
      auto fd = arena_->use();
      status = status.ok() ? fd.status() : status;
      status = status.ok() ? accelerator().pin({*memory, bytes, *fd, *offset}) : status;
    }
    if (!status.ok()) {
      if (memory.ok()) {
        (void)os::unmap(*memory, bytes);
      }
      arena_->free(*offset, bytes);
      return status;
    }
    const std::lock_guard lock(mutex_);
    pinned_[*memory] = *offset;
    return *memory;
  }

  void freePinned(void* address, std::size_t bytes) noexcept override {
    bytes = os::roundUp(bytes, os::pageBytes());
    std::int64_t offset = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = pinned_.find(address);
      offset = found->second;
      pinned_.erase(found);
    }
    (void)accelerator().unpin({address, bytes, arena_->fd(), offset});
    (void)os::unmap(address, bytes);
    arena_->free(offset, bytes);
  }

 private:
  // The accelerator orders each of its queues; this orders commands on different queues.
  class Queue final : public DeviceQueue {
   public:
    explicit Queue(HostDevice& device) : device_(device) {}
    Ticket last() const { return last_; }

    Status launch(const DeviceLaunch& launch) override {
      GMAC_TRY(afterCopies());
      auto kernel = device_.kernel(kernelNumber(launch.kernel));
      if (!kernel.ok()) {
        return kernel.status();
      }
      void* args[] = {const_cast<std::byte*>(launch.params)};
      return note(
          accelerator().launch(**kernel, {{launch.blocks, 1, 1}, {launch.threads, 1, 1}, 0}, args));
    }
    Status copyIn(std::uint64_t to, const void* pinned, std::size_t bytes) override {
      GMAC_TRY(note(accelerator().copyIn(DeviceAddress{to}, pinned, bytes, last_)));
      copies_ = true;
      return {};
    }
    Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) override {
      GMAC_TRY(afterFlushes());
      GMAC_TRY(note(accelerator().copyOut(pinned, DeviceAddress{from}, bytes, last_)));
      copies_ = true;
      return {};
    }
    Status copyWithin(std::uint64_t to, std::uint64_t from, std::size_t bytes) override {
      GMAC_TRY(afterFlushes());
      GMAC_TRY(afterCopies());
      return note(accelerator().copyWithin(DeviceAddress{to}, DeviceAddress{from}, bytes));
    }
    Status copyStrided(const StridedCopy&) override {
      return fail(adsmErrorNotSupported, "the host accelerator has no strided copies");
    }

   private:
    accel::Accelerator& accelerator() const { return device_.accelerator(); }
    Status note(const Result<Ticket>& ticket) {
      if (ticket.ok()) {
        last_ = *ticket;
      }
      return ticket.status();
    }
    // Work on the kernel queue only waits for copies in by itself.
    Status afterCopies() {
      return std::exchange(copies_, false) ? accelerator().wait(last_) : Status();
    }
    // Only launches wait for the copies in of others, such as a release's: submit an empty launch
    // as a barrier.
    Status afterFlushes() {
      if (last_.value != 0) {
        return {};
      }
      auto nothing = device_.nothing();
      return nothing.ok()
                 ? note(accelerator().launch(**nothing, {{1, 1, 1}, {1, 1, 1}, 0}, nullptr))
                 : nothing.status();
    }

    HostDevice& device_;
    Ticket last_;
    bool copies_ = false;  // the last command is one
  };

  Result<accel::LoadedKernel*> kernel(int number) {
    const std::lock_guard lock(mutex_);
    Kernel& kernel = kernels_[static_cast<std::size_t>(number)];
    if (kernel.loaded == nullptr) {
      kernel.paramBytes = kernelParamBytes(number);
      kernel.desc = {};
      kernel.desc.name = kernelName(number);
      kernel.desc.paramCount = 1;
      kernel.desc.paramSizes = &kernel.paramBytes;
      kernel.desc.host = kernelOnHost(number);
      auto loaded = accelerator().load(kernel.desc);
      if (!loaded.ok()) {
        return loaded.status();
      }
      kernel.loaded = std::move(*loaded);
    }
    return kernel.loaded.get();
  }

  Result<accel::LoadedKernel*> nothing() {
    const std::lock_guard lock(mutex_);
    if (nothing_ == nullptr) {
      nothingDesc_.name = "gmacNothing";
      nothingDesc_.host = [](const adsmThreadBlock_t*, void**) {};
      auto loaded = accelerator().load(nothingDesc_);
      if (!loaded.ok()) {
        return loaded.status();
      }
      nothing_ = std::move(*loaded);
    }
    return nothing_.get();
  }

  struct Kernel {
    std::size_t paramBytes = 0;
    adsmKernelDesc_t desc{};
    std::unique_ptr<accel::LoadedKernel> loaded;
  };

  const std::unique_ptr<os::FileArena> arena_;
  std::mutex mutex_;  // guards all below
  adsmKernelDesc_t nothingDesc_{};
  std::unique_ptr<accel::LoadedKernel> nothing_;
  std::array<Kernel, kPackKernels> kernels_;
  std::map<void*, std::int64_t> pinned_;  // where in the arena
};

}  // namespace

Result<std::unique_ptr<Device>> makeHostDevice(accel::Accelerator& accelerator) {
  auto arena = os::FileArena::make();
  if (!arena.ok()) {
    return arena.status();
  }
  return std::unique_ptr<Device>(std::make_unique<HostDevice>(accelerator, std::move(*arena)));
}

}  // namespace gmac::datatype
