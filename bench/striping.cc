// SPDX-License-Identifier: Apache-2.0
//
// An object whose pages lie on all GPUs in turn beside one that lies on one GPU: copies from the
// CPU's pages, and to them.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/interleaved.h"
#include "bench/measure.h"
#include "gmac/api/adsm.h"

namespace gmac::bench {
namespace {

// One of the two objects, and a kernel that reads and writes its first word.
class Filled {
 public:
  Filled(void* object, std::size_t bytes) : object_(object), bytes_(bytes) {
    kernel_ = makeKernel("chain", {sizeof(void*), sizeof(std::uint64_t)}, nullptr);
    std::memset(object_, 1, bytes_);
    (void)copyIn();
    (void)copyOut();
  }
  ~Filled() {
    (void)adsmKernelDestroy(kernel_);
    (void)adsmFree(object_);
  }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;

  // Seconds until a kernel has run to which the CPU hands over all of it. (The pages are there.)
  double copyIn() {
    for (std::size_t at = 0; at < bytes_; at += kBlock) {
      static_cast<volatile std::byte*>(object_)[at] = std::byte{2};
    }
    std::uint64_t rounds = 1;
    void* args[] = {&object_, &rounds};
    const adsmUse_t use{object_, adsmReadWrite};
    const Stopwatch watch;
    check(adsmCallOn(0, kernel_, {1, 1, 1}, {1, 1, 1}, 0, args, &use, 1), "adsmCallOn");
    check(adsmSync(), "adsmSync");
    return watch.seconds();
  }
  // Seconds until the CPU has all of it again.
  double copyOut() {
    const Stopwatch watch;
    unsigned sum = 0;
    for (std::size_t at = 0; at < bytes_; at += kBlock) {
      sum += std::to_integer<unsigned>(static_cast<volatile std::byte*>(object_)[at]);
    }
    sum_ = sum;
    return watch.seconds();
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{2} << 20;

  void* object_;
  const std::size_t bytes_;
  adsmKernel_t kernel_ = nullptr;
  volatile unsigned sum_ = 0;
};

// {bytes, rounds}: seconds in which an object's bytes are copied from the CPU's pages, with the
// call that needs them ("fill"), and back ("fetch"): striped over all GPUs, and plain; and GB/s.
// "devices": how many there are; nothing else where it is one, or GPUs do not reach each other.
json striping(const json& parameters) {
  int devices = 0;
  check(adsmDeviceCount(&devices), "adsmDeviceCount");
  if (devices == 1) {
    return {{"devices", devices}};
  }
  const auto bytes = parameters["bytes"].get<std::size_t>();
  void* const object = adsmAllocStriped(bytes, 0, nullptr);
  check(object == nullptr ? adsmLastError() : adsmSuccess, "adsmAllocStriped");
  std::array<Filled, 2> both{{{object, bytes}, {checkedAlloc(bytes), bytes}}};
  std::array<std::vector<double>, 2> fetches;
  const Interleaved fills(2, parameters["rounds"], [&](std::size_t way) {
    const double seconds = both[way].copyIn();
    fetches[way].push_back(both[way].copyOut());
    return seconds;
  });
  const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
  const double striped = median(fetches[0]);
  const double plain = median(fetches[1]);
  return {{"devices", devices},
          {"striped", fills.seconds(0)},
          {"plain", fills.seconds(1)},
          {"ratio", fills.ratio(1, 0)},
          {"stripedRate", rate(fills.seconds(0))},
          {"plainRate", rate(fills.seconds(1))},
          {"stripedFetchRate", rate(striped)},
          {"plainFetchRate", rate(plain)}};
}
const Registration kStriping("striping", &striping);

}  // namespace
}  // namespace gmac::bench
