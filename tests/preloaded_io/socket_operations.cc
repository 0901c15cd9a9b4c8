// SPDX-License-Identifier: Apache-2.0
//
// recv, send and their longer forms, over sockets with addresses of our own.
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "tests/preloaded_io/operations.h"

extern "C" {
ssize_t __recv_chk(int, void*, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void*, size_t, size_t, int, sockaddr*, socklen_t*);
}

namespace gmac::testing {
namespace {

constexpr std::size_t kMost = 150000;

sockaddr_un nameOfEnd(char end, socklen_t* bytes) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  const std::string text =
      std::string(1, '\0') + "preloaded_io." + std::to_string(::getpid()) + end;
  std::copy(text.begin(), text.end(), name.sun_path);
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return name;
}

// Two ends that are connected, or (datagrams) know each other by name. For the stack.
class Pair {
 public:
  explicit Pair(Random& random) : type_(random.oneIn(3) ? SOCK_STREAM : SOCK_DGRAM) {
    const bool internet = type_ == SOCK_STREAM && random.oneIn(2);
    if (internet) {
      connectInternet();
    } else if (type_ == SOCK_STREAM) {
      if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_) != 0) std::abort();
    } else {
      for (int end = 0; end < 2; ++end) {
        ends_[end] = ::socket(AF_UNIX, SOCK_DGRAM, 0);
        const sockaddr_un name = nameOfEnd(static_cast<char>('0' + end), &nameBytes_);
        if (::bind(ends_[end], reinterpret_cast<const sockaddr*>(&name), nameBytes_) != 0) {
          std::abort();
        }
      }
      const sockaddr_un name = nameOfEnd('1', &nameBytes_);
      if (::connect(ends_[0], reinterpret_cast<const sockaddr*>(&name), nameBytes_) != 0) {
        std::abort();
      }
    }
    for (const int end : ends_) ::fcntl(end, F_SETFL, O_NONBLOCK);
  }
  ~Pair() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  int sender() const { return ends_[0]; }
  int receiver() const { return ends_[1]; }
  bool isDatagram() const { return type_ == SOCK_DGRAM; }

  // A few messages for the receiver.
  void fill(Random& random) const {
    for (std::size_t messages = random.below(5); messages > 0; --messages) {
      std::vector<unsigned char> message(1 + random.size(20000));
      for (std::size_t i = 0; i < message.size(); ++i) message[i] = inputByte(i + messages);
      if (::send(sender(), message.data(), message.size(), 0) < 0) std::abort();
    }
  }

 private:
  void connectInternet() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof name;
    auto* const any = reinterpret_cast<sockaddr*>(&name);
    ends_[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::bind(listener, any, bytes) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, any, &bytes) != 0 || ::connect(ends_[0], any, bytes) != 0) {
      std::abort();
    }
    ends_[1] = ::accept(listener, nullptr, nullptr);
    ::close(listener);
  }

  const int type_;
  int ends_[2] = {-1, -1};
  socklen_t nameBytes_ = 0;
};

int anyReceiveFlags(Random& random) {
  constexpr int kFlags[] = {0, 0, MSG_PEEK, MSG_TRUNC, MSG_DONTWAIT, MSG_WAITALL | MSG_DONTWAIT};
  return kFlags[random.below(std::size(kFlags))];
}

int anySendFlags(Random& random) {
  return MSG_NOSIGNAL | (random.oneIn(3) ? MSG_DONTWAIT : 0) | (random.oneIn(4) ? MSG_MORE : 0);
}

void noteLeft(Outcome& outcome, int descriptor) {
  const std::vector<unsigned char> left = drain(descriptor);
  outcome.rest.insert(outcome.rest.end(), left.begin(), left.end());
}

// The bytes that a non-blocking stream takes do not depend on us; those that it took must come out.
void noteSent(Outcome& outcome, const Pair& pair) { noteLeft(outcome, pair.receiver()); }

template <typename Call>
Outcome receiveOne(Random& random, const Memory& memory, const Call& call) {
  const Pair pair(random);
  pair.fill(random);
  const Span span = anySpan(random, memory, kMost, false);
  const int flags = anyReceiveFlags(random);
  Outcome outcome;
  outcome.make([&] { return call(pair.receiver(), span, flags); });
  outcome.parts = {{span.at, span.bytes}};  // without room for the address, it fails afterwards
  noteLeft(outcome, pair.receiver());
  return outcome;
}

Outcome doRecv(Random random, const Memory& memory) {
  const bool checked = random.oneIn(3);
  return receiveOne(random, memory, [&](int socket, const Span& span, int flags) {
    return checked ? __recv_chk(socket, span.at, span.bytes, span.bytes, flags)
                   : ::recv(socket, span.at, span.bytes, flags);
  });
}

