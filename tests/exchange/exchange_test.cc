// SPDX-License-Identifier: Apache-2.0
//
// Payloads between processes: what arrives, who is reached, and what is refused.
#include "exchange/exchange.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "exchange/handshake.h"
#include "exchange/shared_file.h"
#include "gmac/base/log.h"
#include "gmac/base/status.h"
#include "tests/exchange/open_descriptors.h"
#include "tests/exchange/team.h"
#include "tests/support/seed.h"

namespace {

// Who this process says that it is; -1: the truth.
int pretendedUser = -1;

}  // namespace

// In place of libc's, in this program.
extern "C" uid_t geteuid() noexcept {
  return pretendedUser >= 0 ? static_cast<uid_t>(pretendedUser)
                            : static_cast<uid_t>(::syscall(SYS_geteuid));
}

namespace gmac::testing {
namespace {

using exchange::Delivery;
using exchange::Exchange;
using exchange::Job;
using exchange::Memory;
using exchange::Options;
using exchange::Parcel;
using Bytes = std::array<std::byte, exchange::kDescriptionBytes>;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t residentPages() {
  std::size_t all = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

std::unique_ptr<Exchange> opened(const Job& job, const Options& options = {}) {
  Result<std::unique_ptr<Exchange>> made = Exchange::open(job, options);
  CHECK_THAT(made.ok());
  return std::move(*made);
}

// Of the board's steps: every process has opened, as after MPI_Init.
constexpr int kOpened = 0;

// An exchange that has met all others of the team.
std::unique_ptr<Exchange> metAll(Board& board, const Job& job, const Options& options = {}) {
  std::unique_ptr<Exchange> made = opened(job, options);
  meetAt(board, kOpened, job.size);
  made->meet(job.rank, job.size);
  for (int rank = 0; rank < job.size; ++rank) {
    CHECK_THAT(made->reaches(rank) == (rank != job.rank));
  }
  return made;
}

void fill(std::byte* data, std::size_t bytes, unsigned seed) {
  for (std::size_t at = 0; at < bytes; ++at) {
    data[at] = static_cast<std::byte>(seed + at * 7 + (at >> 8));
  }
}

bool filled(const std::byte* data, std::size_t bytes, unsigned seed) {
  for (std::size_t at = 0; at < bytes; ++at) {
    if (data[at] != static_cast<std::byte>(seed + at * 7 + (at >> 8))) {
      return false;
    }
  }
  return true;
}

Bytes described(Parcel& parcel) {
  Bytes description;
  parcel.describe(description);
  return description;
}

// Sends one payload.
Bytes lay(Exchange& from, int receiver, std::size_t bytes, unsigned seed) {
  Result<Parcel> parcel = from.reserve(receiver, bytes, Memory::kHost);
  CHECK_THAT(parcel.ok());
  fill(parcel->data(), bytes, seed);
  return described(*parcel);
}

TEST(Exchange, PayloadsArriveBetweenAllPairs) {
  runTeam(4, [&](Board& board, const Job& job) {
    const auto exchange = metAll(board, job);
    for (int other = 0; other < job.size; ++other) {
      if (other != job.rank) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kMiB + 5}) {
          post(board, job.rank, other,
               lay(*exchange, other, bytes, static_cast<unsigned>(job.rank * 10 + other)));
        }
      }
    }
    for (int other = 0; other < job.size; ++other) {
      if (other != job.rank) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kMiB + 5}) {
          Result<Delivery> delivery = exchange->collect(other, fetch(board, other, job.rank));
          CHECK_THAT(delivery.ok());
          CHECK_THAT(delivery->bytes() == bytes && delivery->memory() == Memory::kHost);
          CHECK_THAT(filled(delivery->data(), bytes, static_cast<unsigned>(other * 10 + job.rank)));
        }
      }
    }
    const exchange::Statistics statistics = exchange->statistics();
    CHECK_THAT(statistics.peers == 3);
    CHECK_THAT(statistics.sent[0].parcels == 9 && statistics.sent[0].bytes == 3 * (kMiB + 6));
    CHECK_THAT(statistics.collected[0].parcels == 9);
    CHECK_THAT(statistics.collected[0].bytes == 3 * (kMiB + 6));
  });
}

