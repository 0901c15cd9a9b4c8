// SPDX-License-Identifier: Apache-2.0
//
// Messages between device memories that neither process reaches: the sender's device packs into a
// ring of pinned memory, and the receiver's unpacks from there. The device is of the tests' own
// (device.h).
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "gmac/base/status.h"
#include "tests/exchange/device.h"
#include "tests/exchange/device_arena.h"
#include "tests/exchange/team.h"
#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

using exchange::DeviceFunctions;
using exchange::Job;
using exchange::Memory;
using exchange::Options;
using exchange::Path;
using exchange::Receiving;
using exchange::Sending;
using exchange::SendOptions;
using exchange::shareLayout;
using std::int64_t;

constexpr int64_t kFragment = 4096;
constexpr int64_t kFragments = 3;

Options optionsWith(const DeviceFunctions* device) {
  Options options{.hostBytes = std::size_t{4} << 20, .device = device};
  options.pinnedRingBytes = kFragment * kFragments;
  return options;
}

SendOptions pinned() {
  SendOptions options{.onDevice = true, .path = Path::kPinned};
  options.pinnedFragment = kFragment;
  options.fragmentBytes = 4096;
  options.fragments = 2;
  return options;
}

bool isFilled(const std::byte* device, std::size_t bytes) {
  const std::byte* const memory = behind(device);
  for (std::size_t at = 0; at < bytes; ++at) {
    if (memory[at] != byteAt(at)) return false;
  }
  return true;
}

// Rank 0 sends from device memory, and rank 1 receives to its device's, or the CPU's.
void exchangeRandomly(long steps, bool receiverHasDevice) {
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    auto exchange =
        met(board, job, optionsWith(job.rank == 0 || receiverHasDevice ? &kDevice : &kOldDevice));
    std::mt19937_64 delays(static_cast<std::uint64_t>(job.rank) + seedOr(1));
    std::mt19937_64 random(seedOr(1));
    std::byte* const arena = allocate(kArena);
    std::vector<std::byte> plain(kArena);
    fill(arena);
    for (long step = 0; step < steps; ++step) {
      // Both make up the same message.
      const int64_t about = 1 + below(random, step % 4 == 0 ? 100000 : 9000);
      const ArenaMessage message = randomMessage(random, about);
      const bool toDevice = receiverHasDevice && below(random, 4) != 0;
      const bool leaves = below(random, 6) == 0;
      const int64_t most =
          below(random, 2) == 0 ? message.from.layout.bytes() : 1 + below(random, about);
      device::asksBeforeOver = static_cast<int>(delays() % 4);
      if (job.rank == 0) {
        SendOptions options = pinned();
        options.mayCopy = leaves;
        Result<Sending> sending =
            exchange->send(1, arena + message.base, shareLayout(message.from.layout), options);
        CHECK_THAT(sending.ok() && sending->path() == Path::kPinned);
        const Description description = described(*sending);
        if (leaves) {
          const Result<bool> left = sending->leaveCopy();
          CHECK_THAT(left.ok() && *left);
        }
        post(board, 0, 1, description);
        CHECK_THAT(*sending->wait(kPatience));
      } else {
        const Path path = receiveRightly(board, *exchange, message, toDevice ? arena : plain.data(),
                                         toDevice ? Memory::kDevice : Memory::kHost, most);
        CHECK_THAT(path == (leaves ? Path::kCopy : Path::kPinned));
      }
    }
    CHECK_THAT(device::nothingIsLater());
    // One ring was made, and pinned by whose device copies.
    CHECK_THAT(device::pinsMade == (job.rank == 0 || receiverHasDevice ? 1 : 0));
    const exchange::Statistics statistics = exchange->statistics();
    const auto& counted = statistics.paths[static_cast<int>(Path::kPinned)];
    CHECK_THAT((job.rank == 0 ? counted.sent : counted.received).parcels > 0);
    CHECK_THAT((job.rank == 0 ? counted.sent : counted.received).bytes > 0);
    meetAt(board, 3, 2);
    exchange.reset();
    CHECK_THAT(device::pinnedRanges.empty());
  });
  EXPECT_EQ(team.end(), "") << "GMAC_TEST_SEED=" << seedOr(1);
}

