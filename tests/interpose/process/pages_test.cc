// SPDX-License-Identifier: Apache-2.0
//
// Requests of a program about the pages of shared objects. mprotect: a request for the protection
// that an object has succeeds and changes nothing; any other is refused. mlock: what only the
// accelerator has comes to the CPU, as an access brings it. Calls that would replace, move or
// remove the pages are refused. madvise: what the program can see of it is as on other memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmac/api/adsm.hpp"

namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = std::size_t{3} << 20;  // not a whole number of huge pages
constexpr int kBoth = PROT_READ | PROT_WRITE;
// Constants that older headers lack.
constexpr int kAdviceCollapse = 25;
constexpr long kSeal = 462;

const bool kPrepared = [] {
  setenv("GMAC_ACCEL", "host", 0);
  setenv("GMAC_HOST_MEMORY", "64M", 0);
  setenv("GMAC_HOST_THREADS", "1", 0);
  setenv("GMAC_BLOCK_SIZE", "64K", 0);
  return true;
}();

void addOne(const adsmThreadBlock_t*, void** args) {
  auto* const bytes = *static_cast<unsigned char**>(args[0]);
  for (std::size_t i = 0; i < kBytes; ++i) ++bytes[i];
}

class PagesOfObjects : public ::testing::Test {
 protected:
  void SetUp() override {
    object_ = static_cast<unsigned char*>(adsmAlloc(kBytes));
    ASSERT_NE(object_, nullptr) << adsmLastErrorString();
    std::memset(object_, 1, kBytes);
  }
  void TearDown() override { EXPECT_EQ(adsmFree(object_), adsmSuccess); }

  // The accelerator's copy alone is current then.
  void close() {
    static adsmKernel_t kernel = nullptr;
    if (kernel == nullptr) {
      static const std::size_t kSizes[] = {sizeof(void*)};
      adsmKernelDesc_t description = {};
      description.name = "addOne";
      description.paramCount = 1;
      description.paramSizes = kSizes;
      description.host = &addOne;
      ASSERT_EQ(adsmKernelCreate(&description, &kernel), adsmSuccess);
    }
    void* args[] = {&object_};
    ASSERT_EQ(adsmCall(kernel, {1, 1, 1}, {1, 1, 1}, 0, args), adsmSuccess);
    ASSERT_EQ(adsmSync(), adsmSuccess);
  }

  unsigned char* object_ = nullptr;
};

using Protections = PagesOfObjects;
using Locks = PagesOfObjects;
using Mappings = PagesOfObjects;
using Advice = PagesOfObjects;

TEST_F(Protections, WhatAnObjectIsIsGrantedAndNothingIsLost) {
  close();
  ASSERT_EQ(mprotect(object_, kBytes, kBoth), 0) << strerror(errno);
  EXPECT_EQ(object_[70000], 2) << "the CPU's old copy";
  object_[5] = 10;
  object_[kBytes - 1] = 20;
  close();
  ASSERT_EQ(pkey_mprotect(object_ + kPage, kPage, kBoth, -1), 0) << strerror(errno);
  EXPECT_EQ(object_[5], 11) << "a write of the CPU's is lost";
  EXPECT_EQ(object_[kPage + 5], 3);
  EXPECT_EQ(object_[kBytes - 1], 21);
}

TEST_F(Protections, WhatAnObjectCannotBeIsRefusedAndChangesNothing) {
  ::testing::internal::CaptureStderr();
  for (const int protection : {PROT_NONE, PROT_READ, PROT_WRITE, kBoth | PROT_EXEC}) {
    errno = 0;
    EXPECT_EQ(mprotect(object_ + kPage, 10, protection), -1) << protection;
    EXPECT_EQ(errno, EACCES) << protection;
  }
  errno = 0;
  EXPECT_EQ(pkey_mprotect(object_, kPage, kBoth, 1), -1);
  EXPECT_EQ(errno, EACCES);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(", 10, 0x0) fails with EACCES: shared objects are there, whose pages "
                              "can be readable and writable (0x3) only"));
  EXPECT_EQ(said.find('\n'), said.size() - 1) << "it is said once:\n" << said;
  object_[kPage] = 5;
  close();
  EXPECT_EQ(object_[kPage], 6);
}

