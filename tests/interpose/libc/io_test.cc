// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes of shared memory, compared with the same calls on plain memory: the return
// value, errno, every byte of the buffer, the file, and what a kernel sees afterwards must be
// equal, whatever state the blocks are in.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gmac/api/adsm.hpp"
#include "tests/interpose/libc/host_kernels.h"

// The forms that a compiler makes of calls when it fortifies them.
extern "C" {
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off64_t, size_t);
size_t __fread_chk(void*, size_t, size_t, size_t, FILE*);
size_t __fread_unlocked_chk(void*, size_t, size_t, size_t, FILE*);
}

namespace {

using gmac::testing::Bytes;
using gmac::testing::copyOnHost;
using gmac::testing::fillOnHost;
using gmac::testing::hostOnly;
using gmac::testing::kOneThread;
using gmac::testing::patternAt;
using gmac::testing::patternOf;

// More than two pieces, and no multiple of anything.
constexpr std::size_t kObjectBytes = (std::size_t{5} << 19) + 777;
constexpr std::size_t kFileBytes = kObjectBytes + 100000;

// ---- Block states ----

enum class BlockStates { kFresh, kDirty, kReadOnly, kInvalid, kMixed };
constexpr BlockStates kAllStates[] = {BlockStates::kFresh, BlockStates::kDirty,
                                      BlockStates::kReadOnly, BlockStates::kInvalid,
                                      BlockStates::kMixed};

const char* nameOf(BlockStates states) {
  switch (states) {
    case BlockStates::kFresh:
      return "fresh";
    case BlockStates::kDirty:
      return "dirty";
    case BlockStates::kReadOnly:
      return "read-only";
    case BlockStates::kInvalid:
      return "invalid";
    case BlockStates::kMixed:
      return "mixed";
  }
  return "";
}

// The host accelerator runs the kernels here, whatever the machine has.
class SharedIo : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ::setenv("GMAC_ACCEL", "host", 0); }

  void SetUp() override {
    fill_.emplace_back(hostOnly("fill", fillOnHost));
    copy_.emplace_back(hostOnly("copy", copyOnHost));
    folder_ = ::testing::TempDir() + "io_test." + std::to_string(::getpid());
    ASSERT_EQ(::mkdir(folder_.c_str(), 0700), 0) << std::strerror(errno);
    std::FILE* const file = std::fopen(input().c_str(), "wb");
    ASSERT_NE(file, nullptr);
    const Bytes contents = patternOf(kFileBytes, 99);
    ASSERT_EQ(std::fwrite(contents.data(), 1, contents.size(), file), contents.size());
    ASSERT_EQ(std::fclose(file), 0);
  }
  void TearDown() override {
    ::unlink(input().c_str());
    ::unlink(output().c_str());
    ::rmdir(folder_.c_str());
  }

  std::string input() const { return folder_ + "/input"; }
  std::string output() const { return folder_ + "/output"; }
  std::string folder() const { return folder_; }

  // An object whose blocks are in the states, and what its bytes then are.
  std::pair<adsm::unique_ptr<unsigned char[]>, Bytes> prepare(BlockStates states) {
    auto object = adsm::makeUniqueForOverwrite<unsigned char[]>(kObjectBytes);
    Bytes plain;
    switch (states) {
      case BlockStates::kFresh:
        std::memset(object.get(), 0, 1);  // as long as nothing else is promised of a fresh object
        plain.assign(object.get(), object.get() + kObjectBytes);
        break;
      case BlockStates::kDirty:
        plain = patternOf(kObjectBytes, 1);
        std::memcpy(object.get(), plain.data(), kObjectBytes);
        break;
      case BlockStates::kReadOnly:
        plain = patternOf(kObjectBytes, 2);
        std::memcpy(object.get(), plain.data(), kObjectBytes);
        see(object.get(), kObjectBytes);
        break;
      case BlockStates::kInvalid:
        plain = patternOf(kObjectBytes, 3);
        fillByKernel(object.get(), 3);
        break;
      case BlockStates::kMixed:
        plain = patternOf(kObjectBytes, 4);
        fillByKernel(object.get(), 4);
        for (std::size_t i = 0; i < kObjectBytes; i += 100003) {
          if (i % 2 == 0) {
            object[i] = plain[i] = static_cast<unsigned char>(i);
          } else {
            EXPECT_EQ(object[i], plain[i]);
          }
        }
        break;
    }
    return {std::move(object), std::move(plain)};
  }

  void fillByKernel(unsigned char* object, unsigned seed) {
    fill_[0].uses(adsm::writes(object))(kOneThread, object, kObjectBytes, seed);
    adsm::sync();
  }

  // The bytes as a kernel sees them.
  Bytes see(const unsigned char* object, std::size_t bytes) {
    auto seen = adsm::makeUniqueForOverwrite<unsigned char[]>(bytes);
    copy_[0].uses(adsm::reads(object), adsm::writes(seen.get()))(kOneThread, seen.get(), object,
                                                                 bytes);
    adsm::sync();
    return Bytes(seen.get(), seen.get() + bytes);
  }

  // The effects of a call besides its buffer's bytes.
  struct Outcome {
    long result = 0;
    int error = 0;
    Bytes elsewhere;  // the file or the pipe afterwards
    bool operator==(const Outcome&) const = default;
  };
  using Call = std::function<Outcome(unsigned char* object)>;

  // Runs the call on an object in each state and on plain memory with the same bytes.
  void expectAsOnPlainMemory(const char* what, const Call& call) {
    for (const BlockStates states : kAllStates) {
      SCOPED_TRACE(std::string(what) + ", blocks " + nameOf(states));
      auto [object, plain] = prepare(states);
      const Outcome wanted = call(plain.data());
      const Outcome got = call(object.get());
      EXPECT_EQ(got.result, wanted.result);
      EXPECT_EQ(got.error, wanted.error) << std::strerror(got.error);
      EXPECT_TRUE(got.elsewhere == wanted.elsewhere) << "the file differs";
      // First the kernel's view: looking with the CPU would bring blocks back.
      EXPECT_TRUE(see(object.get(), kObjectBytes) == plain) << "the kernel sees other bytes";
      EXPECT_EQ(std::memcmp(object.get(), plain.data(), kObjectBytes), 0) << "the bytes differ";
    }
  }

  // The outcome of a call on a descriptor; errno starts from a value that no call sets.
  static Outcome outcomeOf(const std::function<long()>& call) {
    errno = 4095;
    Outcome outcome;
    outcome.result = call();
    outcome.error = errno;
    return outcome;
  }

  Bytes contentsOf(const std::string& path) {
    Bytes contents;
    const int file = ::open(path.c_str(), O_RDONLY);
    if (file < 0) return contents;
    std::array<unsigned char, 65536> part;
    ssize_t count;
    while ((count = ::read(file, part.data(), part.size())) > 0) {
      contents.insert(contents.end(), part.begin(), part.begin() + count);
    }
    ::close(file);
    return contents;
  }

  // A call on the input, opened for it; afterwards the file's position counts, too.
  Call onInput(off_t position, const std::function<long(int, unsigned char*)>& call) {
    return [this, position, call](unsigned char* object) {
      const int file = ::open(input().c_str(), O_RDONLY);
      EXPECT_EQ(::lseek(file, position, SEEK_SET), position);
      Outcome outcome = outcomeOf([&] { return call(file, object); });
      const auto after = static_cast<unsigned long>(::lseek(file, 0, SEEK_CUR));
      for (int shift = 0; shift < 64; shift += 8) {
        outcome.elsewhere.push_back(static_cast<unsigned char>(after >> shift));
      }
      ::close(file);
      return outcome;
    };
  }

  // A call on the output, made anew with a few bytes in it; the file's contents afterwards.
  Call onOutput(int flags, const std::function<long(int, unsigned char*)>& call) {
    return [this, flags, call](unsigned char* object) {
      const int made = ::open(output().c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      EXPECT_EQ(::write(made, "before", 6), 6);
      ::close(made);
      const int file = ::open(output().c_str(), flags);
      Outcome outcome = outcomeOf([&] { return call(file, object); });
      ::close(file);
      outcome.elsewhere = contentsOf(output());
      return outcome;
    };
  }

  // A call on a stream of the input; where the stream then is, and its flags.
  Call onInputStream(const std::function<long(std::FILE*, unsigned char*)>& call) {
    return [this, call](unsigned char* object) {
      std::FILE* const file = std::fopen(input().c_str(), "rb");
      std::fgetc(file);  // leaves a buffer that is partly used
      Outcome outcome = outcomeOf([&] { return call(file, object); });
      const long after = std::ftell(file);
      for (int shift = 0; shift < 64; shift += 8) {
        outcome.elsewhere.push_back(static_cast<unsigned char>(after >> shift));
      }
      outcome.elsewhere.push_back(std::feof(file) != 0);
      outcome.elsewhere.push_back(std::ferror(file) != 0);
      std::fclose(file);
      return outcome;
    };
  }

  Call onOutputStream(const char* mode,
                      const std::function<long(std::FILE*, unsigned char*)>& call) {
    return [this, mode, call](unsigned char* object) {
      ::unlink(output().c_str());
      std::FILE* const file = std::fopen(output().c_str(), mode);
      std::fputs("before", file);
      Outcome outcome = outcomeOf([&] { return call(file, object); });
      std::fputs("after", file);
      const bool failed = std::fclose(file) != 0;
      outcome.elsewhere = contentsOf(output());
      outcome.elsewhere.push_back(failed);
      return outcome;
    };
  }

 private:
  using Fill = adsm::Kernel<void(unsigned char*, std::size_t, unsigned)>;
  using Copy = adsm::Kernel<void(unsigned char*, const unsigned char*, std::size_t)>;
  std::vector<Fill> fill_;
  std::vector<Copy> copy_;
  std::string folder_;
};

