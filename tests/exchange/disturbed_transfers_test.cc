// SPDX-License-Identifier: Apache-2.0
//
// Messages that are copied once: each system call of either process fails in turn, or is the one
// before which it is killed or stopped; or that happens at any moment. No byte is wrong, nobody
// waits for ever, the process that is left is usable, and nothing is left behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/shared_file.h"
#include "tests/exchange/disturbed_calls.h"
#include "tests/exchange/open_descriptors.h"
#include "tests/exchange/team.h"
#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

using datatype::Layout;
using exchange::Exchange;
using exchange::ExportId;
using exchange::Job;
using exchange::Memory;
using exchange::Parcel;
using exchange::Path;
using exchange::Receiving;
using exchange::Sending;
using exchange::SharedLayoutPtr;
using std::int64_t;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPatience{20000};
// Whoever is left is told within that: a look at the process every 5 ms, on a machine that may do
// other things for seconds.
constexpr milliseconds kTold{15000};
constexpr std::size_t kRoom = std::size_t{2} << 20;
constexpr int64_t kBytes = 300000;
constexpr std::size_t kArena = std::size_t{1} << 20;
constexpr Path kAll[] = {Path::kMapped, Path::kRead, Path::kRing, Path::kCopy};

// Of the board's steps.
constexpr int kMet = 0;
constexpr int kGone = 1;  // the victim is killed or stopped
constexpr int kLeft = 2;  // the survivor has finished with it
constexpr int kEnd = 3;   // there are no more messages
constexpr int kFinished = 4;
constexpr int kRevoked = 5;
constexpr int kStreaming = 6;
constexpr int kSafe = 7;  // nothing comes to the victim any more
constexpr int kSent = 8;
constexpr int kReady = 9;

bool reached(Board& board, int step) { return board.steps[step].load() > 0; }

// Where a message lies in the arena, by its number; the same in each process.
int64_t offsetOf(long number) { return number % 1000 * 64; }
const std::byte* sourceOf(const Arena& arena, long number) {
  return arena.data() + offsetOf(number);
}

const SharedLayoutPtr& layout() {
  static const SharedLayoutPtr made = exchange::shareLayout(*Layout::make({}, {{0, kBytes}}));
  return made;
}

std::unique_ptr<Exchange> met(Board& board, const Job& job) {
  std::unique_ptr<Exchange> made = met(board, job, {.hostBytes = kRoom, .copyBytes = kRoom});
  meetAt(board, kReady, job.size);
  return made;
}

// A process's resources.
struct Held {
  std::size_t descriptors = openDescriptors().size();
  std::size_t mappings = 0;
  Held() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      mappings += line.find("/memfd:") != std::string::npos ? 1 : 0;
    }
  }
  bool operator==(const Held&) const = default;
};

// The whole room and each record can be had.
void checkAllIsFree(Exchange& exchange, int other) {
  {
    const Result<Parcel> all = exchange.reserve(other, kRoom, Memory::kHost);
    CHECK_THAT(all.ok());
  }
  const SharedLayoutPtr room = exchange::shareLayout(*Layout::make({}, {{0, kRoom}}));
  CHECK_THAT(
      exchange
          .send(other, nullptr, room, {.path = Path::kRead, .fragmentBytes = 4096, .mayCopy = true})
          .ok());
  const SharedLayoutPtr byte = exchange::shareLayout(*Layout::make({}, {{0, 1}}));
  const std::byte source{};
  std::deque<Sending> many;
  for (std::size_t i = 0; i < exchange::FileLayout::kTransfers; ++i) {
    Result<Sending> sending =
        exchange.send(other, &source, byte, {.path = Path::kRing, .fragmentBytes = 4096});
    CHECK_THAT(sending.ok());
    many.push_back(std::move(*sending));
  }
}

Result<Sending> begin(Exchange& exchange, const Arena& arena, Path path, ExportId file,
                      long number) {
  return exchange.send(1, sourceOf(arena, number), layout(),
                       {.file = path == Path::kMapped ? file : exchange::kNoExport,
                        .fileOffset = offsetOf(number),
                        .path = path == Path::kMapped ? std::optional<Path>()
                                : path == Path::kCopy ? Path::kRing
                                                      : path,
                        .fragmentBytes = 4096,
                        .mayCopy = path == Path::kCopy});
}

