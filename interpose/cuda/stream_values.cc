// SPDX-License-Identifier: Apache-2.0
//
// Stores that a stream makes by itself, and its waits for what the CPU or another process does. A
// store is device work like any other. A wait for a value in shared memory is refused: the CPU's
// store would wait for the stream.
#include <cuda.h>

#include "gmac/api/adsm.h"
#include "interpose/cuda/call.h"

// cuda.h shows the newest signatures under these names; the symbols are the older ones.
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamBatchMemOp
extern "C" {
CUresult cuStreamWriteValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned);
CUresult cuStreamWriteValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned);
CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned);
CUresult cuStreamWaitValue64(CUstream, CUdeviceptr, cuuint64_t, unsigned);
CUresult cuStreamBatchMemOp(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
}

#define GMAC_CUDA_STREAM_CALLS(X)                                                        \
  X(cuStreamWriteValue32, cuStreamWriteValue32, _ptsz, 8000, 11070, WriteValue)          \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2, _ptsz, 11070, INT_MAX, WriteValue)    \
  X(cuStreamWriteValue64, cuStreamWriteValue64, _ptsz, 9000, 11070, WriteValue)          \
  X(cuStreamWriteValue64, cuStreamWriteValue64_v2, _ptsz, 11070, INT_MAX, WriteValue)    \
  X(cuStreamWaitValue32, cuStreamWaitValue32, _ptsz, 8000, 11070, WaitValue)             \
  X(cuStreamWaitValue32, cuStreamWaitValue32_v2, _ptsz, 11070, INT_MAX, WaitValue)       \
  X(cuStreamWaitValue64, cuStreamWaitValue64, _ptsz, 9000, 11070, WaitValue)             \
  X(cuStreamWaitValue64, cuStreamWaitValue64_v2, _ptsz, 11070, INT_MAX, WaitValue)       \
  X(cuStreamBatchMemOp, cuStreamBatchMemOp, _ptsz, 8000, 11070, ValueBatch)              \
  X(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, _ptsz, 11070, INT_MAX, ValueBatch)        \
  X(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, _ptsz, 10000, INT_MAX, \
    OutsideWait)                                                                         \
  X(cuStreamWaitEvent, cuStreamWaitEvent, _ptsz, 3020, INT_MAX, EventOrder)

#define GMAC_CUDA_PLAIN_CALLS(X) \
  X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, INT_MAX, OutsideWait)

namespace gmac::interpose {
namespace {

GMAC_CUDA_STREAM_CALLS(GMAC_CUDA_STREAM_TYPE)
GMAC_CUDA_PLAIN_CALLS(GMAC_CUDA_PLAIN_TYPE)

constexpr const char* kNoWait =
    "the CPU could not store the value, because its access waits for the stream; wait for an event";

struct WriteValue {
  template <ZeroStream Zero, typename Real, typename Value>
  static CUresult run(Real real, CUstream stream, CUdeviceptr address, Value value,
                      unsigned flags) {
    const std::uintptr_t first = cpuAddressOf(address);
    if (!shared(first, sizeof value)) return direct(real, stream, address, value, flags);
    if (capturing(nativeStream(Zero, stream))) {
      return refuse(adsmErrorNotSupported, "capturing cuStreamWriteValue", address,
                    "it would not be seen by the CPU; use a kernel or a copy");
    }
    Ranges ranges;
    ranges.writes({first, sizeof value, false});
    return coherently(nativeStream(Zero, stream), ranges.all(), Returns::kAtOnce,
                      [&] { return real(stream, onDevice(first), value, flags); });
  }
};

struct WaitValue {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename Value>
  static CUresult run(Real real, CUstream stream, CUdeviceptr address, Value value,
                      unsigned flags) {
    if (shared(cpuAddressOf(address), sizeof value))
      return refuse(adsmErrorNotSupported, "cuStreamWaitValue", address, kNoWait);
    coherence::noteOpenWait();
    return direct(real, stream, address, value, flags);
  }
};

struct ValueBatch {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream, unsigned count, CUstreamBatchMemOpParams* values,
                      unsigned flags) {
    for (unsigned i = 0; values != nullptr && i < count; ++i) {
      switch (values[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
          if (shared(cpuAddressOf(values[i].waitValue.address), 1))
            return refused(values[i].waitValue.address, kNoWait);
          coherence::noteOpenWait();
          break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
          if (shared(cpuAddressOf(values[i].writeValue.address), 1))
            return refused(values[i].writeValue.address, "make the stores one by one");
          break;
        default:
          break;
      }
    }
    return direct(real, stream, count, values, flags);
  }

 private:
  static CUresult refused(CUdeviceptr address, const char* instead) {
    return refuse(adsmErrorNotSupported, "cuStreamBatchMemOp", address, instead);
  }
};

// What the stream holds from here on may come after another stream's work of any kind.
struct EventOrder {
  template <ZeroStream Zero, typename Real>
  static CUresult run(Real real, CUstream stream, CUevent event, unsigned flags) {
    return direct(real, stream, event, flags);
  }
};

// Work of another process, or of another API, comes at any time.
struct OutsideWait {
  static constexpr bool kEvenUnshared = true;

  template <ZeroStream Zero, typename Real, typename... Args>
  static CUresult run(Real real, Args... args) {
    coherence::noteOpenWait();
    return direct(real, args...);
  }
};

}  // namespace

GMAC_CUDA_TABLE(cudaStreamValues, GMAC_CUDA_STREAM_CALLS, GMAC_CUDA_PLAIN_CALLS)

}  // namespace gmac::interpose
