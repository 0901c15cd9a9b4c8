// SPDX-License-Identifier: Apache-2.0
//
// Memory by the driver's virtual memory management: a range of addresses, and physical pages that
// are mapped there. Other pages, of the CPU's memory or of another device's, can take their place
// under the same addresses.
#ifndef GMAC_ACCEL_CUDA_MAPPED_MEMORY_H_
#define GMAC_ACCEL_CUDA_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

class Driver;

// Where pages lie. `device` is a CUdevice, of kDevice and kApart; with the other homes it is 0.
struct Place {
  Home home = Home::kDevice;
  int device = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

// Guarded by its owner, a StreamAccelerator. Functions that ask the driver are called in the
// device's context (DeviceScope).
class MappedMemory {
 public:
  // Pages of either home have this size.
  static constexpr std::size_t kPage = std::size_t{2} << 20;

  MappedMemory(const Driver& driver, DeviceCalls& calls) : driver_(driver), calls_(calls) {}
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  // Asks what the device can do, and gives back what was mapped when an earlier context was lost.
  void open() noexcept;
  bool offers(Home home) const noexcept {
    return home == Home::kDevice  ? onDevice_
           : home == Home::kCpu   ? onCpu_
           : home == Home::kApart ? onDevice_ && onCpu_
                                  : onMirror_;
  }

  // The place of that kind that is next to the accelerator's device; not of kApart.
  Place placeOf(Home home) const noexcept { return {home, home == Home::kDevice ? device_ : 0}; }
  // How pages lie: in pieces, which move as such, in several places in turn. The piece with the
  // offset `first` has the first place, and so has what lies before it.
  struct Layout {
    std::vector<Place> turns;
    std::size_t pieceBytes;  // whole pages
    std::size_t first = 0;   // a multiple of that
    const Place& placeOf(std::size_t offset) const {
      return turns[offset < first ? 0 : (offset - first) / pieceBytes % turns.size()];
    }
  };
  // Of the pieces of an allocation: at least `least`, and so many that it has no more pieces than
  // it may have files.
  static std::size_t pieceBytes(std::size_t bytes, std::size_t least);
  // `bytes` is a multiple of kPage. The contents are undefined. Devices have been allowed().
  Result<std::uintptr_t> allocate(std::size_t bytes, std::size_t alignment, const Layout& layout);
  // The same at an address of a range that somebody else has reserved, where nothing is mapped, and
  // gives back when nothing is there any more. A multiple of kPage.
  Status allocateAt(std::uintptr_t address, std::size_t bytes, const Layout& layout);
  // The means of copying pages: a device that has been allowed(), with a stream and an event of its
  // context.
  struct Copier {
    DeviceCalls& calls;
    int device;
    Stream stream;
    Event event;
    // Where that device does not reach the pages as they lie: the one that has them, and pinned
    // memory of the CPU's, of two pages at least, that the copy goes through.
    const Copier* reader = nullptr;
    std::span<std::byte> stage = {};
    bool zeros = false;  // nothing is copied, and the new pages read as zero
  };
  // Moves pages; see MovableMemory. `address` is where an allocation begins, of which those pages
  // move that begin in [offset, offset + bytes) and that the copier, or its reader, reaches (with
  // `zeros`: all). The copy is waited for. Pages are mapped and copied fastest by the device that
  // they move to.
  Status move(std::uintptr_t address, std::size_t offset, std::size_t bytes, Place place,
              const Copier& copier);
  // Moves one page alone, to Home::kMirror or from there; see MovableMemory::movePage(). The copier
  // reaches the pages beside it.
  Status movePage(std::uintptr_t address, std::size_t offset, Place place, const Copier& copier);
  // Where the page with that offset in an allocation lies; of one that is alone, where the next one
  // lies that is not, or the last one before.
  Place placeAt(std::uintptr_t address, std::size_t offset = 0) const;
  Place placeOfRest(std::uintptr_t address, std::size_t offset) const;
  // The device that pages of an allocation lie on apart from the accelerator's; none: no page does.
  std::optional<int> apartAt(std::uintptr_t address) const;
  // Where the first of those pages lies that would move to `place`; none: all lie there.
  std::optional<Place> elsewhere(std::uintptr_t address, std::size_t offset, std::size_t bytes,
                                 Place place) const;
  // Whether a device's kernels can be let use what lies there.
  bool reaches(int device, const Place& place) const noexcept;
  // Whether all of those pages lie there.
  bool liesAt(std::uintptr_t address, std::size_t offset, std::size_t bytes, Place place) const;
  // How many bytes of those pages do.
  std::size_t bytesAt(std::uintptr_t address, std::size_t offset, std::size_t bytes,
                      Place place) const;
  Status release(std::uintptr_t address);
  // Of the device whose context is current.
  Result<MemoryRoom> room();
  // Lets kernels of another device use all of it that they can reach, from now on.
  Status allow(int device);
  // See MovableMemory.
  void keepPages(bool keep) noexcept;

  // ---- For other processes: see ExportedMemory. An allocation is all of its pages here, those
  // around the part that was asked for, too.

