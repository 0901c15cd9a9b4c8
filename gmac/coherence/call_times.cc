// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/call_times.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace gmac {

namespace {

CallTimes::Nanoseconds (*testClock)() = nullptr;

CallTimes::Nanoseconds monotonicClock() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<CallTimes::Nanoseconds>(time.tv_sec) * 1'000'000'000u +
         static_cast<CallTimes::Nanoseconds>(time.tv_nsec);
}

}  // namespace

CallTimes::CallTimes(Done done, Clock clock)
    : done_(std::move(done)),
      clock_(clock ? std::move(clock) : Clock(testClock != nullptr ? testClock : monotonicClock)) {}

void CallTimes::useForTests(Nanoseconds (*clock)()) { testClock = clock; }

void CallTimes::submitted(adsmKernel_t kernel, std::size_t device, accel::Ticket ticket) {
  if (!on()) {
    return;
  }
  look(device);
  Queue& queue = queues_[device];
  if (queue.empty()) {
    queue.calls.clear();
    queue.first = 0;
    queue.began = queue.running = now();
  } else if (queue.first > queue.calls.size() / 2) {
    queue.calls.erase(queue.calls.begin(),
                      queue.calls.begin() + static_cast<std::ptrdiff_t>(queue.first));
    queue.first = 0;
  }
  queue.calls.push_back({ticket, &kernels_[kernel]});
}

void CallTimes::ended(accel::Ticket ticket, Nanoseconds when) {
  for (std::size_t device = 0; device < queues_.size(); ++device) {
    Queue& queue = queues_[device];
    for (std::size_t i = queue.first; i < queue.calls.size(); ++i) {
      if (queue.calls[i].ticket.value == ticket.value) {
        const Nanoseconds took = when - std::min(when, queue.began);
        learn(device, i + 1, took, took);
        queue.first = i + 1;
        queue.began = queue.running = when;
        return;
      }
    }
  }
}

// Calls are taken out of the queue once all of them have ended: of a sequence that is cut at a late
// look nobody knows when the rest began.
void CallTimes::look(std::size_t device) {
  Queue& queue = queues_[device];
  if (queue.empty()) {
    return;
  }
  const Nanoseconds time = now();
  if (!done_(queue.calls.back().ticket)) {
    queue.running = time;
    return;
  }
  learn(device, queue.calls.size(), queue.running - std::min(queue.running, queue.began),
        time - std::min(time, queue.began));
  queue.first = queue.calls.size();
}

void CallTimes::learn(std::size_t device, std::size_t end, Nanoseconds least, Nanoseconds most) {
  const Queue& queue = queues_[device];
  const auto forEach = [&](auto function) {
    for (std::size_t i = queue.first; i < end; ++i) {
      function((*queue.calls[i].kernel)[device]);
    }
  };
  double known = 0;
  std::size_t count = 0;
  forEach([&](const Time& time) {
    known += time.known ? time.nanoseconds : 0;
    count += time.known ? 1 : 0;
  });
  const auto calls = static_cast<double>(end - queue.first);
  // An unknown kernel counts as the mean of the known ones.
  const double mean = count != 0 && known > 0 ? known / static_cast<double>(count) : 1;
  const double sum = known + mean * (calls - static_cast<double>(count));
  const bool exact = least == most;
  const double took = count == 0
                          ? static_cast<double>(most)
                          : std::clamp(sum, static_cast<double>(least), static_cast<double>(most));
  const double factor = sum > 0 ? took / sum : 1;
  ++sequences_;
  forEach([&](Time& time) {
    if (std::exchange(time.sequence, sequences_) == sequences_) {
      return;  // the kernel was called more than once
    }
    const double share = (time.known ? time.nanoseconds : mean) * factor;
    time.nanoseconds = exact && time.exact ? (time.nanoseconds + share) / 2 : share;
    time.exact = time.exact || exact;
    time.known = true;
  });
}

void CallTimes::lost(std::size_t device) {
  if (on()) {
    queues_[device].calls.clear();
    queues_[device].first = 0;
  }
}

void CallTimes::forget(adsmKernel_t kernel) {
  const auto found = kernels_.find(kernel);
  if (found == kernels_.end()) {
    return;
  }
  const Times* const gone = &found->second;
  Times* const own = &kernels_[nullptr];
  for (Queue& queue : queues_) {
    for (Call& call : queue.calls) {
      call.kernel = call.kernel == gone ? own : call.kernel;
    }
  }
  kernels_.erase(kernel);
}

