// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/spilling.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "gmac/accel/devices.h"
#include "gmac/base/log.h"
#include "gmac/coherence/allocation.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/policies/most_room_first.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {
namespace {

// The part of a device's memory that stays free when objects of other devices go there, since its
// own users have not asked for them.
std::size_t reserveOf(const accel::MemoryRoom& room) {
  constexpr std::size_t kPart = 16;
  return std::max(Spilling::kLeftFree, room.total / kPart);
}

}  // namespace

Spilling::Spilling(ObjectMutex& mutex, accel::Accelerator& accelerator, Ledger& ledger,
                   Waits& waits, ObjectIndex& index, FreedMemory& freed, Allocation& allocation,
                   Launches& launches, const SpillOptions& options)
    : mutex_(mutex),
      accelerator_(accelerator),
      ledger_(ledger),
      waits_(waits),
      index_(index),
      freed_(freed),
      allocation_(allocation),
      launches_(launches),
      leastBytes_(options.leastBytes),
      allowed_(options.allowed),
      memory_(accelerator.movableMemory()) {}

bool Spilling::movable(const Object& object, accel::Home home) const {
  return object.home == home && !object.alone && !object.closing && object.bytes() >= leastBytes_;
}

Result<accel::MemoryRoom> Spilling::roomOn(int device) const {
  return several() ? memory_->roomOn(device) : accelerator_.memoryRoom();
}

std::vector<int> Spilling::peersWithRoom(std::size_t bytes, int device) const {
  std::vector<std::pair<std::size_t, int>> peers;
  for (const int other : several() ? memory_->devicesWithMemory() : std::vector<int>()) {
    if (other == device) {
      continue;
    }
    const Result<accel::MemoryRoom> room = memory_->roomOn(other);
    if (!room.ok()) {
      log(LogLevel::kDebug, "device {} takes no objects of others: {}", other, lastErrorText());
    } else if (const std::size_t reserve = reserveOf(*room);
               room->free >= reserve && room->free - reserve >= bytes) {
      peers.emplace_back(room->free, other);
    }
  }
  return mostRoomFirst(std::move(peers));
}

// (What moves between devices is asked about without the lock: such a move may be under way.)
std::vector<Spilling::Used> Spilling::usedBefore(std::uint64_t before) {
  const Lock lock(mutex_);
  std::vector<Used> all;
  for (const Object& object : index_.all()) {
    const std::uint64_t used = ledger_.newestWorkWith(object);
    if (movable(object, accel::Home::kDevice) && used < before) {
      all.push_back({{object.address(), object.bytes(), object.number},
                     used,
                     object.advised,
                     object.device,
                     object.guest.bytesUsed()});
    }
  }
  return all;
}

std::size_t Spilling::bytesOn(const Used& used, int device) const {
  return several() ? memory_->bytesOn(used.address, used.candidate.bytes, device)
                   : used.candidate.bytes;
}

Spilling::Candidate Spilling::leastLatelyUsed(std::uint64_t before, int device) {
  std::vector<Used> all = usedBefore(before);
  std::sort(all.begin(), all.end(), [](const Used& a, const Used& b) {
    return std::tuple(a.advised, a.used) < std::tuple(b.advised, b.used);
  });
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Used& used) { return bytesOn(used, device) != 0; });
  return found == all.end() ? Candidate() : found->candidate;
}

Result<std::size_t> Spilling::roomWithout(std::uint64_t before, int device) {
  const Result<accel::MemoryRoom> available = roomOn(device);
  if (!available.ok()) {
    return available.status();
  }
  std::size_t room = available->free;
  for (const Used& used : usedBefore(before)) {
    room += bytesOn(used, device);
  }
  return room;
}

bool Spilling::sufficient(std::size_t bytes, std::uint64_t before, int device) {
  const Result<std::size_t> room = roomWithout(before, device);
  return room.ok() && *room >= bytes;
}

