// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "parboil/pns/pns.h"
#include "parboil/random.h"

namespace parboil::pns {

void makeNet(std::uint64_t seed, const Parameters& size, Transition* net, std::int32_t* initial) {
  Random random(seed);
  const std::uint32_t resources = size.places / 16;
  const std::uint32_t ordinary = size.places - resources;
  for (std::uint32_t t = 0; t < size.transitions; ++t) {
    Transition& transition = net[t];
    transition = {};
    const auto tokens = static_cast<std::uint16_t>(1 + random.below(2));
    transition.inputs[0] = {static_cast<std::uint16_t>(resources + t % ordinary), tokens};
    for (std::uint16_t token = 0; token < tokens; ++token) {
      transition.outputs[token] = {static_cast<std::uint16_t>(resources + random.below(ordinary)),
                                   1};
    }
    if (random.below(2) == 0) continue;
    const Arc resource{static_cast<std::uint16_t>(random.below(resources)), 1};
    transition.inputs[1] = resource;
    transition.outputs[2] = resource;
  }
  for (std::uint32_t p = 0; p < size.places; ++p)
    initial[p] = p < resources ? 1 : p < resources + ordinary / 8 ? 32 : 0;
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