TEST(Exchange, RoomIsUsedAgainAndNeverMoreThanThereIs) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = metAll(board, job, {.hostBytes = 4 * kMiB});
    if (job.rank == 0) {
      CHECK_THAT(!exchange->reserve(1, 4 * kMiB + 1, Memory::kHost).ok());
      CHECK_THAT(saysLast("4194305 bytes are more than the 4194304"));
      for (unsigned round = 0; round < 3; ++round) {
        for (unsigned part = 0; part < 4; ++part) {
          post(board, 0, 1, lay(*exchange, 1, kMiB, round * 4 + part));
        }
        Result<Parcel> more = exchange->reserve(1, 1, Memory::kHost);
        CHECK_THAT(!more.ok() && more.status().code() == adsmErrorHostMemory);
        CHECK_THAT(saysLast("4194304 of 4194304 bytes are in use, by 4 payloads"));
        arrive(board, 1);
        await(board, 2, static_cast<int>(round) + 1);
      }
      // A parcel that nobody has described is free when it is destroyed.
      for (int round = 0; round < 3; ++round) {
        CHECK_THAT(exchange->reserve(1, 4 * kMiB, Memory::kHost).ok());
      }
      CHECK_THAT(exchange->statistics().refused == 4);
      CHECK_THAT(exchange->statistics().sent[0].parcels == 12);
    } else {
      for (unsigned round = 0; round < 3; ++round) {
        await(board, 1, static_cast<int>(round) + 1);
        std::vector<Delivery> deliveries;
        for (unsigned part = 0; part < 4; ++part) {
          Result<Delivery> delivery = exchange->collect(0, fetch(board, 0, 1));
          CHECK_THAT(delivery.ok());
          deliveries.push_back(std::move(*delivery));
        }
        for (unsigned part = 0; part < 4; ++part) {
          CHECK_THAT(filled(deliveries[part].data(), kMiB, round * 4 + part));
        }
        deliveries.clear();
        arrive(board, 2);
      }
    }
  });
}

TEST(Exchange, WhatIsNoDescriptionIsRefused) {
  runTeam(3, [&](Board& board, const Job& job) {
    const auto exchange = metAll(board, job);
    if (job.rank == 0) {
      for (int part = 0; part < 3; ++part) {
        post(board, 0, 1, lay(*exchange, 1, 1000, 1));
      }
      post(board, 0, 2, lay(*exchange, 1, 1000, 1));  // not for that one
      await(board, 1, 2);
      return;
    }
    if (job.rank == 2) {
      const Bytes others = fetch(board, 0, 2);
      CHECK_THAT(!exchange->collect(0, others).ok() && saysLast("it is for another rank"));
      post(board, 2, 1, others);
      arrive(board, 1);
      return;
    }
    const Bytes good = fetch(board, 0, 1);
    CHECK_THAT(!exchange->collect(2, good).ok() && saysLast("it is another process's"));
    CHECK_THAT(!exchange->collect(1, good).ok() && saysLast("rank 1 is not reached from rank 1"));
    CHECK_THAT(!exchange->collect(-1, good).ok() && !exchange->collect(3, good).ok());
    CHECK_THAT(!exchange->collect(0, Bytes{}).ok() && saysLast("it is none"));
    // Whatever is changed in it, it is refused, and the payload is there still.
    for (std::size_t at = 0; at < good.size(); ++at) {
      for (const unsigned bit : {0U, 5U, 7U}) {
        Bytes forged = good;
        forged[at] ^= static_cast<std::byte>(1U << bit);
        const Result<Delivery> delivery = exchange->collect(0, forged);
        CHECK_THAT(!delivery.ok() && delivery.status().code() == adsmErrorInvalidValue);
        CHECK_THAT(saysLast("exchange: a description from rank 0 is refused: "));
      }
    }
    {
      const Result<Delivery> delivery = exchange->collect(0, good);
      CHECK_THAT(delivery.ok() && filled(delivery->data(), 1000, 1));
      CHECK_THAT(!exchange->collect(0, good).ok() && saysLast("collected or recalled before"));
    }
    CHECK_THAT(!exchange->collect(0, good).ok() && saysLast("collected or recalled before"));
    CHECK_THAT(exchange->collect(0, fetch(board, 2, 1)).ok());
    CHECK_THAT(exchange->statistics().collected[0].parcels == 2);
    arrive(board, 1);
  });
}

