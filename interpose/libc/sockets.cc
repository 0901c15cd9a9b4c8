// SPDX-License-Identifier: Apache-2.0
//
// recv, send and their longer forms on shared memory: these stand in for libc's functions in a
// program that is linked with the library or preloads it. A wait on a socket may be a wait for any
// thread, so all of them use private memory; one call stays one call. Calls that involve no shared
// memory go to the real function at once.

// The fortified inline forms of the functions that are defined here are not wanted.
#undef _FORTIFY_SOURCE

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gmac/base/cancellation.h"
#include "gmac/coherence/memory_port.h"
#include "gmac/observe/stats.h"
#include "gmac/observe/trace.h"
#include "interpose/base/real.h"
#include "interpose/libc/arguments.h"
#include "interpose/libc/message.h"
#include "interpose/libc/stand_in.h"
#include "interpose/libc/transfer.h"

// libc's headers declare that these functions only write to their buffers, so asking whether a
// buffer is shared looks like reading uninitialised memory.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

extern "C" [[noreturn]] void __chk_fail();

namespace gmac::interpose {
namespace {

constinit Real<ssize_t(int, void*, size_t, int)> realRecv("recv");
constinit Real<ssize_t(int, const void*, size_t, int)> realSend("send");
constinit Real<ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*)> realRecvfrom("recvfrom");
constinit Real<ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t)> realSendto(
    "sendto");
constinit Real<ssize_t(int, msghdr*, int)> realRecvmsg("recvmsg");
constinit Real<ssize_t(int, const msghdr*, int)> realSendmsg("sendmsg");
constinit Real<int(int, mmsghdr*, unsigned, int, timespec*)> realRecvmmsg("recvmmsg");
constinit Real<int(int, mmsghdr*, unsigned, int)> realSendmmsg("sendmmsg");

[[gnu::constructor]] void resolveSockets() {
  resolveAtLoad(realRecv, realSend, realRecvfrom, realSendto, realRecvmsg, realSendmsg,
                realRecvmmsg, realSendmmsg);
}

// Records a call in statistics and trace, and restores errno after a successful one: it keeps the
// value from before the runtime's work. For the stack.
class SocketCall {
 public:
  SocketCall(Direction direction, const char* name, std::size_t bytes)
      : timed_(direction == Direction::kRead ? Phase::kIoRead : Phase::kIoWrite),
        span_("io", name, {"bytes", bytes}) {}
  SocketCall(const SocketCall&) = delete;
  SocketCall& operator=(const SocketCall&) = delete;

  ssize_t ended(ssize_t count) {
    if (count >= 0) errno = errnoBefore_;
    span_.setSecond({"count", static_cast<std::uint64_t>(std::max<ssize_t>(count, 0))});
    return count;
  }

 private:
  const int errnoBefore_ = errno;
  Timed timed_;
  TraceSpan span_;
};

// ---- One buffer ----

ssize_t recvfromShared(int socket, void* buffer, std::size_t bytes, int flags, sockaddr* address,
                       socklen_t* addressBytes) {
  SocketCall recorded(Direction::kRead, "recv", bytes);
  Argument<socklen_t> room(addressBytes);
  // If the length cannot be read, the kernel does not touch the address.
  const bool roomKnown = address != nullptr && addressBytes != nullptr &&
                         (room.shared() || readable(addressBytes, sizeof *addressBytes));
  PeerAddress peer(address, roomKnown ? *room.get() : 0, false);
  const iovec whole = {buffer, bytes};
  const ssize_t count = transferOnPrivateMemory(
      Direction::kRead, {&whole, 1}, {.prefilled = (flags & MSG_TRUNC) != 0},
      [&](const Vector& privately) -> ssize_t {
        if (privately.count == 1) {
          return realRecvfrom(socket, privately.parts->iov_base, privately.parts->iov_len, flags,
                              static_cast<sockaddr*>(peer.get()), room.get());
        }
        msghdr message = {};
        message.msg_iov = const_cast<iovec*>(privately.parts);
        message.msg_iovlen = privately.count;
        if (roomKnown) {
          message.msg_name = peer.get();
          message.msg_namelen = *room.get();
        }
        const ssize_t received = realRecvmsg(socket, &message, flags);
        if (received >= 0 && roomKnown) *room.get() = message.msg_namelen;
        return received;
      });
  if (count >= 0 && roomKnown) {
    peer.putBack(*room.get());
    room.putBack();
  }
  return recorded.ended(count);
}

