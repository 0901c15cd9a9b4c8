// SPDX-License-Identifier: Apache-2.0
//
// The order of device work and accesses: calls and work on the application's own streams that may
// use objects, flushes, and functions of the CPU in streams; and which of them must have finished
// before something else may happen.
//
// The ledger answers with tickets, and never waits. Its owner's lock guards all of it but the count
// of host functions and settled(). Fault path: nothing is allocated but by bind(), and by
// what expects calls and launches.
#ifndef GMAC_COHERENCE_LEDGER_H_
#define GMAC_COHERENCE_LEDGER_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/native_streams.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"
#include "gmac/coherence/block_index.h"
#include "gmac/coherence/call_times.h"
#include "gmac/coherence/device_uses.h"

namespace gmac {

class Ledger {
 public:
  explicit Ledger(accel::Accelerator& accelerator, CallTimes::Clock clock = {});

  // ---- Notes

  void allocated(DeviceUses& object) { object.born = ++works_; }
  // A call, or other work on the kernel queue (no kernel).
  void called(accel::Ticket ticket, adsmKernel_t kernel = nullptr) {
    settled_.store(false);
    callsOf(ticket).last = ticket.value;
    newestWork_ = ++works_;
    times_.submitted(kernel, deviceOf(ticket), ticket);
  }
  // The device of this call is lost, and with it all of its calls.
  void callsLost(accel::Ticket ticket) {
    callsOf(ticket) = {};
    times_.lost(deviceOf(ticket));
  }
  // Before the first of the calls that list parts of an object: from then on used() below allocates
  // nothing. Throws std::bad_alloc.
  static void expectParts(DeviceUses& object) { object.parts.reserve(DeviceUses::kMaxParts); }
  // The newest call, or work of the runtime's own, lists the object, and may write it or only reads
  // it.
  void used(DeviceUses& object, accel::Ticket ticket, bool write) const {
    (write ? object.lastWrite : object.lastRead)[deviceOf(ticket)] = ticket.value;
    object.lastWork = works_;
    object.lastWriteWork = write ? works_ : object.lastWriteWork;
  }
  // The same for a part of an object that expects such calls. Worst case: where more than kMaxParts
  // of them are unfinished, those so far count as calls that list the whole object.
  void used(DeviceUses& object, ByteRange bytes, accel::Ticket ticket, bool write) const;
  // A call that lists no objects, after called(): it may write every object that is not bound.
  void calledUnlisted(accel::Ticket ticket) {
    Calls& calls = callsOf(ticket);
    calls.every = ticket.value;
    calls.everyWork = everyCallWork_ = works_;
  }
  // The same for the objects that are bound to its kernel.
  void calledBound(adsmKernel_t kernel, accel::Ticket ticket);
  // bind(): the kernel's calls use the object; calls of kernels that are not bound to it no longer
  // do. unbind(): drops a kernel's bindings. forget(): the object is freed.
  void bind(DeviceUses& object, adsmKernel_t kernel, adsmAccess_t access);
  void unbind(adsmKernel_t kernel);
  void forget(DeviceUses& object) { std::erase(bound_, &object); }
  void flushed(accel::Ticket ticket);
  // Work that is submitted to the stream from now on runs after the copies in and the calls so far.
  // adsmErrorNotSupported where the accelerator has no streams of the application's.
  Status fence(accel::NativeStream stream);
  // Work on a stream is about to be submitted; `unknown`: on one of which nothing more is noted.
  void submitting(bool unknown = false) {
    settled_.store(false);
    newestWork_ = ++works_;
    streamWork_ = unknown ? works_ : streamWork_;
  }
  // It has been submitted. Returns a ticket for all work in the stream so far. `reads`: the work
  // reads objects whose CPU copy stays current, so that the CPU must not overwrite it. `names`: the
  // work lists its objects, so the promises of other users do not matter. There is room for it.
  Result<accel::Ticket> submitted(accel::NativeStream stream, bool reads, bool names);
  // A launch that lists its objects is about to be submitted, and has been: submitting(),
  // submitted(). Then launched(), for each of them.
  void submittingListed() {
    settled_.store(false);
    newestWork_ = ++works_;
  }
  Result<accel::Ticket> submittedListed(accel::NativeStream stream);
  // Before a launch that lists the object: makes room for it, if there is memory.
  static void expectLaunches(DeviceUses& object) noexcept;
  // The newest work of the stream, a launch, lists the object, and may write it or only reads it.
  // Where there is no room for that, as launches of many streams have not finished, the launch
  // counts as work that may use every object.
  void launched(DeviceUses& object, accel::NativeStream stream, bool write);
  // A copy of the runtime's own, of what the stream's work has written of the object, has been
  // submitted to it:
  // no object has another writer. There is room for it.
  Result<accel::Ticket> copied(accel::NativeStream stream, DeviceUses& object);
  // More work like the newest one of that stream has been submitted to it, by a thread
  // (thread_number.h). `ended`: and is complete. Where the stream cannot be marked, waits for all
  // of the device's work.
  void repeated(accel::NativeStream stream, bool ended, std::uint64_t thread) noexcept;
  // The stream is destroyed and its handle may be reused. Its work stays known by its ticket.
  void streamDestroyed(accel::NativeStream stream);
  // From now on some objects have other users than everybody: of the work of a stream that names
  // what it uses it matters whether more follows.
  void usersDiffer() { usersDiffer_ = true; }
  bool anyUsersDiffer() const { return usersDiffer_; }
  // All work of the application's streams has ended with their context.
  void contextEnded() {
    streamCount_ = 0;
    fenced_ = {};
  }

