// SPDX-License-Identifier: Apache-2.0
//
// A device of the tests' own, in each process: the CPU dies where it touches its memory, which is a
// memory file that has pages at another address. Each of its functions can be made to fail, to kill
// the process or to stop it.
#ifndef GMAC_TESTS_EXCHANGE_DEVICE_H_
#define GMAC_TESTS_EXCHANGE_DEVICE_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "gmac/base/status.h"
#include "gmac/datatype/cpu/transfer.h"
#include "tests/exchange/team.h"

namespace gmac::testing {

// The failure, or end of the process, in the call of a device's function with that number, from 1.
struct DeviceBlow {
  enum class How { kNone, kFails, kKilled, kStopped };
  How how = How::kNone;
  int call = 0;
};
inline DeviceBlow deviceBlow;
inline int deviceCalls = 0;  // since deviceBlow was set

// Whether the call is to fail.
inline bool blowFalls() {
  if (++deviceCalls != deviceBlow.call) return false;
  switch (deviceBlow.how) {
    case DeviceBlow::How::kNone:
      return false;
    case DeviceBlow::How::kFails:
      return true;
    case DeviceBlow::How::kKilled:
      ::raise(SIGKILL);
      return false;
    case DeviceBlow::How::kStopped:
      ::raise(SIGSTOP);
      return false;
  }
  return false;
}

struct DeviceMemoryHandle {
  std::size_t bytes;
  int process;
  int file;
};

// Addresses that nobody may touch, and where the memory behind them is.
struct DeviceWindow {
  std::byte* address;
  std::size_t bytes;
  std::byte* memory;
  DeviceMemoryHandle handle;
};

inline std::vector<DeviceWindow> deviceWindows;
inline bool refusesImports = false;
inline adsmError_t transferError = adsmSuccess;
inline int transfers = 0;
inline std::function<void()> inTransfer;

inline DeviceWindow& addWindow(const DeviceMemoryHandle& handle, int file) {
  void* const address =
      ::mmap(nullptr, handle.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* const memory = ::mmap(nullptr, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  CHECK_THAT(address != MAP_FAILED && memory != MAP_FAILED);
  deviceWindows.push_back(
      {static_cast<std::byte*>(address), handle.bytes, static_cast<std::byte*>(memory), handle});
  return deviceWindows.back();
}

// Where the memory at an address of the device's is; what is none stays.
inline std::byte* behind(const void* address) {
  auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
  for (const DeviceWindow& window : deviceWindows) {
    if (at >= window.address && at < window.address + window.bytes) {
      return window.memory + (at - window.address);
    }
  }
  return at;
}

inline std::byte* allocate(std::size_t bytes) {
  const int file = ::memfd_create("device", MFD_CLOEXEC);
  CHECK_THAT(::ftruncate(file, static_cast<off_t>(bytes)) == 0);
  return addWindow({bytes, ::getpid(), file}, file).address;
}

// The functions that exchange::DeviceFunctions names.
namespace device {

inline adsmError_t refuse(const char* why) { return fail(adsmErrorNotSupported, "{}", why).code(); }

inline adsmError_t find(void* address, unsigned char* handle) {
  for (const DeviceWindow& window : deviceWindows) {
    if (window.address == address) {
      std::memcpy(handle, &window.handle, sizeof window.handle);
      return adsmSuccess;
    }
  }
  return fail(adsmErrorInvalidValue, "no allocation starts there").code();
}

inline adsmError_t handleOf(void* address, unsigned char* handle) {
  return blowFalls() ? refuse("there is no handle") : find(address, handle);
}

inline adsmError_t exportMemory(std::size_t bytes, void** address, unsigned char* handle) {
  if (blowFalls()) {
    return refuse("nothing is exported");
  }
  *address = allocate(bytes);
  return find(*address, handle);
}

inline adsmError_t importMemory(const unsigned char* handle, void** address) {
  if (blowFalls() || refusesImports) {
    return refuse("the device is out of reach");
  }
  DeviceMemoryHandle given;
  std::memcpy(&given, handle, sizeof given);
  const std::string path =
      "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    return refuse("the owner has ended");
  }
  *address = addWindow(given, file).address;
  ::close(file);
  return adsmSuccess;
}

inline adsmError_t releaseImport(void* address) {
  if (blowFalls()) {
    return refuse("the import stays");
  }
  for (auto window = deviceWindows.begin(); window != deviceWindows.end(); ++window) {
    if (window->address == address) {
      ::munmap(window->memory, window->bytes);
      ::munmap(window->address, window->bytes);
      deviceWindows.erase(window);
      return adsmSuccess;
    }
  }
  return adsmErrorInvalidValue;
}

inline adsmError_t copyTo(void* device, const void* from, std::size_t bytes) {
  if (blowFalls()) {
    return refuse("the copy to the device");
  }
  std::memcpy(behind(device), from, bytes);
  return adsmSuccess;
}

inline adsmError_t copyFrom(void* to, const void* device, std::size_t bytes) {
  if (blowFalls()) {
    return refuse("the copy from the device");
  }
  std::memcpy(to, behind(device), bytes);
  return adsmSuccess;
}

inline adsmError_t transfer(const datatype::Layout& to, void* target, const datatype::Layout& from,
                            const void* source, std::int64_t offset, std::int64_t bytes) {
  ++transfers;
  if (blowFalls()) {
    return refuse("the kernel");
  }
  if (transferError != adsmSuccess) {
    return fail(transferError, "the device has its reasons").code();
  }
  datatype::transfer(to, behind(target), from, behind(source), offset, bytes);
  if (inTransfer) {
    inTransfer();
  }
  return adsmSuccess;
}

// Copies that are begun are made in the order of their queue, when they are waited for or were
// asked about `asksBeforeOver` times.
struct LaterCopy;
using Queue = std::deque<LaterCopy*>;
struct LaterCopy {
  std::function<adsmError_t()> make;
  Queue& queue;
  int asks;
  adsmError_t result = adsmSuccess;
};
inline Queue laterCopies;
inline Queue laterPacks;
inline int asksBeforeOver = 0;
inline int copiesBegun = 0;
inline int packsBegun = 0;
inline int unpacksBegun = 0;

inline int arrivalsUnderWay = 0;

inline bool nothingIsLater() {
  return laterCopies.empty() && laterPacks.empty() && arrivalsUnderWay == 0;
}

inline adsmError_t beginIn(Queue& queue, const datatype::Layout& to, void* target,
                           const datatype::Layout& from, const void* source, std::int64_t offset,
                           std::int64_t bytes, void** event) {
  if (transferError != adsmSuccess) {
    return fail(transferError, "the device has its reasons").code();
  }
  auto* const copy = new LaterCopy{
      [=] { return transfer(to, target, from, source, offset, bytes); }, queue, asksBeforeOver};
  queue.push_back(copy);
  *event = copy;
  return adsmSuccess;
}
inline adsmError_t begin(const datatype::Layout& to, void* target, const datatype::Layout& from,
                         const void* source, std::int64_t offset, std::int64_t bytes,
                         void** event) {
  ++copiesBegun;
  return beginIn(laterCopies, to, target, from, source, offset, bytes, event);
}
inline adsmError_t beginPack(const datatype::Layout& to, void* target, const datatype::Layout& from,
                             const void* source, std::int64_t offset, std::int64_t bytes,
                             void** event) {
  ++packsBegun;
  return beginIn(laterPacks, to, target, from, source, offset, bytes, event);
}
inline adsmError_t beginUnpack(const datatype::Layout& to, void* target,
                               const datatype::Layout& from, const void* source,
                               std::int64_t offset, std::int64_t bytes, void** event) {
  ++unpacksBegun;
  return beginIn(laterCopies, to, target, from, source, offset, bytes, event);
}
inline void makeUpTo(const LaterCopy* last) {
  Queue& queue = last->queue;
  while (std::find(queue.begin(), queue.end(), last) != queue.end()) {
    LaterCopy* const next = queue.front();
    queue.pop_front();
    next->result = next->make();
  }
}
inline bool over(void* event) {
  auto* const copy = static_cast<LaterCopy*>(event);
  const Queue& queue = copy->queue;
  if (!queue.empty() && (copy->asks-- > 0 || queue.front()->asks > 0)) {
    return false;
  }
  makeUpTo(copy);
  return true;
}
inline adsmError_t end(void* event) {
  const std::unique_ptr<LaterCopy> copy(static_cast<LaterCopy*>(event));
  makeUpTo(copy.get());
  return copy->result;
}

// A kernel that unpacks what arrives: a fragment in each call that tells of some. It ends by itself
// after `arrivalEndsAfter` fragments, or when it hears of none for `arrivalPatience`, and has ended
// when that was asked `asksBeforeOver` times.
struct Arrival {
  datatype::Layout to;
  void* target;
  std::int64_t bytes;
  const std::byte* ring;
  std::int64_t fragmentBytes;
  std::int64_t slots;
  int asks;
  std::int64_t there = 0;
  std::int64_t unpacked = 0;
  bool noMore = false;
  std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
};
inline std::chrono::milliseconds arrivalPatience{2};
inline constexpr std::int64_t kNever = std::int64_t{1} << 40;
inline std::int64_t arrivalEndsAfter = kNever;
inline adsmError_t arrivalError = adsmSuccess;  // of its beginning
inline adsmError_t arrivalEndError = adsmSuccess;
inline int arrivalsBegun = 0;

inline adsmError_t beginArrival(const datatype::Layout& to, void* target, std::int64_t bytes,
                                const void* ring, std::int64_t fragmentBytes, int slots,
                                void** arrival) {
  if (blowFalls()) {
    return refuse("the kernel of what arrives");
  }
  if (arrivalError != adsmSuccess) {
    return fail(arrivalError, "the device has its reasons").code();
  }
  ++arrivalsBegun;
  ++arrivalsUnderWay;
  *arrival = new Arrival{
      to, target, bytes, static_cast<const std::byte*>(ring), fragmentBytes, slots, asksBeforeOver};
  return adsmSuccess;
}
inline bool unpackOne(Arrival& arrival) {
  const std::int64_t first = arrival.unpacked * arrival.fragmentBytes;
  if (arrival.unpacked == std::min(arrival.there, arrivalEndsAfter) || first >= arrival.bytes) {
    return false;
  }
  const std::int64_t bytes = std::min(arrival.fragmentBytes, arrival.bytes - first);
  const std::byte* const slot =
      behind(arrival.ring) + arrival.unpacked % arrival.slots * arrival.fragmentBytes;
  const datatype::Layout line = *datatype::Layout::make({}, {{-first, arrival.bytes}});
  datatype::transfer(arrival.to, behind(arrival.target), line, slot, first, bytes);
  ++arrival.unpacked;
  return true;
}
inline std::int64_t arrived(void* arrival, std::int64_t fragments) {
  auto& kernel = *static_cast<Arrival*>(arrival);
  // Else it would unpack what is not there, or what it has not unpacked would be lost.
  CHECK_THAT(fragments >= kernel.there && fragments <= kernel.unpacked + kernel.slots);
  if (fragments != kernel.there) kernel.heard = std::chrono::steady_clock::now();
  kernel.there = fragments;
  (void)unpackOne(kernel);
  return kernel.unpacked;
}
inline int arrivalsToldToEnd = 0;
inline void noMoreArrives(void* arrival) {
  static_cast<Arrival*>(arrival)->noMore = true;
  ++arrivalsToldToEnd;
}
inline bool arrivalIsOver(void* arrival) {
  auto& kernel = *static_cast<Arrival*>(arrival);
  const bool hearsNothing = std::chrono::steady_clock::now() - kernel.heard > arrivalPatience;
  return (kernel.unpacked * kernel.fragmentBytes >= kernel.bytes ||
          kernel.unpacked == arrivalEndsAfter || hearsNothing ||
          (kernel.noMore && kernel.unpacked == kernel.there)) &&
         kernel.asks-- <= 0;
}
inline adsmError_t endArrival(void* arrival, std::int64_t* fragments) {
  const std::unique_ptr<Arrival> kernel(static_cast<Arrival*>(arrival));
  --arrivalsUnderWay;
  while (unpackOne(*kernel)) {
  }
  *fragments = kernel->unpacked;
  if (blowFalls()) {
    return refuse("the end of what arrives");
  }
  return arrivalEndError == adsmSuccess ? adsmSuccess
                                        : fail(arrivalEndError, "the kernel has crashed").code();
}

// Ranges that are pinned, by their starts.
inline std::map<void*, std::size_t> pinnedRanges;
inline int pinsMade = 0;

// (What is not writable is not pinned: a driver dies here.)
inline adsmError_t pin(void* memory, std::size_t bytes, int* pinned) {
  *pinned = 0;
  if (blowFalls()) {
    return refuse("the pages");
  }
  for (std::size_t at = 0; at < bytes; at += 4096) {
    std::atomic_ref(static_cast<unsigned char*>(memory)[at]).fetch_or(0);
  }
  CHECK_THAT(pinnedRanges.emplace(memory, bytes).second);
  ++pinsMade;
  *pinned = 1;
  return adsmSuccess;
}
inline adsmError_t unpin(void* memory, std::size_t bytes) {
  const auto range = pinnedRanges.find(memory);
  CHECK_THAT(range != pinnedRanges.end() && range->second == bytes);
  pinnedRanges.erase(range);
  return adsmSuccess;
}

}  // namespace device

// (However busy the machine is, the sender has its time.)
inline constexpr exchange::ArrivalFunctions kArrivals{
    &device::beginArrival, &device::arrived, &device::noMoreArrives, &device::arrivalIsOver,
    &device::endArrival,   device::kNever,   device::kNever};
inline constexpr exchange::DeviceFunctions kDevice{&device::exportMemory,
                                                   &device::importMemory,
                                                   &device::copyTo,
                                                   &device::copyFrom,
                                                   &device::handleOf,
                                                   &device::releaseImport,
                                                   &device::transfer,
                                                   nullptr,
                                                   nullptr,
                                                   &device::begin,
                                                   &device::over,
                                                   &device::end,
                                                   &device::beginPack,
                                                   nullptr,
                                                   &lastErrorText,
                                                   &device::pin,
                                                   &device::unpin,
                                                   &device::beginUnpack,
                                                   &kArrivals};
// One that copies no messages.
inline constexpr exchange::DeviceFunctions kOldDevice{
    &device::exportMemory, &device::importMemory, &device::copyTo,
    &device::copyFrom,     &device::handleOf,     &device::releaseImport};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_EXCHANGE_DEVICE_H_
