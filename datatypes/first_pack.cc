// SPDX-License-Identifier: Apache-2.0
#include "datatypes/first_pack.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "bench/median.h"
#include "datatypes/engine.h"
#include "datatypes/failure.h"
#include "datatypes/session.h"
#include "datatypes/type.h"

namespace datatypes {

Workload firstPackWorkload(Place into) {
  return vector(8, 512, into == Place::kDevice ? 64 * kMiB : 64 * kKiB);
}

FirstPack measureFirstPack(Gpu& gpu, Place into) {
  const Workload workload = firstPackWorkload(into);
  const std::byte* const source = gpu.source(workload.extent);
  std::byte* const target = gpu.target(into, workload.bytes);
  const auto timed = [&](std::byte* to, const Type& type) {
    gpu.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    (void)pack(to, source, type, {.stream = gpu.stream()});
    gpu.synchronize();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count();
  };
  // Costs of any first pack: the runtime starts and the driver loads the kernels.
  const Workload small = vector(8, 512, 8 * kKiB);
  const Type other = small.type();
  other.commit();
  (void)timed(gpu.target(Place::kDevice, workload.bytes), other);

  const Type type = workload.type();
  type.commit();
  gpu.clear(target, workload.bytes);
  FirstPack result;
  result.first = timed(target, type);
  std::vector<std::byte> found(static_cast<std::size_t>(workload.bytes));
  gpu.read(found.data(), target, workload.bytes);
  requireEqual("the first pack", packedPattern(workload), found);
  constexpr std::size_t kLater = 11;
  std::vector<double> later;
  while (later.size() < kLater) later.push_back(timed(target, type));
  result.later = gmac::bench::median(later);
  return result;
}

FirstPack firstPackOfNewProcess(Place into) {
  const std::string command = fmt::format("/proc/{}/exe --first-pack {}", ::getpid(),
                                          into == Place::kDevice ? "device" : "pinned");
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) throw Failure(fmt::format("{} cannot be started", command));
  FirstPack result;
  const int read = std::fscanf(output, "%lf %lf", &result.first, &result.later);
  const int status = ::pclose(output);
  if (read != 2 || status != 0) {
    throw Failure(fmt::format("{} ended with status {}", command, status));
  }
  return result;
}

}  // namespace datatypes
