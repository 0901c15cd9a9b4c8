// SPDX-License-Identifier: Apache-2.0
#include "tests/exchange/team.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "gmac/base/status.h"

namespace gmac::testing {

Team::Team(int size) {
  static int teams = 0;
  job_.key = fmt::format("test {} {}", ::getpid(), ++teams);
  job_.size = size;
  void* const page =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) {
    std::abort();
  }
  board_ = static_cast<Board*>(page);
}

Team::~Team() {
  for (pid_t& process : processes_) {
    if (process > 0) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
  }
  ::munmap(board_, sizeof(Board));
}

void Team::start(const Body& body) {
  for (int rank = 0; rank < job_.size; ++rank) {
    std::fflush(nullptr);
    const pid_t process = ::fork();
    if (process == 0) {
      // (So many steps may be asked for, as no test has by itself.)
      ::alarm(std::getenv("GMAC_TEST_STEPS") != nullptr ? 3600 : 60);
      exchange::Job job = job_;
      job.rank = rank;
      body(job);
      std::fflush(nullptr);
      ::_exit(0);
    }
    processes_.push_back(process);
  }
}

int Team::endOf(int rank) {
  pid_t& process = processes_[static_cast<std::size_t>(rank)];
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  process = 0;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

std::string Team::end() {
  std::string what;
  for (int rank = 0; rank < static_cast<int>(processes_.size()); ++rank) {
    if (processes_[static_cast<std::size_t>(rank)] > 0) {
      if (const int status = endOf(rank); status != 0) {
        what += fmt::format("rank {} ended with {}; ", rank, status);
      }
    }
  }
  return what;
}

void runTeam(int size, const std::function<void(Board& board, const exchange::Job& job)>& body) {
  Team team(size);
  team.start([&](const exchange::Job& job) { body(team.board(), job); });
  EXPECT_EQ(team.end(), "");
}

void post(Board& board, int sender, int receiver, exchange::ConstDescription description) {
  const unsigned number = board.written[sender][receiver].load();
  Board::Message& message = board.messages[sender][receiver][number % Board::kMessages];
  while (message.full.load(std::memory_order_acquire) != 0) {
    ::sched_yield();
  }
  std::memcpy(message.bytes.data(), description.data(), description.size());
  message.full.store(1, std::memory_order_release);
  board.written[sender][receiver].store(number + 1);
}

Description described(exchange::Sending& sending) {
  Description description;
  sending.describe(description);
  return description;
}

exchange::Sending postSent(Board& board, int sender, int receiver,
                           Result<exchange::Sending> sending) {
  CHECK_THAT(sending.ok());
  post(board, sender, receiver, described(*sending));
  return std::move(*sending);
}

bool posted(Board& board, int sender, int receiver) {
  const unsigned number = board.read[sender][receiver].load();
  return board.messages[sender][receiver][number % Board::kMessages].full.load(
             std::memory_order_acquire) != 0;
}

bool full(Board& board, int sender, int receiver) {
  const unsigned number = board.written[sender][receiver].load();
  return board.messages[sender][receiver][number % Board::kMessages].full.load(
             std::memory_order_acquire) != 0;
}

Description fetch(Board& board, int sender, int receiver) {
  const unsigned number = board.read[sender][receiver].load();
  Board::Message& message = board.messages[sender][receiver][number % Board::kMessages];
  while (message.full.load(std::memory_order_acquire) == 0) {
    ::sched_yield();
  }
  const auto bytes = message.bytes;
  message.full.store(0, std::memory_order_release);
  board.read[sender][receiver].store(number + 1);
  return bytes;
}

void arrive(Board& board, int step) { board.steps[step].fetch_add(1); }

void await(Board& board, int step, int count) {
  while (board.steps[step].load() < count) {
    ::usleep(200);
  }
}

void meetAt(Board& board, int step, int count) {
  arrive(board, step);
  await(board, step, count);
}

std::unique_ptr<exchange::Exchange> met(Board& board, const exchange::Job& job,
                                        const exchange::Options& options) {
  Result<std::unique_ptr<exchange::Exchange>> made = exchange::Exchange::open(job, options);
  CHECK_THAT(made.ok());
  meetAt(board, 0, job.size);
  (*made)->meet(job.rank, job.size);
  return std::move(*made);
}

bool saysLast(const char* words) { return std::strstr(lastErrorText(), words) != nullptr; }

Arena::Arena(std::size_t bytes)
    : bytes_(bytes), file_(::memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  CHECK_THAT(::ftruncate(file_, static_cast<off_t>(bytes)) == 0);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  CHECK_THAT(mapped != MAP_FAILED);
  data_ = static_cast<std::byte*>(mapped);
  std::mt19937_64 random(5);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(data_ + at, &word, sizeof word);
  }
}

Arena::~Arena() {
  ::munmap(data_, bytes_);
  ::close(file_);
}

void failed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: does not hold: %s (last error: %s)\n", file, line, what.c_str(),
               lastErrorText());
  ::_exit(kFailed);
}

}  // namespace gmac::testing
