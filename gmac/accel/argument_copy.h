// SPDX-License-Identifier: Apache-2.0
//
// A kernel's arguments, taken out of the application's memory before a lock is taken or a driver is
// entered: reading them may fault, and the fault handler needs both.
#ifndef GMAC_ACCEL_ARGUMENT_COPY_H_
#define GMAC_ACCEL_ARGUMENT_COPY_H_

#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "gmac/base/round_up.h"

namespace gmac::accel {

// Each at an offset that suits any type. Allocates where there are more than 64, or more than 1 KiB
// of them.
class ArgumentCopy {
 public:
  ArgumentCopy(std::span<const std::size_t> sizes, void* const* args) {
    constexpr std::size_t kUnit = alignof(std::max_align_t);
    std::size_t total = 0;
    for (const std::size_t size : sizes) total += roundUp(size, kUnit);
    std::byte* to = inline_;
    if (total > sizeof inline_) {
      heap_ = std::make_unique<std::max_align_t[]>(total / kUnit);
      to = reinterpret_cast<std::byte*>(heap_.get());
    }
    if (sizes.size() > std::size(inlinePointers_)) {
      heapPointers_.resize(sizes.size());
      pointers_ = heapPointers_.data();
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::memcpy(to, args[i], sizes[i]);
      pointers_[i] = to;
      to += roundUp(sizes[i], kUnit);
    }
  }
  ArgumentCopy(const ArgumentCopy&) = delete;
  ArgumentCopy& operator=(const ArgumentCopy&) = delete;

  void** get() { return pointers_; }

 private:
  alignas(std::max_align_t) std::byte inline_[1024];
  void* inlinePointers_[64];
  std::unique_ptr<std::max_align_t[]> heap_;
  std::vector<void*> heapPointers_;
  void** pointers_ = inlinePointers_;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_ARGUMENT_COPY_H_
