// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/host_kernels.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/accel/host/host_accelerator.h"
#include "gmac/accel/host/messages.h"
#include "gmac/base/round_up.h"

namespace gmac::accel::host {
namespace {

// Arguments up to this size are gathered on the stack.
constexpr std::size_t kSmallArguments = 2048;

// A kernel's function and its constants' variables, at their addresses in the device process.
// Immutable.
class HostKernel final : public LoadedKernel {
 public:
  HostKernel(const adsmKernelDesc_t& desc, std::uintptr_t function,
             std::map<const void*, std::uintptr_t> constants)
      : desc_(desc), function_(function), constants_(std::move(constants)) {}

  const adsmKernelDesc_t& desc() const { return desc_; }
  std::uintptr_t function() const { return function_; }
  // 0: not one of this kernel's.
  std::uintptr_t constant(const void* host) const {
    const auto found = constants_.find(host);
    return found == constants_.end() ? 0 : found->second;
  }

 private:
  const adsmKernelDesc_t& desc_;
  const std::uintptr_t function_;
  const std::map<const void*, std::uintptr_t> constants_;  // application's address -> device's
};

void copyName(Command& command, const char* name) {
  const std::size_t length = std::min(std::strlen(name), command.name.size() - 1);
  std::memcpy(command.name.data(), name, length);
  command.name[length] = '\0';
}

Status checkShape(const char* kernel, const LaunchShape& shape) {
  const auto check = [&](const char* what, const adsmDim_t& dim, std::size_t most) {
    // Two 32-bit factors fit in 64 bits, and the third is multiplied only when their product is
    // small.
    const std::size_t plane = std::size_t{dim.x} * dim.y;
    if (plane == 0 || dim.z == 0 || plane > most || plane * dim.z > most) {
      return fail(
          adsmErrorInvalidValue,
          "kernel '{}': a {} of {} x {} x {} (each must be 1 or more, and the product at most {})",
          kernel, what, dim.x, dim.y, dim.z, most);
    }
    return Status();
  };
  GMAC_TRY(check("grid", shape.grid, kHostMaxBlocks));
  GMAC_TRY(check("block", shape.block, kHostMaxBlockThreads));
  if (shape.sharedBytes > kHostMaxSharedBytes) {
    return fail(adsmErrorInvalidValue, "kernel '{}': {} bytes of shared memory (at most {})",
                kernel, shape.sharedBytes, kHostMaxSharedBytes);
  }
  return Status();
}

}  // namespace

Result<std::uintptr_t> HostKernels::resolve(const void* address, SegmentUse use, const char* kind,
                                            const char* what) {
  const std::optional<ModulePlace> place = placeOf(address, use);
  if (!place) {
    return fail(adsmErrorInvalidValue, "{} '{}': {} is no {} of the program or a loaded library",
                kind, what, address,
                use == SegmentUse::kExecute ? "function" : "writable variable");
  }
  Request request = requestFor(RequestKind::kResolve, 0, 0);
  request.offset = place->offset;
  const std::string_view module = place->module.data();
  // The device process may have another working directory by now than the application had when it
  // loaded the library.
  const std::unique_ptr<char, decltype(&std::free)> found(realpath(module.data(), nullptr),
                                                          &std::free);
  const std::string_view path = found != nullptr ? found.get() : "";
  request.moduleBytes = static_cast<std::uint32_t>(module.size());
  request.pathBytes = static_cast<std::uint32_t>(path.size());
  const Result<std::uint64_t> there = link_.ask(request, -1, module, path);
  if (!there.ok()) {
    return there.status();
  }
  return static_cast<std::uintptr_t>(*there);
}

Result<std::unique_ptr<LoadedKernel>> HostKernels::load(const adsmKernelDesc_t& desc) {
  GMAC_TRY(link_.usable());
  if (desc.host == nullptr) {
    return fail(adsmErrorNoImplementation,
                "kernel '{}' has no implementation for the accelerator 'host' "
                "(adsmKernelDesc_t::host is NULL)",
                desc.name);
  }
  const Result<std::uintptr_t> function =
      resolve(reinterpret_cast<const void*>(desc.host), SegmentUse::kExecute, "kernel", desc.name);
  if (!function.ok()) {
    return function.status();
  }
  std::map<const void*, std::uintptr_t> constants;
  for (std::size_t i = 0; i < desc.constantCount; ++i) {
    const adsmConstant_t& constant = desc.constants[i];
    if (constant.host == nullptr) {
      continue;
    }
    const Result<std::uintptr_t> variable =
        resolve(constant.host, SegmentUse::kWrite, "constant", constant.name);
    if (!variable.ok()) {
      return variable.status();
    }
    constants.emplace(constant.host, *variable);
  }
  return std::unique_ptr<LoadedKernel>(
      std::make_unique<HostKernel>(desc, *function, std::move(constants)));
}

Result<Ticket> HostKernels::launch(Ticket after, LoadedKernel& kernel, const LaunchShape& shape,
                                   void** args) {
  const auto& loaded = static_cast<const HostKernel&>(kernel);
  const adsmKernelDesc_t& desc = loaded.desc();
  GMAC_TRY(checkShape(desc.name, shape));
  if (desc.paramCount != 0 && args == nullptr) {
    return fail(adsmErrorInvalidValue, "kernel '{}' has {} parameters, but its arguments are NULL",
                desc.name, desc.paramCount);
  }
  // First the offsets of the arguments, then the arguments. A type's alignment divides its size, so
  // the largest power of two in the size is alignment enough.
  const auto alignedFor = [](std::size_t offset, std::size_t size) {
    return roundUp(offset, std::clamp<std::size_t>(size & -size, 1, kArenaAlignment));
  };
  std::size_t bytes = desc.paramCount * sizeof(std::uint32_t);
  for (std::size_t i = 0; i < desc.paramCount && bytes <= kHostMaxArgumentBytes; ++i) {
    bytes = desc.paramSizes[i] > kHostMaxArgumentBytes
                ? desc.paramSizes[i]
                : alignedFor(bytes, desc.paramSizes[i]) + desc.paramSizes[i];
  }
  if (bytes > kHostMaxArgumentBytes) {
    return fail(adsmErrorInvalidValue,
                "kernel '{}' has at least {} bytes of arguments; the host accelerator takes {}",
                desc.name, bytes, kHostMaxArgumentBytes);
  }
  // Gathered before the queue is locked: an argument may lie in a shared object and fault.
  std::array<std::byte, kSmallArguments> small;
  std::vector<std::byte> large(bytes > small.size() ? bytes : 0);
  std::byte* const packed = large.empty() ? small.data() : large.data();
  std::size_t offset = desc.paramCount * sizeof(std::uint32_t);
  for (std::size_t i = 0; i < desc.paramCount; ++i) {
    offset = alignedFor(offset, desc.paramSizes[i]);
    const auto narrow = static_cast<std::uint32_t>(offset);
    std::memcpy(packed + i * sizeof narrow, &narrow, sizeof narrow);
    std::memcpy(packed + offset, args[i], desc.paramSizes[i]);
    offset += desc.paramSizes[i];
  }

  Command command{};
  command.kind = CommandKind::kLaunch;
  command.argumentCount = static_cast<std::uint32_t>(desc.paramCount);
  command.function = loaded.function();
  command.sharedBytes = shape.sharedBytes;
  command.grid = shape.grid;
  command.block = shape.block;
  copyName(command, desc.name);
  command.after = after.value;
  command.copyInsBefore = queues_.newestCopyIn();
  return queues_.send(QueueId::kKernel, command, packed, bytes);
}

Status HostKernels::setConstant(LoadedKernel& kernel, const adsmConstant_t& constant,
                                const void* data, std::size_t bytes) {
  if (constant.host == nullptr) {
    return fail(
        adsmErrorNoImplementation,
        "constant '{}' has no variable for the accelerator 'host' (adsmConstant_t::host is NULL)",
        constant.name);
  }
  const std::uintptr_t variable = static_cast<const HostKernel&>(kernel).constant(constant.host);
  if (variable == 0) {
    return fail(adsmErrorInvalidValue, "kernel '{}' has no constant '{}'",
                static_cast<const HostKernel&>(kernel).desc().name, constant.name);
  }
  if (bytes > constant.size || bytes > kHostMaxConstantBytes) {
    return fail(adsmErrorInvalidValue,
                "{} bytes for the constant '{}', which has {} (the host accelerator takes {})",
                bytes, constant.name, constant.size, kHostMaxConstantBytes);
  }
  if (bytes == 0) {
    return link_.usable();
  }
  // As with arguments: the data may lie in a shared object.
  const std::vector<std::byte> copy(static_cast<const std::byte*>(data),
                                    static_cast<const std::byte*>(data) + bytes);
  Command command{};
  command.kind = CommandKind::kSetConstant;
  command.to = variable;
  command.bytes = bytes;
  copyName(command, constant.name);
  return queues_.send(QueueId::kKernel, command, copy.data(), bytes).status();
}

// ---- Work of the runtime's own

namespace {

// The first launch of each kernel loads it.
class BuiltIns final : public LoadedKernels {
 public:
  BuiltIns(HostKernels& loader, const BuiltInKernels& kernels)
      : loader_(loader), kernels_(kernels.kernels.size()) {
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const BuiltInKernel& one = kernels.kernels[i];
      kernels_[i].desc.name = one.name;
      kernels_[i].desc.paramCount = 1;
      kernels_[i].desc.paramSizes = &one.paramBytes;
      kernels_[i].desc.host = one.host;
    }
  }