// (Devices that do not reach each other's memory take turns with the objects: gathering.h.)
bool Spilling::fitsNowhere(std::size_t bytes) {
  if (!allowed_ || memory_ == nullptr || memory_->separateDevices()) {
    return false;
  }
  const std::vector<int> devices = several() ? memory_->devicesWithMemory() : std::vector<int>{0};
  const auto suffices = [&](std::size_t room) {
    return room >= kLeftFree && room - kLeftFree >= bytes;
  };
  const auto isFull = [&](int device) {
    // Usually what is free suffices, and no object has to be looked at.
    const Result<accel::MemoryRoom> available = roomOn(device);
    if (!available.ok() || suffices(available->free)) {
      return false;
    }
    const Result<std::size_t> room = roomWithout(UINT64_MAX, device);
    return room.ok() && !suffices(*room);
  };
  const auto allAreFull = [&] { return std::all_of(devices.begin(), devices.end(), isFull); };
  return allAreFull() && (!freed_.giveBackAll() || allAreFull());
}

Result<void*> Spilling::allocate(std::size_t size, accel::Placement placement) {
  const Result<void*> address = allocateAnywhere(size, placement);
  if (address.ok() && freed_.spilled() != 0) {
    beginsHere(*address);
  }
  return address;
}

void Spilling::beginsHere(void* address) {
  const Lock lock(mutex_);
  Object* const object = index_.findAllocation(address);
  if (object == nullptr || object->home != accel::Home::kDevice) {
    return;
  }
  double most = 0;
  for (const Object& guest : index_.all()) {
    if (guest.home == accel::Home::kCpu) {
      most = std::max(
          most, static_cast<double>(guest.guest.bytesUsed()) / static_cast<double>(guest.bytes()));
    }
  }
  object->guest.begins(static_cast<std::uint64_t>(most * static_cast<double>(object->bytes())));
}

Result<void*> Spilling::allocateAnywhere(std::size_t size, accel::Placement placement) {
  Result<void*> address = allocation_.allocate(size, placement, NewHome());
  const auto isFull = [&] {
    return !address.ok() && address.status().code() == adsmErrorAcceleratorMemory;
  };
  if (!isFull() || memory_ == nullptr) {
    return address;
  }
  const std::string full = lastErrorText();
  const int device = here();
  if (!allowed_) {
    // Only the accelerator's own device is tried besides.
    const int own = first();
    return own == device ? address
                         : allocation_.allocate(size, placement, {accel::Home::kDevice, own});
  }
  const std::lock_guard one(moving_);
  letPagesGo();
  // Objects that the newest work uses, or that no work has used yet, are as likely to be used next
  // as the new one: that goes to other memory then, which takes no copy.
  const std::uint64_t newest = [&] {
    const Lock lock(mutex_);
    return ledger_.newestWork();
  }();
  if (sufficient(size, newest, device)) {
    for (;;) {
      const Candidate oldest = leastLatelyUsed(newest, device);
      if (oldest.address == nullptr || !spill(oldest, device).ok()) {
        break;
      }
      address = allocation_.allocate(size, placement, NewHome());
      if (!isFull()) {
        return address;
      }
    }
  }
  const auto allocateIn = [&](const Place& place) {
    address =
        allocation_.allocate(size, placement, {place.home, place.device, several() ? device : -1});
    if (address.ok()) {
      const std::uint64_t used =
          place.home == accel::Home::kCpu ? placesFor(size, device).bytesUsed : 0;
      const Lock lock(mutex_);
      if (Object* const object = index_.findAllocation(*address)) {
        object->guest.begins(used);
        tell(*object, place);
      }
    }
    return !isFull();
  };
  for (const int peer : peersWithRoom(size, device)) {
    if (allocateIn({accel::Home::kDevice, peer})) {
      return address;
    }
  }
  (void)allocateIn({accel::Home::kCpu, 0});
  if (address.ok()) {
    return address;
  }
  if (address.status().code() == adsmErrorNotSupported) {
    recordError(adsmErrorAcceleratorMemory, full);
    return Status(adsmErrorAcceleratorMemory);
  }
  const std::string there = lastErrorText();
  return fail(adsmErrorAcceleratorMemory, "{}; in the CPU's memory instead: {}", full, there);
}

