// SPDX-License-Identifier: Apache-2.0
//
// Objects: address ranges with one home accelerator, their blocks, and the index that finds them.
#ifndef GMAC_COHERENCE_OBJECT_H_
#define GMAC_COHERENCE_OBJECT_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/list_hook.hpp>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/api/adsm.h"
#include "gmac/coherence/block_index.h"
#include "gmac/coherence/block_table.h"
#include "gmac/coherence/comers.h"
#include "gmac/coherence/dense_use.h"
#include "gmac/coherence/device_uses.h"
#include "gmac/coherence/guest_policy.h"
#include "gmac/coherence/lone_worker.h"
#include "gmac/coherence/page_rounds.h"
#include "gmac/coherence/read_back_places.h"
#include "gmac/coherence/read_runs.h"
#include "gmac/coherence/split_policy.h"
#include "gmac/coherence/window_policy.h"
#include "gmac/coherence/zero_copy_policy.h"
#include "gmac/os/mirror.h"

namespace gmac {

// The CPU's access to bytes.
enum class Intent : std::uint8_t { kRead, kWrite };

// The protection of the bytes of a block that are open (Object::openOf).
constexpr os::Access accessOf(State state) {
  switch (state) {
    case State::kInvalid:
      return os::Access::kNone;
    case State::kReadOnly:
    case State::kPartReadOnly:
      return os::Access::kRead;
    case State::kDirty:
    case State::kPartDirty:
      return os::Access::kReadWrite;
  }
  __builtin_unreachable();
}

// One coherent address range: a large allocation, or a region that small allocations share. The
// lock guards every member but those of the first group, which are constant.
class Object : public DeviceUses,
               public boost::intrusive::set_base_hook<>,
               public boost::intrusive::list_base_hook<> {
 public:
  Object(std::unique_ptr<os::Mirror> mirror, accel::DeviceAddress device, std::size_t blockBytes,
         State initial);

  // ---- constant ----
  std::byte* address() const { return mirror->address(); }
  std::size_t bytes() const { return mirror->bytes(); }
  std::byte* end() const { return address() + bytes(); }
  std::unique_ptr<os::Mirror> mirror;  // kept for the next object when this one is freed
  const accel::DeviceAddress device;
  bool sharedBySmallObjects = false;
  bool sameAddress = true;
  std::uint64_t number = 0;        // unique: ObjectIndex's
  std::size_t requestedBytes = 0;  // as allocated, before rounding up

  // ---- blocks ----
  std::size_t blockBytes;  // changes where blocks are joined or split
  std::size_t blockCount;
  const Block& operator[](BlockIndex index) const {
    return blocks_[static_cast<std::size_t>(index)];
  }
  template <typename Function>
  void forEachMadeBlock(Function function) const {
    blocks_.forEachMade(function);
  }
  BlockIndex indexOf(const void* p) const {
    return BlockIndex{static_cast<std::size_t>(static_cast<const std::byte*>(p) - address()) /
                      blockBytes};
  }
  BlockIndex indexOf(const Block& block) const { return BlockIndex{blocks_.indexOf(block)}; }
  // The first block that begins at an offset or after it.
  BlockIndex indexAt(std::size_t offset) const {
    return BlockIndex{std::min((offset + blockBytes - 1) / blockBytes, blockCount)};
  }
  BlockRange all() const { return {BlockIndex{0}, BlockIndex{blockCount}}; }
  // The blocks that [p, p + length) overlaps; the range lies inside the object, length > 0.
  BlockRange covering(const void* p, std::size_t length) const {
    return {indexOf(p), indexOf(static_cast<const std::byte*>(p) + length - 1) + 1};
  }
  std::size_t offsetOf(BlockIndex index) const {
    return std::min(static_cast<std::size_t>(index) * blockBytes, bytes());
  }
  std::size_t lengthOf(BlockRange range) const {
    return offsetOf(range.end) - offsetOf(range.begin);
  }
  accel::DeviceAddress deviceAt(std::size_t offset) const {
    return accel::DeviceAddress{static_cast<std::uintptr_t>(device) + offset};
  }

  // The group of a block, and facts that hold for all blocks of it (see BlockTable).
  BlockIndex groupBegin(BlockIndex index) const {
    return BlockIndex{blocks_.groupBegin(static_cast<std::size_t>(index))};
  }
  BlockIndex groupEnd(BlockIndex index) const {
    return BlockIndex{blocks_.groupEnd(static_cast<std::size_t>(index))};
  }
  State rest(BlockIndex index) const { return blocks_.rest(static_cast<std::size_t>(index)); }
  bool made(BlockIndex index) const { return blocks_.made(static_cast<std::size_t>(index)); }
  bool groupClosed(BlockIndex index) const {
    return blocks_.closed(static_cast<std::size_t>(index));
  }

  // Blocks outside this range are Invalid. Empty: all blocks are, and the object is neither in the
  // list of open objects nor in that of concurrent ones.
  BlockRange open;
  // An upper bound of the mappings that differences in protection take: edges between neighbouring
  // blocks of one group, and edges of windows. (Those between groups are few.)
  std::size_t edges = 0;
  // The edges of one made block; those of all blocks.
  std::size_t edgesAt(BlockIndex index) const { return bordersAt(index) + windowEdgesAt(index); }
  std::size_t countEdges() const {
    std::size_t twice = 0;
    blocks_.forEachMade([&](const Block& block) {
      twice += bordersAt(indexOf(block)) + 2 * windowEdgesAt(indexOf(block));
    });
    return twice / 2;
  }
  void widenOpen(BlockRange range) {
    if (open.empty()) {
      open = range;
      return;
    }
    open = {std::min(open.begin, range.begin), std::max(open.end, range.end)};
  }

  // ---- chunks of the mirror ----
  enum class Chunk : std::uint8_t { kEmpty, kPreparing, kReady };
  std::vector<Chunk> chunks;
  // The CPU's use of a chunk, for population ahead of it.
  enum class Use : std::uint8_t { kNone, kAhead, kTouched };  // kAhead: populated, not touched yet
  std::vector<Use> uses;
  std::size_t pieces = 0;  // further mappings of installed chunks
  std::size_t chunkOf(std::size_t offset) const { return offset / mirror->chunkBytes(); }

  // Whether all pages of [offset, offset + length), length > 0, or of a block, are populated.
  bool pagesReady(std::size_t offset, std::size_t length) const {
    const std::size_t last = chunkOf(offset + length - 1);
    for (std::size_t chunk = chunkOf(offset); chunk <= last; ++chunk) {
      if (chunks[chunk] != Chunk::kReady) {
        return false;
      }
    }
    return true;
  }
  bool pagesReady(BlockIndex index) const {
    return pagesReady(offsetOf(index), lengthOf({index, index + 1}));
  }

  // ---- what is current on the CPU ----
  WindowPolicy windows;
  // The window size of blocks that are open in part; SIZE_MAX: there are none. Changes only while
  // nothing is open.
  std::size_t windowBytes = SIZE_MAX;
  ByteRange bytesOf(BlockIndex index) const { return {offsetOf(index), offsetOf(index + 1)}; }
  ByteRange bytesOf(BlockRange range) const { return {offsetOf(range.begin), offsetOf(range.end)}; }
  // The window of a block that is open in part.
  ByteRange windowOf(BlockIndex index) const {
    const std::size_t begin = offsetOf(index) + (*this)[index].window * windowBytes;
    return {begin, std::min(begin + windowBytes, offsetOf(index + 1))};
  }
  // Whether bytes of one block lie in one window, where the block has several.
  bool fitWindow(ByteRange bytes) const {
    const BlockIndex index{bytes.begin / blockBytes};
    const std::size_t block = offsetOf(index);
    return lengthOf({index, index + 1}) > windowBytes &&
           (bytes.begin - block) / windowBytes == (bytes.end - 1 - block) / windowBytes;
  }
  // The bytes of a block that are current on the CPU in a state, and in its own.
  ByteRange currentIn(BlockIndex index, State state) const {
    const std::size_t begin = offsetOf(index);
    return isPart(state)              ? windowOf(index)
           : state == State::kInvalid ? ByteRange{begin, begin}
                                      : bytesOf(index);
  }
  ByteRange currentOf(BlockIndex index) const { return currentIn(index, (*this)[index].state); }
  // Those of them that have the protection accessOf(the state): all, or a page (window_policy.h).
  ByteRange openIn(BlockIndex index, State state) const {
    const ByteRange current = currentIn(index, state);
    const std::size_t page = (*this)[index].page;
    if (page == 0 || current.empty()) {
      return current;
    }
    const std::size_t begin = current.begin + (page - 1) * os::pageBytes();
    return {begin, std::min(begin + os::pageBytes(), current.end)};
  }
  ByteRange openOf(BlockIndex index) const { return openIn(index, (*this)[index].state); }
  WindowPolicy pagePolicy;  // of which blocks one page is opened

  // Visits the dirty bytes in order: those that are current on the CPU alone.
  template <typename Visit>
  void forEachOnlyOnCpu(Visit visit) const;

  // The blocks whose requested bytes (not the rounding) all lie in [first, last).
  BlockRange wholeBlocks(const std::byte* first, const std::byte* last) const {
    const auto to = static_cast<std::size_t>(last - address());
    return {indexAt(static_cast<std::size_t>(first - address())),
            BlockIndex{to >= requestedBytes ? blockCount : to / blockBytes}};
  }
  // The first byte in [first, last), inside the object, that is not current on the CPU; `last`: all
  // are.
  const std::byte* firstInvalid(const std::byte* first, const std::byte* last) const;
  // Whether a fetch of its neighbours can include the block.
  bool fetchable(BlockIndex index) const {
    const Block& block = (*this)[index];
    return block.state == State::kInvalid && block.settled() && pagesReady(index) &&
           ownAround(offsetOf(index)).end >= offsetOf(index + 1);
  }
  // The newest flush of all blocks, and of some.
  accel::Ticket flushed() const {
    accel::Ticket newest;
    forEachMadeBlock(
        [&](const Block& block) { newest.value = std::max(newest.value, block.flushed); });
    return newest;
  }
  accel::Ticket flushed(BlockRange range) const {
    accel::Ticket newest;
    for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
      newest.value = std::max(newest.value, (*this)[i].flushed);
    }
    return newest;
  }

