// SPDX-License-Identifier: Apache-2.0
//
// Reductions: MPI_Reduce and its like, and MPI_Reduce_scatter.
#ifndef GMAC_MPI_ABI_REDUCTION_H_
#define GMAC_MPI_ABI_REDUCTION_H_

#include <concepts>
#include <memory>

#include "mpi/abi/collective.h"
#include "mpi/abi/operand.h"
#include "mpi/abi/place.h"

namespace gmac::mpi::GMAC_MPI_ABI {

// The two buffers of one reduction.
class Reduction : public Pending {
 public:
  Reduction(void* sent, void* received) : sent_(sent), received_(received) {}

  // The number of elements of each buffer. `keeps`: MPI also reads the receive buffer.
  Ready prepare(MPI_Count sentCount, MPI_Count receivedCount, MPI_Datatype type, bool keeps) {
    keeps_ = keeps;
    const Ready ready = out_.prepare(sent_, sentCount, type);
    return ready != Ready::kYes ? ready : in_.prepare(received_, receivedCount, type);
  }
  bool inUse() const { return out_.inUse() || in_.inUse(); }
  bool pack() override { return out_.pack() && (!keeps_ || in_.pack()); }
  bool deliver(const MPI_Status&) override { return in_.unpack(); }
  const std::string& reason() const override {
    return out_.reason().empty() ? in_.reason() : out_.reason();
  }

  // The buffers to pass to MPI.
  void* sent() const { return out_.inUse() ? out_.address() : sent_; }
  void* received() const { return in_.inUse() ? in_.address() : received_; }

 private:
  void* sent_;
  void* received_;
  Operand out_;
  Operand in_;
  bool keeps_ = false;
};

// `count`: the call's own argument. sentCount, receivedCount: the numbers of elements in the
// buffers; -1: the arguments are wrong, and MPI is to say so.
template <Layer layer, auto call, bool rooted, typename Count, typename... Rest>
int reduceBuffers(const Place& place, const void* sent, MPI_Count sentCount, void* received,
                  MPI_Count receivedCount, Count count, MPI_Datatype type, MPI_Op op,
                  Rest... rest) {
  const auto function = next<layer>().*call;
  const Form form = formOf<rooted>(rest...);
  const bool inPlace = sent == MPI_IN_PLACE;
  const auto state = std::make_shared<Reduction>(const_cast<void*>(sent), received);
  const Ready ready =
      state->prepare(place.sent != 0 ? sentCount : 0, place.received != 0 ? receivedCount : 0, type,
                     inPlace || place.keeps);
  if (ready == Ready::kLetMpiRefuse || (ready == Ready::kYes && !state->inUse())) {
    return function(sent, received, count, type, op, rest...);
  }
  if (ready == Ready::kFailed) {
    return refuse(form.communicator, kName<call>, state->reason());
  }
  return performCollective(kName<call>, state, form, [&] {
    return function(state->sent(), state->received(), count, type, op, rest...);
  });
}

// Reduce, Allreduce, Scan, Exscan.
template <Layer layer, auto call, Pattern pattern, std::integral Count, typename... Rest>
int reduce(const void* sent, void* received, Count count, MPI_Datatype type, MPI_Op op,
           Rest... rest) {
  constexpr bool kRooted = pattern.root != Pattern::Root::kNone;
  const Form form = formOf<kRooted>(rest...);
  if (!mayStage(form.communicator)) {
    return (next<layer>().*call)(sent, received, count, type, op, rest...);
  }
  return reduceBuffers<layer, call, kRooted>(placeIn(pattern, form.communicator, form.root), sent,
                                             count, received, count, count, type, op, rest...);
}

// The numbers of elements that Reduce_scatter_block and Reduce_scatter receive here (`own`) and
// reduce in all (`all`).
struct Parts {
  MPI_Count own = 0;
  MPI_Count all = 0;
};
template <std::integral Count>
Parts partsOf(Count count, int, int size) {
  return {count, MPI_Count{count} * size};
}
template <std::integral Count>
Parts partsOf(const Count* counts, int rank, int size) {
  Parts parts;
  for (int i = 0; i < size && counts != nullptr; ++i) {
    parts.all += counts[i];
    parts.own = i == rank ? counts[i] : parts.own;
  }
  return parts;
}

template <Layer layer, auto call, Pattern pattern, typename Count, typename... Rest>
int reduceScatter(const void* sent, void* received, Count count, MPI_Datatype type, MPI_Op op,
                  Rest... rest) {
  const Form form = formOf<false>(rest...);
  if (!mayStage(form.communicator)) {
    return (next<layer>().*call)(sent, received, count, type, op, rest...);
  }
  int rank = 0;
  int size = 0;
  (void)real().Comm_rank(form.communicator, &rank);
  (void)real().Comm_size(form.communicator, &size);
  const Parts parts = partsOf(count, rank, size);
  return reduceBuffers<layer, call, false>(placeIn(pattern, form.communicator, 0), sent, parts.all,
                                           received, sent == MPI_IN_PLACE ? parts.all : parts.own,
                                           count, type, op, rest...);
}

template <Layer layer, auto call, typename Count>
int reduceLocal(const void* sent, void* received, Count count, MPI_Datatype type, MPI_Op op) {
  const auto function = next<layer>().*call;
  if (!needsStaging(sent, count, type) && !needsStaging(received, count, type)) {
    return function(sent, received, count, type, op);
  }
  Reduction buffers(const_cast<void*>(sent), received);
  const Ready ready = buffers.prepare(count, count, type, true);
  if (ready == Ready::kLetMpiRefuse) {
    return function(sent, received, count, type, op);
  }
  if (ready == Ready::kFailed || !buffers.pack()) {
    return refuse(MPI_COMM_WORLD, kName<call>, buffers.reason());
  }
  const int code = function(buffers.sent(), buffers.received(), count, type, op);
  return code != MPI_SUCCESS || buffers.deliver({})
             ? code
             : refuse(MPI_COMM_WORLD, kName<call>, buffers.reason());
}

}  // namespace gmac::mpi::GMAC_MPI_ABI

#endif  // GMAC_MPI_ABI_REDUCTION_H_
