// SPDX-License-Identifier: Apache-2.0
//
// Programs that close descriptors that they did not open, start with closed standard streams, or
// may not make large files. Each test runs on the host accelerator in a process of its own.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmac/api/adsm.h"
#include "tests/support/child.h"

namespace gmac::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr adsmDim_t kOne = {1, 1, 1};
constexpr std::size_t kLarge = std::size_t{8} << 20;

void addOne(const adsmThreadBlock_t*, void** args) { ++**static_cast<int**>(args[0]); }

// The sanitizers would report the crash that is wanted.
__attribute__((no_sanitize("address", "undefined", "thread"))) void crash(const adsmThreadBlock_t*,
                                                                          void**) {
  int* volatile nowhere = reinterpret_cast<int*>(0x1230);
  *nowhere = 1;
}

adsmKernel_t makeKernel(const char* name, adsmHostKernel_t body, bool pointer) {
  static const std::size_t kSizes[] = {sizeof(void*)};
  adsmKernelDesc_t desc = {};
  desc.name = name;
  desc.paramCount = pointer ? 1 : 0;
  desc.paramSizes = kSizes;
  desc.host = body;
  adsmKernel_t kernel = nullptr;
  EXPECT_EQ(adsmKernelCreate(&desc, &kernel), adsmSuccess) << adsmLastErrorString();
  return kernel;
}

std::set<int> openDescriptors() {
  std::set<int> open;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* const entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(folder)) open.insert(fd);
  }
  closedir(folder);
  return open;
}

std::string nameOf(int fd) {
  char name[256] = {};
  (void)!readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), name, sizeof name - 1);
  return name;
}

void run(const char* child) {
  const ChildEnd end = runChild(std::string("ClosedDescriptorsChild.DISABLED_") + child,
                                {{"GMAC_ACCEL", "host"},
                                 {"GMAC_HOST_MEMORY", "256M"},
                                 {"GMAC_HOST_THREADS", "2"},
                                 {"GMAC_BLOCK_SIZE", "64K"}});
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  EXPECT_THAT(end.output, HasSubstr("[  PASSED  ] 1 test"));
}

class ClosedDescriptorsChild : public ::testing::Test {
 protected:
  // Allocates, writes, calls and reads; 2 in every page's first byte shows that it worked.
  bool use(std::size_t bytes = kLarge) {
    data_ = static_cast<int*>(adsmAlloc(bytes));
    if (data_ == nullptr) return false;
    std::memset(data_, 0, bytes);
    data_[0] = 1;
    void* args[] = {&data_};
    kernel_ = makeKernel("addOne", &addOne, true);
    return adsmCall(kernel_, kOne, kOne, 0, args) == adsmSuccess && adsmSync() == adsmSuccess &&
           data_[0] == 2;
  }

  int* data_ = nullptr;
  adsmKernel_t kernel_ = nullptr;
};

// ---- The runtime's own numbers

// Everything up to `last` is closed when the runtime starts.
void startWithout(int last, const std::function<bool()>& use) {
  const int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
  const int errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
  for (int fd = 0; fd <= last; ++fd) close(fd);
  const std::set<int> before = openDescriptors();
  const bool worked = use();
  const std::set<int> after = openDescriptors();
  std::vector<int> standard;
  std::vector<int> inherited;
  for (const int fd : after) {
    if (before.count(fd) != 0) continue;
    if (fd <= STDERR_FILENO) standard.push_back(fd);
    if (fcntl(fd, F_GETFD) != FD_CLOEXEC) inherited.push_back(fd);
  }
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  EXPECT_TRUE(worked) << adsmLastErrorString();
  EXPECT_THAT(standard, ::testing::IsEmpty());
  EXPECT_THAT(inherited, ::testing::IsEmpty());
  EXPECT_GT(after.size(), before.size()) << "the runtime was to have descriptors";
}

TEST(ClosedDescriptors, TheRuntimeTakesNoStandardStreamsNumber) { run("WithoutStandardStreams"); }
TEST_F(ClosedDescriptorsChild, DISABLED_WithoutStandardStreams) {
  startWithout(STDERR_FILENO, [this] { return use(); });
}

TEST(ClosedDescriptors, TheRuntimeStartsWhereEveryLowNumberIsClosed) { run("WithoutLowNumbers"); }
TEST_F(ClosedDescriptorsChild, DISABLED_WithoutLowNumbers) {
  startWithout(9, [this] { return use(); });
}

// ---- The program closes the runtime's

// Where the program's own file lies now.
class PreciousFile {
 public:
  // Puts a file with contents of its own under the number.
  explicit PreciousFile(int fd) : fd_(fd) {
    const int made = memfd_create("precious", 0);
    EXPECT_EQ(dup2(made, fd), fd);  // and closes what was there
    close(made);
    const std::string text(kBytes, 'p');
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(kBytes));
  }
  void expectUntouched() const {
    std::string text(kBytes + 1, '\0');
    EXPECT_EQ(pread(fd_, text.data(), text.size(), 0), static_cast<ssize_t>(kBytes))
        << "the file's size changed, or it was closed";
    EXPECT_TRUE(text.substr(0, kBytes) == std::string(kBytes, 'p')) << "its bytes changed";
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  const int fd_;
};

// Runs `then` with the program's own files in place of the runtime's descriptors whose names begin
// with one of `kinds`, and looks at these files again.
void replace(const std::set<int>& before, const std::vector<std::string>& kinds,
             const std::function<void()>& then) {
  std::vector<PreciousFile> files;
  for (const int fd : openDescriptors()) {
    for (const std::string& kind : kinds) {
      if (before.count(fd) == 0 && nameOf(fd).starts_with(kind)) {
        files.emplace_back(fd);
        break;
      }
    }
  }
  EXPECT_GE(files.size(), kinds.size());
  then();
  for (const PreciousFile& file : files) file.expectUntouched();
}

