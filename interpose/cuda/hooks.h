// SPDX-License-Identifier: Apache-2.0
//
// The hooked driver functions, by every name that a program may ask for.
#ifndef GMAC_INTERPOSE_CUDA_HOOKS_H_
#define GMAC_INTERPOSE_CUDA_HOOKS_H_

#include <cuda.h>

#include <atomic>
#include <span>

namespace gmac::interpose {

// One variant of one driver function. Constant but for `real`; all live for the whole process.
struct HookEntry {
  const char* name;    // as cuGetProcAddress knows it: cuMemcpyHtoD
  const char* symbol;  // as the dynamic linker knows it: cuMemcpyHtoD_v2_ptds
  bool perThread;      // the variant whose stream 0 is the thread's own
  int since, until;    // cuGetProcAddress returns this signature to versions [since, until)
  void* hook;
  void* exported;            // the function of that symbol in this library
  std::atomic<void*>* real;  // the function that the hook calls; NULL until it is looked up
};

// The hooks, a table per subject; each is defined in the file of its name. Constant.
std::span<const HookEntry> cudaCalls() noexcept;           // launches, waits, copies, fills
std::span<const HookEntry> cudaArrayCopies() noexcept;     // between linear memory and arrays
std::span<const HookEntry> cudaBatches() noexcept;         // many copies in one call
std::span<const HookEntry> cudaGraphs() noexcept;          // nodes that name memory
std::span<const HookEntry> cudaStreamValues() noexcept;    // a stream's stores and waits
std::span<const HookEntry> cudaHostFunctions() noexcept;   // the CPU's part of a stream
std::span<const HookEntry> cudaOutputs() noexcept;         // that write answers
std::span<const HookEntry> cudaCaptures() noexcept;        // of graphs
std::span<const HookEntry> cudaContexts() noexcept;        // contexts and streams that end
std::span<const HookEntry> cudaKernelCode() noexcept;      // modules, libraries and their kernels
std::span<const HookEntry> cudaDefaultDevice() noexcept;   // of who chooses none
std::span<const HookEntry> cudaRefusals() noexcept;        // what would get past the runtime
std::span<const HookEntry> cudaManagedMemory() noexcept;   // allocation and release
std::span<const HookEntry> cudaManagedHints() noexcept;    // prefetch, advice, attachment
std::span<const HookEntry> cudaManagedQueries() noexcept;  // what programs ask about memory

// The entry with that symbol; NULL for a function that is not hooked.
const HookEntry* hookOfSymbol(const char* symbol) noexcept;

// The entry for a request to cuGetProcAddress; NULL for a function that is not hooked.
const HookEntry* hookOfRequest(const char* name, int version, cuuint64_t flags) noexcept;

// The hook to return instead of `real`, which is remembered.
void* substitute(const HookEntry& entry, void* real) noexcept;

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_CUDA_HOOKS_H_