Result<void*> Spilling::allocateStriped(std::size_t size, std::span<const std::size_t> devices) {
  constexpr std::size_t kPiece = std::size_t{2} << 20;
  const auto plain = [&](std::string_view why) {
    log(LogLevel::kInfo, "adsmAllocStriped: {} bytes are not striped: {}", size, why);
    return allocate(size, accel::Placement::kSameAddress);
  };
  if (size <= kPiece) {
    return plain("they are one piece");
  }
  if (devices.size() < 2) {
    return plain("there is one device");
  }
  const std::size_t together = accel::devicesTogether(accelerator_);
  if (!accelerator_.devices()->reachEachOther() ||
      std::any_of(devices.begin(), devices.end(),
                  [&](std::size_t device) { return device >= together; })) {
    return plain("devices do not reach each other's memory");
  }
  const Result<void*> address =
      allocation_.allocate(size, accel::Placement::kSameAddress, {.stripes = devices});
  const adsmError_t code = address.status().code();
  if (code == adsmErrorAcceleratorMemory || code == adsmErrorNotSupported) {
    const std::string words = lastErrorText();
    return plain(words);
  }
  if (address.ok()) {
    stats().stripedAllocations.add();
  }
  return address;
}

Status Spilling::free(void* address) {
  const Status freed = allocation_.free(address);
  if (freed_.spilled() != 0) {
    roomMayBe_ = true;
  }
  return freed;
}

bool Spilling::makeRoom(int device) {
  if (memory_ == nullptr || !allowed_ || !atHome()) {
    return false;
  }
  const std::lock_guard one(moving_);
  letPagesGo();
  const Candidate oldest = leastLatelyUsed(UINT64_MAX, device);
  return oldest.address != nullptr && spill(oldest, device).ok();
}

// (Every device reaches the CPU's own pages.)
std::vector<Spilling::Candidate> Spilling::allButMirrors() {
  std::vector<Candidate> all;
  const Lock lock(mutex_);
  for (const Object& object : index_.all()) {
    if (!object.isZeroCopy() && !object.closing) {
      all.push_back({object.address(), object.bytes(), object.number});
    }
  }
  return all;
}

Status Spilling::gather(const Place& place) {
  const std::lock_guard one(moving_);
  letPagesGo();
  GMAC_TRY(memory_->gatherIn(place.home, place.device));
  (void)freed_.giveBackAll();
  for (const Candidate& next : allButMirrors()) {
    GMAC_TRY(move(next, place, -1));
  }
  return {};
}

Status Spilling::gatherOne(const Candidate& candidate, const Place& place) {
  const std::lock_guard one(moving_);
  letPagesGo();
  return move(candidate, place, -1);
}

// Waits for what still uses an object (of the application's streams, that has happened). Nothing
// else can be submitted meanwhile. NULL: it has been freed.
Object* Spilling::waitForUsers(const Candidate& candidate, bool ofItAlone) {
  Lock lock(mutex_);
  Object* const object = index_.findAllocation(candidate.address);
  if (object == nullptr || object->number != candidate.number || object->closing) return nullptr;
  ofItAlone ? waits_.forUses(lock, ledger_.callsWith(*object)) : waits_.forEveryUse(lock);
  return object;
}

Status Spilling::spill(const Candidate& candidate, int from) {
  const int wanted = several() ? from : -1;
  for (const int peer : peersWithRoom(candidate.bytes, from)) {
    if (const Status moved = move(candidate, {accel::Home::kDevice, peer}, wanted); moved.ok()) {
      return moved;
    }
  }
  return move(candidate, {accel::Home::kCpu, 0}, wanted);
}

Status Spilling::moveMemory(const Object& object, const Place& place) const {
  return place.alone ? memory_->moveAlone(object.device, object.bytes(), place.home, place.device,
                                          /*holds=*/true)
         : place.home == accel::Home::kDevice && several()
             ? memory_->moveAllTo(object.device, object.bytes(), place.device)
             : memory_->move(object.device, object.bytes(), place.home);
}

