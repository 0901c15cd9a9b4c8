// SPDX-License-Identifier: Apache-2.0
//
// Functions whose arguments point to memory that the kernel reads or writes. It cannot fault on a
// closed block as the program does: it returns EFAULT. A function that is declared here is called
// with private memory in place of what is shared. Its signature comes from libc's header; the
// declaration adds what no signature says: how much memory each pointer means.
//
//   GMAC_SERVE(4, When::kBefore, epoll_wait, Array<1, 2>);
//
// defines epoll_wait, with 4 parameters, of which parameter 1 points to as many events as parameter
// 2 says. What is not const is copied back. (Bytes of a transfer have their own way: transfer.h.)
#ifndef GMAC_INTERPOSE_BASE_SERVED_CALL_H_
#define GMAC_INTERPOSE_BASE_SERVED_CALL_H_

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gmac/base/cancellation.h"
#include "gmac/base/round_up.h"
#include "gmac/coherence/memory_port.h"
#include "interpose/base/private_copy.h"
#include "interpose/base/real.h"
#include "interpose/base/system_call.h"

// For the files that declare functions. The signatures' attributes add nothing here: the headers
// say that pointers are never NULL, which the kernel answers to, and that memory is only written,
// and then asking whether it is shared looks like reading it.
#pragma GCC diagnostic ignored "-Wignored-attributes"
#pragma GCC diagnostic ignored "-Wnonnull-compare"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace gmac::interpose {

// ---- What a pointer means

template <std::size_t kIndex, typename Given>
using PointeeAt = std::remove_pointer_t<std::tuple_element_t<kIndex, Given>>;

template <typename Pointee>
constexpr std::size_t bytesOf(std::size_t count) noexcept {
  std::size_t bytes = 0;
  if constexpr (std::is_void_v<Pointee>) {
    bytes = count;
  } else if (__builtin_mul_overflow(count, sizeof(Pointee), &bytes)) {
    return 0;
  }
  return bytes <= SSIZE_MAX ? bytes : 0;  // the kernel refuses more
}

// A number that the program gives; none if it is negative.
template <typename Number>
constexpr std::size_t countOf(Number number) noexcept {
  if constexpr (std::is_signed_v<Number>) {
    if (number < 0) return 0;
  }
  return static_cast<std::size_t>(number);
}

// Parameter kIndex points to kCount values of its type.
template <std::size_t kIndex, std::size_t kCount = 1>
struct Values {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given&) noexcept {
    return bytesOf<PointeeAt<kIndex, Given>>(kCount);
  }
};

// ... to as many values (bytes, if the type is void) as parameter kCountIndex says.
template <std::size_t kIndex, std::size_t kCountIndex>
struct Array {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    return bytesOf<PointeeAt<kIndex, Given>>(countOf(std::get<kCountIndex>(given)));
  }
};

// ... to as many bytes as parameter kCountIndex says, whatever the type is.
template <std::size_t kIndex, std::size_t kCountIndex>
struct Bytes {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    return bytesOf<void>(countOf(std::get<kCountIndex>(given)));
  }
};

// ... to a set of descriptors below the number that parameter kCountIndex says.
template <std::size_t kIndex, std::size_t kCountIndex>
struct Descriptors {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    constexpr std::size_t kBitsOfWord = 64;
    return roundUp(countOf(std::get<kCountIndex>(given)), kBitsOfWord) / CHAR_BIT;
  }
};

// ... to as many bytes as the number says to which parameter kLengthIndex points.
template <std::size_t kIndex, std::size_t kLengthIndex>
struct Sized {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    const auto* const length = std::get<kLengthIndex>(given);
    return length != nullptr && readable(length, sizeof *length) ? countOf(*length) : 0;
  }
};

// ... to a string.
template <std::size_t kIndex>
struct Text {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    const auto* const text = static_cast<const char*>(std::get<kIndex>(given));
    return text != nullptr && coherence::mayBeShared(text, kMostTextBytes) ? textBytes(text) : 0;
  }
};

// ... to as many bytes as kBytes says of the arguments.
template <std::size_t kIndex, auto kBytes>
struct Computed {
  static constexpr std::size_t kParameter = kIndex;
  template <typename Given>
  static std::size_t bytes(const Given& given) noexcept {
    return std::apply(kBytes, given);
  }
};

// ---- Calls

// When shared arguments are looked for.
enum class When {
  // Before the call: it may wait, or takes something with it when it fails (an event, a child, a
  // connection).
  kBefore,
  // After it has failed with EFAULT: then nothing has happened, and it is made again. The runtime
  // itself calls such functions while it holds the lock of all objects, which looking takes.
  kAfterFault,
};
// How a function tells of an error.
enum class Errors { kErrno, kReturned };