TEST(PinnedMessages, RandomOnesArriveOnTheDevice) { exchangeRandomly(stepsOr(800), true); }
TEST(PinnedMessages, RandomOnesArriveWhereNoDeviceCopies) { exchangeRandomly(stepsOr(300), false); }

// As many fragments as the ring holds are packed before the receiver comes, and no more; and the
// receiver has copies under way while the sender packs what follows.
TEST(PinnedMessages, BothDevicesCopyAtTheSameTime) {
  constexpr int kParts = 8;
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    if (job.rank == 0) {
      fill(arena);
      Sending sending =
          postSent(board, 0, 1,
                   exchange->send(1, arena, shareLayout(contiguous(kParts * kFragment)), pinned()));
      for (int i = 0; i < 20; ++i) CHECK_THAT(!*sending.advance());
      CHECK_THAT(device::copiesBegun == kFragments);
      arrive(board, 1);
      await(board, 2, 1);
      // The receiver has one fragment, and is at the next two.
      for (int i = 0; i < 20; ++i) CHECK_THAT(!*sending.advance());
      CHECK_THAT(device::copiesBegun == kFragments + 1);
      arrive(board, 3);
      CHECK_THAT(*sending.wait(kPatience) && device::copiesBegun == kParts);
    } else {
      std::memset(behind(arena), 0, kArena);
      await(board, 1, 1);
      Result<Receiving> receiving = exchange->receive(
          0, fetch(board, 0, 1), arena, contiguous(kParts * kFragment), Memory::kDevice);
      CHECK_THAT(receiving.ok() && receiving->path() == Path::kPinned);
      device::asksBeforeOver = 1 << 20;
      for (int i = 0; i < 20; ++i) CHECK_THAT(!*receiving->advance());
      CHECK_THAT(device::laterCopies.size() == 2);
      device::laterCopies.front()->asks = 0;
      CHECK_THAT(!*receiving->advance());
      CHECK_THAT(device::laterCopies.size() == 2 && device::unpacksBegun == 3);
      arrive(board, 2);
      await(board, 3, 1);
      device::asksBeforeOver = 0;
      for (device::LaterCopy* const copy : device::laterCopies) copy->asks = 0;
      CHECK_THAT(*receiving->wait(kPatience) && device::unpacksBegun == kParts);
      CHECK_THAT(isFilled(arena, kParts * kFragment));
    }
  });
}

// There is one ring, which one message uses at a time; of whom it was gives its memory back.
TEST(PinnedMessages, ARingIsKeptAndMakesWayForAnotherProcess) {
  runTeam(3, [&](Board& board, const Job& job) {
    Options options = optionsWith(&kDevice);
    options.maxPinnedRings = 1;
    const auto exchange = met(board, job, options);
    std::byte* const arena = allocate(kArena);
    constexpr std::size_t kBytes = 30000;
    fill(arena);
    const auto receive = [&] {
      std::memset(behind(arena), 0, kBytes);
      Result<Receiving> receiving = exchange->receive(0, fetch(board, 0, job.rank), arena,
                                                      contiguous(kBytes), Memory::kDevice);
      CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
      CHECK_THAT(receiving->path() == Path::kPinned && isFilled(arena, kBytes));
    };
    if (job.rank == 0) {
      const auto begin = [&](int rank) {
        return exchange->send(rank, arena, shareLayout(contiguous(kBytes)), pinned());
      };
      for (int round = 0; round < 3; ++round) {
        Sending sending = postSent(board, 0, 1, begin(1));
        CHECK_THAT(begin(1).status().code() == adsmErrorHostMemory);
        CHECK_THAT(begin(2).status().code() == adsmErrorHostMemory);
        CHECK_THAT(saysLast("as many as there may be"));
        CHECK_THAT(*sending.wait(kPatience));
      }
      CHECK_THAT(device::pinsMade == 1 && exchange->statistics().exports == 1);
      meetAt(board, 2, 2);
      Sending sending = postSent(board, 0, 2, begin(2));
      CHECK_THAT(*sending.wait(kPatience));
      CHECK_THAT(device::pinsMade == 2 && device::pinnedRanges.size() == 1);
      CHECK_THAT(exchange->statistics().exports == 1);
      meetAt(board, 1, 3);
    } else if (job.rank == 1) {
      for (int round = 0; round < 3; ++round) receive();
      CHECK_THAT(device::pinsMade == 1 && exchange->statistics().imports == 1);
      meetAt(board, 2, 2);
      meetAt(board, 1, 3);
      exchange->sweep();
      CHECK_THAT(exchange->statistics().imports == 0 && device::pinnedRanges.empty());
    } else {
      receive();
      meetAt(board, 1, 3);
    }
  });
}

