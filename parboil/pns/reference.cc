// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "parboil/comparison.h"
#include "parboil/parallel.h"
#include "parboil/pns/pns.h"

namespace parboil::pns {
namespace {

// Plays one run without keeping its trajectory. Proposals are looked at in the order of the
// threads, so a conflict shows as a place that an earlier proposer wants. Not thread-safe.
class Player {
 public:
  Player(const Transition* net, const std::int32_t* initial, const Simulation& simulation,
         std::uint32_t run)
      : net_(net),
        simulation_(simulation),
        run_(run),
        marking_(initial, initial + simulation.places),
        wantedIn_(simulation.places, 0) {}

  const std::vector<std::int32_t>& marking() const { return marking_; }

  // Returns the number of transitions fired.
  std::uint32_t step() {
    const std::uint32_t now = step_++;
    winners_.clear();
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
      const Transition& transition = net_[draw(run_, now, thread, simulation_.transitions)];
      bool enabled = true;
      bool first = true;
      for (const Arc& arc : transition.inputs) {
        if (arc.weight == 0) continue;
        enabled = enabled && marking_[arc.place] >= arc.weight;
        first = first && wantedIn_[arc.place] != now + 1;
      }
      if (!enabled) continue;
      for (const Arc& arc : transition.inputs) {
        if (arc.weight != 0) wantedIn_[arc.place] = now + 1;
      }
      if (first) winners_.push_back(&transition);
    }
    for (const Transition* transition : winners_) {
      for (const Arc& arc : transition->inputs) marking_[arc.place] -= arc.weight;
      for (const Arc& arc : transition->outputs) marking_[arc.place] += arc.weight;
    }
    return static_cast<std::uint32_t>(winners_.size());
  }

 private:
  const Transition* net_;
  const Simulation& simulation_;
  const std::uint32_t run_;
  std::uint32_t step_ = 0;
  std::vector<std::int32_t> marking_;
  std::vector<std::uint32_t> wantedIn_;  // 1 + the last step in which the place was proposed
  std::vector<const Transition*> winners_;
};

}  // namespace

// Plays the run twice, first to find where its steady state begins, then to measure it: no memory
// for a trajectory, and another algorithm than the kernels'.
Outcome simulate(const Transition* net, const std::int32_t* initial, const Simulation& simulation,
                 std::uint32_t run) {
  std::vector<std::uint64_t> fired(simulation.steps);
  std::uint64_t total = 0;
  Player rehearsal(net, initial, simulation, run);
  for (std::uint64_t& count : fired) total += count = rehearsal.step();
  std::uint32_t begin = 0;
  while (fired[begin] * simulation.steps < total) ++begin;

  Player player(net, initial, simulation, run);
  for (std::uint32_t step = 0; step < begin; ++step) player.step();
  std::vector<std::uint64_t> sum(simulation.places);
  std::vector<std::uint64_t> squares(simulation.places);
  std::int32_t peak = 0;
  for (std::uint32_t step = begin; step < simulation.steps; ++step) {
    player.step();
    for (std::uint32_t p = 0; p < simulation.places; ++p) {
      const std::int32_t tokens = player.marking()[p];
      sum[p] += static_cast<std::uint32_t>(tokens);
      squares[p] += static_cast<std::uint32_t>(tokens * tokens);
      peak = std::max(peak, tokens);
    }
  }
  const std::uint64_t measured = simulation.steps - begin;
  std::uint64_t spread = 0;
  for (std::uint32_t p = 0; p < simulation.places; ++p)
    spread += measured * squares[p] - sum[p] * sum[p];
  return {meanVariance(spread, measured, simulation.places), peak};
}

namespace {

std::vector<Outcome> reference(const Context& context) {
  const Parameters size = parameters(context.size);
  const Simulation simulation{size.places, size.transitions, size.steps, 0};
  std::vector<Outcome> outcomes(std::size_t{size.launches} * kRunsPerLaunch);
  const std::size_t bytes = outcomes.size() * sizeof(Outcome);
  const auto path = dataPath(context, "pns", "ref");
  if (isCurrent(path, kReference, context.size)) {
    InputFile(path, kReference, context.size).read(outcomes.data(), bytes);
    return outcomes;
  }
  std::vector<Transition> net(size.transitions);
  std::vector<std::int32_t> initial(size.places);
  InputFile input(dataPath(context, "pns", "in"), kInput, context.size);
  input.read(net.data(), net.size() * sizeof(Transition));
  input.read(initial.data(), initial.size() * sizeof(std::int32_t));
  parallelFor(outcomes.size(), [&](std::size_t run) {
    outcomes[run] =
        simulate(net.data(), initial.data(), simulation, static_cast<std::uint32_t>(run));
  });
  OutputFile file(path, kReference, context.size);
  file.write(outcomes.data(), bytes);
  file.commit();
  return outcomes;
}

}  // namespace

// Tolerance: none. Everything but one correctly rounded division is done in integers.
Check check(const Context& context) {
  const std::vector<Outcome> want = reference(context);
  InputFile output(dataPath(context, "pns", "out"), kOutput, context.size);
  Comparison values(0, 0);
  for (std::size_t first = 0; first < want.size(); first += kRunsPerLaunch) {
    float variance[kRunsPerLaunch];
    std::int32_t peak[kRunsPerLaunch];
    output.read(variance, sizeof variance);
    output.read(peak, sizeof peak);
    for (unsigned i = 0; i < kRunsPerLaunch; ++i) {
      values.add(variance[i], want[first + i].variance);
      values.add(peak[i], want[first + i].peak);
    }
  }
  return values.result();
}

}  // namespace parboil::pns