TEST(Exchange, ADescribedParcelCanBeRecalledUntilItIsCollected) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = metAll(board, job, {.hostBytes = 2 * kMiB});
    if (job.rank == 0) {
      Result<Parcel> first = exchange->reserve(1, 2 * kMiB, Memory::kHost);
      CHECK_THAT(first.ok() && !first->recall());
      const Bytes stale = described(*first);
      CHECK_THAT(first->recall() && !*first && !first->recall());
      CHECK_THAT(exchange->statistics().sent[0].parcels == 0);
      Result<Parcel> second = exchange->reserve(1, 2 * kMiB, Memory::kHost);
      CHECK_THAT(second.ok());
      fill(second->data(), 2 * kMiB, 9);
      post(board, 0, 1, stale);
      post(board, 0, 1, described(*second));
      await(board, 1, 1);
      CHECK_THAT(!second->recall());
      arrive(board, 2);
      await(board, 1, 2);
      CHECK_THAT(!second->recall() && exchange->reserve(1, 2 * kMiB, Memory::kHost).ok());
    } else {
      CHECK_THAT(!exchange->collect(0, fetch(board, 0, 1)).ok());
      Result<Delivery> delivery = exchange->collect(0, fetch(board, 0, 1));
      CHECK_THAT(delivery.ok());
      arrive(board, 1);
      await(board, 2, 1);
      CHECK_THAT(filled(delivery->data(), 2 * kMiB, 9));
      *delivery = Delivery();
      arrive(board, 1);
    }
  });
}

// Parcels and deliveries may outlive their exchange, and deliveries their sender's process.
TEST(Exchange, PayloadsOutliveTheirExchange) {
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    auto exchange = metAll(board, job);
    if (job.rank == 0) {
      Result<Parcel> kept = exchange->reserve(1, kMiB, Memory::kHost);
      CHECK_THAT(kept.ok());
      post(board, 0, 1, lay(*exchange, 1, kMiB, 1));
      fill(kept->data(), kMiB, 2);
      exchange->close();
      CHECK_THAT(!exchange->reaches(1) && !exchange->reserve(1, 1, Memory::kHost).ok());
      exchange.reset();
      post(board, 0, 1, described(*kept));
      return;
    }
    await(board, 1, 1);
    for (const unsigned seed : {1U, 2U}) {
      Result<Delivery> delivery = exchange->collect(0, fetch(board, 0, 1));
      CHECK_THAT(delivery.ok());
      if (seed == 2) {
        exchange.reset();
      }
      CHECK_THAT(filled(delivery->data(), kMiB, seed));
    }
  });
  EXPECT_EQ(team.endOf(0), 0);
  arrive(team.board(), 1);
  EXPECT_EQ(team.end(), "");
}

TEST(Exchange, WhoHasNotOpenedIsNotWaitedFor) {
  runTeam(3, [&](Board& board, const Job& job) {
    if (job.rank == 1) {
      arrive(board, kOpened);
      return;
    }
    const auto exchange = opened(job);
    meetAt(board, kOpened, job.size);
    exchange->meet(job.rank, job.size, std::chrono::hours(1));
    CHECK_THAT(exchange->reaches(2 - job.rank) && !exchange->reaches(1));
    CHECK_THAT(exchange->statistics().peers == 1);
  });
}

TEST(Exchange, AProcessWhoseRankIsAnotherRemainsAlone) {
  runTeam(3, [&](Board& board, const Job& job) {
    const auto exchange = opened(job);
    meetAt(board, kOpened, job.size);
    // As in a job that was started in a process of another one.
    exchange->meet(job.rank == 1 ? 0 : job.rank, job.size, std::chrono::hours(1));
    for (int other = 0; other < job.size; ++other) {
      CHECK_THAT(exchange->reaches(other) == (job.rank != 1 && other == 2 - job.rank));
    }
  });
}

