// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "gmac/api/adsm.h"
#include "tests/cuda/port.h"

namespace gmac::port {

namespace {

constexpr int kCount = 1 << 20;
constexpr std::size_t kBytes = kCount * sizeof(int);

__global__ void increment(int* data, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) ++data[i];
}

void launch(int* data, cudaStream_t stream) {
  increment<<<(kCount + 255) / 256, 256, 0, stream>>>(data, kCount);
}

struct Failed {
  std::string what;
};

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Failed{std::string(what) + ": " + cudaGetErrorString(error) +
               "; gmac says: " + adsmLastErrorString()};
}
#define CHECK(call) check(call, #call)

void expect(bool good, const std::string& what) {
  if (!good) throw Failed{what};
}

// An object whose elements are their indices.
struct Object {
  Object() : data(static_cast<int*>(adsmAlloc(kBytes))) {
    if (data == nullptr) throw Failed{adsmLastErrorString()};
    for (int i = 0; i < kCount; ++i) data[i] = i;
  }
  ~Object() { adsmFree(data); }
  void expectMore(int more) const {
    for (int i = 0; i < kCount; ++i) {
      if (data[i] != i + more) {
        throw Failed{"element " + std::to_string(i) + " is " + std::to_string(data[i]) + ", not " +
                     std::to_string(i + more)};
      }
    }
  }
  int* const data;
};

struct Stream {
  Stream() { CHECK(cudaStreamCreate(&stream)); }
  ~Stream() { cudaStreamDestroy(stream); }
  cudaStream_t stream = nullptr;
};

struct Plain {
  Plain() { CHECK(cudaMalloc(&data, kBytes)); }
  ~Plain() { cudaFree(data); }
  int* data = nullptr;
};

template <typename Program>
std::string run(Program program) {
  try {
    program();
    return "";
  } catch (const Failed& failed) {
    return failed.what;
  }
}

}  // namespace

std::string whyNoDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("needs an NVIDIA GPU: ") + cudaGetErrorString(error);
  return count == 0 ? "needs an NVIDIA GPU" : "";
}

std::string launchesOnTheDefaultStream() {
  return run([] {
    Object object;
    for (int round = 1; round <= 3; ++round) {
      launch(object.data, nullptr);
      CHECK(cudaGetLastError());
      CHECK(cudaDeviceSynchronize());
      object.expectMore(round);
    }
    object.data[3] = 100;
    launch(object.data, nullptr);
    CHECK(cudaDeviceSynchronize());
    expect(object.data[3] == 101 && object.data[4] == 8, "the write between two launches is lost");
  });
}

std::string launchesOnAStreamOfItsOwn() {
  return run([] {
    Object object;
    Stream stream;
    for (int round = 1; round <= 3; ++round) {
      launch(object.data, stream.stream);
      CHECK(cudaStreamSynchronize(stream.stream));
      object.expectMore(round);
    }
    launch(object.data, cudaStreamPerThread);
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
    object.expectMore(4);
  });
}

std::string waitsForAnEvent() {
  return run([] {
    Object object;
    Stream stream;
    cudaEvent_t event = nullptr;
    CHECK(cudaEventCreate(&event));
    launch(object.data, stream.stream);
    CHECK(cudaEventRecord(event, stream.stream));
    CHECK(cudaEventSynchronize(event));
    object.expectMore(1);
    launch(object.data, stream.stream);
    CHECK(cudaEventRecord(event, stream.stream));
    cudaError_t state = cudaErrorNotReady;
    while (state == cudaErrorNotReady) state = cudaEventQuery(event);
    CHECK(state);
    object.expectMore(2);
    CHECK(cudaEventDestroy(event));
  });
}

std::string readsWithoutWaiting() {
  return run([] {
    Object object;
    Stream first;
    Stream second;
    for (int i = 0; i < 20; ++i) launch(object.data, first.stream);
    object.expectMore(20);
    launch(object.data, second.stream);
    object.data[0] = 50;
    launch(object.data, nullptr);
    expect(object.data[0] == 51, "the write after a launch is lost");
    expect(object.data[kCount - 1] == kCount - 1 + 22, "a launch is lost");
  });
}

