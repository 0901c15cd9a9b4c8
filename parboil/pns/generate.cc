// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "parboil/pns/pns.h"
#include "parboil/random.h"

namespace parboil::pns {

void makeNet(std::uint64_t seed, const Parameters& size, Transition* net, std::int32_t* initial) {
  Random random(seed);
  const auto anyPlace = [&] { return static_cast<std::uint16_t>(random.below(size.places)); };
  for (std::uint32_t t = 0; t < size.transitions; ++t) {
    Transition& transition = net[t];
    transition = {};
    // A quarter of the transitions join two or three places, the others move tokens of one. Each
    // place is the first input of some transition (given as many transitions as places), so that
    // tokens are not trapped for good.
    const unsigned inputs = random.below(4) == 0 ? 2 + random.below(2) : 1;
    unsigned tokens = 0;
    for (unsigned i = 0; i < inputs; ++i) {
      std::uint16_t place = i == 0 ? static_cast<std::uint16_t>(t % size.places) : anyPlace();
      const auto taken = [&](const Arc& arc) { return arc.weight != 0 && arc.place == place; };
      while (std::any_of(transition.inputs, transition.inputs + i, taken)) place = anyPlace();
      const auto weight = static_cast<std::uint16_t>(1 + random.below(2));
      transition.inputs[i] = {place, weight};
      tokens += weight;
    }
    for (unsigned i = 0; i < kArcs && tokens > 0; ++i) {
      const unsigned weight = i + 1 == kArcs ? tokens : 1 + random.below(tokens);
      transition.outputs[i] = {anyPlace(), static_cast<std::uint16_t>(weight)};
      tokens -= weight;
    }
  }
  const std::uint32_t crowded = (size.places + 7) / 8;
  for (std::uint32_t p = 0; p < size.places; ++p) initial[p] = p < crowded ? 32 : 0;
}

void generate(const Context& context) {
  const auto path = dataPath(context, "pns", "in");
  if (isCurrent(path, kInput, context.size)) return;
  const Parameters size = parameters(context.size);
  std::vector<Transition> net(size.transitions);
  std::vector<std::int32_t> initial(size.places);
  makeNet(1962, size, net.data(), initial.data());
  OutputFile file(path, kInput, context.size);
  file.write(net.data(), net.size() * sizeof(Transition));
  file.write(initial.data(), initial.size() * sizeof(std::int32_t));
  file.commit();
}

}  // namespace parboil::pns
