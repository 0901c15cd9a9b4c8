// SPDX-License-Identifier: Apache-2.0
//
// The runtime's counters in this process, and the time break-down of the paper's Figure 10.
//
// Counters always count. Time is taken only after startStats(); before that a Timed costs one
// predicted branch. Everything here but startStats() and writeStats() may be used in the fault
// handler: nothing allocates or locks.
#ifndef GMAC_OBSERVE_STATS_H_
#define GMAC_OBSERVE_STATS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gmac/base/status.h"

namespace gmac {

// A number that only grows. Thread-safe; increments by different threads are not ordered with
// anything else.
class Counter {
 public:
  void add(std::uint64_t count = 1) noexcept { value_.fetch_add(count, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// The process's counters, under the names that the statistics file has.
struct Stats {
  Counter bytesToAccelerator;  // by copies of object data, either kind of accelerator
  Counter bytesToHost;
  Counter readFaults;
  Counter writeFaults;
  Counter fetches;          // copies accelerator -> CPU, however many blocks each moved
  Counter readBacks;        // copies accelerator -> CPU behind kernels, ahead of the CPU's reads
  Counter flushes;          // copies CPU -> accelerator, evictions included
  Counter evictions;        // blocks flushed early because the rolling size was exceeded
  Counter evictionsWasted;  // of them, those written again before a call
  Counter calls;            // kernel launches
  Counter syncs;            // waits for kernels
  Counter allocations;      // objects
  Counter frees;
  Counter reusedAllocations;   // that got the memory of freed objects
  Counter driverAllocations;   // managed memory that no device holds, so that it is the driver's
  Counter stripedAllocations;  // whose pages lie on several devices in turn
  Counter windows;             // blocks opened in part
  Counter windowsOutgrown;     // of them, those that were needed as a whole before a call took them
  Counter coarsenings;         // times that blocks were joined because mappings ran out
  Counter splits;              // times that an object's blocks were split
  Counter populatedBytes;      // made ready in the background, ahead of the program
  Counter spills;              // objects that got memory of the CPU's in place of the accelerator's
  Counter spilledBytes;        // of those
  Counter peerSpills;          // objects that got another device's memory in place of theirs
  Counter peerSpilledBytes;    // of those
  Counter broughtBack;         // of both, those that got the memory of their device again
  Counter zeroCopies;          // objects that got one copy, in the CPU's memory
  Counter zeroCopiesEnded;     // of them, those that got two again
  Counter awaitedCalls;        // that waited for their kernel, with such objects left open
  Counter repeatedCalls;       // launches that found everything released by the one before
  Counter listedCalls;         // launches that closed only what their kernels may use
  Counter migrations;          // times that an object moved to another device
  Counter migratedBytes;       // that were copied for it

  static constexpr std::size_t kMaxDevices = 16;
  std::array<Counter, kMaxDevices> deviceCalls;  // of `calls`, by the number of their device
  void called(std::size_t device) noexcept {
    calls.add();
    deviceCalls[device].add();
  }
};

namespace internal {
inline constinit Stats theStats;
inline constinit std::atomic<bool> timing{false};
}  // namespace internal

inline Stats& stats() noexcept { return internal::theStats; }

// Messages and their bytes by the way that they went. Thread-safe; nothing allocates or locks.
class MessageCounts {
 public:
  // Ways that are told apart; the messages of those that come later are counted together.
  static constexpr std::size_t kMaxWays = 32;
  static constexpr const char* kOtherWays = "others";

  // `way` lives as long as the process. One way may have its name at several addresses.
  void add(const char* way, std::uint64_t bytes) noexcept;
  // visit(way, messages, bytes) for each way that had a message, in the order of the first ones.
  template <typename Visit>
  void each(Visit visit) const {
    for (const Entry& entry : entries_) {
      if (const char* const way = entry.way.load(std::memory_order_acquire)) {
        visit(way, entry.messages.value(), entry.bytes.value());
      }
    }
  }

 private:
  struct Entry {
    std::atomic<const char*> way{nullptr};  // set once
    Counter messages;
    Counter bytes;
  };
  Entry& entryOf(const char* way) noexcept;

  std::array<Entry, kMaxWays + 1> entries_;  // the last one: of the others
};

namespace internal {
inline constinit MessageCounts theMessageCounts;
}  // namespace internal

// Of the messages of mpi/.
inline MessageCounts& messageCounts() noexcept { return internal::theMessageCounts; }

// The phases of a thread's time, by the names of Figure 10. `cpu`, the rest, is computed.
enum class Phase : std::uint8_t {
  kCopy,        // waits for, or does, copies between the two memories
  kMalloc,      // adsmAlloc, without what the accelerator takes
  kFree,        // adsmFree, likewise
  kLaunch,      // adsmCall, without what the accelerator takes
  kSync,        // adsmSync, without the waiting for the kernel
  kSignal,      // the fault handler, without the copies that it waits for
  kCudaMalloc,  // the accelerator's own allocation (of any accelerator, as named in the paper)
  kCudaFree,
  kCudaLaunch,
  kGpu,  // waiting for kernels
  kIoRead,
  kIoWrite,
};
inline constexpr std::size_t kPhaseCount = 12;

// Adds the time of its scope to a phase, minus the time of Timed scopes inside it in the same
// thread: phases nest, and no moment counts twice in one thread. For the stack only; scopes of one
// thread end in reverse order, so a fault handler must leave its scope before it passes a fault to
// a handler that may jump away.
class [[nodiscard]] Timed {
 public:
  explicit Timed(Phase phase) noexcept {
    if (internal::timing.load(std::memory_order_relaxed)) [[unlikely]]
      begin(phase);
  }
  ~Timed() {
    if (began_) [[unlikely]]
      end();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  void begin(Phase phase) noexcept;
  void end() noexcept;

  bool began_ = false;
  Phase phase_;
  std::uint64_t since_;  // ns; start of the part of the scope that is not counted yet
  Timed* outer_;
};

// The seconds so far, all threads added up. An open scope counts up to its last inner scope.
double phaseSeconds(Phase phase) noexcept;
// Wall time since the library was loaded, minus the phases of the process's first thread.
double cpuSeconds() noexcept;

// The description of the run in the statistics file, besides counters and times.
struct RunDescription {
  std::string accelerator;
  std::string device;
  std::string protocol;
  std::size_t blockBytes = 0;
  std::string mirror;
  std::size_t devices = 1;
};

// The statistics as JSON.
std::string statsJson(const RunDescription& run);

// Writes statsJson() to a file, which appears whole or not at all. adsmErrorSystem names the path
// and the reason.
Status writeStats(const std::string& path, const RunDescription& run);

// Starts measuring times. Unless `path` is empty, writes the statistics there when the process ends
// (by exit or by returning from main; after the application's own exit handlers; not in children of
// fork). A failure is then logged. Call once, when the runtime starts.
void startStats(const std::string& path, const RunDescription& run);

}  // namespace gmac

#endif  // GMAC_OBSERVE_STATS_H_
