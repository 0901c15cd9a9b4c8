// SPDX-License-Identifier: Apache-2.0
//
// Messages whose memory is a device's, at either end: random layouts by every path, what is
// refused, revoked or taken back. The device is of the tests' own (device.h).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/job.h"
#include "gmac/base/status.h"
#include "gmac/datatype/cpu/transfer.h"
#include "tests/exchange/device.h"
#include "tests/exchange/device_arena.h"
#include "tests/exchange/team.h"
#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

using datatype::Layout;
using exchange::DeviceFunctions;
using exchange::Exchange;
using exchange::ExportId;
using exchange::Job;
using exchange::Options;
using exchange::Path;
using exchange::Receiving;
using exchange::Sending;
using exchange::SendOptions;
using exchange::shareLayout;
using std::int64_t;
using std::chrono::milliseconds;

Options optionsWith(const DeviceFunctions* device) {
  Options options{.hostBytes = std::size_t{4} << 20, .device = device};
  options.devicePieceBytes = std::size_t{64} << 10;
  return options;
}

// Short pieces of messages of so many bytes and more are packed ahead.
Options aheadOptions(int64_t least, int64_t arrivalLeast = INT64_MAX) {
  Options options = optionsWith(&kDevice);
  options.arrivalLeast = arrivalLeast;
  options.aheadLeast = least;
  options.aheadFragment = 4096;
  return options;
}

// ---- Messages.

// The export of the arena, when the other one has proved that it reaches this device.
ExportId exportedArena(Exchange& exchange, std::byte* arena, int rank) {
  const Result<ExportId> id = exchange.exportDevice(arena, kArena);
  CHECK_THAT(id.ok() && exchange.offer(*id, rank).ok());
  return *id;
}

enum class Hindrance { kNone, kImportsAreRefused, kReceiversDeviceCopiesNothing };

enum class Ahead { kNothing, kInFragments, kByOneKernel };

