// SPDX-License-Identifier: Apache-2.0
//
// Messages that are copied once: random layouts on both sides by every path, against a copy byte by
// byte; paths that are refused; and processes that are killed or stopped in between.
#include "exchange/transfer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "tests/exchange/random_layout.h"
#include "tests/exchange/team.h"
#include "tests/support/seed.h"

namespace {

// The result of reads of other processes' memory: 0, they are made; else their error.
int readError = 0;
bool readsPart = false;
int reads = 0;

}  // namespace

// In place of libc's, in this program.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long hereCount,
                                    const iovec* there, unsigned long thereCount,
                                    unsigned long flags) noexcept {
  ++reads;
  if (readError != 0) {
    errno = readError;
    return -1;
  }
  return ::syscall(SYS_process_vm_readv, process, here, hereCount, there,
                   readsPart ? thereCount - 1 : thereCount, flags);
}

namespace gmac::testing {
namespace {

using datatype::Layout;
using exchange::Exchange;
using exchange::ExportId;
using exchange::Job;
using exchange::LayoutExchange;
using exchange::Options;
using exchange::Path;
using exchange::Receiving;
using exchange::Sending;
using exchange::SendOptions;
using exchange::shareLayout;
using std::int64_t;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{20000};
constexpr std::size_t kArena = std::size_t{8} << 20;

// A message that both sides make up from the same numbers.
struct Message {
  RandomLayout from;
  RandomLayout to;
  int64_t base;
  int64_t step;  // of advance()
  SendOptions options;
  bool receivedShared;  // by a layout that is shared
};

Message messageOf(std::mt19937_64& random, long number) {
  Message message;
  const std::int64_t most = number % 200 == 0 ? 400000 : number % 20 == 0 ? 40000 : 1200;
  const std::int64_t about = 1 + static_cast<int64_t>(random() % static_cast<std::uint64_t>(most));
  do {
    message.from = randomLayout(random, about);
  } while (message.from.span > static_cast<int64_t>(kArena) / 2);
  do {
    message.to = randomLayout(random, message.from.layout.bytes() + about / 8 + 1);
  } while (message.to.layout.bytes() < message.from.layout.bytes());
  if (random() % 8 == 0) {
    message.to = message.from;
  }
  message.base = static_cast<int64_t>(
      random() % static_cast<std::uint64_t>(static_cast<int64_t>(kArena) - message.from.span));
  message.step = random() % 2 == 0
                     ? std::numeric_limits<int64_t>::max()
                     : 1 + static_cast<int64_t>(random() % static_cast<std::uint64_t>(most));
  if (const auto path = random() % 4; path < 3) {
    message.options.path = static_cast<Path>(path);
  }
  message.options.fragmentBytes = std::size_t{4096} << random() % 5;
  message.options.fragments = 1 + random() % 4;
  message.options.layouts = static_cast<LayoutExchange>(random() % 3);
  // (Each part may take the processor from one process to the other.)
  message.options.layoutPartBytes = 100 + random() % 600;
  message.receivedShared = random() % 2 == 0;
  return message;
}

Result<Sending> sent(Exchange& exchange, int rank, const Arena& arena, ExportId file,
                     Message message) {
  if (message.options.path == Path::kMapped) {
    message.options.file = file;
    message.options.fileOffset = message.base;
  }
  return exchange.send(rank, arena.data() + message.base, shareLayout(message.from.layout),
                       message.options);
}

// Receives it step by step, and compares all of the memory around.
void receiveAndCheck(Exchange& exchange, int sender, const Description& description,
                     const Arena& arena, const Message& message) {
  std::vector<std::byte> target(static_cast<std::size_t>(message.to.span) + 64, std::byte{0xa5});
  std::vector<std::byte> expected = target;
  const int64_t bytes = message.from.layout.bytes();
  for (std::size_t at = 0; at < static_cast<std::size_t>(bytes); ++at) {
    expected[32 + static_cast<std::size_t>(message.to.offsets[at])] =
        arena.data()[message.base + message.from.offsets[at]];
  }
  CHECK_THAT(Exchange::bytesOf(description) == bytes);
  std::byte* const base = target.data() + 32;
  Result<Receiving> receiving =
      message.receivedShared
          ? exchange.receive(sender, description, base, shareLayout(message.to.layout))
          : exchange.receive(sender, description, base, message.to.layout);
  CHECK_THAT(receiving.ok() && receiving->bytes() == bytes);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (bool done = false; !done;) {
    const Result<bool> now = receiving->advance(message.step);
    CHECK_THAT(now.ok() && std::chrono::steady_clock::now() < end);
    done = *now;
    if (!done && (receiving->path() == Path::kRing ||
                  message.options.layouts == LayoutExchange::kPipelined)) {
      ::sched_yield();
    }
  }
  CHECK_THAT(target == expected);
}

// How a receiver is hindered.
enum class Hindrance { kNone, kReadsAreRefused, kReadsFail, kReadsArePartial, kImportsAreRefused };

void exchangeRandomly(Hindrance hindrance, long steps, std::uint64_t first = seedOr(1)) {
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const Arena arena(kArena);
    std::mt19937_64 random(first);
    std::mt19937_64 own(first);  // of what the other side does not know
    Options options{.hostBytes = std::size_t{4} << 20, .copyBytes = std::size_t{4} << 20};
    options.maxLayouts = 20;
    options.maxImports = 1;
    const auto exchange = met(board, job, options);
    const int other = 1 - job.rank;
    // Each imports from the other.
    const Result<ExportId> file = exchange->exportFile(arena.file(), 0, kArena);
    CHECK_THAT(file.ok() && exchange->offer(*file, other).ok());
    board.numbers[job.rank] = static_cast<long>(*file);
    meetAt(board, 1, 2);
    exchange::Imported only;
    if (hindrance == Hindrance::kImportsAreRefused) {
      // The one import that there may be is in use, of a file that no message lies in.
      const Arena unused(kArena);
      const Result<ExportId> held = exchange->exportFile(unused.file(), 0, kArena);
      CHECK_THAT(held.ok() && exchange->offer(*held, other).ok());
      board.numbers[4 + job.rank] = static_cast<long>(*held);
      meetAt(board, 2, 2);
      Result<exchange::Imported> got =
          exchange->import(other, static_cast<ExportId>(board.numbers[4 + other].load()));
      CHECK_THAT(got.ok());
      only = std::move(*got);
    }
    readError = hindrance == Hindrance::kReadsAreRefused ? EPERM
                : hindrance == Hindrance::kReadsFail     ? EFAULT
                                                         : 0;
    readsPart = hindrance == Hindrance::kReadsArePartial;
    reads = 0;  // (meet() has read)
    std::deque<Sending> under;
    const auto push = [&] {
      for (Sending& sending : under) {
        CHECK_THAT(sending.advance().ok());
      }
      while (!under.empty() && *under.front().advance()) {
        under.pop_front();
      }
    };
    // Where nothing else can be done: the other process may share this core.
    const auto pushAndYield = [&] {
      push();
      ::sched_yield();
    };
    for (long step = 0; step < steps; ++step) {
      Message message = messageOf(random, step);
      message.options.mayCopy = step % 5 <= 1;
      // In turns of 32 messages, so that several are under way.
      if (step / 32 % 2 == job.rank) {
        Result<Sending> sending = sent(*exchange, other, arena, *file, message);
        while (!sending.ok()) {
          CHECK_THAT(sending.status().code() == adsmErrorHostMemory);
          pushAndYield();
          sending = sent(*exchange, other, arena, *file, message);
        }
        under.push_back(std::move(*sending));
        const Description description = described(under.back());
        if (step % 5 == 0) {
          const Result<bool> copied = under.back().leaveCopy();
          CHECK_THAT(copied.ok() && *copied);
          CHECK_THAT(*under.back().advance() && !*under.back().leaveCopy());
        }
        while (full(board, job.rank, other)) {
          pushAndYield();
        }
        post(board, job.rank, other, description);
        if (step % 5 == 1) {
          // Begun or not.
          for (auto i = own() % 3000; i > 0; --i) {
            push();
          }
          CHECK_THAT(under.empty() || under.back().leaveCopyNow().ok());
        }
        push();
      } else {
        while (!posted(board, other, job.rank)) {
          pushAndYield();
        }
        // (The other waits for nothing but this.)
        while (!under.empty()) {
          pushAndYield();
        }
        receiveAndCheck(*exchange, other, fetch(board, other, job.rank), arena, message);
      }
    }
    while (!under.empty()) {
      pushAndYield();
    }
    const exchange::Statistics statistics = exchange->statistics();
    const auto received = [&](Path path) {
      return statistics.paths[static_cast<int>(path)].received.parcels;
    };
    CHECK_THAT(received(Path::kRing) > 0 && received(Path::kCopy) > 0);
    CHECK_THAT((received(Path::kMapped) > 0) == (hindrance != Hindrance::kImportsAreRefused));
    CHECK_THAT((received(Path::kRead) > 0) ==
               (hindrance == Hindrance::kNone || hindrance == Hindrance::kImportsAreRefused));
    CHECK_THAT(hindrance != Hindrance::kReadsAreRefused || reads == 1);  // it is asked once
    CHECK_THAT(statistics.layoutHits + statistics.layoutMisses > 0);
    meetAt(board, 3, 2);
    // All room has come back.
    CHECK_THAT(exchange
                   ->reserve(other, (std::size_t{4} << 20) - (std::size_t{3} << 20),
                             exchange::Memory::kHost)
                   .ok());
  });
  EXPECT_EQ(team.end(), "") << "GMAC_TEST_SEED=" << first << " GMAC_TEST_STEPS=" << steps;
}

