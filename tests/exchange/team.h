// SPDX-License-Identifier: Apache-2.0
//
// Processes of one job, made by fork().
#ifndef GMAC_TESTS_EXCHANGE_TEAM_H_
#define GMAC_TESTS_EXCHANGE_TEAM_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/transfer.h"

namespace gmac::testing {

// The processes of a team tell each other this; in memory that all have.
struct Board {
  static constexpr std::size_t kMessages = 64;
  struct Message {
    std::atomic<int> full;
    std::array<std::byte, exchange::kDescriptionBytes> bytes;
  };
  std::atomic<int> steps[32];
  std::atomic<long> numbers[32];
  Message messages[8][8][kMessages];  // sender, receiver
  std::atomic<unsigned> written[8][8];
  std::atomic<unsigned> read[8][8];
};

// Exit status of a process in which a CHECK_THAT did not hold.
inline constexpr int kFailed = 3;

// Starts `size` processes of a job with a new key. The test's own process is none of them.
class Team {
 public:
  using Body = std::function<void(exchange::Job job)>;
  explicit Team(int size);
  ~Team();  // kills who is left
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  Board& board() { return *board_; }
  void start(const Body& body);
  // Waits until all that are left have ended. "": all with status 0; else what happened.
  std::string end();
  // The same for one, which need not end well: its status, or minus the signal that killed it.
  int endOf(int rank);
  pid_t process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }
  const exchange::Job& job() const { return job_; }

 private:
  exchange::Job job_;
  Board* board_;
  std::vector<pid_t> processes_;
};

// Runs `body` in each process of a team, and expects that all of them end well.
void runTeam(int size, const std::function<void(Board& board, const exchange::Job& job)>& body);

using Description = std::array<std::byte, exchange::kDescriptionBytes>;
Description described(exchange::Sending& sending);

// Messages of descriptions from one process of a team to another, in order.
void post(Board& board, int sender, int receiver, exchange::ConstDescription description);
Description fetch(Board& board, int sender, int receiver);
// Posts that of a message, which must have begun.
exchange::Sending postSent(Board& board, int sender, int receiver,
                           Result<exchange::Sending> sending);
// Whether fetch() would not wait, and whether post() would.
bool posted(Board& board, int sender, int receiver);
bool full(Board& board, int sender, int receiver);

// Waits until `step` has been reached so many times; counts this one.
void arrive(Board& board, int step);
void await(Board& board, int step, int count);
void meetAt(Board& board, int step, int count);  // both

// An exchange that has met all other processes of the team; counts step 0.
std::unique_ptr<exchange::Exchange> met(Board& board, const exchange::Job& job,
                                        const exchange::Options& options);

// Whether the thread's last error has these words.
bool saysLast(const char* words);

// A sender's memory: a file with the same random bytes in each process.
class Arena {
 public:
  explicit Arena(std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  int file() const { return file_; }

 private:
  std::size_t bytes_;
  int file_;
  std::byte* data_;
};

[[noreturn]] void failed(const char* file, int line, const std::string& what);

// In a process of a team: ends it when `condition` does not hold.
#define CHECK_THAT(condition)                                  \
  do {                                                         \
    if (!(condition)) {                                        \
      ::gmac::testing::failed(__FILE__, __LINE__, #condition); \
    }                                                          \
  } while (false)

}  // namespace gmac::testing

#endif  // GMAC_TESTS_EXCHANGE_TEAM_H_
