// SPDX-License-Identifier: Apache-2.0
//
// Memory for the programs of this folder: plain, or shared objects whose bytes are current on the
// accelerator.
#ifndef GMAC_TESTS_MPI_SHARED_H_
#define GMAC_TESTS_MPI_SHARED_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "gmac/api/adsm.h"

namespace gmac::testing {

[[noreturn]] inline void fail(const char* text) {
  std::fprintf(stderr, "FAILED: %s: %s\n", text, adsmLastErrorString());
  std::fflush(stderr);
  std::_Exit(3);
}

inline void require(adsmError_t error, const char* text) {
  if (error != adsmSuccess) fail(text);
}

// The kernel: every byte becomes its own, xor 0x5a.
inline constexpr unsigned char kMask = 0x5a;
inline void flipBytes(const adsmThreadBlock_t*, void** args) {
  unsigned char* bytes;
  std::size_t count;
  std::memcpy(&bytes, args[0], sizeof bytes);
  std::memcpy(&count, args[1], sizeof count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] ^= kMask;
}

// One range of memory. Thread-safe as its bytes are.
class Memory {
 public:
  enum class Kind { kPlain, kShared };

  Memory(Kind kind, std::size_t bytes) : shared_(kind == Kind::kShared), bytes_(bytes) {
    data_ = static_cast<unsigned char*>(shared_ ? adsmAlloc(bytes) : std::malloc(bytes));
    if (data_ == nullptr) fail("allocation");
  }
  ~Memory() {
    if (shared_) {
      require(adsmFree(data_), "adsmFree");
    } else {
      std::free(data_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  std::span<unsigned char> bytes() const { return {data_, bytes_}; }

  // Flips every byte: in plain memory on the CPU, in a shared object by a kernel, after which the
  // bytes are current there alone. Does not wait for it.
  void flip() const {
    if (!shared_) {
      for (unsigned char& byte : bytes()) byte ^= kMask;
      return;
    }
    static adsmKernel_t kernel = makeKernel();
    void* pointer = data_;
    std::size_t count = bytes_;
    void* args[] = {&pointer, &count};
    const adsmUse_t use = {data_, adsmReadWrite};
    require(adsmCallUsing(kernel, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1), "adsmCallUsing");
  }

 private:
  static adsmKernel_t makeKernel() {
    static const std::size_t sizes[] = {sizeof(void*), sizeof(std::size_t)};
    adsmKernelDesc_t desc = {};
    desc.name = "flip";
    desc.paramCount = 2;
    desc.paramSizes = sizes;
    desc.host = &flipBytes;
    adsmKernel_t kernel = nullptr;
    require(adsmKernelCreate(&desc, &kernel), "adsmKernelCreate");
    return kernel;
  }

  bool shared_;
  std::size_t bytes_;
  unsigned char* data_;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_SHARED_H_
