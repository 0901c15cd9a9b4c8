// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/engine/division.h"

#include <algorithm>
#include <utility>

namespace gmac::datatype {
namespace {

using coherence::Current;

// The place where the bytes of a range are current, or how to treat a mixture.
struct Found {
  Current current;
  bool mixed;
};

Found currentOf(const std::byte* first, std::size_t bytes) {
  bool accelerator = false;
  bool cpu = false;
  bool outside = false;
  while (bytes > 0) {
    Current here{};
    const std::size_t length = coherence::currentPrefix(first, bytes, &here);
    accelerator |= here == Current::kAccelerator;
    cpu |= here == Current::kCpu;
    outside |= here == Current::kNotShared;
    first += length;
    bytes -= length;
  }
  if (accelerator + cpu + outside > 1) {
    // Kernels cannot access CPU memory that is not an object's.
    return {outside ? Current::kCpu : Current::kAccelerator, true};
  }
  return {accelerator ? Current::kAccelerator
          : cpu       ? Current::kCpu
          : outside   ? Current::kNotShared
                      : Current::kBoth,
          false};
}

// The recursion over one part. For the stack.
class Divider {
 public:
  Divider(const Layout& layout, const std::byte* base, std::int64_t least)
      : layout_(layout), base_(base), least_(least) {}

  void divide(std::int64_t offset, std::int64_t bytes) {
    const Bounds bounds = layout_.boundsOf(offset, bytes);
    const Found found =
        currentOf(base_ + bounds.first, static_cast<std::size_t>(bounds.last - bounds.first));
    if (!found.mixed || bytes < 2 * least_ || portions.size() >= kMaxPortions) {
      add({offset, bytes, found.current});
      return;
    }
    const std::int64_t half = middle(offset, bytes) - offset;
    divide(offset, half);
    divide(offset + half, bytes - half);
  }

  std::vector<Portion> portions;

 private:
  // About the middle of a part; the start of a row where there is one, which keeps each half
  // compact.
  std::int64_t middle(std::int64_t offset, std::int64_t bytes) const {
    const std::int64_t centre = offset + bytes / 2;
    std::int64_t row = layout_.bytes();
    for (const Dim& dim : layout_.dims()) {
      row /= dim.count;
      const std::int64_t start = (centre + row / 2) / row * row;
      if (start >= offset + least_ && start <= offset + bytes - least_) {
        return start;
      }
    }
    return centre;
  }

  void add(const Portion& portion) {
    if (!portions.empty()) {
      Portion& last = portions.back();
      if (last.current == portion.current || last.current == Current::kBoth ||
          portion.current == Current::kBoth) {
        last.bytes += portion.bytes;
        last.current = last.current == Current::kBoth ? portion.current : last.current;
        return;
      }
    }
    portions.push_back(portion);
  }

  const Layout& layout_;
  const std::byte* const base_;
  const std::int64_t least_;
};

}  // namespace

std::vector<Portion> divide(const Layout& layout, const std::byte* base, std::int64_t offset,
                            std::int64_t bytes, std::int64_t least) {
  Divider divider(layout, base, std::max<std::int64_t>(least, 1));
  divider.divide(offset, bytes);
  return std::move(divider.portions);
}

}  // namespace gmac::datatype
