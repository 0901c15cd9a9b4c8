// SPDX-License-Identifier: Apache-2.0
//
// One-sided operations. What one reads of this process's memory is packed by the call; what it
// fetches is unpacked when it is complete here.
#include "mpi/abi/one_sided.h"

#include <string>
#include <utility>

#include "mpi/abi/errors.h"
#include "mpi/abi/hooks.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// The payload's bytes; -1 where MPI has to refuse the arguments.
MPI_Count bytesOf(MPI_Count count, MPI_Datatype type) {
  MPI_Count size = -1;
  const bool known = count >= 0 && type != MPI_DATATYPE_NULL &&
                     real().Type_size_x(type, &size) == MPI_SUCCESS && size >= 0;
  return known ? count * size : -1;
}

// The end of a call by its last argument: none, or a request.
int started(const OperationPtr& operation, const char*) {
  operations::add(operation);
  return MPI_SUCCESS;
}
int started(const OperationPtr& operation, const char* call, MPI_Request* request) {
  if (operation->isLate) (void)real().Win_flush(operation->target, operation->window);
  // One handle may stand for all that were complete at once.
  int done = 0;
  if (real().Request_get_status(*request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) {
    return operation->finish() ? MPI_SUCCESS
                               : refuseAtWindow(operation->window, call, operation->reason());
  }
  requests::add(*request, operation);
  return MPI_SUCCESS;
}

// Whether an operation has a buffer that MPI is not to touch. Where there is no target, MPI touches
// none.
struct Argument {
  const void* buffer;
  MPI_Count count;
  MPI_Datatype type;
};
template <typename... Arguments>
bool stages(int target, const Arguments&... arguments) {
  return target != MPI_PROC_NULL &&
         (needsStaging(arguments.buffer, arguments.count, arguments.type) || ...);
}

// `prepared`: how the preparation of each buffer ended. `call`: calls MPI with the operation's
// buffers; `plainly`: with the application's.
template <typename Call, typename Plainly, typename... Request>
int perform(const char* name, const OperationPtr& operation, std::initializer_list<Ready> prepared,
            bool keeps, const Call& call, const Plainly& plainly, Request... request) {
  for (const Ready ready : prepared) {
    if (ready == Ready::kLetMpiRefuse) {
      return plainly();
    }
  }
  for (const OriginBuffer* const buffer :
       {&operation->origin, &operation->compared, &operation->result}) {
    if (buffer->failed()) {
      return refuseAtWindow(operation->window, name, buffer->reason());
    }
  }
  if (!operation->begin(keeps)) {
    return refuseAtWindow(operation->window, name, operation->reason());
  }
  const int code = call();
  return code != MPI_SUCCESS ? code : started(operation, name, request...);
}

// The window, where it has a public copy of that buffer. Not for operations with a request, which
// are complete before the synchronisation that shows them to others.
template <typename... Request>
SeparateWindowPtr windowAround(MPI_Win window, const Argument& argument, Request...) {
  if (sizeof...(Request) != 0) {
    return nullptr;
  }
  SeparateWindowPtr separate = separate_windows::find(window);
  return separate != nullptr &&
                 separate->contains(argument.buffer, spanOf(argument.count, argument.type))
             ? separate
             : nullptr;
}

// Of the buffer that an operation fills.
template <typename... Request>
Ready prepareResult(Operation& operation, OriginBuffer::Form form, void* buffer, MPI_Count count,
                    MPI_Datatype type, Request... request) {
  const SeparateWindowPtr around =
      windowAround(operation.window, {buffer, count, type}, request...);
  return around != nullptr ? operation.result.prepareIn(around, buffer, count, type)
                           : operation.result.prepare(form, buffer, count, type);
}

// Of an operation on this process's own part of a window: what it has written there before comes
// first. Without a public copy that takes no synchronisation. The call's result, if not success.
int noteTarget(const char* name, MPI_Win window, int target, MPI_Aint place, MPI_Count count,
               MPI_Datatype type) {
  const SeparateWindowPtr separate = separate_windows::find(window);
  if (separate == nullptr || separate->rank() != target) {
    return MPI_SUCCESS;
  }
  separate->noteOwnTarget();
  const void* const at = separate->addressOf(place);
  const Span span = spanOf(count, type);
  std::string reason;
  return !separate->contains(at, span) || separate->publish(at, span, &reason)
             ? MPI_SUCCESS
             : refuseAtWindow(window, name, reason);
}

// Put, Rput.
template <Layer layer, auto call, typename Count, typename... Request>
int put(const void* origin, Count count, MPI_Datatype type, int target, MPI_Aint place,
        Count targetCount, MPI_Datatype targetType, MPI_Win window, Request... request) {
  if (const int code = noteTarget(kName<call>, window, target, place, targetCount, targetType);
      code != MPI_SUCCESS) {
    return code;
  }
  const auto forward = [&](const void* buffer, MPI_Datatype wire) {
    return (next<layer>().*call)(buffer, count, wire, target, place, targetCount, targetType,
                                 window, request...);
  };
  const auto plainly = [&] { return forward(origin, type); };
  if (!stages(target, Argument{origin, count, type})) {
    return plainly();
  }
  const auto operation = std::make_shared<Operation>(window, target);
  OriginBuffer& out = operation->origin;
  const Ready ready = out.prepare(OriginBuffer::Form::kPacked, origin, count, type);
  return perform(
      kName<call>, operation, {ready}, false,
      [&] { return forward(out.address(), out.datatype()); }, plainly, request...);
}

// Whether MPI_Rget is complete before all is there. (MPICH 4.0, which asks the target to pack a
// derived type. Its epoch lets the call wait for that.)
bool isLate([[maybe_unused]] MPI_Datatype targetType) {
#ifdef OPEN_MPI
  return false;
#else
  return targetType != MPI_DATATYPE_NULL && denseSize(targetType) == 0;
#endif
}

// Get, Rget. A buffer may have room for more than is fetched: MPI is then told of what is fetched.
// (MPICH 4.0 fills all of a contiguous buffer, from beyond what is to be fetched.)
template <Layer layer, auto call, typename Count, typename... Request>
int get(void* origin, Count count, MPI_Datatype type, int target, MPI_Aint place, Count targetCount,
        MPI_Datatype targetType, MPI_Win window, Request... request) {
  if (const int code = noteTarget(kName<call>, window, target, place, targetCount, targetType);
      code != MPI_SUCCESS) {
    return code;
  }
  const auto forward = [&](void* buffer, Count elements, MPI_Datatype wire) {
    return (next<layer>().*call)(buffer, elements, wire, target, place, targetCount, targetType,
                                 window, request...);
  };
  const auto plainly = [&] { return forward(origin, count, type); };
  if (!stages(target, Argument{origin, count, type})) {
    return plainly();
  }
  const auto operation = std::make_shared<Operation>(window, target);
  operation->isLate = isLate(targetType);
  OriginBuffer& in = operation->result;
  const Ready ready =
      prepareResult(*operation, OriginBuffer::Form::kPacked, origin, count, type, request...);
  const MPI_Count fetched = bytesOf(targetCount, targetType);
  TypePtr part;
  if (!in.isInWindow() && fetched >= 0 && fetched < bytesOf(count, type)) {
    part = findType(targetType).type;
    in.fillOnly(fetched);
  }
  return perform(
      kName<call>, operation, {ready}, false,
      [&] {
        return part != nullptr ? forward(in.address(), targetCount, part->wire)
                               : forward(in.address(), count, in.datatype());
      },
      plainly, request...);
}

// Accumulate, Raccumulate.
template <Layer layer, auto call, typename Count, typename... Request>
int accumulate(const void* origin, Count count, MPI_Datatype type, int target, MPI_Aint place,
               Count targetCount, MPI_Datatype targetType, MPI_Op op, MPI_Win window,
               Request... request) {
  if (const int code = noteTarget(kName<call>, window, target, place, targetCount, targetType);
      code != MPI_SUCCESS) {
    return code;
  }
  const auto forward = [&](const void* buffer) {
    return (next<layer>().*call)(buffer, count, type, target, place, targetCount, targetType, op,
                                 window, request...);
  };
  const auto plainly = [&] { return forward(origin); };
  if (!stages(target, Argument{origin, count, type})) {
    return plainly();
  }
  const auto operation = std::make_shared<Operation>(window, target);
  OriginBuffer& out = operation->origin;
  const Ready ready = out.prepare(OriginBuffer::Form::kElements, origin, count, type);
  return perform(
      kName<call>, operation, {ready}, false, [&] { return forward(out.address()); }, plainly,
      request...);
}

// Get_accumulate, Rget_accumulate. With MPI_NO_OP the origin means nothing.
template <Layer layer, auto call, typename Count, typename... Request>
int getAccumulate(const void* origin, Count count, MPI_Datatype type, void* result,
                  Count resultCount, MPI_Datatype resultType, int target, MPI_Aint place,
                  Count targetCount, MPI_Datatype targetType, MPI_Op op, MPI_Win window,
                  Request... request) {
  if (const int code = noteTarget(kName<call>, window, target, place, targetCount, targetType);
      code != MPI_SUCCESS) {
    return code;
  }
  const auto forward = [&](const void* buffer, void* fetched) {
    return (next<layer>().*call)(buffer, count, type, fetched, resultCount, resultType, target,
                                 place, targetCount, targetType, op, window, request...);
  };
  const auto plainly = [&] { return forward(origin, result); };
  const MPI_Count used = op == MPI_NO_OP ? 0 : MPI_Count{count};
  if (!stages(target, Argument{origin, used, type}, Argument{result, resultCount, resultType})) {
    return plainly();
  }
  const auto operation = std::make_shared<Operation>(window, target);
  OriginBuffer& out = operation->origin;
  OriginBuffer& in = operation->result;
  const Ready ready[] = {out.prepare(OriginBuffer::Form::kElements, origin, used, type),
                         prepareResult(*operation, OriginBuffer::Form::kElements, result,
                                       resultCount, resultType, request...)};
  const bool keeps = bytesOf(resultCount, resultType) != bytesOf(targetCount, targetType);
  return perform(
      kName<call>, operation, {ready[0], ready[1]}, keeps,
      [&] { return forward(out.address(), in.address()); }, plainly, request...);
}

template <Layer layer>
int fetchAndOp(const void* origin, void* result, MPI_Datatype type, int target, MPI_Aint place,
               MPI_Op op, MPI_Win window) {
  if (const int code = noteTarget("MPI_Fetch_and_op", window, target, place, 1, type);
      code != MPI_SUCCESS) {
    return code;
  }
  const auto forward = [&](const void* buffer, void* fetched) {
    return next<layer>().Fetch_and_op(buffer, fetched, type, target, place, op, window);
  };
  const auto plainly = [&] { return forward(origin, result); };
  const MPI_Count used = op == MPI_NO_OP ? 0 : 1;
  if (!stages(target, Argument{origin, used, type}, Argument{result, 1, type})) {
    return plainly();
  }
  const auto operation = std::make_shared<Operation>(window, target);
  OriginBuffer& out = operation->origin;
  OriginBuffer& in = operation->result;
  const Ready ready[] = {out.prepare(OriginBuffer::Form::kElements, origin, used, type),
                         prepareResult(*operation, OriginBuffer::Form::kElements, result, 1, type)};
  return perform(
      "MPI_Fetch_and_op", operation, {ready[0], ready[1]}, false,
      [&] { return forward(out.address(), in.address()); }, plainly);
}

template <Layer layer>
int compareAndSwap(const void* origin, const void* compared, void* result, MPI_Datatype type,
                   int target, MPI_Aint place, MPI_Win window) {
  if (const int code = noteTarget("MPI_Compare_and_swap", window, target, place, 1, type);
      code != MPI_SUCCESS) {
    return code;
  }
  const auto forward = [&](const void* buffer, const void* with, void* fetched) {
    return next<layer>().Compare_and_swap(buffer, with, fetched, type, target, place, window);
  };
  const auto plainly = [&] { return forward(origin, compared, result); };
  if (!stages(target, Argument{origin, 1, type}, Argument{compared, 1, type},
              Argument{result, 1, type})) {
    return plainly();
  }
  const auto operation = std::make_shared<Operation>(window, target);
  OriginBuffer& out = operation->origin;
  OriginBuffer& with = operation->compared;
  OriginBuffer& in = operation->result;
  constexpr auto kForm = OriginBuffer::Form::kElements;
  const Ready ready[] = {out.prepare(kForm, origin, 1, type),
                         with.prepare(kForm, compared, 1, type),
                         prepareResult(*operation, kForm, result, 1, type)};
  return perform(
      "MPI_Compare_and_swap", operation, {ready[0], ready[1], ready[2]}, false,
      [&] { return forward(out.address(), with.address(), in.address()); }, plainly);
}

}  // namespace

std::span<const Hook> oneSidedHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOKS(Accumulate, accumulate),
      GMAC_MPI_HOOK(Compare_and_swap, compareAndSwap),
      GMAC_MPI_HOOK(Fetch_and_op, fetchAndOp),
      GMAC_MPI_HOOKS(Get, get),
      GMAC_MPI_HOOKS(Get_accumulate, getAccumulate),
      GMAC_MPI_HOOKS(Put, put),
      GMAC_MPI_HOOKS(Raccumulate, accumulate),
      GMAC_MPI_HOOKS(Rget, get),
      GMAC_MPI_HOOKS(Rget_accumulate, getAccumulate),
      GMAC_MPI_HOOKS(Rput, put),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
