// SPDX-License-Identifier: Apache-2.0
//
// What the ledger notes of an object, which is part of the object, and what it answers. Apart from
// ledger.h, so that who has objects depends on no more.
#ifndef GMAC_COHERENCE_DEVICE_USES_H_
#define GMAC_COHERENCE_DEVICE_USES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/accel/devices.h"
#include "gmac/accel/native_streams.h"
#include "gmac/api/adsm.h"
#include "gmac/base/short_list.h"
#include "gmac/coherence/block_index.h"
#include "gmac/coherence/device_memory_port.h"

namespace gmac {

// A kernel that an object is bound to, and what its calls do to the object.
struct Binding {
  adsmKernel_t kernel;
  adsmAccess_t access;
};

// All bytes of an object, whatever its size.
inline constexpr ByteRange kAllBytes{0, SIZE_MAX};

// A call that listed a part of an object, and may not have finished.
struct PartUse {
  ByteRange bytes;
  accel::Ticket ticket;
  bool write = false;
};

// A launch on a stream of the program's that listed an object, and may not have finished.
struct LaunchUse {
  std::uint64_t stream;  // Ledger's number of the stream, never used again
  accel::Ticket ticket;
  bool write = false;
};

// The device work that uses one object. Part of the object.
struct DeviceUses {
  std::uint64_t born = 0;      // Ledger's count of work by then: older work cannot use the object
  std::uint64_t lastWork = 0;  // Ledger's count of work at the newest listed call
  std::uint64_t lastWriteWork = 0;  // and at the newest that may write it
  // By device: tickets of the newest calls that list all of it and may write it, or only read it.
  std::array<std::uint64_t, accel::kMaxDevices> lastWrite{};
  std::array<std::uint64_t, accel::kMaxDevices> lastRead{};
  // Calls that list parts of it, in the order of the calls. Empty, or has room for kMaxParts.
  static constexpr std::size_t kMaxParts = 64;
  std::vector<PartUse> parts;
  // The newest launches that list it, of each stream those that may write it and those that only
  // read it. Empty, or has room for kMaxLaunches.
  static constexpr std::size_t kMaxLaunches = 32;
  std::vector<LaunchUse> launches;
  std::uint64_t lastWriteLaunch = 0;  // Ledger's count of work at the newest that may write it
  std::vector<Binding> bindings;
  // The access of a call of the kernel that lists nothing; empty: it does not use the object.
  std::optional<adsmAccess_t> accessBy(adsmKernel_t kernel) const;
  // The program's promise about kernels on its own streams.
  using Users = coherence::Users;
  Users users = Users::kEverybody;
  accel::NativeStream userStream{};  // of kOneStream
  bool onlyRead = false;             // kernels do not write it
  // Whether kernels of a stream may use it. Copies that name it may whatever was promised.
  bool usedBy(accel::NativeStream stream) const {
    return users == Users::kEverybody || (users == Users::kOneStream && stream == userStream);
  }
};

// The most streams of the application whose work is noted at a time.
inline constexpr std::size_t kMaxStreams = 64;

// Some tickets; for the stack.
using Tickets =
    ShortList<accel::Ticket, kMaxStreams + accel::kMaxDevices + DeviceUses::kMaxLaunches>;

// The newest of some calls, by device; a ticket of nothing for a device that has none.
class NewestCalls {
 public:
  NewestCalls() {}  // NOLINT(modernize-use-equals-default): {} would clear all of it

  accel::Ticket& operator[](std::size_t device) {
    while (tickets_.size() <= device) {
      tickets_.add({});
    }
    return tickets_[device];
  }
  accel::Ticket operator[](std::size_t device) const {
    return device < tickets_.size() ? tickets_[device] : accel::Ticket{};
  }
  // As a span has them.
  const accel::Ticket* data() const { return tickets_.data(); }
  std::size_t size() const { return tickets_.size(); }
  const accel::Ticket* begin() const { return tickets_.begin(); }
  const accel::Ticket* end() const { return tickets_.end(); }

  friend bool operator==(const NewestCalls& a, const NewestCalls& b) {
    for (std::size_t device = 0; device < accel::kMaxDevices; ++device) {
      if (a[device] != b[device]) {
        return false;
      }
    }
    return true;
  }

 private:
  ShortList<accel::Ticket, accel::kMaxDevices> tickets_;
};

// The newest call and the newest device work that may write an object: equal ones, nothing new.
struct Writers {
  std::uint64_t call = 0;
  std::uint64_t device = 0;
  friend bool operator==(const Writers&, const Writers&) = default;
};

// The queue on which work of the calling thread follows, by the queue's order alone, all that may
// write an object and has not finished.
struct WriterQueue {
  enum class Kind : std::uint8_t { kAny, kKernelQueue, kStream, kNone };  // kNone: there is none
  Kind kind = Kind::kAny;                                                 // kAny: all has finished
  accel::NativeStream stream{};                                           // of kStream
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_DEVICE_USES_H_
