// SPDX-License-Identifier: Apache-2.0
//
// Memory for the programs of this folder: plain, shared objects whose bytes are current on the
// accelerator, or the application's own device memory.
#ifndef GMAC_TESTS_MPI_SHARED_H_
#define GMAC_TESTS_MPI_SHARED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "gmac/api/adsm.h"
#include "tests/mpi/device.h"
#include "tests/mpi/flip_fatbin.h"

namespace gmac::testing {

[[noreturn]] inline void fail(const char* text) {
  std::fprintf(stderr, "FAILED: %s: %s\n", text, adsmLastErrorString());
  std::fflush(stderr);
  std::_Exit(3);
}

inline void require(adsmError_t error, const char* text) {
  if (error != adsmSuccess) fail(text);
}

// The kernel: every byte becomes its own, xor 0x5a. Each block of the host's has a part in one
// piece.
inline constexpr unsigned char kMask = 0x5a;
inline void flipBytes(const adsmThreadBlock_t* block, void** args) {
  unsigned char* bytes;
  std::size_t count;
  std::memcpy(&bytes, args[0], sizeof bytes);
  std::memcpy(&count, args[1], sizeof count);
  const std::size_t part = count / block->gridDim.x + 1;
  const std::size_t first = std::min(count, block->blockIdx.x * part);
  const std::size_t last = std::min(count, first + part);
  for (std::size_t i = first; i < last; ++i) bytes[i] ^= kMask;
}

inline adsmKernel_t makeFlip() {
  static const std::size_t sizes[] = {sizeof(void*), sizeof(std::size_t)};
  adsmKernelDesc_t desc = {};
  desc.name = "flip";
  desc.paramCount = 2;
  desc.paramSizes = sizes;
  desc.host = &flipBytes;
  desc.cudaImage = tests_mpi_flip_fatbin;
  desc.cudaName = tests_mpi_flip_fatbin != nullptr ? desc.name : nullptr;
  adsmKernel_t kernel = nullptr;
  require(adsmKernelCreate(&desc, &kernel), "adsmKernelCreate");
  return kernel;
}

// Flips every byte of a shared object on the accelerator. Does not wait for it.
inline void flipObject(void* object, std::size_t bytes) {
  static adsmKernel_t kernel = makeFlip();
  void* args[] = {&object, &bytes};
  const adsmUse_t use = {object, adsmReadWrite};
  require(adsmCallUsing(kernel, {32, 1, 1}, {256, 1, 1}, 0, args, &use, 1), "adsmCallUsing");
}

// One range of memory. Thread-safe as its bytes are.
class Memory {
 public:
  // Managed, device and pinned memory are for programs that have called startDevice().
  enum class Kind { kPlain, kShared, kManaged, kDevice, kPinned };

  Memory(Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
    switch (kind) {
      case Kind::kPlain:
        address_ = std::malloc(bytes);
        break;
      case Kind::kShared:
        address_ = adsmAlloc(bytes);
        break;
      case Kind::kManaged:
        address_ = allocateManaged(bytes);
        break;
      case Kind::kDevice:
        address_ = allocateOnDevice(bytes);
        break;
      case Kind::kPinned:
        address_ = allocatePinned(bytes);
    }
    if (address_ == nullptr) fail("allocation");
    data_ = kind == Kind::kDevice ? behindDevice(address_) : static_cast<unsigned char*>(address_);
  }
  ~Memory() {
    switch (kind_) {
      case Kind::kPlain:
        std::free(address_);
        break;
      case Kind::kShared:
        require(adsmFree(address_), "adsmFree");
        break;
      case Kind::kManaged:
        freeManaged(address_);
        break;
      case Kind::kDevice:
        freeOnDevice(address_);
        break;
      case Kind::kPinned:
        freePinned(address_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Where the program's own code finds the bytes, and what MPI is given: not the same for device
  // memory.
  unsigned char* data() const { return data_; }
  unsigned char* address() const { return static_cast<unsigned char*>(address_); }
  std::size_t size() const { return bytes_; }
  std::span<unsigned char> bytes() const { return {data_, bytes_}; }

  // Flips every byte: on the CPU, or in a shared object by a kernel, after which the bytes are
  // current there alone. Does not wait for it.
  void flip() const {
    if (kind_ != Kind::kShared && kind_ != Kind::kManaged) {
      for (unsigned char& byte : bytes()) byte ^= kMask;
      return;
    }
    flipObject(data_, bytes_);
  }

 private:
  Kind kind_;
  std::size_t bytes_;
  void* address_ = nullptr;
  unsigned char* data_ = nullptr;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_SHARED_H_
