// SPDX-License-Identifier: Apache-2.0
//
// The accelerator's memory: allocations, where they lie and how they move, and what other processes
// share of them.
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmac/accel/cuda/application_memory.h"
#include "gmac/accel/cuda/stream_accelerator.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/keeping_error.h"
#include "gmac/base/round_up.h"

namespace gmac::accel::cuda {

namespace {

// The driver maps memory in such pages; an allocation of whole ones starts at one.
constexpr std::size_t kDevicePage = 2 << 20;

// The most that is one piece of memory where one device has all: while a page of it moves alone, a
// second one lies beside it.
constexpr std::size_t kMostPieceBytes = std::size_t{256} << 20;

// How much moves at a time between devices: 1 GiB in pieces of 64 MiB takes 1.3 times as long on
// two H200s, at once 4 times.
constexpr std::size_t kPieceBytes = std::size_t{128} << 20;

// How many allocations at a time have a margin: device memory before and after it, at least
// kLeastMargin on each side, that a kernel which overruns its array meets instead of nothing. A
// kernel that meets nothing takes the context with it; with CUDA's own allocator, which puts
// allocations side by side, it seldom does.
constexpr std::size_t kMostMargins = 64;
constexpr std::size_t kLeastMargin = 64 << 10;

// The kernel's question for one mapping (linux/fs.h since 6.11): the first one that holds
// `address` or lies after it and has one of the access rights asked for.
struct MappingQuery {
  std::uint64_t size = sizeof(MappingQuery);
  std::uint64_t flags = 0;
  std::uint64_t address = 0;
  std::uint64_t begin = 0, end = 0;  // answers, as all that follows
  std::uint64_t access = 0, pageBytes = 0, offset = 0, inode = 0;
  std::uint32_t major = 0, minor = 0, nameBytes = 0, idBytes = 0;
  std::uint64_t name = 0, id = 0;
};
constexpr unsigned long kQueryMapping = _IOWR('f', 17, MappingQuery);
constexpr std::uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kOrNext = 16;

// The answer to accessibleOnCpu(), where the kernel can be asked for single mappings. Rights that
// are asked for together must be there together, so each is asked for alone.
std::optional<bool> accessibleByQuery(std::FILE* maps, std::uintptr_t first, std::uintptr_t last) {
  for (const std::uint64_t right : {kReadable, kWritable, kExecutable}) {
    MappingQuery query;
    query.flags = right | kOrNext;
    query.address = first;
    if (::ioctl(::fileno(maps), kQueryMapping, &query) == 0) {
      if (query.begin < last) return true;
    } else if (errno != ENOENT) {
      return std::nullopt;
    }
  }
  return false;
}

// Whether somebody can access a byte of the CPU's range [first, last). The driver reserves the
// range of an allocation with a mapping without access; anything else there belongs to somebody and
// must not be mapped over.
bool accessibleOnCpu(std::uintptr_t first, std::uintptr_t last) {
  const gmac::Stream maps = openStream("/proc/self/maps");
  if (maps == nullptr) return false;
  if (const std::optional<bool> answer = accessibleByQuery(maps.get(), first, last)) return *answer;
  char line[4096 + 128];
  while (std::fgets(line, sizeof line, maps.get()) != nullptr) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char access[5] = {};
    if (std::sscanf(line, "%lx-%lx %4s", &begin, &end, access) != 3 || end <= first) continue;
    if (begin >= last) break;  // the file is sorted
    if (std::strncmp(access, "---", 3) != 0) return true;
  }
  return false;
}

Status conflict(std::size_t bytes, std::uintptr_t address) {
  return gmac::fail(adsmErrorAddressConflict,
                    "the accelerator's {} bytes at {:#x} lie over memory that the CPU uses; use "
                    "adsmSafeAlloc()",
                    bytes, address);
}

}  // namespace