TEST(Exchange, ARankIsTakenOnce) {
  Job job{"test taken " + std::to_string(::getpid()), 0, 2};
  const Result<std::unique_ptr<Exchange>> first = Exchange::open(job);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(Exchange::open(job).ok());
  EXPECT_TRUE(saysLast("another process has that name")) << lastErrorText();
  job.rank = 2;
  EXPECT_FALSE(Exchange::open(job).ok());
  EXPECT_TRUE(saysLast("rank 2 of 2")) << lastErrorText();
}

// At times they come in time for each other, at times one is late; they always agree.
TEST(Exchange, BothAnswersAreTheSameHoweverLateOneIs) {
  int together = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    Team team(2);
    team.start([&](const Job& job) {
      Board& board = team.board();
      logThreshold = LogLevel::kOff;
      const auto exchange = opened(job);
      meetAt(board, kOpened, job.size);
      ::usleep(static_cast<unsigned>(job.rank == round % 2 ? round * 37 % 4000 : 0));
      exchange->meet(job.rank, job.size, std::chrono::milliseconds(round % 4));
      board.numbers[job.rank] = exchange->reaches(1 - job.rank) ? 1 : 0;
    });
    EXPECT_EQ(team.end(), "");
    EXPECT_EQ(team.board().numbers[0], team.board().numbers[1]) << "round " << round;
    together += static_cast<int>(team.board().numbers[0]);
  }
  RecordProperty("together", together);
}

TEST(Exchange, AChildOfForkHasNoPartInIt) {
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = metAll(board, job);
    Result<Parcel> parcel = exchange->reserve(1 - job.rank, kMiB, Memory::kHost);
    Result<Parcel> kept = exchange->reserve(1 - job.rank, kMiB, Memory::kHost);
    CHECK_THAT(parcel.ok() && kept.ok());
    fill(parcel->data(), kMiB, 1);
    fill(kept->data(), kMiB, 2);
    post(board, job.rank, 1 - job.rank, described(*parcel));
    const Bytes description = fetch(board, 1 - job.rank, job.rank);
    Result<Delivery> delivery = exchange->collect(1 - job.rank, description);
    CHECK_THAT(delivery.ok());
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      CHECK_THAT(exchange->reserve(1 - job.rank, 1, Memory::kHost).status().code() ==
                 adsmErrorForked);
      CHECK_THAT(exchange->collect(1 - job.rank, description).status().code() == adsmErrorForked);
      CHECK_THAT(!parcel->recall());
      for (const std::byte* const data :
           std::initializer_list<const std::byte*>{kept->data(), delivery->data()}) {
        CHECK_THAT(::msync(const_cast<std::byte*>(data), 4096, MS_ASYNC) != 0 && errno == ENOMEM);
      }
      Bytes nothing = description;
      kept->describe(nothing);
      CHECK_THAT(nothing == Bytes{});
      *kept = Parcel();
      *parcel = Parcel();
      *delivery = Delivery();
      const_cast<std::unique_ptr<Exchange>&>(exchange).reset();
      ::_exit(0);
    }
    int status = 0;
    CHECK_THAT(::waitpid(child, &status, 0) == child && status == 0);
    // All is as it was.
    CHECK_THAT(filled(delivery->data(), kMiB, static_cast<unsigned>(1)));
    post(board, job.rank, 1 - job.rank, described(*kept));
    const Result<Delivery> second =
        exchange->collect(1 - job.rank, fetch(board, 1 - job.rank, job.rank));
    CHECK_THAT(second.ok() && filled(second->data(), kMiB, 2));
  });
}

