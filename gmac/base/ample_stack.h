// SPDX-License-Identifier: Apache-2.0
//
// Calls of other people's code, a driver's, from where there may be little stack left: the fault
// handler, which runs on the stack of whatever touched a shared object. Whoever answers faults says
// how a call gets a stack with room, whoever calls a driver asks for it, and neither knows the
// other.
#ifndef GMAC_BASE_AMPLE_STACK_H_
#define GMAC_BASE_AMPLE_STACK_H_

#include <type_traits>
#include <utility>

namespace gmac {

// Runs function(argument) on a stack with room. No handler of the application's runs there.
using StackSwitch = void (*)(void (*function)(void*), void* argument) noexcept;

namespace internal {
inline constinit thread_local StackSwitch stackSwitch __attribute__((tls_model("initial-exec"))) =
    nullptr;
}  // namespace internal

// While it lives, the calling thread's calls by withAmpleStack() go through `change`; NULL: they
// are made as they are. Nests. For the stack and the fault handler.
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

// Returns call(), which must end by itself, soon, and throw nothing. Costs one load where the stack
// is not short. For the fault handler too.
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
