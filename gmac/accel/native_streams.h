// SPDX-License-Identifier: Apache-2.0
//
// Streams and contexts that the application makes and uses itself, where a device has them (CUDA).
#ifndef GMAC_ACCEL_NATIVE_STREAMS_H_
#define GMAC_ACCEL_NATIVE_STREAMS_H_

#include <cstdint>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/commands.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// A queue that the application owns, as an opaque number: that of the stream (a CUstream /
// cudaStream_t) where it belongs to nativeContext() or there is no such context, else the one that
// streamOf() gives.
enum class NativeStream : std::uintptr_t {};

// A stream of a context that the accelerator does not know: it can neither make it wait nor ask.
inline constexpr NativeStream kForeignStream{UINTPTR_MAX};

// A capability of an Accelerator (see Accelerator::nativeStreams()), with the preconditions and
// errors of one. No function takes kForeignStream.
class NativeStreams {
 public:
  // Work that a stream is known to follow: the newest copyIn, and the newest of the kernel queue.
  struct Fence {
    Ticket copyIn;
    Ticket kernelWork;
    friend bool operator==(const Fence&, const Fence&) = default;
  };

  virtual ~NativeStreams() = default;

  // ---- Streams

  // adsmErrorInvalidValue if the number is known to be no stream. Some hundred nanoseconds.
  virtual Status check(NativeStream stream) const = 0;
  // True if the number means another stream in each thread.
  virtual bool perThread(NativeStream stream) const noexcept = 0;

  // True if what is submitted to the stream is recorded rather than run, or that is not known. Some
  // hundred nanoseconds.
  virtual bool capturing(NativeStream stream) const noexcept = 0;

  // Everything submitted to `stream` from now on runs after the copyIns and the kernel queue's work
  // submitted so far. Returns those; `earlier`: what a fence of the same stream has returned, or
  // none. What that covers is not ordered again.
  virtual Result<Fence> fence(NativeStream stream, const Fence& earlier) = 0;
  // What a fence would return now. Two loads.
  virtual Fence newest() const noexcept = 0;
  // Everything submitted to `stream` from now on runs after the ticket's work.
  virtual Status follow(NativeStream stream, Ticket ticket) = 0;
  // A ticket for all that `stream` holds so far. `earlier`: a ticket of a mark that is known to be
  // of the same stream, or none. It is complete when the new one is, if not before.
  virtual Result<Ticket> mark(NativeStream stream, Ticket earlier) = 0;
  // Accelerator::endIsAwaited() of a mark that `stream` has just got.
  virtual void endIsAwaited(NativeStream stream, Ticket ticket) noexcept {
    (void)stream;
    (void)ticket;
  }
  // A stream of the accelerator's own that is ordered with no other and that the application does
  // not see, for work that the kernel queue's must not wait for; the same one each time. Blocks the
  // first time.
  virtual Result<NativeStream> sideStream() {
    return fail(adsmErrorNotSupported, "this accelerator has no stream of its own");
  }
  // Waits for everything that has been submitted to any stream. Blocks.
  virtual Status waitForAll() = 0;

  // As Accelerator::submit(), but the commands run on `stream`; mark() gives the ticket.
  // adsmErrorNotSupported: a kernel in another context than nativeContext().
  virtual Status submit(NativeStream stream, Work& work) = 0;
  // As submit() of that one launch, in fewer steps.
  virtual Status launch(NativeStream stream, LoadedKernels& kernels, const Launch& launch) = 0;

  // A call of the application's own in that context has failed with the layer's number. Where that
  // says that a kernel has crashed, the accelerator is lost from here on.
  virtual void failed(int number) noexcept { (void)number; }

  // ---- Contexts

  // The context that streams belong to (a CUcontext), as an opaque number; 0: not known. Constant
  // but for leaveContext().
  virtual std::uintptr_t nativeContext() const noexcept = 0;
  // The device (a CUdevice) in whose primary context everything lives; -1: in another, or none.
  virtual int primaryDevice() const noexcept = 0;

  // The number of a stream of another context (a CUcontext) of the application's, of whatever
  // device; `stream`: its number there. From the context's first one on, its device's kernels reach
  // this accelerator's memory, where that does not lie apart from it (MovableMemory::gatherIn()).
  // kForeignStream where there are too many contexts. Blocks the first time. adsmErrorNotSupported:
  // that device cannot reach the memory.
  virtual Result<NativeStream> streamOf(std::uintptr_t context, NativeStream stream) {
    (void)context;
    (void)stream;
    return kForeignStream;
  }
  // The device of a stream's context, by the driver's number.
  virtual int deviceOf(NativeStream stream) const noexcept {
    (void)stream;
    return 0;
  }
  // Whether such a context is known now. A load.
  virtual bool knowsOthers() const noexcept { return false; }
  // The application is about to end such a context, and has waited for all work there. Tickets of
  // its streams are complete.
  virtual void otherEnds(std::uintptr_t context) noexcept { (void)context; }

  // The application is about to end the context that everything lives in, and has waited for all
  // work there. contextEnds: called first; an accelerator that cannot outlive its context is lost
  // from here on. The caller then frees all memory and unpins everything. leaveContext: nothing is
  // left; tickets so far are complete, and loaded kernels stay valid. The next method that needs a
  // context finds one as a fresh accelerator does; a device that was lost with the old one works
  // again. No other method may be under way.
  virtual void contextEnds() noexcept = 0;
  virtual void leaveContext() noexcept = 0;
};

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_NATIVE_STREAMS_H_
