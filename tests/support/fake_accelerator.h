// SPDX-License-Identifier: Apache-2.0
//
// A fake accelerator in this process that records its operations, so that coherence can be tested
// without a device.
#ifndef GMAC_TESTS_SUPPORT_FAKE_ACCELERATOR_H_
#define GMAC_TESTS_SUPPORT_FAKE_ACCELERATOR_H_

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/commands.h"
#include "gmac/accel/exported_memory.h"
#include "gmac/accel/movable_memory.h"
#include "gmac/accel/native_streams.h"
#include "gmac/coherence/kernel.h"

namespace gmac::testing {

// One call of the seam, as it was made. What a kind has no use for is 0.
struct Op {
  enum class Kind {
    kAllocate,
    kFree,
    kPin,
    kUnpin,
    kCopyIn,
    kCopyOut,
    kCopyWithin,
    kFill,
    kLaunch,
    kWait,
    kSetConstant,
    kLoad,
    kFence,
    kMark,
    kMove,  // `from`: the accel::Home, or Op::toDevice()
  };
  Kind kind;
  std::uintptr_t device = 0;  // copies, allocations
  std::size_t bytes = 0;
  std::string kernel;       // launches
  std::uintptr_t from = 0;  // copies within
  // Of a move, to one of several devices.
  static constexpr std::uintptr_t toDevice(int number) {
    return 100 + static_cast<std::uintptr_t>(number);
  }
  friend bool operator==(const Op&, const Op&) = default;
};
std::ostream& operator<<(std::ostream& out, const Op& op);

struct FakeOptions {
  enum class Run {
    kDeferred,  // queued work runs only when the seam forces it: what lacks a wait meets stale
                // bytes
    kEager,     // at once
    kRandom,    // some of it, now and then, in any order that the seam allows
  };
  Run run = Run::kDeferred;
  std::uint64_t seed = 1;   // of kRandom
  bool movedPages = false;  // copiesReachMovedPages()
  bool loseCopies =
      false;  // copies out change nothing, as where a driver reads by an address that is gone
  std::size_t memoryBytes = std::size_t{64} << 30;
  bool movableMemory = false;                    // as in movable_memory.h
  std::vector<std::size_t> peerBytes;            // movable: the memory of devices 1, 2, ...
  std::size_t cpuBytes = std::size_t{64} << 30;  // for what lies in the CPU's memory
  bool zeroCopy = false;                         // movable: to the CPU's own pages, too
  accel::Devices* devices = nullptr;  // of which it says that it consists; the test's own
};

// An accelerator whose memory is a buffer of this process and whose queues are lists of
// functions. What the seam forbids its caller (a copy to memory that is not pinned, freeing what
// queued work names, a copy beyond an allocation) is recorded in complaints(), which every test
// expects to be empty. Thread-safe; owned by the test. The fault handler calls it, as it does every
// accelerator; it allocates there, which tests can afford because they fault outside malloc.
class FakeAccelerator final : public accel::Accelerator,
                              public accel::NativeStreams,
                              public accel::MovableMemory,
                              public accel::ExportedMemory {
 public:
  // A kernel's body: called once per launch with the copied arguments.
  using Body = std::function<void(const accel::LaunchShape& shape, void** args)>;

  explicit FakeAccelerator(const FakeOptions& options = {});
  ~FakeAccelerator() override;

  // A kernel of this accelerator alone. Owned by the fake; `paramCount` pointers are its
  // parameters.
  adsmKernel_t kernel(const std::string& name, std::size_t paramCount, Body body);
  // Where the accelerator keeps the byte that `device` names: how a kernel's body follows its
  // pointers.
  template <typename T>
  T* at(T* device) {
    return static_cast<T*>(translate(reinterpret_cast<std::uintptr_t>(device), sizeof(T)));
  }
  // An argument that is a device pointer, followed.
  template <typename T>
  T* argument(void** args, std::size_t index) {
    return at(*static_cast<T**>(args[index]));
  }

  // Everything recorded since the last clearLog(), in the order of the calls.
  std::vector<Op> log() const;
  std::vector<Op> log(std::set<Op::Kind> kinds) const;
  std::vector<Op> copies() const { return log({Op::Kind::kCopyIn, Op::Kind::kCopyOut}); }
  void clearLog();

  // The n-th next call of a kind (1: the very next) fails with `code`; 0 disarms. Stays armed until
  // it happens.
  void failNext(Op::Kind kind, int n, adsmError_t code);
  bool armed() const;
  // The n-th next kernel that runs fails while it runs: the wait for it returns adsmErrorKernel,
  // once.
  void crashKernel(int n);
  // Called at the start of every pin, copyIn and copyOut, by the thread that asks for it, with none
  // of the fake's locks held.
  void onPin(std::function<void()> hook) { pinHook_ = std::move(hook); }
  void onMove(std::function<void()> hook) { moveHook_ = std::move(hook); }
  void onMark(std::function<void()> hook) { markHook_ = std::move(hook); }
  void onCopyIn(std::function<void()> hook) { copyInHook_ = std::move(hook); }
  void onCopyOut(std::function<void()> hook) { copyOutHook_ = std::move(hook); }
  // Called at the end of every wait.
  void onWaited(std::function<void()> hook) { waitedHook_ = std::move(hook); }
  // Whether the calling thread holds a lock that the fault handler takes: then it must make no call
  // that waits or blocks.
  void setLockCheck(bool (*isHeld)() noexcept) { lockIsHeld_ = isHeld; }
  // From now on, no wait for work of a kind (copies in, copies out, launches; kMark: the streams)
  // that has not run returns, until resume(). What other work forces still runs.
  void stall(Op::Kind kind);
  void resume();
  // Threads that are in such a wait.
  std::size_t stalled() const;
  // No same address can be had from now on.
  void refuseSameAddress(bool refuse) { refuseSameAddress_ = refuse; }

  // The device that the calling threads work with.
  void setDeviceHere(int device) { here_ = device; }
  // From now on it says that it is lost, and takes nothing.
  void loseDevice(int device) { lost_ = device; }
  // Bytes of the CPU's pages that moves have made so far, and that wait for the next move.
  std::size_t cpuPagesMade() const;
  std::size_t cpuPagesKept() const;
  // On which device an allocation lies; -1: on none.
  int deviceOf(const void* object) const;

  // Runs all queued work; that of one stream, and what it comes after.
  void runAll();
  void runStream(accel::NativeStream stream);
  // From now on queued work runs, all of it, once it has been asked for so many times in a row
  // whether the same piece of it has finished; 0: no longer.
  void runWhenAsked(std::uint64_t times) { mostAsked_ = times; }
  // Queued work that has not run.
  std::size_t pending() const;
  std::size_t liveAllocations() const;
  std::size_t livePins() const;
  std::vector<std::string> complaints() const;

  // accel::ExportedMemory: of its own memory it tells the number alone.
  Result<accel::SharedAllocation> sharedAllocation(accel::DeviceAddress address) override;
  Status releaseImport(accel::DeviceAddress address) override;

  // accel::Accelerator
  std::string_view name() const noexcept override { return "fake"; }
  std::string_view deviceName() const noexcept override { return "a recording fake"; }
  bool copiesReachMovedPages() const noexcept override { return options_.movedPages; }
  Result<accel::DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                        accel::Placement placement) override;
  Status free(accel::DeviceAddress address, std::size_t bytes) override;
  Status pin(const accel::HostMemory& memory) override;
  Status unpin(const accel::HostMemory& memory) override;
  // (What only engines use is not there.)
  Result<void*> allocatePinned(std::size_t bytes) override;
  void freePinned(void*, std::size_t) noexcept override {}
  std::unique_ptr<accel::LoadedKernels> loadBuiltIn(const accel::BuiltInKernels&) override {
    return nullptr;
  }
  Result<accel::Ticket> submit(accel::Work& work) override;
  Result<accel::Ticket> copyIn(accel::DeviceAddress to, const void* from, std::size_t bytes,
                               accel::Ticket after) override;
  Result<accel::Ticket> copyOut(void* to, accel::DeviceAddress from, std::size_t bytes,
                                accel::Ticket after) override;
  Result<accel::Ticket> copyWithin(accel::DeviceAddress to, accel::DeviceAddress from,
                                   std::size_t bytes) override;
  Result<accel::Ticket> fill(accel::DeviceAddress to, std::byte value, std::size_t bytes) override;
  bool done(accel::Ticket ticket) noexcept override;
  bool succeeded(accel::Ticket ticket) noexcept override;
  Status wait(accel::Ticket ticket) override;
  Result<std::unique_ptr<accel::LoadedKernel>> load(const adsmKernelDesc_t& desc) override;
  Result<accel::Ticket> launch(accel::LoadedKernel& kernel, const accel::LaunchShape& shape,
                               void** args) override;
  Status setConstant(accel::LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes) override;

