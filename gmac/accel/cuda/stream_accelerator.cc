// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/stream_accelerator.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmac/accel/argument_copy.h"

namespace gmac::accel::cuda {

namespace {

// A kernel of a CUDA layer with its description, which the accelerator needs to copy arguments, and
// to load it again in another context. Thread-safe.
class DescribedKernel final : public LoadedKernel {
 public:
  DescribedKernel(const adsmKernelDesc_t& desc, std::unique_ptr<LoadedKernel> kernel,
                  std::uint64_t context)
      : desc_(desc), kernel_(std::move(kernel)), context_(context) {}
  const adsmKernelDesc_t& desc() const { return desc_; }
  // Valid until the context's end. `loaded(kernel)` follows where it was not loaded there before.
  template <typename Loaded>
  Result<LoadedKernel*> in(std::uint64_t context, DeviceCalls& calls, Loaded loaded) {
    const std::lock_guard lock(mutex_);
    if (kernel_ == nullptr || context_ != context) {
      const DeviceScope scope(calls);
      Result<std::unique_ptr<LoadedKernel>> again = calls.load(desc_);
      if (!again.ok()) return again.status();
      GMAC_TRY(loaded(**again));
      kernel_ = std::move(*again);
      context_ = context;
    }
    return kernel_.get();
  }

