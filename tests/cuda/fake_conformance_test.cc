// SPDX-License-Identifier: Apache-2.0
//
// The conformance suite on the `cuda` accelerator over the fake driver, and the translation of the
// driver's errors into ours. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmac/accel/cuda/cuda_accelerator.h"
#include "gmac/accel/cuda/queues.h"
#include "tests/accel/conformance.h"
#include "tests/cuda/fake_conformance_kernels.h"
#include "tests/cuda/fake_library.h"

namespace gmac::accel::conformance {
namespace {

using namespace fake;  // NOLINT: the kernels

Result<std::unique_ptr<Accelerator>> makeFresh() {
  fake_cuda::reset();
  return makeCudaAccelerator();
}

const Kit kFakeKit = {"Fake",          [] { return std::string(); },
                      makeFresh,       std::size_t{16} << 20,
                      &kIncrement,     &kSumList,
                      &kReverseBlocks, &kAddConstant,
                      &kStoreWide,     &kPoke,
                      &kMissing};

INSTANTIATE_TEST_SUITE_P(FakeCuda, Conformance, testing::Values(&kFakeKit), kitName);

// ---- What the driver's answers become ----

class OverFakeDriver : public Conformance {
 protected:
  // The CPU's word for whether the last error says so.
  static bool errorSays(const char* words) {
    return std::string(lastErrorText()).find(words) != std::string::npos;
  }
};
INSTANTIATE_TEST_SUITE_P(FakeCuda, OverFakeDriver, testing::Values(&kFakeKit), kitName);

TEST_P(OverFakeDriver, AFailureNamesTheCallItsArgumentsAndTheDriversWords) {
  fake_cuda::failNext("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  const auto address =
      accelerator().allocate(std::size_t{4} << 20, pageBytes(), Placement::kAnywhere);
  ASSERT_FALSE(address.ok());
  EXPECT_EQ(address.status().code(), adsmErrorAcceleratorMemory);
  EXPECT_TRUE(errorSays("cuMemCreate(")) << lastErrorText();
  EXPECT_TRUE(errorSays("4194304")) << lastErrorText();
  EXPECT_TRUE(errorSays("out of memory")) << lastErrorText();
}

// Memory that may move between devices is made in pieces.
TEST_P(OverFakeDriver, AnAbsurdAllocationBesideAnotherDeviceIsRefusedAtOnce) {
  fake_cuda::setDevices(2);
  {
    const auto several = kit().make();
    ASSERT_TRUE(several.ok()) << lastErrorText();
    const std::size_t made = fake_cuda::calls("cuMemCreate");
    const auto address =
        (*several)->allocate(std::size_t{1} << 47, pageBytes(), Placement::kSameAddress);
    EXPECT_EQ(address.status().code(), adsmErrorAcceleratorMemory);
    EXPECT_TRUE(errorSays("140737488355328 bytes")) << lastErrorText();
    EXPECT_EQ(fake_cuda::calls("cuMemCreate"), made);
  }
  fake_cuda::setDevices(1);
}

TEST_P(OverFakeDriver, AFailedFillGivesTheMemoryBack) {
  const std::size_t freed = fake_cuda::calls("cuMemRelease");
  fake_cuda::failNext("cuMemsetD8Async", CUDA_ERROR_INVALID_VALUE);
  const auto address = accelerator().allocate(pageBytes(), pageBytes(), Placement::kSameAddress);
  ASSERT_FALSE(address.ok());
  EXPECT_EQ(address.status().code(), adsmErrorSystem);
  EXPECT_TRUE(errorSays("cuMemsetD8Async")) << lastErrorText();
  EXPECT_EQ(fake_cuda::calls("cuMemRelease"), freed + 1);
}

TEST_P(OverFakeDriver, PinningThatFailsIsTheCpusMemory) {
  fake_cuda::failNext("cuMemHostRegister_v2", CUDA_ERROR_OUT_OF_MEMORY);
  std::vector<std::byte> memory(pageBytes());
  EXPECT_EQ(accelerator().pin({memory.data(), memory.size(), -1, 0}).code(), adsmErrorHostMemory);
}

TEST_P(OverFakeDriver, AddressesThatTheCpuUsesAreAConflictThatNamesSafeAlloc) {
  const std::size_t freed = fake_cuda::calls("cuMemRelease");
  fake_cuda::occupyNext();
  const auto address = accelerator().allocate(pageBytes(), pageBytes(), Placement::kSameAddress);
  ASSERT_FALSE(address.ok());
  EXPECT_EQ(address.status().code(), adsmErrorAddressConflict);
  EXPECT_TRUE(errorSays("adsmSafeAlloc")) << lastErrorText();
  EXPECT_EQ(fake_cuda::calls("cuMemRelease"), freed + 1);
  // Where only the accelerator's side matters it does not.
  fake_cuda::occupyNext();
  const auto anywhere = accelerator().allocate(pageBytes(), pageBytes(), Placement::kAnywhere);
  ASSERT_TRUE(anywhere.ok()) << lastErrorText();
  EXPECT_TRUE(accelerator().free(*anywhere, pageBytes()).ok());
}

TEST_P(OverFakeDriver, ACrashIsReportedOnceAndThenTheAcceleratorIsLost) {
  const auto kernel = load(&kPoke);
  ASSERT_TRUE(kernel);
  void* nowhere = reinterpret_cast<void*>(16);
  void* args[] = {&nowhere};
  const Ticket ticket = good(accelerator().launch(*kernel, shapeFor(1), args));
  EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorKernel);
  EXPECT_TRUE(errorSays("an illegal memory access was encountered")) << lastErrorText();
  EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorAcceleratorLost);
  EXPECT_TRUE(errorSays("an illegal memory access was encountered")) << lastErrorText();
  EXPECT_TRUE(accelerator().done(ticket));
  EXPECT_EQ(accelerator().allocate(pageBytes(), pageBytes(), Placement::kAnywhere).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_EQ(accelerator().launch(*kernel, shapeFor(1), args).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_EQ(streams().mark(NativeStream{1}, {}).status().code(), adsmErrorAcceleratorLost);
  EXPECT_EQ(streams().fence(NativeStream{1}, {}).status().code(), adsmErrorAcceleratorLost);
}

TEST_P(OverFakeDriver, ADeviceThatFallsOffTheBusIsLostAtOnce) {
  fake_cuda::failNext("cuEventRecord", CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(streams().mark(NativeStream{1}, {}).status().code(), adsmErrorAcceleratorLost);
  EXPECT_TRUE(errorSays("uncorrectable ECC error")) << lastErrorText();
}

TEST_P(OverFakeDriver, AFailedCopyDoesNotCountAsTheWorkOfItsTicket) {
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const Ticket before = good(accelerator().copyIn(object.device(), object.runtime(), 64, {}));
  fake_cuda::failNext("cuMemcpyHtoDAsync_v2", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(accelerator().copyIn(object.device(), object.runtime(), 64, {}).status().code(),
            adsmErrorSystem);
  const Ticket after = good(accelerator().copyIn(object.device(), object.runtime(), 64, {}));
  EXPECT_NE(before.value, after.value);
  EXPECT_FALSE(accelerator().done(after)) << "nothing has run yet";
  waitFor(after);
  EXPECT_TRUE(accelerator().done(before));
}

TEST_P(OverFakeDriver, AFunctionThatTheImageLacksIsAMissingImplementation) {
  adsmKernelDesc_t desc = kIncrement;
  desc.cudaName = "decrement";
  EXPECT_EQ(accelerator().load(desc).status().code(), adsmErrorNoImplementation);
  EXPECT_TRUE(errorSays("increment") && errorSays("decrement")) << lastErrorText();
  desc.cudaName = nullptr;
  EXPECT_EQ(accelerator().load(desc).status().code(), adsmErrorNoImplementation);
  EXPECT_TRUE(errorSays("cudaName")) << lastErrorText();
  static const char noImage[64] = "not an image";
  desc = kIncrement;
  desc.cudaImage = noImage;
  EXPECT_EQ(accelerator().load(desc).status().code(), adsmErrorNoImplementation);
  EXPECT_TRUE(errorSays("increment")) << lastErrorText();
}

TEST_P(OverFakeDriver, KernelsOfOneImageShareItsModule) {
  const auto first = load(&kIncrement);
  const auto second = load(&kPoke);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(fake_cuda::calls("cuModuleLoadDataEx"), 1U);
}

TEST_P(OverFakeDriver, AConstantLargerThanItsVariableIsRefused) {
  const auto kernel = load(&kAddConstant);
  ASSERT_TRUE(kernel);
  const std::uint64_t value = 1;
  EXPECT_EQ(accelerator().setConstant(*kernel, kAddend[0], &value, sizeof value).code(),
            adsmErrorInvalidValue);
  EXPECT_TRUE(errorSays("addend")) << lastErrorText();
}

TEST_P(OverFakeDriver, MoreSharedMemoryThanUsualIsAskedForOnce) {
  const auto kernel = load(&kReverseBlocks);
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(kernel && object.good());
  void* data = object.app();
  void* args[] = {&data};
  for (int i = 0; i < 3; ++i)
    good(accelerator().launch(*kernel, shapeFor(kBlockThreads, 100 << 10), args));
  EXPECT_EQ(fake_cuda::calls("cuFuncSetAttribute"), 1U);
  EXPECT_EQ(accelerator().launch(*kernel, shapeFor(kBlockThreads, 300 << 10), args).status().code(),
            adsmErrorLaunch);
}

TEST_P(OverFakeDriver, MarksOfForeignStreamsCompleteInTheirOwnOrder) {
  CUstream both[2];
  const auto create =
      reinterpret_cast<decltype(&::cuStreamCreate)>(dlsym(fake_cuda::library(), "cuStreamCreate"));
  const auto fill = reinterpret_cast<decltype(&::cuMemsetD8Async)>(
      dlsym(fake_cuda::library(), "cuMemsetD8Async"));
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  Ticket marks[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(create(&both[i], 0), CUDA_SUCCESS);
    for (int n = 0; n < 5; ++n) {
      ASSERT_EQ(fill(static_cast<CUdeviceptr>(object.device()), 1, 64, both[i]), CUDA_SUCCESS);
    }
    marks[i] = good(streams().mark(NativeStream(reinterpret_cast<std::uintptr_t>(both[i])), {}));
  }
  waitFor(marks[1]);
  EXPECT_TRUE(accelerator().done(marks[1]));
  EXPECT_FALSE(accelerator().done(marks[0]));
  waitFor(marks[0]);
  // Thousands of marks later the old ones are still complete.
  for (std::size_t i = 0; i < 3 * cuda::Queue::kSlots; ++i)
    good(streams().mark(NativeStream{1}, {}));
  EXPECT_TRUE(accelerator().done(marks[0]));
  EXPECT_TRUE(accelerator().done(marks[1]));
}

// ---- Ends that the device tells ----

// What asks about work in a loop looks at a word that the device writes.
class ToldEnds : public OverFakeDriver {
 protected:
  static std::size_t questions() { return fake_cuda::calls("cuEventQuery"); }
  static std::size_t words() { return fake_cuda::calls("cuStreamWriteValue64_v2"); }
  Ticket fill(const Object& object) {
    return good(accelerator().fill(object.device(), std::byte{1}, 64));
  }
};
INSTANTIATE_TEST_SUITE_P(FakeCuda, ToldEnds, testing::Values(&kFakeKit), kitName);

TEST_P(ToldEnds, AreSeenWithoutAQuestion) {
  const Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  for (int round = 0; round < 3; ++round) {
    const Ticket ticket = fill(object);
    accelerator().endIsAwaited(ticket);
    const std::size_t before = questions();
    EXPECT_FALSE(accelerator().done(ticket));
    ASSERT_TRUE(streams().waitForAll().ok());
    EXPECT_TRUE(accelerator().done(ticket));
    EXPECT_EQ(questions(), before);
  }
}

TEST_P(ToldEnds, AreThoseOfTheApplicationsStreamsToo) {
  const auto create =
      reinterpret_cast<decltype(&::cuStreamCreate)>(dlsym(fake_cuda::library(), "cuStreamCreate"));
  CUstream both[2];
  Ticket marks[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(create(&both[i], 0), CUDA_SUCCESS);
    const auto stream = NativeStream(reinterpret_cast<std::uintptr_t>(both[i]));
    marks[i] = good(streams().mark(stream, {}));
    const std::size_t before = words();
    streams().endIsAwaited(stream, marks[i]);
    EXPECT_EQ(words(), before + (i == 0 ? 1 : 0)) << "the word is the first one's";
  }
  fake_cuda::stall(both[0]);
  const std::size_t before = questions();
  EXPECT_TRUE(accelerator().done(marks[1])) << "the stream holds nothing";
  EXPECT_EQ(questions(), before + 1);
  const std::size_t asked = questions();
  EXPECT_FALSE(accelerator().done(marks[0])) << "each stream's end is its own";
  fake_cuda::stall(nullptr);
  ASSERT_TRUE(streams().waitForAll().ok());
  EXPECT_TRUE(accelerator().done(marks[0]));
  EXPECT_EQ(questions(), asked);
}

TEST_P(ToldEnds, AWaitAsksOnceAndIsToldThen) {
  const Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const std::size_t before = words();
  waitFor(fill(object));
  EXPECT_EQ(words(), before) << "the first question has brought the work to its end";
  accelerator().endIsAwaited(Ticket{});
  const Ticket older = fill(object);
  const Ticket newer = fill(object);
  accelerator().endIsAwaited(older);
  EXPECT_EQ(words(), before) << "the word would come with the newer work";
  accelerator().endIsAwaited(newer);
  accelerator().endIsAwaited(newer);
  EXPECT_EQ(words(), before + 1);
  waitFor(older);
  waitFor(newer);
}

TEST_P(ToldEnds, AKernelThatCrashesIsFoundOut) {
  const auto kernel = load(&kPoke);
  ASSERT_TRUE(kernel);
  void* nowhere = reinterpret_cast<void*>(16);
  void* args[] = {&nowhere};
  const Ticket ticket = good(accelerator().launch(*kernel, shapeFor(1), args));
  accelerator().endIsAwaited(ticket);
  int looks = 0;
  while (!accelerator().done(ticket) && looks < 1000) ++looks;
  EXPECT_GT(looks, 1);
  EXPECT_LT(looks, 300);
  EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorKernel);
}

// Launches whose end somebody is about to wait for.
class AwaitedLaunches : public ToldEnds {
 protected:
  void SetUp() override {
    ToldEnds::SetUp();
    kernel_ = load(&kIncrement);
    ASSERT_TRUE(kernel_);
    object_ = std::make_unique<Object>(accelerator(), pageBytes());
    ASSERT_TRUE(object_->good());
  }
  void TearDown() override {
    kernel_.reset();
    object_.reset();
    ToldEnds::TearDown();
  }
  Ticket launch() {
    void* address = object_->app();
    std::uint64_t count = 1;
    std::uint32_t by = 1;
    void* args[] = {&address, &count, &by};
    return good(accelerator().launchAwaited(*kernel_, shapeFor(1), args));
  }
  static std::size_t events() { return fake_cuda::calls("cuEventRecord"); }

  std::unique_ptr<LoadedKernel> kernel_;
  std::unique_ptr<Object> object_;
};
INSTANTIATE_TEST_SUITE_P(FakeCuda, AwaitedLaunches, testing::Values(&kFakeKit), kitName);

TEST_P(AwaitedLaunches, AreSeenToEndByTheirWordAlone) {
  for (int round = 0; round < 3; ++round) {
    const std::size_t before[] = {events(), words(), questions()};
    const Ticket ticket = launch();
    EXPECT_EQ(words(), before[1] + 1);
    accelerator().endIsAwaited(ticket);
    EXPECT_FALSE(accelerator().done(ticket));
    ASSERT_TRUE(streams().waitForAll().ok());
    EXPECT_TRUE(accelerator().done(ticket));
    EXPECT_TRUE(accelerator().succeeded(ticket));
    waitFor(ticket);
    EXPECT_EQ(words(), before[1] + 1);
    EXPECT_EQ(events(), before[0]);
    EXPECT_EQ(questions(), before[2]);
  }
}

TEST_P(AwaitedLaunches, TheNextWorkFindsTheEventOfOneThatStillRunsRecorded) {
  const std::size_t before = events();
  const Ticket first = launch();
  const Ticket second = launch();
  EXPECT_EQ(events(), before + 1);
  const Ticket third = fill(*object_);
  EXPECT_EQ(events(), before + 3);
  EXPECT_FALSE(accelerator().done(third) && !accelerator().done(first));
  waitFor(first);
  waitFor(second);
  waitFor(third);
  EXPECT_EQ(events(), before + 3);
}

TEST_P(AwaitedLaunches, AnotherQueueWaitsForIt) {
  for (int round = 0; round < 20; ++round) {
    auto* const byte = reinterpret_cast<volatile unsigned char*>(object_->runtime());
    const std::size_t before = events();
    const Ticket ticket = launch();
    const Ticket copied =
        good(accelerator().copyOut(object_->runtime(), object_->device(), 1, ticket));
    EXPECT_EQ(events(), before + 2);
    waitFor(copied);
    EXPECT_TRUE(accelerator().done(ticket));
    EXPECT_EQ(*byte, static_cast<unsigned char>(round + 1));
  }
}

TEST_P(AwaitedLaunches, OneWhoseWordDoesNotComeIsAskedFor) {
  const std::size_t before = events();
  const Ticket ticket = launch();
  int looks = 0;
  while (!accelerator().done(ticket) && looks < 1000) ++looks;
  EXPECT_GT(looks, 100);
  EXPECT_LT(looks, 300);
  EXPECT_EQ(events(), before + 1);
}

TEST_P(AwaitedLaunches, OneThatCrashesIsFoundOut) {
  const auto poke = load(&kPoke);
  ASSERT_TRUE(poke);
  void* nowhere = reinterpret_cast<void*>(16);
  void* args[] = {&nowhere};
  const Ticket ticket = good(accelerator().launchAwaited(*poke, shapeFor(1), args));
  EXPECT_EQ(accelerator().wait(ticket).code(), adsmErrorKernel);
}

// A device fails by itself: before the event is recorded, which then fails, too.
TEST_P(AwaitedLaunches, OneWhoseDeviceFailsMeanwhileIsFoundOut) {
  for (const bool asks : {false, true}) {
    auto other = makeCudaAccelerator();
    ASSERT_TRUE(other.ok()) << lastErrorText();
    const auto kernel = (*other)->load(kPoke);
    ASSERT_TRUE(kernel.ok()) << lastErrorText();
    void* nowhere = reinterpret_cast<void*>(16);
    void* args[] = {&nowhere};
    const Ticket ticket = good((*other)->launchAwaited(**kernel, shapeFor(1), args));
    fake_cuda::failAll(CUDA_ERROR_ILLEGAL_ADDRESS);
    for (int look = 0; asks && look < 300; ++look) static_cast<void>((*other)->done(ticket));
    EXPECT_EQ((*other)->wait(ticket).code(), adsmErrorKernel) << lastErrorText();
    EXPECT_EQ((*other)->wait(ticket).code(), adsmErrorAcceleratorLost);
    fake_cuda::failAll(CUDA_SUCCESS);
  }
}

// No older work's event answers for it.
TEST_P(AwaitedLaunches, WhereItsEventCannotBeRecordedItHasNotEnded) {
  for (std::size_t i = 0; i < 2 * cuda::Queue::kSlots; ++i) waitFor(fill(*object_));
  const Ticket ticket = launch();
  fake_cuda::failAlways("cuEventRecord", CUDA_ERROR_OUT_OF_MEMORY);
  for (int look = 0; look < 1000; ++look) ASSERT_FALSE(accelerator().done(ticket)) << look;
  EXPECT_EQ(accelerator().copyOut(object_->runtime(), object_->device(), 1, ticket).status().code(),
            adsmErrorAcceleratorMemory);
  fake_cuda::failAlways("cuEventRecord", CUDA_SUCCESS);
  waitFor(ticket);
}

TEST_P(AwaitedLaunches, WhereTheDeviceCannotTellTheyHaveEvents) {
  fake_cuda::failNext("cuStreamWriteValue64_v2", CUDA_ERROR_NOT_SUPPORTED);
  const std::size_t before = events();
  waitFor(launch());
  EXPECT_EQ(events(), before + 1);
}

TEST_P(ToldEnds, WhereTheDeviceCannotTellItIsAsked) {
  const Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  fake_cuda::failNext("cuStreamWriteValue64_v2", CUDA_ERROR_NOT_SUPPORTED);
  const Ticket failed = fill(object);
  accelerator().endIsAwaited(failed);
  const std::size_t before = questions();
  static_cast<void>(accelerator().done(failed));
  EXPECT_EQ(questions(), before + 1);
  waitFor(failed);
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0);
  auto other = makeCudaAccelerator();
  ASSERT_TRUE(other.ok()) << lastErrorText();
  const std::size_t told = words();
  const Ticket ticket = good((*other)->copyWithin(object.device(), object.device(), 0));
  (*other)->endIsAwaited(ticket);
  EXPECT_EQ(words(), told);
  EXPECT_TRUE((*other)->wait(ticket).ok());
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1);
}

// Most events are made for the first work that needs them. Where the driver makes no more, as when
// the device's memory is full, those of the oldest work do: no copy of a fault's fails for it.
TEST_P(ToldEnds, TheOldestEventsAreUsedAgainWhereNoMoreCanBeMade) {
  auto other = makeCudaAccelerator();
  ASSERT_TRUE(other.ok()) << lastErrorText();
  const Object object(**other, pageBytes());
  ASSERT_TRUE(object.good());
  auto* const value = reinterpret_cast<volatile unsigned char*>(object.runtime());
  const std::size_t destroyed = fake_cuda::calls("cuEventDestroy_v2");
  const std::size_t made = fake_cuda::calls("cuEventCreate");
  fake_cuda::failAlways("cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3000; ++i) {
    *value = static_cast<unsigned char>(i);
    const Result<Ticket> in = (*other)->copyIn(object.device(), object.runtime(), 1, {});
    ASSERT_TRUE(in.ok()) << i << ": " << lastErrorText();
    ASSERT_TRUE((*other)->wait(*in).ok()) << i << ": " << lastErrorText();
    *value = 0;
    const Result<Ticket> out = (*other)->copyOut(object.runtime(), object.device(), 1, {});
    ASSERT_TRUE(out.ok()) << i << ": " << lastErrorText();
    ASSERT_TRUE((*other)->wait(*out).ok()) << i << ": " << lastErrorText();
    ASSERT_EQ(*value, static_cast<unsigned char>(i));
    tickets.push_back(*in);
  }
  EXPECT_GT(fake_cuda::calls("cuEventCreate"), made) << "none was wanted";
  for (const Ticket ticket : tickets) {
    ASSERT_TRUE((*other)->done(ticket));
  }
  // Those of an unordered queue, too.
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE((*other)->nativeStreams()->mark(NativeStream{1}, {}).ok()) << lastErrorText();
  }
  fake_cuda::failNth("cuEventCreate", 0, CUDA_SUCCESS);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE((*other)->nativeStreams()->mark(NativeStream{1}, {}).ok()) << lastErrorText();
  }
  EXPECT_EQ(fake_cuda::calls("cuEventDestroy_v2"), destroyed);
}

