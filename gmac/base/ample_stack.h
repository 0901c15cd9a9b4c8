// SPDX-License-Identifier: Apache-2.0
//
// Calls of foreign code, such as a driver's, that need more stack than may be left: the fault
// handler runs on the stack of the code that touched a shared object. The code that handles faults
// decides how such a call gets a larger stack, the code that calls a driver asks for one, and
// neither knows the other.
#ifndef GMAC_BASE_AMPLE_STACK_H_
#define GMAC_BASE_AMPLE_STACK_H_

#include <type_traits>
#include <utility>

namespace gmac {

// Runs function(argument) on a stack with room. No handler of the application runs there.
using StackSwitch = void (*)(void (*function)(void*), void* argument) noexcept;

namespace internal {
inline constinit thread_local StackSwitch stackSwitch __attribute__((tls_model("initial-exec"))) =
    nullptr;
}  // namespace internal

// While it lives, the calling thread's calls by withAmpleStack() go through `change`; NULL: they
// run on the current stack. Nests. For the stack and the fault handler.
class StackIsShort {
 public:
  explicit StackIsShort(StackSwitch change) noexcept
      : before_(std::exchange(internal::stackSwitch, change)) {}
  ~StackIsShort() { internal::stackSwitch = before_; }
  StackIsShort(const StackIsShort&) = delete;
  StackIsShort& operator=(const StackIsShort&) = delete;

 private:
  const StackSwitch before_;
};

// Returns call(), which must end soon and by itself, and throw nothing. Costs one load where the
// stack is not short. For the fault handler too.
template <typename Call>
auto withAmpleStack(const Call& call) noexcept {
  static_assert(!std::is_void_v<decltype(call())>);
  const StackSwitch change = internal::stackSwitch;
  if (change == nullptr) [[likely]] {
    return call();
  }
  struct Job {
    const Call& call;
    decltype(call()) result;
  } job{call, {}};
  change(
      [](void* argument) {
        auto* const made = static_cast<Job*>(argument);
        made->result = made->call();
      },
      &job);
  return job.result;
}

}  // namespace gmac

#endif  // GMAC_BASE_AMPLE_STACK_H_
