// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_INTERPOSE_LIBC_MESSAGE_H_
#define GMAC_INTERPOSE_LIBC_MESSAGE_H_

#include <sys/socket.h>

#include <optional>

#include "interpose/libc/arguments.h"
#include "interpose/libc/stand_in.h"
#include "interpose/libc/transfer.h"

namespace gmac::interpose {

// A peer's address that a call reads or writes. The kernel's own form never has more bytes than
// sockaddr_storage, whatever length the program gives. For the stack; one thread's.
class PeerAddress {
 public:
  // `room` bytes at `given`; no byte after them is read or written. `copyIn`: the kernel reads the
  // address.
  PeerAddress(void* given, socklen_t room, bool copyIn);
  PeerAddress(const PeerAddress&) = delete;
  PeerAddress& operator=(const PeerAddress&) = delete;

  bool shared() const { return shared_; }
  void* get() { return shared_ ? &own_ : given_; }
  // Stores an address of `bytes` bytes, cut to `room`, with ordinary stores.
  void putBack(socklen_t bytes);

 private:
  void* given_;
  socklen_t room_;
  bool shared_;
  sockaddr_storage own_;
};

// One message of sendmsg, recvmsg and their plural forms, with private memory in place of
// everything in it that is shared: the header, the vector's table and bytes, the address, the
// control data. For the stack, or memory that needs no more; one thread's.
class Message {
 public:
  // `flags` are the call's.
  Message(Direction direction, msghdr* given, int flags);
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // Whether something is shared and the kernel would accept the message. One that it would refuse
  // goes to the real function, which knows the error.
  bool isOurs() const { return ours_; }
  // Replaces shared memory by private memory. False, with errno, when that fails.
  bool prepare();
  // The header for the kernel, once prepared.
  msghdr* header() { return &header_; }
  // Copies back the results of a call that counted `count` bytes. False, with errno, when the
  // shared bytes cannot be opened. Not needed after a call that failed.
  bool finish(std::size_t count);

 private:
  static bool readableHeader(const msghdr* given);
  static std::size_t controlBytes(const msghdr& header);

  const Direction direction_;
  const int flags_;
  msghdr* const given_;
  const bool readable_;
  msghdr header_;
  CallersVector vector_;
  PeerAddress name_;
  const bool controlShared_;
  bool ours_;
  std::optional<StandIn> standIn_;
  std::optional<VectorHold> hold_;  // where there is no stand-in
  std::optional<Scratch> control_;
};

}  // namespace gmac::interpose

#endif  // GMAC_INTERPOSE_LIBC_MESSAGE_H_