// A word that comes late must meet pages.
TEST_P(ToldEnds, TheWordsStayWhileTheDeviceMayWriteThem) {
  const auto create =
      reinterpret_cast<decltype(&::cuStreamCreate)>(dlsym(fake_cuda::library(), "cuStreamCreate"));
  CUstream stream = nullptr;
  ASSERT_EQ(create(&stream, 0), CUDA_SUCCESS);
  const auto native = NativeStream(reinterpret_cast<std::uintptr_t>(stream));
  for (const bool late : {false, true}) {
    const std::size_t before = fake_cuda::living().pinned;
    {
      auto other = makeCudaAccelerator();
      ASSERT_TRUE(other.ok()) << lastErrorText();
      fake_cuda::stall(stream);
      const Ticket mark = good((*other)->nativeStreams()->mark(native, {}));
      (*other)->nativeStreams()->endIsAwaited(native, mark);
      if (!late) {
        fake_cuda::stall(nullptr);
        EXPECT_TRUE((*other)->nativeStreams()->waitForAll().ok());
      }
    }
    EXPECT_EQ(fake_cuda::living().pinned, before + (late ? 1 : 0));
  }
  fake_cuda::stall(nullptr);
  ASSERT_TRUE(streams().waitForAll().ok());
}

// The n-th call fails: the bytes stay where they are, and nothing is lost or leaked.
TEST_P(OverFakeDriver, AMoveThatFailsAnywhereChangesNothing) {
  MovableMemory& memory = *accelerator().movableMemory();
  Object object(accelerator(), std::size_t{4} << 20);
  ASSERT_TRUE(object.good());
  std::memset(object.runtime(), 42, object.bytes());
  bringIn(object);
  const std::size_t available = freeBytes();
  for (const char* call : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
                           "cuMemcpyDtoDAsync_v2", "cuMemUnmap"}) {
    fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
    const Status moved = memory.move(object.device(), object.bytes(), Home::kCpu);
    EXPECT_FALSE(moved.ok() && std::strcmp(call, "cuMemUnmap") != 0) << call;
    EXPECT_TRUE(moved.ok() || errorSays("failed")) << lastErrorText();
    if (moved.ok()) {
      ASSERT_TRUE(memory.move(object.device(), object.bytes(), Home::kDevice).ok());
    }
    EXPECT_EQ(freeBytes(), available) << call;
    std::memset(object.runtime(), 0, object.bytes());
    bringOut(object);
    EXPECT_EQ(object.runtime()[object.bytes() - 1], std::byte{42}) << call;
  }
}