std::string copiesInEveryDirection() {
  return run([] {
    Object object;
    Plain plain;
    Stream stream;
    std::vector<int> values(kCount);
    CHECK(cudaMemcpy(values.data(), object.data, kBytes, cudaMemcpyDeviceToHost));
    expect(values[7] == 7, "a copy from the object does not see the CPU's writes");
    launch(object.data, nullptr);
    // As the CPU's memory, which it is for the program.
    CHECK(cudaMemcpy(plain.data, object.data, kBytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(values.data(), plain.data, kBytes, cudaMemcpyDeviceToHost));
    expect(values[7] == 8, "a copy from the object as CPU memory is stale");
    std::fill_n(object.data, kCount, 0);
    CHECK(cudaMemcpy(object.data, plain.data, kBytes, cudaMemcpyDeviceToHost));
    object.expectMore(1);
    std::fill_n(object.data, kCount, 0);
    CHECK(cudaMemcpyAsync(object.data, plain.data, kBytes, cudaMemcpyDefault, stream.stream));
    object.expectMore(1);
    std::fill(values.begin(), values.end(), 9);
    object.data[99] = -1;
    CHECK(cudaMemcpy(object.data + 100, values.data(), 400, cudaMemcpyHostToDevice));
    expect(object.data[99] == -1 && object.data[100] == 9 && object.data[199] == 9 &&
               object.data[200] == 201,
           "a copy into part of the object");
  });
}

std::string copiesRows() {
  return run([] {
    Object object;
    const std::vector<int> values(20, 5);
    object.data[1003] = 31;
    CHECK(cudaMemcpy2D(object.data + 1004, 4000, values.data(), 8, 8, 10, cudaMemcpyHostToDevice));
    expect(object.data[1003] == 31 && object.data[1004] == 5 && object.data[1005] == 5 &&
               object.data[1006] == 1006,
           "the first row");
    expect(object.data[10005] == 5 && object.data[11004] == 11004, "the last row");
  });
}

std::string fillsAndFillsLater() {
  return run([] {
    Object object;
    Stream stream;
    CHECK(cudaMemset(object.data, 1, 400));
    expect(object.data[99] == 0x01010101 && object.data[100] == 100,
           "a fill of part of the object");
    CHECK(cudaMemsetAsync(object.data, 0, kBytes, stream.stream));
    expect(object.data[kCount - 1] == 0, "an access does not wait for the fill");
  });
}

std::string replaysAGraph() {
  return run([] {
    Object object;
    Stream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeThreadLocal));
    launch(object.data, stream.stream);
    launch(object.data, stream.stream);
    CHECK(cudaStreamEndCapture(stream.stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    object.expectMore(0);
    CHECK(cudaGraphLaunch(executable, stream.stream));
    CHECK(cudaStreamSynchronize(stream.stream));
    object.expectMore(2);
    CHECK(cudaGraphLaunch(executable, stream.stream));
    object.expectMore(4);
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
  });
}

std::string copiesSafeObjects() {
  return run([] {
    int* const object = static_cast<int*>(adsmSafeAlloc(kBytes));
    expect(object != nullptr, adsmLastErrorString());
    int* const onDevice = static_cast<int*>(adsmSafe(object));
    for (int i = 0; i < kCount; ++i) object[i] = i;
    std::vector<int> values(kCount);
    CHECK(cudaMemcpy(values.data(), onDevice, kBytes, cudaMemcpyDeviceToHost));
    expect(values[7] == 7, "a copy by the device's address does not see the CPU's writes");
    launch(onDevice, nullptr);
    expect(object[7] == 8, "the CPU does not see the kernel's writes");
    CHECK(cudaMemset(onDevice, 0, 400));
    expect(object[99] == 0 && object[100] == 101, "a fill by the device's address");
    CHECK(cudaMemcpy(onDevice + 200, values.data(), 400, cudaMemcpyHostToDevice));
    expect(object[200] == 0 && object[299] == 99 && object[300] == 301,
           "a copy to the device's address");
    expect(adsmFree(object) == adsmSuccess, adsmLastErrorString());
  });
}

std::string refusesWhatItCannotServe() {
  return run([] {
    Object object;
    const auto refused = [](cudaError_t error, const char* call) {
      (void)cudaGetLastError();
      expect(error != cudaSuccess, std::string(call) + " of an object succeeded");
      expect(std::string(adsmLastErrorString()).find(call) != std::string::npos,
             std::string(call) + " was refused without its reason: " + adsmLastErrorString());
    };
    refused(cudaHostRegister(object.data, kBytes, cudaHostRegisterDefault), "cuMemHostRegister");
    cudaIpcMemHandle_t handle;
    refused(cudaIpcGetMemHandle(&handle, object.data), "cuIpcGetMemHandle");
    refused(cudaFree(object.data), "freeing");
    object.expectMore(0);
    launch(object.data, nullptr);
    object.expectMore(1);
  });
}

std::string answersForPointers() {
  return run([] {
    Object object;
    cudaPointerAttributes attributes{};
    CHECK(cudaPointerGetAttributes(&attributes, object.data + 3));
    expect(attributes.type == cudaMemoryTypeDevice, "an object is no device memory");
    expect(attributes.devicePointer == object.data + 3, "another device pointer");
    expect(attributes.hostPointer == object.data + 3, "another host pointer");
  });
}

}  // namespace gmac::port
