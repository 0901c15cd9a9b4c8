// SPDX-License-Identifier: Apache-2.0
//
// Shared by the managed-memory programs of this folder: their command line, how they end, the
// clock, streams, and memory of cudaMallocManaged. The programs use the CUDA runtime and nothing
// else: they show that such programs run unmodified.
//
//   PROGRAM [--size small|medium|large] [--output FILE] [--no-check]
//
// prints one line of JSON: {"program": ..., "size": ..., "checksum": ..., "seconds": ...,
// "checked":
// ...}, and writes the bytes of the result to FILE. The bytes depend on the size alone. Exit
// status: 0, the result is that of a reference on the CPU (or was not checked); 1, it is not, or
// something failed; 2, the command line is wrong; 77, there is no GPU.
#ifndef GMAC_MANAGED_PROGRAM_H_
#define GMAC_MANAGED_PROGRAM_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace managed {

enum class Size { kSmall, kMedium, kLarge };

// The one of three values that belongs to a size.
template <typename T>
T bySize(Size size, T small, T medium, T large) {
  return size == Size::kSmall ? small : size == Size::kMedium ? medium : large;
}

struct Request {
  Size size = Size::kSmall;
  bool check = true;
};

// A program's answer to a request.
struct Outcome {
  std::vector<unsigned char> result;  // what must be the same however the memory is managed
  double seconds = 0;                 // from the first allocation to the last free
  std::string wrong;                  // where the result is not the reference's; empty: nowhere
  std::string note;                   // what a reader of the times should know
};

// main() of every program. Creates the context before the program starts its clock.
int runProgram(int argc, char** argv, const char* name, Outcome (*program)(const Request&));

// Throws std::runtime_error with what was tried and CUDA's own words.
void check(cudaError_t error, const char* what);

class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// An array in managed memory. Move-only owner; the contents start out unspecified.
template <typename T>
class Array {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  explicit Array(std::size_t count, unsigned flags = cudaMemAttachGlobal) : count_(count) {
    check(cudaMallocManaged(reinterpret_cast<void**>(&data_), bytes(), flags), "cudaMallocManaged");
  }
  ~Array() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }
  Array(Array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Array& operator=(Array&&) = delete;

  // As the destructor does, but it reports its error.
  void free() { check(cudaFree(std::exchange(data_, nullptr)), "cudaFree"); }

  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

// A stream. Owner.
class Stream {
 public:
  Stream() { check(cudaStreamCreate(&stream_), "cudaStreamCreate"); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Appends values to the bytes of a result.
void append(std::vector<unsigned char>& result, const void* values, std::size_t bytes);

// A word that depends on nothing but its number.
inline std::uint64_t randomWord(std::uint64_t number) {
  std::uint64_t word = number * 0x9E3779B97F4A7C15ULL + 0x2545F4914F6CDD1DULL;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
  return word ^ (word >> 31);
}

// Runs body(first, last) over parts of [0, count) on all cores; for references alone.
void inParallel(std::size_t count, const std::function<void(std::size_t, std::size_t)>& body);

// Where two arrays first differ, as a sentence; empty when nowhere.
template <typename T>
std::string firstDifference(const char* what, const T* got, const T* wanted, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!(got[i] == wanted[i])) {
      return std::string(what) + " " + std::to_string(i) + " is " + std::to_string(got[i]) +
             " and must be " + std::to_string(wanted[i]);
    }
  }
  return {};
}

// Blocks of `threads` for one thread per element.
inline unsigned blocksFor(std::size_t count, unsigned threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace managed

#endif  // GMAC_MANAGED_PROGRAM_H_
