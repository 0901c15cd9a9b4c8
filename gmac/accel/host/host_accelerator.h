// SPDX-License-Identifier: Apache-2.0
//
// The `host` accelerator: an accelerator with its own memory that needs no hardware.
//
// Its device is a process. The process holds the accelerator's memory at the same addresses as the
// application's objects, copies on two queues by two DMA threads, and runs kernels on a thread
// pool. Commands and completions travel through shared memory (control_block.h), memory and code
// management through a socket (messages.h).
#ifndef GMAC_ACCEL_HOST_HOST_ACCELERATOR_H_
#define GMAC_ACCEL_HOST_HOST_ACCELERATOR_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {
class AddressWindows;  // address_windows.h

struct HostOptions {
  // Capacity of the accelerator's memory, bytes. 0: the machine's physical memory.
  std::size_t memoryBytes = 0;
  // Threads that run kernels. 0: as many as the calling thread may use cores.
  unsigned threads = 0;
  // Address space to reserve for objects, bytes; halved until the system grants it. 0: 1 TiB.
  std::size_t windowBytes = 0;
  // Address space that is shared with other accelerators; NULL: one's own is reserved.
  std::shared_ptr<AddressWindows> windows = nullptr;
};

// The largest launch: blocks of a grid, threads of a block, bytes of shared scratch, bytes of all
// arguments together, bytes of one constant. Threads of a block are limited as CUDA limits them, so
// that what runs here runs there.
inline constexpr std::size_t kHostMaxBlocks = std::size_t{1} << 31;
inline constexpr std::size_t kHostMaxBlockThreads = 1024;
inline constexpr std::size_t kHostMaxSharedBytes = std::size_t{16} << 20;
inline constexpr std::size_t kHostMaxArgumentBytes = kMaxArgumentBytes;
inline constexpr std::size_t kHostMaxConstantBytes = kMaxConstantBytes;

// Starts a device process by fork and returns the accelerator that it is. The device process is not
// a child of the application (wait() does not see it) and ends when the accelerator is destroyed,
// or the application exits, is killed or calls exec. Kernels and constants must lie in a loaded
// module (the program or a shared library); what the application loads after this call is loaded in
// the device process when load() names it.
//
// In a child that the application forks, every method returns adsmErrorForked and destruction does
// nothing.
//
// Errors: adsmErrorHostMemory (no address space), adsmErrorSystem (no process). Thread-safe.
Result<std::unique_ptr<Accelerator>> makeHostAccelerator(const HostOptions& options);

// The same, `count` times, with shared addresses (shared_addresses.h). `memoryBytes` and `threads`
// are those of all together, and are shared equally.
Result<std::vector<std::unique_ptr<Accelerator>>> makeHostAccelerators(const HostOptions& options,
                                                                       std::size_t count);

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_HOST_HOST_ACCELERATOR_H_
