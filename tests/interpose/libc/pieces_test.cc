// SPDX-License-Identifier: Apache-2.0
//
// Long transfers between regular files and shared memory, made in pieces and by several threads. To
// the byte they must equal one call on plain memory, wherever the file ends and whichever piece
// fails.
#include "interpose/libc/pieces.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.hpp"
#include "gmac/observe/stats.h"
#include "gmac/os/mappings.h"
#include "tests/interpose/libc/host_kernels.h"
#include "tests/support/child.h"
#include "tests/support/thread_names.h"

namespace gmac::interpose {
namespace {

using testing::Bytes;
using testing::copyOnHost;
using ::testing::ElementsAreArray;
using testing::fillOnHost;
using testing::hostOnly;
using testing::kOneThread;
using testing::patternOf;

// With blocks of 64 KiB pieces have 1 MiB. Objects are aligned to 2 MiB.
constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::size_t kBlock = 64 * 1024;
constexpr std::size_t kObjectBytes = 5 * kPiece + 777;
constexpr std::size_t kFileBytes = kObjectBytes + 2 * kPiece + 5;

// A file in memory, of a length, with a pattern in it.
class File {
 public:
  explicit File(std::size_t bytes, unsigned seed = 99)
      : descriptor_(::memfd_create("pieces", MFD_CLOEXEC)) {
    const Bytes contents = patternOf(bytes, seed);
    EXPECT_EQ(::write(descriptor_, contents.data(), bytes), static_cast<ssize_t>(bytes));
    seek(0);
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  void seek(std::size_t position) {
    EXPECT_EQ(::lseek(descriptor_, static_cast<off_t>(position), SEEK_SET),
              static_cast<off_t>(position));
  }
  std::size_t position() const {
    return static_cast<std::size_t>(::lseek(descriptor_, 0, SEEK_CUR));
  }
  Bytes contents() const {
    struct stat status = {};
    EXPECT_EQ(::fstat(descriptor_, &status), 0);
    Bytes bytes(static_cast<std::size_t>(status.st_size));
    EXPECT_EQ(::pread(descriptor_, bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

 private:
  int descriptor_;
};

// A shared object whose blocks are in all states, and what its bytes are.
class Object {
 public:
  explicit Object(unsigned seed, std::size_t bytes = kObjectBytes)
      : shared_(adsm::makeUniqueForOverwrite<unsigned char[]>(bytes)),
        seen_(adsm::makeUniqueForOverwrite<unsigned char[]>(bytes)) {
    fill_.emplace_back(hostOnly("fill", fillOnHost));
    copy_.emplace_back(hostOnly("copy", copyOnHost));
    reset(seed, bytes);
  }

  void reset(unsigned seed, std::size_t bytes = kObjectBytes) {
    plain_ = patternOf(bytes, seed);
    fill_[0].uses(adsm::writes(shared_.get()))(kOneThread, shared_.get(), bytes, seed);
    adsm::sync();
    std::mt19937 random(seed);
    for (std::size_t block = 0; block < bytes; block += kBlock) {
      const auto at = block + random() % std::min(kBlock, bytes - block);
      switch (random() % 3) {
        case 0:
          shared_[at] = plain_[at] = static_cast<unsigned char>(random());
          break;
        case 1:
          EXPECT_EQ(shared_[at], plain_[at]);
          break;
        default:
          break;  // only the accelerator has it
      }
    }
  }

  unsigned char* data() { return shared_.get(); }
  Bytes& plain() { return plain_; }
  // The kernel's view first: looking with the CPU would bring blocks back.
  void expectEqual() {
    const std::size_t bytes = plain_.size();
    copy_[0].uses(adsm::reads(shared_.get()), adsm::writes(seen_.get()))(kOneThread, seen_.get(),
                                                                         shared_.get(), bytes);
    adsm::sync();
    EXPECT_EQ(firstDifference(seen_.get()), bytes) << "the kernel sees other bytes";
    EXPECT_EQ(firstDifference(shared_.get()), bytes) << "the CPU sees other bytes";
  }

 private:
  std::size_t firstDifference(const unsigned char* bytes) const {
    return static_cast<std::size_t>(std::mismatch(plain_.begin(), plain_.end(), bytes).first -
                                    plain_.begin());
  }

  using Fill = adsm::Kernel<void(unsigned char*, std::size_t, unsigned)>;
  using Copy = adsm::Kernel<void(unsigned char*, const unsigned char*, std::size_t)>;
  std::vector<Fill> fill_;
  std::vector<Copy> copy_;
  adsm::unique_ptr<unsigned char[]> shared_;
  adsm::unique_ptr<unsigned char[]> seen_;
  Bytes plain_;
};

// A transfer with an offset whose real calls are the test's. `done` is that of a real call.
using TestCall = std::function<ssize_t(void* buffer, std::size_t bytes, std::size_t done)>;
ssize_t transferBy(Direction direction, int descriptor, unsigned char* buffer, std::size_t bytes,
                   const TestCall& call) {
  const auto through = [&](void* piece, std::size_t length, std::size_t done) {
    return call(piece, length, done);
  };
  const auto inParts = [](const iovec*, int, std::size_t) -> ssize_t {
    ADD_FAILURE() << "the buffer is shared as a whole";
    return -1;
  };
  return transferInPieces({direction, descriptor, reinterpret_cast<std::byte*>(buffer), bytes, true,
                           0, through, inParts});
}

// Where the pieces of a transfer from the start of an object begin.
std::vector<std::size_t> pieceBegins(std::size_t bytes) {
  std::vector<std::size_t> begins;
  for (std::size_t begin = 0; begin < bytes; begin += kPiece) begins.push_back(begin);
  return begins;
}

// Waits for what another thread must do; false when it does not.
bool await(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

bool movesEarly() {
  const char* const protocol = std::getenv("GMAC_PROTOCOL");
  return protocol == nullptr || std::string(protocol) == "rolling";
}

class Pieces : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("GMAC_ACCEL", "host", 0);
    ::setenv("GMAC_BLOCK_SIZE", "64K", 0);
    ::setenv("GMAC_TEST_IO_THREADS", "4", 0);
  }
};

// ---- Reads

TEST_F(Pieces, AReadIsTheSameWhereverBufferAndPositionAre) {
  Object object(1);
  File file(kFileBytes);
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, kPiece - 1, kPiece, 2 * kPiece + 17}) {
    for (const std::size_t position : {std::size_t{0}, 3 * kPiece + 5}) {
      for (const std::size_t less : {std::size_t{0}, kPiece}) {
        SCOPED_TRACE(std::to_string(at) + ", " + std::to_string(position));
        const std::size_t bytes = kObjectBytes - at - less;
        object.reset(static_cast<unsigned>(at + position));
        file.seek(position);
        errno = 4095;
        const ssize_t wanted = ::pread(file.descriptor(), object.plain().data() + at, bytes,
                                       static_cast<off_t>(position));
        EXPECT_EQ(::read(file.descriptor(), object.data() + at, bytes), wanted);
        EXPECT_EQ(errno, 4095);
        EXPECT_EQ(file.position(), position + static_cast<std::size_t>(wanted));
        object.expectEqual();
      }
    }
  }
}

TEST_F(Pieces, TheFileMayEndInsideOrAtTheEndOfEachPiece) {
  Object object(2);
  for (std::size_t piece = 0; piece <= 5; ++piece) {
    for (const std::ptrdiff_t more : {-1, 0, 1}) {
      const auto bytes = static_cast<std::size_t>(
          std::max<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(piece * kPiece) + more));
      SCOPED_TRACE(bytes);
      File file(bytes, static_cast<unsigned>(piece));
      for (const bool positioned : {false, true}) {
        object.reset(static_cast<unsigned>(piece + 100));
        const ssize_t wanted = ::pread(file.descriptor(), object.plain().data(), kObjectBytes, 0);
        file.seek(0);
        EXPECT_EQ(positioned ? ::pread(file.descriptor(), object.data(), kObjectBytes, 0)
                             : ::read(file.descriptor(), object.data(), kObjectBytes),
                  wanted);
        EXPECT_EQ(file.position(), positioned ? 0 : static_cast<std::size_t>(wanted));
        object.expectEqual();
      }
    }
  }
}

// The piece that fails does so only when a later one has been read: that one must leave no trace.
TEST_F(Pieces, AReadThatFailsOrComesOutShortEndsThereWhateverWasReadBehind) {
  Object object(3);
  File file(kFileBytes);
  const std::vector<std::size_t> begins = pieceBegins(kObjectBytes);
  // The last whole piece has none after it that is read in parallel.
  for (std::size_t failing = 0; failing + 2 < begins.size(); ++failing) {
    for (const ssize_t outcome : {-1, 0, 1, 70000}) {
      SCOPED_TRACE("piece " + std::to_string(failing) + " gives " + std::to_string(outcome));
      object.reset(static_cast<unsigned>(failing + 7));
      std::atomic<std::size_t> behind{0};
      errno = 4095;
      const ssize_t got = transferBy(
          Direction::kRead, file.descriptor(), object.data(), kObjectBytes,
          [&](void* buffer, std::size_t bytes, std::size_t done) -> ssize_t {
            if (done != begins[failing]) {
              const ssize_t count =
                  ::pread(file.descriptor(), buffer, bytes, static_cast<off_t>(done));
              behind += done > begins[failing] ? 1 : 0;
              return count;
            }
            EXPECT_TRUE(await([&] { return behind > 0; })) << "nobody reads ahead";
            if (outcome >= 0) {
              return ::pread(file.descriptor(), buffer, static_cast<std::size_t>(outcome),
                             static_cast<off_t>(done));
            }
            std::memset(buffer, 0xee, 4096);  // a disk may have got that far
            errno = EIO;
            return -1;
          });
      const std::size_t wanted =
          begins[failing] + static_cast<std::size_t>(std::max<ssize_t>(outcome, 0));
      EXPECT_EQ(::pread(file.descriptor(), object.plain().data(), wanted, 0),
                static_cast<ssize_t>(wanted));
      if (wanted == 0 && outcome < 0) {
        EXPECT_EQ(got, -1);
        EXPECT_EQ(errno, EIO);
      } else {
        EXPECT_EQ(got, static_cast<ssize_t>(wanted));
        EXPECT_EQ(errno, 4095);
      }
      object.expectEqual();
    }
  }
}

TEST_F(Pieces, AFileThatIsTruncatedMeanwhileGivesAPrefix) {
  Object object(4);
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    File file(kFileBytes);
    object.reset(static_cast<unsigned>(round));
    const std::size_t left = random() % kFileBytes;
    const auto pause = std::chrono::microseconds(random() % 1500);
    std::thread other([&] {
      std::this_thread::sleep_for(pause);
      EXPECT_EQ(::ftruncate(file.descriptor(), static_cast<off_t>(left)), 0);
    });
    const ssize_t count = ::read(file.descriptor(), object.data(), kObjectBytes);
    other.join();
    ASSERT_GE(count, 0);
    const auto read = static_cast<std::size_t>(count);
    EXPECT_GE(read, std::min(left, kObjectBytes));
    EXPECT_EQ(file.position(), read);
    const Bytes whole = patternOf(read, 99);
    std::copy(whole.begin(), whole.end(), object.plain().begin());
    // The kernel cuts a page while others read it: what they see of the cut part is its business.
    for (std::size_t i = left; i < std::min(read, left / 4096 * 4096 + 4096); ++i) {
      object.plain()[i] = object.data()[i];
    }
    object.expectEqual();
  }
}

TEST_F(Pieces, ThreadsThatShareAPositionReadEveryByteOnce) {
  // Every eight bytes say where in the file they are.
  constexpr std::size_t kWords = (std::size_t{40} << 20) / 8;
  std::vector<std::uint64_t> words(kWords);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = i;
  // Not a memory file: some kernels (6.18) let two threads move the position of one at a time.
  std::string path = ::testing::TempDir() + "/positionsXXXXXX";
  const int descriptor = ::mkstemp(path.data());
  ASSERT_GE(descriptor, 0) << path;
  ::unlink(path.c_str());
  ASSERT_EQ(::write(descriptor, words.data(), kWords * 8), static_cast<ssize_t>(kWords * 8));
  const int duplicate = ::dup(descriptor);
  for (int round = 0; round < 5; ++round) {
    ASSERT_EQ(::lseek(descriptor, 0, SEEK_SET), 0);
    std::mutex lock;
    std::map<std::uint64_t, std::size_t> parts;  // first word -> words
    const auto reader = [&](int from, std::size_t bytes) {
      auto own = adsm::makeUniqueForOverwrite<std::uint64_t[]>(bytes / 8);
      for (ssize_t count = 0; (count = ::read(from, own.get(), bytes)) > 0;) {
        ASSERT_EQ(count % 8, 0);
        const auto got = static_cast<std::size_t>(count) / 8;
        for (std::size_t i = 1; i < got; ++i) ASSERT_EQ(own[i], own[0] + i);
        const std::lock_guard guard(lock);
        parts[own[0]] = got;
      }
    };
    std::thread first(reader, descriptor, 5 * kPiece + 24);
    std::thread second(reader, duplicate, 4 * kPiece);
    std::thread third(reader, descriptor, 6 * kPiece);
    first.join();
    second.join();
    third.join();
    std::uint64_t next = 0;
    for (const auto& [begin, count] : parts) {
      ASSERT_EQ(begin, next);
      next = begin + count;
    }
    EXPECT_EQ(next, kWords);
  }
  ::close(duplicate);
  ::close(descriptor);
}

TEST_F(Pieces, APieceIsOnItsWayToTheAcceleratorWhileTheLastIsRead) {
  if (!movesEarly()) GTEST_SKIP() << "this protocol has one block per object";
  Object object(6);
  File file(kFileBytes);
  const std::uint64_t before = stats().bytesToAccelerator.value();
  const std::size_t last = pieceBegins(kObjectBytes).back();
  EXPECT_EQ(transferBy(Direction::kRead, file.descriptor(), object.data(), kObjectBytes,
                       [&](void* buffer, std::size_t bytes, std::size_t done) {
                         if (done == last) {
                           EXPECT_TRUE(await([&] {
                             return stats().bytesToAccelerator.value() - before >= last;
                           }));
                         }
                         return ::pread(file.descriptor(), buffer, bytes, static_cast<off_t>(done));
                       }),
            static_cast<ssize_t>(kObjectBytes));
  EXPECT_EQ(::pread(file.descriptor(), object.plain().data(), kObjectBytes, 0),
            static_cast<ssize_t>(kObjectBytes));
  object.expectEqual();
}

TEST_F(Pieces, ABufferThatLeavesItsObjectIsReadAsFarAsTheKernelWould) {
  auto shared = adsm::makeUniqueForOverwrite<unsigned char[]>(4 * kPiece);
  File file(kFileBytes);
  EXPECT_EQ(::read(file.descriptor(), shared.get(), 6 * kPiece), static_cast<ssize_t>(4 * kPiece))
      << "nothing is mapped after it";
  EXPECT_EQ(file.position(), 4 * kPiece);
  const Bytes wanted = patternOf(4 * kPiece, 99);
  EXPECT_EQ(std::memcmp(shared.get(), wanted.data(), wanted.size()), 0);
}

// ---- Writes

TEST_F(Pieces, AWriteIsTheSameWhereverBufferAndPositionAre) {
  Object object(8);
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, kPiece - 1, 2 * kPiece + 17}) {
    for (const std::size_t position : {std::size_t{0}, std::size_t{5}}) {
      const std::size_t bytes = kObjectBytes - at;
      object.reset(static_cast<unsigned>(at));
      File file(10);
      File plain(10);
      file.seek(position);
      plain.seek(position);
      errno = 4095;
      EXPECT_EQ(::write(file.descriptor(), object.data() + at, bytes), static_cast<ssize_t>(bytes));
      EXPECT_EQ(errno, 4095);
      EXPECT_EQ(::write(plain.descriptor(), object.plain().data() + at, bytes),
                static_cast<ssize_t>(bytes));
      EXPECT_EQ(file.position(), plain.position());
      EXPECT_TRUE(file.contents() == plain.contents());
      object.expectEqual();
    }
  }
}

