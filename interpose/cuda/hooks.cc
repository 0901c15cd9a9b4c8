// SPDX-License-Identifier: Apache-2.0
//
// All hooked driver functions, by the names that programs ask for.
#include "interpose/cuda/hooks.h"

#include <cstring>

namespace gmac::interpose {
namespace {

using Table = std::span<const HookEntry> (*)() noexcept;

constexpr Table kTables[] = {cudaCalls,         cudaArrayCopies,   cudaBatches,       cudaGraphs,
                             cudaStreamValues,  cudaHostFunctions, cudaOutputs,       cudaCaptures,
                             cudaContexts,      cudaKernelCode,    cudaDefaultDevice, cudaRefusals,
                             cudaManagedMemory, cudaManagedHints,  cudaManagedQueries};

}  // namespace

const HookEntry* hookOfSymbol(const char* symbol) noexcept {
  for (const Table table : kTables) {
    for (const HookEntry& entry : table()) {
      if (std::strcmp(entry.symbol, symbol) == 0) return &entry;
    }
  }
  return nullptr;
}

const HookEntry* hookOfRequest(const char* name, int version, cuuint64_t flags) noexcept {
  const bool perThread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const HookEntry* found = nullptr;
  for (const Table table : kTables) {
    for (const HookEntry& entry : table()) {
      if (std::strcmp(entry.name, name) != 0 || version < entry.since || version >= entry.until)
        continue;
      // Functions without a variant for the thread's stream serve both kinds of caller.
      if (found == nullptr || entry.perThread == perThread) found = &entry;
    }
  }
  return found;
}

void* substitute(const HookEntry& entry, void* real) noexcept {
  // A request for the process's global symbols may return our own exports.
  if (real == entry.exported || real == entry.hook) return real;
  void* none = nullptr;
  entry.real->compare_exchange_strong(none, real, std::memory_order_acq_rel);
  return entry.hook;
}

}  // namespace gmac::interpose