template <typename Work>
Status StreamAccelerator::withCopier(std::optional<int> device, Work work) {
  if (const std::size_t other = device ? devices_.find(*device) : 0; other != 0) {
    OtherDevice& target = devices_.device(other);
    const std::lock_guard lock(target.moving);
    if (target.moveStream != nullptr && !target.calls->health().lost()) {
      return work(
          MappedMemory::Copier{*target.calls, *device, target.moveStream, target.moveEvent});
    }
  }
  return work(MappedMemory::Copier{*calls_, calls_->deviceNumber(), zeroStream_, zeroEvent_});
}

Status StreamAccelerator::zero(std::uintptr_t address, std::size_t bytes, std::size_t pieceBytes,
                               const Place& place) {
  // Waited for, so that it is before everything else, the application's own streams included; on a
  // stream of its own, so that the wait is for the fill (0.3 ms per GiB) and not for the kernels in
  // flight.
  const bool apart = place.home == Home::kApart;
  return withCopier(apart ? std::optional(place.device) : std::nullopt,
                    [&](const MappedMemory::Copier& by) -> Status {
                      const DeviceScope scope(by.calls);
                      for (std::size_t offset = 0; offset < bytes; offset += pieceBytes) {
                        GMAC_TRY(by.calls.fill(address + offset, 0,
                                               std::min(pieceBytes, bytes - offset), by.stream));
                      }
                      GMAC_TRY(by.calls.record(by.event, by.stream));
                      return awaitEvent(by.calls, by.event);
                    });
}

Result<StreamAccelerator::Allocation> StreamAccelerator::take(std::size_t total,
                                                              std::size_t alignment,
                                                              const MappedMemory::Layout& layout) {
  const Home home = layout.turns.front().home;
  const bool onCpu = home == Home::kCpu;
  // Memory that is not mapped cannot move, and other devices and processes do not reach it. (It
  // takes whole pages, too.)
  const bool mapped = mapped_.offers(home);
  if (!mapped && onCpu) {
    return gmac::fail(adsmErrorNotSupported,
                      "{} cannot have memory of the CPU's in place of its own", deviceName());
  }
  Result<std::uintptr_t> given =
      mapped ? mapped_.allocate(total, alignment, layout) : calls_->allocate(total);
  if (!given.ok()) return given.status();
  return Allocation{*given, false, mapped};
}

Status StreamAccelerator::giveBack(const Allocation& allocation) {
  return allocation.mapped ? mapped_.release(allocation.given) : calls_->release(allocation.given);
}

Status StreamAccelerator::checkSameAddress() const {
  return calls_->unifiedAddresses()
             ? Status()
             : gmac::fail(adsmErrorAddressConflict,
                          "{} does not share the CPU's address space, so no address is valid on "
                          "both sides; use adsmSafeAlloc()",
                          deviceName());
}

Result<DeviceAddress> StreamAccelerator::allocateShared(std::size_t bytes, std::size_t alignment,
                                                        Placement placement) {
  GMAC_TRY(ready());
  if (placement == Placement::kSameAddress) GMAC_TRY(checkSameAddress());
  if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) {
    return gmac::fail(adsmErrorAcceleratorMemory, "{} bytes are more than {} can address", bytes,
                      deviceName());
  }
  const auto address = windows_->take(bytes, alignment, placement);
  if (!address) {
    return gmac::fail(placement == Placement::kSameAddress ? adsmErrorAddressConflict
                                                           : adsmErrorAcceleratorMemory,
                      "no {} addresses in a row are free for memory of {}: the longest free range "
                      "has {} bytes",
                      bytes, deviceName(), windows_->largest(placement));
  }
  const bool used = placement == Placement::kSameAddress &&
                    accessibleOnCpu(*address, *address + roundUp(bytes, kDevicePage));
  const Status mapped =
      used ? conflict(bytes, *address) : allocateAt(DeviceAddress{*address}, bytes, placement);
  if (!mapped.ok()) {
    windows_->giveBack(*address, bytes, placement);
    return mapped;
  }
  return DeviceAddress{*address};
}

