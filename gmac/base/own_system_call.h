// SPDX-License-Identifier: Apache-2.0
//
// System calls of the runtime itself. interpose/ stands in for syscall() as well, so that programs
// may give the kernel shared memory and masks by number; what the runtime calls there takes none of
// its locks, is not translated, and needs no more stack than the kernel does.
#ifndef GMAC_BASE_OWN_SYSTEM_CALL_H_
#define GMAC_BASE_OWN_SYSTEM_CALL_H_

#include <array>
#include <cerrno>
#include <type_traits>

namespace gmac {

// Like syscall(): -1 and errno for an error. No cancellation point. For the fault handler too.
template <typename... Words>
long ownSystemCall(long number, Words... words) noexcept {
#if !defined(__x86_64__)
#error "the system call is written for x86-64"
#endif
  static_assert(sizeof...(Words) <= 6);
  constexpr auto kWord = []<typename Word>(Word word) noexcept {
    if constexpr (std::is_pointer_v<Word>) {
      return reinterpret_cast<long>(word);
    } else if constexpr (std::is_null_pointer_v<Word>) {
      return 0L;
    } else {
      return static_cast<long>(word);
    }
  };
  const std::array<long, 6> given = {kWord(words)...};
  register long fourth asm("r10") = given[3];
  register long fifth asm("r8") = given[4];
  register long sixth asm("r9") = given[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(given[0]), "S"(given[1]), "d"(given[2]), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  constexpr long kMostErrors = 4095;
  if (result < 0 && result >= -kMostErrors) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
}

}  // namespace gmac

#endif  // GMAC_BASE_OWN_SYSTEM_CALL_H_
