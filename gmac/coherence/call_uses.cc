// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/call_uses.h"

#include <array>
#include <vector>

#include "gmac/accel/movable_memory.h"
#include "gmac/coherence/kernel.h"
#include "gmac/coherence/ledger.h"

namespace gmac {

unsigned UsedObjects::accessIn(const Object& object, const adsmRangeUse_t& use) const {
  if (use.bytes != 0) {
    return static_cast<unsigned>(use.access);
  }
  unsigned access = 0;
  for (const adsmRangeUse_t& each : uses_->list) {
    if (each.address >= object.address() && each.address < object.end()) {
      access |= each.access;
    }
  }
  return access;
}

Status UsedObjects::check() const {
  if (!uses_) {
    return {};
  }
  struct Listed {
    std::uintptr_t begin, end;
    const adsmRangeUse_t* use;
  };
  std::vector<Listed> listed;
  for (const adsmRangeUse_t& use : uses_->list) {
    const Object* object = index_.findAllocation(use.address);
    if (object == nullptr || object->closing) {
      return fail(adsmErrorInvalidPointer, "{}({}): {} is in no shared object", uses_->function,
                  kernel_->name, use.address);
    }
    if (use.access < adsmRead || use.access > adsmReadWrite) {
      return fail(adsmErrorInvalidValue,
                  "{}({}): access {} of {}; allowed are adsmRead, adsmWrite, adsmReadWrite",
                  uses_->function, kernel_->name, static_cast<int>(use.access), use.address);
    }
    if (!uses_->parts) {
      continue;
    }
    const auto begin =
        static_cast<std::size_t>(static_cast<const std::byte*>(use.address) - object->address());
    // (Of small objects, which share theirs, checkSmall() has looked.)
    if (!object->sharedBySmallObjects && use.bytes != 0 &&
        (begin >= object->requestedBytes || use.bytes > object->requestedBytes - begin)) {
      return fail(adsmErrorInvalidValue,
                  "{}({}): {} bytes at {} leave their object, which has {} bytes at {}",
                  uses_->function, kernel_->name, use.bytes, use.address, object->requestedBytes,
                  static_cast<const void*>(object->address()));
    }
    const auto base = reinterpret_cast<std::uintptr_t>(object->address());
    const ByteRange bytes = bytesIn(*object, use);
    listed.push_back({base + bytes.begin, base + bytes.end, &use});
  }
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.begin < b.begin; });
  // By access: of those so far, the one that ends last.
  std::array<const Listed*, adsmReadWrite + 1> last{};
  for (const Listed& next : listed) {
    for (const Listed* const before : last) {
      if (before != nullptr && before->use->access != next.use->access &&
          before->end > next.begin) {
        return fail(adsmErrorInvalidValue,
                    "{}({}): {} bytes at {} with access {} and {} bytes at {} with access {} "
                    "overlap (0 bytes: the whole object); parts with different accesses must not",
                    uses_->function, kernel_->name, before->use->bytes, before->use->address,
                    static_cast<int>(before->use->access), next.use->bytes, next.use->address,
                    static_cast<int>(next.use->access));
      }
    }
    const Listed*& of = last[static_cast<std::size_t>(next.use->access)];
    of = of == nullptr || of->end < next.end ? &next : of;
  }
  return {};
}

// Where devices reach each other's memory the first call that lists an object chooses its home;
// else every call does that uses it.
bool UsedObjects::mayStay(const Object& object) const {
  return reach_ &&
         (object.placed || object.sharedBySmallObjects || !object.homes.empty() ||
          object.home != accel::Home::kDevice || ledger_.newestWorkWith(object) != object.born);
}

// Of an object that lies there as a whole, a part does; one that no work has used yet is spread by
// its first part, while that takes no copies.
bool UsedObjects::lacks(const Object& object, BlockRange blocks) const {
  const bool part = object.lengthOf(blocks) < object.bytes();
  return object.spread()
             ? !part || object.lacks(blocks, device_)
             : object.homeDevice != device_ || (part && !reach_ && !object.hasMoved &&
                                                ledger_.newestWorkWith(object) == object.born);
}

bool UsedObjects::isAway(const Object& object, BlockRange blocks, Away* away) const {
  if (object.closing || !lacks(object, blocks) || mayStay(object)) {
    return false;
  }
  *away = {
      object.address(), object.bytes(), object.number,
      reach_ || object.lengthOf(blocks) == object.bytes() ? ByteRange{} : object.bytesOf(blocks)};
  return true;
}

// The first call that lists a part chooses the home of its pages.
bool UsedObjects::isPartAway(const adsmRangeUse_t& use, Away* away) const {
  Object* const object = index_.find(use.address);
  if (object == nullptr || object->closing || object->placed || object->advised ||
      object->sharedBySmallObjects || object->home != accel::Home::kDevice ||
      bytesIn(*object, use).end > object->bytes() ||
      (object->homes.empty() &&
       (use.bytes == 0 || ledger_.newestWorkWith(*object) != object->born))) {
    return false;
  }
  ByteRange part = bytesIn(*object, use);
  if (part.end >= object->requestedBytes) {
    part.end = object->bytes();  // the last page is not whole
  }
  const ByteRange own = object->homePages(part);
  const ByteRange pages = own.begin < own.end ? object->homeless(part) : ByteRange{};
  if (!pages.empty()) {
    *away = {object->address(), object->bytes(), object->number, pages};
  }
  return !pages.empty();
}

bool UsedObjects::findAwayAmongSeveral(Away* away) const {
  if (reach_ && parts() &&
      std::any_of(uses_->list.begin(), uses_->list.end(),
                  [&](const adsmRangeUse_t& use) { return isPartAway(use, away); })) {
    return true;
  }
  return (uses_ || !reach_) && any([&](Object& object, BlockRange blocks, unsigned) {
           return isAway(object, blocks, away);
         });
}

bool UsedObjects::writesLent() const {
  if (!uses_) {
    return any([](const Object& object, BlockRange, unsigned access) {
      return (access & adsmWrite) != 0 && !object.lent.empty();
    });
  }
  return std::any_of(uses_->list.begin(), uses_->list.end(), [&](const adsmRangeUse_t& use) {
    const Object* const object = index_.findAllocation(use.address);
    return (use.access & adsmWrite) != 0 && object != nullptr &&
           object->isLent(bytesIn(*object, use));
  });
}

NewestCalls UsedObjects::conflicts() const {
  NewestCalls before;
  if (reach_ && ledger_.callsElsewhere(device_)) {
    (void)any([&](Object& object, BlockRange blocks, unsigned access) {
      ledger_.addConflicts(object, object.bytesOf(blocks), device_, (access & adsmWrite) != 0,
                           before);
      return false;
    });
  }
  return before;
}

}  // namespace gmac