Status StreamAccelerator::allocateAt(DeviceAddress address, std::size_t bytes,
                                     Placement placement) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const std::lock_guard lock(memoryMutex_);
  const auto at = static_cast<std::uintptr_t>(address);
  const std::size_t total = roundUp(bytes, kDevicePage);
  const Place place = mapped_.placeOf(Home::kDevice);
  GMAC_TRY(mapped_.allocateAt(at, total, {{place}, total}));
  if (const Status zeroed = zero(at, total, total, place); !zeroed.ok()) {
    const std::string words = lastErrorText();
    static_cast<void>(mapped_.release(at));
    recordError(zeroed.code(), words);
    return zeroed;
  }
  allocations_.emplace(at, Allocation{at, false, true, placement});
  return Status();
}

Result<DeviceAddress> StreamAccelerator::allocate(std::size_t bytes, std::size_t alignment,
                                                  Placement placement) {
  if (windows_ != nullptr) return allocateShared(bytes, alignment, placement);
  const int here = deviceHere();
  const auto address = allocate(bytes, alignment, placement, Home::kDevice, {&here, 1});
  const int own = calls_->deviceNumber();
  return here == own || address.ok() || address.status().code() != adsmErrorAcceleratorMemory
             ? address
             : allocate(bytes, alignment, placement, Home::kDevice, {&own, 1});
}

Result<DeviceAddress> StreamAccelerator::allocateOn(std::size_t bytes, std::size_t alignment,
                                                    Placement placement, int device) {
  return allocate(bytes, alignment, placement, Home::kDevice, {&device, 1});
}

Result<DeviceAddress> StreamAccelerator::allocateStriped(std::size_t bytes, std::size_t alignment,
                                                         Placement placement,
                                                         std::span<const std::size_t> devices) {
  GMAC_TRY(ready());
  if (!several_.load() || alignment > kDevicePage) {
    return gmac::fail(adsmErrorNotSupported, "{}'s memory is not striped over several devices",
                      deviceName());
  }
  std::vector<int> numbers;
  // Its lanes stand in for those of a device that has been reset.
  GMAC_TRY(openLanes(0));
  for (const std::size_t device : devices) {
    GMAC_TRY(openLanes(device));
    GMAC_TRY(allow(numberOf(device)));
    numbers.push_back(numberOf(device));
  }
  return allocate(bytes, alignment, placement, Home::kDevice, numbers);
}

Status StreamAccelerator::openLanes(std::size_t device) {
  const Result<KernelQueue> opened = kernelQueue(device);
  if (!opened.ok()) return opened.status();
  const std::lock_guard lock(openMutex_);
  return lanesOf(device).open();
}

void StreamAccelerator::noteStripes(std::uintptr_t address, std::size_t bytes,
                                    std::uintptr_t given) {
  std::vector<std::uint8_t> devices;
  for (std::size_t offset = 0; offset < bytes; offset += kDevicePage) {
    const Place place = mapped_.placeOfRest(given, address - given + offset);
    const std::size_t device = place.home == Home::kDevice  ? devices_.findSharing(place.device)
                               : place.home == Home::kApart ? devices_.find(place.device)
                                                            : 0;
    devices.push_back(static_cast<std::uint8_t>(device));
  }
  // (The accelerator's own copies reach what lies on one of the devices that share memory.)
  if (devices.front() <= devices_.count() &&
      std::all_of(devices.begin(), devices.end(),
                  [&](std::uint8_t device) { return device == devices.front(); })) {
    stripes_.remove(address);
  } else {
    stripes_.set(address, std::move(devices));
  }
}

Result<DeviceAddress> StreamAccelerator::allocateOnCpu(std::size_t bytes, std::size_t alignment,
                                                       Placement placement) {
  return allocate(bytes, alignment, placement, Home::kCpu, {});
}