bool isRight(const std::vector<std::byte>& target, const Arena& arena, long number) {
  return std::memcmp(target.data(), sourceOf(arena, number), kBytes) == 0;
}

// ---- Calls that fail.

// The calls of this process that have failed, each with a reason.
class Failures {
 public:
  void note() {
    CHECK_THAT(lastErrorText()[0] != '\0');
    ++count_;
  }
  int count() const { return count_; }

 private:
  int count_ = 0;
};

// Longer than a process waits before it looks whether the other lives.
void dawdle() { ::usleep(12000); }

// Whether the message has arrived; both processes agree.
bool sendOnce(Board& board, Exchange& exchange, const Arena& arena, Path path, ExportId file,
              Failures& failures) {
  Result<Sending> sending = begin(exchange, arena, path, file, 0);
  Description description{};
  bool good = sending.ok();
  if (good) {
    sending->describe(description);
  } else {
    failures.note();
  }
  if (good && path == Path::kCopy) {
    Result<bool> copied = sending->leaveCopy();
    if (!copied.ok()) {
      failures.note();
      copied = sending->leaveCopy();
    }
    CHECK_THAT(copied.ok() && *copied);
  }
  post(board, 0, 1, description);
  if (good && path == Path::kRing) {
    dawdle();
  }
  if (good) {
    const Result<bool> end = sending->wait(kPatience);
    CHECK_THAT(end.ok() ? *end : sending->declined());
    good = end.ok();
  }
  const bool arrived = fetch(board, 1, 0)[0] != std::byte{0};
  CHECK_THAT(arrived == good || path == Path::kCopy);
  return arrived;
}

bool receiveOnce(Board& board, Exchange& exchange, const Arena& arena, Path path,
                 Failures& failures) {
  const Description description = fetch(board, 0, 1);
  Description answer{};
  if (Exchange::bytesOf(description) > 0) {
    if (path != Path::kRing) {
      dawdle();
    }
    std::vector<std::byte> target(kBytes, std::byte{0xa5});
    Result<Receiving> receiving = exchange.receive(0, description, target.data(), layout()->layout);
    const Result<bool> end =
        receiving.ok() ? receiving->wait(kPatience) : Result<bool>(receiving.status());
    if (end.ok()) {
      CHECK_THAT(*end && isRight(target, arena, 0));
      answer[0] = std::byte{1};
    } else {
      failures.note();
    }
  }
  post(board, 1, 0, answer);
  return answer[0] != std::byte{0};
}

void playFailure(Board& board, const Job& job, Path path, Disturbance how, int victim, int number) {
  const Arena arena(kArena);
  const auto exchange = met(board, job);
  const Held before;
  Failures failures;
  if (job.rank == victim) {
    disturb(how, number);
  }
  const auto twice = [&](const auto& call) {
    auto result = call();
    if (!result.ok()) {
      failures.note();
      result = call();
    }
    CHECK_THAT(result.ok());
    return result;
  };
  ExportId file = exchange::kNoExport;
  if (job.rank == 0 && path == Path::kMapped) {
    file = *twice([&] { return exchange->exportFile(arena.file(), 0, kArena); });
  }
  int attempts = 1;
  while (!(job.rank == 0 ? sendOnce(board, *exchange, arena, path, file, failures)
                         : receiveOnce(board, *exchange, arena, path, failures))) {
    CHECK_THAT(++attempts <= 2);
  }
  if (job.rank == victim) {
    board.numbers[0] = disturbed() ? 1 : 0;
    CHECK_THAT(failures.count() <= 1);
    disturb(Disturbance::kNone, 0);
  }
  // A message that had to take another path takes its own again, but for reads that were refused
  // for good.
  if (job.rank == 0) {
    CHECK_THAT(sendOnce(board, *exchange, arena, path, file, failures));
    if (file != exchange::kNoExport) {
      CHECK_THAT(*exchange->revoke(file, kPatience));
    }
    arrive(board, kRevoked);
    checkAllIsFree(*exchange, 1);
  } else {
    CHECK_THAT(receiveOnce(board, *exchange, arena, path, failures));
    while (!reached(board, kRevoked)) {
      exchange->sweep();
    }
    const auto received = [&](Path one) {
      return exchange->statistics().paths[static_cast<int>(one)].received.parcels;
    };
    CHECK_THAT(received(path) >= 1 || (path == Path::kRead && how == Disturbance::kRefused));
    checkAllIsFree(*exchange, 0);
  }
  CHECK_THAT(Held() == before);
  meetAt(board, kFinished, 2);  // so that neither sees the other end
}