// Objects that change places make the CPU's pages once.
TEST_P(OverFakeDriver, TheCpusPagesThatOneObjectLeavesAreTheNextOnes) {
  MovableMemory& memory = *accelerator().movableMemory();
  std::vector<std::unique_ptr<Object>> objects;
  for (int i = 0; i < 4; ++i) {
    objects.push_back(std::make_unique<Object>(accelerator(), std::size_t{4} << 20));
    ASSERT_TRUE(objects.back()->good());
    std::memset(objects.back()->runtime(), i + 1, objects.back()->bytes());
    bringIn(*objects.back());
  }
  ASSERT_TRUE(memory.move(objects[0]->device(), objects[0]->bytes(), Home::kCpu).ok());
  const std::size_t available = freeBytes();
  const std::size_t made = fake_cuda::calls("cuMemCreate");
  const std::size_t released = fake_cuda::calls("cuMemRelease");
  memory.keepPages(true);
  for (std::size_t i = 1; i < objects.size(); ++i) {
    ASSERT_TRUE(memory.move(objects[i - 1]->device(), objects[i - 1]->bytes(), Home::kDevice).ok());
    ASSERT_TRUE(memory.move(objects[i]->device(), objects[i]->bytes(), Home::kCpu).ok());
  }
  EXPECT_EQ(fake_cuda::calls("cuMemCreate") - made, 3u) << "the device's";
  EXPECT_EQ(fake_cuda::calls("cuMemRelease") - released, 3u) << "the device's";
  memory.keepPages(false);
  ASSERT_TRUE(memory.move(objects[3]->device(), objects[3]->bytes(), Home::kDevice).ok());
  ASSERT_TRUE(memory.move(objects[3]->device(), objects[3]->bytes(), Home::kCpu).ok());
  EXPECT_EQ(fake_cuda::calls("cuMemCreate") - made, 5u);
  EXPECT_EQ(fake_cuda::calls("cuMemRelease") - released, 5u);
  // One that nobody has taken goes back.
  memory.keepPages(true);
  ASSERT_TRUE(memory.move(objects[3]->device(), objects[3]->bytes(), Home::kDevice).ok());
  EXPECT_EQ(fake_cuda::calls("cuMemRelease") - released, 5u);
  memory.keepPages(false);
  EXPECT_EQ(fake_cuda::calls("cuMemRelease") - released, 6u);
  ASSERT_TRUE(memory.move(objects[0]->device(), objects[0]->bytes(), Home::kCpu).ok());
  EXPECT_EQ(freeBytes(), available);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    std::memset(objects[i]->runtime(), 0, objects[i]->bytes());
    bringOut(*objects[i]);
    EXPECT_EQ(objects[i]->runtime()[objects[i]->bytes() - 1], static_cast<std::byte>(i + 1));
  }
}

