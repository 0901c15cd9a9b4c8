// SPDX-License-Identifier: Apache-2.0
//
// Helpers for the tests' CUDA programs: checks that report what failed, and owners.
#ifndef GMAC_TESTS_CUDA_GPU_PROGRAM_H_
#define GMAC_TESTS_CUDA_GPU_PROGRAM_H_

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

namespace gmac::gpu_program {

struct Failed {
  std::string what;
};

// `words` says more about a failure, e.g. the library's own error text.
inline void check(cudaError_t error, const char* call, int line, const char* words = "") {
  if (error == cudaSuccess) return;
  throw Failed{"line " + std::to_string(line) + ": " + call + ": " + cudaGetErrorName(error) +
               " (" + cudaGetErrorString(error) + ")" + words};
}
inline void expectError(cudaError_t error, cudaError_t expected, const char* call, int line) {
  (void)cudaGetLastError();
  if (error == expected) return;
  throw Failed{"line " + std::to_string(line) + ": " + call + " returned " +
               cudaGetErrorName(error) + ", not " + cudaGetErrorName(expected)};
}
template <typename Seen, typename Expected>
void expectEqual(const Seen& seen, const Expected& expected, const char* what, int line) {
  if (seen == static_cast<Seen>(expected)) return;
  throw Failed{"line " + std::to_string(line) + ": " + what + " is " +
               std::to_string((long long)seen) + ", not " +
               std::to_string((long long)static_cast<Seen>(expected))};
}

#define CHECK(call) ::gmac::gpu_program::check(call, #call, __LINE__)
#define EXPECT_ERROR(call, expected) \
  ::gmac::gpu_program::expectError(call, expected, #call, __LINE__)
#define EXPECT_EQUAL(seen, expected) \
  ::gmac::gpu_program::expectEqual(seen, expected, #seen, __LINE__)
#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition))                                                                              \
      throw ::gmac::gpu_program::Failed{"line " + std::to_string(__LINE__) + ": not " #condition}; \
  } while (false)

// One case of a program.
struct Case {
  const char* name;
  void (*run)();
};

// Runs the case that the command line names. The program's exit status: 0, 1 after saying what
// failed, or `noDevice` where there is no GPU. A case that takes longer than `seconds` is ended,
// and says so by its signal.
template <std::size_t N>
int runCase(const Case (&cases)[N], int count, char** words, int noDevice, unsigned seconds) {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || devices == 0) {
    std::printf("needs an NVIDIA GPU: %s\n", cudaGetErrorString(error));
    return noDevice;
  }
  alarm(seconds);
  for (const Case& one : cases) {
    if (count != 2 || std::strcmp(one.name, words[1]) != 0) continue;
    try {
      one.run();
      std::printf("%s: passed\n", one.name);
      return 0;
    } catch (const Failed& failed) {
      std::printf("%s: FAILED: %s\n", one.name, failed.what.c_str());
      return 1;
    }
  }
  std::printf("usage: %s CASE\n", words[0]);
  return 2;
}

struct Stream {
  Stream() { CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void wait() const { CHECK(cudaStreamSynchronize(stream)); }
  operator cudaStream_t() const { return stream; }
  cudaStream_t stream = nullptr;
};

}  // namespace gmac::gpu_program

#endif  // GMAC_TESTS_CUDA_GPU_PROGRAM_H_
