// SPDX-License-Identifier: Apache-2.0
//
// An accelerator made of CUDA streams and events, over either CUDA layer.
#ifndef GMAC_ACCEL_CUDA_STREAM_ACCELERATOR_H_
#define GMAC_ACCEL_CUDA_STREAM_ACCELERATOR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/address_windows.h"
#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/cuda/imported_files.h"
#include "gmac/accel/cuda/imported_ranges.h"
#include "gmac/accel/cuda/mapped_memory.h"
#include "gmac/accel/cuda/other_contexts.h"
#include "gmac/accel/cuda/other_devices.h"
#include "gmac/accel/cuda/own_work.h"
#include "gmac/accel/cuda/queues.h"
#include "gmac/accel/cuda/stripes.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/accel/native_streams.h"
#include "gmac/accel/shared_addresses.h"
#include "gmac/base/status.h"

namespace gmac::accel::cuda {

// The `cuda` and `cudart` accelerators: three streams, a ring of events for each, and a fourth ring
// for marks on the application's own streams; a kernel stream on each other device. Thread-safe;
// owned by the runtime. The fault handler
// may call what the interface says: those methods take one queue's lock, and under that of copies a
// kernel queue's, which is never held while application memory is touched (arguments and constants
// are copied before it is taken).
class StreamAccelerator final : public Accelerator,
                                public NativeStreams,
                                public MovableMemory,
                                public ExportedMemory,
                                public SharedAddresses,
                                public Devices {
 public:
  // `windows`, if any: it shares those addresses. Then it is one device, and its memory neither
  // moves nor is exported. adsmErrorNotSupported: the device's memory cannot be mapped there.
  static Result<std::unique_ptr<Accelerator>> make(
      std::unique_ptr<DeviceCalls> calls, const Driver& driver,
      std::shared_ptr<AddressWindows> windows = nullptr);
  ~StreamAccelerator() override;

  std::string_view name() const noexcept override { return calls_->name(); }
  std::string_view deviceName() const noexcept override { return calls_->deviceName(); }
  bool copiesReachMovedPages() const noexcept override { return true; }
  bool kernelsReachPinned() const noexcept override { return true; }
  std::string busAddress() const override { return ownWork_.busAddress(); }
  DeviceTraits traits() const noexcept override { return ownWork_.traits(); }

  Status usable() override;
  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                 Placement placement) override;
  Status free(DeviceAddress address, std::size_t bytes) override {
    return free(address, bytes, true);
  }
  Status allocateAt(DeviceAddress address, std::size_t bytes, Placement placement) override;
  Status leave(DeviceAddress address, std::size_t bytes) override {
    return free(address, bytes, false);
  }
  Result<DeviceAddress> allocateOnCpu(std::size_t bytes, std::size_t alignment,
                                      Placement placement) override;
  Status move(DeviceAddress address, std::size_t bytes, Home home) override;
  Status movePage(DeviceAddress address, std::size_t bytes, Home home, int device) override;
  std::size_t marginOf(DeviceAddress address, std::size_t bytes) const override;
  void keepPages(bool keep) noexcept override;
  bool separateDevices() const noexcept override { return separate_.load(); }
  bool reachesOwn(int device) const noexcept override { return calls_->reachedFrom(device); }
  Status gatherIn(Home home, int device) override;
  Home gatheredIn() const noexcept override { return gatheredIn_.load(std::memory_order_relaxed); }
  int gatheredOn() const noexcept override { return apart_.load(std::memory_order_relaxed); }
  int numberOf(std::size_t device) const noexcept override {
    return device == 0 ? calls_->deviceNumber() : devices_.device(device).number.load();
  }
  Status moveAlone(DeviceAddress address, std::size_t bytes, Home home, int device,
                   bool holds) override;
  bool severalDevices() const noexcept override { return several_.load(); }
  int deviceHere() const noexcept override;
  std::vector<int> devicesWithMemory() const override;
  Result<MemoryRoom> roomOn(int device) override;
  Result<DeviceAddress> allocateOn(std::size_t bytes, std::size_t alignment, Placement placement,
                                   int device) override;
  std::size_t bytesOn(DeviceAddress address, std::size_t bytes, int device) const override;
  bool liesOn(DeviceAddress address, std::size_t bytes, int device) const override;
  Status moveTo(DeviceAddress address, std::size_t bytes, int device) override;
  Status moveAllTo(DeviceAddress address, std::size_t bytes, int device) override;
  Result<DeviceAddress> exportMemory(std::size_t bytes, MemoryHandle* handle) override;
  Result<DeviceAddress> importMemory(const MemoryHandle& handle) override;
  Status handleOf(DeviceAddress start, MemoryHandle* handle) override;
  Status releaseImport(DeviceAddress address) override;
  bool isImported(DeviceAddress address) const noexcept override {
    return importedRanges_.hold(static_cast<std::uintptr_t>(address));
  }
  void importIsLocal(DeviceAddress address) noexcept override {
    importedRanges_.remove(static_cast<std::uintptr_t>(address));
  }
  Result<SharedAllocation> sharedAllocation(DeviceAddress address) override;
  Result<std::vector<MemoryFile>> filesOf(const SharedAllocation& allocation) override;
  Result<DeviceAddress> importFiles(std::span<const MemoryFile> files) override;
  Result<MemoryRoom> memoryRoom() override;
  Status pin(const HostMemory& memory) override;
  Status unpin(const HostMemory& memory) override;
  Result<void*> allocatePinned(std::size_t bytes) override;
  void freePinned(void* address, std::size_t bytes) noexcept override;
  Memory memoryOf(const void* address) const noexcept override {
    return ownWork_.memoryOf(address);
  }

