// SPDX-License-Identifier: Apache-2.0
//
// The core: blocks change their states here and nowhere else, with the copies and the protection
// changes that this takes.
#ifndef GMAC_COHERENCE_BLOCKS_H_
#define GMAC_COHERENCE_BLOCKS_H_

#include <algorithm>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstddef>

#include "gmac/accel/accelerator.h"
#include "gmac/base/short_list.h"
#include "gmac/base/status.h"
#include "gmac/coherence/device_uses.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/mapping_use.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/residency.h"
#include "gmac/coherence/waits.h"
#include "gmac/protocols/protocol.h"

namespace gmac {

class Ledger;

struct BlockOptions {
  std::size_t readAheadBytes = 0;  // the most that one read fault fetches; 0: one block
  std::size_t windowBytes = 0;     // of a block that is open in part, whole pages; 0: none is
  std::size_t mostClearedBytes = SIZE_MAX;  // in place of a fetch of zeros
  bool opensNeighbours = false;             // see dense_use.h
  bool opensPages = false;                  // of windows and small blocks; see window_policy.h
  std::uint32_t splitAfter = 0;             // see split_policy.h; 0: never
};

// All blocks of all objects, and the protocol that says what becomes of them. Functions that take
// the lock need it held; those that say so let it go. What fails leaves pages open no further than
// a later close() reaches. Fault path: nothing is allocated.
class Blocks {
 public:
  using OpenList = boost::intrusive::list<Object>;
  using ReadBackList = boost::intrusive::list<
      Object, boost::intrusive::member_hook<Object, Object::ReadBackHook, &Object::readBackHook>,
      boost::intrusive::constant_time_size<false>>;
  using RoundsList = boost::intrusive::list<
      Object, boost::intrusive::member_hook<Object, Object::RoundsHook, &Object::roundsHook>,
      boost::intrusive::constant_time_size<false>>;
  using SplitList = boost::intrusive::list<
      Object, boost::intrusive::member_hook<Object, Object::SplitHook, &Object::splitHook>,
      boost::intrusive::constant_time_size<false>>;
  using WatchList = boost::intrusive::list<
      Object, boost::intrusive::member_hook<Object, Object::WatchHook, &Object::watchHook>,
      boost::intrusive::constant_time_size<false>>;

  Blocks(ObjectMutex& mutex, accel::Accelerator& accelerator, Protocol& protocol, Ledger& ledger,
         Waits& waits, ObjectIndex& index, MappingUse& mappings, Residency& residency,
         const BlockOptions& options)
      : mutex_(mutex),
        accelerator_(accelerator),
        protocol_(protocol),
        ledger_(ledger),
        waits_(waits),
        index_(index),
        mappings_(mappings),
        residency_(residency),
        options_(options) {}
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  // add(): the object can be found from now on; what stayed open of the one whose memory it has is
  // open in it (Object::keptOpen). remove(): it no longer can, and the contents of its
  // blocks are dropped; no block may be in transit or held.
  void add(Object& object, const Object* before = nullptr);
  void remove(Object& object);

  // ---- The CPU's side