  // accel::MovableMemory
  Result<accel::DeviceAddress> allocateOnCpu(std::size_t bytes, std::size_t alignment,
                                             accel::Placement placement) override {
    return allocate(bytes, alignment, placement, accel::Home::kCpu, 0);
  }
  Status move(accel::DeviceAddress address, std::size_t bytes, accel::Home home) override;
  Status movePage(accel::DeviceAddress address, std::size_t bytes, accel::Home home,
                  int device) override;
  std::size_t marginOf(accel::DeviceAddress address, std::size_t bytes) const override;
  void keepPages(bool keep) noexcept override;
  Result<accel::MemoryRoom> memoryRoom() override { return roomOn(0); }
  bool severalDevices() const noexcept override { return !options_.peerBytes.empty(); }
  int deviceHere() const noexcept override { return here_; }
  std::vector<int> devicesWithMemory() const override;
  Result<accel::MemoryRoom> roomOn(int device) override;
  Result<accel::DeviceAddress> allocateOn(std::size_t bytes, std::size_t alignment,
                                          accel::Placement placement, int device) override {
    return allocate(bytes, alignment, placement, accel::Home::kDevice, device);
  }
  std::size_t bytesOn(accel::DeviceAddress address, std::size_t bytes, int device) const override;
  bool liesOn(accel::DeviceAddress address, std::size_t bytes, int device) const override {
    return bytesOn(address, bytes, device) == bytes;
  }
  // (All of it, whatever part is asked for.)
  Status moveTo(accel::DeviceAddress address, std::size_t bytes, int device) override {
    return moveAllTo(address, bytes, device);
  }
  Status moveAllTo(accel::DeviceAddress address, std::size_t bytes, int device) override;

