// SPDX-License-Identifier: Apache-2.0
#include "mpi/slow_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>

namespace gmac::mpi::slow {

constinit thread_local internal::OfThread internal::ofThread
    __attribute__((tls_model("initial-exec"))) = {};

namespace {

// The time of a message, as measured between two H100s of a host, and over the bus of an H200
// (docs/results.md).
struct Path {
  std::int64_t startMicroseconds;
  std::int64_t bytesPerMicrosecond;
  std::int64_t microseconds(std::int64_t bytes) const {
    return startMicroseconds + bytes / bytesPerMicrosecond;
  }
};
constexpr Path kPacked{25, 6'000};
constexpr Path kByDevice{20, 300'000};  // the receiver's device copies it from where it lies
constexpr Path kByBus{20, 50'000};      // to the CPU's memory

struct Described {
  Path best;
  const char* text;
};
constexpr Described kDescribed[kReasons] = {
    {kByDevice,
     "synchronous, buffered, persistent and replaced messages take MPI's own wire; MPI_Send and "
     "MPI_Isend do not"},
    {kByDevice,
     "other processes cannot import the sender's memory (GMAC_LOG=info says why), and there is no "
     "room for so many packed messages at a time, so MPI's own wire is taken"},
    {kByBus,
     "their receivers are without gmac, or in another group or container, so MPI's own wire is "
     "taken"},
    {kByDevice,
     "other processes cannot import the sender's memory (GMAC_LOG=info says why), so it is packed"},
    {kByDevice,
     "the receivers have not imported the senders' memory (GMAC_LOG=info says why), so it is "
     "packed"},
    {kByBus,
     "the memory is on another device than the runtime's, so all of it from the first byte to the "
     "last is copied"},
};
// "Some ten times": where the constants are off by a fifth, too.
constexpr std::int64_t kTimesSlower = 8;

const Described& describe(Reason reason) { return kDescribed[static_cast<std::size_t>(reason)]; }

std::array<std::atomic<std::uint64_t>, kWords> own;
std::atomic<std::atomic<std::uint64_t>*> counted{own.data()};
std::mutex naming;

// The words of one reason.
enum : std::size_t { kMessages, kBytes, kNanoseconds, kName };

const std::atomic<std::uint64_t>* of(const std::atomic<std::uint64_t>* words, std::size_t reason) {
  return words + reason * kWordsOfReason;
}

// Of the first such message. It is there before that is counted.
void name(std::atomic<std::uint64_t>* tally, const char* call) {
  const std::lock_guard guard(naming);
  if (tally[kName].load(std::memory_order_relaxed) != 0) {
    return;
  }
  std::array<std::uint64_t, kNameWords> text{};
  std::strncpy(reinterpret_cast<char*>(text.data()), call, sizeof text - 1);
  for (std::size_t i = 0; i < kNameWords; ++i) {
    tally[kName + i].store(text[i], std::memory_order_relaxed);
  }
}

std::string nameIn(const std::atomic<std::uint64_t>* tally) {
  std::array<std::uint64_t, kNameWords + 1> text{};
  for (std::size_t i = 0; i < kNameWords; ++i) {
    text[i] = tally[kName + i].load(std::memory_order_relaxed);
  }
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

bool isSlow(Reason reason, std::int64_t bytes, std::int64_t copied) {
  return kPacked.microseconds(copied) >= kTimesSlower * describe(reason).best.microseconds(bytes);
}

void countIn(Words words) { counted = words.data(); }
Words ownWords() { return own; }
void forget() { std::fill(own.begin(), own.end(), 0); }

void note(Reason reason, std::int64_t bytes, std::chrono::nanoseconds time) {
  std::atomic<std::uint64_t>* const tally =
      counted.load() + static_cast<std::size_t>(reason) * kWordsOfReason;
  const char* const call = internal::ofThread.call;
  name(tally, call != nullptr ? call : "a call");
  tally[kBytes].fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
  tally[kNanoseconds].fetch_add(static_cast<std::uint64_t>(time.count()),
                                std::memory_order_relaxed);
  tally[kMessages].fetch_add(1, std::memory_order_release);
}

void begin(Reason reason, std::int64_t bytes) {
  internal::OfThread& thread = internal::ofThread;
  thread.reason = reason;
  thread.bytes = bytes;
  thread.since = std::chrono::steady_clock::now();
  thread.hasBegun = true;
}

void internal::end() {
  ofThread.hasBegun = false;
  note(ofThread.reason, ofThread.bytes, std::chrono::steady_clock::now() - ofThread.since);
}

std::string tell(const std::vector<OfRank>& all) {
  constexpr std::size_t kNamedRanks = 8;
  std::string line;
  for (std::size_t reason = 0; reason < kReasons; ++reason) {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
    std::uint64_t nanoseconds = 0;
    std::size_t ranks = 0;
    std::string call;
    std::string who;
    for (const OfRank& one : all) {
      const std::atomic<std::uint64_t>* const tally = of(one.words.data(), reason);
      const std::uint64_t count = tally[kMessages].load(std::memory_order_acquire);
      if (count == 0) {
        continue;
      }
      messages += count;
      bytes += tally[kBytes].load(std::memory_order_relaxed);
      nanoseconds += tally[kNanoseconds].load(std::memory_order_relaxed);
      if (call.empty()) call = nameIn(tally);
      if (++ranks <= kNamedRanks) who += (ranks == 1 ? "" : ", ") + std::to_string(one.rank);
    }
    if (messages == 0) {
      continue;
    }
    if (ranks > kNamedRanks) who += ", ...";
    const Described& described = kDescribed[reason];
    fmt::format_to(
        std::back_inserter(line),
        "{}{} of rank{} {}: {} message{} ({} bytes) of device memory at {:.2g} GB/s, "
        "where some {} are possible: {}",
        line.empty() ? "mpi: slow: " : "; ", call, ranks == 1 ? "" : "s", who, messages,
        messages == 1 ? "" : "s", bytes,
        static_cast<double>(bytes) / static_cast<double>(std::max<std::uint64_t>(nanoseconds, 1)),
        described.best.bytesPerMicrosecond / 1000, described.text);
  }
  return line;
}

}  // namespace gmac::mpi::slow