TEST_F(Pieces, AWriteThatFailsOrComesOutShortHasWrittenNothingBehind) {
  Object object(9);
  File file(0);
  std::vector<std::size_t> begins;
  std::size_t end = 0;
  EXPECT_EQ(transferBy(Direction::kWrite, file.descriptor(), object.data(), kObjectBytes,
                       [&](void*, std::size_t bytes, std::size_t done) {
                         EXPECT_EQ(done, end) << "in order";
                         begins.push_back(done);
                         end = done + bytes;
                         return static_cast<ssize_t>(bytes);
                       }),
            static_cast<ssize_t>(kObjectBytes));
  ASSERT_GE(begins.size(), 3u);
  for (std::size_t failing = 0; failing < begins.size(); ++failing) {
    for (const ssize_t outcome : {-1, 0, 500}) {
      std::vector<std::size_t> calls;
      errno = 4095;
      const ssize_t got =
          transferBy(Direction::kWrite, file.descriptor(), object.data(), kObjectBytes,
                     [&](void*, std::size_t bytes, std::size_t done) -> ssize_t {
                       calls.push_back(done);
                       if (done != begins[failing]) return static_cast<ssize_t>(bytes);
                       if (outcome < 0) errno = ENOSPC;
                       return outcome;
                     });
      EXPECT_THAT(calls,
                  ElementsAreArray(begins.begin(),
                                   begins.begin() + static_cast<std::ptrdiff_t>(failing) + 1));
      if (failing == 0 && outcome < 0) {
        EXPECT_EQ(got, -1);
        EXPECT_EQ(errno, ENOSPC);
      } else {
        EXPECT_EQ(got, static_cast<ssize_t>(begins[failing]) + std::max<ssize_t>(outcome, 0));
        EXPECT_EQ(errno, 4095);
      }
    }
  }
  object.expectEqual();
}

