// SPDX-License-Identifier: Apache-2.0
//
// Handles of types, as applications hold them.
#ifndef GMAC_DATATYPE_TYPES_REGISTRY_H_
#define GMAC_DATATYPE_TYPES_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/status.h"
#include "gmac/datatype/types/type.h"

namespace gmac::datatype {

namespace internal {
inline constinit std::atomic<std::uint64_t> freedTypes{0};  // changes under the registry's lock
}  // namespace internal

// All functions are thread-safe, also around fork. Handles are numbers that are never used twice:
// invalid and freed ones are recognised and not followed. Errors name `function`. Not for the fault
// handler.

// A new handle.
adsmType_t addType(TypePtr type, bool isCommitted);
// adsmErrorInvalidValue if it is not a type; the error names `argument` too.
Result<TypePtr> findType(adsmType_t handle, const char* function, const char* argument = "type");
// The committed form, which outlives the handle. adsmErrorInvalidValue also for a type that is not
// committed. A look-up under the lock.
Result<CommittedPtr> committed(adsmType_t handle, const char* function = "adsmPack",
                               const char* argument = "type");
bool isCommitted(adsmType_t handle);
Status commitType(adsmType_t handle, const char* function);
// The number of types that have been freed: while it stays the same, results of look-ups are valid.
inline std::uint64_t freedTypes() noexcept {
  return internal::freedTypes.load(std::memory_order_acquire);
}
// An error for primitives too.
Status freeType(adsmType_t handle, const char* function);
// The canonical form as text; valid until the type is freed.
Result<const char*> describeType(adsmType_t handle, const char* function);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_TYPES_REGISTRY_H_
