// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <cstring>

#include "datatypes/failure.h"
#include "datatypes/gpu.h"
#include "datatypes/hand_kernels.h"
#include "datatypes/pattern.h"

namespace datatypes {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    throw Failure(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

__global__ void doNothing() {}

__global__ void fillWords(std::uint64_t* words, std::uint64_t count) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    words[i] = patternWord(i);
  }
}

__global__ void addVectors(float* sum, const float* a, const float* b, std::uint64_t count) {
  const std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
}

// Occupied for longer than this, a GPU counts as forgotten: whoever waits for all kernels before
// releasing this one would wait for ever.
constexpr long long kLongestNanoseconds = 20'000'000'000;

__device__ long long globalNanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Each block takes a multiprocessor's shared memory whole, so that they lie on different ones.
__global__ void occupy(volatile int* running, const volatile int* release) {
  extern __shared__ char all[];
  if (threadIdx.x == 0) {
    atomicAdd(const_cast<int*>(running), 1);
    const long long start = globalNanoseconds();
    while (*release == 0 && globalNanoseconds() - start < kLongestNanoseconds) __nanosleep(1000);
    all[0] = 0;
  }
}

enum class Kind { kDevice, kPinned };

// One allocation that grows. Move-free owner.
class Arena {
 public:
  explicit Arena(Kind kind) : kind_(kind) {}
  ~Arena() { release(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // True when the memory is new.
  bool reserve(std::int64_t bytes) {
    if (bytes <= bytes_) return false;
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    release();
    const auto size = static_cast<std::size_t>(bytes);
    check(kind_ == Kind::kDevice ? cudaMalloc(&memory_, size)
                                 : cudaHostAlloc(&memory_, size, cudaHostAllocDefault),
          kind_ == Kind::kDevice ? "cudaMalloc" : "cudaHostAlloc");
    bytes_ = bytes;
    return true;
  }
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  void release() {
    (void)(kind_ == Kind::kDevice ? cudaFree(memory_) : cudaFreeHost(memory_));
    memory_ = nullptr;
    bytes_ = 0;
  }

  const Kind kind_;
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

class CudaGpu final : public Gpu {
 public:
  CudaGpu() {
    check(cudaGetDeviceProperties(&properties_, 0), "cudaGetDeviceProperties");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaStreamCreateWithFlags(&user_, cudaStreamNonBlocking), "cudaStreamCreate");
    for (cudaEvent_t* event : {&start_, &ends_[0], &ends_[1]}) {
      check(cudaEventCreate(event), "cudaEventCreate");
    }
    check(cudaHostAlloc(&flags_, 2 * sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
    check(cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(properties_.sharedMemPerBlockOptin)),
          "cudaFuncSetAttribute");
  }
  ~CudaGpu() override {
    *const_cast<volatile int*>(flags_ + 1) = 1;  // what failed may have left the kernel waiting
    (void)cudaDeviceSynchronize();
    (void)cudaFreeHost(flags_);
    for (cudaEvent_t event : {start_, ends_[0], ends_[1]}) (void)cudaEventDestroy(event);
    (void)cudaStreamDestroy(user_);
    (void)cudaStreamDestroy(stream_);
  }

  std::string name() const override { return properties_.name; }
  int multiprocessors() const override { return properties_.multiProcessorCount; }

  const std::byte* source(std::int64_t bytes) override { return patterned(source_, bytes); }
  std::byte* scratch(std::int64_t bytes) override { return patterned(scratch_, bytes); }
  std::byte* target(Place place, std::int64_t bytes) override {
    Arena& arena = place == Place::kDevice ? deviceTarget_ : pinnedTarget_;
    arena.reserve(bytes);
    return arena.get();
  }
  void clear(std::byte* target, std::int64_t bytes) override {
    constexpr int kCleared = 0x5a;
    synchronize();
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, target), "cudaPointerGetAttributes");
    if (attributes.type == cudaMemoryTypeHost) {
      std::memset(target, kCleared, static_cast<std::size_t>(bytes));
    } else {
      check(cudaMemsetAsync(target, kCleared, static_cast<std::size_t>(bytes), stream_),
            "cudaMemsetAsync");
      synchronize();
    }
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) override {
    synchronize();
    check(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault), "cudaMemcpy");
  }
  void* stream() const override { return stream_; }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  void nothing() override {
    doNothing<<<1, 32, 0, stream_>>>();
    check(cudaGetLastError(), "an empty kernel");
  }
  void copy(void* to, const void* from, std::int64_t bytes) override {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync");
  }
  bool copyStrided(const StridedCopy& shape, void* to, const void* from, bool reverse) override {
    const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
    auto* strided =
        static_cast<std::byte*>(reverse ? to : const_cast<void*>(from)) + shape.sourceOffset;
    auto* dense =
        static_cast<std::byte*>(reverse ? const_cast<void*>(from) : to) + shape.targetOffset;
    cudaError_t error = cudaSuccess;
    if (shape.depth == 1 && shape.height == 1) {
      error = cudaMemcpyAsync(reverse ? strided : dense, reverse ? dense : strided,
                              size(shape.width), cudaMemcpyDefault, stream_);
    } else if (shape.depth == 1) {
      error =
          cudaMemcpy2DAsync(reverse ? strided : dense, size(reverse ? shape.rowPitch : shape.width),
                            reverse ? dense : strided, size(reverse ? shape.width : shape.rowPitch),
                            size(shape.width), size(shape.height), cudaMemcpyDefault, stream_);
    } else {
      cudaMemcpy3DParms parameters{};
      const auto stridedPart = make_cudaPitchedPtr(strided, size(shape.rowPitch), size(shape.width),
                                                   size(shape.planePitch / shape.rowPitch));
      const auto densePart =
          make_cudaPitchedPtr(dense, size(shape.width), size(shape.width), size(shape.height));
      parameters.srcPtr = reverse ? densePart : stridedPart;
      parameters.dstPtr = reverse ? stridedPart : densePart;
      parameters.extent = make_cudaExtent(size(shape.width), size(shape.height), size(shape.depth));
      parameters.kind = cudaMemcpyDefault;
      error = cudaMemcpy3DAsync(&parameters, stream_);
    }
    if (error == cudaErrorInvalidValue || error == cudaErrorInvalidPitchValue) {
      (void)cudaGetLastError();
      return false;
    }
    check(error, "a strided copy");
    return true;
  }

