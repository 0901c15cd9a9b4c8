// SPDX-License-Identifier: Apache-2.0
#include "exchange/handshake.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "gmac/base/log.h"

namespace gmac::exchange {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint64_t kMagic = 0x31676e6863786567;
constexpr std::size_t kMaxKeyBytes = 1024;
// Descriptors that a process sends: its memory file, and an end of the channel.
constexpr std::size_t kPassed = 2;
// How often what the kernel has refused for want of room is tried again.
constexpr milliseconds kRetry{1};

// FNV-1a, so that a key of any length fits into a name. The whole key is compared later.
std::uint64_t hashOf(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  }
  return hash;
}

struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

// No byte of it is in a file system: the first is zero.
Name nameOf(const Job& job, int rank) {
  Name name;
  name.address.sun_family = AF_UNIX;
  const std::string text =
      fmt::format("gmac-exchange/{}/{:016x}/{}", ::geteuid(), hashOf(job.key), rank);
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());
  name.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

int newSocket() { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

const sockaddr* addressOf(const Name& name) {
  return reinterpret_cast<const sockaddr*>(&name.address);
}

// Who is at the other end, as the kernel noted when that end was made.
std::optional<ucred> peerOf(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return std::nullopt;
  }
  return peer;
}

// Whether a call may succeed when others have gone on: it wants room in a queue, or descriptors.
bool passes(int error) {
  return error == EAGAIN || error == EINTR || error == ETOOMANYREFS || error == EMFILE ||
         error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

// A process introduces itself; its key follows.
struct Handshake::Hello {
  std::uint64_t magic;
  std::int32_t rank;
  std::int32_t size;
  Nonce nonce;
  std::uint64_t payloadBytes;
  std::uint64_t start;
  std::uint64_t nonceAddress;
  std::int32_t process;
  std::uint32_t keyBytes;
};

struct Handshake::Rank {
  enum class Way {
    kNone,     // not connected yet
    kOffered,  // what the other needs has been sent
    kAbsent,   // it has not opened yet, or there is none
    kGone      // not to be had, for good
  };
  Way way = Way::kNone;
  bool called = false;
  bool late = false;
  Descriptor socket;      // to it, kOffered
  Descriptor guest;       // from it, once heard; closed when this process has decided
  Descriptor channel;     // this process's end, if it has the lower rank
  Descriptor channelEnd;  // the other's, until it is sent
  std::optional<Met> met;
  bool taken = false;  // its offer, by this process
};

// A connection from a process that has not said yet who it is.
struct Handshake::Guest {
  Descriptor socket;
  bool done = false;
};

Result<Listener> Listener::open(const Job& job) {
  if (job.key.empty() || job.key.size() > kMaxKeyBytes || job.rank < 0 || job.rank >= job.size) {
    return fail(adsmErrorInvalidValue,
                "exchange: rank {} of {} in a job whose key has {} bytes; allowed are 1 to {}",
                job.rank, job.size, job.key.size(), kMaxKeyBytes);
  }
  Listener listener;
  listener.socket_ = Descriptor(newSocket());
  if (!listener.socket_) {
    return fail(adsmErrorSystem, "exchange: socket: {}", std::strerror(errno));
  }
  const Name name = nameOf(job, job.rank);
  if (::bind(listener.get(), addressOf(name), name.bytes) != 0) {
    return fail(adsmErrorSystem, "exchange: the socket '@{}': {}", name.address.sun_path + 1,
                errno == EADDRINUSE ? "another process has that name" : std::strerror(errno));
  }
  // The kernel has a limit of its own (net.core.somaxconn); who finds the queue full tries again.
  if (::listen(listener.get(), 4096) != 0) {
    return fail(adsmErrorSystem, "exchange: listen: {}", std::strerror(errno));
  }
  return listener;
}

Handshake::Handshake(const Job& job, Listener listener, const SharedFile& own, const Nonce& nonce)
    : job_(job),
      listener_(std::move(listener)),
      own_(own),
      nonce_(nonce),
      start_(startOfProcess(::getpid()).value_or(0)) {
  ranks_.resize(static_cast<std::size_t>(job.size));
  ranks_[static_cast<std::size_t>(job.rank)].way = Rank::Way::kGone;
}

Handshake::~Handshake() = default;

// Sends this process's file to `rank`, which need not have accepted yet.
void Handshake::connect(int rank) {
  Rank& other = ranks_[static_cast<std::size_t>(rank)];
  if (!other.socket) {
    const Name name = nameOf(job_, rank);
    Descriptor socket(newSocket());
    if (!socket || ::connect(socket.get(), addressOf(name), name.bytes) != 0) {
      if (errno == ECONNREFUSED && !other.called) {
        other.way = Rank::Way::kAbsent;
      } else if (passes(errno)) {
        again_ = true;
      } else {
        giveUp(rank);
      }
      return;
    }
    const std::optional<ucred> peer = peerOf(socket.get());
    if (!peer.has_value() || peer->uid != ::geteuid()) {
      log(LogLevel::kError, "exchange: the socket of rank {} is {}; it is not used", rank,
          peer.has_value() ? "another user's" : "nobody's that the kernel names");
      giveUp(rank);
      return;
    }
    other.socket = std::move(socket);
  }
  if (job_.rank < rank && !other.channel) {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0) {
      other.channel = Descriptor(ends[0]);
      other.channelEnd = Descriptor(ends[1]);
    }
    if (!other.channel || !other.channelEnd) {
      other.channel.reset();
      if (passes(errno)) {
        again_ = true;
      } else {
        giveUp(rank);
      }
      return;
    }
  }
  Hello hello{.magic = kMagic,
              .rank = job_.rank,
              .size = job_.size,
              .nonce = nonce_,
              .payloadBytes = own_.payloadBytes(),
              .start = start_,
              .nonceAddress = reinterpret_cast<std::uintptr_t>(&nonce_),
              .process = ::getpid(),
              .keyBytes = static_cast<std::uint32_t>(job_.key.size())};
  static_assert(std::has_unique_object_representations_v<Hello>);
  std::array<iovec, 2> parts{iovec{&hello, sizeof hello},
                             iovec{const_cast<char*>(job_.key.data()), job_.key.size()}};
  std::array<int, kPassed> files{own_.descriptor().get(), other.channelEnd.get()};
  const std::size_t fileBytes = sizeof(int) * (other.channelEnd ? 2 : 1);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof files)> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fileBytes);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fileBytes);
  std::memcpy(CMSG_DATA(header), files.data(), fileBytes);
  if (own_.descriptor().ours() && ::sendmsg(other.socket.get(), &message, MSG_NOSIGNAL) >= 0) {
    other.way = Rank::Way::kOffered;
    other.channelEnd.reset();
  } else if (passes(errno)) {
    again_ = true;
  } else {
    giveUp(rank);
  }
}

