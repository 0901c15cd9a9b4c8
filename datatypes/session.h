// SPDX-License-Identifier: Apache-2.0
//
// One run of the program: what it measures on, how often, and where the results go.
#ifndef GMAC_DATATYPES_SESSION_H_
#define GMAC_DATATYPES_SESSION_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datatypes/gpu.h"
#include "datatypes/results.h"

namespace datatypes {

// Rates of contiguous copies, measured once; bytes per microsecond.
struct Rates {
  double device = 0;  // bytes read and bytes written
  double pinned = 0;  // bytes copied into pinned memory
};

// The arguments of every measurement. Not thread-safe; owned by main().
class Session {
 public:
  Session(std::unique_ptr<Gpu> gpu, std::size_t rounds) : gpu_(std::move(gpu)), rounds_(rounds) {}

  bool hasGpu() const { return gpu_ != nullptr; }
  Gpu& gpu() { return *gpu_; }
  std::size_t rounds() const { return rounds_; }
  // For what takes long.
  std::size_t fewRounds() const { return rounds_ < 5 ? rounds_ : 5; }
  const Rates& rates();
  Results& results() { return results_; }

 private:
  const std::unique_ptr<Gpu> gpu_;
  const std::size_t rounds_;
  std::optional<Rates> rates_;
  Results results_;
};

// A part of the program that can be asked for by name.
struct Group {
  std::string name;
  std::string title;
  bool needsGpu;
  std::function<void(Session&)> run;
};
const std::vector<Group>& groups();

// Says on standard error what is measured next.
void announce(const std::string& what);

// Throws Failure that names the way and the first wrong byte. Both have as many bytes.
void requireEqual(const std::string& way, const std::vector<std::byte>& expected,
                  const std::vector<std::byte>& found);

}  // namespace datatypes

#endif  // GMAC_DATATYPES_SESSION_H_
