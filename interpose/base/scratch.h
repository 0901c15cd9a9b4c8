// SPDX-License-Identifier: Apache-2.0
//
// Private memory that a call is given in place of shared bytes, and the copies between the two.
#ifndef GMAC_INTERPOSE_BASE_SCRATCH_H_
#define GMAC_INTERPOSE_BASE_SCRATCH_H_

#include <array>
#include <cstddef>

namespace gmac::interpose {

// Private memory for the length of one call. Little comes from the object itself, more is
// mapped: nothing is allocated from the heap, so a signal handler may be here. Pages are taken as
// they are touched, so a large request that transfers little costs little. For the stack (and given
// back when the thread is cancelled in the call); one thread's.
class Scratch {
 public:
  // `mapped`: never from the object itself, because the kernel may go on using the pages.
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

// Copies between private and shared memory; false (errno EIO) when the shared bytes cannot be had,
// else errno stays.
bool copyToShared(void* to, const void* from, std::size_t bytes);
bool copyFromShared(void* to, const void* from, std::size_t bytes);

// The length of the next piece: up to a multiple of the piece size as an address, so that no block
// is in two pieces.
std::size_t nextPiece(const void* address, std::size_t bytes, std::size_t pieceBytes);

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_BASE_SCRATCH_H_