// To everybody else a move is device work that writes the object: blocks are closed, accesses of
// the CPU wait for its end, and so do calls and the object's end.
Status Spilling::move(const Candidate& candidate, const Place& place, int wanted) {
  const bool toCpu = place.home == accel::Home::kCpu;
  const bool isBack = !toCpu && (place.device == wanted || wanted < 0);
  const TraceSpan span("memory",
                       isBack || (!toCpu && !several()) ? "bring back"
                       : toCpu                          ? "spill"
                                                        : "spill to device",
                       {"bytes", candidate.bytes},
                       toCpu || !several()
                           ? TraceArg()
                           : TraceArg{"device", static_cast<std::uint64_t>(place.device)});
  const coherence::DeviceRange range{candidate.address, candidate.bytes, true};
  const std::span<const coherence::DeviceRange> ranges(&range, 1);
  GMAC_TRY(launches_.beginOwnWork(ranges, candidate.address));
  Object* const object = waitForUsers(candidate, place.alone);
  const Status moved = object != nullptr ? moveMemory(*object, place) : Status();
  if (moved.ok() && object != nullptr) {
    accel::Devices* const devices = accelerator_.devices();
    const std::size_t homeDevice = devices == nullptr ? 0 : devices->homeOf(object->device);
    const Lock lock(mutex_);
    freed_.moves(*object, place.home, isBack ? -1 : wanted);
    object->homeDevice = homeDevice;
    object->striped = false;
    object->homes.clear();
    object->alone = place.alone;
    object->apartOn = place.home == accel::Home::kApart ? place.device : -1;
    object->relocated |= several() || place.alone;  // (it is not kept for the next object)
    if (toCpu || !isBack) {
      object->guest.leaves();
    }
    tell(*object, place);
  }
  const std::string words = moved.ok() ? "" : lastErrorText();
  const Status ended = launches_.endOwnWork(ranges, accel::Ticket{});
  if (!moved.ok()) {
    log(LogLevel::kInfo, "object {} ({} bytes) stays where it is: {}", shown(candidate.address),
        candidate.bytes, words);
    recordError(moved.code(), words);
    return moved;
  }
  return ended;
}

void Spilling::tell(const Object& object, const Place& place) const {
  if (place.home == accel::Home::kCpu) {
    stats().spills.add();
    stats().spilledBytes.add(object.bytes());
  } else if (object.spilled()) {
    stats().peerSpills.add();
    stats().peerSpilledBytes.add(object.bytes());
  } else {
    stats().broughtBack.add();
  }
  const std::string where = place.home == accel::Home::kCpu ? "the CPU's"
                            : several() || place.alone || place.home == accel::Home::kApart
                                ? fmt::format("device {}'s", place.device)
                                : "the accelerator's";
  log(LogLevel::kInfo, "object {} ({} bytes) is in {} memory now{}", shown(object.address()),
      object.bytes(), where,
      object.spilledFrom >= 0 ? fmt::format(", as device {}'s is full", object.spilledFrom) : "");
}

std::vector<Spilling::Guest> Spilling::guests() {
  // In the order of the devices' numbers.
  const std::vector<int> devices = several() ? memory_->devicesWithMemory() : std::vector<int>();
  const auto numberOf = [&](int device) {
    return static_cast<std::size_t>(std::find(devices.begin(), devices.end(), device) -
                                    devices.begin());
  };
  std::vector<Guest> all;
  const Lock lock(mutex_);
  for (Object& object : index_.all()) {
    const bool onCpu = object.home == accel::Home::kCpu;
    if (!object.spilled() || !movable(object, object.home)) {
      continue;
    }
    // Where only the device has used it that it lies on, it is at home there.
    const auto isUsedBy = [&](std::size_t device) {
      return object.lastWrite[device] != 0 || object.lastRead[device] != 0;
    };
    const std::size_t wanted = numberOf(object.spilledFrom);
    if (!onCpu && !object.advised && isUsedBy(object.homeDevice) &&
        (wanted == devices.size() || !isUsedBy(wanted))) {
      freed_.moves(object, object.home);
      continue;
    }
    all.push_back({{object.address(), object.bytes(), object.number},
                   ledger_.newestWorkWith(object),
                   onCpu,
                   object.spilledFrom});
  }
  std::sort(all.begin(), all.end(), [](const Guest& a, const Guest& b) { return a.used > b.used; });
  return all;
}

std::optional<Spilling::Place> Spilling::betterPlace(const Guest& guest) const {
  const Place home{accel::Home::kDevice, guest.wanted};
  const Result<accel::MemoryRoom> room =
      guest.wanted >= 0 ? roomOn(guest.wanted) : accelerator_.memoryRoom();
  if (room.ok() && room->free >= kLeftFree && room->free - kLeftFree >= guest.candidate.bytes) {
    return home;
  }
  if (!guest.onCpu) {
    return std::nullopt;
  }
  const std::vector<int> peers = peersWithRoom(guest.candidate.bytes, guest.wanted);
  return peers.empty() ? std::nullopt : std::optional(Place{accel::Home::kDevice, peers.front()});
}

