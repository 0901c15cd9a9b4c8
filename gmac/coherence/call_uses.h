// SPDX-License-Identifier: Apache-2.0
//
// The uses of a call: those that it lists, or every object that its kernel may use; and which of
// them lie elsewhere.
#ifndef GMAC_COHERENCE_CALL_USES_H_
#define GMAC_COHERENCE_CALL_USES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gmac/accel/devices.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"
#include "gmac/coherence/block_index.h"
#include "gmac/coherence/device_uses.h"
#include "gmac/coherence/object.h"

namespace gmac {

class Ledger;

// The uses that a call lists. A view of memory that is not shared.
struct CallUses {
  const char* function = "adsmCallUsing";  // whose arguments they are, for messages
  bool parts =
      false;  // of objects; else whole objects, and one that is listed twice has both accesses
  std::span<const adsmRangeUse_t> list;
};

// An object that is not where work needs it. No address: there is none.
struct Away {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  // the object's, which tells whether it is still the same
  ByteRange part{};  // whole blocks that are needed, or pages that get a home; empty: all of it is
};

// The objects that one call uses on one device. A view for the duration of the call; its functions
// are called under the lock of all objects, and answer for the moment.
class UsedObjects {
 public:
  // `devices`: the accelerator's; NULL where it is one device.
  UsedObjects(ObjectIndex& index, const Ledger& ledger, accel::Devices* devices,
              adsmKernel_t kernel, const std::optional<CallUses>& uses, std::size_t device)
      : index_(index),
        ledger_(ledger),
        kernel_(kernel),
        uses_(uses),
        device_(device),
        several_(devices != nullptr),
        reach_(several_ && devices->reachEachOther()) {}

  bool listed() const { return uses_.has_value(); }
  bool parts() const { return uses_ && uses_->parts; }

  // Whether what is listed lies in objects, and parts with different accesses do not overlap.
  // adsmErrorInvalidPointer, adsmErrorInvalidValue.
  Status check() const;

  // Calls `function(object, blocks, access)` for all that the call uses, until that is true.
  template <typename Function>
  bool any(Function function) const {
    if (!uses_) {
      for (Object& object : index_.all()) {
        const auto access =
            static_cast<unsigned>(object.accessBy(kernel_).value_or(adsmAccess_t{}));
        if (access != 0 && function(object, object.all(), access)) {
          return true;
        }
      }
      return false;
    }
    return std::any_of(uses_->list.begin(), uses_->list.end(), [&](const adsmRangeUse_t& use) {
      // Gone where the application freed it in another thread while the call waited.
      Object* const object = index_.findAllocation(use.address);
      if (object == nullptr || bytesIn(*object, use).end > object->bytes()) {
        return false;
      }
      const unsigned access = accessIn(*object, use);
      const auto ofPage = [&](const std::unique_ptr<Object>& page) {
        const BlockRange blocks = blocksIn(*page, bytesIn(*object, use));
        return !blocks.empty() && function(*page, blocks, access);
      };
      return function(*object, blocksIn(*object, use), access) ||
             std::any_of(object->pages.begin(), object->pages.end(), ofPage);
    });
  }

  // The first of them that is not where the call needs it; false: there is none.
  bool findAway(Away* away) const { return several_ && findAwayAmongSeveral(away); }
  // The same of these blocks of an object, whose home is chosen already.
  bool isAway(const Object& object, BlockRange blocks, Away* away) const;

  // Whether the call may write what is lent on the device.
  bool writesLent() const;
  // The newest calls on other devices that this one comes after.
  NewestCalls conflicts() const;

 private:
  // The bytes of a use in its object, whatever blocks that has.
  static ByteRange bytesIn(const Object& object, const adsmRangeUse_t& use) {
    const auto begin =
        static_cast<std::size_t>(static_cast<const std::byte*>(use.address) - object.address());
    return use.bytes == 0 ? ByteRange{0, object.bytes()} : ByteRange{begin, begin + use.bytes};
  }
  // The blocks that a call hands over for a use of it.
  static BlockRange blocksIn(const Object& object, const adsmRangeUse_t& use) {
    return use.bytes == 0 ? object.all() : object.covering(use.address, use.bytes);
  }
  // Those of a page of the object that it has in such bytes of the object.
  static BlockRange blocksIn(const Object& page, ByteRange bytes) {
    const auto begin = static_cast<std::size_t>(page.address() - page.allocation().address());
    const ByteRange in{std::max(bytes.begin, begin), std::min(bytes.end, begin + page.bytes())};
    return in.begin < in.end ? page.covering(page.address() + (in.begin - begin), in.length())
                             : BlockRange{};
  }
  // The access of a use; those of all uses of an object that the call uses as a whole.
  unsigned accessIn(const Object& object, const adsmRangeUse_t& use) const;
  bool findAwayAmongSeveral(Away* away) const;
  bool mayStay(const Object& object) const;
  bool lacks(const Object& object, BlockRange blocks) const;
  bool isPartAway(const adsmRangeUse_t& use, Away* away) const;

  ObjectIndex& index_;
  const Ledger& ledger_;
  const adsmKernel_t kernel_;
  const std::optional<CallUses>& uses_;
  const std::size_t device_;
  const bool several_;  // devices
  const bool reach_;    // which reach each other's memory
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_CALL_USES_H_
