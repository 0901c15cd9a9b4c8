// SPDX-License-Identifier: Apache-2.0
//
// Collectives that move data. Of a shared buffer MPI is given a packed copy in private memory.
#ifndef GMAC_MPI_ABI_EXCHANGE_H_
#define GMAC_MPI_ABI_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "mpi/abi/collective.h"
#include "mpi/abi/own_block.h"
#include "mpi/abi/place.h"
#include "mpi/abi/staged_blocks.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The following three describe a buffer in the forms that MPI's functions take. blocks(n) lists the
// blocks of n processes, none if an argument is wrong. replace() puts the packed payload in place
// of the buffer; it fails with false, and the payload's reason() says why. Those with a count for
// each process have leaveOut(): MPI is told that the one for that process is 0.

// The same number of elements for each process.
template <typename Count>
struct Uniform {
  void* buffer;
  Count count;
  MPI_Datatype type;

  std::vector<Block> blocks(int processes) const {
    return {{buffer, MPI_Count{count} * processes, type}};
  }
  auto arguments() const { return std::tuple(buffer, count, type); }
  bool replace(StagedBlocks& payload) {
    buffer = payload.address();
    type = payload.datatype();
    return true;
  }
};

// A count and a displacement, in elements, for each process.
template <typename Count, typename Displacement>
struct Spread {
  void* buffer;
  const Count* counts;
  const Displacement* displacements;
  MPI_Datatype type;

  std::vector<Block> blocks(int processes) const {
    std::vector<Block> blocks;
    MPI_Count lowerBound = 0;
    MPI_Count extent = 0;
    if (counts == nullptr || displacements == nullptr || type == MPI_DATATYPE_NULL ||
        real().Type_get_extent_x(type, &lowerBound, &extent) != MPI_SUCCESS) {
      return blocks;
    }
    for (int i = 0; i < processes; ++i) {
      blocks.push_back({shifted(buffer, displacements[i] * extent), counts[i], type});
    }
    return blocks;
  }
  void leaveOut(OwnBlock& own, std::size_t processes) { counts = own.without(counts, processes); }
  auto arguments() const { return std::tuple(buffer, counts, displacements, type); }
  bool replace(StagedBlocks& payload) {
    buffer = payload.address();
    type = payload.datatype();
    displacements = payload.places<Displacement>(false);
    return displacements != nullptr;
  }
};

// A count, a displacement in bytes and a datatype for each process.
template <typename Count, typename Displacement>
struct Typed {
  void* buffer;
  const Count* counts;
  const Displacement* displacements;
  const MPI_Datatype* types;

  std::vector<Block> blocks(int processes) const {
    std::vector<Block> blocks;
    for (int i = 0; i < processes; ++i) {
      if (counts == nullptr || displacements == nullptr || types == nullptr) break;
      blocks.push_back({shifted(buffer, displacements[i]), counts[i], types[i]});
    }
    return blocks;
  }
  void leaveOut(OwnBlock& own, std::size_t processes) { counts = own.without(counts, processes); }
  auto arguments() const { return std::tuple(buffer, counts, displacements, types); }
  bool replace(StagedBlocks& payload) {
    buffer = payload.address();
    types = payload.datatypes();
    displacements = payload.places<Displacement>(true);
    return displacements != nullptr;
  }
};

// The two buffers of one collective.
class Exchange : public Pending {
 public:
  // `keeps`: the receive buffer is packed as well, because MPI may leave parts of it as they were.
  Ready prepare(const std::vector<Block>& sent, const std::vector<Block>& received, bool keeps) {
    keeps_ = keeps;
    const Ready ready = out.prepare(sent);
    return ready != Ready::kYes ? ready : in.prepare(received);
  }
  bool inUse() const { return out.inUse() || in.inUse() || own.inUse(); }
  bool pack() override { return out.pack() && (!keeps_ || in.pack()); }
  bool deliver(const MPI_Status&) override { return in.unpack() && own.copy(); }
  const std::string& reason() const override {
    return !out.reason().empty() ? out.reason() : !in.reason().empty() ? in.reason() : own.reason();
  }

  StagedBlocks out;
  StagedBlocks in;
  OwnBlock own;

 private:
  bool keeps_ = false;
};

template <Layer layer, auto call, Pattern pattern, typename Sent, typename Received,
          typename... Rest>
