// SPDX-License-Identifier: Apache-2.0
//
// If any chunk of a transfer is short or fails, exactly the bytes that the call counts have moved,
// the position agrees, and continuing from there gives the whole. GMAC_TEST_SEED repeats a run.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "tests/preloaded_io/fault_layer.h"
#include "tests/preloaded_io/memory.h"
#include "tests/preloaded_io/operations.h"
#include "tests/preloaded_io/program.h"

namespace gmac::testing {
namespace {

template <typename Function>
Function* ofLayer(const char* name) {
  auto* const function = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  if (function == nullptr) std::abort();
  return function;
}

void arm(int descriptor, int error, unsigned call) {
  ofLayer<decltype(faultLayerArm)>("faultLayerArm")(descriptor, error, call);
}
void disarm() { arm(-1, 0, 0); }
bool fired() { return ofLayer<decltype(faultLayerFired)>("faultLayerFired")() != 0; }

TwoSides& sides() {
  static TwoSides the;
  return the;
}

// `bytes` bytes at `at` of the shared memory, which are `done` bytes after the transfer's start.
using Call =
    std::function<ssize_t(int descriptor, unsigned char* at, std::size_t bytes, std::size_t done)>;

constexpr off_t kStart = 4321;

// As two parts, with nothing between them.
std::array<iovec, 2> halves(unsigned char* at, std::size_t bytes) {
  return {iovec{at, bytes / 3}, iovec{at + bytes / 3, bytes - bytes / 3}};
}

struct Way {
  const char* name;
  bool positioned;
  Call call;
};

using Names = std::array<const char*, 4>;

// A function of libc's on one buffer, on one at an offset, on parts and on parts at an offset.
template <auto One, auto At, auto Parts, auto PartsAt>
std::vector<Way> waysBy(const Names& names) {
  const auto offset = [](std::size_t done) { return kStart + static_cast<off_t>(done); };
  return {
      {names[0], false,
       [](int file, unsigned char* at, std::size_t bytes, std::size_t) {
         return One(file, at, bytes);
       }},
      {names[1], true,
       [offset](int file, unsigned char* at, std::size_t bytes, std::size_t done) {
         return At(file, at, bytes, offset(done));
       }},
      {names[2], false,
       [](int file, unsigned char* at, std::size_t bytes, std::size_t) {
         return Parts(file, halves(at, bytes).data(), 2);
       }},
      {names[3], true, [offset](int file, unsigned char* at, std::size_t bytes, std::size_t done) {
         return PartsAt(file, halves(at, bytes).data(), 2, offset(done));
       }}};
}

const std::vector<Way>& waysToRead() {
  static const auto all =
      waysBy<::read, ::pread, ::readv, ::preadv>({"read", "pread", "readv", "preadv"});
  return all;
}

const std::vector<Way>& waysToWrite() {
  static const auto all =
      waysBy<::write, ::pwrite, ::writev, ::pwritev>({"write", "pwrite", "writev", "pwritev"});
  return all;
}

// Runs `one` with each kind of trouble at each call in turn, until there is no such call.
// `one` says whether there was.
void withEveryFault(const std::function<bool(int error, unsigned call)>& one) {
  for (const int error : {0, EINTR, EIO}) {
    for (unsigned call = 0;; ++call) {
      SCOPED_TRACE(std::string(error == 0 ? "short" : std::strerror(error)) + " at call " +
                   std::to_string(call));
      if (!one(error, call) || ::testing::Test::HasFailure()) break;
    }
  }
}

void expectSame() {
  EXPECT_EQ(sides().differenceOnAccelerator(), "");
  EXPECT_EQ(sides().difference(), "");
}

class EveryFault : public ::testing::Test {
 protected:
  Random random_{testSeed()};
  const std::size_t offset_ = Memory::kControlBytes + 100;
  const std::size_t bytes_ = (std::size_t{5} << 19) - 12345;  // more than two pieces
  unsigned char* plain() { return sides().plain().at + offset_; }
  unsigned char* shared() { return sides().shared().at + offset_; }