TEST(Transfers, RandomMessagesArriveByEveryPath) {
  constexpr std::uint64_t kParts = 5;
  for (std::uint64_t part = 0; part < kParts; ++part) {
    exchangeRandomly(Hindrance::kNone, stepsOr(20000), seedOr(1) + part);
  }
}

TEST(Transfers, WhatCannotBeReadOrMappedIsPacked) {
  for (const Hindrance hindrance : {Hindrance::kReadsAreRefused, Hindrance::kReadsFail,
                                    Hindrance::kReadsArePartial, Hindrance::kImportsAreRefused}) {
    exchangeRandomly(hindrance, stepsOr(4000));
  }
}

Layout contiguous(int64_t bytes) { return *Layout::make({}, {{0, bytes}}); }

TEST(Transfers, ThePathFollowsTheLayout) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    if (job.rank == 0) {
      const auto pathOf = [&](const Layout& layout, const SendOptions& options = {}) {
        Result<Sending> sending = exchange->send(1, arena.data(), shareLayout(layout), options);
        CHECK_THAT(sending.ok());
        return sending->path();
      };
      CHECK_THAT(pathOf(contiguous(1 << 20)) == Path::kRead);
      CHECK_THAT(pathOf(contiguous(1000)) == Path::kRing);
      CHECK_THAT(pathOf(*Layout::make({{100, 16384}}, {{0, 8192}})) == Path::kRead);
      CHECK_THAT(pathOf(*Layout::make({{10000, 256}}, {{0, 128}})) == Path::kRing);
      const Result<ExportId> file = exchange->exportFile(arena.file(), 0, kArena);
      CHECK_THAT(file.ok());
      CHECK_THAT(pathOf(contiguous(1000), {.file = *file, .path = {}}) == Path::kMapped);
      const auto refused = [&](SendOptions options) {
        return exchange->send(1, arena.data(), shareLayout(contiguous(9)), options).status().code();
      };
      CHECK_THAT(refused({.path = Path::kMapped}) == adsmErrorInvalidValue);
      CHECK_THAT(refused({.path = {}, .fragmentBytes = 100}) == adsmErrorInvalidValue);
      CHECK_THAT(refused({.path = {}, .fragmentBytes = 0}) == adsmErrorInvalidValue);
      CHECK_THAT(refused({.path = {}, .fragments = 0}) == adsmErrorInvalidValue);
      CHECK_THAT(!exchange->send(0, arena.data(), shareLayout(contiguous(9))).ok());
      CHECK_THAT(refused({.path = {}, .fragmentBytes = std::size_t{1} << 40}) ==
                 adsmErrorHostMemory);
    }
    meetAt(board, 1, 2);
  });
}