// ---- Descriptors ----

// Past libc, whose syscall() is stood in for as well.
long bareRead(int file, void* to, std::size_t bytes) {
  long result = SYS_read;
  asm volatile("syscall" : "+a"(result) : "D"(file), "S"(to), "d"(bytes) : "rcx", "r11", "memory");
  return result;
}

// The other tests would show nothing without this: the bytes really are out of a system call's
// reach.
TEST_F(SharedIo, ABareSystemCallCannotReachInvalidBlocks) {
  const char* const protocol = std::getenv("GMAC_PROTOCOL");
  if (protocol != nullptr && std::strcmp(protocol, "batch") == 0) {
    GTEST_SKIP() << "batch never closes blocks";
  }
  auto [object, plain] = prepare(BlockStates::kInvalid);
  const int file = ::open(input().c_str(), O_RDONLY);
  EXPECT_EQ(bareRead(file, object.get(), kObjectBytes), -EFAULT);
  EXPECT_EQ(::read(file, object.get(), kObjectBytes), static_cast<ssize_t>(kObjectBytes));
  ::close(file);
}

TEST_F(SharedIo, ReadsARegularFile) {
  const auto onWhole = [](int file, unsigned char* object) {
    return ::read(file, object, kObjectBytes);
  };
  expectAsOnPlainMemory("whole", onInput(0, onWhole));
  expectAsOnPlainMemory("short", onInput(kFileBytes - 1500001, onWhole));
  expectAsOnPlainMemory("at the end", onInput(kFileBytes, onWhole));
  expectAsOnPlainMemory("past the end", onInput(kFileBytes + 5, onWhole));
  expectAsOnPlainMemory("a part of the object", onInput(17, [](int file, unsigned char* object) {
                          return ::read(file, object + 4099, 2500001);
                        }));
  expectAsOnPlainMemory("one byte", onInput(17, [](int file, unsigned char* object) {
                          return ::read(file, object + 4095, 1);
                        }));
  expectAsOnPlainMemory("nothing", onInput(17, [](int file, unsigned char* object) {
                          return ::read(file, object, 0);
                        }));
  expectAsOnPlainMemory("fortified", onInput(1, [](int file, unsigned char* object) {
                          return __read_chk(file, object, kObjectBytes, kObjectBytes);
                        }));
}

