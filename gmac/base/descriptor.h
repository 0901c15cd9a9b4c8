// SPDX-License-Identifier: Apache-2.0
//
// File descriptors of the runtime. The program may do anything with their numbers: daemons close 0
// to 2 and open other files there, and some programs close every number that they do not know.
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

// Closes `fd` and returns a descriptor of the same file above standard error's, closed at exec.
// Every descriptor of the runtime goes through here: one with the number of a closed standard
// stream would receive what the program writes to that stream. -1: `fd` was -1, or there is none
// (errno).
int aboveStandard(int fd) noexcept;

// Reads all bytes of a file; nothing when it cannot be read (errno).
std::optional<std::string> readWholeFile(const std::string& path);
// Opens a file, as of /proc, for reading line by line. NULL: errno.
using Stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
Stream openStream(const char* path) noexcept;

// Owner of a descriptor that the runtime keeps. It identifies the file by device and inode, so it
// notices when the program has closed the number and perhaps opened another file there: nothing,
// not even closing, must be done to a file of the program. Another thread may still close the
// number between ours() and its use; that cannot be excluded. Not thread-safe except for its const
// functions; of these, ours() and get() are for the fault path too.
class Descriptor {
 public:
  Descriptor() = default;
  // Takes ownership of `fd` (or -1), under another number where it is a standard stream's. Empty if
  // that fails (errno).
  explicit Descriptor(int fd) noexcept;
  Descriptor(Descriptor&& other) noexcept { swap(other); }
  Descriptor& operator=(Descriptor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // Whether the number still refers to that file. A system call.
  bool ours() const noexcept;
  // The number, or adsmErrorSystem with the runtime's file (`what`) and the file that is there now.
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
