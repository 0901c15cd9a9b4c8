// SPDX-License-Identifier: Apache-2.0
//
// Messages of device memory that took some ten times as long as they might have, and why. Each
// process counts its own, where the others of its host read it; rank 0 tells in MPI_Finalize. Which
// messages these are is decided by their way and their length, with constants: nothing is measured
// for that. Knows no mpi.h.
//
// All functions are thread-safe, but for countIn().
#ifndef GMAC_MPI_SLOW_MESSAGES_H_
#define GMAC_MPI_SLOW_MESSAGES_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gmac::mpi::slow {

enum class Reason {
  kMode,         // synchronous, buffered, persistent or replaced
  kNoRoom,       // of memory without a handle; the room for payloads was full
  kNotReached,   // the receiver has no gmac, or is not reached, or is in another group
  kNotExported,  // the sender's memory has no handle
  kNotImported,  // the receiver has not imported it
  kOtherDevice   // it is not the runtime's, so that all bytes from the first to the last are copied
};
inline constexpr int kReasons = 6;

// Of a message that was packed, sent and unpacked, whether the best way would have been so much
// faster. `copied`: how many bytes were copied for it.
bool isSlow(Reason reason, std::int64_t bytes, std::int64_t copied);
inline bool isSlow(Reason reason, std::int64_t bytes) { return isSlow(reason, bytes, bytes); }

// The counts of a process, which others may read at any time.
inline constexpr std::size_t kNameWords = 4;
inline constexpr std::size_t kWordsOfReason = 3 + kNameWords;
inline constexpr std::size_t kWords = kReasons * kWordsOfReason;
using Words = std::span<std::atomic<std::uint64_t>, kWords>;
using ConstWords = std::span<const std::atomic<std::uint64_t>, kWords>;

// From now on messages are counted there, and no more where they were; all zero so far. Not while
// another thread is in here.
void countIn(Words words);
// Words of the process itself, where they are at the start; and all zero again.
Words ownWords();
void forget();

// A message that has taken so long, in all. Of the call in which this thread is.
void note(Reason reason, std::int64_t bytes, std::chrono::nanoseconds time);
// One that takes from now on until that call returns.
void begin(Reason reason, std::int64_t bytes);

// The counts of some ranks, as one line. Empty: there is no such message.
struct OfRank {
  int rank;
  ConstWords words;
};
std::string tell(const std::vector<OfRank>& all);

namespace internal {
struct OfThread {
  const char* call = nullptr;
  bool hasBegun = false;
  Reason reason{};
  std::int64_t bytes = 0;
  std::chrono::steady_clock::time_point since{};
};
// (Constant initialisation and this model: no call.)
extern constinit thread_local OfThread ofThread __attribute__((tls_model("initial-exec")));
void end();
}  // namespace internal

// A call of the application's, by its name, which lives as long as the process. Some nanoseconds.
class Call {
 public:
  explicit Call(const char* name) { internal::ofThread.call = name; }
  ~Call() {
    if (internal::ofThread.hasBegun) internal::end();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

}  // namespace gmac::mpi::slow

#endif  // GMAC_MPI_SLOW_MESSAGES_H_
