// SPDX-License-Identifier: Apache-2.0
//
// MPI_Pack, MPI_Unpack and their external forms: MPI packs between private memories. Both the
// elements and the packed bytes may be shared, or a device's.
#include <algorithm>
#include <cstddef>
#include <string>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"
#include "mpi/abi/operand.h"
#include "mpi/abi/side.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// A buffer of packed bytes as a call of MPI's takes it, from a position on.
template <typename Count>
class PackedBytes {
 public:
  // `needed`: at most so many bytes are read or written from the position on. `reads`: they are
  // there before the call.
  PackedBytes(const void* buffer, Count size, Count position, MPI_Count needed, bool reads)
      : address_(const_cast<void*>(buffer)), size_(size), position_(position) {
    const MPI_Count room = std::min<MPI_Count>(size - position, needed);
    void* const first = shifted(buffer, position);
    if (!needsStaging(first, room, MPI_BYTE)) {
      return;
    }
    const Ready ready = bytes_.prepare(first, room, MPI_BYTE);
    memory_ = StagingMemory(static_cast<std::size_t>(room));
    if (ready != Ready::kYes || memory_.data() == nullptr) {
      failed_ = true;
      reason_ = ready != Ready::kYes ? bytes_.reason()
                                     : "no memory for " + std::to_string(room) + " bytes";
      return;
    }
    inUse_ = true;
    address_ = shifted(memory_.data(), -MPI_Count{position});
    size_ = static_cast<Count>(position + room);
    failed_ = reads && !bytes_.pack(memory_.data());
  }

  bool inUse() const { return inUse_; }
  bool failed() const { return failed_; }
  const std::string& reason() const { return reason_.empty() ? bytes_.reason() : reason_; }
  // For MPI, with the position as it was.
  void* address() const { return address_; }
  Count size() const { return size_; }
  // MPI has packed up to that position. False: failed.
  bool deliver(Count position) {
    return !inUse_ || bytes_.unpack(memory_.data(), position - position_);
  }

 private:
  void* address_;
  Count size_;
  Count position_;
  Elements bytes_;
  StagingMemory memory_;
  std::string reason_;
  bool inUse_ = false;
  bool failed_ = false;
};

// The elements of MPI_Pack and MPI_Unpack: packed bytes are the payload.
class NativeElements {
 public:
  NativeElements(const void* buffer, MPI_Count count, MPI_Datatype type, bool reads)
      : side_(needsStaging(buffer, count, type), buffer, count, type, reads) {}
  bool failed() const { return side_.failed(); }
  const std::string& reason() const { return side_.reason(); }
  void* address() const { return side_.address(); }
  MPI_Datatype datatype() const { return side_.datatype(); }
  bool deliver() { return side_.unpackAll(); }

 private:
  Side side_;
};

// Those of the external forms, which MPI converts by their types.
class ConvertedElements {
 public:
  ConvertedElements(const void* buffer, MPI_Count count, MPI_Datatype type, bool reads)
      : address_(const_cast<void*>(buffer)), type_(type) {
    const Ready ready = operand_.prepare(address_, count, type);
    failed_ = ready == Ready::kFailed;
    inUse_ = ready == Ready::kYes && operand_.inUse();
    if (inUse_) {
      address_ = operand_.address();
      failed_ = reads && !operand_.pack();
    }
  }
  bool failed() const { return failed_; }
  const std::string& reason() const { return operand_.reason(); }
  void* address() const { return address_; }
  MPI_Datatype datatype() const { return type_; }
  bool deliver() { return !inUse_ || operand_.unpack(); }

 private:
  Operand operand_;
  void* address_;
  MPI_Datatype type_;
  bool inUse_ = false;
  bool failed_ = false;
};

// Whether MPI has to be asked: it refuses the rest.
template <typename Count>
bool mayServe(Count size, const Count* position, MPI_Count count) {
  return mayNeedStaging() && position != nullptr && *position >= 0 && *position <= size &&
         count > 0;
}

// `bytes`: the most that the elements have packed. `call` packs: MPI is given its arguments.
template <typename Staged, typename Count, typename Call>
int packStaged(const char* name, MPI_Comm communicator, const void* in, MPI_Count count,
               MPI_Datatype type, void* out, Count size, Count* position, MPI_Count bytes,
               const Call& call) {
  Staged elements(in, count, type, true);
  PackedBytes<Count> packed(out, size, *position, bytes, false);
  if (elements.failed() || packed.failed()) {
    return refuse(communicator, name, elements.failed() ? elements.reason() : packed.reason());
  }
  const int code =
      call(elements.address(), elements.datatype(), packed.address(), packed.size(), position);
  return code != MPI_SUCCESS || packed.deliver(*position)
             ? code
             : refuse(communicator, name, packed.reason());
}