// Rank 0 sends, from device memory or the CPU's, and rank 1 receives to either. `how`: messages of
// short pieces are packed ahead, by devices that take their time, and unpacked in fragments, or by
// one kernel, which may end by itself.
void exchangeRandomly(Hindrance hindrance, long steps, Ahead how = Ahead::kNothing) {
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const bool simple = hindrance == Hindrance::kReceiversDeviceCopiesNothing && job.rank == 1;
    const bool ahead = how != Ahead::kNothing;
    const Options made = ahead ? aheadOptions(1500, how == Ahead::kByOneKernel ? 1 : INT64_MAX)
                               : optionsWith(simple ? &kOldDevice : &kDevice);
    std::mt19937_64 delays(static_cast<std::uint64_t>(job.rank) + seedOr(1));
    const auto exchange = met(board, job, made);
    refusesImports = hindrance == Hindrance::kImportsAreRefused && job.rank == 1;
    std::mt19937_64 random(seedOr(1));
    std::byte* const arena = allocate(kArena);
    std::vector<std::byte> plain(kArena);
    fill(arena);
    std::memcpy(plain.data(), behind(arena), kArena);
    const ExportId id = job.rank == 0 ? exportedArena(*exchange, arena, 1) : exchange::kNoExport;
    for (long step = 0; step < steps; ++step) {
      // Both make up the same message.
      const int64_t about = 1 + below(random, step % 10 == 0 ? 100000 : 2000);
      const ArenaMessage message = randomMessage(random, about);
      const bool fromDevice = below(random, 4) != 0;
      const bool isExported = below(random, 3) != 0;
      const bool toDevice =
          below(random, 4) != 0 && hindrance != Hindrance::kReceiversDeviceCopiesNothing;
      const bool leaves = below(random, 6) == 0;
      const int64_t most =
          below(random, 2) == 0 ? message.from.layout.bytes() : 1 + below(random, about);
      device::asksBeforeOver = ahead ? static_cast<int>(delays() % 4) : 0;
      device::arrivalEndsAfter =
          delays() % 3 == 0 ? static_cast<int64_t>(delays() % 5) : device::kNever;
      if (job.rank == 0) {
        SendOptions options;
        options.onDevice = fromDevice;
        if (fromDevice && isExported) {
          options.device = id;
          options.deviceOffset = message.base;
        }
        options.fragmentBytes = 4096;
        options.fragments = 2;
        options.mayCopy = leaves;
        Result<Sending> sending =
            exchange->send(1, (fromDevice ? arena : plain.data()) + message.base,
                           shareLayout(message.from.layout), options);
        CHECK_THAT(sending.ok());
        CHECK_THAT(!fromDevice || sending->path() == (isExported ? Path::kDevice : Path::kRing));
        const Description description = described(*sending);
        if (leaves) {
          const Result<bool> left = sending->leaveCopy();
          CHECK_THAT(left.ok() && *left);
        }
        post(board, 0, 1, description);
        CHECK_THAT(*sending->wait(kPatience));
      } else {
        const Path path =
            receiveRightly(board, *exchange, message, toDevice ? arena : plain.data(),
                           toDevice ? exchange::Memory::kDevice : exchange::Memory::kHost, most);
        const bool byDevice = fromDevice && isExported && !leaves && hindrance == Hindrance::kNone;
        CHECK_THAT((path == Path::kDevice || path == Path::kArriving) == byDevice);
      }
    }
    CHECK_THAT(device::nothingIsLater() && (job.rank == 1 || (device::packsBegun > 0) == ahead));
    CHECK_THAT((device::arrivalsBegun > 0) == (job.rank == 1 && how == Ahead::kByOneKernel));
    const exchange::Statistics statistics = exchange->statistics();
    const auto& device = statistics.paths[static_cast<int>(Path::kDevice)];
    const auto& ring = statistics.paths[static_cast<int>(Path::kRing)];
    const bool none = hindrance == Hindrance::kNone;
    CHECK_THAT((device.sent.parcels > 0) == (none && job.rank == 0));
    CHECK_THAT((device.received.parcels > 0) == (none && job.rank == 1));
    CHECK_THAT(job.rank == 0 ? ring.sent.parcels > 0 : ring.received.parcels > 0);
    meetAt(board, 3, 2);
  });
  EXPECT_EQ(team.end(), "") << "GMAC_TEST_SEED=" << seedOr(1);
}

TEST(DeviceMessages, RandomOnesArriveByEveryPath) {
  for (const Hindrance hindrance : {Hindrance::kNone, Hindrance::kImportsAreRefused,
                                    Hindrance::kReceiversDeviceCopiesNothing}) {
    exchangeRandomly(hindrance, 400);
  }
}

TEST(DeviceMessages, RandomOnesArriveWhenTheyArePackedAhead) {
  exchangeRandomly(Hindrance::kNone, 800, Ahead::kInFragments);
}

TEST(DeviceMessages, RandomOnesAreUnpackedByOneKernelWhileTheyArrive) {
  exchangeRandomly(Hindrance::kNone, 800, Ahead::kByOneKernel);
}

