// SPDX-License-Identifier: Apache-2.0
//
// Private memory that a call is given in place of shared bytes, and the copies between the two.
#ifndef GMAC_INTERPOSE_BASE_SCRATCH_H_
#define GMAC_INTERPOSE_BASE_SCRATCH_H_

#include <array>
#include <cstddef>

namespace gmac::interpose {

// Private memory for one call. A small request is served from the object itself, a larger one is
// mapped. Nothing is allocated from the heap, so a signal handler may use it. The kernel makes
// pages when they are touched, so a large request that transfers little costs little. For the stack
// of one thread; released also when the thread is cancelled in the call.
class Scratch {
 public:
  // `mapped`: always map, because the kernel may use the pages after the call.
  explicit Scratch(std::size_t bytes, bool mapped = false);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  // Aligned to a page when mapped, else to 64 bytes; NULL when there is no memory.
  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kInlineBytes = 1024;
  alignas(64) std::array<std::byte, kInlineBytes> inline_;
  std::size_t mappedBytes_ = 0;
  std::byte* data_;
};

// Copy between private and shared memory. False (errno EIO) when the shared bytes cannot be opened;
// otherwise errno is kept.
bool copyToShared(void* to, const void* from, std::size_t bytes);
bool copyFromShared(void* to, const void* from, std::size_t bytes);

// The length of the next piece. Pieces end at multiples of `pieceBytes` in the address space, so
// that no block is in two of them.
std::size_t nextPiece(const void* address, std::size_t bytes, std::size_t pieceBytes);

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_BASE_SCRATCH_H_
