// SPDX-License-Identifier: Apache-2.0
//
// Makes one call that transfers bytes between a descriptor and shared memory. A system call cannot
// fault on a closed block as a program does (it fails with EFAULT), so the bytes are opened first.
// To the byte, a call gives the result that it gives on plain memory: return value, errno, short
// counts, end of file.
//
//  - Regular files: the transfer is cut into pieces. Calls at the file's own position (read, write)
//    hold a lock meanwhile, as the kernel does, so that two threads' transfers on one descriptor do
//    not mix. A call whose pieces could differ from the whole stays one call: appending, a limit on
//    file sizes, an offset that overflows, direct I/O that is not aligned.
//  - Descriptors that may wait for somebody else (pipes, sockets, terminals): the transfer goes
//    through private memory. Shared memory that is held during a wait would make other threads'
//    kernel calls wait too, perhaps those of the thread that is waited for.
//
// Calls on regular files end soon and are made with cancellation off: if a thread unwound from its
// part of a transfer, its helpers would wait for it forever. All functions are thread-safe. They
// are cancellation points, so none is noexcept.
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

// The real function with all arguments bound but the bytes: `bytes` bytes at `buffer`, or a vector,
// which are `done` bytes after the transfer's start. Returns a count, or -1 and errno.
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

// Make the call in the way that its descriptor needs. Cancellation points.
ssize_t transfer(const Transfer& transfer);
ssize_t transfer(const VectorTransfer& transfer);

// Makes a call that may wait, whatever its descriptor is, with private memory in place of shared
// memory. Call it inside cancellationPoint(): the thread may be cancelled while the call waits.
struct PrivateOptions {
  bool prefilled = false;    // the call may count bytes that it does not write
  bool kernelKeeps = false;  // the kernel may read the bytes after the call
};
ssize_t transferOnPrivateMemory(Direction direction, const Vector& given, PrivateOptions options,
                                FunctionView<ssize_t(const Vector& privately)> call);

// Whether a call on `bytes` bytes touches shared memory. False for more than SSIZE_MAX bytes, an
// error that the kernel reports.
bool isOurs(const void* buffer, std::size_t bytes);

// ---- Shared by all ways to make a call ----

enum class FileKind {
  kBad,      // no open file: the real function knows what to say
  kRegular,  // never waits for anybody
  kWaits,
};
FileKind kindOf(const struct stat64& status);
FileKind kindOf(int descriptor);

// Stands in for the lock that the kernel holds on a file position during a call. Keyed by
// descriptor: threads that use duplicates of one descriptor do not exclude each other, and some
// descriptors share a lock. For the stack.
class PositionLock {
 public:
  explicit PositionLock(int descriptor);

 private:
  std::lock_guard<std::mutex> lock_;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_TRANSFER_H_
