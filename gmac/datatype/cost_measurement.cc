// SPDX-License-Identifier: Apache-2.0
//
// Measures what the ways across the bus cost.
#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/datatype/costs.h"
#include "gmac/datatype/measured_values.h"
#include "gmac/datatype/rounds.h"

namespace gmac::datatype {
namespace {

constexpr int kRounds = 9;

// Role: one device's stopwatch. For the stack.
class Meter {
 public:
  Meter(Device& device, StagingSlot slot) : device_(device), slot_(std::move(slot)) {}

  // A device and a bus that had nothing to do are slow for a while.
  Status warmUp(std::int64_t bytes) {
    for (int i = 0; i < 4; ++i) {
      GMAC_TRY(kernel(Direction::kPack, 1, bytes, bytes).status());
      GMAC_TRY(plain(static_cast<std::size_t>(bytes)).status());
    }
    return {};
  }

  // Microseconds until what `work` submits is over: the least of some rounds.
  template <typename Function>
  Result<double> time(Function work) {
    Commands commands(std::move(work));
    return least([&]() -> Status {
      GMAC_TRY(device_.submit(std::nullopt, commands).status());
      // As a program waits for a stream: kernels that write the CPU's memory end later then than
      // their events say.
      return device_.waitForStreams();
    });
  }

  // A kernel between `rows` pieces in device memory and pinned memory.
  Result<double> kernel(Direction direction, std::int64_t rows, std::int64_t bytes,
                        std::int64_t stride) {
    auto layout = Layout::make({{rows, stride}}, {{0, bytes}});
    if (!layout.ok()) {
      return layout.status();
    }
    const DevicePlan plan(*layout);
    DeviceJob job;
    job.direction = direction;
    job.strided = slot_.device();
    job.packed = reinterpret_cast<std::uint64_t>(slot_.pinned());
    job.bytes = layout->bytes();
    return time([&](DeviceQueue& queue) {
      return plan.launches(job, [&](const DeviceLaunch& launch) { return queue.launch(launch); });
    });
  }
  Result<double> strided(std::int64_t rows, std::int64_t bytes, std::int64_t pitch) {
    StridedCopy copy;
    copy.strided = slot_.device();
    copy.packed = reinterpret_cast<std::uint64_t>(slot_.pinned());
    copy.rowBytes = bytes;
    copy.rows = rows;
    copy.pitch = pitch;
    copy.slicePitch = rows * pitch;
    copy.packedOnCpu = true;
    return time([&](DeviceQueue& queue) { return queue.copyStrided(copy); });
  }
  Result<double> plain(std::size_t bytes) {
    return time(
        [&](DeviceQueue& queue) { return queue.copyOut(slot_.pinned(), slot_.device(), bytes); });
  }
  // A kernel, and a copy behind it, as a step of the pipeline has them.
  Result<double> step(std::int64_t bytes) {
    auto layout = Layout::make({}, {{0, bytes}});
    if (!layout.ok()) {
      return layout.status();
    }
    const DevicePlan plan(*layout);
    DeviceJob job;
    job.strided = slot_.device();
    job.packed = slot_.device() + Staging::kSlotBytes / 2;
    job.bytes = bytes;
    accel::Accelerator& accelerator = device_.accelerator();
    Commands commands([&](DeviceQueue& queue) {
      return plan.launches(job, [&](const DeviceLaunch& launch) { return queue.launch(launch); });
    });
    return least([&]() -> Status {
      auto packed = device_.submit(std::nullopt, commands);
      if (!packed.ok()) {
        return packed.status();
      }
      auto copied = accelerator.copyOut(slot_.pinned(), accel::DeviceAddress{job.packed},
                                        static_cast<std::size_t>(bytes), *packed);
      return copied.ok() ? accelerator.wait(*copied) : copied.status();
    });
  }

 private:
  static Result<double> least(const std::function<Status()>& round) {
    auto times = timeRounds(kRounds, round);
    return times.ok() ? Result<double>(times->least) : times.status();
  }