TEST_F(SharedIo, ReadsAtAnOffset) {
  for (const off_t offset :
       {off_t{0}, off_t{12345}, static_cast<off_t>(kFileBytes - 1200000),
        static_cast<off_t>(kFileBytes), off_t{-1}, std::numeric_limits<off_t>::max() - 5}) {
    const std::string what = "pread at " + std::to_string(offset);
    expectAsOnPlainMemory(what.c_str(), onInput(7, [&](int file, unsigned char* object) {
                            return ::pread(file, object, kObjectBytes, offset);
                          }));
  }
  expectAsOnPlainMemory("pread64", onInput(7, [](int file, unsigned char* object) {
                          return ::pread64(file, object + 1, kObjectBytes - 1, 1);
                        }));
  expectAsOnPlainMemory("fortified", onInput(7, [](int file, unsigned char* object) {
                          return __pread_chk(file, object, 2000000, 1, kObjectBytes);
                        }));
  expectAsOnPlainMemory("fortified 64", onInput(7, [](int file, unsigned char* object) {
                          return __pread64_chk(file, object, 2000000, 1, kObjectBytes);
                        }));
}

TEST_F(SharedIo, FailingReadsFailAlike) {
  expectAsOnPlainMemory("no descriptor", [](unsigned char* object) {
    return outcomeOf([&] { return ::read(-1, object, kObjectBytes); });
  });
  expectAsOnPlainMemory("write-only", onOutput(O_WRONLY, [](int file, unsigned char* object) {
                          return ::read(file, object, kObjectBytes);
                        }));
  expectAsOnPlainMemory("a directory", [this](unsigned char* object) {
    const int descriptor = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY);
    Outcome outcome = outcomeOf([&] { return ::read(descriptor, object, 100); });
    ::close(descriptor);
    return outcome;
  });
  expectAsOnPlainMemory("more than the largest count",
                        onInput(0, [](int file, unsigned char* object) {
                          volatile std::size_t bytes = ~std::size_t{0};
                          return ::read(file, object, bytes);
                        }));
}