void Spilling::bringBack() {
  const std::unique_lock one(moving_, std::try_to_lock);
  if (!one.owns_lock()) {
    return;  // another thread makes room, or brings back
  }
  roomMayBe_ = false;
  if (!atHome()) {
    return;
  }
  letPagesGo();
  (void)freed_.giveBackAll();
  for (const Guest& guest : guests()) {
    const std::optional<Place> place = betterPlace(guest);
    if (place && !move(guest.candidate, *place, guest.wanted).ok()) {
      return;
    }
  }
}

std::vector<Spilling::DueGuest> Spilling::dueGuests() {
  const int device = here();
  std::vector<DueGuest> all;
  bool full = false;
  const Lock lock(mutex_);
  for (const Object& object : index_.all()) {
    if (movable(object, accel::Home::kCpu) && object.guest.due(object.bytes())) {
      full |= object.guest.isFull(object.bytes());
      all.push_back({{object.address(), object.bytes(), object.number},
                     object.spilledFrom >= 0 ? object.spilledFrom : device});
    }
  }
  for (Object& object : index_.all()) {
    if (full) {
      object.guest.halve();
    }
  }
  return all;
}

// Those of which work has used the smallest share, as many as it takes.
Spilling::Places Spilling::placesFor(std::size_t bytes, int device) {
  std::vector<Used> all = usedBefore(UINT64_MAX);
  std::erase_if(all, [&](const Used& used) { return used.advised || bytesOn(used, device) == 0; });
  const auto share = [](const Used& used) {
    return static_cast<double>(used.bytesUsed) / static_cast<double>(used.candidate.bytes);
  };
  std::sort(all.begin(), all.end(), [&](const Used& a, const Used& b) {
    return std::pair(share(a), a.used) < std::pair(share(b), b.used);
  });
  const Result<accel::MemoryRoom> available = roomOn(device);
  std::size_t room =
      available.ok() && available->free > kLeftFree ? available->free - kLeftFree : 0;
  auto end = all.begin();
  for (; end != all.end() && room < bytes; ++end) {
    room += bytesOn(*end, device);
  }
  Places places;
  places.suffice = room >= bytes;
  for (auto next = all.begin(); next != end; ++next) {
    // (A small one is not needed beside a large one that came later.)
    const std::size_t frees = bytesOn(*next, device);
    if (room >= bytes + frees) {
      room -= frees;
      continue;
    }
    places.objects.push_back(next->candidate);
    places.bytes += next->candidate.bytes;
    places.bytesUsed += next->bytesUsed;
  }
  return places;
}

bool Spilling::exchange(const DueGuest& guest) {
  // To the guest's policy, unless the guest has been freed.
  const auto tellPolicy = [&](auto what) {
    const Lock lock(mutex_);
    Object* const object = index_.findAllocation(guest.candidate.address);
    return object != nullptr && object->number == guest.candidate.number && what(object->guest);
  };
  const Places places = placesFor(guest.candidate.bytes, guest.device);
  const bool exchanges = tellPolicy([&](GuestPolicy& policy) {
    const bool pays =
        places.suffice && policy.pays(places.bytesUsed, places.bytes + guest.candidate.bytes);
    if (!pays) {
      policy.stays();
    }
    return pays;
  });
  if (!exchanges) {
    return false;
  }
  const int wanted = several() ? guest.device : -1;
  const bool moved =
      std::all_of(places.objects.begin(), places.objects.end(),
                  [&](const Candidate& place) { return spill(place, guest.device).ok(); }) &&
      move(guest.candidate, {accel::Home::kDevice, wanted}, wanted).ok();
  (void)tellPolicy([&](GuestPolicy& policy) {
    moved ? policy.comes() : policy.stays();
    return true;
  });
  // Perhaps some of them can go back.
  roomMayBe_ = roomMayBe_ || !moved;
  return moved;
}

void Spilling::exchange() {
  const std::unique_lock one(moving_, std::try_to_lock);
  if (!one.owns_lock()) {
    return;
  }
  bool any = false;
  if (launches_.takeGuestsAreDue() && atHome()) {
    memory_->keepPages(true);
    for (const DueGuest& guest : dueGuests()) {
      any |= exchange(guest);
    }
  }
  if (!any) {
    memory_->keepPages(false);
  }
  keepsPages_ = any;
}

void Spilling::letPagesGo() {
  if (keepsPages_.exchange(false)) {
    memory_->keepPages(false);
  }
}

}  // namespace gmac
