// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/mapped_memory.h"

#include <cuda.h>
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "gmac/accel/cuda/driver.h"
#include "gmac/accel/cuda/queues.h"
#include "gmac/base/descriptor.h"
#include "gmac/base/keeping_error.h"
#include "gmac/base/log.h"
#include "gmac/base/memory_limit.h"
#include "gmac/base/round_up.h"

namespace gmac::accel::cuda {
namespace {

bool isOnDevice(const Place& place) {
  return place.home == Home::kDevice || place.home == Home::kApart;
}

CUmemLocation locationOf(const Place& place, int node) {
  CUmemLocation location{};
  location.type = isOnDevice(place) ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST_NUMA;
  location.id = isOnDevice(place) ? place.device : node;
  return location;
}

}  // namespace

int MappedMemory::attribute(int which) const noexcept {
  int value = 0;
  const CUresult result =
      driver_.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), device_);
  return result == CUDA_SUCCESS ? value : 0;
}

void MappedMemory::open() noexcept {
  CUdevice device = 0;
  if (driver_.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return;
  }
  device_ = device;
  allowed_.clear();
  const auto fits = [&](Home home) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = locationOf(placeOf(home), node_);
    std::size_t granularity = 0;
    return driver_.cuMemGetAllocationGranularity(
               &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
           granularity != 0 && kPage % granularity == 0;
  };
  node_ = std::max(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), 0);
  onDevice_ = attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
              fits(Home::kDevice);
  onCpu_ = onDevice_ &&
           attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
           fits(Home::kCpu);
  onMirror_ =
      onDevice_ && attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
  directAccess_ = attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0;
  makesFiles_ =
      onDevice_ && attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
  for (const std::uintptr_t address : abandoned_) {
    (void)release(address);
  }
  abandoned_.clear();
}

Status MappedMemory::create(Piece& piece) {
  const Place place = piece.place;
  if (place.home == Home::kCpu) {
    const auto kept = std::find_if(keptPages_.begin(), keptPages_.end(),
                                   [&](const auto& one) { return one.first == piece.bytes; });
    if (kept != keptPages_.end()) {
      piece.pages = kept->second;
      keptPages_.erase(kept);
      return {};
    }
    if (const std::size_t spare = spareMemory(); piece.bytes > spare) {
      return fail(adsmErrorHostMemory,
                  "{} bytes of the CPU's memory for the accelerator: {} can be spared", piece.bytes,
                  spare);
    }
  }
  if (place.home == Home::kDevice && makesFiles()) {
    const Status created =
        createPages(piece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, adsmErrorNotSupported);
    piece.hasFile = created.ok();
    if (created.ok() || created.code() == adsmErrorAcceleratorMemory || calls_.health().lost()) {
      return created;
    }
    makesFiles_ = false;
    log(LogLevel::kInfo, "other processes cannot be given memory of the device: {}",
        lastErrorText());
  }
  return createPages(piece, CU_MEM_HANDLE_TYPE_NONE,
                     place.home == Home::kCpu ? adsmErrorHostMemory : adsmErrorAcceleratorMemory);
}

Status MappedMemory::createPages(Piece& piece, int handleType, adsmError_t otherwise) {
  const bool onDevice = isOnDevice(piece.place);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handleType);
  properties.location = locationOf(piece.place, node_);
  properties.allocFlags.gpuDirectRDMACapable = onDevice && directAccess_ ? 1 : 0;
  CUmemGenericAllocationHandle pages = 0;
  GMAC_TRY(calls_.checkAs(otherwise, driver_.cuMemCreate, &pages, piece.bytes,
                          static_cast<const CUmemAllocationProp*>(&properties), 0ULL));
  piece.pages = pages;
  return {};
}

Status MappedMemory::create(Pieces& pieces) {
  // Before the system makes what would not suffice.
  std::size_t onCpu = 0;
  for (const Piece& piece : pieces) {
    onCpu += piece.place.home == Home::kCpu && keptPages_.empty() ? piece.bytes : 0;
  }
  if (const std::size_t spare = onCpu == 0 ? 0 : spareMemory(); onCpu > spare) {
    return fail(adsmErrorHostMemory,
                "{} bytes of the CPU's memory for the accelerator: {} can be spared", onCpu, spare);
  }
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    if (piece->isMirror()) {
      continue;
    }
    if (const Status created = create(*piece); !created.ok()) {
      return keepingError(created, [&] { releasePages({pieces.begin(), piece}); });
    }
  }
  return {};
}