TEST_P(OverFakeDriver, AMoveToTheCpusPagesThatFailsAnywhereChangesNothing) {
  MovableMemory& memory = *accelerator().movableMemory();
  Object object(accelerator(), std::size_t{2} << 20);
  ASSERT_TRUE(object.good());
  std::memset(object.runtime(), 42, object.bytes());
  bringIn(object);
  const std::size_t available = freeBytes();
  for (const char* call :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemcpyDtoDAsync_v2",
        "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2"}) {
    fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
    EXPECT_FALSE(memory.move(object.device(), object.bytes(), Home::kMirror).ok()) << call;
    EXPECT_TRUE(errorSays("failed")) << lastErrorText();
    EXPECT_EQ(freeBytes(), available) << call;
    std::memset(object.runtime(), 0, object.bytes());
    bringOut(object);
    EXPECT_EQ(object.runtime()[object.bytes() - 1], std::byte{42}) << call;
  }
  ASSERT_TRUE(memory.move(object.device(), object.bytes(), Home::kMirror).ok());
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemHostUnregister"}) {
    fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
    EXPECT_FALSE(memory.move(object.device(), object.bytes(), Home::kDevice).ok()) << call;
    object.app()[0] = std::byte{17};
    waitFor(good(accelerator().copyWithin(object.device(1), object.device(), 1)));
    EXPECT_EQ(object.app()[1], std::byte{17}) << call << ": it is the CPU's still";
    object.app()[1] = std::byte{42};
  }
}