TEST_F(Pieces, ThePiecesToComeAreFetchedWhileOneIsWritten) {
  if (!movesEarly()) GTEST_SKIP() << "this protocol has one block per object";
  Object object(10);
  File file(0);
  for (int round = 0; round < 3; ++round) {
    object.reset(10);
    EXPECT_EQ(
        transferBy(Direction::kWrite, file.descriptor(), object.data(), kObjectBytes,
                   [&](void* buffer, std::size_t bytes, std::size_t done) {
                     if (done == 0) {
                       const auto at = reinterpret_cast<std::uintptr_t>(object.data()) + 3 * kPiece;
                       EXPECT_TRUE(await([&] {
                         const auto mappings = os::readMappings();
                         for (std::size_t i = 0; i < kPiece; i += kBlock) {
                           if (os::loosestAccess(*mappings, at + i, 1) == os::Access::kNone) {
                             return false;
                           }
                         }
                         return true;
                       }));
                     }
                     return ::pwrite(file.descriptor(), buffer, bytes, static_cast<off_t>(done));
                   }),
        static_cast<ssize_t>(kObjectBytes));
    EXPECT_TRUE(file.contents() == object.plain());
  }
}

// ---- Threads and processes

TEST_F(Pieces, AThreadThatIsCancelledInAReadFinishesIt) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer's cleanups are unwound by the C library's unwinder and by "
                  "the one that is linked in";