// Rows of 8 bytes, which the sender packs ahead as long as it is there, and the receiver loads
// itself where it is not.
TEST(DeviceMessages, AReceiverDoesNotDependOnWhatIsPackedAhead) {
  constexpr int64_t kRows = 20000;
  constexpr int64_t kFragments = (8 * kRows + 4095) / 4096;
  enum class Sender { kServes, kLeaves, kFails };
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, aheadOptions(8 * kRows));
    std::byte* const arena = allocate(kArena);
    const Layout rows = *Layout::make({{kRows, 32}}, {{0, 8}});
    fill(arena);
    const ExportId id = job.rank == 0 ? exportedArena(*exchange, arena, 1) : exchange::kNoExport;
    // The first message brings the ring to the receiver.
    int round = 0;
    for (const Sender sender :
         {Sender::kServes, Sender::kServes, Sender::kLeaves, Sender::kFails, Sender::kServes}) {
      const int begun = job.rank == 0 ? device::packsBegun : device::copiesBegun;
      if (job.rank == 0) {
        transferError = sender == Sender::kFails ? adsmErrorAcceleratorMemory : adsmSuccess;
        Sending sending =
            postSent(board, 0, 1,
                     exchange->send(1, arena, shareLayout(rows), {.onDevice = true, .device = id}));
        if (sender == Sender::kLeaves) await(board, 1, 2 * round + 1);
        CHECK_THAT(*sending.wait(kPatience) && sending.path() == Path::kDevice);
        const int packed = sender == Sender::kFails ? 0 : device::packsBegun - begun;
        CHECK_THAT((packed > 0) == (round > 0 && sender != Sender::kFails));
        CHECK_THAT(sender != Sender::kLeaves || packed == 1);
        transferError = adsmSuccess;
      } else {
        std::memset(behind(arena), 0, 8 * kRows);
        Result<Receiving> receiving = exchange->receive(
            0, fetch(board, 0, 1), arena, contiguous(8 * kRows), exchange::Memory::kDevice);
        CHECK_THAT(receiving.ok());
        // (It takes its time, so that the sender is ahead of it.)
        device::asksBeforeOver = 3;
        for (bool done = false; !done;) {
          const Result<bool> now = receiving->advance();
          CHECK_THAT(now.ok());
          done = *now;
          ::usleep(200);
        }
        CHECK_THAT(receiving->path() == Path::kDevice);
        CHECK_THAT(device::copiesBegun - begun == (round > 0 ? kFragments : 1));
        for (std::size_t at = 0; at < 8 * kRows; ++at) {
          CHECK_THAT(behind(arena)[at] == byteAt(at / 8 * 32 + at % 8));
        }
      }
      CHECK_THAT(device::nothingIsLater());
      ++round;
      meetAt(board, 1, 2 * round);
    }
  });
}

// Each sends to the other. The first has copies under way that do not end.
TEST(DeviceMessages, PacksDoNotWaitForTheCopiesOfOtherMessages) {
  constexpr int64_t kRows = 20000;
  constexpr int kPacks = 5;  // of a ring of fragments (Options::aheadFragment)
  runTeam(2, [&](Board& board, const Job& job) {
    const int other = 1 - job.rank;
    const auto exchange = met(board, job, aheadOptions(8 * kRows));
    std::byte* const arena = allocate(kArena);
    std::byte* const target = allocate(8 * kRows);
    const Layout rows = *Layout::make({{kRows, 32}}, {{0, 8}});
    fill(arena);
    const ExportId id = exportedArena(*exchange, arena, other);
    // The first message brings the ring to the receiver.
    for (int round = 0; round < 3; ++round) {
      Result<Sending> sending = exchange->send(other, arena, shareLayout(rows),
                                               {.onDevice = true, .device = id, .mayCopy = true});
      CHECK_THAT(sending.ok());
      device::asksBeforeOver = 1 << 20;
      const auto receive = [&] {
        return exchange->receive(other, fetch(board, other, job.rank), target,
                                 contiguous(8 * kRows), exchange::Memory::kDevice);
      };
      Result<Receiving> receiving = Status(adsmErrorInvalidValue);
      if (job.rank == 0) {
        receiving = receive();
        while (device::laterCopies.size() < (round > 0 ? 2 : 1)) {
          CHECK_THAT(receiving.ok() && !*receiving->advance());
        }
      }
      device::asksBeforeOver = 0;
      const int packed = device::packsBegun;
      post(board, job.rank, other, described(*sending));
      for (int i = 0; i < 10; ++i) CHECK_THAT(!*sending->advance());
      CHECK_THAT(round == 0 || device::packsBegun - packed == kPacks);
      if (job.rank == 1) {
        arrive(board, 1);
        await(board, 2, round + 1);
        receiving = receive();
        CHECK_THAT(receiving.ok());
      } else {
        arrive(board, 2);
        await(board, 1, round + 1);
        for (device::LaterCopy* const copy : device::laterCopies) copy->asks = 0;
      }
      for (bool sent = false, received = false; !sent || !received;) {
        sent = sent || *sending->advance();
        received = received || *receiving->advance();
      }
      CHECK_THAT(device::nothingIsLater());
      for (std::size_t at = 0; at < 8 * kRows; ++at) {
        CHECK_THAT(behind(target)[at] == byteAt(at / 8 * 32 + at % 8));
      }
    }
    meetAt(board, 3, 2);
  });
}

