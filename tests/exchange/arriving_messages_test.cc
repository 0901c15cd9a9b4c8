// SPDX-License-Identifier: Apache-2.0
//
// Messages that one kernel of the receiver's device unpacks while the sender packs them ahead. The
// device is of the tests' own (device.h); disturbed_device_test.cc kills, stops and fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "exchange/exchange.h"
#include "exchange/job.h"
#include "gmac/base/status.h"
#include "tests/exchange/device.h"
#include "tests/exchange/device_arena.h"
#include "tests/exchange/team.h"

namespace gmac::testing {
namespace {

using datatype::Layout;
using exchange::Exchange;
using exchange::ExportId;
using exchange::Job;
using exchange::Options;
using exchange::Path;
using exchange::Receiving;
using exchange::Sending;
using exchange::shareLayout;
using std::int64_t;

constexpr int64_t kRows = 10000;
constexpr int64_t kRow = 8;
constexpr int64_t kFragment = 4096;
constexpr int64_t kFragments = (kRows * kRow + kFragment - 1) / kFragment;

Options options(int64_t arrivalLeast = kRows * kRow) {
  Options made{.hostBytes = std::size_t{4} << 20, .device = &kDevice};
  made.devicePieceBytes = std::size_t{64} << 10;
  made.aheadLeast = kRows * kRow / 2;
  made.aheadFragment = kFragment;
  made.arrivalLeast = arrivalLeast;
  return made;
}

// From every fourth row to every second one.
Layout rows(int64_t count, int64_t stride) {
  return *Layout::make({{count, stride * kRow}}, {{0, kRow}});
}
Layout theirs(int64_t count = kRows) { return rows(count, 4); }
Layout ours(int64_t count = kRows) { return rows(count, 2); }

// Whether the rows are there, and nothing else.
bool isRight(const std::byte* arena, int64_t count = kRows) {
  const std::byte* const memory = behind(arena);
  for (std::size_t at = 0; at < kArena; ++at) {
    const std::size_t row = at / (2 * kRow);
    const bool isOurs = at % (2 * kRow) < kRow && row < static_cast<std::size_t>(count);
    if (memory[at] != (isOurs ? byteAt(row * 4 * kRow + at % kRow) : std::byte{0xa5})) {
      return false;
    }
  }
  return true;
}

// A process of a pair: rank 0 sends, rank 1 receives.
class Pair {
 public:
  Pair(Board& board, const Job& job, const Options& made)
      : board_(board), exchange_(met(board, job, made)), arena_(allocate(kArena)) {
    fill(arena_);
    device::arrivalPatience = std::chrono::hours(1);
    if (job.rank == 0) {
      const Result<ExportId> id = exchange_->exportDevice(arena_, kArena);
      CHECK_THAT(id.ok() && exchange_->offer(*id, 1).ok());
      id_ = *id;
      // The first message brings the ring to the receiver.
      CHECK_THAT(*sent().wait(kPatience));
    } else {
      CHECK_THAT(*received().wait(kPatience) && isRight(arena_));
      CHECK_THAT(device::arrivalsBegun == 0);
    }
  }
  Exchange& exchange() { return *exchange_; }
  std::byte* arena() const { return arena_; }

  Sending sent(const Layout& layout = theirs()) {
    return postSent(board_, 0, 1,
                    exchange_->send(1, arena_, shareLayout(layout),
                                    {.onDevice = true, .device = id_, .mayCopy = true}));
  }
  Receiving received(const Layout& layout = ours()) {
    std::memset(behind(arena_), 0xa5, kArena);
    Result<Receiving> receiving =
        exchange_->receive(0, fetch(board_, 0, 1), arena_, layout, exchange::Memory::kDevice);
    CHECK_THAT(receiving.ok());
    return std::move(*receiving);
  }

 private:
  Board& board_;
  const std::unique_ptr<Exchange> exchange_;
  std::byte* const arena_;
  ExportId id_ = exchange::kNoExport;
};

// advance() until the message is over. The sender has its time.
void finish(Receiving& receiving) {
  for (bool done = false; !done;) {
    const Result<bool> now = receiving.advance();
    CHECK_THAT(now.ok());
    done = *now;
    ::usleep(100);
  }
}

TEST(ArrivingMessages, OneKernelUnpacksWhatIsPackedAhead) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    constexpr int kMessages = 5;
    for (int message = 1; message <= kMessages; ++message) {
      if (job.rank == 0) {
        Sending sending = pair.sent();
        CHECK_THAT(*sending.wait(kPatience) && sending.path() == Path::kDevice);
      } else {
        const int copies = device::copiesBegun;
        device::asksBeforeOver = message;
        Receiving receiving = pair.received();
        finish(receiving);
        CHECK_THAT(isRight(pair.arena()) && receiving.path() == Path::kArriving);
        CHECK_THAT(device::arrivalsBegun == message && device::copiesBegun == copies);
      }
      CHECK_THAT(device::nothingIsLater());
    }
    const exchange::Statistics statistics = pair.exchange().statistics();
    const auto& arriving = statistics.paths[static_cast<int>(Path::kArriving)];
    CHECK_THAT(arriving.sent.parcels == 0);
    CHECK_THAT(arriving.received.parcels == (job.rank == 1 ? kMessages : 0));
    CHECK_THAT(arriving.received.bytes == (job.rank == 1 ? kMessages * kRows * kRow : 0));
    meetAt(board, 1, 2);
  });
}