  Result<Ticket> copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                        Ticket after) override;
  Result<Ticket> copyOut(void* to, DeviceAddress from, std::size_t bytes, Ticket after) override;
  Result<Ticket> copyWithin(DeviceAddress to, DeviceAddress from, std::size_t bytes) override;
  Result<Ticket> fill(DeviceAddress to, std::byte value, std::size_t bytes) override;

  bool done(Ticket ticket) noexcept override;
  bool succeeded(Ticket ticket) noexcept override;
  Status wait(Ticket ticket) override;
  void endIsAwaited(Ticket ticket) noexcept override;

  Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) override;
  Result<Ticket> launch(LoadedKernel& kernel, const LaunchShape& shape, void** args) override {
    return launch(0, kernel, shape, args, {}, End::kAsked);
  }
  Result<Ticket> launchAwaited(LoadedKernel& kernel, const LaunchShape& shape,
                               void** args) override {
    return launch(0, kernel, shape, args, {}, End::kAwaited);
  }
  Status setConstant(LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes) override;

  // ---- Devices: 0 is the one of the accelerator's context; the others have the driver's order.
  std::size_t count() const noexcept override { return 1 + devices_.all(); }
  std::size_t together() const noexcept override { return 1 + devices_.count(); }
  bool reachEachOther() const noexcept override { return true; }
  Result<DeviceDescription> describe(std::size_t device) override;
  Status usable(std::size_t device) override;
  std::size_t deviceOf(Ticket ticket) const noexcept override { return otherOf(ticket); }
  std::size_t homeOf(DeviceAddress address) noexcept override;
  Status move(DeviceAddress address, std::size_t bytes, std::size_t device,
              std::span<const Part> parts) override;
  Status place(DeviceAddress address, std::size_t bytes, std::size_t device) override {
    return move(address, bytes, device, {});
  }
  Result<DeviceAddress> allocateStriped(std::size_t bytes, std::size_t alignment,
                                        Placement placement,
                                        std::span<const std::size_t> devices) override;
  Result<std::unique_ptr<LoadedKernel>> load(std::size_t device,
                                             const adsmKernelDesc_t& desc) override;
  Result<Ticket> launch(std::size_t device, LoadedKernel& kernel, const LaunchShape& shape,
                        void** args, std::span<const Ticket> after) override {
    return launch(device, kernel, shape, args, after, End::kAsked);
  }
  Result<Ticket> launchAwaited(std::size_t device, LoadedKernel& kernel, const LaunchShape& shape,
                               void** args, std::span<const Ticket> after) override {
    return launch(device, kernel, shape, args, after, End::kAwaited);
  }
  Status setConstant(std::size_t device, LoadedKernel& kernel, const adsmConstant_t& constant,
                     const void* data, std::size_t bytes) override;
  Status copiesFollow(Ticket ticket) override;

  std::unique_ptr<LoadedKernels> loadBuiltIn(const BuiltInKernels& kernels) override {
    return ownWork_.load(kernels);
  }
  Result<Ticket> submit(Work& work) override;

  Status check(NativeStream stream) const override { return OwnWork::check(stream); }
  bool perThread(NativeStream stream) const noexcept override;
  bool capturing(NativeStream stream) const noexcept override;
  Result<Fence> fence(NativeStream stream, const Fence& earlier) override;
  Fence newest() const noexcept override { return {in_.newest(), kernel_.newest()}; }
  Status follow(NativeStream stream, Ticket ticket) override;
  Result<NativeStream> sideStream() override;
  Result<Ticket> mark(NativeStream stream, Ticket earlier) override;
  void endIsAwaited(NativeStream stream, Ticket ticket) noexcept override;
  Status waitForAll() override { return ownWork_.waitForAll(); }
  Status submit(NativeStream stream, Work& work) override {
    return ownWork_.runOn(callsOf(stream), cuda::streamOf(stream), work);
  }
  Status launch(NativeStream stream, LoadedKernels& kernels, const Launch& launch) override {
    return ownWork_.launchOn(callsOf(stream), cuda::streamOf(stream), kernels, launch);
  }
  void failed(int number) noexcept override { calls_->learn(number); }
  std::uintptr_t nativeContext() const noexcept override { return calls_->nativeContext(); }
  int primaryDevice() const noexcept override { return calls_->primaryDevice(); }
  Result<NativeStream> streamOf(std::uintptr_t context, NativeStream stream) override;
  int deviceOf(NativeStream stream) const noexcept override {
    return callsOf(stream).deviceNumber();
  }
  bool knowsOthers() const noexcept override { return others_.any() || devices_.anyOpen(); }
  void otherEnds(std::uintptr_t context) noexcept override {
    others_.remove(context);
    devices_.contextEnds(context);
  }
  void contextEnds() noexcept override;
  void leaveContext() noexcept override;

 private:
  // One piece of a constant on its way: the driver reads it some time after setConstant() has
  // returned.
  struct Stage {
    void* memory = nullptr;
    Ticket reader;
  };
  static constexpr std::size_t kStageBytes = 64 << 10;  // the most that constant memory holds

  StreamAccelerator(std::unique_ptr<DeviceCalls> calls, const Driver& driver,
                    std::shared_ptr<AddressWindows> windows);
  // Makes streams, events and pinned memory in the layer's context.
  Status open();
  void close() noexcept;
  // Opens what the last context has taken with it; the lost device's text where it is lost. In
  // front of everything that may come first.
  Status ready();
  [[gnu::cold, gnu::noinline]] Status reopen();
  // The number of a ticket's device where that is another one, else 0; a ticket's queue, and the
  // layer of its context.
  static std::size_t otherOf(Ticket ticket) noexcept {
    const auto id = static_cast<std::size_t>(cuda::queueOf(ticket));
    return id < kOwnQueues || id >= OtherContexts::kFirstQueue ? 0 : id - kOwnQueues + 1;
  }
  Queue& queueOf(Ticket ticket) const noexcept {
    const auto id = static_cast<std::size_t>(cuda::queueOf(ticket));
    if (id < kOwnQueues) return *queues_[id];
    const std::size_t other = otherOf(ticket);
    return other != 0 ? devices_.device(other).queue
                      : others_.ring(id - OtherContexts::kFirstQueue + 1);
  }
  DeviceCalls& callsOf(Ticket ticket) const noexcept {
    const auto id = static_cast<std::size_t>(cuda::queueOf(ticket));
    if (id < kOwnQueues) return *calls_;
    const std::size_t other = otherOf(ticket);
    return other != 0 ? *devices_.device(other).calls
                      : others_.calls(id - OtherContexts::kFirstQueue + 1);
  }
  DeviceCalls& callsOf(NativeStream stream) const noexcept {
    return contextOf(stream) == 0 ? *calls_ : others_.calls(contextOf(stream));
  }
  // Makes `stream` (of the context of `calls`) wait for the ticket's work, unless that is known to
  // be complete.
  Status order(DeviceCalls& calls, Stream stream, Ticket ticket);
  // Lets a device use all memory.
  Status allow(int device);
  Status allowLocked(int device);
  bool allIsMapped() const;
  // Passes `work(copier)` the means of the device that pages lie or come to lie on, where it is
  // open, else those of the accelerator's own.
  template <typename Work>
  Status withCopier(std::optional<int> device, Work work);
  // MappedMemory::move(), by the device that the pages move to where it is open. Without `holds`
  // they read as zero there.
  Status movePages(std::uintptr_t given, std::size_t offset, std::size_t bytes, Place place,
                   bool holds = true);
  // Between devices that do not reach each other's memory: through pinned memory of the CPU's.
  // `from`: one that is apart, or none, the accelerator's own. All pages that lie there.
  Status movePagesAcross(std::uintptr_t given, std::optional<int> from, Place place);
  // Makes a device that is apart ready to have allocations.
  Status openApart(int device);
  void openToMove(int device);
  // The place of a home now (gatherIn()).
  Place placeOf(Home home) const;
  // The allocation that holds an address, and its offset in what CUDA gave.
  Result<std::pair<std::uintptr_t, std::size_t>> partOf(std::uintptr_t address) const;
  // A kernel queue, the layer of its context, and what else it takes to submit there.
  struct KernelQueue {
    DeviceCalls& calls;
    Queue& queue;
    std::uint64_t& waitedFor;  // the newest copyIn; under the queue's lock
    std::uint64_t context;     // its number
  };
  // Of a device that work can be submitted to.
  Result<KernelQueue> kernelQueue(std::size_t device);
  // Submits to a kernel queue, after every copyIn submitted before.
  enum class End : std::uint8_t { kAsked, kAwaited };  // kAwaited: Queue::submitAwaited()
  template <typename Function>
  Result<Ticket> submitTo(const KernelQueue& to, Function&& work, End end = End::kAsked);
  Result<Ticket> launch(std::size_t device, LoadedKernel& kernel, const LaunchShape& shape,
                        void** args, std::span<const Ticket> after, End end);
  template <typename Function>
  Result<Ticket> submitKernelWork(Function&& work);
  // The kernel in the queue's context; a constant of a kernel, after what that queue holds.
  Result<LoadedKernel*> loadedIn(const KernelQueue& queue, LoadedKernel& kernel);
  Status setConstant(const KernelQueue& queue, LoadedKernel& loaded, const adsmConstant_t& constant,
                     const void* data, std::size_t bytes);
  // `devices`: of Home::kDevice, the driver's numbers; pages of several lie there in turn.
  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment, Placement placement,
                                 Home home, std::span<const int> devices);
  Status zero(std::uintptr_t address, std::size_t bytes, std::size_t pieceBytes,
              const Place& place);
  CopyLanes& lanesOf(std::size_t device) {
    return device == 0 ? ownLanes_ : devices_.device(device).lanes;
  }
  Status openLanes(std::size_t device);
  // Notes which devices copy an allocation's pages, where that is not the accelerator's own alone.
  // Under the memory's lock.
  void noteStripes(std::uintptr_t address, std::size_t bytes, std::uintptr_t given);
  // The same after pages of an allocation of `bytes` bytes have moved; passes `status` on.
  Status moved(std::uintptr_t address, std::size_t bytes, const Status& status);
  // Copies bytes of a striped allocation by the lanes of the devices that have them, after `after`;
  // `joined`, the queue of the caller's ticket, which is being submitted to, comes after them.
  // `copy(calls, offset, bytes, stream)` submits one. (Inlined, it would take from the stack on
  // which other objects' faults happen.)
  template <typename Copy>
  [[gnu::noinline]] Status copyStriped(const Queue& joined, Queue CopyLanes::*side,
                                       DeviceAddress address, std::size_t bytes, Ticket after,
                                       Copy copy);

  const std::unique_ptr<DeviceCalls> calls_;
  const std::shared_ptr<AddressWindows> windows_;  // NULL: its addresses are its own
  OwnWork ownWork_;
  std::mutex openMutex_;
  Stream sideStream_ = nullptr;  // guarded by openMutex_; NULL: nobody has asked for it
  std::atomic<bool> open_{false};
  std::atomic<std::uint64_t> contexts_{0};  // left so far
  EndWords endWords_;  // of kernels and marks; of a copy alone an event tells as soon
  Queue in_;
  Queue out_;
  Queue kernel_;
  Queue foreign_;
  const std::array<Queue*, kOwnQueues> queues_;  // by QueueId
  OtherContexts others_;
  OtherDevices devices_;
  CopyLanes ownLanes_;
  Stripes stripes_;
  SetConstants constants_;  // where there are other devices
  // Newest copyIn that the kernel stream waits for; under the kernel queue's lock.
  std::uint64_t kernelWaitedFor_ = 0;

  struct Allocation {
    std::uintptr_t given;  // what CUDA gave
    bool hasMargin;
    bool mapped;  // of mapped_
    Placement placement = Placement::kAnywhere;
  };
  // Holds the memory's lock, and tells when it has let go of it which pages other processes must
  // not be given any more.
  class RetiringLock {
   public:
    explicit RetiringLock(StreamAccelerator& accelerator)
        : accelerator_(accelerator), lock_(accelerator.memoryMutex_) {}
    ~RetiringLock();
    RetiringLock(const RetiringLock&) = delete;
    RetiringLock& operator=(const RetiringLock&) = delete;

   private:
    StreamAccelerator& accelerator_;
    std::unique_lock<std::mutex> lock_;
  };
  // Memory for an allocation of `bytes` bytes, `total` with all that goes around it.
  Result<Allocation> take(std::size_t total, std::size_t alignment,
                          const MappedMemory::Layout& layout);
  Status giveBack(const Allocation& allocation);
  using Allocations = std::map<std::uintptr_t, Allocation>;  // by the address handed out
  // The allocation of `bytes` bytes at the address; adsmErrorInvalidPointer: there is none. Under
  // the memory's lock.
  Result<Allocations::iterator> ownAllocation(DeviceAddress address, std::size_t bytes);
  Status free(DeviceAddress address, std::size_t bytes, bool withItsAddress);
  // An address is on both sides for everybody; none: the reason.
  Status checkSameAddress() const;
  // In the windows.
  Result<DeviceAddress> allocateShared(std::size_t bytes, std::size_t alignment,
                                       Placement placement);

  std::atomic<bool> several_{false};             // devices, in whose memory allocations may lie
  std::atomic<bool> separate_{false};            // devices, which do not reach each other's memory
  std::atomic<Home> gatheredIn_{Home::kDevice};  // written under memoryMutex_
  std::atomic<int> apart_{-1};  // the device of Home::kApart, while that is where memory is made
  mutable std::mutex memoryMutex_;  // guards the six below
  MappedMemory mapped_;
  ImportedFiles imports_;
  ImportedRanges importedRanges_;
  Stream zeroStream_ = nullptr;
  Event zeroEvent_ = nullptr;
  Allocations allocations_;
  std::size_t margins_ = 0;  // allocations that have one
  std::mutex stageMutex_;    // guards the two below
  std::array<Stage, 4> stages_;
  std::size_t nextStage_ = 0;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_STREAM_ACCELERATOR_H_
