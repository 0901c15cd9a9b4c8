// SPDX-License-Identifier: Apache-2.0
//
// syscall() of rt_sigprocmask and rt_sigaction, as signals.cc serves libc's functions, and as those
// also before the runtime has started: SIGSEGV would be blocked, or its action replaced, where
// accesses to shared memory need it.
#include <sys/syscall.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "gmac/os/handlers.h"
#include "gmac/os/signal_mask.h"
#include "interpose/base/private_copy.h"
#include "interpose/base/served_call.h"
#include "interpose/base/system_call.h"

// The sigaction() of signals.cc, whichever the dynamic linker finds first.
extern "C" __attribute__((visibility("hidden"))) int gmacSigaction(
    int signal, const struct sigaction* wanted, struct sigaction* before) noexcept;

namespace gmac::interpose {
namespace {

using os::KernelSet;

// An action as the kernel has it.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  KernelSet mask;
};

sigset_t setOf(KernelSet bits) noexcept {
  sigset_t set;
  sigemptyset(&set);
  std::memcpy(&set, &bits, sizeof bits);
  return set;
}

KernelSet bitsOf(const sigset_t& set) noexcept {
  KernelSet bits = 0;
  std::memcpy(&bits, &set, sizeof bits);
  return bits;
}

KernelSet kernelBits(KernelSet program) noexcept { return bitsOf(os::kernelMask(setOf(program))); }
KernelSet programBits(KernelSet kernel) noexcept { return bitsOf(os::programMask(setOf(kernel))); }

// What the kernel gets in place of `given`: a translated copy, or, where nothing can be read there,
// what it will refuse.
template <typename Value, typename Translate>
const Value* translated(const Value* given, Value& copy, const Translate& translate) noexcept {
  if (given == nullptr || !readable(given, sizeof *given)) return given;
  copy = *given;
  translate(copy);
  return &copy;
}

long changeMask(long number, int how, const KernelSet* wanted, KernelSet* before,
                std::size_t bytes) noexcept {
  KernelSet copy = 0;
  const KernelSet* const kernel =
      translated(wanted, copy, [](KernelSet& mask) { mask = kernelBits(mask); });
  const long result =
      systemCall(number, {how, asWord(kernel), asWord(before), asWord(bytes), 0, 0});
  if (result == 0 && before != nullptr) *before = programBits(*before);
  return result;
}

// `before` is what the kernel has just filled in: it can be written.
long changeFaultAction(const KernelAction* wanted, KernelAction* before) noexcept {
  struct sigaction fresh = {};
  struct sigaction old = {};
  if (wanted != nullptr) {
    fresh.sa_handler = wanted->handler;
    fresh.sa_flags = static_cast<int>(wanted->flags);
    fresh.sa_mask = setOf(wanted->mask);
  }
  if (gmacSigaction(SIGSEGV, wanted != nullptr ? &fresh : nullptr, &old) != 0) return -1;
  if (before != nullptr) {
    *before = {old.sa_handler, static_cast<unsigned>(old.sa_flags), old.sa_restorer,
               bitsOf(old.sa_mask)};
  }
  return 0;
}

long changeAction(long number, int signal, const KernelAction* wanted, KernelAction* before,
                  std::size_t bytes) noexcept {
  if (signal > 0 && signal == os::standIn()) {
    errno = EINVAL;
    return -1;
  }
  KernelAction copy = {};
  const KernelAction* const kernel = translated(wanted, copy, [&](KernelAction& action) {
    if (signal == SIGSEGV) return;  // gmacSigaction() translates
    action.mask = kernelBits(action.mask);
    if (action.handler != SIG_DFL && action.handler != SIG_IGN) os::handlerComes(signal);
  });
  const bool changesFaults = signal == SIGSEGV && (wanted == nullptr || kernel == &copy);
  const long result = systemCall(
      number, {signal, changesFaults ? 0 : asWord(kernel), asWord(before), asWord(bytes), 0, 0});
  if (result != 0) return result;
  if (changesFaults) return changeFaultAction(kernel, before);
  if (before != nullptr) before->mask = programBits(before->mask);
  return result;
}

// Masks of another size and changes of no kind are the kernel's to refuse. (readable() asks it by
// such a change.)
long maskByNumber(long number, const Words& words) {
  const auto how = wordAs<int>(words[0]);
  const bool known = how == SIG_BLOCK || how == SIG_UNBLOCK || how == SIG_SETMASK;
  if (!known || words[3] != static_cast<long>(sizeof(KernelSet))) {
    return serveTouched([&] { return systemCall(number, words); }, wordAs<void*>(words[1]));
  }
  return serve<When::kBefore, Errors::kErrno, false, Values<1>, Values<2>>(
      [&](int change, const KernelSet* wanted, KernelSet* before) {
        return static_cast<int>(changeMask(number, change, wanted, before, sizeof(KernelSet)));
      },
      how, wordAs<const KernelSet*>(words[1]), wordAs<KernelSet*>(words[2]));
}

long actionByNumber(long number, const Words& words) {
  if (words[3] != static_cast<long>(sizeof(KernelSet))) return systemCall(number, words);
  return serve<When::kBefore, Errors::kErrno, false, Values<1>, Values<2>>(
      [&](int signal, const KernelAction* wanted, KernelAction* before) {
        return static_cast<int>(changeAction(number, signal, wanted, before, sizeof(KernelSet)));
      },
      wordAs<int>(words[0]), wordAs<const KernelAction*>(words[1]),
      wordAs<KernelAction*>(words[2]));
}

[[gnu::constructor]] void nameSignalServers() {
  systemCallServers[SYS_rt_sigprocmask] = &maskByNumber;
  systemCallServers[SYS_rt_sigaction] = &actionByNumber;
}

}  // namespace
}  // namespace gmac::interpose
