// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc/stand_in.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <memory>

namespace gmac::interpose {
namespace {

// A stand-in has the same address modulo this alignment as the bytes that it replaces, so that a
// device's or file's demand on alignment holds or fails alike. None has a demand on fewer bytes.
std::size_t alignmentFor(std::size_t bytes) {
  return bytes >= 4096 ? 4096 : bytes >= 512 ? 512 : 16;
}

// The distance from `from` to the next address that is `like` modulo the alignment.
std::size_t gapTo(const void* like, const void* from, std::size_t alignment) {
  return (reinterpret_cast<std::uintptr_t>(like) - reinterpret_cast<std::uintptr_t>(from)) %
         alignment;
}

// Walks a vector's stretches in order: visit(address, bytes, shared), each all shared or all plain.
// Bytes beyond kMostPerCall count as plain: they are never touched.
template <typename Visit>
void walk(const Vector& given, const Visit& visit) {
  std::size_t left = kMostPerCall;
  for (std::size_t i = 0; i < given.count; ++i) {
    auto* at = static_cast<std::byte*>(given.parts[i].iov_base);
    std::size_t bytes = given.parts[i].iov_len;
    if (bytes == 0) visit(at, 0, false);
    while (bytes > 0) {
      bool shared = false;
      std::size_t stretch = bytes;
      if (left > 0 && coherence::touchesShared(at, bytes)) {
        stretch = coherence::memory().sharedPrefix(at, bytes, &shared);
        if (shared) stretch = std::min(stretch, left);
      }
      visit(at, stretch, shared);
      left -= std::min(left, stretch);
      at += stretch;
      bytes -= stretch;
    }
  }
}

}  // namespace

// ---- Vector ----

std::size_t Vector::bytes() const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += std::min(parts[i].iov_len, kMostPerCall - sum);
  }
  return sum;
}

bool Vector::touchesShared() const {
  return std::any_of(parts, parts + count, [](const iovec& part) {
    return coherence::touchesShared(part.iov_base, part.iov_len);
  });
}

// ---- StandIn ----

StandIn::Sizes StandIn::measure(const Vector& given) {
  Sizes sizes;
  walk(given, [&](const std::byte*, std::size_t bytes, bool shared) {
    ++sizes.parts;
    if (shared) {
      ++sizes.stretches;
      sizes.dataBytes += bytes + alignmentFor(bytes);
    }
  });
  return sizes;
}

std::size_t StandIn::tableBytes(const Sizes& sizes) {
  return sizes.parts * sizeof(iovec) + sizes.stretches * sizeof(Stretch);
}

StandIn::StandIn(const Vector& given, bool kernelKeeps)
    : sizes_(measure(given)), scratch_(tableBytes(sizes_) + sizes_.dataBytes, kernelKeeps) {
  if (sizes_.parts > IOV_MAX || scratch_.data() == nullptr) return;
  fill(given, sizes_);
}

// The first walk has sized the memory. If the program allocates or frees meanwhile, stretches that
// do not fit go to the kernel as they were given.
void StandIn::fill(const Vector& given, const Sizes& sizes) {
  parts_ = reinterpret_cast<iovec*>(scratch_.data());
  stretches_ = reinterpret_cast<Stretch*>(parts_ + sizes.parts);
  std::byte* free = scratch_.data() + tableBytes(sizes);
  const std::byte* const end = free + sizes.dataBytes;
  const std::byte* previousEnd = nullptr;  // of the previous stretch in the program's memory
  walk(given, [&](std::byte* at, std::size_t bytes, bool shared) {
    if (shared && stretchCount_ < sizes.stretches) {
      const bool continues = previousEnd == at;
      std::byte* const own = continues ? free : free + gapTo(at, free, alignmentFor(bytes));
      if (own + bytes <= end) {
        std::construct_at(stretches_ + stretchCount_++, Stretch{at, own, bytes, bytes_});
        bytes_ += bytes;
        free = own + bytes;
        previousEnd = at + bytes;
        if (continues) {  // two objects side by side
          parts_[count_ - 1].iov_len += bytes;
        } else if (count_ < sizes.parts) {
          parts_[count_++] = {own, bytes};
        }
        return;
      }
    }
    previousEnd = nullptr;
    if (count_ < sizes.parts) {
      parts_[count_++] = {at, bytes};
      bytes_ += bytes;
    }
  });
}

bool StandIn::copyIn() {
  return std::all_of(stretches_, stretches_ + stretchCount_, [](const Stretch& stretch) {
    return copyFromShared(stretch.own, stretch.shared, stretch.bytes);
  });
}

bool StandIn::copyOut(std::size_t bytes) {
  return std::all_of(stretches_, stretches_ + stretchCount_, [bytes](const Stretch& stretch) {
    return bytes <= stretch.at ||
           copyToShared(stretch.shared, stretch.own, std::min(stretch.bytes, bytes - stretch.at));
  });
}

// ---- VectorHold ----

VectorHold::VectorHold(const Vector& given, bool write)
    : scratch_(given.count * sizeof(coherence::CpuHold)),
      holds_(reinterpret_cast<coherence::CpuHold*>(scratch_.data())) {
  if (holds_ == nullptr) {
    errno = ENOMEM;
    ok_ = false;
    return;
  }
  std::size_t left = kMostPerCall;
  for (std::size_t i = 0; ok_ && i < given.count; ++i) {
    const std::size_t bytes = std::min(given.parts[i].iov_len, left);
    left -= bytes;
    if (!coherence::touchesShared(given.parts[i].iov_base, bytes)) continue;
    const auto* const hold =
        std::construct_at(holds_ + count_, given.parts[i].iov_base, bytes, write);
    ++count_;
    if (!hold->status().ok()) {
      errno = EIO;
      ok_ = false;
    }
  }
}

VectorHold::~VectorHold() {
  while (count_ > 0) std::destroy_at(holds_ + --count_);
}

}  // namespace gmac::interpose
