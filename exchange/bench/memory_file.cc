// SPDX-License-Identifier: Apache-2.0
#include "exchange/bench/memory_file.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace gmac::exchange::bench {

MemoryFile::MemoryFile(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  bytes_ = (bytes_ + page - 1) / page * page;
  file_ = ::memfd_create("transfers", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(bytes_)) != 0) {
    throw std::runtime_error(
        fmt::format("a memory file of {} bytes: {}", bytes_, std::strerror(errno)));
  }
  void* const data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    ::close(file_);
    throw std::runtime_error(fmt::format("cannot map {} bytes: {}", bytes_, std::strerror(error)));
  }
  data_ = static_cast<std::byte*>(data);
  std::fill(data_, data_ + bytes_, kUntouched);
}

MemoryFile::~MemoryFile() {
  ::munmap(data_, bytes_);
  ::close(file_);
}

}  // namespace gmac::exchange::bench