Result<DeviceAddress> StreamAccelerator::allocate(std::size_t bytes, std::size_t alignment,
                                                  Placement placement, Home home,
                                                  std::span<const int> devices) {
  GMAC_TRY(ready());
  const bool sameAddress = placement == Placement::kSameAddress;
  if (sameAddress) GMAC_TRY(checkSameAddress());
  const DeviceScope scope(*calls_);
  const std::lock_guard lock(memoryMutex_);
  if (home == Home::kDevice) home = gatheredIn();
  const bool striped = home == Home::kDevice && devices.size() > 1;
  MappedMemory::Layout layout{{}, striped ? kDevicePage : kPieceBytes};
  for (const int device : home == Home::kDevice ? devices : std::span<const int>()) {
    const Place own = mapped_.placeOf(home);
    layout.turns.push_back(device != own.device && calls_->reachedFrom(device) &&
                                   allowLocked(device).ok()
                               ? Place{home, device}
                               : own);
  }
  if (layout.turns.empty()) layout.turns = {placeOf(home)};
  const std::size_t slack = alignment > kDevicePage ? alignment : 0;
  if (bytes > PTRDIFF_MAX || slack > PTRDIFF_MAX) {
    return gmac::fail(adsmErrorAcceleratorMemory, "{} bytes are more than {} can address", bytes,
                      deviceName());
  }
  // With a margin where one is to be had: it is the first that goes where memory is short.
  std::size_t before = sameAddress && margins_ < kMostMargins ? kDevicePage : 0;
  std::size_t total = before + roundUp(bytes + (before != 0 ? kLeastMargin : 0), kDevicePage);
  const auto takeIt = [&] {
    const std::size_t all = total + slack;
    if (!several_.load()) {
      layout.pieceBytes = mapped_.makesFiles() ? all : std::min(all, kMostPieceBytes);
    } else if (!striped && mapped_.makesFiles()) {
      layout.pieceBytes = MappedMemory::pieceBytes(all, kPieceBytes);
    }
    layout.first = striped ? before : 0;
    return take(all, alignment, layout);
  };
  Result<Allocation> taken = takeIt();
  const auto isFull = [&] {
    return !taken.ok() && taken.status().code() == adsmErrorAcceleratorMemory;
  };
  if (isFull() && before != 0) {
    before = 0;
    total = roundUp(bytes, kDevicePage);
    taken = takeIt();
  }
  if (!taken.ok()) return taken.status();
  Allocation allocation = *taken;
  allocation.hasMargin = before != 0;
  const std::uintptr_t given = allocation.given;
  const std::uintptr_t address = roundUp(given + before, std::max<std::size_t>(alignment, 1));
  Status status;
  if (address + bytes > given + total + slack) {
    status = gmac::fail(adsmErrorSystem, "{} gave {:#x}, which is not aligned to {} bytes",
                        deviceName(), given, alignment);
  } else if (sameAddress && accessibleOnCpu(given, given + total + slack)) {
    status = conflict(bytes, address);
  } else {
    // The margin too: what a kernel finds there is the same each time.
    status =
        zero(given, total + slack, striped ? kDevicePage : total + slack, layout.turns.front());
  }
  if (!status.ok()) {
    // The caller is told of the first failure.
    char text[kErrorTextBytes];
    std::snprintf(text, sizeof text, "%s", lastErrorText());
    static_cast<void>(giveBack(allocation));
    recordError(status.code(), text);
    return status;
  }
  allocations_.emplace(address, allocation);
  if (striped || home == Home::kApart) noteStripes(address, bytes, given);
  margins_ += before != 0 ? 1 : 0;
  return DeviceAddress(address);
}

Result<StreamAccelerator::Allocations::iterator> StreamAccelerator::ownAllocation(
    DeviceAddress address, std::size_t bytes) {
  const auto found = allocations_.find(static_cast<std::uintptr_t>(address));
  if (found == allocations_.end()) {
    return gmac::fail(adsmErrorInvalidPointer, "{:#x} ({} bytes) is no allocation of {}",
                      static_cast<std::uintptr_t>(address), bytes, deviceName());
  }
  return found;
}

Place StreamAccelerator::placeOf(Home home) const {
  if (home == Home::kDevice) home = gatheredIn();
  return home == Home::kApart ? Place{home, apart_} : mapped_.placeOf(home);
}

