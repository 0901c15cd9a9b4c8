// SPDX-License-Identifier: Apache-2.0
//
// The library where the dynamic linker initialises or searches it at another place than usual. The
// program is not linked with it; its tests run again in processes that preload it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "gmac/api/adsm.h"
#include "tests/support/child.h"

namespace gmac::testing {
namespace {

const std::string kLibrary = std::filesystem::absolute("gmac/libgmac.so");
const std::string kEarlyLibrary = std::filesystem::absolute("tests/libearly.so");

template <typename Function>
Function api(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

ChildEnd run(const std::string& filter, const std::string& preloaded,
             const std::string& trace = "") {
  return runChild(filter, {{"LD_PRELOAD", preloaded},
                           {"GMAC_ACCEL", "host"},
                           {"GMAC_HOST_MEMORY", "64M"},
                           {"GMAC_HOST_THREADS", "1"},
                           {"GMAC_TRACE", trace}});
}

// ---- The runtime started by a constructor that runs before the library's own

TEST(Early, DISABLED_FindsWhatTheConstructorMade) {
  const auto object = api<int* (*)()>("earlyObject");
  ASSERT_NE(object, nullptr) << ::dlerror();
  ASSERT_NE(object(), nullptr) << api<decltype(&adsmLastErrorString)>("adsmLastErrorString")();
  // The C library's functions find it, too: the CPU has not touched it since the kernel ran.
  const int file = ::memfd_create("number", 0);
  const int number = 5;
  EXPECT_EQ(::write(file, &number, sizeof number), ssize_t{sizeof number});
  EXPECT_EQ(::pread(file, object() + 1, sizeof number, 0), ssize_t{sizeof number})
      << std::strerror(errno);
  ::close(file);
  EXPECT_EQ(object()[1], number);
  EXPECT_EQ(*object(), 42);
  *object() = 7;
  EXPECT_EQ(api<decltype(&adsmFree)>("adsmFree")(object()), adsmSuccess);
}

TEST(Early, ConstructorsOfOtherLibrariesStartTheRuntime) {
  const std::string trace = ::testing::TempDir() + "early.json";
  const ChildEnd end = run("Early.DISABLED_Finds*", kLibrary + ":" + kEarlyLibrary, trace);
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
  // Microseconds since the library was first used: of one clock, that constructor's as well.
  std::ifstream file(trace);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  constexpr double kMinute = 60e6;
  const std::string kTime = "\"ts\":";
  std::size_t times = 0;
  for (std::size_t at = text.find(kTime); at != std::string::npos;
       at = text.find(kTime, at + 1), ++times) {
    EXPECT_LT(std::strtod(text.c_str() + at + kTime.size(), nullptr), kMinute);
  }
  EXPECT_GT(times, 3U) << text;
}

// ---- The library searched after the C library, as one that another library needs is

void addOne(const adsmThreadBlock_t*, void** args) { ++**static_cast<int**>(args[0]); }

int* volatile touched = nullptr;
std::atomic<long> handled{0};

void touch(int) {
  if (touched != nullptr) *touched = *touched;
  ++handled;
}

TEST(Behind, DISABLED_TheInterfaceWorks) {
  // The functions that the program calls are the C library's own.
  ASSERT_EQ(::dlsym(RTLD_DEFAULT, "sigaction"),
            ::dlsym(::dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), "sigaction"));
  auto* object = static_cast<int*>(api<decltype(&adsmAlloc)>("adsmAlloc")(1 << 20));
  ASSERT_NE(object, nullptr);
  *object = 41;
  const std::size_t sizes[] = {sizeof object};
  adsmKernelDesc_t desc{};
  desc.name = "addOne";
  desc.paramCount = 1;
  desc.paramSizes = sizes;
  desc.host = &addOne;
  adsmKernel_t kernel = nullptr;
  ASSERT_EQ(api<decltype(&adsmKernelCreate)>("adsmKernelCreate")(&desc, &kernel), adsmSuccess);
  void* args[] = {&object};
  EXPECT_EQ(api<decltype(&adsmCall)>("adsmCall")(kernel, {1, 1, 1}, {1, 1, 1}, 0, args),
            adsmSuccess);
  EXPECT_EQ(api<decltype(&adsmSync)>("adsmSync")(), adsmSuccess);
  EXPECT_EQ(*object, 42);

  // A handler that the library does not see being set: it must not run within a call.
  struct sigaction action = {};
  action.sa_handler = &touch;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  touched = object;
  std::atomic<bool> over{false};
  std::thread sender([&over, receiver = ::pthread_self()] {
    while (!over) ::pthread_kill(receiver, SIGUSR1);
  });
  ::alarm(60);  // a handler that waits for the call's own lock waits for ever
  constexpr int kCalls = 2000;
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(api<decltype(&adsmCall)>("adsmCall")(kernel, {1, 1, 1}, {1, 1, 1}, 0, args),
              adsmSuccess);
    EXPECT_EQ(api<decltype(&adsmSync)>("adsmSync")(), adsmSuccess);
  }
  over = true;
  sender.join();
  EXPECT_EQ(*object, 42 + kCalls);
  EXPECT_GT(handled, 0);
  EXPECT_EQ(api<decltype(&adsmFree)>("adsmFree")(object), adsmSuccess);
}

TEST(Behind, AnotherLibraryMayNeedTheLibrary) {
  const ChildEnd end = run("Behind.DISABLED_The*", "libc.so.6:" + kLibrary);
  EXPECT_EQ(end.exitStatus, 0) << "signal " << end.signal << "\n" << end.output;
}

}  // namespace
}  // namespace gmac::testing
