// SPDX-License-Identifier: Apache-2.0
//
// Words of the CPU's memory that the device writes when work ends: a look at one is a load, where a
// question about an event is a call of the driver of more than a microsecond.
#ifndef GMAC_ACCEL_CUDA_END_WORDS_H_
#define GMAC_ACCEL_CUDA_END_WORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gmac/accel/cuda/device_calls.h"

namespace gmac::accel::cuda {

// Thread-safe but for open() and close(); owned by a StreamAccelerator; the fault handler may call
// tell() and read(). Where the device cannot write words, tell() says so.
class EndWords {
 public:
  static constexpr std::size_t kCount = 4;  // one for each queue of the accelerator's own

  EndWords() = default;
  ~EndWords();
  EndWords(const EndWords&) = delete;
  EndWords& operator=(const EndWords&) = delete;

  // Lets the device of a layer reach them, in its context, until close().
  void open(DeviceCalls& calls) noexcept;
  // `written`: whether the device has written all that it was told to; if not, it goes on reaching
  // the pages, which are not used again.
  void close(DeviceCalls& calls, bool written) noexcept;

  // A word gets the value when all that the stream holds so far has ended without an error. Whether
  // that has been submitted.
  bool tell(DeviceCalls& calls, Stream stream, std::size_t word, std::uint64_t value) noexcept;
  // What the work wrote before that is seen after this.
  std::uint64_t read(std::size_t word) const noexcept {
    return words_ == nullptr ? 0 : words_[word].value.load(std::memory_order_acquire);
  }

 private:
  // A cache line for each: what the device writes, a processor has to fetch again.
  struct alignas(64) Word {
    std::atomic<std::uint64_t> value;
  };
  static std::size_t bytes() noexcept;

  Word* words_ = nullptr;                  // pages of their own
  std::atomic<std::uintptr_t> device_{0};  // their address there; 0: it does not reach them
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_END_WORDS_H_
