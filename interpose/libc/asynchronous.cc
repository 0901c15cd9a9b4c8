// SPDX-License-Identifier: Apache-2.0
//
// POSIX asynchronous I/O (aio_read and its kin) with buffers or control blocks in shared memory:
// these stand in for libc's functions in a program that is linked with the library or preloads it.
// Threads of libc's own make the transfers, with all signals blocked: they cannot open a closed
// block. So libc gets a control block and a buffer of the library's own. What is read is copied to
// the program's buffer before the program is told that the request has ended.
//
// A list's notification (lio_listio with LIO_NOWAIT) comes before that: the bytes are there once
// aio_error or aio_return has been called, which a program has to do in any case.
#undef _FILE_OFFSET_BITS

#include <aio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/os/signal_mask.h"
#include "interpose/base/real.h"
#include "interpose/base/scratch.h"
#include "interpose/base/system_call.h"

namespace gmac::interpose {
namespace {

constinit Real<int(aiocb*)> realRead("aio_read");
constinit Real<int(aiocb*)> realWrite("aio_write");
constinit Real<int(int, aiocb*)> realFsync("aio_fsync");
constinit Real<int(const aiocb*)> realError("aio_error");
constinit Real<ssize_t(aiocb*)> realReturn("aio_return");
constinit Real<int(const aiocb* const*, int, const timespec*)> realSuspend("aio_suspend");
constinit Real<int(int, aiocb*)> realCancel("aio_cancel");
constinit Real<int(int, aiocb* const*, int, sigevent*)> realList("lio_listio");

// aio_error and aio_return may be called in signal handlers.
[[gnu::constructor]] void resolve() {
  resolveAtLoad(realRead, realWrite, realFsync, realError, realReturn, realSuspend, realCancel,
                realList);
}

// What a request does with its buffer.
enum class Transfer { kRead, kWrite, kNone };

// One request that libc has in place of the program's. Shared by the table and by who uses it.
class Request {
 public:
  // False, with errno: no memory, or the program's bytes cannot be read.
  bool prepare(aiocb* given, Transfer transfer) {
    given_ = given;
    own_ = *given;
    reads_ = transfer == Transfer::kRead;
    if (transfer == Transfer::kNone ||
        !coherence::touchesShared(const_cast<void*>(given->aio_buf), given->aio_nbytes)) {
      reads_ = false;
      return true;
    }
    buffer_.reset(new (std::nothrow) std::byte[std::max<std::size_t>(given->aio_nbytes, 1)]);
    if (buffer_ == nullptr) {
      errno = EAGAIN;
      return false;
    }
    target_ = const_cast<void*>(std::exchange(own_.aio_buf, buffer_.get()));
    return transfer == Transfer::kRead || copyFromShared(buffer_.get(), target_, given->aio_nbytes);
  }
  // The program is told when the bytes are there. `self` lives until then.
  void notifyFor(const std::shared_ptr<Request>& self) {
    const int how = own_.aio_sigevent.sigev_notify;
    if (how != SIGEV_SIGNAL && how != SIGEV_THREAD) return;
    notified_ = own_.aio_sigevent;
    notifying_ = self;
    own_.aio_sigevent.sigev_notify = SIGEV_THREAD;
    own_.aio_sigevent.sigev_notify_function = [](sigval value) {
      static_cast<Request*>(value.sival_ptr)->notify();
    };
    if (how == SIGEV_SIGNAL) own_.aio_sigevent.sigev_notify_attributes = nullptr;
    own_.aio_sigevent.sigev_value.sival_ptr = this;
  }
  void forgetNotification() { notifying_.reset(); }
  void release() { given_ = nullptr; }

  aiocb* own() { return &own_; }
  const aiocb* given() const { return given_; }
  int error() {
    const int error = realError(&own_);
    if (error == 0) finish();
    return error;
  }
  ssize_t result() {
    const ssize_t result = realReturn(&own_);
    if (result > 0) finish();
    return result;
  }

 private:
  // The request has ended: the program gets what was read, once.
  void finish() {
    if (!reads_) return;
    const os::SignalsBlocked blocked;
    const std::lock_guard guard(finishing_);
    if (!std::exchange(finished_, true)) {
      // (An access that cannot be served ends the process with a message.)
      (void)copyToShared(target_, buffer_.get(), static_cast<std::size_t>(realReturn(&own_)));
    }
  }
  void notify() {
    const std::shared_ptr<Request> self = std::move(notifying_);
    (void)error();
    if (notified_.sigev_notify == SIGEV_THREAD) {
      notified_.sigev_notify_function(notified_.sigev_value);
      return;
    }
    // It waits for a thread of the program's that takes it, as one of libc's own does: this thread
    // blocks nothing.
    sigset_t all;
    ::sigfillset(&all);
    (void)::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    siginfo_t info = {};
    info.si_signo = notified_.sigev_signo;
    info.si_code = SI_ASYNCIO;
    info.si_pid = ::getpid();
    info.si_uid = ::getuid();
    info.si_value = notified_.sigev_value;
    (void)gmacSystemCall(SYS_rt_sigqueueinfo, info.si_pid, info.si_signo, &info);
  }

