// SPDX-License-Identifier: Apache-2.0
#include "mpi/abi/operand.h"

#include <cstdint>

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Elements keep their alignment up to this.
constexpr std::uintptr_t kAlignment = 64;

}  // namespace

Ready Operand::prepare(void* buffer, MPI_Count count, MPI_Datatype datatype) {
  if (!needsStaging(buffer, count, datatype)) {
    return Ready::kYes;
  }
  Ready ready = buffer_.prepare(buffer, count, datatype);
  if (ready != Ready::kYes) {
    reason_ = buffer_.reason();
    return ready;
  }
  const bool dense = buffer_.type().dense;
  const Span span = spanOf(count, datatype);
  const auto bytes = static_cast<std::size_t>(span.last - span.first);
  memory_ = StagingMemory(bytes + kAlignment);
  if (!dense) {
    packed_ = StagingMemory(static_cast<std::size_t>(buffer_.bytes()));
  }
  if (memory_.data() == nullptr || (!dense && packed_.data() == nullptr)) {
    reason_ = "no memory for " + std::to_string(bytes) + " bytes";
    return Ready::kFailed;
  }
  const auto first =
      reinterpret_cast<std::uintptr_t>(buffer) + static_cast<std::uintptr_t>(span.first);
  address_ = memory_.data() + first % kAlignment - span.first;
  if (dense) {
    return Ready::kYes;
  }
  ready = copy_.prepare(address_, count, datatype);
  if (ready != Ready::kYes) {
    reason_ = copy_.reason();
  }
  return ready;
}

bool Operand::pack() {
  if (!inUse()) return true;
  if (buffer_.type().dense) {
    return buffer_.pack(static_cast<std::byte*>(address_)) || fail(buffer_);
  }
  return (buffer_.pack(packed_.data()) || fail(buffer_)) &&
         (copy_.unpack(packed_.data(), copy_.bytes()) || fail(copy_));
}

bool Operand::unpack() {
  if (!inUse()) return true;
  if (buffer_.type().dense) {
    return buffer_.unpack(static_cast<std::byte*>(address_), buffer_.bytes()) || fail(buffer_);
  }
  return (copy_.pack(packed_.data()) || fail(copy_)) &&
         (buffer_.unpack(packed_.data(), buffer_.bytes()) || fail(buffer_));
}

bool Operand::fail(const Elements& elements) {
  reason_ = elements.reason();
  return false;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
