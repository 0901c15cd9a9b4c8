// SPDX-License-Identifier: Apache-2.0
#include "gmac/accel/host/messages.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "gmac/base/own_system_call.h"

namespace gmac::accel::host {

namespace {

// sendmsg and recvmsg are system calls of our own: interpose/ stands in for the functions, with
// more stack than the fault path has.

bool send(int socket, std::span<iovec> parts, int fd) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do {
    sent = ownSystemCall(SYS_sendmsg, socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return sent == static_cast<ssize_t>(bytes);
}

iovec partOf(const void* data, std::size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace

bool sendMessage(int socket, const void* data, std::size_t bytes, int fd) {
  std::array parts{partOf(data, bytes)};
  return send(socket, parts, fd);
}

bool sendRequest(int socket, const Request& request, std::string_view module, std::string_view path,
                 int fd) {
  std::array parts{partOf(&request, sizeof request), partOf(module.data(), module.size()),
                   partOf(path.data(), path.size())};
  return send(socket, parts, fd);
}

ssize_t receiveMessage(int socket, void* data, std::size_t bytes, Descriptor* fd) {
  iovec part = {data, bytes};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received = 0;
  do {
    received = ownSystemCall(SYS_recvmsg, socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) {
    return received;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      int passed = -1;
      std::memcpy(&passed, CMSG_DATA(header), sizeof passed);
      *fd = Descriptor(passed);
    }
  }
  return received;
}

}  // namespace gmac::accel::host