  // Whether the CPU's memory has bytes of one block, open or not.
  bool has(ByteRange bytes) const;
  // Whether the CPU can use bytes of one block without a fault. Faults, holds, bulk operations and
  // the walker all ask here. A block may have several chunks, which are populated one by one: some
  // of its bytes may be usable while the block is not.
  bool usable(ByteRange bytes, Intent intent) const;
  bool usable(BlockIndex index, Intent intent) const { return usable(bytesOf(index), intent); }
  // Whether all blocks are Dirty.
  bool allDirty() const {
    const BlockRange blocks = all();
    bool dirty = true;
    for (BlockIndex i = blocks.begin; i < blocks.end && dirty; i = i + 1) {
      dirty = (made(i) ? (*this)[i].state : rest(i)) == State::kDirty;
    }
    return dirty;
  }

  // ---- where the accelerator's copy lies ----
  accel::Home home = accel::Home::kDevice;
  std::size_t homeDevice = 0;  // the number of the device of kDevice (devices.h)
  // With several devices: the one (by the driver's number) whose memory was full, so that the
  // object left it or never lay there. -1: none.
  int spilledFrom = -1;
  // Where devices do not reach each other's memory (gathering.h): the one of kApart, by the
  // driver's number; and whether the object lies elsewhere than memory is gathered, for calls that
  // list it.
  int apartOn = -1;
  bool alone = false;
  bool advised = false;  // the program has named its home
  bool sent = false;     // that is another one than it had, or for good: it has no one copy
  bool striped = false;  // over several devices, from its allocation on
  // Where devices reach each other's memory and calls list parts: the device of each page, once a
  // call on a part has chosen it. Empty: all have one home.
  static constexpr std::size_t kHomePage = std::size_t{2} << 20;
  static constexpr std::uint8_t kNotChosen = 0xff;
  std::vector<std::uint8_t> homes;
  // The pages of which bytes have a half or more, in bytes: what borders on a part is not its own.
  ByteRange homePages(ByteRange part) const {
    const auto nearest = [](std::size_t at) {
      return (at + kHomePage / 2) / kHomePage * kHomePage;
    };
    return {nearest(part.begin), part.end == bytes() ? part.end : nearest(part.end)};
  }
  // Of those, from the first that has no home yet to the end of the last; empty: all have one.
  ByteRange homeless(ByteRange part) const;
  bool spilled() const { return home == accel::Home::kCpu || spilledFrom >= 0; }
  // The driver's number of the device that it lies on, or comes back to where it has one copy.
  int deviceNumber(const accel::MovableMemory& memory) const {
    return home == accel::Home::kApart ? apartOn : memory.numberOf(homeDevice);
  }

