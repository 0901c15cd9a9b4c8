// SPDX-License-Identifier: Apache-2.0
#include "gmac/coherence/policies/read_backs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "gmac/accel/commands.h"
#include "gmac/base/thread_number.h"
#include "gmac/coherence/ledger.h"
#include "gmac/coherence/work_port.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"

namespace gmac {

using Kind = WriterQueue::Kind;

// (The only one that has begun on a stream on which the thread has launched last.)
std::optional<accel::NativeStream> ReadBacks::streamOfEvent() const {
  std::optional<accel::NativeStream> stream;
  bool several = false;
  ledger_.forEachOf(threadNumber(), [&](accel::NativeStream one) {
    if (zeroCopy_.launchedOn(one)) {
      several = several || stream.has_value();
      stream = one;
    }
  });
  return several ? std::nullopt : stream;
}

void ReadBacks::beforeWait(Lock& lock, std::optional<accel::NativeStream> stream) {
  zeroCopy_.waitBegins();
  // A function of the CPU in a stream may touch the object: it would wait for a copy that comes
  // after itself.
  if (ledger_.submissionUnderWay() || lock.callsWait() || !ledger_.hostFunctionsRun()) {
    return;
  }
  const std::uint64_t thread = threadNumber();
  waiting_.waits(thread);
  zeroCopy_.waits(waiting_);
  Blocks::ReadBackList& objects = blocks_.readBacks();
  for (auto next = objects.begin(); next != objects.end();) {
    Object& object = *next;
    ++next;
    if (!object.readBack.repeats()) {
      object.readBackHook.unlink();
      continue;
    }
    if (!waiting_.concerns(thread, object.comers) || object.closing || object.inTransit() ||
        (object.homeDevice != 0 && !reach_) || object.home == accel::Home::kApart ||
        object.spread()) {
      continue;
    }
    // Where it had one copy, none would be needed.
    const auto noteRound = [&] {
      if (object.readBack.first().repeats() && (!stream || zeroCopy_.launchedOn(*stream))) {
        zeroCopy_.round(object);
      }
    };
    Places places = placesToOpen(object);
    // The CPU has come before the wait, and has waited for the kernel then, perhaps in vain.
    if (places.empty()) {
      if (object.zeroCopy.taken()) {
        noteRound();
      } else {
        object.readBackHook.unlink();  // until a call takes something again
      }
      continue;
    }
    if (object.copiedBack.any && object.copiedBack.writers == ledger_.newestWriters(object)) {
      continue;
    }
    if (object.isZeroCopy()) {
      openAfter(object, places);
      continue;
    }
    WriterQueue queue = ledger_.writerQueue(object);
    if (queue.kind == Kind::kAny && stream) {
      // A flush that nothing has waited for yet would come after the copy.
      places = places.where([&](std::size_t place) {
        const BlockIndex block = object.readBack[place].block();
        return accelerator_.done(object.flushed({block, block + 1}));
      });
      if (places.empty()) {
        continue;
      }
      queue = {.kind = Kind::kStream, .stream = *stream};  // the program waits for that one alone
    }
    places = places.where([&](std::size_t place) {
      const ByteRange bytes = object.readBack[place].bytes();
      return object.pagesReady(bytes.begin, bytes.length()) &&
             object.chunkOf(bytes.begin) == object.chunkOf(bytes.end - 1);
    });
    if (!places.empty() && mayCopyOn(queue, stream)) {
      copy(object, places, queue);
    } else {
      noteRound();
    }
  }
  for (Object& object : blocks_.rounds()) {
    if (!stream || zeroCopy_.launchedOn(*stream)) {
      zeroCopy_.rounds(object, waiting_);
    }
  }
  blocks_.noteReadBacks();
}

ReadBacks::Places ReadBacks::placesToOpen(const Object& object) const {
  Places places;
  for (std::size_t place = 0; place < object.readBack.size(); ++place) {
    if (object.lacksPlace(place)) {
      places.add(place);
    }
  }
  return places;
}

// A copy on a queue that the program does not wait for would keep later work there waiting.
bool ReadBacks::mayCopyOn(const WriterQueue& queue,
                          std::optional<accel::NativeStream> stream) const {
  switch (queue.kind) {
    case Kind::kAny:
      return true;
    case Kind::kKernelQueue:
      return !stream;
    case Kind::kStream:
      return (!stream || *stream == queue.stream) && ledger_.hasRoomFor(queue.stream) &&
             !coherence::openWaits() && !native_->capturing(queue.stream);
    case Kind::kNone:
      break;
  }
  return false;
}

// What is to be copied, and opened when the wait is over. False: nothing.
bool ReadBacks::guess(Object& object, const Places& places) {
  Object::ReadBack& copies = object.copiedBack;
  copies.dropAll();
  for (const std::size_t place : places) {
    if (const auto guess = object.readBack[place].guess()) {
      copies.parts[place] = {.bytes = guess->bytes, .opens = guess->open, .write = guess->write};
      copies.any = true;
      copies.opens = copies.opens || guess->open;
    }
  }
  if (!copies.any) {
    return false;
  }
  if (object.readBack.first().repeats()) {
    zeroCopy_.round(object);
  }
  return true;
}

void ReadBacks::copy(Object& object, const Places& places, const WriterQueue& queue) {
  if (!guess(object, places)) {
    return;
  }
  Object::ReadBack& copies = object.copiedBack;
  // After a failure the copies before it are in flight: they have to have a ticket.
  accel::WorkOf work([&](accel::Commands& commands) -> Status {
    Status status;
    for (Object::ReadBack::Part& part : copies.parts) {
      if (part.bytes.empty()) {
        continue;
      }
      void* const to = object.mirror->copyAddress(part.bytes.begin);
      const auto from = static_cast<std::uint64_t>(object.deviceAt(part.bytes.begin));
      status = status.ok() ? commands.copyOut(to, from, part.bytes.length()) : status;
      part = status.ok() ? part : Object::ReadBack::Part{};
    }
    return copies.count() != 0 ? Status() : status;
  });
  const TraceSpan span("copy", "read back", {"bytes", copies.bytes()});
  const Result<accel::Ticket> ticket = submit(queue, object, work);
  for (const std::size_t place : places) {
    if (!ticket.ok() || copies.parts[place].bytes.empty()) {
      object.readBack[place].notCopied();
    }
  }
  if (!ticket.ok()) {
    copies.dropAll();
    return;
  }
  if (queue.kind != Kind::kStream) {
    ledger_.called(*ticket);
    ledger_.used(object, *ticket, true);
  }
  copies.writers = ledger_.newestWriters(object);
  copies.ticket = *ticket;
  copied_ = true;
  stats().readBacks.add(copies.count());
  stats().bytesToHost.add(copies.bytes());
}

// The bytes to be opened have arrived when their writers have finished.
void ReadBacks::openAfter(Object& object, const Places& places) {
  const ByteRange bytes = object.readBack.first().bytes();
  if (object.pagesReady(bytes.begin, bytes.length()) && guess(object, places)) {
    object.copiedBack.writers = ledger_.newestWriters(object);
  }
}

Result<accel::Ticket> ReadBacks::submit(const WriterQueue& queue, Object& object,
                                        accel::Work& work) {
  if (queue.kind != Kind::kStream) {
    return accelerator_.submit(work);
  }
  GMAC_TRY(native_->submit(queue.stream, work));
  return ledger_.copied(queue.stream, object);
}

// Opening lets the lock go, and any object may be gone by then. (Whoever waits for work of its own,
// say a fill, has not waited for what the CPU comes for next.)
void ReadBacks::afterWait(Lock& lock, const coherence::DeviceWait& wait, std::uint64_t now) {
  const std::uint64_t thread = threadNumber();
  ZeroCopy::Round round;
  round.ended = now;
  round.contended = waiting_.others(thread);
  round.took = zeroCopy_.roundTook(wait, now, round.contended, waiting_.beside(thread));
  Blocks::ReadBackList& objects = blocks_.readBacks();
  for (Object& object : objects) {
    round.disturbed |= round.contended && object.comers.newest() == thread;
    if (waiting_.concerns(thread, object.comers)) {
      wait.ofOwn ? ZeroCopy::interrupted(object) : zeroCopy_.waited(object, wait);
    }
  }
  Blocks::RoundsList& rounds = blocks_.rounds();
  for (auto next = rounds.begin(); next != rounds.end();) {
    Object& object = *next;
    ++next;
    if (wait.ofOwn) {
      ZeroCopy::interrupted(object);
    } else if (!zeroCopy_.waitedForRounds(object, waiting_, wait)) {
      object.roundsHook.unlink();
    }
  }
  for (auto next = objects.begin(); next != objects.end();) {
    Object& object = *next;
    ++next;
    if (object.copiedBack.opens && waiting_.concerns(thread, object.comers.newest())) {
      blocks_.openCopiedBack(lock, object);
      // The lock was free, and any other one may be gone.
      next = object.readBackHook.is_linked() ? std::next(objects.iterator_to(object))
                                             : objects.begin();
    }
  }
  zeroCopy_.waitEnded(lock, wait, round);
  if (std::exchange(copied_, false)) {
    noteCopies(now);
  }
}

// They are accesses that come before the program does: lists of what kernels write would save them
// where they read alone.
void ReadBacks::noteCopies(std::uint64_t now) {
  listing_.accessed(kTakes, false, {now, stats().calls.value()});
  coherence::letLaunchesList(listing_.on());
}

}  // namespace gmac
