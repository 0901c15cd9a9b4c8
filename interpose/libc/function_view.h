// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_INTERPOSE_LIBC_FUNCTION_VIEW_H_
#define GMAC_INTERPOSE_LIBC_FUNCTION_VIEW_H_

#include <memory>
#include <type_traits>

namespace gmac::interpose {

// A view of a callable: it must outlive the view. Allocates nothing, so a signal handler may use
// it.
template <typename Function>
class FunctionView;

template <typename Return, typename... Args>
class FunctionView<Return(Args...)> {
 public:
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionView>)
      // A lambda is to be given as it is; what is a view already is copied (above).
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      FunctionView(Callable&& callable)
      : bound_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        invoke_([](void* bound, Args... args) -> Return {
          return (*static_cast<std::remove_reference_t<Callable>*>(bound))(args...);
        }) {}

  Return operator()(Args... args) const { return invoke_(bound_, args...); }

 private:
  void* bound_;
  Return (*invoke_)(void*, Args...);
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_FUNCTION_VIEW_H_