int exchangeBuffers(Sent sent, Received received, Rest... rest) {
  const auto forward = [&] {
    return std::apply(next<layer>().*call,
                      std::tuple_cat(sent.arguments(), received.arguments(), std::tuple(rest...)));
  };
  const Form form = formOf<pattern.root != Pattern::Root::kNone>(rest...);
  if (!mayStage(form.communicator)) {
    return forward();
  }
  const Place place = placeIn(pattern, form.communicator, form.root);
  const bool inPlace = sent.buffer == MPI_IN_PLACE;
  const bool sends = place.sent != 0 && !inPlace;
  const bool receives = place.received != 0 && received.buffer != MPI_IN_PLACE;
  const auto state = std::make_shared<Exchange>();
  std::vector<Block> out = sends ? sent.blocks(place.sent) : std::vector<Block>();
  std::vector<Block> in = receives ? received.blocks(place.received) : std::vector<Block>();
  if constexpr (requires { sent.leaveOut(state->own, 0), received.leaveOut(state->own, 0); }) {
    if (place.own >= 0 && !inPlace && state->own.take(out, in, place.own)) {
      sent.leaveOut(state->own, out.size());
      received.leaveOut(state->own, in.size());
    }
  }
  const Ready ready = state->prepare(out, in, place.keeps || inPlace);
  if (ready == Ready::kLetMpiRefuse || (ready == Ready::kYes && !state->inUse())) {
    return forward();
  }
  if (ready == Ready::kFailed || (state->out.inUse() && !sent.replace(state->out)) ||
      (state->in.inUse() && !received.replace(state->in))) {
    return refuse(form.communicator, kName<call>, state->reason());
  }
  return performCollective(kName<call>, state, form, forward);
}

// MPI_Bcast and its like: one buffer, which the root sends.
template <Layer layer, auto call, Pattern pattern, typename Count, typename... Rest>
int broadcast(void* buffer, Count count, MPI_Datatype type, Rest... rest) {
  Uniform<Count> all{buffer, count, type};
  const auto forward = [&] {
    return std::apply(next<layer>().*call, std::tuple_cat(all.arguments(), std::tuple(rest...)));
  };
  const Form form = formOf<true>(rest...);
  if (!mayStage(form.communicator)) {
    return forward();
  }
  const Place place = placeIn(pattern, form.communicator, form.root);
  const auto state = std::make_shared<Exchange>();
  std::vector<Block> blocks = all.blocks(place.sent + place.received != 0 ? 1 : 0);
  const Ready ready =
      place.isRoot ? state->prepare(blocks, {}, false) : state->prepare({}, blocks, false);
  if (ready == Ready::kLetMpiRefuse || (ready == Ready::kYes && !state->inUse())) {
    return forward();
  }
  if (ready == Ready::kFailed) {
    return refuse(form.communicator, kName<call>, state->reason());
  }
  all.replace(place.isRoot ? state->out : state->in);
  return performCollective(kName<call>, state, form, forward);
}

// Gather, Scatter, Allgather and Alltoall; then their forms with one count, or one datatype, for
// each process (Gatherv, Alltoallw).
template <Layer layer, auto call, Pattern pattern, typename Count, typename... Rest>
int exchange(const void* sent, Count sentCount, MPI_Datatype sentType, void* received,
             Count receivedCount, MPI_Datatype receivedType, Rest... rest) {
  return exchangeBuffers<layer, call, pattern>(
      Uniform<Count>{const_cast<void*>(sent), sentCount, sentType},
      Uniform<Count>{received, receivedCount, receivedType}, rest...);
}
template <Layer layer, auto call, Pattern pattern, typename Count, typename Displacement,
          typename... Rest>
int exchange(const void* sent, Count sentCount, MPI_Datatype sentType, void* received,
             const Count* receivedCounts, const Displacement* receivedPlaces,
             MPI_Datatype receivedType, Rest... rest) {
  return exchangeBuffers<layer, call, pattern>(
      Uniform<Count>{const_cast<void*>(sent), sentCount, sentType},
      Spread<Count, Displacement>{received, receivedCounts, receivedPlaces, receivedType}, rest...);
}
template <Layer layer, auto call, Pattern pattern, typename Count, typename Displacement,
          typename... Rest>
int exchange(const void* sent, const Count* sentCounts, const Displacement* sentPlaces,
             MPI_Datatype sentType, void* received, Count receivedCount, MPI_Datatype receivedType,
             Rest... rest) {
  return exchangeBuffers<layer, call, pattern>(
      Spread<Count, Displacement>{const_cast<void*>(sent), sentCounts, sentPlaces, sentType},
      Uniform<Count>{received, receivedCount, receivedType}, rest...);
}
template <Layer layer, auto call, Pattern pattern, typename Count, typename Displacement,
          typename... Rest>
int exchange(const void* sent, const Count* sentCounts, const Displacement* sentPlaces,
             MPI_Datatype sentType, void* received, const Count* receivedCounts,
             const Displacement* receivedPlaces, MPI_Datatype receivedType, Rest... rest) {
  return exchangeBuffers<layer, call, pattern>(
      Spread<Count, Displacement>{const_cast<void*>(sent), sentCounts, sentPlaces, sentType},
      Spread<Count, Displacement>{received, receivedCounts, receivedPlaces, receivedType}, rest...);
}
template <Layer layer, auto call, Pattern pattern, typename Count, typename Displacement,
          typename... Rest>
int exchange(const void* sent, const Count* sentCounts, const Displacement* sentPlaces,
             const MPI_Datatype* sentTypes, void* received, const Count* receivedCounts,
             const Displacement* receivedPlaces, const MPI_Datatype* receivedTypes, Rest... rest) {
  return exchangeBuffers<layer, call, pattern>(
      Typed<Count, Displacement>{const_cast<void*>(sent), sentCounts, sentPlaces, sentTypes},
      Typed<Count, Displacement>{received, receivedCounts, receivedPlaces, receivedTypes}, rest...);
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_EXCHANGE_H_