void Handshake::accept() {
  while (true) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) {
        continue;
      }
      again_ = again_ || (errno != EAGAIN && passes(errno));
      return;
    }
    const std::optional<ucred> peer = peerOf(socket.get());
    if (peer.has_value() && peer->uid == ::geteuid()) {
      guests_.push_back({std::move(socket)});
    }
  }
}

void Handshake::hear(Guest& guest) {
  struct {
    Hello hello;
    std::array<char, kMaxKeyBytes> key;
  } text;
  iovec part{&text, sizeof text};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kPassed)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = ::recvmsg(guest.socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  guest.done = true;
  std::array<Descriptor, kPassed> files;
  for (cmsghdr* header = received < 0 ? nullptr : CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t index = 0; index < count; ++index) {
        int passed = -1;
        std::memcpy(&passed, CMSG_DATA(header) + index * sizeof passed, sizeof passed);
        Descriptor descriptor(passed);
        if (index < files.size()) {
          files[index] = std::move(descriptor);
        }
      }
    }
  }
  const Hello& hello = text.hello;
  if (received < static_cast<ssize_t>(sizeof hello) || hello.magic != kMagic || !files[0] ||
      received != static_cast<ssize_t>(sizeof hello + hello.keyBytes) ||
      std::string_view(text.key.data(), hello.keyBytes) != job_.key || hello.size != job_.size ||
      hello.rank < 0 || hello.rank >= job_.size || hello.rank == job_.rank ||
      (hello.rank < job_.rank && !files[1])) {
    log(LogLevel::kInfo, "exchange: a process that is not of this job has called; it is ignored");
    return;
  }
  receive(guest, hello, std::move(files[0]), std::move(files[1]));
}

// A process of this job, as it says.
void Handshake::receive(Guest& guest, const Hello& hello, Descriptor file, Descriptor channel) {
  Rank& other = ranks_[static_cast<std::size_t>(hello.rank)];
  const std::optional<ucred> peer = peerOf(guest.socket.get());
  const pid_t process = peer.has_value() ? peer->pid : 0;
  const std::uint64_t start = process > 0 ? startOfProcess(process).value_or(0) : 0;
  if (process > 0 && start == 0 && hello.start != 0) {
    giveUp(hello.rank);  // it has ended since
    return;
  }
  // (In another namespace a process has another number.)
  if (other.met.has_value() || (process == hello.process && start != hello.start)) {
    log(LogLevel::kInfo, "exchange: process {} says that it is rank {}, and is not; it is ignored",
        process, hello.rank);
    return;
  }
  Result<SharedFile> shared = SharedFile::open(file.get(), job_.size, hello.payloadBytes);
  if (!shared.ok()) {
    log(LogLevel::kError, "exchange: rank {} is not reached: {}", hello.rank, lastErrorText());
    giveUp(hello.rank);
    return;
  }
  other.met =
      Met{std::move(*shared), hello.nonce, process, start, hello.nonceAddress, std::move(channel)};
  other.guest = std::move(guest.socket);
  other.called = true;
  if (other.way == Rank::Way::kAbsent) {
    other.way = Rank::Way::kNone;  // it has opened after this process looked for it
  }
}