Status StreamAccelerator::move(DeviceAddress address, std::size_t bytes, Home home) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const RetiringLock lock(*this);
  const Result<Allocations::iterator> at = ownAllocation(address, bytes);
  if (!at.ok()) {
    return at.status();
  }
  const Allocation& allocation = (*at)->second;
  if (home == Home::kMirror) {
    const std::size_t offset = static_cast<std::uintptr_t>(address) - allocation.given;
    if (!allocation.mapped || offset % kDevicePage != 0) {
      return gmac::fail(adsmErrorNotSupported,
                        "{} bytes at {:#x} are no pages of {}, which the CPU's could replace",
                        bytes, static_cast<std::uintptr_t>(address), deviceName());
    }
    return movePages(allocation.given, offset, bytes, placeOf(home));
  }
  if (home == Home::kApart && gatheredIn() != home) {
    return gmac::fail(adsmErrorNotSupported, "memory lies on no device apart from {}",
                      deviceName());
  }
  // The margin, too.
  return moved((*at)->first, bytes, movePages(allocation.given, 0, SIZE_MAX / 2, placeOf(home)));
}

Status StreamAccelerator::movePage(DeviceAddress address, std::size_t bytes, Home home,
                                   int device) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const RetiringLock lock(*this);
  const auto part = partOf(static_cast<std::uintptr_t>(address));
  GMAC_TRY(part.status());
  if (part->second % kDevicePage != 0 || bytes != kDevicePage) {
    return gmac::fail(adsmErrorNotSupported, "{} bytes at {:#x} are no page of {}", bytes,
                      static_cast<std::uintptr_t>(address), deviceName());
  }
  // (Not where memory is gathered: the allocation may lie alone.)
  Place to = home == Home::kDevice ? mapped_.placeOf(home) : placeOf(home);
  if (home == Home::kApart ||
      (home == Home::kDevice && calls_->reachedFrom(device) && allowLocked(device).ok())) {
    to.device = device;
  }
  // (The rest of a piece stays where it is.)
  const Place copies = home == Home::kMirror ? mapped_.placeAt(part->first, part->second) : to;
  const bool onDevice = copies.home == Home::kDevice || copies.home == Home::kApart;
  return withCopier(onDevice ? std::optional(copies.device) : std::nullopt,
                    [&](const MappedMemory::Copier& by) {
                      return mapped_.movePage(part->first, part->second, to, by);
                    });
}

// Its pages are its own to the end of the last one.
std::size_t StreamAccelerator::marginOf(DeviceAddress address, std::size_t bytes) const {
  const std::lock_guard lock(memoryMutex_);
  const auto found = allocations_.find(static_cast<std::uintptr_t>(address));
  return found != allocations_.end() && found->second.mapped && mapped_.offers(Home::kMirror) &&
                 (static_cast<std::uintptr_t>(address) - found->second.given) % kDevicePage == 0
             ? std::min(roundUp(bytes, kDevicePage) - bytes, kLeastMargin)
             : 0;
}

Status StreamAccelerator::moved(std::uintptr_t address, std::size_t bytes, const Status& status) {
  // After a failure, too, some pages may lie elsewhere.
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return status;
  const auto& [start, allocation] = *std::prev(next);
  if (stripes_.hold(address)) {
    noteStripes(start, stripes_.bytesOf(start), allocation.given);
  } else if (allocation.mapped && mapped_.apartAt(allocation.given)) {
    noteStripes(start, bytes, allocation.given);
  }
  return status;
}

void StreamAccelerator::keepPages(bool keep) noexcept {
  const DeviceScope scope(*calls_);
  const std::lock_guard lock(memoryMutex_);
  mapped_.keepPages(keep);
}

Status StreamAccelerator::gatherIn(Home home, int device) {
  GMAC_TRY(ready());
  if (home == Home::kApart) {
    if (!calls_->primaryIsActive(device)) {
      return gmac::fail(adsmErrorNotSupported, "device {} has no primary context", device);
    }
    GMAC_TRY(openApart(device));
  }
  const std::lock_guard lock(memoryMutex_);
  if (home != Home::kDevice && (!mapped_.offers(Home::kCpu) || !allIsMapped())) {
    return gmac::fail(adsmErrorNotSupported,
                      "{} cannot have memory of the CPU's in place of its own", deviceName());
  }
  gatheredIn_ = home;
  apart_ = device;
  several_ = home == Home::kDevice;
  return Status();
}

