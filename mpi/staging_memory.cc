// SPDX-License-Identifier: Apache-2.0
#include "mpi/staging_memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace gmac::mpi {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLeastRoom = 4096;

// Freed ranges by the logarithm of their size, which is a power of two.
struct Kept {
  std::mutex lock;
  std::array<std::vector<std::byte*>, 64> free;
  std::size_t bytes = 0;
};
Kept& kept() {
  static auto* const kept = new Kept;  // also for exit handlers
  return *kept;
}

std::vector<std::byte*>& listOf(Kept& all, std::size_t room) {
  return all.free[static_cast<std::size_t>(std::countr_zero(room))];
}

}  // namespace

StagingMemory::StagingMemory(std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 62;
  if (bytes > kMost) {
    return;
  }
  room_ = std::bit_ceil(std::max(bytes, kLeastRoom));
  Kept& all = kept();
  {
    const std::lock_guard guard(all.lock);
    std::vector<std::byte*>& list = listOf(all, room_);
    if (!list.empty()) {
      data_ = list.back();
      list.pop_back();
      all.bytes -= room_;
      return;
    }
  }
  // What is too long to be kept is no longer than asked for. Pages come when they are touched.
  const std::size_t size =
      room_ > kKeptBytes ? (bytes + kAlignment - 1) / kAlignment * kAlignment : room_;
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
}

StagingMemory::~StagingMemory() {
  if (data_ == nullptr) {
    return;
  }
  Kept& all = kept();
  {
    const std::lock_guard guard(all.lock);
    if (room_ <= kKeptBytes - all.bytes) {
      listOf(all, room_).push_back(data_);
      all.bytes += room_;
      return;
    }
  }
  std::free(data_);
}

}  // namespace gmac::mpi
