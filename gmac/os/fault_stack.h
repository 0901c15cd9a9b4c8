// SPDX-License-Identifier: Apache-2.0
//
// Stacks of the runtime's own, where there may be no room to answer a fault: for the whole answer
// where it is delivered on an alternate signal stack of the program's, else for a driver's part.
#ifndef GMAC_OS_FAULT_STACK_H_
#define GMAC_OS_FAULT_STACK_H_

#include <cstddef>
#include <cstdint>

namespace gmac::os {

// Address space; memory is what has been used. Room for a CUDA driver, and for handlers of the
// program that run in the middle of an answer.
inline constexpr std::size_t kFaultStackBytes = std::size_t{256} << 10;

// A stack that is the calling thread's while this lives, with a page below it that nobody may
// touch. Taken from those that earlier faults have left, or made; a fault inside a fault has one of
// its own, and threads that do not fault have none. For the fault handler: takes no lock, allocates
// by one system call.
class FaultStack {
 public:
  enum class Need { kMust, kMay };
  // Where the system gives no memory: ends the process with a line (kMust), or is none (kMay).
  explicit FaultStack(Need need) noexcept;
  ~FaultStack();
  FaultStack(const FaultStack&) = delete;
  FaultStack& operator=(const FaultStack&) = delete;

  explicit operator bool() const noexcept { return begin_ != nullptr; }
  // Where the stack ends that grows downwards; a multiple of the page size.
  std::uintptr_t top() const noexcept {
    return reinterpret_cast<std::uintptr_t>(begin_) + kFaultStackBytes;
  }

 private:
  std::byte* begin_;
};

}  // namespace gmac::os

#endif  // GMAC_OS_FAULT_STACK_H_