  // Makes bytes that lie in one block usable. Takes one step, which may let the lock go. After
  // kDone and kOpened they are usable; the protection of other blocks may be stricter than their
  // states after a failure.
  Result<Step> open(Lock& lock, Object& object, ByteRange bytes, Intent intent);
  // Opens the bytes that were copied back ahead (Object::copiedBack), if the copy is complete and
  // still valid. May let the lock go. A hint: after a failure the access does the work.
  void openCopiedBack(Lock& lock, Object& object);
  // From now on open() opens more of a block: the whole in place of a window or a page. What is
  // open of it in part, and is not enough, is closed, so that its mappings are free. False: nothing
  // is.
  Result<bool> refusePart(Lock& lock, Object& object, ByteRange bytes, Intent intent);
  // Whether the CPU gets only a window of an Invalid block for those bytes, if the protocol opens
  // any.
  bool wantsWindow(const Object& object, ByteRange bytes);
  // Copies from the accelerator, which must have finished with them, what blocks lack to be read,
  // or at a sync, and opens them so: Invalid ones, or one that is open in part. Lets the lock go.
  Status fetch(Lock& lock, Object& object, BlockRange range, Event event);
  // Opens a block that is Invalid, or open in part, whose bytes the CPU is about to overwrite: the
  // protocol's transition without its fetch. One step of it, as open().
  Result<Step> openUnfetched(Lock& lock, Object& object, BlockIndex index);
  // The same for settled blocks in any states whose pages are there, once nobody writes them or
  // reads their old bytes; keeps the lock.
  Status openUnfetched(Lock& lock, Object& object, BlockRange range);
  // Keeps an open block open until unhold().
  void hold(Object& object, BlockIndex index) {
    ++object.writable(index).holds;
    ++object.holds_;
  }
  void unhold(Object& object, BlockIndex index) {
    if (object[index].holds > 0) {
      --object.writable(index).holds;
      --object.holds_;
    }
  }
  // Evicts the dirty blocks that exceed the protocol's limit. Lets the lock go.
  Status evictExcess(Lock& lock);
  // From now on nothing is evicted: there may soon be no accelerator to evict to.
  void stopEvicting() { evicts_ = false; }

  // ---- The accelerator's side

  // Hands a range's blocks to the accelerator: one protection change per run of neighbours, one
  // copy per run of dirty ones. No block of the range is in transit or held. Blocks that stay
  // writable (batch-update) must have arrived before the caller's thread goes on and writes them:
  // `stillOpen` becomes the ticket that it has to wait for, once it has let go of the lock.
  Status close(Lock& lock, Object& object, BlockRange range, Event event, accel::Ticket* stillOpen);
  // The same for the blocks that are open in part, as if a call wrote them: for want of mappings.
  // No block of the object is in transit or held.
  Status closeParts(Lock& lock, Object& object);
  // Gives blocks to the accelerator whose bytes it overwrites, without a flush: `work()` queues
  // that. `covers(block)`: every byte of it is overwritten; else what the CPU has of it is not
  // newer.
  template <typename Work, typename Covers>
  Result<accel::Ticket> overwrite(Lock& lock, Object& object, BlockRange range, Work work,
                                  Covers covers);
  // Copies dirty blocks to the accelerator ahead of a call that reads them, and leaves them open
  // for reading; passes over blocks in transit and held ones, as an eviction does. Lets the lock
  // go.
  Status writeBack(Lock& lock, Object& object, BlockRange range);
  // Whether that edge leaves no block writable, so that no call would copy it again.
  bool writesBackAhead() const;
  // Makes one block of every `factor`. Blocks of one group of which some are current are fetched.
  // No block of the object is in transit or held. Lets the lock go.
  Status join(Lock& lock, Object& object, std::size_t factor);
  // Makes blocks as large as a window of each, or the former ones again. All blocks are Invalid,
  // their flushes have finished, and none is in transit or held; nobody has copies of single
  // blocks. Does nothing where there is no memory for it.
  void split(Object& object);
  void unsplit(Object& object);

  // ---- Questions