// A receiver that cannot map the ring gets the message by fragments of the CPU's memory.
TEST(PinnedMessages, WithoutTheRingTheyArriveAllTheSame) {
  constexpr std::size_t kBytes = 50000;
  runTeam(2, [&](Board& board, const Job& job) {
    Options options = optionsWith(&kDevice);
    options.maxImports = 1;
    const auto exchange = met(board, job, options);
    std::byte* const arena = allocate(kArena);
    if (job.rank == 0) {
      fill(arena);
      const Result<exchange::ExportId> id = exchange->exportDevice(arena, kArena);
      CHECK_THAT(id.ok() && exchange->offer(*id, 1).ok());
      board.numbers[0] = static_cast<long>(*id);
      arrive(board, 1);
      for (const Path path : {Path::kRing, Path::kPinned}) {
        Sending sending = postSent(
            board, 0, 1, exchange->send(1, arena, shareLayout(contiguous(kBytes)), pinned()));
        CHECK_THAT(*sending.wait(kPatience) && sending.path() == path);
      }
    } else {
      await(board, 1, 1);
      // (As many as there may be.)
      auto other =
          exchange->import(0, exchange::ExportId{static_cast<std::uint64_t>(board.numbers[0])});
      CHECK_THAT(other.ok());
      for (const Path path : {Path::kRing, Path::kPinned}) {
        std::memset(behind(arena), 0, kArena);
        Result<Receiving> receiving =
            exchange->receive(0, fetch(board, 0, 1), arena, contiguous(kBytes), Memory::kDevice);
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
        CHECK_THAT(receiving->path() == path && isFilled(arena, kBytes));
        *other = exchange::Imported();
      }
    }
  });
}

// Whether a rank could import device memory when it last tried is known to its owner.
TEST(PinnedMessages, AnOwnerKnowsWhoFailsToImport) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    if (job.rank == 0) {
      const Result<exchange::ExportId> id = exchange->exportDevice(arena, kArena);
      CHECK_THAT(id.ok() && exchange->offer(*id, 1).ok());
      board.numbers[0] = static_cast<long>(*id);
      CHECK_THAT(!exchange->failsToImport(1) && !exchange->failsToImport(0));
      meetAt(board, 1, 2);
      meetAt(board, 2, 2);
      CHECK_THAT(exchange->failsToImport(1));
      meetAt(board, 3, 2);
      meetAt(board, 4, 2);
      CHECK_THAT(!exchange->failsToImport(1));
    } else {
      const auto import = [&] {
        return exchange->import(0, exchange::ExportId{static_cast<std::uint64_t>(board.numbers[0])})
            .ok();
      };
      meetAt(board, 1, 2);
      refusesImports = true;
      CHECK_THAT(!import());
      meetAt(board, 2, 2);
      meetAt(board, 3, 2);
      refusesImports = false;
      for (int turn = 0; !import(); ++turn) CHECK_THAT(turn < 10);
      meetAt(board, 4, 2);
    }
  });
}

