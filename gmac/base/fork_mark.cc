// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/fork_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gmac {
namespace {

std::size_t pageBytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

ForkMark::~ForkMark() {
  if (page_ != nullptr) {
    munmap(const_cast<unsigned char*>(page_), pageBytes());
  }
}

Status ForkMark::make() {
  void* const page =
      mmap(nullptr, pageBytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    return fail(adsmErrorHostMemory, "no page to tell children of fork by: {}",
                std::strerror(errno));
  }
  if (madvise(page, pageBytes(), MADV_WIPEONFORK) != 0) {
    const int error = errno;
    munmap(page, pageBytes());
    return fail(adsmErrorSystem, "madvise(MADV_WIPEONFORK): {}", std::strerror(error));
  }
  page_ = static_cast<unsigned char*>(page);
  *page_ = 1;
  return Status();
}

}  // namespace gmac