  OpenList& openObjects() { return open_; }
  // Those with one copy that calls pass over; and the others with one copy.
  OpenList& concurrentObjects() { return concurrent_; }
  WatchList& watchedObjects() { return watched_; }
  // Whether there may be any of either; without the lock.
  bool anyZeroCopy() const { return anyZeroCopy_.load(std::memory_order_relaxed); }
  // Objects whose read-back policy guesses what the CPU reads next, or did so recently; and those
  // with a round of one of their pages under way.
  ReadBackList& readBacks() { return readBacks_; }
  RoundsList& rounds() { return rounds_; }
  // How often work has taken what the CPU came for, or had stored to; and whether the policies of
  // what the CPU stores to are to be told. Under the lock.
  std::uint64_t turns() const { return turns_; }
  void countStored(bool counts) { countsStored_ = counts; }
  // Objects whose blocks should be split, or joined again.
  SplitList& toSplit() { return toSplit_; }
  // Whether there may be any of these; without the lock.
  bool anyReadBacks() const { return anyReadBacks_.load(std::memory_order_relaxed); }
  // Whether a wait would find such bytes closed.
  bool readsBack() const {
    return std::any_of(readBacks_.begin(), readBacks_.end(), [](const Object& object) {
      std::size_t place = 0;
      while (place < object.readBack.size() && !object.lacksPlace(place)) {
        ++place;
      }
      return place < object.readBack.size();
    });
  }
  void noteReadBacks() {
    anyReadBacks_.store(!readBacks_.empty() || !rounds_.empty() || !toSplit_.empty(),
                        std::memory_order_relaxed);
  }
  const Protocol& protocol() const { return protocol_; }
  // Called when a call has released what it uses.
  void called() { protocol_.called(); }
  // The accelerator's copy has moved to another device as a whole. No work uses it.
  static void moved(Object& object, std::size_t device);
  // From now on devices have copies of their own (Object::places): the home has all bytes, or all
  // devices have, since nothing was copied or written yet. No block of the object is in transit.
  // Throws std::bad_alloc.
  static void spread(Object& object, bool all);
  // For spread objects. added(): the device has memory for the object, and current copies of these
  // blocks. sends(): the device is about to get the blocks that only the CPU has. writes(): the
  // device alone has these blocks, since a call there writes them.
  static void added(Object& object, BlockRange range, std::size_t device);
  static void sends(Object& object, BlockRange range, std::size_t device);
  static void writes(Object& object, BlockRange range, std::size_t device);
  // The object's bytes have one copy from now on, or two again. None of it is open.
  void zeroCopyChanged(Object& object);
  // Opens all of an object with one copy for the CPU, while kernels use it as well: calls pass over
  // it. No work uses it, its pages are there, and no block is in transit or held. `first`: in the
  // list of such objects. Keeps the lock.
  Status beginConcurrent(Lock& lock, Object& object, bool first = false);
  // Calls close it again, the next one first.
  void endConcurrent(Object& object);
  // The newest flush of some blocks, by device.
  NewestCalls flushesOf(const Object& object, BlockRange range) const;
  // Whether the accelerator's bytes of blocks are zero, as they were when their object was made.
  bool isZero(const Object& object, BlockRange range) const;
  // Whether a call that reads leaves dirty blocks writable: such writes go undetected.
  bool readsLeaveWritable() const {
    return protocol_.on(State::kDirty, Event::kCallRead).next == State::kDirty;
  }

  // Whether a call leaves nothing open of what it may write.
  bool callsClose() const {
    return protocol_.on(State::kDirty, Event::kCall).next == State::kInvalid;
  }

  // Checks every object: states, lists, open ranges, and the protections in the kernel's own table
  // of mappings. Returns adsmErrorSystem with a text that names the first thing that is wrong.
  // Takes the lock.
  Status verify();
  // Ends the process, with what is wrong, unless that holds. Launches go on repeating.
  void walk() noexcept;