 private:
  const adsmKernelDesc_t& desc_;
  std::mutex mutex_;                      // guards the two below
  std::unique_ptr<LoadedKernel> kernel_;  // NULL: loaded nowhere
  std::uint64_t context_;
};

}  // namespace

StreamAccelerator::StreamAccelerator(std::unique_ptr<DeviceCalls> calls, const Driver& driver,
                                     std::shared_ptr<AddressWindows> windows)
    : Accelerator(windows != nullptr
                      ? Capabilities{.streams = this, .shared = this}
                      : Capabilities{.streams = this,
                                     .movable = this,
                                     .exported = this,
                                     .devices = OtherDevices::any(*calls) ? this : nullptr}),
      calls_(std::move(calls)),
      windows_(std::move(windows)),
      ownWork_(driver, *calls_),
      in_(*calls_, QueueId::kIn, /*ordered=*/true),
      out_(*calls_, QueueId::kOut, /*ordered=*/true),
      kernel_(*calls_, QueueId::kKernel, /*ordered=*/true, &endWords_),
      foreign_(*calls_, QueueId::kForeign, /*ordered=*/false, &endWords_),
      queues_{&in_, &out_, &kernel_, &foreign_},
      others_(*calls_),
      devices_(*calls_),
      ownLanes_(*calls_),
      mapped_(driver, *calls_),
      imports_(driver, *calls_) {}

StreamAccelerator::~StreamAccelerator() {
  if (!calls_->reopens() || calls_->nativeContext() != 0) close();
}

void StreamAccelerator::close() noexcept {
  others_.removeAll();
  devices_.closeAll();
  const DeviceScope scope(*calls_);
  const bool lost = calls_->health().lost();
  for (Stage& stage : stages_) {
    if (stage.memory == nullptr) continue;
    static_cast<void>(wait(stage.reader));
    static_cast<void>(calls_->releaseHost(stage.memory));
    stage = {};
  }
  Event const event = std::exchange(zeroEvent_, nullptr);
  if (event != nullptr && !lost) static_cast<void>(calls_->destroyEvent(event));
  for (Stream* const own : {&zeroStream_, &sideStream_}) {
    Stream const stream = std::exchange(*own, nullptr);
    if (stream != nullptr && !lost) static_cast<void>(calls_->destroyStream(stream));
  }
  ownLanes_.close();
  const bool told = std::all_of(queues_.begin(), queues_.end(),
                                [](const Queue* queue) { return queue->allTold(); });
  for (Queue* queue : queues_) queue->close();
  endWords_.close(*calls_, told);
}

void StreamAccelerator::contextEnds() noexcept {
  if (!calls_->reopens()) {
    calls_->health().end(
        "the application has reset its device (cudaDeviceReset); the cudart accelerator lasts "
        "until "
        "then only");
  }
}

void StreamAccelerator::leaveContext() noexcept {
  if (!calls_->reopens()) return;
  const std::lock_guard lock(openMutex_);
  if (!open_.exchange(false)) return;
  close();
  {
    const std::lock_guard memory(memoryMutex_);
    allocations_.clear();
    stripes_.clear();
    margins_ = 0;
  }
  calls_->close();
  calls_->health().recover();
  ++contexts_;
}

Status StreamAccelerator::ready() {
  if (calls_->health().lost()) return calls_->health().lostStatus();
  if (open_.load(std::memory_order_acquire)) [[likely]]
    return Status();
  return reopen();
}

Status StreamAccelerator::reopen() {
  const std::lock_guard lock(openMutex_);
  if (open_.load()) return Status();
  GMAC_TRY(calls_->open());
  if (const Status opened = open(); !opened.ok()) {
    char text[kErrorTextBytes];
    std::snprintf(text, sizeof text, "%s", lastErrorText());
    close();
    calls_->close();
    recordError(opened.code(), text);
    return opened;
  }
  return Status();
}

Result<std::unique_ptr<Accelerator>> StreamAccelerator::make(
    std::unique_ptr<DeviceCalls> calls, const Driver& driver,
    std::shared_ptr<AddressWindows> windows) {
  std::unique_ptr<StreamAccelerator> accelerator(
      new StreamAccelerator(std::move(calls), driver, std::move(windows)));
  GMAC_TRY(accelerator->open());
  return std::unique_ptr<Accelerator>(std::move(accelerator));
}

Status StreamAccelerator::open() {
  const DeviceScope scope(*calls_);
  for (Queue* queue : queues_) GMAC_TRY(queue->open());
  endWords_.open(*calls_);
  Result<Stream> stream = calls_->createStream();
  if (!stream.ok()) return stream.status();
  zeroStream_ = *stream;
  Result<Event> event = calls_->createEvent();
  if (!event.ok()) return event.status();
  zeroEvent_ = *event;
  {
    const std::lock_guard lock(memoryMutex_);
    mapped_.open();
    gatheredIn_ = Home::kDevice;
    const int visible = calls_->visibleDevices();
    several_ = windows_ == nullptr && mapped_.offers(Home::kDevice) && visible > 1;
    bool separate = false;
    for (int device = 0; several_.load() && device < visible; ++device) {
      separate |= !calls_->reachedFrom(device);
    }
    separate_ = separate;
    if (windows_ != nullptr && !mapped_.offers(Home::kDevice)) {
      return gmac::fail(adsmErrorNotSupported,
                        "{} cannot map memory at addresses that other accelerators have, too",
                        deviceName());
    }
  }
  devices_.homeMoved();
  open_.store(true, std::memory_order_release);
  return Status();
}

Status StreamAccelerator::usable() {
  return calls_->health().lost() ? calls_->health().lostStatus() : Status();
}

Status StreamAccelerator::pin(const HostMemory& memory) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  return calls_->registerHost(memory.address, memory.bytes, devices_.all() != 0);
}

Status StreamAccelerator::unpin(const HostMemory& memory) {
  if (!open_.load() || calls_->health().ended()) return Status();
  if (calls_->health().lost()) return calls_->health().lostStatus();
  const DeviceScope scope(*calls_);
  const Status unpinned = calls_->unregisterHost(memory.address);
  return calls_->health().ended() ? Status() : unpinned;
}

Result<void*> StreamAccelerator::allocatePinned(std::size_t bytes) {
  GMAC_TRY(ready());
  return ownWork_.allocatePinned(bytes);
}

void StreamAccelerator::freePinned(void* address, std::size_t) noexcept {
  if (open_.load() && !calls_->health().lost()) ownWork_.freePinned(address);
}

