// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_accelerator.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <ostream>
#include <utility>

#include "gmac/base/round_up.h"
#include "gmac/base/status.h"

namespace gmac::testing {

using accel::DeviceAddress;
using accel::HostMemory;
using accel::LaunchShape;
using accel::NativeStream;
using accel::Placement;
using accel::Ticket;

namespace {

constexpr std::uint64_t kQueueBits = 4;
constexpr std::size_t kDevicePage = std::size_t{2} << 20;
constexpr std::size_t kAlignment = kDevicePage;
constexpr std::size_t kMargin = std::size_t{64} << 10;
constexpr std::size_t kPage = 4096;

const char* kindName(Op::Kind kind) {
  switch (kind) {
    case Op::Kind::kAllocate:
      return "allocate";
    case Op::Kind::kFree:
      return "free";
    case Op::Kind::kPin:
      return "pin";
    case Op::Kind::kUnpin:
      return "unpin";
    case Op::Kind::kCopyIn:
      return "copyIn";
    case Op::Kind::kCopyOut:
      return "copyOut";
    case Op::Kind::kCopyWithin:
      return "copyWithin";
    case Op::Kind::kFill:
      return "fill";
    case Op::Kind::kLaunch:
      return "launch";
    case Op::Kind::kWait:
      return "wait";
    case Op::Kind::kSetConstant:
      return "setConstant";
    case Op::Kind::kLoad:
      return "load";
    case Op::Kind::kFence:
      return "fence";
    case Op::Kind::kMark:
      return "mark";
    case Op::Kind::kMove:
      return "move";
  }
  return "?";
}

// Whether [a, a + aBytes) and [b, b + bBytes) share a byte.
bool overlap(std::uintptr_t a, std::size_t aBytes, std::uintptr_t b, std::size_t bBytes) {
  return a < b + bBytes && b < a + aBytes;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Op& op) {
  out << kindName(op.kind) << "(0x" << std::hex << op.device << std::dec << ", " << op.bytes
      << " bytes";
  if (!op.kernel.empty()) {
    out << ", " << op.kernel;
  }
  return out << ")";
}

class FakeAccelerator::Loaded final : public accel::LoadedKernel {
 public:
  Loaded(std::string name, std::vector<std::size_t> paramSizes, Body body)
      : name_(std::move(name)), paramSizes_(std::move(paramSizes)), body_(std::move(body)) {}
  const std::string& name() const { return name_; }
  const std::vector<std::size_t>& paramSizes() const { return paramSizes_; }
  const Body& body() const { return body_; }