  // accel::NativeStreams
  Status check(accel::NativeStream) const override { return {}; }
  bool perThread(accel::NativeStream) const noexcept override { return false; }
  bool capturing(accel::NativeStream) const noexcept override { return capturing_; }
  void setCapturing(bool capturing) { capturing_ = capturing; }
  Result<Fence> fence(accel::NativeStream stream, const Fence& earlier) override;
  Fence newest() const noexcept override;
  Status follow(accel::NativeStream stream, accel::Ticket ticket) override;
  Result<accel::Ticket> mark(accel::NativeStream stream, accel::Ticket earlier) override;
  Status waitForAll() override;
  Status submit(accel::NativeStream stream, accel::Work& work) override;
  Status launch(accel::NativeStream stream, accel::LoadedKernels& kernels,
                const accel::Launch& launch) override;
  std::uintptr_t nativeContext() const noexcept override { return 0; }
  int primaryDevice() const noexcept override { return -1; }
  void contextEnds() noexcept override {}
  void leaveContext() noexcept override {}

  // Work of the application's own on a stream, as a CUDA program would submit it: between fence()
  // and mark().
  void submit(accel::NativeStream stream, std::function<void()> work);
  // The number of the newest work that the stream was given, orders after other work included.
  std::uint64_t newestOn(accel::NativeStream stream);

 private:
  class CopiesOut;

  // In, out, kernels; streams follow.
  static constexpr std::size_t kQueues = 3 + 8;
  enum Queue : std::size_t { kIn, kOut, kKernels, kFirstStream };

  struct Work {
    std::uint64_t sequence;
    accel::Ticket after;        // of any queue
    std::uint64_t afterIns;     // copies in with a sequence up to this one come first
    std::function<bool()> run;  // false: it failed
    std::uintptr_t device = 0;  // what it names, for complaints
    const std::byte* host = nullptr;
    std::size_t bytes = 0;
  };
  struct Allocation {
    std::size_t bytes;
    std::byte* backing;
    bool sameAddress;
    accel::Home home;
    int device;  // of kDevice
    std::uint64_t number;
    std::map<std::size_t, std::size_t> pages = {};  // those that have moved alone: offset, bytes
  };
  struct Pinned {
    std::size_t bytes;
    std::byte* view;  // how the fake reaches the bytes, wherever their pages are mapped now
    bool moved;       // the view is the fake's own
  };
  class Loaded;