Status StreamAccelerator::order(DeviceCalls& calls, Stream stream, Ticket ticket) {
  if (ticket.value == 0) return Status();
  Queue& queue = queueOf(ticket);
  if (queue.stream() == stream && stream != nullptr) return Status();
  if (queue.knownComplete(sequenceOf(ticket))) return Status();
  const Result<Event> event = queue.recordedEvent(sequenceOf(ticket));
  return event.ok() ? calls.streamWait(stream, *event) : event.status();
}

Result<Ticket> StreamAccelerator::copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                                         Ticket after) {
  if (calls_->health().lost()) return calls_->health().lostStatus();
  const DeviceScope scope(*calls_);
  const auto at = static_cast<std::uintptr_t>(to);
  return in_.submit(in_.stream(), [&]() -> Status {
    if (stripes_.hold(at)) [[unlikely]] {
      return copyStriped(
          in_, &CopyLanes::in, to, bytes, after,
          [&](DeviceCalls& calls, std::size_t offset, std::size_t length, Stream stream) {
            return calls.copyIn(at + offset, static_cast<const std::byte*>(from) + offset, length,
                                stream);
          });
    }
    GMAC_TRY(order(*calls_, in_.stream(), after));
    return calls_->copyIn(at, from, bytes, in_.stream());
  });
}

Result<Ticket> StreamAccelerator::copyOut(void* to, DeviceAddress from, std::size_t bytes,
                                          Ticket after) {
  if (calls_->health().lost()) return calls_->health().lostStatus();
  const DeviceScope scope(*calls_);
  const auto at = static_cast<std::uintptr_t>(from);
  return out_.submit(out_.stream(), [&]() -> Status {
    if (stripes_.hold(at)) [[unlikely]] {
      return copyStriped(
          out_, &CopyLanes::out, from, bytes, after,
          [&](DeviceCalls& calls, std::size_t offset, std::size_t length, Stream stream) {
            return calls.copyOut(static_cast<std::byte*>(to) + offset, at + offset, length, stream);
          });
    }
    GMAC_TRY(order(*calls_, out_.stream(), after));
    return calls_->copyOut(to, at, bytes, out_.stream());
  });
}

template <typename Copy>
Status StreamAccelerator::copyStriped(const Queue& joined, Queue CopyLanes::*side,
                                      DeviceAddress address, std::size_t bytes, Ticket after,
                                      Copy copy) {
  const auto at = static_cast<std::uintptr_t>(address);
  std::array<std::pair<CopyLanes*, Ticket>, kMaxDevices> used{};
  std::size_t lanesUsed = 0;
  Status status;
  for (std::size_t device = 0; status.ok() && device <= devices_.all(); ++device) {
    if (!stripes_.touches(at, bytes, device)) continue;
    CopyLanes& own = lanesOf(device);
    if (device > devices_.count() && !own.isOpen()) {
      status = gmac::fail(adsmErrorAcceleratorLost,
                          "device {}, which alone reaches the memory at {:#x}, has no context",
                          numberOf(device), at);
      break;
    }
    CopyLanes& lanes = own.isOpen() ? own : ownLanes_;
    Queue& lane = lanes.*side;
    const DeviceScope scope(lanes.calls());
    const Result<Ticket> submitted = lane.submit(lane.stream(), [&]() -> Status {
      GMAC_TRY(order(lanes.calls(), lane.stream(), after));
      return stripes_.forEachRun(at, bytes, [&](std::size_t offset, const Stripes::Run& run) {
        return run.device == device ? copy(lanes.calls(), offset, run.bytes, lane.stream())
                                    : Status();
      });
    });
    status = submitted.status();
    if (status.ok()) used[lanesUsed++] = {&lanes, *submitted};
  }
  for (std::size_t i = 0; status.ok() && i < lanesUsed; ++i) {
    const auto& [lanes, ticket] = used[i];
    status = calls_->streamWait(joined.stream(), (lanes->*side).eventOf(sequenceOf(ticket)));
  }
  if (!status.ok()) {
    // No ticket stands for what has been submitted, so it ends here.
    const std::string words = lastErrorText();
    for (std::size_t i = 0; i < lanesUsed; ++i) {
      const auto& [lanes, ticket] = used[i];
      const DeviceScope scope(lanes->calls());
      for (Backoff backoff; !lanes->calls().health().lost() &&
                            (lanes->*side).query(sequenceOf(ticket)) == kCudaNotReady;) {
        backoff.step();
      }
    }
    recordError(status.code(), words);
  }
  return status;
}

