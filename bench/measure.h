// SPDX-License-Identifier: Apache-2.0
//
// Measurements: functions from parameters to figures, each run in a process of its own, because a
// process reads its GMAC_* variables once and because one measurement must not inherit another's
// memory. What is compared with each other is measured in turns inside one such process.
#ifndef GMAC_BENCH_MEASURE_H_
#define GMAC_BENCH_MEASURE_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/median.h"
#include "gmac/api/adsm.h"

namespace gmac::bench {

using nlohmann::json;
using Environment = std::map<std::string, std::string>;
using Measure = json (*)(const json& parameters);

// Registers a measurement under a name while it is constructed; for namespace scope.
class Registration {
 public:
  Registration(const char* name, Measure measure);
};

// Runs a registered measurement in this process. Throws std::runtime_error for an unknown name or
// what fails in it.
json measureHere(const std::string& name, const json& parameters);

// The same in a new process of this program, whose GMAC_* variables are exactly `environment`.
// Throws std::runtime_error when the process fails; its own words have gone to standard error then.
json measureInChild(const std::string& name, const json& parameters,
                    const Environment& environment);

// A registered measurement that runs rounds on demand, in a process as measureInChild() has: for
// alternatives that need a process each and are measured in turns. Its process starts at once; what
// is set up before the first round is waited for by the first turn().
class TurnsInChild {
 public:
  TurnsInChild(const std::string& name, const json& parameters, const Environment& environment);
  ~TurnsInChild();
  TurnsInChild(const TurnsInChild&) = delete;
  TurnsInChild& operator=(const TurnsInChild&) = delete;
  // Seconds of one round. Throws std::runtime_error when the process has failed.
  double turn();

 private:
  const std::string what_;
  pid_t child_ = -1;
  std::FILE* requests_ = nullptr;
  std::FILE* answers_ = nullptr;
};

// The measurement's side: runs `round`, which returns seconds, whenever it is asked to, until the
// asking process ends it.
void serveTurns(const std::function<double()>& round);

// Throws std::runtime_error with the runtime's last error when `error` is one.
void check(adsmError_t error, const char* what);
// A kernel of kernels.cu, with that function for `host`; NULL: there is none.
adsmKernelDesc_t describeKernel(const char* name, std::span<const std::size_t> paramSizes,
                                adsmHostKernel_t host);
// The same, created; throws likewise.
adsmKernel_t makeKernel(const char* name, std::initializer_list<std::size_t> paramSizes,
                        adsmHostKernel_t host);
// The allocated object; throws likewise.
void* checkedAlloc(std::size_t bytes);

// Seconds since construction, on the monotonic clock.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace gmac::bench

#endif  // GMAC_BENCH_MEASURE_H_
