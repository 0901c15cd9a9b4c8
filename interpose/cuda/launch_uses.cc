// SPDX-License-Identifier: Apache-2.0
#include "interpose/cuda/launch_uses.h"

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

#include "gmac/base/round_up.h"
#include "interpose/cuda/call.h"
#include "interpose/cuda/host_functions.h"
#include "interpose/cuda/kernel_code.h"

namespace gmac::interpose {
namespace {

// Whether an address lies in an object, or in memory that the driver knows. (What objects leave of
// their pages is neither: the driver knows those pages.)
bool isKnown(CUdeviceptr address) noexcept {
  const std::uintptr_t cpu = cpuAddressOf(address);
  if (gmac::interpose::shared(cpu, 1)) return true;
  return !coherence::mayBeShared(reinterpret_cast<const void*>(cpu), 1) && memoryType(address) != 0;
}

// The table that the CPU should have, and how often in a row it did not have one.
constinit std::atomic<std::uintptr_t> wanted{0};
constinit std::atomic<std::uint32_t> notThere{0};

}  // namespace

void fetchWantedTable() noexcept {
  if (wanted.load(std::memory_order_relaxed) == 0) return;
  const std::uintptr_t address = wanted.exchange(0);
  if (const auto table = ManagedObjects::get().find(address); table) {
    coherence::memory().fetchIfQuiet(reinterpret_cast<const void*>(table->address), table->bytes);
  }
}

// The bytes of a kernel's parameters, in either form in which a launch takes them.
class ArgumentBytes {
 public:
  ArgumentBytes(const LaunchArguments& arguments, const device_code::KernelUses& kernel)
      : params_(arguments.params()), kernel_(kernel) {
    if (params_ != nullptr || arguments.extra() == nullptr) return;
    void* const* const extra = arguments.extra();
    // (The driver has refused longer lists.)
    for (std::size_t i = 0; i < 4 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer_ = static_cast<const std::byte*>(extra[i + 1]);
      } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        bufferBytes_ = *static_cast<const std::size_t*>(extra[i + 1]);
      }
    }
  }
  bool word(std::uint32_t offset, CUdeviceptr* value) const {
    const std::byte* const at = find(offset);
    if (at != nullptr) std::memcpy(value, at, sizeof *value);
    return at != nullptr;
  }

 private:
  const std::byte* find(std::uint32_t offset) const {
    if (buffer_ != nullptr) {
      return offset + sizeof(CUdeviceptr) <= bufferBytes_ ? buffer_ + offset : nullptr;
    }
    for (std::size_t i = 0; params_ != nullptr && i < kernel_.parameters.size(); ++i) {
      const device_code::ParameterPlace& place = kernel_.parameters[i];
      if (offset >= place.offset && offset + sizeof(CUdeviceptr) <= place.offset + place.bytes) {
        return static_cast<const std::byte*>(params_[i]) + (offset - place.offset);
      }
    }
    return nullptr;
  }

  void* const* const params_;
  const device_code::KernelUses& kernel_;
  const std::byte* buffer_ = nullptr;
  std::size_t bufferBytes_ = 0;
};

LaunchUses::LaunchUses(const LaunchArguments& arguments) noexcept {
  const auto kernel = usesOf(arguments.function());
  if (kernel == nullptr) return;
  const ArgumentBytes bytes(arguments, *kernel);
  if (!addArguments(bytes, *kernel)) return;
  pointees_ = count_;
  known_ = addTables(bytes, *kernel);
}

bool LaunchUses::addArguments(const ArgumentBytes& bytes, const device_code::KernelUses& kernel) {
  ranges_[count_++] = {nullptr, 0, true, false, true};
  // Only what the driver or the runtime knows can be the base of an address.
  for (const device_code::AddressBase& base : kernel.bases) {
    bool known = false;
    bool null = true;
    for (const std::uint32_t offset : base.offsets) {
      CUdeviceptr value = 0;
      if (!bytes.word(offset, &value)) return false;
      null = null && value == 0;
      known = known || (value != 0 && isKnown(value));
    }
    if (!known && !(null && base.nullable)) return false;
  }
  for (const device_code::PointerUse& use : kernel.pointers) {
    CUdeviceptr value = 0;
    if (!bytes.word(use.offset, &value)) return false;
    const std::uintptr_t address = cpuAddressOf(value);
    if (address < kBesideArgument) continue;
    const std::uintptr_t first = address - kBesideArgument;
    if (!gmac::interpose::shared(first, 2 * kBesideArgument)) continue;
    if (count_ == ranges_.size()) return false;
    ranges_[count_++] = {reinterpret_cast<const void*>(first), 2 * kBesideArgument, use.writes,
                         true};
  }
  return true;
}