void MappedMemory::releasePages(const Pieces& pieces) noexcept {
  for (const Piece& piece : pieces) {
    if (keepsPages_ && piece.place.home == Home::kCpu) {
      keptPages_.emplace_back(piece.bytes, piece.pages);
    } else if (!piece.isMirror()) {
      static_cast<void>(
          calls_.check(driver_.cuMemRelease, CUmemGenericAllocationHandle{piece.pages}));
    }
  }
}

void MappedMemory::keepPages(bool keep) noexcept {
  keepsPages_ = keep;
  if (!keep) {
    for (const auto& [bytes, pages] : keptPages_) {
      static_cast<void>(calls_.check(driver_.cuMemRelease, CUmemGenericAllocationHandle{pages}));
    }
    keptPages_.clear();
  }
}

// The pages of the CPU's range [address, address + bytes) take the place of device memory that was
// mapped there: the driver gives registered memory its CPU address on the device too.
Status MappedMemory::mapMirror(std::uintptr_t address, std::size_t bytes) {
  void* const pages = reinterpret_cast<void*>(address);
  GMAC_TRY(calls_.checkAs(adsmErrorNotSupported, driver_.cuMemHostRegister, pages, bytes,
                          unsigned{CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP}));
  CUdeviceptr reached = 0;
  Status status = calls_.check(driver_.cuMemHostGetDevicePointer, &reached, pages, 0u);
  if (status.ok() && reached != address) {
    status = fail(adsmErrorNotSupported, "the device reaches the CPU's pages at {:#x} at {:#x}",
                  address, reached);
  }
  return status.ok() ? status : keepingError(status, [&] { (void)unmapMirror(address); });
}

Status MappedMemory::unmapMirror(std::uintptr_t address) {
  return calls_.check(driver_.cuMemHostUnregister, reinterpret_cast<void*>(address));
}

Status MappedMemory::mapOne(std::uintptr_t address, const Piece& piece, For users) {
  if (piece.isMirror()) {
    return users.copier ? Status() : mapMirror(address, piece.mirrored);
  }
  GMAC_TRY(calls_.check(driver_.cuMemMap, CUdeviceptr{address}, piece.bytes, std::size_t{0},
                        CUmemGenericAllocationHandle{piece.pages}, 0ULL));
  Status access;
  const auto allow = [&](int device) {
    if (access.ok() && reaches(device, piece.place)) {
      access = setAccess(address, piece.bytes, device);
    }
  };
  if (users.copier) {
    access = setAccess(address, piece.bytes, *users.copier);
  } else {
    allow(device_);
    std::for_each(allowed_.begin(), allowed_.end(), allow);
  }
  return access.ok() ? access : keepingError(access, [&] {
    (void)calls_.check(driver_.cuMemUnmap, CUdeviceptr{address}, piece.bytes);
  });
}

Status MappedMemory::map(std::uintptr_t address, const Pieces& pieces, For users) {
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    const Status mapped = mapOne(address + (piece->offset - pieces.front().offset), *piece, users);
    if (!mapped.ok()) {
      return keepingError(mapped, [&] {
        if (piece != pieces.begin()) {
          (void)unmap(address, {pieces.begin(), piece}, users);
        }
      });
    }
  }
  return {};
}

Status MappedMemory::setAccess(std::uintptr_t address, std::size_t bytes, int device) {
  CUmemAccessDesc access{};
  access.location = locationOf({Home::kDevice, device}, node_);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return calls_.check(driver_.cuMemSetAccess, CUdeviceptr{address}, bytes,
                      static_cast<const CUmemAccessDesc*>(&access), std::size_t{1});
}

bool MappedMemory::reaches(int device, const Place& place) const noexcept {
  return !isOnDevice(place) || device == place.device ||
         (place.home == Home::kDevice && calls_.reachedFrom(device));
}

Status MappedMemory::allow(int device) {
  if (device == device_ || std::find(allowed_.begin(), allowed_.end(), device) != allowed_.end()) {
    return {};
  }
  for (const auto& [address, range] : ranges_) {
    for (const Piece& piece : range.pieces) {
      if (!piece.isMirror() && reaches(device, piece.place)) {
        GMAC_TRY(setAccess(address + piece.offset, piece.bytes, device));
      }
    }
  }
  allowed_.push_back(device);
  return {};
}