// So that it is packed while the receiver unpacks, and not before.
// Doubles at growing distances, which take 8 bytes each, and 24.
Layout growing(int64_t count) {
  std::vector<datatype::Block> blocks;
  for (int64_t i = 0; i < count; ++i) {
    blocks.push_back({8 * i * (i + 3), 8});
  }
  return *Layout::make({}, blocks);
}

TEST(Transfers, LayoutsAreKeptUnlessTheyAreExchangedNaively) {
  constexpr std::array kHow = {LayoutExchange::kNaive, LayoutExchange::kPipelined,
                               LayoutExchange::kMemoised};
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    const Layout layout = growing(200);
    const Layout other = growing(201);
    std::vector<std::byte> target(static_cast<std::size_t>(other.bounds().last));
    // Known, read: after three messages of each.
    constexpr std::array<std::pair<std::uint64_t, std::uint64_t>, 3> kCounts = {
        {{0, 0}, {0, 0}, {2, 1}}};
    for (std::size_t how = 0; how < kHow.size(); ++how) {
      for (int i = 0; i < 3; ++i) {
        if (job.rank == 0) {
          SendOptions options;
          options.path = Path::kRead;
          options.layouts = kHow[how];
          options.layoutPartBytes = 100;
          Sending sending =
              postSent(board, 0, 1, exchange->send(1, arena.data(), shareLayout(layout), options));
          CHECK_THAT(*sending.wait(kPatience));
        } else {
          Result<Receiving> receiving =
              exchange->receive(0, fetch(board, 0, 1), target.data(), other);
          CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
        }
      }
      const exchange::Statistics statistics = exchange->statistics();
      CHECK_THAT(job.rank == 0 || statistics.layoutHits == kCounts[how].first);
      CHECK_THAT(job.rank == 0 || statistics.layoutMisses == kCounts[how].second);
    }
    for (const datatype::Block& block : layout.blocks()) {
      CHECK_THAT(job.rank == 0 || std::equal(target.data() + block.offset,
                                             target.data() + block.offset + block.bytes,
                                             arena.data() + block.offset));
    }
  });
}

TEST(Transfers, ALayoutThatTheReceiverHasTooIsNotRead) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    Options options;
    options.maxLayouts = 0;  // nothing is kept either
    const auto exchange = met(board, job, options);
    for (int i = 0; i < 2; ++i) {
      const exchange::SharedLayoutPtr layout = shareLayout(growing(200));
      if (job.rank == 0) {
        Sending sending = postSent(board, 0, 1, exchange->send(1, arena.data(), layout));
        CHECK_THAT(*sending.wait(kPatience));
      } else {
        std::vector<std::byte> target(static_cast<std::size_t>(layout->layout.bounds().last));
        Result<Receiving> receiving =
            exchange->receive(0, fetch(board, 0, 1), target.data(), layout);
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
        const exchange::Statistics statistics = exchange->statistics();
        CHECK_THAT(statistics.layoutMisses == 0 && statistics.layoutHits > 0);
      }
    }
  });
}

// By a receiver that takes it as another type.
TEST(Transfers, ALayoutOfATypeThatAllHaveMadeIsNotRead) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    const Layout element = growing(50);
    const int64_t extent = element.bounds().last + 8;
    exchange->knowType(std::make_shared<const Layout>(element), extent);
    for (const int64_t count : {1, 3}) {
      const Layout layout = *element.repeated(count, extent);
      if (job.rank == 0) {
        Sending sending =
            postSent(board, 0, 1, exchange->send(1, arena.data(), shareLayout(layout)));
        CHECK_THAT(*sending.wait(kPatience));
      } else {
        std::vector<std::byte> target(static_cast<std::size_t>(layout.bytes()));
        Result<Receiving> receiving =
            exchange->receive(0, fetch(board, 0, 1), target.data(), contiguous(layout.bytes()));
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
        const std::byte* packed = target.data();
        for (const datatype::Block& block : layout.blocks()) {
          CHECK_THAT(std::equal(packed, packed + block.bytes, arena.data() + block.offset));
          packed += block.bytes;
        }
        const exchange::Statistics statistics = exchange->statistics();
        CHECK_THAT(statistics.layoutMisses == 0 && statistics.layoutHits > 0);
      }
    }
    exchange->forgetType(element, extent);
  });
}