namespace internal {

// While one lives, the thread is in a function that serves a call by number.
inline constinit thread_local bool byFunctionHere __attribute__((tls_model("initial-exec"))) =
    false;
class ByFunction {
 public:
  ByFunction() noexcept : outer_(std::exchange(byFunctionHere, true)) {}
  ~ByFunction() { byFunctionHere = outer_; }
  ByFunction(const ByFunction&) = delete;
  ByFunction& operator=(const ByFunction&) = delete;

 private:
  const bool outer_;
};

template <typename Rule>
struct CopyFor : PrivateCopy {
  template <typename Given>
  explicit CopyFor(const Given& given)
      : PrivateCopy(
            std::get<Rule::kParameter>(given.arguments), Rule::bytes(given.arguments),
            !std::is_const_v<std::remove_pointer_t<
                std::tuple_element_t<Rule::kParameter, std::decay_t<decltype(given.arguments)>>>>) {
  }
};

// (A tuple of tuples would have constructors of its own for one.)
template <typename... Args>
struct Given {
  std::tuple<Args...> arguments;
};

template <typename Rule, typename Value>
const Value& forEach(const Value& value) noexcept {
  return value;
}

template <typename Return>
Return failed(Errors errors) noexcept {
  if constexpr (std::is_pointer_v<Return>) {
    return nullptr;
  } else {
    return errors == Errors::kErrno ? static_cast<Return>(-1) : static_cast<Return>(errno);
  }
}

template <typename Return>
bool faulted(Errors errors, Return result) noexcept {
  if constexpr (std::is_pointer_v<Return>) {
    return result == nullptr && errno == EFAULT;
  } else {
    return errors == Errors::kErrno ? result == static_cast<Return>(-1) && errno == EFAULT
                                    : result == static_cast<Return>(EFAULT);
  }
}

// Whether an argument points to shared memory.
template <typename... Rules, typename... Args>
bool anyShared(Args... args) noexcept {
  if (!coherence::anythingShared()) return false;
  const std::tuple<Args...> given{args...};
  return (coherence::touchesShared(std::get<Rules::kParameter>(given), Rules::bytes(given)) || ...);
}

// Opens what the structures point to that arguments point to.
template <typename... Rules, typename... Args>
bool openPointees(Args... args) noexcept {
  const std::tuple<Args...> given{args...};
  // All of them, hence no short circuit.
  return (static_cast<int>(touchPointees(std::get<Rules::kParameter>(given))) | ...) != 0;
}

// Another thread may close a block again before the kernel has reached it, but not forever.
inline constexpr int kTouchingAttempts = 1000;

// Makes the call with copies. A frame of its own, for the stack that they take.
template <Errors kErrors, typename... Rules, typename Call, typename... Args>
[[gnu::noinline]] auto callOnCopies(Call& call, const Given<Args...>& given)
    -> std::invoke_result_t<Call&, Args...> {
  using Return = std::invoke_result_t<Call&, Args...>;
  std::tuple<CopyFor<Rules>...> copies(forEach<Rules>(given)...);
  if (!(std::get<CopyFor<Rules>>(copies).ok() && ...)) return failed<Return>(kErrors);
  std::tuple<Args...> privately = given.arguments;
  const auto replace = [&]<typename Rule>(const CopyFor<Rule>& copy) {
    using Pointer = std::tuple_element_t<Rule::kParameter, std::tuple<Args...>>;
    if (copy.shared()) std::get<Rule::kParameter>(privately) = static_cast<Pointer>(copy.get());
  };
  (replace(std::get<CopyFor<Rules>>(copies)), ...);
  const Return result = std::apply(call, privately);
  const int savedErrno = errno;
  if (!(std::get<CopyFor<Rules>>(copies).putBack() && ...)) return failed<Return>(kErrors);
  errno = savedErrno;
  return result;
}

}  // namespace internal

// Calls `call`, a function that the kernel serves, on `args`, with private memory in place of what
// is shared. `kCancellable`: it is a cancellation point.
template <When kWhen, Errors kErrors, bool kCancellable, typename... Rules, typename Call,
          typename... Args>
