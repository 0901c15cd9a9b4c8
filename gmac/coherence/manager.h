// SPDX-License-Identifier: Apache-2.0
//
// The shared memory manager (Gelado et al., section 4.1): composes mirrors, a protocol and an
// accelerator into coherent objects.
//
// Locking. One lock guards all states. It is never held while the CPU waits for a copy, a kernel or
// a populating chunk: whoever must wait marks what it waits for as busy, lets go, and tells
// everybody when it is done. So there is no order of locks to get wrong, and a fault on one block
// never waits for a copy of another. All signals are blocked while a thread holds the lock, so that
// a handler of the application cannot fault inside it.
#ifndef GMAC_COHERENCE_MANAGER_H_
#define GMAC_COHERENCE_MANAGER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "gmac/accel/accelerator.h"
#include "gmac/base/fork_mark.h"
#include "gmac/coherence/idle_window.h"
#include "gmac/coherence/kernel.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/object_pool.h"
#include "gmac/coherence/port.h"
#include "gmac/coherence/small_heap.h"
#include "gmac/os/fault.h"
#include "gmac/os/mapping_budget.h"
#include "gmac/protocols/protocol.h"

namespace gmac {

struct ManagerOptions {
  std::size_t blockBytes = std::size_t{2} << 20;  // a power of two, at least a page
  std::size_t readAheadBytes = std::size_t{8}
                               << 20;  // the most that one read fault fetches; 0: one block
  std::size_t windowBytes = std::size_t{64}
                            << 10;  // of a block that is open in part, whole pages; 0: none is
  std::size_t chunkBytes = std::size_t{8} << 20;  // pages are populated and pinned in such pieces
  bool populateAhead = true;                      // by a thread of its own (moved pages)
  bool fetchInBackground = true;                  // what startFetch asks for
  bool movedPages = false;                        // mirrors of moved pages instead of memory files
  std::size_t keptBytes = 0;      // memory of freed objects that is kept (object_pool.h)
  bool trustHints = false;        // a managed-memory program's hints are promises
  std::size_t mappingLimit = 0;   // of the process; 0: the kernel's
  unsigned waitLimitSeconds = 0;  // how long one access may wait for running kernels; 0: for ever
};

// The objects of the process and their coherence. One instance per runtime, owned by it;
// thread-safe; onFault is the fault handler's entry.
class Manager final : private os::Pinner, private RegionSource {
 public:
  static Result<std::unique_ptr<Manager>> make(accel::Accelerator& accelerator,
                                               std::unique_ptr<Protocol> protocol,
                                               const ManagerOptions& options);
  ~Manager() override;
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // See adsm.h.
  Result<void*> allocate(std::size_t size, accel::Placement placement);
  Status free(void* address);
  Result<void*> deviceAddress(const void* address);
  Status call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
              std::optional<std::span<const adsmUse_t>> uses);
  Status bind(const void* object, adsmKernel_t kernel, adsmAccess_t access);
  // Drops a kernel's bindings and waits for its calls; the kernel may be deleted then.
  Status forget(adsmKernel_t kernel);
  Status setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes);
  Status sync();

  // See coherence.h.
  bool touchesShared(const void* address, std::size_t bytes) noexcept;
  std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept;
  Status hold(const void* address, std::size_t bytes, coherence::HoldFor purpose);
  Status hold(const void* address, std::size_t bytes, bool write) {
    return hold(address, bytes, write ? coherence::HoldFor::kWrite : coherence::HoldFor::kRead);
  }
  void copy(void* to, const void* from, std::size_t bytes, coherence::MoveFunction move) noexcept;
  void fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept;
  void unhold(const void* address, std::size_t bytes);
  Status beginDeviceWork(accel::NativeStream stream,
                         std::span<const coherence::DeviceRange> ranges);
  Status endDeviceWork(accel::NativeStream stream, bool submitted);
  std::size_t currentPrefix(const void* address, std::size_t bytes,
                            coherence::Current* current) noexcept;
  std::ptrdiff_t deviceDistance(const void* address) noexcept;
  Status beginOwnWork(std::span<const coherence::DeviceRange> ranges);
  Status endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket);
  Status afterDeviceWait();
  std::uintptr_t cpuAddress(std::uintptr_t device) noexcept;
  Status setUsers(const void* object, Object::Users users, accel::NativeStream stream);
  void setReadMostly(const void* object, bool readMostly);
  void streamDestroyed(accel::NativeStream stream);
  void hostFunctionQueued();
  void hostFunctionEnded();
  void endContext(bool workFinished);

  Status startFlush(const void* address, std::size_t bytes);
  Status startFetch(const void* address, std::size_t bytes);

  // Makes a faulting access possible; false when the address is no object's. What fails in here
  // ends the process.
  bool onFault(void* address, bool write) noexcept;

  // Whether the calling thread holds a manager's lock, under which nothing may wait. For tests.
  static bool lockIsHeldHere() noexcept;

  // Around fork, the second in both processes: the child gets the lock free. That its objects are
  // gone is known without them.
  void beforeFork();
  void afterFork();
  bool forked() const noexcept { return forkMark_.inChild(); }

  // Populates and installs one chunk ahead of the CPU; false when there is nothing (more) to do for
  // now.
  bool populateNext();

  // One step of the oldest early fetch; for one thread at a time. kWaits: kernels, or a copy, must
  // finish first.
  enum class EarlyStep { kIdle, kWaits, kMoved };
  EarlyStep fetchNext();

  // Gives the pages of one freed object back; false when there is none.
  bool disposeNext();

  // Gives back what is kept of freed objects; whether there was anything. For whoever cannot get
  // memory of the accelerator.
  bool giveBackKept();
  // Whether the byte that the accelerator knows at `device` is part of it.
  bool isKept(std::uintptr_t device);
  std::size_t keptBytes() const noexcept { return pool_.bytes(); }

  // Ends the background threads; their work is done by whoever needs it from then on. Before
  // the driver goes at process exit.
  void stopBackground();

  // Checks every object: states, lists, open ranges, and the protections in the kernel's own table
  // of mappings. Returns adsmErrorSystem with a text that names the first thing that is wrong.
  Status verify();

  accel::Accelerator& accelerator() { return accelerator_; }
  const Protocol& protocol() const { return *protocol_; }
  const ManagerOptions& options() const { return options_; }

 private:
  class Lock;
  class Free;
  class FreeForWork;
  class Walk;
  struct Bulk;
  struct Part;
  using OpenList = boost::intrusive::list<Object>;
  // Steps. kRetry: the lock was let go; look the object up again.
  enum class Step { kDone, kRetry };

  // A part of one object that shall be fetched early, and who may write the object by then.
  struct EarlyFetch {
    const std::byte* first = nullptr;
    const std::byte* last = nullptr;
    Ledger::Writers writers;
  };

  Manager(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
          const ManagerOptions& options);

  // Bulk memory operations (manager_bulk.cc).
  void doBulk(Bulk bulk) noexcept;
  std::size_t sameOwner(const std::byte* edge, std::size_t most, bool backward, Object** owner);
  void planPart(const Bulk& bulk, Part* part);
  bool betterOnAccelerator(const Bulk& bulk, const Part& part);
  Result<Step> openForReading(Lock& lock, Object& object, ByteRange bytes);
  Result<Step> openForWriting(Lock& lock, const Part& part);
  Result<Step> doOnAccelerator(Lock& lock, const Bulk& bulk, const Part& part);
  bool deviceWorkElsewhere() const;
  Result<Step> retryIfOutOfMappings(Lock& lock, Status failed);

  Result<Step> releaseRange(Lock& lock, const coherence::DeviceRange& range,
                            accel::Ticket* stillOpen);

  // os::Pinner
  Status pin(void* address, std::size_t bytes, int fd, std::int64_t offset) override;
  Status unpin(void* address, std::size_t bytes, int fd, std::int64_t offset) override;
  // RegionSource
  Result<void*> acquire(std::size_t bytes) override;
  Status release(void* region) override;

  Result<Object*> makeObject(std::size_t size, std::size_t blockBytes, accel::Placement placement,
                             bool sharedBySmallObjects);
  Result<std::unique_ptr<Object>> reuse(std::unique_ptr<Object> kept, std::size_t size,
                                        std::size_t blockBytes, bool sharedBySmallObjects);
  Object* addObject(std::unique_ptr<Object> object);
  Status destroy(Lock& lock, Object& object);
  Status proveMovedPages();
  std::unique_ptr<Object> takeKept(std::size_t bytes, accel::Placement placement);
  bool keep(Lock& lock, Object& object);
  Status giveBack(Lock& lock, Object& object);
  bool giveBackKept(Lock& lock);

  // Tells shared_ranges of an object that is out of the index.
  void forgetAddresses(const Object& object);

  // Waiting: all of these let the lock go; what was known of objects before must be looked up
  // again.
  void waitForChange(Lock& lock);
  // For a call that needs blocks which are in transit. Until it has gone on, no others go into
  // transit: threads that touch one block after the other would keep it waiting for ever.
  void waitForTransit(Lock& lock);
  void changed();
  Status waitForWriters(Lock& lock, Object& object, bool* waited);
  Status waitForPending(Lock& lock);
  Status waitFor(Lock& lock, accel::Ticket ticket, bool* waited);
  // Waits for what the caller's thread may not overwrite yet; nothing of it: kDone.
  Status waitForArrival(Lock& lock, accel::Ticket ticket);
  Status endWork(Lock& lock, accel::Ticket reader);
  Status waitForHostFunctions(Lock& lock, bool* waited);
  // Waits for the end of what another thread submits.
  void waitForDeviceWork(Lock& lock);
  // The accelerator's wait; every wait of the manager's goes through here. Fault path.
  Status await(const Free& free, accel::Ticket ticket);
  // The same with the limit that accesses of the CPU have; ends the process where that is exceeded.
  Status awaitWithinLimit(const Free& free, accel::Ticket ticket);
  // The limit of the calling thread's wait; 0: none.
  std::chrono::seconds waitLimit() const noexcept;
  [[noreturn]] void endBehindLimit() noexcept;
  // Ends the process, with what is wrong, unless verify() holds.
  void walk() noexcept;
  Status makeReady(Lock& lock, Object& object, std::size_t chunk);
  Status makeReady(Lock& lock, Object& object, BlockRange range);

  // Makes bytes that lie in one block usable.
  Result<Step> openBlock(Lock& lock, Object& object, ByteRange bytes, bool write);
  Result<Step> makePagesReady(Lock& lock, Object& object, BlockIndex index);
  Result<Step> openBlockOnce(Lock& lock, Object& object, ByteRange bytes, bool write);
  bool wantsWindow(const Object& object, ByteRange bytes);
  Event eventOf(const Object& object, ByteRange bytes, bool write);
  Status fetch(Lock& lock, Object& object, BlockRange range, State next);
  Status copyOut(const Free& free, Object& object, ByteRange bytes, accel::Ticket after);
  Status queueFetch(Object& object, ByteRange bytes, accel::Ticket after, accel::Ticket* last);
  static bool fetchable(Object& object, BlockIndex index);
  BlockRange readAhead(Object& object, BlockIndex index);
  static void noteRead(Object& object, BlockIndex index);
  Status flush(Object& object, BlockRange range, accel::Ticket after);
  Status startFlush(Object& object, BlockRange range);
  Result<Step> openForOverwriting(Lock& lock, Object& object, BlockIndex index);
  static BlockRange wholeBlocks(const Object& object, const std::byte* first,
                                const std::byte* last);
  static const std::byte* firstInvalid(Object& object, const std::byte* first,
                                       const std::byte* last);
  void fetchEarly();
  void workBehind();
  bool hasRetired();
  Object* nextToPopulate(std::size_t* chunk);
  Status load(Lock& lock, adsmKernel_t kernel);
  Status checkSmall(const char* function, const void* address);
  void retire(Lock& lock, Object& object);
  void noteUse(Object& object, std::size_t chunk, Object::Use use);
  Status evictExcess();
  Status evictExcessBut(Block& block);
  Status releaseBlocks(Object& object, BlockRange range, Event event, accel::Ticket* stillOpen);
  void setState(Object& object, Block& block, State next);
  Status protect(Object& object, ByteRange bytes, os::Access access);
  Status protect(Object& object, BlockRange range, os::Access access) {
    return protect(object, object.bytesOf(range), access);
  }
  // Opens a block as far as a state says.
  Status protectAs(Object& object, BlockIndex index, State state);
  Status close(Object& object, BlockRange range);
  void setOpen(Object& object, BlockRange range);
  Status fetchAfterSync(Lock& lock);
  // The kernel's limit of mappings (manager_coarsening.cc). An object, or all of them together,
  // with fewer edges is left alone while the kernel has mappings.
  static constexpr std::size_t kFewEdges = 64;
  // What changes take of mappings, at most.
  static constexpr std::size_t kMappingsOfAChange = 2;
  static constexpr std::size_t kMappingsOfAMovedChunk = 2;  // where it was, and where it is
  std::size_t mappingsOfAnObject() const { return options_.movedPages ? 3 : 1; }
  // Those that the objects have, if the kernel joins no two objects.
  std::size_t mappings() const { return index_.count() * mappingsOfAnObject() + pieces_ + edges_; }
  void noteEdges(Object& object, std::size_t edges);
  Result<Step> leaveMappings(Lock& lock, std::size_t more);
  Status leaveMappingsForObject();
  Status coarsen(Lock& lock);
  Status coarsen(Lock& lock, Object& object, std::size_t factor);
  Status closeWindows(Object& object);
  void closeWindows();
  bool outOfMappings(Status status) const;
  bool usesObject(const Object& object, adsmKernel_t kernel, Event* event) const;
  void tellOfFaultInChild(void* address) noexcept;
  [[noreturn]] void die(const Object& object, BlockIndex index, const char* operation) noexcept;

  accel::Accelerator& accelerator_;
  const std::unique_ptr<Protocol> protocol_;
  const ManagerOptions options_;
  std::unique_ptr<os::FileArena> arena_;
  SmallHeap small_;

  std::mutex lock_;
  std::atomic<std::uint32_t> generation_{0};  // counts changes that others may wait for
  std::uint32_t callsWaiting_ = 0;            // in waitForTransit()
  ObjectIndex index_;
  OpenList open_;               // objects with a block that is not Invalid
  std::vector<Object*> bound_;  // objects with bindings
  Ledger ledger_;
  ForkMark forkMark_;
  Lock* forking_ = nullptr;  // held from beforeFork to afterFork

  bool deviceReads_ = false;                 // deviceWork_ reads such objects
  bool deviceNames_ = false;                 // deviceWork_ names objects
  accel::Ticket deviceStillOpen_;            // what its thread has to wait for when it ends
  std::atomic<std::size_t> safeObjects_{0};  // whose two addresses differ
  std::optional<std::thread::id>
      deviceWork_;  // the thread between beginDeviceWork and endDeviceWork

  os::MappingBudget budget_;
  std::size_t edges_ = 0;                       // of all objects
  std::size_t pieces_ = 0;                      // of all objects
  std::optional<std::size_t> nothingToJoinAt_;  // about so many edges

  // Population ahead: what waits to be touched is never more than the CPU has touched, so that
  // memory which the CPU leaves alone costs nothing.
  std::size_t touchedBytes_ = 0;
  std::size_t aheadBytes_ = 0;
  Object* lastTouched_ = nullptr;
  ObjectPool pool_;
  bool keepsFreed_ = true;       // false at the end, and while the context ends
  std::size_t livingBytes_ = 0;  // of objects
  std::size_t leaving_ = 0;      // objects out of the index whose memory is neither kept nor given
                                 // back yet
  OpenList retired_;             // freed objects whose pages are still pinned
  std::size_t retiredBytes_ = 0;
  std::atomic<std::uint32_t> aheadGeneration_{0};
  std::atomic<bool> stopping_{false};
  std::uint64_t allocations_ = 0;
  WindowTrials firstWindows_;  // of all objects
  IdleWindow idle_;
  std::uint32_t usesSeen_ = 0;  // of idle_, when the chunk was begun; the populator's own
  std::thread populator_;

  // Early fetches, oldest first, in a ring.
  std::array<EarlyFetch, 64> early_{};
  std::size_t earlyFirst_ = 0;
  std::size_t earlyCount_ = 0;
  std::atomic<std::uint32_t> earlyGeneration_{0};
  std::thread fetcher_;  // started by the first of them
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_MANAGER_H_