  // ---- pages with one copy (policies/hot_pages.h) ----
  // Each is an object of its own meanwhile, which the index finds in this one's place. This one's
  // blocks there are Invalid, and nobody opens them.
  std::vector<std::unique_ptr<Object>> pages;
  // Which may become one. NULL: none does.
  std::unique_ptr<PageRounds> pageRounds;
  using RoundsHook = boost::intrusive::list_member_hook<
      boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  RoundsHook roundsHook;    // in Blocks' list while a round of one is under way
  Object* whole = nullptr;  // of a page: the object that it is of; NULL: it is none
  // The allocation: the object, or that of which it is a page.
  Object& allocation() { return whole != nullptr ? *whole : *this; }
  const Object& allocation() const { return whole != nullptr ? *whole : *this; }
  // The bytes around an offset that are no page's; those before it, where a page has it.
  ByteRange ownAround(std::size_t offset) const {
    ByteRange own{0, bytes()};
    for (const std::unique_ptr<Object>& page : pages) {
      const std::size_t begin = offsetFrom(page->address());
      if (begin + page->bytes() > offset) {
        own.end = std::max(begin, offset);
        break;
      }
      own.begin = begin + page->bytes();
    }
    return own;
  }
  std::byte* ownBegin(const void* p) const { return address() + ownAround(offsetFrom(p)).begin; }
  std::byte* ownEnd(const void* p) const { return address() + ownAround(offsetFrom(p)).end; }
  // Calls `function(object)` for itself and its pages.
  template <typename Function>
  void withPages(Function function) {
    function(*this);
    for (const std::unique_ptr<Object>& page : pages) {
      function(*page);
    }
  }

