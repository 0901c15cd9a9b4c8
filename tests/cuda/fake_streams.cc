// SPDX-License-Identifier: Apache-2.0
//
// The fake driver's streams and events.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/cuda/fake_state.h"

namespace gmac::fake_cuda {

bool lives(CUstream stream) {
  // The driver dereferences a stream without a check, and no address has so many bits.
  if (reinterpret_cast<std::uintptr_t>(stream) >> 47 != 0) {
    std::fprintf(stderr, "%p is no stream: the driver crashes\n", static_cast<void*>(stream));
    std::abort();
  }
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
         device().living.count(stream) != 0;
}
bool lives(const void* handle) { return device().living.count(handle) != 0; }

CUstream_st& streamOf(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return currentContext()->legacy;
  return stream == CU_STREAM_PER_THREAD ? currentContext()->ofThisThread() : *stream;
}

void step(CUstream_st& stream) {
  using Host = CUstream_st::Host;
  if (stream.ops.empty() || &stream == device().stalled) return;
  if (const auto host = stream.ops.front().host; host != nullptr && host->load() != Host::kOver) {
    if (host->exchange(Host::kRunning) == Host::kQueued) {
      std::thread([host, work = stream.ops.front().work] {
        work();
        host->store(Host::kOver);
      }).detach();
    }
    return;
  }
  CUstream_st::Op op = stream.ops.front();
  if (op.host != nullptr) op.work = nullptr;
  if (op.after != nullptr) advance(*op.after, op.position);
  stream.ops.pop_front();
  ++stream.done;
  if (op.work == nullptr || device().broken != CUDA_SUCCESS) return;
  const CUdevice before = std::exchange(working, stream.context->device);
  if (const CUresult result = op.work(); result != CUDA_SUCCESS) device().broken = result;
  working = before;
}
void advance(CUstream_st& stream, std::size_t position) {
  while (stream.done < position) {
    step(stream);
    if (stream.ops.empty() || stream.ops.front().host == nullptr) continue;
    // The command may need the driver. (No call holds the lock twice here.) Between two cores that
    // only yield, a mutex never reaches a third thread: it has to be free for a while.
    device().mutex.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    device().mutex.lock();
  }
}

namespace {

// Who waits for an event asks seldom in the end: each question takes the work twice as far as the
// one before.
constexpr unsigned kMostDoublings = 10;

// The same as far as so many steps go.
void advance(CUstream_st& stream, std::size_t position, std::size_t steps) {
  for (; steps > 0 && stream.done < position; --steps) step(stream);
}

// The default stream of all waits for those of the threads.
void waitForThreads(CUstream_st& stream) {
  CUctx_st& context = *stream.context;
  if (&stream != &context.legacy) return;
  for (auto& [thread, other] : context.perThread) {
    if (!other.ops.empty()) stream.ops.push_back({nullptr, &other, other.submitted()});
  }
}

}  // namespace

CUresult submit(CUstream stream, std::function<CUresult()> work) {
  FAKE_HANDLE(stream);
  waitForThreads(streamOf(stream));
  streamOf(stream).ops.push_back({std::move(work)});
  return CUDA_SUCCESS;
}

CUresult submitHost(CUstream stream, const std::function<void()>& function) {
  CUstream_st::Op op;
  op.work = [function] {
    function();
    return CUDA_SUCCESS;
  };
  op.host = std::make_shared<std::atomic<CUstream_st::Host>>(CUstream_st::Host::kQueued);
  CUstream_st& queue = streamOf(stream);
  queue.ops.push_back(std::move(op));
  // Nobody need ask: a thread of the driver sees to it.
  std::thread([&queue, position = queue.submitted()] {
    const std::lock_guard lock(device().mutex);
    advance(queue, position);
  }).detach();
  return CUDA_SUCCESS;
}

CUresult finish(CUstream stream) {
  FAKE_HANDLE(stream);
  waitForThreads(streamOf(stream));
  advance(streamOf(stream), streamOf(stream).submitted());
  return device().broken;
}

}  // namespace gmac::fake_cuda

using namespace gmac::fake_cuda;  // NOLINT: the driver's functions live in no namespace

extern "C" {

#pragma GCC visibility push(default)

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  FAKE_CALL();
  *stream = device().streams.emplace_back(std::make_unique<CUstream_st>()).get();
  (*stream)->context = currentContext();
  device().living.insert(*stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  FAKE_CALL();
  return device().living.erase(stream) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  *context = streamOf(stream).context;
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  FAKE_HANDLE(event);
  if (event->stream != nullptr)
    streamOf(stream).ops.push_back({nullptr, event->stream, event->position});
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_CALL();
  return finish(stream);
}
CUresult cuStreamQuery(CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  waitForThreads(streamOf(stream));
  step(streamOf(stream));
  if (device().broken != CUDA_SUCCESS) return device().broken;
  return streamOf(stream).ops.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  *status = stream != nullptr && stream == device().capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                              : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  if (device().capturing != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  device().capturing = stream;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  FAKE_CALL();
  if (stream == nullptr || stream != device().capturing) return CUDA_ERROR_ILLEGAL_STATE;
  device().capturing = nullptr;
  *graph = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  count(__func__);
  thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(*mode, own);
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_CALL();
  *event = device().events.emplace_back(std::make_unique<CUevent_st>()).get();
  (*event)->context = currentContext();
  device().living.insert(*event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  FAKE_CALL();
  return device().living.erase(event) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  FAKE_CALL();
  FAKE_HANDLE(stream);
  FAKE_HANDLE(event);
  if (streamOf(stream).context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  event->stream = &streamOf(stream);
  event->position = event->stream->submitted();
  event->questions = 0;
  event->others.clear();
  return CUDA_SUCCESS;
}
CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  FAKE_CALL();
  FAKE_HANDLE(event);
  if (context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  event->stream = &context->legacy;
  event->position = event->stream->submitted();
  event->questions = 0;
  event->others.clear();
  for (const auto& stream : device().streams) {
    if (stream->context == context) event->others.emplace_back(stream.get(), stream->submitted());
  }
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  FAKE_CALL();
  FAKE_HANDLE(event);
  const std::size_t steps = std::size_t{1} << std::min(event->questions++, kMostDoublings);
  for (const auto& [stream, position] : event->others) {
    if (stream->done >= position) continue;
    advance(*stream, position, steps);
    return device().broken != CUDA_SUCCESS ? device().broken : CUDA_ERROR_NOT_READY;
  }
  if (event->stream == nullptr || event->stream->done >= event->position) return CUDA_SUCCESS;
  advance(*event->stream, event->position, steps);
  if (device().broken != CUDA_SUCCESS) return device().broken;
  return event->stream->done >= event->position ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  FAKE_CALL();
  FAKE_HANDLE(start);
  FAKE_HANDLE(end);
  for (const CUevent event : {start, end}) {
    if (event->stream != nullptr && event->stream->done < event->position) {
      step(*event->stream);
      return CUDA_ERROR_NOT_READY;
    }
  }
  *milliseconds = 1;
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
  FAKE_CALL();
  FAKE_HANDLE(event);
  if (event->stream != nullptr) advance(*event->stream, event->position);
  return device().broken;
}

#pragma GCC visibility pop
}