// A page inside an allocation: the rest stays what it is, and moves around it.
TEST_P(OverFakeDriver, APageMovesAlone) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  MovableMemory& memory = *accelerator().movableMemory();
  Object object(accelerator(), 4 * kPage);
  ASSERT_TRUE(object.good());
  for (std::size_t page = 0; page < 4; ++page) {
    std::memset(object.runtime() + page * kPage, static_cast<int>(page + 1), kPage);
  }
  bringIn(object);
  const std::size_t available = freeBytes();
  const auto expectBytes = [&](std::byte inPage) {
    for (std::size_t page = 0; page < 4; ++page) {
      std::array<std::byte, 2> read{};
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t offset = page * kPage + (i == 0 ? 0 : kPage - 1);
        waitFor(good(accelerator().copyOut(&read[i], object.device(offset), 1, {})));
      }
      const std::byte expected = page == 1 ? inPage : static_cast<std::byte>(page + 1);
      ASSERT_THAT(read, ::testing::Each(expected)) << page;
    }
  };
  for (const char* call :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemcpyDtoDAsync_v2",
        "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2"}) {
    fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
    EXPECT_FALSE(memory.movePage(object.device(kPage), kPage, Home::kMirror, 0).ok()) << call;
    EXPECT_EQ(freeBytes(), available) << call;
    ASSERT_NO_FATAL_FAILURE(expectBytes(std::byte{2})) << call;
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(memory.movePage(object.device(kPage), kPage, Home::kMirror, 0).ok())
        << lastErrorText();
    EXPECT_EQ(freeBytes(), available + kPage);
    EXPECT_FALSE(memory.movePage(object.device(kPage), kPage, Home::kMirror, 0).ok());
    std::memset(object.app() + kPage, 77, kPage);
    waitFor(good(accelerator().copyWithin(object.device(kPage + 1), object.device(), 1)));
    EXPECT_EQ(object.app()[kPage + 1], std::byte{1}) << "the device reaches it";
    object.app()[kPage + 1] = std::byte{77};
    ASSERT_NO_FATAL_FAILURE(expectBytes(std::byte{77}));
    // What the driver refuses.
    EXPECT_FALSE(accelerator().fill(object.device(kPage - 1), std::byte{5}, 2).ok());
    // The rest.
    ASSERT_TRUE(memory.move(object.device(), object.bytes(), Home::kCpu).ok()) << lastErrorText();
    EXPECT_GE(freeBytes(), available + object.bytes()) << "and its margins";
    ASSERT_NO_FATAL_FAILURE(expectBytes(std::byte{77}));
    ASSERT_TRUE(memory.move(object.device(), object.bytes(), Home::kDevice).ok())
        << lastErrorText();
    EXPECT_EQ(freeBytes(), available + kPage);
    ASSERT_NO_FATAL_FAILURE(expectBytes(std::byte{77}));
    for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemHostUnregister"}) {
      fake_cuda::failNext(call, CUDA_ERROR_INVALID_VALUE);
      EXPECT_FALSE(memory.movePage(object.device(kPage), kPage, Home::kDevice, 0).ok()) << call;
      ASSERT_NO_FATAL_FAILURE(expectBytes(std::byte{77})) << call;
    }
    ASSERT_TRUE(memory.movePage(object.device(kPage), kPage, Home::kDevice, 0).ok())
        << lastErrorText();
    EXPECT_EQ(freeBytes(), available);
    ASSERT_NO_FATAL_FAILURE(expectBytes(std::byte{77}));
  }
  waitFor(good(accelerator().fill(object.device(kPage - 1), std::byte{5}, 2)));
  // It is freed with the page apart.
  ASSERT_TRUE(memory.movePage(object.device(3 * kPage), kPage, Home::kMirror, 0).ok());
  ASSERT_TRUE(memory.movePage(object.device(0), kPage, Home::kMirror, 0).ok());
}