TEST(Transfers, ALayoutInPartsNeedsItsSenderUntilAllIsThere) {
  for (const bool ends : {false, true}) {
    Team team(2);
    team.start([&](const Job& job) {
      Board& board = team.board();
      const Arena arena(kArena);
      const auto exchange = met(board, job, {});
      const Layout layout = growing(200);
      if (job.rank == 0) {
        SendOptions options;
        options.path = Path::kRead;
        options.layouts = LayoutExchange::kPipelined;
        // The header, and one offset.
        options.layoutPartBytes = 32;
        Sending sending =
            postSent(board, 0, 1, exchange->send(1, arena.data(), shareLayout(layout), options));
        await(board, 1, 1);
        if (ends) {
          ::_exit(0);
        }
        CHECK_THAT(*sending.wait(kPatience));
      } else {
        std::vector<std::byte> target(static_cast<std::size_t>(layout.bounds().last));
        Result<Receiving> receiving =
            exchange->receive(0, fetch(board, 0, 1), target.data(), layout);
        CHECK_THAT(receiving.ok());
        for (int i = 0; i < 100; ++i) {
          CHECK_THAT(!*receiving->advance());
        }
        CHECK_THAT(std::equal(target.begin(), target.begin() + 8, arena.data()));
        arrive(board, 1);
        const Result<bool> all = receiving->wait(kPatience);
        CHECK_THAT(ends ? all.status().code() == adsmErrorSystem : all.ok() && *all);
        for (const datatype::Block& block : layout.blocks()) {
          CHECK_THAT(ends || std::equal(target.data() + block.offset,
                                        target.data() + block.offset + block.bytes,
                                        arena.data() + block.offset));
        }
      }
    });
    EXPECT_EQ(team.end(), "") << ends;
  }
}

TEST(Transfers, AMessageOfTheRingBeginsWithOneFragment) {
  runTeam(2, [&](Board& board, const Job& job) {
    constexpr std::size_t kFragment = 4096;
    constexpr std::size_t kAll = 3 * kFragment;
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    if (job.rank == 0) {
      Sending sending = postSent(
          board, 0, 1,
          exchange->send(
              1, arena.data(), shareLayout(contiguous(kAll)),
              {.path = Path::kRing, .fragmentBytes = kFragment, .fragments = 4, .mayCopy = true}));
      await(board, 1, 1);
      CHECK_THAT(*sending.wait(kPatience));
    } else {
      std::vector<std::byte> target(kAll);
      Result<Receiving> receiving =
          exchange->receive(0, fetch(board, 0, 1), target.data(), contiguous(kAll));
      CHECK_THAT(receiving.ok());
      for (int i = 0; i < 10; ++i) {
        CHECK_THAT(!*receiving->advance());
      }
      CHECK_THAT(std::memcmp(target.data(), arena.data(), kFragment) == 0);
      CHECK_THAT(std::count(target.begin() + kFragment, target.end(), std::byte{0}) ==
                 kAll - kFragment);
      arrive(board, 1);
      CHECK_THAT(*receiving->wait(kPatience));
      CHECK_THAT(std::memcmp(target.data(), arena.data(), kAll) == 0);
    }
  });
}

// Whether the receiver has not begun, has begun, or takes it where it lies: the sender uses its
// memory for something else at once. More of them than there can be at a time.
TEST(Transfers, AMessageWhoseRingHoldsAllIsOverForItsSenderWhenItIsPacked) {
  runTeam(2, [&](Board& board, const Job& job) {
    enum Receiver { kLate, kLateInPlace, kBegun, kBegunInPlace, kRecalled, kCopied };
    constexpr int kReceivers = 6;
    constexpr int kRounds = 540;
    constexpr int64_t kBytes = 20'000;
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    int meetings = 0;
    const auto meetAgain = [&] { meetAt(board, 1, 2 * ++meetings); };
    for (int round = 0; round < kRounds; ++round) {
      const auto how = static_cast<Receiver>(round % kReceivers);
      const bool begins = how == kBegun || how == kBegunInPlace;
      if (job.rank == 0) {
        std::vector<std::byte> source(arena.data(), arena.data() + 3 * kBytes);
        const auto strided = Layout::make({{kBytes / 8, 24}}, {{0, 8}});
        Sending sending = postSent(board, 0, 1,
                                   exchange->send(1, source.data(), shareLayout(*strided),
                                                  {.path = Path::kRing,
                                                   .fragmentBytes = 4096,
                                                   .fragments = 5,
                                                   .mayCopy = true,
                                                   .leavesRing = true}));
        if (begins) meetAgain();
        CHECK_THAT(how == kCopied ? *sending.leaveCopy() : *sending.advance());
        CHECK_THAT(*sending.advance() && sending.path() == Path::kRing);
        std::memset(source.data(), 0, source.size());
        CHECK_THAT(how == kRecalled ? sending.recall() : !begins || !sending.recall());
        meetAgain();
        meetAgain();  // it has all
        continue;
      }
      std::vector<std::byte> target(kBytes);
      while (!posted(board, 0, 1)) {
        ::sched_yield();
      }
      const auto receive = [&] {
        return exchange->receive(0, fetch(board, 0, 1), target.data(), contiguous(kBytes));
      };
      Result<Receiving> receiving = begins ? receive() : Result<Receiving>(Receiving());
      if (begins) {
        CHECK_THAT(receiving.ok() && receiving->isBeingPacked() && receiving->packed() == nullptr);
        CHECK_THAT(!*receiving->advance(how == kBegun ? kBytes : 0));
        meetAgain();
      }
      meetAgain();
      CHECK_THAT(!exchange->anyWaits());
      if (!begins) receiving = receive();
      CHECK_THAT(receiving.ok() == (how != kRecalled));
      if (how == kLateInPlace || how == kBegunInPlace) {
        CHECK_THAT(!receiving->isBeingPacked() && receiving->packed() != nullptr);
        std::memcpy(target.data(), receiving->packed(), kBytes);
        CHECK_THAT(*receiving->end());
      } else if (how != kRecalled) {
        CHECK_THAT(*receiving->wait(kPatience));
      }
      for (int64_t i = 0; i < kBytes && how != kRecalled; ++i) {
        CHECK_THAT(target[static_cast<std::size_t>(i)] == arena.data()[i / 8 * 24 + i % 8]);
      }
      meetAgain();
    }
  });
}

