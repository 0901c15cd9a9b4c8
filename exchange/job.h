// SPDX-License-Identifier: Apache-2.0
//
// Which job of several processes this process belongs to.
#ifndef GMAC_EXCHANGE_JOB_H_
#define GMAC_EXCHANGE_JOB_H_

#include <cstdint>
#include <optional>
#include <string>

namespace gmac::exchange {

// The same key in all processes of one job on one host; `rank` is from 0 to `size` - 1, and no two
// processes of the job have the same.
struct Job {
  std::string key;
  int rank = 0;
  int size = 1;
};

// The job, from the launcher's variables in this process's environment: PMIx (Open MPI, PRRTE,
// Slurm), a PMI socket (MPICH's hydra and its family, Slurm), or Slurm's step. Nothing: the process
// is alone, or its launcher is unknown. All sources that are there make the key, so that a job that
// was started inside another job's process has a key of its own; its rank may be the outer job's,
// so compare it with what the job itself says (Exchange::meet() does). Reads a file of /proc. Not
// thread-safe against changes of the environment.
std::optional<Job> findJob();

// When a process started, in the kernel's ticks after the boot: with its id it identifies a process
// for good. Nothing: there is no such process, or /proc does not tell. A process that has ended and
// was not waited for yet has ended.
std::optional<std::uint64_t> startOfProcess(int pid);

// Whether the process that started then has ended. False also where that cannot be told, as when
// this process has no descriptor left to look with.
bool hasEnded(int pid, std::uint64_t start);

}  // namespace gmac::exchange

#endif  // GMAC_EXCHANGE_JOB_H_
