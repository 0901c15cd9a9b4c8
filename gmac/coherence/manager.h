// SPDX-License-Identifier: Apache-2.0
//
// The shared memory manager (Gelado et al., section 4.1): composes what this room is made of into
// coherent objects, and refuses children of fork, which have none.
#ifndef GMAC_COHERENCE_MANAGER_H_
#define GMAC_COHERENCE_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"
#include "gmac/coherence/options.h"
#include "gmac/coherence/policies/early_step.h"
#include "gmac/coherence/port.h"

namespace gmac {

class Protocol;
struct CallUses;
namespace os {
class FileArena;
}

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
  bool worksHere() const noexcept override;
  Status hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) override;
  Status hold(const void* address, std::size_t bytes, bool write) {
    return hold(address, bytes, write ? coherence::HoldFor::kWrite : coherence::HoldFor::kRead);
  }
  void copy(void* to, const void* from, std::size_t bytes,
            coherence::MoveFunction move) noexcept override;
  void fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept override;
  void unhold(const void* address, std::size_t bytes) override;
  bool lend(const void* address, std::size_t bytes, coherence::Loan* loan) override;
  void giveBack(const void* address, std::size_t bytes) override;
  Result<bool> lendOnDevice(const void* address, std::size_t bytes,
                            coherence::DeviceLoan* loan) override;
  void giveBackOnDevice(const void* address, std::size_t bytes,
                        const coherence::DeviceLoan& loan) override;
  std::size_t pieceBytes() const noexcept override;
  std::size_t ioThreads() const noexcept override { return forked() ? 1 : options_.ioThreads; }
  Status beginDeviceWork(accel::NativeStream stream,
                         std::span<const coherence::DeviceRange> ranges) override;
  Status endDeviceWork(accel::NativeStream stream, bool submitted) override;
  coherence::Place placeOf(const void* address, std::size_t bytes) noexcept override;
  bool prefersCpu(const void* address, std::size_t bytes) noexcept override;
  std::ptrdiff_t deviceDistance(const void* address) noexcept override;
  Status beginOwnWork(std::span<const coherence::DeviceRange> ranges) override;
  Status endOwnWork(std::span<const coherence::DeviceRange> ranges, accel::Ticket ticket) override;
  bool mayRepeat() const noexcept override;
  bool beginRepeated(accel::NativeStream stream) noexcept override;
  void endRepeated(accel::NativeStream stream, bool submitted) noexcept override;
  void markRepeated() noexcept override;
  void noneRepeats() noexcept override;
  void keepWhole() noexcept override;
  void keepWhole(std::span<const coherence::DeviceRange> ranges) noexcept override;
  using Port::beforeDeviceWait;
  coherence::DeviceWait beforeDeviceWait(std::optional<accel::NativeStream> stream,
                                         bool asks) override;
  Status afterDeviceWait(const coherence::DeviceWait& wait) override;
  Status afterDeviceWait() { return afterDeviceWait(coherence::DeviceWait{}); }
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
  void fetchIfQuiet(const void* address, std::size_t bytes) noexcept override;
  void otherContextEnds(std::uintptr_t context) noexcept override;
  bool placesMemory() const noexcept override;
  Status prefer(const void* address, std::size_t bytes, int device) override;
  Status namedBy(const void* address, int device) override;
  bool makeRoom() override;
  bool makeRoomForOwnWork() override;
  bool fitsNowhere(std::size_t bytes) override;
  bool isKept(std::uintptr_t device) override;
  std::size_t keptBytes() const noexcept override;
  std::size_t ofOneKind(const void* address, std::size_t bytes) noexcept override;

  // See CpuAccess.
  bool onFault(void* address, bool write) noexcept;

  // Whether the calling thread holds a manager's lock, under which nothing may wait. For tests.
  static bool lockIsHeldHere() noexcept;

  // Around fork, the second in both processes: the child gets the lock free. That its objects are
  // gone is known without them.
  void beforeFork();
  void afterFork();
  bool forked() const noexcept;

  // The steps of the background threads, for tests without them.
  bool populateNext();
  EarlyStep fetchNext();
  bool disposeNext();

  // The process exits, and the driver goes next: ends the background threads, whose work is done by
  // whoever needs it from then on, and brings to the CPU what a managed-memory program may still
  // read.
  void exits();

  // See Blocks.
  Status verify();

  accel::Accelerator& accelerator() { return accelerator_; }
  const Protocol& protocol() const;
  const ManagerOptions& options() const { return options_; }

 private:
  // Its parts.
  struct Parts;

  Manager(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
          const ManagerOptions& options, std::unique_ptr<os::FileArena> arena);
  void stopBackground();
  Status callUsing(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                   const std::optional<CallUses>& uses, std::optional<std::size_t> device);
  void afterWait();
  bool joined(std::span<const coherence::DeviceRange> ranges);
  Status proveStripes(std::span<const std::size_t> devices);

  accel::Accelerator& accelerator_;
  const ManagerOptions options_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_MANAGER_H_