// The last fragments of a longer message are left, too.
TEST(Transfers, TheRestOfAMessageThatIsInItsRingIsLeftToTheReceiver) {
  runTeam(2, [&](Board& board, const Job& job) {
    constexpr int64_t kFragment = 4096;
    constexpr int64_t kBytes = 10 * kFragment;
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    if (job.rank == 0) {
      std::vector<std::byte> source(arena.data(), arena.data() + kBytes);
      Sending sending = postSent(board, 0, 1,
                                 exchange->send(1, source.data(), shareLayout(contiguous(kBytes)),
                                                {.path = Path::kRing,
                                                 .fragmentBytes = kFragment,
                                                 .fragments = 4,
                                                 .leavesRing = true}));
      CHECK_THAT(!*sending.advance());
      arrive(board, 1);
      CHECK_THAT(*sending.wait(kPatience) && !sending.recall());
      std::memset(source.data(), 0, source.size());
      arrive(board, 2);
      await(board, 3, 1);
    } else {
      std::vector<std::byte> target(kBytes);
      await(board, 1, 1);
      Result<Receiving> receiving =
          exchange->receive(0, fetch(board, 0, 1), target.data(), contiguous(kBytes));
      CHECK_THAT(receiving.ok());
      CHECK_THAT(!*receiving->advance(4 * kFragment) && !receiving->isBeingPacked());
      for (int64_t left = 2 * kFragment; left > 0;) {
        const std::vector<std::byte> before(target.begin(), target.end());
        CHECK_THAT(!*receiving->advance(kFragment));
        left -= target != before ? kFragment : 0;
      }
      await(board, 2, 1);
      CHECK_THAT(*receiving->wait(kPatience));
      CHECK_THAT(std::memcmp(target.data(), arena.data(), kBytes) == 0);
      arrive(board, 3);
    }
  });
}

// The receiver has begun, the sender leaves a copy and uses its memory for something else.
TEST(Transfers, ACopyMayBeLeftToAReceiverThatHasBegun) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    constexpr int64_t kBytes = 1 << 20;
    const auto exchange = met(board, job, {});
    const Result<ExportId> file = exchange->exportFile(arena.file(), 0, kArena);
    CHECK_THAT(file.ok());
    std::size_t phase = 1;
    const auto meetAgain = [&] {
      arrive(board, phase);
      await(board, phase++, 2);
    };
    for (const Path path : {Path::kMapped, Path::kRead, Path::kRing}) {
      for (const bool inPlace : {false, true}) {
        if (inPlace && path != Path::kMapped) {
          continue;
        }
        if (job.rank == 0) {
          const Arena fresh(kArena);
          const Result<ExportId> own = exchange->exportFile(fresh.file(), 0, kArena);
          CHECK_THAT(own.ok());
          SendOptions options{.path = path, .mayCopy = true};
          options.file = path == Path::kMapped ? *own : exchange::kNoExport;
          Sending sending =
              postSent(board, 0, 1,
                       exchange->send(1, fresh.data(), shareLayout(contiguous(kBytes)), options));
          meetAgain();  // the receiver has read a part, or all
          CHECK_THAT(!*sending.leaveCopy());
          CHECK_THAT(*sending.leaveCopyNow());
          CHECK_THAT(*sending.advance() && sending.path() == Path::kCopy);
          CHECK_THAT(!*sending.leaveCopyNow() && !sending.recall());
          std::memset(fresh.data(), 0, kArena);
          CHECK_THAT(exchange->revoke(*own).ok());
          meetAgain();
          meetAgain();  // it has all
        } else {
          std::vector<std::byte> target(kBytes);
          Result<Receiving> receiving =
              exchange->receive(0, fetch(board, 0, 1), target.data(), contiguous(kBytes));
          CHECK_THAT(receiving.ok());
          if (inPlace) {
            CHECK_THAT(receiving->packed() != nullptr);
            std::memcpy(target.data(), receiving->packed(), kBytes);
          } else {
            CHECK_THAT(!*receiving->advance(100'000));
          }
          meetAgain();
          meetAgain();
          if (inPlace) {
            const Result<bool> first = receiving->end();
            CHECK_THAT(first.ok() && !*first && receiving->packed() != nullptr);
            std::memcpy(target.data(), receiving->packed(), kBytes);
            CHECK_THAT(*receiving->end() && receiving->packed() == nullptr);
          } else {
            const Result<bool> done = receiving->wait(kPatience);
            CHECK_THAT(done.ok() && *done);
          }
          CHECK_THAT(receiving->path() == Path::kCopy);
          CHECK_THAT(std::memcmp(target.data(), arena.data(), kBytes) == 0);
          meetAgain();
        }
      }
    }
    // All room has come back.
    if (job.rank == 0) {
      CHECK_THAT(exchange->reserve(1, std::size_t{255} << 20, exchange::Memory::kHost).ok());
    }
  });
}

