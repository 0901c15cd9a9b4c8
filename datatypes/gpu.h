// SPDX-License-Identifier: Apache-2.0
//
// The parts of CUDA that the measurements need besides the engine: memory, CUDA's own copies, the
// kernels written by hand, and work of an application's to get in the way.
#ifndef GMAC_DATATYPES_GPU_H_
#define GMAC_DATATYPES_GPU_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "datatypes/hand.h"
#include "datatypes/strided_copy.h"

namespace datatypes {

enum class Place { kDevice, kPinned };

// One GPU, with memory to pack from and into, and two streams. Not thread-safe; owned by
// main(). Everything but what says so is asynchronous, on stream(). Throws Failure with CUDA's
// words.
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual std::string name() const = 0;
  virtual int multiprocessors() const = 0;

  // Device memory with the pattern; not to be written but with the pattern. Grows to hold `bytes`.
  virtual const std::byte* source(std::int64_t bytes) = 0;
  // A second source, for unpacking into.
  virtual std::byte* scratch(std::int64_t bytes) = 0;
  virtual std::byte* target(Place place, std::int64_t bytes) = 0;
  // Sets the target's bytes to a value that a pack must change, and waits.
  virtual void clear(std::byte* target, std::int64_t bytes) = 0;
  // Copies from either place into ordinary memory, and waits.
  virtual void read(void* to, const std::byte* from, std::int64_t bytes) = 0;
  virtual void* stream() const = 0;
  virtual void synchronize() = 0;

  virtual void nothing() = 0;  // an empty kernel
  // Between any two of the memories above.
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  // cudaMemcpy2DAsync or, with more than one plane, cudaMemcpy3DAsync; false where CUDA does not
  // take the shape. `reverse` scatters dense bytes at `from` into `to` instead.
  virtual bool copyStrided(const StridedCopy& shape, void* to, const void* from, bool reverse) = 0;

  // The displacements of the kernel that pack() runs until the next prepare(). Waits.
  virtual void prepare(const Hand& hand) = 0;
  virtual void pack(const Hand& hand, void* to, const void* from) = 0;

  // The application's own work, on a second stream.
  virtual void userAdd(std::int64_t floats) = 0;  // a vector addition, bound by memory
  virtual void userCopyIn(std::int64_t bytes) = 0;
  virtual void userCopyOut(std::int64_t bytes) = 0;
  // Occupies `multiprocessors` of them until userRelease(); returns when it runs.
  virtual void userOccupy(int multiprocessors) = 0;
  virtual void userRelease() = 0;
  virtual void userSynchronize() = 0;

  // Marks on the two streams, and the time between a start on both and each stream's end.
  virtual void markStart() = 0;
  virtual void markEnd(bool user) = 0;
  virtual double secondsToEnd(bool user) = 0;  // waits
};

// The first GPU, with CUDA's context made; NULL, and why, where there is none.
std::unique_ptr<Gpu> openGpu(std::string& whyNot);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_GPU_H_
