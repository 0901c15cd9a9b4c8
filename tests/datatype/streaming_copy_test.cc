// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/cpu/streaming_copy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gmac/datatype/cpu/cpu_engine.h"
#include "gmac/datatype/cpu/transfer.h"

namespace gmac::datatype {
namespace {

constexpr std::size_t kPage = 4096;

// Memory between two pages that nobody may touch.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : bytes_(bytes) {
    all_ = static_cast<std::byte*>(::mmap(nullptr, bytes + 2 * kPage, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_EQ(::mprotect(all_ + kPage, bytes, PROT_READ | PROT_WRITE), 0);
  }
  ~Guarded() { ::munmap(all_, bytes_ + 2 * kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::byte* begin() { return all_ + kPage; }
  std::byte* end() { return begin() + bytes_; }

 private:
  std::byte* all_;
  const std::size_t bytes_;
};

constexpr std::byte kAround{0xee};
constexpr std::size_t kRoom = 16 * kPage;

class StreamingCopy : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < kRoom; ++i) {
      source_.begin()[i] = static_cast<std::byte>(i * 131 + (i >> 7) + 1);
    }
  }

  void check(std::byte* to, const std::byte* from, std::size_t bytes) {
    std::memset(target_.begin(), static_cast<int>(kAround), kRoom);
    streamBytes(to, from, bytes);
    ASSERT_EQ(std::memcmp(to, from, bytes), 0) << bytes << " bytes";
    for (const std::byte* i = target_.begin(); i < target_.end(); ++i) {
      if (i == to) {
        i += bytes;
        if (i == target_.end()) break;
      }
      ASSERT_EQ(*i, kAround) << bytes << " bytes at " << to - target_.begin() << ", byte "
                             << i - target_.begin();
    }
  }

  Guarded source_{kRoom};
  Guarded target_{kRoom};
};

TEST_F(StreamingCopy, CopiesEveryLengthAtEveryAlignmentAndNoMore) {
  for (std::size_t bytes = 64; bytes <= 400; ++bytes) {
    for (std::size_t shift = 0; shift < 64; shift += bytes % 3 + 1) {
      check(target_.begin() + shift, source_.begin() + (shift * 5) % 64, bytes);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(StreamingCopy, TouchesNothingBesideWhatItCopies) {
  for (std::size_t bytes = 64; bytes <= 600; bytes += 7) {
    check(target_.begin(), source_.end() - bytes, bytes);
    check(target_.end() - bytes, source_.begin(), bytes);
    if (HasFatalFailure()) return;
  }
  check(target_.begin(), source_.begin(), kRoom);
}

TEST_F(StreamingCopy, CopiesRandomPieces) {
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int i = 0; i < 2000; ++i) {
    const std::size_t bytes = 64 + random() % (kRoom - 64 + 1);
    check(target_.begin() + random() % (kRoom - bytes + 1),
          source_.begin() + random() % (kRoom - bytes + 1), bytes);
    if (HasFatalFailure()) return;
  }
}

#if defined(__x86_64__)
TEST(CopyOf, StreamsWhatIsLongInAll) {
  EXPECT_EQ(copyOf<&std::memcpy>(kStreamedOperation - 1), &std::memcpy);
  EXPECT_EQ(copyOf<&std::memcpy>(kStreamedOperation), &streamingCopy<&std::memcpy>);
}
#endif

// Rows of both sides, shorter and longer than what is streamed, in one operation that is.
TEST(CopyOf, TransfersLongLayouts) {
  for (const std::int64_t row : {std::int64_t{kStreamedPiece} - 24, std::int64_t{100'004}}) {
    const std::int64_t count = kStreamedOperation / row + 1;
    const auto from = Layout::make({{count, row + 40}}, {{3, row}});
    const auto to = Layout::make({{count, row + 9}}, {{1, row}});
    ASSERT_TRUE(from.ok() && to.ok());
    const std::int64_t bytes = from->bytes();
    ASSERT_GE(bytes, kStreamedOperation);
    std::vector<std::byte> source(static_cast<std::size_t>(count * (row + 40) + 3));
    std::vector<std::byte> target(static_cast<std::size_t>(count * (row + 9) + 1), kAround);
    for (std::size_t i = 0; i < source.size(); ++i) {
      source[i] = static_cast<std::byte>(i * 131 + (i >> 11));
    }
    std::vector<std::byte> expected = target;
    transfer(*to, expected.data(), *from, source.data(), 0, bytes);
    transfer(*to, target.data(), *from, source.data(), 0, bytes, copyOf<&std::memcpy>(bytes));
    EXPECT_TRUE(target == expected);
  }
}

}  // namespace
}  // namespace gmac::datatype