class FailingCalls : public ::testing::TestWithParam<std::tuple<Path, Disturbance>> {};

TEST_P(FailingCalls, AreToldOrMadeUpForAndLeaveNothingBehind) {
  const auto [path, how] = GetParam();
  for (const int victim : {0, 1}) {
    bool came = true;
    int number = 1;
    for (; came; ++number) {
      SCOPED_TRACE("call " + std::to_string(number) + " of rank " + std::to_string(victim));
      Team team(2);
      team.start([&, path = path, how = how](const Job& job) {
        playFailure(team.board(), job, path, how, victim, number);
      });
      ASSERT_EQ(team.end(), "");
      came = team.board().numbers[0] != 0;
    }
    // (Reading from a ring or a copy takes no call, unless its reader has to wait.)
    EXPECT_GT(number, victim == 1 && (path == Path::kRing || path == Path::kCopy) ? 1 : 2);
  }
}

// A process without a descriptor left cannot look whether another one lives. It is not dead
// therefore, and its room is not given away while it reads.
TEST(Transfers, AProcessThatCannotBeLookedAtLives) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job);
    Failures failures;
    if (job.rank == 0) {
      rlimit limit{};
      CHECK_THAT(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
      const rlimit none{0, limit.rlim_max};
      CHECK_THAT(::setrlimit(RLIMIT_NOFILE, &none) == 0);
      CHECK_THAT(sendOnce(board, *exchange, arena, Path::kRead, exchange::kNoExport, failures));
      CHECK_THAT(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
      checkAllIsFree(*exchange, 1);
    } else {
      CHECK_THAT(receiveOnce(board, *exchange, arena, Path::kRead, failures));
    }
    CHECK_THAT(failures.count() == 0);
    meetAt(board, kFinished, 2);
  });
}

// The descriptor of a file comes to a process that has no number for it: the message goes another
// way, and the file comes with the next one.
TEST(Transfers, AFileThatWasLostOnItsWayIsHandedAgain) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job);
    Failures failures;
    if (job.rank == 0) {
      const Result<ExportId> file = exchange->exportFile(arena.file(), 0, kArena);
      CHECK_THAT(file.ok());
      for (int round = 0; round < 3; ++round) {
        CHECK_THAT(sendOnce(board, *exchange, arena, Path::kMapped, *file, failures));
      }
    } else {
      const auto received = [&](Path path) {
        return exchange->statistics().paths[static_cast<int>(path)].received.parcels;
      };
      rlimit limit{};
      CHECK_THAT(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
      const rlimit none{0, limit.rlim_max};
      CHECK_THAT(::setrlimit(RLIMIT_NOFILE, &none) == 0);
      CHECK_THAT(receiveOnce(board, *exchange, arena, Path::kMapped, failures));
      CHECK_THAT(received(Path::kRead) == 1 && received(Path::kMapped) == 0);
      CHECK_THAT(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
      CHECK_THAT(receiveOnce(board, *exchange, arena, Path::kMapped, failures));
      CHECK_THAT(receiveOnce(board, *exchange, arena, Path::kMapped, failures));
      CHECK_THAT(received(Path::kMapped) == 2);
    }
    CHECK_THAT(failures.count() == 0);
    meetAt(board, kFinished, 2);
  });
}

