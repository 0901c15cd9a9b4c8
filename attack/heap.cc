// SPDX-License-Identifier: Apache-2.0
//
// A library to preload beside libgmac.so: the C library's allocator with every allocation of 32 KiB
// or more in a shared object. A kernel call that may write all of them comes after every sixteenth,
// so that the program finds its heap in closed blocks, as do the system calls that it makes. What a
// child of fork frees stays.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "gmac/api/adsm.h"

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);
}

namespace {

constexpr std::size_t kLeastBytes = std::size_t{32} << 10;
constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kAllocationsPerCall = 16;

// The objects by address: a table of fixed size, since it can allocate nothing. What finds no room
// near its place is no object.
class Objects {
 public:
  bool add(void* memory, std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < kProbes; ++i) {
      Slot& slot = slotOf(memory, i);
      std::uintptr_t seen = slot.address.load();
      if ((seen == kNever || seen == kNoMore) &&
          slot.address.compare_exchange_strong(seen, kClaimed)) {
        slot.bytes = bytes;
        slot.address.store(reinterpret_cast<std::uintptr_t>(memory));
        return true;
      }
    }
    return false;
  }
  // The bytes of an object; 0: there is none.
  std::size_t bytesOf(const void* memory) noexcept {
    Slot* const slot = find(memory);
    return slot != nullptr ? slot->bytes : 0;
  }
  void remove(const void* memory) noexcept {
    if (Slot* const slot = find(memory)) slot->address.store(kNoMore);
  }

 private:
  static constexpr std::size_t kSlots = 65536;
  static constexpr std::size_t kProbes = 512;
  static constexpr std::uintptr_t kNever = 0;
  static constexpr std::uintptr_t kNoMore = 1;
  static constexpr std::uintptr_t kClaimed = 2;
  struct Slot {
    std::atomic<std::uintptr_t> address{kNever};
    std::size_t bytes = 0;
  };

  Slot& slotOf(const void* memory, std::size_t probe) noexcept {
    const std::uint64_t page = reinterpret_cast<std::uintptr_t>(memory) / kPageBytes;
    return slots_[((page * 0x9E3779B97F4A7C15U >> 48) + probe) % kSlots];
  }
  Slot* find(const void* memory) noexcept {
    for (std::size_t i = 0; i < kProbes; ++i) {
      Slot& slot = slotOf(memory, i);
      const std::uintptr_t address = slot.address.load();
      if (address == reinterpret_cast<std::uintptr_t>(memory)) return &slot;
      if (address == kNever) return nullptr;
    }
    return nullptr;
  }

  std::array<Slot, kSlots> slots_{};
};
constinit Objects objects;
constinit std::atomic<std::uint64_t> made{0};
constinit std::atomic<pid_t> owner{0};
constinit std::atomic<adsmKernel_t> kernel{nullptr};
// In a call of the library, whose own allocations are private.
constinit thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

void nothing(const adsmThreadBlock_t*, void**) {}

void callKernel() noexcept {
  if (kernel.load() == nullptr) {
    adsmKernelDesc_t description = {};
    description.name = "nothing";
    description.host = &nothing;
    adsmKernel_t created = nullptr;
    if (adsmKernelCreate(&description, &created) != adsmSuccess) return;
    kernel.store(created);
  }
  if (adsmCall(kernel.load(), {1, 1, 1}, {1, 1, 1}, 0, nullptr) == adsmSuccess) (void)adsmSync();
}

// NULL: the C library allocates.
void* allocateObject(std::size_t bytes) noexcept {
  if (bytes < kLeastBytes || inside) return nullptr;
  pid_t nobody = 0;
  const pid_t self = getpid();
  if (!owner.compare_exchange_strong(nobody, self) && nobody != self) return nullptr;
  const int savedErrno = errno;
  inside = true;
  void* memory = adsmAlloc(bytes);
  if (memory != nullptr && !objects.add(memory, bytes)) {
    (void)adsmFree(memory);
    memory = nullptr;
  }
  if (memory != nullptr && made.fetch_add(1) % kAllocationsPerCall == 0) callKernel();
  inside = false;
  errno = savedErrno;
  return memory;
}

}  // namespace

#define EXPORTED __attribute__((visibility("default")))

extern "C" {

EXPORTED void* malloc(std::size_t bytes) {
  void* const memory = allocateObject(bytes);
  return memory != nullptr ? memory : __libc_malloc(bytes);
}

EXPORTED void free(void* memory) {
  if (memory == nullptr) return;
  if (objects.bytesOf(memory) == 0) return __libc_free(memory);
  if (owner.load() != getpid()) return;
  const int savedErrno = errno;
  objects.remove(memory);
  const bool outer = inside;
  inside = true;
  (void)adsmFree(memory);
  inside = outer;
  errno = savedErrno;
}

EXPORTED void* calloc(std::size_t count, std::size_t bytes) {
  std::size_t all = 0;
  if (!__builtin_mul_overflow(count, bytes, &all)) {
    if (void* const memory = allocateObject(all)) return std::memset(memory, 0, all);
  }
  return __libc_calloc(count, bytes);
}

// NOLINTNEXTLINE(readability-identifier-naming)
EXPORTED std::size_t malloc_usable_size(void* memory) {
  if (memory == nullptr) return 0;
  if (const std::size_t bytes = objects.bytesOf(memory)) return bytes;
  static const auto real =
      reinterpret_cast<std::size_t (*)(void*)>(::dlsym(RTLD_NEXT, "malloc_usable_size"));
  return real(memory);
}

EXPORTED void* realloc(void* memory, std::size_t bytes) {
  if (memory == nullptr) return malloc(bytes);
  const std::size_t before = objects.bytesOf(memory);
  if (before == 0 && (bytes < kLeastBytes || inside)) return __libc_realloc(memory, bytes);
  if (bytes == 0) {
    free(memory);
    return nullptr;
  }
  void* const larger = malloc(bytes);
  if (larger == nullptr) return nullptr;
  const std::size_t old = before != 0 ? before : malloc_usable_size(memory);
  std::memcpy(larger, memory, old < bytes ? old : bytes);
  free(memory);
  return larger;
}

EXPORTED void* memalign(std::size_t alignment, std::size_t bytes) {
  void* const memory = alignment <= kPageBytes ? allocateObject(bytes) : nullptr;
  return memory != nullptr ? memory : __libc_memalign(alignment, bytes);
}

EXPORTED void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}

EXPORTED int posix_memalign(void** to, std::size_t alignment, std::size_t bytes) {
  void* const memory = memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *to = memory;
  return 0;
}

}  // extern "C"