#endif
  Object object(11);
  File file(kFileBytes);
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> reads{0};
    struct Shared {
      File& file;
      Object& object;
      std::atomic<int>& reads;
    } shared{file, object, reads};
    pthread_t thread;
    ASSERT_EQ(pthread_create(
                  &thread, nullptr,
                  [](void* given) -> void* {
                    auto& own = *static_cast<Shared*>(given);
                    for (;;) {
                      (void)!::pread(own.file.descriptor(), own.object.data(), kObjectBytes, 0);
                      ++own.reads;
                      pthread_testcancel();
                    }
                  },
                  &shared),
              0);
    EXPECT_TRUE(await([&] { return reads > 0; }));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    pthread_cancel(thread);
    void* result = nullptr;
    pthread_join(thread, &result);
    EXPECT_EQ(result, PTHREAD_CANCELED);
  }
  EXPECT_EQ(::pread(file.descriptor(), object.data(), kObjectBytes, 0),
            static_cast<ssize_t>(kObjectBytes));
  EXPECT_EQ(::pread(file.descriptor(), object.plain().data(), kObjectBytes, 0),
            static_cast<ssize_t>(kObjectBytes));
  object.expectEqual();
}

// As debuggers and traces show it. With one thread there are none.
TEST_F(Pieces, HelpersHaveAName) {
  Object object(14);
  File file(kFileBytes);
  ASSERT_EQ(::read(file.descriptor(), object.data(), kObjectBytes),
            static_cast<ssize_t>(kObjectBytes));
  if (std::string(std::getenv("GMAC_TEST_IO_THREADS")) == "1") {
    EXPECT_FALSE(testing::aThreadIsCalledNow("gmac helper"));
  } else {
    EXPECT_TRUE(testing::aThreadIsCalled("gmac helper"));
  }
}