Result<StreamAccelerator::KernelQueue> StreamAccelerator::kernelQueue(std::size_t device) {
  GMAC_TRY(ready());
  if (device == 0) return KernelQueue{*calls_, kernel_, kernelWaitedFor_, contexts_.load()};
  OtherDevice& other = devices_.device(device);
  if (other.calls->health().lost()) return other.calls->health().lostStatus();
  GMAC_TRY(devices_.open(device, [this](int number) { return allow(number); }));
  return KernelQueue{*other.calls, other.queue, other.waitedFor, other.contexts.load()};
}

template <typename Function>
Result<Ticket> StreamAccelerator::submitTo(const KernelQueue& to, Function&& work, End end) {
  const DeviceScope scope(to.calls);
  const auto inOrder = [&]() -> Status {
    const Ticket newestIn = in_.newest();
    if (sequenceOf(newestIn) > to.waitedFor) {
      GMAC_TRY(order(to.calls, to.queue.stream(), newestIn));
      to.waitedFor = sequenceOf(newestIn);
    }
    return work();
  };
  return end == End::kAwaited ? to.queue.submitAwaited(inOrder)
                              : to.queue.submit(to.queue.stream(), inOrder);
}

template <typename Function>
Result<Ticket> StreamAccelerator::submitKernelWork(Function&& work) {
  const Result<KernelQueue> own = kernelQueue(0);
  if (!own.ok()) return own.status();
  return submitTo(*own, std::forward<Function>(work));
}

Result<Ticket> StreamAccelerator::copyWithin(DeviceAddress to, DeviceAddress from,
                                             std::size_t bytes) {
  const auto target = static_cast<std::uintptr_t>(to);
  const auto source = static_cast<std::uintptr_t>(from);
  return submitKernelWork([&] {
    return stripes_.forEachRun(target, bytes, [&](std::size_t begin, const Stripes::Run& all) {
      return stripes_.forEachRun(
          source + begin, all.bytes, [&](std::size_t offset, const Stripes::Run& run) {
            return calls_->copyWithin(target + begin + offset, source + begin + offset, run.bytes,
                                      kernel_.stream());
          });
    });
  });
}

Result<Ticket> StreamAccelerator::fill(DeviceAddress to, std::byte value, std::size_t bytes) {
  const auto target = static_cast<std::uintptr_t>(to);
  return submitKernelWork([&] {
    return stripes_.forEachRun(target, bytes, [&](std::size_t offset, const Stripes::Run& run) {
      return calls_->fill(target + offset, std::to_integer<unsigned char>(value), run.bytes,
                          kernel_.stream());
    });
  });
}

bool StreamAccelerator::done(Ticket ticket) noexcept {
  if (ticket.value == 0) return true;
  Queue& queue = queueOf(ticket);
  DeviceCalls& calls = callsOf(ticket);
  if (calls.health().lost()) return true;
  if (const std::optional<int> seen = queue.look(sequenceOf(ticket))) {
    return *seen == kCudaSuccess;
  }
  const DeviceScope scope(calls);
  // Work that failed has finished; wait() says how.
  return queue.ask(sequenceOf(ticket)) != kCudaNotReady;
}

bool StreamAccelerator::succeeded(Ticket ticket) noexcept {
  return ticket.value == 0 ||
         (queueOf(ticket).knownComplete(sequenceOf(ticket)) && !callsOf(ticket).health().lost());
}

