// SPDX-License-Identifier: Apache-2.0
//
// The choices that CoherentMemory and its parts get when they are made. Apart from their classes,
// so that whoever makes it does not compile what it is composed of.
#ifndef GMAC_COHERENCE_OPTIONS_H_
#define GMAC_COHERENCE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

namespace gmac {

// See policies/spilling.h.
struct SpillOptions {
  bool allowed = true;                            // else an allocation that does not fit fails
  std::size_t leastBytes = std::size_t{2} << 20;  // smaller objects are not worth their move
};

// See zero_copy_policy.h.
struct ZeroCopyLimits {
  std::uint32_t leastRounds = 32;
  std::uint64_t longest = 300'000;  // nanoseconds
  std::uint64_t each = 60'000;      // nanoseconds; more than what an object's own copies take
  std::uint64_t slack = 20'000;     // nanoseconds
  std::uint64_t moves = 2'000'000;  // nanoseconds; what one to the CPU and one back take
  // More bytes need more rounds: a kernel may read these again and again.
  std::size_t few = std::size_t{64} << 10;
};

// See prompt_waits.h.
struct PromptWaitLimits {
  std::uint32_t leastRounds = 32;
  std::uint64_t soon = 4'000;     // nanoseconds
  std::uint64_t slice = 200'000;  // nanoseconds that another process's kernels take now and then
};

// See policies/zero_copy.h.
struct ZeroCopyOptions {
  bool allowed = true;
  // A kernel can read all of a larger object over the bus: that is too much to try.
  std::size_t mostBytes = std::size_t{2} << 20;
  // Of that, pages move (policies/hot_pages.h): of what size, at such multiples in the object.
  std::size_t pageBytes = std::size_t{2} << 20;
  ZeroCopyLimits limits;
  PromptWaitLimits prompt;
};

// See policies/scheduling.h.
enum class SchedulingRule : std::uint8_t {
  kCurrent,  // device 0
  kData,     // where most bytes of what the call uses are current
  kHistory,  // where it is predicted to end first
};

struct CoherenceOptions {
  std::size_t blockBytes = std::size_t{2} << 20;  // a power of two, at least a page
  std::size_t readAheadBytes = std::size_t{8}
                               << 20;  // the most that one read fault fetches; 0: one block
  std::size_t windowBytes = std::size_t{64}
                            << 10;  // of a block that is open in part, whole pages; 0: none is
  bool opensNeighbours = true;      // of small blocks; see dense_use.h
  bool opensPages = true;           // of windows and small blocks; see window_policy.h
  std::uint32_t splitAfter = 4;     // see split_policy.h; 0: no blocks are split
  // Where the accelerator's bytes are known to be zero, the most that the CPU clears in place of
  // copying them.
  std::size_t mostClearedBytes = SIZE_MAX;
  std::size_t chunkBytes = std::size_t{8} << 20;  // pages are populated and pinned in such pieces
  bool populateAhead = true;                      // by a thread of its own (moved pages)
  bool fetchInBackground = true;                  // what startFetch asks for
  bool movedPages = false;                        // mirrors of moved pages instead of memory files
  SpillOptions spill;                             // what becomes of objects that do not fit
  ZeroCopyOptions zeroCopy;                       // which objects get one copy
  SchedulingRule scheduling{};                    // of calls that name no device
  std::size_t keptBytes = 0;  // memory of freed objects that is kept (object_pool.h)
  bool managed = false;       // CUDA's managed-memory calls give shared objects
  bool trustHints = false;    // a managed-memory program's hints are promises
  // Nanoseconds that accesses of the CPU take before launches list their objects; see
  // listing_policy.h.
  std::uint64_t listingWorth = 5'000'000;
  std::size_t ioThreads = 1;     // the most for one transfer between a file and objects
  std::size_t mappingLimit = 0;  // of the process; 0: the kernel's
  // Nanoseconds that never go back, for policies and not for limits; none: the system's.
  std::function<std::uint64_t()> clock;
  unsigned waitLimitSeconds = 0;  // how long one access may wait for running kernels; 0: for ever
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_OPTIONS_H_