  GuestPolicy guest;      // of its uses, while its accelerator's copy is in the CPU's memory
  bool hasMoved = false;  // with its contents
  // There is one copy, in the CPU's pages, which kernels reach over the bus.
  bool isZeroCopy() const { return home == accel::Home::kMirror; }
  ZeroCopyPolicy zeroCopy;
  Comers comers;
  // Such an object is in one of Blocks' lists: that of those whose rounds are watched, or, with all
  // of it open, that of those which the CPU and kernels use at once (concurrent_use.h).
  bool concurrent = false;
  using WatchHook = boost::intrusive::list_member_hook<
      boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  WatchHook watchHook;
  // For devices that do not reach each other's memory, once calls have listed parts of the object.
  // Per block, bit i: device i is current in all bytes of the block that are not dirty, provided
  // that it has memory for the object (bit i of `copies`). At least one device is. Empty: all
  // blocks are at home. Blocks of such an object are not joined, and bits of blocks in transit do
  // not change.
  std::vector<std::uint16_t> places;
  std::uint16_t copies = 0;
  bool spread() const { return !places.empty(); }
  // A device whose copy of the block is current.
  std::size_t deviceOf(BlockIndex index) const {
    return spread() ? static_cast<std::size_t>(std::countr_zero(
                          static_cast<unsigned>(places[static_cast<std::size_t>(index)] & copies)))
                    : homeDevice;
  }
  // Visits, in order, the bytes of blocks that are current on another device and not on this one,
  // in runs with one source each; assumes that this one has memory for the object. For spread
  // objects only, as is lacks().
  template <typename Visit>
  void forEachLacking(BlockRange range, std::size_t onDevice, Visit visit) const;
  // Whether a call there that uses those blocks needs bytes of other devices.
  bool lacks(BlockRange range, std::size_t onDevice) const {
    bool any = (copies >> onDevice & 1U) == 0;
    if (!any) {
      forEachLacking(range, onDevice, [&](ByteRange, std::size_t) { any = true; });
    }
    return any;
  }
  bool moving = false;  // to another device, with the lock released: no copies meanwhile
  // The device (by the driver's number) on which its pages were allocated, or that all of them have
  // moved to since because kernels there name it.
  int pagesOn = 0;
  bool placed = false;     // a device has been chosen for its pages
  LoneWorker loneWorker;   // whose kernels name it, or whose calls list it
  bool relocated = false;  // its pages have moved there