Status StreamAccelerator::wait(Ticket ticket) {
  if (ticket.value == 0) return Status();
  Queue& queue = queueOf(ticket);
  const std::uint64_t sequence = sequenceOf(ticket);
  if (queue.knownComplete(sequence)) return Status();
  DeviceCalls& calls = callsOf(ticket);
  const DeviceScope scope(calls);
  bool awaited = false;
  for (Backoff backoff;; backoff.step()) {
    if (calls.health().lost()) return calls.health().lostStatus();
    const int code = queue.query(sequence);
    if (code == kCudaSuccess) return Status();
    if (code != kCudaNotReady) return calls.queryFailed(code, queue.eventOf(sequence));
    if (!std::exchange(awaited, true) && queue.stream() != nullptr) {
      queue.endIsAwaited(sequence, queue.stream());
    }
  }
}

void StreamAccelerator::endIsAwaited(Ticket ticket) noexcept {
  Queue& queue = queueOf(ticket);
  if (ticket.value == 0 || queue.stream() == nullptr) return;
  const DeviceScope scope(callsOf(ticket));
  queue.endIsAwaited(sequenceOf(ticket), queue.stream());
}

void StreamAccelerator::endIsAwaited(NativeStream stream, Ticket ticket) noexcept {
  if (ticket.value == 0 || cuda::queueOf(ticket) != QueueId::kForeign) return;
  const DeviceScope scope(*calls_);
  foreign_.endIsAwaited(sequenceOf(ticket), cuda::streamOf(stream));
}

Result<std::unique_ptr<LoadedKernel>> StreamAccelerator::load(const adsmKernelDesc_t& desc) {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  Result<std::unique_ptr<LoadedKernel>> kernel = calls_->load(desc);
  if (!kernel.ok()) return kernel.status();
  return std::unique_ptr<LoadedKernel>(
      std::make_unique<DescribedKernel>(desc, std::move(*kernel), contexts_.load()));
}

// On another device when it is first launched there.
Result<std::unique_ptr<LoadedKernel>> StreamAccelerator::load(std::size_t device,
                                                              const adsmKernelDesc_t& desc) {
  if (device == 0) return load(desc);
  return std::unique_ptr<LoadedKernel>(std::make_unique<DescribedKernel>(desc, nullptr, 0));
}

Result<LoadedKernel*> StreamAccelerator::loadedIn(const KernelQueue& queue, LoadedKernel& kernel) {
  auto& described = static_cast<DescribedKernel&>(kernel);
  return described.in(queue.context, queue.calls, [&](LoadedKernel& loaded) -> Status {
    for (const auto& [name, value] : constants_.of(described.desc().cudaImage)) {
      const adsmConstant_t constant{name.c_str(), value.size(), nullptr, nullptr};
      GMAC_TRY(setConstant(queue, loaded, constant, value.data(), value.size()));
    }
    return Status();
  });
}

Result<Ticket> StreamAccelerator::launch(std::size_t device, LoadedKernel& kernel,
                                         const LaunchShape& shape, void** args,
                                         std::span<const Ticket> after, End end) {
  const adsmKernelDesc_t& desc = static_cast<DescribedKernel&>(kernel).desc();
  ArgumentCopy copied({desc.paramSizes, desc.paramCount}, args);
  const Result<KernelQueue> queue = kernelQueue(device);
  if (!queue.ok()) return queue.status();
  Result<LoadedKernel*> loaded = loadedIn(*queue, kernel);
  if (!loaded.ok()) return loaded.status();
  const auto work = [&]() -> Status {
    Stream const stream = queue->queue.stream();
    for (const Ticket ticket : after) GMAC_TRY(order(queue->calls, stream, ticket));
    return queue->calls.launch(**loaded, shape, copied.get(), stream);
  };
  return submitTo(*queue, work, end);
}

Result<Ticket> StreamAccelerator::submit(Work& work) {
  return submitKernelWork([&] { return ownWork_.run(kernel_.stream(), work); });
}

Status StreamAccelerator::setConstant(LoadedKernel& kernel, const adsmConstant_t& constant,
                                      const void* data, std::size_t bytes) {
  return setConstant(0, kernel, constant, data, bytes);
}