Status StreamAccelerator::moveAllTo(DeviceAddress address, std::size_t bytes, int device) {
  GMAC_TRY(ready());
  openToMove(device);
  const DeviceScope scope(*calls_);
  const RetiringLock lock(*this);
  const auto found = allocations_.find(static_cast<std::uintptr_t>(address));
  if (found == allocations_.end() || !found->second.mapped || gatheredIn() != Home::kDevice ||
      !calls_->reachedFrom(device)) {
    return gmac::fail(adsmErrorNotSupported, "the {} bytes at {:#x} cannot move to device {}",
                      bytes, static_cast<std::uintptr_t>(address), device);
  }
  GMAC_TRY(allowLocked(device));
  // The margin, too.
  return moved(found->first, bytes,
               movePages(found->second.given, 0, SIZE_MAX / 2, {Home::kDevice, device}));
}

void StreamAccelerator::openToMove(int device) {
  if (const std::size_t other = devices_.find(device); other != 0) {
    devices_.openIfActive(other, [this](int number) { return allow(number); });
  }
}

Status StreamAccelerator::movePages(std::uintptr_t given, std::size_t offset, std::size_t bytes,
                                    Place place, bool holds) {
  const std::optional<int> target = place.home == Home::kDevice || place.home == Home::kApart
                                        ? std::optional(place.device)
                                        : std::nullopt;
  // What lies apart is copied by the device that it lies on, or comes to lie on. (After a move that
  // failed pages may lie in several places.)
  for (;;) {
    const std::optional<Place> from = mapped_.elsewhere(given, offset, bytes, place);
    const std::optional<int> source =
        from && from->home == Home::kApart ? std::optional(from->device) : std::nullopt;
    const Status moved =
        from && holds && target && !mapped_.reaches(*target, *from)
            ? movePagesAcross(given, source, place)
            : withCopier(source && holds ? source : target, [&](MappedMemory::Copier by) {
                by.zeros = !holds;
                return mapped_.move(given, offset, bytes, place, by);
              });
    const std::optional<Place> left = mapped_.elsewhere(given, offset, bytes, place);
    if (!moved.ok() || !left) return moved;
    if (left == from) {
      return gmac::fail(adsmErrorAcceleratorLost,
                        "device {}, which alone reaches the memory at {:#x}, has no context",
                        from->device, given);
    }
  }
}

Status StreamAccelerator::movePagesAcross(std::uintptr_t given, std::optional<int> from,
                                          Place place) {
  constexpr std::size_t kStage = std::size_t{4} << 20;
  const Result<void*> stage = calls_->allocateHost(kStage);
  if (!stage.ok()) return stage.status();
  const Status moved = withCopier(from, [&](const MappedMemory::Copier& reader) {
    return withCopier(place.device, [&](MappedMemory::Copier by) {
      by.reader = &reader;
      by.stage = {static_cast<std::byte*>(*stage), kStage};
      return mapped_.move(given, 0, SIZE_MAX / 2, place, by);
    });
  });
  return keepingError(moved, [&] { static_cast<void>(calls_->releaseHost(*stage)); });
}

Status StreamAccelerator::openApart(int device) {
  const std::size_t apart = devices_.find(device);
  if (apart <= devices_.count()) {
    return gmac::fail(adsmErrorNotSupported, "device {} is not apart from {}", device,
                      deviceName());
  }
  return openLanes(apart);
}

Status StreamAccelerator::moveAlone(DeviceAddress address, std::size_t bytes, Home home, int device,
                                    bool holds) {
  GMAC_TRY(ready());
  if (home == Home::kApart) GMAC_TRY(openApart(device));
  const DeviceScope scope(*calls_);
  const RetiringLock lock(*this);
  const Result<Allocations::iterator> at = ownAllocation(address, bytes);
  if (!at.ok()) return at.status();
  if (!(*at)->second.mapped) {
    return gmac::fail(adsmErrorNotSupported, "the {} bytes at {:#x} are not mapped", bytes,
                      static_cast<std::uintptr_t>(address));
  }
  if (home == Home::kDevice) GMAC_TRY(allowLocked(device));
  const Place place = home == Home::kCpu ? mapped_.placeOf(home) : Place{home, device};
  return moved((*at)->first, bytes, movePages((*at)->second.given, 0, SIZE_MAX / 2, place, holds));
}