  // Whether pages of devices that are made now have files.
  bool makesFiles() const noexcept;
  // The allocation that starts at `address`, by an offset in it.
  Result<SharedAllocation> shared(std::uintptr_t address, std::size_t offset) const;
  Result<std::vector<MemoryFile>> filesOf(const SharedAllocation& allocation);
  // An allocation's pages are about to be freed.
  void retire(std::uintptr_t address);
  // The numbers of those that have ceased to be an allocation's since the last call, and for which
  // filesOf() was called.
  std::vector<std::uint64_t> takeRetired();

  // The context is lost, with the range in it: open() gives it back.
  void abandon(std::uintptr_t address);

 private:
  using Handle = unsigned long long;  // CUmemGenericAllocationHandle
  // Pages of one place, which are mapped and unmapped together only.
  struct Piece {
    std::size_t offset;
    std::size_t bytes;
    Place place;
    Handle pages = 0;
    bool hasFile = false;      // for other processes
    std::size_t mirrored = 0;  // bytes of the CPU's own, where these are its pages
    bool alone = false;        // movePage() has moved it there
    std::size_t end() const { return offset + bytes; }
    // The CPU's own: nothing is created, and mapping is registering.
    bool isMirror() const { return place.home == Home::kMirror; }
  };
  using Pieces = std::vector<Piece>;  // one behind the other
  // Of the pages that begin in [offset, offset + bytes), from the first to the end of the last; and
  // where those bytes end.
  struct Pages {
    std::size_t first, last, end;
    bool touch(const Piece& piece) const {
      return piece.offset < last && first < piece.end() && !piece.alone;
    }
  };
  static Pages pagesIn(std::size_t offset, std::size_t bytes, std::size_t all);
  struct Range {
    std::size_t bytes;
    Pieces pieces;
    std::uint64_t number;    // of these pieces' pages; see SharedAllocation
    bool handedOut = false;  // filesOf() was called
    bool reservedHere = true;
  };

  // Which devices a mapping is for: all that have been allowed, or the one that copies (and has no
  // use for the CPU's own pages).
  struct For {
    std::optional<int> copier;  // none: all
  };

  // Pieces with their pages.
  Result<Pieces> makePieces(std::size_t bytes, const Layout& layout);
  // Makes the pages of pieces that have none yet: of all or of none.
  Status create(Pieces& pieces);
  Status create(Piece& piece);
  // `otherwise`: see DeviceCalls::checkAs().
  Status createPages(Piece& piece, int handleType, adsmError_t otherwise);
  // Maps pieces, all or none, where the first one's offset is `address`; unmaps them.
  Status map(std::uintptr_t address, const Pieces& pieces, For users);
  Status unmap(std::uintptr_t address, const Pieces& pieces, For users);
  Status mapOne(std::uintptr_t address, const Piece& piece, For users);
  Status mapMirror(std::uintptr_t address, std::size_t bytes);
  Status unmapMirror(std::uintptr_t address);
  Status setAccess(std::uintptr_t address, std::size_t bytes, int device);
  Result<std::uintptr_t> reserveAndMap(const Pieces& pieces, std::size_t bytes,
                                       std::size_t alignment, For users);
  // A piece on its way: its new pages, which may be several pieces, at an address of their own.
  struct Moving {
    std::size_t offset;  // of the piece
    int copier;          // the device for which that address is
    Pieces after;
    std::uintptr_t aside = 0;
    std::size_t end() const { return after.back().end(); }
    std::size_t bytes() const { return end() - offset; }
  };
  static Pieces::iterator pieceAt(Range& range, std::size_t offset);
  Result<Moving> prepare(const Piece& piece, const Pages& pages, Place place, int copier);
  // Submits the copy, after which the copier's event is recorded; waits for that.
  Status startCopy(std::uintptr_t address, Range& range, const Moving& moving,
                   const Copier& copier);
  static Status endOfCopy(const Copier& copier);
  Status exchange(std::uintptr_t address, Range& range, const Moving& moving);
  void leaveAside(const Moving& moving);
  void drop(const Moving& moving);
  Status giveBack(std::uintptr_t address, const Range& range);
  static Status copy(std::uintptr_t to, std::uintptr_t from, std::size_t there,
                     const Pieces& pieces, const Copier& copier);
  // Through the CPU's memory: by the copier's reader, and on by the copier.
  static Status copyAcross(std::uintptr_t to, std::uintptr_t from, std::size_t bytes,
                           const Copier& copier);
  static std::uint64_t nextNumber();
  void retire(Range& range);
  Result<int> fileOf(const Piece& piece);
  int attribute(int which) const noexcept;
  void releasePages(const Pieces& pieces) noexcept;

  const Driver& driver_;
  DeviceCalls& calls_;
  int device_ = 0;
  int node_ = 0;  // of the CPU's memory next to the device
  bool onDevice_ = false;
  bool onCpu_ = false;
  bool onMirror_ = false;
  bool directAccess_ = false;  // by network cards
  bool makesFiles_ = false;
  std::vector<int> allowed_;  // the other devices that use it
  std::map<std::uintptr_t, Range> ranges_;
  std::vector<std::uintptr_t> abandoned_;
  // The CPU's, in no mapping, with their bytes.
  std::vector<std::pair<std::size_t, Handle>> keptPages_;
  bool keepsPages_ = false;
  std::vector<std::uint64_t> retired_;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_MAPPED_MEMORY_H_
