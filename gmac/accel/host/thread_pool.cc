// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/thread_pool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "gmac/accel/host/device_thread.h"

namespace gmac::accel::host {
namespace {

constexpr std::size_t kScratchAlignment = 64;
// Batches per thread: enough that threads which got short blocks take over the rest of those which
// got long ones.
constexpr std::uint64_t kBatchesPerThread = 16;

}  // namespace

void ThreadPool::Scratch::Free::operator()(void* memory) const { std::free(memory); }

void* ThreadPool::Scratch::ofAtLeast(std::size_t bytes) {
  // A kernel without scratch still gets an address that it may compare or round.
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kScratchAlignment - 1) /
                              kScratchAlignment * kScratchAlignment;
  if (rounded > bytes_) {
    memory_.reset(std::aligned_alloc(kScratchAlignment, rounded));
    bytes_ = memory_ ? rounded : 0;
  }
  return memory_.get();
}

void ThreadPool::start(void (*prepareThread)()) {
  for (unsigned i = 1; i < threads_; ++i) {
    const int error = startDeviceThread([this, prepareThread] {
      prepareThread();
      workerMain();
    });
    if (error != 0) {
      throw std::runtime_error(
          fmt::format("its thread {} of {} cannot be started: {} (GMAC_HOST_THREADS sets their "
                      "number; ulimit -v and ulimit -u limit it)",
                      i + 1, threads_, strerrordesc_np(error)));
    }
  }
}

template <typename... Args>
void ThreadPool::abandon(fmt::format_string<Args...> format, Args&&... args) noexcept {
  next_.store(blocks_, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  if (!failed_) {
    const auto end =
        fmt::format_to_n(failure_.data(), failure_.size() - 1, format, std::forward<Args>(args)...);
    *end.out = '\0';
    failed_ = true;
  }
}

const char* ThreadPool::run(const Launch& launch) noexcept {
  launch_ = launch;
  blocks_ = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  batch_ = std::max<std::uint64_t>(blocks_ / (threads_ * kBatchesPerThread), 1);
  next_.store(0, std::memory_order_relaxed);

  const std::uint64_t batches = (blocks_ + batch_ - 1) / batch_;
  const auto helpers = static_cast<unsigned>(std::min<std::uint64_t>(batches, threads_) - 1);
  {
    std::lock_guard lock(mutex_);
    failed_ = false;
    vacancies_ = helpers;
  }
  if (helpers == 1) {
    wanted_.notify_one();
  } else if (helpers > 1) {
    wanted_.notify_all();
  }

  takePart(ownScratch_);

  std::unique_lock lock(mutex_);
  // Who has not woken up by now would find nothing to do.
  vacancies_ = 0;
  idle_.wait(lock, [this] { return working_ == 0; });
  return failed_ ? failure_.data() : nullptr;
}

void ThreadPool::workerMain() {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [this] { return vacancies_ != 0; });
    --vacancies_;
    ++working_;
    lock.unlock();
    takePart(scratch);
    lock.lock();
    if (--working_ == 0) {
      idle_.notify_one();
    }
  }
}

void ThreadPool::takePart(Scratch& scratch) {
  void* const shared = scratch.ofAtLeast(launch_.sharedBytes);
  if (shared == nullptr) {
    abandon("has no memory for its {} bytes of shared scratch", launch_.sharedBytes);
    return;
  }
  try {
    while (true) {
      const std::uint64_t first = next_.fetch_add(batch_, std::memory_order_relaxed);
      if (first >= blocks_) {
        return;
      }
      runBatch(launch_, first, std::min(first + batch_, blocks_), shared);
    }
  } catch (const std::exception& exception) {
    abandon("threw: {}", exception.what());
  } catch (...) {
    abandon("threw something that is no std::exception");
  }
}

void ThreadPool::runBatch(const Launch& launch, std::uint64_t first, std::uint64_t last,
                          void* shared) {
  const std::uint64_t row = launch.grid.x;
  const std::uint64_t plane = row * launch.grid.y;
  adsmThreadBlock_t block{
      launch.grid,
      launch.block,
      {static_cast<unsigned>(first % row), static_cast<unsigned>(first % plane / row),
       static_cast<unsigned>(first / plane)},
      shared,
      launch.sharedBytes};
  for (std::uint64_t i = first; i < last; ++i) {
    // A copy, so that a kernel that changes its block description confuses itself only.
    const adsmThreadBlock_t given = block;
    launch.kernel(&given, launch.args);
    if (++block.blockIdx.x == launch.grid.x) {
      block.blockIdx.x = 0;
      if (++block.blockIdx.y == launch.grid.y) {
        block.blockIdx.y = 0;
        ++block.blockIdx.z;
      }
    }
  }
}

}  // namespace gmac::accel::host