  // All work so far is known to have ended without an error, and a wait would find nothing to do.
  // That holds until more work is noted.
  void settle() noexcept { settled_.store(true); }
  // A thread submits device work, from when objects were released for it until it is noted: other
  // threads' accesses to what it may use wait. One at a time.
  void submissionBegins() { submitter_ = std::this_thread::get_id(); }
  void submissionEnds() { submitter_.reset(); }

  // A function of the CPU has been queued in a stream; has run, or never will. Thread-safe.
  void hostFunctionQueued() noexcept { ++hostFunctions_; }
  // (One that runs while all are dropped, as their context ends, counts no more.)
  void hostFunctionEnded() noexcept {
    std::size_t count = hostFunctions_.load();
    while (count != 0 && !hostFunctions_.compare_exchange_weak(count, count - 1)) {
    }
  }
  void hostFunctionsDropped() noexcept { hostFunctions_ = 0; }
  bool hostFunctionsRun() const noexcept { return hostFunctions_.load() == 0; }

  // ---- Questions

  // See settle(). Needs no lock.
  bool settled() const noexcept { return settled_.load(); }
  // Whether all work so far is known to have ended without an error.
  bool allSucceeded() const noexcept;
  // How long kernels take.
  CallTimes& times() { return times_; }
  const CallTimes& times() const { return times_; }
  bool submissionUnderWay() const { return submitter_.has_value(); }
  // Whether another thread than the caller's is submitting.
  bool submissionElsewhere() const {
    return submitter_ && *submitter_ != std::this_thread::get_id();
  }
  // The newest call of a device.
  accel::Ticket lastCall(std::size_t device = 0) const { return {calls_[device].last}; }
  // The same, of the device on which that work runs.
  accel::Ticket lastCallBeside(accel::Ticket work) const { return lastCall(deviceOf(work)); }
  // The newest call of the first device whose newest call has not finished; no ticket if all have.
  accel::Ticket runningCall() const noexcept;
  // Where devices reach each other's memory: other devices' calls that work on this one, which
  // uses those bytes of the object and may write them or only reads them, must not overtake. Adds
  // to `before`.
  void addConflicts(const DeviceUses& object, ByteRange bytes, std::size_t device, bool writes,
                    NewestCalls& before) const;
  // Whether other devices have unfinished calls.
  bool callsElsewhere(std::size_t device) const noexcept;
  accel::Ticket lastFlush() const { return {lastFlush_}; }
  // A device's newest call that lists nothing, where it may write the object.
  accel::Ticket unlistedCall(const DeviceUses& object, std::size_t device) const {
    const Calls& calls = calls_[device];
    return {object.bindings.empty() && calls.everyWork >= object.born ? calls.every : 0};
  }
  // Keeps the newer of two tickets of one device.
  void addNewest(NewestCalls& newest, accel::Ticket ticket) const {
    if (ticket.value != 0) {
      std::uint64_t& of = newest[deviceOf(ticket)].value;
      of = std::max(of, ticket.value);
    }
  }
  // All that may use those bytes of the object and has not finished, but the work of streams that
  // lists nothing.
  Tickets callsWith(const DeviceUses& object, ByteRange bytes = kAllBytes) const;
  // The newest calls that list those bytes and only read them.
  NewestCalls readersOf(const DeviceUses& object, ByteRange bytes = kAllBytes) const;
  // Numbers of device work, of calls and streams alike, in the order of submission: of the newest,
  // and of the newest that may use the object. One that no work has used yet has a number of its
  // own, which is newer than all work before its allocation.
  std::uint64_t newestWork() const { return newestWork_; }
  std::uint64_t newestWorkWith(const DeviceUses& object) const;
  // All that may write those bytes of the object and has not finished.
  Tickets writersOf(const DeviceUses& object, ByteRange bytes = kAllBytes) const;
  bool writersDone(const DeviceUses& object, ByteRange bytes = kAllBytes) const noexcept;
  // Whether all work that only reads the object has finished.
  bool readersDone(const DeviceUses& object) const noexcept;
  // Whether no device work is in flight, nor about to be.
  bool quiet() const noexcept { return nothingRuns() && !submissionUnderWay(); }
  // Whether none is in flight.
  bool nothingRuns() const noexcept;
  // A number for a stream that tells apart the streams which have the same number in each thread.
  std::uintptr_t queueOf(accel::NativeStream stream) const noexcept {
    return queueOf(stream, threadOf(stream));
  }
  // Whether work of a stream that lists its objects is in flight.
  bool namedWorkRuns() const noexcept;
  // Whether the work of the stream with that number is in flight.
  bool runsOn(std::uintptr_t queue) const noexcept;
  // Whether none is in flight but on other streams than this one; none: none at all.
  bool onlyOthersRun(std::optional<accel::NativeStream> stream) const noexcept;
  Writers newestWriters(const DeviceUses& object) const;
  WriterQueue writerQueue(const DeviceUses& object) const;
  // Every call and all work of streams, whether it has finished or not: waiting for it brings its
  // errors out.
  Tickets everything() const;
  Tickets streamWork() const;
  // The newest work of a stream.
  accel::Ticket newestOn(accel::NativeStream stream) const noexcept;
  // Work of a stream that has not finished, if there is any; such work that reads objects which the
  // CPU may be about to write.
  accel::Ticket runningStreamWork() const noexcept;
  accel::Ticket runningReader(const DeviceUses& object) const noexcept;
  // The stream whose work alone, of all work, is not known to have ended, or has been the newest;
  // none: there is not one.
  std::optional<accel::NativeStream> onlyStream() const noexcept;
  // Calls f(stream, thread) for the streams whose newest work is noted, with the thread that has
  // submitted it, and which follow all flushes and all calls, and to which more work that names
  // nothing can be noted; but for those that mean another stream in each thread.
  template <typename F>
  void forEachUpToDate(F f) const {
    const accel::NativeStreams::Fence newest =
        native_ == nullptr ? accel::NativeStreams::Fence{} : native_->newest();
    for (const StreamWork* work = begin(); work != end(); ++work) {
      if (work->thread == kNoThread && !work->ended && work->fence == newest &&
          !(work->names && usersDiffer_)) {
        f(work->stream, work->submitter);
      }
    }
  }
  // Calls f(stream) for the streams whose newest work that thread has submitted.
  template <typename F>
  void forEachOf(std::uint64_t thread, F f) const {
    for (const StreamWork* work = begin(); work != end(); ++work) {
      if (work->submitter == thread && !work->ended) {
        f(work->stream);
      }
    }
  }
  // Whether work on another stream can be noted, and what must finish first where it cannot.
  bool hasRoomFor(accel::NativeStream stream) const noexcept { return entryFor(stream) != kNone; }
  accel::Ticket oldestStreamWork() const;