// Its memory is the sender's again, and is spoilt, while the receiver has copies under way.
TEST(DeviceMessages, WhatIsPackedAheadMayBeTakenBackAsACopy) {
  constexpr int64_t kRows = 20000;
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, aheadOptions(8 * kRows));
    std::byte* const arena = allocate(kArena);
    const Layout rows = *Layout::make({{kRows, 32}}, {{0, 8}});
    const ExportId id = job.rank == 0 ? exportedArena(*exchange, arena, 1) : exchange::kNoExport;
    for (int round = 1; round <= 3; ++round) {
      if (job.rank == 0) {
        fill(arena);
        Sending sending =
            postSent(board, 0, 1,
                     exchange->send(1, arena, shareLayout(rows),
                                    {.onDevice = true, .device = id, .mayCopy = true}));
        await(board, 1, round);
        CHECK_THAT(*sending.leaveCopyNow());
        CHECK_THAT(device::nothingIsLater());
        std::memset(behind(arena), 0, kArena);
        arrive(board, 2);
      } else {
        std::memset(behind(arena), 0, 8 * kRows);
        Result<Receiving> receiving = exchange->receive(
            0, fetch(board, 0, 1), arena, contiguous(8 * kRows), exchange::Memory::kDevice);
        CHECK_THAT(receiving.ok());
        device::asksBeforeOver = 1 << 20;
        while (round > 1 && device::laterCopies.size() < 2) {  // the ring is there
          CHECK_THAT(!*receiving->advance());
        }
        arrive(board, 1);
        await(board, 2, round);
        CHECK_THAT(*receiving->wait(kPatience) && receiving->path() == Path::kCopy);
        CHECK_THAT(device::nothingIsLater());
        for (std::size_t at = 0; at < 8 * kRows; ++at) {
          CHECK_THAT(behind(arena)[at] == byteAt(at / 8 * 32 + at % 8));
        }
      }
    }
  });
}

// The receiver has begun with the sender's memory, and finds the copy when the sender has ended.
TEST(DeviceMessages, ACopyOutlivesTheSenderThatHasLeftIt) {
  constexpr int64_t kRows = 2000;
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    const Layout rows = *Layout::make({{kRows, 32}}, {{0, 8}});
    const ExportId id = job.rank == 0 ? exportedArena(*exchange, arena, 1) : exchange::kNoExport;
    if (job.rank == 0) {
      fill(arena);
      Sending sending = postSent(board, 0, 1,
                                 exchange->send(1, arena, shareLayout(rows),
                                                {.onDevice = true, .device = id, .mayCopy = true}));
      await(board, 1, 1);
      CHECK_THAT(*sending.leaveCopyNow());
      return;
    }
    const pid_t sender = team.process(0);
    const auto start = exchange::startOfProcess(sender);
    CHECK_THAT(start.has_value());
    Result<Receiving> receiving = exchange->receive(
        0, fetch(board, 0, 1), arena, contiguous(8 * kRows), exchange::Memory::kDevice);
    CHECK_THAT(receiving.ok());
    device::asksBeforeOver = 1 << 20;
    CHECK_THAT(!*receiving->advance() && device::laterCopies.size() == 1);
    arrive(board, 1);
    while (!exchange::hasEnded(sender, *start)) ::usleep(1000);
    // (So long it does not ask whether the sender lives.)
    ::usleep(300'000);
    CHECK_THAT(*receiving->wait(kPatience) && receiving->path() == Path::kCopy);
    for (std::size_t at = 0; at < 8 * kRows; ++at) {
      CHECK_THAT(behind(arena)[at] == byteAt(at / 8 * 32 + at % 8));
    }
  });
  EXPECT_EQ(team.end(), "");
}