  // ---- who is using it ----
  bool inTransit() const { return inTransit_ > 0 || moving; }  // some block, or the whole object
  bool anyInTransit() const { return inTransit_ > 0; }         // of its blocks
  bool held() const { return holds_ > 0; }                     // some block
  bool protectionIsStale() const { return protectionStale_; }
  bool inTransit(BlockRange range) const {
    return moving ||
           (inTransit_ > 0 && anyOpen(range, [](const Block& block) { return !block.settled(); }));
  }
  bool held(BlockRange range) const {
    return holds_ > 0 && anyOpen(range, [](const Block& block) { return block.holds > 0; });
  }
  std::uint32_t preparing = 0;  // chunks that are being populated; their blocks are settled
  bool closing = false;         // being freed: look-ups ignore it

  // ---- what other processes read in the accelerator's memory (device_loans.h) ----
  std::vector<ByteRange> lent;  // one for each loan
  bool isLent(ByteRange bytes) const {
    return std::any_of(lent.begin(), lent.end(),
                       [&](ByteRange one) { return one.overlaps(bytes); });
  }

  // ---- once it is freed and its memory is kept (object_pool.h) ----
  bool keptOpen = false;        // what the CPU has open stays so (FreedMemory::mayStayOpen)
  std::uint64_t keptRound = 0;  // ObjectPool's
  accel::Ticket cleared;        // when it has finished, the device's bytes are zero
  accel::Ticket clearedAfter;   // the newest call before the clearing

  // ---- in memory that an older object had ----
  // The accelerator's bytes were zero when the object was made, and are in blocks that have not
  // been flushed since, as long as these are its newest writers. Nothing: that is not known.
  std::optional<Writers> zeroSince;
  // Per chunk: whether its pages have bytes of the older object. Empty: none have.
  std::vector<bool> stalePages;
  // Visits the parts of a range that lie in such pages.
  template <typename Visit>
  void forEachStale(ByteRange bytes, Visit visit) const {
    while (!stalePages.empty() && bytes.begin < bytes.end) {
      const std::size_t chunk = chunkOf(bytes.begin);
      const std::size_t end = std::min(bytes.end, (chunk + 1) * mirror->chunkBytes());
      if (stalePages[chunk]) {
        visit(ByteRange{bytes.begin, end});
      }
      bytes.begin = end;
    }
  }

  // ---- read-ahead, and neighbours ----
  ReadRuns readRuns;
  DenseUse denseUse;
  SplitPolicy split;  // of its blocks
  using SplitHook = boost::intrusive::list_member_hook<
      boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  SplitHook splitHook;  // in Blocks' list while the policy wants a change

  // ---- copies ahead of the CPU's next reads ----
  ReadBackPlaces readBack;
  // Whether the CPU is about to come for a place's bytes, and lacks them.
  bool lacksPlace(std::size_t place) const {
    const ReadBackPolicy& policy = readBack[place];
    return policy.guesses() && (*this)[policy.block()].state == State::kInvalid;
  }
  // Bytes of Invalid blocks that were copied ahead, by place: once the ticket has finished, the
  // CPU's pages have them as those writers left them.
  struct ReadBack {
    struct Part {
      ByteRange bytes;     // empty: none
      bool opens = false;  // the end of the wait opens them, for writing or for reading
      bool write = false;
    };
    bool any = false;  // part was copied, and perhaps dropped since
    std::array<Part, ReadBackPlaces::kMost> parts;
    Writers writers;
    accel::Ticket ticket;
    bool opens = false;  // some part
    std::size_t count() const {
      return static_cast<std::size_t>(std::count_if(
          parts.begin(), parts.end(), [](const Part& part) { return !part.bytes.empty(); }));
    }
    std::size_t bytes() const {
      return std::accumulate(
          parts.begin(), parts.end(), std::size_t{0},
          [](std::size_t sum, const Part& part) { return sum + part.bytes.length(); });
    }
    bool has(ByteRange bytes) const {
      return any && std::any_of(parts.begin(), parts.end(),
                                [bytes](const Part& part) { return part.bytes.contains(bytes); });
    }
    void drop(ByteRange block) {
      for (std::size_t i = 0; any && i < parts.size(); ++i) {
        parts[i] = parts[i].bytes.overlaps(block) ? Part{} : parts[i];
      }
    }
    void dropAll() {
      if (any) {
        *this = {};
      }
    }
  };
  ReadBack copiedBack;
  using ReadBackHook = boost::intrusive::list_member_hook<
      boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  ReadBackHook readBackHook;  // in Blocks' list while the policy guesses

