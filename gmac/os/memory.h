// SPDX-License-Identifier: Apache-2.0
//
// Checked calls for address space: every mmap, mprotect, mremap, madvise and memory file of the
// runtime goes through here. A failure is recorded with the call's name, its arguments and the
// system's error text. All functions are thread-safe and allocate nothing; protect and remap are
// used on the fault path.
#ifndef GMAC_OS_MEMORY_H_
#define GMAC_OS_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "gmac/base/descriptor.h"
#include "gmac/base/status.h"

namespace gmac::os {

enum class Access : std::uint8_t { kNone, kRead, kReadWrite };

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t pageBytes() noexcept;

// Reserves address space without access and without memory, aligned to `alignment` (a power of two,
// at least a page).
Result<void*> reserve(std::size_t bytes, std::size_t alignment);
// Puts such a mapping over [address, address + bytes) and replaces the mappings there.
Status close(void* address, std::size_t bytes);
Status unmap(void* address, std::size_t bytes);

// Anonymous pages, readable and writable, at a fixed address; huge where the system has them.
Status mapAnonymous(void* address, std::size_t bytes);
// A shared mapping of a file at a fixed address (address != NULL) or anywhere.
Result<void*> mapFile(void* address, std::size_t bytes, int fd, std::int64_t offset, Access access);

// adsmErrorHostMemory when the kernel's limit of mappings is reached (ENOMEM).
Status protect(void* address, std::size_t bytes, Access access);

// Moves pages, with their protection, from one range to another and leaves the source mapped and
// empty.
Status movePages(void* from, void* to, std::size_t bytes);

// Keeps a range out of the children of fork.
Status keepFromChildren(void* address, std::size_t bytes);
// Keeps a range that shows another's pages out of core dumps.
Status keepFromDumps(void* address, std::size_t bytes);

Result<Descriptor> makeMemoryFile(const char* name);
// Nobody can shorten such a file any more, nor seal it otherwise; holes may still be punched.
Status keepFromShrinking(int fd);
// adsmErrorHostMemory beyond the limit of file sizes (RLIMIT_FSIZE), and no signal.
Status resizeFile(int fd, std::int64_t bytes);
// Frees the file's pages in a range.
Status punchHole(int fd, std::int64_t offset, std::int64_t bytes);

// Fault injection, for tests: the n-th next call of a kind (1: the very next) fails with `error`.
// One injection at a time; n = 0 disarms. Disarmed it costs one relaxed load. kProtectLate: a
// change of protection fails after its first page.
enum class Call : std::uint8_t { kMap, kProtect, kProtectLate, kMove, kAdvise, kFile };
void failNext(Call call, int n, int error) noexcept;
// Whether the armed failure has not happened yet.
bool injectionArmed() noexcept;

}  // namespace gmac::os

#endif  // GMAC_OS_MEMORY_H_