TEST(Exchange, DescriptorsAreAboveTheStandardOnesAndClosedAtExec) {
  // (What is moved from the numbers of standard streams gets its flags anew.)
  for (const bool closeStandard : {false, true}) {
    runTeam(3, [&](Board& board, const Job& job) {
      const int errors = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
      for (int fd = 0; closeStandard && fd <= STDERR_FILENO; ++fd) {
        ::close(fd);
      }
      const std::set<int> before = openDescriptors();
      {
        const auto exchange = opened(job);
        meetAt(board, kOpened, job.size);
        const auto opens = [&](std::size_t many) {
          const std::set<int> now = openDescriptors();
          return now.size() == before.size() + many &&
                 std::all_of(now.begin(), now.end(), [&](int fd) {
                   return before.count(fd) != 0 ||
                          (fd > STDERR_FILENO && (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
                 });
        };
        const bool two = opens(2);
        exchange->meet(job.rank, job.size);
        const bool good = two && opens(1 + 2);  // a channel to each
        ::dup2(errors, STDERR_FILENO);
        CHECK_THAT(good && exchange->statistics().peers == 2);
        if (closeStandard) {
          ::close(STDERR_FILENO);
        }
      }
      const bool same = openDescriptors() == before;
      ::dup2(errors, STDERR_FILENO);
      CHECK_THAT(same);
    });
  }
}

// Room that a killed process had not freed, or not collected, is used again.
TEST(Exchange, TheRoomOfAProcessThatHasEndedIsUsedAgain) {
  Team team(3);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const auto exchange = metAll(board, job, {.hostBytes = 4 * kMiB});
    if (job.rank == 1) {
      Result<Delivery> delivery = exchange->collect(0, fetch(board, 0, 1));
      CHECK_THAT(delivery.ok());
      arrive(board, 1);
      ::pause();
    } else if (job.rank == 2) {
      Result<Delivery> delivery = exchange->collect(0, fetch(board, 0, 2));
      await(board, 3, 1);
      CHECK_THAT(filled(delivery->data(), kMiB, 3));
    } else {
      post(board, 0, 1, lay(*exchange, 1, kMiB, 1));
      (void)lay(*exchange, 1, kMiB, 2);
      post(board, 0, 2, lay(*exchange, 2, kMiB, 3));
      await(board, 2, 1);  // rank 1 is no more
      Result<Parcel> parcel = exchange->reserve(2, 2 * kMiB, Memory::kHost);
      CHECK_THAT(parcel.ok());
      std::memset(parcel->data(), 0, 2 * kMiB);
      CHECK_THAT(exchange->statistics().reclaimed == 2);
      // Rank 2's is not.
      CHECK_THAT(!exchange->reserve(2, kMiB + 1, Memory::kHost).ok());
      arrive(board, 3);
    }
  });
  await(team.board(), 1, 1);
  ::kill(team.process(1), SIGKILL);
  EXPECT_EQ(team.endOf(1), -SIGKILL);
  arrive(team.board(), 2);
  EXPECT_EQ(team.end(), "");
}

// A receiver that is stopped holds what it has, and no more.
TEST(Exchange, AStoppedReceiverKeepsItsPayloads) {
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const auto exchange = metAll(board, job, {.hostBytes = 2 * kMiB});
    if (job.rank == 1) {
      Result<Delivery> delivery = exchange->collect(0, fetch(board, 0, 1));
      CHECK_THAT(delivery.ok());
      arrive(board, 1);
      await(board, 2, 1);
      CHECK_THAT(filled(delivery->data(), kMiB, 5));
      return;
    }
    post(board, 0, 1, lay(*exchange, 1, kMiB, 5));
    await(board, 3, 1);  // rank 1 is stopped
    for (int round = 0; round < 100; ++round) {
      CHECK_THAT(!exchange->reserve(1, kMiB + 1, Memory::kHost).ok());
      Result<Parcel> parcel = exchange->reserve(1, kMiB, Memory::kHost);
      CHECK_THAT(parcel.ok());
      std::memset(parcel->data(), round, kMiB);
    }
    CHECK_THAT(exchange->statistics().reclaimed == 0);
    arrive(board, 2);
  });
  await(team.board(), 1, 1);
  ::kill(team.process(1), SIGSTOP);
  int status = 0;
  EXPECT_EQ(::waitpid(team.process(1), &status, WUNTRACED), team.process(1));
  arrive(team.board(), 3);
  EXPECT_EQ(team.endOf(0), 0);
  ::kill(team.process(1), SIGCONT);
  EXPECT_EQ(team.end(), "");
}