// A file that cannot be handed over now is an error for who has asked for that path alone.
TEST(Transfers, AFileThatCannotBeHandedIsNotMapped) {
  runTeam(2, [&](Board& board, const Job& job) {
    const Arena arena(kArena);
    const auto exchange = met(board, job);
    if (job.rank == 0) {
      CHECK_THAT(begin(*exchange, arena, Path::kRing, exchange::kNoExport, 0).ok());
      int others = 0;
      for (int number = 1; number <= 4; ++number) {
        const Result<ExportId> file = exchange->exportFile(arena.file(), 0, kArena);
        CHECK_THAT(file.ok());
        disturb(Disturbance::kPasses, number);
        const Result<Sending> sending = begin(*exchange, arena, Path::kMapped, *file, 0);
        disturb(Disturbance::kNone, 0);
        CHECK_THAT(sending.ok());
        others += sending->path() == Path::kRead ? 1 : 0;
        CHECK_THAT(sending->path() == Path::kRead || sending->path() == Path::kMapped);
      }
      CHECK_THAT(others == 1);
    }
    meetAt(board, kFinished, 2);
  });
}

// ---- Processes that end, or stop.

// Of which call, or after which time, the victim is killed or stopped.
struct Blow {
  Disturbance how;
  int victim;
  int call = 0;
  long microseconds = 0;
};

// Messages by the path until the other process is gone, or there are to be no more.
void stream(Board& board, Exchange& exchange, const Arena& arena, const Job& job, Path path,
            ExportId file, const Blow& blow) {
  const bool survivor = job.rank != blow.victim;
  // For the survivor: once the victim is stopped there is no use in waiting for long.
  steady_clock::time_point gone{};
  const auto isOver = [&] {
    if (reached(board, kEnd)) {
      return true;
    }
    if (!survivor || !reached(board, kGone)) {
      return false;
    }
    if (gone == steady_clock::time_point()) {
      gone = steady_clock::now();
    }
    const auto since = steady_clock::now() - gone;
    CHECK_THAT(blow.how == Disturbance::kStopped || since < kTold);
    return blow.how == Disturbance::kStopped && since > milliseconds(20);
  };
  std::vector<std::byte> target(kBytes);
  for (long number = 0;; ++number) {
    board.numbers[2 + job.rank] = number;
    if (number == 1) {
      arrive(board, kStreaming);
    }
    if (job.rank == 0) {
      Result<Sending> sending = begin(exchange, arena, path, file, number);
      while (!sending.ok()) {
        CHECK_THAT(sending.status().code() == adsmErrorHostMemory);  // copies that nobody takes
        if (isOver() || (survivor && reached(board, kGone))) {
          return;
        }
        ::usleep(100);
        sending = begin(exchange, arena, path, file, number);
      }
      Description description;
      sending->describe(description);
      CHECK_THAT(path != Path::kCopy || sending->leaveCopy().ok());
      while (board.written[0][1] - board.read[0][1] > 2) {  // copies, that leave room
        if (isOver() || (survivor && reached(board, kGone))) {
          CHECK_THAT(sending->recall());  // nobody hears of it
          return;
        }
      }
      post(board, 0, 1, description);
      while (true) {
        const Result<bool> done = sending->wait(milliseconds(1));
        if (!done.ok()) {
          CHECK_THAT(!survivor || saysLast("has ended") || reached(board, kEnd));
          return;
        }
        if (*done) {
          break;
        }
        if (isOver()) {
          return;  // it is taken back
        }
      }
    } else {
      while (!posted(board, 0, 1)) {
        if (isOver() || (survivor && blow.how == Disturbance::kKilled && reached(board, kGone) &&
                         !posted(board, 0, 1))) {
          return;
        }
      }
      std::memset(target.data(), 0xa5, target.size());
      Result<Receiving> receiving =
          exchange.receive(0, fetch(board, 0, 1), target.data(), layout()->layout);
      if (!receiving.ok()) {
        CHECK_THAT(!survivor || blow.how == Disturbance::kKilled || reached(board, kEnd));
        return;
      }
      while (true) {
        const Result<bool> done = receiving->wait(milliseconds(1));
        if (!done.ok()) {
          CHECK_THAT(!survivor || saysLast("has ended") || reached(board, kEnd));
          return;
        }
        if (*done) {
          CHECK_THAT(isRight(target, arena, number));
          break;
        }
        if (isOver()) {
          return;
        }
      }
    }
  }
}

