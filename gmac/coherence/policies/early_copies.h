// SPDX-License-Identifier: Apache-2.0
//
// Copies that are asked for before a call or an access needs them: early flushes and early fetches.
// Both are hints: what cannot be done now is left to the call or the access.
#ifndef GMAC_COHERENCE_POLICIES_EARLY_COPIES_H_
#define GMAC_COHERENCE_POLICIES_EARLY_COPIES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "gmac/base/status.h"
#include "gmac/coherence/alarm.h"
#include "gmac/coherence/device_uses.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/object.h"
#include "gmac/coherence/policies/early_step.h"
#include "gmac/coherence/residency.h"

namespace gmac {

class Blocks;
class Ledger;

// See startFlush() and startFetch() in memory_port.h. Thread-safe; allocates nothing but its
// thread, which the first early fetch starts. Not in a child of fork.
class EarlyCopies {
 public:
  // `readAheadBytes`: the most that one step fetches. `inBackground`: by a thread, rather than by
  // whoever calls fetchNext().
  EarlyCopies(ObjectMutex& mutex, Ledger& ledger, ObjectIndex& index, Residency& residency,
              Blocks& blocks, std::size_t readAheadBytes, bool inBackground)
      : mutex_(mutex),
        ledger_(ledger),
        index_(index),
        residency_(residency),
        blocks_(blocks),
        readAheadBytes_(readAheadBytes),
        inBackground_(inBackground) {}
  ~EarlyCopies() { stop(); }
  EarlyCopies(const EarlyCopies&) = delete;
  EarlyCopies& operator=(const EarlyCopies&) = delete;

  Status startFlush(const void* address, std::size_t bytes);
  Status startFetch(const void* address, std::size_t bytes);
  // Ends the thread. What it would have fetched is fetched on demand.
  void stop();

  // One step of the oldest early fetch; for one thread at a time.
  EarlyStep fetchNext();

 private:
  // A part of one object that shall be fetched early, and who may write the object by then.
  struct Fetch {
    const std::byte* first = nullptr;
    const std::byte* last = nullptr;
    Writers writers;
  };

  void backgroundLoop();

  ObjectMutex& mutex_;
  Ledger& ledger_;
  ObjectIndex& index_;
  Residency& residency_;
  Blocks& blocks_;
  const std::size_t readAheadBytes_;
  const bool inBackground_;
  // Oldest first.
  std::array<Fetch, 64> ring_{};
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  Alarm alarm_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_POLICIES_EARLY_COPIES_H_