TEST_F(Protections, OfMemoryBesideAnObjectAreChanged) {
  // The next addresses are the runtime's, for other objects.
  unsigned char* const after = object_ + kBytes;
  close();
  ASSERT_EQ(mprotect(after - kPage, 2 * kPage, kBoth), 0) << strerror(errno);
  *after = 1;
  EXPECT_EQ(after[-1], 2);
  EXPECT_EQ(mprotect(after - kPage, 2 * kPage, PROT_NONE), -1);
  *after = 2;
  EXPECT_EQ(mprotect(after, kPage, PROT_NONE), 0) << strerror(errno);
}

TEST_F(Protections, OfOtherMemoryAreTheSystems) {
  void* const page = mmap(nullptr, 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(mprotect(page, kPage, kBoth), 0);
  *static_cast<volatile unsigned char*>(page) = 1;
  EXPECT_EQ(mprotect(page, kPage, PROT_READ), 0);
  errno = 0;
  EXPECT_EQ(mprotect(object_ + 1, kPage, kBoth), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mprotect(object_, 0, PROT_NONE), 0);
  EXPECT_EQ(munmap(page, 2 * kPage), 0);
}

TEST_F(Locks, OfAnObjectAreLockedWhateverSideItsBytesAreOn) {
  std::byte* const plain = new std::byte[kBytes];
  if (mlock(plain, kBytes) != 0) GTEST_SKIP() << "no memory may be locked: " << strerror(errno);
  ASSERT_EQ(munlock(plain, kBytes), 0);
  delete[] plain;
  close();
  ASSERT_EQ(mlock(object_, kBytes), 0) << strerror(errno);
  EXPECT_EQ(object_[70000], 2);
  object_[5] = 10;
  close();
  EXPECT_EQ(object_[5], 11) << "a write of the CPU's is lost";
  EXPECT_EQ(object_[kBytes - 1], 3);
  // Locked bytes go to and fro as ever.
  close();
  ASSERT_EQ(mlock2(object_ + kPage + 100, kPage, 0), 0) << strerror(errno);
  EXPECT_EQ(object_[kPage + 100], 4);
  ASSERT_EQ(mlock2(object_, kBytes, MLOCK_ONFAULT), 0) << strerror(errno);
  EXPECT_EQ(munlock(object_, kBytes), 0) << strerror(errno);
}

TEST_F(Locks, OfOtherMemoryAreTheSystems) {
  errno = 0;
  EXPECT_EQ(mlock(object_, SIZE_MAX - 8192), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mlock(object_, 0), 0);
  void* const page = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = 0;
  EXPECT_EQ(mlock(page, kPage), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(munmap(page, kPage), 0);
}

// ---- Mappings

constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

// A page of the program's.
unsigned char* ownPage() {
  return static_cast<unsigned char*>(mmap(nullptr, kPage, kBoth, kAnonymous, -1, 0));
}

// Calls that would change the mappings of [at, at + bytes), by name. Each returns -1 as a word.
std::vector<std::pair<const char*, std::function<long()>>> changesOf(unsigned char* at,
                                                                     std::size_t bytes) {
  static unsigned char* const own = ownPage();
  static const int segment = [] {
    const int made = shmget(IPC_PRIVATE, 2 * kPage, IPC_CREAT | 0600);
    void* const attached = shmat(made, nullptr, 0);
    EXPECT_NE(attached, reinterpret_cast<void*>(-1)) << strerror(errno);
    (void)shmctl(made, IPC_RMID, nullptr);  // it stays as long as it is attached
    return made;
  }();
  const auto word = [](void* result) { return reinterpret_cast<long>(result); };
  constexpr int kFixed = kAnonymous | MAP_FIXED;
  constexpr int kOnto = MREMAP_MAYMOVE | MREMAP_FIXED;
  return {
      {"munmap", [=] { return munmap(at, bytes); }},
      {"mmap", [=] { return word(mmap(at, bytes, kBoth, kFixed, -1, 0)); }},
      {"mmap64", [=] { return word(mmap64(at, bytes, PROT_NONE, kFixed, -1, 0)); }},
      {"mremap, grow", [=] { return word(mremap(at, bytes, bytes + kPage, MREMAP_MAYMOVE)); }},
      {"mremap, move", [=] { return word(mremap(at, bytes, bytes, kOnto, own)); }},
      {"mremap, copy", [=] { return word(mremap(at, 0, bytes, MREMAP_MAYMOVE)); }},
      {"mremap, leave",
       [=] { return word(mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr)); }},
      {"mremap, onto", [=] { return word(mremap(own, kPage, bytes, kOnto, at)); }},
      {"shmat", [=] { return word(shmat(segment, at + bytes - kPage + 8, SHM_REMAP | SHM_RND)); }},
      {"remap_file_pages", [=] { return remap_file_pages(at, bytes, 0, 1, 0); }},
      {"SYS_munmap", [=] { return syscall(SYS_munmap, at, bytes); }},
      {"SYS_mmap", [=] { return syscall(SYS_mmap, at, bytes, kBoth, kFixed, -1, 0L); }},
      {"SYS_mremap", [=] { return syscall(SYS_mremap, at, bytes, bytes, kOnto, own); }},
      {"SYS_shmat", [=] { return syscall(SYS_shmat, segment, at + bytes - kPage, SHM_REMAP); }},
      {"SYS_remap_file_pages", [=] { return syscall(SYS_remap_file_pages, at, bytes, 0, 1, 0); }},
      {"SYS_mseal", [=] { return syscall(kSeal, at, bytes, 0UL); }},
  };
}

void expectRefused(unsigned char* at, std::size_t bytes, const char* what) {
  for (const auto& [name, call] : changesOf(at, bytes)) {
    errno = 0;
    EXPECT_EQ(call(), -1) << name << ", " << what;
    EXPECT_EQ(errno, EPERM) << name << ", " << what;
  }
}

TEST_F(Mappings, OfAnObjectStayAsTheyAre) {
  object_[5] = 10;
  expectRefused(object_, kBytes, "the CPU has it");
  close();
  expectRefused(object_, kBytes, "the accelerator has it");
  expectRefused(object_ + kPage, kPage, "one page");
  expectRefused(object_ - kPage, 2 * kPage, "its first page and what is before it");
  expectRefused(object_ + kBytes - kPage, 2 * kPage, "its last page and what follows");
  EXPECT_EQ(object_[5], 11);
  for (std::size_t i = 6; i < kBytes; ++i) ASSERT_EQ(object_[i], 2) << i;
  object_[kPage] = 20;
  close();
  EXPECT_EQ(object_[kPage], 21) << "a write of the CPU's is lost";
}

TEST_F(Mappings, ThatAreAskedForAtFreeAddressesAreTheSystems) {
  errno = 0;
  EXPECT_EQ(mmap(object_, kPage, kBoth, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EEXIST);
  // A wish.
  void* const elsewhere = mmap(object_, kPage, kBoth, kAnonymous, -1, 0);
  ASSERT_NE(elsewhere, MAP_FAILED);
  EXPECT_NE(elsewhere, object_);
  EXPECT_EQ(munmap(elsewhere, kPage), 0);
  // Nothing is asked for.
  close();
  EXPECT_EQ(mremap(object_, kBytes, kBytes, MREMAP_MAYMOVE), object_);
  EXPECT_EQ(object_[5], 2);
}

TEST_F(Mappings, OfSmallObjectsStayAsTheyAre) {
  auto* const small = static_cast<unsigned char*>(adsmAlloc(100));
  ASSERT_NE(small, nullptr);
  std::memset(small, 7, 100);
  unsigned char* const page = small - reinterpret_cast<std::uintptr_t>(small) % kPage;
  expectRefused(page, kPage, "a page of small objects");
  for (int i = 0; i < 100; ++i) ASSERT_EQ(small[i], 7) << i;
  EXPECT_EQ(adsmFree(small), adsmSuccess);
}

TEST_F(Mappings, ThatAreReservedForObjectsStayReserved) {
  // The next addresses are for other objects.
  unsigned char* const after = object_ + kBytes;
  expectRefused(after, kPage, "reserved");
  expectRefused(after, std::size_t{16} << 20, "reserved");
  // Further objects come there.
  std::vector<unsigned char*> objects;
  for (int i = 0; i < 4; ++i) {
    objects.push_back(static_cast<unsigned char*>(adsmAlloc(kBytes)));
    ASSERT_NE(objects.back(), nullptr) << adsmLastErrorString();
    objects.back()[kPage] = 1;
  }
  for (unsigned char* const object : objects) {
    EXPECT_EQ(object[kPage], 1);
    EXPECT_EQ(adsmFree(object), adsmSuccess);
  }
}

TEST_F(Mappings, RefusedAreToldInOneLineEach) {
  // (Other tests of this process may have met the refusals before.)
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("GTEST_ALSO_RUN_DISABLED_TESTS", "1", 1);
    execl("/proc/self/exe", "pages_test", "--gtest_filter=Mappings.DISABLED_InANewProcess",
          nullptr);
    _exit(100);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Mappings, DISABLED_InANewProcess) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(munmap(object_, kPage), -1);
  EXPECT_EQ(munmap(object_, kPage), -1);
  EXPECT_EQ(mmap(object_ + kBytes, kPage, kBoth, kAnonymous | MAP_FIXED, -1, 0), MAP_FAILED);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("munmap of 4096 bytes at "));
  EXPECT_THAT(said, HasSubstr(" fails with EPERM: shared objects are there, whose pages are"));
  EXPECT_THAT(said, HasSubstr("mmap with MAP_FIXED of 4096 bytes at "));
  EXPECT_THAT(said, HasSubstr(" fails with EPERM: addresses for shared objects are reserved"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
}

TEST_F(Mappings, OfOtherMemoryAreTheSystems) {
  unsigned char* const own =
      static_cast<unsigned char*>(mmap(nullptr, 4 * kPage, kBoth, kAnonymous, -1, 0));
  ASSERT_NE(own, MAP_FAILED);
  own[0] = 1;
  own[kPage] = 2;
  EXPECT_EQ(mmap64(own, kPage, kBoth, kAnonymous | MAP_FIXED, -1, 0), own);
  EXPECT_EQ(own[0], 0);
  EXPECT_EQ(mremap(own + kPage, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, own), own);
  EXPECT_EQ(own[0], 2);
  EXPECT_EQ(syscall(SYS_munmap, own + 2 * kPage, kPage), 0);
  errno = 0;
  EXPECT_EQ(munmap(own + 1, kPage), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(munmap(object_, SIZE_MAX), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(munmap(object_, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(munmap(own, 4 * kPage), 0);
}

TEST_F(Mappings, OfAChildOfForkAreItsOwn) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Objects are not inherited: what the child has at their addresses is its own.
    void* const page = mmap(object_, kPage, kBoth, kAnonymous | MAP_FIXED, -1, 0);
    if (page != object_) _exit(1);
    object_[0] = 1;
    if (mprotect(object_, kPage, PROT_READ) != 0) _exit(2);
    if (madvise(object_, kPage, MADV_DONTNEED) != 0 || object_[0] != 0) _exit(3);
    if (munmap(object_, kPage) != 0) _exit(4);
    if (munmap(object_ + kBytes, kPage) != 0) _exit(5);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Protections, AreTheSameByNumber) {
  close();
  EXPECT_EQ(syscall(SYS_mprotect, object_, kBytes, kBoth), 0);
  errno = 0;
  EXPECT_EQ(syscall(SYS_mprotect, object_, kPage, PROT_READ), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(syscall(SYS_pkey_mprotect, object_, kPage, PROT_NONE, -1), -1);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(object_[70000], 2) << "the CPU's old copy";
}

// ---- Advice

TEST_F(Advice, ThatBytesAreNotNeededClearsThem) {
  for (const bool closed : {false, true}) {
    std::memset(object_, 1, kBytes);
    if (closed) close();
    ASSERT_EQ(madvise(object_ + kPage, 2 * kPage - 100, MADV_DONTNEED), 0) << strerror(errno);
    for (std::size_t i = 0; i < kBytes; ++i) {
      const bool cleared = i >= kPage && i < 3 * kPage;
      ASSERT_EQ(object_[i], cleared ? 0 : closed ? 2 : 1) << i << ", closed: " << closed;
    }
    close();
    ASSERT_EQ(object_[kPage], 1) << "the kernel has seen old bytes";
  }
  close();
  ASSERT_EQ(syscall(SYS_madvise, object_, kBytes, MADV_DONTNEED), 0);
  for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(object_[i], 0) << i;
}

TEST_F(Advice, AboutSpeedAndChildrenChangesNothing) {
  object_[0] = 10;
  for (const int advice :
       {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_FREE, MADV_COLD,
        MADV_PAGEOUT, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
        kAdviceCollapse, MADV_DONTFORK, MADV_DOFORK, MADV_KEEPONFORK, MADV_DONTDUMP, MADV_DODUMP,
        MADV_POPULATE_READ, MADV_POPULATE_WRITE}) {
    const unsigned char before = object_[0];
    close();
    EXPECT_EQ(madvise(object_, kBytes, advice), 0) << advice << ": " << strerror(errno);
    EXPECT_EQ(object_[0], static_cast<unsigned char>(before + 1)) << advice;
    object_[0] = static_cast<unsigned char>(before + 2);
    close();
    EXPECT_EQ(object_[0], static_cast<unsigned char>(before + 3)) << advice;
  }
}

TEST_F(Advice, ToGiveAnObjectToChildrenGivesNone) {
  ASSERT_EQ(madvise(object_, kBytes, MADV_DOFORK), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  // Nothing of it is mapped in a child.
  if (child == 0) {
    unsigned char inMemory = 0;
    _exit(mincore(object_, kPage, &inMemory) == -1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Advice, ThatAnObjectCannotFollowIsRefused) {
  close();
  ::testing::internal::CaptureStderr();
  for (const int advice : {int{MADV_REMOVE}, int{MADV_WIPEONFORK}, 102, 103, 9999}) {
    errno = 0;
    EXPECT_EQ(madvise(object_, kPage, advice), -1) << advice;
    EXPECT_EQ(errno, EINVAL) << advice;
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(" with advice 9 fails with EINVAL: shared objects are there"));
  EXPECT_EQ(said.find('\n'), said.size() - 1) << "it is said once:\n" << said;
  EXPECT_EQ(object_[5], 2);
}

TEST_F(Advice, OfOtherMemoryIsTheSystems) {
  unsigned char* const own = ownPage();
  *own = 1;
  EXPECT_EQ(madvise(own, kPage, MADV_DONTNEED), 0);
  EXPECT_EQ(*own, 0);
  errno = 0;
  EXPECT_EQ(madvise(object_ + 1, kPage, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(madvise(own, kPage, 9999), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(munmap(own, kPage), 0);
}

TEST_F(Advice, ToAProcessIsTheSameForTheProcessItself) {
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  ASSERT_GE(self, 0);
  close();
  const iovec ranges[] = {{object_, kPage}, {object_ + 2 * kPage, kPage}};
  EXPECT_EQ(process_madvise(self, ranges, 2, MADV_COLD, 0), ssize_t{2 * kPage}) << strerror(errno);
  const ssize_t done = process_madvise(self, ranges, 2, MADV_DONTNEED, 0);
  if (done == -1) {
    EXPECT_EQ(errno, EINVAL) << "a system before Linux 6.13";
  } else {
    EXPECT_EQ(done, ssize_t{2 * kPage});
  }
  const unsigned char expected = done == -1 ? 2 : 0;
  EXPECT_EQ(object_[5], expected);
  EXPECT_EQ(object_[kPage], 2);
  EXPECT_EQ(object_[2 * kPage], expected);
  ::close(self);
}

}  // namespace