Status MappedMemory::unmap(std::uintptr_t address, const Pieces& pieces, For users) {
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    const std::uintptr_t at = address + (piece->offset - pieces.front().offset);
    const Status unmapped = !piece->isMirror()
                                ? calls_.check(driver_.cuMemUnmap, CUdeviceptr{at}, piece->bytes)
                            : users.copier ? Status()
                                           : unmapMirror(at);
    if (!unmapped.ok()) {
      return keepingError(unmapped, [&] {
        if (piece != pieces.begin() && !map(address, {pieces.begin(), piece}, users).ok()) {
          calls_.health().end("the pages of an object could not be mapped again");
        }
      });
    }
  }
  return {};
}

Result<std::uintptr_t> MappedMemory::reserveAndMap(const Pieces& pieces, std::size_t bytes,
                                                   std::size_t alignment, For users) {
  CUdeviceptr address = 0;
  GMAC_TRY(
      calls_.check(driver_.cuMemAddressReserve, &address, bytes, alignment, CUdeviceptr{0}, 0ULL));
  const Status mapped = map(address, pieces, users);
  if (!mapped.ok()) {
    return keepingError(
        mapped, [&] { (void)calls_.check(driver_.cuMemAddressFree, CUdeviceptr{address}, bytes); });
  }
  return static_cast<std::uintptr_t>(address);
}

std::size_t MappedMemory::pieceBytes(std::size_t bytes, std::size_t least) {
  return std::max(least, roundUp((bytes + kMaxMemoryFiles - 1) / kMaxMemoryFiles, kPage));
}

Result<MappedMemory::Pieces> MappedMemory::makePieces(std::size_t bytes, const Layout& layout) {
  // No machine has so much: 2 TiB in pages of 2 MiB. Each piece would be tried.
  constexpr std::size_t kMostPieces = std::size_t{1} << 20;
  if (bytes / layout.pieceBytes >= kMostPieces) {
    return fail(adsmErrorAcceleratorMemory, "{} bytes are more than {} pieces of {} bytes", bytes,
                kMostPieces, layout.pieceBytes);
  }
  Pieces pieces;
  for (std::size_t offset = 0; offset < bytes; offset += layout.pieceBytes) {
    pieces.push_back({offset, std::min(layout.pieceBytes, bytes - offset), layout.placeOf(offset)});
  }
  GMAC_TRY(create(pieces));
  return pieces;
}

Result<std::uintptr_t> MappedMemory::allocate(std::size_t bytes, std::size_t alignment,
                                              const Layout& layout) {
  Result<Pieces> pieces = makePieces(bytes, layout);
  if (!pieces.ok()) {
    return pieces.status();
  }
  Result<std::uintptr_t> address = reserveAndMap(*pieces, bytes, std::max(alignment, kPage), For{});
  if (!address.ok()) {
    return keepingError(address.status(), [&] { releasePages(*pieces); });
  }
  ranges_.emplace(*address, Range{bytes, std::move(*pieces), nextNumber()});
  return address;
}

Status MappedMemory::allocateAt(std::uintptr_t address, std::size_t bytes, const Layout& layout) {
  Result<Pieces> pieces = makePieces(bytes, layout);
  if (!pieces.ok()) {
    return pieces.status();
  }
  if (const Status mapped = map(address, *pieces, For{}); !mapped.ok()) {
    return keepingError(mapped, [&] { releasePages(*pieces); });
  }
  ranges_.emplace(address, Range{.bytes = bytes,
                                 .pieces = std::move(*pieces),
                                 .number = nextNumber(),
                                 .reservedHere = false});
  return {};
}

// Of the first `there` bytes at `from`; what follows them becomes zero.
Status MappedMemory::copy(std::uintptr_t to, std::uintptr_t from, std::size_t there,
                          const Pieces& pieces, const Copier& copier) {
  for (const Piece& piece : pieces) {
    if (piece.isMirror()) {
      continue;
    }
    const std::size_t offset = piece.offset - pieces.front().offset;
    const std::size_t copied = std::min(piece.bytes, there - std::min(there, offset));
    if (copied != 0) {
      GMAC_TRY(copier.calls.copyWithin(to + offset, from + offset, copied, copier.stream));
    }
    if (copied < piece.bytes) {
      GMAC_TRY(copier.calls.fill(to + offset + copied, 0, piece.bytes - copied, copier.stream));
    }
  }
  return {};
}