TEST(ArrivingMessages, WhatAKernelThatEndsByItselfLeavesIsCopiedInFragments) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    for (int64_t after = 0; after <= kFragments; ++after) {
      if (job.rank == 0) {
        CHECK_THAT(*pair.sent().wait(kPatience));
        continue;
      }
      const int copies = device::copiesBegun;
      device::arrivalEndsAfter = after;
      Receiving receiving = pair.received();
      finish(receiving);
      CHECK_THAT(isRight(pair.arena()) && device::nothingIsLater());
      CHECK_THAT(device::copiesBegun - copies == kFragments - after);
      CHECK_THAT(receiving.path() == (after == kFragments ? Path::kArriving : Path::kDevice));
    }
  });
}

// The sender is elsewhere after its first packs: the kernel ends, and the receiver loads the rest.
TEST(ArrivingMessages, ASenderThatPacksNoMoreIsNotWaitedFor) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    if (job.rank == 0) {
      Sending sending = pair.sent();
      while (device::packsBegun < 5) CHECK_THAT(!*sending.advance());
      await(board, 1, 1);
      CHECK_THAT(*sending.wait(kPatience));
      return;
    }
    device::arrivalPatience = std::chrono::milliseconds(2);
    Receiving receiving = pair.received();
    finish(receiving);
    arrive(board, 1);
    CHECK_THAT(isRight(pair.arena()) && receiving.path() == Path::kDevice);
    CHECK_THAT(device::arrivalsBegun == 1 && device::nothingIsLater());
  });
}

// Before its first fragment is there, and after some of them; although the kernel has patience.
TEST(ArrivingMessages, AKernelIsToldToEndWhereTheSenderIsElsewhere) {
  static constexpr exchange::ArrivalFunctions kSoon{&device::beginArrival,
                                                    &device::arrived,
                                                    &device::noMoreArrives,
                                                    &device::arrivalIsOver,
                                                    &device::endArrival,
                                                    1'000'000,
                                                    1'000'000};
  static constexpr exchange::DeviceFunctions kImpatient = [] {
    exchange::DeviceFunctions functions = kDevice;
    functions.arrivals = &kSoon;
    return functions;
  }();
  for (const int packs : {0, 5}) {
    runTeam(2, [packs](Board& board, const Job& job) {
      Options impatient = options();
      impatient.device = &kImpatient;
      Pair pair(board, job, impatient);
      if (job.rank == 0) {
        Sending sending = pair.sent();
        while (device::packsBegun < packs) CHECK_THAT(!*sending.advance());
        await(board, 1, 1);
        CHECK_THAT(*sending.wait(kPatience));
        return;
      }
      Receiving receiving = pair.received();
      finish(receiving);
      arrive(board, 1);
      CHECK_THAT(isRight(pair.arena()) && receiving.path() == Path::kDevice);
      CHECK_THAT(device::arrivalsBegun == 1 && device::arrivalsToldToEnd == 1);
      CHECK_THAT(device::nothingIsLater());
    });
  }
}

TEST(ArrivingMessages, WithoutAKernelTheyAreCopiedInFragments) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    for (const adsmError_t error : {adsmErrorNotSupported, adsmErrorLaunch, adsmSuccess}) {
      if (job.rank == 0) {
        CHECK_THAT(*pair.sent().wait(kPatience));
        continue;
      }
      device::arrivalError = error;
      Receiving receiving = pair.received();
      finish(receiving);
      CHECK_THAT(isRight(pair.arena()));
      CHECK_THAT(receiving.path() == (error == adsmSuccess ? Path::kArriving : Path::kDevice));
    }
  });
}