// Another user can listen under the name of a rank, and call others as one; neither is believed.
TEST(Exchange, AnotherUserIsNeitherHeardNorCalled) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  runTeam(3, [&](Board& board, const Job& job) {
    const int lines = ::memfd_create("lines", 0);
    const int errors = ::dup(STDERR_FILENO);
    if (job.rank == 1) {
      CHECK_THAT(::seteuid(65534) == 0);
      pretendedUser = 0;
    }
    const auto exchange = opened(job);
    meetAt(board, kOpened, job.size);
    ::dup2(lines, STDERR_FILENO);
    exchange->meet(job.rank, job.size, std::chrono::hours(1));
    ::dup2(errors, STDERR_FILENO);
    for (int other = 0; other < job.size; ++other) {
      CHECK_THAT(exchange->reaches(other) == (job.rank != 1 && other == 2 - job.rank));
    }
    if (job.rank != 1) {
      std::array<char, 4096> text{};
      CHECK_THAT(::pread(lines, text.data(), text.size() - 1, 0) > 0);
      CHECK_THAT(std::strstr(text.data(), "the socket of rank 1 is another user's") != nullptr);
    }
  });
}

// Another user can call as a rank that is there itself, and come first.
TEST(Exchange, AnotherUserIsNotTakenForARank) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  Team team(3);
  team.start([&](const Job& all) {
    Board& board = team.board();
    Job job = all;
    job.size = 2;
    if (all.rank == 2) {
      await(board, 1, 2);
      job.rank = 1;
      CHECK_THAT(::seteuid(65534) == 0);
      pretendedUser = 0;
      Result<exchange::SharedFile> file = exchange::SharedFile::create(2, 2 * kMiB);
      CHECK_THAT(file.ok());
      const exchange::Nonce nonce{1, 2};
      exchange::Handshake handshake(job, exchange::Listener(), *file, nonce);
      handshake.run(std::chrono::milliseconds(10));  // what it says waits at rank 0's socket
      CHECK_THAT(!handshake.take(0).has_value());
      arrive(board, kOpened);
      await(board, 2, 2);
      return;
    }
    const auto exchange = opened(job);
    arrive(board, 1);
    meetAt(board, kOpened, 3);
    exchange->meet(job.rank, job.size, std::chrono::hours(1));
    CHECK_THAT(exchange->reaches(1 - job.rank));
    arrive(board, 2);
  });
  EXPECT_EQ(team.end(), "");
}

TEST(Exchange, ManyPayloadsLeaveNothingBehind) {
  const long steps = stepsOr(100000);
  runTeam(2, [&](Board& board, const Job& job) {
    const auto exchange = metAll(board, job, {.hostBytes = 8 * kMiB});
    [[maybe_unused]] std::size_t pages = 0;
    std::size_t descriptors = 0;
    for (long step = 0; step < steps; ++step) {
      if (step == steps / 10) {
        pages = residentPages();
        descriptors = openDescriptors().size();
      }
      const std::size_t bytes = static_cast<std::size_t>(step * 7919 % 200000);
      if (job.rank == 0) {
        Result<Parcel> parcel = exchange->reserve(1, bytes, Memory::kHost);
        CHECK_THAT(parcel.ok());
        std::memcpy(parcel->data(), &step, std::min(bytes, sizeof step));
        post(board, 0, 1, described(*parcel));
      } else {
        const Result<Delivery> delivery = exchange->collect(0, fetch(board, 0, 1));
        CHECK_THAT(delivery.ok() && delivery->bytes() == bytes);
        CHECK_THAT(std::memcmp(delivery->data(), &step, std::min(bytes, sizeof step)) == 0);
      }
    }
    CHECK_THAT(openDescriptors().size() == descriptors);
#ifndef GMAC_SANITIZED  // a sanitizer keeps freed memory
    // All of the payloads' memory may have come since.
    CHECK_THAT(residentPages() <= pages + 8 * kMiB / 4096 + 64);
#endif
  });
}