TEST_F(SharedIo, WritesARegularFile) {
  const auto whole = [](int file, unsigned char* object) {
    return ::write(file, object, kObjectBytes);
  };
  expectAsOnPlainMemory("whole", onOutput(O_RDWR, whole));
  expectAsOnPlainMemory("appended", onOutput(O_RDWR | O_APPEND, whole));
  expectAsOnPlainMemory("read-only file", onOutput(O_RDONLY, whole));
  expectAsOnPlainMemory("a part of the object",
                        onOutput(O_RDWR, [](int file, unsigned char* object) {
                          return ::write(file, object + 4099, 2500001);
                        }));
  expectAsOnPlainMemory("at an offset", onOutput(O_RDWR, [](int file, unsigned char* object) {
                          return ::pwrite(file, object + 1, kObjectBytes - 1, 3);
                        }));
  expectAsOnPlainMemory("at an offset, 64", onOutput(O_RDWR, [](int file, unsigned char* object) {
                          return ::pwrite64(file, object, 2000000, 100);
                        }));
  expectAsOnPlainMemory("at a wrong offset", onOutput(O_RDWR, [](int file, unsigned char* object) {
                          return ::pwrite(file, object, kObjectBytes, -3);
                        }));
  expectAsOnPlainMemory("a full device", [](unsigned char* object) {
    const int full = ::open("/dev/full", O_WRONLY);
    Outcome outcome = outcomeOf([&] { return ::write(full, object, kObjectBytes); });
    ::close(full);
    return outcome;
  });
}

TEST_F(SharedIo, AFileSizeLimitMakesAWriteShortAndRaisesNoSignal) {
  rlimit old;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  // At the start of a piece, where a piece by itself would fail.
  const rlimit limit = {std::size_t{2} << 20, old.rlim_max};
  const auto oldHandler = std::signal(SIGXFSZ, [](int) {
    static constexpr char kText[] = "SIGXFSZ where there should be none\n";
    static_cast<void>(!::syscall(SYS_write, 2, kText, sizeof kText - 1));
    std::_Exit(1);
  });
  expectAsOnPlainMemory("limited", onOutput(O_RDWR, [&](int file, unsigned char* object) {
                          ::setrlimit(RLIMIT_FSIZE, &limit);
                          errno = 4095;
                          const long count = ::write(file, object, kObjectBytes);
                          const int error = errno;
                          ::setrlimit(RLIMIT_FSIZE, &old);
                          errno = error;
                          return count;
                        }));
  std::signal(SIGXFSZ, oldHandler);
}

