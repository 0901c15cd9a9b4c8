// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/digest/digest.h"

#include <algorithm>
#include <climits>
#include <iterator>

#include "gmac/accel/digest/digest_fatbin.h"

namespace gmac::accel::digest {
namespace {

// What one thread block digests: enough for its threads, and little enough for a large block to
// keep the whole device busy.
constexpr std::size_t kSliceBytes = std::size_t{256} << 10;
constexpr unsigned kThreads = 256;
constexpr std::size_t kMostSlices = INT_MAX;  // of one grid

std::size_t slicesOf(std::size_t blockBytes) {
  const std::size_t sliceBytes = std::min(blockBytes, kSliceBytes);
  return (blockBytes + sliceBytes - 1) / sliceBytes;
}

template <typename T>
T argument(void** args, std::size_t index) {
  return *static_cast<T*>(args[index]);
}

// The `host` implementation of gmacDigest (digest.cu).
void digestSlice(const adsmThreadBlock_t* block, void** args) {
  const auto* const words = argument<const std::uint64_t*>(args, 0);
  const auto objectBytes = argument<std::uint64_t>(args, 1);
  const auto blockBytes = argument<std::uint64_t>(args, 2);
  const auto sliceBytes = argument<std::uint64_t>(args, 3);
  const auto slices = argument<std::uint64_t>(args, 4);
  const std::uint64_t index = argument<std::uint64_t>(args, 5) + block->blockIdx.x / slices;
  Sums& sums = argument<Sums*>(args, 6)[index];
  const auto what = argument<Launch::Do>(args, 7);
  const std::uint64_t begin = index * blockBytes + block->blockIdx.x % slices * sliceBytes;
  const std::uint64_t end = std::min({begin + sliceBytes, (index + 1) * blockBytes, objectBytes});
  Sums own{};
  for (std::uint64_t place = begin / sizeof *words; place < end / sizeof *words; ++place) {
    add(own, words[place], place);
  }
  if (what == Launch::Do::kSubtract) {
    own = {-own.low, -own.high};
  }
  __atomic_fetch_add(&sums.low, own.low, __ATOMIC_RELAXED);
  __atomic_fetch_add(&sums.high, own.high, __ATOMIC_RELAXED);
}

}  // namespace

const adsmKernelDesc_t& kernel() {
  static constexpr std::size_t kSizes[] = {8, 8, 8, 8, 8, 8, 8, 8};
  static const adsmKernelDesc_t desc = {
      .name = "gmac.digest",
      .paramCount = std::size(kSizes),
      .paramSizes = kSizes,
      .host = &digestSlice,
      .cudaImage = gmac_accel_digest_digest_fatbin,
      .cudaName = "gmacDigest",
      .cudartSymbol = nullptr,
      .constantCount = 0,
      .constants = nullptr,
  };
  return desc;
}

bool Launch::possible(std::size_t objectBytes, std::size_t blockBytes) {
  return (objectBytes + blockBytes - 1) / blockBytes <= kMostSlices / slicesOf(blockBytes);
}

Launch::Launch(DeviceAddress object, std::size_t objectBytes, std::size_t blockBytes,
               std::size_t begin, std::size_t end, DeviceAddress sums, Do what) {
  const std::size_t sliceBytes = std::min(blockBytes, kSliceBytes);
  const std::size_t slices = slicesOf(blockBytes);
  shape_ = {{static_cast<unsigned>((end - begin) * slices), 1, 1}, {kThreads, 1, 1}, 0};
  const std::uint64_t values[] = {static_cast<std::uintptr_t>(object),
                                  objectBytes,
                                  blockBytes,
                                  sliceBytes,
                                  slices,
                                  begin,
                                  static_cast<std::uintptr_t>(sums),
                                  static_cast<std::uint64_t>(what)};
  static_assert(std::size(values) == kParams);
  std::copy(std::begin(values), std::end(values), values_);
  for (std::size_t i = 0; i < kParams; ++i) {
    args_[i] = &values_[i];
  }
}

}  // namespace gmac::accel::digest
