// SPDX-License-Identifier: Apache-2.0
//
// Stands in for libc's malloc() and aligned_alloc(), and tells the program of the calls that
// libgmac_mpi.so makes. For the one source of a program, which defines mayAllocate().
#ifndef GMAC_TESTS_MPI_LIBRARY_ALLOCATIONS_H_
#define GMAC_TESTS_MPI_LIBRARY_ALLOCATIONS_H_

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/mpi/expect.h"

namespace gmac::testing {

// Called for each allocation of the library's. False: it fails.
bool mayAllocate();

namespace internal {

// Where the library's code is.
inline std::atomic<std::uintptr_t> first{0};
inline std::atomic<std::uintptr_t> last{0};

inline int findCode(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, "libgmac_mpi.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0) {
      first = info->dlpi_addr + part.p_vaddr;
      last = first + part.p_memsz;
    }
  }
  return 1;
}

// Of a call with that return address.
inline bool mayAllocateFor(const void* caller) {
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  if (at < first || at >= last || mayAllocate()) return true;
  errno = ENOMEM;
  return false;
}

}  // namespace internal

// The program is told from here on.
inline void watchAllocations() {
  ::dl_iterate_phdr(&internal::findCode, nullptr);
  expect(internal::first != 0, "libgmac_mpi.so is loaded");
}

}  // namespace gmac::testing

// In place of libc's, for the library, too.
extern "C" {

void* __libc_malloc(std::size_t bytes);

__attribute__((visibility("default"))) void* malloc(std::size_t bytes) {
  return gmac::testing::internal::mayAllocateFor(__builtin_return_address(0)) ? __libc_malloc(bytes)
                                                                              : nullptr;
}

__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment,
                                                           std::size_t bytes) {
  static auto* const real =
      reinterpret_cast<decltype(&::aligned_alloc)>(::dlsym(RTLD_NEXT, "aligned_alloc"));
  return gmac::testing::internal::mayAllocateFor(__builtin_return_address(0))
             ? real(alignment, bytes)
             : nullptr;
}

}  // extern "C"

#endif  // GMAC_TESTS_MPI_LIBRARY_ALLOCATIONS_H_
