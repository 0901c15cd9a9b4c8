// SPDX-License-Identifier: Apache-2.0
//
// MPI_Buffer_attach: where MPI keeps the payloads of buffered sends, which other processes read.
// Private memory takes the place of a buffer that is shared, or a device's; the application gets
// its own back.
#include <mutex>
#include <string>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/memory.h"
#include "mpi/staging_memory.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// MPI has one buffer for a process.
struct Attached {
  std::mutex lock;
  StagingMemory instead;
  void* buffer = nullptr;  // the application's
};
Attached& attached() {
  static auto* const attached = new Attached;  // also for exit handlers
  return *attached;
}

template <Layer layer, auto call, typename Count>
int attach(void* buffer, Count size) {
  const auto function = next<layer>().*call;
  if (size <= 0 || !needsStaging(buffer, size, MPI_BYTE)) {
    return function(buffer, size);
  }
  StagingMemory instead(static_cast<std::size_t>(size));
  if (instead.data() == nullptr) {
    return refuse(MPI_COMM_WORLD, kName<call>, "no memory for " + std::to_string(size) + " bytes");
  }
  const int code = function(instead.data(), size);
  if (code == MPI_SUCCESS) {
    Attached& all = attached();
    const std::lock_guard guard(all.lock);
    all.instead = std::move(instead);
    all.buffer = buffer;
  }
  return code;
}

template <Layer layer, auto call, typename Count>
int detach(void* address, Count* size) {
  const int code = (next<layer>().*call)(address, size);
  Attached& all = attached();
  const std::lock_guard guard(all.lock);
  void** const given = static_cast<void**>(address);
  if (code == MPI_SUCCESS && all.buffer != nullptr && *given == all.instead.data()) {
    *given = std::exchange(all.buffer, nullptr);
    all.instead = StagingMemory();
  }
  return code;
}

}  // namespace

std::span<const Hook> bufferHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOKS(Buffer_attach, attach),
      GMAC_MPI_HOOKS(Buffer_detach, detach),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
