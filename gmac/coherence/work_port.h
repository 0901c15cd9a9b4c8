// SPDX-License-Identifier: Apache-2.0
//
// Device work that the application or an engine submits: its release and its waits, host functions,
// streams and contexts. For interpose/cuda/, for datatype/, and for other libraries.
#ifndef GMAC_COHERENCE_WORK_PORT_H_
#define GMAC_COHERENCE_WORK_PORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/status.h"
#include "gmac/coherence/port.h"

namespace gmac::coherence {

// A range that device work uses.
struct DeviceRange {
  const void* address;  // a shared address, as a device address (identical); NULL: every object
  std::size_t bytes;    // ignored with NULL
  bool write;           // the work may write it; else it only reads it
  // The driver gets it in parts of one kind of memory each (WorkPort::ofOneKind()); else as a
  // whole, as it does one that runs past its allocation: it refuses that, or knows that other
  // memory follows.
  bool inParts = false;
  // With NULL: every object of which another range of the same work has a byte, all of it, and no
  // more. The others say whether the work may write it.
  bool listed = false;
};

// What the runtime knew when the application began to wait for device work.
struct DeviceWait {
  std::uint64_t launches = 0;  // all that were not marked, which the wait is for; 0: not that
  bool skipped = false;        // the runtime has nothing to do at this wait
  bool asks = false;           // see beforeDeviceWait(); or the runtime is told at the end alone
  bool begun = false;          // the policies know of it
  bool ofOwn = false;  // nobody has announced it: a call of the program's waits for its own work
  // Of one that asks, has begun, or is for own work; none: all work.
  std::optional<accel::NativeStream> stream;
  // What it may be the end of (unlocked_rounds.h).
  struct Rounds {
    bool noted = false;
    bool atEnd = false;  // that is found out as the wait ends
    bool ofEvent = false;
    std::optional<accel::NativeStream> stream;  // none: of all; of an event, it is not known
    std::uint64_t since = 0;  // the first launch; 0: there is none, or it is not known
    std::uint64_t until = 0;  // the newest one of those that rounds began with
  };
  Rounds rounds{};
};

// All methods are thread-safe. Do not call them from inside the accelerator's driver. Those that
// are noexcept allocate nothing and may be called in signal handlers. The defaults are the answers
// of a process in which nothing is shared; an implementation overrides what it has.
class WorkPort {
 public:
  WorkPort(const WorkPort&) = delete;
  WorkPort& operator=(const WorkPort&) = delete;

  // ---- Device work that the application submits itself, on a stream of its own

  // Release: flushes dirty blocks of `ranges`, invalidates those that the work may write, and makes
  // `stream` wait for the flushes. Call it immediately before submitting the work; after success
  // the same thread must call endDeviceWork() exactly once. Until then, accesses of other threads
  // to shared objects wait. Ignores `ranges` that are not shared. accel::kForeignStream: the call
  // itself waits for the flushes, and the caller must wait for the work before endDeviceWork().
  virtual Status beginDeviceWork(accel::NativeStream stream, std::span<const DeviceRange> ranges);
  // The work has been submitted; submitted = false: that failed. Later CPU accesses to the ranges
  // that it may write wait for it.
  virtual Status endDeviceWork(accel::NativeStream stream, bool submitted);
  // The same pair for a launch that may use every object and write it, where work of the same
  // stream has been the newest event: holds no lock meanwhile. May wait for another thread's
  // submission. False: call beginDeviceWork() instead. The program's handlers are kept out of the
  // thread from the first to the second (os::SignalsBlocked). `names`: it is a copy or a fill of
  // some objects' bytes, of which the driver touches none by the CPU, and does not wait.
  // mayRepeat(): whether it is worth to ask. Loads.
  virtual bool mayRepeat(bool names) const noexcept;
  bool mayRepeat() const noexcept { return mayRepeat(false); }
  virtual bool beginRepeated(accel::NativeStream stream, bool names) noexcept;
  bool beginRepeated(accel::NativeStream stream) noexcept { return beginRepeated(stream, false); }
  virtual void endRepeated(accel::NativeStream stream, bool submitted) noexcept;
  // markRepeated: what was launched like that is marked now, as the application is about to end its
  // stream, or to put other work there. noneRepeats: and no launch that has begun before is under
  // way, as the application is about to record the work of streams.
  virtual void markRepeated() noexcept;
  virtual void noneRepeats() noexcept;
  // After captureBegins(): each object has memory of one kind from now on, as long as
  // captureUnderWay() or recorded(), but where device work goes on for longer than a few
  // milliseconds.
  virtual void keepWhole() noexcept;
  // The same of these ranges alone; where one does not lie in memory of one kind, waits for all
  // device work.
  virtual void keepWhole(std::span<const DeviceRange> ranges) noexcept;
  // The application is about to wait for all device work, or for that of one stream;
  // kForeignStream: for an event, or something else. `asks`: it only asks whether that has ended. A
  // hint: copies the bytes that the CPU is likely to read next, on the same queue after that work.
  virtual DeviceWait beforeDeviceWait(std::optional<accel::NativeStream> stream, bool asks);
  DeviceWait beforeDeviceWait(std::optional<accel::NativeStream> stream) {
    return beforeDeviceWait(stream, false);
  }
  // Acquire: the application has waited for device work (a stream, an event, the context) with
  // success, or has been told that it has ended. Under batch-update this fetches the objects, once
  // every pending call has finished.
  virtual Status afterDeviceWait(const DeviceWait& wait);
  Status afterDeviceWait() { return afterDeviceWait(DeviceWait{}); }
  // Whether that fetches objects: then what only tells of work that has ended is a wait as well.
  virtual bool fetchesAtWaits() const noexcept;

