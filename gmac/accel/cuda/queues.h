// SPDX-License-Identifier: Apache-2.0
//
// Streams with memory: each piece of work gets a ticket that can be asked about for ever after.
#ifndef GMAC_ACCEL_CUDA_QUEUES_H_
#define GMAC_ACCEL_CUDA_QUEUES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "gmac/accel/backoff.h"
#include "gmac/accel/cuda/device_calls.h"
#include "gmac/accel/cuda/end_words.h"
#include "gmac/accel/devices.h"

namespace gmac::accel::cuda {

// The accelerator's own queues; kForeign: of the application's streams. The kernel queues of other
// devices follow (other_devices.h), and the application's streams of other contexts
// (other_contexts.h).
enum class QueueId : unsigned { kIn = 0, kOut = 1, kKernel = 2, kForeign = 3 };
inline constexpr std::size_t kOwnQueues = EndWords::kCount;
inline constexpr std::size_t kMostOtherDevices = kMaxDevices - 1;

// A ticket is the queue it belongs to and a number that counts up on that queue.
inline constexpr unsigned kQueueBits = 6;
constexpr QueueId queueOf(Ticket ticket) noexcept {
  return QueueId(ticket.value & ((1u << kQueueBits) - 1));
}
constexpr std::uint64_t sequenceOf(Ticket ticket) noexcept { return ticket.value >> kQueueBits; }
constexpr Ticket ticketOf(QueueId queue, std::uint64_t sequence) noexcept {
  return Ticket{(sequence << kQueueBits) | static_cast<unsigned>(queue)};
}

// Waits until `event` has happened. Its failure is reported as the device's.
Status awaitEvent(DeviceCalls& calls, Event event);

// A ring of events over one stream (or, for the foreign queue, over any stream). Work number n uses
// event n modulo the ring's size; before an event is used again its older work is waited for, so
// that an event which has moved on means that the work is complete. Thread-safe; owned by a
// StreamAccelerator; the fault handler may call everything but open() and close().
class Queue {
 public:
  static constexpr std::size_t kSlots = 1024;

  // In an ordered queue work completes in the order of submission.
  // `words`, if any: has one for the queue, by its QueueId.
  Queue(DeviceCalls& calls, QueueId id, bool ordered, EndWords* words = nullptr) noexcept
      : calls_(calls), id_(id), ordered_(ordered), words_(words) {}
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Creates the stream (ordered queues only) and the first events. Called before anything else.
  Status open();
  // Destroys them, or forgets them where the device is lost. All work so far counts as complete;
  // numbers go on from there when the queue is opened again.
  void close() noexcept;

  Stream stream() const noexcept { return stream_; }

  // Runs `work`, a Status() that submits to `stream`, and takes a ticket for it; may make an event
  // before. One thread at a time. `earlier`, where it is not 0: work that is known to complete
  // before this one does (the foreign queue's, of the same stream).
  template <typename Work>
  Result<Ticket> submit(Stream stream, Work&& work, std::uint64_t earlier = 0) {
    return submit(stream, work, earlier, [] { return false; });
  }
  // The same in an ordered queue, for work whose end somebody is about to wait for: as
  // endIsAwaited() afterwards. The device does without the event in between where nobody asks for
  // that.
  template <typename Work>
  Result<Ticket> submitAwaited(Work&& work) {
    return submit(stream_, work, 0,
                  [this] { return tellEnd(newest_.load(std::memory_order_relaxed) + 1, stream_); });
  }
  // The ticket of the newest work; complete when there is none.
  Ticket newest() const noexcept;