TEST_F(SharedIo, ReadsWhatAPipeHasAndNoMore) {
  const auto fromPipe = [](std::size_t sent, int flags) {
    return [sent, flags](unsigned char* object) {
      int ends[2];
      EXPECT_EQ(::pipe2(ends, flags), 0);
      const Bytes message = patternOf(sent, 5);
      if (sent > 0) {
        EXPECT_EQ(::write(ends[1], message.data(), sent), static_cast<ssize_t>(sent));
      }
      if (flags == 0 && sent == 0) ::close(std::exchange(ends[1], -1));
      Outcome outcome = outcomeOf([&] { return ::read(ends[0], object + 5, kObjectBytes - 5); });
      ::close(ends[0]);
      if (ends[1] >= 0) ::close(ends[1]);
      return outcome;
    };
  };
  expectAsOnPlainMemory("some", fromPipe(30000, 0));
  expectAsOnPlainMemory("end of file", fromPipe(0, 0));
  expectAsOnPlainMemory("nothing yet", fromPipe(0, O_NONBLOCK));
}

TEST_F(SharedIo, WritesWhatAPipeTakes) {
  expectAsOnPlainMemory("non-blocking", [](unsigned char* object) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_NONBLOCK), 0);
    Outcome outcome = outcomeOf([&] { return ::write(ends[1], object, kObjectBytes); });
    outcome.elsewhere.resize(kObjectBytes);
    const ssize_t got = ::read(ends[0], outcome.elsewhere.data(), kObjectBytes);
    outcome.elsewhere.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    ::close(ends[0]);
    ::close(ends[1]);
    return outcome;
  });
  const auto oldHandler = std::signal(SIGPIPE, SIG_IGN);
  expectAsOnPlainMemory("nobody reads", [](unsigned char* object) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    ::close(ends[0]);
    Outcome outcome = outcomeOf([&] { return ::write(ends[1], object, kObjectBytes); });
    ::close(ends[1]);
    return outcome;
  });
  std::signal(SIGPIPE, oldHandler);
}

TEST_F(SharedIo, ADatagramStaysOne) {
  expectAsOnPlainMemory("cut to the buffer", [](unsigned char* object) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    Outcome outcome = outcomeOf([&] { return ::write(ends[0], object + 100, 9000); });
    EXPECT_EQ(outcome.result, 9000);
    EXPECT_EQ(::write(ends[0], "second", 6), 6);
    const Outcome received = outcomeOf([&] { return ::read(ends[1], object + 20000, 5000); });
    EXPECT_EQ(received.result, 5000);
    outcome.elsewhere.resize(100);
    const ssize_t got = ::read(ends[1], outcome.elsewhere.data(), 100);
    outcome.elsewhere.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    ::close(ends[0]);
    ::close(ends[1]);
    return outcome;
  });
}

void ignoreSignal(int) {}