  // A CUDA call of the application's in nativeContext() has failed with that number. See
  // accel::NativeStreams.
  void callFailed(int number) noexcept {
    if (native_ != nullptr) native_->failed(number);
  }

  // hostFunctionQueued: a host function has been queued in a stream, between beginDeviceWork()
  // without ranges and endDeviceWork(submitted = false). hostFunctionEnded: it has run, or never
  // will. Later device work waits for it: its writes are released then, and it never waits for work
  // after it.
  virtual void hostFunctionQueued();
  virtual void hostFunctionEnded();

  // The application destroys a stream: objects that only that stream used have all users again.
  virtual void streamDestroyed(accel::NativeStream stream);

  // Length of a prefix of [address, address + bytes), bytes > 0, that the driver copies or fills at
  // once: some pages of an object may have one copy, in the CPU's memory. Good from
  // beginDeviceWork() to endDeviceWork(), for a range that says `inParts`.
  virtual std::size_t ofOneKind(const void* address, std::size_t bytes) noexcept;

  // ---- Device work of an engine, on the accelerator's kernel queue

  // The runtime's accelerator; starts the runtime if need be.
  virtual Result<accel::Accelerator*> ensureAccelerator();
  // Release, as by beginDeviceWork(), for work that the caller submits to the kernel queue.
  // endOwnWork() takes its ticket; an empty one: nothing was submitted. Pass both the same ranges,
  // each with an address.
  virtual Status beginOwnWork(std::span<const DeviceRange> ranges);
  virtual Status endOwnWork(std::span<const DeviceRange> ranges, accel::Ticket ticket);

  // ---- Contexts

  // The context (a CUcontext) that streams belong to; 0 while it is not known. Constant once known,
  // until endContext().
  std::uintptr_t nativeContext() const noexcept {
    return native_ != nullptr ? native_->nativeContext() : 0;
  }
  // The device (a CUdevice) in whose primary context shared objects live; -1: in another, or none.
  int primaryDevice() const noexcept { return native_ != nullptr ? native_->primaryDevice() : -1; }
  // The number of a stream of another context; whether other contexts are known; one of them ends.
  // See accel::NativeStreams.
  Result<accel::NativeStream> streamOf(std::uintptr_t context, accel::NativeStream stream) {
    return native_ != nullptr ? native_->streamOf(context, stream) : accel::kForeignStream;
  }
  bool knowsOtherContexts() const noexcept { return native_ != nullptr && native_->knowsOthers(); }
  virtual void otherContextEnds(std::uintptr_t context) noexcept {
    if (native_ != nullptr) native_->otherEnds(context);
  }
  // The application is about to destroy the runtime's context, or to reset its device, and has
  // waited for its work; `workFinished`: with success. Frees all objects. The next allocation
  // chooses another context.
  virtual void endContext(bool workFinished);

 protected:
  // `native`: the accelerator's streams, which outlive the port.
  constexpr explicit WorkPort(accel::NativeStreams* native = nullptr) noexcept : native_(native) {}
  ~WorkPort() = default;

 private:
  accel::NativeStreams* const native_;
};

namespace internal {
inline constinit std::atomic<std::uint64_t> contextsEnded{0};  // counted where objects are freed
inline constinit std::atomic<bool> openWaits{false};
inline constinit std::atomic<bool> recorded{false};
inline constinit std::atomic<int> captures{0};
inline constinit std::atomic<bool> launchesList{false};
}  // namespace internal

// The application has made a stream wait for a later action of the CPU or of another process. Our
// own work on that stream may then wait for it too, so the CPU must not wait for such work. Never
// revoked; may be called before the runtime starts.
inline void noteOpenWait() noexcept { internal::openWaits.store(true, std::memory_order_relaxed); }
inline bool openWaits() noexcept { return internal::openWaits.load(std::memory_order_relaxed); }

// The application has recorded work that runs later and names shared memory by ranges: a copy or a
// fill in a graph. Call it before captureEnds(). Never revoked.
inline void noteRecorded() noexcept { internal::recorded.store(true); }
inline bool recorded() noexcept { return internal::recorded.load(); }

// From before the application begins to capture work of streams until it has ended that. Streams
// may join a capture meanwhile. Under way for ever where a captured stream was destroyed. May be
// called before the runtime starts.
inline void captureBegins() noexcept { internal::captures.fetch_add(1); }
inline void captureEnds() noexcept { internal::captures.fetch_sub(1); }
inline bool captureUnderWay() noexcept { return internal::captures.load() != 0; }

// Whether it is worth the time to find out which objects a launch may use, and to list them
// (DeviceRange::listed). For the implementation to say.
inline void letLaunchesList(bool list) noexcept {
  internal::launchesList.store(list, std::memory_order_relaxed);
}
inline bool launchesList() noexcept {
  return internal::launchesList.load(std::memory_order_relaxed);
}

// How often a context has ended; resources made in it are gone. A load.
inline std::uint64_t contextsEnded() noexcept { return internal::contextsEnded.load(); }

}  // namespace gmac::coherence

#endif  // GMAC_COHERENCE_WORK_PORT_H_
