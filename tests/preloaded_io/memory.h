// SPDX-License-Identifier: Apache-2.0
//
// Plain and shared memory with the same bytes, for the same call on either.
#ifndef GMAC_TESTS_PRELOADED_IO_MEMORY_H_
#define GMAC_TESTS_PRELOADED_IO_MEMORY_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/preloaded_io/program.h"

namespace gmac::testing {

// The memory of one side, on which a call is made. Its first bytes are for what a call is told by
// address (tables, lengths, offsets); all buffers lie after them.
struct Memory {
  static constexpr std::size_t kControlBytes = 64 * 1024;

  unsigned char* at;
  std::size_t bytes;
  std::size_t border;  // where one object ends and the next begins
  bool endsInNothing;  // what follows cannot be accessed
  unsigned char* own;  // plain on both sides, for vectors that mix
  std::size_t ownBytes;
};

// A stretch to give to a call.
struct Span {
  unsigned char* at;
  std::size_t bytes;
};

// Somewhere in a memory's buffers: inside an object, across the border, up to the end, sometimes
// past it.
Span anySpan(Random& random, const Memory& memory, std::size_t most, bool mayLeave = true);

// A vector with such spans, private memory, and nothing, in any order.
std::vector<iovec> anyVector(Random& random, const Memory& memory, std::size_t most,
                             bool mayLeave = true);

// Two objects side by side, and plain memory with the same bytes.
class TwoSides {
 public:
  TwoSides();
  TwoSides(const TwoSides&) = delete;
  TwoSides& operator=(const TwoSides&) = delete;

  const Memory& plain() const { return plain_; }
  const Memory& shared() const { return shared_; }

  // Writes by CPU and kernel, and reads, that leave blocks in any state; the same on plain memory.
  void stir(Random& random);

  // Remembers the plain bytes, and takes back what a call has changed of them after the first
  // `count` bytes of `parts`: the kernel may have begun to write more than it then counts.
  void remember();
  void settle(const std::vector<iovec>& parts, std::size_t count);

  // Empty when the bytes are the same, else what differs; as the CPU sees them, or as a kernel does
  // that gets at them first.
  std::string difference();
  std::string differenceOnAccelerator();

 private:
  std::string firstDifference(const char* who, const unsigned char* seen) const;
  void runKernel(adsmKernel_t kernel, void** arguments);

  std::vector<unsigned char> before_;
  std::vector<unsigned char> own_[2];
  Memory plain_{};
  Memory shared_{};
  unsigned char* seen_ = nullptr;  // a third object, which kernels copy to
  adsmKernel_t fill_ = nullptr;
  adsmKernel_t copy_ = nullptr;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_PRELOADED_IO_MEMORY_H_