TEST(DeviceMessages, OneCopyOfTheReceiversDeviceIsAll) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    const Layout rows = *Layout::make({{1000, 256}}, {{0, 64}});
    if (job.rank == 0) {
      fill(arena);
      Sending sending = postSent(
          board, 0, 1,
          exchange->send(1, arena, shareLayout(rows),
                         {.onDevice = true, .device = exportedArena(*exchange, arena, 1)}));
      CHECK_THAT(*sending.wait(kPatience) && transfers == 0);
    } else {
      Result<Receiving> receiving = exchange->receive(0, fetch(board, 0, 1), arena,
                                                      contiguous(64000), exchange::Memory::kDevice);
      CHECK_THAT(receiving.ok() && *receiving->advance() && transfers == 1);
      for (std::size_t at = 0; at < 64000; ++at) {
        CHECK_THAT(behind(arena)[at] == byteAt(at / 64 * 256 + at % 64));
      }
    }
  });
}

// A receiver may copy one piece from where it is imported itself; what it has read is worth nothing
// if the sender has left a copy meanwhile, or has taken the message back.
TEST(DeviceMessages, OnePieceMayBeReadWhereItIsImported) {
  constexpr int64_t kBytes = 5000;
  constexpr int64_t kOffset = 64;
  enum Round { kStays, kLeftAsACopy, kTakenBack, kRows, kRounds };
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    fill(arena);
    const ExportId id = job.rank == 0 ? exportedArena(*exchange, arena, 1) : exchange::kNoExport;
    for (int round = 0; round < kRounds; ++round) {
      const int steps = 2 * (round + 1);
      if (job.rank == 0) {
        SendOptions options{.onDevice = true, .device = id, .deviceOffset = kOffset};
        options.mayCopy = true;
        const auto rows = datatype::Layout::make({{kBytes / 8, 16}}, {{0, 8}});
        Sending sending = postSent(
            board, 0, 1,
            exchange->send(1, arena + kOffset,
                           shareLayout(round == kRows ? *rows : contiguous(kBytes)), options));
        meetAt(board, 1, steps);
        if (round == kLeftAsACopy) CHECK_THAT(*sending.leaveCopyNow());
        if (round == kTakenBack) sending = Sending();
        meetAt(board, 2, steps);
        if (round == kStays || round == kRows) CHECK_THAT(*sending.wait(kPatience));
        meetAt(board, 3, steps);
        continue;
      }
      std::memset(behind(arena), 0, kArena);
      Result<Receiving> receiving = exchange->receive(
          0, fetch(board, 0, 1), arena, contiguous(kBytes), exchange::Memory::kDevice);
      CHECK_THAT(receiving.ok() && receiving->packed() == nullptr);
      meetAt(board, 1, steps);
      meetAt(board, 2, steps);
      const std::byte* const from = receiving->packedOnDevice();
      CHECK_THAT((from == nullptr) == (round == kRows));
      if (from != nullptr) std::memcpy(behind(arena), behind(from), kBytes);
      const Result<bool> done = receiving->end();
      if (round == kStays) {
        CHECK_THAT(*done && receiving->packedOnDevice() == nullptr);
      } else if (round == kTakenBack) {
        CHECK_THAT(done.status().code() == adsmErrorInvalidValue);
      } else {
        // A copy is read as ever, and so are rows.
        CHECK_THAT(round == kRows ? !done.ok() : !*done);
        CHECK_THAT(receiving->packedOnDevice() == nullptr || round == kRows);
        std::memset(behind(arena), 0, kArena);
        CHECK_THAT(*receiving->wait(kPatience));
      }
      for (int64_t i = 0; i < kBytes && round != kTakenBack && round != kRows; ++i) {
        CHECK_THAT(behind(arena)[i] == byteAt(static_cast<std::size_t>(kOffset + i)));
      }
      meetAt(board, 3, steps);
    }
  });
}

