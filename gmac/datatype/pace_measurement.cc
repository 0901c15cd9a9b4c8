// SPDX-License-Identifier: Apache-2.0
#include "gmac/datatype/pace_measurement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "gmac/base/log.h"
#include "gmac/datatype/device_plan.h"
#include "gmac/datatype/measured_values.h"
#include "gmac/datatype/rounds.h"

namespace gmac::datatype {
namespace {

constexpr std::int64_t kSpan = std::int64_t{1} << 30;  // of the rows, far more than caches hold
constexpr std::int64_t kRow = 8;                       // bytes
constexpr std::int64_t kRows = kSpan / RowPace::kMostStride;

// Role: one device's stopwatch, with memory to pack from and to. For the stack.
class Meter {
 public:
  Meter(Device& device, const Multiprocessors& processors)
      : device_(device), processors_(processors) {}
  ~Meter() {
    if (memory_ != 0) {
      device_.free(memory_, kMemory);
    }
  }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  Status begin() {
    auto memory = device_.allocate(kMemory);
    if (!memory.ok()) {
      return memory.status();
    }
    memory_ = *memory;
    // A device that had nothing to do runs at a lower clock for a while.
    for (int i = 0; i < 50; ++i) {
      GMAC_TRY(time(kRows, 1, nullptr).status());
    }
    return {};
  }

  // What a byte costs that is read or written in order, in cycles of each multiprocessor.
  Result<double> byte() {
    constexpr std::size_t kCopied = kSpan / 2;
    const auto copy = [&](std::size_t bytes) {
      return medianOf(kRounds, [&, bytes](DeviceQueue& queue) {
        return queue.copyWithin(memory_ + kCopied, memory_, bytes);
      });
    };
    auto few = copy(1);
    auto many = copy(kCopied);
    if (!few.ok() || !many.ok()) {
      return few.ok() ? many.status() : few.status();
    }
    return (*many - *few) * processors_.cyclesPerMicrosecond * processors_.count /
           (2.0 * static_cast<double>(kCopied));
  }

  // What a row costs, asked for at the pace at which a pack is over first; 0: a pace gains nothing
  // worth having.
  Result<double> row() {
    auto plain = time(kRows, kRounds, nullptr);
    auto empty = time(1, kRounds, nullptr);
    if (!plain.ok() || !empty.ok()) {
      return plain.ok() ? empty.status() : plain.status();
    }
    const double asItComes = (*plain - *empty) * processors_.cyclesPerMicrosecond *
                             processors_.count / static_cast<double>(kRows);
    // Faster and faster, to where memory does not keep up.
    constexpr int kPaces = 16;
    std::array<double, kPaces> costs{};
    std::array<double, kPaces> times{};
    for (std::size_t i = 0; i < kPaces; ++i) {
      costs[i] = asItComes * (1 - 0.025 * static_cast<double>(i));
      RowPace pace;
      pace.multiprocessors = processors_.count;
      pace.row = costs[i];
      pace.byte = kNothing;
      auto took = time(kRows, kRounds, &pace);
      if (!took.ok()) {
        return took.status();
      }
      times[i] = *took;
      log(LogLevel::kDebug, "{} rows of {} bytes, one every {:.3f} cycles: {:.1f} us", kRows, kRow,
          costs[i], *took);
    }
    auto again = time(kRows, kRounds, nullptr);
    if (!again.ok()) {
      return again.status();
    }
    if (std::abs(*again - *plain) > kSteady * *plain) {
      return fail(adsmErrorSystem, "the same pack took {:.1f} and {:.1f} us: others use the device",
                  *plain, *again);
    }
    const double best = *std::min_element(times.begin(), times.end());
    if (best > kWorthIt * *plain) {
      return 0.0;
    }
    const auto* const found =
        std::find_if(times.begin(), times.end(), [&](double time) { return time < kSame * best; });
    return kAhead * costs[static_cast<std::size_t>(found - times.begin())];
  }

 private:
  static constexpr int kRounds = 11;
  static constexpr std::int64_t kPacked = kRows * kRow;
  static constexpr std::size_t kMemory = kSpan + kPacked;
  static constexpr double kNothing = 1e-9;
  static constexpr double kSame = 1.01;
  static constexpr double kSteady = 0.15;
  static constexpr double kWorthIt = 0.96;
  // A pack that memory cannot quite follow loses less than one that it waits for.
  static constexpr double kAhead = 0.97;

  // Microseconds until a pack of so many rows is over.
  Result<double> time(std::int64_t rows, int rounds, const RowPace* pace) {
    auto layout = Layout::make({{rows, kSpan / kRows}}, {{0, kRow}});
    if (!layout.ok()) {
      return layout.status();
    }
    const DevicePlan plan(*layout);
    DeviceJob job;
    job.strided = memory_;
    job.packed = memory_ + kSpan;
    job.bytes = layout->bytes();
    job.pace = pace;
    return medianOf(rounds, [&](DeviceQueue& queue) {
      return plan.launches(job, [&](const DeviceLaunch& launch) { return queue.launch(launch); });
    });
  }

  // Microseconds until what `function` submits is over.
  template <typename Function>
  Result<double> medianOf(int rounds, Function function) {
    Commands commands(std::move(function));
    auto times = timeRounds(rounds, [&]() -> Status {
      auto ticket = device_.submit(std::nullopt, commands);
      if (!ticket.ok()) {
        return ticket.status();
      }
      // For this work alone, whatever streams of the application's are at.
      while (!device_.accelerator().done(*ticket)) {
      }
      return device_.accelerator().wait(*ticket);
    });
    return times.ok() ? Result<double>(times->median) : times.status();
  }

  Device& device_;
  const Multiprocessors processors_;
  std::uint64_t memory_ = 0;
};

}  // namespace

Result<RowPace> measurePace(Device& device, const Multiprocessors& processors) {
  Meter meter(device, processors);
  GMAC_TRY(meter.begin());
  auto byte = meter.byte();
  if (!byte.ok()) {
    return byte.status();
  }
  auto row = meter.row();
  if (!row.ok()) {
    return row.status();
  }
  RowPace pace;
  pace.row = *row;
  pace.byte = *byte;
  pace.multiprocessors = processors.count;
  return pace;
}

RowPace paceOf(Device& device) {
  RowPace pace;
  const Multiprocessors processors = device.multiprocessors();
  if (processors.count == 0) {
    return pace;
  }
  const MeasuredFile file(device.accelerator().deviceName(), "pack_pace", "gmac pack pace 1");
  const std::array values{MeasuredValue{"row", &pace.row}, MeasuredValue{"byte", &pace.byte}};
  // Of a row and a byte no device takes so long; 0 for a row: there is nothing to gain.
  constexpr double kMostCycles = 1000;
  if (file.read(values) && pace.row <= kMostCycles && pace.byte > 0 && pace.byte <= kMostCycles) {
    pace.multiprocessors = processors.count;
    return pace;
  }
  auto measured = measurePace(device, processors);
  if (!measured.ok()) {
    log(LogLevel::kInfo, "the pace of short rows on {} is not measured: {}",
        device.accelerator().deviceName(), lastErrorText());
    return {};
  }
  pace = *measured;
  file.write(values);
  return pace;
}

}  // namespace gmac::datatype