// The receiver ends, or gives up, after the copy was left.
TEST(Transfers, WhatWasLeftToAReceiverThatGivesUpComesBack) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    constexpr int64_t kBytes = 1 << 20;
    const auto exchange =
        met(board, job, {.hostBytes = std::size_t{4} << 20, .copyBytes = std::size_t{4} << 20});
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t phase = 1 + 3 * i;
      if (job.rank == 0) {
        Sending sending = postSent(board, 0, 1,
                                   exchange->send(1, arena.data(), shareLayout(contiguous(kBytes)),
                                                  {.path = Path::kRead, .mayCopy = true}));
        meetAt(board, phase, 2);
        CHECK_THAT(*sending.leaveCopyNow());
        meetAt(board, phase + 1, 2);
      } else {
        std::vector<std::byte> target(kBytes);
        Result<Receiving> receiving =
            exchange->receive(0, fetch(board, 0, 1), target.data(), contiguous(kBytes));
        CHECK_THAT(receiving.ok() && !*receiving->advance(1000));
        meetAt(board, phase, 2);
        meetAt(board, phase + 1, 2);
        // (It gives up.)
      }
      meetAt(board, phase + 2, 2);
    }
  });
}

// Bytes of memory that the process's own file of the exchange has.
int64_t pagesOfExchange() {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat status {};
    if (target.starts_with("/memfd:gmac-exchange") && ::stat(entry.path().c_str(), &status) == 0) {
      bytes += int64_t{status.st_blocks} * 512;
    }
  }
  return bytes;
}

// As many messages as there are records may have a copy left, whatever the room for payloads is.
// The pages beyond that room go back to the system.
TEST(Transfers, CopiesNeedNoRoomForPayloadsAndKeepFewPages) {
  constexpr int64_t kRoom = 2 << 20;
  constexpr int64_t kBytes = 900'000;
  constexpr int kMessages = 30;
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kBytes + kMessages * 16);
    const auto exchange = met(board, job, {.hostBytes = kRoom});
    std::vector<std::byte> target(kBytes);
    const int64_t before = pagesOfExchange();
    for (std::size_t round = 0; round < 4; ++round) {
      std::vector<Sending> all;
      for (int i = 0; i < kMessages; ++i) {
        const std::byte* const from = arena.data() + 16 * i;
        if (job.rank == 0) {
          Result<Sending> sending = exchange->send(
              1, from, shareLayout(contiguous(kBytes)),
              {.path = Path::kRead, .fragmentBytes = 4096, .fragments = 1, .mayCopy = true});
          CHECK_THAT(sending.ok());
          all.push_back(std::move(*sending));
          post(board, 0, 1, described(all.back()));
          CHECK_THAT(*all.back().leaveCopy());
        }
        if (job.rank == 1 && i == 0) await(board, 1 + 2 * round, 1);
        if (job.rank == 1) {
          Result<Receiving> receiving =
              exchange->receive(0, fetch(board, 0, 1), target.data(), contiguous(kBytes));
          CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
          CHECK_THAT(std::memcmp(target.data(), from, kBytes) == 0);
        }
      }
      if (job.rank == 0) {
        CHECK_THAT(pagesOfExchange() > before + kMessages * kBytes - kRoom);
        arrive(board, 1 + 2 * round);
        await(board, 2 + 2 * round, 1);
        exchange->sweep();
        CHECK_THAT(pagesOfExchange() <= before + 2 * kRoom);
      } else {
        arrive(board, 2 + 2 * round);
      }
    }
  });
}

// Where it has none, a message is not begun that may have to be left as one.
TEST(Transfers, AMessageThatMayBeCopiedIsNotBegunWithoutRoomForThat) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange =
        met(board, job, {.hostBytes = std::size_t{4} << 20, .copyBytes = 2 << 20});
    const auto send = [&](bool mayCopy) {
      return exchange->send(1 - job.rank, arena.data(), shareLayout(contiguous(1'500'000)),
                            {.path = Path::kRead, .mayCopy = mayCopy});
    };
    Result<Sending> first = send(true);
    CHECK_THAT(first.ok());
    CHECK_THAT(send(true).status().code() == adsmErrorHostMemory && saysLast("2097152"));
    CHECK_THAT(send(false).ok());
    *first = Sending();
    CHECK_THAT(send(true).ok());
  });
}

