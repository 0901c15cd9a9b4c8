// SPDX-License-Identifier: Apache-2.0
//
// Calls with random arguments, each made on the memory that it is given: the same draws on plain
// and on shared memory must give the same result.
#ifndef GMAC_TESTS_PRELOADED_IO_OPERATIONS_H_
#define GMAC_TESTS_PRELOADED_IO_OPERATIONS_H_

#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/preloaded_io/memory.h"
#include "tests/preloaded_io/program.h"

namespace gmac::testing {

// The effects of a call besides its buffers' bytes.
struct Outcome {
  long result = 0;
  int error = 0;
  std::vector<unsigned char> rest;  // files, pipes, positions, addresses: whatever else can be seen
  std::vector<iovec> parts;         // the buffers that it read into

  template <typename Value>
  requires std::is_trivially_copyable_v<Value>
  void note(const Value& value) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&value);
    rest.insert(rest.end(), bytes, bytes + sizeof value);
  }
  // Makes a call; errno starts from a value that none sets.
  template <typename Call>
  void make(const Call& call) {
    errno = 4095;
    result = static_cast<long>(call());
    error = errno;
  }
};

struct Operation {
  const char* name;
  Outcome (*run)(Random random, const Memory& memory);
};

const std::vector<Operation>& descriptorOperations();
const std::vector<Operation>& socketOperations();
const std::vector<Operation>& streamOperations();
const std::vector<Operation>& otherOperations();

// Values that a call is told by address: in the memory's first bytes or private. Cleared
// afterwards, since what is in them may differ between the sides. For the stack of one operation.
class Told {
 public:
  explicit Told(const Memory& memory) : memory_(memory) {}
  ~Told() { std::memset(memory_.at, 0, used_); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  template <typename Value>
  Value* put(Random& random, const Value* values, std::size_t count) {
    const std::size_t bytes = count * sizeof(Value);
    if (random.oneIn(3) && used_ + bytes + 64 <= Memory::kControlBytes) {
      auto* const at = memory_.at + used_;
      used_ += (bytes + 63) / 64 * 64;
      if (bytes > 0) std::memcpy(at, values, bytes);
      return reinterpret_cast<Value*>(at);
    }
    std::vector<unsigned char>& own = owns_.emplace_back(bytes + 1);
    if (bytes > 0) std::memcpy(own.data(), values, bytes);
    return reinterpret_cast<Value*>(own.data());
  }
  template <typename Value>
  Value* put(Random& random, const Value& value) {
    return put(random, &value, 1);
  }
  iovec* put(Random& random, const std::vector<iovec>& parts) {
    return put(random, parts.data(), parts.size());
  }

 private:
  const Memory& memory_;
  std::size_t used_ = 0;
  std::vector<std::vector<unsigned char>> owns_;
};

// Files of this process, in a folder that goes when the process ends.
std::string inputPath();   // kInputBytes bytes of inputByte()
std::string outputPath();  // to be made by whoever writes
inline constexpr std::size_t kInputBytes = (std::size_t{5} << 19) + 777;
unsigned char inputByte(std::size_t offset);

// All that a descriptor still has to say.
std::vector<unsigned char> drain(int descriptor);

// Something to read from and its backing file or peer, made anew for each call. For the stack.
class Source {
 public:
  explicit Source(Random& random);
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  int descriptor() const { return descriptor_; }
  // With direct I/O, how much the kernel transfers of a range that it can reach in part depends on
  // where the pages happen to lie.
  bool mayLeave() const { return !direct_; }
  // Where it is now, and what is left.
  void noteAfter(Outcome& outcome) const;

 private:
  void send(Random& random, std::size_t most, bool mayEnd);

  int descriptor_ = -1;
  int other_ = -1;
  bool seekable_ = false;
  bool direct_ = false;
};

// Something to write to, likewise.
class Target {
 public:
  explicit Target(Random& random);
  ~Target();
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  int descriptor() const { return descriptor_; }
  // Where it is now, and what arrived.
  void noteAfter(Outcome& outcome) const;

 private:
  int descriptor_ = -1;
  int other_ = -1;
  bool seekable_ = false;
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_PRELOADED_IO_OPERATIONS_H_
