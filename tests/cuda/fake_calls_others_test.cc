// SPDX-License-Identifier: Apache-2.0
//
// The application's rarer CUDA calls on shared objects: arrays, batches, graphs, functions of the
// CPU in streams, a stream's own stores, addresses of adsmSafe(), and refused calls. Over the fake
// driver, as fake_calls_test. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmac/api/adsm.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "tests/cuda/application_test.h"
#include "tests/cuda/fake_program.h"
#include "tests/support/child.h"

namespace gmac::interpose {
namespace {

using ::testing::HasSubstr;

using fake_cuda::kBytes;
using fake_cuda::kCount;

const bool kPrepared = fake_cuda::prepare();

CUdeviceptr number(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

class OtherCudaCalls : public fake_cuda::ApplicationTest {
 protected:
  void TearDown() override {
    ApplicationTest::TearDown();
    coherence::internal::openWaits = false;  // (of a real process, never)
  }
  // Checks the reason that a refused call has left.
  static void expectReason(const char* words) {
    EXPECT_THAT(std::string(adsmLastErrorString()), HasSubstr(words));
  }
};

TEST_F(OtherCudaCalls, ArraysAreFilledFromObjectsAndReadIntoThem) {
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR description{4096, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  ASSERT_EQ(DRIVER(cuArrayCreate)(&array, &description), CUDA_SUCCESS);
  launch(stream_, object_);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  // After a kernel only the accelerator's copy is current: by every way, and every way back.
  ASSERT_EQ(DRIVER(cuMemcpyHtoA)(array, 0, object_, 400), CUDA_SUCCESS) << adsmLastErrorString();
  ASSERT_EQ(DRIVER(cuMemcpyDtoA)(array, 400, number(object_ + 100), 400), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyHtoAAsync)(array, 800, object_ + 200, 400, stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  std::vector<std::uint32_t> seen(300);
  ASSERT_EQ(DRIVER(cuMemcpyAtoH)(seen.data(), array, 0, 1200), CUDA_SUCCESS);
  for (std::uint32_t i = 0; i < 300; ++i) ASSERT_EQ(seen[i], i + 1) << i;

  object_[999] = 4711;
  ASSERT_EQ(DRIVER(cuMemcpyAtoH)(object_ + 1000, array, 0, 400), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyAtoD)(number(object_ + 1100), array, 0, 400), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyAtoHAsync)(object_ + 1200, array, 0, 400, stream_), CUDA_SUCCESS);
  EXPECT_EQ(object_[999], 4711U);
  EXPECT_EQ(object_[1000], 1U);
  EXPECT_EQ(object_[1199], 100U);
  EXPECT_EQ(object_[1200], 1U) << "the access waits for the copy";
  EXPECT_EQ(object_[1300], 1301U);
  ASSERT_EQ(DRIVER(cuArrayDestroy)(array), CUDA_SUCCESS);
}

TEST_F(OtherCudaCalls, BatchesOfCopiesSeeAndLeaveWhatEachOfThemDoes) {
  launch(stream_, object_);
  object_[0] = 100;
  const std::vector<std::uint32_t> values(100, 9);
  CUdeviceptr to[] = {plain_, number(object_ + 500)};
  CUdeviceptr from[] = {number(object_), number(values.data())};
  std::size_t sizes[] = {400, 400};
  CUmemcpyAttributes attributes{};
  std::size_t index = 0;
  ASSERT_EQ(DRIVER(cuMemcpyBatchAsync)(to, from, sizes, 2, &attributes, &index, 1, stream_),
            CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_EQ(object_[499], 500U);
  EXPECT_EQ(object_[500], 9U) << "the access waits";
  EXPECT_EQ(object_[600], 601U);
  const auto* const copied = reinterpret_cast<std::uint32_t*>(fake_cuda::backing(plain_));
  EXPECT_EQ(copied[0], 100U);
  EXPECT_EQ(copied[99], 100U);

  CUDA_MEMCPY3D_BATCH_OP block{};
  block.src.type = block.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  block.src.op.ptr.ptr = plain_;
  block.dst.op.ptr.ptr = number(object_ + 2000);
  block.dst.op.ptr.rowLength = 400;
  block.extent = {8, 10, 1};
  object_[2002] = 31;
  ASSERT_EQ(DRIVER(cuMemcpy3DBatchAsync)(1, &block, 0, stream_), CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_EQ(object_[2000], 100U);
  EXPECT_EQ(object_[2002], 31U) << "between the rows";
  EXPECT_EQ(object_[2100], 3U);
  EXPECT_EQ(block.dst.op.ptr.ptr, number(object_ + 2000)) << "the caller's description";
}

TEST_F(OtherCudaCalls, GraphsCopyAndFillWhatIsCurrent) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  CUDA_MEMCPY3D out{};
  out.srcMemoryType = CU_MEMORYTYPE_HOST;  // an object, named as the CPU's memory
  out.srcHost = object_;
  out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = plain_;
  out.WidthInBytes = 400;
  out.Height = out.Depth = 1;
  ASSERT_EQ(DRIVER(cuGraphAddMemcpyNode)(nullptr, graph, nullptr, 0, &out, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(out.srcMemoryType, CU_MEMORYTYPE_HOST) << "the caller's description";
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = number(object_ + 1000);
  fill.elementSize = 4;
  fill.value = 77;
  fill.width = 10;
  fill.height = 1;
  ASSERT_EQ(DRIVER(cuGraphAddMemsetNode)(nullptr, graph, nullptr, 0, &fill, nullptr), CUDA_SUCCESS);
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node.memcpy.copyParams = out;
  std::swap(node.memcpy.copyParams.srcMemoryType, node.memcpy.copyParams.dstMemoryType);
  node.memcpy.copyParams.srcDevice = plain_;
  node.memcpy.copyParams.dstHost = object_ + 2000;
  ASSERT_EQ(DRIVER(cuGraphAddNode)(nullptr, graph, nullptr, nullptr, 0, &node), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuGraphInstantiateWithFlags)(&executable, graph, 0), CUDA_SUCCESS);

  for (std::uint32_t round = 1; round <= 2; ++round) {
    object_[0] = round * 100;
    object_[1009] = object_[2000] = 1;
    object_[2100] = 4711;
    ASSERT_EQ(DRIVER(cuGraphLaunch)(executable, stream_), CUDA_SUCCESS) << adsmLastErrorString();
    EXPECT_EQ(object_[1009], 77U) << "the access waits";
    EXPECT_EQ(object_[2000], round * 100);
    EXPECT_EQ(object_[2100], 4711U);
  }

  CUstreamBatchMemOpParams value{};
  value.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  value.waitValue.address = number(object_);
  CUDA_BATCH_MEM_OP_NODE_PARAMS values{};
  values.count = 1;
  values.paramArray = &value;
  EXPECT_EQ(DRIVER(cuGraphAddBatchMemOpNode)(nullptr, graph, nullptr, 0, &values),
            CUDA_ERROR_NOT_SUPPORTED);
  expectReason("graph");
  value.waitValue.address = plain_;
  EXPECT_EQ(DRIVER(cuGraphAddBatchMemOpNode)(nullptr, graph, nullptr, 0, &values), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuGraphExecDestroy)(executable), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

// Adds nodes that wait for what the CPU or another process does, and others; expects all that the
// runtime knows of them.
void expectThatWaitsAreKnown(CUdeviceptr value) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUgraphNode const node = nullptr;
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuGraphInstantiateWithFlags)(&executable, graph, 0), CUDA_SUCCESS);
  const auto expectWait = [](CUresult result, bool waits) {
    EXPECT_EQ(result, CUDA_SUCCESS);
    EXPECT_EQ(coherence::openWaits(), waits);
    coherence::internal::openWaits = false;  // (of a real process, never)
  };
  for (const bool waits : {true, false}) {
    CUstreamBatchMemOpParams each[2] = {};
    each[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    each[0].writeValue.address = value;
    each[1].waitValue.operation =
        waits ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    each[1].waitValue.address = value;
    CUDA_BATCH_MEM_OP_NODE_PARAMS values{};
    values.count = 2;
    values.paramArray = each;
    expectWait(DRIVER(cuGraphAddBatchMemOpNode)(nullptr, graph, nullptr, 0, &values), waits);
    expectWait(DRIVER(cuGraphBatchMemOpNodeSetParams)(node, &values), waits);
    expectWait(DRIVER(cuGraphExecBatchMemOpNodeSetParams)(executable, node, &values), waits);
    CUgraphNodeParams any{};
    any.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    any.memOp.count = 2;
    any.memOp.paramArray = each;
    for (int kind = 0; kind < 2; ++kind) {
      expectWait(DRIVER(cuGraphAddNode)(nullptr, graph, nullptr, nullptr, 0, &any), waits);
      expectWait(DRIVER(cuGraphNodeSetParams)(node, &any), waits);
      expectWait(DRIVER(cuGraphExecNodeSetParams)(executable, node, &any), waits);
      any = {};
      any.type = waits ? CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT : CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
    }
  }
  const CUDA_EXT_SEM_WAIT_NODE_PARAMS semaphores{};
  expectWait(DRIVER(cuGraphAddExternalSemaphoresWaitNode)(nullptr, graph, nullptr, 0, &semaphores),
             true);
  expectWait(DRIVER(cuGraphExternalSemaphoresWaitNodeSetParams)(node, &semaphores), true);
  expectWait(DRIVER(cuGraphExecExternalSemaphoresWaitNodeSetParams)(executable, node, &semaphores),
             true);
  fake_cuda::failNext("cuGraphAddExternalSemaphoresWaitNode", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(DRIVER(cuGraphAddExternalSemaphoresWaitNode)(nullptr, graph, nullptr, 0, &semaphores),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(coherence::openWaits());
  ASSERT_EQ(DRIVER(cuGraphExecDestroy)(executable), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

TEST_F(OtherCudaCalls, WaitsInGraphsAreKnown) {
  expectThatWaitsAreKnown(plain_);
  // One for shared memory is refused.
  CUstreamBatchMemOpParams value{};
  value.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  value.waitValue.address = number(object_);
  CUDA_BATCH_MEM_OP_NODE_PARAMS values{};
  values.count = 1;
  values.paramArray = &value;
  EXPECT_EQ(DRIVER(cuGraphBatchMemOpNodeSetParams)(nullptr, &values), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_FALSE(coherence::openWaits());
}

// The graph may be launched when something is.
TEST(OtherCudaCallsBefore, WaitsInGraphsAreKnownWhileNothingIsShared) {
  ASSERT_FALSE(coherence::anythingShared());
  long value = 0;
  expectThatWaitsAreKnown(number(&value));
}

// The driver accepts no other kind of memory for a node later.
TEST_F(OtherCudaCalls, AGraphsCopyKeepsTheKindsOfMemoryThatItWasDescribedWith) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(DRIVER(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
  for (const CUmemorytype kind : {CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_DEVICE}) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = kind;
    copy.srcDevice = number(object_);
    copy.dstDevice = number(object_ + 1000);
    copy.WidthInBytes = 400;
    copy.Height = copy.Depth = 1;
    ASSERT_EQ(DRIVER(cuGraphAddMemcpyNode)(&node, graph, nullptr, 0, &copy, nullptr), CUDA_SUCCESS);
    CUDA_MEMCPY3D described{};
    ASSERT_EQ(DRIVER(cuGraphMemcpyNodeGetParams)(node, &described), CUDA_SUCCESS);
    EXPECT_EQ(described.srcMemoryType, kind);
    EXPECT_EQ(described.dstMemoryType, kind);
    EXPECT_EQ(described.srcDevice, copy.srcDevice);
    EXPECT_EQ(described.dstDevice, copy.dstDevice);
  }
  ASSERT_EQ(DRIVER(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

TEST_F(OtherCudaCalls, WhatIsCapturedIsNotDoneYet) {
  fake_cuda::capture(stream_);
  const std::size_t marks = fake_cuda::calls("cuEventRecord");
  launch(stream_, object_);
  EXPECT_EQ(fake_cuda::calls("cuEventRecord"), marks);
  fake_cuda::capture(nullptr);
}

std::size_t marks() { return fake_cuda::calls("cuEventRecord"); }

// An event that is recorded during a capture may become part of it, or end it.
TEST_F(OtherCudaCalls, WhatWasLaunchedBeforeACaptureIsMarkedBeforeIt) {
  CUstream captured = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&captured, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  launch(stream_, object_);
  const std::size_t before = marks();
  launch(stream_, object_);
  ASSERT_EQ(marks(), before) << "it repeats";
  ASSERT_EQ(DRIVER(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(marks(), before + 1);
  launch(stream_, object_);
  launch(stream_, object_);
  EXPECT_EQ(marks(), before + 3) << "meanwhile none does";
  // It fails, and nothing has ended.
  CUgraph graph = nullptr;
  EXPECT_EQ(DRIVER(cuStreamEndCapture)(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(DRIVER(cuStreamBeginCapture)(captured, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_ILLEGAL_STATE);
  launch(stream_, object_);
  EXPECT_EQ(marks(), before + 4);
  ASSERT_EQ(DRIVER(cuStreamEndCapture)(captured, &graph), CUDA_SUCCESS);
  launch(stream_, object_);
  launch(stream_, object_);
  EXPECT_EQ(marks(), before + 4);
  EXPECT_EQ(object_[0], 7u);
  EXPECT_EQ(marks(), before + 6) << "theirs, and that of the copy to the CPU";
  ASSERT_EQ(DRIVER(cuStreamDestroy)(captured), CUDA_SUCCESS);
}

TEST_F(OtherCudaCalls, WhatWasLaunchedOnAStreamIsMarkedBeforeTheStreamGoes) {
  CUstream stream = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  launch(stream, object_);
  launch(stream, object_);
  const std::size_t before = marks();
  ASSERT_EQ(DRIVER(cuStreamDestroy)(stream), CUDA_SUCCESS);
  EXPECT_EQ(marks(), before + 1);
  EXPECT_EQ(object_[0], 2u);
}

// A wait of the stream may be for the CPU, which the next access must not wait for; and a copy
// takes its time.
TEST_F(OtherCudaCalls, OtherWorkOnAStreamComesAfterTheMark) {
  CUevent event = nullptr;
  ASSERT_EQ(DRIVER(cuEventCreate)(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  std::uint32_t word = 0;
  const std::function<CUresult()> works[] = {
      [&] { return DRIVER(cuStreamWaitEvent)(stream_, event, 0); },
      [&] { return DRIVER(cuMemcpyHtoDAsync)(plain_, &word, sizeof word, stream_); }};
  std::uint32_t launched = 0;
  for (const auto& work : works) {
    launch(stream_, object_);
    const std::size_t before = marks();
    ASSERT_EQ(work(), CUDA_SUCCESS);
    EXPECT_EQ(marks(), before) << "there is one";
    launch(stream_, object_);
    launch(stream_, object_);
    ASSERT_EQ(work(), CUDA_SUCCESS);
    EXPECT_EQ(marks(), before + 1);
    launched += 3;
    EXPECT_EQ(object_[0], launched);
    EXPECT_EQ(marks(), before + 2) << "that, and that of the copy to the CPU";
  }
  ASSERT_EQ(DRIVER(cuEventDestroy)(event), CUDA_SUCCESS);
}

// Programs wait by such a copy: what they launched before on the legacy stream has ended then.
TEST_F(OtherCudaCalls, ACopyToTheCpuIsAWait) {
  std::uint32_t word = 0;
  const auto copy = [&](std::size_t bytes) {
    ASSERT_EQ(DRIVER(cuMemcpyDtoH)(&word, plain_, bytes), CUDA_SUCCESS);
  };
  launch(CU_STREAM_LEGACY, object_);
  launch(CU_STREAM_LEGACY, object_);
  const std::size_t before = marks();
  copy(sizeof word);
  EXPECT_EQ(object_[0], 2u);
  EXPECT_EQ(marks(), before + 1) << "the copy to the CPU";
  launch(stream_, object_);
  launch(stream_, object_);
  const std::size_t after = marks();
  copy(sizeof word);
  EXPECT_EQ(marks(), after + 1) << "not for that stream";
  EXPECT_EQ(object_[0], 4u);
  launch(CU_STREAM_LEGACY, object_);
  launch(CU_STREAM_LEGACY, object_);
  copy(0);
  EXPECT_EQ(object_[0], 6u);
}

// A context of the program's own, in which nothing is shared.
class AnotherContext {
 public:
  AnotherContext() {
    EXPECT_EQ(DRIVER(cuCtxCreate)(&context_, nullptr, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuMemAlloc)(&memory_, sizeof(std::uint32_t)), CUDA_SUCCESS);
    leave();
  }
  ~AnotherContext() { EXPECT_EQ(DRIVER(cuCtxDestroy)(context_), CUDA_SUCCESS); }
  AnotherContext(const AnotherContext&) = delete;
  AnotherContext& operator=(const AnotherContext&) = delete;

  // Waits there in every way, with the context as the thread's own.
  void waits() const {
    std::uint32_t word = 0;
    ASSERT_EQ(DRIVER(cuCtxPushCurrent)(context_), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuMemcpyDtoH)(&word, memory_, sizeof word), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuStreamSynchronize)(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuStreamQuery)(stream_), CUDA_SUCCESS);
    CUstream other = nullptr;
    EXPECT_EQ(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(DRIVER(cuStreamDestroy)(other), CUDA_SUCCESS);
    leave();
  }

 private:
  static void leave() {
    CUcontext popped = nullptr;
    EXPECT_EQ(DRIVER(cuCtxPopCurrent)(&popped), CUDA_SUCCESS);
  }
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(OtherCudaCalls, AWaitInAnotherContextIsNoneForWhatWasLaunched) {
  const AnotherContext other;
  for (CUstream const stream : {stream_, CU_STREAM_LEGACY}) {
    object_[0] = 0;
    launch(stream, object_);
    launch(stream, object_);
    other.waits();
    EXPECT_EQ(object_[0], 2u);
  }
}

// Its device would be given access to all objects.
TEST_F(OtherCudaCalls, NorDoesItMakeTheContextOneThatUsesObjects) {
  const AnotherContext other;
  other.waits();
  EXPECT_FALSE(coherence::work().knowsOtherContexts());
}

// Its number means another stream in each thread, so only its own thread could mark it.
TEST_F(OtherCudaCalls, LaunchesOnAThreadsOwnStreamAreMarkedAtOnce) {
  launch(CU_STREAM_PER_THREAD, object_);
  const std::size_t before = marks();
  launch(CU_STREAM_PER_THREAD, object_);
  EXPECT_EQ(marks(), before + 1);
  EXPECT_EQ(object_[0], 2u);
}

TEST_F(OtherCudaCalls, WaitsForEventsMarkWhatWasLaunchedAfterThem) {
  CUevent event = nullptr;
  ASSERT_EQ(DRIVER(cuEventCreate)(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  launch(stream_, object_);
  ASSERT_EQ(DRIVER(cuEventRecord)(event, stream_), CUDA_SUCCESS);
  launch(stream_, object_);
  ASSERT_EQ(DRIVER(cuEventSynchronize)(event), CUDA_SUCCESS);
  EXPECT_EQ(object_[0], 2u);
  ASSERT_EQ(DRIVER(cuEventDestroy)(event), CUDA_SUCCESS);
}

// ---- Functions of the CPU

struct Sum {
  const std::uint32_t* object;
  std::uint64_t sum = 0;
};

void CUDA_CB addUp(void* argument) {
  auto& sum = *static_cast<Sum*>(argument);
  sum.sum = std::accumulate(sum.object, sum.object + kCount, std::uint64_t{0});
}
void CUDA_CB doubleAll(void* argument) {
  auto* const object = static_cast<std::uint32_t*>(argument);
  for (std::size_t i = 0; i < kCount; ++i) object[i] *= 2;
}
void CUDA_CB doubleAllCallback(CUstream, CUresult result, void* argument) {
  if (result == CUDA_SUCCESS) doubleAll(argument);
}

TEST_F(OtherCudaCalls, AFunctionInAStreamSeesTheKernelBeforeIt) {
  launch(stream_, object_);
  Sum sum{object_};
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, addUp, &sum), CUDA_SUCCESS) << adsmLastErrorString();
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(sum.sum, std::uint64_t{kCount} * (kCount + 1) / 2);
}

TEST_F(OtherCudaCalls, TheKernelBehindAFunctionSeesWhatItWrote) {
  launch(stream_, object_);
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, doubleAll, object_), CUDA_SUCCESS);
  launch(stream_, object_);
  ASSERT_EQ(DRIVER(cuStreamAddCallback)(stream_, doubleAllCallback, object_, 0), CUDA_SUCCESS);
  launch(stream_, object_);
  for (std::uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(object_[i], ((i + 1) * 2 + 1) * 2 + 1) << i;
}

TEST_F(OtherCudaCalls, ASynchronousCopyBehindAFunctionDoesNotWaitForItself) {
  launch(nullptr, object_);
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(nullptr, doubleAll, object_), CUDA_SUCCESS);
  std::vector<std::uint32_t> seen(100);
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(seen.data(), number(object_), 400), CUDA_SUCCESS);
  EXPECT_EQ(seen[99], 200U);
}

struct Ran {
  std::uint32_t* object;
  std::set<pid_t> threads;
};
void CUDA_CB noteThread(void* argument) {
  auto& ran = *static_cast<Ran*>(argument);
  ++ran.object[0];
  ran.threads.insert(::gettid());
}

TEST_F(OtherCudaCalls, FunctionsInTurnShareAThread) {
  Ran ran{object_, {}};
  for (std::uint32_t i = 1; i <= 20; ++i) {
    launch(stream_, object_);
    ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, noteThread, &ran), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    ASSERT_EQ(object_[0], 2 * i);
  }
  EXPECT_EQ(ran.threads.size(), 1U);
}

// As in rounds without one: what the CPU reads after each is copied on the stream, and open.
TEST_F(OtherCudaCalls, WhatIsReadAfterAFunctionNeedsNoFault) {
  const auto faults = [] { return stats().readFaults.value() + stats().writeFaults.value(); };
  constexpr std::uint32_t kRounds = 64;
  std::uint64_t before = 0;
  for (std::uint32_t i = 1; i <= 2 * kRounds; ++i) {
    if (i == kRounds) before = faults();
    launch(stream_, object_);
    ASSERT_EQ(DRIVER(cuLaunchHostFunc)(
                  stream_, [](void*) {}, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    ASSERT_EQ(object_[5], i + 5);
  }
  EXPECT_LE(faults() - before, kRounds / 4) << "but for checks";
}

TEST_F(OtherCudaCalls, AFunctionMayEndItsThread) {
  for (std::uint32_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(DRIVER(cuLaunchHostFunc)(
                  stream_, [](void*) { pthread_exit(nullptr); }, nullptr),
              CUDA_SUCCESS);
    launch(stream_, object_);
    Sum sum{object_};
    ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, addUp, &sum), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    ASSERT_EQ(sum.sum, std::uint64_t{kCount} * (kCount - 1 + 2 * i) / 2);
  }
}

TEST_F(OtherCudaCalls, TheNextFunctionTouchesObjectsWhateverSignalsTheLastOneBlocked) {
  launch(stream_, object_);
  const auto block = [](void*) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
  };
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, block, nullptr), CUDA_SUCCESS);
  Sum sum{object_};
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, addUp, &sum), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(sum.sum, std::uint64_t{kCount} * (kCount + 1) / 2);
}

struct Meeting {
  std::atomic<int> arrived{0};
};
void CUDA_CB meet(void* argument) {
  auto& meeting = *static_cast<Meeting*>(argument);
  ++meeting.arrived;
  while (meeting.arrived.load() < 2) std::this_thread::yield();
}

TEST_F(OtherCudaCalls, FunctionsInTwoStreamsMayWaitForEachOther) {
  CUstream other = nullptr;
  ASSERT_EQ(DRIVER(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Meeting meeting;
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, meet, &meeting), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuLaunchHostFunc)(other, meet, &meeting), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuStreamSynchronize)(other), CUDA_SUCCESS);
  EXPECT_EQ(meeting.arrived.load(), 2);
  EXPECT_EQ(DRIVER(cuStreamDestroy)(other), CUDA_SUCCESS);
}

// A function that lasts long, and a thread that has nothing to do for long: both sleep.
TEST_F(OtherCudaCalls, AFunctionLongAfterAnotherOneRunsToo) {
  static constexpr auto kLong = std::chrono::milliseconds(5);
  const auto sleep = [](void*) { std::this_thread::sleep_for(kLong); };
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, sleep, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    std::this_thread::sleep_for(kLong);
    Sum sum{object_};
    ASSERT_EQ(DRIVER(cuLaunchHostFunc)(stream_, addUp, &sum), CUDA_SUCCESS);
    ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
    EXPECT_EQ(sum.sum, std::uint64_t{kCount} * (kCount - 1) / 2);
  }
}

TEST_F(OtherCudaCalls, AFunctionThatCouldNotBeQueuedIsForgotten) {
  fake_cuda::failNext("cuLaunchHostFunc", CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(DRIVER(cuLaunchHostFunc)(stream_, doubleAll, object_), CUDA_ERROR_NOT_SUPPORTED);
  launch(stream_, object_);
  EXPECT_EQ(object_[1], 2U);
}

// ---- A stream's own stores and waits

TEST_F(OtherCudaCalls, AStreamsStoreIsDeviceWork) {
  object_[6] = 60;
  ASSERT_EQ(DRIVER(cuStreamWriteValue32)(stream_, number(object_ + 5), 4711, 0), CUDA_SUCCESS)
      << adsmLastErrorString();
  EXPECT_EQ(object_[5], 4711U);
  EXPECT_EQ(object_[6], 60U);
  EXPECT_EQ(DRIVER(cuStreamWaitValue32)(stream_, number(object_), 1, 0), CUDA_ERROR_NOT_SUPPORTED);
  expectReason("cuStreamWaitValue");
  EXPECT_FALSE(coherence::openWaits());
  EXPECT_EQ(DRIVER(cuStreamWaitValue32)(stream_, plain_, 1, 0), CUDA_SUCCESS);
  EXPECT_TRUE(coherence::openWaits());
  CUstreamBatchMemOpParams store{};
  store.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  store.writeValue.address = number(object_);
  EXPECT_EQ(DRIVER(cuStreamBatchMemOp)(stream_, 1, &store, 0), CUDA_ERROR_NOT_SUPPORTED);
  store.writeValue.address = plain_;
  EXPECT_EQ(DRIVER(cuStreamBatchMemOp)(stream_, 1, &store, 0), CUDA_SUCCESS);
}

// ---- Objects with two addresses

class SafeObjects : public OtherCudaCalls {
 protected:
  void SetUp() override {
    OtherCudaCalls::SetUp();
    safe_ = static_cast<std::uint32_t*>(adsmSafeAlloc(kBytes));
    ASSERT_NE(safe_, nullptr) << adsmLastErrorString();
    onDevice_ = number(adsmSafe(safe_));
    ASSERT_NE(onDevice_, number(safe_));
    std::iota(safe_, safe_ + kCount, 0);
  }
  void TearDown() override {
    EXPECT_EQ(adsmFree(safe_), adsmSuccess);
    OtherCudaCalls::TearDown();
  }
  std::uint32_t* safe_ = nullptr;
  CUdeviceptr onDevice_ = 0;
};

TEST_F(SafeObjects, AreCopiedByTheirAddressOnTheDevice) {
  std::vector<std::uint32_t> seen(kCount);
  ASSERT_EQ(DRIVER(cuMemcpyDtoH)(seen.data(), onDevice_, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(seen[41], 41U) << "the CPU's writes";
  launch(stream_, reinterpret_cast<void*>(onDevice_));
  EXPECT_EQ(safe_[7], 8U);
  const std::vector<std::uint32_t> values(100, 9);
  ASSERT_EQ(DRIVER(cuMemcpyHtoDAsync)(onDevice_ + 400, values.data(), 400, stream_), CUDA_SUCCESS);
  EXPECT_EQ(safe_[99], 100U);
  EXPECT_EQ(safe_[100], 9U);
  EXPECT_EQ(safe_[200], 201U);
  ASSERT_EQ(DRIVER(cuMemsetD32)(onDevice_, 5, 10), CUDA_SUCCESS);
  EXPECT_EQ(safe_[9], 5U);
  EXPECT_EQ(safe_[10], 11U);
}

TEST_F(SafeObjects, AreCopiedByTheirAddressOnTheCpu) {
  launch(stream_, reinterpret_cast<void*>(onDevice_));
  ASSERT_EQ(DRIVER(cuStreamSynchronize)(stream_), CUDA_SUCCESS);
  ASSERT_EQ(DRIVER(cuMemcpyHtoD)(plain_, safe_, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<std::uint32_t*>(fake_cuda::backing(plain_))[41], 42U);
  // To the driver a number like any other.
  ASSERT_EQ(DRIVER(cuMemcpy)(number(safe_ + 100), plain_, 400), CUDA_SUCCESS);
  EXPECT_EQ(safe_[100], 1U);
  EXPECT_EQ(safe_[200], 201U);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = onDevice_;
  rows.srcPitch = 400;
  rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  rows.dstDevice = number(object_);
  rows.dstPitch = 400;
  rows.WidthInBytes = 8;
  rows.Height = 3;
  ASSERT_EQ(DRIVER(cuMemcpy2D)(&rows), CUDA_SUCCESS) << adsmLastErrorString();
  EXPECT_EQ(object_[100], 1U);
  EXPECT_EQ(object_[201], 202U);
  EXPECT_EQ(object_[202], 202U);
}

// ---- Refusals

TEST_F(OtherCudaCalls, WhatWouldGetPastTheRuntimeIsRefusedWithAReason) {
  std::map<const char*, std::size_t> before;
  for (const char* call : {"cuIpcGetMemHandle", "cuMemUnmap", "cuMemSetAccess", "cuMemAddressFree",
                           "cuMemRetainAllocationHandle", "cuMemGetHandleForAddressRange"}) {
    before[call] = fake_cuda::calls(call);
  }
  CUipcMemHandle handle;
  EXPECT_EQ(DRIVER(cuIpcGetMemHandle)(&handle, number(object_)), CUDA_ERROR_NOT_SUPPORTED);
  expectReason("cuIpcGetMemHandle");
  EXPECT_EQ(DRIVER(cuMemUnmap)(number(object_), kBytes), CUDA_ERROR_NOT_SUPPORTED);
  expectReason("mapping");
  EXPECT_EQ(DRIVER(cuMemSetAccess)(number(object_), kBytes, nullptr, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(DRIVER(cuMemAddressFree)(number(object_), kBytes), CUDA_ERROR_NOT_SUPPORTED);
  CUmemGenericAllocationHandle allocation;
  EXPECT_EQ(DRIVER(cuMemRetainAllocationHandle)(&allocation, object_), CUDA_ERROR_NOT_SUPPORTED);
  int fd = 0;
  EXPECT_EQ(DRIVER(cuMemGetHandleForAddressRange)(&fd, number(object_), 4096,
                                                  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(DRIVER(cuMemFreeHost)(object_), CUDA_ERROR_INVALID_VALUE);
  for (const auto& [call, count] : before) {
    EXPECT_EQ(fake_cuda::calls(call), count) << call;
  }
  const std::size_t unmapped = fake_cuda::calls("cuMemUnmap");
  // Other memory is the driver's affair.
  EXPECT_EQ(DRIVER(cuIpcGetMemHandle)(&handle, plain_), CUDA_SUCCESS);
  EXPECT_EQ(DRIVER(cuMemUnmap)(plain_, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(fake_cuda::calls("cuMemUnmap"), unmapped + 1);
}

// Objects of every kind, with a kernel under way and bytes that only the CPU has.
TEST_F(OtherCudaCalls, DISABLED_ObjectsAreFreedAfterCudaHasEnded) {
  std::vector<char*> objects;
  for (const std::size_t bytes : {100, 64 << 10, 2 << 20, 5 << 20}) {
    for (const bool used : {false, true}) {
      auto* const object = static_cast<char*>(adsmAlloc(bytes));
      ASSERT_NE(object, nullptr) << adsmLastErrorString();
      if (used) object[bytes / 2] = 1;
      objects.push_back(object);
    }
  }
  objects.push_back(static_cast<char*>(adsmSafeAlloc(5 << 20)));
  ASSERT_NE(objects.back(), nullptr) << adsmLastErrorString();
  launch(stream_, object_);
  fake_cuda::failAll(CUDA_ERROR_DEINITIALIZED);
  objects.push_back(reinterpret_cast<char*>(object_));
  for (char* const object : objects) {
    EXPECT_EQ(adsmFree(object), adsmSuccess) << adsmLastErrorString();
    EXPECT_EQ(adsmFree(object), adsmErrorInvalidPointer);
  }
  std::exit(HasFailure() ? 1 : 0);
}

TEST(StaticDestructors, FreeObjectsAfterCudaHasEnded) {
  const testing::ChildEnd end =
      testing::runChild("OtherCudaCalls.DISABLED_ObjectsAreFreedAfterCudaHasEnded", {});
  EXPECT_EQ(end.exitStatus, 0) << end.output;
}

}  // namespace
}  // namespace gmac::interpose