 private:
  friend class Blocks;

  std::size_t offsetFrom(const void* p) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(p) - address());
  }

  Block& writable(BlockIndex index) { return blocks_.writable(static_cast<std::size_t>(index)); }
  // Whether the predicate holds for a made block of a range. (Blocks in transit or held are open.)
  template <typename Predicate>
  bool anyOpen(BlockRange range, Predicate predicate) const {
    const BlockIndex end = std::min(range.end, open.end);
    for (BlockIndex i = std::max(range.begin, open.begin); i < end;) {
      if (!made(i)) {
        i = groupEnd(i);
      } else if (predicate((*this)[i])) {
        return true;
      } else {
        i = i + 1;
      }
    }
    return false;
  }

  // A block that is open in part counts as closed at its borders; a window, or a page, that begins
  // or ends there is counted among the edges of windows.
  static State borderOf(const Block& block) {
    return block.openInPart() ? State::kInvalid : block.state;
  }
  std::size_t bordersAt(BlockIndex index) const {
    const auto i = static_cast<std::size_t>(index);
    const auto differ = [&](std::size_t a, std::size_t b) {
      return borderOf(blocks_[a]) != borderOf(blocks_[b]) ? 1U : 0U;
    };
    return (i > blocks_.groupBegin(i) ? differ(i - 1, i) : 0U) +
           (i + 1 < blocks_.groupEnd(i) ? differ(i, i + 1) : 0U);
  }
  std::size_t windowEdgesAt(BlockIndex index) const { return (*this)[index].openInPart() ? 2 : 0; }

  BlockTable blocks_;
  std::uint32_t inTransit_ = 0;   // blocks
  std::uint32_t holds_ = 0;       // of blocks
  bool protectionStale_ = false;  // after a failure pages may be more closed than their states
                                  // say; the next fault opens them
};

inline ByteRange Object::homeless(ByteRange part) const {
  const ByteRange pages = homePages(part);
  ByteRange found{pages.end, pages.begin};
  for (std::size_t at = pages.begin; at < pages.end; at += kHomePage) {
    if (homes.empty() || homes[at / kHomePage] == kNotChosen) {
      found = {std::min(found.begin, at), std::min(at + kHomePage, pages.end)};
    }
  }
  return found.begin < found.end ? found : ByteRange{};
}

template <typename Visit>
void Object::forEachLacking(BlockRange range, std::size_t onDevice, Visit visit) const {
  ByteRange run;
  std::size_t source = 0;
  const auto add = [&](ByteRange bytes, std::size_t from) {
    if (bytes.empty()) {
      return;
    }
    if (run.end != bytes.begin || from != source || run.empty()) {
      if (!run.empty()) {
        visit(run, source);
      }
      run = {bytes.begin, bytes.begin};
      source = from;
    }
    run.end = bytes.end;
  };
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    if ((places[static_cast<std::size_t>(i)] >> onDevice & 1U) != 0) {
      continue;
    }
    const State state = made(i) ? (*this)[i].state : rest(i);
    const ByteRange bytes = bytesOf(i);
    const ByteRange onCpu = isDirty(state) ? currentOf(i) : ByteRange{bytes.end, bytes.end};
    add({bytes.begin, onCpu.begin}, deviceOf(i));
    add({onCpu.end, bytes.end}, deviceOf(i));
  }
  if (!run.empty()) {
    visit(run, source);
  }
}

template <typename Visit>
void Object::forEachOnlyOnCpu(Visit visit) const {
  for (BlockIndex i = open.begin; i < open.end;) {
    const BlockIndex end = std::min(groupEnd(i), open.end);
    if (groupClosed(i)) {
      i = end;
    } else if (!made(i)) {
      if (isDirty(rest(i))) {
        visit(bytesOf(BlockRange{i, end}));
      }
      i = end;
    } else {
      if (isDirty((*this)[i].state)) {
        visit(currentOf(i));
      }
      i = i + 1;
    }
  }
}

