// SPDX-License-Identifier: Apache-2.0
#include "gmac/device_code/decompression.h"

#include <dlfcn.h>
#include <lz4.h>
#include <zstd.h>

#include <atomic>
#include <limits>

#include "gmac/base/log.h"

namespace gmac::device_code {
namespace {

// A function of a library of the system's; NULL: there is none. (No guard as a local static has
// one: whoever asks may hold the loader's lock, for which another thread here may wait.)
template <typename Function>
class SystemFunction {
 public:
  constexpr SystemFunction(const char* library, const char* symbol)
      : library_(library), symbol_(symbol) {}

  Function* get() {
    if (Function* const known = function_.load(std::memory_order_acquire); known != nullptr) {
      return known;
    }
    if (missing_.load(std::memory_order_relaxed)) return nullptr;
    void* const library = dlopen(library_, RTLD_NOW | RTLD_LOCAL);
    void* const found = library == nullptr ? nullptr : dlsym(library, symbol_);
    if (found == nullptr && !missing_.exchange(true)) {
      log(LogLevel::kInfo, "{} is not there: the code of kernels that it compressed is not read",
          library_);
    }
    function_.store(reinterpret_cast<Function*>(found), std::memory_order_release);
    return reinterpret_cast<Function*>(found);
  }

 private:
  const char* const library_;
  const char* const symbol_;
  std::atomic<Function*> function_{nullptr};
  std::atomic<bool> missing_{false};
};

constinit SystemFunction<decltype(LZ4_decompress_safe)> lz4("liblz4.so.1", "LZ4_decompress_safe");
constinit SystemFunction<decltype(ZSTD_decompress)> zstd("libzstd.so.1", "ZSTD_decompress");

}  // namespace

bool decompress(Compression compression, std::span<const std::byte> from, std::span<char> to) {
  if (compression == Compression::kZstd) {
    auto* const function = zstd.get();
    return function != nullptr &&
           function(to.data(), to.size(), from.data(), from.size()) == to.size();
  }
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  auto* const function = lz4.get();
  return function != nullptr && from.size() <= kMost && to.size() <= kMost &&
         function(reinterpret_cast<const char*>(from.data()), to.data(),
                  static_cast<int>(from.size()),
                  static_cast<int>(to.size())) == static_cast<int>(to.size());
}

}  // namespace gmac::device_code