Outcome doRecvfrom(Random random, const Memory& memory) {
  const bool checked = random.oneIn(3);
  Told told(memory);
  const std::array<unsigned char, 200> blank = {};
  auto* const address = reinterpret_cast<sockaddr*>(told.put(random, blank.data(), blank.size()));
  const socklen_t room = static_cast<socklen_t>(random.below(200));
  socklen_t* const addressBytes = random.oneIn(8) ? nullptr : told.put(random, room);
  sockaddr* const given = random.oneIn(8) ? nullptr : address;
  Outcome outcome = receiveOne(random, memory, [&](int socket, const Span& span, int flags) {
    return checked
               ? __recvfrom_chk(socket, span.at, span.bytes, span.bytes, flags, given, addressBytes)
               : ::recvfrom(socket, span.at, span.bytes, flags, given, addressBytes);
  });
  // A room of more than there is stays the kernel's: it says how much there would have been.
  if (addressBytes != nullptr) outcome.note(*addressBytes);
  std::array<unsigned char, 200> seen;
  std::memcpy(seen.data(), address, seen.size());
  outcome.note(seen);
  return outcome;
}

Outcome doSend(Random random, const Memory& memory) {
  const Pair pair(random);
  const Span span = anySpan(random, memory, kMost);
  const int flags = anySendFlags(random);
  Outcome outcome;
  outcome.make([&] { return ::send(pair.sender(), span.at, span.bytes, flags); });
  noteSent(outcome, pair);
  return outcome;
}

Outcome doSendto(Random random, const Memory& memory) {
  const Pair pair(random);
  Told told(memory);
  const Span span = anySpan(random, memory, kMost);
  socklen_t bytes = 0;
  const sockaddr_un name = nameOfEnd('1', &bytes);
  const auto* address = reinterpret_cast<const sockaddr*>(told.put(random, name));
  if (random.oneIn(10)) bytes = 4000;
  if (!pair.isDatagram() || random.oneIn(6)) std::tie(address, bytes) = std::pair(nullptr, 0);
  const int flags = anySendFlags(random);
  Outcome outcome;
  outcome.make([&] { return ::sendto(pair.sender(), span.at, span.bytes, flags, address, bytes); });
  noteSent(outcome, pair);
  return outcome;
}

// ---- Messages ----

constexpr std::size_t kControlRoom = 128;

// The buffers that a message header names, in private memory or in the control area. For the stack.
struct Letter {
  std::vector<iovec> parts;
  msghdr* header = nullptr;
  unsigned char* name = nullptr;
  unsigned char* control = nullptr;

  msghdr make(Random& random, Told& told, const Memory& memory, std::size_t most) {
    parts = anyVector(random, memory, most, false);
    if (parts.size() > 1000) parts.resize(3);
    for (iovec& part : parts) {
      if (part.iov_len > most) part.iov_len = 0;  // the kernel would refuse it
    }
    const std::array<unsigned char, 200> blank = {};
    name = told.put(random, blank.data(), blank.size());
    control = told.put(random, blank.data(), kControlRoom);
    msghdr made = {};
    made.msg_iov = told.put(random, parts);
    made.msg_iovlen = parts.size();
    return made;
  }

  // The call's results besides its bytes. A descriptor that it received is closed; its number may
  // be any, and is not compared.
  void note(Outcome& outcome, msghdr& after) const {
    outcome.note(after.msg_namelen);
    outcome.note(after.msg_controllen);
    outcome.note(after.msg_flags);
    for (cmsghdr* entry = CMSG_FIRSTHDR(&after); entry != nullptr;
         entry = CMSG_NXTHDR(&after, entry)) {
      outcome.note(entry->cmsg_type);
      if (entry->cmsg_type != SCM_RIGHTS) continue;
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(entry), sizeof descriptor);
      outcome.note(::fcntl(descriptor, F_GETFD));
      ::close(descriptor);
      std::memset(CMSG_DATA(entry), 0, sizeof descriptor);
    }
    outcome.rest.insert(outcome.rest.end(), name, name + 200);
    outcome.rest.insert(outcome.rest.end(), control, control + kControlRoom);
  }
};

// A descriptor goes along with a message.
void attachDescriptor(msghdr& header, unsigned char* room, int descriptor) {
  header.msg_control = room;
  header.msg_controllen = CMSG_SPACE(sizeof descriptor);
  cmsghdr* const entry = CMSG_FIRSTHDR(&header);
  entry->cmsg_level = SOL_SOCKET;
  entry->cmsg_type = SCM_RIGHTS;
  entry->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(entry), &descriptor, sizeof descriptor);
}

void sendWithDescriptor(Random& random, const Pair& pair) {
  if (!random.oneIn(2)) return;
  alignas(cmsghdr) unsigned char room[kControlRoom];
  char text[] = "with a descriptor";
  iovec part = {text, sizeof text};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  attachDescriptor(header, room, pair.sender());
  // TCP takes none along, and a full queue nothing at all.
  static_cast<void>(!::sendmsg(pair.sender(), &header, MSG_DONTWAIT));
}

