// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/cuda/queues.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace gmac::accel::cuda {

namespace {

void raise(std::atomic<std::uint64_t>& value, std::uint64_t to) noexcept {
  std::uint64_t seen = value.load(std::memory_order_relaxed);
  while (seen < to && !value.compare_exchange_weak(seen, to, std::memory_order_release,
                                                   std::memory_order_relaxed)) {
  }
}

// The program's handlers of signals run in the calling thread when it ends.
class HandlersWait {
 public:
  HandlersWait() noexcept {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~HandlersWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HandlersWait(const HandlersWait&) = delete;
  HandlersWait& operator=(const HandlersWait&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Status awaitEvent(DeviceCalls& calls, Event event) {
  for (Backoff backoff;; backoff.step()) {
    const int code = calls.query(event);
    if (code == kCudaSuccess) return Status();
    if (code != kCudaNotReady) return calls.queryFailed(code, event);
  }
}

Queue::~Queue() { close(); }

void Queue::close() noexcept {
  const std::lock_guard lock(mutex_);
  pauseOfEvents_ = 0;
  unrecorded_ = 0;
  const std::uint64_t newest = newest_.load(std::memory_order_relaxed);
  const bool lost = calls_.health().lost();
  // Whatever fails here fails because the device or the process is going away, and takes these with
  // it.
  for (Slot& slot : slots_) {
    // (A submission that failed has taken the slot of one that is still to come.)
    raise(slot.complete, std::min(slot.sequence.load(std::memory_order_relaxed), newest));
    Event const event = slot.event.exchange(nullptr);
    if (std::exchange(slot.ownsEvent, false) && !lost) {
      static_cast<void>(calls_.destroyEvent(event));
    }
  }
  if (ordered_) raise(completeThrough_, newest);
  Stream const stream = std::exchange(stream_, nullptr);
  if (stream != nullptr && !lost) static_cast<void>(calls_.destroyStream(stream));
}

Status Queue::open() {
  told_ = 0;  // (by what was before)
  if (ordered_) {
    Result<Stream> stream = calls_.createStream();
    if (!stream.ok()) return stream.status();
    stream_ = *stream;
  }
  const std::uint64_t newest = newest_.load(std::memory_order_relaxed);
  for (std::uint64_t next = newest + 1; next <= newest + kFirstEvents; ++next) {
    GMAC_TRY(makeEvent(slotOf(next)));
  }
  return Status();
}

Status Queue::makeEvent(Slot& slot) {
  Result<Event> event = calls_.createEvent();
  if (!event.ok()) return event.status();
  slot.event = *event;
  slot.ownsEvent = true;
  return Status();
}

bool Queue::hasEvents() const noexcept {
  return std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.ownsEvent; });
}

// The event of complete work, the oldest that there is. Where none is complete, waits for some, as
// where the ring is full: in a fault there is nobody who could be told that the driver makes no
// event.
Status Queue::takeEvent(Slot& slot) {
  Slot* oldest = nullptr;
  const auto sequenceOfSlot = [](const Slot& other) {
    return other.sequence.load(std::memory_order_relaxed);
  };
  const auto look = [&](auto isComplete) {
    for (Slot& other : slots_) {
      if (other.ownsEvent &&
          (oldest == nullptr || sequenceOfSlot(other) < sequenceOfSlot(*oldest)) &&
          (sequenceOfSlot(other) == 0 || isComplete(sequenceOfSlot(other)))) {
        oldest = &other;
      }
    }
    return oldest != nullptr;
  };
  if (!look([&](std::uint64_t sequence) { return knownComplete(sequence); })) {
    int failure = kCudaSuccess;
    const auto hasEnded = [&](std::uint64_t sequence) {
      const int code = query(sequence);
      failure = code == kCudaSuccess || code == kCudaNotReady ? failure : code;
      return code == kCudaSuccess;
    };
    for (Backoff backoff; !look(hasEnded); backoff.step()) {
      if (failure != kCudaSuccess) return calls_.queryFailed(failure, nullptr);
    }
  }
  slot.event = oldest->event.load();
  slot.ownsEvent = std::exchange(oldest->ownsEvent, false);
  return Status();
}

Status Queue::giveEvent(Slot& slot) {
  // The driver is not asked again each time.
  constexpr std::uint32_t kPause = 64;
  if (pauseOfEvents_ > 0) {
    --pauseOfEvents_;
    return takeEvent(slot);
  }
  std::array<char, 256> words;  // (nothing is allocated in a fault)
  std::snprintf(words.data(), words.size(), "%s", lastErrorText());
  const adsmError_t code = lastErrorCode();
  const Status made = makeEvent(slot);
  if (made.ok() || !hasEvents()) return made;
  recordError(code, words.data());
  pauseOfEvents_ = kPause;
  return takeEvent(slot);
}

Ticket Queue::newest() const noexcept {
  const std::uint64_t sequence = newest_.load(std::memory_order_acquire);
  return sequence == 0 ? Ticket{} : ticketOf(id_, sequence);
}

bool Queue::knownComplete(std::uint64_t sequence) const noexcept {
  if (ordered_ && sequence <= completeThrough_.load(std::memory_order_acquire)) return true;
  const Slot& slot = slots_[sequence % kSlots];
  return sequence <= slot.complete.load(std::memory_order_acquire) ||
         sequence < slot.sequence.load(std::memory_order_acquire);
}

void Queue::noteComplete(std::uint64_t sequence) noexcept {
  if (ordered_) raise(completeThrough_, sequence);
  raise(slotOf(sequence).complete, sequence);
}

std::optional<int> Queue::look(std::uint64_t sequence) noexcept {
  if (knownComplete(sequence)) return kCudaSuccess;
  if (told_.load(std::memory_order_acquire) != sequence) return std::nullopt;
  if (allTold()) {
    noteComplete(sequence);
    return kCudaSuccess;
  }
  // Work that fails writes nothing. (The first looks follow each other closely, see backoff.h, and
  // a question to the driver takes as long as ten of them.)
  constexpr std::uint32_t kCloseLooks = 256;
  const std::uint32_t look = looks_.fetch_add(1, std::memory_order_relaxed);
  return look < kCloseLooks ? std::optional(static_cast<int>(kCudaNotReady)) : std::nullopt;
}

int Queue::ask(std::uint64_t sequence) noexcept {
  if (unrecorded_.load(std::memory_order_acquire) == sequence) [[unlikely]] {
    // (A handler of the program's that runs meanwhile may ask as well. Whoever asks looks again.)
    const HandlersWait handlersWait;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return kCudaNotReady;
    if (unrecorded_.load(std::memory_order_relaxed) == sequence && isUnrecorded()) {
      if (calls_.tryRecord(eventOf(sequence), stream_) != kCudaSuccess) {
        // (It stands for older work, but a failure of the device's is this work's as well.)
        const int code = calls_.query(eventOf(sequence));
        return code == kCudaSuccess ? kCudaNotReady : code;
      }
      unrecorded_.store(0, std::memory_order_release);
    }
  }
  // Should the event be recorded for later work meanwhile, then this work was complete before that,
  // and the answer is either right or "not ready", after which the next look finds the slot moved
  // on.
  const int code = calls_.query(eventOf(sequence));
  if (code == kCudaSuccess) noteComplete(sequence);
  return code;
}

bool Queue::isUnrecorded() noexcept {
  const std::uint64_t sequence = unrecorded_.load(std::memory_order_relaxed);
  if (sequence != 0 && look(sequence) == kCudaSuccess) {
    unrecorded_.store(0, std::memory_order_release);
    return false;
  }
  return sequence != 0;
}

Status Queue::recordLate() {
  if (isUnrecorded()) {
    GMAC_TRY(calls_.record(eventOf(unrecorded_.load(std::memory_order_relaxed)), stream_));
    unrecorded_.store(0, std::memory_order_release);
  }
  return Status();
}

void Queue::endIsAwaited(std::uint64_t sequence, Stream stream) noexcept {
  const auto told = [&] { return told_.load(std::memory_order_relaxed) == sequence; };
  if (words_ == nullptr || told()) return;
  // Whoever submits now makes the work an older one.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  // (The word has one stream's values at a time.)
  if (lock.owns_lock() && newest_.load(std::memory_order_relaxed) == sequence && !told() &&
      (ordered_ || allTold())) {
    (void)tellEnd(sequence, stream);
  }
}

bool Queue::tellEnd(std::uint64_t sequence, Stream stream) noexcept {
  if (words_ == nullptr || !words_->tell(calls_, stream, static_cast<std::size_t>(id_), sequence)) {
    return false;
  }
  looks_.store(0, std::memory_order_relaxed);
  told_.store(sequence, std::memory_order_release);
  return true;
}

bool Queue::allTold() const noexcept {
  const std::uint64_t told = told_.load(std::memory_order_acquire);
  return told == 0 || words_->read(static_cast<std::size_t>(id_)) == told;
}

std::uint64_t Queue::chainAfter(std::uint64_t earlier, std::uint64_t sequence) noexcept {
  Slot& slot = slotOf(earlier);
  return earlier != 0 && slot.sequence.load(std::memory_order_relaxed) == earlier ? slot.chain
                                                                                  : sequence;
}

bool Queue::completeByChain(std::uint64_t sequence) noexcept {
  // A question takes longer than the launch's own mark: one for many works.
  constexpr std::uint64_t kFarthest = kSlots / 4;
  constexpr std::uint64_t kLooks = 16;
  const std::uint64_t chain = slotOf(sequence).chain;
  for (std::uint64_t ahead = kFarthest; ahead > kFarthest - kLooks; --ahead) {
    const std::uint64_t later = sequence + ahead;
    if (slotOf(later).sequence.load(std::memory_order_relaxed) != later ||
        slotOf(later).chain != chain) {
      continue;
    }
    if (query(later) != kCudaSuccess) return false;
    for (std::uint64_t one = sequence; one < later; ++one) {
      if (slotOf(one).sequence.load(std::memory_order_relaxed) == one &&
          slotOf(one).chain == chain) {
        noteComplete(one);
      }
    }
    return true;
  }
  return false;
}

Status Queue::retire(std::uint64_t sequence) {
  Slot& slot = slotOf(sequence);
  if (!slot.ownsEvent) GMAC_TRY(giveEvent(slot));
  const std::uint64_t previous = slot.sequence.load(std::memory_order_relaxed);
  if (previous == sequence) return Status();  // an earlier submission took the slot and then failed
  // The device is asked seldom: with newer work of an ordered queue, all before it is complete.
  constexpr std::uint64_t kAhead = kSlots / 4;
  if (previous != 0 && !knownComplete(previous) &&
      !(ordered_ ? query(previous + kAhead) == kCudaSuccess : completeByChain(previous))) {
    GMAC_TRY(awaitEvent(calls_, slot.event));
    noteComplete(previous);
  }
  slot.sequence.store(sequence, std::memory_order_release);
  return Status();
}

}  // namespace gmac::accel::cuda
