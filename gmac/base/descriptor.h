// SPDX-License-Identifier: Apache-2.0
//
// File descriptors of the runtime's own, in a process whose program may do with any number what it
// likes: daemons close 0 to 2 and open something else there, and others close every number that
// they do not know.
#ifndef GMAC_BASE_DESCRIPTOR_H_
#define GMAC_BASE_DESCRIPTOR_H_

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gmac/base/status.h"

namespace gmac {

// Gives `fd` up for a descriptor of the same file above standard error's, closed at exec. Every
// descriptor of the runtime goes through here: one that took the number of a closed standard stream
// would get what the program writes to that stream. -1: `fd` was -1, or there is none (errno).
int aboveStandard(int fd) noexcept;

// All bytes of a file; nothing when it cannot be read (errno).
std::optional<std::string> readWholeFile(const std::string& path);
// Makes a file, or replaces its contents. False: errno; what was written stays.
bool writeWholeFile(const std::string& path, std::string_view text);
// A file to be read line by line, as of /proc. NULL: errno.
using Stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
Stream openStream(const char* path) noexcept;

// Owner of a descriptor that the runtime keeps. It knows the file by device and inode, so that a
// number that the program has closed, and may have opened anew, is noticed: nothing must be done to
// a file of the program's, closing included. Between ours() and the use another thread may still
// close the number; a kept descriptor has no way to exclude that. Not thread-safe but for its const
// functions, of which ours() and get() are for the fault path too.
class Descriptor {
 public:
  Descriptor() = default;
  // Takes `fd` (or -1) over, under another number where it is a standard stream's. Empty if that
  // cannot be had (errno).
  explicit Descriptor(int fd) noexcept;
  Descriptor(Descriptor&& other) noexcept { swap(other); }
  Descriptor& operator=(Descriptor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Whether the number still stands for the file that was taken over. A system call.
  bool ours() const noexcept;
  // The number, or adsmErrorSystem with what the runtime had there (`what`) and what is there now.
  Result<int> use(const char* what) const noexcept;
  // Closes it if it is still ours.
  void reset() noexcept;

 private:
  void swap(Descriptor& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(device_, other.device_);
    std::swap(inode_, other.inode_);
  }

  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace gmac

#endif  // GMAC_BASE_DESCRIPTOR_H_
