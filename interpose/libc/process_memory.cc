// SPDX-License-Identifier: Apache-2.0
//
// process_vm_readv and process_vm_writev where this process's side, or the other if it is this
// process too, is shared: these stand in for libc's functions in a program that is linked with the
// library or preloads it. They never wait, so shared memory is held open while they run. Calls that
// involve no shared memory go to the real function at once.
//
// Shared memory of another process that has this library belongs to that process: a closed page
// there ends the transfer as unmapped memory would.
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

// The kernel accepts any thread's number as its process's.
bool isThisProcess(pid_t process) {
  if (process == ::getpid()) return true;
  const int savedErrno = errno;
  const bool thread = process > 0 && ::tgkill(::getpid(), process, 0) == 0;
  errno = savedErrno;
  return thread;
}

// kRead writes `local`; kWrite writes `remote`.
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
