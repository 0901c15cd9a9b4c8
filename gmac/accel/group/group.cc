// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/group/group.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "gmac/accel/commands.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/group/homes.h"
#include "gmac/accel/group/member_streams.h"
#include "gmac/accel/group/tickets.h"
#include "gmac/accel/shared_addresses.h"

namespace gmac::accel {
namespace {

constexpr std::size_t kStageBytes = std::size_t{4} << 20;

// Pinned memory through which one member's bytes leave it. Each member copies through memory of its
// own: what one has pinned another one need not reach.
class Stage {
 public:
  explicit Stage(Accelerator& owner) : owner_(&owner) {}
  Stage(Stage&& other) noexcept
      : owner_(other.owner_), memory_(std::exchange(other.memory_, nullptr)) {}
  Stage& operator=(Stage&&) = delete;
  ~Stage() { giveBack(); }
  Result<std::byte*> memory() {
    if (memory_ == nullptr) {
      auto made = owner_->allocatePinned(kStageBytes);
      if (!made.ok()) {
        return made.status();
      }
      memory_ = static_cast<std::byte*>(*made);
    }
    return memory_;
  }
  void giveBack() {
    if (memory_ != nullptr) {
      owner_->freePinned(std::exchange(memory_, nullptr), kStageBytes);
    }
  }

 private:
  Accelerator* owner_;
  std::byte* memory_ = nullptr;
};

class Group final : public Accelerator, public Devices {
 public:
  // `streams`: those of the first member, if it has any.
  Group(std::vector<std::unique_ptr<Accelerator>> members, std::unique_ptr<MemberStreams> streams)
      : Accelerator({.streams = streams.get(), .devices = this}),
        members_(std::move(members)),
        streams_(std::move(streams)) {}

  // ---- accel::Accelerator

  std::string_view name() const noexcept override { return members_[0]->name(); }
  std::string_view deviceName() const noexcept override { return members_[0]->deviceName(); }
  std::string busAddress() const override { return members_[0]->busAddress(); }
  bool copiesReachMovedPages() const noexcept override { return false; }
  bool kernelsReachPinned() const noexcept override { return members_[0]->kernelsReachPinned(); }
  DeviceTraits traits() const noexcept override { return members_[0]->traits(); }
  Status usable() override;
  Result<MemoryRoom> memoryRoom() override;
  Result<DeviceAddress> allocate(std::size_t bytes, std::size_t alignment,
                                 Placement placement) override;
  Status free(DeviceAddress address, std::size_t bytes) override;
  Status pin(const HostMemory& memory) override;
  Status unpin(const HostMemory& memory) override;
  Result<void*> allocatePinned(std::size_t bytes) override {
    return members_[0]->allocatePinned(bytes);
  }
  void freePinned(void* address, std::size_t bytes) noexcept override {
    members_[0]->freePinned(address, bytes);
  }
  Memory memoryOf(const void* address) const noexcept override {
    return members_[0]->memoryOf(address);
  }
  Result<Ticket> copyIn(DeviceAddress to, const void* from, std::size_t bytes,
                        Ticket after) override {
    return copyIn(homeOf(to), to, from, bytes, after);
  }
  Result<Ticket> copyOut(void* to, DeviceAddress from, std::size_t bytes, Ticket after) override {
    return copyOut(homeOf(from), to, from, bytes, after);
  }
  Result<Ticket> copyWithin(DeviceAddress to, DeviceAddress from, std::size_t bytes) override {
    const std::size_t device = homeOf(to);
    if (homeOf(from) != device) {
      return fail(adsmErrorNotSupported,
                  "a copy from device {} to device {} within the accelerator's memory",
                  homeOf(from), device);
    }
    return on(device, {},
              [&](Accelerator& member, Ticket) { return member.copyWithin(to, from, bytes); });
  }
  Result<Ticket> fill(DeviceAddress to, std::byte value, std::size_t bytes) override {
    return on(homeOf(to), {},
              [&](Accelerator& member, Ticket) { return member.fill(to, value, bytes); });
  }
  bool done(Ticket ticket) noexcept override {
    return ticket.value == 0 || members_[deviceOf(ticket)]->done(ofMember(ticket));
  }
  Status wait(Ticket ticket) override;
  Result<std::unique_ptr<LoadedKernel>> load(const adsmKernelDesc_t& desc) override {
    return load(0, desc);
  }
  Result<Ticket> launch(LoadedKernel& kernel, const LaunchShape& shape, void** args) override {
    return launch(0, kernel, shape, args, {});
  }
  Status setConstant(LoadedKernel& kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes) override {
    return setConstant(0, kernel, constant, data, bytes);
  }
  std::unique_ptr<LoadedKernels> loadBuiltIn(const BuiltInKernels& kernels) override {
    return members_[0]->loadBuiltIn(kernels);
  }
  Result<Ticket> submit(Work& work) override {
    return on(0, {}, [&](Accelerator& member, Ticket) { return member.submit(work); });
  }

