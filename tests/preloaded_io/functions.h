// SPDX-License-Identifier: Apache-2.0
//
// Functions of libc that give the kernel an address of the program's, called with arguments that
// are all in one memory: in blocks that are closed, or plain memory.
#ifndef GMAC_TESTS_PRELOADED_IO_FUNCTIONS_H_
#define GMAC_TESTS_PRELOADED_IO_FUNCTIONS_H_

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace gmac::testing {

inline constexpr std::size_t kBlockBytes = std::size_t{64}
                                           << 10;  // GMAC_BLOCK_SIZE of these programs
inline constexpr std::size_t kSlots = 16;
inline constexpr std::size_t kMemoryBytes = 2 * kBlockBytes * kSlots;

// A kernel that may write every object: all blocks are closed afterwards.
void closeAllBlocks();

enum class Place { kInBlock, kAcrossBlocks };

// One call with its arguments in a memory, and all that can be seen of it.
class Attempt {
 public:
  Attempt(unsigned char* memory, Place place) : memory_(memory), place_(place) {
    std::memset(memory, 0x5a, kMemoryBytes);
  }

  // Arguments, each in blocks of its own.
  template <typename Value>
  Value* put(const Value* values, std::size_t count) {
    const std::size_t bytes = count * sizeof(Value);
    unsigned char* const border = memory_ + (2 * used_++ + 1) * kBlockBytes;
    if (used_ > kSlots) std::abort();
    unsigned char* const at = place_ == Place::kInBlock ? border + 64 : border - bytes / 2 / 8 * 8;
    std::memcpy(at, values, bytes);
    return reinterpret_cast<Value*>(at);
  }
  template <typename Value>
  Value* put(const Value& value) {
    return put(&value, 1);
  }
  char* text(const char* text) { return put(text, std::strlen(text) + 1); }
  // Room for what a call tells, filled with a pattern.
  template <typename Value>
  Value* room(std::size_t count = 1) {
    const std::vector<unsigned char> pattern(count * sizeof(Value), 0x5a);
    return reinterpret_cast<Value*>(put(pattern.data(), pattern.size()));
  }

  template <typename Call>
  long make(const Call& call) {
    closeAllBlocks();
    errno = 4095;
    const long result = static_cast<long>(call());
    note(result);
    note(errno);
    return result;
  }
  // Notes that there is one, and gives it.
  template <typename Call>
  int makeDescriptor(const Call& call) {
    closeAllBlocks();
    errno = 4095;
    const int result = static_cast<int>(call());
    note(result >= 0);
    note(result >= 0 ? 0 : errno);
    return result;
  }
  template <typename Call>
  auto makePointer(const Call& call) {
    closeAllBlocks();
    errno = 4095;
    const auto result = call();
    note(result != nullptr);
    note(result != nullptr ? 0 : errno);
    return result;
  }

  template <typename Value>
  requires std::is_arithmetic_v<Value>
  void note(Value value) { noted_ += std::to_string(static_cast<long>(value)) + " "; }
  void note(const std::string& text) { noted_ += "\"" + text + "\" "; }
  // As far as it goes in 64 bytes: where nothing was told, nothing ends it.
  void note(const char* text) { note(std::string(text, ::strnlen(text, 64))); }
  // Whether the call has told something, where that differs each time.
  template <typename Value>
  void noteTold(const Value* value) {
    const std::vector<unsigned char> pattern(sizeof(Value), 0x5a);
    note(std::memcmp(value, pattern.data(), pattern.size()) != 0);
  }
  template <typename Value>
  void noteBytes(const Value* value, std::size_t count = 1) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(value);
    for (std::size_t i = 0; i < count * sizeof(Value); ++i) note(bytes[i]);
  }
  const std::string& noted() const { return noted_; }

 private:
  unsigned char* const memory_;
  const Place place_;
  std::size_t used_ = 0;
  std::string noted_;
};

// A function, or several of a kind. The working folder is a new one for each attempt.
struct Function {
  const char* name;
  void (*run)(Attempt& attempt);
};

const std::vector<Function>& nameFunctions();
const std::vector<Function>& structureFunctions();
const std::vector<Function>& waitFunctions();
const std::vector<Function>& numberFunctions();  // syscall(), which is a function of libc as well

// ---- What they are called on

void makeFile(const char* name);
pid_t childThatExits(int status);

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }  // NOLINT(google-explicit-constructor)

 private:
  const int number_;
};

struct Pipe {
  Pipe() {
    if (::pipe(ends) != 0) std::abort();
  }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void send() const {
    if (::write(ends[1], "x", 1) != 1) std::abort();
  }
  int ends[2];
};

}  // namespace gmac::testing

#endif  // GMAC_TESTS_PRELOADED_IO_FUNCTIONS_H_
