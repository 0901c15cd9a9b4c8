// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/types.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

// adsm_mpi.h calls MPI; here by what was looked up.
#define MPI_Error_string ::gmac::mpi::GMAC_MPI_ABI::real().Error_string
#define MPI_Type_free ::gmac::mpi::GMAC_MPI_ABI::real().Type_free
#define MPI_Type_get_contents ::gmac::mpi::GMAC_MPI_ABI::real().Type_get_contents
#define MPI_Type_get_contents_c ::gmac::mpi::GMAC_MPI_ABI::real().Type_get_contents_c
#define MPI_Type_get_envelope ::gmac::mpi::GMAC_MPI_ABI::real().Type_get_envelope
#define MPI_Type_get_envelope_c ::gmac::mpi::GMAC_MPI_ABI::real().Type_get_envelope_c
#define MPI_Type_get_extent_x ::gmac::mpi::GMAC_MPI_ABI::real().Type_get_extent_x
#define MPI_Type_size_x ::gmac::mpi::GMAC_MPI_ABI::real().Type_size_x
#include "gmac/api/adsm_mpi.h"
#undef MPI_Error_string
#undef MPI_Type_free
#undef MPI_Type_get_contents
#undef MPI_Type_get_contents_c
#undef MPI_Type_get_envelope
#undef MPI_Type_get_envelope_c
#undef MPI_Type_get_extent_x
#undef MPI_Type_size_x

#include "mpi/abi/handle.h"
#include "mpi/tickets.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Handles of MPI are used again. An entry goes with its type: the type has an attribute, and MPI
// calls removeType() when the type is freed.
struct Known {
  std::shared_mutex lock;  // never kept while MPI is called: MPI calls removeType()
  std::unordered_map<std::uint64_t, TypePtr> types;
  std::uint64_t changes = 1;  // how often one has gone; not for concurrent calls, like the next
  RecentAnswers<TypePtr> recent;
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm communicator;  // meaningful while the keyval is
};
Known& known() {
  static auto* const known = new Known;  // also for exit handlers
  return *known;
}

int removeType(MPI_Datatype datatype, int, void*, void*) {
  TypePtr removed;  // destroyed after the lock is gone: that calls MPI
  Known& all = known();
  const std::lock_guard guard(all.lock);
  ++all.changes;
  const auto found = all.types.find(keyOf(datatype));
  if (found != all.types.end()) {
    removed = std::move(found->second);
    all.types.erase(found);
  }
  return MPI_SUCCESS;
}

// A duplicate is a type of its own.
int copyNothing(MPI_Datatype, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return MPI_SUCCESS;
}

// Whether MPI communicates with the type. Asked where an error is nobody's but ours.
bool isCommitted(MPI_Datatype datatype) {
  const MPI_Comm own = ownCommunicator();
  // One element, which nobody reads: MPICH takes any type for none.
  const char unread = 0;
  return own == MPI_COMM_NULL ||
         real().Send(&unread, 1, datatype, MPI_PROC_NULL, 0, own) == MPI_SUCCESS;
}

bool measure(MPI_Datatype datatype, bool predefined, Type* type) {
  MPI_Count size = 0;
  MPI_Count lowerBound = 0;
  MPI_Count extent = 0;
  MPI_Count trueLowerBound = 0;
  MPI_Count trueExtent = 0;
  if (real().Type_size_x(datatype, &size) != MPI_SUCCESS ||
      real().Type_get_extent_x(datatype, &lowerBound, &extent) != MPI_SUCCESS ||
      real().Type_get_true_extent_x(datatype, &trueLowerBound, &trueExtent) != MPI_SUCCESS ||
      size == MPI_UNDEFINED || size < 0) {
    return false;
  }
  type->size = size;
  type->extent = extent;
  type->trueLowerBound = trueLowerBound;
  type->trueExtent = trueExtent;
  type->dense =
      predefined && lowerBound == 0 && trueLowerBound == 0 && extent == size && trueExtent == size;
  return true;
}