// A table has to be an allocation of managed memory that the CPU has: what is in it is read here.
bool LaunchUses::addTables(const ArgumentBytes& bytes, const device_code::KernelUses& kernel) {
  // (A function of the CPU that the stream comes to first may write it.)
  if (!kernel.tables.empty() && hostFunctionsPending()) return false;
  constexpr std::size_t kMostTables = 8;
  std::array<ManagedObject, kMostTables> tables;
  std::size_t count = 0;
  for (const device_code::TableUse& use : kernel.tables) {
    for (const std::uint32_t offset : use.words) {
      CUdeviceptr value = 0;
      if (!bytes.word(offset, &value)) return false;
      // (A number, or null.)
      if (value == 0 || !isKnown(value)) continue;
      const auto table = ManagedObjects::get().find(cpuAddressOf(value));
      if (!table || count == tables.size() || !addTable(*table, use.writes)) return false;
      tables[count++] = *table;
    }
  }
  // None that the kernel writes tells what it will read.
  const auto isTable = [&](std::uintptr_t address) {
    return std::any_of(tables.begin(), tables.begin() + count, [&](const ManagedObject& table) {
      return address - table.address < table.bytes;
    });
  };
  for (const device_code::PointerUse& use : kernel.pointers) {
    CUdeviceptr value = 0;
    if (!bytes.word(use.offset, &value)) return false;
    const std::uintptr_t address = cpuAddressOf(value);
    if (use.writes && (isTable(address) || isTable(address - 1))) return false;
  }
  return std::none_of(
      ranges_.begin() + pointees_, ranges_.begin() + count_, [&](const DeviceRange& range) {
        return range.write && isTable(reinterpret_cast<std::uintptr_t>(range.address));
      });
}

bool LaunchUses::addTable(const ManagedObject& table, bool writes) {
  coherence::Current current{};
  const auto* const first = reinterpret_cast<const void*>(table.address);
  if (table.bytes > kMostTableBytes) return false;
  if (coherence::currentPrefix(first, table.bytes, &current) < table.bytes ||
      (current != coherence::Current::kCpu && current != coherence::Current::kBoth)) {
    if (std::has_single_bit(notThere.fetch_add(1) + 1)) wanted.store(table.address);
    return false;
  }
  notThere.store(0, std::memory_order_relaxed);
  constexpr std::size_t kWord = sizeof(std::uintptr_t);
  const std::uintptr_t end = (table.address + table.bytes) / kWord * kWord;
  for (std::uintptr_t at = roundUp(table.address, kWord); at < end; at += kWord) {
    // (Should a launch of another thread close it now, this access opens it again.)
    const std::uintptr_t word = *reinterpret_cast<const volatile std::uintptr_t*>(at);
    // It may point past its object's end.
    for (const std::uintptr_t address : {word, word - 1}) {
      if (word == 0 || !gmac::interpose::shared(address, 1)) continue;
      const auto object = ManagedObjects::get().find(address);
      if (!object || !addObject(*object, writes)) return false;
    }
  }
  return true;
}

bool LaunchUses::addObject(const ManagedObject& object, bool writes) {
  const auto* const address = reinterpret_cast<const void*>(object.address);
  const auto end = ranges_.begin() + count_;
  const auto known = std::find_if(ranges_.begin() + pointees_, end, [&](const DeviceRange& range) {
    return range.address == address;
  });
  if (known != end) {
    known->write = known->write || writes;
    return true;
  }
  if (count_ == ranges_.size()) return false;
  ranges_[count_++] = {address, object.bytes, writes, true};
  return true;
}

}  // namespace gmac::interpose