// Tells Mirror::install() which protections an object's blocks must have. Lives on the stack, under
// the lock of all objects.
class BlockAccess final : public os::AccessMap {
 public:
  explicit BlockAccess(Object& object) : object_(object) {}
  os::AccessRun at(std::size_t offset) const override {
    BlockIndex index{offset / object_.blockBytes};
    const os::Access access = accessOf(object_[index].state);
    if (object_[index].openInPart()) {
      const ByteRange open = object_.openOf(index);
      return offset < open.begin ? os::AccessRun{open.begin - offset, os::Access::kNone}
             : offset < open.end
                 ? os::AccessRun{open.end - offset, access}
                 : os::AccessRun{object_.offsetOf(index + 1) - offset, os::Access::kNone};
    }
    // Chunks are installed one at a time, and an object may have very many blocks.
    const BlockIndex last = object_.indexAt(offset + object_.mirror->chunkBytes());
    do {
      index = index + 1;
    } while (index < last && !object_[index].openInPart() &&
             accessOf(object_[index].state) == access);
    return {object_.offsetOf(index) - offset, access};
  }

 private:
  Object& object_;
};

struct ObjectAddress {
  using type = std::byte*;
  type operator()(const Object& object) const { return object.address(); }
};

// Finds the object at an address in O(log n). Pages that are objects of their own come after their
// allocation in the order of all, and are found in its place. Guarded by the lock; allocates
// nothing.
class ObjectIndex {
 public:
  using Set = boost::intrusive::multiset<Object, boost::intrusive::key_of_value<ObjectAddress>>;

  // Numbers it, too.
  void insert(Object& object) {
    object.number = ++numbers_;
    set_.insert(object);
    pages_.fetch_add(object.whole != nullptr ? 1 : 0, std::memory_order_relaxed);
  }
  void erase(Object& object) {
    set_.erase(set_.iterator_to(object));
    pages_.fetch_sub(object.whole != nullptr ? 1 : 0, std::memory_order_relaxed);
  }
  // Whether some are pages of others. A load; needs no lock.
  bool anyPages() const { return pages_.load(std::memory_order_relaxed) != 0; }
  Object* find(const void* p) {
    auto after = set_.upper_bound(static_cast<std::byte*>(const_cast<void*>(p)));
    if (after == set_.begin()) {
      return nullptr;
    }
    Object* object = &*--after;
    if (p >= object->end()) {
      object = &object->allocation();
    }
    return p < object->end() ? object : nullptr;
  }
  // The allocation at an address, be it one of a page.
  Object* findAllocation(const void* p) {
    Object* const object = find(p);
    return object == nullptr ? nullptr : &object->allocation();
  }
  // Whether a range ends within the allocation in which it begins.
  bool inOneAllocation(const void* p, std::size_t bytes) {
    const Object* const object = findAllocation(p);
    return object != nullptr &&
           bytes <= static_cast<std::size_t>(object->end() - static_cast<const std::byte*>(p));
  }
  // The first object that ends after p; for walks that release the lock between objects.
  Object* firstEndingAfter(const void* p) {
    if (Object* object = find(p)) {
      return object;
    }
    auto after = set_.upper_bound(static_cast<std::byte*>(const_cast<void*>(p)));
    return after == set_.end() ? nullptr : find(after->address());  // or its first page
  }
  // Calls `visit(object, first, last)` for each object that [begin, begin + bytes) overlaps, in
  // order, with the part of the range in it; ends where that returns false.
  template <typename Visit>
  void forEachIn(const void* begin, std::size_t bytes, Visit visit) {
    const auto* position = static_cast<const std::byte*>(begin);
    const std::byte* const end = position + bytes;
    while (Object* const object = position < end ? firstEndingAfter(position) : nullptr) {
      if (object->address() >= end) {
        return;
      }
      const std::byte* const first = std::max<const std::byte*>(position, object->address());
      position = std::min<const std::byte*>(end, object->ownEnd(first));
      if (!visit(*object, first, position)) {
        return;
      }
    }
  }
  // The object of the byte before p; else the last one before that.
  Object* lastBeginningBefore(const void* p) {
    auto after = set_.lower_bound(static_cast<std::byte*>(const_cast<void*>(p)));
    if (after == set_.begin()) {
      return nullptr;
    }
    Object* const object = &*--after;
    return object->end() < p ? &object->allocation() : object;
  }
  Set& all() { return set_; }
  std::size_t count() const { return set_.size(); }

 private:
  Set set_;
  std::uint64_t numbers_ = 0;
  std::atomic<std::size_t> pages_{0};
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_OBJECT_H_
