// SPDX-License-Identifier: Apache-2.0
#include "bench/blocks.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "bench/measure.h"
#include "gmac/observe/stats.h"

namespace gmac::bench {
namespace {

void doNothing(const adsmThreadBlock_t*, void**) {}

// The blocks that onSignal may open; a signal handler has no argument of ours.
BareBlocks* armed = nullptr;

[[noreturn]] void failed(const char* call) {
  throw std::runtime_error(fmt::format("{}: {}", call, std::strerror(errno)));
}

}  // namespace

void writeEach(std::byte* first, std::size_t blockBytes, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    *static_cast<volatile std::byte*>(first + i * blockBytes) = std::byte{1};
  }
}

SharedBlocks::SharedBlocks(std::size_t blockBytes, std::size_t total, std::size_t count)
    : blockBytes_(blockBytes), count_(count), object_(checkedAlloc(blockBytes * total)) {
  // Blocks of whole chunks would be better still, but the middle is what an index by halves finds
  // last.
  first_ = static_cast<std::byte*>(object_) + (total - count) / 2 * blockBytes;
  kernel_ = makeKernel("nothing", {}, &doNothing);
  std::memset(first_, 1, blockBytes * count);
}

SharedBlocks::~SharedBlocks() {
  (void)adsmKernelDestroy(kernel_);
  (void)adsmFree(object_);
}

void SharedBlocks::close() {
  const adsmUse_t use{object_, adsmRead};
  check(adsmCallUsing(kernel_, {1, 1, 1}, {1, 1, 1}, 0, nullptr, &use, 1), "adsmCallUsing");
  check(adsmSync(), "adsmSync");
}

void SharedBlocks::dirty() { writeEach(first_, blockBytes_, count_); }

void SharedBlocks::writeUnchecked() { writeEach(first_, blockBytes_, count_); }

double SharedBlocks::write() {
  const std::uint64_t faultsBefore = stats().writeFaults.value();
  const std::uint64_t evictionsBefore = stats().evictions.value();
  const Stopwatch watch;
  writeEach(first_, blockBytes_, count_);
  const double seconds = watch.seconds();
  const std::uint64_t faults = stats().writeFaults.value() - faultsBefore;
  const std::uint64_t evictions = stats().evictions.value() - evictionsBefore;
  if (faults != count_ || evictions != 0) {
    throw std::runtime_error(fmt::format("{} measured writes were {} faults and {} evictions",
                                         count_, faults, evictions));
  }
  return seconds;
}

BareBlocks::BareBlocks(std::size_t blockBytes, std::size_t count, Memory memory)
    : blockBytes_(blockBytes), count_(count) {
  const std::size_t bytes = blockBytes * count;
  int fd = -1;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (memory == Memory::kFile) {
    fd = memfd_create("bare", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      failed("memfd_create");
    }
    flags = MAP_SHARED;
  }
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (fd >= 0) {
    ::close(fd);
  }
  if (mapped == MAP_FAILED) {
    failed("mmap");
  }
  // A huge page is split by the first change of protection inside it, so the choice must be
  // explicit.
  (void)madvise(mapped, bytes, memory == Memory::kHugePages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  first_ = static_cast<std::byte*>(mapped);
  std::memset(first_, 1, bytes);
}

BareBlocks::~BareBlocks() { munmap(first_, blockBytes_ * count_); }

void BareBlocks::close() {
  if (mprotect(first_, blockBytes_ * count_, PROT_READ) != 0) {
    failed("mprotect");
  }
}

double BareBlocks::write(std::size_t threads) {
  struct sigaction ours = {};
  struct sigaction before = {};
  ours.sa_sigaction = &BareBlocks::onSignal;
  ours.sa_flags = SA_SIGINFO;
  armed = this;
  if (sigaction(SIGSEGV, &ours, &before) != 0) {
    failed("sigaction");
  }
  const std::size_t each = count_ / threads;
  const double seconds = secondsInThreads(threads, [&](std::size_t i) {
    writeEach(first_ + i * each * blockBytes_, blockBytes_, each);
  });
  (void)sigaction(SIGSEGV, &before, nullptr);
  armed = nullptr;
  return seconds;
}

void BareBlocks::onSignal(int, siginfo_t* info, void*) {
  const auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(info->si_addr) - armed->first_);
  if (offset >= armed->blockBytes_ * armed->count_ ||
      mprotect(armed->first_ + offset / armed->blockBytes_ * armed->blockBytes_, armed->blockBytes_,
               PROT_READ | PROT_WRITE) != 0) {
    (void)std::signal(SIGSEGV, SIG_DFL);  // not ours: the repeated access ends the process
  }
}

}  // namespace gmac::bench
