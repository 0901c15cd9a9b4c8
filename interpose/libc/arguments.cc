// SPDX-License-Identifier: Apache-2.0
#include "interpose/libc/arguments.h"

#include <algorithm>
#include <climits>
#include <cstring>

namespace gmac::interpose {
namespace {

// The bytes of a table that the kernel would read; 0 if it would read none.
std::size_t tableBytes(const iovec* parts, std::size_t count) {
  return parts == nullptr || count > IOV_MAX ? 0 : count * sizeof(iovec);
}

std::size_t sharedTableBytes(const iovec* parts, std::size_t count) {
  const std::size_t bytes = tableBytes(parts, count);
  return coherence::touchesShared(parts, bytes) ? bytes : 0;
}

}  // namespace

CallersVector::CallersVector(const iovec* parts, std::size_t count)
    : table_(sharedTableBytes(parts, count)), vector_{parts, count} {
  const std::size_t bytes = tableBytes(parts, count);
  if (bytes == 0 || !coherence::anythingShared()) return;
  if (coherence::touchesShared(parts, bytes)) {
    if (table_.data() == nullptr) return;
    std::memcpy(table_.data(), parts, bytes);  // in user mode, where closed blocks fault and open
    vector_.parts = reinterpret_cast<const iovec*>(table_.data());
    ours_ = true;
  } else if (!readable(parts, bytes)) {
    return;
  }
  ours_ = ours_ || vector_.touchesShared();
  if (std::any_of(vector_.parts, vector_.parts + count,
                  [](const iovec& part) { return part.iov_len > SSIZE_MAX; })) {
    ours_ = false;
  }
}

}  // namespace gmac::interpose
