// SPDX-License-Identifier: Apache-2.0
#include "gmac/base/descriptor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace gmac {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int memoryFile(const char* name) { return memfd_create(name, 0); }

// Whether `body` holds in a child whose standard streams are closed.
bool withoutStandardStreams(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) close(fd);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

bool standardStreamsAreClosed() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) return false;
  }
  return true;
}

TEST(Descriptor, LeavesTheStandardStreamsNumbersAlone) {
  EXPECT_TRUE(withoutStandardStreams([] {
    const int fd = memoryFile("first");
    const Descriptor descriptor(fd);
    return fd == 0 && descriptor.get() > STDERR_FILENO && descriptor.ours() &&
           standardStreamsAreClosed();
  }));
}

TEST(Descriptor, IsClosedAtExec) {
  EXPECT_TRUE(withoutStandardStreams([] {
    const Descriptor descriptor(memoryFile("first"));
    return fcntl(descriptor.get(), F_GETFD) == FD_CLOEXEC;
  }));
}

TEST(Descriptor, OfStreamsAndWholeFilesAreNoStandardStreamsEither) {
  EXPECT_TRUE(withoutStandardStreams([] {
    const Stream stream = openStream("/proc/self/maps");
    return stream != nullptr && fileno(stream.get()) > STDERR_FILENO &&
           readWholeFile("/proc/self/comm").has_value() && standardStreamsAreClosed();
  }));
}

TEST(Descriptor, TellsWhatIsMissing) {
  EXPECT_EQ(readWholeFile("/proc/self/no_such_file"), std::nullopt);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(openStream("/proc/self/no_such_file"), nullptr);
}

TEST(Descriptor, ClosesItsFile) {
  int fd = -1;
  {
    const Descriptor descriptor(memoryFile("short"));
    fd = descriptor.get();
    EXPECT_EQ(*descriptor.use("a file"), fd);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(Descriptor, NoticesThatItWasClosed) {
  const Descriptor descriptor(memoryFile("mine"));
  close(descriptor.get());
  EXPECT_FALSE(descriptor.ours());
  const auto used = descriptor.use("the memory file");
  EXPECT_EQ(used.status().code(), adsmErrorSystem);
  EXPECT_THAT(lastErrorText(), AllOf(HasSubstr(std::to_string(descriptor.get())),
                                     HasSubstr("the memory file"), HasSubstr("is closed")));
}

TEST(Descriptor, LeavesTheProgramsFileAloneThatHasItsNumberNow) {
  int fd = -1;
  {
    const Descriptor descriptor(memoryFile("mine"));
    fd = descriptor.get();
    const int other = memoryFile("another");
    ASSERT_EQ(dup2(other, fd), fd);
    close(other);
    EXPECT_FALSE(descriptor.ours());
    EXPECT_EQ(descriptor.use("the memory file").status().code(), adsmErrorSystem);
    EXPECT_THAT(lastErrorText(), AllOf(HasSubstr("the memory file"), HasSubstr("another")));
  }
  EXPECT_NE(fcntl(fd, F_GETFD), -1) << "the program's file was closed";
  close(fd);
}

TEST(Descriptor, TellsSocketsApart) {
  int first[2];
  int second[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, first), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, second), 0);
  const Descriptor descriptor(first[0]);
  ASSERT_EQ(dup2(second[0], first[0]), first[0]);
  EXPECT_FALSE(descriptor.ours());
  for (const int fd : {first[0], first[1], second[0], second[1]}) close(fd);
}

TEST(Descriptor, KeepsItsFileThroughAMove) {
  Descriptor from(memoryFile("moved"));
  const int fd = from.get();
  Descriptor to(std::move(from));
  EXPECT_EQ(to.get(), fd);
  EXPECT_TRUE(to.ours());
  to = Descriptor();
  EXPECT_FALSE(to);
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

}  // namespace
}  // namespace gmac