TEST(Transfers, ADescriptionIsGoodForOneMessage) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    if (job.rank == 0) {
      Result<Sending> sending =
          exchange->send(1, arena.data(), shareLayout(contiguous(100000)), {.path = Path::kRing});
      CHECK_THAT(sending.ok() && !sending->recall());
      post(board, 0, 1, described(*sending));
      CHECK_THAT(*sending->wait(kPatience) && *sending->advance() && !sending->recall());
      // One that is taken back.
      Result<Sending> second = exchange->send(1, arena.data(), shareLayout(contiguous(9)));
      CHECK_THAT(second.ok());
      const Description description = described(*second);
      CHECK_THAT(second->recall());
      post(board, 0, 1, description);
      // And one that the receiver gives up.
      Sending third = postSent(
          board, 0, 1,
          exchange->send(1, arena.data(), shareLayout(contiguous(1000000)), {.path = Path::kRing}));
      CHECK_THAT(third.wait(kPatience).status().code() == adsmErrorSystem);
      CHECK_THAT(saysLast("has given up") && !third.advance().ok());
      arrive(board, 1);
    } else {
      std::vector<std::byte> target(1000000);
      const Description good = fetch(board, 0, 1);
      const auto receive = [&](const Description& description, int64_t room, int sender = 0) {
        return exchange->receive(sender, description, target.data(), contiguous(room));
      };
      CHECK_THAT(!receive(good, 99999).ok() && saysLast("longer than"));
      CHECK_THAT(!receive(good, 100000, 1).ok());
      for (std::size_t at = 0; at < good.size(); ++at) {
        for (unsigned bit = 0; bit < 8; ++bit) {
          Description forged = good;
          forged[at] ^= static_cast<std::byte>(1U << bit);
          CHECK_THAT(!receive(forged, 1000000).ok());
        }
      }
      Result<Receiving> receiving = receive(good, 1000000);
      CHECK_THAT(receiving.ok() && !receive(good, 1000000).ok());
      CHECK_THAT(*receiving->wait(kPatience) && *receiving->advance());
      CHECK_THAT(std::memcmp(target.data(), arena.data(), 100000) == 0);
      CHECK_THAT(!receive(good, 1000000).ok());
      CHECK_THAT(!receive(fetch(board, 0, 1), 1000000).ok());
      receiving = receive(fetch(board, 0, 1), 1000000);
      CHECK_THAT(receiving.ok() && !*receiving->advance(5000));
      *receiving = Receiving();
      await(board, 1, 1);
    }
  });
}

// From the description on, until it is received, taken back, left as a copy, or dropped.
TEST(Transfers, AReceiverKnowsWhoWaitsForIt) {
  runTeam(3, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job, {});
    constexpr int64_t kBytes = 100000;
    constexpr std::size_t kEnds = 4;
    std::vector<std::byte> target(kBytes);
    for (std::size_t way = 0; way < kEnds; ++way) {
      const std::size_t phase = 1 + 4 * way;
      Result<Sending> sending = Sending();
      if (job.rank == 0) {
        sending = exchange->send(1, arena.data(), shareLayout(contiguous(kBytes)),
                                 {.path = Path::kRead, .mayCopy = true});
        CHECK_THAT(sending.ok());
        post(board, 0, 1, described(*sending));
      }
      meetAt(board, phase, 3);
      const bool isReceiver = job.rank == 1;
      CHECK_THAT(exchange->anyWaits() == isReceiver && exchange->waits(0) == isReceiver);
      CHECK_THAT(!exchange->waits(2) && !exchange->waits(1));
      meetAt(board, phase + 1, 3);
      const Description description = isReceiver ? fetch(board, 0, 1) : Description();
      Result<Receiving> receiving = Receiving();
      if (way == 0 && isReceiver) {
        receiving = exchange->receive(0, description, target.data(), contiguous(kBytes));
        CHECK_THAT(receiving.ok());
      } else if (way == 1 && job.rank == 0) {
        CHECK_THAT(sending->recall());
      } else if (way == 2 && job.rank == 0) {
        CHECK_THAT(*sending->leaveCopy());
      } else if (way == 3 && job.rank == 0) {
        *sending = Sending();
      }
      meetAt(board, phase + 2, 3);
      CHECK_THAT(!exchange->anyWaits() && !exchange->waits(0));
      if (way == 0 && isReceiver) {
        CHECK_THAT(*receiving->wait(kPatience));
      } else if (way == 2 && isReceiver) {
        receiving = exchange->receive(0, description, target.data(), contiguous(kBytes));
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience) && !exchange->anyWaits());
      }
      meetAt(board, phase + 3, 3);
    }
  });
}

// ---- Processes that end, or stop, in between.

enum Phase { kDescribed, kBegun, kHalf, kPhases };

struct Case {
  bool senderIsVictim;
  bool killed;
  Path path;
  Phase phase;
};

