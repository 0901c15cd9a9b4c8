// SPDX-License-Identifier: Apache-2.0
#include "mpi/public_copy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace gmac::mpi {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kWord = sizeof(std::uint64_t);
// Memory that others may write is read through a snapshot of so many bytes.
constexpr std::size_t kSnapshotBytes = 16384;

std::uint64_t difference(const std::byte* one, const std::byte* other) {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::memcpy(&a, one, kWord);
  std::memcpy(&b, other, kWord);
  return a ^ b;
}

// How many bytes are equal from the beginning.
std::size_t equalPrefix(const std::byte* one, const std::byte* other, std::size_t bytes) {
  constexpr std::size_t kStep = 4 * kWord;
  std::size_t i = 0;
  while (i + kStep <= bytes &&
         (difference(one + i, other + i) | difference(one + i + kWord, other + i + kWord) |
          difference(one + i + 2 * kWord, other + i + 2 * kWord) |
          difference(one + i + 3 * kWord, other + i + 3 * kWord)) == 0) {
    i += kStep;
  }
  for (; i + kWord <= bytes; i += kWord) {
    if (const std::uint64_t word = difference(one + i, other + i); word != 0) {
      return i + static_cast<std::size_t>(std::countr_zero(word)) / 8;
    }
  }
  while (i < bytes && one[i] == other[i]) ++i;
  return i;
}

// How many bytes differ from the beginning.
std::size_t differentPrefix(const std::byte* one, const std::byte* other, std::size_t bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  std::size_t i = 0;
  for (; i + kWord <= bytes; i += kWord) {
    const std::uint64_t word = difference(one + i, other + i);
    // The lowest bit that is set belongs to the lowest byte that is zero.
    if (const std::uint64_t zeros = (word - kOnes) & ~word & (kOnes << 7); zeros != 0) {
      return i + static_cast<std::size_t>(std::countr_zero(zeros)) / 8;
    }
  }
  while (i < bytes && one[i] != other[i]) ++i;
  return i;
}

// The next run of changed bytes: joined with the last where it begins there.
void addRun(std::size_t first, std::size_t bytes, std::vector<ByteRun>* runs) {
  if (!runs->empty() && runs->back().first + runs->back().bytes == first) {
    runs->back().bytes += bytes;
  } else {
    runs->push_back({first, bytes});
  }
}

}  // namespace

void findDifferences(std::span<const std::byte> one, const std::byte* other, std::size_t first,
                     std::vector<ByteRun>* runs) {
  for (std::size_t i = 0;;) {
    i += equalPrefix(one.data() + i, other + i, one.size() - i);
    if (i == one.size()) {
      return;
    }
    const std::size_t differ = differentPrefix(one.data() + i, other + i, one.size() - i);
    addRun(first + i, differ, runs);
    i += differ;
  }
}

PublicCopy::PublicCopy(const void* like, std::size_t bytes)
    : bytes_(bytes),
      shift_(reinterpret_cast<std::uintptr_t>(like) % kAlignment),
      memory_(bytes + kAlignment),
      twin_(bytes) {}

void PublicCopy::begin(std::size_t first, std::span<const std::byte> values) {
  std::memcpy(memory() + first, values.data(), values.size());
  std::memcpy(twin_.data() + first, values.data(), values.size());
}

void PublicCopy::publish(std::size_t first, std::span<const std::byte> values) {
  std::vector<ByteRun> runs;
  const std::byte* const twin = twin_.data();
  for (std::size_t done = 0; done < values.size(); done += kSnapshotBytes) {
    runs.clear();
    const auto part = values.subspan(done, std::min(kSnapshotBytes, values.size() - done));
    findDifferences(part, twin + first + done, first + done, &runs);
    for (const ByteRun& run : runs) {
      // Both sides have written a byte: the later of the two is the one that others have written,
      // as far as anybody can tell, and stays.
      for (std::size_t i = run.first; i < run.first + run.bytes;) {
        const std::size_t end = run.first + run.bytes;
        const std::size_t free = equalPrefix(memory() + i, twin + i, end - i);
        std::memcpy(memory() + i, values.data() + (i - first), free);
        std::memcpy(twin_.data() + i, values.data() + (i - first), free);
        i += free;
        if (i < end) {
          i += differentPrefix(memory() + i, twin + i, end - i);
        }
      }
    }
  }
}

bool PublicCopy::collect(std::size_t first, std::size_t bytes, const Take& take) {
  const std::size_t end = first + bytes;
  std::size_t at = first + equalPrefix(memory() + first, twin_.data() + first, bytes);
  if (at == end) {
    return true;
  }
  const std::size_t room = std::min(kPieceBytes, end - at);
  const StagingMemory values(room);
  std::vector<ByteRun> runs;
  std::size_t filled = 0;
  const auto handOver = [&] {
    if (runs.empty()) {
      return true;
    }
    if (!take(runs, values.data())) {
      return false;
    }
    const std::byte* from = values.data();
    for (const ByteRun& run : runs) {
      std::memcpy(twin_.data() + run.first, from, run.bytes);
      from += run.bytes;
    }
    runs.clear();
    filled = 0;
    return true;
  };
  if (values.data() == nullptr) {
    return false;
  }
  std::array<std::byte, kSnapshotBytes> snapshot{};
  std::vector<ByteRun> found;
  while (at < end) {
    // The bytes change while they are read: the twin becomes what is handed over.
    const std::size_t length = std::min({kSnapshotBytes, end - at, room});
    if (filled + length > room || runs.size() >= kPieceRuns) {
      if (!handOver()) {
        return false;
      }
    }
    std::memcpy(snapshot.data(), memory() + at, length);
    found.clear();
    findDifferences({snapshot.data(), length}, twin_.data() + at, at, &found);
    for (const ByteRun& run : found) {
      std::memcpy(values.data() + filled, snapshot.data() + (run.first - at), run.bytes);
      filled += run.bytes;
      addRun(run.first, run.bytes, &runs);
    }
    at += length;
    at += equalPrefix(memory() + at, twin_.data() + at, end - at);
  }
  return handOver();
}

}  // namespace gmac::mpi
