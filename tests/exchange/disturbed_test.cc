// SPDX-License-Identifier: Apache-2.0
//
// Each system call of a process fails in turn, or is the one before which it is killed or stopped.
// Both processes of a pair must come to the same answer, neither may wait for ever, and the one
// that is left must be usable.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "exchange/exchange.h"
#include "tests/exchange/disturbed_calls.h"
#include "tests/exchange/open_descriptors.h"
#include "tests/exchange/team.h"

namespace gmac::testing {
namespace {

using exchange::Delivery;
using exchange::Exchange;
using exchange::Job;
using exchange::Memory;
using exchange::Parcel;

// Of the board's steps.
constexpr int kOpened = 0;
constexpr int kMet = 1;
constexpr int kSettled = 2;  // the victim goes on, or is gone
// Of the board's numbers: 0, unknown; else 1 + whether that rank reaches that other one.
constexpr int answerOf(int rank, int other) { return rank * 4 + other; }
constexpr int kReached = 30;  // the call to be disturbed has come
constexpr int kSeen = 31;

constexpr int kVictim = 1;
constexpr int kTeam = 3;
constexpr std::size_t kBytes = 100000;

// One payload there and one back, where the two reach each other.
void swapPayloads(Board& board, Exchange& exchange, int rank, int other) {
  Result<Parcel> parcel = exchange.reserve(other, kBytes, Memory::kHost);
  if (!parcel.ok()) {
    parcel = exchange.reserve(other, kBytes, Memory::kHost);  // only one call fails
  }
  CHECK_THAT(parcel.ok());
  std::memset(parcel->data(), rank + 1, kBytes);
  std::array<std::byte, exchange::kDescriptionBytes> description;
  parcel->describe(description);
  post(board, rank, other, description);
  const Result<Delivery> delivery = exchange.collect(other, fetch(board, other, rank));
  CHECK_THAT(delivery.ok());
  CHECK_THAT(delivery->bytes() == kBytes && delivery->data()[kBytes - 1] == std::byte(other + 1));
}

void play(Board& board, const Job& job, Disturbance how, int number) {
  const std::size_t before = openDescriptors().size();
  {
    if (job.rank == kVictim) {
      disturb(how, number);
    }
    Result<std::unique_ptr<Exchange>> made = Exchange::open(job, {.hostBytes = kBytes});
    meetAt(board, kOpened, job.size);
    if (made.ok()) {
      // Others than the victim are always answered.
      const auto limit = how == Disturbance::kStopped && job.rank != kVictim
                             ? std::chrono::milliseconds(100)
                             : Exchange::kMeetLimit;
      (*made)->meet(job.rank, job.size, limit);
    }
    for (int other = 0; other < job.size; ++other) {
      const bool reached = made.ok() && (*made)->reaches(other);
      board.numbers[answerOf(job.rank, other)] = 1 + (reached ? 1 : 0);
    }
    arrive(board, kMet);
    if (job.rank != kVictim) {
      await(board, kSettled, 1);  // the victim may be stopped, or be no more
    } else {
      if (how == Disturbance::kKilled || how == Disturbance::kStopped) {
        disturb(Disturbance::kNone, 0);
      }
      board.numbers[kSeen] = 1;
    }
    for (int other = 0; other < job.size; ++other) {
      const bool victim = other == kVictim || job.rank == kVictim;
      if (made.ok() && (*made)->reaches(other) && !(victim && how == Disturbance::kKilled)) {
        swapPayloads(board, **made, job.rank, other);
      }
    }
    if (job.rank == kVictim && disturbed()) {
      board.numbers[kReached] = 1;
    }
    disturb(Disturbance::kNone, 0);
  }
  CHECK_THAT(openDescriptors().size() == before);
}

class Disturbed : public ::testing::TestWithParam<Disturbance> {};

TEST_P(Disturbed, PairsAgreeWhicheverCallItIs) {
  const Disturbance how = GetParam();
  int disturbances = 0;
  for (int number = 1;; ++number) {
    SCOPED_TRACE("call " + std::to_string(number));
    Team team(kTeam);
    Board& board = team.board();
    team.start([&](const Job& job) { play(board, job, how, number); });
    bool came = false;
    const pid_t victim = team.process(kVictim);
    // Only here can a kill or a stop come: the victim does not say that it has met.
    while (board.numbers[kSeen] == 0 && !came) {
      siginfo_t info{};
      (void)::waitid(P_PID, static_cast<id_t>(victim), &info,
                     WEXITED | WSTOPPED | WNOHANG | WNOWAIT);
      came = info.si_pid == victim;
      ::usleep(500);
    }
    if (came) {
      // The others get over the barrier that stands for MPI_Init, and meet, without it.
      arrive(board, kOpened);
      await(board, kMet, kTeam - 1);
      ::kill(victim, SIGCONT);
    }
    arrive(board, kSettled);
    const std::string end = team.end();
    if (came && how == Disturbance::kKilled) {
      EXPECT_EQ(end, "rank 1 ended with -9; ");
    } else {
      EXPECT_EQ(end, "");
      for (int rank = 0; rank < kTeam; ++rank) {
        for (int other = 0; other < rank; ++other) {
          EXPECT_EQ(board.numbers[answerOf(rank, other)], board.numbers[answerOf(other, rank)])
              << rank << " and " << other;
        }
      }
    }
    if (how != Disturbance::kStopped) {
      // (There the limit is so short that others may miss each other as well.)
      EXPECT_EQ(board.numbers[answerOf(0, 2)], 2) << "others are not disturbed";
      EXPECT_EQ(board.numbers[answerOf(2, 0)], 2);
    }
    if (HasFailure()) {
      return;
    }
    if (!came && board.numbers[kReached] == 0) {
      break;  // there is no such call
    }
    ++disturbances;
  }
  EXPECT_GT(disturbances, 20);
}

// One call that fails is told, changes nothing, and may be tried again.
TEST(DisturbedImports, EachCallMayFailOnce) {
  int disturbances = 0;
  for (const int victim : {0, 1}) {
    bool came = true;
    for (int number = 1; came; ++number) {
      SCOPED_TRACE("call " + std::to_string(number) + " of rank " + std::to_string(victim));
      Team team(2);
      Board& board = team.board();
      team.start([&](const Job& job) {
        const std::size_t before = openDescriptors().size();
        {
          const int file = ::memfd_create("exported", MFD_CLOEXEC | MFD_ALLOW_SEALING);
          CHECK_THAT(file >= 0 && ::ftruncate(file, 8192) == 0 &&
                     ::pwrite(file, "x", 1, 8191) == 1);
          const Result<std::unique_ptr<Exchange>> exchange = Exchange::open(job);
          CHECK_THAT(exchange.ok());
          meetAt(board, kOpened, 2);
          (*exchange)->meet(job.rank, job.size);
          int failures = 0;
          // The result of the first call that does not fail.
          const auto twice = [&](const auto& call) {
            auto result = call();
            if (!result.ok()) {
              ++failures;
              result = call();
            }
            CHECK_THAT(result.ok());
            return result;
          };
          if (job.rank == victim) {
            disturb(Disturbance::kRefused, number);
          }
          if (job.rank == 0) {
            const auto id = twice([&] { return (*exchange)->exportFile(file, 4096, 4096); });
            (void)twice([&] { return (*exchange)->offer(*id, 1); });
            board.numbers[0] = static_cast<long>(*id);
            arrive(board, kMet);
            while (board.steps[kSettled].load() == 0) {
              (void)(*exchange)->offer(*id, 1);  // again, where it was lost on its way
            }
            CHECK_THAT(*(*exchange)->revoke(*id));
          } else {
            await(board, kMet, 1);
            const auto id = static_cast<exchange::ExportId>(board.numbers[0].load());
            {
              auto imported = (*exchange)->import(0, id);
              const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
              while (!imported.ok()) {
                CHECK_THAT(job.rank == victim && std::chrono::steady_clock::now() < end);
                imported = (*exchange)->import(0, id);
              }
              CHECK_THAT(imported->data()[4095] == std::byte{'x'});
            }
            CHECK_THAT((*exchange)->statistics().imported == 1);
            (*exchange)->close();
            arrive(board, kSettled);
          }
          if (job.rank == victim) {
            board.numbers[kReached] = disturbed() ? 1 : 0;
            CHECK_THAT(failures <= 1);
          }
          disturb(Disturbance::kNone, 0);
          ::close(file);
        }
        CHECK_THAT(openDescriptors().size() == before);
      });
      ASSERT_EQ(team.end(), "");
      came = board.numbers[kReached] != 0;
      disturbances += came ? 1 : 0;
    }
  }
  EXPECT_GT(disturbances, 6);
}

std::string nameOf(const ::testing::TestParamInfo<Disturbance>& info) {
  constexpr const char* kNames[] = {"None", "Passes", "Refused", "Killed", "Stopped"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, Disturbed,
                         ::testing::Values(Disturbance::kPasses, Disturbance::kRefused,
                                           Disturbance::kKilled, Disturbance::kStopped),
                         nameOf);

}  // namespace
}  // namespace gmac::testing
