// SPDX-License-Identifier: Apache-2.0
#include "datatypes/pack_bench.h"

#include <algorithm>
#include <utility>

namespace datatypes {
namespace {

Type committed(Type type) {
  type.commit();
  return type;
}

}  // namespace

PackBench::PackBench(Session& session, Workload workload, Place into)
    : session_(session),
      gpu_(session.gpu()),
      workload_(std::move(workload)),
      into_(into),
      type_(committed(workload_.type())),
      source_(gpu_.source(std::max(workload_.extent, workload_.bytes))),
      target_(gpu_.target(into, workload_.bytes)) {
  gpu_.prepare(workload_.hand);
}

void PackBench::add(const std::string& name, Result result, std::function<void()> start) {
  ways_.push_back({name,
                   [this, start = std::move(start)] {
                     start();
                     gpu_.synchronize();
                   },
                   {}});
  results_.push_back(result);
}

void PackBench::engine(const std::string& name, Manner manner) {
  manner.stream = gpu_.stream();
  const bool had = pack(target_, source_, type_, manner);
  gpu_.synchronize();
  if (!had) return;
  add(name, Result::kTarget, [this, manner] { (void)pack(target_, source_, type_, manner); });
}

void PackBench::hand(const std::string& name) {
  add(name, Result::kTarget, [this] { gpu_.pack(workload_.hand, target_, source_); });
}

void PackBench::handStaged(const std::string& name) {
  std::byte* const device = gpu_.target(Place::kDevice, workload_.bytes);
  add(name, Result::kTarget, [this, device] {
    gpu_.pack(workload_.hand, device, source_);
    gpu_.copy(target_, device, workload_.bytes);
  });
}

void PackBench::copies(const std::string& name) {
  const auto all = [this] {
    return std::all_of(workload_.copies.begin(), workload_.copies.end(),
                       [this](const StridedCopy& shape) {
                         return gpu_.copyStrided(shape, target_, source_, false);
                       });
  };
  if (workload_.copies.empty() || !all()) return;
  add(name, Result::kTarget, [all] { (void)all(); });
}

void PackBench::piecewise(const std::string& name, std::int64_t most) {
  if (pieceCount(workload_) > most) return;
  add(name, Result::kTarget, [this] {
    std::byte* to = target_;
    workload_.pieces([&](std::int64_t offset, std::int64_t bytes) {
      gpu_.copy(to, source_ + offset, bytes);
      to += bytes;
    });
  });
}

void PackBench::roundTrip(const std::string& name, Manner manner, bool throughDevice) {
  manner.stream = gpu_.stream();
  std::byte* const scratch = gpu_.scratch(workload_.extent);
  std::byte* const device = throughDevice ? gpu_.target(Place::kDevice, workload_.bytes) : target_;
  const bool had = pack(device, source_, type_, manner) && unpack(scratch, device, type_, manner);
  gpu_.synchronize();
  if (!had) return;
  add(name, Result::kScratch, [=, this] {
    (void)pack(device, source_, type_, manner);
    if (throughDevice) {
      gpu_.copy(target_, device, workload_.bytes);
      gpu_.copy(device, target_, workload_.bytes);
    }
    (void)unpack(scratch, device, type_, manner);
  });
}

void PackBench::roundTripOfCopies(const std::string& name, bool throughDevice) {
  if (workload_.copies.empty()) return;
  std::byte* const scratch = gpu_.scratch(workload_.extent);
  std::byte* const device = throughDevice ? gpu_.target(Place::kDevice, workload_.bytes) : target_;
  add(name, Result::kScratch, [=, this] {
    for (const StridedCopy& shape : workload_.copies) {
      (void)gpu_.copyStrided(shape, device, source_, false);
    }
    if (throughDevice) {
      gpu_.copy(target_, device, workload_.bytes);
      gpu_.copy(device, target_, workload_.bytes);
    }
    for (const StridedCopy& shape : workload_.copies) {
      (void)gpu_.copyStrided(shape, scratch, device, true);
    }
  });
}

void PackBench::copy(const std::string& name) {
  add(name, Result::kNone, [this] { gpu_.copy(target_, source_, workload_.bytes); });
}

void PackBench::empty(const std::string& name) {
  add(name, Result::kNone, [this] { gpu_.nothing(); });
}

void PackBench::checkAll() {
  const std::vector<std::byte> expected = packedPattern(workload_);
  std::vector<std::byte> found(expected.size());
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    if (results_[i] == Result::kNone) continue;
    gpu_.clear(target_, workload_.bytes);
    if (results_[i] == Result::kScratch) {
      gpu_.clear(gpu_.scratch(workload_.extent), workload_.extent);
    }
    ways_[i].run();
    if (results_[i] == Result::kScratch) {
      gpu_.clear(target_, workload_.bytes);
      gpu_.pack(workload_.hand, target_, gpu_.scratch(workload_.extent));
    }
    gpu_.read(found.data(), target_, workload_.bytes);
    requireEqual(ways_[i].name, expected, found);
  }
}

Times PackBench::measure(std::size_t rounds) {
  checkAll();
  return Times(ways_, rounds);
}

adsmPackReport_t PackBench::report() {
  adsmPackReport_t report{};
  (void)pack(target_, source_, type_, {.stream = gpu_.stream()}, &report);
  gpu_.synchronize();
  return report;
}

}  // namespace datatypes