  aiocb* given_ = nullptr;
  aiocb own_ = {};
  bool reads_ = false;
  std::unique_ptr<std::byte[]> buffer_;
  void* target_ = nullptr;
  std::mutex finishing_;
  bool finished_ = false;
  sigevent notified_ = {};
  std::shared_ptr<Request> notifying_;
};

// The requests by the program's control blocks, until aio_return. Thread-safe.
class Requests {
 public:
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  std::shared_ptr<Request> find(const aiocb* given) {
    if (given == nullptr || empty()) return nullptr;
    const os::SignalsBlocked blocked;
    const std::lock_guard guard(mutex_);
    const auto at = position(given);
    return at == all_.end() ? nullptr : *at;
  }
  void add(std::shared_ptr<Request> request) {
    const os::SignalsBlocked blocked;
    const std::lock_guard guard(mutex_);
    all_.push_back(std::move(request));
    count_ = all_.size();
  }
  // The program has done with the request. It stays in the table: libc looks at a control block
  // once more after it has told the end, and a signal handler cannot free memory.
  std::shared_ptr<Request> release(const aiocb* given) {
    if (given == nullptr || empty()) return nullptr;
    const os::SignalsBlocked blocked;
    const std::lock_guard guard(mutex_);
    const auto at = position(given);
    if (at == all_.end()) return nullptr;
    (*at)->release();
    return *at;
  }
  // Those that the program has done with.
  std::vector<std::shared_ptr<Request>> takeReleased() {
    std::vector<std::shared_ptr<Request>> taken;
    if (empty()) return taken;
    const os::SignalsBlocked blocked;
    const std::lock_guard guard(mutex_);
    const auto released = std::stable_partition(
        all_.begin(), all_.end(), [](const auto& request) { return request->given() != nullptr; });
    taken.assign(released, all_.end());
    all_.erase(released, all_.end());
    count_ = all_.size();
    return taken;
  }

 private:
  using All = std::vector<std::shared_ptr<Request>>;
  All::iterator position(const aiocb* given) {
    return std::find_if(all_.begin(), all_.end(),
                        [&](const auto& request) { return request->given() == given; });
  }

  std::mutex mutex_;
  All all_;
  std::atomic<std::size_t> count_{0};
};

// Never destroyed: libc's threads go on while the process ends.
Requests& requests() {
  static Requests& all = *new Requests;
  return all;
}

bool isShared(const aiocb* given, Transfer transfer) {
  return given != nullptr && coherence::anythingShared() &&
         (coherence::touchesShared(given, sizeof *given) ||
          (transfer != Transfer::kNone &&
           coherence::touchesShared(const_cast<const void*>(given->aio_buf), given->aio_nbytes)));
}

// Frees what the program has done with, once libc has, too: it holds its lock until then, and this
// wait takes it.
void collect() {
  const auto released = requests().takeReleased();
  if (released.empty()) return;
  const aiocb* const ended = released.front()->own();
  const timespec now = {};
  const int savedErrno = errno;
  (void)realSuspend(&ended, 1, &now);
  errno = savedErrno;
}

// A request in place of the program's, which the table has; NULL, with errno.
std::shared_ptr<Request> makeRequest(aiocb* given, Transfer transfer) {
  collect();
  auto request = std::make_shared<Request>();
  if (!request->prepare(given, transfer)) return nullptr;
  request->notifyFor(request);
  requests().add(request);
  return request;
}

// As libc answers when it has no memory for a request.
template <typename Body>
int orWithoutMemory(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    errno = EAGAIN;
    return -1;
  }
}

void drop(const std::shared_ptr<Request>& request) {
  (void)requests().release(request->given());
  request->forgetNotification();
}

// A request under the same control block has ended, whether aio_return has been called or not.
template <typename Call>
int submit(aiocb* given, Transfer transfer, Call&& call) {
  (void)requests().release(given);
  if (!isShared(given, transfer)) return call(given);
  return uncancelled([&] {
    return orWithoutMemory([&] {
      const std::shared_ptr<Request> request = makeRequest(given, transfer);
      if (request == nullptr) return -1;
      const int result = call(request->own());
      if (result != 0) drop(request);
      return result;
    });
  });
}

int submitList(int mode, aiocb* const* list, int count, sigevent* event) {
  const auto transferOf = [](const aiocb* given) {
    return given->aio_lio_opcode == LIO_READ    ? Transfer::kRead
           : given->aio_lio_opcode == LIO_WRITE ? Transfer::kWrite
                                                : Transfer::kNone;
  };
  if (count <= 0 || !coherence::anythingShared()) return realList(mode, list, count, event);
  return uncancelled([&] {
    return orWithoutMemory([&] {
      std::vector<aiocb*> translated(list, list + count);
      std::vector<std::shared_ptr<Request>> made;
      for (aiocb*& given : translated) {
        if (given == nullptr || given->aio_lio_opcode == LIO_NOP) continue;
        (void)requests().release(given);
        const Transfer transfer = transferOf(given);
        if (!isShared(given, transfer)) continue;
        std::shared_ptr<Request> request = makeRequest(given, transfer);
        if (request == nullptr) {
          std::for_each(made.begin(), made.end(), drop);
          return -1;
        }
        given = request->own();
        made.push_back(std::move(request));
      }
      const int result = realList(mode, translated.data(), count, event);
      if (mode == LIO_WAIT) {
        const int savedErrno = errno;
        for (const auto& request : made) (void)request->error();
        errno = savedErrno;
      }
      return result;
    });
  });
}

int suspend(const aiocb* const* list, int count, const timespec* limit) {
  if (count <= 0 || requests().empty()) return realSuspend(list, count, limit);
  return cancellationPoint([&] {
    std::vector<const aiocb*> translated;
    std::vector<std::shared_ptr<Request>> used;
    const int made = orWithoutMemory([&] {
      translated.assign(list, list + count);
      for (const aiocb*& given : translated) {
        if (std::shared_ptr<Request> request = requests().find(given)) {
          given = request->own();
          used.push_back(std::move(request));
        }
      }
      return 0;
    });
    if (made != 0) return made;
    return cancellably([&] { return realSuspend(translated.data(), count, limit); });
  });
}

int errorOf(const aiocb* given) {
  const auto request = requests().find(given);
  return request == nullptr ? realError(given) : uncancelled([&] { return request->error(); });
}

ssize_t resultOf(aiocb* given) {
  const auto request = requests().release(given);
  return request == nullptr ? realReturn(given) : uncancelled([&] { return request->result(); });
}

int cancel(int descriptor, aiocb* given) {
  const auto request = requests().find(given);
  return realCancel(descriptor, request == nullptr ? given : request->own());
}

}  // namespace

