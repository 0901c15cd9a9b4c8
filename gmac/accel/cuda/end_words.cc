// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/end_words.h"

#include <sys/mman.h>
#include <unistd.h>

#include "gmac/base/round_up.h"

namespace gmac::accel::cuda {

std::size_t EndWords::bytes() noexcept {
  return roundUp(kCount * sizeof(Word), static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

EndWords::~EndWords() {
  if (words_ != nullptr) static_cast<void>(munmap(words_, bytes()));
}

void EndWords::open(DeviceCalls& calls) noexcept {
  if (words_ == nullptr) {
    void* const pages =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return;
    // A child that shared them would leave this process others than the device writes.
    static_cast<void>(madvise(pages, bytes(), MADV_DONTFORK));
    words_ = static_cast<Word*>(pages);
  }
  if (!calls.writesWords() || !calls.registerHost(words_, bytes(), /*everywhere=*/false).ok()) {
    return;
  }
  const Result<std::uintptr_t> address = calls.deviceAddressOf(words_);
  if (address.ok()) {
    device_.store(*address, std::memory_order_relaxed);
  } else {
    static_cast<void>(calls.unregisterHost(words_));
  }
}

void EndWords::close(DeviceCalls& calls, bool written) noexcept {
  if (device_.exchange(0) == 0 || calls.health().lost()) return;
  if (written) {
    static_cast<void>(calls.unregisterHost(words_));
  } else {
    words_ = nullptr;
  }
}

bool EndWords::tell(DeviceCalls& calls, Stream stream, std::size_t word,
                    std::uint64_t value) noexcept {
  const std::uintptr_t device = device_.load(std::memory_order_relaxed);
  return device != 0 &&
         calls.writeWord(device + word * sizeof(Word), value, stream) == kCudaSuccess;
}

}  // namespace gmac::accel::cuda