// The part of the device's page for which the CPU has no pages is zero when the page is the
// device's again.
TEST_P(OverFakeDriver, PagesThatTheCpusFillInPartMove) {
  MovableMemory& memory = *accelerator().movableMemory();
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{3} << 20}) {
    Object object(accelerator(), bytes);
    ASSERT_TRUE(object.good());
    const std::size_t available = freeBytes();
    ASSERT_TRUE(memory.move(object.device(), bytes, Home::kMirror).ok()) << lastErrorText();
    EXPECT_GT(freeBytes(), available);
    std::memset(object.app(), 21, bytes);
    waitFor(good(accelerator().copyWithin(object.device(8), object.device(), 1)));
    EXPECT_EQ(object.app()[8], std::byte{21});
    ASSERT_TRUE(memory.move(object.device(), bytes, Home::kDevice).ok()) << lastErrorText();
    EXPECT_EQ(freeBytes(), available);
    bringOut(object);
    EXPECT_EQ(object.runtime()[bytes - 1], std::byte{21});
    std::byte after{1};
    waitFor(good(accelerator().copyOut(&after, object.device(bytes), 1, {})));
    EXPECT_EQ(after, std::byte{0});
  }
}

// Mapped memory is the device's: it does not go with a context that a kernel took with it.
TEST_P(OverFakeDriver, MappedMemoryOfALostContextIsGivenBackInTheNext) {
  const auto kernel = load(&kPoke);
  ASSERT_TRUE(kernel);
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const auto address = accelerator().allocate(kBytes, pageBytes(), Placement::kSameAddress);
  ASSERT_TRUE(address.ok()) << lastErrorText();
  const std::size_t ranges = fake_cuda::calls("cuMemAddressFree");
  const std::size_t pages = fake_cuda::calls("cuMemRelease");
  void* nowhere = reinterpret_cast<void*>(16);
  void* args[] = {&nowhere};
  EXPECT_EQ(accelerator().wait(good(accelerator().launch(*kernel, shapeFor(1), args))).code(),
            adsmErrorKernel);
  EXPECT_EQ(accelerator().free(*address, kBytes).code(), adsmErrorAcceleratorLost);
  streams().leaveContext();
  const auto reset = reinterpret_cast<decltype(&::cuDevicePrimaryCtxReset)>(
      dlsym(fake_cuda::library(), "cuDevicePrimaryCtxReset_v2"));
  ASSERT_EQ(reset(0), CUDA_SUCCESS);
  EXPECT_EQ(fake_cuda::calls("cuMemRelease"), pages);
  ASSERT_TRUE(accelerator().memoryRoom().ok()) << lastErrorText();
  EXPECT_EQ(fake_cuda::calls("cuMemAddressFree"), ranges + 1);
  EXPECT_EQ(fake_cuda::calls("cuMemRelease"), pages + 1);
}

