// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/loader_lock.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace gmac::accel::host {
namespace {

pthread_mutex_t* loaderLock = nullptr;

// Where the dynamic linker keeps its locks.
struct LinkerState {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

LinkerState linkerState() {
  void* const begin = dlvsym(RTLD_DEFAULT, "_rtld_global", "GLIBC_PRIVATE");
  Dl_info module;
  void* symbol = nullptr;
  if (begin == nullptr || dladdr1(begin, &module, &symbol, RTLD_DL_SYMENT) == 0 ||
      symbol == nullptr) {
    return {};
  }
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return {address, address + static_cast<const ElfW(Sym)*>(symbol)->st_size};
}

bool isHeldBy(const pthread_mutex_t& lock, int thread) {
  return lock.__data.__kind == PTHREAD_MUTEX_RECURSIVE && lock.__data.__lock != 0 &&
         lock.__data.__owner == thread && lock.__data.__count != 0;
}

// The linker has three locks.
constexpr std::size_t kMaxHeld = 8;

struct Search {
  LinkerState state;
  int thread;
  std::array<pthread_mutex_t*, kMaxHeld> held{};
  std::size_t heldCount = 0;
};

// Called with the lock held.
int collectHeld(dl_phdr_info* /*info*/, std::size_t /*size*/, void* data) {
  auto& search = *static_cast<Search*>(data);
  for (std::uintptr_t at = search.state.begin;
       at + sizeof(pthread_mutex_t) <= search.state.end && search.heldCount < kMaxHeld;
       at += alignof(pthread_mutex_t)) {
    auto* const lock = reinterpret_cast<pthread_mutex_t*>(at);
    if (isHeldBy(*lock, search.thread)) {
      search.held[search.heldCount++] = lock;
    }
  }
  return 1;
}

// When the library is loaded, not later: dlvsym() waits for the linker's other lock, which another
// thread may hold for as long as its dlopen() takes.
[[gnu::constructor]] void findLoaderLock() {
  Search search{linkerState(), static_cast<int>(syscall(SYS_gettid))};
  if (search.state.begin == 0) {
    return;
  }
  dl_iterate_phdr(collectHeld, &search);
  // In a dlopen() this thread holds another of the linker's locks all the time.
  for (std::size_t i = 0; i < search.heldCount; ++i) {
    if (!isHeldBy(*search.held[i], search.thread)) {
      loaderLock = search.held[i];
    }
  }
}

}  // namespace

void freeLoaderLock() noexcept {
  if (loaderLock != nullptr) {
    *loaderLock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  }
}

}  // namespace gmac::accel::host