  Result<accel::DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                        accel::Placement placement, accel::Home home, int device);
  Status move(accel::DeviceAddress address, std::size_t bytes, accel::Home home, int device);
  Result<accel::Ticket> copyOutOn(Queue queue, void* to, accel::DeviceAddress from,
                                  std::size_t bytes, accel::Ticket after, std::uint64_t afterIns);
  std::size_t& usedOf(accel::Home home, int device) {
    return home == accel::Home::kDevice ? used_.at(static_cast<std::size_t>(device))
           : home == accel::Home::kCpu  ? usedOnCpu_
                                        : shared_;
  }
  std::size_t memoryOf(int device) const {
    return device == 0 ? options_.memoryBytes
                       : options_.peerBytes.at(static_cast<std::size_t>(device) - 1);
  }
  // Of an allocation at its own address: whole pages of the device's, where the CPU's may take
  // their place.
  std::size_t addressBytes(std::size_t bytes) const;
  // A complaint where there is nothing to be copied.
  bool pageIsAlone(std::uintptr_t device, std::size_t bytes, bool all) const;
  void complainOfKernels(const char* what, std::uintptr_t device, std::size_t bytes);
  void complainOfZeroCopy(const char* what, std::uintptr_t device);
  // Whether memory has so much left.
  Status roomFor(std::size_t bytes, accel::Home home, int device);
  // A complaint for each piece of queued work that names the range.
  void complainOfUsers(const char* what, std::uintptr_t device, std::size_t bytes);
  void* translate(std::uintptr_t device, std::size_t bytes);
  std::byte* hostView(const void* address, std::size_t bytes);
  std::byte* deviceView(accel::DeviceAddress address, std::size_t bytes);
  accel::Ticket push(Queue queue, Work work);
  static Queue queueOf(accel::Ticket ticket);
  static std::uint64_t sequenceOf(accel::Ticket ticket);
  void runUpTo(Queue queue, std::uint64_t sequence);
  void runAllHeld();
  void runFront(Queue queue);
  void makeProgress();
  bool fails(Op::Kind kind, const char* what, Status* status);
  void record(Op op);
  void complain(std::string text);
  // Whether a call that may take long can be made; complains where it cannot.
  bool mayBlock(const char* call);

  const FakeOptions options_;
  mutable std::recursive_mutex lock_;
  std::mt19937_64 random_;
  std::array<std::deque<Work>, kQueues> queues_;
  std::array<std::uint64_t, kQueues> finished_{};   // newest sequence that ran
  std::array<std::uint64_t, kQueues> submitted_{};  // newest sequence that was queued
  std::uint64_t sequence_ = 0;
  bool kernelFailed_ = false;
  std::uint64_t mostAsked_ = 0;
  std::uint64_t asked_ = 0;     // times in a row
  std::uint64_t askedFor_ = 0;  // this ticket
  int crashCountdown_ = 0;
  std::atomic<bool> capturing_{false};  // every stream
  std::map<std::uintptr_t, Allocation> allocations_;
  std::map<const std::byte*, Pinned> pins_;
  std::uint64_t numbers_ = 0;
  std::array<std::size_t, 8> used_{};  // by device
  std::atomic<int> here_{0};
  std::atomic<int> lost_{-1};
  std::size_t usedOnCpu_ = 0;
  bool keepsPages_ = false;
  std::vector<std::size_t> keptPages_;  // the CPU's, left by what moved: bytes
  std::size_t cpuPagesMade_ = 0;
  std::size_t shared_ = 0;  // with the CPU
  bool refuseSameAddress_ = false;
  bool (*lockIsHeld_)() noexcept = nullptr;
  std::array<bool, kQueues> stalledQueues_{};
  std::size_t stalledThreads_ = 0;
  std::condition_variable_any resumed_;
  std::function<void()> pinHook_;
  std::function<void()> waitedHook_;
  std::function<void()> moveHook_;
  std::function<void()> markHook_;
  std::function<void()> copyInHook_;
  std::function<void()> copyOutHook_;
  std::vector<Op> log_;
  std::vector<std::string> complaints_;
  Op::Kind failKind_{};
  int failCountdown_ = 0;
  adsmError_t failCode_{};
  std::map<std::string, Body> bodies_;
  std::vector<std::unique_ptr<adsmKernel_s>> kernels_;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_SUPPORT_FAKE_ACCELERATOR_H_
