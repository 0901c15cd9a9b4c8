// SPDX-License-Identifier: Apache-2.0
//
// Memory that the application frees while other processes have it imported: the driver gets it back
// when they have let go of it. (What they would read after a free is undefined: CUDA.)
#ifndef GMAC_ACCEL_CUDA_DEFERRED_FREES_H_
#define GMAC_ACCEL_CUDA_DEFERRED_FREES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gmac::accel::cuda {

// All functions are thread-safe, and none is for the fault handler.

// Whether an allocation that starts there may be freed: nobody else has it. 0: somebody has; it is
// asked again later. Called with no lock of ours held.
using MayFree = int (*)(void* start);
// For the one library that lets others import the application's memory. For good.
void askBeforeFrees(MayFree mayFree) noexcept;

enum class Freeing {
  kNow,    // the caller frees it
  kLater,  // it is kept, and freed by freeDeferred()
  kTwice   // it is being kept already
};
// The application frees what starts there. A load where nothing is ever imported.
Freeing beforeFree(std::uintptr_t start);

// Frees what nobody has any more; whether there was any. Nothing is waited for.
bool freeDeferred();
// The same for a caller that needs memory: waits for it for at most so long.
inline constexpr std::chrono::milliseconds kWaitForMemory{1000};
bool waitForDeferred(std::chrono::milliseconds limit = kWaitForMemory);

// Allocations that are kept. A load.
std::size_t deferredFrees() noexcept;

}  // namespace gmac::accel::cuda

#endif  // GMAC_ACCEL_CUDA_DEFERRED_FREES_H_