Status StreamAccelerator::setConstant(std::size_t device, LoadedKernel& kernel,
                                      const adsmConstant_t& constant, const void* data,
                                      std::size_t bytes) {
  // A device that runs no kernels yet gets it with its first one.
  if (device != 0 && !devices_.device(device).open.load()) return Status();
  const Result<KernelQueue> queue = kernelQueue(device);
  if (!queue.ok()) return queue.status();
  Result<LoadedKernel*> loaded = loadedIn(*queue, kernel);
  if (!loaded.ok()) return loaded.status();
  GMAC_TRY(setConstant(*queue, **loaded, constant, data, bytes));
  if (device == 0 && devices_.all() != 0) {
    constants_.note(static_cast<DescribedKernel&>(kernel).desc().cudaImage, constant.name, data,
                    bytes);
  }
  return Status();
}

Status StreamAccelerator::setConstant(const KernelQueue& queue, LoadedKernel& loaded,
                                      const adsmConstant_t& constant, const void* data,
                                      std::size_t bytes) {
  const DeviceScope scope(queue.calls);
  Result<std::uintptr_t> address = queue.calls.constantAddress(loaded, constant, bytes);
  if (!address.ok()) return address.status();
  // The fault handler never asks for this lock, so `data` may be a shared object's.
  const std::lock_guard lock(stageMutex_);
  for (std::size_t at = 0; at < bytes; at += kStageBytes) {
    const std::size_t piece = std::min(bytes - at, kStageBytes);
    Stage& stage = stages_[nextStage_];
    nextStage_ = (nextStage_ + 1) % stages_.size();
    // Made when it is first needed: each takes the driver half a millisecond.
    if (stage.memory == nullptr) {
      const DeviceScope own(*calls_);
      Result<void*> memory = calls_->allocateHost(kStageBytes);
      if (!memory.ok()) return memory.status();
      stage.memory = *memory;
    }
    GMAC_TRY(wait(stage.reader));
    std::memcpy(stage.memory, static_cast<const std::byte*>(data) + at, piece);
    Result<Ticket> reader = queue.queue.submit(queue.queue.stream(), [&] {
      return queue.calls.copyIn(*address + at, stage.memory, piece, queue.queue.stream());
    });
    if (!reader.ok()) return reader.status();
    stage.reader = *reader;
  }
  return Status();
}

Result<DeviceDescription> StreamAccelerator::describe(std::size_t device) {
  if (device != 0) return devices_.describe(device);
  GMAC_TRY(usable());
  const Result<MemoryRoom> room = memoryRoom();
  if (!room.ok()) return room.status();
  return DeviceDescription{name(), deviceName(), *room, busAddress()};
}

Status StreamAccelerator::usable(std::size_t device) {
  GMAC_TRY(usable());
  if (device == 0) return Status();
  DeviceCalls& calls = *devices_.device(device).calls;
  return calls.health().lost() ? calls.health().lostStatus() : Status();
}

std::size_t StreamAccelerator::homeOf(DeviceAddress address) noexcept {
  const std::lock_guard lock(memoryMutex_);
  const auto next = allocations_.upper_bound(static_cast<std::uintptr_t>(address));
  if (next == allocations_.begin()) return 0;
  const Allocation& allocation = std::prev(next)->second;
  // (Margins stay where they are when pages move.)
  const std::size_t offset = static_cast<std::uintptr_t>(address) - allocation.given;
  if (!allocation.mapped) return 0;
  const Place place = mapped_.placeOfRest(allocation.given, offset);
  return place.home == Home::kDevice ? devices_.findSharing(place.device) : 0;
}

Status StreamAccelerator::move(DeviceAddress address, std::size_t bytes, std::size_t device,
                               std::span<const Part>) {
  return moveTo(address, bytes, numberOf(device));
}

