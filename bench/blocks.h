// SPDX-License-Identifier: Apache-2.0
//
// Blocks to write to, one fault each: those of a shared object, and bare ones without any runtime.
#ifndef GMAC_BENCH_BLOCKS_H_
#define GMAC_BENCH_BLOCKS_H_

#include <csignal>
#include <cstddef>
#include <latch>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "gmac/api/adsm.h"

namespace gmac::bench {

// Seconds for `work(i)` in threads 0 <= i < threads that begin at once; in the caller's where there
// is one.
template <typename Work>
double secondsInThreads(std::size_t threads, const Work& work) {
  if (threads == 1) {
    const Stopwatch watch;
    work(0);
    return watch.seconds();
  }
  std::latch ready(static_cast<std::ptrdiff_t>(threads) + 1);
  std::vector<std::jthread> running;
  for (std::size_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      ready.arrive_and_wait();
      work(i);
    });
  }
  ready.arrive_and_wait();
  const Stopwatch watch;
  running.clear();  // joins
  return watch.seconds();
}

// Writes one byte into each of `count` blocks, in order.
void writeEach(std::byte* first, std::size_t blockBytes, std::size_t count);

// A run of blocks inside one shared object that can be made ReadOnly again. Needs the rolling
// protocol with a rolling size that they do not reach. Not thread-safe.
class SharedBlocks {
 public:
  // An object of `total` blocks, of which `count`, in its middle, are used: their pages exist
  // afterwards.
  SharedBlocks(std::size_t blockBytes, std::size_t total, std::size_t count);
  ~SharedBlocks();
  SharedBlocks(const SharedBlocks&) = delete;
  SharedBlocks& operator=(const SharedBlocks&) = delete;

  // Makes every block Dirty, so that close() has something to flush.
  void dirty();
  // A call that only reads the object flushes its blocks and leaves them ReadOnly: the next write
  // to each is one fault.
  void close();
  // Seconds for one write to each block. Throws std::runtime_error when that was not one fault
  // each, or evicted.
  double write();
  // The same writes, neither timed nor checked, for threads with an object each.
  void writeUnchecked();

 private:
  std::size_t blockBytes_;
  std::size_t count_;
  void* object_;
  std::byte* first_;
  adsmKernel_t kernel_ = nullptr;
};

enum class Memory { kFile, kAnonymous, kHugePages };

// Blocks of a plain mapping and the least that a fault can cost: a signal, one mprotect, the
// access again. One at a time per process; not thread-safe.
class BareBlocks {
 public:
  BareBlocks(std::size_t blockBytes, std::size_t count, Memory memory);
  ~BareBlocks();
  BareBlocks(const BareBlocks&) = delete;
  BareBlocks& operator=(const BareBlocks&) = delete;

  void close();
  // Seconds for one write to each block, by as many threads at once, each with blocks of its own
  // (`count` is a multiple of `threads`). The process's SIGSEGV action is this object's meanwhile.
  double write(std::size_t threads = 1);

 private:
  static void onSignal(int signal, siginfo_t* info, void* context);

  std::size_t blockBytes_;
  std::size_t count_;
  std::byte* first_;
};

}  // namespace gmac::bench

#endif  // GMAC_BENCH_BLOCKS_H_
