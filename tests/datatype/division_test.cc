// SPDX-License-Identifier: Apache-2.0
//
// How an operation is divided, over a port of the test's own: no runtime is linked.
#include "gmac/datatype/engine/division.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmac/coherence/memory_port.h"

namespace gmac::datatype {
namespace {

using coherence::Current;

constexpr std::size_t kBlock = 1024;

// Memory in blocks, each current at one place.
class Blocks final : public coherence::MemoryPort {
 public:
  explicit Blocks(std::vector<Current> blocks)
      : blocks_(std::move(blocks)), memory_(blocks_.size() * kBlock), before_(open(ports_)) {}
  ~Blocks() { coherence::open(before_); }

  const std::byte* memory() const { return memory_.data(); }
  coherence::Place placeOf(const void* address, std::size_t /*bytes*/) noexcept override {
    const auto base = reinterpret_cast<std::uintptr_t>(memory());
    const auto block = (reinterpret_cast<std::uintptr_t>(address) - base) / kBlock;
    const auto begin = base + block * kBlock;
    return {begin, begin + kBlock, blocks_[block], 0};
  }

 private:
  const std::vector<Current> blocks_;
  const std::vector<std::byte> memory_;
  const coherence::Ports ports_{*this, coherence::work(), coherence::deviceMemory()};
  const coherence::Ports& before_;
};

// The place and bytes of each portion of a pack of all the blocks.
std::vector<std::pair<Current, std::int64_t>> portions(std::vector<Current> blocks,
                                                       std::int64_t least = 1) {
  const auto bytes = static_cast<std::int64_t>(blocks.size() * kBlock);
  const Layout layout = *Layout::make({}, {{0, bytes}});
  const Blocks port(std::move(blocks));
  std::vector<std::pair<Current, std::int64_t>> found;
  std::int64_t next = 0;
  for (const Portion& portion : divide(layout, port.memory(), 0, bytes, least)) {
    EXPECT_EQ(portion.offset, next);
    next += portion.bytes;
    found.emplace_back(portion.current, portion.bytes);
  }
  EXPECT_EQ(next, bytes);
  return found;
}

using Expected = std::vector<std::pair<Current, std::int64_t>>;
constexpr auto kCpu = Current::kCpu;
constexpr auto kAccelerator = Current::kAccelerator;
constexpr auto kBoth = Current::kBoth;

TEST(Division, OfOnePlaceIsOnePortion) {
  EXPECT_EQ(portions({kCpu, kCpu}), Expected({{kCpu, 2048}}));
  EXPECT_EQ(portions({kBoth, kBoth}), Expected({{kBoth, 2048}}));
}

TEST(Division, FollowsTheBlocks) {
  EXPECT_EQ(portions({kCpu, kCpu, kAccelerator, kAccelerator}),
            Expected({{kCpu, 2048}, {kAccelerator, 2048}}));
}

TEST(Division, JoinsWhatIsCurrentOnBothSidesToEither) {
  EXPECT_EQ(portions({kBoth, kCpu, kAccelerator, kBoth}),
            Expected({{kCpu, 2048}, {kAccelerator, 2048}}));
}

TEST(Division, GivesTheAcceleratorWhatAlternatesTooFast) {
  EXPECT_EQ(portions({kCpu, kAccelerator, kCpu, kAccelerator}, 4096),
            Expected({{kAccelerator, 4096}}));
}

}  // namespace
}  // namespace gmac::datatype