msghdr toReceive(Random& random, Letter& letter, Told& told, const Memory& memory) {
  msghdr header = letter.make(random, told, memory, 20000);
  if (random.oneIn(2)) {
    header.msg_name = letter.name;
    header.msg_namelen = static_cast<socklen_t>(random.below(200));
  }
  if (random.oneIn(2)) {
    header.msg_control = letter.control;
    header.msg_controllen = random.oneIn(4) ? random.below(20) : kControlRoom;
  }
  return header;
}

Outcome doRecvmsg(Random random, const Memory& memory) {
  const Pair pair(random);
  Told told(memory);
  sendWithDescriptor(random, pair);
  pair.fill(random);
  Letter letter;
  msghdr* const header = told.put(random, toReceive(random, letter, told, memory));
  const int flags = anyReceiveFlags(random) | (random.oneIn(2) ? MSG_CMSG_CLOEXEC : 0);
  Outcome outcome;
  outcome.make([&] { return ::recvmsg(pair.receiver(), header, flags); });
  letter.note(outcome, *header);
  noteLeft(outcome, pair.receiver());
  return outcome;
}

msghdr toSend(Random& random, Letter& letter, Told& told, const Memory& memory, const Pair& pair) {
  msghdr header = letter.make(random, told, memory, 20000);
  if (pair.isDatagram() && random.oneIn(2)) {
    const sockaddr_un name = nameOfEnd('1', &header.msg_namelen);
    std::memcpy(letter.name, &name, sizeof name);
    header.msg_name = letter.name;
  }
  if (random.oneIn(2)) attachDescriptor(header, letter.control, pair.receiver());
  return header;
}

// The bytes that arrived, and whether a descriptor came with them.
void noteReceived(Outcome& outcome, const Pair& pair) {
  std::vector<unsigned char> bytes(200000);
  for (int message = 0; message < 64; ++message) {
    alignas(cmsghdr) unsigned char room[kControlRoom];
    iovec part = {bytes.data(), bytes.size()};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = room;
    header.msg_controllen = sizeof room;
    const ssize_t count = ::recvmsg(pair.receiver(), &header, MSG_DONTWAIT);
    if (count < 0) break;
    outcome.note(count);
    outcome.note(header.msg_controllen);
    outcome.rest.insert(outcome.rest.end(), bytes.begin(), bytes.begin() + count);
    const cmsghdr* const entry = CMSG_FIRSTHDR(&header);
    if (entry == nullptr) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(entry), sizeof descriptor);
    ::close(descriptor);
  }
}

Outcome doSendmsg(Random random, const Memory& memory) {
  const Pair pair(random);
  Told told(memory);
  Letter letter;
  const msghdr* const header = told.put(random, toSend(random, letter, told, memory, pair));
  const int flags = anySendFlags(random);
  Outcome outcome;
  outcome.make([&] { return ::sendmsg(pair.sender(), header, flags); });
  noteReceived(outcome, pair);
  return outcome;
}

Outcome doRecvmmsg(Random random, const Memory& memory) {
  const Pair pair(random);
  Told told(memory);
  pair.fill(random);
  std::vector<Letter> letters(random.below(4));
  std::vector<mmsghdr> made;
  for (Letter& letter : letters) made.push_back({toReceive(random, letter, told, memory), 77});
  mmsghdr* const headers = told.put(random, made.data(), made.size());
  const timespec limit = {1, 0};
  timespec* const timeout = random.oneIn(2) ? nullptr : told.put(random, limit);
  const int flags = MSG_DONTWAIT | (random.oneIn(4) ? MSG_PEEK : 0);
  Outcome outcome;
  outcome.make([&] {
    return ::recvmmsg(pair.receiver(), headers, static_cast<unsigned>(letters.size()), flags,
                      timeout);
  });
  for (std::size_t i = 0; i < letters.size(); ++i) {
    outcome.note(headers[i].msg_len);
    letters[i].note(outcome, headers[i].msg_hdr);
  }
  noteLeft(outcome, pair.receiver());
  return outcome;
}

Outcome doSendmmsg(Random random, const Memory& memory) {
  const Pair pair(random);
  Told told(memory);
  std::vector<Letter> letters(random.below(4));
  std::vector<mmsghdr> made;
  for (Letter& letter : letters) {
    made.push_back({toSend(random, letter, told, memory, pair), 77});
  }
  mmsghdr* const headers = told.put(random, made.data(), made.size());
  Outcome outcome;
  outcome.make([&] {
    return ::sendmmsg(pair.sender(), headers, static_cast<unsigned>(letters.size()),
                      MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  for (std::size_t i = 0; i < letters.size(); ++i) outcome.note(headers[i].msg_len);
  noteReceived(outcome, pair);
  return outcome;
}

}  // namespace

const std::vector<Operation>& socketOperations() {
  static const std::vector<Operation> all = {{"recv", doRecv},         {"recvfrom", doRecvfrom},
                                             {"send", doSend},         {"sendto", doSendto},
                                             {"recvmsg", doRecvmsg},   {"sendmsg", doSendmsg},
                                             {"recvmmsg", doRecvmmsg}, {"sendmmsg", doSendmmsg}};
  return all;
}

}  // namespace gmac::testing
