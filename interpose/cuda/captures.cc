// SPDX-License-Identifier: Apache-2.0
//
// Where a capture begins and ends. An event cannot be recorded then as at other times: what was
// launched before without a mark gets one, and meanwhile each launch is marked at once.
#include "interpose/cuda/captures.h"

#include <cuda.h>

#include <atomic>

#include "interpose/cuda/call.h"

// cuda.h shows the newest signature under this name.
#undef cuStreamBeginCapture
extern "C" {
CUresult cuStreamBeginCapture(CUstream);
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
}

#define GMAC_CUDA_STREAM_CALLS(X)                                                           \
  X(cuStreamBeginCapture, cuStreamBeginCapture, _ptsz, 10000, 10010, Begin)                 \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, _ptsz, 10010, INT_MAX, Begin)            \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, _ptsz, 12030, INT_MAX, Begin) \
  X(cuStreamEndCapture, cuStreamEndCapture, _ptsz, 10000, INT_MAX, End)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)

constinit std::atomic<int> captures{0};

struct Begin {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    captures.fetch_add(1);
    coherence::port().noneRepeats();
    coherence::noteRecorded();
    coherence::port().keepWhole();
    const CUresult result = direct(real, args...);
    if (result != CUDA_SUCCESS) captures.fetch_sub(1);
    return result;
  }
};

// It fails for a capture that was invalidated, and ends that as well.
struct End {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream, CUgraph* graph) {
    const NativeStream native = nativeStream(Zero, stream);
    const bool before = capturing(native);
    const CUresult result = direct(real, stream, graph);
    if (before && !capturing(native)) captures.fetch_sub(1);
    return result;
  }
};

}  // namespace

bool captureUnderWay() noexcept { return captures.load() != 0; }

GMAC_CUDA_TABLE(cudaCaptures, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_NONE)

}  // namespace gmac::interpose
