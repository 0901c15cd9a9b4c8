// SPDX-License-Identifier: Apache-2.0
//
// An optional capability of an accelerator: its memory can be used by the accelerators of other
// processes of the same user on the same host.
#ifndef GMAC_ACCEL_EXPORTED_MEMORY_H_
#define GMAC_ACCEL_EXPORTED_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gmac/accel/accelerator.h"
#include "gmac/base/status.h"

namespace gmac::accel {

// By which another process imports what this one has exported. It may be sent to it in any way.
using MemoryHandle = std::array<unsigned char, 64>;

// Memory of Accelerator::allocate()'s, as another process can be given it. It may begin before what
// that function has returned, and end after it.
struct SharedAllocation {
  DeviceAddress start;
  std::size_t bytes;
  std::uint64_t number;  // of these pages; no others of this process ever have it
};

// Consecutive bytes of an allocation: the part of a file that they are. The file may be closed once
// it was handed to another process, or imported.
struct MemoryFile {
  int file;  // a descriptor
  std::int64_t offset;
  std::size_t bytes;
};
// The most that an allocation consists of.
inline constexpr std::size_t kMaxMemoryFiles = 16;

// Thread-safe. All functions block, at first for milliseconds. What exportMemory() and the imports
// return is kept until the process ends or, if that comes first, the context does, but for
// releaseImport(); it is none of Accelerator::allocate()'s.
class ExportedMemory {
 public:
  virtual ~ExportedMemory() = default;

  // ---- By handles

  // Memory of this accelerator, which holds anything, and its handle. adsmErrorNotSupported (the
  // system refuses handles), adsmErrorAcceleratorMemory, adsmErrorAcceleratorLost.
  virtual Result<DeviceAddress> exportMemory(std::size_t bytes, MemoryHandle* handle);
  // Where this accelerator has what another process has exported. Once for each handle. That it is
  // that memory is for the caller to check: read from it what the exporter has put there.
  // adsmErrorNotSupported (among others, the exporter's device is out of this one's reach),
  // adsmErrorAcceleratorLost.
  virtual Result<DeviceAddress> importMemory(const MemoryHandle& handle);
  // The handle of memory that the application has from this accelerator's device, from the start of
  // an allocation; good until it frees that. adsmErrorInvalidValue: none starts there.
  // adsmErrorNotSupported: memory of this kind has none.
  virtual Status handleOf(DeviceAddress start, MemoryHandle* handle);
  // The end of an import of either kind, whose memory nothing uses any more.
  virtual Status releaseImport(DeviceAddress address) = 0;
  // Whether an address is an import's, and so may be reached over a link between devices: by which
  // method it is copied from fastest. Some nanoseconds where nothing is imported.
  virtual bool isImported(DeviceAddress) const noexcept { return false; }
  // The import that starts there is memory of this accelerator's own device, which another process
  // uses, too: no link lies between, and isImported() is false from now on.
  virtual void importIsLocal(DeviceAddress) noexcept {}

  // ---- By files, for memory of Accelerator::allocate()'s. Whoever has imported such memory may
  // read its addresses until releaseImport(), also when the allocation is freed or its pages move;
  // what is there then means nothing.

  // The allocation that holds an address. adsmErrorNotSupported: its pages cannot be handed over,
  // or there are none (it was made before shareMemory()). Does not block.
  virtual Result<SharedAllocation> sharedAllocation(DeviceAddress address);
  // Its files, in the order of its bytes; the caller closes them. adsmErrorInvalidValue: these
  // pages are its pages no more. adsmErrorNotSupported: the system refuses, or there are more than
  // kMaxMemoryFiles.
  virtual Result<std::vector<MemoryFile>> filesOf(const SharedAllocation& allocation);
  // Where this accelerator has another process's allocation, for reading. adsmErrorNotSupported
  // (among others, it does not reach that memory), adsmErrorInvalidValue (these are no such files),
  // adsmErrorAcceleratorMemory (no addresses), adsmErrorAcceleratorLost.
  virtual Result<DeviceAddress> importFiles(std::span<const MemoryFile> files);
};

// From now on accelerators make their memory such that it has files, where the system lets them.
// (Memory of `host` has no huge pages then, unless the system gives them to shared memory; on CUDA
// devices allocations from 32 KiB on have it.) Before, none has. For good.
void shareMemory() noexcept;
bool sharesMemory() noexcept;

// `ended` is called when pages cease to be an allocation's for which filesOf() was called: they are
// about to be freed, or others have taken their place. By the thread that does that, which holds no
// lock of the accelerator's. For one caller.
void onSharedMemoryEnd(void (*ended)(std::uint64_t number)) noexcept;
// For accelerators: calls it.
void sharedMemoryEnds(std::uint64_t number);

}  // namespace gmac::accel

#endif  // GMAC_ACCEL_EXPORTED_MEMORY_H_
