// SPDX-License-Identifier: Apache-2.0
#include "mpi/staging_memory.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <vector>

#include "gmac/base/memory_limit.h"

namespace gmac::mpi {
namespace {

constexpr std::size_t kPage = 4096;  // at least; what is pinned is a multiple of any page's size

// Ranges of kLeastRoom bytes that a thread has freed: most messages need no more, and no lock.
// (Constant initialisation, and a destructor elsewhere: reading it takes no call.)
struct OfThread {
  static constexpr unsigned kMost = 16;
  std::array<std::byte*, kMost> free;
  unsigned count;
  bool ends;  // the thread frees nothing here any more
};
constinit thread_local OfThread ofThread __attribute__((tls_model("initial-exec"))) = {};

// Frees them when the thread ends.
struct EndOfThread {
  bool begun = false;
  ~EndOfThread() {
    ofThread.ends = true;
    while (ofThread.count > 0) std::free(ofThread.free[--ofThread.count]);
  }
};
thread_local EndOfThread endOfThread;

bool keepInThread(std::byte* data) {
  if (ofThread.ends || ofThread.count == OfThread::kMost) {
    return false;
  }
  if (ofThread.count == 0) endOfThread.begun = true;
  ofThread.free[ofThread.count++] = data;
  return true;
}

}  // namespace

// Freed ranges by the logarithm of their size, which is a power of two; of each size, the one that
// was freed first comes first.
struct StagingMemory::Kept {
  struct Freed {
    Range range;
    std::uint64_t number;  // counts
  };
  std::mutex lock;
  std::array<std::deque<Freed>, 64> free;
  std::size_t bytes = 0;
  std::uint64_t frees = 0;

  std::deque<Freed>& listOf(std::size_t room) {
    return free[static_cast<std::size_t>(std::countr_zero(room))];
  }
  // There is one.
  Range takeOldest() {
    std::deque<Freed>* oldest = nullptr;
    for (std::deque<Freed>& list : free) {
      if (!list.empty() && (oldest == nullptr || list.front().number < oldest->front().number)) {
        oldest = &list;
      }
    }
    const Range range = oldest->front().range;
    oldest->pop_front();
    bytes -= range.room;
    return range;
  }
};

LargeRanges& StagingMemory::largeRanges() {
  static auto* const ranges = new LargeRanges(usableMemory() / 8);  // also for exit handlers
  return *ranges;
}

StagingMemory::Kept& StagingMemory::kept() {
  static auto* const kept = new Kept;  // also for exit handlers
  return *kept;
}

StagingMemory::StagingMemory(std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 62;
  if (bytes > kMost) {
    return;
  }
  const std::size_t room = bytes <= kLeastRoom ? kLeastRoom : std::bit_ceil(bytes);
  if (room == kLeastRoom && ofThread.count > 0) {
    range_ = {.data = ofThread.free[--ofThread.count], .room = room, .again = true};
    return;
  }
  if (room > kLongest) {
    const LargeRanges::Range range = largeRanges().take(bytes);
    range_ = {.data = range.data, .room = range.bytes};
    return;
  }
  Kept& all = kept();
  {
    const std::lock_guard guard(all.lock);
    std::deque<Kept::Freed>& list = all.listOf(room);
    if (!list.empty()) {
      range_ = list.back().range;
      range_.again = true;
      list.pop_back();
      all.bytes -= room;
      return;
    }
  }
  // Pages come when they are touched. (A message that the receiver's kernel copies, as Open MPI
  // does from 4 KiB on, is in as few of them as it can be.)
  range_ = {.data = static_cast<std::byte*>(std::aligned_alloc(kPage, room)), .room = room};
}

StagingMemory::~StagingMemory() {
  if (range_.data == nullptr) {
    return;
  }
  if (range_.room > kLongest) {
    largeRanges().free({range_.data, range_.room});
    return;
  }
  if (range_.room == kLeastRoom && keepInThread(range_.data)) {
    return;
  }
  Kept& all = kept();
  std::vector<Range> excess;
  {
    const std::lock_guard guard(all.lock);
    all.listOf(range_.room).push_back({range_, ++all.frees});
    all.bytes += range_.room;
    while (all.bytes > kKeptBytes) {
      excess.push_back(all.takeOldest());
    }
  }
  for (const Range& range : excess) {
    giveBack(range);
  }
}

void StagingMemory::giveBack(const Range& range) {
  if (range.pinning != nullptr) {
    range.pinning->unpin(range.data, range.room);
  }
  std::free(range.data);
}

void StagingMemory::pin(const Pinning& pinning) {
  if (!range_.again || range_.pinning != nullptr || range_.refused || range_.room < kLeastPinned) {
    return;
  }
  range_.refused = !pinning.pin(range_.data, range_.room);
  range_.pinning = range_.refused ? nullptr : &pinning;
}

}  // namespace gmac::mpi