auto serve(Call&& call, Args... args) -> std::invoke_result_t<Call&, Args...> {
  const int errnoBefore = errno;
  if constexpr (kWhen == When::kAfterFault) {
    const auto result = call(args...);
    if (!internal::faulted(kErrors, result)) [[likely]]
      return result;
    if (!internal::anyShared<Rules...>(args...) && !internal::openPointees<Rules...>(args...)) {
      return result;
    }
    errno = errnoBefore;
  } else {
    if (!internal::anyShared<Rules...>(args...)) [[likely]]
      return call(args...);
  }
  const internal::Given<Args...> given{{args...}};
  const auto callOnce = [&] {
    if constexpr (kCancellable) {
      const auto waiting = [&](auto... privately) {
        return cancellably([&] { return call(privately...); });
      };
      return cancellationPoint(
          [&] { return internal::callOnCopies<kErrors, Rules...>(waiting, given); });
    } else {
      return uncancelled([&] { return internal::callOnCopies<kErrors, Rules...>(call, given); });
    }
  };
  auto result = callOnce();
  if constexpr (kWhen == When::kAfterFault) {
    // The copies are the arguments' own, and these may be structures that hold pointers.
    for (int attempt = 1;
         internal::faulted(kErrors, result) && attempt < internal::kTouchingAttempts &&
         internal::openPointees<Rules...>(args...);
         ++attempt) {
      errno = errnoBefore;
      result = callOnce();
    }
  }
  return result;
}

// Whether a call's structures may hold pointers that are followed.
enum class Follow : bool { kNo, kYes };

// Calls `call`, which gives -1 and errno. If the kernel could not reach what some of `arguments`
// point to, whose sizes only it knows, they are opened, and the call is made again; then what
// structures point to that lie there.
template <Follow kFollow = Follow::kYes, typename Call, typename... Arguments>
auto serveTouched(const Call& call, Arguments*... arguments) {
  const int errnoBefore = errno;
  for (int attempt = 0;; ++attempt) {
    const auto result = call();
    if (result != -1 || errno != EFAULT || attempt == internal::kTouchingAttempts) [[likely]]
      return result;
    // All of them, hence no short circuit.
    int opened = (static_cast<int>(touch(arguments)) | ...);
    if (kFollow == Follow::kYes && (attempt > 0 || opened == 0)) {
      opened |= (static_cast<int>(touchPointees(arguments)) | ...);
    }
    if (opened == 0) {
      errno = EFAULT;
      return result;
    }
    errno = errnoBefore;
  }
}

// ---- Signatures

template <typename Function>
struct Signature;
template <typename Result, typename... Args>
struct Signature<Result(Args...)> {
  using Plain = Result(Args...);
  using Return = Result;
  template <std::size_t kIndex>
  using Parameter = std::tuple_element_t<kIndex, std::tuple<Args...>>;
  static constexpr std::size_t kParameters = sizeof...(Args);
  static constexpr bool kThrows = true;
};
template <typename Result, typename... Args>
struct Signature<Result(Args...) noexcept> : Signature<Result(Args...)> {
  static constexpr bool kThrows = false;
};

// ---- System calls by number

// A word as a parameter's type.
template <typename Parameter>
Parameter wordAs(long word) noexcept {
  if constexpr (std::is_pointer_v<Parameter>) {
    return reinterpret_cast<Parameter>(word);
  } else {
    return static_cast<Parameter>(word);
  }
}

template <typename Parameter>
long asWord(Parameter parameter) noexcept {
  if constexpr (std::is_pointer_v<Parameter>) {
    return reinterpret_cast<long>(parameter);
  } else {
    return static_cast<long>(parameter);
  }
}

// Servers for calls whose first words are the parameters of `Function`.
template <typename Function>
struct SystemCall : SystemCall<typename Signature<Function>::Plain> {};
template <typename Return, typename... Args>
struct SystemCall<Return(Args...)> {
  template <When kWhen, typename... Rules>
  static long onCopies(long number, const Words& words) {
    return withArguments(words, [&](Args... args) {
      const auto call = [&](Args... privately) {
        Words kernels = words;
        std::size_t next = 0;
        ((kernels[next++] = asWord(privately)), ...);
        return systemCall(number, kernels);
      };
      return serve<kWhen, Errors::kErrno, false, Rules...>(call, args...);
    });
  }

  // `kFunction` knows what is shared. Another library may stand between it and libc, and make the
  // call by number again.
  template <auto kFunction, When kWhen>
  static long byFunction(long number, const Words& words) {
    if (kWhen == When::kAfterFault || internal::byFunctionHere) {
      const int errnoBefore = errno;
      const long result = systemCall(number, words);
      if (result != -1 || errno != EFAULT) return result;
      errno = errnoBefore;
    }
    return uncancelled([&]() -> long {
      const internal::ByFunction here;
      return withArguments(words, [](Args... args) { return kFunction(args...); });
    });
  }