void playBlow(Board& board, const Job& job, Path path, const Blow& blow) {
  const Arena arena(kArena);
  const auto exchange = met(board, job);
  constexpr int kHelper = 2;
  std::vector<std::byte> target(kBytes);
  const auto pass = [&](int from, int to) {
    if (job.rank == from) {
      Result<Sending> sending = exchange->send(to, sourceOf(arena, 7), layout());
      CHECK_THAT(sending.ok());
      Description description;
      sending->describe(description);
      post(board, from, to, description);
      CHECK_THAT(*sending->wait(kPatience));
    } else {
      std::memset(target.data(), 0, target.size());
      Result<Receiving> receiving =
          exchange->receive(from, fetch(board, from, to), target.data(), layout()->layout);
      CHECK_THAT(receiving.ok() && *receiving->wait(kPatience) && isRight(target, arena, 7));
    }
  };
  const int survivor = 1 - blow.victim;
  if (job.rank == kHelper) {
    pass(survivor, kHelper);
    pass(kHelper, survivor);
    await(board, kFinished, 1);
    return;
  }
  const Held before;
  ExportId file = exchange::kNoExport;
  if (job.rank == 0 && path == Path::kMapped) {
    const Result<ExportId> made = exchange->exportFile(arena.file(), 0, kArena);
    CHECK_THAT(made.ok());
    file = *made;
  }
  if (job.rank == blow.victim && blow.call > 0) {
    disturb(blow.how, blow.call);
  }
  stream(board, *exchange, arena, job, path, file, blow);
  if (job.rank == survivor) {
    pass(survivor, kHelper);
    pass(kHelper, survivor);
    arrive(board, kLeft);
  } else {
    disturb(Disturbance::kNone, 0);
    if (blow.call > 0) {
      arrive(board, kSafe);
    }
    await(board, kEnd, 1);
  }
  // Messages that nobody has taken.
  if (job.rank == 0) {
    arrive(board, kSent);
  } else {
    await(board, kEnd, 1);
    while (!reached(board, kSent) && !(blow.how == Disturbance::kKilled && reached(board, kGone))) {
    }
    while (posted(board, 0, 1)) {
      (void)exchange->receive(0, fetch(board, 0, 1), target.data(), layout()->layout);
    }
  }
  // All is given back: what this process has exported, and what it has of the other.
  const auto end = steady_clock::now() + kPatience;
  if (file != exchange::kNoExport) {
    while (!*exchange->revoke(file, milliseconds(10))) {
      CHECK_THAT(steady_clock::now() < end);
    }
  }
  while (Held() != before) {
    exchange->sweep();
    CHECK_THAT(steady_clock::now() < end);
    ::usleep(1000);
  }
  if (job.rank == survivor) {
    // (What was taken back is the stopped one's until it has noticed.)
    await(board, kEnd, 1);
    if (blow.how == Disturbance::kStopped || !reached(board, kGone)) {
      await(board, kRevoked, 1);
    }
    checkAllIsFree(*exchange, kHelper);
    arrive(board, kFinished);
  } else {
    arrive(board, kRevoked);
    await(board, kFinished, 1);
  }
}

