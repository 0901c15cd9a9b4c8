// SPDX-License-Identifier: Apache-2.0
//
// Calls on several devices: the scheduler's assignment beside the best fixed one.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "bench/interleaved.h"
#include "bench/measure.h"
#include "gmac/api/adsm.h"

namespace gmac::bench {
namespace {

// Rounds of arithmetic, each of which needs the one before.
void chainOnHost(const adsmThreadBlock_t*, void** args) {
  auto* const data = *static_cast<std::uint32_t**>(args[0]);
  const auto rounds = *static_cast<std::uint64_t*>(args[1]);
  std::uint32_t x = *data;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    x = x * 1664525 + 1013904223;
  }
  *data = x;
}

// Kernels that share nothing; their lengths are as no assignment to devices would have them.
class Chains {
 public:
  static constexpr std::array<std::uint64_t, 6> kLengths{20, 17, 12, 10, 8, 6};
  static constexpr std::size_t kObjectBytes = std::size_t{64} << 10;

  explicit Chains(std::uint64_t unit) {
    for (const std::uint64_t length : kLengths) {
      const adsmKernel_t kernel =
          makeKernel("chain", {sizeof(void*), sizeof(std::uint64_t)}, &chainOnHost);
      chains_.push_back({kernel, checkedAlloc(kObjectBytes), length * unit});
    }
  }
  ~Chains() {
    for (const Chain& chain : chains_) {
      (void)adsmKernelDestroy(chain.kernel);
      (void)adsmFree(chain.object);
    }
  }
  Chains(const Chains&) = delete;
  Chains& operator=(const Chains&) = delete;

  static constexpr std::size_t count() { return kLengths.size(); }
  // Where the scheduler says.
  void call(std::size_t i) {
    withArguments(i, [&](Chain& chain, void** args, const adsmUse_t* use) {
      check(adsmCallUsing(chain.kernel, {1, 1, 1}, {1, 1, 1}, 0, args, use, 1), "adsmCallUsing");
    });
  }
  void callOn(int device, std::size_t i) {
    withArguments(i, [&](Chain& chain, void** args, const adsmUse_t* use) {
      check(adsmCallOn(device, chain.kernel, {1, 1, 1}, {1, 1, 1}, 0, args, use, 1), "adsmCallOn");
    });
  }

 private:
  struct Chain {
    adsmKernel_t kernel;
    void* object;
    std::uint64_t rounds;
  };
  template <typename Function>
  void withArguments(std::size_t i, Function function) {
    Chain& chain = chains_[i];
    void* args[] = {&chain.object, &chain.rounds};
    const adsmUse_t use{chain.object, adsmReadWrite};
    function(chain, args, &use);
  }

  std::vector<Chain> chains_;
};

// Which device each kernel runs on, so that the last one ends as early as it can.
std::vector<int> bestAssignment(const std::vector<double>& lengths, int devices) {
  std::vector<int> best;
  double least = 0;
  std::vector<int> assignment(lengths.size(), 0);
  for (bool more = true; more;) {
    std::vector<double> loads(static_cast<std::size_t>(devices), 0);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      loads[static_cast<std::size_t>(assignment[i])] += lengths[i];
    }
    const double most = *std::max_element(loads.begin(), loads.end());
    if (best.empty() || most < least) {
      best = assignment;
      least = most;
    }
    std::size_t digit = 0;
    while (digit < assignment.size() && ++assignment[digit] == devices) {
      assignment[digit++] = 0;
    }
    more = digit < assignment.size();
  }
  return best;
}

// {unit, rounds}: six kernels of different lengths (in units of arithmetic), none of which needs
// another one; seconds until all have ended, with the scheduler's choice and with the best fixed
// assignment. "devices": how many there are; nothing else where it is one.
json deviceCalls(const json& parameters) {
  int devices = 0;
  check(adsmDeviceCount(&devices), "adsmDeviceCount");
  if (devices == 1) {
    return {{"devices", devices}};
  }
  Chains chains(parameters["unit"].get<std::uint64_t>());
  const auto seconds = [&](auto calls) {
    const Stopwatch watch;
    calls();
    check(adsmSync(), "adsmSync");
    return watch.seconds();
  };
  // Alone, on each device: so the scheduler learns, too.
  std::vector<double> lengths;
  for (std::size_t i = 0; i < Chains::count(); ++i) {
    double length = 0;
    for (int turn = 0; turn < 2; ++turn) {
      for (int device = 0; device < devices; ++device) {
        length = seconds([&] { chains.callOn(device, i); });
      }
    }
    lengths.push_back(length);
  }
  const std::vector<int> best = bestAssignment(lengths, devices);
  const Interleaved turns(2, parameters["rounds"], [&](std::size_t way) {
    return seconds([&] {
      for (std::size_t i = 0; i < Chains::count(); ++i) {
        way == 0 ? chains.call(i) : chains.callOn(best[i], i);
      }
    });
  });
  return {{"devices", devices},
          {"scheduled", turns.seconds(0)},
          {"best", turns.seconds(1)},
          {"ratio", turns.ratio(0, 1)}};
}
const Registration kDeviceCalls("deviceCalls", &deviceCalls);

}  // namespace
}  // namespace gmac::bench
