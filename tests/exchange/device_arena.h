// SPDX-License-Identifier: Apache-2.0
//
// Random messages between the arenas of two devices of the tests' own (device.h), of which each
// process makes up the same.
#ifndef GMAC_TESTS_EXCHANGE_DEVICE_ARENA_H_
#define GMAC_TESTS_EXCHANGE_DEVICE_ARENA_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "exchange/exchange.h"
#include "tests/exchange/device.h"
#include "tests/exchange/random_layout.h"
#include "tests/exchange/team.h"

namespace gmac::testing {

inline constexpr std::chrono::milliseconds kPatience{20000};
inline constexpr std::size_t kArena = std::size_t{2} << 20;

inline std::byte byteAt(std::size_t at) {
  return static_cast<std::byte>(at * 7 + at / 251 + at / 65537);
}
// `device`: kArena bytes.
inline void fill(std::byte* device) {
  std::byte* const memory = behind(device);
  for (std::size_t at = 0; at < kArena; ++at) {
    memory[at] = byteAt(at);
  }
}

inline datatype::Layout contiguous(std::int64_t bytes) {
  return *datatype::Layout::make({}, {{0, bytes}});
}

// From an arena that is filled, at `base`, to `kTarget` bytes into another one.
struct ArenaMessage {
  static constexpr std::size_t kTarget = 64;

  RandomLayout from;
  RandomLayout to;  // with room for all of it
  std::int64_t base = 0;
};

inline std::int64_t below(std::mt19937_64& random, std::int64_t end) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

inline ArenaMessage randomMessage(std::mt19937_64& random, std::int64_t about) {
  constexpr auto kMost = static_cast<std::int64_t>(kArena) / 2;
  ArenaMessage message{randomLayout(random, about), {}, 0};
  RandomLayout& from = message.from;
  while (from.span > kMost) {
    from = randomLayout(random, about);
  }
  RandomLayout& to = message.to;
  to = randomLayout(random, from.layout.bytes() + 1);
  while (to.layout.bytes() < from.layout.bytes() || to.span > kMost) {
    to = randomLayout(random, 2 * from.layout.bytes());
  }
  message.base = below(random, static_cast<std::int64_t>(kArena) - from.span);
  return message;
}

// Receives a message from rank 0 in parts of at most so many bytes, and checks every byte of the
// target arena. The path that it took.
inline exchange::Path receiveRightly(Board& board, exchange::Exchange& exchange,
                                     const ArenaMessage& message, std::byte* target,
                                     exchange::Memory memory, std::int64_t most) {
  std::memset(behind(target), 0xa5, kArena);
  std::vector<std::byte> expected(kArena, std::byte{0xa5});
  for (std::size_t at = 0; at < static_cast<std::size_t>(message.from.layout.bytes()); ++at) {
    expected[ArenaMessage::kTarget + static_cast<std::size_t>(message.to.offsets[at])] =
        byteAt(static_cast<std::size_t>(message.base + message.from.offsets[at]));
  }
  Result<exchange::Receiving> receiving = exchange.receive(
      0, fetch(board, 0, 1), target + ArenaMessage::kTarget, message.to.layout, memory);
  CHECK_THAT(receiving.ok());
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (bool done = false; !done;) {
    const Result<bool> now = receiving->advance(most);
    CHECK_THAT(now.ok() && std::chrono::steady_clock::now() < end);
    done = *now;
  }
  CHECK_THAT(std::memcmp(behind(target), expected.data(), kArena) == 0);
  return receiving->path();
}

}  // namespace gmac::testing

#endif  // GMAC_TESTS_EXCHANGE_DEVICE_ARENA_H_