 private:
  std::string name_;
  std::vector<std::size_t> paramSizes_;
  Body body_;
};

FakeAccelerator::FakeAccelerator(const FakeOptions& options)
    : Accelerator({.streams = this,
                   .movable = options.movableMemory ? this : nullptr,
                   .exported = this,
                   .devices = options.devices}),
      options_(options),
      random_(options.seed) {}

FakeAccelerator::~FakeAccelerator() {
  for (const auto& [address, allocation] : allocations_) {
    munmap(allocation.backing, allocation.bytes);
    if (allocation.sameAddress) {
      munmap(reinterpret_cast<void*>(address), addressBytes(allocation.bytes));
    }
  }
}

adsmKernel_t FakeAccelerator::kernel(const std::string& name, std::size_t paramCount, Body body) {
  const std::lock_guard guard(lock_);
  bodies_[name] = std::move(body);
  auto made = std::make_unique<adsmKernel_s>();
  made->name = name;
  made->paramSizes.assign(paramCount, sizeof(void*));
  made->desc = {};
  made->desc.name = made->name.c_str();
  made->desc.paramCount = paramCount;
  made->desc.paramSizes = made->paramSizes.data();
  return kernels_.emplace_back(std::move(made)).get();
}

// ---- What tests see

std::vector<Op> FakeAccelerator::log() const {
  const std::lock_guard guard(lock_);
  return log_;
}

std::vector<Op> FakeAccelerator::log(std::set<Op::Kind> kinds) const {
  const std::lock_guard guard(lock_);
  std::vector<Op> chosen;
  std::copy_if(log_.begin(), log_.end(), std::back_inserter(chosen),
               [&](const Op& op) { return kinds.contains(op.kind); });
  return chosen;
}

void FakeAccelerator::clearLog() {
  const std::lock_guard guard(lock_);
  log_.clear();
}

void FakeAccelerator::failNext(Op::Kind kind, int n, adsmError_t code) {
  const std::lock_guard guard(lock_);
  failKind_ = kind;
  failCountdown_ = n;
  failCode_ = code;
}

bool FakeAccelerator::armed() const {
  const std::lock_guard guard(lock_);
  return failCountdown_ > 0;
}

void FakeAccelerator::crashKernel(int n) {
  const std::lock_guard guard(lock_);
  crashCountdown_ = n;
}

void FakeAccelerator::runAll() {
  const std::lock_guard guard(lock_);
  runAllHeld();
}

void FakeAccelerator::runAllHeld() {
  for (std::size_t queue = 0; queue < kQueues; ++queue) {
    runUpTo(static_cast<Queue>(queue), submitted_[queue]);
  }
}

std::size_t FakeAccelerator::pending() const {
  const std::lock_guard guard(lock_);
  std::size_t count = 0;
  for (const auto& queue : queues_) {
    count += queue.size();
  }
  return count;
}

std::size_t FakeAccelerator::liveAllocations() const {
  const std::lock_guard guard(lock_);
  return allocations_.size();
}

std::size_t FakeAccelerator::livePins() const {
  const std::lock_guard guard(lock_);
  return pins_.size();
}

std::vector<std::string> FakeAccelerator::complaints() const {
  const std::lock_guard guard(lock_);
  return complaints_;
}

void FakeAccelerator::record(Op op) { log_.push_back(std::move(op)); }

void FakeAccelerator::complain(std::string text) { complaints_.push_back(std::move(text)); }

bool FakeAccelerator::mayBlock(const char* call) {
  if (lockIsHeld_ == nullptr || !lockIsHeld_()) {
    return true;
  }
  complain(fmt::format("{} under a lock that the fault handler takes", call));
  return false;
}

void FakeAccelerator::stall(Op::Kind kind) {
  const std::lock_guard guard(lock_);
  const Queue first = kind == Op::Kind::kCopyIn    ? kIn
                      : kind == Op::Kind::kCopyOut ? kOut
                      : kind == Op::Kind::kLaunch  ? kKernels
                                                   : kFirstStream;
  const std::size_t end = first == kFirstStream ? kQueues : first + 1;
  std::fill(stalledQueues_.begin() + first,
            stalledQueues_.begin() + static_cast<std::ptrdiff_t>(end), true);
}

void FakeAccelerator::resume() {
  const std::lock_guard guard(lock_);
  stalledQueues_ = {};
  resumed_.notify_all();
}

std::size_t FakeAccelerator::stalled() const {
  const std::lock_guard guard(lock_);
  return stalledThreads_;
}

bool FakeAccelerator::fails(Op::Kind kind, const char* what, Status* status) {
  if (failCountdown_ == 0 || failKind_ != kind || --failCountdown_ > 0) {
    return false;
  }
  *status = fail(failCode_, "fake driver: injected failure of {}", what);
  return true;
}

// ---- Memory

Status FakeAccelerator::roomFor(std::size_t bytes, accel::Home home, int on) {
  const bool device = home == accel::Home::kDevice;
  if (bytes <= (device ? memoryOf(on) : options_.cpuBytes) - usedOf(home, on)) {
    return {};
  }
  return device
             ? fail(adsmErrorAcceleratorMemory, "fake driver: out of memory for {} bytes", bytes)
             : fail(adsmErrorHostMemory, "fake driver: no memory of the CPU's for {} bytes", bytes);
}

void FakeAccelerator::complainOfUsers(const char* what, std::uintptr_t device, std::size_t bytes) {
  for (const auto& queue : queues_) {
    for (const Work& work : queue) {
      if (overlap(work.device, work.bytes, device, bytes)) {
        complain(fmt::format("{} of {:#x}, {} bytes: queued work names it", what, device, bytes));
      }
    }
  }
}

// A kernel may use what no argument names; a copy or a fill uses what it names, and nothing else.
void FakeAccelerator::complainOfKernels(const char* what, std::uintptr_t device,
                                        std::size_t bytes) {
  const auto mayUseAll = [](const Work& work) { return work.bytes == 0; };
  if (std::any_of(queues_.begin() + kKernels, queues_.end(), [&](const auto& queue) {
        return std::any_of(queue.begin(), queue.end(), mayUseAll);
      })) {
    complain(fmt::format("{} of {:#x}, {} bytes: kernels may use it", what, device, bytes));
  }
}

namespace {

// The CPU's pages get a second address, as open as they are now: they are shared mappings, of a
// memory file or, chunk by chunk, as pin() has them.
bool mapAgain(std::uintptr_t address, std::size_t bytes, void* to) {
  constexpr std::size_t kChunk = std::size_t{2} << 20;
  for (std::size_t offset = 0; offset < bytes; offset += kChunk) {
    void* const place = static_cast<std::byte*>(to) + offset;
    if (mremap(reinterpret_cast<void*>(address + offset), 0, std::min(kChunk, bytes - offset),
               MREMAP_MAYMOVE | MREMAP_FIXED, place) != place) {
      return false;
    }
  }
  return true;
}

}  // namespace

void FakeAccelerator::complainOfZeroCopy(const char* what, std::uintptr_t device) {
  auto after = allocations_.upper_bound(device);
  if (after != allocations_.begin() &&
      ((--after)->second.home == accel::Home::kMirror || pageIsAlone(device, 1, true))) {
    complain(fmt::format("{} at {:#x}: there is one copy", what, device));
  }
}

// Whether bytes of an allocation lie in a page that has moved alone: all of them, or any.
bool FakeAccelerator::pageIsAlone(std::uintptr_t device, std::size_t bytes, bool all) const {
  const auto after = allocations_.upper_bound(device);
  if (after == allocations_.begin()) {
    return false;
  }
  const auto before = std::prev(after);
  const std::uintptr_t start = before->first;
  const Allocation& allocation = before->second;
  return std::any_of(allocation.pages.begin(), allocation.pages.end(), [&](const auto& page) {
    const std::uintptr_t begin = start + page.first;
    return all ? begin <= device && device + bytes <= begin + page.second
               : overlap(begin, page.second, device, bytes);
  });
}

Result<accel::SharedAllocation> FakeAccelerator::sharedAllocation(DeviceAddress address) {
  const std::lock_guard guard(lock_);
  const auto at = static_cast<std::uintptr_t>(address);
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin() || at - (--found)->first >= found->second.bytes) {
    return fail(adsmErrorNotSupported, "fake driver: {:#x} is in no allocation", at);
  }
  return accel::SharedAllocation{DeviceAddress{found->first}, found->second.bytes,
                                 found->second.number};
}

Status FakeAccelerator::releaseImport(DeviceAddress) {
  return fail(adsmErrorNotSupported, "fake driver: nothing is imported");
}

Status FakeAccelerator::move(DeviceAddress address, std::size_t bytes, accel::Home home) {
  return move(address, bytes, home, 0);
}

Status FakeAccelerator::moveAllTo(DeviceAddress address, std::size_t bytes, int device) {
  return move(address, bytes, accel::Home::kDevice, device);
}

Status FakeAccelerator::move(DeviceAddress address, std::size_t moved, accel::Home home, int on) {
  if (moveHook_) {
    moveHook_();
  }
  const std::lock_guard guard(lock_);
  const auto device = static_cast<std::uintptr_t>(address);
  const std::size_t bytes = allocations_.at(device).bytes;
  const bool toMirror = home == accel::Home::kMirror;
  if (moved != bytes && !(toMirror && moved == bytes + marginOf(address, bytes))) {
    complain(fmt::format("move of {:#x}, {} bytes: it has {}", device, moved, bytes));
  }
  // The device uses all of it: who has no right to a byte would know.
  for (std::size_t at = bytes; toMirror && at < moved; at += kPage) {
    auto* const byte = reinterpret_cast<volatile std::byte*>(device + at);
    *byte = *byte;
  }
  record({Op::Kind::kMove,
          device,
          moved,
          {},
          severalDevices() && home == accel::Home::kDevice ? Op::toDevice(on)
                                                           : static_cast<std::uintptr_t>(home)});
  mayBlock("move");
  complainOfUsers("move", device, bytes);
  // (What has one copy moves back before it is freed, while kernels may run that were told not to
  // use it.)
  if (allocations_.at(device).home != accel::Home::kMirror) {
    complainOfKernels("move", device, bytes);
  }
  if (Status failed; fails(Op::Kind::kMove, "move", &failed)) {
    return failed;
  }
  if (home == accel::Home::kDevice && on == lost_) {
    return fail(adsmErrorAcceleratorLost, "fake driver: device {} is gone", on);
  }
  Allocation& allocation = allocations_.at(device);
  if (allocation.home == home && allocation.device == on) {
    return {};
  }
  if (toMirror && !options_.zeroCopy) {
    return fail(adsmErrorNotSupported, "fake driver: {:#x} is out of reach", device);
  }
  if (!toMirror) {
    GMAC_TRY(roomFor(bytes, home, on));
  }
  // Who still uses the old pages does not live.
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED || (toMirror && !mapAgain(device, bytes, pages))) {
    return fail(adsmErrorHostMemory, "fake driver: no address space for {} bytes", bytes);
  }
  if (!toMirror) {
    std::memcpy(pages, allocation.backing, bytes);
  }
  for (const auto& [page, itsBytes] : allocation.pages) {
    (void)mremap(allocation.backing + page, itsBytes, itsBytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                 static_cast<std::byte*>(pages) + page);
  }
  if (home == accel::Home::kCpu) {
    const auto kept = std::find(keptPages_.begin(), keptPages_.end(), bytes);
    if (kept != keptPages_.end()) {
      keptPages_.erase(kept);
    } else {
      cpuPagesMade_ += bytes;
    }
  }
  if (allocation.home == accel::Home::kCpu && keepsPages_) {
    keptPages_.push_back(bytes);
  }
  munmap(allocation.backing, bytes);
  allocation.backing = static_cast<std::byte*>(pages);
  usedOf(allocation.home, allocation.device) -= bytes;
  usedOf(home, on) += bytes;
  allocation.home = home;
  allocation.device = on;
  return {};
}

