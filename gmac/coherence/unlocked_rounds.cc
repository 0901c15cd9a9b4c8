// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/unlocked_rounds.h"

#include <algorithm>

namespace gmac {
namespace {

template <typename T>
T get(const std::atomic<T>& value) {
  return value.load(std::memory_order_relaxed);
}
template <typename T>
void set(std::atomic<T>& value, T to) {
  value.store(to, std::memory_order_relaxed);
}

void restart(UnlockedRounds::Stream& stream, UnlockedRounds::Nanoseconds patience,
             const ConcurrentUse::Unlocked& begun) {
  set(stream.patience, patience);
  set(stream.launched, false);
  set(stream.unwaited, false);
  set(stream.begun, begun.begun);
  set(stream.calls, begun.calls);
  for (auto* const value : {&stream.event, &stream.rounds, &stream.took, &stream.ended}) {
    set(*value, std::uint64_t{0});
  }
}

}  // namespace

void UnlockedRounds::add(NativeStream stream, ConcurrentUse::Queue queue, std::uint64_t thread) {
  const std::size_t count = get(count_);
  streams_[count].stream = stream;
  streams_[count].queue = queue;
  set(streams_[count].thread, thread);
  set(count_, count + 1);
}

bool UnlockedRounds::start(const Mode& mode, ConcurrentUse& use) {
  const auto begun =
      std::ranges::count_if(streams(), [&](const Stream& one) { return use.begunOn(one.queue); });
  mode_ = mode;
  set(overlap_, false);
  mode_.skipsWaits = mode.skipsWaits && static_cast<std::size_t>(begun) == use.roundsBegun();
  for (Stream& one : streams()) {
    if (mode_.skipsWaits) {
      restart(one, use.patienceOf(one.queue, mode.contended), use.leaves(one.queue));
    } else {
      restart(one, 0, {});
    }
  }
  restart(ofAll_, use.patience(), {});
  return mode_.skipsWaits;
}

UnlockedRounds::Judged UnlockedRounds::stop(ConcurrentUse& use) {
  Judged judged;
  if (mode_.measures) {
    for (const Stream& one : streams()) {
      giveBack(one, one.queue, judged, use);
    }
    giveBack(ofAll_, std::nullopt, judged, use);
  }
  return judged;
}

void UnlockedRounds::giveBack(const Stream& stream, std::optional<ConcurrentUse::Queue> queue,
                              Judged& judged, ConcurrentUse& use) const {
  ConcurrentUse::Unlocked of{.begun = get(stream.begun),
                             .calls = get(stream.calls),
                             .rounds = get(stream.rounds),
                             .took = get(stream.took),
                             .ended = get(stream.ended),
                             .several = get(overlap_)};
  if (const Nanoseconds event = get(stream.event); event != 0 && of.begun != 0) {
    ++of.rounds;
    of.took += event - std::min(event, of.begun);
    of.ended = event;
    of.begun = 0;
  }
  const bool bad = use.comesBack(queue, of, mode_.contended) == ConcurrentUse::Verdict::kBad;
  if (bad && !judged.bad) {
    judged = {true, mode_.contended ? queue : std::nullopt};
  }
}

std::size_t UnlockedRounds::streamsWaitedFor() {
  return static_cast<std::size_t>(
      std::ranges::count_if(streams(), [](const Stream& one) { return get(one.rounds) != 0; }));
}

UnlockedRounds::Stream* UnlockedRounds::find(NativeStream stream) {
  const std::span<Stream> all = streams();
  const auto found =
      std::ranges::find_if(all, [&](const Stream& one) { return one.stream == stream; });
  return found == all.end() ? nullptr : &*found;
}

void UnlockedRounds::ends(Stream& stream, Nanoseconds took, Nanoseconds now) {
  stream.took.fetch_add(took, std::memory_order_relaxed);
  stream.rounds.fetch_add(1, std::memory_order_relaxed);
  set(stream.ended, now);
}

void UnlockedRounds::submits(Stream& stream, std::uint64_t thread) {
  set(stream.launched, true);
  set(stream.unwaited, true);
  set(stream.thread, thread);
}

void UnlockedRounds::launches(Stream& stream, Nanoseconds now, std::uint64_t thread) {
  submits(stream, thread);
  if (!mode_.measures) {
    return;
  }
  const Nanoseconds begun = get(stream.begun);
  const Nanoseconds event = stream.event.exchange(0, std::memory_order_relaxed);
  if (begun != 0 && event != 0) {
    ends(stream, event - std::min(event, begun), event);
  }
  if (begun == 0 || event != 0) {
    set(stream.calls, std::uint64_t{0});
    set(stream.begun, now);
    noteOverlap(stream);
  }
  stream.calls.fetch_add(1, std::memory_order_relaxed);
}

// (Of several threads' rounds each is compared with its own stream's in any case.)
void UnlockedRounds::noteOverlap(const Stream& stream) {
  if (!mode_.contended && !get(overlap_) && std::ranges::any_of(streams(), [&](const Stream& one) {
        return &one != &stream && isOpen(one);
      })) {
    set(overlap_, true);
  }
}

bool UnlockedRounds::onlyLaunchedOn(std::optional<NativeStream> stream) {
  return std::ranges::all_of(streams(), [&](const Stream& one) {
    return !stream || one.stream == *stream || !get(one.launched);
  });
}

bool UnlockedRounds::isOpen(const Stream& stream) {
  return get(stream.begun) != 0 && get(stream.event) == 0;
}

bool UnlockedRounds::hasOpen(std::uint64_t thread) {
  return std::ranges::any_of(
      streams(), [&](const Stream& one) { return isOpen(one) && get(one.thread) == thread; });
}

void UnlockedRounds::waitBegins(std::optional<NativeStream> stream, std::uint64_t thread, bool any,
                                coherence::DeviceWait& wait) {
  coherence::DeviceWait::Rounds& rounds = wait.rounds;
  rounds = {.noted = mode_.skipsWaits || mode_.crowded,
            .ofEvent = stream == accel::kForeignStream,
            .stream = stream};
  if (!rounds.noted) {
    return;
  }
  std::size_t count = 0;
  const bool own = rounds.ofEvent && hasOpen(thread);
  const auto isFor = [&](const Stream& one) {
    return rounds.ofEvent ? isOpen(one) && (!own || get(one.thread) == thread)
                          : !stream || one.stream == *stream;
  };
  for (const Stream& one : streams()) {
    const Nanoseconds begun = get(one.begun);
    if (begun == 0 || !isFor(one)) {
      continue;
    }
    rounds.since = count++ == 0 ? begun : std::min(rounds.since, begun);
    rounds.until = std::max(rounds.until, begun);
    rounds.stream = rounds.ofEvent ? one.stream : rounds.stream;
  }
  // (Of several it is not known which one the event is for.)
  if (rounds.ofEvent && count != 1) {
    rounds.stream.reset();
    rounds.since = 0;
  }
  wait.skipped = mode_.skipsWaits && (any || count != 0);
}

bool UnlockedRounds::waitEnded(const coherence::DeviceWait& wait, std::uint64_t thread,
                               Nanoseconds now) {
  const coherence::DeviceWait::Rounds& rounds = wait.rounds;
  if (rounds.ofEvent) {
    return !wait.skipped || (mode_.skipsWaits && eventEnded(wait, thread, now));
  }
  for (Stream& one : streams()) {
    if ((!rounds.stream || one.stream == *rounds.stream) && get(one.thread) == thread) {
      set(one.unwaited, false);
    }
  }
  if (!wait.skipped || (rounds.since == 0 && mode_.skipsWaits)) {
    return true;
  }
  if (!mode_.skipsWaits) {
    return false;
  }
  if (!rounds.stream) {
    return allEnded(wait, now);
  }
  Stream* const stream = find(*rounds.stream);
  return stream != nullptr && streamEnded(*stream, rounds.since, now);
}

bool UnlockedRounds::eventEnded(const coherence::DeviceWait& wait, std::uint64_t thread,
                                Nanoseconds now) {
  const coherence::DeviceWait::Rounds& rounds = wait.rounds;
  const bool known = rounds.stream.has_value();
  const bool own = hasOpen(thread);
  for (Stream& stream : streams()) {
    const Nanoseconds begun = get(stream.begun);
    if (!isOpen(stream) || begun > rounds.until || (own && get(stream.thread) != thread)) {
      continue;
    }
    const bool slow = now - std::min(now, begun) > get(stream.patience);
    if (slow && known) {
      return false;
    }
    if (slow) {
      set(stream.begun, Nanoseconds{0});
    } else {
      set(stream.event, now);
    }
  }
  return true;
}

// (Another thread's wait may have ended the round.)
bool UnlockedRounds::streamEnded(Stream& stream, Nanoseconds since, Nanoseconds now) {
  const Nanoseconds took = now - std::min(now, since);
  if (get(stream.begun) == since && took > get(stream.patience)) {
    return false;
  }
  Nanoseconds begun = since;
  if (stream.begun.compare_exchange_strong(begun, 0, std::memory_order_relaxed)) {
    set(stream.event, Nanoseconds{0});
    ends(stream, took, now);
  }
  return true;
}

bool UnlockedRounds::allEnded(const coherence::DeviceWait& wait, Nanoseconds now) {
  const Nanoseconds took = now - std::min(now, wait.rounds.since);
  if (took > get(ofAll_.patience)) {
    return false;
  }
  bool any = false;
  for (Stream& one : streams()) {
    Nanoseconds begun = get(one.begun);
    if (begun != 0 && begun <= wait.rounds.until &&
        one.begun.compare_exchange_strong(begun, 0, std::memory_order_relaxed)) {
      set(one.event, Nanoseconds{0});
      any = true;
    }
  }
  if (any) {
    ends(ofAll_, took, now);
  }
  return true;
}

}  // namespace gmac