// The sender has its memory back, and spoils it, while the receiver has copies under way.
TEST(PinnedMessages, OneMayBeTakenBackAsACopyOrAltogether) {
  constexpr std::size_t kBytes = 50000;
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    for (int round = 1; round <= 4; ++round) {
      const bool leavesCopy = round % 2 == 1;
      if (job.rank == 0) {
        fill(arena);
        SendOptions options = pinned();
        options.mayCopy = true;
        Sending sending = postSent(
            board, 0, 1, exchange->send(1, arena, shareLayout(contiguous(kBytes)), options));
        for (int i = 0; i < 10; ++i) CHECK_THAT(!*sending.advance());
        await(board, 1, round);
        if (leavesCopy) {
          CHECK_THAT(*sending.leaveCopyNow());
        } else {
          sending = Sending();
        }
        CHECK_THAT(device::nothingIsLater());
        std::memset(behind(arena), 0, kArena);
        arrive(board, 2);
        meetAt(board, 3, 2 * round);
      } else {
        std::memset(behind(arena), 0, kArena);
        {
          Result<Receiving> receiving =
              exchange->receive(0, fetch(board, 0, 1), arena, contiguous(kBytes), Memory::kDevice);
          CHECK_THAT(receiving.ok());
          device::asksBeforeOver = 1 << 20;
          while (device::laterCopies.size() < 2) CHECK_THAT(!*receiving->advance());
          arrive(board, 1);
          await(board, 2, round);
          const Result<bool> end = receiving->wait(kPatience);
          CHECK_THAT(leavesCopy ? end.ok() && receiving->path() == Path::kCopy
                                : end.status().code() == adsmErrorInvalidValue);
          device::asksBeforeOver = 0;
        }
        CHECK_THAT(device::nothingIsLater());
        CHECK_THAT(!leavesCopy || isFilled(arena, kBytes));
        meetAt(board, 3, 2 * round);
      }
    }
    // One ring was enough: each was free again.
    CHECK_THAT(device::pinsMade == 1);
  });
}

// What is all in a ring that the receiver has imported is over for its sender, which uses its
// memory again; several such messages have parts of one ring. A message that is longer than the
// ring, or the first one, needs its receiver.
TEST(PinnedMessages, WhatIsAllInTheRingNeedsItsSenderNoMore) {
  constexpr int64_t kShort = kFragment + 100;
  const auto leaving = [] {
    SendOptions options = pinned();
    options.leavesRing = true;
    return options;
  };
  runTeam(2, [&](Board& board, const Job& job) {
    Options options = optionsWith(&kDevice);
    options.pinnedRingBytes = 4 * kFragment;
    options.maxPinnedRings = 1;
    const auto exchange = met(board, job, options);
    std::byte* const arena = allocate(kArena);
    const auto begin = [&](int64_t bytes) {
      fill(arena);
      Result<Sending> sending = exchange->send(1, arena, shareLayout(contiguous(bytes)), leaving());
      CHECK_THAT(sending.ok() && sending->path() == Path::kPinned);
      return std::move(*sending);
    };
    const auto receive = [&](const Description& description, int64_t bytes) {
      std::memset(behind(arena), 0, kArena);
      Result<Receiving> receiving =
          exchange->receive(0, description, arena, contiguous(bytes), Memory::kDevice);
      CHECK_THAT(receiving.ok() && receiving->path() == Path::kPinned);
      CHECK_THAT(*receiving->wait(kPatience) && isFilled(arena, static_cast<std::size_t>(bytes)));
    };
    if (job.rank == 0) {
      for (const int64_t bytes : {kShort, 5 * kFragment}) {
        Sending needing = begin(bytes);
        CHECK_THAT(!needing.needsNobody());
        post(board, 0, 1, described(needing));
        for (int i = 0; i < 20; ++i) CHECK_THAT(!*needing.advance());
        arrive(board, 1);
        CHECK_THAT(*needing.wait(kPatience));
      }
      std::vector<Description> left;
      for (int i = 0; i < 3; ++i) {
        Sending sending = begin(kShort);
        CHECK_THAT(sending.needsNobody());
        left.push_back(described(sending));
        while (!*sending.advance()) {
        }
        std::memset(behind(arena), 1, kArena);
        // The second one is taken back, and the third has its part.
        CHECK_THAT(i != 1 || (sending.recall() && !sending.recall()));
      }
      CHECK_THAT(
          exchange->send(1, arena, shareLayout(contiguous(kShort)), leaving()).status().code() ==
          adsmErrorHostMemory);
      for (const Description& description : left) post(board, 0, 1, description);
      CHECK_THAT(device::pinsMade == 1);
      meetAt(board, 2, 2);
      CHECK_THAT(begin(kShort).needsNobody());  // what was left has been taken
      meetAt(board, 3, 2);
    } else {
      for (int i = 1; i <= 2; ++i) {
        await(board, 1, i);
        receive(fetch(board, 0, 1), i == 1 ? kShort : 5 * kFragment);
      }
      const Description first = fetch(board, 0, 1);
      const Description recalled = fetch(board, 0, 1);
      const Description last = fetch(board, 0, 1);
      CHECK_THAT(!exchange->anyWaits());
      receive(last, kShort);
      CHECK_THAT(!exchange->receive(0, recalled, arena, contiguous(kShort), Memory::kDevice).ok());
      receive(first, kShort);
      CHECK_THAT(device::pinsMade == 1);
      meetAt(board, 2, 2);
      meetAt(board, 3, 2);
    }
  });
}