Status FakeAccelerator::movePage(DeviceAddress address, std::size_t bytes, accel::Home home,
                                 int /*device*/) {
  if (moveHook_) {
    moveHook_();
  }
  const std::lock_guard guard(lock_);
  const auto device = static_cast<std::uintptr_t>(address);
  const auto found = std::prev(allocations_.upper_bound(device));
  Allocation& allocation = found->second;
  const std::size_t offset = device - found->first;
  const bool toMirror = home == accel::Home::kMirror;
  record({Op::Kind::kMove, device, bytes, {}, static_cast<std::uintptr_t>(home)});
  mayBlock("move");
  if (offset % bytes != 0 || offset + bytes > allocation.bytes ||
      allocation.pages.contains(offset) == toMirror || (!toMirror && home != allocation.home)) {
    complain(fmt::format("move of the page at {:#x}: it cannot", device));
    return fail(adsmErrorSystem, "fake driver: bad movePage");
  }
  complainOfUsers("move", device, bytes);
  if (toMirror) {
    complainOfKernels("move", device, bytes);
  }
  if (Status failed; fails(Op::Kind::kMove, "move", &failed)) {
    return failed;
  }
  if (toMirror && !options_.zeroCopy) {
    return fail(adsmErrorNotSupported, "fake driver: {:#x} is out of reach", device);
  }
  std::byte* const backing = allocation.backing + offset;
  if (toMirror) {
    if (!mapAgain(device, bytes, backing)) {
      return fail(adsmErrorHostMemory, "fake driver: no address space for a page");
    }
    allocation.pages.emplace(offset, bytes);
    return {};
  }
  const std::vector<std::byte> held(backing, backing + bytes);
  if (mmap(backing, bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != backing) {
    return fail(adsmErrorHostMemory, "fake driver: no address space for a page");
  }
  std::memcpy(backing, held.data(), bytes);
  allocation.pages.erase(offset);
  return {};
}

std::size_t FakeAccelerator::addressBytes(std::size_t bytes) const {
  return options_.zeroCopy ? roundUp(bytes, kDevicePage) : bytes;
}

std::size_t FakeAccelerator::marginOf(DeviceAddress, std::size_t bytes) const {
  return std::min(addressBytes(bytes) - bytes, kMargin);
}

void FakeAccelerator::keepPages(bool keep) noexcept {
  const std::lock_guard guard(lock_);
  keepsPages_ = keep;
  if (!keep) {
    keptPages_.clear();
  }
}

std::size_t FakeAccelerator::cpuPagesMade() const {
  const std::lock_guard guard(lock_);
  return cpuPagesMade_;
}

std::size_t FakeAccelerator::cpuPagesKept() const {
  const std::lock_guard guard(lock_);
  return std::accumulate(keptPages_.begin(), keptPages_.end(), std::size_t{0});
}

std::vector<int> FakeAccelerator::devicesWithMemory() const {
  std::vector<int> devices(1 + options_.peerBytes.size());
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

Result<accel::MemoryRoom> FakeAccelerator::roomOn(int device) {
  const std::lock_guard guard(lock_);
  mayBlock("roomOn");
  if (device == lost_) {
    return fail(adsmErrorAcceleratorLost, "fake driver: device {} is gone", device);
  }
  return accel::MemoryRoom{memoryOf(device),
                           memoryOf(device) - usedOf(accel::Home::kDevice, device)};
}

std::size_t FakeAccelerator::bytesOn(DeviceAddress address, std::size_t bytes, int device) const {
  const std::lock_guard guard(lock_);
  const auto found = allocations_.find(static_cast<std::uintptr_t>(address));
  return found != allocations_.end() && found->second.home == accel::Home::kDevice &&
                 found->second.device == device
             ? bytes
             : 0;
}

int FakeAccelerator::deviceOf(const void* object) const {
  const std::lock_guard guard(lock_);
  const Allocation& allocation = allocations_.at(reinterpret_cast<std::uintptr_t>(object));
  return allocation.home == accel::Home::kDevice ? allocation.device : -1;
}

Result<DeviceAddress> FakeAccelerator::allocate(std::size_t bytes, std::size_t alignment,
                                                Placement placement) {
  return allocate(bytes, alignment, placement, accel::Home::kDevice, here_);
}

Result<DeviceAddress> FakeAccelerator::allocate(std::size_t bytes, std::size_t alignment,
                                                Placement placement, accel::Home home, int on) {
  const std::lock_guard guard(lock_);
  mayBlock("allocate");
  if (Status failed; fails(Op::Kind::kAllocate, "allocate", &failed)) {
    return failed;
  }
  if (refuseSameAddress_ && placement == Placement::kSameAddress) {
    return fail(adsmErrorAddressConflict, "fake driver: no address for {} bytes", bytes);
  }
  GMAC_TRY(roomFor(bytes, home, on));
  void* backing = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (backing == MAP_FAILED) {
    return fail(adsmErrorAcceleratorMemory, "fake driver: no address space for {} bytes", bytes);
  }
  auto device = reinterpret_cast<std::uintptr_t>(backing);
  if (placement == Placement::kSameAddress) {
    const std::size_t align = std::max(alignment, kAlignment);
    const std::size_t all = addressBytes(bytes);
    void* raw =
        mmap(nullptr, all + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
      munmap(backing, bytes);
      return fail(adsmErrorAddressConflict, "fake driver: no address for {} bytes", bytes);
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(raw);
    device = (begin + align - 1) / align * align;
    if (device > begin) {
      munmap(raw, device - begin);
    }
    if (begin + align > device) {
      munmap(reinterpret_cast<void*>(device + all), begin + align - device);
    }
  }
  allocations_[device] = {
      bytes,     static_cast<std::byte*>(backing), placement == Placement::kSameAddress, home, on,
      ++numbers_};
  usedOf(home, on) += bytes;
  record({Op::Kind::kAllocate, device, bytes, {}});
  return DeviceAddress{device};
}

Status FakeAccelerator::free(DeviceAddress address, std::size_t bytes) {
  const std::lock_guard guard(lock_);
  const auto device = static_cast<std::uintptr_t>(address);
  record({Op::Kind::kFree, device, bytes, {}});
  mayBlock("free");
  const auto found = allocations_.find(device);
  if (found == allocations_.end() || found->second.bytes != bytes) {
    complain(fmt::format("free of {:#x}, {} bytes: no allocation", device, bytes));
    return fail(adsmErrorSystem, "fake driver: free of {:#x}: no allocation", device);
  }
  complainOfUsers("free", device, bytes);
  Status status;
  (void)fails(Op::Kind::kFree, "free",
              &status);  // the memory is gone all the same, as a driver's is
  munmap(found->second.backing, bytes);
  if (found->second.sameAddress) {
    munmap(reinterpret_cast<void*>(device), addressBytes(bytes));
  }
  usedOf(found->second.home, found->second.device) -= bytes;
  allocations_.erase(found);
  return status;
}

Status FakeAccelerator::pin(const HostMemory& memory) {
  if (pinHook_) {
    pinHook_();
  }
  const std::lock_guard guard(lock_);
  auto* const begin = static_cast<std::byte*>(memory.address);
  record({Op::Kind::kPin, reinterpret_cast<std::uintptr_t>(begin), memory.bytes, {}});
  mayBlock("pin");
  if (Status failed; fails(Op::Kind::kPin, "pin", &failed)) {
    return failed;
  }
  for (const auto& [address, pinned] : pins_) {
    if (overlap(reinterpret_cast<std::uintptr_t>(begin), memory.bytes,
                reinterpret_cast<std::uintptr_t>(address), pinned.bytes)) {
      complain(fmt::format("pin of {}, {} bytes: pinned already", shown(begin), memory.bytes));
    }
  }
  if (memory.fd >= 0) {
    pins_[begin] = {memory.bytes, begin, false};
    return {};
  }
  // A device reaches pinned pages by their physical addresses, wherever they are mapped. Here they
  // become pages of a file, which move like others, and the fake keeps a view of its own.
  const int fd = memfd_create("fake-pinned", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(memory.bytes)) != 0) {
    return fail(adsmErrorHostMemory, "fake driver: no memory to pin");
  }
  void* view = mmap(nullptr, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (view != MAP_FAILED) {
    std::memcpy(view, begin, memory.bytes);
    if (mmap(begin, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
            MAP_FAILED ||
        madvise(begin, memory.bytes, MADV_DONTFORK) != 0) {
      munmap(view, memory.bytes);
      view = MAP_FAILED;
    }
  }
  close(fd);
  if (view == MAP_FAILED) {
    return fail(adsmErrorHostMemory, "fake driver: no memory to pin");
  }
  pins_[begin] = {memory.bytes, static_cast<std::byte*>(view), true};
  return {};
}

Status FakeAccelerator::unpin(const HostMemory& memory) {
  const std::lock_guard guard(lock_);
  const auto* const begin = static_cast<const std::byte*>(memory.address);
  record({Op::Kind::kUnpin, reinterpret_cast<std::uintptr_t>(begin), memory.bytes, {}});
  mayBlock("unpin");
  const auto found = pins_.find(begin);
  if (found == pins_.end() || found->second.bytes != memory.bytes) {
    complain(fmt::format("unpin of {}, {} bytes: not pinned", shown(begin), memory.bytes));
    return fail(adsmErrorSystem, "fake driver: unpin of {}: not pinned", shown(begin));
  }
  for (const auto& queue : queues_) {
    for (const Work& work : queue) {
      if (work.host != nullptr && overlap(reinterpret_cast<std::uintptr_t>(work.host), work.bytes,
                                          reinterpret_cast<std::uintptr_t>(begin), memory.bytes)) {
        complain(fmt::format("unpin of {}, {} bytes: a queued copy names it", shown(begin),
                             memory.bytes));
      }
    }
  }
  if (found->second.moved) {
    munmap(found->second.view, memory.bytes);
  }
  pins_.erase(found);
  return {};
}

// NULL when [address, address + bytes) is not inside one pinned range.
std::byte* FakeAccelerator::hostView(const void* address, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(address);
  auto after = pins_.upper_bound(begin);
  if (after == pins_.begin()) {
    return nullptr;
  }
  const auto& [start, pinned] = *--after;
  const auto offset = static_cast<std::size_t>(begin - start);
  return offset + bytes <= pinned.bytes ? pinned.view + offset : nullptr;
}

std::byte* FakeAccelerator::deviceView(DeviceAddress address, std::size_t bytes) {
  const auto device = static_cast<std::uintptr_t>(address);
  if (pageIsAlone(device, bytes, false) && !pageIsAlone(device, bytes, true)) {
    complain(
        fmt::format("{} bytes at {:#x}: some lie in a page that has moved alone", bytes, device));
  }
  return static_cast<std::byte*>(translate(device, bytes));
}

void* FakeAccelerator::translate(std::uintptr_t device, std::size_t bytes) {
  const std::lock_guard guard(lock_);
  auto after = allocations_.upper_bound(device);
  if (after == allocations_.begin()) {
    return nullptr;
  }
  const auto& [start, allocation] = *--after;
  const std::size_t offset = device - start;
  return offset + bytes <= allocation.bytes ? allocation.backing + offset : nullptr;
}

// ---- Queues

FakeAccelerator::Queue FakeAccelerator::queueOf(Ticket ticket) {
  return static_cast<Queue>(ticket.value & ((std::uint64_t{1} << kQueueBits) - 1));
}

std::uint64_t FakeAccelerator::sequenceOf(Ticket ticket) { return ticket.value >> kQueueBits; }

Ticket FakeAccelerator::push(Queue queue, Work work) {
  work.sequence = ++sequence_;
  submitted_[queue] = work.sequence;
  const Ticket ticket{work.sequence << kQueueBits | queue};
  queues_[queue].push_back(std::move(work));
  switch (options_.run) {
    case FakeOptions::Run::kDeferred:
      break;
    case FakeOptions::Run::kEager:
      runUpTo(queue, submitted_[queue]);
      break;
    case FakeOptions::Run::kRandom:
      makeProgress();
      break;
  }
  return ticket;
}

void FakeAccelerator::makeProgress() {
  for (std::uint64_t steps = random_() % 3; steps > 0; --steps) {
    const auto queue = static_cast<Queue>(random_() % kQueues);
    if (!queues_[queue].empty()) {
      runFront(queue);
    }
  }
}

void FakeAccelerator::runFront(Queue queue) {
  Work work = std::move(queues_[queue].front());
  queues_[queue].pop_front();
  if (work.after.value != 0) {
    runUpTo(queueOf(work.after), sequenceOf(work.after));
  }
  if (work.afterIns != 0) {
    runUpTo(kIn, work.afterIns);
  }
  if (!work.run()) {
    kernelFailed_ = true;
  }
  finished_[queue] = work.sequence;
}

void FakeAccelerator::runUpTo(Queue queue, std::uint64_t sequence) {
  while (!queues_[queue].empty() && queues_[queue].front().sequence <= sequence) {
    runFront(queue);
  }
}

bool FakeAccelerator::done(Ticket ticket) noexcept {
  const std::lock_guard guard(lock_);
  if (options_.run == FakeOptions::Run::kRandom) {
    makeProgress();
  }
  const auto finished = [&] {
    return ticket.value == 0 || sequenceOf(ticket) <= finished_[queueOf(ticket)];
  };
  if (mostAsked_ != 0 && !finished()) {
    asked_ = std::exchange(askedFor_, ticket.value) == ticket.value ? asked_ + 1 : 1;
    if (asked_ >= mostAsked_) {
      runAllHeld();
    }
  }
  return finished();
}

bool FakeAccelerator::succeeded(Ticket ticket) noexcept {
  const std::lock_guard guard(lock_);
  return ticket.value == 0 || (sequenceOf(ticket) <= finished_[queueOf(ticket)] && !kernelFailed_);
}

Status FakeAccelerator::wait(Ticket ticket) {
  std::unique_lock guard(lock_);
  if (ticket.value == 0) {
    return {};
  }
  if (mayBlock("wait")) {
    const Queue queue = queueOf(ticket);
    const auto goesOn = [&] {
      return !stalledQueues_[queue] || sequenceOf(ticket) <= finished_[queue];
    };
    if (!goesOn()) {
      ++stalledThreads_;
      resumed_.wait(guard, goesOn);
      --stalledThreads_;
    }
  }
  record({Op::Kind::kWait, 0, 0, {}});
  if (Status failed; fails(Op::Kind::kWait, "wait", &failed)) {
    return failed;
  }
  runUpTo(queueOf(ticket), sequenceOf(ticket));
  if (queueOf(ticket) >= kKernels && kernelFailed_) {
    kernelFailed_ = false;
    return fail(adsmErrorKernel, "fake driver: a kernel crashed");
  }
  guard.unlock();
  if (waitedHook_) {
    waitedHook_();
  }
  return {};
}

// ---- Copies

Result<Ticket> FakeAccelerator::copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                                       Ticket after) {
  if (copyInHook_) {
    copyInHook_();
  }
  const std::lock_guard guard(lock_);
  const auto device = static_cast<std::uintptr_t>(to);
  record({Op::Kind::kCopyIn, device, bytes, {}});
  if (Status failed; fails(Op::Kind::kCopyIn, "copyIn", &failed)) {
    return failed;
  }
  complainOfZeroCopy("copyIn", device);
  std::byte* const target = deviceView(to, bytes);
  const std::byte* const source = hostView(from, bytes);
  if (target == nullptr || source == nullptr) {
    complain(fmt::format("copyIn of {} bytes from {} to {:#x}: {}", bytes, from, device,
                         target == nullptr ? "beyond an allocation" : "not pinned"));
    return fail(adsmErrorSystem, "fake driver: bad copyIn");
  }
  return push(kIn, {0, after, 0,
                    [=] {
                      std::memcpy(target, source, bytes);
                      return true;
                    },
                    device, static_cast<const std::byte*>(from), bytes});
}

Result<Ticket> FakeAccelerator::copyOut(void* to, DeviceAddress from, std::size_t bytes,
                                        Ticket after) {
  if (copyOutHook_) {
    copyOutHook_();
  }
  const std::lock_guard guard(lock_);
  return copyOutOn(kOut, to, from, bytes, after, 0);
}

Result<Ticket> FakeAccelerator::copyOutOn(Queue queue, void* to, DeviceAddress from,
                                          std::size_t bytes, Ticket after, std::uint64_t afterIns) {
  const auto device = static_cast<std::uintptr_t>(from);
  record({Op::Kind::kCopyOut, device, bytes, {}});
  if (Status failed; fails(Op::Kind::kCopyOut, "copyOut", &failed)) {
    return failed;
  }
  complainOfZeroCopy("copyOut", device);
  const std::byte* const source = deviceView(from, bytes);
  std::byte* const target = hostView(to, bytes);
  if (target == nullptr || source == nullptr) {
    complain(fmt::format("copyOut of {} bytes from {:#x} to {}: {}", bytes, device, to,
                         source == nullptr ? "beyond an allocation" : "not pinned"));
    return fail(adsmErrorSystem, "fake driver: bad copyOut");
  }
  return push(queue, {0, after, afterIns,
                      [=, this] {
                        if (!options_.loseCopies) {
                          std::memcpy(target, source, bytes);
                        }
                        return true;
                      },
                      device, static_cast<const std::byte*>(to), bytes});
}

Result<Ticket> FakeAccelerator::copyWithin(DeviceAddress to, DeviceAddress from,
                                           std::size_t bytes) {
  const std::lock_guard guard(lock_);
  record({Op::Kind::kCopyWithin,
          static_cast<std::uintptr_t>(to),
          bytes,
          {},
          static_cast<std::uintptr_t>(from)});
  if (Status failed; fails(Op::Kind::kCopyWithin, "copyWithin", &failed)) {
    return failed;
  }
  std::byte* const target = deviceView(to, bytes);
  const std::byte* const source = deviceView(from, bytes);
  if (target == nullptr || source == nullptr) {
    complain("copyWithin beyond an allocation");
    return fail(adsmErrorSystem, "fake driver: bad copyWithin");
  }
  if (overlap(static_cast<std::uintptr_t>(to), bytes, static_cast<std::uintptr_t>(from), bytes)) {
    complain("copyWithin of ranges that overlap");
  }
  return push(kKernels, {0,
                         {},
                         0,
                         [=] {
                           std::memcpy(target, source, bytes);
                           return true;
                         },
                         static_cast<std::uintptr_t>(to),
                         nullptr,
                         bytes});
}

Result<Ticket> FakeAccelerator::fill(DeviceAddress to, std::byte value, std::size_t bytes) {
  const std::lock_guard guard(lock_);
  record({Op::Kind::kFill, static_cast<std::uintptr_t>(to), bytes, {}});
  if (Status failed; fails(Op::Kind::kFill, "fill", &failed)) {
    return failed;
  }
  std::byte* const target = deviceView(to, bytes);
  if (target == nullptr) {
    complain("fill beyond an allocation");
    return fail(adsmErrorSystem, "fake driver: bad fill");
  }
  return push(kKernels, {0,
                         {},
                         0,
                         [=] {
                           std::fill_n(target, bytes, value);
                           return true;
                         },
                         static_cast<std::uintptr_t>(to),
                         nullptr,
                         bytes});
}

// ---- Kernels

Result<std::unique_ptr<accel::LoadedKernel>> FakeAccelerator::load(const adsmKernelDesc_t& desc) {
  const std::lock_guard guard(lock_);
  record({Op::Kind::kLoad, 0, 0, desc.name});
  mayBlock("load");
  if (Status failed; fails(Op::Kind::kLoad, "load", &failed)) {
    return failed;
  }
  const auto found = bodies_.find(desc.name);
  if (found == bodies_.end()) {
    return fail(adsmErrorNoImplementation, "fake driver: kernel {} has no body", desc.name);
  }
  return std::unique_ptr<accel::LoadedKernel>(std::make_unique<Loaded>(
      desc.name, std::vector<std::size_t>(desc.paramSizes, desc.paramSizes + desc.paramCount),
      found->second));
}

Result<Ticket> FakeAccelerator::launch(accel::LoadedKernel& kernel, const LaunchShape& shape,
                                       void** args) {
  const std::lock_guard guard(lock_);
  auto& loaded = static_cast<Loaded&>(kernel);
  record({Op::Kind::kLaunch, 0, 0, loaded.name()});
  if (Status failed; fails(Op::Kind::kLaunch, "launch", &failed)) {
    return failed;
  }
  std::vector<std::vector<std::byte>> values;
  for (std::size_t i = 0; i < loaded.paramSizes().size(); ++i) {
    const auto* value = static_cast<const std::byte*>(args[i]);
    values.emplace_back(value, value + loaded.paramSizes()[i]);
  }
  return push(kKernels, {0,
                         {},
                         submitted_[kIn],
                         [this, &loaded, shape, values = std::move(values)]() mutable {
                           if (crashCountdown_ > 0 && --crashCountdown_ == 0) {
                             return false;
                           }
                           std::vector<void*> pointers;
                           for (auto& value : values) {
                             pointers.push_back(value.data());
                           }
                           loaded.body()(shape, pointers.data());
                           return true;
                         },
                         0,
                         nullptr,
                         0});
}

Status FakeAccelerator::setConstant(accel::LoadedKernel& kernel, const adsmConstant_t& constant,
                                    const void* data, std::size_t bytes) {
  const std::lock_guard guard(lock_);
  record({Op::Kind::kSetConstant, 0, bytes, static_cast<Loaded&>(kernel).name()});
  mayBlock("setConstant");
  if (Status failed; fails(Op::Kind::kSetConstant, "setConstant", &failed)) {
    return failed;
  }
  const auto* const begin = static_cast<const std::byte*>(data);
  push(kKernels, {0,
                  {},
                  0,
                  [variable = constant.host, value = std::vector<std::byte>(begin, begin + bytes)] {
                    std::memcpy(variable, value.data(), value.size());
                    return true;
                  },
                  0,
                  nullptr,
                  0});
  return {};
}

// ---- Engines' work

namespace {

Status notHere() { return fail(adsmErrorNotSupported, "the fake accelerator serves no engine"); }

}  // namespace

Result<void*> FakeAccelerator::allocatePinned(std::size_t) { return notHere(); }
namespace {

std::size_t streamIndex(NativeStream stream) { return static_cast<std::uintptr_t>(stream) % 8; }

}  // namespace

// The commands that the coherence submits: copies to the CPU. Each is a piece of work on its queue.
class FakeAccelerator::CopiesOut final : public accel::Commands {
 public:
  CopiesOut(FakeAccelerator& fake, Queue queue) : fake_(fake), queue_(queue) {}
  Ticket last() const { return last_; }

  Status copyOut(void* pinned, std::uint64_t from, std::size_t bytes) override {
    auto ticket = fake_.copyOutOn(queue_, pinned, DeviceAddress{from}, bytes, {},
                                  queue_ == kKernels ? fake_.submitted_[kIn] : 0);
    if (ticket.ok()) {
      last_ = *ticket;
    }
    return ticket.status();
  }
  Status launch(accel::LoadedKernels&, const accel::Launch&) override { return notHere(); }
  Status copyIn(std::uint64_t, const void*, std::size_t) override { return notHere(); }
  Status copyWithin(std::uint64_t, std::uint64_t, std::size_t) override { return notHere(); }
  Status copyStrided(const accel::StridedCopy&) override { return notHere(); }

 private:
  FakeAccelerator& fake_;
  const Queue queue_;
  Ticket last_;
};

Result<Ticket> FakeAccelerator::submit(accel::Work& work) {
  const std::lock_guard guard(lock_);
  CopiesOut commands(*this, kKernels);
  if (const Status status = work.run(commands); !status.ok()) {
    return status;
  }
  return commands.last();
}

Status FakeAccelerator::submit(NativeStream stream, accel::Work& work) {
  const std::lock_guard guard(lock_);
  if (capturing_) {
    complain("work on a stream that is capturing");
  }
  CopiesOut commands(*this, static_cast<Queue>(kFirstStream + streamIndex(stream)));
  return work.run(commands);
}

Status FakeAccelerator::launch(NativeStream, accel::LoadedKernels&, const accel::Launch&) {
  return notHere();
}

// ---- Streams

Result<accel::NativeStreams::Fence> FakeAccelerator::fence(NativeStream stream,
                                                           const Fence& earlier) {
  const std::lock_guard guard(lock_);
  record({Op::Kind::kFence, static_cast<std::uintptr_t>(stream), 0, {}});
  if (Status failed; fails(Op::Kind::kFence, "fence", &failed)) {
    return failed;
  }
  const Fence fence = newest();
  if (fence.copyIn != earlier.copyIn || fence.kernelWork != earlier.kernelWork) {
    push(static_cast<Queue>(kFirstStream + streamIndex(stream)),
         {0, fence.kernelWork, submitted_[kIn], [] { return true; }, 0, nullptr, 0});
  }
  return fence;
}

accel::NativeStreams::Fence FakeAccelerator::newest() const noexcept {
  const std::lock_guard guard(lock_);
  const auto newestIn = [&](Queue queue) {
    return Ticket{submitted_[queue] == 0 ? 0 : submitted_[queue] << kQueueBits | queue};
  };
  return {newestIn(kIn), newestIn(kKernels)};
}

std::uint64_t FakeAccelerator::newestOn(NativeStream stream) {
  const std::lock_guard guard(lock_);
  return submitted_[kFirstStream + streamIndex(stream)];
}

Status FakeAccelerator::follow(NativeStream stream, Ticket ticket) {
  const std::lock_guard guard(lock_);
  push(static_cast<Queue>(kFirstStream + streamIndex(stream)),
       {0, ticket, 0, [] { return true; }, 0, nullptr, 0});
  return {};
}

Status FakeAccelerator::waitForAll() {
  runAll();
  return {};
}

Result<Ticket> FakeAccelerator::mark(NativeStream stream, Ticket) {
  if (markHook_) {
    markHook_();
  }
  const std::lock_guard guard(lock_);
  record({Op::Kind::kMark, static_cast<std::uintptr_t>(stream), 0, {}});
  if (Status failed; fails(Op::Kind::kMark, "mark", &failed)) {
    return failed;
  }
  const auto queue = static_cast<Queue>(kFirstStream + streamIndex(stream));
  return submitted_[queue] == 0 ? Ticket{} : Ticket{submitted_[queue] << kQueueBits | queue};
}

void FakeAccelerator::runStream(NativeStream stream) {
  const std::lock_guard guard(lock_);
  const auto queue = static_cast<Queue>(kFirstStream + streamIndex(stream));
  runUpTo(queue, submitted_[queue]);
}

void FakeAccelerator::submit(NativeStream stream, std::function<void()> work) {
  const std::lock_guard guard(lock_);
  push(static_cast<Queue>(kFirstStream + streamIndex(stream)), {0,
                                                                {},
                                                                0,
                                                                [work = std::move(work)] {
                                                                  work();
                                                                  return true;
                                                                },
                                                                0,
                                                                nullptr,
                                                                0});
}

}  // namespace gmac::testing