void CallTimes::moved(std::size_t bytes, Nanoseconds took) {
  movedBytes_ = movedBytes_ / 2 + static_cast<double>(bytes);
  moveTime_ = moveTime_ / 2 + static_cast<double>(took);
}

std::optional<CallTimes::Nanoseconds> CallTimes::of(adsmKernel_t kernel, std::size_t device) const {
  const auto found = kernels_.find(kernel);
  return found != kernels_.end() && found->second[device].known
             ? std::optional(static_cast<Nanoseconds>(found->second[device].nanoseconds))
             : std::nullopt;
}

std::size_t CallTimes::inFlight(std::size_t device) {
  if (!on()) {
    return 0;
  }
  look(device);
  const Queue& queue = queues_[device];
  const auto running =
      std::partition_point(queue.calls.begin() + static_cast<std::ptrdiff_t>(queue.first),
                           queue.calls.end(), [&](const Call& call) { return done_(call.ticket); });
  return static_cast<std::size_t>(queue.calls.end() - running);
}

double CallTimes::expected(const Times& kernel, std::size_t device) {
  if (kernel[device].known) {
    return kernel[device].nanoseconds;
  }
  double sum = 0;
  std::size_t known = 0;
  for (const Time& time : kernel) {
    sum += time.known ? time.nanoseconds : 0;
    known += time.known ? 1 : 0;
  }
  return known != 0 ? sum / static_cast<double>(known) : 0;
}

CallTimes::Nanoseconds CallTimes::endOf(const Queue& queue, std::size_t device, std::size_t end) {
  double took = 0;
  for (std::size_t i = queue.first; i < end; ++i) {
    took += expected(*queue.calls[i].kernel, device);
  }
  return queue.began + static_cast<Nanoseconds>(took);
}

CallTimes::Nanoseconds CallTimes::endOf(std::size_t device, Nanoseconds now) {
  if (!on()) {
    return now;
  }
  look(device);
  const Queue& queue = queues_[device];
  return queue.empty() ? now : std::max(now, endOf(queue, device, queue.calls.size()));
}

CallTimes::Nanoseconds CallTimes::endOf(accel::Ticket ticket, Nanoseconds now) const {
  for (std::size_t device = 0; device < queues_.size(); ++device) {
    const Queue& queue = queues_[device];
    for (std::size_t i = queue.first; i < queue.calls.size(); ++i) {
      if (queue.calls[i].ticket.value == ticket.value) {
        return done_(ticket) ? now : std::max(now, endOf(queue, device, i + 1));
      }
    }
  }
  return now;
}

void CallTimes::Sequence::add(accel::Ticket call, Nanoseconds end) {
  if (ends_.full()) {
    if (end >= ends_.back()) {
      return;
    }
    calls_.dropLast();
    ends_.dropLast();
  }
  const auto place =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), end) - ends_.begin());
  calls_.insert(place, call);
  ends_.insert(place, end);
}

CallTimes::Sequence CallTimes::upTo(std::span<const accel::Ticket> work) const {
  Sequence sequence;
  for (std::size_t device = 0; device < queues_.size(); ++device) {
    const Queue& queue = queues_[device];
    std::size_t last = queue.first;  // one past the last call of the work
    for (std::size_t i = queue.first; i < queue.calls.size(); ++i) {
      const bool named = std::any_of(work.begin(), work.end(), [&](accel::Ticket ticket) {
        return ticket.value == queue.calls[i].ticket.value;
      });
      last = named ? i + 1 : last;
    }
    double took = 0;
    for (std::size_t i = queue.first; i < last; ++i) {
      took += expected(*queue.calls[i].kernel, device);
      sequence.add(queue.calls[i].ticket, queue.began + static_cast<Nanoseconds>(took));
    }
  }
  return sequence;
}

CallTimes::Nanoseconds CallTimes::ofMove(std::size_t bytes) const {
  const auto size = static_cast<double>(bytes);
  return static_cast<Nanoseconds>(movedBytes_ > 0
                                      ? size * moveTime_ / movedBytes_
                                      : size / static_cast<double>(kFirstBytesPerNanosecond));
}

}  // namespace gmac