extern "C" {

GMAC_INTERPOSED int aio_read(aiocb* given) noexcept {
  return submit(given, Transfer::kRead, realRead);
}
GMAC_INTERPOSED int aio_write(aiocb* given) noexcept {
  return submit(given, Transfer::kWrite, realWrite);
}
GMAC_INTERPOSED int aio_fsync(int operation, aiocb* given) noexcept {
  return submit(given, Transfer::kNone,
                [&](aiocb* privately) { return realFsync(operation, privately); });
}
GMAC_INTERPOSED int aio_error(const aiocb* given) noexcept { return errorOf(given); }
GMAC_INTERPOSED ssize_t aio_return(aiocb* given) noexcept { return resultOf(given); }
GMAC_INTERPOSED int aio_suspend(const aiocb* const list[], int count, const timespec* limit) {
  return suspend(list, count, limit);
}
GMAC_INTERPOSED int aio_cancel(int descriptor, aiocb* given) noexcept {
  return cancel(descriptor, given);
}
GMAC_INTERPOSED int lio_listio(int mode, aiocb* const list[], int count, sigevent* event) noexcept {
  return submitList(mode, list, count, event);
}

// The same, as on this machine offsets have 64 bits in both.
static_assert(sizeof(aiocb) == sizeof(aiocb64) &&
              offsetof(aiocb, aio_offset) == offsetof(aiocb64, aio_offset));
GMAC_INTERPOSED int aio_read64(aiocb64* given) noexcept {
  return aio_read(reinterpret_cast<aiocb*>(given));
}
GMAC_INTERPOSED int aio_write64(aiocb64* given) noexcept {
  return aio_write(reinterpret_cast<aiocb*>(given));
}
GMAC_INTERPOSED int aio_fsync64(int operation, aiocb64* given) noexcept {
  return aio_fsync(operation, reinterpret_cast<aiocb*>(given));
}
GMAC_INTERPOSED int aio_error64(const aiocb64* given) noexcept {
  return aio_error(reinterpret_cast<const aiocb*>(given));
}
GMAC_INTERPOSED ssize_t aio_return64(aiocb64* given) noexcept {
  return aio_return(reinterpret_cast<aiocb*>(given));
}
GMAC_INTERPOSED int aio_suspend64(const aiocb64* const list[], int count, const timespec* limit) {
  return suspend(reinterpret_cast<const aiocb* const*>(list), count, limit);
}
GMAC_INTERPOSED int aio_cancel64(int descriptor, aiocb64* given) noexcept {
  return aio_cancel(descriptor, reinterpret_cast<aiocb*>(given));
}
GMAC_INTERPOSED int lio_listio64(int mode, aiocb64* const list[], int count,
                                 sigevent* event) noexcept {
  return lio_listio(mode, reinterpret_cast<aiocb* const*>(list), count, event);
}

}  // extern "C"

}  // namespace gmac::interpose