// Bytes that were copied from memory that was revoked, or from a message that was taken back,
// meanwhile are worth nothing: the receiver is told, and the memory is free when it has let go.
TEST(DeviceMessages, WhatIsRevokedOrTakenBackWhileItIsCopiedFails) {
  for (const bool revoked : {true, false}) {
    Team team(2);
    team.start([&](const Job& job) {
      Board& board = team.board();
      const auto exchange = met(board, job, optionsWith(&kDevice));
      std::byte* const arena = allocate(kArena);
      if (job.rank == 0) {
        fill(arena);
        const ExportId id = exportedArena(*exchange, arena, 1);
        Sending sending = postSent(board, 0, 1,
                                   exchange->send(1, arena, shareLayout(contiguous(100000)),
                                                  {.onDevice = true, .device = id}));
        await(board, 1, 1);  // its device is at it
        CHECK_THAT(!sending.recall());
        if (revoked) {
          CHECK_THAT(!*exchange->revoke(id, milliseconds(20)));
        } else {
          sending = Sending();
        }
        arrive(board, 2);
        if (revoked) {
          CHECK_THAT(sending.wait(kPatience).status().code() == adsmErrorSystem);
          CHECK_THAT(sending.declined());
        }
        CHECK_THAT(*exchange->revoke(id, kPatience));
      } else {
        inTransfer = [&] {
          arrive(board, 1);
          await(board, 2, 1);
        };
        {
          Result<Receiving> receiving = exchange->receive(
              0, fetch(board, 0, 1), arena, contiguous(100000), exchange::Memory::kDevice);
          CHECK_THAT(receiving.ok() && receiving->path() == Path::kDevice);
          CHECK_THAT(receiving->advance().status().code() == adsmErrorInvalidValue);
          CHECK_THAT(saysLast("taken a message of 100000 bytes back"));
        }
        // (An idle import goes when its owner wants it.)
        for (int round = 0; round < 2000 && exchange->statistics().imports != 0; ++round) {
          exchange->sweep();
          ::usleep(1000);
        }
        CHECK_THAT(exchange->statistics().imports == 0);
      }
    });
    EXPECT_EQ(team.end(), "") << revoked;
  }
}

TEST(DeviceMessages, ADeviceThatFailsEndsTheMessageForBoth) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    for (const bool isExported : {true, false}) {
      if (job.rank == 0) {
        SendOptions options{.onDevice = true};
        if (isExported) {
          options.device = exportedArena(*exchange, arena, 1);
        }
        Sending sending = postSent(
            board, 0, 1, exchange->send(1, arena, shareLayout(contiguous(100000)), options));
        CHECK_THAT(sending.wait(kPatience).status().code() == adsmErrorSystem);
        CHECK_THAT(sending.declined());
      } else {
        transferError = adsmErrorAcceleratorLost;
        Result<Receiving> receiving = exchange->receive(
            0, fetch(board, 0, 1), arena, contiguous(100000), exchange::Memory::kDevice);
        CHECK_THAT(receiving.ok());
        const Result<bool> end = receiving->wait(kPatience);
        CHECK_THAT(end.status().code() == adsmErrorAcceleratorLost);
        CHECK_THAT(saysLast("the device has not copied") && saysLast("the device has its reasons"));
      }
    }
    // The sender's own: the receiver is told that it has ended the message.
    meetAt(board, 4, 2);
    transferError = job.rank == 0 ? adsmErrorAcceleratorLost : adsmSuccess;
    if (job.rank == 0) {
      Sending sending =
          postSent(board, 0, 1,
                   exchange->send(1, arena, shareLayout(contiguous(100000)), {.onDevice = true}));
      CHECK_THAT(sending.wait(kPatience).status().code() == adsmErrorAcceleratorLost);
    } else {
      const Description description = fetch(board, 0, 1);
      Result<Receiving> receiving =
          exchange->receive(0, description, arena, contiguous(100000), exchange::Memory::kDevice);
      CHECK_THAT(!receiving.ok() || !receiving->wait(kPatience).ok());
    }
  });
}