 private:
  void reopen(Object& object, const Object& before);
  // `since`: when a launch began to close it, which counts as a cost; none: it does not.
  void setState(Object& object, BlockIndex index, State next,
                std::optional<ZeroCopyPolicy::Nanoseconds> since = {});
  // (Writing back what has one copy would copy nothing.)
  void becameDirty(const Object& object, Block& block) {
    object.isZeroCopy() ? void() : protocol_.becameDirty(block);
  }
  void leftDirty(const Object& object, Block& block) {
    object.isZeroCopy() ? void() : protocol_.leftDirty(block);
  }
  OpenList& listOf(const Object& object) { return object.concurrent ? concurrent_ : open_; }
  void setOpen(Object& object, BlockRange range);
  void noteZeroCopy();
  Status protect(Lock& lock, Object& object, ByteRange bytes, os::Access access);
  Status protect(Lock& lock, Object& object, BlockRange range, os::Access access) {
    return protect(lock, object, object.bytesOf(range), access);
  }
  void closeToStates(Object& object, ByteRange bytes);
  Status protectAs(Lock& lock, Object& object, BlockIndex index, State state);
  // What the CPU has of blocks in a state, and what of it is open; a block that is open in part
  // comes alone.
  static ByteRange currentIn(const Object& object, BlockRange range, State state) {
    return isPart(state) ? object.windowOf(range.begin) : object.bytesOf(range);
  }
  static ByteRange openIn(const Object& object, BlockRange range, State state) {
    return range.end - range.begin == 1 ? object.openIn(range.begin, state)
                                        : currentIn(object, range, state);
  }
  Status closePage(Lock& lock, Object& object, BlockIndex index);
  Status closePart(Lock& lock, Object& object, BlockIndex index);
  bool opensPage(const Object& object, BlockIndex index, ByteRange opened) const;
  std::uint8_t pageToOpen(const Object& object, BlockIndex index, ByteRange opened,
                          ByteRange bytes) const;
  void setWindow(Object& object, BlockIndex index, std::size_t offset);
  void setPage(Object& object, BlockRange range, std::uint8_t page);
  // Notes the outcome of a change of an object's protections, and returns it.
  Status protectionChanged(Lock& lock, Object& object, ByteRange bytes, os::Access access,
                           Status status);
  // `page`: of a single block, what alone becomes open (Block::page); 0: all.
  Status openPages(Lock& lock, Object& object, BlockRange range, State next, std::uint8_t page = 0);
  Status flushPages(Lock& lock, Object& object, BlockRange range, State next);
  bool groupStays(const Object& object, BlockIndex index, Event event) const;
  Status closePages(Lock& lock, Object& object, BlockRange range);
  Status narrowPages(Lock& lock, Object& object, BlockRange range, Event event);
  Status closeForOverwriting(Lock& lock, Object& object, BlockRange range);
  void overwritten(Object& object, BlockIndex index, bool covered);
  void closedAll(Object& object, BlockRange range);

  Status flush(Object& object, BlockRange range);
  Result<accel::Ticket> lastReader(const Object& object, ByteRange bytes);
  bool sameDevice(const Object& object, BlockIndex a, BlockIndex b) const {
    return !object.spread() || object.deviceOf(a) == object.deviceOf(b);
  }
  void aimFlush(Object& object, BlockRange range);
  Status queueFlush(const Object& object, ByteRange bytes, accel::Ticket after,
                    accel::Ticket* newest);
  void flushed(Object& object, BlockRange range, accel::Ticket newest);
  Result<Step> fetchToOpen(Lock& lock, Object& object, ByteRange bytes, Intent intent, State next);
  Result<Step> openCurrent(Lock& lock, Object& object, ByteRange bytes, State next);
  Result<Step> awaitOldBytes(Lock& lock, Object& object, BlockIndex index);
  Status verifyAll();
  Status verifyState(Object& object, BlockIndex index) const;
  Status fetchAs(Lock& lock, Object& object, BlockRange range, State next, std::uint8_t page = 0);
  // Runs of blocks that one access opens. More of them wait for the next one.
  static constexpr std::size_t kMostRuns = 32;
  using Runs = ShortList<BlockRange, kMostRuns>;
  Runs runsAround(Object& object, BlockIndex index, BlockRange range) const;
  Status copyOut(const Free& free, Object& object, const Runs& runs, accel::Ticket after);
  bool copiedAhead(const Object& object, ByteRange bytes) const;
  bool isCopiedBack(const Object& object, ByteRange bytes) const;
  void openPart(Lock& lock, Object& object, std::size_t place);
  bool canClear(const Object& object, ByteRange bytes) const;
  Status copyOut(const Free& free, Object& object, ByteRange bytes, accel::Ticket after);
  Status queueFetch(Object& object, ByteRange bytes, accel::Ticket after, accel::Ticket* last);
  Result<Step> awaitReaders(Lock& lock, Object& object, ByteRange bytes);
  void step(Object& object, BlockRange range, TransitStep step);
  Event eventOf(const Object& object, ByteRange bytes, Intent intent);
  bool comesAlong(const Object& object, BlockIndex index, BlockIndex neighbour) const;
  BlockRange readAhead(Object& object, BlockIndex index);
  BlockRange neighbours(Object& object, BlockIndex index, State next);
  struct OfGroup {
    BlockRange group;
    bool first = true;
    bool firstDirty = true;
    std::size_t number() const { return static_cast<std::size_t>(group.begin); }
  };
  static OfGroup groupOf(const Object& object, BlockIndex index);
  BlockRange groupOfSplit(Object& object, BlockIndex index, State next);
  // Whether blocks may be split: those as large as a group of dense use.
  bool splits(const Object& object) const {
    return !protocol_.wholeObjects() && options_.windowBytes != 0 &&
           options_.windowBytes <= DenseUse::kPieceBytes &&
           object.blockBytes > options_.windowBytes &&
           (object.blockBytes >= DenseUse::kGroupBytes || object.blockCount == 1);
  }
  bool regroup(Object& object, std::size_t blockBytes);
  void overwrites(Object& object, BlockRange range);
  void noteOutgrown(Object& object, BlockIndex index, ByteRange bytes);
  void noteSplit(Object& object);
  // The CPU fetches bytes; a launch takes a block, which was in that state. See PageRounds and
  // ZeroCopyPolicy.
  static void comes(Object& object, std::size_t offset);
  // The byte at an offset is open for the CPU; that began then.
  void opened(Object& object, std::size_t offset, ZeroCopyPolicy::Nanoseconds begun) const;
  static void stores(Object& object, std::size_t offset);
  bool isTaken(Object& object, BlockIndex index, State before,
               std::optional<ZeroCopyPolicy::Nanoseconds> since) const;
  // A launch reads what the CPU has stored to a block, of which few bytes are open.
  void noteStored(Object& object, BlockIndex index);
  void noteRound(Object& object);
  Status fetchNeighbours(Lock& lock, Object& object, BlockIndex index, BlockRange range,
                         State next);