 private:
  template <typename Use>
  static long withArguments(const Words& words, const Use& use) {
    return [&]<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
      return static_cast<long>(use(wordAs<Args>(words[kIndices])...));
    }
    (std::index_sequence_for<Args...>{});
  }
};

// Names the server of a number when the library is loaded. For explicit instantiations.
template <long kNumber, SystemCallServer* kServer>
struct ServerByNumber {
  static inline const bool kNamed =
      (systemCallServers[static_cast<std::size_t>(kNumber)] = kServer) != nullptr;
};

// ---- Functions of libc

// A name as a template's argument.
template <std::size_t kBytes>
struct FunctionName {
  // Implicit, for names that are written down where a FunctionName is expected.
  consteval FunctionName(const char (&name)[kBytes]) {  // NOLINT(google-explicit-constructor)
    std::copy_n(name, kBytes, text);
  }
  char text[kBytes];
};

// The real function of a name. Resolved when the library is loaded, as these may be called in
// signal handlers.
template <FunctionName kName, typename Function>
constinit Real<typename Signature<Function>::Plain> realOf(kName.text);
template <FunctionName kName, typename Function>
const bool kResolved = realOf<kName, Function>.resolve() != nullptr;

template <typename Function, std::size_t kIndex>
using ParameterOf = typename Signature<Function>::template Parameter<kIndex>;

// (libc declares functions that cannot be cancelled as functions that do not throw.)
template <FunctionName kName, typename Function, When kWhen, Errors kErrors, typename... Rules,
          typename... Args>
auto serveFunction(Args... args) {
  (void)kResolved<kName, Function>;
  return serve<kWhen, kErrors, Signature<Function>::kThrows, Rules...>(realOf<kName, Function>,
                                                                       args...);
}

}  // namespace gmac::interpose

#define GMAC_PARAMETERS_1(f) gmac::interpose::ParameterOf<f, 0> a
#define GMAC_PARAMETERS_2(f) GMAC_PARAMETERS_1(f), gmac::interpose::ParameterOf<f, 1> b
#define GMAC_PARAMETERS_3(f) GMAC_PARAMETERS_2(f), gmac::interpose::ParameterOf<f, 2> c
#define GMAC_PARAMETERS_4(f) GMAC_PARAMETERS_3(f), gmac::interpose::ParameterOf<f, 3> d
#define GMAC_PARAMETERS_5(f) GMAC_PARAMETERS_4(f), gmac::interpose::ParameterOf<f, 4> e
#define GMAC_PARAMETERS_6(f) GMAC_PARAMETERS_5(f), gmac::interpose::ParameterOf<f, 5> g
#define GMAC_ARGUMENTS_1 a
#define GMAC_ARGUMENTS_2 a, b
#define GMAC_ARGUMENTS_3 a, b, c
#define GMAC_ARGUMENTS_4 a, b, c, d
#define GMAC_ARGUMENTS_5 a, b, c, d, e
#define GMAC_ARGUMENTS_6 a, b, c, d, e, g

// Defines libc's function `name`, which is declared with `parameters` parameters.
#define GMAC_SERVE(parameters, when, name, ...) \
  GMAC_SERVE_ERRORS(parameters, when, gmac::interpose::Errors::kErrno, name, __VA_ARGS__)
#define GMAC_SERVE_ERRORS(parameters, when, errors, name, ...)                                  \
  static_assert(gmac::interpose::Signature<decltype(::name)>::kParameters == (parameters));     \
  extern "C" GMAC_INTERPOSED gmac::interpose::Signature<decltype(::name)>::Return name(         \
      GMAC_PARAMETERS_##parameters(                                                             \
          decltype(::name))) noexcept(!gmac::interpose::Signature<decltype(::name)>::kThrows) { \
    return gmac::interpose::serveFunction<#name, decltype(::name), when, errors, __VA_ARGS__>(  \
        GMAC_ARGUMENTS_##parameters);                                                           \
  }                                                                                             \
  static_assert(true)

// The same, for a name that is a system call's as well, which takes the same, or more after that.
#define GMAC_SERVE_CALL(parameters, when, name, ...) \
  GMAC_SERVE(parameters, when, name, __VA_ARGS__);   \
  GMAC_SERVE_NUMBER(when, name, __VA_ARGS__)
#define GMAC_SERVE_NUMBER(when, name, ...)         \
  template struct gmac::interpose::ServerByNumber< \
      SYS_##name, &gmac::interpose::SystemCall<decltype(::name)>::onCopies<when, __VA_ARGS__>>

#endif  // GMAC_INTERPOSE_BASE_SERVED_CALL_H_
