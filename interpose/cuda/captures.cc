// SPDX-License-Identifier: Apache-2.0
//
// Where a capture begins and ends. An event cannot be recorded then as at other times: what was
// launched before without a mark gets one, and meanwhile each launch is marked at once. Copies and
// fills that are captured name ranges: no page of an object gets one copy until the end, nor ever
// again where there was one (coherently()); those that have one are taken back (keepWhole()).
#include <cuda.h>

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

struct Begin {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    coherence::captureBegins();
    coherence::work().noneRepeats();
    coherence::work().keepWhole();
    const CUresult result = direct(real, args...);
    if (result != CUDA_SUCCESS) coherence::captureEnds();
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
    if (before && !capturing(native)) coherence::captureEnds();
    return result;
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaCaptures, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_NONE)

}  // namespace gmac::interpose