TEST(ArrivingMessages, ShorterOnesHaveNoKernel) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    const int64_t count = kRows - 1;
    if (job.rank == 0) {
      CHECK_THAT(*pair.sent(theirs(count)).wait(kPatience) && device::packsBegun > 0);
      return;
    }
    Receiving receiving = pair.received(ours(count));
    finish(receiving);
    CHECK_THAT(isRight(pair.arena(), count) && receiving.path() == Path::kDevice);
    CHECK_THAT(device::arrivalsBegun == 0);
  });
}

TEST(ArrivingMessages, AKernelThatHearsOfNoFragmentIsNotWaitedFor) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    if (job.rank == 0) {
      device::asksBeforeOver = 1 << 30;  // it never sees that it has packed
      Sending sending = pair.sent();
      CHECK_THAT(*sending.wait(kPatience));
      return;
    }
    device::arrivalPatience = std::chrono::milliseconds(2);
    Receiving receiving = pair.received();
    finish(receiving);
    CHECK_THAT(isRight(pair.arena()) && receiving.path() == Path::kDevice);
    CHECK_THAT(device::arrivalsBegun == 1 && device::nothingIsLater());
  });
}

TEST(ArrivingMessages, AKernelThatCrashesFailsTheMessage) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    if (job.rank == 0) {
      const Result<bool> done = pair.sent().wait(kPatience);
      CHECK_THAT(!done.ok() && saysLast("has given up"));
      return;
    }
    device::arrivalEndError = adsmErrorLaunch;
    Receiving receiving = pair.received();
    const Result<bool> done = receiving.wait(kPatience);
    CHECK_THAT(!done.ok() && done.status().code() == adsmErrorLaunch);
    CHECK_THAT(saysLast("the kernel has crashed") && device::nothingIsLater());
  });
}

// Its memory is the sender's again, and is spoilt, while the kernel is under way; and the receiver
// begins again with the copy.
TEST(ArrivingMessages, MayBeTakenBackAsACopy) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    if (job.rank == 0) {
      Sending sending = pair.sent();
      while (board.steps[1].load() == 0) {
        CHECK_THAT(!*sending.advance());
      }
      CHECK_THAT(*sending.leaveCopyNow() && device::nothingIsLater());
      std::memset(behind(pair.arena()), 0, kArena);
      arrive(board, 2);
      await(board, 1, 2);
      return;
    }
    Receiving receiving = pair.received();
    while (device::arrivalsUnderWay == 0) {
      CHECK_THAT(!*receiving.advance());
    }
    arrive(board, 1);
    await(board, 2, 1);
    CHECK_THAT(*receiving.wait(kPatience) && receiving.path() == Path::kCopy);
    CHECK_THAT(isRight(pair.arena()) && device::nothingIsLater());
    arrive(board, 1);
  });
}

// The kernel writes no more when the message is gone.
TEST(ArrivingMessages, AReceiverThatGivesUpHasTheKernelEnd) {
  runTeam(2, [&](Board& board, const Job& job) {
    Pair pair(board, job, options());
    if (job.rank == 0) {
      CHECK_THAT(!pair.sent().wait(kPatience).ok());
      return;
    }
    {
      Receiving receiving = pair.received();
      while (device::arrivalsUnderWay == 0) {
        CHECK_THAT(!*receiving.advance());
      }
    }
    CHECK_THAT(device::nothingIsLater());
  });
}

// Each sends to the other; both kernels are under way at once.
TEST(ArrivingMessages, GoBothWaysAtOnce) {
  runTeam(2, [&](Board& board, const Job& job) {
    const int other = 1 - job.rank;
    const auto exchange = met(board, job, options());
    std::byte* const source = allocate(kArena);
    std::byte* const target = allocate(kArena);
    fill(source);
    const Result<ExportId> id = exchange->exportDevice(source, kArena);
    CHECK_THAT(id.ok() && exchange->offer(*id, other).ok());
    for (int round = 1; round <= 3; ++round) {
      std::memset(behind(target), 0xa5, kArena);
      Sending sending = postSent(
          board, job.rank, other,
          exchange->send(other, source, shareLayout(theirs()), {.onDevice = true, .device = *id}));
      Result<Receiving> receiving = exchange->receive(other, fetch(board, other, job.rank), target,
                                                      ours(), exchange::Memory::kDevice);
      CHECK_THAT(receiving.ok());
      for (bool sent = false, got = false; !sent || !got;) {
        sent = sent || *sending.advance();
        got = got || *receiving->advance();
      }
      CHECK_THAT(isRight(target) && device::nothingIsLater());
      CHECK_THAT(device::arrivalsBegun >= round - 2);
      meetAt(board, 3, 2 * round);
    }
    CHECK_THAT(device::arrivalsBegun > 0);
  });
}

}  // namespace
}  // namespace gmac::testing
