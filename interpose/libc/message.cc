// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc/message.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gmac/coherence/memory_port.h"

namespace gmac::interpose {
namespace {

// More control data than the kernel accepts for sending or ever returns.
constexpr std::size_t kMostControl = std::size_t{1} << 20;

}  // namespace

// ---- PeerAddress ----

PeerAddress::PeerAddress(void* given, socklen_t room, bool copyIn)
    : given_(given),
      room_(std::min<socklen_t>(room, sizeof own_)),
      shared_(given != nullptr && coherence::touchesShared(given, room_)) {
  if (shared_ && copyIn) std::memcpy(&own_, given_, room_);
}

void PeerAddress::putBack(socklen_t bytes) {
  if (shared_) std::memcpy(given_, &own_, std::min(bytes, room_));
}

// ---- Message ----

bool Message::readableHeader(const msghdr* given) {
  return given != nullptr && readable(given, sizeof *given);
}

std::size_t Message::controlBytes(const msghdr& header) {
  return header.msg_control == nullptr ? 0 : std::min(header.msg_controllen, kMostControl);
}

Message::Message(Direction direction, msghdr* given, int flags)
    : direction_(direction),
      flags_(flags),
      given_(given),
      readable_(readableHeader(given)),
      header_(readable_ ? *given : msghdr{}),
      vector_(header_.msg_iov, header_.msg_iovlen),
      name_(header_.msg_name, header_.msg_namelen, direction == Direction::kWrite),
      controlShared_(coherence::touchesShared(header_.msg_control, controlBytes(header_))),
      ours_(readable_ && header_.msg_iovlen <= IOV_MAX &&
            (vector_.isOurs() || name_.shared() || controlShared_ ||
             coherence::touchesShared(given, sizeof *given))) {}

bool Message::prepare() {
  const bool sends = direction_ == Direction::kWrite;
  header_.msg_name = name_.get();
  header_.msg_iov = const_cast<iovec*>(vector_.parts());
  if (controlShared_ && (!sends || header_.msg_controllen <= kMostControl)) {
    const std::size_t bytes = controlBytes(header_);
    control_.emplace(bytes);
    if (control_->data() == nullptr) {
      errno = ENOBUFS;
      return false;
    }
    // For a receiver too: the padding between two entries comes back unchanged.
    std::memcpy(control_->data(), header_.msg_control, bytes);
    header_.msg_control = control_->data();
    header_.msg_controllen = bytes;
  }
  if (!vector_.isOurs()) return true;
  standIn_.emplace(vector_.vector(), sends && (flags_ & MSG_ZEROCOPY) != 0);
  if (!standIn_->ok()) {
    // The call itself still gives the right result, but a kernel call of the peer would wait for
    // it.
    standIn_.reset();
    hold_.emplace(vector_.vector(), !sends);
    return hold_->ok();
  }
  header_.msg_iov = const_cast<iovec*>(standIn_->vector().parts);
  header_.msg_iovlen = standIn_->vector().count;
  // A stream socket with MSG_TRUNC counts the bytes that it discards and leaves the buffer alone.
  return (!sends && (flags_ & MSG_TRUNC) == 0) || standIn_->copyIn();
}

bool Message::finish(std::size_t count) {
  if (direction_ == Direction::kWrite) return true;
  hold_.reset();
  if (standIn_ && !standIn_->copyOut(count)) return false;
  if (header_.msg_name != nullptr) {
    name_.putBack(header_.msg_namelen);
    given_->msg_namelen = header_.msg_namelen;
  }
  if (control_) std::memcpy(given_->msg_control, control_->data(), header_.msg_controllen);
  given_->msg_controllen = header_.msg_controllen;
  given_->msg_flags = header_.msg_flags;
  return true;
}

}  // namespace gmac::interpose