  // Applies to plain memory the effect of a call that counted `count`.
  void expectFilled(off_t from, std::size_t done, ssize_t count) {
    for (ssize_t i = 0; i < count; ++i) {
      const std::size_t at = done + static_cast<std::size_t>(i);
      plain()[at] = inputByte(static_cast<std::size_t>(from) + at);
    }
  }
};

TEST_F(EveryFault, OfAReadLeavesWhatItDoesNotCount) {
  for (const Way& way : waysToRead()) {
    SCOPED_TRACE(way.name);
    withEveryFault([&](int error, unsigned call) {
      sides().stir(random_);
      const int file = ::open(inputPath().c_str(), O_RDONLY);
      const off_t start = way.positioned ? 7 : kStart;
      ::lseek(file, start, SEEK_SET);
      arm(file, error, call);
      errno = 0;
      const ssize_t count = way.call(file, shared(), bytes_, 0);
      const int errorOfCall = errno;
      const bool spoilt = fired();
      disarm();
      EXPECT_EQ(spoilt, count < static_cast<ssize_t>(bytes_));
      EXPECT_EQ(errorOfCall, count < 0 ? error : 0);
      expectFilled(kStart, 0, count);
      EXPECT_EQ(::lseek(file, 0, SEEK_CUR),
                way.positioned ? start : start + std::max<off_t>(count, 0));
      expectSame();
      // The rest, as a program goes on.
      std::size_t done = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      while (done < bytes_) {
        const ssize_t more = way.call(file, shared() + done, bytes_ - done, done);
        if (more <= 0) break;
        expectFilled(kStart, done, more);
        done += static_cast<std::size_t>(more);
      }
      EXPECT_EQ(done, bytes_);
      EXPECT_EQ(sides().difference(), "");
      ::close(file);
      return spoilt;
    });
  }
}

TEST_F(EveryFault, OfAWriteWritesWhatItCounts) {
  for (const Way& way : waysToWrite()) {
    SCOPED_TRACE(way.name);
    withEveryFault([&](int error, unsigned call) {
      sides().stir(random_);
      const int file = ::open(outputPath().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
      const off_t start = way.positioned ? 7 : kStart;
      ::lseek(file, start, SEEK_SET);
      arm(file, error, call);
      errno = 0;
      const ssize_t count = way.call(file, shared(), bytes_, 0);
      const int errorOfCall = errno;
      const bool spoilt = fired();
      disarm();
      EXPECT_EQ(spoilt, count < static_cast<ssize_t>(bytes_));
      EXPECT_EQ(errorOfCall, count < 0 ? error : 0);
      EXPECT_EQ(::lseek(file, 0, SEEK_CUR),
                way.positioned ? start : start + std::max<off_t>(count, 0));
      EXPECT_EQ(::lseek(file, 0, SEEK_END), count > 0 ? kStart + count : 0);
      std::vector<unsigned char> written(bytes_);
      const std::size_t wanted = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
      EXPECT_EQ(::pread(file, written.data(), wanted, kStart), static_cast<ssize_t>(wanted));
      EXPECT_TRUE(
          std::equal(written.begin(), written.begin() + static_cast<long>(wanted), plain()));
      expectSame();
      ::close(file);
      return spoilt;
    });
  }
}

TEST_F(EveryFault, OfASocketIsTheCallsOwn) {
  constexpr std::size_t kBytes = 50000;
  withEveryFault([&](int error, unsigned call) {
    bool spoilt = false;
    for (const bool asVector : {false, true}) {
      sides().stir(random_);
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
      auto parts = halves(shared(), kBytes);
      msghdr header = {};
      header.msg_iov = parts.data();
      header.msg_iovlen = parts.size();
      arm(ends[0], error, call);
      const ssize_t sent =
          asVector ? ::sendmsg(ends[0], &header, 0) : ::send(ends[0], shared(), kBytes, 0);
      spoilt = fired();
      disarm();
      EXPECT_EQ(sent, !spoilt ? ssize_t{kBytes} : error == 0 ? ssize_t{kBytes / 2} : -1);
      std::vector<unsigned char> arrived(kBytes);
      const ssize_t count = ::recv(ends[1], arrived.data(), kBytes, 0);
      EXPECT_EQ(count, sent);
      EXPECT_TRUE(
          std::equal(arrived.begin(), arrived.begin() + std::max<ssize_t>(sent, 0), plain()));

      std::vector<unsigned char> message(kBytes, 99);
      EXPECT_EQ(::send(ends[1], message.data(), kBytes, 0), ssize_t{kBytes});
      arm(ends[0], error, call);
      const ssize_t received =
          asVector ? ::recvmsg(ends[0], &header, 0) : ::recv(ends[0], shared(), kBytes, 0);
      EXPECT_EQ(received, !fired() ? ssize_t{kBytes} : error == 0 ? ssize_t{kBytes / 2} : -1);
      std::fill_n(plain(), std::max<ssize_t>(received, 0), 99);
      disarm();
      expectSame();
      ::close(ends[0]);
      ::close(ends[1]);
    }
    return spoilt;
  });
}

// A stream's source or sink that fails at one of its calls.
struct Cookie {
  int error = 0;
  unsigned failing = 0;
  unsigned calls = 0;
  std::size_t at = 0;
  std::vector<unsigned char> written;

  // How much of `bytes` to transfer, or -1.
  ssize_t next(std::size_t bytes) {
    if (calls++ != failing) return static_cast<ssize_t>(bytes);
    if (error == 0) return static_cast<ssize_t>((bytes + 1) / 2);
    errno = error;
    return -1;
  }
};

ssize_t readCookie(void* of, char* buffer, std::size_t bytes) {
  auto* const cookie = static_cast<Cookie*>(of);
  const ssize_t count = cookie->next(bytes);
  for (ssize_t i = 0; i < count; ++i) buffer[i] = static_cast<char>(inputByte(cookie->at++));
  return count;
}

ssize_t writeCookie(void* of, const char* buffer, std::size_t bytes) {
  auto* const cookie = static_cast<Cookie*>(of);
  const ssize_t count = cookie->next(bytes);
  if (count < 0) return 0;  // what a cookie says of a failure
  cookie->written.insert(cookie->written.end(), buffer, buffer + count);
  return count;
}

TEST_F(EveryFault, OfAStreamsSourceEndsTheReadThere) {
  for (const int error : {0, EINTR, EIO}) {
    for (unsigned call = 0; call < 16; ++call) {
      SCOPED_TRACE(std::to_string(error) + " at call " + std::to_string(call));
      sides().stir(random_);
      Cookie cookie{error, call, 0, 0, {}};
      std::FILE* const stream =
          ::fopencookie(&cookie, "rb", {readCookie, nullptr, nullptr, nullptr});
      errno = 0;
      const std::size_t count = std::fread(shared(), 1, bytes_, stream);
      if (error != 0 && cookie.calls > call) {
        EXPECT_LT(count, bytes_);
        EXPECT_EQ(errno, error);
        EXPECT_TRUE(std::ferror(stream));
      } else {
        EXPECT_EQ(count, bytes_);
      }
      expectFilled(0, 0, static_cast<ssize_t>(count));
      expectSame();
      std::clearerr(stream);
      EXPECT_EQ(std::fread(shared() + count, 1, bytes_ - count, stream), bytes_ - count);
      expectFilled(0, count, static_cast<ssize_t>(bytes_ - count));
      EXPECT_EQ(sides().difference(), "");
      std::fclose(stream);
      if (HasFailure()) return;
    }
  }
}

TEST_F(EveryFault, OfAStreamsSinkEndsTheWriteThere) {
  for (const int error : {0, EINTR, EIO}) {
    for (unsigned call = 0; call < 16; ++call) {
      SCOPED_TRACE(std::to_string(error) + " at call " + std::to_string(call));
      sides().stir(random_);
      Cookie cookie{error, call, 0, 0, {}};
      std::FILE* const stream =
          ::fopencookie(&cookie, "wb", {nullptr, writeCookie, nullptr, nullptr});
      std::setvbuf(stream, nullptr, _IONBF, 0);
      const std::size_t count = std::fwrite(shared(), 1, bytes_, stream);
      if (cookie.calls > call) {  // a sink that takes less than it is given has failed, too
        EXPECT_LT(count, bytes_);
        EXPECT_TRUE(std::ferror(stream));
      } else {
        EXPECT_EQ(count, bytes_);
      }
      EXPECT_EQ(cookie.written.size(), count);
      EXPECT_TRUE(std::equal(cookie.written.begin(), cookie.written.end(), plain()));
      expectSame();
      std::fclose(stream);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gmac::testing

int main(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  return gmac::testing::runPreloaded(count, arguments,
                                     {"gmac/libgmac.so", "tests/preloaded_io/libfault_layer.so"});
}
