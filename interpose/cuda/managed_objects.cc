// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/managed_objects.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gmac/base/round_up.h"

namespace gmac::interpose {
namespace {

// The driver's ids start at one.
constexpr std::uint64_t kFirstId = std::uint64_t{1} << 62;

std::uintptr_t pageBytes() {
  static const auto bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}
std::uintptr_t roundUpToPage(std::uintptr_t address) { return roundUp(address, pageBytes()); }

}  // namespace

ManagedObjects& ManagedObjects::get() {
  static ManagedObjects* const one = new ManagedObjects;
  return *one;
}

void ManagedObjects::add(std::uintptr_t address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const ManagedObject object{address, bytes, kFirstId + ++nextId_};
  objects_[address] = {object, {{address, Hints{}}}};
}

bool ManagedObjects::remove(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  return objects_.erase(address) != 0;
}

std::vector<ManagedObject> ManagedObjects::removeAll() {
  Objects all;
  {
    const std::lock_guard lock(mutex_);
    all = std::exchange(objects_, {});
  }
  std::vector<ManagedObject> removed;
  for (const auto& [start, entry] : all) removed.push_back(entry.object);
  return removed;
}

ManagedObjects::Objects::const_iterator ManagedObjects::holding(std::uintptr_t address) const {
  const auto found = firstFrom(objects_, address);
  return found != objects_.end() && found->first <= address ? found : objects_.end();
}

std::optional<ManagedObject> ManagedObjects::find(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  const auto found = holding(address);
  if (found == objects_.end()) return std::nullopt;
  return found->second.object;
}

bool ManagedObjects::covers(std::uintptr_t address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || address + bytes < address) return false;
  const std::uintptr_t end = address + bytes;
  for (std::uintptr_t at = address; at < end;) {
    const auto found = holding(at);
    if (found == objects_.end()) return false;
    // The rest of the last page belongs to it: the driver rounds ranges to pages.
    at = roundUpToPage(found->first + found->second.object.bytes);
  }
  return true;
}

std::vector<ManagedObject> ManagedObjects::touched(std::uintptr_t address,
                                                   std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  std::vector<ManagedObject> objects;
  forEachTouched(objects_, address, bytes,
                 [&](const Entry& entry) { objects.push_back(entry.object); });
  return objects;
}

std::pair<std::uintptr_t, std::uintptr_t> ManagedObjects::within(const Entry& entry,
                                                                 std::uintptr_t address,
                                                                 std::size_t bytes) {
  const std::uintptr_t begin = entry.object.address;
  const std::uintptr_t end = begin + entry.object.bytes;
  return {std::max(begin, address / pageBytes() * pageBytes()),
          std::min(end, roundUpToPage(address + bytes))};
}

void ManagedObjects::splitAt(Entry& entry, std::uintptr_t address) {
  if (address == entry.object.address + entry.object.bytes) return;
  const auto before = std::prev(entry.hints.upper_bound(address));
  if (before->first != address) entry.hints.emplace(address, before->second);
}

std::vector<Hints> ManagedObjects::hints(std::uintptr_t address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  std::vector<Hints> found;
  forEachTouched(objects_, address, bytes, [&](const Entry& entry) {
    const auto [first, last] = within(entry, address, bytes);
    for (auto at = std::prev(entry.hints.upper_bound(first));
         at != entry.hints.end() && at->first < last; ++at) {
      found.push_back(at->second);
    }
  });
  return found;
}

bool ManagedObjects::readMostly(const ManagedObject& object) const {
  const std::vector<Hints> all = hints(object.address, object.bytes);
  return !all.empty() &&
         std::all_of(all.begin(), all.end(), [](const Hints& part) { return part.readMostly; });
}

}  // namespace gmac::interpose