// Whoever is left is told in time, and has all its room back.
void disturbed(const Case& how) {
  Team team(3);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const Arena arena(kArena);
    Options options{.hostBytes = std::size_t{2} << 20};
    const auto exchange = met(board, job, options);
    std::vector<std::byte> target(1000000);
    const auto stopHere = [&](Phase phase, bool sender) {
      if (phase == how.phase && sender == how.senderIsVictim) {
        arrive(board, 1);
        ::raise(how.killed ? SIGKILL : SIGSTOP);
        return true;
      }
      return false;
    };
    const milliseconds limit = how.killed ? kPatience : milliseconds(50);
    if (job.rank == 0) {
      const Result<ExportId> file = exchange->exportFile(arena.file(), 0, kArena);
      Sending sending =
          postSent(board, 0, 1,
                   exchange->send(1, arena.data(), shareLayout(contiguous(1000000)),
                                  {.file = how.path == Path::kMapped ? *file : exchange::kNoExport,
                                   .path = how.path,
                                   .fragmentBytes = 4096}));
      bool stopped = stopHere(kDescribed, true);
      if (how.senderIsVictim && how.phase != kDescribed) {
        await(board, 2, 1);  // it has begun
        (void)sending.advance();
        stopped = stopHere(how.phase, true);
      }
      const Result<bool> end = sending.wait(stopped ? kPatience : limit);
      if (how.senderIsVictim) {
        // The receiver has gone on, or has given up.
        CHECK_THAT((end.ok() && *end) || end.status().code() == adsmErrorSystem);
      } else if (how.killed) {
        CHECK_THAT(end.status().code() == adsmErrorSystem && saysLast("has ended"));
      } else {
        CHECK_THAT(end.ok() && !*end);
      }
      sending = Sending();  // taken back
      arrive(board, 3);
      if (!how.senderIsVictim) {
        if (!how.killed) {
          await(board, 4, 1);  // the receiver has seen that
        }
        // The ring is free again: these need all the room.
        for (int round = 0; round < 5; ++round) {
          Sending next = postSent(
              board, 0, 2,
              exchange->send(
                  2, arena.data(), shareLayout(contiguous(2000000)),
                  {.path = Path::kRing, .fragmentBytes = std::size_t{1} << 20, .fragments = 2}));
          CHECK_THAT(*next.wait(kPatience));
        }
      }
    } else if (job.rank == 1) {
      const Description description = fetch(board, 0, 1);
      bool stopped = stopHere(kDescribed, false);
      if (how.senderIsVictim && how.phase == kDescribed) {
        await(board, 5, 1);  // the sender is gone, or stopped
      }
      Result<Receiving> receiving =
          exchange->receive(0, description, target.data(), contiguous(1000000));
      if (stopped) {
        CHECK_THAT(!receiving.ok());  // it was taken back meanwhile
        arrive(board, 4);
        return;
      }
      CHECK_THAT(receiving.ok());
      stopped = stopHere(kBegun, false);
      if (how.phase == kHalf || how.senderIsVictim) {
        (void)receiving->advance(10000);
        arrive(board, 2);
        stopped = stopHere(kHalf, false) || stopped;
        if (how.senderIsVictim) {
          await(board, 5, 1);
        }
      }
      const Result<bool> end = receiving->wait(stopped ? kPatience : limit);
      if (stopped) {
        CHECK_THAT(end.status().code() == adsmErrorInvalidValue && saysLast("taken a message"));
        CHECK_THAT(!receiving->advance().ok());
      } else if (how.path == Path::kMapped) {
        CHECK_THAT(end.ok() && *end);  // the file lives longer than its owner
      } else if (how.killed) {
        CHECK_THAT(end.status().code() == adsmErrorSystem && saysLast("has ended"));
      } else {
        // A stopped process can be read.
        CHECK_THAT(end.ok() && *end == (how.path == Path::kRead));
      }
      *receiving = Receiving();
      arrive(board, 4);
      // It is usable.
      Sending next = postSent(
          board, 1, 2,
          exchange->send(2, arena.data(), shareLayout(contiguous(500000)), {.path = Path::kRing}));
      CHECK_THAT(*next.wait(kPatience));
    } else {
      const int sender = how.senderIsVictim ? 1 : 0;
      const int64_t bytes = how.senderIsVictim ? 500000 : 2000000;
      std::vector<std::byte> all(2000000);
      for (int round = 0; round < (how.senderIsVictim ? 1 : 5); ++round) {
        Result<Receiving> receiving =
            exchange->receive(sender, fetch(board, sender, 2), all.data(), contiguous(bytes));
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
        CHECK_THAT(std::memcmp(all.data(), arena.data(), static_cast<std::size_t>(bytes)) == 0);
      }
      if (!how.senderIsVictim && !how.killed && how.phase != kDescribed) {
        Result<Receiving> receiving =
            exchange->receive(1, fetch(board, 1, 2), all.data(), contiguous(500000));
        CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
      }
    }
  });
  Board& board = team.board();
  await(board, 1, 1);
  const int victim = how.senderIsVictim ? 0 : 1;
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(team.process(victim)), &info, WEXITED | WSTOPPED | WNOWAIT);
  if (how.killed) {
    EXPECT_EQ(team.endOf(victim), -SIGKILL);
  }
  arrive(board, 5);
  if (!how.killed) {
    await(board, how.senderIsVictim ? 4 : 3, 1);  // the other has had enough
    ::kill(team.process(victim), SIGCONT);
  }
  EXPECT_EQ(team.end(), "");
}

TEST(Transfers, SurviveProcessesThatEndOrStop) {
  for (const bool senderIsVictim : {false, true}) {
    for (const bool killed : {false, true}) {
      for (const Path path : {Path::kMapped, Path::kRead, Path::kRing}) {
        for (int phase = 0; phase < kPhases; ++phase) {
          SCOPED_TRACE(std::string(senderIsVictim ? "sender " : "receiver ") +
                       (killed ? "killed" : "stopped") + ", by " + exchange::pathName(path) +
                       ", phase " + std::to_string(phase));
          disturbed({senderIsVictim, killed, path, static_cast<Phase>(phase)});
          if (HasFailure()) {
            return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gmac::testing
