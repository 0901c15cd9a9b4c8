// SPDX-License-Identifier: Apache-2.0
//
// How long kernels take on each device, learnt from calls: when they were submitted, and when the
// CPU saw them end. Nothing runs or waits for it.
#ifndef GMAC_COHERENCE_CALL_TIMES_H_
#define GMAC_COHERENCE_CALL_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/api/adsm.h"
#include "gmac/base/short_list.h"

namespace gmac {

// A device runs its calls in order, so what ends together is a sequence that began when the first
// of it was submitted, or when the call before it ended. How long that took is known exactly where
// the CPU waited for its last call; else only between two looks at the device. Calls of one
// sequence share its time in the ratio of what is known of them. A new time counts half.
//
// A kernel has one time for each device, whatever its shape and arguments: one whose work differs
// from call to call is predicted by its latest calls. A program that never waits is seen at its
// next call: until then its kernels count as running.
//
// Part of the ledger, guarded by its lock. Fault path: ended(), upTo() and look() allocate nothing.
class CallTimes {
 public:
  using Nanoseconds = std::uint64_t;
  using Clock = std::function<Nanoseconds()>;       // never goes back
  using Done = std::function<bool(accel::Ticket)>;  // whether work has finished; never blocks
  static constexpr std::uint64_t kFirstBytesPerNanosecond = 4;  // of moves, before the first

  // `clock`: none: the system's.
  explicit CallTimes(Done done, Clock clock = {});
  // That clock in place of the system's, from now on, in a test of the whole runtime. Before there
  // are other threads.
  static void useForTests(Nanoseconds (*clock)());
  CallTimes(const CallTimes&) = delete;
  CallTimes& operator=(const CallTimes&) = delete;

  // From now on calls are noted; before, all functions do nothing. Once, before any call.
  void start(std::size_t devices) { queues_.resize(devices); }
  bool on() const { return !queues_.empty(); }
  Nanoseconds now() const { return clock_(); }

  // ---- Notes

  // A call is in a device's queue. NULL: work of the runtime's own.
  void submitted(adsmKernel_t kernel, std::size_t device, accel::Ticket ticket);
  // The CPU has waited for that work, which ended at that time. Nothing, where it is no call.
  void ended(accel::Ticket ticket, Nanoseconds when);
  // A device is gone, and its calls with it; a kernel is.
  void lost(std::size_t device);
  void forget(adsmKernel_t kernel);
  void moved(std::size_t bytes, Nanoseconds took);

  // ---- Questions

  // The time of a kernel there; none: no call of it has ended there.
  std::optional<Nanoseconds> of(adsmKernel_t kernel, std::size_t device) const;
  // For who waits for some work: the calls in flight up to that work on the same devices, in the
  // order in which they are predicted to end. Who waits for each in turn, instead of for the last
  // alone, waits no longer and sees when each ends. The first ones, where there are more.
  class Sequence {
   public:
    static constexpr std::size_t kMax = 32;

    Sequence() {}  // NOLINT(modernize-use-equals-default): {} would clear all of it

    // As a span has them.
    const accel::Ticket* data() const { return calls_.data(); }
    std::size_t size() const { return calls_.size(); }
    const accel::Ticket* begin() const { return data(); }
    const accel::Ticket* end() const { return data() + size(); }

   private:
    friend class CallTimes;
    void add(accel::Ticket call, Nanoseconds end);

    ShortList<accel::Ticket, kMax> calls_;
    ShortList<Nanoseconds, kMax> ends_;
  };
  Sequence upTo(std::span<const accel::Ticket> work) const;
  // How many calls a device has in flight. A load for each that has ended since the last question.
  std::size_t inFlight(std::size_t device);
  // When a device will have run what it has, and when one call will have ended; never before `now`.
  // A kernel that is not known there counts as its mean elsewhere, else as nothing.
  Nanoseconds endOf(std::size_t device, Nanoseconds now);
  Nanoseconds endOf(accel::Ticket ticket, Nanoseconds now) const;
  // How long bytes take from one device to another.
  Nanoseconds ofMove(std::size_t bytes) const;

 private:
  struct Time {
    double nanoseconds = 0;
    bool known = false;
    bool exact = false;          // else an upper bound
    std::uint64_t sequence = 0;  // that has counted last
  };
  using Times = std::array<Time, accel::kMaxDevices>;
  struct Call {
    accel::Ticket ticket;
    Times* kernel;
  };
  struct Queue {
    std::vector<Call> calls;  // those from `first` on are in flight, as far as is known
    std::size_t first = 0;
    Nanoseconds began = 0;    // the sequence that starts with the first
    Nanoseconds running = 0;  // by then it had not ended
    bool empty() const { return first == calls.size(); }
  };

  void look(std::size_t device);
  // The first calls of a queue, up to `end`, took between `least` and `most`.
  void learn(std::size_t device, std::size_t end, Nanoseconds least, Nanoseconds most);
  static double expected(const Times& kernel, std::size_t device);
  // Of the first calls of a queue.
  static Nanoseconds endOf(const Queue& queue, std::size_t device, std::size_t end);

  const Done done_;
  const Clock clock_;
  std::vector<Queue> queues_;                        // by device
  std::unordered_map<adsmKernel_t, Times> kernels_;  // NULL: the runtime's own
  std::uint64_t sequences_ = 0;
  double movedBytes_ = 0;  // old moves count less and less
  double moveTime_ = 0;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_CALL_TIMES_H_
