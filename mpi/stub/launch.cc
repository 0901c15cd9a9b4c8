// SPDX-License-Identifier: Apache-2.0
#include "mpi/stub/launch.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gmac/base/log.h"
#include "gmac/session/device_memory.h"

namespace gmac::mpi {
namespace {

std::atomic<bool> called{false};

int numberIn(const char* variable) {
  const char* const text = std::getenv(variable);
  int number = 0;
  if (text != nullptr) {
    const std::string_view digits(text);
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
  }
  return number;
}

// Before the program, or what it loads, uses CUDA.
[[gnu::constructor]] void shareDevices() { gmacSpreadByLocalRank(); }

// `gmac run --mpi` leaves its process number: the processes that its program starts may well do
// without MPI.
[[gnu::destructor]] void sayWhenNeverCalled() {
  if (!called.load() && numberIn("_GMAC_MPI_PROCESS") == ::getpid()) {
    writeLogLine("--mpi: the program has ended and never called MPI");
  }
}

}  // namespace

void noteCall() { called.store(true, std::memory_order_relaxed); }

void noteInit(int size) {
  // Set by Open MPI's mpirun, and by the process managers of MPICH and Slurm.
  for (const char* const variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const int started = numberIn(variable);
    if (size == 1 && started > 1) {
      writeLogLine(
          "mpi: mpirun has started " + std::to_string(started) +
          " processes, and to this program's MPI library each is alone: launch it with that "
          "library's own mpirun (Debian: mpirun.openmpi, mpirun.mpich)");
    }
  }
}

}  // namespace gmac::mpi
