// SPDX-License-Identifier: Apache-2.0
//
// The application's requests to the device process, through their socket: memory, pins and code.
// One request, one reply.
#ifndef GMAC_ACCEL_HOST_MESSAGES_H_
#define GMAC_ACCEL_HOST_MESSAGES_H_

#include <sys/types.h>

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "gmac/accel/host/control_block.h"
#include "gmac/base/descriptor.h"

namespace gmac::accel::host {

enum class RequestKind : std::uint32_t { kAllocate, kFree, kPin, kUnpin, kResolve };

// The kind of memory that is mapped at the accelerator's addresses.
enum class Backing : std::uint32_t {
  kAnonymous,
  kFile,     // pages of a memory file, whose descriptor comes with the request
  kReadOnly  // the same, of another process
};

struct Request {
  RequestKind kind;
  std::uint32_t file;           // pin, unpin: the application's number for the memory file;
                                // allocate, free: the Backing
  std::uint64_t onlyPinOfFile;  // pin, unpin: 1 if no other pin names the file, else 0
  std::uintptr_t address;       // allocate, free, pin, unpin
  std::uint64_t bytes;          // allocate, free, pin, unpin
  std::int64_t offset;        // pin, allocate: in the file; resolve: from the module's load address
  std::uint32_t moduleBytes;  // resolve: length of the module's name as the dynamic linker has it
                              // ("": the program)
  std::uint32_t pathBytes;    // resolve: length of the absolute path to load it from
};

// One without a file.
inline Request requestFor(RequestKind kind, std::uintptr_t address, std::size_t bytes) {
  Request request{};
  request.kind = kind;
  request.address = address;
  request.bytes = bytes;
  return request;
}

// As it arrives. Not for the stack: requests are made on the fault path, answered on a large one.
struct ReceivedRequest {
  Request request;
  std::array<char, 2 * PATH_MAX> strings;  // name, then path

  std::string_view module() const { return {strings.data(), request.moduleBytes}; }
  std::string_view path() const {
    return {strings.data() + request.moduleBytes, request.pathBytes};
  }
};

// Messages are sent whole, padding included, which memory checkers would find unset.
static_assert(std::has_unique_object_representations_v<Request>);

struct Reply {
  Failure failure;      // adsmSuccess: none
  std::uint64_t value;  // hello: the device's process id; resolve: an address in the device process
};

static_assert(std::has_unique_object_representations_v<Reply>);

// Sends one message, with a file descriptor unless it is -1. False: errno says why.
bool sendMessage(int socket, const void* data, std::size_t bytes, int fd);
// The same with a request's strings after it.
bool sendRequest(int socket, const Request& request, std::string_view module, std::string_view path,
                 int fd);

// Receives one message and the file descriptor that came with it, if any. 0: the other side is
// gone; -1: see errno.
ssize_t receiveMessage(int socket, void* data, std::size_t bytes, Descriptor* fd);

}  // namespace gmac::accel::host

#endif  // GMAC_ACCEL_HOST_MESSAGES_H_