// Fills in how the payload is made, and how MPI is told of it.
bool makeWire(MPI_Datatype datatype, Type* type) {
  if (type->dense) {
    type->wire = datatype;
    return true;
  }
  adsmType_t own = nullptr;
  if (adsmTypeFromMpi(datatype, &own) == adsmSuccess) {
    if (adsmTypeCommit(own) == adsmSuccess) {
      type->own = own;
    } else {
      (void)adsmTypeFree(own);
    }
  }
  type->ownsWire =
      real().Type_contiguous(static_cast<int>(type->size), MPI_BYTE, &type->wire) == MPI_SUCCESS;
  return type->ownsWire && real().Type_commit(&type->wire) == MPI_SUCCESS;
}

#ifdef OPEN_MPI
constexpr bool splitsTickets(MPI_Datatype, const Type&) { return false; }
#else
// The size of all basic elements of a type; 0: they have several, or it is not known.
MPI_Count basicSize(MPI_Datatype datatype) {
  if (!isDerived(datatype)) {
    return denseSize(datatype);
  }
  MPI_Count ints = 0;
  MPI_Count addresses = 0;
  MPI_Count counts = 0;
  MPI_Count types = 0;
  int combiner = 0;
  if (real().Type_get_envelope_c(datatype, &ints, &addresses, &counts, &types, &combiner) !=
      MPI_SUCCESS) {
    return 0;
  }
  std::vector<int> intValues(static_cast<std::size_t>(ints));
  std::vector<MPI_Aint> addressValues(static_cast<std::size_t>(addresses));
  std::vector<MPI_Count> countValues(static_cast<std::size_t>(counts));
  std::vector<MPI_Datatype> olds(static_cast<std::size_t>(types));
  if (real().Type_get_contents_c(datatype, ints, addresses, counts, types, intValues.data(),
                                 addressValues.data(), countValues.data(),
                                 olds.data()) != MPI_SUCCESS) {
    return 0;
  }
  MPI_Count size = 0;
  for (std::size_t i = 0; i < olds.size(); ++i) {
    if (i > 0 && (size == 0 || olds[i] == olds[i - 1])) {
      continue;
    }
    const MPI_Count one = basicSize(olds[i]);
    size = i == 0 || one == size ? one : 0;
  }
  for (MPI_Datatype& old : olds) {
    if (isDerived(old)) (void)real().Type_free(&old);
  }
  return size;
}

bool splitsTickets(MPI_Datatype datatype, const Type& type) {
  constexpr auto kTicket = static_cast<std::int64_t>(tickets::kBytes);
  if (type.dense || type.size == 0 || kTicket % type.size == 0) {
    return false;
  }
  const MPI_Count basic = basicSize(datatype);
  return basic == 0 || kTicket % basic != 0;
}
#endif

FoundType makeType(MPI_Datatype datatype, bool predefined) {
  const auto type = std::make_shared<Type>();
  if (!measure(datatype, predefined, type.get())) {
    return {nullptr, false, "MPI does not say how large an element of the datatype is"};
  }
  if (!type->dense && type->size > kMaxElementBytes) {
    return {nullptr, false, "an element of the datatype has more than 1 GiB"};
  }
  if (!makeWire(datatype, type.get())) {
    return {nullptr, false, "MPI makes no type of as many bytes"};
  }
  type->splitsTickets = splitsTickets(datatype, *type);
  return {type};
}

// Predefined types are never freed: a slot keeps the first that comes there.
struct Predefined {
  std::atomic<std::uint64_t> key{0};
  const Type* dense = nullptr;  // set before the key; NULL: the type has gaps
  std::atomic<bool> taken{false};

  bool holds(MPI_Datatype datatype) const {
    const std::uint64_t wanted = keyOf(datatype);
    return wanted != 0 && key.load(std::memory_order_acquire) == wanted;
  }
};
Predefined& predefinedSlot(MPI_Datatype datatype) {
  constexpr int kSlotBits = 8;
  constinit static std::array<Predefined, std::size_t{1} << kSlotBits> slots;
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;  // as in HandleTable
  return slots[(keyOf(datatype) * kGolden) >> (64 - kSlotBits)];
}

