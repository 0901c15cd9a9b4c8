// SPDX-License-Identifier: Apache-2.0
//
// A run of one random program, which notes all that the application can see: bytes, statuses and
// results. Two runs of a program, one in plain memory and one in shared objects, note the same.
#ifndef GMAC_TESTS_MPI_RANDOM_RUN_H_
#define GMAC_TESTS_MPI_RANDOM_RUN_H_

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/mpi/expect.h"
#include "tests/mpi/random_types.h"
#include "tests/mpi/shared.h"

namespace gmac::testing {

struct Step {
  std::vector<std::string> notes;
  std::vector<std::string> errors;  // MPI's texts for the results noted
  bool unreliable = false;          // MPI itself did wrong: see judge()
  int unexpected = MPI_SUCCESS;     // the error code by which it did
};

// Of calls that complete one operation: they leave the error field as it is (MPI 3.1, 3.2.5).
inline MPI_Status freshStatus() {
  MPI_Status status = {};
  status.MPI_ERROR = 4711;
  return status;
}

struct Run {
  Rng& rng;  // in the same state on all ranks
  Memory::Kind kind;
  bool isReference;  // what another run is compared with
  MPI_Comm comm;
  int rank;
  int size;
  std::vector<Step> steps;

  void note(std::string text) { steps.back().notes.push_back(std::move(text)); }
  // (MPICH 4.0 says of some messages of types with gaps that they are truncated. Steps in which it
  // does so in plain memory are not compared.)
  void judge(int code, bool fits) {
    if (code != MPI_SUCCESS && fits) {
      steps.back().unreliable = true;
      steps.back().unexpected = code;
    }
  }
  void noteResult(const char* call, int code) {
    int errorClass = MPI_SUCCESS;
    if (code != MPI_SUCCESS) {
      MPI_Error_class(code, &errorClass);
      steps.back().errors.push_back(std::string(call) + ": " + errorText(code));
    }
    note(std::string(call) + ": error class " + std::to_string(errorClass));
  }
  void noteStatus(const MPI_Status& status, MPI_Datatype type) {
    int count = 0;
    MPI_Count elements = 0;
    int cancelled = 0;
    MPI_Get_count(&status, type, &count);
    // (MPICH 4.0 ends the process when it is asked for the elements of some types.)
    MPI_Get_elements_x(&status, MPI_BYTE, &elements);
    MPI_Test_cancelled(&status, &cancelled);
    note("source " + std::to_string(status.MPI_SOURCE) + " tag " + std::to_string(status.MPI_TAG) +
         " count " + std::to_string(count) + " bytes " +
         std::to_string(static_cast<long long>(elements)) + " cancelled " +
         std::to_string(cancelled) + " error " + std::to_string(status.MPI_ERROR));
  }
};

// Room for elements of a type, with random bytes in it.
class Buffer {
 public:
  // The step before the operation: none, a kernel flips the bytes, or that and the CPU writes some
  // afterwards.
  static int drawPast(Rng& rng) { return draw(rng, 0, 2); }

  Buffer(Run& run, MPI_Datatype type, int count, int past)
      : span_(spanOf(type, count)),
        memory_(run.kind, static_cast<std::size_t>(span_.last - span_.first + 64)) {
    Rng bytes(static_cast<std::uint64_t>(run.rank) * 1000003 + run.steps.size());
    for (unsigned char& byte : memory_.bytes()) byte = static_cast<unsigned char>(bytes());
    undergo(past);
  }

  void undergo(int past) const {
    if (past > 0) memory_.flip();
    if (past > 1) {
      for (std::size_t i = 0; i < memory_.size() / 3; ++i) memory_.data()[i] ^= 1;
    }
  }

  void* address() const { return memory_.address() + 16 - span_.first; }
  void flip() const { memory_.flip(); }
  void noteBytes(Run& run, const char* name) const {
    run.note(std::string(name) + ": " +
             std::string(reinterpret_cast<const char*>(memory_.data()), memory_.size()));
  }

 private:
  Span span_;
  Memory memory_;
};

// How many elements of `type` make a message, now and then a long one.
inline int drawCount(Rng& rng, MPI_Datatype type) {
  const int size = std::max(sizeOf(type), 1);
  const int bytes = draw(rng, 0, 9) == 0   ? draw(rng, 60'000, 300'000)
                    : draw(rng, 0, 3) == 0 ? draw(rng, 4'000, 30'000)
                                           : draw(rng, 0, 600);
  return std::max(bytes / size, draw(rng, 0, 1));
}

// One step of a program.
void blockingMessage(Run& run);
void wrongArguments(Run& run);
void nonblockingMessages(Run& run);
void persistentMessages(Run& run);
void collective(Run& run);
void reduction(Run& run);
void neighbours(Run& run);
void packing(Run& run);
void probedMessages(Run& run);
void fileTransfer(Run& run);
void fileViews(Run& run);
void oneSided(Run& run);
#if MPI_VERSION >= 4
void sendsAndReceives(Run& run);
void partitionedMessages(Run& run);
#endif

// Completes all requests, in one of MPI's ways (0 to 7). statuses[i] is that of requests[i].
void completeAll(int way, std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses);

}  // namespace gmac::testing

#endif  // GMAC_TESTS_MPI_RANDOM_RUN_H_
