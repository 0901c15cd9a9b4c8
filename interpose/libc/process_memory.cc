// SPDX-License-Identifier: Apache-2.0
//
// process_vm_readv and process_vm_writev with shared memory at this process's end, and at the other
// one where that is this process, too: these stand in for libc's functions in a program that is
// linked with the library or preloads it. They wait for nobody, so shared memory is held open while
// they run. What involves no shared memory goes to the real function at once.
//
// Shared memory of another process that has this library is that process's: what is closed there
// ends the transfer as memory that is not there would.
#include <signal.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/port.h"
#include "interpose/base/real.h"
#include "interpose/libc/arguments.h"
#include "interpose/libc/stand_in.h"
#include "interpose/libc/transfer.h"

namespace gmac::interpose {
namespace {

using ProcessCall = ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                            unsigned long);
constinit Real<ProcessCall> realReadv("process_vm_readv");
constinit Real<ProcessCall> realWritev("process_vm_writev");

[[gnu::constructor]] void resolveProcessMemory() { resolveAtLoad(realReadv, realWritev); }

// The kernel takes the number of any thread for its process.
bool isThisProcess(pid_t process) {
  if (process == ::getpid()) return true;
  const int savedErrno = errno;
  const bool thread = process > 0 && ::tgkill(::getpid(), process, 0) == 0;
  errno = savedErrno;
  return thread;
}

// `local` is written with kRead, and `remote` with kWrite.
ssize_t transferBetween(Direction direction, Real<ProcessCall>& real, pid_t process,
                        const iovec* local, unsigned long localCount, const iovec* remote,
                        unsigned long remoteCount, unsigned long flags) {
  if (!coherence::anythingShared())
    return real(process, local, localCount, remote, remoteCount, flags);
  return uncancelled([&]() -> ssize_t {
    const CallersVector localVector(local, localCount);
    const CallersVector remoteTable(remote, remoteCount);
    const bool reads = direction == Direction::kRead;
    constexpr Vector kNothing = {nullptr, 0};
    const int errnoBefore = errno;
    ssize_t count = -1;
    {
      const VectorHold localHold(localVector.isOurs() ? localVector.vector() : kNothing, reads);
      const VectorHold remoteHold(
          remoteTable.isOurs() && isThisProcess(process) ? remoteTable.vector() : kNothing, !reads);
      if (!localHold.ok() || !remoteHold.ok()) return -1;
      count =
          real(process, localVector.parts(), localCount, remoteTable.parts(), remoteCount, flags);
    }
    if (count >= 0) errno = errnoBefore;
    return count;
  });
}

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;
using io::Direction;

extern "C" {

GMAC_INTERPOSED ssize_t process_vm_readv(pid_t process, const iovec* local,
                                         unsigned long localCount, const iovec* remote,
                                         unsigned long remoteCount, unsigned long flags) {
  return io::transferBetween(Direction::kRead, io::realReadv, process, local, localCount, remote,
                             remoteCount, flags);
}

GMAC_INTERPOSED ssize_t process_vm_writev(pid_t process, const iovec* local,
                                          unsigned long localCount, const iovec* remote,
                                          unsigned long remoteCount, unsigned long flags) {
  return io::transferBetween(Direction::kWrite, io::realWritev, process, local, localCount, remote,
                             remoteCount, flags);
}

}  // extern "C"
