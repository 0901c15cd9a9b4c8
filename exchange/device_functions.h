// SPDX-License-Identifier: Apache-2.0
//
// The functions of a device that the exchange calls. The functions are those of a library that has
// one (gmac/session/device_memory.h), so that this room needs none.
#ifndef GMAC_EXCHANGE_DEVICE_FUNCTIONS_H_
#define GMAC_EXCHANGE_DEVICE_FUNCTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "gmac/api/adsm.h"
#include "gmac/base/log.h"
#include "gmac/base/status.h"
#include "gmac/datatype/layout/layout.h"

namespace gmac::exchange {

// By which another process finds exported memory.
inline constexpr std::size_t kHandleBytes = 64;
using DeviceHandle = std::array<unsigned char, kHandleBytes>;

// Part of device memory, as a file: see gmacMemoryFile (gmac/session/device_memory.h).
struct DeviceFile {
  int file;
  std::int64_t offset;
  std::uint64_t bytes;
};
// The most that exported memory consists of.
inline constexpr std::size_t kMaxDeviceFiles = 16;

// One kernel of a device that unpacks a message while fragments of it arrive in a ring, in order:
// fragment i in slot i % slots. An arrival is for one thread at a time.
struct ArrivalFunctions {
  // Launches it, for the first `bytes` bytes of the layout in packed order, ordered as what
  // DeviceFunctions::begin() submits. It uses a bounded share of the device, and ends by itself
  // when it hears of no fragment for a bounded time, with those unpacked that it has heard of.
  // Never waits. adsmErrorNotSupported: there is no such kernel for these
  // bytes, or not now.
  adsmError_t (*begin)(const datatype::Layout& to, void* target, std::int64_t bytes,
                       const void* ring, std::int64_t fragmentBytes, int slots, void** arrival);
  // So many fragments are there, in all; how many are unpacked, whose slots may be filled again.
  // Takes no lock and calls no driver.
  std::int64_t (*arrived)(void* arrival, std::int64_t fragments);
  // No more than those will be told of: the kernel ends with them. As arrived().
  void (*noMore)(void* arrival);
  // Whether the kernel has ended.
  bool (*over)(void* arrival);
  // Has it end with the fragments that it has heard of, waits for it, and says how it ended.
  // *fragments: how many are unpacked. If that is all, it does not wait: the kernel has nothing
  // left to write.
  adsmError_t (*end)(void* arrival, std::int64_t* fragments);
  // While the sender has nothing ready for so many nanoseconds, of the first fragment and of a
  // later one, the kernel is told to end: the sender computes, perhaps.
  std::int64_t mostWaitForFirst = 110'000;
  std::int64_t mostWait = 300'000;
};

// Thread-safe; all block.
struct DeviceFunctions {
  // Memory of this process's device, until the process ends, that others may import.
  // adsmErrorNotSupported: its device, or the system, has no such thing.
  adsmError_t (*exportMemory)(std::size_t bytes, void** address, unsigned char* handle);
  // Where this process's device has another process's exported memory, until the process ends, or
  // until releaseImport(). Of each handle there is one import at a time. That it is this memory,
  // and that it is reached, is not proved.
  adsmError_t (*importMemory)(const unsigned char* handle, void** address);
  // Between device memory and the CPU's; done when they return.
  adsmError_t (*copyTo)(void* device, const void* from, std::size_t bytes);
  adsmError_t (*copyFrom)(void* to, const void* device, std::size_t bytes);
  // The handle of memory that this process has allocated itself, and the end of an import: from
  // then on nothing uses the address. NULL: only exportMemory()'s can be imported, for good.
  adsmError_t (*handleOf)(void* address, unsigned char* handle) = nullptr;
  adsmError_t (*releaseImport)(void* address) = nullptr;
  // Copies the part [offset, offset + bytes), in packed order, of one layout to the same part of
  // another, in one pass where the device reaches both sides; done when it returns. Either address
  // is one of this process's device, an import's or the CPU's. The sides do not overlap. NULL: the
  // memory of a message is never the device's.
  adsmError_t (*transfer)(const datatype::Layout& to, void* target, const datatype::Layout& from,
                          const void* source, std::int64_t offset, std::int64_t bytes) = nullptr;
  // Where this process's device has another process's memory that is files, in their order, until
  // releaseImport(). NULL: nowhere.
  adsmError_t (*importFiles)(const DeviceFile* files, int count, void** address) = nullptr;
  // A number that no other device of this host has; 0: unknown. NULL: always unknown.
  std::uint64_t (*identity)() = nullptr;
  // The same as transfer(), but returns when it is submitted; *event stands for it until end(),
  // which waits for it and says how it ended. over(): whether that would not wait. Copies run in
  // the order in which they are begun. NULL: there is only transfer().
  adsmError_t (*begin)(const datatype::Layout& to, void* target, const datatype::Layout& from,
                       const void* source, std::int64_t offset, std::int64_t bytes,
                       void** event) = nullptr;
  bool (*over)(void* event) = nullptr;
  adsmError_t (*end)(void* event) = nullptr;
  // The same as begin() for memory of this process's that nobody changes until the pack is over, to
  // memory of its device's own; ordered with packs alone, so that the copies of begin() do not wait
  // for it. NULL: begin() does it.
  adsmError_t (*beginPack)(const datatype::Layout& to, void* target, const datatype::Layout& from,
                           const void* source, std::int64_t offset, std::int64_t bytes,
                           void** event) = nullptr;
  // An import is of memory of this process's own device, as identity() tells: no link lies between.
  // NULL: that makes no difference.
  void (*importIsLocal)(void* address) = nullptr;
  // Why the thread's last call of one of these has failed. NULL: its error's name has to do.
  const char* (*errorText)() = nullptr;
  // Whole pages of the CPU's memory that this process's device copies to and from at the speed of
  // its bus, until unpin(). *pinned: 0: it has no use for that. NULL: so does none.
  adsmError_t (*pin)(void* memory, std::size_t bytes, int* pinned) = nullptr;
  adsmError_t (*unpin)(void* memory, std::size_t bytes) = nullptr;
  // The same as begin() from one piece of such memory, to that of this process's device. (begin()
  // does not know on which side the device is, if both are one piece.) NULL: begin() does it.
  adsmError_t (*beginUnpack)(const datatype::Layout& to, void* target, const datatype::Layout& from,
                             const void* source, std::int64_t offset, std::int64_t bytes,
                             void** event) = nullptr;
  // NULL: the device has no such kernel.
  const ArrivalFunctions* arrivals = nullptr;

  // Of a call that has just returned that error.
  const char* causeOf(adsmError_t code) const {
    return errorText != nullptr ? errorText() : errorName(code);
  }
  // pin(); false: it is not pinned. (Copies are slower then.)
  bool pins(void* memory, std::size_t bytes) const {
    int pinned = 0;
    if (pin == nullptr) {
      return false;
    }
    if (const adsmError_t code = pin(memory, bytes, &pinned); code != adsmSuccess) {
      log(LogLevel::kInfo, "exchange: {} bytes are not pinned: {}", bytes, causeOf(code));
      return false;
    }
    return pinned != 0;
  }
};

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_DEVICE_FUNCTIONS_H_
