// SPDX-License-Identifier: Apache-2.0
#include "mpi/device_copies.h"

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gmac/api/adsm_datatype.h"
#include "gmac/datatype/engine/arriving_bytes.h"
#include "gmac/datatype/engine/lent_bytes.h"

namespace gmac::mpi {
namespace {

using datatype::Block;
using datatype::Layout;
using std::int64_t;

// A committed type of a layout's bytes. Its owner.
class Type {
 public:
  Type() = default;
  ~Type() {
    if (type_ != nullptr) {
      (void)adsmTypeFree(type_);
    }
  }
  Type(const Type&) = delete;
  Type& operator=(const Type&) = delete;

  adsmError_t make(const Layout& layout) {
    std::vector<int64_t> lengths;
    std::vector<int64_t> places;
    for (const Block& block : layout.blocks()) {
      lengths.push_back(block.bytes);
      places.push_back(block.offset);
    }
    adsmError_t error = adsmTypeHindexed(static_cast<int64_t>(lengths.size()), lengths.data(),
                                         places.data(), ADSM_TYPE_1, &type_);
    for (auto dim = layout.dims().rbegin(); dim != layout.dims().rend() && error == adsmSuccess;
         ++dim) {
      adsmType_t around = nullptr;
      error = adsmTypeHvector(dim->count, 1, dim->stride, type_, &around);
      if (error == adsmSuccess) {
        (void)adsmTypeFree(std::exchange(type_, around));
      }
    }
    return error == adsmSuccess ? adsmTypeCommit(type_) : error;
  }
  adsmType_t get() const { return type_; }

 private:
  adsmType_t type_ = nullptr;
};
using TypePtr = std::shared_ptr<const Type>;

// The types of the last layouts. Thread-safe. Never destroyed: messages may be copied at exit.
class Types {
 public:
  static Types& all() {
    static auto* const kAll = new Types;
    return *kAll;
  }
  adsmError_t find(const Layout& layout, TypePtr* type) {
    {
      const std::lock_guard guard(lock_);
      if (findIf([&](const Kept& kept) { return kept.layout.isCopyOf(layout); }, type)) {
        return adsmSuccess;
      }
    }
    // An equal list of another owner, as the two sides of a message have: read once, not again for
    // each message.
    Kept dropped;  // freed without the lock
    {
      const std::lock_guard guard(lock_);
      if (findIf([&](const Kept& kept) { return kept.layout == layout; }, type)) {
        keep({layout, *type}, &dropped);
        return adsmSuccess;
      }
    }
    const auto made = std::make_shared<Type>();
    if (const adsmError_t error = made->make(layout); error != adsmSuccess) {
      return error;
    }
    *type = made;
    const std::lock_guard guard(lock_);
    keep({layout, made}, &dropped);
    return adsmSuccess;
  }

 private:
  static constexpr std::size_t kMax = 32;
  struct Kept {
    Layout layout;
    TypePtr type;
  };

  template <typename Predicate>
  bool findIf(Predicate isWanted, TypePtr* type) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), isWanted);
    if (found == kept_.end()) {
      return false;
    }
    kept_.splice(kept_.begin(), kept_, found);
    *type = found->type;
    return true;
  }
  void keep(Kept one, Kept* dropped) {
    kept_.push_front(std::move(one));
    if (kept_.size() > kMax) {
      *dropped = std::move(kept_.back());
      kept_.pop_back();
    }
  }

  std::mutex lock_;
  std::list<Kept> kept_;  // the newest first
};

// Where byte `offset` in packed order lies, if the layout is one piece.
bool lineAt(const Layout& layout, const void* base, int64_t offset, void** at) {
  if (!layout.dims().empty() || layout.blocks().size() != 1) {
    return false;
  }
  *at = static_cast<std::byte*>(const_cast<void*>(base)) + layout.blocks()[0].offset + offset;
  return true;
}

}  // namespace

