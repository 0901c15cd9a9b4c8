// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>

namespace gmac {
namespace {

// Not libc's close(), open() and read(): those are cancellation points, and this library replaces
// some of them.
void closeNumber(int fd) noexcept { (void)syscall(SYS_close, fd); }

int openToRead(const char* path) noexcept {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY));
}

// The file of `fd` according to /proc, for messages; "" if unknown.
std::array<char, 256> nameOf(int fd) noexcept {
  std::array<char, 256> name{};
  std::array<char, 32> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  if (readlink(link.data(), name.data(), name.size() - 1) < 0) {
    name[0] = '\0';
  }
  return name;
}

}  // namespace

int aboveStandard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) {
    return fd;
  }
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  closeNumber(fd);
  errno = error;
  return moved;
}

std::optional<std::string> readWholeFile(const std::string& path) {
  const Descriptor file(openToRead(path.c_str()));
  if (!file) {
    return std::nullopt;
  }
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    const long count = syscall(SYS_read, file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return count == 0 ? std::optional(std::move(text)) : std::nullopt;
    }
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

Stream openStream(const char* path) noexcept {
  const int fd = aboveStandard(openToRead(path));
  Stream stream(fd < 0 ? nullptr : fdopen(fd, "r"), &std::fclose);
  if (fd >= 0 && stream == nullptr) {
    closeNumber(fd);
  }
  return stream;
}

Descriptor::Descriptor(int fd) noexcept : fd_(aboveStandard(fd)) {
  struct stat file {};
  if (fd_ < 0) {
    return;
  }
  if (fstat(fd_, &file) == 0) {
    device_ = file.st_dev;
    inode_ = file.st_ino;
  } else {
    const int error = errno;
    closeNumber(fd_);
    fd_ = -1;
    errno = error;
  }
}

bool Descriptor::ours() const noexcept {
  struct stat file {};
  if (fd_ < 0 || fstat(fd_, &file) != 0) {
    // A program in a sandbox may be refused the call.
    return fd_ >= 0 && errno != EBADF;
  }
  return file.st_dev == device_ && file.st_ino == inode_;
}

Result<int> Descriptor::use(const char* what) const noexcept {
  if (ours()) {
    return fd_;
  }
  if (fcntl(fd_, F_GETFD) < 0) {
    return fail(adsmErrorSystem,
                "descriptor {}, which was {}, is closed: the program has closed a descriptor that "
                "it did not open",
                fd_, what);
  }
  return fail(adsmErrorSystem,
              "descriptor {}, which was {}, now stands for '{}': the program has closed a "
              "descriptor that it did not open",
              fd_, what, nameOf(fd_).data());
}

void Descriptor::reset() noexcept {
  if (ours()) {
    closeNumber(fd_);
  }
  fd_ = -1;
}

}  // namespace gmac