ssize_t sendtoShared(int socket, const void* buffer, std::size_t bytes, int flags,
                     const sockaddr* address, socklen_t addressBytes) {
  SocketCall recorded(Direction::kWrite, "send", bytes);
  PeerAddress peer(const_cast<sockaddr*>(address), addressBytes, true);
  const iovec whole = {const_cast<void*>(buffer), bytes};
  return recorded.ended(transferOnPrivateMemory(
      Direction::kWrite, {&whole, 1}, {.kernelKeeps = (flags & MSG_ZEROCOPY) != 0},
      [&](const Vector& privately) -> ssize_t {
        if (privately.count == 1) {
          return realSendto(socket, privately.parts->iov_base, privately.parts->iov_len, flags,
                            static_cast<const sockaddr*>(peer.get()), addressBytes);
        }
        msghdr message = {};
        message.msg_iov = const_cast<iovec*>(privately.parts);
        message.msg_iovlen = privately.count;
        message.msg_name = peer.get();
        message.msg_namelen = address == nullptr ? 0 : addressBytes;
        return realSendmsg(socket, &message, flags);
      }));
}

// Whether a small argument is shared.
bool argumentIsShared(const void* address, std::size_t bytes) {
  return address != nullptr && coherence::touchesShared(address, bytes);
}

// ---- Messages ----

// The bytes that a message asks for, for the trace.
std::size_t wantedBytes(const msghdr& header) {
  return Vector{header.msg_iov, header.msg_iovlen}.bytes();
}

// All messages of one sendmmsg or recvmmsg, with private memory in place of shared memory. For the
// stack; one thread's.
class Messages {
 public:
  Messages(Direction direction, mmsghdr* given, unsigned count, int flags)
      : direction_(direction),
        given_(given),
        wanted_(usable(given, std::min<std::size_t>(count, UIO_MAXIOV))),
        scratch_(wanted_ * (sizeof(Message) + sizeof(mmsghdr))) {
    if (wanted_ == 0 || scratch_.data() == nullptr) return;
    messages_ = reinterpret_cast<Message*>(scratch_.data());
    headers_ = reinterpret_cast<mmsghdr*>(messages_ + wanted_);
    ours_ = coherence::touchesShared(given, wanted_ * sizeof *given);
    for (; count_ < wanted_; ++count_) {
      const Message* const message =
          std::construct_at(messages_ + count_, direction, &given[count_].msg_hdr, flags);
      ours_ = ours_ || message->isOurs();
    }
  }
  ~Messages() {
    while (count_ > 0) std::destroy_at(messages_ + --count_);
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  bool isOurs() const { return ours_; }
  unsigned count() const { return static_cast<unsigned>(count_); }
  mmsghdr* headers() const { return headers_; }

  bool prepare() {
    for (std::size_t i = 0; i < count_; ++i) {
      if (messages_[i].isOurs() && !messages_[i].prepare()) return false;
      headers_[i] = {messages_[i].isOurs() ? *messages_[i].header() : given_[i].msg_hdr,
                     given_[i].msg_len};
    }
    return true;
  }

  // Finishes the first `done` messages, which the call has transferred.
  bool finish(std::size_t done) {
    for (std::size_t i = 0; i < done; ++i) {
      if (messages_[i].isOurs()) {
        *messages_[i].header() = headers_[i].msg_hdr;
        if (!messages_[i].finish(headers_[i].msg_len)) return false;
      } else if (direction_ == Direction::kRead) {
        given_[i].msg_hdr = headers_[i].msg_hdr;
      }
      given_[i].msg_len = headers_[i].msg_len;
    }
    return true;
  }

 private:
  static std::size_t usable(const mmsghdr* given, std::size_t count) {
    return given != nullptr && readable(given, count * sizeof *given) ? count : 0;
  }

  const Direction direction_;
  mmsghdr* const given_;
  const std::size_t wanted_;
  Scratch scratch_;
  Message* messages_ = nullptr;
  mmsghdr* headers_ = nullptr;
  std::size_t count_ = 0;
  bool ours_ = false;
};

}  // namespace
}  // namespace gmac::interpose

// ---- libc's names ----

namespace io = gmac::interpose;
using io::Direction;

extern "C" {

GMAC_INTERPOSED ssize_t recv(int socket, void* buffer, size_t bytes, int flags) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realRecv(socket, buffer, bytes, flags);
  return gmac::cancellationPoint(
      [&] { return io::recvfromShared(socket, buffer, bytes, flags, nullptr, nullptr); });
}

GMAC_INTERPOSED ssize_t send(int socket, const void* buffer, size_t bytes, int flags) {
  if (!io::isOurs(buffer, bytes)) [[likely]]
    return io::realSend(socket, buffer, bytes, flags);
  return gmac::cancellationPoint(
      [&] { return io::sendtoShared(socket, buffer, bytes, flags, nullptr, 0); });
}

GMAC_INTERPOSED ssize_t recvfrom(int socket, void* buffer, size_t bytes, int flags,
                                 sockaddr* address, socklen_t* addressBytes) {
  if (!io::isOurs(buffer, bytes) && !io::argumentIsShared(address, sizeof(sockaddr_storage)) &&
      !io::argumentIsShared(addressBytes, sizeof *addressBytes)) [[likely]] {
    return io::realRecvfrom(socket, buffer, bytes, flags, address, addressBytes);
  }
  return gmac::cancellationPoint(
      [&] { return io::recvfromShared(socket, buffer, bytes, flags, address, addressBytes); });
}