TEST_F(Pieces, AChildOfForkHasNoHelpersAndNoSharedMemoryAndTheParentBoth) {
  Object object(12);
  File file(kFileBytes);
  ASSERT_EQ(::read(file.descriptor(), object.data(), kObjectBytes),
            static_cast<ssize_t>(kObjectBytes));
  const pid_t child = ::fork();
  if (child == 0) {
    Bytes own(kObjectBytes);
    const bool reads = ::pread(file.descriptor(), own.data(), kObjectBytes, 0) ==
                       static_cast<ssize_t>(kObjectBytes);
    const bool refuses =
        ::pread(file.descriptor(), object.data(), kObjectBytes, 0) == -1 && errno == EFAULT;
    std::quick_exit(reads && refuses ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  file.seek(0);
  EXPECT_EQ(::read(file.descriptor(), object.data(), kObjectBytes),
            static_cast<ssize_t>(kObjectBytes));
  EXPECT_EQ(::pread(file.descriptor(), object.plain().data(), kObjectBytes, 0),
            static_cast<ssize_t>(kObjectBytes));
  object.expectEqual();
}

// Runs in a process of its own, which it ends.
TEST_F(Pieces, DISABLED_EndsWhileAnotherThreadReads) {
  auto* const object = new Object(13);
  auto* const file = new File(kFileBytes);
  std::atomic<int> reads{0};
  std::thread([&reads, object, file] {
    for (;; ++reads) {
      (void)!::pread(file->descriptor(), object->data(), kObjectBytes, 0);
    }
  }).detach();
  ASSERT_TRUE(await([&] { return reads > 2; }));
  std::exit(33);
}

TEST(PiecesInAProcess, EndsWithHelpersAtWork) {
  for (int round = 0; round < 5; ++round) {
    const auto end = testing::runChild("Pieces.DISABLED_EndsWhileAnotherThreadReads", {});
    EXPECT_EQ(end.exitStatus, 33) << end.output;
    EXPECT_EQ(end.signal, 0) << end.output;
  }
}

// A process reads its GMAC_* variables once, so each combination is a process of its own.
TEST(PiecesInAProcess, AreTheSameUnderEveryProtocolAndWithEveryNumberOfThreads) {
  for (const std::map<std::string, std::string>& environment :
       std::vector<std::map<std::string, std::string>>{{{"GMAC_PROTOCOL", "batch"}},
                                                       {{"GMAC_PROTOCOL", "lazy"}},
                                                       {{"GMAC_TEST_IO_THREADS", "13"},
                                                        {"GMAC_BLOCK_SIZE", "4K"},
                                                        {"GMAC_ROLLING_SIZE", "3"}}}) {
    const auto end = testing::runChild("Pieces.*-*DISABLED*", environment);
    EXPECT_EQ(end.exitStatus, 0) << end.output;
  }
  // With one thread nobody reads ahead.
  const auto end = testing::runChild("Pieces.*-*DISABLED*:*WhateverWasReadBehind",
                                     {{"GMAC_TEST_IO_THREADS", "1"}});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

}  // namespace
}  // namespace gmac::interpose