// Any sizes, to anybody, kept for any time.
TEST(Exchange, RandomPayloadsArriveWhole) {
  const long steps = stepsOr(10000);
  const auto seed = static_cast<unsigned>(seedOr(static_cast<std::uint64_t>(::getpid())));
  SCOPED_TRACE("GMAC_TEST_SEED=" + std::to_string(seed));
  constexpr int kSize = 4;
  Team team(kSize);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const auto exchange = metAll(board, job, {.hostBytes = 6 * kMiB});
    std::mt19937 random(seed + static_cast<unsigned>(job.rank));
    struct Kept {
      Delivery delivery;
      unsigned seed;
    };
    std::vector<Kept> deliveries;
    std::vector<std::pair<int, Parcel>> parcels;
    long sent = 0;
    int finished = 0;
    unsigned pattern = static_cast<unsigned>(job.rank) * 1000;
    std::array<bool, kSize> over{};
    std::array<bool, kSize> told{};
    // Who fills pages of a payload with its pattern puts the pattern in front as well.
    const auto collect = [&](int other) {
      const Bytes description = fetch(board, other, job.rank);
      if (description == Bytes{}) {
        over[static_cast<std::size_t>(other)] = true;
        ++finished;
        return;
      }
      Result<Delivery> delivery = exchange->collect(other, description);
      CHECK_THAT(delivery.ok() && delivery->bytes() >= sizeof(unsigned));
      unsigned number = 0;
      std::memcpy(&number, delivery->data(), sizeof number);
      deliveries.push_back({std::move(*delivery), number});
    };
    const auto check = [&](const Kept& kept) {
      CHECK_THAT(filled(kept.delivery.data() + sizeof kept.seed,
                        kept.delivery.bytes() - sizeof kept.seed, kept.seed));
    };
    while (finished < kSize - 1 || sent < steps) {
      const int other = static_cast<int>(random() % kSize);
      const unsigned action = random() % 8;
      if (other != job.rank && action < 3 && sent < steps) {
        const std::size_t bytes =
            sizeof(unsigned) + random() % (random() % 16 == 0 ? 2 * kMiB : std::size_t{20000});
        Result<Parcel> parcel = exchange->reserve(other, bytes, Memory::kHost);
        if (parcel.ok()) {
          ++sent;
          ++pattern;
          std::memcpy(parcel->data(), &pattern, sizeof pattern);
          fill(parcel->data() + sizeof pattern, bytes - sizeof pattern, pattern);
          parcels.emplace_back(other, std::move(*parcel));
        } else {
          CHECK_THAT(parcel.status().code() == adsmErrorHostMemory);
        }
      }
      // Of what is written, some is sent, some thrown away, some recalled; in any order.
      if (!parcels.empty() && (action == 3 || action == 4 || sent == steps)) {
        std::swap(parcels[random() % parcels.size()], parcels.back());
        auto [receiver, parcel] = std::move(parcels.back());
        parcels.pop_back();
        const unsigned way = random() % 10;
        if (way == 1) {
          (void)described(parcel);
          CHECK_THAT(parcel.recall());
        } else if (way != 0) {
          if (full(board, job.rank, receiver)) {
            parcels.emplace_back(receiver, std::move(parcel));
          } else {
            post(board, job.rank, receiver, described(parcel));
          }
        }
      }
      if (sent == steps && parcels.empty()) {
        for (int peer = 0; peer < kSize; ++peer) {
          bool& done = told[static_cast<std::size_t>(peer)];
          if (peer != job.rank && !done && !full(board, job.rank, peer)) {
            post(board, job.rank, peer, Bytes{});
            done = true;
          }
        }
      }
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer != job.rank && !over[static_cast<std::size_t>(peer)] &&
            posted(board, peer, job.rank)) {
          collect(peer);
        }
      }
      if (!deliveries.empty() && (action > 5 || deliveries.size() > 10)) {
        std::swap(deliveries[random() % deliveries.size()], deliveries.back());
        check(deliveries.back());
        deliveries.pop_back();
      }
    }
    while (std::find(told.begin(), told.end(), true) == told.end() ||
           std::count(told.begin(), told.end(), true) < kSize - 1) {
      for (int peer = 0; peer < kSize; ++peer) {
        bool& done = told[static_cast<std::size_t>(peer)];
        if (peer != job.rank && !done && !full(board, job.rank, peer)) {
          post(board, job.rank, peer, Bytes{});
          done = true;
        }
      }
    }
    for (const Kept& kept : deliveries) {
      check(kept);
    }
  });
  EXPECT_EQ(team.end(), "") << "GMAC_TEST_SEED=" << seed;
}

}  // namespace
}  // namespace gmac::testing