void keepPredefined(MPI_Datatype datatype, const TypePtr& type) {
  Predefined& slot = predefinedSlot(datatype);
  if (slot.taken.load(std::memory_order_relaxed)) {
    return;
  }
  // For as long as the process lives. (It has no type of MPI's to free.)
  auto kept = type->dense ? std::make_unique<TypePtr>(type) : nullptr;
  if (!slot.taken.exchange(true)) {
    slot.dense = kept != nullptr ? kept.release()->get() : nullptr;
    slot.key.store(keyOf(datatype), std::memory_order_release);
  }
}

TypePtr lookUp(MPI_Datatype datatype) {
  const Predefined& slot = predefinedSlot(datatype);
  if (slot.holds(datatype) && slot.dense != nullptr) {
    return {TypePtr(), slot.dense};  // nobody counts its users
  }
  Known& all = known();
  const std::shared_lock guard(all.lock);
  const auto found = all.types.find(keyOf(datatype));
  return found != all.types.end() ? found->second : nullptr;
}

}  // namespace

Type::~Type() {
  if (own != nullptr) {
    (void)adsmTypeFree(own);
  }
  // After MPI_Finalize the library has freed it.
  if (ownsWire && ownCommunicator() != MPI_COMM_NULL) {
    (void)real().Type_free(&wire);
  }
}

exchange::SharedLayoutPtr Type::makeLayout(std::int64_t count) const {
  if (dense) {
    const auto all = datatype::Layout::make({}, {{0, count * size}});
    return all.ok() ? exchange::shareLayout(*all) : nullptr;
  }
  if (own == nullptr) {
    return nullptr;
  }
  if (!element_.has_value()) {
    std::int64_t blockCount = 0;
    if (adsmTypeBlockCount(own, &blockCount) != adsmSuccess) {
      return nullptr;
    }
    std::vector<adsmBlock_t> blocks(static_cast<std::size_t>(blockCount));
    std::int64_t written = 0;
    if (adsmTypeBlocks(own, 0, blockCount, blocks.data(), &written) != adsmSuccess ||
        written != blockCount) {
      return nullptr;
    }
    auto made = datatype::Layout::make({}, blocks);
    if (!made.ok()) {
      return nullptr;
    }
    element_ = std::move(*made);
  }
  auto all = element_->repeated(count, extent);
  return all.ok() ? exchange::shareLayout(std::move(*all)) : nullptr;
}

exchange::SharedLayoutPtr Type::layoutOf(std::int64_t count) const {
  const std::lock_guard guard(lock_);
  if (lastLayout_ == nullptr || lastCount_ != count) {
    lastLayout_ = makeLayout(count);
    lastCount_ = count;
  }
  return lastLayout_;
}

const TypePtr* recentType(MPI_Datatype datatype) {
  if (concurrentCalls()) {
    return nullptr;
  }
  Known& all = known();
  const std::uint64_t key = keyOf(datatype);
  const TypePtr* const recent = all.recent.find(key, all.changes);
  if (recent != nullptr) {
    return recent;
  }
  TypePtr type = lookUp(datatype);
  if (type == nullptr) {
    return nullptr;
  }
  all.recent.keep(key, all.changes, std::move(type));
  return all.recent.find(key, all.changes);
}

FoundType findType(MPI_Datatype datatype) {
  if (TypePtr type = lookUp(datatype)) {
    return {std::move(type)};
  }
  const bool predefined = !isDerived(datatype);
  if (!predefined && !isCommitted(datatype)) {
    return {nullptr, true};
  }
  FoundType made = makeType(datatype, predefined);
  if (made.type != nullptr && predefined) {
    keepPredefined(datatype, made.type);
  }
  Known& all = known();
  const int keyval = all.keyval;
  if (made.type == nullptr ||
      (!predefined && (keyval == MPI_KEYVAL_INVALID ||
                       real().Type_set_attr(datatype, keyval, nullptr) != MPI_SUCCESS))) {
    return made;  // not kept
  }
  // (Another thread may have been as quick: setting the attribute a second time has called
  // removeType().)
  const std::lock_guard guard(all.lock);
  return {all.types.try_emplace(keyOf(datatype), made.type).first->second};
}