  void prepare(const Hand& hand) override {
    if (hand.displacements.empty()) return;
    const std::size_t bytes = hand.displacements.size() * sizeof(std::int32_t);
    displacements_.reserve(static_cast<std::int64_t>(bytes));
    synchronize();
    check(cudaMemcpy(displacements_.get(), hand.displacements.data(), bytes, cudaMemcpyDefault),
          "cudaMemcpy");
  }
  void pack(const Hand& hand, void* to, const void* from) override {
    check(launchHand(hand, to, from, reinterpret_cast<const std::int32_t*>(displacements_.get()),
                     stream_),
          "a kernel written by hand");
  }

  void userAdd(std::int64_t floats) override {
    const std::int64_t bytes = floats * static_cast<std::int64_t>(sizeof(float));
    userDevice_.reserve(3 * bytes);
    auto* const a = reinterpret_cast<float*>(userDevice_.get());
    addVectors<<<static_cast<unsigned>((floats + 255) / 256), 256, 0, user_>>>(
        a + 2 * floats, a, a + floats, static_cast<std::uint64_t>(floats));
    check(cudaGetLastError(), "a vector addition");
  }
  void userCopyIn(std::int64_t bytes) override { userCopy(bytes, cudaMemcpyHostToDevice); }
  void userCopyOut(std::int64_t bytes) override { userCopy(bytes, cudaMemcpyDeviceToHost); }
  void userOccupy(int multiprocessors) override {
    volatile int* const flags = flags_;
    flags[0] = 0;
    flags[1] = 0;
    occupy<<<static_cast<unsigned>(multiprocessors), 32, properties_.sharedMemPerBlockOptin,
             user_>>>(flags_, flags_ + 1);
    check(cudaGetLastError(), "a kernel that occupies multiprocessors");
    while (flags[0] < multiprocessors) {
      if (const cudaError_t state = cudaStreamQuery(user_); state != cudaErrorNotReady) {
        check(state == cudaSuccess ? cudaErrorUnknown : state, "occupying multiprocessors");
      }
    }
  }
  void userRelease() override {
    volatile int* const flags = flags_;
    flags[1] = 1;
    userSynchronize();
  }
  void userSynchronize() override { check(cudaStreamSynchronize(user_), "cudaStreamSynchronize"); }

  void markStart() override {
    check(cudaEventRecord(start_, stream_), "cudaEventRecord");
    check(cudaStreamWaitEvent(user_, start_, 0), "cudaStreamWaitEvent");
  }
  void markEnd(bool user) override {
    check(cudaEventRecord(ends_[user], user ? user_ : stream_), "cudaEventRecord");
  }
  double secondsToEnd(bool user) override {
    check(cudaEventSynchronize(ends_[user]), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start_, ends_[user]), "cudaEventElapsedTime");
    return milliseconds / 1e3;
  }

 private:
  std::byte* patterned(Arena& arena, std::int64_t bytes) {
    constexpr std::int64_t kPage = 4096;
    bytes = (bytes + kPage - 1) / kPage * kPage;
    if (arena.reserve(bytes)) {
      fillWords<<<1024, 256, 0, stream_>>>(reinterpret_cast<std::uint64_t*>(arena.get()),
                                           static_cast<std::uint64_t>(bytes) / 8);
      check(cudaGetLastError(), "filling the source");
      synchronize();
    }
    return arena.get();
  }
  void userCopy(std::int64_t bytes, cudaMemcpyKind kind) {
    userDevice_.reserve(bytes);
    userPinned_.reserve(bytes);
    const bool in = kind == cudaMemcpyHostToDevice;
    check(cudaMemcpyAsync(in ? userDevice_.get() : userPinned_.get(),
                          in ? userPinned_.get() : userDevice_.get(),
                          static_cast<std::size_t>(bytes), kind, user_),
          "cudaMemcpyAsync");
  }

  cudaDeviceProp properties_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t user_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t ends_[2] = {nullptr, nullptr};
  int* flags_ = nullptr;  // how many run, whether they may end
  Arena source_{Kind::kDevice};
  Arena scratch_{Kind::kDevice};
  Arena deviceTarget_{Kind::kDevice};
  Arena pinnedTarget_{Kind::kPinned};
  Arena displacements_{Kind::kDevice};
  Arena userDevice_{Kind::kDevice};
  Arena userPinned_{Kind::kPinned};
};

}  // namespace

std::unique_ptr<Gpu> openGpu(std::string& whyNot) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    whyNot = error != cudaSuccess ? cudaGetErrorString(error) : "there is no GPU";
    return nullptr;
  }
  check(cudaFree(nullptr), "creating CUDA's context");
  return std::make_unique<CudaGpu>();
}

}  // namespace datatypes
