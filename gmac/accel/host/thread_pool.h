// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_ACCEL_HOST_THREAD_POOL_H_
#define GMAC_ACCEL_HOST_THREAD_POOL_H_

#include <fmt/core.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "gmac/api/adsm.h"

namespace gmac::accel::host {

struct Launch {
  adsmHostKernel_t kernel;
  adsmDim_t grid, block;
  std::size_t sharedBytes;
  void** args;
};

// Runs kernels' thread blocks on several threads, dealt out in batches as threads become free. The
// threads live until the process ends. Owned by the device process; run() is for one thread at a
// time, which takes part in the work. Apart from os::Helpers, which serve the application's
// process: these threads run kernels, which may crash and throw, keep scratch memory, and must all
// exist.
class ThreadPool {
 public:
  explicit ThreadPool(unsigned threads) : threads_(threads) {}
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Once, before run(): starts the threads but that of run(), each of which calls `prepareThread`
  // first. Throws std::runtime_error if one cannot be started; those that were use the pool all the
  // same.
  void start(void (*prepareThread)());

  // Runs every block of the launch. An error text if something went wrong: an exception, or no
  // memory for the scratch; the blocks that had not been dealt out by then are skipped. The text
  // is valid until the next call.
  const char* run(const Launch& launch) noexcept;

 private:
  // The shared scratch of one thread, kept from launch to launch.
  class Scratch {
   public:
    void* ofAtLeast(std::size_t bytes);  // aligned to 64; NULL without memory

   private:
    struct Free {
      void operator()(void* memory) const;
    };
    std::unique_ptr<void, Free> memory_;
    std::size_t bytes_ = 0;
  };

  void workerMain();
  void takePart(Scratch& scratch);
  void runBatch(const Launch& launch, std::uint64_t first, std::uint64_t last, void* shared);
  // Keeps the first error's text. Allocates nothing: memory may be what is missing.
  template <typename... Args>
  void abandon(fmt::format_string<Args...> format, Args&&... args) noexcept;

  const unsigned threads_;
  Scratch ownScratch_;  // of the thread that calls run()

  // The launch in progress. Written while no worker is in it.
  Launch launch_{};
  std::uint64_t blocks_ = 0;
  std::uint64_t batch_ = 1;
  alignas(64) std::atomic<std::uint64_t> next_{0};  // first block that nobody has taken

  alignas(64) std::mutex mutex_;  // guards what follows
  std::condition_variable wanted_;
  std::condition_variable idle_;
  unsigned vacancies_ = 0;  // workers that may still join the launch
  unsigned working_ = 0;    // workers that are in it
  bool failed_ = false;
  std::array<char, 512> failure_{};
};

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_THREAD_POOL_H_
