// SPDX-License-Identifier: Apache-2.0
//
// Copies to the CPU, on the queue of the kernels that the program waits for, of the bytes that it
// is about to read (read_back_policy.h).
#ifndef GMAC_COHERENCE_POLICIES_READ_BACKS_H_
#define GMAC_COHERENCE_POLICIES_READ_BACKS_H_

#include <cstdint>
#include <optional>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/native_streams.h"
#include "gmac/base/short_list.h"
#include "gmac/base/status.h"
#include "gmac/coherence/blocks.h"
#include "gmac/coherence/device_uses.h"
#include "gmac/coherence/listing_policy.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/zero_copy.h"
#include "gmac/coherence/repeated_launches.h"

namespace gmac {

class Ledger;

// To everybody else such a copy is device work that writes the object: accesses of the CPU wait for
// it, and so does the object's end. It is queued after the work that the program waits for, on the
// same queue, so that it keeps nothing waiting that the work does not. There is none where
// something on that queue may wait for the CPU, which would wait for the copy. Bytes that have one
// copy (zero_copy.h) are opened at the wait's end alone. Thread-safe. Not for the fault handler,
// nor in a child of fork. Where threads wait each for its own work, each wait is for the objects
// that its thread comes for (waiting_threads.h).
class ReadBacks {
 public:
  ReadBacks(accel::Accelerator& accelerator, Ledger& ledger, Blocks& blocks, ZeroCopy& zeroCopy,
            ListingPolicy& listing)
      : accelerator_(accelerator),
        native_(accelerator.nativeStreams()),
        reach_(accelerator.devices() != nullptr && accelerator.devices()->reachEachOther()),
        ledger_(ledger),
        blocks_(blocks),
        zeroCopy_(zeroCopy),
        listing_(listing) {}
  ReadBacks(const ReadBacks&) = delete;
  ReadBacks& operator=(const ReadBacks&) = delete;

  // Whether there is anything to do; needs no lock.
  bool any() const { return blocks_.anyReadBacks() || zeroCopy_.any(); }
  // What waits have to do while nobody takes the lock. Under the lock.
  RepeatedLaunches::Waits waitsWithoutLock() const {
    return {.skip = !blocks_.anyReadBacks() && zeroCopy_.restsUnlocked(),
            .contended = zeroCopy_.isContended()};
  }
  // The program is about to wait, and neither the wait nor what follows it has anything to do.
  // Needs no lock.
  bool foundSettled() { return zeroCopy_.foundSettled(); }
  // The stream whose round a wait of this thread's for an event is taken to end. Under the lock.
  std::optional<accel::NativeStream> streamOfEvent() const;
  // The program waits, nobody knows for what. Needs no lock.
  void noteWait() { zeroCopy_.noteWait(); }
  // The program is about to wait: for all device work, or for that of one stream. Queues the
  // copies. A hint: a failure leaves the bytes to the access.
  void beforeWait(Lock& lock, std::optional<accel::NativeStream> stream);
  // The program has waited with success, until `now`: opens the bytes that were copied. Lets the
  // lock go.
  void afterWait(Lock& lock, const coherence::DeviceWait& wait, std::uint64_t now);

 private:
  // What a wait takes longer for copies, in nanoseconds.
  static constexpr std::uint64_t kTakes = 15'000;

  // Places of an object, by number.
  using Places = ShortList<std::size_t, ReadBackPlaces::kMost>;
  Places placesToOpen(const Object& object) const;
  bool mayCopyOn(const WriterQueue& queue, std::optional<accel::NativeStream> stream) const;
  bool guess(Object& object, const Places& places);
  void copy(Object& object, const Places& places, const WriterQueue& queue);
  void openAfter(Object& object, const Places& places);
  void noteCopies(std::uint64_t now);
  Result<accel::Ticket> submit(const WriterQueue& queue, Object& object, accel::Work& work);

  accel::Accelerator& accelerator_;
  accel::NativeStreams* const native_;
  const bool reach_;  // memory of any device, by a copy on any queue
  Ledger& ledger_;
  Blocks& blocks_;
  ZeroCopy& zeroCopy_;
  ListingPolicy& listing_;
  bool copied_ = false;  // for a wait that has not ended
  WaitingThreads waiting_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_READ_BACKS_H_