// Whether it came.
bool strike(Path path, const Blow& blow) {
  Team team(3);
  Board& board = team.board();
  team.start([&](const Job& job) { playBlow(board, job, path, blow); });
  const pid_t victim = team.process(blow.victim);
  bool came = false;
  if (blow.call == 0) {
    await(board, kStreaming, 1);
    ::usleep(static_cast<useconds_t>(blow.microseconds));
    ::kill(victim, blow.how == Disturbance::kKilled ? SIGKILL : SIGSTOP);
  }
  const auto end = steady_clock::now() + kPatience;
  // Who has streamed so much makes no such call any more, but perhaps at the end.
  const auto isLate = [&] { return blow.call != 0 && board.read[0][1] > 100; };
  while (!came && !reached(board, kSafe)) {
    if ((isLate() || steady_clock::now() >= end) && !reached(board, kEnd)) {
      arrive(board, kEnd);
    }
    siginfo_t info{};
    (void)::waitid(P_PID, static_cast<id_t>(victim), &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT);
    came = info.si_pid == victim;
    ::usleep(200);
  }
  if (came) {
    arrive(board, kGone);
    await(board, kLeft, 1);
  }
  arrive(board, kEnd);
  ::kill(victim, SIGCONT);
  if (came && blow.how == Disturbance::kKilled) {
    EXPECT_EQ(team.endOf(blow.victim), -SIGKILL);
  }
  EXPECT_EQ(team.end(), "");
  return came;
}

class Blows : public ::testing::TestWithParam<std::tuple<Path, Disturbance>> {};

TEST_P(Blows, BeforeAnyCallLeaveNothingBehind) {
  const auto [path, how] = GetParam();
  for (const int victim : {0, 1}) {
    for (int call = 1; call <= 8; ++call) {
      SCOPED_TRACE("call " + std::to_string(call) + " of rank " + std::to_string(victim));
      const bool came = strike(path, {.how = how, .victim = victim, .call = call});
      if (HasFailure()) {
        return;
      }
      if (!came) {
        break;
      }
    }
  }
}

TEST_P(Blows, AtAnyMomentLeaveNothingBehind) {
  const auto [path, how] = GetParam();
  const long steps = stepsOr(12);
  std::mt19937_64 random(seedOr(1));
  for (long step = 0; step < steps; ++step) {
    for (const int victim : {0, 1}) {
      const auto after = static_cast<long>(random() % 2000);
      SCOPED_TRACE("rank " + std::to_string(victim) + " after " + std::to_string(after) + " us");
      EXPECT_TRUE(strike(path, {.how = how, .victim = victim, .microseconds = after}));
      if (HasFailure()) {
        return;
      }
    }
  }
}

std::string nameOf(const ::testing::TestParamInfo<std::tuple<Path, Disturbance>>& info) {
  constexpr const char* kNames[] = {"None", "Passes", "Refused", "Killed", "Stopped"};
  return std::string(exchange::pathName(std::get<0>(info.param))) +
         kNames[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(All, FailingCalls,
                         ::testing::Combine(::testing::ValuesIn(kAll),
                                            ::testing::Values(Disturbance::kPasses,
                                                              Disturbance::kRefused)),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(All, Blows,
                         ::testing::Combine(::testing::ValuesIn(kAll),
                                            ::testing::Values(Disturbance::kKilled,
                                                              Disturbance::kStopped)),
                         nameOf);

// A receiver that ends between the sender's look at the message and the one at its process has had
// the message.
TEST(Transfers, WhoHasAllMayEndBeforeTheSenderLooks) {
  Team team(2);
  team.start([&](const Job& job) {
    Board& board = team.board();
    const Arena arena(kArena);
    const auto exchange = met(board, job);
    if (job.rank == 0) {
      Result<Sending> sending = begin(*exchange, arena, Path::kRead, exchange::kNoExport, 0);
      CHECK_THAT(sending.ok());
      Description description;
      sending->describe(description);
      bool looked = false;
      beforeNextOpen([&] {
        post(board, 0, 1, description);
        await(board, kGone, 1);
        looked = true;
      });
      CHECK_THAT(*sending->wait(kPatience) && looked);
      checkAllIsFree(*exchange, 1);
    } else {
      std::vector<std::byte> target(kBytes);
      Result<Receiving> receiving =
          exchange->receive(0, fetch(board, 0, 1), target.data(), layout()->layout);
      CHECK_THAT(receiving.ok() && *receiving->wait(kPatience));
      ::_exit(0);
    }
  });
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(team.process(1)), &info, WEXITED | WNOWAIT);
  arrive(team.board(), kGone);
  EXPECT_EQ(team.end(), "");
}

}  // namespace
}  // namespace gmac::testing