// One half of the stage is filled while the other one is read.
Status MappedMemory::copyAcross(std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                                const Copier& copier) {
  const Copier& reader = *copier.reader;
  const std::size_t half = copier.stage.size() / 2;
  for (std::size_t offset = 0; offset < bytes; offset += half) {
    const std::size_t length = std::min(half, bytes - offset);
    std::byte* const stage = copier.stage.data() + offset / half % 2 * half;
    {
      const DeviceScope scope(reader.calls);
      GMAC_TRY(reader.calls.copyOut(stage, from + offset, length, reader.stream));
      GMAC_TRY(reader.calls.record(reader.event, reader.stream));
      GMAC_TRY(awaitEvent(reader.calls, reader.event));
    }
    if (offset != 0) {
      GMAC_TRY(awaitEvent(copier.calls, copier.event));
    }
    GMAC_TRY(copier.calls.copyIn(to + offset, stage, length, copier.stream));
    GMAC_TRY(copier.calls.record(copier.event, copier.stream));
  }
  return {};
}

MappedMemory::Pages MappedMemory::pagesIn(std::size_t offset, std::size_t bytes, std::size_t all) {
  return {roundUp(offset, kPage), std::min(roundUp(offset + bytes, kPage), all),
          std::min(offset + bytes, all)};
}

Place MappedMemory::placeAt(std::uintptr_t address, std::size_t offset) const {
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) {
    return placeOf(Home::kDevice);
  }
  const Pieces& pieces = found->second.pieces;
  const auto next =
      std::upper_bound(pieces.begin(), pieces.end(), offset,
                       [](std::size_t at, const Piece& piece) { return at < piece.offset; });
  return std::prev(next)->place;
}

Place MappedMemory::placeOfRest(std::uintptr_t address, std::size_t offset) const {
  Place rest = placeAt(address, offset);
  if (const auto found = ranges_.find(address); found != ranges_.end()) {
    for (const Piece& piece : found->second.pieces) {
      rest = piece.alone ? rest : piece.place;
      if (offset < piece.end() && !piece.alone) {
        break;
      }
    }
  }
  return rest;
}

std::optional<int> MappedMemory::apartAt(std::uintptr_t address) const {
  const auto found = ranges_.find(address);
  if (found != ranges_.end()) {
    for (const Piece& piece : found->second.pieces) {
      if (piece.place.home == Home::kApart) {
        return piece.place.device;
      }
    }
  }
  return std::nullopt;
}

std::optional<Place> MappedMemory::elsewhere(std::uintptr_t address, std::size_t offset,
                                             std::size_t bytes, Place place) const {
  const auto found = ranges_.find(address);
  if (found != ranges_.end()) {
    const Pages pages = pagesIn(offset, bytes, found->second.bytes);
    for (const Piece& piece : found->second.pieces) {
      if (piece.place != place && pages.touch(piece)) {
        return piece.place;
      }
    }
  }
  return std::nullopt;
}

bool MappedMemory::liesAt(std::uintptr_t address, std::size_t offset, std::size_t bytes,
                          Place place) const {
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) {
    return false;
  }
  const Pages pages = pagesIn(offset, bytes, found->second.bytes);
  return std::all_of(
      found->second.pieces.begin(), found->second.pieces.end(),
      [&](const Piece& piece) { return piece.place == place || !pages.touch(piece); });
}

std::size_t MappedMemory::bytesAt(std::uintptr_t address, std::size_t offset, std::size_t bytes,
                                  Place place) const {
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) {
    return 0;
  }
  const Pages pages = pagesIn(offset, bytes, found->second.bytes);
  std::size_t there = 0;
  for (const Piece& piece : found->second.pieces) {
    if (piece.place == place && pages.touch(piece)) {
      there += std::min(piece.end(), pages.last) - std::max(piece.offset, pages.first);
    }
  }
  return there;
}