  Result<LoadedKernel*> find(int number) {
    const std::lock_guard lock(mutex_);
    Kernel& kernel = kernels_[static_cast<std::size_t>(number)];
    if (kernel.loaded == nullptr) {
      auto loaded = loader_.load(kernel.desc);
      if (!loaded.ok()) {
        return loaded.status();
      }
      kernel.loaded = std::move(*loaded);
    }
    return kernel.loaded.get();
  }

 private:
  struct Kernel {
    adsmKernelDesc_t desc{};
    std::unique_ptr<LoadedKernel> loaded;
  };

  HostKernels& loader_;
  std::mutex mutex_;
  std::vector<Kernel> kernels_;
};

// On the kernel queue, each after the one before; the first one after the copies in so far, too, as
// a launch.
class InOrder final : public Commands {
 public:
  InOrder(HostKernels& kernels, CommandQueues& queues) : kernels_(kernels), queues_(queues) {}
  Ticket last() const { return last_; }

  Status launch(LoadedKernels& kernels, const Launch& launch) override {
    auto kernel = static_cast<BuiltIns&>(kernels).find(launch.kernel);
    if (!kernel.ok()) {
      return kernel.status();
    }
    void* args[] = {const_cast<void*>(launch.params)};
    return note(
        kernels_.launch(last_, **kernel, {{launch.blocks, 1, 1}, {launch.threads, 1, 1}, 0}, args));
  }
  Status copyIn(std::uint64_t to, const void* pinned, std::size_t bytes) override {
    return bulk(CommandKind::kCopyIn, to, reinterpret_cast<std::uintptr_t>(pinned), bytes);
  }
  Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) override {
    return bulk(CommandKind::kCopyOut, reinterpret_cast<std::uintptr_t>(pinned), from, bytes);
  }
  Status copyWithin(std::uint64_t to, std::uint64_t from, std::size_t bytes) override {
    return bulk(CommandKind::kCopyWithin, to, from, bytes);
  }
  Status copyStrided(const StridedCopy&) override {
    return fail(adsmErrorNotSupported, "the host accelerator has no strided copies");
  }

 private:
  Status bulk(CommandKind kind, std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
    Command command = bulkCommand(kind, to, from, bytes, last_);
    command.copyInsBefore = queues_.newestCopyIn();
    return note(queues_.send(QueueId::kKernel, command));
  }
  Status note(const Result<Ticket>& ticket) {
    if (ticket.ok()) {
      last_ = *ticket;
    }
    return ticket.status();
  }

  HostKernels& kernels_;
  CommandQueues& queues_;
  Ticket last_;
};

}  // namespace

std::unique_ptr<LoadedKernels> HostKernels::loadBuiltIn(const BuiltInKernels& kernels) {
  return std::make_unique<BuiltIns>(*this, kernels);
}

Result<Ticket> HostKernels::submit(Work& work) {
  InOrder commands(*this, queues_);
  GMAC_TRY(work.run(commands));
  return commands.last();
}

}  // namespace gmac::accel::host