TEST_F(SharedIo, AnInterruptedReadSaysSo) {
  struct sigaction handler {};
  handler.sa_handler = ignoreSignal;  // without SA_RESTART
  struct sigaction old;
  ASSERT_EQ(::sigaction(SIGUSR1, &handler, &old), 0);
  expectAsOnPlainMemory("interrupted", [](unsigned char* object) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    Outcome outcome;
    std::atomic<bool> finished{false};
    std::thread reader([&] {
      outcome = outcomeOf([&] { return ::read(ends[0], object, kObjectBytes); });
      finished = true;
    });
    while (!finished) {
      ::pthread_kill(reader.native_handle(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    reader.join();
    ::close(ends[0]);
    ::close(ends[1]);
    return outcome;
  });
  ::sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(SharedIo, AReaderThatWaitsForAPipeKeepsNobodyFromCallingKernels) {
  auto [object, plain] = prepare(BlockStates::kDirty);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ssize_t count = 0;
  std::thread reader([&, at = object.get()] { count = ::read(ends[0], at, kObjectBytes); });
  // Whether the reader is waiting by then or not: the call and its sync must come through.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fillByKernel(object.get(), 8);
  ASSERT_EQ(::write(ends[1], "after the kernel", 16), 16);
  reader.join();
  EXPECT_EQ(count, 16);
  EXPECT_EQ(std::memcmp(object.get(), "after the kernel", 16), 0);
  EXPECT_EQ(object[16], patternAt(16, 8));
  EXPECT_EQ(object[kObjectBytes - 1], patternAt(kObjectBytes - 1, 8));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(SharedIo, TwoThreadsReadingOneDescriptorEachGetOneStretchOfTheFile) {
  constexpr std::size_t kHalf = kFileBytes / 2;
  for (int round = 0; round < 4; ++round) {
    std::vector<adsm::unique_ptr<unsigned char[]>> objects;
    for (int i = 0; i < 2; ++i) {
      objects.push_back(adsm::makeUniqueForOverwrite<unsigned char[]>(kHalf));
    }
    const int file = ::open(input().c_str(), O_RDONLY);
    std::vector<std::thread> readers;
    for (const auto& object : objects) {
      readers.emplace_back([&, at = object.get()] {
        EXPECT_EQ(::read(file, at, kHalf), static_cast<ssize_t>(kHalf));
      });
    }
    for (std::thread& reader : readers) reader.join();
    ::close(file);
    const bool inOrder = objects[0][0] == patternAt(0, 99) && objects[0][1] == patternAt(1, 99) &&
                         objects[0][2] == patternAt(2, 99);
    for (std::size_t half = 0; half < 2; ++half) {
      const auto& object = objects[inOrder ? half : 1 - half];
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kHalf; ++i) {
        wrong += object[i] != patternAt(half * kHalf + i, 99);
      }
      EXPECT_EQ(wrong, 0u) << "in half " << half;
    }
  }
}

TEST_F(SharedIo, ABufferOfSharedAndPlainBytesIsFilledWhole) {
  auto [object, plain] = prepare(BlockStates::kInvalid);
  // One call that leaves the object: the kernel transfers what it can reach and says how much.
  const int file = ::open(input().c_str(), O_RDONLY);
  EXPECT_EQ(::read(file, object.get() + kObjectBytes - 100, 100), 100);
  for (std::size_t i = 0; i < 100; ++i) {
    ASSERT_EQ(object[kObjectBytes - 100 + i], patternAt(i, 99));
  }
  EXPECT_EQ(object[kObjectBytes - 101], plain[kObjectBytes - 101]);
  ::close(file);
}

// ---- Streams ----

TEST_F(SharedIo, ReadsAStreamWithExactItemCounts) {
  expectAsOnPlainMemory("whole", onInputStream([](std::FILE* file, unsigned char* object) {
                          return static_cast<long>(std::fread(object, 1, kObjectBytes, file));
                        }));
  expectAsOnPlainMemory("items of 7", onInputStream([](std::FILE* file, unsigned char* object) {
                          return static_cast<long>(std::fread(object + 3, 7, 300000, file));
                        }));
  expectAsOnPlainMemory("a partial last item",
                        onInputStream([](std::FILE* file, unsigned char* object) {
                          std::fseek(file, kFileBytes - 1500001, SEEK_SET);
                          return static_cast<long>(std::fread(object, 1000, 2500, file));
                        }));
  expectAsOnPlainMemory("small pieces", onInputStream([](std::FILE* file, unsigned char* object) {
                          std::size_t items = 0;
                          for (std::size_t i = 0; i < 3000; ++i) {
                            items += std::fread(object + i * 11, 11, 1, file);
                          }
                          return static_cast<long>(items);
                        }));
  expectAsOnPlainMemory(
      "items of nothing", onInputStream([](std::FILE* file, unsigned char* object) {
        return static_cast<long>(std::fread(object, 0, 10, file) + std::fread(object, 10, 0, file));
      }));
  expectAsOnPlainMemory("unlocked", onInputStream([](std::FILE* file, unsigned char* object) {
                          return static_cast<long>(::fread_unlocked(object, 3, 870000, file));
                        }));
  expectAsOnPlainMemory(
      "fortified", onInputStream([](std::FILE* file, unsigned char* object) {
        return static_cast<long>(__fread_chk(object, kObjectBytes, 3, 870000, file) +
                                 __fread_unlocked_chk(object, kObjectBytes, 5, 100, file));
      }));
}

TEST_F(SharedIo, ReadsAStreamThatIsNoFile) {
  expectAsOnPlainMemory("a pipe", [](unsigned char* object) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    std::thread writer([&] {
      const Bytes message = patternOf(1500000, 6);
      EXPECT_EQ(::write(ends[1], message.data(), message.size()), 1500000);
      ::close(ends[1]);
    });
    std::FILE* const stream = ::fdopen(ends[0], "rb");
    Outcome outcome =
        outcomeOf([&] { return static_cast<long>(std::fread(object + 9, 1000, 2500, stream)); });
    outcome.elsewhere = {std::feof(stream) != 0, std::ferror(stream) != 0};
    writer.join();
    std::fclose(stream);
    return outcome;
  });
  expectAsOnPlainMemory("memory", [](unsigned char* object) {
    Bytes contents = patternOf(400000, 7);
    std::FILE* const stream = ::fmemopen(contents.data(), contents.size(), "rb");
    Outcome outcome =
        outcomeOf([&] { return static_cast<long>(std::fread(object, 3, 200000, stream)); });
    outcome.elsewhere = {std::feof(stream) != 0, std::ferror(stream) != 0};
    std::fclose(stream);
    return outcome;
  });
}

TEST_F(SharedIo, WritesAStream) {
  expectAsOnPlainMemory("whole", onOutputStream("wb", [](std::FILE* file, unsigned char* object) {
                          return static_cast<long>(std::fwrite(object, 1, kObjectBytes, file));
                        }));
  expectAsOnPlainMemory("appended",
                        onOutputStream("ab", [](std::FILE* file, unsigned char* object) {
                          return static_cast<long>(std::fwrite(object + 3, 7, 300000, file));
                        }));
  expectAsOnPlainMemory("small pieces",
                        onOutputStream("wb", [](std::FILE* file, unsigned char* object) {
                          std::size_t items = 0;
                          for (std::size_t i = 0; i < 3000; ++i) {
                            items += ::fwrite_unlocked(object + i * 801, 11, 1, file);
                          }
                          return static_cast<long>(items);
                        }));
  expectAsOnPlainMemory("a stream for reading",
                        onInputStream([](std::FILE* file, unsigned char* object) {
                          return static_cast<long>(std::fwrite(object, 1, kObjectBytes, file));
                        }));
  expectAsOnPlainMemory("a full device", [](unsigned char* object) {
    std::FILE* const full = std::fopen("/dev/full", "wb");
    Outcome outcome =
        outcomeOf([&] { return static_cast<long>(std::fwrite(object, 1000, 2500, full)); });
    outcome.elsewhere = {std::ferror(full) != 0};
    std::fclose(full);
    return outcome;
  });
}

TEST_F(SharedIo, FortifiedCallsThatOverrunTheirBufferStillDie) {
  auto [object, plain] = prepare(BlockStates::kDirty);
  unsigned char* const at = object.get();
  EXPECT_DEATH(static_cast<void>(__read_chk(0, at, 11, 10)), "buffer overflow");
  EXPECT_DEATH(static_cast<void>(__fread_chk(at, 10, 3, 4, stdin)), "buffer overflow");
}

// ---- All of the above under every protocol ----

class EveryProtocol : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

// A process reads its GMAC_* variables once, so each combination is a process of its own.
TEST_P(EveryProtocol, GivesTheSameBytes) {
  const auto& [protocol, blockSize] = GetParam();
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    // Results of the child must not take the place of this process's.
    if (text.starts_with("GMAC_PROTOCOL=") || text.starts_with("GMAC_BLOCK_SIZE=") ||
        text.starts_with("GMAC_ACCEL=") || text.starts_with("GTEST_") ||
        text.starts_with("XML_OUTPUT_FILE=") || text.starts_with("TEST_TOTAL_SHARDS=") ||
        text.starts_with("TESTBRIDGE_")) {
      continue;
    }
    environment.emplace_back(text);
  }
  environment.push_back(std::string("GMAC_PROTOCOL=") + protocol);
  environment.push_back(std::string("GMAC_BLOCK_SIZE=") + blockSize);
  environment.push_back("GMAC_ACCEL=host");
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  char program[] = "/proc/self/exe";
  char filter[] = "--gtest_filter=SharedIo.*";
  char brief[] = "--gtest_brief=1";
  char* const arguments[] = {program, filter, brief, nullptr};
  pid_t child = 0;
  ASSERT_EQ(::posix_spawn(&child, program, nullptr, nullptr, arguments, pointers.data()), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "its output is above";
}

INSTANTIATE_TEST_SUITE_P(Io, EveryProtocol,
                         ::testing::Values(std::tuple("batch", "2M"), std::tuple("lazy", "2M"),
                                           std::tuple("rolling", "4K"),
                                           std::tuple("rolling", "2M")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + std::get<1>(info.param);
                         });

}  // namespace
