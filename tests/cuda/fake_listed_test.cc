// SPDX-License-Identifier: Apache-2.0
//
// Launches of a managed-memory program whose kernels' code says which objects they may use: the
// whole runtime with the interposer linked in, over the fake driver. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "gmac/api/adsm.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "interpose/cuda/program_memory.h"
#include "tests/cuda/fake_program.h"

namespace gmac::interpose {
namespace {

using fake_cuda::kImage;

const bool kPrepared = [] {
  setenv("GMAC_MANAGED", "1", 0);
  return fake_cuda::prepare();
}();

constexpr std::size_t kCount = std::size_t{4} << 20;
constexpr std::size_t kBytes = kCount * sizeof(std::uint32_t);

// What nvcc would make of the fake's kernel; and of one that the analysis does not follow.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry increment(.param .u64 data, .param .u64 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [data];
  ld.param.u64 %rd2, [count];
  mov.u32 %r0, %tid.x;
  cvt.u64.u32 %rd3, %r0;
  setp.ge.u64 %p1, %rd3, %rd2;
  @%p1 bra done;
  cvta.to.global.u64 %rd4, %rd1;
  mul.wide.u32 %rd5, %r0, 4;
  add.s64 %rd4, %rd4, %rd5;
  ld.global.u32 %r1, [%rd4];
  add.s32 %r1, %r1, 1;
  st.global.u32 [%rd4], %r1;
done:
  ret;
}
)";
// That takes its array out of memory, and what it adds from the array behind.
constexpr char kTablePtx[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry addOther(.param .u64 table)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [table];
  cvta.to.global.u64 %rd1, %rd1;
  ld.global.u64 %rd2, [%rd1];
  ld.global.u64 %rd3, [%rd1+8];
  ld.global.u32 %r1, [%rd3];
  ld.global.u32 %r2, [%rd2];
  add.s32 %r2, %r2, %r1;
  st.global.u32 [%rd2], %r2;
  ret;
}
)";
constexpr char kOtherPtx[] = R"(
.version 7.0
.target sm_50
.address_size 64
.visible .entry increment(.param .u64 data, .param .u64 count)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [data];
  ld.global.u64 %rd2, [%rd1];
  ld.global.u64 %rd2, [%rd2];
  st.global.u32 [%rd2], %r1;
  ret;
}
)";

// The fake's kernel, which touches nothing where it has nothing to count.
CUresult incrementSome(const unsigned* grid, const unsigned* block, unsigned bytes, void** args) {
  return fake_cuda::argument<std::uint64_t>(args, 1) == 0
             ? CUDA_SUCCESS
             : fake_cuda::increment(grid, block, bytes, args);
}
// What the second pointer of a table points to, to what the first one does.
CUresult addOther(const unsigned*, const unsigned*, unsigned, void** args) {
  auto* const* const table = fake_cuda::device(fake_cuda::argument<std::uint32_t* const*>(args, 0));
  *fake_cuda::device(table[0]) += *fake_cuda::device(table[1]);
  return CUDA_SUCCESS;
}
const fake_cuda::Kernel kSome[] = {{"increment", incrementSome, 2, fake_cuda::kSizes},
                                   {"addOther", addOther, 1, fake_cuda::kSizes}};
const fake_cuda::Image kSomeImage = {"fakecud", kSome, std::size(kSome), nullptr, 0};

class ListedLaunchesOfPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    CUcontext context = nullptr;
    ASSERT_EQ(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context), CUDA_SUCCESS);
    fake_cuda::standIn(&kSomeImage);
    fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9);
    fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    ASSERT_EQ(DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    increment_ = load(kPtx);
    data_ = allocate();
    other_ = allocate();
    data_[0] = other_[0] = 0;
    // Accesses that find their pages closed, here and there, until launches list.
    for (std::size_t i = 0; !coherence::launchesList() && expected_ < 50'000; ++i) {
      launch(increment_, data_);
      ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
      ++expected_;
      const std::size_t at = i * 40'961 * 1'024 % kCount;
      ASSERT_EQ(data_[at], at == 0 ? expected_ : 0);
    }
    ASSERT_TRUE(coherence::launchesList());
  }
  void TearDown() override {
    fake_cuda::stall(nullptr);
    for (std::uint32_t* const object : {data_, other_}) {
      EXPECT_EQ(DRIVER(cuMemFree)(reinterpret_cast<CUdeviceptr>(object)), CUDA_SUCCESS);
    }
    EXPECT_EQ(DRIVER(cuModuleUnload)(module_), CUDA_SUCCESS);
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  }

  CUfunction load(const void* image, const char* name = "increment") {
    CUfunction function = nullptr;
    EXPECT_EQ(DRIVER(cuModuleLoadDataEx)(&module_, image, 0, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuModuleGetFunction)(&function, module_, name), CUDA_SUCCESS);
    return function;
  }
  static std::uint32_t* allocate() {
    CUdeviceptr address = 0;
    EXPECT_EQ(DRIVER(cuMemAllocManaged)(&address, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    return reinterpret_cast<std::uint32_t*>(address);
  }
  void launch(CUfunction function, void* data, std::uint64_t count = 1) {
    void* args[] = {&data, &count};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
              CUDA_SUCCESS)
        << adsmLastErrorString();
  }
  // Whether launches like that list their objects.
  template <typename Launch>
  static bool lists(Launch launch) {
    const std::uint64_t before = stats().listedCalls.value();
    launch();
    return stats().listedCalls.value() != before;
  }

  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction increment_ = nullptr;
  std::uint32_t* data_ = nullptr;
  std::uint32_t* other_ = nullptr;
  std::uint32_t expected_ = 0;
};

TEST_F(ListedLaunchesOfPrograms, LeaveOtherObjectsAlone) {
  EXPECT_EQ(other_[1], 0U);
  fake_cuda::stall(stream_);
  EXPECT_TRUE(lists([&] { launch(increment_, data_); }));
  // The kernel does not end, and nobody waits for it here.
  other_[1] = 7;
  EXPECT_EQ(other_[1], 7U);
  fake_cuda::stall(nullptr);
  EXPECT_EQ(data_[0], expected_ + 1);
  launch(increment_, other_, 2);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(other_[0], 1U);
  EXPECT_EQ(other_[1], 8U);
}

TEST_F(ListedLaunchesOfPrograms, TakeArgumentsInEitherForm) {
  struct {
    std::uint32_t* data;
    std::uint64_t count;
  } buffer{other_, 1};
  std::size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  EXPECT_TRUE(lists([&] {
    ASSERT_EQ(DRIVER(cuLaunchKernel)(increment_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, extra),
              CUDA_SUCCESS);
  }));
  EXPECT_EQ(other_[0], 1U);
}

TEST_F(ListedLaunchesOfPrograms, KnowOnlyWhatTheRuntimeOrTheDriverKnows) {
  CUdeviceptr plain = 0;
  ASSERT_EQ(DRIVER(cuMemAlloc)(&plain, kBytes), CUDA_SUCCESS);
  EXPECT_TRUE(lists([&] { launch(increment_, reinterpret_cast<void*>(plain)); }));
  EXPECT_TRUE(lists([&] { launch(increment_, data_ + kCount - 1); }));
  // Where no memory is.
  EXPECT_FALSE(lists([&] { launch(increment_, reinterpret_cast<void*>(std::uintptr_t{64}), 0); }));
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(data_[kCount - 1], 1U);
  EXPECT_EQ(DRIVER(cuMemFree)(plain), CUDA_SUCCESS);
}

TEST_F(ListedLaunchesOfPrograms, UseAllWhereTheCodeDoesNotTell) {
  CUmodule const first = module_;
  for (const void* const image :
       {static_cast<const void*>(kOtherPtx), static_cast<const void*>(&kImage)}) {
    CUfunction const unknown = load(image);
    EXPECT_FALSE(lists([&] { launch(unknown, data_); }));
    EXPECT_EQ(data_[0], ++expected_);
    EXPECT_EQ(DRIVER(cuModuleUnload)(module_), CUDA_SUCCESS);
  }
  module_ = first;
  EXPECT_TRUE(lists([&] { launch(increment_, data_); }));
}