  Device& device_;
  StagingSlot slot_;
};

}  // namespace

Result<Costs> measureCosts(Device& device, Staging& staging) {
  auto slot = staging.take();
  if (!slot.ok()) {
    return slot.status();
  }
  Meter meter(device, std::move(*slot));
  constexpr std::int64_t kFew = 4096;
  // A rate is of what the second of them takes longer than the first: by then it is steady.
  constexpr auto kMany = static_cast<std::int64_t>(Staging::kSlotBytes);
  constexpr std::int64_t kSome = kMany / 4;
  constexpr std::int64_t kRows = 16384;  // of 64 bytes, 128 apart
  // Strided copies whose rows are so long that only bytes count.
  constexpr std::int64_t kLongPitch = 64 << 10;
  constexpr std::int64_t kLongRow = kLongPitch - 512;
  Costs costs;
  const auto rate = [](std::int64_t bytes, double many, double some) {
    return static_cast<double>(bytes) / std::max(many - some, 0.1);
  };
#define GMAC_MEASURE(name, what) \
  auto name##Made = what;        \
  if (!name##Made.ok()) {        \
    return name##Made.status();  \
  }                              \
  const double name = *name##Made
  GMAC_TRY(meter.warmUp(kMany));
  GMAC_MEASURE(launch, meter.kernel(Direction::kPack, kFew / 8, 8, 128));
  GMAC_MEASURE(writeSome, meter.kernel(Direction::kPack, 1, kSome, kSome));
  GMAC_MEASURE(writeMany, meter.kernel(Direction::kPack, 1, kMany, kMany));
  GMAC_MEASURE(readFew, meter.kernel(Direction::kUnpack, kFew / 8, 8, 128));
  GMAC_MEASURE(readSome, meter.kernel(Direction::kUnpack, 1, kSome, kSome));
  GMAC_MEASURE(readMany, meter.kernel(Direction::kUnpack, 1, kMany, kMany));
  GMAC_MEASURE(copy, meter.plain(kFew));
  GMAC_MEASURE(copySome, meter.plain(static_cast<std::size_t>(kSome)));
  GMAC_MEASURE(copyMany, meter.plain(static_cast<std::size_t>(kMany)));
  GMAC_MEASURE(copy2d, meter.strided(16, 64, 128));
  GMAC_MEASURE(copy2dRows, meter.strided(kRows, 64, 128));
  GMAC_MEASURE(copy2dSome, meter.strided(kSome / kLongPitch, kLongRow, kLongPitch));
  GMAC_MEASURE(copy2dMany, meter.strided(kMany / kLongPitch, kLongRow, kLongPitch));
  GMAC_MEASURE(step, meter.step(kFew));
#undef GMAC_MEASURE
  costs.launch = launch;
  costs.readLaunch = readFew;
  costs.zeroCopyRate = rate(kMany - kSome, writeMany, writeSome);
  costs.zeroCopyReadRate = rate(kMany - kSome, readMany, readSome);
  costs.copy = copy;
  costs.copyRate = rate(kMany - kSome, copyMany, copySome);
  costs.copy2d = copy2d;
  costs.copy2dRow = std::max(0.0, copy2dRows - copy2d) / kRows;
  costs.copy2dRate = rate((kMany - kSome) / kLongPitch * kLongRow, copy2dMany, copy2dSome);
  costs.staged = std::max(0.0, step - launch - copy);
  return costs;
}

Costs costsOf(Device& device, Staging& staging) {
  Costs costs;
  if (!device.kernelsReachPinned()) {
    return costs;  // one way only
  }
  const MeasuredFile file(device.accelerator().deviceName(), "pack_costs", "gmac pack costs 5");
#define GMAC_PACK_COST(member, usual) MeasuredValue{#member, &costs.member},
  const auto values = std::to_array<MeasuredValue>({GMAC_PACK_COSTS(GMAC_PACK_COST)});
#undef GMAC_PACK_COST
  if (file.read(values)) {
    return costs;
  }
  auto measured = measureCosts(device, staging);
  if (!measured.ok()) {
    log(LogLevel::kInfo, "the costs of packing on {} are not measured: {}",
        device.accelerator().deviceName(), lastErrorText());
    return Costs();
  }
  costs = *measured;
  file.write(values);
  return costs;
}

}  // namespace gmac::datatype