// Of a ring whose length is no multiple of the fragment's, the rest is not used.
TEST(PinnedMessages, AMessageThatFillsMoreThanTheWholeFragmentsNeedsItsReceiver) {
  constexpr int64_t kBytes = 4 * kFragment + 100;
  runTeam(2, [&](Board& board, const Job& job) {
    Options options = optionsWith(&kDevice);
    options.pinnedRingBytes = 5 * kFragment;
    const auto exchange = met(board, job, options);
    std::byte* const arena = allocate(kArena);
    for (int round = 0; round < 2; ++round) {
      if (job.rank == 0) {
        fill(arena);
        SendOptions how = pinned();
        how.pinnedFragment = 2 * kFragment;
        how.leavesRing = true;
        Sending sending =
            postSent(board, 0, 1, exchange->send(1, arena, shareLayout(contiguous(kBytes)), how));
        CHECK_THAT(!sending.needsNobody() && *sending.wait(kPatience));
      } else {
        std::memset(behind(arena), 0, kArena);
        Result<Receiving> receiving =
            exchange->receive(0, fetch(board, 0, 1), arena, contiguous(kBytes), Memory::kDevice);
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience) && isFilled(arena, kBytes));
      }
      meetAt(board, 1, 2 * (round + 1));
    }
  });
}

// A receiver that was late, and got a copy, has the ring for the next message.
TEST(PinnedMessages, ALateReceiverHasTheRingForTheNextMessage) {
  constexpr int64_t kBytes = 2 * kFragment;
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    for (const bool isFirst : {true, false}) {
      if (job.rank == 0) {
        fill(arena);
        SendOptions options = pinned();
        options.leavesRing = options.mayCopy = true;
        Sending sending = postSent(
            board, 0, 1, exchange->send(1, arena, shareLayout(contiguous(kBytes)), options));
        CHECK_THAT(sending.needsNobody() != isFirst);
        CHECK_THAT(isFirst ? *sending.leaveCopy() : *sending.wait(kPatience));
        CHECK_THAT(sending.path() == (isFirst ? Path::kCopy : Path::kPinned));
        meetAt(board, 1, isFirst ? 2 : 4);
        meetAt(board, 2, isFirst ? 2 : 4);
      } else {
        meetAt(board, 1, isFirst ? 2 : 4);
        std::memset(behind(arena), 0, kArena);
        Result<Receiving> receiving =
            exchange->receive(0, fetch(board, 0, 1), arena, contiguous(kBytes), Memory::kDevice);
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
        CHECK_THAT(receiving->path() == (isFirst ? Path::kCopy : Path::kPinned));
        CHECK_THAT(isFilled(arena, kBytes) && device::pinsMade == 1);
        meetAt(board, 2, isFirst ? 2 : 4);
      }
    }
  });
}

