// SPDX-License-Identifier: Apache-2.0
//
// Messages between device memories, from where they are exported and through pinned memory: each
// call of either process's device fails in turn, or is the one in which that process is killed or
// stopped; or that happens at any moment. No byte is wrong, nobody waits for ever, and memory that
// was exported can be freed in the end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "exchange/exchange.h"
#include "gmac/base/status.h"
#include "tests/exchange/device.h"
#include "tests/exchange/team.h"
#include "tests/support/seed.h"

namespace gmac::testing {
namespace {

using datatype::Layout;
using exchange::Exchange;
using exchange::ExportId;
using exchange::Job;
using exchange::Receiving;
using exchange::Sending;
using How = DeviceBlow::How;
using std::int64_t;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPatience{20000};
// Whoever is left is told within that, on a machine that may do other things for seconds.
constexpr milliseconds kTold{15000};
constexpr std::size_t kArena = std::size_t{1} << 20;
constexpr int64_t kRows = 2000;
constexpr int64_t kRow = 32;

// Of the board's steps.
constexpr int kGone = 1;  // the victim is killed or stopped
constexpr int kLeft = 2;  // the survivor has finished with it
constexpr int kEnd = 3;   // there are no more messages
constexpr int kFreed = 4;
constexpr int kStreaming = 5;

bool reached(Board& board, int step) { return board.steps[step].load() > 0; }

// Which way the messages of a test go; set before its processes start.
enum class Way {
  kExported,
  kArriving,  // as kExported; one kernel unpacks what is packed ahead
  kPinned,
  kLeft  // in pinned memory that holds all of it
};
Way way = Way::kExported;
bool isPinned() { return way == Way::kPinned || way == Way::kLeft; }

constexpr const char* kWayNames[] = {"Exported", "Arriving", "Pinned", "Left"};

exchange::Options options() {
  exchange::Options made{.hostBytes = std::size_t{4} << 20, .device = &kDevice};
  made.devicePieceBytes = std::size_t{64} << 10;
  // (All messages but the first one or two are packed ahead.)
  made.aheadLeast = kRows * kRow;
  made.aheadFragment = 4096;
  if (way == Way::kArriving) made.arrivalLeast = kRows * kRow;
  // Half of a message, or two.
  made.pinnedRingBytes = std::size_t{way == Way::kLeft ? 128U : 32U} << 10;
  return made;
}

std::byte byteAt(long message, std::size_t at) {
  return static_cast<std::byte>(at * 7 + at / 251 + static_cast<std::size_t>(message) * 31);
}

const exchange::SharedLayoutPtr& rows() {
  static const auto made = exchange::shareLayout(*Layout::make({{kRows, 4 * kRow}}, {{0, kRow}}));
  return made;
}
const Layout& line() {
  static const Layout made = *Layout::make({}, {{0, kRows * kRow}});
  return made;
}

void fill(std::byte* arena, long message) {
  std::byte* const memory = behind(arena);
  for (std::size_t at = 0; at < kArena; ++at) {
    memory[at] = byteAt(message, at);
  }
}
bool isRight(const std::byte* arena, long message) {
  const std::byte* const memory = behind(arena);
  for (int64_t at = 0; at < kRows * kRow; ++at) {
    if (memory[at] != byteAt(message, static_cast<std::size_t>(at / kRow * 4 * kRow + at % kRow))) {
      return false;
    }
  }
  return true;
}

// From exported memory, if there is an export, or through pinned memory, which the message is left
// in where its receiver has it already; every third message is left as a copy.
Result<Sending> begin(Exchange& exchange, std::byte* arena, ExportId id, long message,
                      Description* description) {
  fill(arena, message);
  exchange::SendOptions how{.onDevice = true, .mayCopy = true};
  how.device = id;
  if (isPinned()) {
    how.path = exchange::Path::kPinned;
    how.leavesRing = way == Way::kLeft;
    how.pinnedFragment = 16384;
  }
  Result<Sending> sending = exchange.send(1, arena, rows(), how);
  if (!sending.ok()) {
    return sending;
  }
  sending->describe(*description);
  if (message % 3 == 2) {
    const Result<bool> copied = sending->leaveCopy();
    if (!copied.ok() && copied.status().code() != adsmErrorHostMemory) {
      return copied.status();
    }
  }
  return sending;
}

// ---- Calls that fail.

constexpr int kMessages = 6;

void playFailure(Board& board, const Job& job, int victim, int number) {
  auto exchange = met(board, job, options());
  std::byte* const arena = allocate(kArena);
  if (job.rank == victim) {
    deviceCalls = 0;
    deviceBlow = {How::kFails, number};
  }
  ExportId id = exchange::kNoExport;
  int failures = 0;
  for (int message = 0; message < kMessages; ++message) {
    Description description{};
    Description answer{};
    if (job.rank == 0) {
      if (id == exchange::kNoExport && !isPinned()) {
        const Result<ExportId> made = exchange->exportDevice(arena, kArena);
        id = made.ok() && exchange->offer(*made, 1).ok() ? *made : exchange::kNoExport;
      }
      Result<Sending> sending = begin(*exchange, arena, id, message, &description);
      if (!sending.ok()) {
        description = {};
      }
      post(board, 0, 1, description);
      const bool arrived = sending.ok() && [&] {
        const Result<bool> end = sending->wait(kPatience);
        CHECK_THAT(end.ok() ? *end : lastErrorText()[0] != '\0');
        return end.ok();
      }();
      const bool there = fetch(board, 1, 0)[0] != std::byte{0};
      CHECK_THAT(there == arrived || message % 3 == 2 || way == Way::kLeft);
      failures += there ? 0 : 1;
    } else {
      description = fetch(board, 0, 1);
      if (Exchange::bytesOf(description) > 0) {
        std::memset(behind(arena), 0xa5, kArena);
        Result<Receiving> receiving =
            exchange->receive(0, description, arena, line(), exchange::Memory::kDevice);
        const Result<bool> end =
            receiving.ok() ? receiving->wait(kPatience) : Result<bool>(receiving.status());
        CHECK_THAT(end.ok() ? *end : lastErrorText()[0] != '\0');
        CHECK_THAT(!end.ok() || isRight(arena, message));
        answer[0] = end.ok() ? std::byte{1} : std::byte{0};
      }
      failures += answer[0] == std::byte{0} ? 1 : 0;
      post(board, 1, 0, answer);
    }
  }
  CHECK_THAT(failures <= 1);
  if (job.rank == victim) {
    board.numbers[0] = deviceCalls;
  }
  // The memory can be freed, whatever has failed.
  if (isPinned()) {
    meetAt(board, kFreed, 2);
    exchange.reset();
    CHECK_THAT(device::pinnedRanges.empty() && device::nothingIsLater());
  } else if (job.rank == 0) {
    if (id != exchange::kNoExport) {
      CHECK_THAT(*exchange->revoke(id, kPatience));
    }
    meetAt(board, kFreed, 2);
    CHECK_THAT(exchange->statistics().exports == 0);
  } else {
    while (!reached(board, kFreed)) {
      exchange->sweep();
      ::usleep(1000);
    }
    CHECK_THAT(exchange->statistics().imports == 0);
    // The arena, the memory by which the two prove that they reach each other, and the ring.
    CHECK_THAT(deviceWindows.size() <= 3);
    arrive(board, kFreed);
  }
  if (job.rank == victim) {
    // (Also a failure among the last steps.)
    board.numbers[0] = deviceCalls;
  }
}

class DisturbedDevice : public ::testing::TestWithParam<Way> {};

TEST_P(DisturbedDevice, CallsThatFailAreToldOrMadeUpForAndTheMemoryIsFree) {
  way = GetParam();
  for (const int victim : {0, 1}) {
    for (int number = 1;; ++number) {
      SCOPED_TRACE("call " + std::to_string(number) + " of rank " + std::to_string(victim));
      Team team(2);
      team.start([&](const Job& job) { playFailure(team.board(), job, victim, number); });
      ASSERT_EQ(team.end(), "");
      if (team.board().numbers[0] < number) {
        EXPECT_GT(number, 4);
        break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DisturbedDevice,
                         ::testing::Values(Way::kExported, Way::kArriving, Way::kPinned,
                                           Way::kLeft),
                         [](const auto& info) {
                           return std::string(kWayNames[static_cast<int>(info.param)]);
                         });

// ---- Processes that end, or stop.

struct Blow {
  How how;
  int victim;
  int call = 0;  // 0: at any moment
  long microseconds = 0;
};

// Until the other process is gone, or there are to be no more messages.
void stream(Board& board, Exchange& exchange, std::byte* arena, const Job& job, ExportId id,
            const Blow& blow) {
  const bool survivor = job.rank != blow.victim;
  steady_clock::time_point gone{};
  const auto isOver = [&] {
    if (reached(board, kEnd)) return true;
    if (!survivor || !reached(board, kGone)) return false;
    if (gone == steady_clock::time_point()) gone = steady_clock::now();
    const auto since = steady_clock::now() - gone;
    CHECK_THAT(blow.how == How::kStopped || since < kTold);
    return blow.how == How::kStopped && since > milliseconds(20);
  };
  const auto isTold = [&] {
    return !survivor || blow.how == How::kKilled || reached(board, kEnd) || reached(board, kGone);
  };
  for (long message = 0;; ++message) {
    if (message == 2) arrive(board, kStreaming);
    if (job.rank == 0) {
      Description description;
      Result<Sending> sending = begin(exchange, arena, id, message, &description);
      while (!sending.ok()) {
        if (isPinned() && sending.status().code() == adsmErrorSystem) {
          CHECK_THAT(isTold());  // the receiver, who is to get the ring, is gone
          return;
        }
        CHECK_THAT(sending.status().code() == adsmErrorHostMemory);  // copies that nobody takes
        if (isOver() || (survivor && reached(board, kGone))) return;
        ::usleep(100);
        sending = begin(exchange, arena, id, message, &description);
      }
      while (board.written[0][1] - board.read[0][1] > 2) {
        if (isOver() || (survivor && reached(board, kGone))) return;
      }
      post(board, 0, 1, description);
      while (true) {
        const Result<bool> done = sending->wait(milliseconds(1));
        if (!done.ok()) {
          CHECK_THAT(isTold());
          return;
        }
        if (*done) break;
        if (isOver()) return;  // it is taken back
      }
    } else {
      while (!posted(board, 0, 1)) {
        if (isOver() || (survivor && blow.how == How::kKilled && reached(board, kGone) &&
                         !posted(board, 0, 1))) {
          return;
        }
      }
      std::memset(behind(arena), 0xa5, kArena);
      Result<Receiving> receiving =
          exchange.receive(0, fetch(board, 0, 1), arena, line(), exchange::Memory::kDevice);
      if (!receiving.ok()) {
        CHECK_THAT(isTold());
        return;
      }
      while (true) {
        const Result<bool> done = receiving->wait(milliseconds(1));
        if (!done.ok()) {
          CHECK_THAT(isTold());
          return;
        }
        if (*done) {
          CHECK_THAT(isRight(arena, message));
          break;
        }
        if (isOver()) return;
      }
    }
  }
}

void playBlow(Board& board, const Job& job, const Blow& blow) {
  auto exchange = met(board, job, options());
  std::byte* const arena = allocate(kArena);
  if (job.rank == blow.victim && blow.call > 0) {
    deviceCalls = 0;
    deviceBlow = {blow.how, blow.call};
  }
  ExportId id = exchange::kNoExport;
  if (job.rank == 0 && !isPinned()) {
    const Result<ExportId> made = exchange->exportDevice(arena, kArena);
    CHECK_THAT(made.ok() && exchange->offer(*made, 1).ok());
    id = *made;
  }
  stream(board, *exchange, arena, job, id, blow);
  if (job.rank != blow.victim) {
    arrive(board, kLeft);
  }
  await(board, kEnd, 1);
  // The memory can be freed: a process that has ended has nothing, one that goes on gives it back.
  const auto end = steady_clock::now() + kPatience;
  if (isPinned()) {
    exchange.reset();
    CHECK_THAT(device::pinnedRanges.empty() && device::nothingIsLater());
  } else if (job.rank == 0) {
    CHECK_THAT(*exchange->revoke(id, kPatience));
    arrive(board, kFreed);
  } else {
    while (exchange->statistics().imports != 0) {
      exchange->sweep();
      CHECK_THAT(steady_clock::now() < end);
      ::usleep(1000);
    }
    CHECK_THAT(deviceWindows.size() <= 2);
  }
}

// Whether it came.
bool strike(const Blow& blow) {
  Team team(2);
  Board& board = team.board();
  team.start([&](const Job& job) { playBlow(board, job, blow); });
  const pid_t victim = team.process(blow.victim);
  if (blow.call == 0) {
    await(board, kStreaming, 1);
    ::usleep(static_cast<useconds_t>(blow.microseconds));
    ::kill(victim, blow.how == How::kKilled ? SIGKILL : SIGSTOP);
  }
  bool came = false;
  const auto end = steady_clock::now() + kPatience;
  // Who has streamed so much makes no such call any more.
  const auto isLate = [&] { return blow.call != 0 && board.read[0][1] > 100; };
  for (bool late = false; !came && !late && steady_clock::now() < end;) {
    late = isLate();
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
  if (came && blow.how == How::kKilled) {
    EXPECT_EQ(team.endOf(blow.victim), -SIGKILL);
  }
  EXPECT_EQ(team.end(), "");
  return came;
}

class DisturbedDeviceBlows : public ::testing::TestWithParam<std::tuple<How, Way>> {
 protected:
  void SetUp() override { way = std::get<Way>(GetParam()); }
  static How how() { return std::get<How>(GetParam()); }
};

TEST_P(DisturbedDeviceBlows, InAnyCallOfTheDeviceLeaveTheMemoryFree) {
  for (const int victim : {0, 1}) {
    int came = 0;
    for (int call = 1; call <= 8; ++call) {
      SCOPED_TRACE("call " + std::to_string(call) + " of rank " + std::to_string(victim));
      came += strike({.how = how(), .victim = victim, .call = call}) ? 1 : 0;
      if (HasFailure()) return;
    }
    EXPECT_GT(came, 3);
  }
}

TEST_P(DisturbedDeviceBlows, AtAnyMomentLeaveTheMemoryFree) {
  const long steps = stepsOr(15);
  std::mt19937_64 random(seedOr(1));
  for (long step = 0; step < steps; ++step) {
    for (const int victim : {0, 1}) {
      const auto after = static_cast<long>(random() % 3000);
      SCOPED_TRACE("rank " + std::to_string(victim) + " after " + std::to_string(after) + " us");
      EXPECT_TRUE(strike({.how = how(), .victim = victim, .microseconds = after}));
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DisturbedDeviceBlows,
    ::testing::Combine(::testing::Values(How::kKilled, How::kStopped),
                       ::testing::Values(Way::kExported, Way::kArriving, Way::kPinned, Way::kLeft)),
    [](const auto& info) {
      return std::string(std::get<How>(info.param) == How::kKilled ? "Killed" : "Stopped") +
             kWayNames[static_cast<int>(std::get<Way>(info.param))];
    });

}  // namespace
}  // namespace gmac::testing