template <typename Staged, typename Count, typename Call>
int unpackStaged(const char* name, MPI_Comm communicator, const void* in, Count size,
                 Count* position, void* out, MPI_Count count, MPI_Datatype type, MPI_Count bytes,
                 const Call& call) {
  PackedBytes<Count> packed(in, size, *position, bytes, true);
  Staged elements(out, count, type, false);
  if (elements.failed() || packed.failed()) {
    return refuse(communicator, name, elements.failed() ? elements.reason() : packed.reason());
  }
  const int code =
      call(packed.address(), packed.size(), position, elements.address(), elements.datatype());
  return code != MPI_SUCCESS || elements.deliver() ? code
                                                   : refuse(communicator, name, elements.reason());
}

template <Layer layer, auto call, auto askSize, typename Count>
int pack(const void* in, Count count, MPI_Datatype type, void* out, Count size, Count* position,
         MPI_Comm communicator) {
  const auto function = next<layer>().*call;
  Count bytes = 0;
  if (!mayServe(size, position, count) || type == MPI_DATATYPE_NULL ||
      (!needsStaging(in, count, type) && !needsStaging(out, size, MPI_BYTE)) ||
      (real().*askSize)(count, type, communicator, &bytes) != MPI_SUCCESS) {
    return function(in, count, type, out, size, position, communicator);
  }
  return packStaged<NativeElements>(
      kName<call>, communicator, in, count, type, out, size, position, bytes,
      [&](const void* from, MPI_Datatype wire, void* to, Count room, Count* at) {
        return function(from, count, wire, to, room, at, communicator);
      });
}

template <Layer layer, auto call, auto askSize, typename Count>
int unpack(const void* in, Count size, Count* position, void* out, Count count, MPI_Datatype type,
           MPI_Comm communicator) {
  const auto function = next<layer>().*call;
  Count bytes = 0;
  if (!mayServe(size, position, count) || type == MPI_DATATYPE_NULL ||
      (!needsStaging(out, count, type) && !needsStaging(in, size, MPI_BYTE)) ||
      (real().*askSize)(count, type, communicator, &bytes) != MPI_SUCCESS) {
    return function(in, size, position, out, count, type, communicator);
  }
  return unpackStaged<NativeElements>(
      kName<call>, communicator, in, size, position, out, count, type, bytes,
      [&](const void* from, Count room, Count* at, void* to, MPI_Datatype wire) {
        return function(from, room, at, to, count, wire, communicator);
      });
}

template <Layer layer, auto call, auto askSize, typename Count, typename Size>
int packExternal(const char* representation, const void* in, Count count, MPI_Datatype type,
                 void* out, Size size, Size* position) {
  const auto function = next<layer>().*call;
  Size bytes = 0;
  if (!mayServe(size, position, count) || type == MPI_DATATYPE_NULL ||
      (!needsStaging(in, count, type) && !needsStaging(out, size, MPI_BYTE)) ||
      (real().*askSize)(representation, count, type, &bytes) != MPI_SUCCESS) {
    return function(representation, in, count, type, out, size, position);
  }
  return packStaged<ConvertedElements>(
      kName<call>, MPI_COMM_WORLD, in, count, type, out, size, position, bytes,
      [&](const void* from, MPI_Datatype same, void* to, Size room, Size* at) {
        return function(representation, from, count, same, to, room, at);
      });
}

template <Layer layer, auto call, auto askSize, typename Count, typename Size>
int unpackExternal(const char* representation, const void* in, Size size, Size* position, void* out,
                   Count count, MPI_Datatype type) {
  const auto function = next<layer>().*call;
  Size bytes = 0;
  if (!mayServe(size, position, count) || type == MPI_DATATYPE_NULL ||
      (!needsStaging(out, count, type) && !needsStaging(in, size, MPI_BYTE)) ||
      (real().*askSize)(representation, count, type, &bytes) != MPI_SUCCESS) {
    return function(representation, in, size, position, out, count, type);
  }
  return unpackStaged<ConvertedElements>(
      kName<call>, MPI_COMM_WORLD, in, size, position, out, count, type, bytes,
      [&](const void* from, Size room, Size* at, void* to, MPI_Datatype same) {
        return function(representation, from, room, at, to, count, same);
      });
}

}  // namespace

std::span<const Hook> packingHooks() {
  static const Hook hooks[] = {
    GMAC_MPI_HOOK(Pack, pack, &Calls::Pack, &Calls::Pack_size),
    GMAC_MPI_HOOK(Unpack, unpack, &Calls::Unpack, &Calls::Pack_size),
    GMAC_MPI_HOOK(Pack_external, packExternal, &Calls::Pack_external, &Calls::Pack_external_size),
    GMAC_MPI_HOOK(Unpack_external, unpackExternal, &Calls::Unpack_external,
                  &Calls::Pack_external_size),
#if MPI_VERSION >= 4
    GMAC_MPI_HOOK(Pack_c, pack, &Calls::Pack_c, &Calls::Pack_size_c),
    GMAC_MPI_HOOK(Unpack_c, unpack, &Calls::Unpack_c, &Calls::Pack_size_c),
    GMAC_MPI_HOOK(Pack_external_c, packExternal, &Calls::Pack_external_c,
                  &Calls::Pack_external_size_c),
    GMAC_MPI_HOOK(Unpack_external_c, unpackExternal, &Calls::Unpack_external_c,
                  &Calls::Pack_external_size_c),
#endif
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