// One piece after the other: what lies beside them meanwhile is bounded, and several small mappings
// are made in less time than one large one. While a piece is copied the next one's pages are made,
// where there is memory for both, and those of the one before take their place.
Status MappedMemory::move(std::uintptr_t address, std::size_t offset, std::size_t bytes,
                          Place place, const Copier& copier) {
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || !offers(place.home)) {
    return fail(adsmErrorNotSupported, "the accelerator's memory at {:#x} cannot move", address);
  }
  Range& range = found->second;
  const Pages pages = pagesIn(offset, bytes, range.bytes);
  // The first piece to move that begins there or later.
  const auto next = [&](std::size_t from) {
    return std::find_if(range.pieces.begin(), range.pieces.end(), [&](const Piece& one) {
      return one.offset >= from && one.place != place && pages.touch(one) &&
             (copier.zeros ||
              reaches(copier.reader != nullptr ? copier.reader->device : copier.device, one.place));
    });
  };
  std::optional<Moving> current;  // its copy has begun
  const auto start = [&](Moving&& moving) {
    const Status begun = startCopy(address, range, moving, copier);
    if (!begun.ok()) {
      return keepingError(begun, [&] { drop(moving); });
    }
    current = std::move(moving);
    return begun;
  };
  for (std::size_t from = 0;;) {
    auto piece = next(from);
    std::optional<Result<Moving>> ahead;
    if (piece != range.pieces.end()) {
      ahead = prepare(*piece, pages, place, copier.device);
    }
    if (!current) {
      if (!ahead) {
        return {};
      }
      GMAC_TRY(ahead->status());
    } else {
      const Moving moving = std::move(*current);
      current.reset();
      Status status = endOfCopy(copier);
      if (!status.ok()) {
        return keepingError(status, [&] {
          drop(moving);
          if (ahead && ahead->ok()) {
            drop(**ahead);
          }
        });
      }
      // (Without memory for two at once, the next one is tried again when this one has its place.)
      const Status begun = ahead && ahead->ok() ? start(std::move(**ahead)) : Status();
      status = exchange(address, range, moving);
      if (!status.ok() || !begun.ok()) {
        return keepingError(status.ok() ? begun : status, [&] {
          if (current) {
            (void)endOfCopy(copier);
            drop(*current);
          }
        });
      }
      if (current) {
        from = std::max(from, current->end());
      }
      continue;
    }
    GMAC_TRY(start(std::move(**ahead)));
    from = current->end();
  }
}

Status MappedMemory::movePage(std::uintptr_t address, std::size_t offset, Place place,
                              const Copier& copier) {
  const auto found = ranges_.find(address);
  const bool mirrors = place.home == Home::kMirror;
  const auto has = [&](const Piece& piece) {
    return piece.offset <= offset && offset + kPage <= piece.end();
  };
  // (What others have been handed stays whole.)
  if (found == ranges_.end() || !offers(place.home) ||
      (mirrors && (makesFiles() || found->second.handedOut))) {
    return fail(adsmErrorNotSupported, "the accelerator's page at {:#x} cannot move alone",
                address + offset);
  }
  Range& range = found->second;
  range.pieces.reserve(range.pieces.size() + 2);
  const auto piece = std::find_if(range.pieces.begin(), range.pieces.end(), has);
  if (piece == range.pieces.end() || piece->isMirror() == mirrors || piece->alone == mirrors) {
    return fail(adsmErrorNotSupported, "the accelerator's page at {:#x} cannot move alone",
                address + offset);
  }
  const auto stays = [&](const Piece& other) {
    return !other.alone && (&other != &*piece || other.bytes > kPage);
  };
  if (mirrors && std::none_of(range.pieces.begin(), range.pieces.end(), stays)) {
    return fail(adsmErrorNotSupported, "the page at {:#x} is the last one of its allocation",
                address + offset);
  }
  // (Nobody else shall meet a want of memory meanwhile.)
  constexpr std::size_t kLeftFree = std::size_t{64} << 20;
  const std::size_t beside = piece->bytes - (mirrors ? kPage : 0);
  const auto available = [&] {
    const DeviceScope scope(copier.calls);
    return room();
  }();
  GMAC_TRY(available.status());
  if (mirrors && available->free < beside + kLeftFree) {
    return fail(adsmErrorAcceleratorMemory,
                "the accelerator's page at {:#x} moves alone with {} bytes beside it; {} are free",
                address + offset, beside, available->free);
  }
  const Result<Moving> moving =
      prepare(*piece, {offset, offset + kPage, offset + kPage}, place, copier.device);
  GMAC_TRY(moving.status());
  Status copied = startCopy(address, range, *moving, copier);
  if (copied.ok()) {
    copied = endOfCopy(copier);
  }
  if (!copied.ok()) {
    return keepingError(copied, [&] { drop(*moving); });
  }
  GMAC_TRY(exchange(address, range, *moving));
  pieceAt(range, offset)->alone = mirrors;
  return {};
}