bool StreamAccelerator::allIsMapped() const {
  return mapped_.offers(Home::kDevice) &&
         std::all_of(allocations_.begin(), allocations_.end(),
                     [](const auto& one) { return one.second.mapped; });
}

int StreamAccelerator::deviceHere() const noexcept {
  const int own = calls_->deviceNumber();
  if (!several_.load()) return own;
  const int current = calls_->currentDevice();
  return current >= 0 && calls_->reachedFrom(current) ? current : own;
}

Result<std::pair<std::uintptr_t, std::size_t>> StreamAccelerator::partOf(
    std::uintptr_t address) const {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin() || !(--next)->second.mapped) {
    return gmac::fail(adsmErrorNotSupported, "the memory at {:#x} is not mapped", address);
  }
  return std::pair{next->second.given, address - next->second.given};
}

bool StreamAccelerator::liesOn(DeviceAddress address, std::size_t bytes, int device) const {
  const std::lock_guard lock(memoryMutex_);
  const auto part = partOf(static_cast<std::uintptr_t>(address));
  return part.ok() && mapped_.liesAt(part->first, part->second, bytes, {Home::kDevice, device});
}

Status StreamAccelerator::moveTo(DeviceAddress address, std::size_t bytes, int device) {
  GMAC_TRY(ready());
  openToMove(device);
  const DeviceScope scope(*calls_);
  const RetiringLock lock(*this);
  const auto part = partOf(static_cast<std::uintptr_t>(address));
  if (!part.ok()) return part.status();
  if (!calls_->reachedFrom(device) || gatheredIn() != Home::kDevice) {
    return gmac::fail(adsmErrorNotSupported, "device {} does not reach the memory of {}", device,
                      deviceName());
  }
  GMAC_TRY(allowLocked(device));
  return moved(static_cast<std::uintptr_t>(address), bytes,
               movePages(part->first, part->second, bytes, {Home::kDevice, device}));
}

std::vector<int> StreamAccelerator::devicesWithMemory() const {
  std::vector<int> devices{calls_->deviceNumber()};
  for (std::size_t other = 1; several_.load() && other <= devices_.count(); ++other) {
    const int number = devices_.device(other).number.load();
    if (number >= 0) devices.push_back(number);
  }
  return devices;
}

Result<MemoryRoom> StreamAccelerator::roomOn(int device) {
  if (device == calls_->deviceNumber()) return memoryRoom();
  const std::size_t other = devices_.find(device);
  if (other == 0 || (other > devices_.count() && !calls_->primaryIsActive(device))) {
    return gmac::fail(adsmErrorNotSupported, "device {} shares no memory with {}", device,
                      deviceName());
  }
  const Result<KernelQueue> opened = kernelQueue(other);
  if (!opened.ok()) return opened.status();
  const DeviceScope scope(opened->calls);
  return mapped_.room();
}

std::size_t StreamAccelerator::bytesOn(DeviceAddress address, std::size_t bytes, int device) const {
  const std::lock_guard lock(memoryMutex_);
  const auto part = partOf(static_cast<std::uintptr_t>(address));
  return part.ok() ? mapped_.bytesAt(part->first, part->second, bytes, {Home::kDevice, device})
         : device == calls_->deviceNumber() ? bytes
                                            : 0;
}

// (Not mapped memory, whose pages move: a handle is for good.)
Result<DeviceAddress> StreamAccelerator::exportMemory(std::size_t bytes, MemoryHandle* handle) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const Result<std::uintptr_t> address = calls_->allocate(bytes);
  GMAC_TRY(address.status());
  if (const Status status = calls_->exportMemory(*address, handle); !status.ok()) {
    const std::string text = lastErrorText();
    static_cast<void>(calls_->release(*address));
    return gmac::fail(status.code(), "{}", text);
  }
  return DeviceAddress{*address};
}

