// SPDX-License-Identifier: Apache-2.0
//
// Handles of types, as applications hold them.
#ifndef GMAC_DATATYPE_REGISTRY_H_
#define GMAC_DATATYPE_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "gmac/api/adsm_datatype.h"
#include "gmac/base/status.h"
#include "gmac/datatype/type.h"

namespace gmac::datatype {

namespace internal {
inline constinit std::atomic<std::uint64_t> freedTypes{0};  // changes under the registry's lock
}  // namespace internal

// All functions are thread-safe, also around fork. Handles are numbers that are never used twice:
// what is none, or is freed, is told apart and not followed. Errors name `function`. Not for the
// fault handler.

// A new handle.
adsmType_t addType(TypePtr type, bool isCommitted);
// adsmErrorInvalidValue for what is no type; `argument` is named too.
Result<TypePtr> findType(adsmType_t handle, const char* function, const char* argument = "type");
// What an engine needs; what it gives outlives the handle. adsmErrorInvalidValue also for a type
// that is not committed. A look-up under the lock.
Result<CommittedPtr> committed(adsmType_t handle, const char* function = "adsmPack");
bool isCommitted(adsmType_t handle);
Status commitType(adsmType_t handle, const char* function);
// How many types have been freed: while it stays the same, what was found is there.
inline std::uint64_t freedTypes() noexcept {
  return internal::freedTypes.load(std::memory_order_acquire);
}
// Also for primitives an error.
Status freeType(adsmType_t handle, const char* function);
// The canonical form as text; it stays until the type is freed.
Result<const char*> describeType(adsmType_t handle, const char* function);

}  // namespace gmac::datatype

#endif  // GMAC_DATATYPE_REGISTRY_H_