  // ---- accel::Devices

  std::size_t count() const noexcept override { return members_.size(); }
  Result<DeviceDescription> describe(std::size_t device) override;
  Status usable(std::size_t device) override { return naming(members_[device]->usable(), device); }
  std::size_t deviceOf(Ticket ticket) const noexcept override {
    return std::min(memberOf(ticket), members_.size() - 1);
  }
  std::size_t homeOf(DeviceAddress address) noexcept override {
    const auto allocation = homes_.at(address);
    return allocation ? allocation->device : 0;
  }
  Status move(DeviceAddress address, std::size_t bytes, std::size_t device,
              std::span<const Part> parts) override {
    const std::lock_guard one(moving_);
    return relocate(address, bytes, device, parts);
  }
  Status place(DeviceAddress address, std::size_t bytes, std::size_t device) override {
    return relocate(address, bytes, device, {});
  }
  Status addCopy(DeviceAddress address, std::size_t bytes, std::size_t device,
                 std::span<const PlacedPart> parts) override;
  void dropOtherCopies(DeviceAddress address, std::size_t device) override;
  Result<Ticket> copyIn(std::size_t device, DeviceAddress to, const void* from, std::size_t bytes,
                        Ticket after) override {
    return on(device, after, [&](Accelerator& member, Ticket first) {
      return member.copyIn(to, from, bytes, first);
    });
  }
  Result<Ticket> copyOut(std::size_t device, void* to, DeviceAddress from, std::size_t bytes,
                         Ticket after) override {
    return on(device, after, [&](Accelerator& member, Ticket first) {
      return member.copyOut(to, from, bytes, first);
    });
  }
  Result<std::unique_ptr<LoadedKernel>> load(std::size_t device,
                                             const adsmKernelDesc_t& desc) override {
    auto loaded = members_[device]->load(desc);
    return loaded.ok() ? std::move(loaded) : naming(loaded.status(), device);
  }
  Result<Ticket> launch(std::size_t device, LoadedKernel& kernel, const LaunchShape& shape,
                        void** args, std::span<const Ticket> after) override {
    (void)after;  // what a call uses has been waited for when it moved here
    return on(device, {},
              [&](Accelerator& member, Ticket) { return member.launch(kernel, shape, args); });
  }
  Status setConstant(std::size_t device, LoadedKernel& kernel, const adsmConstant_t& constant,
                     const void* data, std::size_t bytes) override {
    return naming(members_[device]->setConstant(kernel, constant, data, bytes), device);
  }

  // Once, before anything else.
  Status start();