// Static destructors run after CUDA has ended: what they free has gone with it, and that is no
// error. What needs the device says why there is none.
TEST_P(OverFakeDriver, ObjectsAreFreedAfterCudaHasEnded) {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  Object mapped(accelerator(), kBytes);
  Object mirrored(accelerator(), kBytes);
  Object small(accelerator(), std::size_t{64} << 10);
  ASSERT_TRUE(mapped.good() && mirrored.good() && small.good());
  ASSERT_TRUE(accelerator().movableMemory()->move(mirrored.device(), kBytes, Home::kMirror).ok())
      << lastErrorText();
  fake_cuda::failAll(CUDA_ERROR_DEINITIALIZED);
  for (Object* object : {&mapped, &mirrored, &small}) {
    EXPECT_TRUE(object->release().ok()) << lastErrorText();
  }
  std::byte word{};
  EXPECT_EQ(accelerator().copyOut(&word, mapped.device(), 1, {}).status().code(),
            adsmErrorAcceleratorLost);
  EXPECT_TRUE(errorSays("the process exits, and CUDA has ended before")) << lastErrorText();
}

TEST_P(OverFakeDriver, MemoryIsFreedAfterCudaHasEnded) {
  for (const std::size_t bytes : {std::size_t{2} << 20, std::size_t{64} << 10}) {
    const auto first = accelerator().allocate(bytes, pageBytes(), Placement::kSameAddress);
    const auto second = accelerator().allocate(bytes, pageBytes(), Placement::kSameAddress);
    ASSERT_TRUE(first.ok() && second.ok()) << lastErrorText();
    fake_cuda::failAll(CUDA_ERROR_DEINITIALIZED);
    EXPECT_TRUE(accelerator().free(*first, bytes).ok()) << lastErrorText();
    EXPECT_TRUE(accelerator().free(*second, bytes).ok()) << lastErrorText();
    EXPECT_EQ(accelerator().free(*second, bytes).code(), adsmErrorInvalidPointer);
    destroyAccelerator();
    fake_cuda::failAll(CUDA_SUCCESS);
    SetUp();
  }
}