GMAC_INTERPOSED ssize_t sendto(int socket, const void* buffer, size_t bytes, int flags,
                               const sockaddr* address, socklen_t addressBytes) {
  if (!io::isOurs(buffer, bytes) && !io::argumentIsShared(address, sizeof(sockaddr_storage)))
      [[likely]] {
    return io::realSendto(socket, buffer, bytes, flags, address, addressBytes);
  }
  return gmac::cancellationPoint(
      [&] { return io::sendtoShared(socket, buffer, bytes, flags, address, addressBytes); });
}

GMAC_INTERPOSED ssize_t recvmsg(int socket, msghdr* header, int flags) {
  if (!gmac::coherence::anythingShared()) [[likely]]
    return io::realRecvmsg(socket, header, flags);
  io::Message message(Direction::kRead, header, flags);
  if (!message.isOurs()) return io::realRecvmsg(socket, header, flags);
  return gmac::cancellationPoint([&]() -> ssize_t {
    io::SocketCall recorded(Direction::kRead, "recvmsg", io::wantedBytes(*message.header()));
    if (!message.prepare()) return recorded.ended(-1);
    const ssize_t count =
        gmac::cancellably([&] { return io::realRecvmsg(socket, message.header(), flags); });
    if (count >= 0 && !message.finish(static_cast<std::size_t>(count))) return recorded.ended(-1);
    return recorded.ended(count);
  });
}

GMAC_INTERPOSED ssize_t sendmsg(int socket, const msghdr* header, int flags) {
  if (!gmac::coherence::anythingShared()) [[likely]]
    return io::realSendmsg(socket, header, flags);
  io::Message message(Direction::kWrite, const_cast<msghdr*>(header), flags);
  if (!message.isOurs()) return io::realSendmsg(socket, header, flags);
  return gmac::cancellationPoint([&]() -> ssize_t {
    io::SocketCall recorded(Direction::kWrite, "sendmsg", io::wantedBytes(*message.header()));
    if (!message.prepare()) return recorded.ended(-1);
    return recorded.ended(
        gmac::cancellably([&] { return io::realSendmsg(socket, message.header(), flags); }));
  });
}

GMAC_INTERPOSED int recvmmsg(int socket, mmsghdr* headers, unsigned count, int flags,
                             timespec* timeout) {
  if (!gmac::coherence::anythingShared()) [[likely]]
    return io::realRecvmmsg(socket, headers, count, flags, timeout);
  io::Messages messages(Direction::kRead, headers, count, flags);
  io::Argument<timespec> limit(timeout);
  if (!messages.isOurs()) {
    const int done = io::realRecvmmsg(socket, headers, count, flags, limit.get());
    limit.putBack();
    return done;
  }
  return gmac::cancellationPoint([&] {
    io::SocketCall recorded(Direction::kRead, "recvmmsg", count);
    if (!messages.prepare()) return -1;
    const int done = gmac::cancellably([&] {
      return io::realRecvmmsg(socket, messages.headers(), messages.count(), flags, limit.get());
    });
    if (done >= 0) {
      limit.putBack();
      if (!messages.finish(static_cast<std::size_t>(done))) return -1;
    }
    return static_cast<int>(recorded.ended(done));
  });
}

GMAC_INTERPOSED int sendmmsg(int socket, mmsghdr* headers, unsigned count, int flags) {
  if (!gmac::coherence::anythingShared()) [[likely]]
    return io::realSendmmsg(socket, headers, count, flags);
  io::Messages messages(Direction::kWrite, headers, count, flags);
  if (!messages.isOurs()) return io::realSendmmsg(socket, headers, count, flags);
  return gmac::cancellationPoint([&] {
    io::SocketCall recorded(Direction::kWrite, "sendmmsg", count);
    if (!messages.prepare()) return -1;
    const int done = gmac::cancellably(
        [&] { return io::realSendmmsg(socket, messages.headers(), messages.count(), flags); });
    if (done >= 0 && !messages.finish(static_cast<std::size_t>(done))) return -1;
    return static_cast<int>(recorded.ended(done));
  });
}

// The forms that a compiler calls instead where it knows the buffer's size (_FORTIFY_SOURCE).

GMAC_INTERPOSED ssize_t __recv_chk(int socket, void* buffer, size_t bytes, size_t room, int flags) {
  if (bytes > room) __chk_fail();
  return recv(socket, buffer, bytes, flags);
}

GMAC_INTERPOSED ssize_t __recvfrom_chk(int socket, void* buffer, size_t bytes, size_t room,
                                       int flags, sockaddr* address, socklen_t* addressBytes) {
  if (bytes > room) __chk_fail();
  return recvfrom(socket, buffer, bytes, flags, address, addressBytes);
}

}  // extern "C"
