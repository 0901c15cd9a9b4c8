// SPDX-License-Identifier: Apache-2.0
//
// Copies between private and shared memory, over a port of the test's own: no runtime is linked.
#include "interpose/base/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "gmac/coherence/memory_port.h"
#include "gmac/coherence/work_port.h"

namespace gmac::interpose {
namespace {

using coherence::HoldFor;

constexpr std::size_t kPiece = 64;

// Notes the holds, and refuses the one that a test says.
class Holds final : public coherence::MemoryPort {
 public:
  struct Hold {
    const std::byte* address;
    std::size_t bytes;
    HoldFor purpose;
  };

  Holds() : before_(coherence::open(ports_)) {}
  ~Holds() { coherence::open(before_); }

  std::vector<Hold> made;
  std::size_t released = 0;
  std::size_t refused = SIZE_MAX;

  std::size_t pieceBytes() const noexcept override { return kPiece; }
  Status hold(const void* address, std::size_t bytes, HoldFor purpose) override {
    EXPECT_EQ(made.size(), released) << "one at a time";
    if (made.size() == refused) return fail(adsmErrorAcceleratorLost, "as was asked for");
    made.push_back({static_cast<const std::byte*>(address), bytes, purpose});
    return {};
  }
  void unhold(const void* address, std::size_t bytes) override {
    ASSERT_LT(released, made.size());
    EXPECT_EQ(address, made[released].address);
    EXPECT_EQ(bytes, made[released].bytes);
    ++released;
  }

 private:
  const coherence::Ports ports_{*this, coherence::work(), coherence::deviceMemory()};
  const coherence::Ports& before_;
};

class SharedCopies : public ::testing::Test {
 protected:
  SharedCopies() {
    for (std::size_t i = 0; i < private_.size(); ++i) private_[i] = static_cast<std::byte>(i + 1);
  }

  Holds port_;
  std::array<std::byte, 3 * kPiece> private_;
  alignas(kPiece) std::array<std::byte, 4 * kPiece> shared_{};
};

TEST_F(SharedCopies, HoldEachPieceWhileItIsCopied) {
  errno = 7;
  std::byte* const to = shared_.data() + 10;
  ASSERT_TRUE(copyToShared(to, private_.data(), private_.size()));
  EXPECT_EQ(errno, 7);
  EXPECT_TRUE(std::equal(private_.begin(), private_.end(), to));
  const std::size_t lengths[] = {kPiece - 10, kPiece, kPiece, 10};
  ASSERT_EQ(port_.made.size(), std::size(lengths));
  const std::byte* at = to;
  for (std::size_t i = 0; i < std::size(lengths); ++i) {
    EXPECT_EQ(port_.made[i].address, at);
    EXPECT_EQ(port_.made[i].bytes, lengths[i]);
    EXPECT_EQ(port_.made[i].purpose, HoldFor::kOverwrite);
    at += lengths[i];
  }
  EXPECT_EQ(port_.released, port_.made.size());
}

TEST_F(SharedCopies, OnlyReadWhatTheyCopyFrom) {
  std::fill(shared_.begin(), shared_.end(), std::byte{9});
  ASSERT_TRUE(copyFromShared(private_.data(), shared_.data(), kPiece));
  EXPECT_EQ(std::count(private_.begin(), private_.end(), std::byte{9}), std::ptrdiff_t{kPiece});
  ASSERT_EQ(port_.made.size(), 1U);
  EXPECT_EQ(port_.made[0].purpose, HoldFor::kRead);
}

TEST_F(SharedCopies, EndWhereAHoldIsRefused) {
  port_.refused = 1;
  ASSERT_FALSE(copyToShared(shared_.data(), private_.data(), private_.size()));
  EXPECT_EQ(errno, EIO);
  EXPECT_TRUE(std::equal(private_.begin(), private_.begin() + kPiece, shared_.begin()));
  EXPECT_EQ(shared_[kPiece], std::byte{0});
  EXPECT_EQ(port_.released, 1U);
}

TEST(NoRuntime, NothingIsShared) {
  int local = 1;
  bool shared = true;
  EXPECT_FALSE(coherence::touchesShared(&local, sizeof local));
  EXPECT_EQ(coherence::memory().sharedPrefix(&local, sizeof local, &shared), sizeof local);
  EXPECT_FALSE(shared);
  EXPECT_EQ(coherence::work().ensureAccelerator().status().code(), adsmErrorNoAccelerator);
  EXPECT_FALSE(coherence::work().beginDeviceWork({}, {}).ok());
  EXPECT_EQ(coherence::work().nativeContext(), 0U);
}

}  // namespace
}  // namespace gmac::interpose
