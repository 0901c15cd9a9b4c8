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
//    appending, a limit on file sizes, an offset that overflows, direct I/O that is not aligned.
//  - Whatever may wait for somebody else (pipes, sockets, terminals): the transfer goes through
//    private memory. Holding shared memory while waiting would make a kernel call of the thread
//    that is waited for wait, too.
//
// Calls for regular files end soon, and are made with cancellation off: a thread that unwound from
// its part of a transfer would leave the helpers waiting for it. All functions are thread-safe.
// They make cancellation points, so none is noexcept.
#ifndef GMAC_INTERPOSE_LIBC_TRANSFER_H_
#define GMAC_INTERPOSE_LIBC_TRANSFER_H_

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <mutex>

#include "interpose/libc/function_view.h"
#include "interpose/libc/stand_in.h"

namespace gmac::interpose {

enum class Direction { kRead, kWrite };  // into shared memory, out of it

// The real function with everything but the bytes bound: on `bytes` bytes at `buffer`, or on a
// vector, which are `done` bytes after the transfer's start. Answers with a count, or -1 and errno.
using RealCall = FunctionView<ssize_t(void* buffer, std::size_t bytes, std::size_t done)>;
using RealVectorCall = FunctionView<ssize_t(const iovec* parts, int count, std::size_t done)>;

// One call of the program's on one buffer.
struct Transfer {
  Direction direction;
  int descriptor;
  std::byte* buffer;  // only read from, with kWrite
  std::size_t bytes;
  bool positioned;  // at `offset`; else at the descriptor's own position
  off64_t offset;   // 0 unless positioned
  RealCall call;
  RealVectorCall vectorCall;  // the same on a vector, for a buffer that is shared in part
};

// The same on a vector.
struct VectorTransfer {
  Direction direction;
  int descriptor;
  Vector given;
  bool positioned;
  off64_t offset;
  bool mayBeCut;  // false when the call asks for something that pieces would not give
  RealVectorCall call;
};

// Make the call in the way that suits its descriptor. Cancellation points.
ssize_t transfer(const Transfer& transfer);
ssize_t transfer(const VectorTransfer& transfer);

// Makes a call that may wait, whatever its descriptor is, on private memory in place of what is
// shared. `options` are what is special about the call. Inside of cancellationPoint(): the thread
// may be cancelled while the call waits.
struct PrivateOptions {
  bool prefilled = false;    // it may count bytes that it leaves as they were
  bool kernelKeeps = false;  // the kernel may go on reading the bytes when it has returned
};
ssize_t transferOnPrivateMemory(Direction direction, const Vector& given, PrivateOptions options,
                                FunctionView<ssize_t(const Vector& privately)> call);

// Whether a call on `bytes` bytes (as the kernel takes them: more than SSIZE_MAX is an error of its
// own) is ours.
bool isOurs(const void* buffer, std::size_t bytes);

// ---- What the ways to make a call share ----

enum class FileKind {
  kBad,      // no open file: the real function knows what to say
  kRegular,  // never waits for anybody
  kWaits,
};
FileKind kindOf(const struct stat64& status);
FileKind kindOf(int descriptor);

// Stands in for the lock that the kernel holds on a file position during a call. By
// descriptor, so that duplicates of one in several threads are not told; a lock is shared by
// descriptors far apart. For the stack.
class PositionLock {
 public:
  explicit PositionLock(int descriptor);

 private:
  std::lock_guard<std::mutex> lock_;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_TRANSFER_H_
