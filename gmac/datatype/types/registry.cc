// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/types/registry.h"

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "gmac/base/fork_lock.h"

namespace gmac::datatype {
namespace {

struct Entry {
  TypePtr type;
  CommittedPtr committed;             // nullptr before commit
  std::unique_ptr<std::string> text;  // made by the first describeType()
};

constinit ForkLock registryLock;
[[gnu::constructor]] void watchForks() { holdAcrossForks<registryLock>(); }

// The table of handles. One for the process, never destroyed: handles may be used by
// destructors at exit. registryLock guards all of it.
struct Registry {
  std::unordered_map<std::uintptr_t, Entry> entries;
  // Far from the primitives and from NULL, and not an address of anything aligned.
  std::uintptr_t next = 0x10001;

  Registry() {
    for (const int bytes : {1, 2, 4, 8, 16}) {
      // One contiguous block cannot fail.
      const TypePtr& type = Type::primitive(bytes);
      entries[static_cast<std::uintptr_t>(bytes)] = {type, *type->commit("adsmPack"), nullptr};
    }
  }
};

// Made under the lock, which the thread that forks holds: else a child of fork could wait for ever
// for a thread of its parent that was making it.
Registry& registry(const std::lock_guard<ForkLock>& /*registryLock*/) {
  static Registry& one = *new Registry;
  return one;
}

std::uintptr_t numberOf(adsmType_t handle) { return reinterpret_cast<std::uintptr_t>(handle); }

Status noType(adsmType_t handle, const char* function, const char* argument) {
  if (handle == nullptr) {
    return fail(adsmErrorInvalidValue, "{}: {} is NULL", function, argument);
  }
  return fail(adsmErrorInvalidValue, "{}: {} is {}, which is no type, or is freed", function,
              argument, static_cast<const void*>(handle));
}

Status notCommitted(adsmType_t handle, const char* function, const char* argument) {
  return fail(adsmErrorInvalidValue, "{}: {} {} is not committed; adsmTypeCommit() does it",
              function, argument, static_cast<const void*>(handle));
}

bool isPrimitive(adsmType_t handle) { return numberOf(handle) <= 16; }

}  // namespace

adsmType_t addType(TypePtr type, bool isCommitted) {
  CommittedPtr form;
  if (isCommitted) {
    // It is committed already.
    form = *type->commit("adsmTypeDuplicate");
  }
  const std::lock_guard guard(registryLock);
  Registry& all = registry(guard);
  const std::uintptr_t number = all.next;
  all.entries.emplace(number, Entry{std::move(type), std::move(form), nullptr});
  all.next += 2;
  return reinterpret_cast<adsmType_t>(number);
}

Result<TypePtr> findType(adsmType_t handle, const char* function, const char* argument) {
  const std::lock_guard guard(registryLock);
  Registry& all = registry(guard);
  const auto found = all.entries.find(numberOf(handle));
  if (found == all.entries.end()) {
    return noType(handle, function, argument);
  }
  return found->second.type;
}

Result<CommittedPtr> committed(adsmType_t handle, const char* function, const char* argument) {
  const std::lock_guard guard(registryLock);
  Registry& all = registry(guard);
  const auto found = all.entries.find(numberOf(handle));
  if (found == all.entries.end()) {
    return noType(handle, function, argument);
  }
  if (found->second.committed == nullptr) {
    return notCommitted(handle, function, argument);
  }
  return found->second.committed;
}

bool isCommitted(adsmType_t handle) {
  const std::lock_guard guard(registryLock);
  Registry& all = registry(guard);
  const auto found = all.entries.find(numberOf(handle));
  return found != all.entries.end() && found->second.committed != nullptr;
}

Status commitType(adsmType_t handle, const char* function) {
  auto type = findType(handle, function);
  if (!type.ok()) {
    return type.status();
  }
  // Without the lock, because it may take long.
  auto form = (*type)->commit(function);
  if (!form.ok()) {
    return form.status();
  }
  const std::lock_guard guard(registryLock);
  Registry& all = registry(guard);
  const auto found = all.entries.find(numberOf(handle));
  if (found == all.entries.end()) {
    return noType(handle, function, "type");
  }
  found->second.committed = *form;
  return {};
}

Status freeType(adsmType_t handle, const char* function) {
  if (handle != nullptr && isPrimitive(handle)) {
    auto type = findType(handle, function);
    return type.ok() ? fail(adsmErrorInvalidValue, "{}: type is the primitive of {} bytes",
                            function, numberOf(handle))
                     : type.status();
  }
  Entry freed;
  const std::lock_guard guard(registryLock);
  Registry& all = registry(guard);
  const auto found = all.entries.find(numberOf(handle));
  if (found == all.entries.end()) {
    return noType(handle, function, "type");
  }
  // Destroyed after the lock is released.
  freed = std::move(found->second);
  all.entries.erase(found);
  internal::freedTypes.fetch_add(1, std::memory_order_release);
  return {};
}

Result<const char*> describeType(adsmType_t handle, const char* function) {
  auto form = committed(handle, function);
  if (!form.ok()) {
    return form.status();
  }
  auto text = std::make_unique<std::string>((*form)->layout.describe());
  const std::lock_guard guard(registryLock);
  Registry& all = registry(guard);
  const auto found = all.entries.find(numberOf(handle));
  if (found == all.entries.end()) {
    return noType(handle, function, "type");
  }
  if (found->second.text == nullptr) {
    found->second.text = std::move(text);
  }
  return found->second.text->c_str();
}

}  // namespace gmac::datatype
