// SPDX-License-Identifier: Apache-2.0
//
// Functions of the CPU in a stream. They may use shared objects, like any code of the CPU, but at a
// time that the stream chooses. So the next device work waits until they have run: then their
// writes are released to it, and they never wait for work after them. They run in threads of our
// own (function_threads.h), because the driver's thread may not copy, and an access to an object
// may need a copy.
#include "interpose/cuda/host_functions.h"

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "interpose/cuda/call.h"
#include "interpose/cuda/function_threads.h"

#define GMAC_CUDA_STREAM_CALLS(X)                                        \
  X(cuLaunchHostFunc, cuLaunchHostFunc, _ptsz, 0, INT_MAX, HostFunction) \
  X(cuStreamAddCallback, cuStreamAddCallback, _ptsz, 0, INT_MAX, StreamCallback)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)

// The application's function and argument, until it has run.
struct Given {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;
  void* userData = nullptr;
};

// In a context that has failed they never run, and pend until it ends.
constinit std::atomic<std::size_t> pending{0};

void queued() noexcept {
  pending.fetch_add(1);
  coherence::work().hostFunctionQueued();
}
void ended() noexcept {
  coherence::work().hostFunctionEnded();
  std::size_t count = pending.load();
  while (count != 0 && !pending.compare_exchange_weak(count, count - 1)) {
  }
}

template <typename Body>
void runApart(Body body) {
  FunctionThreads::get().run(body);
  ended();
}

void CUDA_CB runFunction(void* argument) {
  const std::unique_ptr<Given> given(static_cast<Given*>(argument));
  runApart([&] { given->function(given->userData); });
}

void CUDA_CB runCallback(CUstream stream, CUresult status, void* argument) {
  const std::unique_ptr<Given> given(static_cast<Given*>(argument));
  runApart([&] { given->callback(stream, status, given->userData); });
}

// Queues a function with `submit`, a CUresult(Given*).
template <typename Submit>
CUresult queue(NativeStream stream, Given given, Submit&& submit) noexcept {
  const Result<NativeStream> number = known(stream);
  if (!number.ok()) return resultOf(number.status());
  auto* const kept = new (std::nothrow) Given(given);
  if (kept == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  // Without ranges: this only waits for its turn among the threads that submit.
  if (const Status begun = coherence::work().beginDeviceWork(*number, {}); !begun.ok()) {
    delete kept;
    return resultOf(begun);
  }
  queued();
  CUresult result = CUDA_SUCCESS;
  {
    const Reentry inside;
    result = submit(kept);
  }
  // Recorded as not submitted: an access inside the function must not wait for the function.
  const Status noted = coherence::work().endDeviceWork(*number, false);
  if (result != CUDA_SUCCESS) {
    ended();
    delete kept;
    return result;
  }
  return resultOf(noted);
}

// In a graph they run when the graph runs; an access that would have to wait for the graph ends the
// process.
struct HostFunction {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream, CUhostFn function, void* userData) {
    if (function == nullptr || capturing(nativeStream(Zero, stream)))
      return direct(real, stream, function, userData);
    return queue(nativeStream(Zero, stream), {function, nullptr, userData},
                 [&](Given* given) { return real(stream, &runFunction, given); });
  }
};

struct StreamCallback {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream, CUstreamCallback callback, void* userData,
                      unsigned flags) {
    if (callback == nullptr || capturing(nativeStream(Zero, stream)))
      return direct(real, stream, callback, userData, flags);
    return queue(nativeStream(Zero, stream), {nullptr, callback, userData},
                 [&](Given* given) { return real(stream, &runCallback, given, flags); });
  }
};

}  // namespace

bool hostFunctionsPending() noexcept { return pending.load() != 0; }
void dropHostFunctions() noexcept { pending.store(0); }

GMAC_CUDA_TABLE(cudaHostFunctions, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_NONE)

}  // namespace gmac::interpose