Status StreamAccelerator::copiesFollow(Ticket ticket) {
  if (ticket.value == 0) return Status();
  if (calls_->health().lost()) return calls_->health().lostStatus();
  for (std::size_t device = 0; stripes_.any() && device <= devices_.all(); ++device) {
    CopyLanes& lanes = lanesOf(device);
    if (!lanes.isOpen()) continue;
    const DeviceScope scope(lanes.calls());
    GMAC_TRY(order(lanes.calls(), lanes.in.stream(), ticket));
  }
  const DeviceScope scope(*calls_);
  return order(*calls_, in_.stream(), ticket);
}

Result<NativeStreams::Fence> StreamAccelerator::fence(NativeStream stream, const Fence& earlier) {
  GMAC_TRY(ready());
  const Fence fence = newest();
  const bool copies = fence.copyIn != earlier.copyIn;
  const bool kernels = fence.kernelWork != earlier.kernelWork;
  if (copies || kernels) {
    DeviceCalls& calls = callsOf(stream);
    const DeviceScope scope(calls);
    if (copies) GMAC_TRY(order(calls, cuda::streamOf(stream), fence.copyIn));
    if (kernels) GMAC_TRY(order(calls, cuda::streamOf(stream), fence.kernelWork));
  }
  return fence;
}

Status StreamAccelerator::follow(NativeStream stream, Ticket ticket) {
  GMAC_TRY(ready());
  DeviceCalls& calls = callsOf(stream);
  const DeviceScope scope(calls);
  return order(calls, cuda::streamOf(stream), ticket);
}

Result<NativeStream> StreamAccelerator::sideStream() {
  GMAC_TRY(ready());
  const DeviceScope scope(*calls_);
  const std::lock_guard lock(openMutex_);
  if (sideStream_ == nullptr) {
    const Result<Stream> made = calls_->createStream();
    if (!made.ok()) return made.status();
    sideStream_ = *made;
  }
  return NativeStream{reinterpret_cast<std::uintptr_t>(sideStream_)};
}

Result<Ticket> StreamAccelerator::mark(NativeStream stream, Ticket earlier) {
  GMAC_TRY(ready());
  Queue& ring = contextOf(stream) == 0 ? foreign_ : others_.ring(contextOf(stream));
  const DeviceScope scope(callsOf(stream));
  return ring.submit(
      cuda::streamOf(stream), [] { return Status(); }, sequenceOf(earlier));
}

bool StreamAccelerator::perThread(NativeStream stream) const noexcept {
  constexpr std::uintptr_t kPerThread = 2;  // CU_STREAM_PER_THREAD
  return reinterpret_cast<std::uintptr_t>(cuda::streamOf(stream)) == kPerThread;
}

bool StreamAccelerator::capturing(NativeStream stream) const noexcept {
  DeviceCalls& calls = callsOf(stream);
  const DeviceScope scope(calls);
  return calls.capturing(cuda::streamOf(stream));
}

Status StreamAccelerator::allow(int device) {
  if (device == calls_->deviceNumber()) return {};
  const DeviceScope scope(*calls_);
  const std::lock_guard lock(memoryMutex_);
  return allowLocked(device);
}

Status StreamAccelerator::allowLocked(int device) {
  if (device == calls_->deviceNumber()) return {};
  const bool gathers = separate_.load() && mapped_.offers(Home::kCpu);
  if (!allIsMapped() || (!gathers && !calls_->reachedFrom(device))) {
    return gmac::fail(adsmErrorNotSupported,
                      "device {} cannot reach the memory of device {}, where shared objects lie",
                      device, calls_->deviceNumber());
  }
  return mapped_.allow(device);
}

Result<NativeStream> StreamAccelerator::streamOf(std::uintptr_t context, NativeStream stream) {
  std::size_t number = others_.find(context);
  if (number == 0) [[unlikely]] {
    GMAC_TRY(ready());
    Result<std::size_t> added = others_.add(context, [this](int device) { return allow(device); });
    if (!added.ok()) return added.status();
    number = *added;
    if (number == 0) return kForeignStream;
  }
  return NativeStream{number << kStreamBits | static_cast<std::uintptr_t>(stream)};
}

}  // namespace gmac::accel::cuda
