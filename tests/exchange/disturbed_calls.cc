// SPDX-License-Identifier: Apache-2.0
#include "tests/exchange/disturbed_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace gmac::testing {
namespace {

Disturbance manner = Disturbance::kNone;
int chosen = 0;
int count = 0;
bool came = false;

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

bool disturbed() { return came; }
int calls() { return count; }

}  // namespace gmac::testing

using gmac::testing::fails;

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

}  // extern "C"
