// SPDX-License-Identifier: Apache-2.0
#ifndef GMAC_DATATYPES_PACK_BENCH_H_
#define GMAC_DATATYPES_PACK_BENCH_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "datatypes/engine.h"
#include "datatypes/session.h"
#include "datatypes/type.h"
#include "datatypes/ways.h"
#include "datatypes/workload.h"

namespace datatypes {

// All the ways to pack one workload from device memory into one place, each of them started
// on the GPU's stream and awaited there. Ways that cannot be had are left out (the engine's own
// choice always can). Not thread-safe; lives within one measurement. Throws Failure.
class PackBench {
 public:
  PackBench(Session& session, Workload workload, Place into);
  PackBench(const PackBench&) = delete;
  PackBench& operator=(const PackBench&) = delete;

  void engine(const std::string& name, Manner manner = {});
  // The kernel written by hand; and into device memory first, and copied from there.
  void hand(const std::string& name);
  void handStaged(const std::string& name);
  // CUDA's strided copies.
  void copies(const std::string& name);
  // One plain copy for each piece, unless there are more than `most`.
  void piecewise(const std::string& name, std::int64_t most);
  // Packs and then unpacks into another array; through the target, or first from device memory to
  // the target and back. Checked by what arrives there.
  void roundTrip(const std::string& name, Manner manner, bool throughDevice);
  void roundTripOfCopies(const std::string& name, bool throughDevice);
  // As many contiguous bytes, unchecked; and an empty kernel.
  void copy(const std::string& name);
  void empty(const std::string& name);

  // Runs each way once on a cleared target and compares all bytes; then times them in turns.
  Times measure(std::size_t rounds);

  const Type& type() const { return type_; }
  const Workload& workload() const { return workload_; }
  // The engine's own choice.
  adsmPackReport_t report();

 private:
  enum class Result { kTarget, kScratch, kNone };
  void add(const std::string& name, Result result, std::function<void()> start);
  void checkAll();

  Session& session_;
  Gpu& gpu_;
  const Workload workload_;
  const Place into_;
  const Type type_;
  const std::byte* source_;
  std::byte* target_;
  std::vector<Way> ways_;
  std::vector<Result> results_;  // of each way
};

}  // namespace datatypes

#endif  // GMAC_DATATYPES_PACK_BENCH_H_
