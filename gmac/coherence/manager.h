// SPDX-License-Identifier: Apache-2.0
//
// The shared memory manager (Gelado et al., section 4.1): composes what this room is made of into
// coherent objects, and refuses children of fork, which have none.
#ifndef GMAC_COHERENCE_MANAGER_H_
#define GMAC_COHERENCE_MANAGER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/base/fork_mark.h"
#include "gmac/coherence/acquire.h"
#include "gmac/coherence/allocation.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/cpu_access.h"
#include "gmac/coherence/device_loans.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/kernels.h"
#include "gmac/coherence/launches.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/lookup.h"
#include "gmac/coherence/mapping_use.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/bulk_memory.h"
#include "gmac/coherence/policies/coarsening.h"
#include "gmac/coherence/policies/early_copies.h"
#include "gmac/coherence/policies/exit_fetch.h"
#include "gmac/coherence/policies/migration.h"
#include "gmac/coherence/policies/placement.h"
#include "gmac/coherence/policies/read_backs.h"
#include "gmac/coherence/policies/scheduling.h"
#include "gmac/coherence/policies/spilling.h"
#include "gmac/coherence/policies/zero_copy.h"
#include "gmac/coherence/port.h"
#include "gmac/coherence/promises.h"
#include "gmac/coherence/prompt_waits.h"
#include "gmac/coherence/residency.h"
#include "gmac/coherence/waits.h"
#include "gmac/os/mirror.h"
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
  SpillOptions spill;                             // what becomes of objects that do not fit
  ZeroCopyOptions zeroCopy;                       // which objects get one copy
  SchedulingRule scheduling{};                    // of calls that name no device
  std::size_t keptBytes = 0;     // memory of freed objects that is kept (object_pool.h)
  bool managed = false;          // CUDA's managed-memory calls give shared objects
  bool trustHints = false;       // a managed-memory program's hints are promises
  std::size_t ioThreads = 1;     // the most for one transfer between a file and objects
  std::size_t mappingLimit = 0;  // of the process; 0: the kernel's
  CallTimes::Clock clock = CallTimes::monotonicClock;  // of policies; not of limits
  unsigned waitLimitSeconds = 0;  // how long one access may wait for running kernels; 0: for ever
};

