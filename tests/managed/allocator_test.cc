// SPDX-License-Identifier: Apache-2.0
//
// The functions that PyTorch looks up in the library of managed memory for its tensors, over the
// fake driver.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <thread>

namespace {

// Relative to where Bazel and the bundle start tests.
constexpr const char* kLibrary = "managed/python/liballocator.so";
constexpr const char* kDriver = "tests/cuda/libfakecuda.so";

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

class Allocator : public ::testing::Test {
 protected:
  void SetUp() override {
    // (The library looks its driver up once.)
    driver_ = dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(driver_, nullptr) << dlerror();
    library_ = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    allocate_ = find<void*(ssize_t, int, void*)>(library_, "gmacMalloc");
    free_ = find<void(void*, ssize_t, int, void*)>(library_, "gmacFree");
    ASSERT_NE(allocate_, nullptr) << dlerror();
    ASSERT_NE(free_, nullptr) << dlerror();
  }

  void* driver_ = nullptr;
  void* library_ = nullptr;
  void* (*allocate_)(ssize_t, int, void*) = nullptr;
  void (*free_)(void*, ssize_t, int, void*) = nullptr;
};

TEST_F(Allocator, GivesNothingForNoBytes) {
  EXPECT_EQ(allocate_(0, 0, nullptr), nullptr);
  free_(nullptr, 0, 0, nullptr);
}

// Such as a thread of PyTorch's that has not called CUDA's runtime yet.
TEST_F(Allocator, GivesMemoryToAThreadWithoutAContext) {
  auto* const getContext = find<int(void**)>(driver_, "cuCtxGetCurrent");
  if (getContext == nullptr) GTEST_SKIP() << "not built: there was no CUDA toolkit";
  std::thread([&] {
    void* context = nullptr;
    ASSERT_EQ(getContext(&context), 0);
    ASSERT_EQ(context, nullptr);
    void* const memory = allocate_(4096, 0, nullptr);
    EXPECT_NE(memory, nullptr);
    EXPECT_EQ(getContext(&context), 0);
    EXPECT_NE(context, nullptr);
    free_(memory, 4096, 0, nullptr);
  }).join();
}

}  // namespace
