// SPDX-License-Identifier: Apache-2.0
//
// Preloaded into the ranks of MPICH. It looks for messages by UCX without a pause and has no
// variable against it, as Open MPI has (mpi_yield_when_idle): where ranks share cores, one that
// waits would keep its core from the rank that it waits for until the scheduler takes it away.
//
// And MPICH 4.0's MPI_Finalize() hangs now and then over tcp, without gmac, too: a rank that has
// closed its connections waits for the launcher's barrier in read(), and answers no longer those
// that close theirs. (pmodels/mpich#6596 takes out that barrier.) So such a read() lets UCX go on.
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <sys/types.h>

#include <cstddef>

namespace {

// UCX's worker that this thread has asked last; and whose connections it closes.
thread_local void* asked = nullptr;
thread_local void* closing = nullptr;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// UCX's and libc's own, for their callers. The names and parameters are theirs.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

// The result is how much has arrived.
[[gnu::visibility("default")]] unsigned ucp_worker_progress(void* worker) {
  static const auto real = next<unsigned (*)(void*)>("ucp_worker_progress");
  constexpr int kLooks = 16;
  thread_local int inVain = 0;
  asked = worker;
  const unsigned arrived = real(worker);
  inVain = arrived != 0 ? 0 : inVain + 1;
  if (inVain >= kLooks) {
    ::sched_yield();
    inVain = 0;
  }
  return arrived;
}

[[gnu::visibility("default")]] void* ucp_disconnect_nb(void* endpoint) {
  static const auto real = next<void* (*)(void*)>("ucp_disconnect_nb");
  closing = asked;
  return real(endpoint);
}

[[gnu::visibility("default")]] void ucp_worker_destroy(void* worker) {
  static const auto real = next<void (*)(void*)>("ucp_worker_destroy");
  closing = nullptr;
  real(worker);
}

[[gnu::visibility("default")]] ssize_t read(int descriptor, void* bytes, std::size_t count) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  thread_local bool isInside = false;
  if (closing != nullptr && !isInside) {
    isInside = true;  // UCX reads, too
    pollfd there = {descriptor, POLLIN, 0};
    while (::poll(&there, 1, 0) == 0) ucp_worker_progress(closing);
    isInside = false;
  }
  return real(descriptor, bytes, count);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
