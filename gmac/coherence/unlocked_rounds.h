// SPDX-License-Identifier: Apache-2.0
//
// Rounds (zero_copy_policy.h) of streams whose launches repeat (repeated_launches.h), measured
// without the lock of all objects: each stream's for itself.
//
//  - A stream's round takes from its first launch to the end of the next wait for it, or for all.
//    What had begun before launches repeat goes on here, and what has not ended then is
//    ConcurrentUse's again, as are the sums of those that have ended.
//  - A slow round does not end here: its wait takes the lock, under which it is judged.
//  - Of an event only the program knows what comes before it. A wait for one is taken for one of
//    what its own thread has launched, if it has; else of what any thread has. It may be an older
//    event, so the round ends with the next launch: it has taken until the event then. If the
//    program waits for the stream first, that is its end. Where several rounds have begun, those
//    that would be slow say nothing.
#ifndef GMAC_COHERENCE_UNLOCKED_ROUNDS_H_
#define GMAC_COHERENCE_UNLOCKED_ROUNDS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gmac/accel/native_streams.h"
#include "gmac/coherence/concurrent_use.h"
#include "gmac/coherence/work_port.h"

namespace gmac {

// Allocates nothing. Guarded as each part says.
class UnlockedRounds {
 public:
  using Nanoseconds = ConcurrentUse::Nanoseconds;
  using NativeStream = accel::NativeStream;
  static constexpr std::size_t kMostStreams = 32;

  struct Mode {
    bool measures = false;    // rounds
    bool skipsWaits = false;  // the program's waits take no lock either
    bool contended = false;   // several threads wait
    bool crowded = false;     // each stream gets one launch more, until that has been waited for
  };
  // What rounds tell of the objects that are used at once; bad: of those of a queue, or of all.
  struct Judged {
    bool bad = false;
    std::optional<ConcurrentUse::Queue> queue;
  };
  // Of a stream, or of waits for all.
  struct alignas(64) Stream {
    NativeStream stream{};
    ConcurrentUse::Queue queue{};
    std::atomic<Nanoseconds> patience{0};  // what takes longer is slow
    std::atomic<bool> launched{false};
    std::atomic<bool> unwaited{false};     // the newest launch has not been waited for
    std::atomic<std::uint64_t> thread{0};  // that launched last
    // The round that has not ended: its first launch; 0: there is none; how many; and when a wait
    // for an event ended that was perhaps for it; 0: there was none.
    std::atomic<Nanoseconds> begun{0};
    std::atomic<std::uint64_t> calls{0};
    std::atomic<Nanoseconds> event{0};
    // Those that have ended: how many; together; the newest.
    std::atomic<std::uint64_t> rounds{0};
    std::atomic<Nanoseconds> took{0};
    std::atomic<Nanoseconds> ended{0};
  };

  // ---- Under the lock, while no thread is in the next part

  void clear() { count_.store(0, std::memory_order_relaxed); }
  bool full() const { return count_.load(std::memory_order_relaxed) == kMostStreams; }
  // `thread`: has launched on it last.
  void add(NativeStream stream, ConcurrentUse::Queue queue, std::uint64_t thread);
  std::span<Stream> streams() { return {streams_.data(), count_.load(std::memory_order_relaxed)}; }
  // They are measured here from now on. Where rounds of other queues have begun, whose end is to be
  // seen, waits are not skipped. Whether they are.
  bool start(const Mode& mode, ConcurrentUse& use);
  // No longer.
  Judged stop(ConcurrentUse& use);
  // How many streams' rounds have ended here.
  std::size_t streamsWaitedFor();

  // ---- Without the lock, between start() and stop()

  // NULL: it is none of these.
  Stream* find(NativeStream stream);
  bool mayLaunch(const Stream& stream) const {
    return !mode_.crowded || !stream.unwaited.load(std::memory_order_relaxed);
  }
  bool measures() const { return mode_.measures; }
  // Work that names what it uses is no round.
  static void submits(Stream& stream, std::uint64_t thread);
  // `now`: anything where nothing is measured.
  void launches(Stream& stream, Nanoseconds now, std::uint64_t thread);
  // Whether no other stream has been launched on; none: that is true.
  bool onlyLaunchedOn(std::optional<NativeStream> stream);
  // The program begins to wait for a stream, or for all (none), or for something else
  // (kForeignStream). `any`: there were launches.
  void waitBegins(std::optional<NativeStream> stream, std::uint64_t thread, bool any,
                  coherence::DeviceWait& wait);
  // It has waited with success. False: it has more to do, under the lock.
  bool waitEnded(const coherence::DeviceWait& wait, std::uint64_t thread, Nanoseconds now);

 private:
  static void ends(Stream& stream, Nanoseconds took, Nanoseconds now);
  bool eventEnded(const coherence::DeviceWait& wait, std::uint64_t thread, Nanoseconds now);
  bool streamEnded(Stream& stream, Nanoseconds since, Nanoseconds now);
  bool allEnded(const coherence::DeviceWait& wait, Nanoseconds now);
  // Whether a stream's round has begun, and no wait for an event has been taken for its end; and
  // whether a thread that waits for one has launched such, so that it is for no others.
  static bool isOpen(const Stream& stream);
  bool hasOpen(std::uint64_t thread);
  void giveBack(const Stream& stream, std::optional<ConcurrentUse::Queue> queue, Judged& judged,
                ConcurrentUse& use) const;
  void noteOverlap(const Stream& stream);

  std::array<Stream, kMostStreams> streams_;
  Stream ofAll_;  // waits for all
  std::atomic<std::size_t> count_{0};
  std::atomic<bool> overlap_{false};  // a round began while another stream's had begun
  Mode mode_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_UNLOCKED_ROUNDS_H_
