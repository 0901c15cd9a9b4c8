// SPDX-License-Identifier: Apache-2.0
//
// Cases that random calls rarely or never produce: tables that do not exist, buffers that must
// grow, waits.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/preloaded_io/memory.h"
#include "tests/preloaded_io/operations.h"
#include "tests/preloaded_io/program.h"

namespace gmac::testing {
namespace {

TwoSides& sides() {
  static TwoSides the;
  return the;
}

char* sharedText() { return reinterpret_cast<char*>(sides().shared().at + Memory::kControlBytes); }

// ---- What is not there ----

template <typename Call>
void expectFault(const char* what, const Call& call) {
  errno = 0;
  EXPECT_EQ(call(), -1) << what;
  EXPECT_EQ(errno, EFAULT) << what;
}

TEST(Edges, TablesThatAreNotThereFailAsTheyDo) {
  sides();  // something is shared from here on
  void* const nothing = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const parts = static_cast<iovec*>(nothing);
  auto* const header = static_cast<msghdr*>(nothing);
  auto* const headers = static_cast<mmsghdr*>(nothing);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ASSERT_EQ(::write(ends[0], "some", 4), 4);
  expectFault("readv", [&] { return ::readv(ends[1], parts, 2); });
  expectFault("writev", [&] { return ::writev(ends[1], parts, 2); });
  expectFault("recvmsg", [&] { return ::recvmsg(ends[1], header, MSG_DONTWAIT); });
  expectFault("sendmsg", [&] { return ::sendmsg(ends[1], header, 0); });
  expectFault("sendmmsg", [&] { return ::sendmmsg(ends[1], headers, 1, 0); });
  expectFault("process_vm_readv",
              [&] { return ::process_vm_readv(::getpid(), parts, 1, parts, 1, 0); });
  expectFault("a length of an address", [&] {
    sockaddr_storage address;
    return ::recvfrom(ends[1], sharedText(), 4, 0, reinterpret_cast<sockaddr*>(&address),
                      static_cast<socklen_t*>(nothing));
  });
  const std::vector<iovec> partsThere(IOV_MAX + 1, {sharedText(), 4});
  for (const int count : {IOV_MAX + 1, -1}) {
    volatile int wrong = count;  // which a compiler would warn of
    EXPECT_EQ(::readv(ends[1], partsThere.data(), wrong), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  ::munmap(nothing, 4096);
  ::close(ends[0]);
  ::close(ends[1]);
}

// ---- Lines ----

TEST(Edges, ALineThatOutgrowsItsObjectGetsALargerOne) {
  const std::string line(5000, 'x');
  std::FILE* const stream = ::tmpfile();
  std::fputs((line + "\nshort\n").c_str(), stream);
  std::rewind(stream);
  auto* const small = static_cast<char*>(api().alloc(100));
  char* buffer = small;
  std::size_t room = 100;
  ASSERT_EQ(::getline(&buffer, &room, stream), 5001);
  EXPECT_GE(room, 5002u);
  EXPECT_EQ(std::string(buffer), line + "\n");
  EXPECT_NE(api().free(small), adsmSuccess) << "the old object is still there";
  char* const larger = buffer;
  EXPECT_EQ(::getline(&buffer, &room, stream), 6);
  EXPECT_EQ(buffer, larger);
  EXPECT_STREQ(buffer, "short\n");
  EXPECT_EQ(::getline(&buffer, &room, stream), -1);
  EXPECT_STREQ(buffer, "short\n");
  EXPECT_EQ(api().free(buffer), adsmSuccess) << "the larger one is no shared object";
  std::fclose(stream);
}

TEST(Edges, ALineThatOutgrowsPartOfAnObjectFails) {
  std::FILE* const stream = ::tmpfile();
  std::fputs("a line of more bytes than that\n", stream);
  std::rewind(stream);
  char* const inside = sharedText() + 10;
  std::strcpy(inside, "before");
  char* buffer = inside;
  std::size_t room = 8;
  errno = 0;
  EXPECT_EQ(::getline(&buffer, &room, stream), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(buffer, inside);
  EXPECT_EQ(room, 8u);
  EXPECT_STREQ(inside, "before");
  std::fclose(stream);
}

TEST(Edges, ALineWithoutABufferIsTheCLibrarys) {
  std::FILE* const stream = ::tmpfile();
  std::fputs("a line\n", stream);
  std::rewind(stream);
  char* buffer = sharedText();
  std::size_t room = 0;
  EXPECT_EQ(::getline(&buffer, &room, stream), 7);
  EXPECT_NE(buffer, sharedText());
  EXPECT_STREQ(buffer, "a line\n");
  std::free(buffer);
  std::fclose(stream);
}

// ---- Waits ----

TEST(Edges, AReceiverThatWaitsKeepsNobodyFromCallingKernels) {
  enum class How { kOne, kMessage, kVector };
  const auto receive = [](How how, int socket) {
    iovec parts[] = {{sharedText(), 10}, {sharedText() + 100, 90}};
    msghdr header = {};
    header.msg_iov = parts;
    header.msg_iovlen = 2;
    return how == How::kOne      ? ::recv(socket, sharedText(), 100, 0)
           : how == How::kVector ? ::readv(socket, parts, 2)
                                 : ::recvmsg(socket, &header, 0);
  };
  for (const How how : {How::kOne, How::kMessage, How::kVector}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    std::memset(sharedText(), 'b', 200);
    ssize_t count = 0;
    std::thread receiver([&] { count = receive(how, ends[1]); });
    // Whether it waits by then or not: a kernel that may write the object must come through.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    static_cast<void>(sides().differenceOnAccelerator());
    ASSERT_EQ(::write(ends[0], "after the kernel", 16), 16);
    receiver.join();
    EXPECT_EQ(count, 16);
    EXPECT_EQ(std::string(sharedText(), 10), "after the ");
    EXPECT_EQ(std::string(sharedText() + (how == How::kOne ? 10 : 100), 6), "kernel");
    EXPECT_EQ(sharedText()[106], 'b');
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST(Edges, ACallThatWantsAllOfItWaitsForAllOfIt) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::thread sender([&] {
    for (int i = 0; i < 10; ++i) {
      const std::string part(1000, static_cast<char>('a' + i));
      EXPECT_EQ(::write(ends[0], part.data(), part.size()), 1000);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_EQ(::recv(ends[1], sharedText(), 10000, MSG_WAITALL), 10000);
  sender.join();
  EXPECT_EQ(sharedText()[0], 'a');
  EXPECT_EQ(sharedText()[9999], 'j');
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Edges, AnInterruptedReceiveSaysSoAndLeavesTheBuffer) {
  struct sigaction handler = {};
  handler.sa_handler = [](int) {};  // without SA_RESTART
  struct sigaction old;
  ASSERT_EQ(::sigaction(SIGUSR1, &handler, &old), 0);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::memset(sharedText(), 'b', 100);
  ssize_t count = 0;
  int error = 0;
  std::atomic<bool> finished{false};
  std::thread receiver([&] {
    iovec part = {sharedText(), 100};
    count = ::readv(ends[1], &part, 1);
    error = errno;
    finished = true;
  });
  while (!finished) {
    ::pthread_kill(receiver.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  receiver.join();
  EXPECT_EQ(count, -1);
  EXPECT_EQ(error, EINTR);
  EXPECT_EQ(std::string(sharedText(), 100), std::string(100, 'b'));
  ::sigaction(SIGUSR1, &old, nullptr);
  ::close(ends[0]);
  ::close(ends[1]);
}

// ---- What goes to standard output ----

TEST(Edges, PutsWritesATextAndALine) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::fflush(stdout);
  const int saved = ::dup(STDOUT_FILENO);
  ::dup2(ends[1], STDOUT_FILENO);
  const std::string text(20000, 'p');  // more than a stream's buffer
  std::memcpy(sharedText(), text.c_str(), text.size() + 1);
  static_cast<void>(sides().differenceOnAccelerator());  // by a kernel: the blocks are closed
  const int result = std::puts(sharedText());
  std::fflush(stdout);
  ::dup2(saved, STDOUT_FILENO);
  ::close(saved);
  ::close(ends[1]);
  EXPECT_EQ(result, 20001);
  std::vector<unsigned char> written = drain(ends[0]);
  std::erase(written, 255);  // where a read ended
  EXPECT_EQ(std::string(written.begin(), written.end()), text + "\n");
  ::close(ends[0]);
}

// ---- Where a call on plain memory would go astray alike ----

// Three bytes of a file by a system call that nothing stands in for.
std::string textAt(int file, off64_t offset) {
  char text[4] = {};
  EXPECT_EQ(::syscall(SYS_pread64, file, text, 3, offset), 3);
  return text;
}

TEST(Edges, PositionedVectorsMoveTheBytesThatTheyName) {
  char* const text = sharedText();
  const int file = ::open(outputPath().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  std::memcpy(text, "onetwo", 6);
  iovec part = {text, 3};
  EXPECT_EQ(::pwritev(file, &part, 1, 10), 3);
  part.iov_base = text + 3;
  EXPECT_EQ(::pwritev2(file, &part, 1, 20, 0), 3);
  EXPECT_EQ(textAt(file, 10), "one");
  EXPECT_EQ(textAt(file, 20), "two");
  EXPECT_EQ(::preadv(file, &part, 1, 10), 3);
  EXPECT_EQ(std::string(text, 6), "oneone");
  EXPECT_EQ(::preadv2(file, &part, 1, 20, 0), 3);
  EXPECT_EQ(std::string(text, 6), "onetwo");
  ::close(file);
}

TEST(Edges, BothOffsetsOfATransferAreMoved) {
  auto* const offsets = reinterpret_cast<off64_t*>(sides().shared().at);
  const int file = ::open(outputPath().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::syscall(SYS_pwrite64, file, "onetwo", 6, 10), 6);
  offsets[0] = 13;
  offsets[1] = 100;
  EXPECT_EQ(::copy_file_range(file, &offsets[0], file, &offsets[1], 3, 0), 3);
  EXPECT_EQ(offsets[0], 16);
  EXPECT_EQ(offsets[1], 103);
  EXPECT_EQ(textAt(file, 100), "two");
  offsets[0] = 10;
  EXPECT_EQ(::splice(file, &offsets[0], ends[1], nullptr, 3, 0), 3);
  EXPECT_EQ(offsets[0], 13);
  EXPECT_EQ(::splice(ends[0], nullptr, file, &offsets[1], 3, 0), 3);
  EXPECT_EQ(offsets[1], 106);
  EXPECT_EQ(textAt(file, 103), "one");
  for (const int descriptor : {file, ends[0], ends[1]}) ::close(descriptor);
}

}  // namespace
}  // namespace gmac::testing

int main(int count, char** arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  return gmac::testing::runPreloaded(count, arguments, {"gmac/libgmac.so"});
}