TEST(ClosedDescriptors, AFileInTheMemoryFilesPlaceIsLeftAlone) { run("MemoryFile"); }
TEST_F(ClosedDescriptorsChild, DISABLED_MemoryFile) {
  const std::set<int> before = openDescriptors();
  ASSERT_TRUE(use()) << adsmLastErrorString();
  replace(before, {"/memfd:gmac"}, [this] {
    EXPECT_EQ(adsmAlloc(2 * kLarge), nullptr);
    EXPECT_EQ(adsmLastError(), adsmErrorSystem) << adsmLastErrorString();
    EXPECT_THAT(adsmLastErrorString(),
                AllOf(HasSubstr("memory file"), HasSubstr("precious"), HasSubstr("did not open")));
    // Objects that are there have all that they need.
    void* args[] = {&data_};
    EXPECT_EQ(adsmCall(kernel_, kOne, kOne, 0, args), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(adsmSync(), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(data_[0], 3);
    EXPECT_EQ(adsmFree(data_), adsmSuccess) << adsmLastErrorString();
    // The device keeps and clears memory that has just been freed, which takes no file. There is no
    // other memory: bytes of the file that are freed could not be given back.
    const auto* const again = static_cast<const int*>(adsmAlloc(kLarge));
    ASSERT_NE(again, nullptr) << adsmLastErrorString();
    EXPECT_EQ(std::count(again, again + kLarge / sizeof(int), 0),
              static_cast<std::ptrdiff_t>(kLarge / sizeof(int)));
    EXPECT_EQ(adsmAlloc(kLarge), nullptr);
  });
}

void expectLost(int* data, adsmKernel_t kernel, const char* what) {
  EXPECT_EQ(adsmAlloc(kLarge), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorAcceleratorLost) << adsmLastErrorString();
  EXPECT_THAT(adsmLastErrorString(), AllOf(HasSubstr(what), HasSubstr("did not open")));
  EXPECT_EQ(adsmAlloc(100), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorAcceleratorLost) << adsmLastErrorString();
  void* args[] = {&data};
  EXPECT_EQ(adsmCall(kernel, kOne, kOne, 0, args), adsmErrorAcceleratorLost)
      << adsmLastErrorString();
}

TEST(ClosedDescriptors, AFileInTheDeviceSocketsPlaceIsLeftAlone) { run("Socket"); }
TEST_F(ClosedDescriptorsChild, DISABLED_Socket) {
  const std::set<int> before = openDescriptors();
  ASSERT_TRUE(use()) << adsmLastErrorString();
  replace(before, {"socket:"}, [this] { expectLost(data_, kernel_, "socket"); });
}

TEST(ClosedDescriptors, AFileInTheDevicesPidfdsPlaceIsLeftAlone) { run("Pidfd"); }
TEST_F(ClosedDescriptorsChild, DISABLED_Pidfd) {
  const std::set<int> before = openDescriptors();
  ASSERT_TRUE(use()) << adsmLastErrorString();
  std::vector<std::string> kinds;
  for (const int fd : openDescriptors()) {
    if (before.count(fd) == 0 && nameOf(fd).find("pidfd") != std::string::npos) {
      kinds.push_back(nameOf(fd));
    }
  }
  replace(before, kinds, [this] { expectLost(data_, kernel_, "pidfd"); });
}

TEST(ClosedDescriptors, FilesInThePlacesOfAllAreLeftAlone) { run("All"); }
TEST_F(ClosedDescriptorsChild, DISABLED_All) {
  const std::set<int> before = openDescriptors();
  ASSERT_TRUE(use()) << adsmLastErrorString();
  data_[0] = 7;
  replace(before, {"/memfd:gmac", "socket:"}, [this] {
    expectLost(data_, kernel_, "socket");
    EXPECT_EQ(data_[0], 7) << "what the CPU has stays readable";
    (void)adsmFree(data_);
  });
}

// ---- Limits of files

TEST(ClosedDescriptors, ALimitOfFileSizesIsAnErrorOfAllocationsAndNoSignal) { run("FileSize"); }
TEST_F(ClosedDescriptorsChild, DISABLED_FileSize) {
  const rlimit limit{std::size_t{16} << 20, RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_EQ(adsmAlloc(std::size_t{64} << 20), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorHostMemory);
  EXPECT_THAT(adsmLastErrorString(),
              AllOf(HasSubstr("RLIMIT_FSIZE"), HasSubstr("16777216"), HasSubstr("67108864")));
  EXPECT_TRUE(use()) << adsmLastErrorString();
}

// ---- A lost accelerator

TEST(LostAccelerator, GivesNoSmallObjects) { run("SmallObjects"); }
TEST_F(ClosedDescriptorsChild, DISABLED_SmallObjects) {
  // From the region in which the next would be, too.
  auto* const object = static_cast<int*>(adsmAlloc(100));
  ASSERT_NE(object, nullptr) << adsmLastErrorString();
  *object = 1;
  ASSERT_EQ(adsmCall(makeKernel("crash", &crash, false), kOne, kOne, 0, nullptr), adsmSuccess);
  EXPECT_EQ(adsmSync(), adsmErrorKernel);
  EXPECT_EQ(adsmAlloc(100), nullptr);
  EXPECT_EQ(adsmLastError(), adsmErrorAcceleratorLost) << adsmLastErrorString();
}

}  // namespace
}  // namespace gmac::testing
