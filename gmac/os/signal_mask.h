// SPDX-License-Identifier: Apache-2.0
//
// Signal masks of a process whose faults must always be answered.
//
// The kernel kills a process that faults while SIGSEGV is blocked, so SIGSEGV is never blocked in
// the kernel's masks. A real-time signal that the program cannot use, the stand-in, is blocked in
// its place. The kernel thus remembers what the program believes, wherever it keeps a mask: across
// handlers, siglongjmp, ppoll, new threads, fork and exec. A SIGSEGV that was sent while the
// program blocks it waits as a pending stand-in, and comes when the program unblocks it.
#ifndef GMAC_OS_SIGNAL_MASK_H_
#define GMAC_OS_SIGNAL_MASK_H_

#include <csignal>
#include <cstdint>
#include <utility>

namespace gmac::os {

// The stand-in's number: the highest real-time signal; SIGRTMAX does not count it from then on.
// Thread-safe; the fault handler may call it. 0 when the program has taken all of them, and then
// nothing is remembered.
int standIn() noexcept;

// Translate between the masks that the program sees and the kernel's; the second one also serves
// the set of pending signals. For the fault handler too.
sigset_t kernelMask(const sigset_t& program) noexcept;
sigset_t programMask(const sigset_t& kernel) noexcept;

// A mask as the kernel has it: bit n - 1 is signal n.
using KernelSet = std::uint64_t;

constexpr KernelSet kernelBit(int signal) noexcept {
  return signal > 0 ? KernelSet{1} << (signal - 1) : 0;
}

// Every signal that can wait. A synchronous fault cannot: the kernel would kill the process instead
// of delivering it. Signals 32 and 33 are glibc's own: it must be able to cancel threads and to
// change their users.
inline constexpr KernelSet kDeferrable =
    ~(kernelBit(SIGSEGV) | kernelBit(SIGBUS) | kernelBit(SIGILL) | kernelBit(SIGFPE) |
      kernelBit(32) | kernelBit(33));

// Sets the calling thread's mask and returns the one before. No translation; for the fault handler
// too.
KernelSet setThreadMask(KernelSet mask) noexcept;
KernelSet threadMask() noexcept;

// Keeps SIGXFSZ from the program for a call of the runtime's that may exceed RLIMIT_FSIZE: the call
// fails with EFBIG, and the signal that the kernel sends to the thread as well is taken away. For
// the stack.
class FileSizeSignalKept {
 public:
  FileSizeSignalKept() noexcept;
  ~FileSizeSignalKept();
  FileSizeSignalKept(const FileSizeSignalKept&) = delete;
  FileSizeSignalKept& operator=(const FileSizeSignalKept&) = delete;

 private:
  KernelSet before_;
  bool wasPending_;  // one that the program's own call has raised while it blocks the signal
};

// Blocks every signal of the calling thread while it lives, so that no handler of the
// application runs (and touches a shared object) while the thread holds a lock of the runtime.
// Nests. For the stack; the fault handler uses it.
class SignalsBlocked {
 public:
  // kWhereHandled: only where the program may have a handler (handlers.h). Not for those who make
  // threads, which inherit the mask, nor for calls that may wait for long.
  enum class When : std::uint8_t { kAlways, kWhereHandled };

  explicit SignalsBlocked(When when = When::kAlways) noexcept;
  ~SignalsBlocked();
  // The new one ends in its place, in the same thread.
  SignalsBlocked(SignalsBlocked&& other) noexcept
      : before_(other.before_),
        role_(std::exchange(other.role_, Role::kNested)),
        leftToReturn_(other.leftToReturn_) {}
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  // The thread is in a signal handler that returns at once when this one ends: its return brings
  // the mask back, and saves a system call.
  void leaveToReturn() noexcept { leftToReturn_ = true; }

  // Whether one lives in the calling thread.
  static bool here() noexcept { return thread.blocked; }

  // For a signal handler whose action has kDeferrable as its mask: the kernel has blocked the
  // signals, and returning from the handler brings back `interrupted`, so that the outermost
  // SignalsBlocked of the handler needs no system call. One that ends without leaveToReturn()
  // lets the signals in. For the stack; nothing of it is left where a handler of the application,
  // let in so, leaves both handlers by a long jump.
  class ByDelivery {
   public:
    explicit ByDelivery(KernelSet interrupted) noexcept;
    ~ByDelivery();
    ByDelivery(const ByDelivery&) = delete;
    ByDelivery& operator=(const ByDelivery&) = delete;

    // Blocks the signals again if they were let in.
    void again() noexcept;

   private:
    const bool outerByDelivery_;
    const KernelSet outerInterrupted_;
  };

 private:
  struct Thread {
    bool blocked;           // a SignalsBlocked lives
    bool withoutHandlers;   // and blocks nothing, as there is no handler
    bool byDelivery;        // the kernel's delivery of a signal has blocked them
    KernelSet interrupted;  // if so, the mask before
  };
  static inline constinit thread_local Thread thread
      __attribute__((tls_model("initial-exec"))) = {};

  // Its part: nothing, as another one lives; nothing, as there is no handler; or it blocks.
  enum class Role : std::uint8_t { kNested, kCounts, kOutermost, kInsideCounting };

  KernelSet before_ = 0;
  Role role_ = Role::kNested;
  bool leftToReturn_ = false;
};

}  // namespace gmac::os

#endif  // GMAC_OS_SIGNAL_MASK_H_
