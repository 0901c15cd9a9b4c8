// SPDX-License-Identifier: Apache-2.0
//
// The pages of objects: chunks are populated and pinned when the CPU first needs them, or by a
// thread ahead of it.
#ifndef GMAC_COHERENCE_RESIDENCY_H_
#define GMAC_COHERENCE_RESIDENCY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"
#include "gmac/coherence/alarm.h"
#include "gmac/coherence/freed_memory.h"
#include "gmac/coherence/idle_window.h"
#include "gmac/coherence/lock.h"
#include "gmac/coherence/mapping_use.h"
#include "gmac/coherence/object.h"
#include "gmac/os/mirror.h"

namespace gmac {

// Changes what objects have of chunks, and nothing else of them. Functions with a lock may let it
// go. Fault path, but for the thread.
class Residency final : public os::Pinner {
 public:
  Residency(ObjectMutex& mutex, accel::Accelerator& accelerator, ObjectIndex& index,
            MappingUse& mappings, FreedMemory& freed)
      : mutex_(mutex),
        accelerator_(accelerator),
        index_(index),
        mappings_(mappings),
        freed_(freed) {}
  ~Residency() override { stop(); }
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // Starts, and ends, the thread that populates ahead and disposes of freed pages. Its work is done
  // by whoever needs it otherwise. Not in a child of fork.
  void start();
  void stop();

  // The CPU is about to use bytes of blocks [index, index + 1): their pages are there at kDone.
  Result<Step> makeReady(Lock& lock, Object& object, BlockIndex index);
  // Makes the pages of a range exist.
  Status populate(Lock& lock, Object& object, BlockRange range);
  // For an object that nobody knows yet, whose pages the CPU may touch.
  Status populateAll(Object& object);
  // Populates and installs one chunk ahead of the CPU; false when there is nothing (more) to do for
  // now.
  bool populateNext();

  // The object is out of use.
  void forget(Object& object);
  // A thread of the application has just been served, and is busy with what it got.
  void served() noexcept { idle_.used(); }

  // os::Pinner, for the mirrors.
  Status pin(void* address, std::size_t bytes, int fd, std::int64_t offset) override;
  Status unpin(void* address, std::size_t bytes, int fd, std::int64_t offset) override;

 private:
  void backgroundLoop();
  Object* nextToPopulate(std::size_t* chunk);
  Status populate(Lock& lock, Object& object, std::size_t chunk);
  void noteUse(Object& object, std::size_t chunk, Object::Use use);

  ObjectMutex& mutex_;
  accel::Accelerator& accelerator_;
  ObjectIndex& index_;
  MappingUse& mappings_;
  FreedMemory& freed_;

  // Population ahead: what waits to be touched is never more than the CPU has touched, so that
  // memory which the CPU leaves alone costs nothing.
  std::size_t touchedBytes_ = 0;
  std::size_t aheadBytes_ = 0;
  Object* lastTouched_ = nullptr;
  IdleWindow idle_;
  std::uint32_t usesSeen_ = 0;  // of idle_, when the chunk was begun; the thread's own
  Alarm alarm_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::thread::id> background_{};  // the thread's, once it runs
  std::thread thread_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_RESIDENCY_H_
