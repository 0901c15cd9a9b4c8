// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/host_accelerator.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "gmac/accel/address_windows.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/host/command_queues.h"
#include "gmac/accel/host/device_link.h"
#include "gmac/accel/host/device_memory.h"
#include "gmac/accel/host/host_kernels.h"
#include "gmac/accel/host/mapping.h"
#include "gmac/accel/host/pinned_memory.h"
#include "gmac/base/cores.h"
#include "gmac/base/memory_limit.h"
#include "gmac/base/round_up.h"

namespace gmac::accel {
namespace host {
namespace {

std::string processorName() {
  std::istringstream information(readWholeFile("/proc/cpuinfo").value_or(""));
  for (std::string line; std::getline(information, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "host processor";
}

// The application's side of a device process. Thread-safe. Owned by the runtime. The fault handler
// may call copyIn, copyOut, wait and done.
class HostAccelerator final : public Accelerator {
 public:
  // The device process of `link` has started.
  HostAccelerator(std::shared_ptr<AddressWindows> windows, std::unique_ptr<DeviceLink> link,
                  std::unique_ptr<DeviceMemory> memory, unsigned threads)
      : Accelerator({.movable = memory.get(), .shared = memory.get(), .exported = memory.get()}),
        deviceName_(fmt::format("{}, {} threads", processorName(), threads)),
        windows_(std::move(windows)),
        memory_(std::move(memory)),
        link_(std::move(link)),
        pinned_(*link_),
        queues_(*link_),
        kernels_(*link_, queues_) {}
  ~HostAccelerator() override {
    if (link_->forked()) {
      windows_->forget();  // the addresses are the parent's
    }
  }

  std::string_view name() const noexcept override { return "host"; }
  std::string_view deviceName() const noexcept override { return deviceName_; }
  bool copiesReachMovedPages() const noexcept override { return false; }
  Status usable() override { return link_->usable(); }

  Result<MemoryRoom> memoryRoom() override { return memory_->memoryRoom(); }
  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                 Placement placement) override {
    return memory_->allocate(bytes, alignment, placement);
  }
  Status free(DeviceAddress address, std::size_t bytes) override {
    return memory_->free(address, bytes);
  }
  Memory memoryOf(const void* address) const noexcept override {
    return memory_->memoryOf(address);
  }

  Status pin(const HostMemory& memory) override { return pinned_.pin(memory); }
  Status unpin(const HostMemory& memory) override { return pinned_.unpin(memory); }
  Result<void*> allocatePinned(std::size_t bytes) override { return pinned_.allocate(bytes); }
  void freePinned(void* address, std::size_t bytes) noexcept override {
    pinned_.free(address, bytes);
  }

  Result<Ticket> copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                        Ticket after) override;
  Result<Ticket> copyOut(void* to, DeviceAddress from, std::size_t bytes, Ticket after) override;
  Result<Ticket> copyWithin(DeviceAddress to, DeviceAddress from, std::size_t bytes) override;
  Result<Ticket> fill(DeviceAddress to, std::byte value, std::size_t bytes) override;
  bool done(Ticket ticket) noexcept override { return queues_.done(ticket); }
  Status wait(Ticket ticket) override { return queues_.wait(ticket); }

  Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) override {
    return kernels_.load(desc);
  }
  Result<Ticket> launch(LoadedKernel& kernel, const LaunchShape& shape, void** args) override {
    return kernels_.launch({}, kernel, shape, args);
  }
  Status setConstant(LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes) override {
    return kernels_.setConstant(kernel, constant, data, bytes);
  }
  std::unique_ptr<LoadedKernels> loadBuiltIn(const BuiltInKernels& kernels) override {
    return kernels_.loadBuiltIn(kernels);
  }
  Result<Ticket> submit(Work& work) override { return kernels_.submit(work); }

 private:
  const std::string deviceName_;
  const std::shared_ptr<AddressWindows> windows_;  // perhaps of other accelerators, too
  // Its end comes after the device process's.
  const std::unique_ptr<DeviceMemory> memory_;
  const std::unique_ptr<DeviceLink> link_;
  PinnedMemory pinned_;
  CommandQueues queues_;
  HostKernels kernels_;
};

Result<Ticket> HostAccelerator::copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                                       Ticket after) {
  return queues_.send(QueueId::kIn,
                      bulkCommand(CommandKind::kCopyIn, static_cast<std::uintptr_t>(to),
                                  reinterpret_cast<std::uintptr_t>(from), bytes, after));
}

Result<Ticket> HostAccelerator::copyOut(void* to, DeviceAddress from, std::size_t bytes,
                                        Ticket after) {
  return queues_.send(QueueId::kOut,
                      bulkCommand(CommandKind::kCopyOut, reinterpret_cast<std::uintptr_t>(to),
                                  static_cast<std::uintptr_t>(from), bytes, after));
}

Result<Ticket> HostAccelerator::copyWithin(DeviceAddress to, DeviceAddress from,
                                           std::size_t bytes) {
  return queues_.send(QueueId::kKernel,
                      bulkCommand(CommandKind::kCopyWithin, static_cast<std::uintptr_t>(to),
                                  static_cast<std::uintptr_t>(from), bytes));
}

Result<Ticket> HostAccelerator::fill(DeviceAddress to, std::byte value, std::size_t bytes) {
  return queues_.send(QueueId::kKernel,
                      bulkCommand(CommandKind::kFill, static_cast<std::uintptr_t>(to),
                                  static_cast<std::uintptr_t>(value), bytes));
}

}  // namespace
}  // namespace host

Result<std::unique_ptr<Accelerator>> makeHostAccelerator(const HostOptions& options) {
  const std::size_t memoryBytes =
      roundUp(options.memoryBytes != 0 ? options.memoryBytes : usableMemory(), host::pageBytes());
  const unsigned threads = options.threads != 0 ? options.threads : usableCores();
  std::shared_ptr<AddressWindows> windows = options.windows;
  if (windows == nullptr) {
    auto made = AddressWindows::make({.bytes = options.windowBytes, .memoryBytes = memoryBytes});
    if (!made.ok()) {
      return made.status();
    }
    windows = std::move(*made);
  }
  auto link = std::make_unique<host::DeviceLink>();
  auto memory = std::make_unique<host::DeviceMemory>(*link, *windows, memoryBytes,
                                                     options.windows != nullptr);
  GMAC_TRY(link->start(*windows, threads));
  return std::unique_ptr<Accelerator>(std::make_unique<host::HostAccelerator>(
      std::move(windows), std::move(link), std::move(memory), threads));
}

Result<std::vector<std::unique_ptr<Accelerator>>> makeHostAccelerators(const HostOptions& options,
                                                                       std::size_t count) {
  HostOptions each = options;
  each.memoryBytes = roundUp(
      (options.memoryBytes != 0 ? options.memoryBytes : usableMemory()) / count, host::pageBytes());
  each.threads = std::max(
      1U, (options.threads != 0 ? options.threads : usableCores()) / static_cast<unsigned>(count));
  if (each.windows == nullptr) {
    auto windows = AddressWindows::make(
        {.bytes = options.windowBytes, .memoryBytes = each.memoryBytes * count});
    if (!windows.ok()) {
      return windows.status();
    }
    each.windows = std::move(*windows);
  }
  std::vector<std::unique_ptr<Accelerator>> accelerators;
  for (std::size_t i = 0; i < count; ++i) {
    auto accelerator = makeHostAccelerator(each);
    if (!accelerator.ok()) {
      return accelerator.status();
    }
    accelerators.push_back(std::move(*accelerator));
  }
  return accelerators;
}

}  // namespace gmac::accel
