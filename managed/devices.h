// SPDX-License-Identifier: Apache-2.0
//
// For programs that use every GPU that the process sees; with one they use that.
#ifndef GMAC_MANAGED_DEVICES_H_
#define GMAC_MANAGED_DEVICES_H_

#include "managed/program.h"

namespace managed {

inline int deviceCount() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

inline void use(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

// Where the CUDA headers are those of release 13, places have a type of their own.
#if CUDART_VERSION >= 13000
inline cudaMemLocation placeOn(int device) { return {cudaMemLocationTypeDevice, device}; }
#else
inline int placeOn(int device) { return device; }
#endif

inline void prefetch(const void* data, std::size_t bytes, int device, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  check(cudaMemPrefetchAsync(data, bytes, placeOn(device), 0, stream), "cudaMemPrefetchAsync");
#else
  check(cudaMemPrefetchAsync(data, bytes, placeOn(device), stream), "cudaMemPrefetchAsync");
#endif
}

inline void advise(const void* data, std::size_t bytes, cudaMemoryAdvise advice, int device) {
  check(cudaMemAdvise(data, bytes, advice, placeOn(device)), "cudaMemAdvise");
}

// A stream of the device that is current, and an event to order others by. Owner.
class Lane {
 public:
  explicit Lane(int device) : device_(device) {
    use(device_);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~Lane() {
    if (stream_ != nullptr) end();
  }
  Lane(Lane&& other) noexcept
      : device_(other.device_),
        stream_(std::exchange(other.stream_, nullptr)),
        event_(other.event_) {}
  Lane& operator=(Lane&&) = delete;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  void record() const { check(cudaEventRecord(event_, stream_), "cudaEventRecord"); }
  // Work that is submitted here next runs after the work that `other` has recorded.
  void follow(const Lane& other) const {
    check(cudaStreamWaitEvent(stream_, other.event_, 0), "cudaStreamWaitEvent");
  }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  void end() {
    (void)cudaEventDestroy(event_);
    (void)cudaStreamDestroy(std::exchange(stream_, nullptr));
  }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace managed

#endif  // GMAC_MANAGED_DEVICES_H_