// What is left there outlives its sender's process; and a receiver that cannot import it any more
// does not wait for a sender that has gone on.
TEST(PinnedMessages, WhatIsLeftNeedsTheRingAlone) {
  constexpr int64_t kBytes = 2 * kFragment;
  enum Round { kFirst, kIsRefused, kAgain, kOutlivesItsSender, kRounds };
  runTeam(2, [&](Board& board, const Job& job) {
    Options options = optionsWith(&kDevice);
    options.maxImports = 1;
    const auto exchange = met(board, job, options);
    std::byte* const arena = allocate(kArena);
    SendOptions leaving = pinned();
    leaving.leavesRing = true;
    if (job.rank == 0) {
      fill(arena);
      const Result<exchange::ExportId> id = exchange->exportDevice(arena, kArena);
      CHECK_THAT(id.ok() && exchange->offer(*id, 1).ok());
      board.numbers[0] = static_cast<long>(*id);
      board.numbers[1] = ::getpid();
      for (int round = 0; round < kRounds; ++round) {
        meetAt(board, 1, 2 * (round + 1));
        Sending sending = postSent(
            board, 0, 1, exchange->send(1, arena, shareLayout(contiguous(kBytes)), leaving));
        CHECK_THAT(sending.needsNobody() == (round == kIsRefused || round == kOutlivesItsSender));
        CHECK_THAT(*sending.wait(kPatience));
        arrive(board, 2);
      }
      std::_Exit(0);
    }
    for (int round = 0; round < kRounds; ++round) {
      meetAt(board, 1, 2 * (round + 1));
      std::memset(behind(arena), 0, kArena);
      const Description description = fetch(board, 0, 1);
      const auto receive = [&] {
        return exchange->receive(0, description, arena, contiguous(kBytes), Memory::kDevice);
      };
      if (round == kIsRefused) {
        await(board, 2, round + 1);
        // (As many as there may be.)
        const auto other =
            exchange->import(0, exchange::ExportId{static_cast<std::uint64_t>(board.numbers[0])});
        CHECK_THAT(other.ok() && receive().status().code() == adsmErrorHostMemory);
        continue;
      }
      if (round == kOutlivesItsSender) {
        while (::kill(static_cast<pid_t>(board.numbers[1]), 0) == 0) ::sched_yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(120));  // so that it is noticed
        exchange->sweep();
      }
      Result<Receiving> receiving = receive();
      CHECK_THAT(receiving.ok() && *receiving->wait(kPatience) && isFilled(arena, kBytes));
    }
  });
}

TEST(PinnedMessages, WhatCannotBeIsRefused) {
  runTeam(2, [&](Board& board, const Job& job) {
    static const DeviceFunctions kBlocking = [] {
      DeviceFunctions made = kDevice;
      made.begin = nullptr;
      return made;
    }();
    const auto exchange = met(board, job, optionsWith(job.rank == 0 ? &kDevice : &kBlocking));
    std::byte* const arena = allocate(kArena);
    const auto refused = [&](const SendOptions& options) {
      return exchange->send(1 - job.rank, arena, shareLayout(contiguous(9)), options)
          .status()
          .code();
    };
    if (job.rank == 1) {
      CHECK_THAT(refused(pinned()) == adsmErrorNotSupported);
      CHECK_THAT(saysLast("no device of this process copies messages"));
      return;
    }
    SendOptions options = pinned();
    options.onDevice = false;
    CHECK_THAT(refused(options) == adsmErrorInvalidValue);
    for (const std::size_t fragment : {0, 4095, 8192}) {  // (two of 8192 are more than the ring)
      options = pinned();
      options.pinnedFragment = fragment;
      CHECK_THAT(refused(options) == adsmErrorInvalidValue);
    }
  });
}

}  // namespace
}  // namespace gmac::testing