Result<DeviceAddress> StreamAccelerator::importMemory(const MemoryHandle& handle) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const Result<std::uintptr_t> address = calls_->importMemory(handle);
  GMAC_TRY(address.status());
  importedRanges_.add(*address, allocationAt(reinterpret_cast<const void*>(*address)).bytes);
  return DeviceAddress{*address};
}

Status StreamAccelerator::handleOf(DeviceAddress start, MemoryHandle* handle) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const auto address = static_cast<std::uintptr_t>(start);
  const Result<std::uintptr_t> found = calls_->startOfAllocation(address);
  GMAC_TRY(found.status());
  // (A handle is of the whole allocation, wherever in it the address lies.)
  if (*found != address) {
    return gmac::fail(adsmErrorInvalidValue, "{:#x} is not the start of an allocation of {}",
                      address, deviceName());
  }
  return calls_->exportMemory(address, handle);
}

Status StreamAccelerator::releaseImport(DeviceAddress address) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const auto start = static_cast<std::uintptr_t>(address);
  importedRanges_.remove(start);
  {
    const std::lock_guard lock(memoryMutex_);
    if (imports_.holds(start)) return imports_.release(start);
  }
  return calls_->releaseImport(start);
}

Result<SharedAllocation> StreamAccelerator::sharedAllocation(DeviceAddress address) {
  const std::lock_guard lock(memoryMutex_);
  const auto part = partOf(static_cast<std::uintptr_t>(address));
  if (!part.ok()) return part.status();
  return mapped_.shared(part->first, part->second);
}

Result<std::vector<MemoryFile>> StreamAccelerator::filesOf(const SharedAllocation& allocation) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const std::lock_guard lock(memoryMutex_);
  return mapped_.filesOf(allocation);
}

Result<DeviceAddress> StreamAccelerator::importFiles(std::span<const MemoryFile> files) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const std::lock_guard lock(memoryMutex_);
  if (!mapped_.offers(Home::kDevice)) {
    return gmac::fail(adsmErrorNotSupported, "{} cannot map another process's memory",
                      deviceName());
  }
  const Result<std::uintptr_t> address = imports_.add(files);
  GMAC_TRY(address.status());
  std::size_t bytes = 0;
  for (const MemoryFile& file : files) bytes += file.bytes;
  importedRanges_.add(*address, bytes);
  return DeviceAddress{*address};
}

StreamAccelerator::RetiringLock::~RetiringLock() {
  const std::vector<std::uint64_t> retired = accelerator_.mapped_.takeRetired();
  lock_.unlock();
  if (retired.empty()) return;
  // (The caller may be told of an error.)
  const adsmError_t code = lastErrorCode();
  const std::string text = lastErrorText();
  for (const std::uint64_t number : retired) sharedMemoryEnds(number);
  recordError(code, text);
}

Result<MemoryRoom> StreamAccelerator::memoryRoom() {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  return mapped_.room();
}

Status StreamAccelerator::free(DeviceAddress address, std::size_t bytes, bool withItsAddress) {
  if (!open_.load()) return Status();  // it has gone with the context
  const DeviceScope scope(*calls_);
  const RetiringLock lock(*this);
  const Result<Allocations::iterator> at = ownAllocation(address, bytes);
  if (!at.ok()) {
    return at.status();
  }
  const Allocation allocation = (*at)->second;
  stripes_.remove(static_cast<std::uintptr_t>(address));
  margins_ -= allocation.hasMargin ? 1 : 0;
  allocations_.erase(*at);
  if (allocation.mapped) mapped_.retire(allocation.given);
  if (!calls_->health().lost()) {
    const Status given = giveBack(allocation);
    if (given.ok() && withItsAddress && windows_ != nullptr) {
      windows_->giveBack(allocation.given, bytes, allocation.placement);
    }
    if (!calls_->health().ended()) return given;
  }
  if (calls_->health().ended()) return Status();  // it has gone with CUDA
  // Mapped memory outlives the context.
  if (allocation.mapped) mapped_.abandon(allocation.given);
  return calls_->health().lostStatus();
}

}  // namespace gmac::accel::cuda