TEST_P(OverFakeDriver, WhereTheDeviceCannotMapMemoryItIsAllocatedAsEver) {
  destroyAccelerator();
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
  auto made = kit().make();
  fake_cuda::setAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1);
  ASSERT_TRUE(made.ok()) << lastErrorText();
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const std::size_t created = fake_cuda::calls("cuMemCreate");
  const auto address = (*made)->allocate(kBytes, pageBytes(), Placement::kSameAddress);
  ASSERT_TRUE(address.ok()) << lastErrorText();
  EXPECT_EQ(fake_cuda::calls("cuMemCreate"), created);
  EXPECT_EQ((*made)->movableMemory()->move(*address, kBytes, Home::kCpu).code(),
            adsmErrorNotSupported);
  EXPECT_EQ((*made)
                ->movableMemory()
                ->allocateOnCpu(kBytes, pageBytes(), Placement::kSameAddress)
                .status()
                .code(),
            adsmErrorNotSupported);
  EXPECT_TRUE((*made)->free(*address, kBytes).ok()) << lastErrorText();
}

// A kernel that reads a little in front of its array, or after it, meets memory.
TEST_P(OverFakeDriver, AnAllocationHasMemoryOnBothSides) {
  for (const std::size_t bytes : {pageBytes(), std::size_t{2} << 20, std::size_t{6} << 20}) {
    const auto address =
        accelerator().allocate(bytes, std::size_t{2} << 20, Placement::kSameAddress);
    ASSERT_TRUE(address.ok()) << lastErrorText();
    const auto begin = static_cast<CUdeviceptr>(*address);
    EXPECT_EQ(begin % (2 << 20), 0U);
    for (const std::size_t distance : {std::size_t{1}, std::size_t{64} << 10}) {
      const std::byte* const before = fake_cuda::backing(begin - distance);
      const std::byte* const after = fake_cuda::backing(begin + bytes + distance - 1);
      ASSERT_NE(before, nullptr) << bytes;
      ASSERT_NE(after, nullptr) << bytes;
      EXPECT_EQ(*before, std::byte{0});
      EXPECT_EQ(*after, std::byte{0});
    }
    EXPECT_TRUE(accelerator().free(*address, bytes).ok()) << lastErrorText();
  }
}

TEST_P(OverFakeDriver, TheMemoryBesideAnAllocationIsTheFirstToGoWithout) {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  const auto used = [] {
    const auto ask =
        reinterpret_cast<decltype(&::cuMemGetInfo)>(dlsym(fake_cuda::library(), "cuMemGetInfo_v2"));
    std::size_t available = 0;
    std::size_t total = 0;
    EXPECT_EQ(ask(&available, &total), CUDA_SUCCESS);
    return total - available;
  };
  const std::size_t before = used();
  fake_cuda::failNext("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  const auto bare = accelerator().allocate(kBytes, kBytes, Placement::kSameAddress);
  ASSERT_TRUE(bare.ok()) << lastErrorText();
  EXPECT_EQ(used() - before, kBytes);
  EXPECT_TRUE(accelerator().free(*bare, kBytes).ok()) << lastErrorText();
  // Nor has every allocation some, where there are very many.
  std::vector<DeviceAddress> many;
  for (int i = 0; i < 80; ++i) {
    const auto address = accelerator().allocate(kBytes, kBytes, Placement::kSameAddress);
    ASSERT_TRUE(address.ok()) << lastErrorText();
    many.push_back(*address);
  }
  EXPECT_EQ(used() - before, 64 * 3 * kBytes + 16 * kBytes);
  for (const DeviceAddress address : many) {
    EXPECT_TRUE(accelerator().free(address, kBytes).ok()) << lastErrorText();
  }
  EXPECT_EQ(used(), before);
}

TEST_P(OverFakeDriver, AFencedStreamRunsAfterTheCopiesIn) {
  CUstream stream = nullptr;
  const auto create =
      reinterpret_cast<decltype(&::cuStreamCreate)>(dlsym(fake_cuda::library(), "cuStreamCreate"));
  const auto copy = reinterpret_cast<decltype(&::cuMemcpyDtoHAsync)>(
      dlsym(fake_cuda::library(), "cuMemcpyDtoHAsync_v2"));
  ASSERT_EQ(create(&stream, 0), CUDA_SUCCESS);
  Object object(accelerator(), pageBytes());
  ASSERT_TRUE(object.good());
  const NativeStream native{reinterpret_cast<std::uintptr_t>(stream)};
  std::memset(object.runtime(), 7, object.bytes());
  good(accelerator().copyIn(object.device(), object.runtime(), object.bytes(), {}));
  const auto fence = streams().fence(native, {});
  ASSERT_TRUE(fence.ok());
  std::byte seen{0};
  ASSERT_EQ(copy(&seen, static_cast<CUdeviceptr>(object.device()), 1, stream), CUDA_SUCCESS);
  waitFor(good(streams().mark(native, {})));
  EXPECT_EQ(seen, std::byte{7});
  // Work that an earlier fence covers is no reason to pass over newer work of either queue.
  good(accelerator().fill(object.device(), std::byte{8}, object.bytes()));
  const auto kernels = streams().fence(native, *fence);
  ASSERT_TRUE(kernels.ok());
  ASSERT_EQ(copy(&seen, static_cast<CUdeviceptr>(object.device()), 1, stream), CUDA_SUCCESS);
  waitFor(good(streams().mark(native, {})));
  EXPECT_EQ(seen, std::byte{8});
  std::memset(object.runtime(), 9, object.bytes());
  good(accelerator().copyIn(object.device(), object.runtime(), object.bytes(), {}));
  ASSERT_TRUE(streams().fence(native, *kernels).ok());
  ASSERT_EQ(copy(&seen, static_cast<CUdeviceptr>(object.device()), 1, stream), CUDA_SUCCESS);
  waitFor(good(streams().mark(native, {})));
  EXPECT_EQ(seen, std::byte{9});
}

}  // namespace
}  // namespace gmac::accel::conformance