// Takes that rank's offer, once the rank has this process's.
void Handshake::takeOffer(int rank) {
  Rank& other = ranks_[static_cast<std::size_t>(rank)];
  if (other.taken || !other.met.has_value() || other.way != Rank::Way::kOffered) {
    return;
  }
  Offer expected = Offer::kMade;
  if (other.met->file.offer(job_.rank).compare_exchange_strong(expected, Offer::kTaken,
                                                               std::memory_order_acq_rel)) {
    other.taken = true;
    const char answer = 1;  // wakes it; the word is what counts
    (void)::send(other.guest.get(), &answer, sizeof answer, MSG_NOSIGNAL);
  } else {
    giveUp(rank);
  }
}

void Handshake::giveUp(int rank) {
  ranks_[static_cast<std::size_t>(rank)].way = Rank::Way::kGone;
  withdraw(rank);
}

void Handshake::withdraw(int rank) {
  Rank& other = ranks_[static_cast<std::size_t>(rank)];
  Offer expected = Offer::kMade;
  (void)own_.offer(rank).compare_exchange_strong(expected, Offer::kWithdrawn,
                                                 std::memory_order_acq_rel);
  other.socket.reset();
  other.guest.reset();
}

bool Handshake::decided(int rank) const {
  const Rank& other = ranks_[static_cast<std::size_t>(rank)];
  if (other.way != Rank::Way::kOffered) {
    return other.way != Rank::Way::kNone;
  }
  const Offer offer = own_.offer(rank).load(std::memory_order_acquire);
  return offer == Offer::kWithdrawn || (offer == Offer::kTaken && other.taken);
}

// Waits until something can have changed, and serves what has arrived.
void Handshake::wait(milliseconds most) {
  std::vector<pollfd> watched{{listener_.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) {
    watched.push_back({guest.socket.get(), POLLIN, 0});
  }
  std::vector<int> waiting;
  for (int rank = 0; rank < job_.size; ++rank) {
    if (ranks_[static_cast<std::size_t>(rank)].socket) {
      waiting.push_back(rank);
      watched.push_back({ranks_[static_cast<std::size_t>(rank)].socket.get(), POLLIN, 0});
    }
  }
  const milliseconds time = again_ ? std::min(most, kRetry) : most;
  again_ = false;
  if (::poll(watched.data(), watched.size(), static_cast<int>(time.count())) <= 0) {
    return;
  }
  std::size_t next = 1 + guests_.size();
  for (const int rank : waiting) {
    if (watched[next++].revents == 0) {
      continue;
    }
    char answer = 0;
    const ssize_t got = ::recv(ranks_[static_cast<std::size_t>(rank)].socket.get(), &answer,
                               sizeof answer, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
      // Its end is closed: it has decided, or has ended. It will not take the offer any more, and
      // what it has offered itself is taken already, or withdrawn.
      giveUp(rank);
    }
  }
  accept();
  for (Guest& guest : guests_) {
    hear(guest);
  }
  std::erase_if(guests_, [](const Guest& guest) { return guest.done; });
}

void Handshake::run(milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  while (true) {
    bool done = true;
    for (int rank = 0; rank < job_.size; ++rank) {
      if (ranks_[static_cast<std::size_t>(rank)].way == Rank::Way::kNone) {
        connect(rank);
      }
      takeOffer(rank);
      if (!decided(rank)) {
        done = false;
      } else if (ranks_[static_cast<std::size_t>(rank)].way != Rank::Way::kAbsent) {
        withdraw(rank);  // closes the sockets: the other sees that this one has decided
      }
    }
    const Clock::time_point now = Clock::now();
    if (done || now >= end) {
      break;
    }
    wait(std::chrono::duration_cast<milliseconds>(end - now) + milliseconds(1));
  }
  for (int rank = 0; rank < job_.size; ++rank) {
    if (!decided(rank)) {
      ranks_[static_cast<std::size_t>(rank)].late = true;
    }
    withdraw(rank);
  }
  guests_.clear();
  listener_ = Listener();
}

std::optional<Met> Handshake::take(int rank) {
  Rank& other = ranks_[static_cast<std::size_t>(rank)];
  if (other.taken && own_.offer(rank).load(std::memory_order_acquire) == Offer::kTaken) {
    if (other.channel) {
      other.met->channel = std::move(other.channel);
    }
    return std::exchange(other.met, std::nullopt);
  }
  if (other.late) {
    log(LogLevel::kError,
        "exchange: rank {} is on this host and has not answered in time: payloads to and from it "
        "take the slower way",
        rank);
  }
  return std::nullopt;
}

}  // namespace gmac::exchange