// The new pages are filled at an address of their own, so that a failure before the exchange
// changes nothing. A piece that is cut is made anew as a whole: no part of a mapping can be
// exchanged alone.
Result<MappedMemory::Moving> MappedMemory::prepare(const Piece& piece, const Pages& pages,
                                                   Place place, int copier) {
  Moving moving{piece.offset, copier, {}};
  const auto add = [&](std::size_t from, std::size_t to, Place where) {
    if (from < to) {
      moving.after.push_back({from, to - from, where});
      if (where.home == Home::kMirror) {
        moving.after.back().mirrored = std::min(to, pages.end) - from;
      }
    }
  };
  add(piece.offset, std::min(pages.first, piece.end()), piece.place);
  add(std::max(piece.offset, pages.first), std::min(pages.last, piece.end()), place);
  add(std::max(pages.last, piece.offset), piece.end(), piece.place);
  GMAC_TRY(create(moving.after));
  Result<std::uintptr_t> aside = reserveAndMap(moving.after, piece.bytes, kPage, For{copier});
  if (!aside.ok()) {
    return keepingError(aside.status(), [&] { releasePages(moving.after); });
  }
  moving.aside = *aside;
  return moving;
}

MappedMemory::Pieces::iterator MappedMemory::pieceAt(Range& range, std::size_t offset) {
  return std::find_if(range.pieces.begin(), range.pieces.end(),
                      [&](const Piece& one) { return one.offset == offset; });
}

Status MappedMemory::startCopy(std::uintptr_t address, Range& range, const Moving& moving,
                               const Copier& copier) {
  const Piece& piece = *pieceAt(range, moving.offset);
  const std::size_t there = copier.zeros ? 0 : piece.isMirror() ? piece.mirrored : piece.bytes;
  const DeviceScope scope(copier.calls);
  const Status copied =
      copier.reader != nullptr
          ? copyAcross(moving.aside, address + moving.offset, piece.bytes, copier)
          : copy(moving.aside, address + moving.offset, there, moving.after, copier);
  const Status recorded = copier.calls.record(copier.event, copier.stream);
  if (copied.ok() && recorded.ok()) {
    return {};
  }
  // Some of it may be on its way, to pages that are about to go.
  return keepingError(copied.ok() ? recorded : copied, [&] {
    const bool known = recorded.ok() || copier.calls.record(copier.event, copier.stream).ok();
    // (A device that is lost copies nothing any more.)
    if ((!known || !endOfCopy(copier).ok()) && !copier.calls.health().lost()) {
      calls_.health().end("a copy of an object's pages has no end");
    }
  });
}

Status MappedMemory::endOfCopy(const Copier& copier) {
  const DeviceScope scope(copier.calls);
  return awaitEvent(copier.calls, copier.event);
}

// A mapping that cannot be undone there stays, and does no harm.
void MappedMemory::leaveAside(const Moving& moving) {
  (void)unmap(moving.aside, moving.after, For{moving.copier});
  (void)calls_.check(driver_.cuMemAddressFree, CUdeviceptr{moving.aside}, moving.bytes());
}

void MappedMemory::drop(const Moving& moving) {
  leaveAside(moving);
  releasePages(moving.after);
}

// Maps the copy at the piece's address.
Status MappedMemory::exchange(std::uintptr_t address, Range& range, const Moving& moving) {
  const auto piece = pieceAt(range, moving.offset);
  const Pieces before{*piece};
  const std::uintptr_t start = address + moving.offset;
  const auto undo = [&](const Status& status) {
    return keepingError(status, [&] { releasePages(moving.after); });
  };
  leaveAside(moving);
  if (const Status unmapped = unmap(start, before, For{}); !unmapped.ok()) {
    return undo(unmapped);
  }
  if (const Status mapped = map(start, moving.after, For{}); !mapped.ok()) {
    return undo(keepingError(mapped, [&] {
      // Without any pages there, what kernels find at the address would not be theirs.
      if (!map(start, before, For{}).ok()) {
        calls_.health().end("the pages of an object could not be mapped again");
      }
    }));
  }
  releasePages(before);
  range.pieces.insert(range.pieces.erase(piece), moving.after.begin(), moving.after.end());
  retire(range);
  range.number = nextNumber();
  return {};
}

