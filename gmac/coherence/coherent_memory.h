// SPDX-License-Identifier: Apache-2.0
//
// The coherent shared memory of a process (the shared memory manager of Gelado et al.,
// section 4.1): its objects, composed of the parts of this room.
#ifndef GMAC_COHERENCE_COHERENT_MEMORY_H_
#define GMAC_COHERENCE_COHERENT_MEMORY_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "gmac/accel/accelerator.h"
#include "gmac/api/adsm.h"
#include "gmac/base/status.h"
#include "gmac/coherence/options.h"
#include "gmac/coherence/policies/early_step.h"
#include "gmac/coherence/port.h"

namespace gmac {

class Protocol;
struct CallUses;
struct Parts;
namespace os {
class FileArena;
}

// The objects of the process and their coherence. One instance per runtime, owned by it;
// thread-safe; onFault is the fault handler's entry. Refuses children of fork, which have no
// objects.
class CoherentMemory {
 public:
  static Result<std::unique_ptr<CoherentMemory>> make(accel::Accelerator& accelerator,
                                                      std::unique_ptr<Protocol> protocol,
                                                      const CoherenceOptions& options);
  ~CoherentMemory();
  CoherentMemory(const CoherentMemory&) = delete;
  CoherentMemory& operator=(const CoherentMemory&) = delete;

  // See adsm.h.
  Result<void*> allocate(std::size_t size, accel::Placement placement);
  Result<void*> allocateStriped(std::size_t size, std::span<const std::size_t> devices);
  Status free(void* address);
  Result<void*> deviceAddress(const void* address);
  Status call(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
              std::optional<std::span<const adsmUse_t>> uses,
              std::optional<std::size_t> device = std::nullopt);
  Status callRanges(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                    std::span<const adsmRangeUse_t> uses,
                    std::optional<std::size_t> device = std::nullopt);
  Status migrate(const void* address, std::size_t bytes, std::size_t device);
  Status bind(const void* object, adsmKernel_t kernel, adsmAccess_t access);
  // Drops a kernel's bindings and waits for its calls; the kernel may be deleted then.
  Status forget(adsmKernel_t kernel);
  Status setConstant(adsmKernel_t kernel, const adsmConstant_t& constant, const void* data,
                     std::size_t bytes);
  Status sync();

  // The interfaces to these objects. They live as long as this.
  const coherence::Ports& ports() const noexcept;
  coherence::MemoryPort& memory() const noexcept { return ports().memory; }
  coherence::WorkPort& work() const noexcept { return ports().work; }
  coherence::DeviceMemoryPort& deviceMemory() const noexcept { return ports().deviceMemory; }

  // See CpuAccess.
  bool onFault(void* address, bool write) noexcept;

  // Whether the calling thread holds the lock of all objects, under which nothing may wait. For
  // tests.
  static bool lockIsHeldHere() noexcept;

  // Around fork, the second in both processes: the child gets the lock free. That its objects are
  // gone is known without them.
  void beforeFork();
  void afterFork();
  bool forked() const noexcept;

  // The steps of the background threads, for tests without them.
  bool populateNext();
  EarlyStep fetchNext();
  bool disposeNext();

  // The process exits, and the driver goes next: ends the background threads, whose work is done by
  // whoever needs it from then on, and brings to the CPU what a managed-memory program may still
  // read.
  void exits();

  // See Blocks.
  Status verify();

  accel::Accelerator& accelerator() { return accelerator_; }
  const Protocol& protocol() const;
  const CoherenceOptions& options() const { return options_; }

 private:
  struct Doors;

  CoherentMemory(accel::Accelerator& accelerator, std::unique_ptr<Protocol> protocol,
                 const CoherenceOptions& options, std::unique_ptr<os::FileArena> arena);
  void stopBackground();
  Status callUsing(adsmKernel_t kernel, const accel::LaunchShape& shape, void** args,
                   const std::optional<CallUses>& uses, std::optional<std::size_t> device);
  Status proveStripes(std::span<const std::size_t> devices);

  accel::Accelerator& accelerator_;
  const CoherenceOptions options_;
  const std::unique_ptr<Parts> parts_;
  const std::unique_ptr<Doors> doors_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_COHERENT_MEMORY_H_