// The objects of the process and their coherence. One instance per runtime, owned by it;
// thread-safe; onFault is the fault handler's entry. All functions do what the class does that they
// are forwarded to.
class Manager final : public coherence::Port {
 public:
  static Result<std::unique_ptr<Manager>> make(accel::Accelerator& accelerator,
                                               std::unique_ptr<Protocol> protocol,
                                               const ManagerOptions& options);
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // See adsm.h.
  Result<void*> allocate(std::size_t size, accel::Placement placement);
  Result<void*> allocateStriped(std::size_t size, std::span<const std::size_t> devices);
  Status free(void* address);
  Result<void*> deviceAddress(const void* address);
  Status call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
              std::optional<std::span<const adsmUse_t>> uses,
              std::optional<std::size_t> device = std::nullopt);
  Status callRanges(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                    std::span<const adsmRangeUse_t> uses,
                    std::optional<std::size_t> device = std::nullopt);
  Status migrate(const void* address, std::size_t bytes, std::size_t device);
  Status bind(const void* object, adsmKernel_t kernel, adsmAccess_t access);
  // Drops a kernel's bindings and waits for its calls; the kernel may be deleted then.
  Status forget(adsmKernel_t kernel);
  Status setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes);
  Status sync();

  // See port.h.
  bool touchesShared(const void* address, std::size_t bytes) noexcept override;
  std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept override;
  bool inChildOfFork() const noexcept override { return forked(); }
  bool worksHere() const noexcept override { return Lock::worksHere(); }
  Status hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) override;
  Status hold(const void* address, std::size_t bytes, bool write) {
    return hold(address, bytes, write ? coherence::HoldFor::kWrite : coherence::HoldFor::kRead);
  }
  void copy(void* to, const void* from, std::size_t bytes,
            coherence::MoveFunction move) noexcept override;
  void fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept override;
  void unhold(const void* address, std::size_t bytes) override;
  bool lend(const void* address, std::size_t bytes, coherence::Loan* loan) override {
    return !forked() && access_.lend(address, bytes, loan);
  }
  void giveBack(const void* address, std::size_t bytes) override {
    if (!forked()) {
      access_.giveBack(address, bytes);
    }
  }
  Result<bool> lendOnDevice(const void* address, std::size_t bytes,
                            coherence::DeviceLoan* loan) override {
    return forked() ? Result<bool>(false) : deviceLoans_.lend(address, bytes, loan);
  }
  void giveBackOnDevice(const void* address, std::size_t bytes,
                        const coherence::DeviceLoan& loan) override {
    if (!forked()) {
      deviceLoans_.giveBack(address, bytes, loan);
    }
  }
  std::size_t pieceBytes() const noexcept override {
    return std::max(Port::pieceBytes(), options_.blockBytes);
  }
  std::size_t ioThreads() const noexcept override { return forked() ? 1 : options_.ioThreads; }
  Status beginDeviceWork(accel::NativeStream stream,
                         std::span<const coherence::DeviceRange> ranges) override;
  Status endDeviceWork(accel::NativeStream stream, bool submitted) override;
  coherence::Place placeOf(const void* address, std::size_t bytes) noexcept override;
  std::ptrdiff_t deviceDistance(const void* address) noexcept override;
  Status beginOwnWork(std::span<const coherence::DeviceRange> ranges) override;
  Status endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) override;
  void beforeDeviceWait(std::optional<accel::NativeStream> stream) override;
  Status afterDeviceWait() override;
  std::uintptr_t cpuAddress(std::uintptr_t device) noexcept override;
  Status setUsers(const void* object, coherence::Users users, accel::NativeStream stream) override;
  void setReadMostly(const void* object, bool readMostly) override;
  void streamDestroyed(accel::NativeStream stream) override;
  void hostFunctionQueued() override;
  void hostFunctionEnded() override;
  void endContext(bool workFinished) override;
  Result<accel::Accelerator*> ensureAccelerator() override { return &accelerator_; }
  bool managedMode() const noexcept override { return options_.managed; }
  bool trustsHints() const noexcept override { return options_.trustHints; }
  unsigned waitLimit() const noexcept override { return options_.waitLimitSeconds; }
  bool reachedByCuda() const noexcept override { return accelerator_.name() != "host"; }
  Status startFlush(const void* address, std::size_t bytes) override;
  Status startFetch(const void* address, std::size_t bytes) override;
  Result<accel::NativeStream> streamOf(std::uintptr_t context, accel::NativeStream stream) override;
  bool placesMemory() const noexcept override { return placement_.chooses(); }
  Status prefer(const void* address, std::size_t bytes, int device) override;
  Status namedBy(const void* address, int device) override;
  bool makeRoom() override;
  bool isKept(std::uintptr_t device) override;
  std::size_t keptBytes() const noexcept override { return freed_.keptBytes(); }

  // See CpuAccess.
  bool onFault(void* address, bool write) noexcept;

  // Whether the calling thread holds a manager's lock, under which nothing may wait. For tests.
  static bool lockIsHeldHere() noexcept;

  // Around fork, the second in both processes: the child gets the lock free. That its objects are
  // gone is known without them.
  void beforeFork();
  void afterFork();
  bool forked() const noexcept { return forkMark_.inChild(); }

  // The steps of the background threads, for tests without them.
  bool populateNext();
  using EarlyStep = EarlyCopies::Outcome;
  EarlyStep fetchNext();
  bool disposeNext();

  // The process exits, and the driver goes next: ends the background threads, whose work is done by
  // whoever needs it from then on, and brings to the CPU what a managed-memory program may still
  // read.
  void exits();

  // See Blocks.
  Status verify();

  accel::Accelerator& accelerator() { return accelerator_; }
  const Protocol& protocol() const { return *protocol_; }
  const ManagerOptions& options() const { return options_; }

 private:
  void stopBackground();
  Manager(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
          const ManagerOptions& options, std::unique_ptr<os::FileArena> arena);

  accel::Accelerator& accelerator_;
  const std::unique_ptr<Protocol> protocol_;
  const ManagerOptions options_;
  ForkMark forkMark_;

  // Each stands on those before it.
  ObjectMutex mutex_;
  ObjectIndex index_;
  Ledger ledger_;
  Loans loans_;
  Waits waits_;
  MappingUse mappings_;
  FreedMemory freed_;
  Residency residency_;
  Blocks blocks_;
  Coarsening coarsening_;
  Allocation allocation_;
  CpuAccess access_;
  ExitFetch exitFetch_;
  DeviceLoans deviceLoans_;
  BulkMemory bulk_;
  EarlyCopies early_;
  Kernels kernels_;
  PromptWaits promptWaits_;
  Launches launches_;
  Migration migration_;
  Placement placement_;
  Scheduling scheduling_;
  Spilling spilling_;
  ZeroCopy zeroCopy_;
  ReadBacks readBacks_;
  Acquire acquire_;
  Lookup lookup_;
  Promises promises_;
  Status proveStripes(std::span<const std::size_t> devices);
  std::mutex proofs_;              // one thread at a time proves
  unsigned provedDevices_ = 0;     // bit i: device i's copies reach moved pages; under proofs_
  std::unique_ptr<Lock> forking_;  // held from beforeFork to afterFork
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_MANAGER_H_