Status MappedMemory::giveBack(std::uintptr_t address, const Range& range) {
  // (A page that is the CPU's has been given back with a context that is lost.)
  Pieces rest;
  for (const Piece& piece : range.pieces) {
    if (piece.alone) {
      (void)unmapMirror(address + piece.offset);
    } else {
      rest.push_back(piece);
    }
  }
  if (!rest.empty()) {
    GMAC_TRY(unmap(address + rest.front().offset, rest, For{}));
  }
  releasePages(range.pieces);
  return range.reservedHere
             ? calls_.check(driver_.cuMemAddressFree, CUdeviceptr{address}, range.bytes)
             : Status();
}

Status MappedMemory::release(std::uintptr_t address) {
  const auto found = ranges_.find(address);
  const Range range = std::move(found->second);
  ranges_.erase(found);
  return giveBack(address, range);
}

std::uint64_t MappedMemory::nextNumber() {
  static std::atomic<std::uint64_t> numbers{0};
  return ++numbers;
}

void MappedMemory::retire(Range& range) {
  if (std::exchange(range.handedOut, false)) {
    retired_.push_back(range.number);
  }
}

void MappedMemory::retire(std::uintptr_t address) { retire(ranges_.find(address)->second); }

std::vector<std::uint64_t> MappedMemory::takeRetired() { return std::exchange(retired_, {}); }

bool MappedMemory::makesFiles() const noexcept { return makesFiles_ && sharesMemory(); }

Result<SharedAllocation> MappedMemory::shared(std::uintptr_t address, std::size_t offset) const {
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || offset >= found->second.bytes) {
    return fail(adsmErrorNotSupported, "no mapped memory of the device holds {:#x}",
                address + offset);
  }
  const auto& [start, range] = *found;
  for (const Piece& piece : range.pieces) {
    if (!piece.hasFile) {
      return fail(
          adsmErrorNotSupported, "the {} bytes at {:#x} {}, and have no file", piece.bytes,
          start + piece.offset,
          isOnDevice(piece.place) ? "were made for this process alone" : "lie in the CPU's memory");
    }
  }
  return SharedAllocation{DeviceAddress{start}, range.bytes, range.number};
}

Result<std::vector<MemoryFile>> MappedMemory::filesOf(const SharedAllocation& allocation) {
  const auto start = static_cast<std::uintptr_t>(allocation.start);
  const auto found = ranges_.find(start);
  if (found == ranges_.end() || found->second.number != allocation.number) {
    return fail(adsmErrorInvalidValue,
                "the memory at {:#x} of the device is freed, or has other pages", start);
  }
  GMAC_TRY(shared(start, 0).status());
  Range& range = found->second;
  if (range.pieces.size() > kMaxMemoryFiles) {
    return fail(adsmErrorNotSupported, "the {} bytes at {:#x} are {} files; allowed are {}",
                range.bytes, start, range.pieces.size(), kMaxMemoryFiles);
  }
  std::vector<MemoryFile> files;
  for (const Piece& piece : range.pieces) {
    const Result<int> file = fileOf(piece);
    if (!file.ok()) {
      return keepingError(file.status(), [&] {
        for (const MemoryFile& one : files) {
          Descriptor(one.file).reset();
        }
      });
    }
    files.push_back({*file, 0, piece.bytes});
  }
  range.handedOut = true;
  return files;
}

Result<int> MappedMemory::fileOf(const Piece& piece) {
  int file = -1;
  GMAC_TRY(calls_.checkAs(adsmErrorNotSupported, driver_.cuMemExportToShareableHandle,
                          static_cast<void*>(&file), CUmemGenericAllocationHandle{piece.pages},
                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ULL));
  file = aboveStandard(file);
  if (file < 0 || fcntl(file, F_SETFD, FD_CLOEXEC) != 0) {
    const int error = errno;
    Descriptor(file).reset();
    return fail(adsmErrorSystem, "a descriptor of the device's memory: {}", std::strerror(error));
  }
  return file;
}

Result<MemoryRoom> MappedMemory::room() {
  MemoryRoom room;
  GMAC_TRY(calls_.check(driver_.cuMemGetInfo, &room.free, &room.total));
  return room;
}

void MappedMemory::abandon(std::uintptr_t address) { abandoned_.push_back(address); }

}  // namespace gmac::accel::cuda