  Status fetchForJoin(Lock& lock, Object& object, std::size_t factor);
  void joinStates(Object& object, std::size_t factor);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  Protocol& protocol_;
  Ledger& ledger_;
  Waits& waits_;
  ObjectIndex& index_;
  MappingUse& mappings_;
  Residency& residency_;
  const BlockOptions options_;
  OpenList open_;        // objects with a block that is not Invalid, or in transit
  OpenList concurrent_;  // but for these
  WatchList watched_;
  std::atomic<bool> anyZeroCopy_{false};
  std::size_t flushing_ = 0;  // blocks in that transit
  bool evicts_ = true;
  WindowTrials firstWindows_;  // of all objects
  WindowTrials firstPages_;    // the same of pages
  ReadBackList readBacks_;
  RoundsList rounds_;
  SplitList toSplit_;
  std::atomic<bool> anyReadBacks_{false};
  std::uint64_t turns_ = 0;
  bool countsStored_ = false;
};

template <typename Work, typename Covers>
Result<accel::Ticket> Blocks::overwrite(Lock& lock, Object& object, BlockRange range, Work work,
                                        Covers covers) {
  GMAC_TRY(closeForOverwriting(lock, object, range));
  object.zeroSince.reset();
  Result<accel::Ticket> ticket = work();
  if (!ticket.ok()) {
    object.protectionStale_ = true;
    (void)lock.mapped({});
    return ticket;
  }
  for (BlockIndex i = range.begin; i < range.end; i = i + 1) {
    overwritten(object, i, covers(i));
  }
  closedAll(object, range);
  return ticket;
}

// In debug builds, walks all objects when it ends. Stands before the Lock of a scope, so that
// the lock is free by then; in other builds it is nothing.
class Walk {
 public:
  explicit Walk([[maybe_unused]] Blocks& blocks)
#if GMAC_WALK
      : blocks_(blocks) {
  }
  ~Walk() { blocks_.walk(); }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

 private:
  Blocks& blocks_;
#else
  {
  }
#endif
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_BLOCKS_H_