  // Whether the work is known to be complete, without asking the device.
  bool knownComplete(std::uint64_t sequence) const noexcept;
  // CUDA's answer for the work: kCudaSuccess, kCudaNotReady or a failure.
  int query(std::uint64_t sequence) noexcept {
    const std::optional<int> seen = look(sequence);
    return seen ? *seen : ask(sequence);
  }
  // What query() knows without the driver: success, or not ready, where the device is to tell of
  // the work's end. Nothing: the driver has to be asked. Needs no current context.
  std::optional<int> look(std::uint64_t sequence) noexcept;
  // Asks the driver.
  int ask(std::uint64_t sequence) noexcept;
  // Somebody is going to wait for the work, which is on `stream` (of an ordered queue: its own): if
  // it is the newest, the device is to tell of its end, and query() asks it seldom from now on.
  void endIsAwaited(std::uint64_t sequence, Stream stream) noexcept;
  // Whether the device has written all that it was to tell.
  bool allTold() const noexcept;
  // The event that stands for the work. Valid for ever, though it may by now stand for later work;
  // or, until it is recorded, for older work.
  Event eventOf(std::uint64_t sequence) const noexcept {
    return slots_[sequence % kSlots].event.load(std::memory_order_relaxed);
  }
  // The same once it is recorded.
  Result<Event> recordedEvent(std::uint64_t sequence) {
    if (unrecorded_.load(std::memory_order_acquire) == sequence) [[unlikely]] {
      const std::lock_guard lock(mutex_);
      GMAC_TRY(recordLate());
    }
    return eventOf(sequence);
  }

 private:
  // Most programs end, or begin, before more have been used: the others are made when they are.
  static constexpr std::uint64_t kFirstEvents = 128;

  struct Slot {
    // Another slot has it where the driver makes no more; who looked before may still ask it.
    std::atomic<Event> event{nullptr};
    bool ownsEvent = false;                  // under mutex_
    std::atomic<std::uint64_t> sequence{0};  // the work that the event stands for
    std::atomic<std::uint64_t> complete{0};  // the newest work of this slot known to be complete
    std::uint64_t chain = 0;                 // works of one chain complete in order; under mutex_
  };

  Slot& slotOf(std::uint64_t sequence) noexcept { return slots_[sequence % kSlots]; }
  // `told()`: after the work; whether the device will tell of its end.
  template <typename Work, typename Told>
  Result<Ticket> submit(Stream stream, Work& work, std::uint64_t earlier, Told told) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t sequence = newest_.load(std::memory_order_relaxed) + 1;
    GMAC_TRY(recordLate());
    GMAC_TRY(retire(sequence));
    GMAC_TRY(work());
    if (told()) {
      unrecorded_.store(sequence, std::memory_order_release);
    } else {
      GMAC_TRY(calls_.record(slotOf(sequence).event, stream));
    }
    slotOf(sequence).chain = chainAfter(earlier, sequence);
    newest_.store(sequence, std::memory_order_release);
    return ticketOf(id_, sequence);
  }
  // Whether the event of the newest work has not been recorded, and the work may still run; that,
  // and if so, records it. Under mutex_.
  bool isUnrecorded() noexcept;
  Status recordLate();
  // Whether the device will tell of the end of all that the stream holds, as that of this work.
  // Under mutex_.
  bool tellEnd(std::uint64_t sequence, Stream stream) noexcept;
  Status makeEvent(Slot& slot);
  bool hasEvents() const noexcept;
  Status takeEvent(Slot& slot);
  Status giveEvent(Slot& slot);
  void noteComplete(std::uint64_t sequence) noexcept;
  // Frees the slot of `sequence` of the work that used it last.
  Status retire(std::uint64_t sequence);
  // The chain of work that comes after `earlier` in its chain; one of its own where the ring no
  // longer has that.
  std::uint64_t chainAfter(std::uint64_t earlier, std::uint64_t sequence) noexcept;
  // Asks about one work for all older ones of its chain: whether `sequence` was among them and is
  // complete.
  bool completeByChain(std::uint64_t sequence) noexcept;

  DeviceCalls& calls_;
  const QueueId id_;
  const bool ordered_;
  EndWords* const words_;
  std::atomic<std::uint64_t> told_{0};   // the newest work whose end the device tells
  std::atomic<std::uint32_t> looks_{0};  // at its word
  // The newest work, if its event has not been recorded; 0: it has been, or the work has ended.
  std::atomic<std::uint64_t> unrecorded_{0};
  Stream stream_ = nullptr;
  std::mutex mutex_;
  std::uint32_t pauseOfEvents_ = 0;  // so many are not asked of the driver; under mutex_
  std::atomic<std::uint64_t> newest_{0};
  std::atomic<std::uint64_t> completeThrough_{0};  // ordered queues only
  std::array<Slot, kSlots> slots_;
};

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_QUEUES_H_