TEST(DeviceMessages, WhatCannotBeIsRefused) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(job.rank == 0 ? &kDevice : &kOldDevice));
    std::byte* const arena = allocate(kArena);
    const auto refused = [&](const SendOptions& options) {
      const Result<Sending> sending =
          exchange->send(1 - job.rank, arena, shareLayout(contiguous(9)), options);
      return sending.status().code();
    };
    if (job.rank == 1) {
      CHECK_THAT(refused({.onDevice = true}) == adsmErrorNotSupported);
      CHECK_THAT(saysLast("no device of this process copies messages"));
      const Description description = fetch(board, 0, 1);
      std::vector<std::byte> plain(9);
      CHECK_THAT(exchange->receive(0, description, arena, contiguous(9), exchange::Memory::kDevice)
                     .status()
                     .code() == adsmErrorNotSupported);
      // (It is there still.)
      Result<Receiving> receiving = exchange->receive(0, description, plain.data(), contiguous(9));
      CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
    } else {
      const ExportId id = exportedArena(*exchange, arena, 1);
      CHECK_THAT(refused({.onDevice = true, .path = Path::kDevice}) == adsmErrorInvalidValue);
      CHECK_THAT(refused({.onDevice = true, .path = Path::kRead}) == adsmErrorInvalidValue);
      CHECK_THAT(refused({.file = id, .onDevice = true}) == adsmErrorInvalidValue);
      CHECK_THAT(refused({.device = id}) == adsmErrorInvalidValue);
      CHECK_THAT(refused({.device = id, .path = Path::kDevice}) == adsmErrorInvalidValue);
      Sending sending = postSent(
          board, 0, 1,
          exchange->send(1, arena, shareLayout(contiguous(9)), {.onDevice = true, .device = id}));
      CHECK_THAT(*sending.wait(kPatience) && sending.path() == Path::kRing);
    }
  });
}

// Whatever a sender says, a receiver's device reads no byte beside the export.
TEST(DeviceMessages, AMessageBesideItsExportIsRefused) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = met(board, job, optionsWith(&kDevice));
    std::byte* const arena = allocate(kArena);
    const std::int64_t offsets[] = {-1, static_cast<int64_t>(kArena) - 99, INT64_MAX - 5};
    if (job.rank == 0) {
      const ExportId id = exportedArena(*exchange, arena, 1);
      // And one in a file, which is no device's.
      const int file = ::memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      CHECK_THAT(::ftruncate(file, kArena) == 0);
      const Result<ExportId> other = exchange->exportFile(file, 0, kArena);
      CHECK_THAT(other.ok() && exchange->offer(*other, 1).ok());
      for (std::size_t message = 0; message < std::size(offsets) + 1; ++message) {
        const bool inFile = message == std::size(offsets);
        Sending sending = postSent(board, 0, 1,
                                   exchange->send(1, arena, shareLayout(contiguous(100)),
                                                  {.onDevice = true,
                                                   .device = inFile ? *other : id,
                                                   .deviceOffset = inFile ? 0 : offsets[message]}));
        CHECK_THAT(sending.wait(kPatience).status().code() == adsmErrorSystem);
      }
    } else {
      for (std::size_t message = 0; message < std::size(offsets) + 1; ++message) {
        const Result<Receiving> receiving = exchange->receive(
            0, fetch(board, 0, 1), arena, contiguous(100), exchange::Memory::kDevice);
        CHECK_THAT(receiving.status().code() == adsmErrorInvalidValue);
        CHECK_THAT(saysLast("does not lie in its export"));
      }
      CHECK_THAT(transfers == 0);
    }
  });
}

}  // namespace
}  // namespace gmac::testing
