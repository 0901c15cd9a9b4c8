// SPDX-License-Identifier: Apache-2.0
//
// What MemoryPort asks, answered by the parts of the process's objects. A child of fork, which has
// none, gets the answers of memory that is not shared.
#ifndef GMAC_COHERENCE_MEMORY_DOOR_H_
#define GMAC_COHERENCE_MEMORY_DOOR_H_

#include <cstddef>
#include <cstdint>

#include "gmac/base/status.h"
#include "gmac/coherence/memory_port.h"

namespace gmac {

struct CoherenceOptions;
struct Parts;

// Owned by CoherentMemory, which keeps the parts and the options for longer.
class MemoryDoor final : public coherence::MemoryPort {
 public:
  MemoryDoor(Parts& parts, const CoherenceOptions& options) noexcept
      : parts_(parts), options_(options) {}

  bool touchesShared(const void* address, std::size_t bytes) noexcept override;
  std::size_t sharedPrefix(const void* address, std::size_t bytes, bool* shared) noexcept override;
  bool inChildOfFork() const noexcept override;
  bool worksHere() const noexcept override;
  void copy(void* to, const void* from, std::size_t bytes,
            coherence::MoveFunction move) noexcept override;
  void fill(void* to, int value, std::size_t bytes, coherence::SetFunction set) noexcept override;
  Status hold(const void* address, std::size_t bytes, coherence::HoldFor purpose) override;
  void unhold(const void* address, std::size_t bytes) override;
  bool lend(const void* address, std::size_t bytes, coherence::Loan* loan) override;
  void giveBack(const void* address, std::size_t bytes) override;
  Result<bool> lendOnDevice(const void* address, std::size_t bytes,
                            coherence::DeviceLoan* loan) override;
  void giveBackOnDevice(const void* address, std::size_t bytes,
                        const coherence::DeviceLoan& loan) override;
  std::size_t pieceBytes() const noexcept override;
  std::size_t ioThreads() const noexcept override;
  Status startFlush(const void* address, std::size_t bytes) override;
  Status startFetch(const void* address, std::size_t bytes) override;
  void fetchIfQuiet(const void* address, std::size_t bytes) noexcept override;
  coherence::Place placeOf(const void* address, std::size_t bytes) noexcept override;
  std::ptrdiff_t deviceDistance(const void* address) noexcept override;
  std::uintptr_t cpuAddress(std::uintptr_t device) noexcept override;
  bool prefersCpu(const void* address, std::size_t bytes) noexcept override;

 private:
  Parts& parts_;
  const CoherenceOptions& options_;
};

}  // namespace gmac

#endif  // GMAC_COHERENCE_MEMORY_DOOR_H_
