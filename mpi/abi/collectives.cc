// SPDX-License-Identifier: Apache-2.0
//
// Collectives that block. Each buffer that is shared goes through private memory: as packed
// elements, or, where MPI computes with them, as the elements of a predefined type without gaps.
#include "mpi/abi/hooks.h"
#include "mpi/abi/side.h"

namespace gmac::mpi::GMAC_MPI_ABI {
namespace {

// Where this process stands in a collective.
struct Place {
  bool sends = true;
  bool receives = true;
  int blocks = 1;  // of a buffer that has one for each process
};

Place placeIn(MPI_Comm communicator) {
  Place place;
  int inter = 0;
  (void)real().Comm_test_inter(communicator, &inter);
  (void)(inter != 0 ? real().Comm_remote_size : real().Comm_size)(communicator, &place.blocks);
  return place;
}

// `toRoot`: everybody sends and the root receives; else the root sends.
Place placeIn(MPI_Comm communicator, int root, bool toRoot) {
  Place place = placeIn(communicator);
  int inter = 0;
  int rank = MPI_PROC_NULL;
  (void)real().Comm_test_inter(communicator, &inter);
  (void)real().Comm_rank(communicator, &rank);
  const bool isRoot = inter != 0 ? root == MPI_ROOT : rank == root;
  const bool isOther = inter != 0 ? root != MPI_ROOT && root != MPI_PROC_NULL : true;
  place.sends = toRoot ? isOther : isRoot;
  place.receives = toRoot ? isRoot : isOther && (inter != 0 || !isRoot);
  return place;
}

// Of a communicator that is none, MPI says so.
bool anyShared(MPI_Comm communicator) {
  return gmacAnythingShared() != 0 && communicator != MPI_COMM_NULL;
}

template <Layer layer>
int broadcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm communicator) {
  const auto function = next<layer>().Bcast;
  if (!anyShared(communicator) || !touches(buffer, count, datatype)) {
    return function(buffer, count, datatype, root, communicator);
  }
  const Place place = placeIn(communicator, root, false);
  Side side(buffer, count, datatype, place.sends);
  if (side.failed()) {
    return refuse(communicator, "MPI_Bcast", side.reason());
  }
  const int code = function(side.address(), count, side.datatype(), root, communicator);
  return code != MPI_SUCCESS || !place.receives ? code : side.deliverAll(communicator, "MPI_Bcast");
}

// What a process does not use of its arguments is not looked at.
Side sideFor(bool used, const void* buffer, MPI_Count count, MPI_Datatype datatype, bool packs) {
  return Side(buffer, used ? count : 0, datatype, packs);
}

// Gather, Scatter, Allgather, Alltoall, once it is known which buffers are used, and how many
// elements they have. In place, what is received to has what is sent.
template <auto call, typename Function>
int exchange(const Place& place, const void* sent, MPI_Count sentAll, MPI_Datatype sentType,
             void* received, MPI_Count receivedAll, MPI_Datatype receivedType,
             MPI_Comm communicator, const Function& function) {
  const bool inPlace = sent == MPI_IN_PLACE;
  Side out = sideFor(place.sends, sent, sentAll, sentType, true);
  Side in = sideFor(place.receives, received, receivedAll, receivedType, inPlace);
  if (out.failed() || in.failed()) {
    return refuse(communicator, kName<call>, out.failed() ? out.reason() : in.reason());
  }
  const int code = function(out.address(), out.datatype(), in.address(), in.datatype());
  return code != MPI_SUCCESS ? code : in.deliverAll(communicator, kName<call>);
}

template <Layer layer>
int gather(const void* sent, int sentCount, MPI_Datatype sentType, void* received,
           int receivedCount, MPI_Datatype receivedType, int root, MPI_Comm communicator) {
  const auto function = next<layer>().Gather;
  if (!anyShared(communicator)) {
    return function(sent, sentCount, sentType, received, receivedCount, receivedType, root,
                    communicator);
  }
  const Place place = placeIn(communicator, root, true);
  return exchange<&Calls::Gather>(
      place, sent, sentCount, sentType, received, MPI_Count{receivedCount} * place.blocks,
      receivedType, communicator,
      [&](void* out, MPI_Datatype outType, void* in, MPI_Datatype inType) {
        return function(out, sentCount, outType, in, receivedCount, inType, root, communicator);
      });
}

template <Layer layer>
int scatter(const void* sent, int sentCount, MPI_Datatype sentType, void* received,
            int receivedCount, MPI_Datatype receivedType, int root, MPI_Comm communicator) {
  const auto function = next<layer>().Scatter;
  if (!anyShared(communicator)) {
    return function(sent, sentCount, sentType, received, receivedCount, receivedType, root,
                    communicator);
  }
  Place place = placeIn(communicator, root, false);
  // The root receives its own part, too.
  place.receives = place.receives || (place.sends && root != MPI_ROOT);
  return exchange<&Calls::Scatter>(
      place, sent, MPI_Count{sentCount} * place.blocks, sentType, received, receivedCount,
      receivedType, communicator,
      [&](void* out, MPI_Datatype outType, void* in, MPI_Datatype inType) {
        return function(out, sentCount, outType, in, receivedCount, inType, root, communicator);
      });
}

template <Layer layer>
int allGather(const void* sent, int sentCount, MPI_Datatype sentType, void* received,
              int receivedCount, MPI_Datatype receivedType, MPI_Comm communicator) {
  const auto function = next<layer>().Allgather;
  if (!anyShared(communicator)) {
    return function(sent, sentCount, sentType, received, receivedCount, receivedType, communicator);
  }
  const Place place = placeIn(communicator);
  return exchange<&Calls::Allgather>(
      place, sent, sentCount, sentType, received, MPI_Count{receivedCount} * place.blocks,
      receivedType, communicator,
      [&](void* out, MPI_Datatype outType, void* in, MPI_Datatype inType) {
        return function(out, sentCount, outType, in, receivedCount, inType, communicator);
      });
}

template <Layer layer>
int allToAll(const void* sent, int sentCount, MPI_Datatype sentType, void* received,
             int receivedCount, MPI_Datatype receivedType, MPI_Comm communicator) {
  const auto function = next<layer>().Alltoall;
  if (!anyShared(communicator)) {
    return function(sent, sentCount, sentType, received, receivedCount, receivedType, communicator);
  }
  const Place place = placeIn(communicator);
  return exchange<&Calls::Alltoall>(
      place, sent, MPI_Count{sentCount} * place.blocks, sentType, received,
      MPI_Count{receivedCount} * place.blocks, receivedType, communicator,
      [&](void* out, MPI_Datatype outType, void* in, MPI_Datatype inType) {
        return function(out, sentCount, outType, in, receivedCount, inType, communicator);
      });
}

// Reduce, Allreduce, Scan, Exscan: `function` calls MPI with the two buffers.
template <auto call, typename Function>
int reduction(bool receives, const void* sent, void* received, int count, MPI_Datatype datatype,
              MPI_Comm communicator, const Function& function) {
  const bool shared = anyShared(communicator) && (touches(sent, count, datatype) ||
                                                  (receives && touches(received, count, datatype)));
  if (!shared) {
    return function(const_cast<void*>(sent), received);
  }
  const FoundType found = findType(datatype);
  if (found.type != nullptr && !found.type->dense) {
    return refuse(communicator, kName<call>,
                  "a buffer is a shared object, which reductions take with predefined types "
                  "without gaps only");
  }
  // What MPI leaves as it was is delivered as it was (MPI_Exscan).
  Side out(sent, count, datatype, true);
  Side in = sideFor(receives, received, count, datatype, true);
  if (out.failed() || in.failed()) {
    return refuse(communicator, kName<call>, out.failed() ? out.reason() : in.reason());
  }
  const int code = function(out.address(), in.address());
  return code != MPI_SUCCESS ? code : in.deliverAll(communicator, kName<call>);
}

template <Layer layer>
int reduce(const void* sent, void* received, int count, MPI_Datatype datatype, MPI_Op op, int root,
           MPI_Comm communicator) {
  const bool receives = anyShared(communicator) && placeIn(communicator, root, true).receives;
  return reduction<&Calls::Reduce>(
      receives, sent, received, count, datatype, communicator, [&](void* out, void* in) {
        return next<layer>().Reduce(out, in, count, datatype, op, root, communicator);
      });
}

// Allreduce, Scan, Exscan.
template <Layer layer, auto call>
int reduceEverywhere(const void* sent, void* received, int count, MPI_Datatype datatype, MPI_Op op,
                     MPI_Comm communicator) {
  return reduction<call>(true, sent, received, count, datatype, communicator,
                         [&](void* out, void* in) {
                           return (next<layer>().*call)(out, in, count, datatype, op, communicator);
                         });
}

}  // namespace

std::span<const Hook> collectiveHooks() {
  static const Hook hooks[] = {
      GMAC_MPI_HOOK(Bcast, broadcast),
      GMAC_MPI_HOOK(Gather, gather),
      GMAC_MPI_HOOK(Scatter, scatter),
      GMAC_MPI_HOOK(Allgather, allGather),
      GMAC_MPI_HOOK(Alltoall, allToAll),
      GMAC_MPI_HOOK(Reduce, reduce),
      GMAC_MPI_HOOK(Allreduce, reduceEverywhere, &Calls::Allreduce),
      GMAC_MPI_HOOK(Scan, reduceEverywhere, &Calls::Scan),
      GMAC_MPI_HOOK(Exscan, reduceEverywhere, &Calls::Exscan),
  };
  return hooks;
}

}  // namespace gmac::mpi::GMAC_MPI_ABI
