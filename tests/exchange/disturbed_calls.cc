// SPDX-License-Identifier: Apache-2.0
#include "tests/exchange/disturbed_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <utility>

namespace gmac::testing {
namespace {

Disturbance manner = Disturbance::kNone;
int chosen = 0;
int count = 0;
bool came = false;
std::function<void()> hook;

// True: the call is to fail, with errno.
bool fails(int passing) {
  if (manner == Disturbance::kNone || ++count != chosen) {
    return false;
  }
  came = true;
  switch (manner) {
    case Disturbance::kNone:
      return false;
    case Disturbance::kPasses:
      errno = passing;
      return true;
    case Disturbance::kRefused:
      errno = EPERM;
      return true;
    case Disturbance::kKilled:
      ::raise(SIGKILL);
      return false;
    case Disturbance::kStopped:
      ::raise(SIGSTOP);
      return false;
  }
  return false;
}

}  // namespace

void disturb(Disturbance how, int number) {
  manner = how;
  chosen = number;
  count = 0;
  came = false;
}

void beforeNextOpen(std::function<void()> function) { hook = std::move(function); }

bool disturbed() { return came; }
int calls() { return count; }

}  // namespace gmac::testing

using gmac::testing::fails;

namespace {

// (libc's syscall() is this program's as well.)
long kernel(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  register long fourth __asm__("r10") = d;
  register long fifth __asm__("r8") = e;
  register long sixth __asm__("r9") = f;
  long result = 0;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                   : "rcx", "r11", "memory");
  if (result < 0 && result > -4096) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

}  // namespace

// In place of libc's, in this program.
extern "C" {

int socket(int domain, int type, int protocol) noexcept {
  return fails(EMFILE) ? -1 : static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
}

int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  return fails(EMFILE) ? -1
                       : static_cast<int>(::syscall(SYS_socketpair, domain, type, protocol, ends));
}

int bind(int fd, const sockaddr* address, socklen_t bytes) noexcept {
  return fails(ENOMEM) ? -1 : static_cast<int>(::syscall(SYS_bind, fd, address, bytes));
}

int listen(int fd, int most) noexcept {
  return fails(ENOMEM) ? -1 : static_cast<int>(::syscall(SYS_listen, fd, most));
}

int connect(int fd, const sockaddr* address, socklen_t bytes) {
  return fails(EAGAIN) ? -1 : static_cast<int>(::syscall(SYS_connect, fd, address, bytes));
}

int accept4(int fd, sockaddr* address, socklen_t* bytes, int flags) {
  return fails(EMFILE) ? -1 : static_cast<int>(::syscall(SYS_accept4, fd, address, bytes, flags));
}

int getsockopt(int fd, int level, int name, void* value, socklen_t* bytes) noexcept {
  return fails(ENOBUFS)
             ? -1
             : static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, bytes));
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return fails(ETOOMANYREFS) ? -1 : ::syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return fails(EINTR) ? -1 : ::syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  return fails(EAGAIN) ? -1 : ::syscall(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
}

ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  return fails(EAGAIN) ? -1 : ::syscall(SYS_recvfrom, fd, data, bytes, flags, nullptr, nullptr);
}

int poll(pollfd* watched, nfds_t many, int time) {
  return fails(EINTR) ? -1 : static_cast<int>(::syscall(SYS_poll, watched, many, time));
}

int memfd_create(const char* name, unsigned flags) noexcept {
  return fails(EMFILE) ? -1 : static_cast<int>(::syscall(SYS_memfd_create, name, flags));
}

int ftruncate(int fd, off_t bytes) noexcept {
  return fails(EINTR) ? -1 : static_cast<int>(::syscall(SYS_ftruncate, fd, bytes));
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return fails(ENOSPC) ? -1 : static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
}

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  return fails(EMFILE) ? -1 : static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (fails(ENOMEM)) {
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}

int madvise(void* address, size_t bytes, int advice) noexcept {
  return fails(EAGAIN) ? -1 : static_cast<int>(::syscall(SYS_madvise, address, bytes, advice));
}

ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long hereCount,
                         const iovec* there, unsigned long thereCount,
                         unsigned long flags) noexcept {
  return fails(ENOMEM)
             ? -1
             : ::syscall(SYS_process_vm_readv, process, here, hereCount, there, thereCount, flags);
}

int fstat(int fd, struct stat* status) noexcept {
  return fails(ENOMEM) ? -1 : static_cast<int>(::syscall(SYS_fstat, fd, status));
}

// The system calls by which the runtime itself opens and reads files: those of /proc.
long syscall(long number, ...) noexcept {
  va_list rest;
  va_start(rest, number);
  long all[6];
  for (long& one : all) {
    one = va_arg(rest, long);
  }
  va_end(rest);
  if (number == SYS_openat && gmac::testing::hook) {
    std::exchange(gmac::testing::hook, nullptr)();
  }
  if ((number == SYS_openat && fails(EMFILE)) || (number == SYS_read && fails(EINTR))) {
    return -1;
  }
  return kernel(number, all[0], all[1], all[2], all[3], all[4], all[5]);
}

}  // extern "C"