MPI_Count denseSize(MPI_Datatype datatype) {
  const Predefined& slot = predefinedSlot(datatype);
  if (slot.holds(datatype)) {
    return slot.dense != nullptr ? slot.dense->size : 0;
  }
  if (datatype == MPI_DATATYPE_NULL || isDerived(datatype)) {
    return 0;
  }
  const TypePtr type = findType(datatype).type;
  return type != nullptr && type->dense ? type->size : 0;
}

MPI_Count knownDenseSize(MPI_Datatype datatype) {
  const Predefined& slot = predefinedSlot(datatype);
  return slot.holds(datatype) && slot.dense != nullptr ? slot.dense->size : 0;
}

bool isDerived(MPI_Datatype datatype) { return adsmMpiIsDerived_(datatype) != 0; }

namespace {

void keepTypes(MPI_Comm communicator) {
  Known& all = known();
  (void)real().Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  all.communicator = communicator;
  (void)real().Type_create_keyval(&copyNothing, &removeType, &all.keyval, nullptr);
}

}  // namespace

#if MPI_VERSION >= 4
void openTypes(MPI_Session session) {
  MPI_Group group = MPI_GROUP_NULL;
  if (real().Group_from_session_pset(session, "mpi://SELF", &group) != MPI_SUCCESS) {
    return;
  }
  MPI_Comm communicator = MPI_COMM_NULL;
  const bool made = real().Comm_create_from_group(group, "gmac", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                                  &communicator) == MPI_SUCCESS;
  (void)real().Group_free(&group);
  if (made) {
    keepTypes(communicator);
  }
}
#endif

void openTypes() {
  MPI_Group group = MPI_GROUP_NULL;
  if (real().Comm_group(MPI_COMM_SELF, &group) != MPI_SUCCESS) {
    return;
  }
  // (A duplicate would call the copy functions of the application's attributes.)
  MPI_Comm communicator = MPI_COMM_NULL;
  const bool made = real().Comm_create(MPI_COMM_SELF, group, &communicator) == MPI_SUCCESS;
  (void)real().Group_free(&group);
  if (made) {
    keepTypes(communicator);
  }
}

void closeTypes() {
  Known& all = known();
  if (all.keyval == MPI_KEYVAL_INVALID) {
    return;
  }
  std::unordered_map<std::uint64_t, TypePtr> types;
  {
    const std::lock_guard guard(all.lock);
    types.swap(all.types);
  }
  all.recent.clear();
  types.clear();
  int keyval = all.keyval;
  (void)real().Type_free_keyval(&keyval);
  MPI_Comm communicator = all.communicator;
  all.keyval = MPI_KEYVAL_INVALID;
  (void)real().Comm_free(&communicator);
}

MPI_Comm ownCommunicator() {
  const Known& all = known();
  return all.keyval == MPI_KEYVAL_INVALID ? MPI_COMM_NULL : all.communicator;
}

Span spanOf(MPI_Count count, MPI_Datatype datatype) {
  if (const MPI_Count size = knownDenseSize(datatype); size > 0 && count > 0) {
    return Span::of(count, 0, size, size);
  }
  MPI_Count lowerBound = 0;
  MPI_Count bytes = 0;
  MPI_Count unused = 0;
  MPI_Count extent = 0;
  if (count <= 0 || datatype == MPI_DATATYPE_NULL ||
      real().Type_get_true_extent_x(datatype, &lowerBound, &bytes) != MPI_SUCCESS ||
      (count > 1 && real().Type_get_extent_x(datatype, &unused, &extent) != MPI_SUCCESS)) {
    return {};
  }
  return Span::of(count, lowerBound, bytes, extent);
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