adsmError_t beginCopy(const Layout& to, void* target, const Layout& from, const void* source,
                      int64_t offset, int64_t bytes, void** event) {
  adsmPackEvent_t made = nullptr;
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.event = &made;
  void* packedTo = nullptr;
  void* packedFrom = nullptr;
  const bool packs = lineAt(to, target, offset, &packedTo);
  const bool unpacks = lineAt(from, source, offset, &packedFrom);
  adsmError_t error = adsmSuccess;
  if (packs && unpacks) {
    error = adsmPackWith(packedTo, packedFrom, bytes, ADSM_TYPE_1, &options);
  } else {
    options.offset = offset;
    options.bytes = bytes;
    TypePtr toType;
    TypePtr fromType;
    if (!packs) {
      error = Types::all().find(to, &toType);
    }
    if (!unpacks && error == adsmSuccess) {
      error = Types::all().find(from, &fromType);
    }
    if (error != adsmSuccess) {
      return error;
    }
    error = packs ? adsmPackWith(packedTo, source, 1, fromType->get(), &options)
            : unpacks
                ? adsmUnpackWith(target, packedFrom, 1, toType->get(), &options)
                : adsmTransferWith(target, 1, toType->get(), source, 1, fromType->get(), &options);
  }
  *event = made;
  return error;
}

adsmError_t beginPack(const Layout& to, void* target, const Layout& from, const void* source,
                      int64_t offset, int64_t bytes, void** event) {
  void* packed = nullptr;
  if (!lineAt(to, target, offset, &packed)) {
    return beginCopy(to, target, from, source, offset, bytes, event);
  }
  TypePtr type;
  adsmPackEvent_t made = nullptr;
  adsmError_t error = Types::all().find(from, &type);
  if (error == adsmSuccess) {
    error = gmacPackLent(packed, source, type->get(), offset, bytes, &made);
  }
  *event = made;
  return error;
}

adsmError_t beginUnpack(const Layout& to, void* target, const Layout& from, const void* source,
                        int64_t offset, int64_t bytes, void** event) {
  void* line = nullptr;
  void* packed = nullptr;
  if (!lineAt(to, target, offset, &line) || !lineAt(from, source, offset, &packed)) {
    return beginCopy(to, target, from, source, offset, bytes, event);
  }
  adsmPackEvent_t made = nullptr;
  adsmPackOptions_t options = {};
  options.size = sizeof options;
  options.event = &made;
  const adsmError_t error = adsmUnpackWith(line, packed, bytes, ADSM_TYPE_1, &options);
  *event = made;
  return error;
}

adsmError_t beginArrival(const Layout& to, void* target, int64_t bytes, const void* ring,
                         int64_t fragmentBytes, int slots, void** arrival) {
  TypePtr type;
  gmacArrival* made = nullptr;
  adsmError_t error = Types::all().find(to, &type);
  if (error == adsmSuccess) {
    error = gmacUnpackArriving(target, type->get(), bytes, ring, fragmentBytes, slots, &made);
  }
  *arrival = made;
  return error;
}

int64_t tellArrived(void* arrival, int64_t fragments) {
  return gmacArrived(static_cast<gmacArrival*>(arrival), fragments);
}

void tellNoMoreArrives(void* arrival) { gmacNoMoreArrives(static_cast<gmacArrival*>(arrival)); }

bool arrivalIsOver(void* arrival) {
  return gmacArrivalOver(static_cast<gmacArrival*>(arrival)) != 0;
}

adsmError_t endArrival(void* arrival, int64_t* fragments) {
  return gmacEndArrival(static_cast<gmacArrival*>(arrival), fragments);
}

bool copyIsOver(void* event) { return adsmPackDone(static_cast<adsmPackEvent_t>(event)) != 0; }

adsmError_t endCopy(void* event) { return adsmPackWait(static_cast<adsmPackEvent_t>(event)); }

adsmError_t copyByDevice(const Layout& to, void* target, const Layout& from, const void* source,
                         int64_t offset, int64_t bytes) {
  if (bytes <= 0) {
    return adsmSuccess;
  }
  void* event = nullptr;
  const adsmError_t error = beginCopy(to, target, from, source, offset, bytes, &event);
  return error == adsmSuccess ? endCopy(event) : error;
}

}  // namespace gmac::mpi
