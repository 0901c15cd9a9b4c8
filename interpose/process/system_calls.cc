// SPDX-License-Identifier: Apache-2.0
//
// syscall() on shared memory: this stands in for libc's function in a program that is linked with
// the library or preloads it.
//
//  - Calls for which libc has a function that takes the same are served as that function is
//    (GMAC_SERVE_CALL), and those of the tables below likewise.
//  - Every other that fails with EFAULT is made again, with the blocks open that its arguments
//    point to, and what lies there. But transfers that go on when a call has returned must not
//    begin because blocks happened to be open for a moment.
//  - Calls that return in another process, or on another stack, are made as they are; futexes and
//    clones have files of their own.
//
// The runtime makes some calls by number. Where it holds its lock, they are made as they are.
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>

#include "interpose/base/served_call.h"
#include "interpose/base/system_call.h"

namespace gmac::interpose {
namespace {

constexpr When kAfterFault = When::kAfterFault;
constexpr When kBefore = When::kBefore;

template <typename Function, When kWhen, typename... Rules>
void serveNumber(long number) noexcept {
  systemCallServers[static_cast<std::size_t>(number)] =
      &SystemCall<Function>::template onCopies<kWhen, Rules...>;
}

// `kFunction` takes the call's words and has its results.
template <auto kFunction, When kWhen>
void serveByFunction(long number) noexcept {
  using Function = std::remove_pointer_t<decltype(kFunction)>;
  systemCallServers[static_cast<std::size_t>(number)] =
      &SystemCall<Function>::template byFunction<kFunction, kWhen>;
}

ssize_t readAt(int descriptor, const iovec* parts, int count, off64_t offset, long, int flags) {
  return ::preadv64v2(descriptor, parts, count, offset, flags);
}

ssize_t writeAt(int descriptor, const iovec* parts, int count, off64_t offset, long, int flags) {
  return ::pwritev64v2(descriptor, parts, count, offset, flags);
}

// The last argument is a structure that points to a signal mask. The kernel reads both before it
// waits.
long selectSets(long number, const Words& words) {
  using Select = SystemCall<int(int, fd_set*, fd_set*, fd_set*, timespec*)>;
  return serveTouched(
      [&] {
        return Select::onCopies<kBefore, Descriptors<1, 0>, Descriptors<2, 0>, Descriptors<3, 0>,
                                Values<4>>(number, words);
      },
      reinterpret_cast<void*>(words[5]));
}

[[gnu::constructor]] void nameServers() {
  // Without a function in libc, or with one that takes something else.
  serveNumber<int(const char*), kAfterFault, Text<0>>(SYS_open);
  serveNumber<int(int, const char*), kAfterFault, Text<1>>(SYS_openat);
  serveNumber<int(int, const char*, void*, std::size_t), kAfterFault, Text<1>, Array<2, 3>>(
      SYS_openat2);
  serveNumber<int(int, const char*), kAfterFault, Text<1>>(SYS_faccessat2);
  serveNumber<int(int, const char*, struct stat*, int), kAfterFault, Text<1>, Values<2>>(
      SYS_newfstatat);
  serveNumber<int(int, void*, unsigned), kBefore, Array<1, 2>>(SYS_getdents);
  serveNumber<int(int, char*, int), kBefore, Array<1, 2>>(SYS_syslog);
  serveNumber<int(int, const void*, std::size_t), kAfterFault, Array<1, 2>>(SYS_signalfd);
  serveNumber<int(int, const void*, std::size_t), kAfterFault, Array<1, 2>>(SYS_signalfd4);
  serveNumber<int(pollfd*, nfds_t, timespec*, const void*, std::size_t), kBefore, Array<0, 1>,
              Values<2>, Array<3, 4>>(SYS_ppoll);
  systemCallServers[SYS_pselect6] = &selectSets;
  serveNumber<int(int, epoll_event*, int, int, const void*, std::size_t), kBefore, Array<1, 2>,
              Array<4, 5>>(SYS_epoll_pwait);
  serveNumber<int(int, epoll_event*, int, const timespec*, const void*, std::size_t), kBefore,
              Array<1, 2>, Values<3>, Array<4, 5>>(SYS_epoll_pwait2);
  serveNumber<int(idtype_t, id_t, siginfo_t*, int, rusage*), kBefore, Values<2>, Values<4>>(
      SYS_waitid);
  serveNumber<int(const char*, int, mode_t, const mq_attr*), kAfterFault, Text<0>, Values<3>>(
      SYS_mq_open);
  serveNumber<int(int, const mq_attr*, mq_attr*), kBefore, Values<1>, Values<2>>(SYS_mq_getsetattr);
  serveNumber<int(int, void*, unsigned), kAfterFault, Array<1, 2>>(SYS_sched_getattr);

  // Bytes. A closed block behind an open one would cut the call short instead of failing it, so
  // they are looked at before.
  serveByFunction<&::read, kBefore>(SYS_read);
  serveByFunction<&::write, kBefore>(SYS_write);
  serveByFunction<&::pread64, kBefore>(SYS_pread64);
  serveByFunction<&::pwrite64, kBefore>(SYS_pwrite64);
  serveByFunction<&::readv, kBefore>(SYS_readv);
  serveByFunction<&::writev, kBefore>(SYS_writev);
  serveByFunction<&::preadv64, kBefore>(SYS_preadv);
  serveByFunction<&::pwritev64, kBefore>(SYS_pwritev);
  serveByFunction<&readAt, kBefore>(SYS_preadv2);
  serveByFunction<&writeAt, kBefore>(SYS_pwritev2);
  serveByFunction<&::process_vm_readv, kBefore>(SYS_process_vm_readv);
  serveByFunction<&::process_vm_writev, kBefore>(SYS_process_vm_writev);
  serveByFunction<&::vmsplice, kBefore>(SYS_vmsplice);
  serveByFunction<&::sendto, kBefore>(SYS_sendto);
  serveByFunction<&::sendmsg, kBefore>(SYS_sendmsg);
  serveByFunction<&::sendmmsg, kBefore>(SYS_sendmmsg);
  serveByFunction<&::getrandom, kBefore>(SYS_getrandom);
  serveByFunction<&::recvfrom, kBefore>(SYS_recvfrom);
  serveByFunction<&::recvmsg, kBefore>(SYS_recvmsg);
  serveByFunction<&::recvmmsg, kBefore>(SYS_recvmmsg);
  serveByFunction<&::execve, kAfterFault>(SYS_execve);
  serveByFunction<&::execveat, kAfterFault>(SYS_execveat);
  serveByFunction<&::mlock, kAfterFault>(SYS_mlock);
}

}  // namespace

extern "C" {

__attribute__((used, visibility("hidden"))) long gmacServeSystemCall(long number, long first,
                                                                     long second, long third,
                                                                     long fourth, long fifth,
                                                                     long sixth) {
  // The masks and the action of SIGSEGV are served before anything is shared, too.
  const bool ofSignals = number == SYS_rt_sigprocmask || number == SYS_rt_sigaction;
  if (!ofSignals && (!coherence::anythingShared() || coherence::memory().worksHere())) [[likely]]
    return gmacSystemCall(number, first, second, third, fourth, fifth, sixth);
  const Words words = {first, second, third, fourth, fifth, sixth};
  if (number >= 0 && number < kSystemCalls) {
    auto* const server = systemCallServers[static_cast<std::size_t>(number)];
    if (server != nullptr) return server(number, words);
  }
  const auto pointer = [&](std::size_t index) { return reinterpret_cast<void*>(words[index]); };
  const auto call = [&] { return systemCall(number, words); };
  const bool goesOn = number == SYS_io_submit || number == SYS_io_uring_register;
  return goesOn ? serveTouched<Follow::kNo>(call, pointer(0), pointer(1), pointer(2), pointer(3),
                                            pointer(4), pointer(5))
                : serveTouched(call, pointer(0), pointer(1), pointer(2), pointer(3), pointer(4),
                               pointer(5));
}

}  // extern "C"

// The numbers: futex; clone and clone3; rt_sigreturn, fork and vfork, which may return elsewhere.
asm(R"(
  .pushsection .text
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  endbr64
  cmpq $202, %rdi
  je gmacFutex
  cmpq $15, %rdi
  je gmacSystemCall
  cmpq $435, %rdi
  je gmacCloneByNumber
  cmpq $56, %rdi
  je gmacCloneByNumber
  leaq -57(%rdi), %rax
  cmpq $1, %rax
  jbe gmacSystemCall
  jmp gmacServeSystemCall
  .cfi_endproc
  .size syscall, .-syscall
  .popsection
)");
static_assert(SYS_futex == 202 && SYS_rt_sigreturn == 15 && SYS_clone3 == 435 && SYS_clone == 56 &&
              SYS_fork == 57 && SYS_vfork == 58);

}  // namespace gmac::interpose
