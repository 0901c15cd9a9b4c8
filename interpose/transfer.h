// SPDX-License-Identifier: Apache-2.0
//
// How one call that transfers bytes between a descriptor and shared memory is made. A system call
// cannot fault its way to a closed block as a program does (it would fail with EFAULT), so the
// bytes are opened first. To the byte, a call means what it means on plain memory: return value,
// errno, short counts, end of file.
//
//  - Regular files: the transfer is cut into pieces. Calls with a file position of their own (read,
//    write) hold a lock meanwhile, as the kernel does, so that two threads' transfers on one
//    descriptor do not mix. Whatever could make the pieces differ from the whole goes in one call:
//    appending, a limit on file sizes, an offset that overflows.
//  - Whatever may wait for somebody else (pipes, sockets, terminals): the transfer goes through
//    private memory. Holding shared memory while waiting would make a kernel call of the thread
//    that is waited for wait, too.
//
// All functions are thread-safe. They make cancellation points, so none is noexcept.
#ifndef GMAC_INTERPOSE_TRANSFER_H_
#define GMAC_INTERPOSE_TRANSFER_H_

#include <sys/types.h>

#include <climits>
#include <cstddef>
#include <memory>
#include <mutex>
#include <type_traits>

namespace gmac::interpose {

enum class Direction { kRead, kWrite };  // into shared memory, out of it

// What the kernel transfers at most in one call: the largest int, in whole pages.
inline constexpr std::size_t kMostPerCall = INT_MAX & ~std::size_t{4095};

// Role: the real function with everything but the bytes bound: on `bytes` bytes at `buffer`, which
// are `done` bytes after the transfer's start. Answers with a count, or -1 and errno. A view: what
// it was made from must outlive it.
class RealCall {
 public:
  template <typename Call>
  requires(!std::is_same_v<std::remove_cvref_t<Call>, RealCall>)
      // NOLINTNEXTLINE(google-explicit-constructor): a lambda is to be given as it is.
      RealCall(Call&& call)
      : call_(const_cast<void*>(static_cast<const void*>(std::addressof(call)))),
        invoke_([](void* bound, void* buffer, std::size_t bytes, std::size_t done) -> ssize_t {
          return (*static_cast<std::remove_reference_t<Call>*>(bound))(buffer, bytes, done);
        }) {}

  ssize_t operator()(void* buffer, std::size_t bytes, std::size_t done) const {
    return invoke_(call_, buffer, bytes, done);
  }

 private:
  void* call_;
  ssize_t (*invoke_)(void*, void*, std::size_t, std::size_t);
};

// One call of the program's.
struct Transfer {
  Direction direction;
  int descriptor;
  std::byte* buffer;  // only read from, with kWrite
  std::size_t bytes;
  bool positioned;  // at `offset`; else at the descriptor's own position
  off64_t offset;   // 0 unless positioned
  RealCall call;
};

// Makes the call in the way that suits its descriptor.
ssize_t transfer(const Transfer& transfer);

// Whether a call on `bytes` bytes (as the kernel takes them: more than SSIZE_MAX is an error of its
// own) is ours.
bool isOurs(const void* buffer, std::size_t bytes);

// ---- What the ways to make a call share ----

enum class FileKind {
  kBad,      // no open file: the real function knows what to say
  kRegular,  // never waits for anybody
  kWaits,
};
FileKind kindOf(int descriptor);

// The length of the next piece: up to a multiple of the piece size as an address, so that no block
// is in two pieces.
std::size_t nextPiece(const void* address, std::size_t bytes, std::size_t pieceBytes);

// Role: stands in for the lock that the kernel holds on a file position during a call. By
// descriptor, so that duplicates of one in several threads are not told; a lock is shared by
// descriptors far apart. For the stack.
class PositionLock {
 public:
  explicit PositionLock(int descriptor);

 private:
  std::lock_guard<std::mutex> lock_;
};

// Role: private memory for bytes on their way. Pages are taken as they are touched, so a large
// request that transfers little costs little. Owned by one call, on its stack (and given back when
// the thread is cancelled in it).
class Bounce {
 public:
  explicit Bounce(std::size_t bytes);
  ~Bounce();
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;
  // NULL when there is no memory.
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Copies between private and shared memory; false (errno EIO) when the shared bytes cannot be had.
bool copyToShared(void* to, const void* from, std::size_t bytes);
bool copyFromShared(void* to, const void* from, std::size_t bytes);

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_TRANSFER_H_