TEST_F(ListedLaunchesOfPrograms, UseWhatTheirTablesPointTo) {
  CUmodule const first = module_;
  CUfunction const addOther = load(kTablePtx, "addOther");
  CUdeviceptr tableAddress = 0;
  constexpr std::size_t kTableBytes = 4096;
  ASSERT_EQ(DRIVER(cuMemAllocManaged)(&tableAddress, kTableBytes, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  auto** const table = reinterpret_cast<std::uint32_t**>(tableAddress);
  std::uint32_t* const third = allocate();
  const auto launchTable = [&] {
    void* args[] = {const_cast<std::uint32_t***>(&table)};
    ASSERT_EQ(DRIVER(cuLaunchKernel)(addOther, 1, 1, 1, 1, 1, 1, 0, stream_, args, nullptr),
              CUDA_SUCCESS);
  };
  std::fill_n(table, kTableBytes / sizeof table[0], nullptr);
  table[0] = data_;
  table[1] = other_;
  third[0] = 7;
  for (std::uint32_t i = 1; i <= 3; ++i) {
    other_[0] = i;
    fake_cuda::stall(stream_);
    EXPECT_TRUE(lists(launchTable));
    third[0] = 8;  // the kernel does not end, and nobody waits for it here
    fake_cuda::stall(nullptr);
    EXPECT_EQ(data_[0], expected_ += i);
  }
  // As the CPU has changed it since.
  std::swap(table[0], table[1]);
  EXPECT_TRUE(lists(launchTable));
  EXPECT_EQ(other_[0], expected_ + 3);
  // The GPU has it: it comes after a wait, as a launch does not wait for it.
  ASSERT_EQ(DRIVER(cuMemsetD8)(tableAddress + 64, 0, 1), CUDA_SUCCESS);
  EXPECT_FALSE(lists(launchTable));
  std::uint32_t sum = 2 * expected_ + 3;
  EXPECT_EQ(other_[0], sum);
  bool listed = false;
  for (int i = 0; i < 1'000 && !listed; ++i) {
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    listed = lists(launchTable);
    sum += expected_;
  }
  EXPECT_TRUE(listed);
  EXPECT_EQ(other_[0], sum);
  EXPECT_EQ(table[0], other_);
  table[2] = reinterpret_cast<std::uint32_t*>(table);
  EXPECT_FALSE(lists(launchTable));
  EXPECT_EQ(other_[0], sum + expected_);
  EXPECT_EQ(DRIVER(cuMemFree)(tableAddress), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemFree)(reinterpret_cast<CUdeviceptr>(third)), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuModuleUnload)(module_), CUDA_SUCCESS);
  module_ = first;
}

// The program uses its buffer for the next one.
TEST_F(ListedLaunchesOfPrograms, GoByTheCodeThatWasLoaded) {
  CUmodule const first = module_;
  std::string buffer = kOtherPtx;
  CUfunction const unknown = load(buffer.data());
  buffer = kPtx;
  EXPECT_FALSE(lists([&] { launch(unknown, data_); }));
  EXPECT_EQ(data_[0], ++expected_);
  EXPECT_EQ(DRIVER(cuModuleUnload)(module_), CUDA_SUCCESS);
  module_ = first;
}

// Its handle may be another kernel's.
TEST_F(ListedLaunchesOfPrograms, ForgetTheCodeOfWhatIsUnloaded) {
  CUmodule const first = module_;
  CUfunction const again = load(kPtx);
  EXPECT_TRUE(lists([&] { launch(again, data_); }));
  EXPECT_EQ(data_[0], ++expected_);
  EXPECT_EQ(DRIVER(cuModuleUnload)(module_), CUDA_SUCCESS);
  EXPECT_FALSE(lists([&] { launch(again, data_); })) << "the fake takes it all the same";
  module_ = first;
}

TEST(MemoryOfThePrograms, IsConstantWhereNobodyMayWriteIt) {
  static char written[64] = "";
  char onStack[64] = "";
  const std::string onHeap(1000, ' ');
  const auto isConstant = [](const char* first, std::size_t bytes) {
    return isConstantOfProgram(std::as_bytes(std::span(first, bytes)));
  };
  EXPECT_TRUE(isConstant(kPtx, sizeof kPtx));
  EXPECT_FALSE(isConstant(kPtx, std::size_t{1} << 40));
  EXPECT_FALSE(isConstant(kPtx, 0));
  EXPECT_FALSE(isConstant(written, sizeof written));
  EXPECT_FALSE(isConstant(onStack, sizeof onStack));
  EXPECT_FALSE(isConstant(onHeap.data(), onHeap.size()));
}

}  // namespace
}  // namespace gmac::interpose