 private:
  // A device's calls.
  struct Calls {
    std::uint64_t last = 0;       // ticket of the newest
    std::uint64_t every = 0;      // of the newest that lists nothing
    std::uint64_t everyWork = 0;  // works_ by then
  };
  std::size_t deviceOf(accel::Ticket ticket) const {
    return devices_ == nullptr ? 0 : devices_->deviceOf(ticket);
  }
  // The newest call of a device that may write the object as a whole. (A queue's tickets count up.)
  accel::Ticket lastWriter(const DeviceUses& object, std::size_t device) const {
    return {std::max(object.lastWrite[device], unlistedCall(object, device).value)};
  }
  // The newest calls that may write those bytes.
  NewestCalls writersByDevice(const DeviceUses& object, ByteRange bytes) const;
  void addParts(const DeviceUses& object, ByteRange bytes, bool write, NewestCalls& calls) const {
    for (const PartUse& part : object.parts) {
      if (part.write == write && part.bytes.overlaps(bytes)) {
        addNewest(calls, part.ticket);
      }
    }
  }
  Calls& callsOf(accel::Ticket ticket) { return calls_[deviceOf(ticket)]; }
  // A stream's work so far.
  struct StreamWork {
    std::uint64_t id = 0;  // of the stream
    accel::NativeStream stream{};
    accel::Ticket ticket;
    // Of the newest work that may use every object.
    accel::Ticket unlisted;
    std::uint64_t unlistedNumber = 0;
    bool reads = false;
    bool names = false;
    std::uint64_t number = 0;  // works_ by then
    // The submitting thread, where the stream's number means another one in each; else kNoThread.
    // And whether the stream has ended, so that its number may mean another one.
    std::uint64_t thread = kNoThread;
    std::uint64_t submitter = kNoThread;  // of the newest
    accel::NativeStreams::Fence fence;    // what the stream follows
    bool ended = false;
    bool sameStream(accel::NativeStream other, std::uint64_t otherThread) const {
      return stream == other && thread == otherThread && !ended;
    }
  };
  static constexpr std::size_t kNone = SIZE_MAX;
  static constexpr std::uint64_t kNoThread = 0;