 private:
  // Submits on one member. What a queue of another member does first is waited for.
  template <typename Submit>
  Result<Ticket> on(std::size_t device, Ticket after, Submit submit) {
    if (after.value != 0 && deviceOf(after) != device) {
      GMAC_TRY(wait(after));
      after = {};
    }
    const Result<Ticket> ticket = submit(*members_[device], ofMember(after));
    return ticket.ok() ? Result<Ticket>(ofGroup(*ticket, device))
                       : Result<Ticket>(naming(ticket.status(), device));
  }
  Status naming(Status status, std::size_t device) const;
  // How many members pin such memory, the first ones.
  std::size_t pinning(const HostMemory& memory) const;
  Status relocate(DeviceAddress address, std::size_t bytes, std::size_t device,
                  std::span<const Part> parts);
  Status carry(DeviceAddress address, std::span<const Part> parts, std::size_t from,
               std::size_t to);
  void leaveOthers(DeviceAddress address, const Homes::Allocation& allocation);

  const std::vector<std::unique_ptr<Accelerator>> members_;
  const std::unique_ptr<MemberStreams> streams_;
  Homes homes_;
  std::mutex moving_;  // guards the stages
  std::vector<Stage> stages_;
};

Status Group::start() {
  for (const auto& member : members_) {
    GMAC_TRY(stages_.emplace_back(*member).memory().status());
  }
  if (streams_ != nullptr) {
    streams_->serve([this](Ticket ticket) { return wait(ticket); },
                    [this] {
                      const std::lock_guard one(moving_);
                      stages_[0].giveBack();
                    });
  }
  return {};
}

// An error of one device among several says which.
Status Group::naming(Status status, std::size_t device) const {
  if (status.ok() || members_.size() == 1) {
    return status;
  }
  const std::string text = lastErrorText();
  return fail(status.code(), "device {}: {}", device, text);
}

// The group is gone with its last device; whoever needs one that is gone is told by that.
Status Group::usable() {
  Status status;
  for (std::size_t device = 0; device < members_.size(); ++device) {
    status = members_[device]->usable();
    if (status.ok()) {
      return status;
    }
  }
  return status;
}

Result<MemoryRoom> Group::memoryRoom() {
  MemoryRoom sum;
  for (const auto& member : members_) {
    const auto room = member->memoryRoom();
    if (room.ok()) {
      sum.total += room->total;
      sum.free += room->free;
    }
  }
  return sum;
}

Result<DeviceDescription> Group::describe(std::size_t device) {
  Accelerator& member = *members_[device];
  const auto room = member.memoryRoom();
  if (!room.ok()) {
    return naming(room.status(), device);
  }
  return DeviceDescription{member.name(), member.deviceName(), *room, member.busAddress()};
}

Result<DeviceAddress> Group::allocate(std::size_t bytes, std::size_t alignment,
                                      Placement placement) {
  Result<DeviceAddress> address = DeviceAddress{};
  for (std::size_t device = 0; device < members_.size(); ++device) {
    address = members_[device]->allocate(bytes, alignment, placement);
    if (address.ok()) {
      homes_.add(*address, {bytes, placement, device});
      return address;
    }
    const adsmError_t code = address.status().code();
    if (code != adsmErrorAcceleratorMemory && code != adsmErrorAcceleratorLost) {
      break;
    }
  }
  return address;
}

Status Group::free(DeviceAddress address, std::size_t bytes) {
  const auto allocation = homes_.at(address);
  if (!allocation) {
    return fail(adsmErrorInvalidValue, "no {} bytes of the accelerator's memory start at {:#x}",
                bytes, static_cast<std::uintptr_t>(address));
  }
  // Its address may be another allocation's the moment it is free.
  homes_.remove(address);
  leaveOthers(address, *allocation);
  const Status freed = members_[allocation->device]->free(address, bytes);
  if (!freed.ok()) {
    homes_.add(address, {bytes, allocation->placement, allocation->device});
  }
  return naming(freed, allocation->device);
}

// All members copy to and from an object's pages, which a memory file has. One that is gone does
// not. Other memory is for the runtime's own work, which runs on the first.
std::size_t Group::pinning(const HostMemory& memory) const {
  return memory.fd < 0 ? 1 : members_.size();
}

Status Group::pin(const HostMemory& memory) {
  Status status;
  bool any = false;
  for (std::size_t device = 0; device < pinning(memory); ++device) {
    status = naming(members_[device]->pin(memory), device);
    if (!status.ok() && status.code() != adsmErrorAcceleratorLost) {
      const std::string text = lastErrorText();
      for (std::size_t earlier = 0; earlier < device; ++earlier) {
        (void)members_[earlier]->unpin(memory);
      }
      return fail(status.code(), "{}", text);
    }
    any |= status.ok();
  }
  return any ? Status() : status;
}

Status Group::unpin(const HostMemory& memory) {
  Status status;
  for (std::size_t device = 0; device < pinning(memory); ++device) {
    const Status unpinned = naming(members_[device]->unpin(memory), device);
    if (!unpinned.ok() && unpinned.code() != adsmErrorAcceleratorLost) {
      status = unpinned;
    }
  }
  return status;
}

Status Group::wait(Ticket ticket) {
  if (ticket.value == 0) {
    return {};
  }
  const std::size_t device = deviceOf(ticket);
  return naming(members_[device]->wait(ofMember(ticket)), device);
}

Status Group::carry(DeviceAddress address, std::span<const Part> parts, std::size_t from,
                    std::size_t to) {
  if (parts.empty()) {
    return {};
  }
  const Result<std::byte*> leaving = stages_[from].memory();
  GMAC_TRY(naming(leaving.status(), from));
  const Result<std::byte*> arriving = stages_[to].memory();
  GMAC_TRY(naming(arriving.status(), to));
  std::byte* const out = *leaving;
  std::byte* const in = *arriving;
  // Half of each stage at a time: one member copies while the other one does.
  constexpr std::size_t kHalf = kStageBytes / 2;
  std::array<Ticket, 2> arrived{};
  Result<Ticket> left = Ticket{};
  // Nothing copies to or from the stages any more, however this ends.
  struct Drained {
    Group& group;
    Result<Ticket>& left;
    std::array<Ticket, 2>& arrived;
    std::size_t from, to;
    ~Drained() {
      if (left.ok()) {
        (void)group.members_[from]->wait(*left);
      }
      for (const Ticket ticket : arrived) {
        (void)group.members_[to]->wait(ticket);
      }
    }
  } const drained{*this, left, arrived, from, to};
  const auto at = [&](std::size_t offset) {
    return DeviceAddress{static_cast<std::uintptr_t>(address) + offset};
  };
  // The next bytes to send, as many as there is room for; no bytes: all are sent.
  std::size_t gone = 0;  // of the first of `parts`
  const auto next = [&] {
    if (parts.empty()) {
      return Part{};
    }
    const Part piece{parts[0].offset + gone, std::min(kHalf, parts[0].bytes - gone)};
    gone += piece.bytes;
    if (gone == parts[0].bytes) {
      parts = parts.subspan(1);
      gone = 0;
    }
    return piece;
  };
  const auto leave = [&](const Part& piece, std::size_t half) -> Result<Ticket> {
    return piece.bytes != 0 ? members_[from]->copyOut(out + half * kHalf, at(piece.offset),
                                                      piece.bytes, Ticket{})
                            : Result<Ticket>(Ticket{});
  };
  std::size_t half = 0;
  Part piece = next();
  left = leave(piece, half);
  while (piece.bytes != 0) {
    if (!left.ok()) {
      return naming(left.status(), from);
    }
    GMAC_TRY(naming(members_[from]->wait(*left), from));
    const Part following = next();
    left = leave(following, 1 - half);
    Ticket& earlier = arrived[half];
    GMAC_TRY(naming(members_[to]->wait(earlier), to));
    std::copy_n(out + half * kHalf, piece.bytes, in + half * kHalf);
    const Result<Ticket> sent =
        members_[to]->copyIn(at(piece.offset), in + half * kHalf, piece.bytes, Ticket{});
    if (!sent.ok()) {
      return naming(sent.status(), to);
    }
    earlier = *sent;
    piece = following;
    half = 1 - half;
  }
  for (const Ticket ticket : arrived) {
    GMAC_TRY(naming(members_[to]->wait(ticket), to));
  }
  return {};
}

Status Group::relocate(DeviceAddress address, std::size_t bytes, std::size_t device,
                       std::span<const Part> parts) {
  const auto allocation = homes_.at(address);
  if (!allocation || allocation->bytes != bytes) {
    return fail(adsmErrorInvalidValue, "no {} bytes of the accelerator's memory start at {:#x}",
                bytes, static_cast<std::uintptr_t>(address));
  }
  const std::size_t from = allocation->device;
  if (from == device) {
    return {};
  }
  SharedAddresses& target = *members_[device]->sharedAddresses();
  GMAC_TRY(naming(target.allocateAt(address, bytes, allocation->placement), device));
  if (const Status carried = carry(address, parts, from, device); !carried.ok()) {
    const std::string text = lastErrorText();
    (void)target.leave(address, bytes);
    return fail(carried.code(), "{}", text);
  }
  homes_.add(address, {bytes, allocation->placement, device});
  // If this fails, memory of that device is lost, and no data.
  (void)members_[from]->sharedAddresses()->leave(address, bytes);
  return {};
}

Status Group::addCopy(DeviceAddress address, std::size_t bytes, std::size_t device,
                      std::span<const PlacedPart> parts) {
  const std::lock_guard one(moving_);
  auto allocation = homes_.at(address);
  if (!allocation || allocation->bytes != bytes) {
    return fail(adsmErrorInvalidValue, "no {} bytes of the accelerator's memory start at {:#x}",
                bytes, static_cast<std::uintptr_t>(address));
  }
  if (device != allocation->device && (allocation->others >> device & 1U) == 0) {
    GMAC_TRY(naming(
        members_[device]->sharedAddresses()->allocateAt(address, bytes, allocation->placement),
        device));
    allocation->others |= 1U << device;
    homes_.add(address, *allocation);
  }
  std::vector<Part> run;
  for (auto next = parts.begin(); next != parts.end();) {
    const std::size_t from = next->device;
    for (run.clear(); next != parts.end() && next->device == from; ++next) {
      run.push_back(next->part);
    }
    if (from != device) {
      GMAC_TRY(carry(address, run, from, device));
    }
  }
  return {};
}

// If this fails, memory of that device is lost, and no data.
void Group::leaveOthers(DeviceAddress address, const Homes::Allocation& allocation) {
  for (std::size_t device = 0; device < members_.size(); ++device) {
    if ((allocation.others >> device & 1U) != 0) {
      (void)members_[device]->sharedAddresses()->leave(address, allocation.bytes);
    }
  }
}

void Group::dropOtherCopies(DeviceAddress address, std::size_t device) {
  auto allocation = homes_.at(address);
  if (!allocation) {
    return;
  }
  allocation->others |= 1U << allocation->device;
  allocation->others &= ~(1U << device);
  homes_.add(address, {allocation->bytes, allocation->placement, device});
  leaveOthers(address, *allocation);
}

}  // namespace

Result<std::unique_ptr<Accelerator>> makeGroup(std::vector<std::unique_ptr<Accelerator>> members) {
  if (members.empty() || members.size() > kMaxDevices ||
      std::any_of(members.begin(), members.end(),
                  [](const auto& member) { return member->sharedAddresses() == nullptr; }) ||
      std::any_of(members.begin() + 1, members.end(),
                  [](const auto& member) { return member->nativeStreams() != nullptr; })) {
    return fail(
        adsmErrorInvalidValue,
        "{} accelerators in a group; allowed are 1 to {} that share addresses, and none but "
        "the first has streams of the application's",
        members.size(), kMaxDevices);
  }
  NativeStreams* const native = members[0]->nativeStreams();
  auto group = std::make_unique<Group>(
      std::move(members), native != nullptr ? std::make_unique<MemberStreams>(*native) : nullptr);
  GMAC_TRY(group->start());
  return std::unique_ptr<Accelerator>(std::move(group));
}

}  // namespace gmac::accel