  const StreamWork* begin() const { return streams_.data(); }
  const StreamWork* end() const { return streams_.data() + streamCount_; }
  // Whether work that may use every object may use this one, given the application's promises.
  static bool mayUse(const StreamWork& work, const DeviceUses& object) {
    return work.unlistedNumber >= object.born && (work.names || object.usedBy(work.stream));
  }
  // Marks the newest work of a stream, and returns its entry.
  Result<StreamWork*> mark(accel::NativeStream stream);
  std::uint64_t threadOf(accel::NativeStream stream) const noexcept;
  static std::uintptr_t queueOf(accel::NativeStream stream, std::uint64_t thread) noexcept {
    constexpr unsigned kShift = 40;
    return static_cast<std::uintptr_t>(stream) ^ (thread << kShift);
  }
  // The work of that stream that is noted; NULL where none is.
  const StreamWork* workOf(accel::NativeStream stream) const noexcept;
  // The place for a stream's newest work: its own, that of finished work, or a new one.
  std::size_t entryFor(accel::NativeStream stream) const noexcept;

  accel::Accelerator& accelerator_;
  accel::NativeStreams* const native_;  // the accelerator's; NULL where it has none
  accel::Devices* const devices_;       // NULL where it is one
  const std::size_t deviceCount_;
  std::uint64_t works_ = 1;  // pieces of work that may have written objects, and allocations
  std::array<Calls, accel::kMaxDevices> calls_{};
  std::uint64_t everyCallWork_ = 0;  // works_ by the newest call that lists nothing; 0: none
  std::uint64_t lastFlush_ = 0;      // ticket of the newest flush
  std::uint64_t newestWork_ = 0;     // works_ by the newest work
  std::uint64_t streamWork_ = 0;     // and by the newest of a stream that may use every object
  std::uint64_t streamIds_ = 0;      // given so far
  std::array<StreamWork, kMaxStreams> streams_{};
  std::size_t streamCount_ = 0;
  // Of the stream that was fenced last: which that was, as in StreamWork, and what it follows.
  struct {
    accel::NativeStream stream{};
    std::uint64_t thread = kNoThread;
    accel::NativeStreams::Fence fence;
  } fenced_;
  bool usersDiffer_ = false;
  std::vector<DeviceUses*> bound_;  // objects with bindings
  std::optional<std::thread::id> submitter_;
  std::atomic<std::size_t> hostFunctions_{0};  // queued in streams, and not over
  std::atomic<bool> settled_{false};
  CallTimes times_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_LEDGER_H_
